//! Diagnose: which input is to blame when figures do not agree. An input is, when some other value of it alone would make every
//! figure agree, those that agree already included.
//!
//! Along one input every figure agrees on some stretches and not on others, and the ends of the stretches are where it comes to
//! the least or the most that is claimed. They are found by bisection; between two neighbouring ends nothing changes, so that one
//! look into each gap suffices.

use std::fmt;

use super::{NUMBER_MAX, Packet, formula::number};

/// The search goes this many eighths of a power of ten up and down from the declared value.
const REACH_EIGHTHS: i32 = 48;
/// Halvings of a bracket; a double has no more digits.
const HALVINGS_MAX: usize = 128;

/// Why figures do not agree.
#[derive(Clone, Debug, PartialEq)]
pub struct Diagnosis {
    /// The figures that do not agree, in the order of the file.
    pub figures: Vec<String>,
    /// The inputs that would explain it, each by itself, in the order of the file.
    pub fits: Vec<Fit>,
    /// All inputs that those figures rest on.
    pub inputs: Vec<String>,
}

/// An input that would explain it.
#[derive(Clone, Debug, PartialEq)]
pub struct Fit {
    /// Its name.
    pub input: String,
    /// What is declared.
    pub declared: f64,
    /// What the figures imply.
    pub implied: Range,
}

/// What the figures imply about an input.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Range {
    /// It is this, to as few digits as the figures allow.
    Value(f64),
    /// It is no more than this.
    AtMost(f64),
    /// It is less than this.
    LessThan(f64),
    /// It is no less than this.
    AtLeast(f64),
    /// It is more than this.
    MoreThan(f64),
}

impl fmt::Display for Range {
    /// `0.26`, `at most 8`, `more than 300`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Value(value) => write!(f, "{}", number(value)),
            Self::AtMost(value) => write!(f, "at most {}", number(value)),
            Self::LessThan(value) => write!(f, "less than {}", number(value)),
            Self::AtLeast(value) => write!(f, "at least {}", number(value)),
            Self::MoreThan(value) => write!(f, "more than {}", number(value)),
        }
    }
}

impl fmt::Display for Diagnosis {
    /// A line for each input that would explain it, or one that names the inputs when none does.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, Fit { input, declared, implied }) in self.fits.iter().enumerate() {
            let newline = if position == 0 { "" } else { "\n" };
            let declared = number(*declared);
            write!(f, "{newline}{input} = {declared} does not fit its figures; {implied} would")?;
        }
        if self.fits.is_empty() {
            let (figures, inputs) = (self.figures.join(", "), self.inputs.join(", "));
            write!(f, "no single input explains {figures}; they rest on {inputs}")?;
        }
        Ok(())
    }
}

/// The diagnosis of a packet; `None` when every figure agrees.
pub(super) fn diagnose(packet: &Packet) -> Option<Diagnosis> {
    let declared = packet.declared();
    let agreement = packet.agreement(&declared);
    let failing: Vec<usize> = (0..agreement.len()).filter(|at| !agreement[*at]).collect();
    if failing.is_empty() {
        return None;
    }
    let rests_on = packet.rests_on();
    let rests = |figure: &usize, input: usize| rests_on[*figure][input];
    let in_any: Vec<bool> =
        (0..declared.len()).map(|input| failing.iter().any(|figure| rests(figure, input))).collect();
    // An input that one of them does not rest on cannot explain that one.
    let in_all = |input: &usize| failing.iter().all(|figure| rests(figure, *input));
    let exact = failing.iter().any(|at| packet.figures[*at].claim.value().is_some());
    let fit = |input: usize| {
        let touched = (0..packet.figures.len()).filter(|figure| rests_on[*figure][input]).collect();
        let line = Line { packet, declared: &declared, input, touched };
        let implied = line.implied(exact)?;
        Some(Fit { input: packet.inputs[input].name.clone(), declared: declared[input], implied })
    };
    let fits = (0..declared.len()).filter(in_all).filter_map(fit).collect();
    let figures = failing.iter().map(|at| packet.figures[*at].name.clone()).collect();
    Some(Diagnosis { figures, fits, inputs: packet.named(&in_any) })
}

/// The packet along one input, all others as declared.
struct Line<'p> {
    packet: &'p Packet,
    declared: &'p [f64],
    input: usize,
    /// The figures that rest on it.
    touched: Vec<usize>,
}

impl Line<'_> {
    fn at(&self, value: f64) -> Vec<f64> {
        let mut inputs = self.declared.to_vec();
        inputs[self.input] = value;
        inputs
    }

    /// Whether every figure agrees there.
    fn agrees(&self, value: f64) -> bool {
        self.packet.agreement(&self.at(value)).into_iter().all(|agrees| agrees)
    }

    /// What the figures imply about the input, nearest to what is declared. `None` when nothing makes all of them agree.
    fn implied(&self, exact: bool) -> Option<Range> {
        let declared = self.declared[self.input];
        let distance = |(low, high): &(f64, f64)| (low - declared).max(declared - high);
        let stretches = self.stretches();
        let (low, high) = stretches.into_iter().min_by(|a, b| distance(a).total_cmp(&distance(b)))?;
        // The declared value itself does not agree, so that it is at an end of the stretch or outside.
        Some(if exact {
            Range::Value(self.shortest(low, high))
        } else if declared >= high {
            if self.agrees(high) { Range::AtMost(high) } else { Range::LessThan(high) }
        } else if self.agrees(low) {
            Range::AtLeast(low)
        } else {
            Range::MoreThan(low)
        })
    }

    /// The stretches on which every figure agrees, as closed intervals; an end itself may be one where a figure does not.
    fn stretches(&self) -> Vec<(f64, f64)> {
        let ends = self.ends();
        let mut found: Vec<(f64, f64)> = Vec::new();
        let points = ends.iter().map(|end| (*end, *end));
        let gaps = ends.windows(2).map(|pair| (pair[0], pair[1]));
        let mut all: Vec<_> = points.chain(gaps).collect();
        all.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
        for (low, high) in all.into_iter().filter(|(low, high)| self.agrees(low + (high - low) / 2.0)) {
            match found.last_mut() {
                Some(last) if last.1 >= low => last.1 = last.1.max(high),
                _ => found.push((low, high)),
            }
        }
        found
    }

    /// Every value at which a figure begins or ceases to agree, and the ends of the search; in order.
    fn ends(&self) -> Vec<f64> {
        let grid = self.grid();
        let gauges: Vec<Vec<f64>> = grid.iter().map(|value| self.gauges(*value)).collect();
        let mut ends = vec![grid[0], grid[grid.len() - 1]];
        for (x, y) in grid.windows(2).zip(gauges.windows(2)) {
            for (gauge, (low, high)) in y[0].iter().zip(&y[1]).enumerate() {
                if low.is_finite() && high.is_finite() && (*low <= 0.0) != (*high <= 0.0) {
                    ends.push(tidy(self.bisect(gauge, (x[0], x[1]))));
                }
            }
        }
        ends.sort_by(f64::total_cmp);
        ends.dedup();
        ends
    }

    /// Numbers that change sign where a figure begins or ceases to agree: how far each is beyond the least and the most that is
    /// claimed, and what is between each two that are compared. The smallest margin of a longer comparison would not do: it rises
    /// and falls, and could be missed between two values of the grid.
    fn gauges(&self, value: f64) -> Vec<f64> {
        let inputs = self.at(value);
        let values = self.packet.compute(&inputs);
        let gauges = |&figure: &usize| {
            let (at, figure) = (figure, &self.packet.figures[figure]);
            match figure.claim.span() {
                Some((least, most)) => vec![values[at] - least, values[at] - most],
                None => {
                    let of = figure.operands(&inputs, &values);
                    of.windows(2).map(|pair| pair[1] - pair[0]).collect()
                }
            }
        };
        self.touched.iter().flat_map(gauges).collect()
    }

    /// Values to look at, in order: nothing, and powers of ten up and down from what is declared.
    fn grid(&self) -> Vec<f64> {
        let input = &self.packet.inputs[self.input];
        let most = if input.name.ends_with("ratio") { 1.0 } else { NUMBER_MAX };
        let scale = if input.value > 0.0 { input.value } else { 1.0 };
        let power = |eighths: i32| scale * libm::exp10(f64::from(eighths) / 8.0);
        let powers = (-REACH_EIGHTHS..=REACH_EIGHTHS).map(power).filter(|value| *value < most);
        [0.0].into_iter().chain(powers).chain([most]).collect()
    }

    /// Where between two values a gauge changes sign.
    fn bisect(&self, gauge: usize, (mut low, mut high): (f64, f64)) -> f64 {
        let below = |value: f64| self.gauges(value)[gauge] <= 0.0;
        let begins_below = below(low);
        for _ in 0..HALVINGS_MAX {
            let middle = low + (high - low) / 2.0;
            if middle <= low || middle >= high {
                break;
            }
            if below(middle) == begins_below { low = middle } else { high = middle }
        }
        high
    }

    /// The number with the fewest digits between the two at which every figure agrees.
    fn shortest(&self, low: f64, high: f64) -> f64 {
        let middle = low + (high - low) / 2.0;
        let rounded = (-12..=12).map(|decimals: i32| {
            let power = libm::exp10(f64::from(decimals.abs()));
            if decimals < 0 { (middle / power).round() * power } else { (middle * power).round() / power }
        });
        rounded
            .filter(|value| (low..=high).contains(value))
            .find(|value| self.agrees(*value))
            .unwrap_or(middle)
    }
}

/// Without what bisection leaves in the last digits.
fn tidy(value: f64) -> f64 {
    format!("{value:.12e}").parse().unwrap_or(value)
}
