//! Search: which rate is offered next, from the steps that were taken. Pure.

use super::KneeStep;

/// Most steps of a search.
pub(super) const STEPS_MAX: usize = 20;
/// By how much more the next step offers while none has broken, in percent of the last.
const FACTOR_PERCENT: u32 = 135;
/// The two sides of the knee are close enough.
const APART_MAX: f64 = 1.08;
/// How often a step is made again in which the generator was late: once may be somebody else's work on the machine.
pub(super) const REPEATS_MAX: usize = 2;
/// Least and most that is offered, in percent.
const LEAST_PERCENT: u32 = 5;
const MOST_PERCENT: u32 = load::RATE_PERCENT_MAX;

/// What comes next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Another step, at this percentage.
    Offer(u32),
    /// The knee is between two steps that are close enough.
    Found,
    /// There is nothing to find, and why.
    Nothing(String),
}

/// The steps on either side of the knee.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bracket<'s> {
    /// The highest one that held.
    pub(super) held: Option<&'s KneeStep>,
    /// The lowest one that broke.
    pub(super) broken: Option<&'s KneeStep>,
}

/// Of the steps that show anything. A rate that broke is above the knee, whatever held above it.
pub(super) fn bracket(steps: &[KneeStep]) -> Bracket<'_> {
    let valid = || steps.iter().filter(|step| step.valid);
    let broken = valid().filter(|step| !step.broke.is_empty()).min_by_key(|step| step.rate_percent);
    let below = |step: &&KneeStep| broken.is_none_or(|broken| step.rate_percent < broken.rate_percent);
    let held =
        valid().filter(|step| step.broke.is_empty()).filter(below).max_by_key(|step| step.rate_percent);
    Bracket { held, broken }
}

/// Most that the two sides of a found knee may be apart: the factor, or one percent of the declared rate where that is more.
pub(super) fn apart_max(held_percent: u32) -> f64 {
    APART_MAX.max(f64::from(held_percent + 1) / f64::from(held_percent.max(1)))
}

/// Whether the two sides are close enough.
fn close(held_percent: u32, broken_percent: u32) -> bool {
    f64::from(broken_percent) / f64::from(held_percent.max(1)) <= apart_max(held_percent)
}

/// Steps at the end of which the generator was late.
pub(super) fn invalid_in_a_row(steps: &[KneeStep]) -> usize {
    steps.iter().rev().take_while(|step| !step.valid).count()
}

/// What comes after `steps`.
pub(super) fn next(steps: &[KneeStep]) -> Next {
    if let Some(step) = steps.last().filter(|step| !step.valid) {
        if invalid_in_a_row(steps) <= REPEATS_MAX && steps.len() < STEPS_MAX {
            return Next::Offer(step.rate_percent);
        }
        let rate = step.offered_per_s;
        return Next::Nothing(format!(
            "the generator or the emulator was the bottleneck at {rate:.0}/s; offer less, or use a machine with more"
        ));
    }
    if steps.is_empty() {
        return Next::Offer(100);
    }
    let Bracket { held, broken } = bracket(steps);
    match (held.map(|step| step.rate_percent), broken.map(|step| step.rate_percent)) {
        (Some(held), Some(broken)) if close(held, broken) => Next::Found,
        _ if steps.len() >= STEPS_MAX => Next::Nothing(format!("not found in {STEPS_MAX} steps")),
        (Some(held), Some(broken)) => Next::Offer(held.midpoint(broken)),
        (Some(held), None) if held >= MOST_PERCENT => Next::Nothing(format!(
            "{MOST_PERCENT} % of the declared rate held, which is the most that is offered"
        )),
        (Some(held), None) => Next::Offer((held * FACTOR_PERCENT / 100).min(MOST_PERCENT)),
        (None, Some(broken)) if broken <= LEAST_PERCENT => Next::Nothing(format!(
            "{LEAST_PERCENT} % of the declared rate broke, which is the least that is offered"
        )),
        (None, Some(broken)) => Next::Offer((broken * 100 / FACTOR_PERCENT).max(LEAST_PERCENT)),
        (None, None) => Next::Nothing("no step showed anything".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn step(rate_percent: u32, holds: bool) -> KneeStep {
        let broke = if holds { Vec::new() } else { vec!["p99".to_owned()] };
        KneeStep { rate_percent, valid: true, broke, ..KneeStep::default() }
    }

    /// Searches a system that breaks above `knee`.
    fn search(knee: u32) -> (Vec<KneeStep>, Next) {
        let mut steps = Vec::new();
        loop {
            match next(&steps) {
                Next::Offer(rate) => steps.push(step(rate, rate <= knee)),
                end => return (steps, end),
            }
        }
    }

    #[test]
    fn a_step_in_which_the_generator_was_late_is_made_again_and_ends_the_search_when_it_always_is() {
        let late = KneeStep { valid: false, ..step(135, false) };
        let mut steps = vec![step(100, true), late.clone()];
        assert_eq!(next(&steps), Next::Offer(135));
        steps.push(step(135, true));
        assert_eq!(next(&steps), Next::Offer(182), "what was late takes no part");
        let always = [step(100, true), late.clone(), late.clone(), late];
        assert!(matches!(next(&always), Next::Nothing(why) if why.contains("generator")));
    }

    #[test]
    fn what_cannot_be_found_is_said() {
        assert!(matches!(search(5_000).1, Next::Nothing(why) if why.contains("most that is offered")));
        assert!(matches!(search(0).1, Next::Nothing(why) if why.contains("least that is offered")));
    }

    proptest! {
        #[test]
        fn the_knee_is_between_the_two_sides_and_they_are_close(knee in 5_u32..1_000) {
            let (steps, end) = search(knee);
            prop_assert_eq!(end, Next::Found, "{} {:?}", knee, steps.len());
            let Bracket { held, broken } = bracket(&steps);
            let (held, broken) = (held.expect("held").rate_percent, broken.expect("broken").rate_percent);
            prop_assert!(held <= knee && knee < broken, "{} {} {}", held, knee, broken);
            prop_assert!(f64::from(broken) <= f64::from(held) * APART_MAX || broken - held <= 1);
            prop_assert!(steps.len() <= STEPS_MAX);
        }
    }
}
