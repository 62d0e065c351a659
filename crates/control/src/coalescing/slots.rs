//! Slots: a table whose places are reused and whose ids are not, so that an id kept too long finds nothing.

use smallvec::SmallVec;

/// Names one value for as long as it is in its table, and nothing afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct SlotId {
    index: u32,
    serial: u64,
}

impl SlotId {
    /// Of the first value that any table takes.
    pub(super) const FIRST: Self = Self { index: 0, serial: 0 };

    pub(super) const fn index(self) -> u32 {
        self.index
    }
}

#[derive(Debug)]
enum Slot<T> {
    Taken { serial: u64, value: T },
    Free { next: Option<u32> },
}

/// Values by id; insertion, lookup and removal in constant time. Places are kept for reuse, so the table is as long as
/// it was at its fullest; whoever inserts holds the maximum.
#[derive(Debug)]
pub(super) struct Slots<T> {
    /// The first two places are in the table itself: most flights need no more.
    slots: SmallVec<[Slot<T>; 2]>,
    free: Option<u32>,
    /// Of the next insertion. 64 bits do not come round.
    serial: u64,
    len: u32,
}

impl<T> Slots<T> {
    pub(super) fn new() -> Self {
        Self { slots: SmallVec::new(), free: None, serial: 0, len: 0 }
    }

    pub(super) const fn len(&self) -> u32 {
        self.len
    }

    pub(super) fn insert(&mut self, value: T) -> SlotId {
        let serial = self.serial;
        self.serial += 1;
        self.len += 1;
        let taken = Slot::Taken { serial, value };
        let Some(index) = self.free else {
            let index = self.slots.len() as u32;
            self.slots.push(taken);
            return SlotId { index, serial };
        };
        let before = std::mem::replace(&mut self.slots[index as usize], taken);
        self.free = match before {
            Slot::Free { next } => next,
            Slot::Taken { .. } => unreachable!("the list of free places leads to free places only"),
        };
        SlotId { index, serial }
    }

    pub(super) fn get(&self, id: SlotId) -> Option<&T> {
        match self.slots.get(id.index as usize) {
            Some(Slot::Taken { serial, value }) if *serial == id.serial => Some(value),
            _ => None,
        }
    }

    pub(super) fn get_mut(&mut self, id: SlotId) -> Option<&mut T> {
        match self.slots.get_mut(id.index as usize) {
            Some(Slot::Taken { serial, value }) if *serial == id.serial => Some(value),
            _ => None,
        }
    }

    pub(super) fn remove(&mut self, id: SlotId) -> Option<T> {
        self.get(id)?;
        let slot = self.slots.get_mut(id.index as usize)?;
        let Slot::Taken { value, .. } = std::mem::replace(slot, Slot::Free { next: self.free }) else {
            return None;
        };
        self.free = Some(id.index);
        self.len -= 1;
        Some(value)
    }

    pub(super) fn into_values(self) -> SmallVec<[T; 2]> {
        let mut values = SmallVec::with_capacity(self.len as usize);
        values.extend(self.slots.into_iter().filter_map(|slot| match slot {
            Slot::Taken { value, .. } => Some(value),
            Slot::Free { .. } => None,
        }));
        values
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever the order of insertions and removals, an id finds its own value until it is removed, and nothing
        /// afterwards, and the table is never longer than it was full.
        #[test]
        fn an_id_finds_its_own_value_or_nothing(
            steps in proptest::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 1..120),
        ) {
            let mut slots = Slots::new();
            let mut ids: Vec<(SlotId, bool)> = Vec::new();
            let mut fullest = 0;
            for (insert, which) in steps {
                if insert || ids.is_empty() {
                    let id = slots.insert(ids.len());
                    prop_assert!(ids.iter().all(|(other, _)| *other != id));
                    ids.push((id, true));
                } else {
                    let position = which.index(ids.len());
                    let (id, present) = &mut ids[position];
                    prop_assert_eq!(slots.remove(*id), present.then_some(position));
                    *present = false;
                }
                for (position, (id, present)) in ids.iter().enumerate() {
                    prop_assert_eq!(slots.get(*id), present.then_some(&position));
                }
                let present = ids.iter().filter(|(_, present)| *present).count();
                fullest = fullest.max(present);
                prop_assert_eq!(slots.len() as usize, present);
                prop_assert_eq!(slots.slots.len(), fullest);
            }
            let mut values = slots.into_values();
            values.sort_unstable();
            let expected: Vec<_> = (0..ids.len()).filter(|position| ids[*position].1).collect();
            prop_assert_eq!(values.to_vec(), expected);
        }
    }
}
