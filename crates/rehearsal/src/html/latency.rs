//! Latency: the distribution of correct answers, as the share that took longer. On two axes of powers a tail is as easy
//! to read as a median: where the curve crosses 1 % is the p99.

use maud::{Markup, html};

use super::{
    by_class,
    ink::{BOUND, MUTED},
    plot::{self, Anchor, Axis, Drawn, Sheet},
    text::{Unit, number},
    view::{Case, Group, View},
};
use crate::{
    gates::objective::P99_MS,
    report::{Bucket, State},
};

const SIZE: (i32, i32) = (548, 320);
/// Corners of the plane.
const FROM: (f64, f64) = (58.0, 26.0);
const TO: (f64, f64) = (532.0, 270.0);
/// Most points of a curve: one a pixel of the page.
const POINTS_MAX: usize = 480;
/// The smallest share that is drawn.
const SHARE_MIN: f64 = 1e-4;

/// A plot for every state with a distribution.
pub(super) fn plots(view: &View<'_>) -> Markup {
    let drawn: Vec<&Group<'_>> = view.groups.iter().filter(|group| curves(group).next().is_some()).collect();
    let span = span(view);
    html! {
        section {
            h2 { "Latency of correct answers" }
            p {
                "The share of correct answers, degraded ones included, that took longer than a given time. Rings mark p50, "
                "p99 and p99.9."
            }
            @if drawn.is_empty() {
                p.none { "No distribution was measured." }
            } @else {
                (plot::legend(&view.legend()))
                @if !view.drawn_note().is_empty() { p.note { (view.drawn_note()) } }
                div.pair {
                    @for group in drawn { (one(view, group, span)) }
                    (by_class::plot(view))
                }
            }
        }
    }
}

fn one(view: &View<'_>, group: &Group<'_>, span: Axis) -> Markup {
    let title = format!("Latency in {}", group.title);
    let caption = html! { strong { "During " (group.title) } " " (note(group)) };
    plot::figure(&title, caption, &[], SIZE, |sheet| draw(sheet, view, group, span))
}

/// The p99 in words, for those who do not see the plot.
fn note(group: &Group<'_>) -> String {
    let of = |case: &Case<'_>| Unit::Ms.words(case.state.latency_ms.p99);
    match group.cases.as_slice() {
        [first, .., last] => format!("p99 {} → {}", of(first), of(last)),
        [one] => format!("p99 {}", of(one)),
        [] => String::new(),
    }
}

fn draw(sheet: &Sheet<'_>, view: &View<'_>, group: &Group<'_>, x: Axis) -> Drawn {
    let plane = sheet.plane(FROM, TO, x, Axis::log(SHARE_MIN, 1.0));
    plane.x_ticks(&x.ticks(9), number)?;
    plane.y_ticks(&[1.0, 0.1, 0.01, 0.001, SHARE_MIN], |share| format!("{} %", number(share * 100.0)))?;
    sheet.label("took longer", (FROM.0 - 48.0, 8.0), Anchor::Left, MUTED)?;
    sheet.label("latency, ms", (TO.0, TO.1 + 32.0), Anchor::Right, MUTED)?;
    plane.x_bound(P99_MS)?;
    let (at, _) = plane.pixel((P99_MS, 1.0));
    let words = format!("objective {}", Unit::Ms.words(Some(P99_MS)));
    sheet.label(&words, (at, FROM.1 - 11.0), Anchor::Middle, BOUND)?;
    for (policy, points) in curves(group).filter(|(policy, _)| view.draws(*policy)) {
        plane.line(&points, view.ink(policy), 2.25)?;
    }
    for case in group.cases.iter().filter(|case| !case.state.histogram.is_empty() && view.draws(case.policy))
    {
        for point in quantiles(case.state) {
            sheet.ring(plane.pixel(point), 3.5, view.ink(case.policy))?;
        }
    }
    p99_labels(sheet, group, view, |value| plane.pixel((value, 0.01)))
}

/// The p99 of two curves, each beside its ring and away from the other.
fn p99_labels(
    sheet: &Sheet<'_>,
    group: &Group<'_>,
    view: &View<'_>,
    pixel: impl Fn(f64) -> (f64, f64),
) -> Drawn {
    let mut marked: Vec<_> = group
        .cases
        .iter()
        .filter(|case| !case.state.histogram.is_empty() && view.draws(case.policy))
        .filter_map(|case| Some((case.state.latency_ms.p99.filter(|value| value.is_finite())?, case.policy)))
        .collect();
    marked.sort_by(|one, other| one.0.total_cmp(&other.0));
    let last = marked.len().saturating_sub(1);
    for (at, (value, policy)) in marked.iter().enumerate().filter(|_| marked.len() <= 2) {
        let (x, y) = pixel(*value);
        let words = Unit::Ms.words(Some(*value));
        // Curves fall: below on the left and above on the right there is none.
        match at == last && x < TO.0 - 70.0 {
            true => sheet.bold(&words, (x + 8.0, y - 11.0), Anchor::Left, view.ink(*policy))?,
            false => sheet.bold(&words, (x - 8.0, y + 12.0), Anchor::Right, view.ink(*policy))?,
        }
    }
    Ok(())
}

/// One axis for all plots, so that they can be laid over each other: from the fastest answers to the slowest.
fn span(view: &View<'_>) -> Axis {
    let curves: Vec<_> = view.groups.iter().flat_map(curves).collect();
    let times = || curves.iter().flat_map(|(_, points)| points);
    let low = times().filter(|(_, share)| *share < 0.999).map(|(ms, _)| *ms).reduce(f64::min).unwrap_or(10.0);
    let high = times().map(|(ms, _)| *ms).fold(low.max(P99_MS * 1.2), f64::max);
    let low = low.clamp(0.01, 1e9);
    let step = |value: f64| 10f64.powf((value.log10() * 10.0).floor() / 10.0);
    Axis::log(step(low * 0.9), (high * 1.1).clamp(low * 2.0, 1e12))
}

/// The curve of every case of a state that has one.
fn curves<'v>(group: &'v Group<'_>) -> impl Iterator<Item = (usize, Vec<(f64, f64)>)> + 'v {
    group.cases.iter().filter_map(|case| {
        let points = curve(case.state);
        (points.len() > 1).then_some((case.policy, points))
    })
}

/// The share of answers that took longer than each bound of the histogram.
fn curve(state: &State) -> Vec<(f64, f64)> {
    let has_place = |bucket: &&Bucket| bucket.count > 0 && bucket.le_ms.is_finite() && bucket.le_ms > 0.0;
    let total: f64 = state.histogram.iter().map(|bucket| bucket.count as f64).sum();
    let mut longer = total;
    let mut points = Vec::new();
    for bucket in state.histogram.iter().filter(has_place) {
        if points.is_empty() {
            points.push((bucket.le_ms, 1.0));
        }
        longer -= bucket.count as f64;
        points.push((bucket.le_ms, (longer / total).max(0.0)));
    }
    if points.is_empty() {
        return points;
    }
    // Quantiles are known more closely than buckets are wide.
    points.extend(quantiles(state));
    points.sort_by(|one, other| one.0.total_cmp(&other.0).then(other.1.total_cmp(&one.1)));
    let mut least = 1.0_f64;
    for point in &mut points {
        least = least.min(point.1);
        point.1 = least;
    }
    if let Some(end) = points.iter().position(|(_, share)| *share < SHARE_MIN) {
        points.truncate(end + 1);
        points[end] = (crossing(points[end.saturating_sub(1)], points[end]), SHARE_MIN);
    }
    thin(points)
}

/// The quantiles that are marked, as points of the curve.
fn quantiles(state: &State) -> impl Iterator<Item = (f64, f64)> {
    let latency = &state.latency_ms;
    let known = [(latency.p50, 0.5), (latency.p99, 0.01), (latency.p999, 0.001)];
    let placed = known.into_iter().filter_map(|(ms, share)| Some((ms?, share)));
    placed.filter(|(ms, _)| ms.is_finite() && *ms > 0.0)
}

/// Where the line between two points leaves the plot, straight as it is drawn there.
fn crossing(before: (f64, f64), after: (f64, f64)) -> f64 {
    if after.1 <= 0.0 || before.1 <= SHARE_MIN {
        return after.0;
    }
    let part = (before.1 / SHARE_MIN).ln() / (before.1 / after.1).ln();
    before.0 * (after.0 / before.0).powf(part)
}

/// At most [`POINTS_MAX`] points, the last of each stretch of the axis.
fn thin(points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    let (Some(first), Some(last)) = (points.first().copied(), points.last().copied()) else { return points };
    if points.len() <= POINTS_MAX {
        return points;
    }
    let width = ((last.0 / first.0).ln() / (POINTS_MAX - 2) as f64).max(f64::MIN_POSITIVE);
    let cell = |ms: f64| ((ms / first.0).ln() / width) as u64;
    let mut kept: Vec<(f64, f64)> = Vec::with_capacity(POINTS_MAX);
    for point in points {
        let same = kept.last().is_some_and(|before| cell(before.0) == cell(point.0));
        if same {
            kept.pop();
        }
        if kept.len() < POINTS_MAX {
            kept.push(point);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(counts: &[(f64, u64)]) -> State {
        let histogram = counts.iter().map(|(le_ms, count)| Bucket { le_ms: *le_ms, count: *count });
        State { histogram: histogram.collect(), ..State::default() }
    }

    #[test]
    fn a_curve_tells_the_share_that_took_longer() {
        let points = curve(&state(&[(10.0, 50), (20.0, 0), (40.0, 49), (80.0, 1)]));
        assert_eq!(
            points,
            [(10.0, 1.0), (10.0, 0.5), (40.0, 0.01), (80.0, SHARE_MIN)],
            "the last took no longer than 80 ms"
        );
        assert!(curve(&state(&[])).is_empty() && curve(&state(&[(10.0, 0)])).is_empty());
    }

    #[test]
    fn a_curve_goes_through_the_quantiles_that_are_marked() {
        let mut wide = state(&[(100.0, 900), (400.0, 95), (800.0, 5)]);
        wide.latency_ms =
            crate::report::Quantiles { n: 1_000, p50: Some(60.0), p99: Some(390.0), p999: None };
        let points = curve(&wide);
        assert!(points.contains(&(60.0, 0.5)) && points.contains(&(390.0, 0.01)), "{points:?}");
        assert!(points.is_sorted_by(|one, next| one.0 <= next.0 && one.1 >= next.1), "{points:?}");
    }

    #[test]
    fn a_curve_leaves_the_plot_where_it_falls_below_it() {
        let points = curve(&state(&[(100.0, 999_000), (200.0, 999), (400.0, 1)]));
        let (ms, share) = points[points.len() - 1];
        assert_eq!(share, SHARE_MIN);
        assert!(ms > 100.0 && ms < 200.0, "{ms}");
    }

    #[test]
    fn a_fine_histogram_is_thinned_and_still_falls() {
        let counts: Vec<_> = (1..20_000).map(|at| (f64::from(at), 5)).collect();
        let points = curve(&state(&counts));
        assert!(points.len() <= POINTS_MAX, "{} points", points.len());
        assert!(points.is_sorted_by(|one, next| one.0 <= next.0 && one.1 >= next.1));
    }
}
