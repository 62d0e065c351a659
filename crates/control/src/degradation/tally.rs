//! Tally: what became of an optional section, by cause and class.

use base::WorkloadClass;

use super::{Marker, Omission};

const CLASSES: usize = WorkloadClass::ALL.len();

/// Counts of one optional section since the tally was made. For each class, sections = present + empty + omitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    present: [u64; CLASSES],
    empty: [u64; CLASSES],
    omitted: [[u64; CLASSES]; Omission::ALL.len()],
}

impl Tally {
    /// Counts one section of one response.
    pub const fn count(&mut self, class: WorkloadClass, marker: Marker) {
        let counter = match marker {
            Marker::Present => &mut self.present[class.index()],
            Marker::Empty => &mut self.empty[class.index()],
            Marker::Omitted(cause) => &mut self.omitted[cause.index()][class.index()],
        };
        *counter += 1;
    }

    /// How often the class's section was marked so.
    pub const fn of(&self, class: WorkloadClass, marker: Marker) -> u64 {
        match marker {
            Marker::Present => self.present[class.index()],
            Marker::Empty => self.empty[class.index()],
            Marker::Omitted(cause) => self.omitted[cause.index()][class.index()],
        }
    }

    /// How many sections of the class were left out, for whatever cause.
    pub fn omitted(&self, class: WorkloadClass) -> u64 {
        self.omitted.iter().map(|by_class| by_class[class.index()]).sum()
    }

    /// How many sections of the class were counted.
    pub fn sections(&self, class: WorkloadClass) -> u64 {
        self.present[class.index()] + self.empty[class.index()] + self.omitted(class)
    }
}
