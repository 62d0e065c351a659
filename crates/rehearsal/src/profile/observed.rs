//! Observed: every figure that a run found, by what it is and, where it is one of a phase, by the phase. What is not there was
//! not measured.

use std::collections::BTreeMap;

use model::load_profile::Figure;

/// Figures of one run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Observed(BTreeMap<(Figure, Option<usize>), f64>);

impl Observed {
    /// Puts a figure of the whole run down; nothing when it is not known.
    pub(super) fn put(&mut self, figure: Figure, value: impl Into<Option<f64>>) {
        if let Some(value) = value.into() {
            self.0.insert((figure, None), value);
        }
    }

    /// Puts a figure of a phase down.
    pub(super) fn put_in(&mut self, phase: usize, figure: Figure, value: impl Into<Option<f64>>) {
        if let Some(value) = value.into() {
            self.0.insert((figure, Some(phase)), value);
        }
    }

    /// Keeps the larger one of what is there and `value`.
    pub(super) fn raise(&mut self, figure: Figure, value: impl Into<Option<f64>>) {
        if let Some(value) = value.into() {
            let worst = self.0.entry((figure, None)).or_insert(value);
            *worst = worst.max(value);
        }
    }

    pub(super) fn get(&self, figure: Figure, phase: Option<usize>) -> Option<f64> {
        self.0.get(&(figure, phase)).copied()
    }

    /// Takes over what `other` knows.
    pub(super) fn take(&mut self, other: Self) {
        self.0.extend(other.0);
    }
}

/// `part / whole` of two counts; nothing when there is no whole.
pub(super) fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_not_there_and_the_worst_stays() {
        let mut observed = Observed::default();
        observed.put(Figure::Panics, None);
        observed.put_in(1, Figure::P99, 280.0);
        observed.raise(Figure::Blind, 1.0);
        observed.raise(Figure::Blind, 3.0);
        observed.raise(Figure::Blind, 2.0);
        assert_eq!(observed.get(Figure::Panics, None), None);
        assert_eq!(
            (observed.get(Figure::P99, Some(1)), observed.get(Figure::P99, None)),
            (Some(280.0), None)
        );
        assert_eq!(observed.get(Figure::Blind, None), Some(3.0));
        assert_eq!(share(1, 0), None);
    }
}
