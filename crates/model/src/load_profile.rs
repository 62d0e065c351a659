//! Load profile: one way to put the suite under load, with the conditions that it is held to, set before it is run.
//!
//! A profile says what is offered phase by phase, what is broken meanwhile, which peers come beside the callers, what must
//! then be true (`[[accept]]`) and what ends the run at once (`[[stop]]`). `mercury load --profile` runs it.

mod figure;
mod peers;

use base::{Dependency, Nanos, mix};

pub use self::{
    figure::{Figure, Needs},
    peers::{Bodies, Flood, RETAINED_BODY_BYTES, Readers, Reload, Stopping},
};
use crate::{
    Scale,
    draw::Share,
    fault::{self, ScheduledFault},
    faults::Faults,
    read::{self, Table},
    scenario::plain_name,
    workload::{Retries, Workload},
};

/// The profiles that this version ships with, in the order in which they are listed: file names for messages, and texts.
pub const SHIPPED: [(&str, &str); 9] = [
    ("config/profiles/steady.toml", include_str!("../../../config/profiles/steady.toml")),
    ("config/profiles/burst.toml", include_str!("../../../config/profiles/burst.toml")),
    ("config/profiles/slow-dependency.toml", include_str!("../../../config/profiles/slow-dependency.toml")),
    ("config/profiles/retry-storm.toml", include_str!("../../../config/profiles/retry-storm.toml")),
    ("config/profiles/large-body.toml", include_str!("../../../config/profiles/large-body.toml")),
    ("config/profiles/slow-reader.toml", include_str!("../../../config/profiles/slow-reader.toml")),
    ("config/profiles/reload.toml", include_str!("../../../config/profiles/reload.toml")),
    ("config/profiles/shutdown.toml", include_str!("../../../config/profiles/shutdown.toml")),
    ("config/profiles/connection-flood.toml", include_str!("../../../config/profiles/connection-flood.toml")),
];
/// Most phases.
pub const PHASES_MAX: usize = 16;
/// Most faults.
const FAULTS_MAX: usize = 16;
/// Most conditions of one kind.
pub const CONDITIONS_MAX: usize = 64;
/// Longest phase: an hour.
const PHASE_MS_MAX: u64 = 3_600_000;
/// Longest line about a profile, in characters.
const ABOUT_CHARS_MAX: usize = 300;

/// One validated profile.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// Its name.
    pub name: String,
    /// Raised with every change; reports cite it.
    pub version: u32,
    /// Digest of the document's bytes, for reports.
    pub digest: u64,
    /// What it is about, one sentence.
    pub about: String,
    /// Size of the system.
    pub scale: Scale,
    /// What is offered, in order.
    pub phases: Vec<Phase>,
    /// How the callers behave, where it is not as the workload declares it.
    pub callers: Option<Callers>,
    /// The dependency that is watched for harm.
    pub dependency: Option<Dependency>,
    /// What dependencies do in which phase; each begins and ends with it.
    pub faults: Vec<ScheduledFault>,
    /// Peers that do not read.
    pub readers: Option<Readers>,
    /// Bodies that are too large.
    pub bodies: Option<Bodies>,
    /// Too many connections.
    pub flood: Option<Flood>,
    /// The end of home-api.
    pub stopping: Option<Stopping>,
    /// Edits of the policy.
    pub reload: Option<Reload>,
    /// What must be true afterwards.
    pub accept: Vec<Condition>,
    /// What ends the run at once when it is not true.
    pub stop: Vec<Condition>,
}

/// A part of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Phase {
    /// Its name in the report.
    pub name: String,
    /// Its length.
    pub duration: Nanos,
    /// Its length in a short run.
    pub quick: Nanos,
    /// What is offered, in percent of the workload's rate at this scale.
    pub rate_percent: u32,
    /// Whether it is measured.
    pub measured: bool,
}

/// How callers behave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Callers {
    /// Which of them try again, and when.
    pub retries: Retries,
    /// Share that leaves early; the workload's own where it is not said.
    pub departures: Option<Share>,
    /// The deadline that they send; none where it is not said.
    pub timeout: Option<Nanos>,
}

/// Which side of its bound a figure must be on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// At most this.
    AtMost(f64),
    /// At least this.
    AtLeast(f64),
}

/// A figure and its bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Condition {
    /// What is measured.
    pub figure: Figure,
    /// Position of the phase that it is measured in; `None` for one of the whole run.
    pub phase: Option<usize>,
    /// What it is held to.
    pub bound: Bound,
}

impl Profile {
    /// Reads and validates a document. `file_name` is for messages.
    ///
    /// # Errors
    /// [`Faults`] with every fault of the document.
    pub fn parse(file_name: &str, text: &str) -> Result<Self, Faults> {
        read::document(file_name, text, |table| profile(table, mix::fold_bytes(0, text.as_bytes())))
    }

    /// The names of the profiles that this version ships with, in their order.
    pub fn names() -> impl Iterator<Item = &'static str> {
        SHIPPED.iter().filter_map(|(file, _)| file.rsplit('/').next()?.strip_suffix(".toml"))
    }

    /// The shipped profile of that name.
    pub fn shipped(name: &str) -> Option<Self> {
        let (file, text) = SHIPPED.iter().zip(Self::names()).find(|(_, own)| *own == name)?.0;
        Some(Self::parse(file, text).expect("the shipped profiles are valid, which a test checks"))
    }

    /// The workload with this profile's callers.
    pub fn callers_of(&self, workload: Workload) -> Workload {
        let Some(callers) = self.callers else { return workload };
        let mut workload = workload;
        workload.retries = callers.retries;
        if let Some(share) = callers.departures {
            workload.departures.share = share;
        }
        workload
    }

    /// The first phase that is measured, which others are compared with.
    pub fn baseline(&self) -> usize {
        self.phases.iter().position(|phase| phase.measured).unwrap_or(0)
    }
}

fn profile(table: &mut Table<'_>, digest: u64) -> Option<Profile> {
    let name = table.text("name", "1 to 64 characters of a-z, 0-9 and '-'", plain_name);
    let version = table.integer32("version", 1..=u32::MAX);
    let about = table.text("about", "one sentence of 1 to 300 characters", |text| {
        (!text.is_empty() && text.chars().count() <= ABOUT_CHARS_MAX).then(|| text.to_owned())
    });
    let scale =
        table.text("scale", "a fraction above 0 and at most 1, such as 1/60", |text| Scale::parse(text).ok());
    let dependency = table.text_opt("dependency", "the name of a dependency", Dependency::parse);
    let mut names: Vec<String> = Vec::new();
    let phases = table.sections("phases", 1..=PHASES_MAX, |table| {
        let (name, phase) = phase(table);
        // Kept apart, so that a fault elsewhere in a phase does not make its name unknown.
        names.extend(name);
        phase
    });
    if (1..names.len()).any(|at| names[..at].contains(&names[at])) {
        table.fault("phases", "two phases have the same name");
    }
    if phases.as_ref().is_some_and(|phases| phases.iter().all(|phase| !phase.measured)) {
        table.fault("phases", "none is measured");
    }
    let callers = table.section_opt("callers", callers);
    let faults = table.sections("faults", 0..=FAULTS_MAX, |table| {
        let fault = fault::scheduled(table, &names)?;
        if !fault.after.is_zero() || fault.rule.duration.is_some() {
            table.fault("after_ms", "a fault of a profile begins and ends with its phase");
            return None;
        }
        Some(fault)
    });
    let readers = table.section_opt("readers", |table| peers::readers(table, &names));
    let bodies = table.section_opt("bodies", |table| peers::bodies(table, &names));
    let flood = table.section_opt("flood", |table| peers::flood(table, &names));
    let stopping = table.section_opt("stopping", |table| peers::stopping(table, &names));
    let reload = table.section_opt("reload", |table| peers::reload(table, &names));
    // A table that could not be read is there all the same: its own fault is enough.
    let there = |needs: Needs| match needs {
        Needs::Phase | Needs::Run => true,
        Needs::Dependency => dependency.is_none_or(|one| one.is_some()),
        Needs::Readers => readers.is_none_or(|one| one.is_some()),
        Needs::Bodies => bodies.is_none_or(|one| one.is_some()),
        Needs::Flood => flood.is_none_or(|one| one.is_some()),
        Needs::Stopping => stopping.is_none_or(|one| one.is_some()),
        Needs::Reload => reload.is_none_or(|one| one.is_some()),
    };
    let measured: Vec<bool> = phases.iter().flatten().map(|phase| phase.measured).collect();
    let accept = table.sections("accept", 1..=CONDITIONS_MAX, |table| {
        let condition = condition(table, &names, &there)?;
        let unmeasured = condition.phase.is_some_and(|phase| measured.get(phase) == Some(&false));
        if unmeasured {
            table.fault("phase", "is not measured");
            return None;
        }
        if condition.figure == Figure::DependencyCalls && !there(Needs::Dependency) {
            table.fault("figure", "needs the key dependency of the profile");
            return None;
        }
        Some(condition)
    });
    let stop = table.sections("stop", 1..=CONDITIONS_MAX, |table| {
        let condition = condition(table, &names, &there)?;
        if !condition.figure.is_live() || matches!(condition.bound, Bound::AtLeast(_)) {
            table.fault("figure", "cannot stop a run: it is only known afterwards, or grows up to its bound");
            return None;
        }
        Some(condition)
    });
    Some(Profile {
        name: name?,
        version: version?,
        digest,
        about: about?,
        scale: scale?,
        phases: phases?,
        callers: callers?,
        dependency: dependency?,
        faults: faults?,
        readers: readers?,
        bodies: bodies?,
        flood: flood?,
        stopping: stopping?,
        reload: reload?,
        accept: accept?,
        stop: stop?,
    })
}

fn phase(table: &mut Table<'_>) -> (Option<String>, Option<Phase>) {
    let name = table.text("name", "1 to 64 characters of a-z, 0-9 and '-'", plain_name);
    let duration = table.millis("duration_ms", 500..=PHASE_MS_MAX);
    let quick = table.millis_or("quick_ms", 500..=PHASE_MS_MAX, duration.unwrap_or(Nanos::ZERO));
    let rate_percent = table.integer_or("rate_percent", 1..=1_000, 100);
    let measured = table.boolean_or("measured", true);
    if let (Some(duration), Some(quick)) = (duration, quick)
        && quick > duration
    {
        table.fault("quick_ms", "must not exceed duration_ms");
        return (name, None);
    }
    let phase = || {
        Some(Phase {
            name: name.clone()?,
            duration: duration?,
            quick: quick?,
            rate_percent: u32::try_from(rate_percent?).ok()?,
            measured: measured?,
        })
    };
    let phase = phase();
    (name, phase)
}

fn callers(table: &mut Table<'_>) -> Option<Callers> {
    let share = table.number("retry_share", 0.0..=1.0).map(Share::from_ratio);
    let delay = table.millis("retry_delay_ms", 1..=60_000);
    let attempts_max = table.integer32("attempts_max", 1..=5);
    let departures = table.number_or("departures_share", 0.0..=1.0, -1.0);
    let timeout = table.millis_or("timeout_ms", 1..=60_000, Nanos::ZERO);
    Some(Callers {
        retries: Retries { share: share?, delay: delay?, attempts_max: attempts_max? },
        departures: Some(departures?).filter(|share| *share >= 0.0).map(Share::from_ratio),
        timeout: Some(timeout?).filter(|timeout| !timeout.is_zero()),
    })
}

fn condition(table: &mut Table<'_>, phases: &[String], there: &impl Fn(Needs) -> bool) -> Option<Condition> {
    let figure = table.text("figure", "the name of a figure", Figure::parse);
    let expected = format!("one of {}", phases.join(", "));
    let phase = table.text_opt("phase", &expected, |name| phases.iter().position(|phase| phase == name));
    let most = table.number_or("at_most", 0.0..=1e9, -1.0);
    let least = table.number_or("at_least", 0.0..=1e9, -1.0);
    let (figure, phase) = (figure?, phase?);
    let bound = match (most?, least?) {
        (most, least) if most >= 0.0 && least < 0.0 => Bound::AtMost(most),
        (most, least) if least >= 0.0 && most < 0.0 => Bound::AtLeast(least),
        _ => {
            table.fault("at_most", "expected exactly one of at_most and at_least");
            return None;
        }
    };
    let needs = figure.needs();
    if !there(needs) {
        let key = needs.key().unwrap_or_default();
        table.fault("figure", format!("is not measured in a profile without {key}"));
        return None;
    }
    if (needs == Needs::Phase) != phase.is_some() {
        let message = if phase.is_none() {
            "missing: the figure is one of a phase"
        } else {
            "the figure is one of the whole run"
        };
        table.fault("phase", message);
        return None;
    }
    Some(Condition { figure, phase, bound })
}

#[cfg(test)]
mod tests;
