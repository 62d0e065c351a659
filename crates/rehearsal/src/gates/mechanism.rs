//! Mechanism: each one alone against the policy before: the figure that it is there to move, and by how much that figure
//! must fall for its effect to show.

use model::policy::Mechanism as Name;

use super::objective;
use crate::{
    report::{Effect, Mechanism, State, ratio},
    verdict::Verdict,
};

/// Where the one mechanism without a measure here is judged.
const SUMMARY_ELSEWHERE: &str = "judged by a rehearsal of its own: mercury rehearse migration";

/// The figure that a mechanism is there to move.
struct Measure {
    what: &'static str,
    unit: &'static str,
    figure: fn(&State) -> Option<f64>,
    /// What it must be above without the mechanism: otherwise there was nothing to move.
    without_min: f64,
    /// What it must fall by, over what it was.
    fall_min: f64,
}

const fn measure(mechanism: Name) -> Option<Measure> {
    Some(match mechanism {
        Name::Deadline => Measure {
            what: "answers that come after the objective",
            unit: "ratio",
            figure: |state| state.beyond_objective_ratio,
            without_min: 0.005,
            fall_min: 0.80,
        },
        Name::Cancellation => Measure {
            what: "late operations",
            unit: "ratio",
            figure: |state| state.late_work.ratio,
            without_min: objective::LATE_WORK,
            fall_min: 0.80,
        },
        Name::Admission => Measure {
            what: "queue age p99",
            unit: "ms",
            figure: |state| state.queue_age_ms.p99,
            without_min: objective::QUEUE_AGE_MS,
            fall_min: 0.50,
        },
        Name::Coalescing => Measure {
            what: "profile reads per operation",
            unit: "reads",
            figure: |state| state.profile_calls_per_operation,
            without_min: 0.0,
            fall_min: 0.05,
        },
        Name::Degradation => Measure {
            what: "latency p99",
            unit: "ms",
            figure: |state| state.latency_ms.p99,
            without_min: objective::P99_MS,
            fall_min: 0.10,
        },
        // The migration has a rehearsal of its own.
        Name::Summary => return None,
    })
}

/// Whether a mechanism can be run alone.
pub(crate) const fn is_available(mechanism: Name) -> bool {
    measure(mechanism).is_some()
}

/// What the peak under the policy before and the peak with the mechanism as well say about it. `doubt` says why the run
/// with it cannot be relied on.
pub(crate) fn judge(
    mechanism: Name,
    before: Option<&State>,
    with: State,
    doubt: Option<String>,
) -> Mechanism {
    let Some(measure) = measure(mechanism) else { return not_available(mechanism) };
    let effect = Effect {
        what: measure.what.to_owned(),
        unit: measure.unit.to_owned(),
        without: before.and_then(measure.figure),
        with: (measure.figure)(&with),
    };
    let (verdict, detail) = match (effect.without, effect.with, doubt) {
        (_, _, Some(doubt)) => (Verdict::Inconclusive, format!("the run is no evidence: {doubt}")),
        (Some(without), _, _) if without <= measure.without_min => {
            let text = "the policy before did not show what it is there for";
            (Verdict::Inconclusive, text.to_owned())
        }
        (Some(without), Some(with), None) => {
            let fall = ratio(without - with, without);
            let percent = fall.map_or(0.0, |fall| fall * 100.0);
            let text = format!("fell by {percent:.0} %, and must by {:.0} %", measure.fall_min * 100.0);
            (Verdict::at_least(fall, measure.fall_min), text)
        }
        _ => (Verdict::Inconclusive, "it was not measured".to_owned()),
    };
    Mechanism { name: mechanism.as_str().to_owned(), verdict, detail, effect, state: Some(with) }
}

/// A mechanism that is not measured alone at peak.
pub(crate) fn not_available(mechanism: Name) -> Mechanism {
    Mechanism {
        name: mechanism.as_str().to_owned(),
        verdict: Verdict::NotApplicable,
        detail: SUMMARY_ELSEWHERE.to_owned(),
        ..Mechanism::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::LateWork;

    fn late(ratio: Option<f64>) -> State {
        State { late_work: LateWork { ratio, ..LateWork::default() }, ..State::default() }
    }

    fn verdict(without: Option<f64>, with: Option<f64>, doubt: Option<&str>) -> Verdict {
        let before = late(without);
        judge(Name::Cancellation, Some(&before), late(with), doubt.map(str::to_owned)).verdict
    }

    #[test]
    fn an_effect_must_be_seen_where_there_was_something_to_move() {
        assert_eq!(verdict(Some(0.2), Some(0.01), None), Verdict::Pass);
        assert_eq!(verdict(Some(0.2), Some(0.19), None), Verdict::Fail);
        assert_eq!(verdict(Some(0.2), Some(0.3), None), Verdict::Fail, "it rose");
        assert_eq!(verdict(Some(0.01), Some(0.0), None), Verdict::Inconclusive, "there was no late work");
        assert_eq!(verdict(Some(0.2), None, None), Verdict::Inconclusive);
        assert_eq!(verdict(None, Some(0.0), None), Verdict::Inconclusive);
        assert_eq!(verdict(Some(0.2), Some(0.01), Some("late")), Verdict::Inconclusive);
        let alone = judge(Name::Cancellation, None, late(Some(0.0)), None);
        assert_eq!((alone.verdict, alone.effect.without), (Verdict::Inconclusive, None));
    }

    #[test]
    fn every_mechanism_but_the_summary_has_a_measure() {
        let available: Vec<&str> =
            Name::ALL.into_iter().filter(|name| is_available(*name)).map(Name::as_str).collect();
        assert_eq!(available, ["deadline", "cancellation", "admission", "coalescing", "degradation"]);
        let summary = not_available(Name::Summary);
        assert_eq!((summary.verdict, summary.detail.as_str()), (Verdict::NotApplicable, SUMMARY_ELSEWHERE));
    }
}
