//! Watch: every member once a second while a profile runs, held against the stop conditions as it is read.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use base::{Clock, Dependency, Nanos, clock::MonotonicClock};
use futures_util::future::join_all;
use model::load_profile::{Bound, Condition, Figure};

use super::observed::Observed;
use crate::{
    control::{Control, Stats},
    measure::scrape,
    scrape::Scrape,
    suite::Member,
    usage,
};

/// Between two looks.
const INTERVAL: Duration = Duration::from_secs(1);
const MIB: f64 = (1 << 20) as f64;
/// Requests before a share of them says anything.
const REQUESTS_MIN: f64 = 200.0;

/// What was seen so far; the worst of each figure, and the memory of each member.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) worst: Observed,
    /// Resident bytes when the first measured phase began.
    pub(super) baseline: BTreeMap<Member, u64>,
    /// Most resident bytes since then, by the kernel's high-water mark.
    pub(super) peak: BTreeMap<Member, u64>,
    /// The latest.
    pub(super) now: BTreeMap<Member, u64>,
    /// Members whose high-water mark counts from the baseline on.
    marked: BTreeSet<Member>,
    /// Sockets of home-api at the baseline that are none of its connections.
    other_sockets: Option<u32>,
    /// When each member was last heard.
    heard: BTreeMap<Member, Nanos>,
}

/// A stop condition that was breached, and when.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Breach {
    pub(super) condition: Condition,
    pub(super) observed: f64,
    /// Since the start.
    pub(super) at: Nanos,
}

/// The bounds of home-api that are watched.
#[derive(Clone, Copy, Debug)]
pub(super) struct HomeBounds {
    pub(super) connections_max: u32,
    /// Stated budget of resident memory, where the profile states one.
    pub(super) memory_bytes: Option<u64>,
}

/// Who looks.
pub(super) struct Watchman<'w> {
    /// Each member, its process and its admin port.
    pub(super) members: Vec<(Member, u32, String)>,
    pub(super) control: Control,
    pub(super) dependency: Option<Dependency>,
    pub(super) home: HomeBounds,
    pub(super) stop: &'w [Condition],
    pub(super) seen: &'w RefCell<Seen>,
    /// Set once home-api was told to stop: it is not missed any more.
    pub(super) home_leaves: &'w Cell<bool>,
    /// Set when memory is to be measured from the next look on.
    pub(super) baseline_due: &'w Cell<bool>,
}

impl Watchman<'_> {
    /// Looks once a second until a stop condition is breached, and says which; for ever when none is.
    pub(super) async fn run(mut self) -> Breach {
        let began = MonotonicClock.now();
        self.seen.borrow_mut().heard = self.members.iter().map(|(member, ..)| (*member, began)).collect();
        let mut tick = tokio::time::interval(INTERVAL);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            let latest = self.look().await;
            self.seen.borrow_mut().worst.raise_all(&latest);
            if let Some((condition, observed)) = breached(self.stop, &latest) {
                return Breach { condition, observed, at: MonotonicClock.now() - began };
            }
        }
    }

    /// One look more, when the run is over.
    pub(super) async fn last_look(mut self) -> Observed {
        self.look().await
    }

    /// What is true now.
    async fn look(&mut self) -> Observed {
        let mut latest = Observed::default();
        let due = self.baseline_due.take();
        self.weigh(due, &mut latest);
        let scrapes = self.members.iter().map(|(member, _, admin)| async { (*member, scrape(admin).await) });
        let (scrapes, stats) = tokio::join!(join_all(scrapes), self.control.stats());
        let scrapes: BTreeMap<Member, Scrape> =
            scrapes.into_iter().filter_map(|(member, scrape)| Some((member, scrape?))).collect();
        let expected = self.expected();
        let total = |series: &str| total(&expected, &scrapes, series);
        latest.put(Figure::Panics, total("mercury_handler_panics_total"));
        latest.put(Figure::SpansLost, total("mercury_telemetry_dropped_spans_total"));
        if let Some(experiment) = scrapes.get(&Member::EXPERIMENT) {
            let conflicts = experiment.sum("mercury_exposures_total", &[("outcome", "conflict")], &[]);
            latest.put(Figure::Conflicts, conflicts);
        }
        if let Some(home) = scrapes.get(&Member::HOME_API) {
            latest.put(Figure::Ambiguous, ambiguous(home));
            self.connections(due, home, &mut latest);
        }
        let mut seen = self.seen.borrow_mut();
        let now = MonotonicClock.now();
        seen.heard.extend(scrapes.keys().map(|member| (*member, now)));
        latest.put(Figure::Blind, silence(&expected, &seen.heard, now).map(Nanos::as_secs_f64));
        if let (Some(dependency), Ok(stats)) = (self.dependency, stats) {
            harm(dependency, &stats, &mut latest);
        }
        latest
    }

    /// The members that must answer.
    fn expected(&self) -> Vec<Member> {
        let leaves = self.home_leaves.get().then_some(Member::HOME_API);
        self.members.iter().map(|(member, ..)| *member).filter(|member| Some(*member) != leaves).collect()
    }

    /// Memory of each member; growth counts from the baseline on, and what comes and goes between two looks counts as well.
    fn weigh(&self, due: bool, latest: &mut Observed) {
        let seen = &mut *self.seen.borrow_mut();
        for (member, pid, _) in &self.members {
            let Ok(usage) = usage::read(*pid) else { continue };
            seen.now.insert(*member, usage.rss_bytes);
            // Where the mark cannot be set back, it may be that of the start, and what is there at the looks has to do.
            let most = if seen.marked.contains(member) { usage.rss_peak_bytes } else { usage.rss_bytes };
            if due {
                seen.baseline.insert(*member, usage.rss_bytes);
                if usage::reset_peak(*pid).is_ok() {
                    seen.marked.insert(*member);
                }
            }
            if *member == Member::HOME_API {
                latest.put(Figure::HomeMemory, most as f64 / MIB);
                let budget = self.home.memory_bytes.map(|bytes| most as f64 / bytes as f64);
                latest.put(Figure::FloodMemory, budget);
            }
            if let Some(first) = seen.baseline.get(member) {
                let peak = seen.peak.entry(*member).or_insert(*first);
                *peak = (*peak).max(most);
                latest.raise(Figure::MemoryGrowth, most.saturating_sub(*first) as f64 / MIB);
            }
        }
    }

    /// Connections of home-api, counted in the kernel's list of its sockets where there is a flood. Only what it has beside
    /// them, its listeners and its own connections to others, is told with its help, at the baseline.
    fn connections(&self, due: bool, home: &Scrape, latest: &mut Observed) {
        let flooded = self.home.memory_bytes.is_some();
        let pid =
            self.members.iter().find(|(member, ..)| *member == Member::HOME_API).map(|(_, pid, _)| *pid);
        let Some(sockets) = pid.filter(|_| flooded).and_then(|pid| usage::sockets(pid).ok()) else { return };
        let mut seen = self.seen.borrow_mut();
        if due {
            let open = home.sum("mercury_connections_open", &[("server", "home-api")], &[]);
            seen.other_sockets = open.map(|open| sockets.saturating_sub(open as u32));
        }
        let held = seen.other_sockets.map(|others| sockets.saturating_sub(others));
        let bound = f64::from(self.home.connections_max);
        latest.put(Figure::FloodOpen, held.map(|held| f64::from(held) / bound));
    }
}

impl Seen {
    /// Takes the last look in. What was heard before the end counts, so its silence does not.
    pub(super) fn finish(&mut self, latest: &Observed) {
        self.worst.raise_all(latest);
    }

    /// What is left of the growth of the member where it is most; `None` when nothing was weighed.
    pub(super) fn kept_bytes(&self) -> Option<u64> {
        let kept = self
            .baseline
            .iter()
            .filter_map(|(member, first)| Some(self.now.get(member)?.saturating_sub(*first)));
        kept.max()
    }
}

impl Observed {
    /// Raises every live figure to what `latest` says.
    fn raise_all(&mut self, latest: &Self) {
        for figure in Figure::ALL {
            self.raise(*figure, latest.get(*figure, None));
        }
    }
}

/// A counter of all who are expected, together; `None` when one of them did not answer, or none has it.
fn total(expected: &[Member], scrapes: &BTreeMap<Member, Scrape>, series: &str) -> Option<f64> {
    if expected.iter().any(|member| !scrapes.contains_key(member)) {
        return None;
    }
    let sums = scrapes.values().filter_map(|scrape| scrape.sum(series, &[], &[]));
    sums.reduce(|sum, value| sum + value)
}

/// How long the one who has been silent for longest has been.
fn silence(expected: &[Member], heard: &BTreeMap<Member, Nanos>, now: Nanos) -> Option<Nanos> {
    expected.iter().filter_map(|member| Some(now.saturating_sub(*heard.get(member)?))).max()
}

/// Requests that home-api ended because of an exposure that nobody can know about, over requests offered; `None` before there
/// are enough of them.
fn ambiguous(home: &Scrape) -> Option<f64> {
    let server = ("server", "home-api");
    let offered = home.sum("mercury_requests_offered_total", &[server], &[])?;
    let ended = |outcome| home.sum("mercury_requests_finished_total", &[server, ("outcome", outcome)], &[]);
    let ambiguous = ended("effect_ambiguous")? + ended("effect_ambiguous_deadline")?;
    (offered >= REQUESTS_MIN).then(|| ambiguous / offered)
}

fn harm(dependency: Dependency, stats: &Stats, latest: &mut Observed) {
    let name = dependency.as_str();
    latest.put(Figure::DependencyQueue, stats.waiting.get(name).map(|waiting| f64::from(*waiting)));
    latest.put(Figure::DependencyOverload, stats.overloaded.get(name).map(|count| *count as f64));
    let load = stats.peaks.get(name).map(|(peak, servers)| f64::from(*peak) / f64::from((*servers).max(1)));
    latest.put(Figure::DependencyLoad, load);
}

/// The first condition that is known not to hold.
fn breached(conditions: &[Condition], latest: &Observed) -> Option<(Condition, f64)> {
    conditions.iter().find_map(|condition| {
        let observed = latest.get(condition.figure, condition.phase)?;
        let holds = match condition.bound {
            Bound::AtMost(bound) => observed <= bound,
            Bound::AtLeast(bound) => observed >= bound,
        };
        (!holds).then_some((*condition, observed))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_breach_is_named_and_what_is_not_known_stops_nothing() {
        let condition = |figure, most| Condition { figure, phase: None, bound: Bound::AtMost(most) };
        let stop = [condition(Figure::MemoryGrowth, 8.0), condition(Figure::Panics, 0.0)];
        let mut latest = Observed::default();
        assert_eq!(breached(&stop, &latest), None);
        latest.put(Figure::MemoryGrowth, 8.0);
        latest.put(Figure::Panics, 0.0);
        assert_eq!(breached(&stop, &latest), None, "at the bound");
        latest.put(Figure::Panics, 1.0);
        assert_eq!(breached(&stop, &latest), Some((stop[1], 1.0)));
        latest.put(Figure::MemoryGrowth, 8.1);
        assert_eq!(breached(&stop, &latest), Some((stop[0], 8.1)));
    }

    #[test]
    fn pages_that_end_for_an_ambiguous_effect_are_counted_as_home_api_names_them() {
        use base::Reason;
        let text = |offered: u32, unknown: u32, unanswered: u32| {
            let finished = |reason: Reason, count: u32| {
                let outcome = reason.as_str();
                format!(
                    "mercury_requests_finished_total{{server=\"home-api\",outcome=\"{outcome}\"}} {count}\n"
                )
            };
            Scrape::new(format!(
                "mercury_requests_offered_total{{server=\"home-api\"}} {offered}\n\
                 mercury_requests_offered_total{{server=\"admin\"}} 9000\n{}{}{}",
                finished(Reason::EffectAmbiguous, unknown),
                finished(Reason::EffectAmbiguousDeadline, unanswered),
                finished(Reason::DeadlineExceeded, 70),
            ))
        };
        assert_eq!(ambiguous(&text(200, 0, 0)), Some(0.0));
        assert_eq!(ambiguous(&text(200, 3, 1)), Some(0.02), "a stop condition can fire");
        assert_eq!(ambiguous(&text(199, 3, 0)), None, "too few to say");
        assert_eq!(ambiguous(&Scrape::new("# EOF\n")), None);
    }

    #[test]
    fn a_member_that_does_not_answer_is_missed() {
        let expected = [Member::HOME_API, Member::EXPERIMENT];
        let scrape = |lost: u32| Scrape::new(format!("mercury_lost_total {lost}\n"));
        let mut scrapes = BTreeMap::from([(Member::HOME_API, scrape(2))]);
        assert_eq!(total(&expected, &scrapes, "mercury_lost_total"), None);
        assert_eq!(total(&expected[..1], &scrapes, "mercury_lost_total"), Some(2.0));
        scrapes.insert(Member::EXPERIMENT, scrape(3));
        assert_eq!(total(&expected, &scrapes, "mercury_lost_total"), Some(5.0));
        let heard = BTreeMap::from([
            (Member::HOME_API, Nanos::from_secs(9)),
            (Member::EXPERIMENT, Nanos::from_secs(4)),
        ]);
        assert_eq!(silence(&expected, &heard, Nanos::from_secs(10)), Some(Nanos::from_secs(6)));
        assert_eq!(silence(&expected[..1], &heard, Nanos::from_secs(10)), Some(Nanos::from_secs(1)));
    }
}
