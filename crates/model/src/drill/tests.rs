//! Tests of the drill: what it says of the shipped one, and that a perturbed reading changes it the way that it has to.

use base::{Dependency, WorkloadClass};
use proptest::prelude::*;

use super::{Action, Decision, Diagnosis, Drill, Hypothesis, Moved, SHIPPED, Standing, Verdict};

const WAIT: Hypothesis = Hypothesis::WaitBefore(Dependency::Pricing);
const WORK: Hypothesis = Hypothesis::Computation(Dependency::Pricing);
const MIX: Hypothesis = Hypothesis::MixShift(WorkloadClass::Enterprise);

fn with(changes: &[(&str, &str)]) -> Diagnosis {
    let text = changes.iter().fold(SHIPPED.1.to_owned(), |text, (key, value)| {
        Drill::set(("drill", &text), key, value).expect("a document")
    });
    Drill::parse("changed", &text).expect("valid").diagnose()
}

fn first(diagnosis: &Diagnosis, count: usize) -> Vec<Hypothesis> {
    diagnosis.ranked.iter().take(count).map(|one| one.hypothesis).collect()
}

fn rank(diagnosis: &Diagnosis, hypothesis: Hypothesis) -> usize {
    diagnosis.ranked.iter().position(|one| one.hypothesis == hypothesis).expect("ranked")
}

fn verdict(diagnosis: &Diagnosis, action: Action) -> Verdict {
    diagnosis.actions.iter().find(|judged| judged.action == action).expect("judged").verdict
}

#[test]
fn the_shipped_drill_waits_before_pricing_and_the_mix_is_next() {
    let told = with(&[]);
    assert_eq!(first(&told, 3), [WAIT, MIX, Hypothesis::ProfilePool]);
    assert_eq!(told.ranked[0].standing, Standing::Explains);
    assert_eq!(told.ranked[1].standing, Standing::MayExplain);
    assert_eq!(told.ranked[2].standing, Standing::Unlikely);
    assert_eq!((told.miss_ms, told.comparable, told.decision), (18.0, false, Decision::Hold));
    assert_eq!(told.breaches, ["p99 318 ms, must be ≤ 300"]);
    assert_eq!(verdict(&told, Action::RaiseEndpoint), Verdict::Unsupported);
    assert_eq!(verdict(&told, Action::AddHosts), Verdict::Weak);
    assert_eq!(verdict(&told, Action::Degrade(Dependency::Pricing)), Verdict::Refused);
    assert_eq!(verdict(&told, Action::Hold), Verdict::Supported);
    let degrade =
        told.actions.iter().find(|one| one.action == Action::Degrade(Dependency::Pricing)).expect("judged");
    assert!(degrade.reason.contains("mandatory"), "{}", degrade.reason);
    let shown: Vec<&str> = told.ranked.iter().take(3).map(|one| one.check.as_str()).collect();
    assert!(shown.iter().all(|check| check.contains("confirm") || check.contains("behind it")), "{shown:?}");
}

#[test]
fn a_perturbed_reading_changes_the_ranking() {
    let slower = with(&[("dependencies.pricing.server_service_p99_ms.now", "71")]);
    assert_eq!(first(&slower, 2), [WORK, MIX], "the server itself is slow");
    assert_eq!(slower.ranked[0].standing, Standing::Explains);
    let mixed_back = with(&[("classes.enterprise.now", "5")]);
    assert_eq!(mixed_back.ranked[0].hypothesis, WAIT);
    assert!(rank(&mixed_back, MIX) >= 3, "{:?}", first(&mixed_back, 7));
    assert!(mixed_back.comparable);
    let queued = with(&[("observed.queue_age_p99_ms", "40")]);
    assert_eq!(first(&queued, 3), [WAIT, Hypothesis::EndpointQueue, MIX]);
    assert_eq!(verdict(&queued, Action::RaiseEndpoint), Verdict::Weak, "pricing would get more of it");
    assert_eq!(queued.breaches.len(), 2);
}

#[test]
fn every_hypothesis_can_be_the_first() {
    let calm = [
        ("dependencies.pricing.client_wait_p99_ms.now", "18"),
        ("dependencies.pricing.server_service_p99_ms.now", "20"),
        ("classes.enterprise.now", "5"),
    ];
    let beside = |more: &[(&'static str, &'static str)]| {
        let all: Vec<_> = calm.iter().copied().chain(more.iter().copied()).collect();
        with(&all)
    };
    for (more, expected) in [
        (vec![("dependencies.pricing.client_wait_p99_ms.now", "60")], WAIT),
        (vec![("dependencies.pricing.server_service_p99_ms.now", "60")], WORK),
        (vec![("classes.enterprise.now", "9")], MIX),
        (vec![("observed.queue_age_p99_ms", "40")], Hypothesis::EndpointQueue),
        (vec![("observed.profile_occupancy_percent", "97")], Hypothesis::ProfilePool),
        (vec![("observed.late_work_percent", "6")], Hypothesis::LateWork),
        (vec![("observed.cpu_percent", "95")], Hypothesis::Cpu),
    ] {
        assert_eq!(first(&beside(&more), 1), [expected], "{more:?}");
    }
    let queued = beside(&[("observed.queue_age_p99_ms", "40")]);
    assert_eq!(verdict(&queued, Action::RaiseEndpoint), Verdict::Supported, "what is behind it has room");
    let full = beside(&[("observed.queue_age_p99_ms", "40"), ("observed.profile_occupancy_percent", "97")]);
    assert_eq!(verdict(&full, Action::RaiseEndpoint), Verdict::Weak);
    assert_eq!(verdict(&beside(&[("observed.cpu_percent", "95")]), Action::AddHosts), Verdict::Supported);
}

#[test]
fn a_pool_with_room_is_not_what_is_waited_for() {
    let pool = |active, pending| {
        with(&[
            ("dependencies.pricing.pool.active", active),
            ("dependencies.pricing.pool.limit", "40"),
            ("dependencies.pricing.pool.pending", pending),
        ])
    };
    assert_eq!(pool("40", "12").ranked[0].hypothesis, WAIT);
    assert!(rank(&pool("12", "0"), WAIT) >= 2);
}

#[test]
fn an_optional_dependency_may_give_way_where_it_is_what_is_slow() {
    let told = with(&[
        ("dependencies.recommendation.client_wait_p99_ms.now", "90"),
        ("dependencies.recommendation.client_wait_p99_ms.before", "10"),
    ]);
    assert_eq!(told.ranked[0].hypothesis, Hypothesis::WaitBefore(Dependency::Recommendation));
    assert_eq!(verdict(&told, Action::Degrade(Dependency::Recommendation)), Verdict::Supported);
}

#[test]
fn inside_every_budget_there_is_nothing_to_hold() {
    let told = with(&[("observed.p99_ms", "290")]);
    assert_eq!((told.decision, told.breaches.len()), (Decision::Proceed, 0));
    assert!(told.ranked.iter().all(|one| one.standing != Standing::Explains));
    assert_eq!(verdict(&told, Action::Hold), Verdict::Unsupported);
}

#[test]
fn what_was_not_measured_is_said_and_comes_last() {
    let text = SHIPPED.1.replace("cpu_percent = 46\n", "").replace("late_work_percent = 1.4\n", "");
    let told = Drill::parse("less", &text).expect("valid").diagnose();
    let last: Vec<Standing> = told.ranked.iter().rev().take(2).map(|one| one.standing).collect();
    assert_eq!(last, [Standing::Unknown; 2]);
    assert!(told.ranked.iter().any(|one| one.evidence == "fleet CPU was not measured"));
}

#[test]
fn bad_figures_are_refused_by_their_key() {
    for (key, value, named) in [
        ("observed.p99_ms", "nan", "observed.p99_ms"),
        ("observed.p99_ms", "inf", "observed.p99_ms"),
        ("observed.cpu_percent", "-1", "observed.cpu_percent"),
        ("observed.cpu_percent", "101", "observed.cpu_percent"),
        ("observed.latency", "3", "observed.latency"),
        (
            "dependencies.pricing.client_wait_p99_ms.now",
            "\"x\"",
            "dependencies.pricing.client_wait_p99_ms.now",
        ),
        ("dependencies.price.client_wait_p99_ms.now", "1", "dependencies.price"),
        ("dependencies.pricing.pool.active", "1", "dependencies.pricing.pool"),
        ("classes.enterprise.now", "101", "classes.enterprise.now"),
        ("budgets.queue_age_p99_ms", "0", "budgets.queue_age_p99_ms"),
    ] {
        let text = Drill::set(("drill", SHIPPED.1), key, value).expect("a document");
        let faults = Drill::parse("drill", &text).expect_err(key).to_string();
        assert!(faults.contains(named), "{key} = {value}: {faults}");
    }
    let text = Drill::set(("drill", SHIPPED.1), "classes.standard.now", "95").expect("a document");
    let text = Drill::set(("drill", &text), "classes.standard.before", "90").expect("a document");
    let faults = Drill::parse("drill", &text).expect_err("more than everybody").to_string();
    assert!(faults.contains("add up to 104"), "{faults}");
}

/// Whoever follows a check finds the series that it names.
#[test]
fn every_series_is_on_the_map() {
    let map = include_str!("../../../../docs/operations.md");
    for one in with(&[]).ranked {
        let names = one.series.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        for name in names.filter(|name| name.starts_with("mercury_")) {
            assert!(map.contains(name), "{name}");
        }
    }
}

proptest! {
    /// The server's own time only ever speaks against a wait before it, and for its computation.
    #[test]
    fn slower_service_never_raises_the_wait(service in 20.0_f64..120.0, more in 0.0_f64..60.0) {
        let at = |service: f64| with(&[("dependencies.pricing.server_service_p99_ms.now", &format!("{service:.3}"))]);
        let (one, two) = (at(service), at(service + more));
        prop_assert!(rank(&two, WAIT) >= rank(&one, WAIT));
        prop_assert!(rank(&two, WORK) <= rank(&one, WORK));
    }

    /// A mix that moves back never speaks for a shift.
    #[test]
    fn a_mix_that_moves_back_never_rises(now in 0.0_f64..60.0, back in 0.0_f64..60.0) {
        let at = |now: f64| with(&[("classes.enterprise.now", &format!("{now:.3}"))]);
        prop_assert!(rank(&at((now - back).max(0.0)), MIX) >= rank(&at(now), MIX));
    }

    /// Whatever is observed: every hypothesis once, in order of standing, and one decision that follows from the budgets.
    #[test]
    fn it_is_always_an_order(
        p99 in 200.0_f64..500.0, cpu in 0.0_f64..100.0, age in 0.0_f64..60.0, wait in 0.0_f64..100.0, late in 0.0_f64..9.0,
    ) {
        let mut drill = Drill::shipped();
        (drill.p99_ms, drill.cpu_percent, drill.queue_age_ms) = (p99, Some(cpu), Some(age));
        drill.late_percent = Some(late);
        drill.dependencies[Dependency::Pricing.index()].wait_ms = Some(Moved { now: wait, before: 18.0 });
        let told = drill.diagnose();
        prop_assert!(told.ranked.is_sorted_by_key(|one| one.standing));
        let mut all: Vec<Hypothesis> = told.ranked.iter().map(|one| one.hypothesis).collect();
        let count = all.len();
        all.sort();
        all.dedup();
        prop_assert_eq!(all.len(), count);
        prop_assert_eq!(told.decision == Decision::Hold, p99 > 300.0 || age > 12.0 || late > 2.0);
        prop_assert_eq!(told.actions.len(), 4);
    }
}
