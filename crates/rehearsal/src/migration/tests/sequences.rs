//! Sequences: whatever is done in whatever order, the ledger is sound and says where the migration is.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Advance,
    Rollback(Phase),
    Begin,
    Soak,
    Lie(bool),
    Idle(bool),
    Cut(usize, bool),
    /// It does not follow any more, or does again.
    Freeze(usize, bool),
}

fn step() -> impl Strategy<Value = Step> {
    let process = 0..HOMES.len();
    prop_oneof![
        6 => Just(Step::Advance),
        2 => proptest::sample::select(Phase::ALL.to_vec()).prop_map(Step::Rollback),
        2 => Just(Step::Begin),
        6 => Just(Step::Soak),
        1 => any::<bool>().prop_map(Step::Lie),
        1 => any::<bool>().prop_map(Step::Idle),
        1 => (process.clone(), any::<bool>()).prop_map(|(at, on)| Step::Cut(at, on)),
        1 => (process, any::<bool>()).prop_map(|(at, on)| Step::Freeze(at, on)),
    ]
}

/// Whether a decision may lead from one phase to another.
fn allowed(decision: Decision, from: Option<Phase>, to: Option<Phase>) -> bool {
    match decision {
        Decision::Begin => {
            (from, to) == (None, Some(Phase::Legacy))
                || (from, to) == (Some(Phase::Contract), Some(Phase::Cutover))
        }
        Decision::Advance => from.and_then(Phase::next) == to,
        Decision::Reverse => from.is_some_and(Phase::has_call) && to < from,
        Decision::Hold | Decision::Refuse => from.is_some() && to.is_some(),
        Decision::Skip | Decision::Abort | Decision::Repair => false,
    }
}

async fn take(bench: &Bench, step: Step) {
    let path = bench.ledger();
    let desk = bench.desk(&path);
    let decided = match step {
        Step::Advance => desk.advance().await,
        Step::Rollback(to) => desk.rollback(to).await,
        Step::Begin => desk.begin().await,
        Step::Soak => return bench.soak(),
        Step::Lie(lies) => return bench.harm(|harm| harm.lies = lies),
        Step::Idle(idle) => return bench.harm(|harm| harm.idle = idle),
        Step::Cut(at, true) => return bench.harm(|harm| harm.cut.insert(HOMES[at].to_owned())),
        Step::Cut(at, false) => return bench.harm(|harm| harm.cut.remove(HOMES[at])),
        Step::Freeze(at, true) => {
            let report = desk.hearing.hear(HOMES[at]).await;
            return bench.harm(|harm| {
                if let Ok(report) = report {
                    harm.frozen.insert(HOMES[at].to_owned(), report);
                }
            });
        }
        Step::Freeze(at, false) => return bench.harm(|harm| harm.frozen.remove(HOMES[at])),
    };
    match decided {
        Ok(decided) => {
            assert_eq!(bench.last().digest, decided.entry.digest, "what was said is what is written");
            let harm = bench.harm.borrow();
            if matches!(decided.entry.decision, Decision::Advance) {
                let whole = harm.cut.is_empty() && (!harm.idle || !harm.frozen.is_empty());
                assert!(whole, "nobody goes on without having heard all");
                let read = Phase::parse(&decided.entry.to).is_some_and(|to| to > Phase::Shadow);
                let lies = harm.lies && !harm.frozen.contains_key(HOMES[0]);
                assert!(!(read && lies), "a lie stops it");
            }
            let arrived = harm.cut.is_empty() && harm.frozen.is_empty();
            assert!(!arrived || !matches!(decided.confirmation, Confirmation::Missing(_)));
        }
        Err(error) => assert_eq!(error.exit_code(), 2, "{error}"),
    }
}

/// The ledger is sound, and everything that can be read from it agrees.
fn check(bench: &Bench) {
    let path = bench.ledger();
    if !path.exists() {
        return;
    }
    let entries = ledger::verify(&path).expect("sound").entries;
    let standing = bench.standing();
    let replayed = ledger::replay(&entries).get(SUBJECT).copied();
    assert_eq!(replayed, standing.as_ref().map(|standing| standing.phase.as_str()));
    let mut at = None;
    for entry in &entries {
        let (from, to) = (entry.from.as_deref().and_then(Phase::parse), Phase::parse(&entry.to));
        assert_eq!(from, at, "{entry:?}");
        assert!(allowed(entry.decision, from, to), "{entry:?}");
        at = entry.position().and_then(Phase::parse);
    }
    assert_eq!(at, standing.map(|standing| standing.phase));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn any_sequence_of_commands_leaves_a_ledger_that_says_where_the_migration_is(
        steps in proptest::collection::vec(step(), 0..40)
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
        let bench = Bench::new();
        runtime.block_on(async {
            for step in steps {
                take(&bench, step).await;
                check(&bench);
            }
        });
    }
}
