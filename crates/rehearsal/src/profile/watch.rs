//! Watch: every member once a second while a profile runs, held against the stop conditions as it is read.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
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

/// What was seen so far; the worst of each figure, and the memory of each member.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) worst: Observed,
    /// Resident bytes when the first measured phase began.
    pub(super) baseline: BTreeMap<Member, u64>,
    /// Most resident bytes since then.
    pub(super) peak: BTreeMap<Member, u64>,
    /// The latest.
    pub(super) now: BTreeMap<Member, u64>,
    heard: Option<Nanos>,
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
        self.seen.borrow_mut().heard = Some(began);
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
        self.weigh(&mut latest);
        let scrapes = self.members.iter().map(|(member, _, admin)| async { (*member, scrape(admin).await) });
        let (scrapes, stats) = tokio::join!(join_all(scrapes), self.control.stats());
        let scrapes: BTreeMap<Member, Scrape> =
            scrapes.into_iter().filter_map(|(member, scrape)| Some((member, scrape?))).collect();
        let total = |series: &str| {
            let sums = scrapes.values().filter_map(|scrape| scrape.sum(series, &[], &[]));
            sums.reduce(|sum, value| sum + value)
        };
        latest.put(Figure::Panics, total("mercury_handler_panics_total"));
        latest.put(Figure::SpansLost, total("mercury_telemetry_dropped_spans_total"));
        if let Some(experiment) = Member::parse("experiment").and_then(|member| scrapes.get(&member)) {
            effects(experiment, &mut latest);
        }
        let now = MonotonicClock.now();
        if let Some(home) = scrapes.get(&Member::HOME_API) {
            self.seen.borrow_mut().heard = Some(now);
            let open = home.sum("mercury_connections_open", &[("server", "home-api")], &[]);
            latest.put(Figure::FloodOpen, open.map(|open| open / f64::from(self.home.connections_max)));
        }
        if !self.home_leaves.get() {
            let heard = self.seen.borrow().heard;
            latest.put(Figure::Blind, heard.map(|heard| (now - heard).as_secs_f64()));
        }
        if let (Some(dependency), Ok(stats)) = (self.dependency, stats) {
            harm(dependency, &stats, &mut latest);
        }
        latest
    }

    /// Memory of each member; growth counts from the baseline on.
    fn weigh(&self, latest: &mut Observed) {
        let mut seen = self.seen.borrow_mut();
        for (member, pid, _) in &self.members {
            let Ok(usage) = usage::read(*pid) else { continue };
            seen.now.insert(*member, usage.rss_bytes);
            if *member == Member::HOME_API {
                latest.put(Figure::HomeMemory, usage.rss_bytes as f64 / MIB);
                let budget = self.home.memory_bytes.map(|bytes| usage.rss_bytes as f64 / bytes as f64);
                latest.put(Figure::FloodMemory, budget);
            }
        }
        if self.baseline_due.take() {
            seen.baseline = seen.now.clone();
        }
        let Seen { baseline, peak, now, .. } = &mut *seen;
        for (member, first) in baseline.iter() {
            let Some(bytes) = now.get(member) else { continue };
            let most = peak.entry(*member).or_insert(*first);
            *most = (*most).max(*bytes);
            latest.raise(Figure::MemoryGrowth, bytes.saturating_sub(*first) as f64 / MIB);
        }
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

fn effects(experiment: &Scrape, latest: &mut Observed) {
    let outcome = |name: &str| experiment.sum("mercury_exposures_total", &[("outcome", name)], &[]);
    let offered = experiment.sum("mercury_exposures_offered_total", &[], &[]);
    // Nothing offered means that nothing can be ambiguous, which is known.
    let share = |part: f64| offered.map(|offered| if offered > 0.0 { part / offered } else { 0.0 });
    latest.put(Figure::Ambiguous, outcome("ambiguous").and_then(share));
    latest.put(Figure::Conflicts, outcome("conflict"));
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
    fn no_exposure_at_all_is_no_ambiguous_one() {
        let text = |offered: u32, ambiguous: u32| {
            Scrape::new(format!(
                "mercury_exposures_offered_total {offered}\n\
                 mercury_exposures_total{{outcome=\"ambiguous\"}} {ambiguous}\n\
                 mercury_exposures_total{{outcome=\"conflict\"}} 0\n"
            ))
        };
        let share = |scrape: Scrape| {
            let mut latest = Observed::default();
            effects(&scrape, &mut latest);
            latest.get(Figure::Ambiguous, None)
        };
        assert_eq!(share(text(0, 0)), Some(0.0));
        assert_eq!(share(text(200, 3)), Some(0.015));
        assert_eq!(share(Scrape::new("# EOF\n")), None);
    }
}
