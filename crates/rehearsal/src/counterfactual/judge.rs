//! Judge: what the figures say about each switch, by its rule. Pure.

use base::Dependency;
use load::table::{ms, percent};

use super::{Figure, Switch, SwitchReport, Trial};
use crate::{
    gates::objective,
    report::ratio,
    sweep::{At, Base, Figures, Measured},
    verdict::Verdict,
};

/// How far a 99th percentile may move and still be called unmoved, over what it was.
const MOVED: f64 = 0.10;
/// A wait or a percentile that differs by less says nothing, in milliseconds.
const NOTICED_MS: f64 = 1.0;
/// A percentile that falls by less of itself says nothing.
const NOTICED: f64 = 0.01;
/// Goodput that differs by less says nothing.
const GOODPUT: f64 = 0.001;
/// The same for what the broad hedge costs everybody in the slowdown.
const GOODPUT_LOST: f64 = 0.0005;
/// Fewer shared reads per operation are almost none.
const SHARED: f64 = 0.01;

/// What was measured, by trial.
struct Seen<'m>(&'m [(Trial, Measured)]);

impl<'m> Seen<'m> {
    fn at(&self, trial: Trial, state: At) -> Option<&'m Figures> {
        self.0.iter().find(|(of, _)| *of == trial)?.1.at(state)
    }

    fn p99(&self, trial: Trial) -> Option<f64> {
        self.at(trial, At::Peak)?.latency_ms.p99
    }

    /// How far the second's 99th percentile at peak is from the first's, over the first's.
    fn moved(&self, from: Trial, to: Trial) -> Option<f64> {
        ratio(self.p99(to)? - self.p99(from)?, self.p99(from)?)
    }
}

/// Two regions in one state, without and with a change.
#[derive(Clone, Copy)]
struct Both<'m> {
    without: Option<&'m Figures>,
    with: Option<&'m Figures>,
}

impl<'m> Both<'m> {
    fn of(seen: &Seen<'m>, state: At, without: Trial, with: Trial) -> Self {
        Self { without: seen.at(without, state), with: seen.at(with, state) }
    }

    fn figure(&self, what: &str, unit: &'static str, of: impl Fn(&Figures) -> Option<f64>) -> Figure {
        Figure {
            what: what.to_owned(),
            unit,
            without: self.without.and_then(&of),
            with: self.with.and_then(&of),
        }
    }

    /// What the change adds.
    fn added(&self, of: impl Fn(&Figures) -> Option<f64>) -> Option<f64> {
        Some(of(self.with?)? - of(self.without?)?)
    }
}

fn p99(figures: &Figures) -> Option<f64> {
    figures.latency_ms.p99
}

fn p50(figures: &Figures) -> Option<f64> {
    figures.latency_ms.p50
}

fn goodput(figures: &Figures) -> Option<f64> {
    figures.goodput_ratio
}

fn connection(figures: &Figures) -> Option<f64> {
    figures.wait_ms.connection_p99
}

fn slot(figures: &Figures) -> Option<f64> {
    figures.wait_ms.endpoint_p99
}

fn reads(figures: &Figures) -> Option<f64> {
    figures.profile_calls_per_operation
}

/// A value that would be written as a negative zero is zero.
fn settled(value: f64, half_digit: f64) -> f64 {
    if value.abs() < half_digit { 0.0 } else { value }
}

fn points(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| "–".to_owned(), |ratio| format!("{:+.2} points", settled(ratio * 100.0, 0.005)))
}

fn signed_ms(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{:+.1} ms", settled(value, 0.05)))
}

/// What the figures say about a switch.
pub(super) fn judge(switch: Switch, measured: &[(Trial, Measured)], base: &Base) -> SwitchReport {
    let seen = Seen(measured);
    let (verdict, text, figures) = match switch {
        Switch::Hosts => hosts(&seen),
        Switch::Pool800 => pool(&seen),
        Switch::HedgeBroadPeak => hedge_peak(&seen),
        Switch::HedgeBroadModerate => hedge_moderate(&seen),
        Switch::HedgeNarrow => hedge_narrow(&seen),
        Switch::NoOverlap => no_overlap(&seen),
        Switch::HopKept => hop(&seen),
        Switch::RecommendationRequired => required(&seen, base),
        Switch::ObservationGuard => (
            Verdict::Inconclusive,
            "not modelled yet: the seat is kept, and nothing was run".to_owned(),
            vec![],
        ),
    };
    SwitchReport {
        name: switch.as_str(),
        question: switch.question(),
        expected: switch.expected(),
        rule: switch.rule(),
        verdict,
        text,
        figures,
    }
}

type Judged = (Verdict, String, Vec<Figure>);

fn hosts(seen: &Seen<'_>) -> Judged {
    let old = Both::of(seen, At::Peak, Trial::Old, Trial::OldHosts);
    let repaired = Both::of(seen, At::Peak, Trial::Repaired, Trial::Hosts);
    let moved = [(Trial::Old, Trial::OldHosts), (Trial::Repaired, Trial::Hosts)]
        .map(|(without, with)| seen.moved(without, with).map(f64::abs));
    let most = moved[0].zip(moved[1]).map(|(one, other)| one.max(other));
    let text = format!(
        "the old 99th percentile moves by {}, the repaired one by {}. CPU goes from {} busy to {} in the old design; slots belong to \
         the admission domains, and a page waits {} ms for one before and {} ms after",
        signed_ms(old.added(p99)),
        signed_ms(repaired.added(p99)),
        percent(old.without.and_then(|figures| figures.cpu_ratio)),
        percent(old.with.and_then(|figures| figures.cpu_ratio)),
        ms(old.without.and_then(slot)),
        ms(old.with.and_then(slot)),
    );
    let figures = vec![
        old.figure("old p99", "ms", p99),
        repaired.figure("repaired p99", "ms", p99),
        old.figure("old CPU busy", "ratio", |figures| figures.cpu_ratio),
        repaired.figure("repaired CPU busy", "ratio", |figures| figures.cpu_ratio),
        old.figure("old wait for a slot, p99", "ms", slot),
    ];
    (Verdict::at_most(most, MOVED), text, figures)
}

fn pool(seen: &Seen<'_>) -> Judged {
    let peak = Both::of(seen, At::Peak, Trial::Old, Trial::OldPool);
    let slowdown = Both::of(seen, At::Slowdown, Trial::Old, Trial::OldPool);
    let recovery = Both::of(seen, At::Recovery, Trial::Old, Trial::OldPool);
    let recovered = |figures: &Figures| {
        let recovery = figures.recovery?;
        recovery.s.or(recovery.at_least_s)
    };
    let text = format!(
        "the 99th percentile at peak moves by {}. A connection is waited for {} ms without and {} ms with it, a slot of the endpoint in \
         front of it {} and {} ms; in the slowdown goodput moves by {}, and recovery takes {} and {} s or more",
        signed_ms(peak.added(p99)),
        ms(peak.without.and_then(connection)),
        ms(peak.with.and_then(connection)),
        ms(peak.without.and_then(slot)),
        ms(peak.with.and_then(slot)),
        points(slowdown.added(goodput)),
        ms(recovery.without.and_then(recovered)),
        ms(recovery.with.and_then(recovered)),
    );
    let figures = vec![
        peak.figure("p99 at peak", "ms", p99),
        peak.figure("wait for a connection, p99", "ms", connection),
        peak.figure("wait for a slot, p99", "ms", slot),
        peak.figure("wait at the store, mean", "ms", |figures| figures.wait_ms.store_mean),
        peak.figure("store busy", "ratio", |figures| Some(figures.store_ratio)),
        slowdown.figure("goodput in the slowdown", "ratio", goodput),
        recovery.figure("recovery, at least", "s", recovered),
    ];
    let fell = seen.moved(Trial::Old, Trial::OldPool).map(|moved| -moved);
    (Verdict::at_most(fell, MOVED), text, figures)
}

fn hedge_peak(seen: &Seen<'_>) -> Judged {
    let peak = Both::of(seen, At::Peak, Trial::Repaired, Trial::Hedged);
    let slowdown = Both::of(seen, At::Slowdown, Trial::Repaired, Trial::Hedged);
    let (more, older, lost) =
        (peak.added(reads), peak.added(connection), slowdown.added(goodput).map(|added| -added));
    let verdict = match (more, older, lost) {
        (Some(more), Some(older), Some(lost)) => {
            if lost <= -GOODPUT_LOST {
                Verdict::Fail
            } else if more > 0.0 && older >= NOTICED_MS && lost >= GOODPUT_LOST {
                Verdict::Pass
            } else {
                Verdict::Inconclusive
            }
        }
        _ => Verdict::Inconclusive,
    };
    let prompt = Both::of(seen, At::Slowdown, Trial::Repaired, Trial::HedgedPrompt);
    let text = format!(
        "{} more reads an operation; the wait for a connection moves by {} at p99 at peak; goodput moves by {} at peak and {} in the \
         slowdown, the 99th percentile by {}. What the loser of two reads still holds decides: where it stops within 2 ms, goodput in the \
         slowdown moves by {}. In this model a slow read is slow by itself, however busy the store is ({} in the slowdown), which is the \
         best case of a hedge",
        more.map_or_else(|| "–".to_owned(), |more| format!("{more:.3}")),
        signed_ms(older),
        points(peak.added(goodput)),
        points(slowdown.added(goodput)),
        signed_ms(peak.added(p99)),
        points(prompt.added(goodput)),
        percent(slowdown.with.map(|figures| figures.store_ratio)),
    );
    let figures = vec![
        peak.figure("reads per operation", "reads", reads),
        peak.figure("store busy", "ratio", |figures| Some(figures.store_ratio)),
        peak.figure("wait for a connection at peak, p99", "ms", connection),
        peak.figure("wait for a slot at peak, p99", "ms", slot),
        peak.figure("p99 at peak", "ms", p99),
        peak.figure("goodput at peak", "ratio", goodput),
        slowdown.figure("wait for a connection in the slowdown, p99", "ms", connection),
        slowdown.figure("goodput in the slowdown", "ratio", goodput),
        prompt.figure("the same, where losers stop within 2 ms", "ratio", goodput),
    ];
    (verdict, text, figures)
}

fn hedge_moderate(seen: &Seen<'_>) -> Judged {
    type Quantile = (&'static str, fn(&Figures) -> Option<f64>);
    const TAIL: [Quantile; 3] =
        [("p95", |figures| figures.p95_ms), ("p99", p99), ("p99.9", |figures| figures.latency_ms.p999)];
    let both = Both::of(seen, At::Peak, Trial::Moderate, Trial::ModerateHedged);
    let fell = TAIL.map(|(name, of)| {
        let figure = both.figure(name, "ms", of);
        let fell = figure.without.zip(figure.with).and_then(|(without, with)| ratio(without - with, without));
        (fell, name)
    });
    let most = fell
        .iter()
        .filter_map(|(fell, name)| Some(((*fell)?, *name)))
        .max_by(|one, other| one.0.total_cmp(&other.0));
    let lost = both.added(goodput).map(|added| -added);
    let known = fell.iter().all(|(fell, _)| fell.is_some());
    let verdict = match (known, most, lost) {
        (true, Some((fell, _)), Some(lost)) if fell >= NOTICED && lost <= GOODPUT => Verdict::Pass,
        (true, Some(_), Some(_)) => Verdict::Fail,
        _ => Verdict::Inconclusive,
    };
    let text = format!(
        "{} falls most, by {}; {} more reads an operation, and a slot is held {} on average. The 99th percentile itself is made by slow \
         recommendations, which no second profile read ends",
        most.map_or("none", |(_, name)| name),
        percent(most.map(|(fell, _)| fell)),
        both.added(reads).map_or_else(|| "–".to_owned(), |more| format!("{more:.3}")),
        signed_ms(both.added(|figures| figures.wait_ms.slot_held_mean)),
    );
    let mut figures: Vec<Figure> = TAIL.iter().map(|(name, of)| both.figure(name, "ms", of)).collect();
    figures.push(both.figure("p50", "ms", p50));
    figures.push(both.figure("slot held, mean", "ms", |figures| figures.wait_ms.slot_held_mean));
    figures.push(both.figure("ended by the deadline", "ratio", |figures| figures.deadline_ratio));
    figures.push(both.figure("goodput", "ratio", goodput));
    figures.push(both.figure("reads per operation", "reads", reads));
    (verdict, text, figures)
}

fn of_class(
    class: &'static str,
    of: fn(&crate::sweep::ByClass) -> Option<f64>,
) -> impl Fn(&Figures) -> Option<f64> {
    move |figures| of(figures.classes.iter().find(|one| one.class == class)?)
}

fn hedge_narrow(seen: &Seen<'_>) -> Judged {
    let both = Both::of(seen, At::Peak, Trial::Repaired, Trial::Narrow);
    let good = |class| both.added(of_class(class, |one| one.goodput_ratio));
    let others = good("standard").zip(good("premium")).map(|(one, other)| one.min(other));
    let older = both.added(connection);
    let enterprise = good("enterprise");
    let tail = both.figure("p99 of enterprise", "ms", of_class("enterprise", |one| one.p99_ms));
    let shorter = tail.without.zip(tail.with).and_then(|(without, with)| ratio(without - with, without));
    let verdict = match (others, older, enterprise, shorter) {
        (Some(others), Some(older), Some(enterprise), Some(shorter)) => {
            if others < -GOODPUT || older >= NOTICED_MS {
                Verdict::Fail
            } else if enterprise >= GOODPUT || shorter >= NOTICED {
                Verdict::Pass
            } else {
                Verdict::Inconclusive
            }
        }
        _ => Verdict::Inconclusive,
    };
    let text = format!(
        "enterprise gains {} of goodput and {} at its 99th percentile; the worst of the others moves by {}, and the wait for a \
         connection of the shared pool by {}; {} hedges an operation",
        points(enterprise),
        signed_ms(both.added(of_class("enterprise", |one| one.p99_ms))),
        points(others),
        signed_ms(older),
        both.with
            .and_then(|figures| figures.hedges_per_operation)
            .map_or_else(|| "–".to_owned(), |hedges| format!("{hedges:.4}")),
    );
    let figures = vec![
        tail,
        both.figure("goodput of enterprise", "ratio", of_class("enterprise", |one| one.goodput_ratio)),
        both.figure("goodput of standard", "ratio", of_class("standard", |one| one.goodput_ratio)),
        both.figure("goodput of premium", "ratio", of_class("premium", |one| one.goodput_ratio)),
        both.figure("wait for a connection, p99", "ms", connection),
        both.figure("hedges per operation", "hedges", |figures| figures.hedges_per_operation),
    ];
    (verdict, text, figures)
}

fn no_overlap(seen: &Seen<'_>) -> Judged {
    let both = Both::of(seen, At::Peak, Trial::Repaired, Trial::NoOverlap);
    let slowdown = Both::of(seen, At::Slowdown, Trial::Repaired, Trial::NoOverlap);
    let joined = both.figure("reads shared per operation", "reads", |figures| figures.joined_per_operation);
    let verdict = match (joined.without, joined.with) {
        (Some(without), Some(with)) if with < SHARED && without >= 10.0 * with => Verdict::Pass,
        (Some(_), Some(_)) => Verdict::Fail,
        _ => Verdict::Inconclusive,
    };
    let text = format!(
        "{} of the operations share a read with the declared groups and {} without. Without them the store is asked for {} reads an \
         operation instead of {}, the wait for a connection moves by {} at p99, and goodput moves by {} at peak and {} in the slowdown",
        percent(joined.without),
        percent(joined.with),
        both.with.and_then(reads).map_or_else(|| "–".to_owned(), |reads| format!("{reads:.3}")),
        both.without.and_then(reads).map_or_else(|| "–".to_owned(), |reads| format!("{reads:.3}")),
        signed_ms(both.added(connection)),
        points(both.added(goodput)),
        points(slowdown.added(goodput)),
    );
    let figures = vec![
        joined,
        both.figure("reads per operation", "reads", reads),
        both.figure("wait for a connection, p99", "ms", connection),
        both.figure("of the profile gate's limit busy", "ratio", |figures| figures.bound_ratio.profile),
        both.figure("goodput at peak", "ratio", goodput),
        slowdown.figure("goodput in the slowdown", "ratio", goodput),
    ];
    (verdict, text, figures)
}

fn hop(seen: &Seen<'_>) -> Judged {
    let repaired = Both::of(seen, At::Peak, Trial::Repaired, Trial::Hop);
    // The old design has the hop, so that here it is the one with the switch.
    let old = Both::of(seen, At::Peak, Trial::OldSummary, Trial::Old);
    let slowdown = Both::of(seen, At::Slowdown, Trial::Repaired, Trial::Hop);
    let (later, tail) = (repaired.added(p50), old.added(p99));
    let verdict = match (later, tail) {
        (Some(later), Some(tail)) => match (later >= NOTICED_MS, tail >= NOTICED_MS) {
            (true, true) => Verdict::Pass,
            (false, false) => Verdict::Fail,
            _ => Verdict::Inconclusive,
        },
        _ => Verdict::Inconclusive,
    };
    let text = format!(
        "with the hop the repaired median is {} and its 99th percentile {}, which slow recommendations are cut at whatever came before; \
         goodput moves by {} at peak and {} in the slowdown. In the old design, where nothing is cut, the hop is {} of the 99th \
         percentile (31 ms in the study), most of it as wait for a slot that is held longer: {}",
        signed_ms(later),
        signed_ms(repaired.added(p99)),
        points(repaired.added(goodput)),
        points(slowdown.added(goodput)),
        signed_ms(tail),
        signed_ms(old.added(slot)),
    );
    let figures = vec![
        repaired.figure("repaired p50", "ms", p50),
        repaired.figure("repaired p99", "ms", p99),
        repaired.figure("repaired goodput at peak", "ratio", goodput),
        slowdown.figure("repaired goodput in the slowdown", "ratio", goodput),
        old.figure("old p50", "ms", p50),
        old.figure("old p99", "ms", p99),
        old.figure("old wait for a slot, p99", "ms", slot),
    ];
    (verdict, text, figures)
}

/// Whether a class keeps what is asked of it, and what it has.
fn keeps(figures: Option<&Figures>, class: &'static str, objective_ms: f64) -> Option<bool> {
    let p99 = of_class(class, |one| one.p99_ms)(figures?)?;
    let goodput = of_class(class, |one| one.goodput_ratio)(figures?)?;
    Some(p99 <= objective_ms && goodput >= objective::GOODPUT)
}

fn required(seen: &Seen<'_>, base: &Base) -> Judged {
    const CLASSES: [&str; 2] = ["premium", "enterprise"];
    let both = Both::of(seen, At::Peak, Trial::Repaired, Trial::Required);
    let kept = CLASSES.map(|class| keeps(both.with, class, objective::P99_MS));
    let verdict = match kept {
        [Some(true), Some(true)] => Verdict::Fail,
        [Some(_), Some(_)] => Verdict::Pass,
        _ => Verdict::Inconclusive,
    };
    let goods = |trial: Trial| {
        let peak = seen.at(trial, At::Peak);
        CLASSES.map(|class| percent(peak.and_then(of_class(class, |one| one.goodput_ratio)))).join(" and ")
    };
    let phase = base.scenario.phases().first();
    let slow =
        phase.map(|phase| phase.dependency(Dependency::Recommendation).latency.slow_share().as_ratio());
    let enough = [(Trial::RequiredFourfold, 1_200.0), (Trial::RequiredLongest, 2_000.0)].into_iter().find(
        |(trial, ms)| CLASSES.iter().all(|class| keeps(seen.at(*trial, At::Peak), class, *ms) == Some(true)),
    );
    let text = format!(
        "premium and enterprise keep {} of goodput where 98 % is asked: {} of the recommendations are slow, and a page that is not whole \
         without them ends by its deadline. Half as many servers again give {}: they are not what is waited for. An objective of 1,200 ms \
         gives {}, one of 2,000 ms {}; {}. Otherwise no more than 2 % may be slow: recommendations made beforehand, or another feature \
         that is given up",
        goods(Trial::Required),
        percent(slow),
        goods(Trial::RequiredServers),
        goods(Trial::RequiredFourfold),
        goods(Trial::RequiredLongest),
        enough.map_or_else(
            || "neither is enough for both".to_owned(),
            |(_, ms)| format!("{ms} ms is the first of them that both keep")
        ),
    );
    let mut figures = Vec::new();
    for class in ["standard", "premium", "enterprise"] {
        figures.push(both.figure(&format!("p99 of {class}"), "ms", of_class(class, |one| one.p99_ms)));
        figures.push(both.figure(
            &format!("goodput of {class}"),
            "ratio",
            of_class(class, |one| one.goodput_ratio),
        ));
        figures.push(both.figure(
            &format!("omission of {class}"),
            "ratio",
            of_class(class, |one| one.omission_ratio),
        ));
        let deadline = of_class(class, |one| one.deadline_ratio);
        figures.push(both.figure(&format!("{class} ended by the deadline"), "ratio", deadline));
    }
    (verdict, text, figures)
}

#[cfg(test)]
mod tests;
