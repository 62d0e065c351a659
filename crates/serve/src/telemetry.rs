//! Telemetry: logs to stderr, and spans over OTLP when somebody collects them.
//!
//! Spans are made by [`Tracer`] directly, not bridged from the spans that libraries open through `tracing`. So the
//! exporter's own HTTP/2 client can never feed the exporter, whatever the log filter says, and without a collector a
//! request pays for one id and no object. The exporter lives on a thread of its own with its own runtime: it shares no
//! worker with what it observes, and waiting for it at shutdown cannot deadlock.

mod config;
mod export;
mod queue;
mod span;

use std::{fmt, sync::Arc, thread};

use base::{Nanos, World};
use opentelemetry::KeyValue;
use opentelemetry_sdk::Resource;

use crate::metrics::Registry;

pub use config::{ExportConfig, LogConfig, LogFormat, QUEUE_MAX, TelemetryConfig};
pub use opentelemetry::trace::SpanKind;
pub use span::{SpanHandle, Tracer};

/// Suggested bound for [`Telemetry::shutdown`].
pub const SHUTDOWN_MAX: Nanos = Nanos::from_secs(3);

/// Telemetry could not be set up.
#[derive(Debug)]
pub enum TelemetryError {
    /// A setting is wrong: its name, and what is wrong with it.
    Setting(&'static str, String),
    /// The process has a logger already.
    LoggerTaken,
    /// The exporter's thread or runtime did not start.
    Thread(std::io::Error),
}

impl fmt::Display for TelemetryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Setting(name, fault) => write!(f, "{name}: {fault}"),
            Self::LoggerTaken => f.write_str("the process has a logger already"),
            Self::Thread(error) => write!(f, "the telemetry thread did not start: {error}"),
        }
    }
}

impl std::error::Error for TelemetryError {}

/// Spans were lost at shutdown: this many were still waiting when the bound ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unflushed(pub u64);

impl fmt::Display for Unflushed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} spans were not delivered before the telemetry bound", self.0)
    }
}

impl std::error::Error for Unflushed {}

/// Logs and spans of a process, for as long as this lives. Dropping it without [`Telemetry::shutdown`] gives up what
/// waits.
#[derive(Debug)]
pub struct Telemetry {
    tracer: Tracer,
    exporter: Option<export::Running>,
}

/// Sets up the logger, once a process, and then the spans, see [`Telemetry::start`].
///
/// # Errors
/// [`TelemetryError`] for a wrong setting, or when the process has a logger already.
pub fn init(
    config: &TelemetryConfig,
    world: &World,
    registry: &Registry,
) -> Result<Telemetry, TelemetryError> {
    config.log.install()?;
    Telemetry::start(config, world, registry)
}

impl Telemetry {
    /// Sets up spans, once a registry, and leaves the logger alone. Without [`TelemetryConfig::export`] there is no thread and no queue,
    /// and the tracer only passes W3C context on. A collector that cannot be reached is no error, now or later: spans
    /// are dropped and counted.
    ///
    /// # Errors
    /// [`TelemetryError`] when the endpoint is not one, or the thread does not start.
    pub fn start(
        config: &TelemetryConfig,
        world: &World,
        registry: &Registry,
    ) -> Result<Self, TelemetryError> {
        let counts = queue::Counts::register(registry);
        let Some(settings) = &config.export else {
            return Ok(Self { tracer: Tracer::off(), exporter: None });
        };
        // Detectors first: OTEL_RESOURCE_ATTRIBUTES may add, and may not rename the service.
        let resource = Resource::builder()
            .with_service_name(config.service)
            .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
            .with_attribute(KeyValue::new("service.instance.id", config.instance.clone()))
            .build();
        registry.bound("telemetry_spans_max", settings.queue_max as u64);
        let running = export::start(settings, resource, world, counts)?;
        Ok(Self { tracer: Tracer::on(Arc::clone(running.queue())), exporter: Some(running) })
    }

    /// Makes the spans of this process.
    pub fn tracer(&self) -> Tracer {
        self.tracer.clone()
    }

    /// Delivers what waits, and returns after `bound` at the latest, however the collector behaves. Blocks: call it
    /// when serving has ended, off any runtime that still has work. Spans that end later are dropped and counted.
    ///
    /// # Errors
    /// [`Unflushed`] when spans were lost. That is worth a log line and never a failed exit.
    pub fn shutdown(self, bound: Nanos) -> Result<(), Unflushed> {
        self.exporter.map_or(Ok(()), |running| running.stop(bound))
    }
}

/// Starts the exporter's thread.
fn spawn<F>(run: F) -> Result<(), TelemetryError>
where
    F: FnOnce() + Send + 'static,
{
    /// HTTP/2, protobuf and a timer need far less than the default of two mebibytes.
    const STACK_BYTES: usize = 512 * 1_024;
    let thread = thread::Builder::new().name("telemetry".to_owned()).stack_size(STACK_BYTES);
    thread.spawn(run).map(drop).map_err(TelemetryError::Thread)
}

#[cfg(test)]
mod tests;
