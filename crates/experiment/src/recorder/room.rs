//! Room: what may wait for the writer, counted in rows and in bytes.

use std::sync::{Arc, Mutex, PoisonError};

use crate::{decide::Exposure, metrics::Metrics};

/// Rows and the bytes that they occupy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) rows: usize,
    pub(super) bytes: usize,
}

impl Size {
    pub(super) fn of(exposures: &[Exposure]) -> Self {
        Self { rows: exposures.len(), bytes: exposures.iter().map(Exposure::bytes).sum() }
    }
}

/// The room before the writer. Its limits come with every question, since the policy may lower them: then nobody is put out,
/// and nobody let in until there is room.
pub(super) struct Room {
    taken: Mutex<Size>,
    metrics: Arc<Metrics>,
}

/// A part of the room, given back when it is dropped.
pub(super) struct Place {
    room: Arc<Room>,
    size: Size,
}

impl Room {
    pub(super) fn new(metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self { taken: Mutex::default(), metrics })
    }

    /// A place of `size`, unless there would be more than `max` in the room.
    pub(super) fn take(self: &Arc<Self>, size: Size, max: Size) -> Option<Place> {
        let fits = |taken: Size| {
            let (rows, bytes) = (taken.rows.checked_add(size.rows)?, taken.bytes.checked_add(size.bytes)?);
            (rows <= max.rows && bytes <= max.bytes).then_some(Size { rows, bytes })
        };
        self.change(fits).then(|| Place { room: Arc::clone(self), size })
    }

    fn change(&self, change: impl FnOnce(Size) -> Option<Size>) -> bool {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(next) = change(*taken) else { return false };
        *taken = next;
        self.metrics.waiting(next.rows, next.bytes);
        true
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let size = self.size;
        self.room
            .change(|taken| Some(Size { rows: taken.rows - size.rows, bytes: taken.bytes - size.bytes }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: Size = Size { rows: 3, bytes: 100 };

    #[test]
    fn both_limits_hold_each_at_the_limit_and_one_above() {
        let room = Room::new(Arc::default());
        let size = |rows, bytes| Size { rows, bytes };
        assert!(room.take(size(4, 1), MAX).is_none() && room.take(size(1, 101), MAX).is_none());
        let first = room.take(size(2, 60), MAX).expect("room");
        assert!(room.take(size(2, 1), MAX).is_none() && room.take(size(1, 41), MAX).is_none());
        let second = room.take(size(1, 40), MAX).expect("both at their limit");
        assert!(room.take(size(0, 1), MAX).is_none());
        assert_eq!(room.metrics.waiting_now(), (3, 100));
        drop(first);
        assert_eq!(room.metrics.waiting_now(), (1, 40));
        // A lower limit puts nobody out.
        assert!(room.take(size(1, 1), size(1, 10)).is_none());
        drop(second);
        assert!(room.take(size(1, 1), size(1, 10)).is_some());
        assert_eq!(room.metrics.waiting_now(), (0, 0));
    }
}
