//! Packet: the closed-form figures of a document, declared so that they can be recomputed: the inputs, and for each figure the
//! formula that it follows by and the value that the document states.
//!
//! `mercury packet verify` recomputes them. A packet is refused when an input takes part in nothing, since that input could be
//! changed unnoticed, and when a figure only repeats another, since it would agree whatever the figures say.

mod diagnose;
mod domains;
mod file;
mod formula;
mod verify;

use base::mix;

pub use self::{
    diagnose::{Diagnosis, Fit, Range},
    domains::{Domains, Reading, Row},
    formula::{Formula, OPERANDS_MAX, number},
    verify::{Outcome, Report, Verdict},
};
use crate::{faults::Faults, read};

/// The packets that this version ships with, in the order in which they are verified: file names for messages, and texts.
pub const SHIPPED: [(&str, &str); 3] = [
    (
        "config/packets/mercury-latency-slo.toml",
        include_str!("../../../config/packets/mercury-latency-slo.toml"),
    ),
    ("config/packets/search-journey.toml", include_str!("../../../config/packets/search-journey.toml")),
    ("config/packets/relay.toml", include_str!("../../../config/packets/relay.toml")),
];
/// Most inputs.
pub const INPUTS_MAX: usize = 64;
/// Most figures.
pub const FIGURES_MAX: usize = 64;
/// Largest number that a packet may declare or state.
pub const NUMBER_MAX: f64 = 1e12;
/// What the name of an input may end in: its unit, or what it counts.
pub const UNITS: [&str; 15] = [
    "ms",
    "s",
    "min",
    "per_s",
    "percent",
    "ratio",
    "kib",
    "mib",
    "parts",
    "count",
    "slots",
    "connections",
    "permits",
    "requests",
    "sockets",
];

/// One validated packet.
#[derive(Clone, Debug, PartialEq)]
pub struct Packet {
    /// Its name.
    pub name: String,
    /// Raised with every change.
    pub version: u32,
    /// Digest of the document's bytes, for reports.
    pub digest: u64,
    /// What it is about, one sentence.
    pub about: String,
    /// Title of the document that states the figures.
    pub source: String,
    /// What is declared, in the order of the file.
    pub inputs: Vec<Input>,
    /// What follows, in the order of the file.
    pub figures: Vec<Figure>,
    /// Positions of the figures, each after those that it takes.
    order: Vec<usize>,
    /// What is asked about admission domains.
    domains: Option<domains::Question>,
}

/// A declared number.
#[derive(Clone, Debug, PartialEq)]
pub struct Input {
    /// Its name, which ends in its unit.
    pub name: String,
    /// Its value.
    pub value: f64,
}

/// A figure that follows from others.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Its name.
    pub name: String,
    /// Its unit.
    pub unit: String,
    /// How it follows.
    pub formula: Formula,
    /// From what, in the formula's order.
    of: Vec<Operand>,
    /// What is claimed of it.
    pub claim: Claim,
    /// What the document states in its place, where that does not follow from its inputs.
    pub stated: Option<Stated>,
}

/// What a formula takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operand {
    /// Position of an input.
    Input(usize),
    /// Position of a figure.
    Figure(usize),
}

/// What is claimed of a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Claim {
    /// It is this value, to so many decimals.
    Rounded {
        /// The value.
        value: f64,
        /// Decimals that it is stated to.
        decimals: u32,
        /// Whether the rest was cut off rather than rounded.
        down: bool,
    },
    /// It is this value, give or take.
    Within {
        /// The value.
        value: f64,
        /// How far it may be off, either way.
        tolerance: f64,
    },
    /// The comparison holds.
    Holds,
}

/// A value that does not follow from its inputs.
#[derive(Clone, Debug, PartialEq)]
pub struct Stated {
    /// The value.
    pub value: f64,
    /// Why it is another.
    pub why: String,
}

impl Packet {
    /// Reads and validates a document. `file_name` is for messages.
    ///
    /// # Errors
    /// [`Faults`] with every fault of the document.
    pub fn parse(file_name: &str, text: &str) -> Result<Self, Faults> {
        read::document(file_name, text, |table| file::packet(table, mix::fold_bytes(0, text.as_bytes())))
    }

    /// The packets that this version ships with.
    pub fn shipped() -> Vec<Self> {
        let parse = |(file, text)| {
            Self::parse(file, text).expect("the shipped packets are valid, which a test checks")
        };
        SHIPPED.into_iter().map(parse).collect()
    }

    /// The same packet with another value of one input; not validated anew. `None` when there is no such input.
    pub fn with_input(&self, name: &str, value: f64) -> Option<Self> {
        let at = self.inputs.iter().position(|input| input.name == name)?;
        let mut packet = self.clone();
        packet.inputs[at].value = value;
        Some(packet)
    }

    /// The declared values.
    fn declared(&self) -> Vec<f64> {
        self.inputs.iter().map(|input| input.value).collect()
    }

    /// What every figure comes to over these inputs; a comparison to its margin.
    fn compute(&self, inputs: &[f64]) -> Vec<f64> {
        let mut figures = vec![0.0; self.figures.len()];
        for &at in &self.order {
            let figure = &self.figures[at];
            figures[at] = figure.formula.apply(&figure.operands(inputs, &figures));
        }
        figures
    }

    /// Names of the inputs that a figure rests on, by way of other figures too, as a mask over the inputs.
    fn rests_on(&self) -> Vec<Vec<bool>> {
        let mut masks = vec![vec![false; self.inputs.len()]; self.figures.len()];
        for &at in &self.order {
            let mut mask = vec![false; self.inputs.len()];
            for operand in &self.figures[at].of {
                match *operand {
                    Operand::Input(input) => mask[input] = true,
                    Operand::Figure(below) => {
                        mask.iter_mut().zip(&masks[below]).for_each(|(mine, theirs)| *mine |= theirs);
                    }
                }
            }
            masks[at] = mask;
        }
        masks
    }
}

impl Figure {
    /// The values of its operands.
    fn operands(&self, inputs: &[f64], figures: &[f64]) -> Vec<f64> {
        let value = |operand: &Operand| match *operand {
            Operand::Input(at) => inputs[at],
            Operand::Figure(at) => figures[at],
        };
        self.of.iter().map(value).collect()
    }
}

impl Claim {
    /// Least and most that a computed value may be. `None` for a comparison.
    fn span(&self) -> Option<(f64, f64)> {
        match *self {
            Self::Rounded { value, decimals, down } => {
                let step = step(decimals);
                Some(if down { (value, value + step) } else { (value - step / 2.0, value + step / 2.0) })
            }
            Self::Within { value, tolerance } => Some((value - tolerance, value + tolerance)),
            Self::Holds => None,
        }
    }

    /// The claimed value. `None` for a comparison.
    pub fn value(&self) -> Option<f64> {
        match *self {
            Self::Rounded { value, .. } | Self::Within { value, .. } => Some(value),
            Self::Holds => None,
        }
    }
}

/// One in the last of so many decimals.
fn step(decimals: u32) -> f64 {
    (0..decimals).fold(1.0, |step, _| step / 10.0)
}

#[cfg(test)]
mod tests;
