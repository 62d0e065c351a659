//! Timeline: the whole run, second by second, one strip a figure and all strips on one axis, so that a queue, the pool
//! behind it and the answers that it delayed can be read at the same instant. Long runs are thinned, and what stands for
//! several seconds is the worst of them.

use maud::{Markup, html};

use super::{
    ink::{BOUND, MUTED, PANEL, TEXT},
    plot::{self, Anchor, Axis, Drawn, Plane, Sheet},
    text::{Unit, number},
    view::{Case, View},
};
use crate::{
    gates::objective::{P99_MS, PROFILE_OCCUPANCY, QUEUE_AGE_MS},
    report::{TimelinePoint, ratio},
};

const WIDTH: f64 = 1_120.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = WIDTH - 14.0;
/// Room for the names of the states.
const HEAD: f64 = 30.0;
const STRIP: f64 = 92.0;
const GAP: f64 = 34.0;
const FOOT: f64 = 40.0;
/// Most points of a line over the whole run.
const POINTS_MAX: usize = 560;

/// One strip.
struct Strip {
    name: &'static str,
    value: fn(&TimelinePoint) -> Option<f64>,
    /// Which of several seconds stands for them.
    worst: fn(f64, f64) -> f64,
    unit: Unit,
    scale: Scale,
    bound: Option<f64>,
}

#[derive(Clone, Copy, PartialEq)]
enum Scale {
    /// From zero to the largest.
    Free,
    /// From zero to one.
    Share,
    /// To one, from a round share below the smallest.
    Near,
    /// In powers; what is below the first is drawn on it.
    Powers,
}

static STRIPS: [Strip; 6] = [
    Strip {
        name: "Queue age",
        value: |point| point.queue_age_ms,
        worst: f64::max,
        unit: Unit::Ms,
        scale: Scale::Powers,
        bound: Some(QUEUE_AGE_MS),
    },
    Strip {
        name: "Endpoint occupancy",
        value: |point| point.occupancy_endpoint,
        worst: f64::max,
        unit: Unit::Ratio,
        scale: Scale::Share,
        bound: None,
    },
    Strip {
        name: "Profile occupancy",
        value: |point| point.occupancy_profile,
        worst: f64::max,
        unit: Unit::Ratio,
        scale: Scale::Share,
        bound: Some(PROFILE_OCCUPANCY),
    },
    Strip {
        name: "p99 latency of each second",
        value: |point| point.p99_ms,
        worst: f64::max,
        unit: Unit::Ms,
        scale: Scale::Free,
        bound: Some(P99_MS),
    },
    Strip {
        name: "Goodput: correct within the objective, of those whose caller stayed",
        value: |point| {
            ratio(point.good as f64, point.offered.saturating_sub(point.departed) as f64)
                .map(|share| share.min(1.0))
        },
        worst: f64::min,
        unit: Unit::Ratio,
        scale: Scale::Near,
        bound: None,
    },
    Strip {
        name: "Profile calls per second",
        value: |point| point.profile_calls_per_s,
        worst: f64::max,
        unit: Unit::Number,
        scale: Scale::Free,
        bound: None,
    },
];

/// A state on the common axis.
struct Stretch<'a> {
    name: &'a str,
    from_s: f64,
    until_s: f64,
    cases: &'a [Case<'a>],
}

/// The figure.
pub(super) fn plot(view: &View<'_>) -> Markup {
    let stretches = stretches(view);
    let end_s = stretches.last().map_or(0.0, |last| last.until_s);
    let measured = view.cases().any(|(_, case)| !case.state.timeline.is_empty());
    let strips = strips(view);
    let height = HEAD + strips.len() as f64 * (STRIP + GAP) - GAP + 18.0 + FOOT;
    html! {
        section {
            h2 { "The run, second by second" }
            @if measured && end_s > 0.0 {
                div.wide {
                    (plot::figure(
                        "Timeline of the measured states",
                        note(view, &stretches),
                        &view.legend(),
                        (WIDTH as i32, height as i32),
                        |sheet| draw(sheet, view, &strips, &stretches, end_s),
                    ))
                }
            } @else {
                p.none { "No timeline was measured." }
            }
        }
    }
}

fn note(view: &View<'_>, stretches: &[Stretch<'_>]) -> Markup {
    let step = step(stretches);
    let recovered: Vec<_> = recovered(view, stretches).collect();
    html! {
        "The measured states one after the other, without their warm-ups. "
        @if step > 1 { "Each point is the worst of " (step) " seconds. " }
        (view.drawn_note())
        @for (policy, took, _) in recovered {
            " The upright line marks where " (view.policies[policy]) " had recovered, after " (Unit::Seconds.words(Some(took))) "."
        }
    }
}

/// The states one after the other, each as long as under the policy that it took longest with.
fn stretches<'a>(view: &'a View<'_>) -> Vec<Stretch<'a>> {
    let mut from_s = 0.0;
    let lasting = view.groups.iter().map(|group| {
        let length = group.cases.iter().map(|case| length_s(case)).fold(0.0, f64::max);
        let stretch = Stretch { name: &group.title, from_s, until_s: from_s + length, cases: &group.cases };
        from_s += length;
        stretch
    });
    lasting.collect()
}

fn length_s(case: &Case<'_>) -> f64 {
    let points = &case.state.timeline;
    let seen = points.first().zip(points.last()).map_or(0.0, |(first, last)| last.at_s - first.at_s + 1.0);
    let length = seen.max(case.state.duration_s);
    if length.is_finite() { length.clamp(0.0, 1e7) } else { 0.0 }
}

/// Seconds that one point stands for.
fn step(stretches: &[Stretch<'_>]) -> usize {
    let lines = stretches
        .iter()
        .flat_map(|stretch| stretch.cases)
        .map(|case| (case.policy, case.state.timeline.len()));
    let mut seconds = std::collections::BTreeMap::<usize, usize>::new();
    for (policy, points) in lines {
        *seconds.entry(policy).or_default() += points;
    }
    seconds.into_values().max().unwrap_or(0).div_ceil(POINTS_MAX).max(1)
}

/// The strips; of a simulation, those that it has. Elsewhere what was not measured is said.
fn strips(view: &View<'_>) -> Vec<&'static Strip> {
    let seen = |strip: &Strip| {
        let mut points = view.cases().flat_map(|(_, case)| &case.state.timeline);
        points.any(|point| (strip.value)(point).is_some())
    };
    STRIPS.iter().filter(|strip| !view.report.is_simulated() || seen(strip)).collect()
}

fn draw(
    sheet: &Sheet<'_>,
    view: &View<'_>,
    strips: &[&Strip],
    stretches: &[Stretch<'_>],
    end_s: f64,
) -> Drawn {
    let x = Axis::linear(0.0, end_s);
    let top = |strip: usize| HEAD + 18.0 + strip as f64 * (STRIP + GAP);
    let bottom = top(strips.len().saturating_sub(1)) + STRIP;
    let whole = sheet.plane((LEFT, HEAD), (RIGHT, bottom), x, Axis::linear(0.0, 1.0));
    for (at, stretch) in stretches.iter().enumerate() {
        let (from, _) = whole.pixel((stretch.from_s, 0.0));
        let (until, _) = whole.pixel((stretch.until_s, 0.0));
        if at % 2 == 0 {
            sheet.block((from, HEAD - 24.0), (until, bottom), PANEL)?;
        }
        if until - from > 7.0 * stretch.name.chars().count() as f64 {
            sheet.bold(stretch.name, ((from + until) / 2.0, HEAD - 12.0), Anchor::Middle, TEXT)?;
        }
    }
    let step = step(stretches);
    for (at, strip) in strips.iter().enumerate() {
        sheet.bold(strip.name, (LEFT, top(at) - 9.0), Anchor::Left, TEXT)?;
        draw_strip(sheet, view, stretches, strip, (top(at), x, step))?;
    }
    let seconds = x.ticks(10);
    let ends = sheet.plane((LEFT, bottom), (RIGHT, bottom), x, Axis::linear(0.0, 1.0));
    ends.x_ticks(&seconds, number)?;
    sheet.label("seconds of measured time", (RIGHT, bottom + 30.0), Anchor::Right, MUTED)?;
    recoveries(sheet, view, stretches, &whole)
}

fn draw_strip(
    sheet: &Sheet<'_>,
    view: &View<'_>,
    stretches: &[Stretch<'_>],
    strip: &Strip,
    (top, x, step): (f64, Axis, usize),
) -> Drawn {
    let lines: Vec<_> = stretches
        .iter()
        .flat_map(|stretch| {
            stretch.cases.iter().filter(|case| view.draws(case.policy)).flat_map(move |case| {
                segments(case, stretch.from_s, strip, step).into_iter().map(|segment| (case.policy, segment))
            })
        })
        .collect();
    let bound = strip.bound;
    let most =
        lines.iter().flat_map(|(_, points)| points).map(|(_, value)| *value).chain(bound).fold(0.0, f64::max);
    let least = lines.iter().flat_map(|(_, points)| points).map(|(_, value)| *value).fold(1.0, f64::min);
    let y = match strip.scale {
        Scale::Free => Axis::up_to(most, 3),
        Scale::Share => Axis::linear(0.0, 1.0),
        Scale::Near => Axis::linear(((least * 10.0).floor() / 10.0).clamp(0.0, 0.9), 1.0),
        Scale::Powers => Axis::log(1.0, (most * 1.2).max(100.0)),
    };
    let plane = sheet.plane((LEFT, top), (RIGHT, top + STRIP), x, y);
    let ticks = if strip.scale == Scale::Powers { y.ticks(4) } else { y.ticks(3) };
    plane.y_ticks(&ticks, |tick| {
        if strip.unit == Unit::Number { number(tick) } else { strip.unit.words(Some(tick)) }
    })?;
    if lines.is_empty() {
        let middle = ((LEFT + RIGHT) / 2.0, top + STRIP / 2.0);
        return sheet.label("not measured", middle, Anchor::Middle, MUTED);
    }
    if let Some(bound) = bound {
        plane.y_bound(bound)?;
        let words = format!("bound {}", strip.unit.words(Some(bound)));
        sheet.label(&words, (RIGHT, top - 9.0), Anchor::Right, BOUND)?;
    }
    for (policy, points) in &lines {
        plane.line(points, view.ink(*policy), 1.6)?;
    }
    Ok(())
}

/// The line of a strip through one state, broken where nothing was measured.
fn segments(case: &Case<'_>, from_s: f64, strip: &Strip, step: usize) -> Vec<Vec<(f64, f64)>> {
    let points = &case.state.timeline;
    let Some(first) = points.first() else { return Vec::new() };
    let mut all = vec![Vec::new()];
    for seconds in points.chunks(step) {
        let worst =
            seconds.iter().filter_map(strip.value).filter(|value| value.is_finite()).reduce(strip.worst);
        let at = from_s + (seconds[0].at_s - first.at_s) + seconds.len() as f64 / 2.0;
        match (worst, all.last_mut()) {
            (Some(value), Some(segment)) => segment.push((at, value)),
            (None, Some(segment)) if segment.is_empty() => {}
            _ => all.push(Vec::new()),
        }
    }
    all.retain(|segment| !segment.is_empty());
    all
}

/// Which policy recovered, after how long, and where that is on the axis.
fn recovered(view: &View<'_>, stretches: &[Stretch<'_>]) -> impl Iterator<Item = (usize, f64, f64)> {
    stretches.iter().flat_map(|stretch| {
        let drawn = stretch.cases.iter().filter(|case| view.draws(case.policy));
        drawn.filter_map(|case| {
            let took = case.state.recovery_s.filter(|took| took.is_finite())?;
            Some((case.policy, took, stretch.from_s + took))
        })
    })
}

/// A line across all strips where everything was back inside its bounds.
fn recoveries(sheet: &Sheet<'_>, view: &View<'_>, stretches: &[Stretch<'_>], whole: &Plane<'_>) -> Drawn {
    for (policy, _, at_s) in recovered(view, stretches) {
        let (x, top) = whole.pixel((at_s, 1.0));
        let (_, bottom) = whole.pixel((at_s, 0.0));
        sheet.path(&[(x, top), (x, bottom)], view.ink(policy), 1.25)?;
        sheet.dot((x, top), 4.0, view.ink(policy))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::State;

    fn state(ages: &[Option<f64>]) -> State {
        let point = |(second, age): (usize, &Option<f64>)| TimelinePoint {
            at_s: 10.0 + second as f64,
            queue_age_ms: *age,
            ..TimelinePoint::default()
        };
        State { timeline: ages.iter().enumerate().map(point).collect(), ..State::default() }
    }

    fn lines(ages: &[Option<f64>], step: usize) -> Vec<Vec<(f64, f64)>> {
        segments(&Case { policy: 0, state: &state(ages) }, 100.0, &STRIPS[0], step)
    }

    #[test]
    fn a_line_is_broken_where_nothing_was_measured() {
        let found = lines(&[Some(1.0), Some(2.0), None, Some(f64::NAN), Some(3.0)], 1);
        assert_eq!(found, [vec![(100.5, 1.0), (101.5, 2.0)], vec![(104.5, 3.0)]]);
        assert!(lines(&[None, None], 1).is_empty());
    }

    #[test]
    fn a_long_run_is_thinned_and_no_spike_is_lost() {
        let mut ages = vec![Some(1.0); 5_000];
        ages[3_333] = Some(900.0);
        let long = state(&ages);
        let cases = [Case { policy: 0, state: &long }];
        let stretch = Stretch { name: "peak", from_s: 0.0, until_s: 5_000.0, cases: &cases };
        let step = step(&[stretch]);
        let found = lines(&ages, step);
        assert!(found[0].len() <= POINTS_MAX, "{} points", found[0].len());
        assert!(found[0].iter().any(|(_, age)| *age == 900.0));
        // Of goodput the worst is the least.
        assert_eq!((STRIPS[4].worst)(0.4, 0.9), 0.4);
    }
}
