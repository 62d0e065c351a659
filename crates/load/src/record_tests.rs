//! Record, tested: what is written of runs against servers whose behaviour the tests choose.

use std::fs;

use base::{Nanos, Region, Subject, Tenant, WorkloadClass};
use model::draw::Share;

use super::*;
use crate::{
    Plan, Stop,
    retry::Retries,
    run::{
        execute,
        tests::{Behaviour, Server, arrivals, plan},
    },
    source::Source,
};

/// Runs, and reads the record back.
fn recorded(mut plan: Plan, source: Source) -> (crate::Report, Vec<Line>) {
    let home = tempfile::tempdir().expect("a directory");
    let path = home.path().join("record.ndjson");
    plan.record = Some(path.clone());
    let report = execute(plan, source, &Stop::default(), |_| ()).expect("a run");
    let text = fs::read_to_string(path).expect("written");
    let lines = text.lines().map(|line| serde_json::from_str(line).expect("a line"));
    (report, lines.collect())
}

/// The operations, by id; the first and the last line have to be what they are.
fn operations(lines: &[Line]) -> Vec<&Operation> {
    assert!(matches!(&lines[0], Line::Run(run) if run.schema == SCHEMA && run.id_prefix == "load"));
    let mut operations: Vec<_> = lines
        .iter()
        .filter_map(|line| match line {
            Line::Operation(operation) => Some(operation),
            _ => None,
        })
        .collect();
    let end = End { operations: operations.len() as u64, missed: 0 };
    assert_eq!(lines.last(), Some(&Line::End(end)));
    assert_eq!(lines.len(), operations.len() + 2);
    operations.sort_by(|one, other| one.id.cmp(&other.id));
    operations
}

fn outcomes(operation: &Operation) -> Vec<(u8, &str)> {
    operation.attempts.iter().map(|attempt| (attempt.target, attempt.outcome.as_str())).collect()
}

#[test]
fn every_operation_has_one_line_with_what_its_caller_was_shown() {
    let server = Server::start(Behaviour::Sound);
    let (report, lines) = recorded(plan(&server, 60), arrivals(60, None));
    let operations = operations(&lines);
    assert_eq!(operations.len(), 60, "warm-up is recorded as well: its exposures count");
    assert_eq!(report.total.all.completed.ok, 40);
    for (at, operation) in operations.iter().enumerate() {
        assert_eq!((operation.ended, outcomes(operation)), (Ending::Answered, vec![(0, "ok")]));
        assert_eq!((operation.tenant.as_str(), operation.region.as_str()), ("tenant-001", "eu-west"));
        assert_eq!((operation.origin.as_str(), operation.arms.len()), ("load_test", 2));
        assert!(operation.subject.starts_with("user-") && operation.id.starts_with("load-"), "{at}");
        let arm = &operation.arms[0];
        assert_eq!((arm.event_id.as_str(), arm.effect.as_str()), ("event-of-layout", "committed"));
    }
}

#[test]
fn a_retry_goes_to_the_next_target_under_the_same_id() {
    let servers = [Server::start(Behaviour::SecondTime), Server::start(Behaviour::SecondTime)];
    let mut source = arrivals(60, None);
    source.retries = Retries::declared(1, Share::ALL, 2, Nanos::from_millis(2));
    let mut plan = plan(&servers[0], 60);
    plan.others = vec![servers[1].address()];
    let (report, lines) = recorded(plan, source);
    assert!(report.target.contains(", "), "{}", report.target);
    let mut first = [0; 2];
    for operation in operations(&lines) {
        let place = operation.attempts[0].target;
        first[usize::from(place)] += 1;
        assert_eq!(outcomes(operation), [(place, "status_unavailable"), (1 - place, "ok")]);
        assert_eq!(operation.arms.len(), 2);
    }
    assert_eq!(first, [30, 30], "operations begin at each in turn");
}

#[test]
fn whoever_left_or_was_not_answered_is_recorded_without_arms() {
    let server = Server::start(Behaviour::Hang);
    let (_, lines) = recorded(plan(&server, 40), arrivals(40, Some(Nanos::from_millis(5))));
    for operation in operations(&lines) {
        assert_eq!((operation.ended, operation.arms.len()), (Ending::Departed, 0));
        assert_eq!(outcomes(operation), [(0, "unanswered")]);
    }
    // The run ends before the answers: what is in flight then has a line all the same.
    let mut plan = plan(&server, 40);
    plan.drain = Nanos::from_millis(1);
    let (_, lines) = recorded(plan, arrivals(40, None));
    let operations = operations(&lines);
    assert_eq!(operations.len(), 40);
    assert!(operations.iter().all(|operation| operation.ended == Ending::InFlight), "{operations:?}");
}

#[test]
fn a_record_that_cannot_be_written_is_named() {
    let server = Server::start(Behaviour::Sound);
    let mut plan = plan(&server, 40);
    plan.record = Some("/nonexistent/record.ndjson".into());
    let error = execute(plan, arrivals(1, None), &Stop::default(), |_| ()).expect_err("no directory");
    assert!(error.to_string().starts_with("cannot write the record /nonexistent/record.ndjson: "), "{error}");
}

#[test]
fn what_there_is_no_room_for_is_counted() {
    let (lines, feed) = sync_channel(1);
    let recorder = Recorder { lines, counts: Arc::default(), origin: Origin::Customer };
    let identity = Identity {
        tenant: Tenant::parse("tenant-001").expect("a name"),
        subject: Subject::parse("user-00001").expect("a name"),
        class: WorkloadClass::Standard,
        region: Region::parse("eu-west").expect("a name"),
    };
    (0..3).for_each(|number| drop(recorder.begin(&identity, &format!("op-{number}"))));
    let counts = Arc::clone(&recorder.counts);
    drop(recorder);
    assert_eq!(feed.iter().count(), 1);
    assert_eq!(counts.operations.load(Ordering::Acquire), 3);
    assert_eq!(counts.missed.load(Ordering::Acquire), 2);
}
