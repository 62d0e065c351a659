//! Formula: the closed set of formulas that a packet's figures may follow by: what each takes, what it comes to, and how it is
//! spelt out.
//!
//! A comparison comes to a margin, the room that is left on the side where it holds, so that both kinds can be looked at alike.

use std::ops::RangeInclusive;

/// Most operands of a figure.
pub const OPERANDS_MAX: usize = 16;
/// What floating point may add to a comparison, relative to what is compared.
const NOISE: f64 = 1e-9;

/// How a figure follows from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Formula {
    /// `a + b + …`
    Sum,
    /// `a - b - …`
    Difference,
    /// `a x b x …`
    Product,
    /// `a / b`
    Quotient,
    /// `a` as percent of `b`.
    PercentOf,
    /// The share of `a` that the part `b` is of all parts, the operands from `b` on.
    PartOf,
    /// How likely at least one of independent events is, in percent; the operands are ratios.
    AnyOf,
    /// The largest operand.
    Longest,
    /// What a call may wait: its timeout `a`, or the remaining time `b` less the margin `c`, whichever is shorter.
    AllowedWait,
    /// `a x b x …` KiB in MiB.
    MibOfKib,
    /// Attempts per call when the share `a` is tried again `b` times: `1 + a x b`.
    Attempts,
    /// Holds when no operand is more than the next.
    AtMost,
    /// Holds when `a` is more than `b`.
    Above,
}

impl Formula {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::Sum,
        Self::Difference,
        Self::Product,
        Self::Quotient,
        Self::PercentOf,
        Self::PartOf,
        Self::AnyOf,
        Self::Longest,
        Self::AllowedWait,
        Self::MibOfKib,
        Self::Attempts,
        Self::AtMost,
        Self::Above,
    ];

    /// The name used in the file.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Difference => "difference",
            Self::Product => "product",
            Self::Quotient => "quotient",
            Self::PercentOf => "percent_of",
            Self::PartOf => "part_of",
            Self::AnyOf => "any_of",
            Self::Longest => "longest",
            Self::AllowedWait => "allowed_wait",
            Self::MibOfKib => "mib_of_kib",
            Self::Attempts => "attempts",
            Self::AtMost => "at_most",
            Self::Above => "above",
        }
    }

    /// The formula of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|formula| formula.as_str() == name)
    }

    /// Whether it holds or does not, rather than coming to a figure.
    pub const fn compares(self) -> bool {
        matches!(self, Self::AtMost | Self::Above)
    }

    /// How many operands it takes.
    pub const fn operands(self) -> RangeInclusive<usize> {
        match self {
            Self::Quotient | Self::PercentOf | Self::Attempts | Self::Above => 2..=2,
            Self::AllowedWait => 3..=3,
            Self::PartOf => 3..=OPERANDS_MAX,
            Self::Sum
            | Self::Difference
            | Self::Product
            | Self::AnyOf
            | Self::Longest
            | Self::MibOfKib
            | Self::AtMost => 2..=OPERANDS_MAX,
        }
    }

    /// What it comes to; the margin, if it compares. Not finite where it divides by nothing. The number of operands must be
    /// one of [`Self::operands`].
    pub fn apply(self, of: &[f64]) -> f64 {
        let rest = || of[1..].iter();
        match self {
            Self::Sum => of.iter().sum(),
            Self::Difference => of[0] - rest().sum::<f64>(),
            Self::Product => of.iter().product(),
            Self::Quotient => of[0] / of[1],
            Self::PercentOf => of[0] / of[1] * 100.0,
            Self::PartOf => of[0] * of[1] / rest().sum::<f64>(),
            Self::AnyOf => (1.0 - of.iter().map(|ratio| 1.0 - ratio).product::<f64>()) * 100.0,
            Self::Longest => of.iter().copied().fold(f64::MIN, f64::max),
            Self::AllowedWait => of[0].min(of[1] - of[2]),
            Self::MibOfKib => of.iter().product::<f64>() / 1024.0,
            Self::Attempts => 1.0 + of[0] * of[1],
            Self::AtMost => of.windows(2).map(|pair| pair[1] - pair[0]).fold(f64::MAX, f64::min),
            Self::Above => of[0] - of[1],
        }
    }

    /// Whether a comparison of these operands holds. Each two are looked at by themselves: what is noise beside the largest of
    /// them may be much beside the others.
    pub(super) fn holds(self, of: &[f64]) -> bool {
        of.windows(2).all(|pair| {
            let noise = pair[0].max(pair[1]) * NOISE;
            if self == Self::Above { pair[0] - pair[1] > noise } else { pair[1] - pair[0] >= -noise }
        })
    }

    /// Whether an operand of this value at this position changes nothing, so that the figure would repeat another: adding 0,
    /// dividing by 1.
    pub(super) fn repeats(self, position: usize, value: f64) -> bool {
        let neutral = match self {
            Self::Sum | Self::AnyOf => 0.0,
            Self::Difference if position > 0 => 0.0,
            Self::PartOf if position > 1 => 0.0,
            Self::Product => 1.0,
            Self::Quotient if position == 1 => 1.0,
            Self::PercentOf if position == 1 => 100.0,
            _ => return false,
        };
        value == neutral
    }

    /// Spelt out over its operands.
    pub(super) fn spell(self, of: &[Term]) -> Term {
        let join = |separator: &str, bind: Bind| {
            of.iter().map(|term| term.within(bind)).collect::<Vec<_>>().join(separator)
        };
        let (a, b) = (&of[0], &of[1]);
        let (text, bind) = match self {
            Self::Sum => (join(" + ", Bind::Sum), Bind::Sum),
            Self::Difference => {
                let rest: Vec<_> = of[1..].iter().map(|term| term.within(Bind::Product)).collect();
                (format!("{} - {}", a.within(Bind::Sum), rest.join(" - ")), Bind::Sum)
            }
            Self::Product => (join(" x ", Bind::Product), Bind::Product),
            Self::Quotient => {
                (format!("{} / {}", a.within(Bind::Product), b.within(Bind::Atom)), Bind::Product)
            }
            Self::PercentOf => {
                (format!("{} / {} x 100", a.within(Bind::Product), b.within(Bind::Atom)), Bind::Product)
            }
            Self::PartOf => {
                let parts: Vec<_> = of[1..].iter().map(|term| term.within(Bind::Sum)).collect();
                let (whole, part) = (a.within(Bind::Product), b.within(Bind::Product));
                (format!("{whole} x {part} / ({})", parts.join(" + ")), Bind::Product)
            }
            Self::AnyOf => {
                let none: Vec<_> =
                    of.iter().map(|term| format!("(1 - {})", term.within(Bind::Product))).collect();
                (format!("(1 - {}) x 100", none.join(" x ")), Bind::Product)
            }
            Self::Longest => (format!("max({})", join(", ", Bind::Sum)), Bind::Atom),
            Self::AllowedWait => {
                let (timeout, remaining) = (a.within(Bind::Sum), b.within(Bind::Sum));
                (format!("min({timeout}, {remaining} - {})", of[2].within(Bind::Product)), Bind::Atom)
            }
            Self::MibOfKib => (format!("{} / 1024", join(" x ", Bind::Product)), Bind::Product),
            Self::Attempts => {
                (format!("1 + {} x {}", a.within(Bind::Product), b.within(Bind::Product)), Bind::Sum)
            }
            Self::AtMost => (join(" <= ", Bind::Sum), Bind::Comparison),
            Self::Above => (join(" > ", Bind::Sum), Bind::Comparison),
        };
        Term { text, bind }
    }
}

/// How tightly a term holds together, loosest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Bind {
    Comparison,
    Sum,
    Product,
    Atom,
}

/// A formula spelt out, with what is needed to set it inside another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Term {
    pub(super) text: String,
    bind: Bind,
}

impl Term {
    pub(super) fn number(value: f64) -> Self {
        let bind = if value < 0.0 { Bind::Sum } else { Bind::Atom };
        Self { text: number(value), bind }
    }

    /// In parentheses where it is looser than what it stands in.
    fn within(&self, bind: Bind) -> String {
        if self.bind < bind { format!("({})", self.text) } else { self.text.clone() }
    }
}

/// A number as people write it, to at most nine decimals.
pub fn number(value: f64) -> String {
    let text = format!("{value:.9}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}
