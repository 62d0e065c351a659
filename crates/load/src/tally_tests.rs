//! Tally, tested: the population, the balance and the timeline.

use super::*;

const OBJECTIVE: Nanos = Nanos::from_millis(300);

fn place(stage: usize, second: usize) -> Place {
    Place { stage, class: WorkloadClass::Premium, second }
}

fn ended(place: Place, outcome: Outcome, millis: u64) -> Ended {
    let markers = outcome.is_success().then_some(Markers {
        recommendations: if outcome == Outcome::OkDegraded {
            Marker::OmittedTimeout
        } else {
            Marker::Present
        },
        reputation: Marker::Empty,
    });
    Ended {
        place,
        outcome,
        failure: outcome.is_failure().then_some(Failure::NotConnected),
        latency: Nanos::from_millis(millis),
        attempts: 1,
        markers,
        finding: None,
        timing: None,
        bytes: 0,
    }
}

fn run(tally: &mut Tally, ending: Ended) {
    tally.begin(ending.place);
    tally.end(ending);
}

#[test]
fn only_successes_of_measured_stages_are_latencies_and_degraded_ones_stay_in() {
    let mut tally = Tally::new(vec![false, true], OBJECTIVE, 1);
    run(&mut tally, ended(place(0, 0), Outcome::Ok, 5_000));
    run(&mut tally, ended(place(1, 0), Outcome::Ok, 10));
    run(&mut tally, ended(place(1, 0), Outcome::OkDegraded, 200));
    run(&mut tally, ended(place(1, 0), Outcome::Deadline, 900));
    run(&mut tally, ended(place(1, 0), Outcome::Departed, 60));
    let class = WorkloadClass::Premium.index();
    assert!(tally.stages[0][class].latency.is_none(), "warm-up is not in the population");
    let measured = &tally.stages[1][class];
    let summary = measured.latency.as_ref().expect("observed").summary();
    assert_eq!(summary.n, 2);
    assert!(summary.max.expect("not empty") >= 200.0);
    assert_eq!(measured.ended(), 4);
    assert_eq!(measured.within_objective, 2);
    assert_eq!(measured.departed_before_objective, 1);
    assert_eq!(measured.recommendations[Marker::OmittedTimeout as usize], 1);
}

#[test]
fn the_objective_is_met_at_its_very_bound_and_not_after() {
    let mut tally = Tally::new(vec![true], OBJECTIVE, 1);
    run(&mut tally, ended(place(0, 0), Outcome::Ok, 300));
    run(&mut tally, ended(place(0, 0), Outcome::Ok, 301));
    run(&mut tally, ended(place(0, 0), Outcome::Departed, 300));
    let counted = &tally.stages[0][WorkloadClass::Premium.index()];
    assert_eq!(counted.within_objective, 1);
    assert_eq!(counted.departed_before_objective, 0);
    run(&mut tally, ended(place(0, 0), Outcome::Departed, 60));
    let second = &tally.timeline.finish()[0];
    assert_eq!((second.good, second.departed, second.departed_before_objective), (1, 2, 1));
}

#[test]
fn only_slow_correct_answers_of_measured_stages_are_looked_at() {
    let mut tally = Tally::new(vec![false, true], OBJECTIVE, 1);
    let timed = |stage: usize, outcome: Outcome, millis: u64| Ended {
        timing: Some(HeaderValue::from_static("admission;dur=0;wait=30, profile;dur=50;wait=0")),
        ..ended(place(stage, 0), outcome, millis)
    };
    run(&mut tally, timed(0, Outcome::Ok, 900));
    run(&mut tally, timed(1, Outcome::Ok, 99));
    run(&mut tally, timed(1, Outcome::Deadline, 900));
    let class = WorkloadClass::Premium.index();
    assert_eq!(tally.stages[0][class].slowest.means(100).n, 0);
    assert_eq!(tally.stages[1][class].slowest.means(100).n, 0);
    run(&mut tally, timed(1, Outcome::OkDegraded, 100));
    let means = tally.stages[1][class].slowest.means(100);
    assert_eq!((means.n, means.latency, means.executor_wait), (1, Some(100.0), Some(30.0)));
}

#[test]
fn a_second_is_settled_once_its_last_operation_ended() {
    let mut tally = Tally::new(vec![true], OBJECTIVE, 1);
    tally.begin(place(0, 0));
    tally.begin(place(0, 0));
    tally.end(ended(place(0, 0), Outcome::Ok, 10));
    run(&mut tally, ended(place(0, 1), Outcome::Ok, 1));
    run(&mut tally, ended(place(0, 2), Outcome::Ok, 1));
    assert_eq!(tally.timeline.recent_p99_ms(), None, "second 0 has one outstanding");
    tally.end(ended(place(0, 0), Outcome::Ok, 2_500));
    tally.begin(place(0, 2));
    assert_eq!(tally.timeline.open, 2);
    let seconds = tally.timeline.finish();
    assert_eq!(seconds.len(), 3);
    assert_eq!((seconds[0].sent, seconds[0].ok), (2, 2));
    assert_eq!(seconds[0].p99_ms, Some(2_500.0), "by intended start, so a stall is charged where it began");
    assert_eq!(seconds[2].p99_ms, Some(1.0));
    assert_eq!(seconds[2].outstanding, 1);
}

#[test]
fn samples_of_mismatches_are_bounded_and_all_are_counted() {
    let mut tally = Tally::new(vec![true], OBJECTIVE, 1);
    let total = MISMATCH_SAMPLES_MAX as u64 + 5;
    for number in 0..total {
        let found = Finding { violation: crate::check::Violation::Marker, detail: String::new() };
        let mut ending = ended(place(0, 0), Outcome::ErrorOther, 1);
        ending.finding = Some((format!("r-{number}"), found));
        run(&mut tally, ending);
    }
    assert_eq!(tally.samples.len(), MISMATCH_SAMPLES_MAX);
    assert_eq!(tally.stages[0][WorkloadClass::Premium.index()].core_mismatch, total);
}

#[test]
fn every_omission_marker_has_a_cause() {
    let causes: Vec<_> = (0..MARKERS).filter_map(cause).collect();
    assert_eq!(causes.len(), 5);
    assert!((0..MARKERS).all(|number| {
        let marker = Marker::try_from(i32::try_from(number).expect("small")).expect("a marker");
        is_omission(marker) == cause(number).is_some()
    }));
}
