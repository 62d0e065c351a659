//! Export: the thread that empties the queue.
//!
//! Whatever the collector does, a request only ever appends to the queue under a short lock or counts a drop. After a
//! shutdown, offered = exported + dropped.

use std::sync::{Arc, mpsc};

use base::{Deadline, Nanos, World};
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::{Resource, trace::SpanExporter as _};
use tokio::sync::watch;
use tracing::Dispatch;

use super::{
    ExportConfig, TelemetryError, Unflushed,
    queue::{Counts, Queue},
    spawn,
};

/// Shortest time between two log lines about dropped spans.
const WARN_INTERVAL: Nanos = Nanos::from_secs(60);
/// Part of a shutdown's bound that the thread is left to settle its accounts and say so.
const SETTLE: Nanos = Nanos::from_millis(250);

/// The exporter's thread, seen from outside.
#[derive(Debug)]
pub(super) struct Running {
    queue: Arc<Queue>,
    stop: watch::Sender<Option<Deadline>>,
    ended: mpsc::Receiver<()>,
}

impl Running {
    pub(super) const fn queue(&self) -> &Arc<Queue> {
        &self.queue
    }

    /// Closes the queue, gives the thread most of `bound` to empty it, and waits for all of `bound` at most. A thread
    /// that does not answer is left behind: the process is about to exit.
    pub(super) fn stop(self, bound: Nanos) -> Result<(), Unflushed> {
        let Self { queue, stop, ended } = self;
        let lost_before = queue.counts.dropped();
        queue.close();
        let flush = bound - SETTLE.min(Nanos::new(bound.get() / 2));
        stop.send_replace(Some(Deadline::after(queue.clock.now(), flush)));
        // An error is either the thread's end or the end of the bound; the counters tell which.
        let _ = ended.recv_timeout(bound.into());
        queue.abandon();
        match queue.counts.undelivered() - lost_before {
            0 => Ok(()),
            lost => Err(Unflushed(lost)),
        }
    }
}

/// Starts the exporter's thread, and waits until it has its channel; not until it has a connection.
pub(super) fn start(
    settings: &ExportConfig,
    resource: Resource,
    world: &World,
    counts: Counts,
) -> Result<Running, TelemetryError> {
    if !settings.endpoint.starts_with("http://") {
        let fault = format!("expected http://host:port, found {:?}", settings.endpoint);
        return Err(TelemetryError::Setting("OTLP endpoint", fault));
    }
    let queue = Arc::new(Queue::new(settings, world, counts));
    let (stop, stopping) = watch::channel(None);
    let (ready, built) = mpsc::sync_channel(1);
    let (ending, ended) = mpsc::sync_channel::<()>(0);
    let worker = Worker {
        queue: Arc::clone(&queue),
        settings: settings.clone(),
        stopping,
        log: tracing::dispatcher::get_default(Dispatch::clone),
    };
    spawn(move || {
        worker.run(resource, &ready);
        drop(ending);
    })?;
    let gone = || TelemetryError::Thread(std::io::Error::other("it ended at once"));
    built.recv().map_err(|_| gone())??;
    Ok(Running { queue, stop, ended })
}

/// What runs on the exporter's thread.
struct Worker {
    queue: Arc<Queue>,
    settings: ExportConfig,
    stopping: watch::Receiver<Option<Deadline>>,
    log: Dispatch,
}

impl Worker {
    fn run(self, resource: Resource, ready: &mpsc::SyncSender<Result<(), TelemetryError>>) {
        // Nothing that the exporter's libraries say on this thread is logged, or seen by any other subscriber: traffic
        // about telemetry must not become telemetry.
        let _quiet = tracing::dispatcher::set_default(&Dispatch::none());
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return drop(ready.send(Err(TelemetryError::Thread(error)))),
        };
        runtime.block_on(async {
            match self.exporter(&resource) {
                Err(error) => drop(ready.send(Err(error))),
                Ok(exporter) => {
                    drop(ready.send(Ok(())));
                    tokio::select! {
                        biased; // What could still be delivered counts, even in the moment the time runs out.
                        () = self.work(&exporter) => {}
                        () = self.out_of_time() => {}
                    }
                    self.queue.abandon();
                }
            }
        });
        // A name that is being resolved blocks a thread which nobody can stop.
        runtime.shutdown_background();
    }

    /// The channel connects when it is first used, and again whenever the connection was lost.
    fn exporter(&self, resource: &Resource) -> Result<SpanExporter, TelemetryError> {
        let builder = SpanExporter::builder().with_tonic();
        let builder =
            builder.with_endpoint(&self.settings.endpoint).with_timeout(self.settings.timeout.into());
        let wrong = |error: opentelemetry_otlp::ExporterBuildError| {
            TelemetryError::Setting("OTLP endpoint", error.to_string())
        };
        let mut exporter = builder.build().map_err(wrong)?;
        exporter.set_resource(resource);
        Ok(exporter)
    }

    /// Sends what waits, when a batch is full and when the delay is over, until a stop finds the queue empty.
    async fn work(&self, exporter: &SpanExporter) {
        let mut stopping = self.stopping.clone();
        let mut warnings = Warnings::default();
        loop {
            tokio::select! {
                biased; // A stop need not wait for a timer.
                _ = stopping.wait_for(Option::is_some) => {}
                () = self.queue.batch_ready.notified() => {}
                () = tokio::time::sleep(self.settings.delay.into()) => {}
            }
            let mut fault = None;
            while let Some(batch) = self.queue.take() {
                if let Err(error) = batch.send(exporter, self.settings.timeout).await {
                    fault = Some(error);
                }
                self.warn(&mut warnings, fault.as_deref());
            }
            // No sender means that nobody will ever ask for more.
            if stopping.has_changed().is_err() || stopping.borrow().is_some() {
                return;
            }
        }
    }

    /// Returns when the time that a stop granted is over; at once if the owner is gone without asking.
    async fn out_of_time(&self) {
        let mut stopping = self.stopping.clone();
        let granted = stopping.wait_for(Option::is_some).await.ok().and_then(|granted| *granted);
        if let Some(deadline) = granted {
            tokio::time::sleep(deadline.remaining(self.queue.clock.now()).into()).await;
        }
    }

    fn warn(&self, warnings: &mut Warnings, fault: Option<&str>) {
        if let Some(dropped) = warnings.due(self.queue.clock.now(), self.queue.counts.dropped()) {
            tracing::dispatcher::with_default(&self.log, || {
                let fault = fault.unwrap_or("the queue was full");
                tracing::warn!(dropped_spans = dropped, fault, "spans are not being delivered");
            });
        }
    }
}

/// Decides when dropped spans are worth a log line: at the first one, then once an interval while the loss goes on.
#[derive(Debug, Default)]
struct Warnings {
    last: Option<Nanos>,
    told: u64,
}

impl Warnings {
    /// The spans dropped since the last line, when a line is due.
    fn due(&mut self, now: Nanos, dropped: u64) -> Option<u64> {
        let rested = self.last.is_none_or(|last| now.saturating_sub(last) >= WARN_INTERVAL);
        let news = dropped - self.told;
        (news > 0 && rested).then(|| {
            (self.last, self.told) = (Some(now), dropped);
            news
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_is_told_at_once_and_then_once_an_interval() {
        let mut warnings = Warnings::default();
        assert_eq!(warnings.due(Nanos::from_secs(1), 0), None);
        assert_eq!(warnings.due(Nanos::from_secs(2), 5), Some(5));
        assert_eq!(warnings.due(Nanos::from_secs(3), 900), None);
        assert_eq!(warnings.due(Nanos::from_secs(62), 1_000), Some(995));
        assert_eq!(warnings.due(Nanos::from_secs(200), 1_000), None);
    }
}
