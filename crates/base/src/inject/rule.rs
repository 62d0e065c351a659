//! Rule: what is to happen at a point, and how an operator writes it.

use std::fmt;

use super::Point;
use crate::mix;

/// One in this many is the smallest share.
const SHARE_PPM: u32 = 1_000_000;

/// What a point does when it acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The step fails, with an error that says so.
    Fail,
    /// The step waits until it is let go, or until whoever waits for it gives up.
    Hold,
    /// The task panics.
    Panic,
    /// The process ends as by SIGKILL.
    Kill,
}

impl Action {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Fail, Self::Hold, Self::Panic, Self::Kill];

    /// The name used on the command line, in logs and in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fail => "fail",
            Self::Hold => "hold",
            Self::Panic => "panic",
            Self::Kill => "kill",
        }
    }
}

/// What is to happen at a point, how often, and by which draws.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Injection {
    /// Where.
    pub point: Point,
    /// What.
    pub action: Action,
    /// In how many of a million passes.
    pub share_ppm: u32,
    /// Most times that it acts.
    pub times_max: u64,
    /// Of the draws.
    pub seed: u64,
}

impl Injection {
    /// Every pass, without end.
    pub const fn always(point: Point, action: Action) -> Self {
        Self { point, action, share_ppm: SHARE_PPM, times_max: u64::MAX, seed: 0 }
    }

    /// The next pass, and no other.
    pub const fn once(point: Point, action: Action) -> Self {
        Self { times_max: 1, ..Self::always(point, action) }
    }

    /// Whether the pass of that number is one that acts: a pure function of seed, point and number.
    pub(super) fn draws(&self, point: Point, number: u64) -> bool {
        let bits = mix::fold64(mix::fold64(self.seed, point.index() as u64), number);
        mix::below(bits, u64::from(SHARE_PPM)) < u64::from(self.share_ppm)
    }

    /// Reads `POINT=ACTION[@SHARE][/TIMES][,SEED]`: `after-commit=kill`, `before-send=fail@0.25,7`, `respond=hold/1`.
    ///
    /// # Errors
    /// [`MalformedInjection`], which says which part is wrong and what may stand there.
    pub fn parse(text: &str) -> Result<Self, MalformedInjection> {
        let fault = |fault: String| Err(MalformedInjection(fault));
        let Some((point, rest)) = text.split_once('=') else {
            return fault(format!("expected POINT=ACTION[@SHARE][/TIMES][,SEED], found {text:?}"));
        };
        let Some(point) = Point::parse(point) else {
            let names = Point::ALL.map(Point::as_str).join(", ");
            return fault(format!("there is no point {point:?}; expected one of {names}"));
        };
        let (rest, seed) = rest.split_once(',').map_or((rest, "0"), |(rest, seed)| (rest, seed));
        let (rest, times) = rest.split_once('/').map_or((rest, None), |(rest, times)| (rest, Some(times)));
        let (action, share) = rest.split_once('@').map_or((rest, "1"), |(action, share)| (action, share));
        let Some(action) = Action::ALL.into_iter().find(|known| known.as_str() == action) else {
            let names = Action::ALL.map(Action::as_str).join(", ");
            return fault(format!("{point}: there is no action {action:?}; expected one of {names}"));
        };
        let Some(share) = share.parse::<f64>().ok().filter(|share| *share > 0.0 && *share <= 1.0) else {
            return fault(format!("{point}: expected a share above 0 and up to 1, found {share:?}"));
        };
        let times_max = match times.map(str::parse::<u64>) {
            None => u64::MAX,
            Some(Ok(times)) if times > 0 => times,
            Some(_) => return fault(format!("{point}: expected a number of times from 1, found {times:?}")),
        };
        let Ok(seed) = seed.parse() else {
            return fault(format!("{point}: expected a whole number as seed, found {seed:?}"));
        };
        let share_ppm = ((share * f64::from(SHARE_PPM)).round() as u32).max(1);
        Ok(Self { point, action, share_ppm, times_max, seed })
    }
}

impl fmt::Display for Injection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.point, self.action.as_str())?;
        if self.share_ppm < SHARE_PPM {
            write!(f, "@{}", f64::from(self.share_ppm) / f64::from(SHARE_PPM))?;
        }
        if self.times_max < u64::MAX {
            write!(f, "/{}", self.times_max)?;
        }
        write!(f, ",{}", self.seed)
    }
}

/// What an operator wrote is no injection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MalformedInjection(String);

impl fmt::Display for MalformedInjection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for MalformedInjection {}
