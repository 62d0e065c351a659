//! Tests of the reconciliation: a sound ledger passes, each single fault is found by its name and nothing else is, and
//! what shows nothing never passes.

use std::{fs, path::PathBuf};

use load::record::{Arm, Attempt, End, Ending, Line, Operation, Run, SCHEMA};
use proptest::prelude::*;
use tempfile::TempDir;
use uuid::Uuid;

use super::{
    catalogue::{Experiment, Variant},
    oracle::sealed,
    reconcile::Limits,
    *,
};
use crate::Verdict;

/// A ledger in memory.
#[derive(Clone)]
pub(crate) struct Held(Vec<Row>);

impl Rows for Held {
    fn scan<'a>(&'a self, each: &'a mut (dyn FnMut(Row) + Send)) -> Scan<'a> {
        Box::pin(async move {
            self.0.iter().cloned().for_each(each);
            Ok(self.0.len() as u64)
        })
    }
}

pub(crate) fn catalogue() -> Catalogue {
    let variant = |(name, weight): &(&str, u32)| Variant { name: (*name).to_owned(), weight: *weight };
    let experiment = |id: &str, version, variants: &[(&str, u32)]| Experiment {
        id: id.to_owned(),
        version,
        variants: variants.iter().map(variant).collect(),
    };
    let experiments = vec![
        experiment("hero", 3, &[("control", 50), ("large", 50)]),
        experiment("badge", 2, &[("control", 1), ("badge", 1), ("retired", 0)]),
    ];
    Catalogue::new("home", experiments)
}

/// What an operation leaves in the ledger.
fn rows(operation: &Operation) -> Vec<Row> {
    let rows = catalogue().experiments.into_iter().map(|experiment| {
        let arm = oracle::arm(&operation.tenant, &operation.subject, &experiment)[0].expect("an arm");
        sealed(Row {
            sequence: 1,
            event_id: [0; 16],
            body: [0; 32],
            tenant: operation.tenant.clone(),
            subject: operation.subject.clone(),
            experiment_version: experiment.version.into(),
            variant: arm.to_owned(),
            experiment_id: experiment.id,
            request_id: operation.id.clone(),
            surface: "home".to_owned(),
            class: operation.class.clone(),
            region: operation.region.clone(),
            origin: operation.origin.clone(),
            objection: None,
        })
    });
    rows.collect()
}

fn operation(number: usize) -> Operation {
    let mut operation = Operation {
        id: format!("op-{number}"),
        tenant: "tenant-001".to_owned(),
        subject: format!("user-{number:05}"),
        class: "standard".to_owned(),
        region: "eu-west".to_owned(),
        origin: "customer".to_owned(),
        ended: Ending::Answered,
        attempts: vec![Attempt { target: 0, outcome: "ok".to_owned(), ambiguous: false }],
        arms: Vec::new(),
    };
    operation.arms = rows(&operation)
        .iter()
        .map(|row| Arm {
            experiment_id: row.experiment_id.clone(),
            experiment_version: u32::try_from(row.experiment_version).expect("a version"),
            variant: row.variant.clone(),
            event_id: Uuid::from_bytes(row.event_id).to_string(),
            effect: "committed".to_owned(),
        })
        .collect();
    operation
}

/// A record and a ledger that agree, and what a test does to them.
pub(crate) struct Case {
    home: TempDir,
    operations: Vec<Operation>,
    pub(crate) ledger: Held,
    /// Whether the record has its last line.
    whole: bool,
    limits: Limits,
}

impl Case {
    pub(crate) fn new(count: usize) -> Self {
        let operations: Vec<Operation> = (0..count).map(operation).collect();
        let mut ledger = Held(operations.iter().flat_map(rows).collect());
        for (at, row) in ledger.0.iter_mut().enumerate() {
            row.sequence = at as i64 + 1;
        }
        let home = tempfile::tempdir().expect("a directory");
        Self { home, operations, ledger, whole: true, limits: Limits::default() }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.home.path().join("record.ndjson")
    }

    pub(crate) fn write(&self) {
        let run = Run { schema: SCHEMA.to_owned(), targets: vec![], id_prefix: "op".to_owned(), seed: 1 };
        let end = End { operations: self.operations.len() as u64, missed: 0 };
        let lines = std::iter::once(Line::Run(run))
            .chain(self.operations.iter().cloned().map(Line::Operation))
            .chain(self.whole.then_some(Line::End(end)));
        let text: String =
            lines.map(|line| serde_json::to_string(&line).expect("it serialises") + "\n").collect();
        fs::write(self.path(), text).expect("written");
    }

    async fn account(&self) -> Account {
        self.write();
        reconcile(&self.ledger, &[self.path()], &catalogue(), self.limits).await.expect("an account")
    }

    /// The account says this, and of every other kind that there is none.
    async fn finds(&self, expected: &[(Class, u64)]) -> Account {
        let account = self.account().await;
        for class in Class::ALL {
            let count = expected.iter().find(|(named, _)| *named == class).map_or(0, |(_, count)| *count);
            assert_eq!(account.count(class), count, "{class}: {account:#?}");
        }
        let verdict = if expected.is_empty() { Verdict::Pass } else { Verdict::Fail };
        assert_eq!(account.verdict, verdict, "{account:#?}");
        for (class, count) in expected {
            assert!(account.why().contains(&format!("{count} {class}")), "{}", account.why());
        }
        account
    }
}

#[tokio::test]
async fn what_agrees_passes_and_is_counted() {
    let mut case = Case::new(20);
    // One caller left and one was never answered; the rows of one of them are there.
    for (at, ended, outcome) in
        [(3, Ending::Departed, "unanswered"), (4, Ending::Failed, "status_unavailable")]
    {
        case.operations[at].ended = ended;
        case.operations[at].attempts[0].outcome = outcome.to_owned();
        case.operations[at].arms.clear();
    }
    case.ledger.0.retain(|row| row.request_id != "op-4");
    // One was answered by its second attempt, which replayed.
    let attempts = &mut case.operations[5].attempts;
    attempts.insert(0, Attempt { target: 1, outcome: "connection_lost".to_owned(), ambiguous: false });
    case.operations[5].arms.iter_mut().for_each(|arm| arm.effect = "replayed".to_owned());
    let account = case.finds(&[]).await;
    assert_eq!((account.operations.total, account.operations.answered), (20, 18));
    assert_eq!((account.operations.departed, account.operations.failed), (1, 1));
    assert_eq!((account.attempts, account.retried), (21, 1));
    assert_eq!((account.arms.shown, account.arms.committed, account.arms.replayed), (36, 34, 2));
    assert_eq!((account.rows.total, account.rows.shown, account.rows.unshown), (38, 36, 2));
    assert_eq!((account.undeclared, account.why().as_str()), (0, ""));
}

/// An operation of several attempts, by target and outcome, of which an earlier one had recorded.
fn retried(case: &mut Case, at: usize, attempts: &[(u8, &str, bool)]) {
    let attempt = |(target, outcome, ambiguous): &(u8, &str, bool)| Attempt {
        target: *target,
        outcome: (*outcome).to_owned(),
        ambiguous: *ambiguous,
    };
    case.operations[at].attempts = attempts.iter().map(attempt).collect();
    case.operations[at].arms.iter_mut().for_each(|arm| arm.effect = "replayed".to_owned());
}

#[tokio::test]
async fn who_replayed_and_who_did_not_say_so_are_told_apart() {
    let mut case = Case::new(6);
    retried(&mut case, 0, &[(0, "connection_lost", false), (1, "ok", false)]);
    retried(&mut case, 1, &[(0, "status_unknown", true), (0, "ok", false)]);
    retried(&mut case, 2, &[(1, "status_unavailable", false), (0, "ok", false)]);
    retried(&mut case, 3, &[(1, "unanswered", false), (0, "status_unavailable", false), (1, "ok", false)]);
    // Recorded before this record begins.
    retried(&mut case, 4, &[(0, "ok", false)]);
    let account = case.finds(&[]).await;
    assert_eq!((account.retried, account.ambiguous, account.undeclared), (4, 3, 1));
    assert_eq!((account.arms.replayed, account.arms.replayed_elsewhere), (10, 4));
}

#[tokio::test]
async fn rows_without_a_page_are_owned_up_to_by_an_attempt_or_told() {
    for (outcome, ambiguous, undeclared) in [
        ("status_unavailable", false, 1),
        ("status_unavailable", true, 0),
        ("connection_lost", false, 0),
        ("unanswered", false, 0),
    ] {
        let mut case = Case::new(3);
        let operation = &mut case.operations[1];
        operation.ended = Ending::Failed;
        operation.arms.clear();
        operation.attempts = vec![Attempt { target: 0, outcome: outcome.to_owned(), ambiguous }];
        assert_eq!(case.finds(&[]).await.undeclared, undeclared, "{outcome} {ambiguous}");
        // Without rows it was true.
        case.ledger.0.retain(|row| row.request_id != "op-1");
        assert_eq!(case.finds(&[]).await.undeclared, 0, "{outcome} {ambiguous}");
    }
}

#[tokio::test]
async fn a_page_without_any_arm_is_answered_for_all_that() {
    let mut case = Case::new(5);
    case.operations[2].arms.clear();
    let account = case.finds(&[(Class::Misallocated, 2), (Class::Extra, 2)]).await;
    assert_eq!((account.rows.shown, account.rows.unshown), (8, 0));
}

#[tokio::test]
async fn a_row_that_was_deleted_is_lost() {
    let mut case = Case::new(5);
    let gone = case.ledger.0.remove(4);
    let account = case.finds(&[(Class::Lost, 1)]).await;
    let example = account.discrepancies[0].examples[0].clone();
    assert!(example.contains(&gone.request_id) && example.contains(&gone.experiment_id), "{example}");
    assert!(example.contains(&Uuid::from_bytes(gone.event_id).to_string()), "{example}");
    assert!(!example.contains("user-"), "nobody is named: {example}");
}

#[tokio::test]
async fn a_second_row_under_another_event_is_a_duplicate() {
    let mut case = Case::new(5);
    let row = case.ledger.0[0].clone();
    let version = row.experiment_version + 1;
    case.ledger.0.push(sealed(Row { experiment_version: version, sequence: 99, ..row.clone() }));
    // It is an event that the catalogue does not have, too.
    case.finds(&[(Class::Duplicated, 1), (Class::Misallocated, 1)]).await;
    // The very same row twice, which no unique index lets through.
    case.ledger.0.pop();
    case.ledger.0.push(Row { sequence: 99, ..row });
    case.finds(&[(Class::Duplicated, 1)]).await;
}

#[tokio::test]
async fn a_row_that_nobody_asked_for_is_an_orphan() {
    let mut case = Case::new(5);
    case.ledger.0.extend(rows(&operation(77)));
    case.finds(&[(Class::Orphan, 2)]).await;
    // Another subject under a known operation id is another operation.
    let mut case = Case::new(5);
    let mut other = operation(1);
    other.subject = "user-00900".to_owned();
    case.ledger.0.extend(rows(&other));
    case.finds(&[(Class::Orphan, 2)]).await;
}

#[tokio::test]
async fn a_row_that_does_not_recompute_is_forged() {
    let mut case = Case::new(5);
    case.ledger.0[3].body[7] ^= 1;
    case.finds(&[(Class::Forged, 1)]).await;
    let mut case = Case::new(5);
    // The id that was shown is then without a row as well, and the row is not one that the page showed.
    case.ledger.0[3].event_id[7] ^= 1;
    case.finds(&[(Class::Forged, 1), (Class::Lost, 1), (Class::Extra, 1)]).await;
    // What the reader of the ledger holds against a row counts, whatever is found here.
    let mut case = Case::new(5);
    case.ledger.0[3].objection = Some("tenant holds what the service never writes".to_owned());
    let account = case.finds(&[(Class::Forged, 1)]).await;
    let forged = account.discrepancies.iter().find(|one| one.class == Class::Forged).expect("listed");
    assert!(forged.examples[0].contains("tenant holds"), "{forged:?}");
}

#[tokio::test]
async fn a_row_with_another_body_than_the_request_is_altered_although_it_recomputes() {
    for change in [
        |row: &mut Row| row.region = "us-east".to_owned(),
        |row: &mut Row| row.class = "premium".to_owned(),
        |row: &mut Row| row.origin = "probe".to_owned(),
        |row: &mut Row| row.surface = "search".to_owned(),
    ] {
        let mut case = Case::new(5);
        let mut row = case.ledger.0.remove(2);
        change(&mut row);
        case.ledger.0.push(sealed(row));
        case.finds(&[(Class::Altered, 1)]).await;
    }
    // A caller that was told an event id which is not that of what it was shown.
    let mut case = Case::new(5);
    let strange = Uuid::from_bytes([9; 16]);
    case.operations[0].arms[0].event_id = strange.to_string();
    case.finds(&[(Class::Altered, 1), (Class::Lost, 1), (Class::Extra, 1)]).await;
}

#[tokio::test]
async fn an_arm_that_the_definitions_do_not_give_is_found_in_row_and_page() {
    let mut case = Case::new(5);
    let mut row = case.ledger.0.remove(0);
    row.variant = if row.variant == "control" { "large" } else { "control" }.to_owned();
    let row = sealed(row);
    let arm = &mut case.operations[0].arms[0];
    arm.variant.clone_from(&row.variant);
    arm.event_id = Uuid::from_bytes(row.event_id).to_string();
    case.ledger.0.push(row);
    case.finds(&[(Class::Misallocated, 2)]).await;
    // A page that leaves an experiment out.
    let mut case = Case::new(5);
    case.operations[0].arms.pop();
    case.finds(&[(Class::Misallocated, 1), (Class::Extra, 1)]).await;
}

#[tokio::test]
async fn what_shows_nothing_is_inconclusive_and_a_gap_explains_orphans_alone() {
    let mut case = Case::new(0);
    assert_eq!(case.account().await.verdict, Verdict::Inconclusive);
    case = Case::new(3);
    for operation in &mut case.operations {
        operation.ended = Ending::Failed;
        operation.arms.clear();
    }
    assert_eq!(case.account().await.verdict, Verdict::Inconclusive, "nobody was shown anything");
    case.ledger.0.clear();
    assert_eq!(case.account().await.verdict, Verdict::Inconclusive, "and there are no rows");
    case = Case::new(3);
    case.ledger.0.clear();
    case.finds(&[(Class::Lost, 6)]).await;

    case = Case::new(3);
    case.whole = false;
    case.operations.pop();
    let account = case.account().await;
    assert_eq!((account.verdict, account.count(Class::Orphan)), (Verdict::Inconclusive, 2));
    assert!(account.why().contains("breaks off"), "{}", account.why());
    case.ledger.0.remove(0);
    assert_eq!(case.account().await.verdict, Verdict::Fail, "what is lost no gap explains");
    let none = reconcile(&case.ledger, &[], &catalogue(), case.limits).await.expect("an account");
    assert_eq!(none.verdict, Verdict::Inconclusive);
}

#[tokio::test]
async fn a_line_that_is_none_is_named_with_its_place() {
    let case = Case::new(2);
    case.write();
    let whole = fs::read_to_string(case.path()).expect("written");
    for (text, part) in [
        (whole.replacen("user-00000", "user-00000\",\"more\":\"", 1), "line 2: "),
        (whole.replace(SCHEMA, "mercury.record/v9"), "schema: expected mercury.record/v1"),
        (whole.lines().skip(1).map(|line| format!("{line}\n")).collect(), "does not say what was run"),
        (format!("{whole}{whole}"), "a line after the last one"),
        (whole.replacen('\n', "\n\n", 1), "line 2: "),
        (format!("{}\n", "x".repeat(70_000)), "line 1: longer than 64 KiB"),
    ] {
        fs::write(case.path(), text).expect("written");
        let error = reconcile(&case.ledger, &[case.path()], &catalogue(), case.limits).await;
        let error = error.expect_err("no record").to_string();
        assert!(error.starts_with("--record ") && error.contains(part), "{error}");
    }
    // Cut anywhere after the first line, it is a record with a gap.
    let first = whole.find('\n').expect("lines") + 1;
    for cut in (first..whole.len() - 1).step_by(97) {
        fs::write(case.path(), &whole[..cut]).expect("written");
        let account = reconcile(&case.ledger, &[case.path()], &catalogue(), case.limits).await;
        assert_eq!(account.expect("an account").verdict, Verdict::Inconclusive, "{cut}");
    }
    let missing = case.home.path().join("none");
    assert!(reconcile(&case.ledger, &[missing], &catalogue(), case.limits).await.is_err());
}

#[tokio::test]
async fn examples_are_bounded_and_counts_are_not() {
    let mut case = Case::new(20);
    case.ledger.0.clear();
    case.ledger.0.extend(rows(&operation(99)));
    let account = case.account().await;
    assert_eq!(account.count(Class::Lost), 40);
    assert_eq!(account.discrepancies[0].examples.len(), case.limits.examples_max);
    let text = print::render(&account, "a ledger");
    assert!(text.contains("and 35 more") && text.contains("verdict: fail: 40 lost"), "{text}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever share of the operations is held at a time, the account is the same.
    #[test]
    fn several_passes_find_what_one_does(
        count in 1_usize..12,
        gone in proptest::collection::vec(any::<proptest::sample::Index>(), 0..4),
        strange in 0_usize..3,
        operations_max in 1_u64..8,
    ) {
        let mut case = Case::new(count);
        for index in gone {
            case.ledger.0.remove(index.index(case.ledger.0.len().max(1)).min(case.ledger.0.len() - 1));
            if case.ledger.0.is_empty() {
                break;
            }
        }
        (0..strange).for_each(|at| case.ledger.0.extend(rows(&operation(500 + at))));
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let whole = runtime.block_on(case.account());
        case.limits.operations_max = operations_max;
        let parts = runtime.block_on(case.account());
        prop_assert_eq!(whole.verdict, parts.verdict);
        prop_assert_eq!((whole.rows, whole.arms, whole.operations), (parts.rows, parts.arms, parts.operations));
        for class in Class::ALL {
            prop_assert_eq!(whole.count(class), parts.count(class));
        }
    }
}
