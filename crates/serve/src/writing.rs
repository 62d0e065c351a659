//! Writing: a response on its way to its reader, and the bytes of it that this process still holds.
//!
//! A body that has ended has not left: hyper takes a frame as soon as the peer's window has room for one byte of it, and
//! keeps the rest. So each piece of a body that is handed over carries a mark that falls off where its memory is given up,
//! which is where it was written. What is marked counts as a response that a drain waits for; a reader that takes
//! less than a piece of a response within the stall bound loses its connection.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

use base::{Clock, Nanos};
use bytes::Bytes;
use tokio::sync::Notify;

use crate::{count::Open, metrics::ResponseGauges};

/// Largest piece that is handed over at once: so much has to leave within the stall bound.
pub(crate) const PIECE_BYTES_MAX: usize = 16 * 1_024;

/// The responses of one connection that wait for their readers.
pub(crate) struct Writers {
    clock: Arc<dyn Clock>,
    waiting: Mutex<Vec<Waiting>>,
    /// Responses that are not over, whether bytes of them wait or not.
    open: AtomicUsize,
    /// Somebody waits, and nobody did.
    begun: Notify,
}

struct Waiting {
    /// The address of the response, which is unique while it is held.
    response: usize,
    /// Since when no piece of it has left.
    since: Nanos,
}

impl Writers {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self { clock, waiting: Mutex::default(), open: AtomicUsize::new(0), begun: Notify::new() })
    }

    /// Responses that are not over; all of them are lost with the connection.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Responses of which bytes wait.
    #[cfg(test)]
    fn waiting(&self) -> usize {
        self.lock().len()
    }

    /// Ends when a response has waited for `bound` without a piece of it leaving.
    pub(crate) async fn stalled(&self, bound: Nanos) {
        loop {
            let oldest = self.lock().iter().map(|waiting| waiting.since).min();
            let Some(oldest) = oldest else {
                self.begun.notified().await;
                continue;
            };
            let waited = self.clock.now().saturating_sub(oldest);
            if waited >= bound {
                return;
            }
            tokio::time::sleep((bound - waited).into()).await;
        }
    }

    fn begin(&self, response: usize) {
        let since = self.clock.now();
        let mut waiting = self.lock();
        waiting.push(Waiting { response, since });
        if waiting.len() == 1 {
            self.begun.notify_one();
        }
    }

    /// Some of it has left; all that was handed over, if `all`.
    fn moved(&self, response: usize, all: bool) {
        let mut waiting = self.lock();
        if let Some(at) = waiting.iter().position(|waiting| waiting.response == response) {
            if all {
                waiting.swap_remove(at);
            } else {
                waiting[at].since = self.clock.now();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One response. Over when its body and every piece of it are gone.
pub(crate) struct Writing {
    gauges: Arc<ResponseGauges>,
    writers: Option<Arc<Writers>>,
    /// Pieces that were handed over and have not left.
    pieces: AtomicUsize,
    /// As a response, and as what has its share of a bound.
    _counted: (Open, Option<Open>),
}

impl Writing {
    pub(crate) fn begin(
        counted: (Open, Option<Open>),
        gauges: &Arc<ResponseGauges>,
        writers: Option<Arc<Writers>>,
    ) -> Arc<Self> {
        gauges.begun();
        if let Some(writers) = &writers {
            writers.open.fetch_add(1, Ordering::Relaxed);
        }
        Arc::new(Self { gauges: Arc::clone(gauges), writers, pieces: AtomicUsize::new(0), _counted: counted })
    }

    /// The same bytes, marked.
    pub(crate) fn mark(self: &Arc<Self>, data: Bytes) -> Bytes {
        if data.is_empty() {
            return data;
        }
        self.gauges.held(data.len());
        if self.pieces.fetch_add(1, Ordering::Relaxed) == 0
            && let Some(writers) = &self.writers
        {
            writers.begin(self.key());
        }
        Bytes::from_owner(Piece { data, response: Arc::clone(self) })
    }

    fn key(self: &Arc<Self>) -> usize {
        Arc::as_ptr(self).addr()
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.gauges.ended();
        if let Some(writers) = &self.writers {
            writers.open.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// A marked piece of a body.
struct Piece {
    data: Bytes,
    response: Arc<Writing>,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        let response = &self.response;
        response.gauges.left(self.data.len());
        let all = response.pieces.fetch_sub(1, Ordering::Relaxed) == 1;
        if let Some(writers) = &response.writers {
            writers.moved(response.key(), all);
        }
    }
}

#[cfg(test)]
mod tests {
    use base::clock::MonotonicClock;
    use futures_util::FutureExt as _;

    use super::*;
    use crate::{
        lifecycle::Lifecycle,
        metrics::{Registry, ServerMetrics},
    };

    #[tokio::test]
    async fn a_response_is_over_when_its_last_piece_has_left() {
        let clock: Arc<dyn Clock> = Arc::new(MonotonicClock);
        let lifecycle = Lifecycle::new(Arc::clone(&clock));
        let registry = Registry::new("test");
        let metrics = ServerMetrics::new(&registry, "test");
        let writers = Writers::new(clock);
        let writing =
            Writing::begin((lifecycle.respond(), None), metrics.responses(), Some(Arc::clone(&writers)));
        let pieces = [&b"one"[..], b"three"].map(|text| writing.mark(Bytes::from_static(text)));
        assert_eq!(pieces[1], &b"three"[..]);
        let held = |bytes: u64| {
            let line = format!("mercury_response_bytes_waiting{{server=\"test\"}} {bytes}\n");
            assert!(registry.encode().contains(&line), "{line}");
        };
        held(8);
        assert_eq!((writers.waiting(), writers.open(), lifecycle.responding_count()), (1, 1, 1));
        assert!(writers.stalled(Nanos::ZERO).now_or_never().is_some(), "nothing has left since it began");
        assert!(writers.stalled(Nanos::from_secs(60)).now_or_never().is_none());
        drop(writing);
        let [first, mut second] = pieces;
        drop(first);
        held(5);
        let rest = second.split_off(2);
        drop(second);
        assert_eq!((writers.waiting(), lifecycle.responding_count()), (1, 1), "half of it is still here");
        drop(rest);
        held(0);
        assert_eq!((writers.waiting(), writers.open(), lifecycle.responding_count()), (0, 0, 0));
        assert!(writers.stalled(Nanos::ZERO).now_or_never().is_none(), "nobody waits");
    }
}
