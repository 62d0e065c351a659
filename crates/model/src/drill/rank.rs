//! Rank: which hypotheses the figures speak for, in which order, and which action they support.
//!
//! A hypothesis stands by one reading that tells it from the others. *Explains*: the reading is a time that grew by as much as the
//! objective is missed by, or more. *May explain*: the reading is outside its budget, and no figure says by how much it lengthens an
//! answer. *Unlikely*: it is inside. Within a standing the reading over its threshold decides: the miss for times, the budget otherwise.

use base::{Dependency, WorkloadClass};

use super::{Drill, Moved};

/// Hypotheses that are told.
pub const SHOWN: usize = 3;

/// What may be behind a tail. In the order that decides between equals: what is nearest to the answer first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hypothesis {
    /// Clients of the dependency wait before their calls: for a pool, by placement, or in a queue in front of it.
    WaitBefore(Dependency),
    /// The dependency itself takes longer.
    Computation(Dependency),
    /// Another class makes up more of the requests, with more work each, or a pool of its own that it fills.
    MixShift(WorkloadClass),
    /// Pages wait for admission at the endpoint.
    EndpointQueue,
    /// The profile pool is full.
    ProfilePool,
    /// Work goes on for callers who have left.
    LateWork,
    /// The hosts' CPU is what everybody waits for.
    Cpu,
}

/// How a hypothesis stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// Its reading alone accounts for the miss.
    Explains,
    /// Its reading is outside its bound; by how much that lengthens an answer was not measured.
    MayExplain,
    /// Its reading is inside its bound.
    Unlikely,
    /// Its reading was not measured.
    Unknown,
}

impl Standing {
    /// The name used in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Explains => "explains it",
            Self::MayExplain => "may explain it",
            Self::Unlikely => "unlikely",
            Self::Unknown => "not measured",
        }
    }
}

/// A hypothesis with what speaks for and against it, and the check that decides.
#[derive(Clone, Debug, PartialEq)]
pub struct Ranked {
    /// Which.
    pub hypothesis: Hypothesis,
    /// How it stands.
    pub standing: Standing,
    /// Its reading over its threshold; what it is ranked by within its standing.
    pub strength: f64,
    /// The reading, in words.
    pub evidence: String,
    /// What to look at next, and which reading confirms or refutes it.
    pub check: String,
    /// The series of this suite that show it.
    pub series: &'static str,
}

/// What could be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Let more pages in at once.
    RaiseEndpoint,
    /// Add API hosts.
    AddHosts,
    /// Go without the dependency.
    Degrade(Dependency),
    /// Hold the release where it is.
    Hold,
}

/// What the figures say about an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Its own constraint is the one that was shown.
    Supported,
    /// It could help, and nothing shows that it would.
    Weak,
    /// What it relieves is inside its bound.
    Unsupported,
    /// It would break what must hold.
    Refused,
}

impl Verdict {
    /// The name used in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Supported => "supported",
            Self::Weak => "weak",
            Self::Unsupported => "unsupported",
            Self::Refused => "refused",
        }
    }
}

/// An action, judged.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    /// Which.
    pub action: Action,
    /// What is said about it.
    pub verdict: Verdict,
    /// Why.
    pub reason: String,
}

/// What to do with the release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Everything is inside its budget: there is nothing to diagnose.
    Proceed,
    /// It stays where it is until the first check was made.
    Hold,
}

/// The outcome of a drill.
#[derive(Clone, Debug, PartialEq)]
pub struct Diagnosis {
    /// By how much the objective is missed, in milliseconds; zero when it is not.
    pub miss_ms: f64,
    /// What is outside its budget, in words.
    pub breaches: Vec<String>,
    /// Whether two measurements can be compared as they are: no class moved by more than its bound.
    pub comparable: bool,
    /// Every hypothesis, the likeliest first.
    pub ranked: Vec<Ranked>,
    /// The four actions.
    pub actions: Vec<Judged>,
    /// What follows.
    pub decision: Decision,
}

impl Drill {
    /// Ranks, judges and decides.
    pub fn diagnose(&self) -> Diagnosis {
        let miss_ms = (self.p99_ms - self.budgets.p99_ms).max(0.0);
        let mut ranked = self.hypotheses(miss_ms);
        ranked.sort_by(|one, other| {
            one.standing
                .cmp(&other.standing)
                .then(other.strength.total_cmp(&one.strength))
                .then(one.hypothesis.cmp(&other.hypothesis))
        });
        let breaches = self.breaches();
        let decision = if breaches.is_empty() { Decision::Proceed } else { Decision::Hold };
        let actions = self.actions(&ranked, decision);
        let bound = self.budgets.drift_percent / 100.0;
        let comparable = self.classes.iter().flatten().all(|moved| moved.drift_ratio() < bound);
        Diagnosis { miss_ms, breaches, comparable, ranked, actions, decision }
    }

    fn breaches(&self) -> Vec<String> {
        let budgets = &self.budgets;
        let checks = [
            ("p99", Some(self.p99_ms), budgets.p99_ms, "ms"),
            ("queue age", self.queue_age_ms, budgets.queue_age_ms, "ms"),
            ("profile occupancy", self.profile_percent, budgets.profile_percent, "%"),
            ("late work", self.late_percent, budgets.late_percent, "%"),
            ("omission", self.omission_percent, budgets.omission_percent, "%"),
        ];
        let over = checks.into_iter().filter_map(|(what, observed, bound, unit)| {
            let observed = observed?;
            (observed > bound).then(|| format!("{what} {observed} {unit}, must be ≤ {bound}"))
        });
        over.collect()
    }

    fn hypotheses(&self, miss_ms: f64) -> Vec<Ranked> {
        let mut all = Vec::new();
        for name in Dependency::ALL {
            all.extend(self.of_dependency(name, miss_ms));
        }
        for class in WorkloadClass::ALL {
            if let Some(moved) = self.classes[class.index()] {
                all.push(self.of_class(class, moved));
            }
        }
        let budgets = &self.budgets;
        all.push(self.endpoint(miss_ms));
        all.push(bounded(
            Hypothesis::ProfilePool,
            self.profile_percent,
            budgets.profile_percent,
            "profile pool occupancy",
            "pending and active connections of the profile client: a pool that is full with callers pending confirms it, pending of zero refutes it",
            "mercury_home_held and mercury_home_waiting, gate=\"profile\"",
        ));
        all.push(bounded(
            Hypothesis::LateWork,
            self.late_percent,
            budgets.late_percent,
            "late work",
            "work that runs past its caller's leaving, by handler: stop delays above a few milliseconds confirm it, all below refute it",
            "mercury_late_operations_total, mercury_cancellation_stop_delay_seconds",
        ));
        all.push(bounded(
            Hypothesis::Cpu,
            self.cpu_percent,
            budgets.cpu_percent,
            "fleet CPU",
            "CPU by host and the time between runnable and running: hosts near their limit confirm it, idle ones refute it",
            "CPU of the members in run.json of a rehearsal",
        ));
        all
    }

    /// Wait and service of a dependency, told apart: what of the clients' wait its own service explains counts for the one, and the
    /// rest for the other.
    fn of_dependency(&self, name: Dependency, miss_ms: f64) -> Vec<Ranked> {
        let seen = self.dependencies[name.index()];
        let mut told = Vec::new();
        if let Some(wait) = seen.wait_ms {
            let served = seen.service_ms.map(Moved::growth);
            let unexplained = (wait.growth() - served.unwrap_or(0.0)).max(0.0);
            let pool = seen.pool.map_or_else(
                || "the pool was not measured".to_owned(),
                |pool| {
                    format!(
                        "its pool has {} of {} active and {} pending",
                        pool.active, pool.limit, pool.pending
                    )
                },
            );
            // A pool with room and nobody pending is not what is waited for.
            let roomy = seen.pool.is_some_and(|pool| pool.pending == 0 && pool.active < pool.limit);
            let reading = if roomy { 0.0 } else { unexplained };
            told.push(timed(
                Hypothesis::WaitBefore(name),
                reading,
                miss_ms,
                format!(
                    "clients of {name} wait {} → {} ms; its own service explains {} ms of that; {pool}",
                    wait.before,
                    wait.now,
                    served.unwrap_or(0.0).min(wait.growth()),
                ),
                format!(
                    "pending and active calls of {name}'s client pool by class: a full pool with callers pending confirms it; room in it, with the wait as long, points at placement or a queue in front of {name}"
                ),
                "mercury_home_branch_seconds{part=\"wait\"} against part=\"service\"",
            ));
        }
        if let Some(service) = seen.service_ms {
            told.push(timed(
                Hypothesis::Computation(name),
                service.growth(),
                miss_ms,
                format!("{name}'s own service takes {} → {} ms", service.before, service.now),
                format!("{name}'s service time by class and release on the server: longer for the same request confirms it, the same refutes it"),
                "mercury_home_branch_seconds{part=\"service\"}",
            ));
        }
        told
    }

    fn of_class(&self, class: WorkloadClass, moved: Moved) -> Ranked {
        let bound = self.budgets.drift_percent / 100.0;
        // A class that has become rarer brings no more work.
        let drift = if moved.now > moved.before { moved.drift_ratio() } else { 0.0 };
        Ranked {
            hypothesis: Hypothesis::MixShift(class),
            standing: if drift >= bound { Standing::MayExplain } else { Standing::Unlikely },
            strength: drift / bound,
            evidence: format!(
                "{class} went from {} to {} % of the requests; beyond {} % nothing is comparable without reweighting",
                moved.before, moved.now, self.budgets.drift_percent
            ),
            check: format!(
                "p99 by class, reweighted to the mix before: if it is back inside the objective the mix is behind it; if {class} alone is slow, its pool or its fan-out is; if all are, it is not the mix"
            ),
            series: "mercury_home_requests_total by class, mercury_home_queue_age_seconds by class",
        }
    }

    fn endpoint(&self, miss_ms: f64) -> Ranked {
        let budget = self.budgets.queue_age_ms;
        let check = "the endpoint's occupancy beside its queue age: full with a growing age confirms it; an age inside its bound refutes it";
        let series = "mercury_home_queue_age_seconds and mercury_home_held, gate=\"endpoint\"";
        let mut told = bounded(
            Hypothesis::EndpointQueue,
            self.queue_age_ms,
            budget,
            "endpoint queue age",
            check,
            series,
        );
        // An age is a time of the answer: beyond its budget it may account for the miss by itself.
        if let Some(age) = self.queue_age_ms
            && told.standing == Standing::MayExplain
            && miss_ms > 0.0
            && age - budget >= miss_ms
        {
            (told.standing, told.strength) = (Standing::Explains, (age - budget) / miss_ms);
        }
        told
    }

    fn actions(&self, ranked: &[Ranked], decision: Decision) -> Vec<Judged> {
        let first = ranked.first();
        let suspect = ranked.iter().find_map(|one| match one.hypothesis {
            Hypothesis::WaitBefore(name) | Hypothesis::Computation(name)
                if one.standing <= Standing::MayExplain =>
            {
                Some(name)
            }
            _ => None,
        });
        let mut actions = vec![self.raise_endpoint(suspect), self.add_hosts()];
        let named = suspect.or_else(|| {
            Dependency::ALL.into_iter().find(|name| self.dependencies[name.index()].wait_ms.is_some())
        });
        if let Some(name) = named {
            actions.push(degrade(name, suspect == Some(name)));
        }
        let (verdict, reason) = match (decision, first) {
            (Decision::Proceed, _) => (Verdict::Unsupported, "everything is inside its budget".to_owned()),
            (Decision::Hold, Some(first)) => (
                Verdict::Supported,
                format!("until the first check was made, on {}: {}", first.hypothesis, first.check),
            ),
            (Decision::Hold, None) => {
                (Verdict::Supported, "nothing was measured that tells causes apart".to_owned())
            }
        };
        actions.push(Judged { action: Action::Hold, verdict, reason });
        actions
    }

    fn raise_endpoint(&self, suspect: Option<Dependency>) -> Judged {
        let budget = self.budgets.queue_age_ms;
        let (verdict, reason) = match (self.queue_age_ms, suspect) {
            (None, _) => (Verdict::Unsupported, "the age of its queue was not measured".to_owned()),
            (Some(age), _) if age <= budget => {
                (Verdict::Unsupported, format!("its queue is {age} ms old at p99, within {budget}: it is not what pages wait for"))
            }
            (Some(age), Some(name)) => {
                (Verdict::Weak, format!("its queue is {age} ms old, but {name} behind it is slow too: more pages would wait there"))
            }
            (Some(_), None) if self.profile_percent.is_some_and(|busy| busy > self.budgets.profile_percent) => {
                (Verdict::Weak, "its queue is too old, but the profile pool behind it is full: more pages would wait there".to_owned())
            }
            (Some(age), None) => {
                (Verdict::Supported, format!("its queue is {age} ms old, beyond {budget}, and what is behind it has room"))
            }
        };
        Judged { action: Action::RaiseEndpoint, verdict, reason }
    }

    fn add_hosts(&self) -> Judged {
        let bound = self.budgets.cpu_percent;
        let (verdict, reason) = match self.cpu_percent {
            Some(cpu) if cpu >= bound => {
                (Verdict::Supported, format!("CPU is {cpu} % busy, from {bound} % on it makes a tail"))
            }
            Some(cpu) => (
                Verdict::Weak,
                format!(
                    "CPU is {cpu} % busy: hosts bring CPU, and neither slots nor connections unless placement changes with them"
                ),
            ),
            None => (Verdict::Weak, "CPU was not measured; hosts bring nothing else".to_owned()),
        };
        Judged { action: Action::AddHosts, verdict, reason }
    }
}

fn degrade(name: Dependency, suspected: bool) -> Judged {
    let (verdict, reason) = if !name.is_optional() {
        (
            Verdict::Refused,
            format!("{name} is mandatory: a page without it is not correct, whatever it would save"),
        )
    } else if suspected {
        (
            Verdict::Supported,
            format!(
                "{name} is optional, and what is slow; the omission is marked and counted against its budget"
            ),
        )
    } else {
        (Verdict::Unsupported, format!("{name} is optional, and not what is slow"))
    };
    Judged { action: Action::Degrade(name), verdict, reason }
}

/// A hypothesis whose reading is a time.
fn timed(
    hypothesis: Hypothesis,
    grew_ms: f64,
    miss_ms: f64,
    evidence: String,
    check: String,
    series: &'static str,
) -> Ranked {
    let explains = miss_ms > 0.0 && grew_ms >= miss_ms;
    let strength = if miss_ms > 0.0 { grew_ms / miss_ms } else { 0.0 };
    let standing = if explains { Standing::Explains } else { Standing::Unlikely };
    Ranked { hypothesis, standing, strength, evidence, check, series }
}

/// A hypothesis whose reading has a budget.
fn bounded(
    hypothesis: Hypothesis,
    reading: Option<f64>,
    budget: f64,
    what: &str,
    check: &str,
    series: &'static str,
) -> Ranked {
    let standing = match reading {
        None => Standing::Unknown,
        Some(reading) if reading > budget => Standing::MayExplain,
        Some(_) => Standing::Unlikely,
    };
    let evidence = reading.map_or_else(
        || format!("{what} was not measured"),
        |reading| format!("{what} is {reading}, its bound {budget}"),
    );
    let strength = reading.map_or(0.0, |reading| reading / budget);
    Ranked { hypothesis, standing, strength, evidence, check: check.to_owned(), series }
}

impl std::fmt::Display for Hypothesis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::WaitBefore(name) => write!(f, "wait before {name}"),
            Self::Computation(name) => write!(f, "computation of {name}"),
            Self::MixShift(class) => write!(f, "more {class} requests"),
            Self::EndpointQueue => f.write_str("endpoint queue"),
            Self::ProfilePool => f.write_str("profile pool"),
            Self::LateWork => f.write_str("late work"),
            Self::Cpu => f.write_str("CPU"),
        }
    }
}

impl std::fmt::Display for Action {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::RaiseEndpoint => f.write_str("raise endpoint concurrency"),
            Self::AddHosts => f.write_str("add API hosts"),
            Self::Degrade(name) => write!(f, "degrade {name}"),
            Self::Hold => f.write_str("hold the release"),
        }
    }
}
