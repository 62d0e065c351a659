//! Budget: the rules by which a request spends what remains of its deadline (DESIGN 3.1).
//!
//! A request owns one deadline. Each rule answers one question about the piece of work that would come next, and says
//! why when the answer is no, so that the caller can name the cause instead of guessing it from a timeout later on.
//! Starting work that cannot end usefully is worse than refusing it: it takes a slot from a request that still could.
//!
//! Two reserves are told apart. The *response reserve* belongs to the ingress and pays for assembling and writing the
//! answer; nothing else may touch it. A *hop reserve* is what one process keeps for itself when it calls the next.

use std::fmt;

use base::{Deadline, Nanos};

/// The figures that the rules work with. All of them are spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// What the ingress keeps for its own answer; 20 ms in the shipped policy.
    pub response_reserve: Nanos,
    /// Least that must remain for an optional branch to start; 70 ms in the shipped policy.
    pub optional_floor: Nanos,
}

/// Whether a piece of work may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It may, and must be over within `budget`.
    Start {
        /// What the work may take at most, reserves already taken off. Never zero.
        budget: Nanos,
    },
    /// It must not.
    Skip(Skip),
}

impl Decision {
    /// The budget of work that may start.
    ///
    /// # Errors
    /// The reason when it must not.
    pub const fn granted(self) -> Result<Nanos, Skip> {
        match self {
            Self::Start { budget } => Ok(budget),
            Self::Skip(reason) => Err(reason),
        }
    }
}

/// Why a piece of work must not start. Bounded, so it may label a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Skip {
    /// The deadline has passed.
    Expired,
    /// Less than the reserve is left: whatever remains belongs to the answer, or to this hop.
    ReserveReached,
    /// The work's bounded worst useful run does not fit beside the reserve.
    WorstCaseDoesNotFit,
    /// Less than the floor for optional work is left.
    BelowOptionalFloor,
    /// Backoff, one useful attempt and the reserve do not fit together.
    RetryDoesNotFit,
}

impl Skip {
    /// All of them, for tables and tests.
    pub const ALL: [Self; 5] = [
        Self::Expired,
        Self::ReserveReached,
        Self::WorstCaseDoesNotFit,
        Self::BelowOptionalFloor,
        Self::RetryDoesNotFit,
    ];

    /// The name used in metrics and spans.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::ReserveReached => "reserve_reached",
            Self::WorstCaseDoesNotFit => "worst_case_does_not_fit",
            Self::BelowOptionalFloor => "below_optional_floor",
            Self::RetryDoesNotFit => "retry_does_not_fit",
        }
    }
}

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Rules {
    /// Whether the request goes on at all. Below the response reserve it stops, and its outcome is the deadline.
    pub const fn proceed(&self, deadline: Deadline, now: Nanos) -> Decision {
        let remaining = deadline.remaining(now);
        if remaining.is_zero() {
            return Decision::Skip(Skip::Expired);
        }
        // Exactly the reserve is enough to answer, so the request goes on; there is no budget for anything else.
        if remaining.get() < self.response_reserve.get() {
            return Decision::Skip(Skip::ReserveReached);
        }
        Decision::Start { budget: remaining }
    }

    /// Whether a mandatory branch runs: only if its bounded worst useful run fits beside the response reserve.
    pub const fn mandatory(&self, deadline: Deadline, now: Nanos, worst_useful: Nanos) -> Decision {
        match outbound(deadline, now, self.response_reserve) {
            Decision::Start { budget } if worst_useful.get() > budget.get() => {
                Decision::Skip(Skip::WorstCaseDoesNotFit)
            }
            decision => decision,
        }
    }

    /// Whether an optional branch starts: only with the floor still remaining. A floor below the response reserve does
    /// not open the reserve: the branch then needs more than the reserve.
    pub const fn optional(&self, deadline: Deadline, now: Nanos) -> Decision {
        match outbound(deadline, now, self.response_reserve) {
            Decision::Start { .. } if deadline.remaining(now).get() < self.optional_floor.get() => {
                Decision::Skip(Skip::BelowOptionalFloor)
            }
            decision => decision,
        }
    }

    /// Whether another attempt is made: only if waiting, one useful attempt and the response reserve fit together.
    /// The budget is that of the attempt, the wait already taken off.
    pub const fn retry(
        &self,
        deadline: Deadline,
        now: Nanos,
        backoff: Nanos,
        useful_attempt: Nanos,
    ) -> Decision {
        match outbound(deadline, now, self.response_reserve) {
            Decision::Start { budget } => {
                let left = budget.saturating_sub(backoff);
                if left.is_zero() || left.get() < useful_attempt.get() {
                    Decision::Skip(Skip::RetryDoesNotFit)
                } else {
                    Decision::Start { budget: left }
                }
            }
            skip @ Decision::Skip(_) => skip,
        }
    }
}

/// What a callee may be given at the moment of sending: what remains, less what this hop keeps for itself. Nothing left
/// means that no call is sent: a call without time is work for nobody, and zero must never read as "no limit".
pub const fn outbound(deadline: Deadline, now: Nanos, reserve: Nanos) -> Decision {
    let remaining = deadline.remaining(now);
    if remaining.is_zero() {
        return Decision::Skip(Skip::Expired);
    }
    let budget = remaining.saturating_sub(reserve);
    if budget.is_zero() {
        return Decision::Skip(Skip::ReserveReached);
    }
    Decision::Start { budget }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RULES: Rules =
        Rules { response_reserve: Nanos::from_millis(20), optional_floor: Nanos::from_millis(70) };
    const NOW: Nanos = Nanos::from_secs(9);

    const fn left(nanos: u64) -> Deadline {
        Deadline::after(NOW, Nanos::new(nanos))
    }

    const fn ms(millis: u64) -> u64 {
        Nanos::from_millis(millis).get()
    }

    const fn start(nanos: u64) -> Decision {
        Decision::Start { budget: Nanos::new(nanos) }
    }

    #[test]
    fn a_request_stops_one_nanosecond_below_the_response_reserve() {
        assert_eq!(RULES.proceed(left(ms(20)), NOW), start(ms(20)));
        assert_eq!(RULES.proceed(left(ms(20) - 1), NOW), Decision::Skip(Skip::ReserveReached));
        assert_eq!(RULES.proceed(left(0), NOW), Decision::Skip(Skip::Expired));
        assert_eq!(RULES.proceed(Deadline::at(Nanos::ZERO), NOW), Decision::Skip(Skip::Expired));
    }

    #[test]
    fn a_mandatory_branch_needs_its_worst_useful_run_beside_the_reserve() {
        let worst = Nanos::from_millis(80);
        assert_eq!(RULES.mandatory(left(ms(100)), NOW, worst), start(ms(80)));
        assert_eq!(RULES.mandatory(left(ms(100) - 1), NOW, worst), Decision::Skip(Skip::WorstCaseDoesNotFit));
        assert_eq!(RULES.mandatory(left(ms(20)), NOW, Nanos::ZERO), Decision::Skip(Skip::ReserveReached));
        assert_eq!(RULES.mandatory(left(ms(20) + 1), NOW, Nanos::ZERO), start(1));
    }

    #[test]
    fn an_optional_branch_starts_at_the_floor_and_not_below() {
        assert_eq!(RULES.optional(left(ms(70)), NOW), start(ms(50)));
        assert_eq!(RULES.optional(left(ms(70) - 1), NOW), Decision::Skip(Skip::BelowOptionalFloor));
        assert_eq!(RULES.optional(left(ms(19)), NOW), Decision::Skip(Skip::ReserveReached));
    }

    #[test]
    fn a_floor_below_the_reserve_does_not_open_the_reserve() {
        let rules = Rules { optional_floor: Nanos::ZERO, ..RULES };
        assert_eq!(rules.optional(left(ms(20)), NOW), Decision::Skip(Skip::ReserveReached));
        assert_eq!(rules.optional(left(ms(20) + 1), NOW), start(1));
    }

    #[test]
    fn a_retry_counts_its_own_wait() {
        let (backoff, attempt) = (Nanos::from_millis(10), Nanos::from_millis(30));
        assert_eq!(RULES.retry(left(ms(60)), NOW, backoff, attempt), start(ms(30)));
        assert_eq!(
            RULES.retry(left(ms(60) - 1), NOW, backoff, attempt),
            Decision::Skip(Skip::RetryDoesNotFit)
        );
        assert_eq!(
            RULES.retry(left(ms(30)), NOW, backoff, Nanos::ZERO),
            Decision::Skip(Skip::RetryDoesNotFit),
            "an attempt without any time is no attempt"
        );
        assert_eq!(
            RULES.retry(left(ms(60)), NOW, Nanos::MAX, attempt),
            Decision::Skip(Skip::RetryDoesNotFit)
        );
    }

    #[test]
    fn a_hop_without_budget_sends_nothing() {
        let reserve = Nanos::from_millis(5);
        assert_eq!(outbound(left(ms(5) + 1), NOW, reserve), start(1));
        assert_eq!(outbound(left(ms(5)), NOW, reserve), Decision::Skip(Skip::ReserveReached));
        assert_eq!(outbound(left(0), NOW, Nanos::ZERO), Decision::Skip(Skip::Expired));
        assert_eq!(outbound(Deadline::at(Nanos::MAX), NOW, Nanos::MAX), Decision::Skip(Skip::ReserveReached));
    }

    #[test]
    fn names_are_unique() {
        let names: std::collections::BTreeSet<_> = Skip::ALL.iter().map(|skip| skip.as_str()).collect();
        assert_eq!(names.len(), Skip::ALL.len());
    }

    /// Mostly figures near each other, where the boundaries are, and now and then any at all.
    fn span() -> impl Strategy<Value = Nanos> {
        prop_oneof![4 => 0_u64..200, 1 => any::<u64>()].prop_map(Nanos::new)
    }

    fn rules() -> impl Strategy<Value = Rules> {
        (span(), span())
            .prop_map(|(response_reserve, optional_floor)| Rules { response_reserve, optional_floor })
    }

    proptest! {
        /// The one promise that every rule shares: what it grants, the reserve and the past never exceed the deadline.
        #[test]
        fn no_grant_touches_the_reserve(
            rules in rules(), now in span(), budget in span(), a in span(), b in span(), hop in span(),
        ) {
            let deadline = Deadline::after(now, budget);
            let remaining = u128::from(deadline.remaining(now).get());
            let reserve = u128::from(rules.response_reserve.get());
            for (decision, kept) in [
                (rules.mandatory(deadline, now, a), reserve),
                (rules.optional(deadline, now), reserve),
                (rules.retry(deadline, now, a, b), reserve + u128::from(a.get())),
                (outbound(deadline, now, hop), u128::from(hop.get())),
            ] {
                if let Decision::Start { budget } = decision {
                    prop_assert!(!budget.is_zero());
                    prop_assert!(u128::from(budget.get()) + kept <= remaining, "{decision:?}");
                }
            }
        }

        /// Each answer is exactly what the rule's own words say, over all inputs.
        #[test]
        fn the_rules_are_what_they_say(
            rules in rules(), now in span(), budget in span(), a in span(), b in span(),
        ) {
            let deadline = Deadline::after(now, budget);
            let remaining = u128::from(deadline.remaining(now).get());
            let reserve = u128::from(rules.response_reserve.get());
            let (wide_a, wide_b) = (u128::from(a.get()), u128::from(b.get()));
            prop_assert_eq!(
                rules.proceed(deadline, now).granted().is_ok(),
                remaining > 0 && remaining >= reserve
            );
            prop_assert_eq!(
                rules.mandatory(deadline, now, a).granted().is_ok(),
                remaining > reserve && wide_a + reserve <= remaining
            );
            prop_assert_eq!(
                rules.optional(deadline, now).granted().is_ok(),
                remaining > reserve && remaining >= u128::from(rules.optional_floor.get())
            );
            prop_assert_eq!(
                rules.retry(deadline, now, a, b).granted().is_ok(),
                remaining > reserve + wide_a && wide_a + wide_b + reserve <= remaining
            );
        }

        /// Time only takes away: what is refused now stays refused, and a grant never grows.
        #[test]
        fn waiting_never_helps(
            rules in rules(), now in span(), later in span(), budget in span(), a in span(), b in span(),
        ) {
            let deadline = Deadline::after(now, budget);
            let later = now + later;
            let answers = |at| [
                rules.proceed(deadline, at),
                rules.mandatory(deadline, at, a),
                rules.optional(deadline, at),
                rules.retry(deadline, at, a, b),
                outbound(deadline, at, a),
            ];
            for (before, after) in answers(now).into_iter().zip(answers(later)) {
                match (before.granted(), after.granted()) {
                    (Ok(earlier), Ok(rest)) => prop_assert!(rest <= earlier),
                    (Err(_), Ok(_)) => prop_assert!(false, "{before:?} became {after:?}"),
                    (_, Err(_)) => {}
                }
            }
        }
    }
}
