//! Permit: the right to hold one slot, in one word, so that it travels in a register. Of all that an admission costs, the
//! copying of a larger one through memory was the most.

use std::{fmt, num::NonZero};

use base::{Nanos, WorkloadClass};

use super::CLASSES;

/// Low bits: the class. Those above: the age and one, or zero for one that did not wait.
const CLASS_BITS: u32 = 2;
const _: () = assert!(CLASSES <= 1 << CLASS_BITS);

/// The greatest age that there is room for, some 146 years.
const AGE_MAX: u64 = (u64::MAX >> CLASS_BITS) - 1;

/// The right to hold one slot. It goes back by [`Gate::release`](super::Gate::release); one that is dropped instead is lost
/// to the gate.
#[must_use = "a permit that is not released is lost to the gate"]
pub struct Permit(NonZero<u64>);

impl Permit {
    /// For work that found it free.
    #[inline]
    pub(super) const fn at_once(class: WorkloadClass) -> Self {
        Self::pack(class as u64)
    }

    /// For work that waited, and was this old when it came free.
    #[inline]
    pub(super) fn after(age: Nanos, class: WorkloadClass) -> Self {
        Self::pack(class as u64 | (age.get().min(AGE_MAX) + 1) << CLASS_BITS)
    }

    #[inline]
    const fn pack(word: u64) -> Self {
        // One more, so that no word is zero and an `Option` of a permit is as small.
        Self(NonZero::<u64>::MIN.saturating_add(word))
    }

    #[inline]
    const fn word(&self) -> u64 {
        self.0.get() - 1
    }

    /// The class that it is charged to.
    #[inline]
    pub const fn class(&self) -> WorkloadClass {
        match self.word() & ((1 << CLASS_BITS) - 1) {
            0 => WorkloadClass::Standard,
            1 => WorkloadClass::Premium,
            _ => WorkloadClass::Enterprise,
        }
    }

    /// How old the work was, from header arrival, when a permit came free for it; `None` when it did not have to wait.
    #[inline]
    pub const fn age(&self) -> Option<Nanos> {
        match self.word() >> CLASS_BITS {
            0 => None,
            more => Some(Nanos::new(more - 1)),
        }
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").field("class", &self.class()).field("age", &self.age()).finish()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_permit_is_one_word_taken_or_not() {
        assert_eq!(size_of::<Option<Permit>>(), size_of::<u64>());
    }

    proptest! {
        /// What goes in comes out, but for ages beyond all reason.
        #[test]
        fn class_and_age_are_kept(
            class in prop::sample::select(WorkloadClass::ALL.to_vec()),
            age in prop_oneof![any::<u64>(), 0_u64..3, AGE_MAX - 1..AGE_MAX + 3, Just(u64::MAX)],
        ) {
            let permit = Permit::after(Nanos::new(age), class);
            prop_assert_eq!((permit.class(), permit.age()), (class, Some(Nanos::new(age.min(AGE_MAX)))));
            let permit = Permit::at_once(class);
            prop_assert_eq!((permit.class(), permit.age()), (class, None));
        }
    }
}
