//! Retry, tested: the rules one by one at their bounds, then any history at all.

use proptest::prelude::*;

use super::*;

const NOW: Nanos = Nanos::from_secs(3);
const RULES: Rules =
    Rules { response_reserve: Nanos::from_millis(20), optional_floor: Nanos::from_millis(70) };
const BACKOFF: Backoff =
    Backoff { initial: Nanos::from_millis(10), max: Nanos::from_millis(35), growth_thousandths: 2_000 };
const UNAVAILABLE: Failure = Failure::of(Status::Unavailable);
/// Draws the longest wait.
const LONGEST: u64 = u64::MAX;

fn policy(attempts_max: u32) -> Policy {
    let retryable = StatusSet::EMPTY.with(Status::Unavailable).with(Status::Aborted);
    Policy::new(attempts_max, BACKOFF, retryable).expect("a sound policy")
}

fn rules(tokens_max: u32, ratio_thousandths: u32) -> TokenRules {
    TokenRules::new(tokens_max, ratio_thousandths).expect("sound figures")
}

/// The budget of A10, with so many tokens left.
fn tokens(left: u32) -> Tokens {
    let mut tokens = Tokens::full(rules(10, 100));
    (left..10).for_each(|_| tokens.failure());
    assert_eq!(tokens.level_thousandths(), left * 1_000);
    tokens
}

const fn room(left_ms: u64) -> Room<'static> {
    Room {
        rules: &RULES,
        deadline: Deadline::after(NOW, Nanos::from_millis(left_ms)),
        useful_attempt: Nanos::from_millis(30),
    }
}

fn idempotent(policy: &Policy, tokens: &mut Tokens, failure: &Failure, room: &Room<'_>) -> Decision {
    Attempts::first(Safety::Idempotent).failed(policy, tokens, failure, room, NOW, LONGEST)
}

#[test]
fn every_refusal_has_its_reason() {
    let policy = policy(3);
    let decide = |failure: Failure, left_ms| idempotent(&policy, &mut tokens(10), &failure, &room(left_ms));
    let retry = Decision::Retry { wait: Nanos::from_millis(10), budget: Nanos::from_millis(70), previous: 1 };
    assert_eq!(decide(UNAVAILABLE, 100), retry);
    assert_eq!(decide(Failure::of(Status::NotFound), 100), Decision::Stop(Stop::StatusNotRetryable));
    assert_eq!(decide(Failure { committed: true, ..UNAVAILABLE }, 100), Decision::Stop(Stop::Committed));
    assert_eq!(
        decide(Failure { pushback: Pushback::Never, ..UNAVAILABLE }, 100),
        Decision::Stop(Stop::PushedBack)
    );
    let once = Attempts::first(Safety::Once).failed(
        &policy,
        &mut tokens(10),
        &UNAVAILABLE,
        &room(100),
        NOW,
        LONGEST,
    );
    assert_eq!(once, Decision::Stop(Stop::NotIdempotent));
}

#[test]
fn the_wait_a_useful_attempt_and_the_reserve_must_fit_exactly() {
    let policy = policy(2);
    let decide = |left_ms| idempotent(&policy, &mut tokens(10), &UNAVAILABLE, &room(left_ms));
    let exactly =
        Decision::Retry { wait: Nanos::from_millis(10), budget: Nanos::from_millis(30), previous: 1 };
    assert_eq!(decide(60), exactly);
    assert_eq!(decide(59), Decision::Stop(Stop::DoesNotFit(Skip::RetryDoesNotFit)));
    assert_eq!(decide(20), Decision::Stop(Stop::DoesNotFit(Skip::ReserveReached)));
    assert_eq!(decide(0), Decision::Stop(Stop::DoesNotFit(Skip::Expired)));
}

#[test]
fn the_first_attempt_counts_and_five_is_the_cap() {
    for (asked, allowed) in [(2, 2), (4, 4), (5, 5), (6, 5), (u32::MAX, 5)] {
        let policy = policy(asked);
        let mut tokens = Tokens::full(rules(TOKENS_MAX, 1_000));
        let mut attempts = Attempts::first(Safety::Idempotent);
        let mut next = || attempts.failed(&policy, &mut tokens, &UNAVAILABLE, &room(9_000), NOW, 0);
        for expected in 1..allowed {
            assert!(
                matches!(next(), Decision::Retry { previous, .. } if previous == expected),
                "{asked}: after {expected}"
            );
        }
        assert_eq!(next(), Decision::Stop(Stop::AttemptsSpent), "{asked}");
    }
}

#[test]
fn what_was_surely_not_processed_may_go_again_but_not_for_ever() {
    let policy = policy(2);
    let failure = Failure { unprocessed: true, ..Failure::of(Status::Internal) };
    let mut attempts = Attempts::first(Safety::Once);
    let mut tokens = tokens(10);
    let mut next = || attempts.failed(&policy, &mut tokens, &failure, &room(900), NOW, LONGEST);
    assert!(matches!(next(), Decision::Retry { previous: 1, .. }));
    assert_eq!(next(), Decision::Stop(Stop::AttemptsSpent));
}

/// A10: at or below half the failure is returned at once; above, there is another attempt.
#[test]
fn at_half_the_budget_nothing_more_is_sent() {
    let policy = policy(5);
    for left in 0..=10 {
        let mut tokens = tokens(left);
        let decision = idempotent(&policy, &mut tokens, &UNAVAILABLE, &room(900));
        // The failure takes its token first.
        let after = left.saturating_sub(1);
        assert_eq!(tokens.level_thousandths(), after * 1_000);
        if after > 5 {
            assert!(matches!(decision, Decision::Retry { .. }), "{left}");
        } else {
            assert_eq!(decision, Decision::Stop(Stop::TokensLow), "{left}");
        }
    }
}

/// A10: 64 calls take at once, and successes give back a tenth each.
#[test]
fn the_budget_stays_within_its_bounds() {
    let mut tokens = tokens(6);
    (0..64).for_each(|_| tokens.failure());
    assert_eq!(tokens.level_thousandths(), 0);
    (0..50).for_each(|_| tokens.success());
    assert_eq!(tokens.level_thousandths(), 5_000);
    assert!(!tokens.allow(), "exactly half is not enough");
    tokens.success();
    assert!(tokens.allow());
    (0..64).for_each(|_| tokens.success());
    assert_eq!(tokens.level_thousandths(), 10_000);
}

#[test]
fn only_failures_that_count_take_a_token() {
    let policy = policy(3);
    for (failure, left) in [
        (UNAVAILABLE, 9_000),
        (Failure { committed: true, ..UNAVAILABLE }, 9_000),
        (Failure { pushback: Pushback::Never, ..Failure::of(Status::NotFound) }, 9_000),
        (Failure::of(Status::NotFound), 10_000),
        (Failure { unprocessed: true, ..Failure::of(Status::Internal) }, 10_000),
    ] {
        let mut tokens = tokens(10);
        idempotent(&policy, &mut tokens, &failure, &room(100));
        assert_eq!(tokens.level_thousandths(), left, "{failure:?}");
    }
}

#[test]
fn a_reload_keeps_the_share_that_was_left() {
    let mut tokens = tokens(7);
    tokens.reconfigure(rules(100, 500));
    assert_eq!((tokens.level_thousandths(), tokens.max_thousandths()), (70_000, 100_000));
    tokens.reconfigure(rules(1, 1));
    assert_eq!((tokens.level_thousandths(), tokens.max_thousandths()), (700, 1_000));
}

#[test]
fn pushback_is_a_signed_integer_of_32_bits_or_a_refusal() {
    for (text, expected) in [
        ("0", Pushback::After(Nanos::ZERO)),
        ("-0", Pushback::After(Nanos::ZERO)),
        ("007", Pushback::After(Nanos::from_millis(7))),
        ("2147483647", Pushback::After(Nanos::from_millis(2_147_483_647))),
        ("2147483648", Pushback::Never),
        ("-1", Pushback::Never),
        ("-2147483648", Pushback::Never),
        ("", Pushback::Never),
        ("-", Pushback::Never),
        ("+5", Pushback::Never),
        (" 5", Pushback::Never),
        ("5,6", Pushback::Never),
        ("1.5", Pushback::Never),
        ("5\u{666}", Pushback::Never),
    ] {
        assert_eq!(Pushback::parse(Some(text.as_bytes())), expected, "{text:?}");
    }
    assert_eq!(Pushback::parse(None), Pushback::Absent);
    assert_eq!(Pushback::parse(Some(b"\xff")), Pushback::Never);
}

#[test]
fn pushback_sets_the_wait_and_starts_the_backoff_anew() {
    let policy = policy(5);
    let mut tokens = tokens(10);
    let mut attempts = Attempts::first(Safety::Idempotent);
    let mut wait_after = |pushback| {
        let failure = Failure { pushback, ..UNAVAILABLE };
        match attempts.failed(&policy, &mut tokens, &failure, &room(900), NOW, LONGEST) {
            Decision::Retry { wait, .. } => wait.as_millis(),
            Decision::Stop(stop) => panic!("{stop}"),
        }
    };
    assert_eq!(wait_after(Pushback::Absent), 10);
    assert_eq!(wait_after(Pushback::Absent), 20);
    assert_eq!(wait_after(Pushback::After(Nanos::from_millis(3))), 3);
    assert_eq!(wait_after(Pushback::Absent), 10);
}

#[test]
fn a_pushback_beyond_the_deadline_ends_the_call_now() {
    let failure = Failure { pushback: Pushback::parse(Some(b"51")), ..UNAVAILABLE };
    assert_eq!(
        idempotent(&policy(3), &mut tokens(10), &failure, &room(100)),
        Decision::Stop(Stop::DoesNotFit(Skip::RetryDoesNotFit))
    );
    let failure = Failure { pushback: Pushback::parse(Some(b"50")), ..UNAVAILABLE };
    assert!(matches!(idempotent(&policy(3), &mut tokens(10), &failure, &room(100)), Decision::Retry { .. }));
}

#[test]
fn the_wait_grows_to_its_bound_and_is_spread_below_it() {
    let bounds: Vec<_> = (0..5).map(|retries| BACKOFF.bound(retries).as_millis()).collect();
    assert_eq!(bounds, [10, 20, 35, 35, 35]);
    assert_eq!(BACKOFF.wait(0, 0), Nanos::ZERO);
    assert_eq!(BACKOFF.wait(0, u64::MAX / 2), Nanos::from_millis(5));
    assert_eq!(BACKOFF.wait(0, LONGEST), Nanos::from_millis(10));
}

#[test]
fn every_fault_of_a_policy_is_told() {
    let backoff = Backoff { initial: Nanos::ZERO, max: Nanos::ZERO, growth_thousandths: 999 };
    assert_eq!(
        Policy::new(1, backoff, StatusSet::EMPTY),
        Err(vec![
            PolicyFault::AttemptsBelowTwo(1),
            PolicyFault::InitialZero,
            PolicyFault::GrowthBelowOne(999),
            PolicyFault::NothingRetryable,
        ])
    );
    let backoff = Backoff { max: Nanos::from_millis(9), ..BACKOFF };
    assert_eq!(
        Policy::new(2, backoff, StatusSet::EMPTY.with(Status::Unavailable)),
        Err(vec![PolicyFault::MaxBelowInitial])
    );
    assert_eq!(TokenRules::new(0, 0), Err(vec![TokenFault::MaxOutOfRange(0), TokenFault::RatioZero]));
    assert!(TokenRules::new(TOKENS_MAX, 1).is_ok());
    assert!(TokenRules::new(TOKENS_MAX + 1, 1).is_err());
}

#[test]
fn statuses_read_back_and_sets_hold_what_they_were_given() {
    for status in Status::ALL {
        assert_eq!(Status::from_code(status.code()), Some(status));
        assert_eq!(Status::parse(status.as_str()), Some(status));
        let alone = StatusSet::EMPTY.with(status);
        let held: Vec<_> = Status::ALL.into_iter().filter(|other| alone.contains(*other)).collect();
        assert_eq!(held, [status]);
    }
    assert_eq!([0, 17, -1].map(Status::from_code), [None; 3]);
    assert!(Status::ALL.into_iter().collect::<StatusSet>().contains(Status::DataLoss));
}

fn failure() -> impl Strategy<Value = Failure> {
    let pushback = prop_oneof![
        3 => Just(Pushback::Absent),
        1 => (0_u64..200).prop_map(|millis| Pushback::After(Nanos::from_millis(millis))),
        1 => Just(Pushback::Never),
    ];
    (
        prop::sample::select(Status::ALL.to_vec()),
        pushback,
        prop::bool::weighted(0.1),
        prop::bool::weighted(0.1),
    )
        .prop_map(|(status, pushback, committed, unprocessed)| Failure {
            status,
            pushback,
            committed,
            unprocessed,
        })
}

proptest! {
    /// However failures, successes and reloads follow each other, the budget stays within zero and its maximum, and no
    /// retry is sent at or below half.
    #[test]
    fn tokens_never_leave_their_bounds(
        first in (1..=TOKENS_MAX, 1_u32..=u32::MAX),
        steps in prop::collection::vec(
            prop_oneof![
                8 => Just(Some(true)), 8 => Just(Some(false)), 1 => Just(None),
            ],
            0..400,
        ),
        second in (1..=TOKENS_MAX, 1_u32..=5_000),
    ) {
        let mut tokens = Tokens::full(rules(first.0, first.1));
        for step in steps {
            match step {
                Some(true) => tokens.success(),
                Some(false) => tokens.failure(),
                None => tokens.reconfigure(rules(second.0, second.1)),
            }
            prop_assert!(tokens.level_thousandths() <= tokens.max_thousandths());
            prop_assert_eq!(
                tokens.allow(),
                u64::from(tokens.level_thousandths()) * 2 > u64::from(tokens.max_thousandths())
            );
        }
    }

    /// A wait never exceeds its bound, nor the bound the maximum, and nothing overflows.
    #[test]
    fn waits_stay_within_their_bounds(
        initial in 1_u64.., max in 1_u64.., growth_thousandths in 1_000_u32.., retries: u32, jitter: u64,
    ) {
        let backoff = Backoff { initial: Nanos::new(initial), max: Nanos::new(max), growth_thousandths };
        prop_assert!(backoff.wait(retries, jitter) <= backoff.bound(retries));
        prop_assert!(backoff.bound(retries) <= backoff.max);
        prop_assert!(backoff.bound(retries) <= backoff.bound(retries.saturating_add(1)));
    }

    /// Over any call: attempts stay within the policy, every retry granted was allowed by the tokens and fits before the
    /// one deadline together with its wait and the reserve, and what must not be repeated is not.
    #[test]
    fn no_call_outlives_its_bounds(
        attempts_max in 2_u32..9,
        once: bool,
        left in 1_u32..=10,
        left_ms in 0_u64..2_000,
        useful_ms in 0_u64..100,
        spent_ms in prop::collection::vec(0_u64..300, 8),
        failures in prop::collection::vec((failure(), any::<u64>()), 8),
    ) {
        let policy = policy(attempts_max);
        let mut tokens = tokens(left);
        let room = Room { useful_attempt: Nanos::from_millis(useful_ms), ..room(left_ms) };
        let safety = if once { Safety::Once } else { Safety::Idempotent };
        let mut attempts = Attempts::first(safety);
        let mut now = NOW;
        for (spent, (failure, jitter)) in spent_ms.into_iter().zip(failures) {
            now = now + Nanos::from_millis(spent);
            let made = attempts.made();
            match attempts.failed(&policy, &mut tokens, &failure, &room, now, jitter) {
                Decision::Retry { wait, budget, previous } => {
                    prop_assert_eq!((previous, attempts.made()), (made, made + 1));
                    prop_assert!(attempts.made() <= policy.attempts_max().min(ATTEMPTS_MAX));
                    prop_assert!(tokens.allow());
                    prop_assert!(failure.unprocessed || (!once && policy.retryable().contains(failure.status)));
                    prop_assert!(!failure.committed && failure.pushback != Pushback::Never);
                    prop_assert!(!budget.is_zero() && budget >= room.useful_attempt);
                    if let Pushback::After(asked) = failure.pushback {
                        prop_assert_eq!(wait, asked);
                    }
                    let end = now + wait + budget + RULES.response_reserve;
                    prop_assert!(end <= room.deadline.instant());
                    now = now + wait;
                }
                Decision::Stop(_) => {
                    prop_assert_eq!(attempts.made(), made, "a refusal is no attempt");
                    break;
                }
            }
        }
    }
}
