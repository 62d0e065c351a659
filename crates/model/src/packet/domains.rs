//! Domains: how many admission domains the declared occupancies speak of. An occupancy is counted within one domain and a rate
//! over the region, so that by Little's law the number of domains decides how long a slot is held.
//!
//! With `d` domains a slot is held for `occupied x d / rate`. A number agrees when the median page lies between the two pools: it
//! takes longer than the part of it that holds a connection, and no longer than the mean page, which holds a slot for all of it:
//! latencies are skewed to the right, so that the mean is no less than the median.

/// Most domains that may be asked about.
pub(super) const DOMAINS_MAX: u32 = 1_000;

/// The inputs that the question is asked over, by position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Question {
    /// Numbers from 1 to this are tried.
    pub(super) up_to: u32,
    /// Requests per second of the region.
    pub(super) rate: usize,
    /// Occupied slots that a page holds for all of it.
    pub(super) whole: usize,
    /// Occupied slots that a page holds for a part of it.
    pub(super) part: usize,
    /// Median of a page, in milliseconds.
    pub(super) median: usize,
}

/// The answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Domains {
    /// Requests per second of the region.
    pub requests_per_s: f64,
    /// Occupied slots that a page holds for all of it.
    pub whole_slots: f64,
    /// Occupied slots that a page holds for a part of it.
    pub part_slots: f64,
    /// Median of a page.
    pub median_ms: f64,
    /// For each number of domains, from 1.
    pub rows: Vec<Row>,
    /// Which of them agree.
    pub reading: Reading,
}

/// What a number of domains implies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// The number.
    pub domains: u32,
    /// How long a page holds its slot on average.
    pub whole_ms: f64,
    /// How long it holds the other on average.
    pub part_ms: f64,
    /// Whether the median lies between.
    pub agrees: bool,
}

/// Which numbers agree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reading {
    /// This one alone.
    One(u32),
    /// These: the figures do not decide.
    Several(Vec<u32>),
    /// No number does: the figures contradict each other.
    None,
}

impl Question {
    pub(super) fn audit(&self, inputs: &[f64]) -> Domains {
        let [requests_per_s, whole_slots, part_slots, median_ms] =
            [self.rate, self.whole, self.part, self.median].map(|at| inputs[at]);
        let held_ms = |slots: f64, domains: u32| slots * f64::from(domains) * 1_000.0 / requests_per_s;
        let row = |domains| {
            let (whole_ms, part_ms) = (held_ms(whole_slots, domains), held_ms(part_slots, domains));
            Row { domains, whole_ms, part_ms, agrees: part_ms < median_ms && median_ms <= whole_ms }
        };
        let rows: Vec<Row> = (1..=self.up_to).map(row).collect();
        let agree: Vec<u32> = rows.iter().filter(|row| row.agrees).map(|row| row.domains).collect();
        let reading = match agree[..] {
            [] => Reading::None,
            [one] => Reading::One(one),
            _ => Reading::Several(agree),
        };
        Domains { requests_per_s, whole_slots, part_slots, median_ms, rows, reading }
    }
}
