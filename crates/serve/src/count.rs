//! Count: how many of something are open, and a wait until none is.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::sync::Notify;

/// Counts what is open. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct OpenCount(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    open: AtomicUsize,
    none_left: Notify,
}

/// One of what is counted; over when dropped.
#[derive(Debug)]
pub struct Open(OpenCount);

impl Drop for Open {
    fn drop(&mut self) {
        let inner = &self.0.0;
        if inner.open.fetch_sub(1, Ordering::AcqRel) == 1 {
            inner.none_left.notify_waiters();
        }
    }
}

impl OpenCount {
    /// One more.
    pub fn enter(&self) -> Open {
        self.0.open.fetch_add(1, Ordering::AcqRel);
        Open(self.clone())
    }

    /// One more, unless `max` are open. Those beyond a bound that was lowered stay until they end.
    pub fn enter_below(&self, max: usize) -> Option<Open> {
        let open = &self.0.open;
        let entered =
            open.fetch_update(Ordering::AcqRel, Ordering::Acquire, |now| (now < max).then_some(now + 1));
        entered.is_ok().then(|| Open(self.clone()))
    }

    /// How many there are.
    pub fn now(&self) -> usize {
        self.0.open.load(Ordering::Acquire)
    }

    /// Ends when there is none.
    pub async fn none(&self) {
        loop {
            let none_left = self.0.none_left.notified();
            tokio::pin!(none_left);
            // Registered before the count is read, so that the last one cannot end unseen in between.
            none_left.as_mut().enable();
            if self.now() == 0 {
                return;
            }
            none_left.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_wait_ends_with_the_last_one() {
        let count = OpenCount::default();
        let (first, second) = (count.enter(), count.enter());
        let none = count.none();
        tokio::pin!(none);
        assert!(none.as_mut().now_or_never().is_none());
        drop(first);
        assert!(none.as_mut().now_or_never().is_none());
        drop(second);
        assert_eq!((count.now(), none.now_or_never()), (0, Some(())));
    }
    #[test]
    fn a_bound_that_is_lowered_takes_nothing_back_and_lets_nobody_in() {
        let connections = OpenCount::default();
        let (first, second) = (connections.enter_below(2), connections.enter_below(2));
        assert!(first.is_some() && second.is_some());
        assert!(connections.enter_below(2).is_none());
        assert!(connections.enter_below(1).is_none());
        drop(first);
        assert!(connections.enter_below(1).is_none(), "one is as many as there may be");
        drop(second);
        assert!(connections.enter_below(1).is_some());
        assert_eq!(connections.now(), 0);
    }
}
