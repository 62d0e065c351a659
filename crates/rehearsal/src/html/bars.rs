//! Bars: wholes and their parts, one bar a state and policy: what was omitted and why, and where the time of a slow answer
//! went.

use load::table::count;
use maud::{Markup, html};

use super::{
    ink::{BOUND, Ink, MUTED, PARTS, Part, TEXT},
    plot::{self, Anchor, Axis, Drawn, Sheet},
    text::{NOT_MEASURED, Unit, number, spaced},
    view::View,
};
use crate::{
    gates::objective::P99_MS,
    report::{Slow, State, ratio},
};

const WIDTH: f64 = 1_120.0;
const LEFT: f64 = 212.0;
const RIGHT: f64 = 920.0;
const BAR: f64 = 18.0;
const ROW: f64 = 24.0;
const GAP: f64 = 12.0;
const HEAD: f64 = 22.0;
const FOOT: f64 = 42.0;

/// One bar.
struct Bar {
    state: String,
    policy: String,
    ink: Ink,
    /// Parts in order; nothing when nothing was measured.
    parts: Option<Vec<(Part, f64)>>,
    /// What is written behind it.
    words: String,
    /// Whether it begins another state.
    first: bool,
}

/// A set of bars on one axis.
struct Bars {
    title: &'static str,
    axis: &'static str,
    legend: Vec<(Ink, String)>,
    bars: Vec<Bar>,
    unit: Unit,
    bound: Option<(f64, &'static str)>,
}

/// What was omitted, by cause.
pub(super) fn omissions(view: &View<'_>) -> Markup {
    let mut causes: Vec<&str> = view
        .cases()
        .flat_map(|(_, case)| case.state.omissions.values().flat_map(|causes| causes.iter()))
        .filter_map(|(cause, count)| (*count > 0).then_some(*cause))
        .collect();
    causes.sort_unstable();
    causes.dedup();
    let bars = bars(view, |state| {
        let answers = state.latency_ms.n as f64;
        let parts = (answers > 0.0).then(|| {
            let share = |cause: &str| {
                let count: u64 = state.omissions.values().filter_map(|causes| causes.get(cause)).sum();
                ratio(count as f64, answers).unwrap_or(0.0)
            };
            causes.iter().enumerate().map(|(at, cause)| (cause_part(at), share(cause))).collect()
        });
        let words = Unit::Ratio.write(state.omission_ratio);
        (parts, words.map_or_else(|| NOT_MEASURED.to_owned(), |words| format!("{words} of answers")))
    });
    let legend = causes
        .iter()
        .enumerate()
        .map(|(at, cause)| (cause_part(at).fill, spaced(cause.strip_prefix("omitted_").unwrap_or(cause))))
        .collect();
    // No cause is no omission only where omissions were looked for.
    let known = view.cases().any(|(_, case)| case.state.omission_ratio.is_some());
    let nothing = if known { "Nothing was left out." } else { "Omissions were not measured." };
    html! {
        section {
            h2 { "What was left out, and why" }
            @if causes.is_empty() {
                p.none { (nothing) }
            } @else {
                p {
                    "Optional sections that correct answers went without, per 100 answers. An answer without both optional "
                    "sections counts twice here, and once at the end of the bar."
                }
                (draw_all(&Bars {
                    title: "Omitted sections by cause",
                    axis: "omitted sections, per 100 correct answers",
                    legend,
                    bars,
                    unit: Unit::Ratio,
                    bound: None,
                }, nothing))
            }
        }
    }
}

/// Where the time of a slow answer went.
pub(super) fn slow(view: &View<'_>) -> Markup {
    const NAMES: [&str; 5] = [
        "waiting for the endpoint",
        "waiting for the profile pool",
        "service before the fan-out",
        "fan-out",
        "unaccounted",
    ];
    const KINDS: [Part; 5] = [PARTS[0], PARTS[1], PARTS[2], PARTS[3], PARTS[5]];
    let bars = bars(view, |state| {
        let Slow { latency_ms, executor_wait_ms, pool_wait_ms, service_before_fanout_ms, fanout_ms, .. } =
            state.slow;
        let known = [executor_wait_ms, pool_wait_ms, service_before_fanout_ms, fanout_ms];
        let known = known.map(|value| value.filter(|value| value.is_finite() && *value >= 0.0));
        let sum: f64 = known.iter().flatten().sum();
        let rest = latency_ms.map(|whole| whole - sum).filter(|rest| rest.is_finite() && *rest > 0.0);
        let all = known.into_iter().chain([rest]).enumerate();
        let parts: Vec<_> = all.filter_map(|(at, value)| Some((KINDS[at], value?))).collect();
        (known.iter().any(Option::is_some).then_some(parts), Unit::Ms.words(latency_ms))
    });
    html! {
        section {
            h2 { "Where the time of a slow answer goes" }
            p { "Means over the slowest hundredth of the correct answers. Waits are warm, work is cool." }
            (draw_all(&Bars {
                title: "Parts of the latency of slow answers",
                axis: "ms, means of the slowest hundredth",
                legend: NAMES.iter().zip(KINDS).map(|(name, part)| (part.fill, (*name).to_owned())).collect(),
                bars,
                unit: Unit::Ms,
                bound: Some((P99_MS, "objective")),
            }, "The parts of slow answers were not measured."))
        }
    }
}

/// The part of a cause by its place in the alphabet. The first, a page that had no time left, is the most innocent one.
fn cause_part(at: usize) -> Part {
    const ORDER: [usize; 6] = [2, 1, 3, 4, 0, 5];
    PARTS[ORDER[at % ORDER.len()]]
}

fn bars(view: &View<'_>, of: impl Fn(&State) -> (Option<Vec<(Part, f64)>>, String)) -> Vec<Bar> {
    let mut last = None;
    let cases = view.groups.iter().flat_map(|group| group.cases.iter().map(move |case| (&group.title, case)));
    let bars = cases.map(|(state, case)| {
        let (parts, words) = of(case.state);
        let first = last != Some(state);
        last = Some(state);
        Bar {
            state: if first { state.clone() } else { String::new() },
            policy: view.policies[case.policy].clone(),
            ink: view.ink(case.policy),
            parts,
            words,
            first,
        }
    });
    bars.collect()
}

fn draw_all(bars: &Bars, nothing: &str) -> Markup {
    if bars.bars.iter().all(|bar| bar.parts.is_none()) {
        return html! { p.none { (nothing) } };
    }
    let groups = bars.bars.iter().filter(|bar| bar.first).count();
    let height = HEAD + bars.bars.len() as f64 * ROW + groups.saturating_sub(1) as f64 * GAP + FOOT;
    html! {
        div.wide.bars {
            (plot::figure(bars.title, html! {}, &bars.legend, (WIDTH as i32, height as i32), |sheet| {
                draw(sheet, bars, height)
            }))
        }
    }
}

fn draw(sheet: &Sheet<'_>, bars: &Bars, height: f64) -> Drawn {
    let wholes =
        bars.bars.iter().filter_map(|bar| Some(bar.parts.as_ref()?.iter().map(|(_, value)| *value).sum()));
    let most = wholes.chain(bars.bound.map(|(bound, _)| bound)).fold(0.0, f64::max);
    let x = Axis::up_to(most, 5);
    let bottom = height - FOOT;
    let plane = sheet.plane((LEFT, HEAD), (RIGHT, bottom), x, Axis::linear(0.0, 1.0));
    plane.x_ticks(&x.ticks(5), |tick| match bars.unit {
        Unit::Ratio => number(tick * 100.0),
        _ => number(tick),
    })?;
    sheet.label(bars.axis, (RIGHT, bottom + 31.0), Anchor::Right, MUTED)?;
    let mut y = HEAD;
    let mut rows = Vec::with_capacity(bars.bars.len());
    for (at, bar) in bars.bars.iter().enumerate() {
        if bar.first && at > 0 {
            y += GAP;
        }
        rows.push((bar, y));
        y += ROW;
    }
    let place = |value: f64| plane.pixel((value, 0.0)).0;
    for (bar, y) in &rows {
        draw_bar(sheet, bar, *y, place)?;
    }
    if let Some((bound, name)) = bars.bound {
        plane.x_bound(bound)?;
        let words = format!("{name} {}", bars.unit.words(Some(bound)));
        sheet.label(&words, (place(bound), HEAD - 11.0), Anchor::Middle, BOUND)?;
    }
    // Above the bound, which crosses them.
    for (bar, y) in &rows {
        label_bar(sheet, bar, *y, bars, place)?;
    }
    Ok(())
}

fn draw_bar(sheet: &Sheet<'_>, bar: &Bar, y: f64, place: impl Fn(f64) -> f64) -> Drawn {
    let (top, bottom) = (y + (ROW - BAR) / 2.0, y + (ROW + BAR) / 2.0);
    let mut sum = 0.0;
    for (part, value) in bar.parts.iter().flatten() {
        let (from, until) = (place(sum), place(sum + value));
        sum += value;
        if until - from >= 0.25 {
            // A hair of paper between two parts.
            let hair = if until - from > 3.0 { 1.0 } else { 0.0 };
            sheet.block((from, top), (until - hair, bottom), part.fill)?;
        }
    }
    Ok(())
}

fn label_bar(sheet: &Sheet<'_>, bar: &Bar, y: f64, bars: &Bars, place: impl Fn(f64) -> f64) -> Drawn {
    let bound = bars.bound.map(|(bound, _)| place(bound));
    let middle = y + ROW / 2.0;
    sheet.bold(&bar.state, (0.0, middle), Anchor::Left, TEXT)?;
    sheet.label(&bar.policy, (LEFT - 10.0, middle), Anchor::Right, bar.ink)?;
    let Some(parts) = &bar.parts else {
        return sheet.label(NOT_MEASURED, (LEFT + 8.0, middle), Anchor::Left, MUTED);
    };
    let mut sum = 0.0;
    for (part, value) in parts {
        let (from, until) = (place(sum), place(sum + value));
        sum += value;
        let words =
            if bars.unit == Unit::Ratio { number(value * 100.0) } else { count(value.round() as u64) };
        if let Some(x) = room(from, until, 8.0 * words.chars().count() as f64, bound) {
            sheet.label(&words, (x, middle), Anchor::Middle, part.on)?;
        }
    }
    sheet.label(&bar.words, (place(sum) + 8.0, middle), Anchor::Left, TEXT)
}

/// The middle of a part for words of this width, or of one of its sides when a bound runs through the middle; `None` when
/// the words do not fit.
fn room(from: f64, until: f64, width: f64, bound: Option<f64>) -> Option<f64> {
    let middle = (from + until) / 2.0;
    let through = bound.filter(|bound| (bound - middle).abs() < width / 2.0 + 4.0);
    let (from, until) = match through {
        Some(bound) if bound - from > until - bound => (from, bound),
        Some(bound) => (bound, until),
        None => (from, until),
    };
    (until - from > width + 6.0).then_some((from + until) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stand_where_they_fit_and_never_under_a_bound() {
        assert_eq!(room(0.0, 100.0, 20.0, None), Some(50.0));
        assert_eq!(room(0.0, 100.0, 20.0, Some(10.0)), Some(50.0));
        assert_eq!(room(0.0, 100.0, 20.0, Some(55.0)), Some(27.5));
        assert_eq!(room(0.0, 100.0, 20.0, Some(45.0)), Some(72.5));
        assert_eq!(room(0.0, 24.0, 20.0, None), None);
    }
}
