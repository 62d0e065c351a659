//! Verify: every figure of a packet recomputed, spelt out, and held against what is claimed of it.

use super::{
    Claim, Diagnosis, Domains, Figure, Operand, Packet, Reading, diagnose,
    formula::{Term, number},
};

/// What floating point may add to a computed value, relative to it.
const NOISE: f64 = 1e-9;
/// A figure inside another is spelt out up to this many characters; beyond, its number stands for it.
const NESTED_CHARS_MAX: usize = 60;

/// What became of a packet.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Of each figure, in the order of the file.
    pub outcomes: Vec<Outcome>,
    /// Which input is to blame, when a figure does not agree.
    pub diagnosis: Option<Diagnosis>,
    /// What the declared occupancies say about admission domains, if the packet asks.
    pub domains: Option<Domains>,
    /// Inputs that the figures do not hold to their values: a tenth more or a tenth less goes unnoticed.
    pub loose: Vec<String>,
}

/// What became of a figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Its name.
    pub name: String,
    /// Its unit.
    pub unit: String,
    /// The formula over the inputs' numbers.
    pub spelt: String,
    /// The inputs that it rests on, in the order of the file.
    pub inputs: Vec<String>,
    /// What it comes to; of a comparison, the margin.
    pub computed: f64,
    /// What is claimed.
    pub claim: Claim,
    /// Whether that agrees.
    pub verdict: Verdict,
}

/// Whether a figure agrees.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// It does.
    Agrees,
    /// It does, and the document states another value, for a reason.
    Explained {
        /// What the document states.
        stated: f64,
        /// Why that is another.
        why: String,
    },
    /// It does not.
    Differs,
}

impl Verdict {
    /// The name in reports.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Agrees => "agrees",
            Self::Explained { .. } => "explained",
            Self::Differs => "differs",
        }
    }
}

impl Report {
    /// Whether every figure agrees.
    pub fn agrees(&self) -> bool {
        self.outcomes.iter().all(|outcome| outcome.verdict != Verdict::Differs)
    }

    /// Whether the declared occupancies fit some number of domains, or the packet does not ask.
    pub fn fits_domains(&self) -> bool {
        self.domains.as_ref().is_none_or(|domains| domains.reading != Reading::None)
    }

    /// Whether they fit exactly one, or the packet does not ask.
    pub fn decides_domains(&self) -> bool {
        self.domains.as_ref().is_none_or(|domains| matches!(domains.reading, Reading::One(_)))
    }
}

impl Packet {
    /// Recomputes every figure and says which agree, which input is to blame if one does not, and what the occupancies say.
    pub fn verify(&self) -> Report {
        let inputs = self.declared();
        let figures = self.compute(&inputs);
        let (spelt, rests_on) = (self.spell(&inputs, &figures), self.rests_on());
        let outcome = |(at, figure): (usize, &Figure)| Outcome {
            name: figure.name.clone(),
            unit: figure.unit.clone(),
            spelt: spelt[at].text.clone(),
            inputs: self.named(&rests_on[at]),
            computed: figures[at],
            claim: figure.claim,
            verdict: match (&figure.stated, figure.agrees(&inputs, &figures, figures[at])) {
                (_, false) => Verdict::Differs,
                (None, true) => Verdict::Agrees,
                (Some(stated), true) => Verdict::Explained { stated: stated.value, why: stated.why.clone() },
            },
        };
        Report {
            outcomes: self.figures.iter().enumerate().map(outcome).collect(),
            diagnosis: diagnose::diagnose(self),
            domains: self.domains.map(|question| question.audit(&inputs)),
            loose: self.loose(&inputs),
        }
    }

    /// Names of the inputs under a mask.
    pub(super) fn named(&self, mask: &[bool]) -> Vec<String> {
        let kept = self.inputs.iter().zip(mask).filter(|(_, kept)| **kept);
        kept.map(|(input, _)| input.name.clone()).collect()
    }

    /// Which figures agree over these inputs, by position.
    pub(super) fn agreement(&self, inputs: &[f64]) -> Vec<bool> {
        let figures = self.compute(inputs);
        let agrees = |(figure, computed): (&Figure, &f64)| figure.agrees(inputs, &figures, *computed);
        self.figures.iter().zip(&figures).map(agrees).collect()
    }

    /// Every figure spelt out, by position. Figures inside others are spelt out as well, as long as that can be read.
    fn spell(&self, inputs: &[f64], figures: &[f64]) -> Vec<Term> {
        let mut spelt: Vec<Term> = figures.iter().map(|value| Term::number(*value)).collect();
        for &at in &self.order {
            let figure = &self.figures[at];
            let term = |operand: &Operand| match *operand {
                Operand::Input(at) => Term::number(inputs[at]),
                Operand::Figure(at) if spelt[at].text.chars().count() > NESTED_CHARS_MAX => {
                    Term::number(figures[at])
                }
                Operand::Figure(at) => spelt[at].clone(),
            };
            spelt[at] = figure.formula.spell(&figure.of.iter().map(term).collect::<Vec<_>>());
        }
        spelt
    }

    /// The inputs of which a tenth more or a tenth less changes no figure's agreement.
    fn loose(&self, inputs: &[f64]) -> Vec<String> {
        let before = self.agreement(inputs);
        let unnoticed = |at: usize| {
            [0.9, 1.1].into_iter().any(|factor| {
                let mut changed = inputs.to_vec();
                changed[at] *= factor;
                self.agreement(&changed) == before
            })
        };
        (0..inputs.len()).filter(|at| unnoticed(*at)).map(|at| self.inputs[at].name.clone()).collect()
    }
}

impl Figure {
    /// Whether `computed` over these values is what is claimed.
    fn agrees(&self, inputs: &[f64], figures: &[f64], computed: f64) -> bool {
        if !computed.is_finite() {
            return false;
        }
        match self.claim.span() {
            None => self.formula.holds(&self.operands(inputs, figures)),
            Some((least, most)) => {
                let noise = computed.abs().max(least.abs()) * NOISE;
                // What is cut off comes to less than a step; what is rounded may be half a step off.
                let cut = matches!(self.claim, Claim::Rounded { down: true, .. });
                computed >= least - noise
                    && if cut { computed < most - noise } else { computed <= most + noise }
            }
        }
    }
}

impl Outcome {
    /// One line: the formula with its numbers, what it comes to, and what is claimed.
    pub fn line(&self) -> String {
        let (spelt, unit) = (&self.spelt, &self.unit);
        match self.claim {
            Claim::Holds => format!("{spelt} {unit}"),
            Claim::Rounded { value, decimals, down } => {
                let places = usize::try_from(decimals).unwrap_or_default();
                let cut = if down { ", cut off" } else { "" };
                format!("{spelt} = {} {unit}; stated {value:.places$}{cut}", number(self.computed))
            }
            Claim::Within { value, tolerance } => {
                let (value, tolerance) = (number(value), number(tolerance));
                format!(
                    "{spelt} = {} {unit}; stated {value}, give or take {tolerance}",
                    number(self.computed)
                )
            }
        }
    }
}
