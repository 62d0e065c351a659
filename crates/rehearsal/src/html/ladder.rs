//! Ladder: stories with a verdict of their own, in order, such as the phases of a rollout; and, when there are more than
//! two policies, how the p99 and the goodput went from one to the next.

use maud::{Markup, html};

use super::{
    ink::{BOUND, Ink, MUTED, PANEL, TEXT},
    plot::{self, Anchor, Axis, Drawn, Sheet},
    text::{self, Unit, badge, more, spaced},
    view::View,
};
use crate::{gates::objective::P99_MS, report::State};

const WIDTH: f64 = 1_120.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = WIDTH - 14.0;
const STEPS: f64 = 150.0;
const HEAD: f64 = 26.0;
/// Most bytes of what is told of one: a phase of several steps has a sentence for each.
const DETAIL_BYTES_MAX: usize = 1_500;
/// Most stories on the page.
const STORIES_MAX: usize = 64;
/// No character of a label is wider, in pixels.
const CHAR: f64 = 7.5;

/// The stories, and the steps above them.
pub(super) fn ladder(view: &View<'_>) -> Markup {
    let stories = &view.report.scenarios;
    let stepped = view.policies.len() > 2;
    if stories.is_empty() && !stepped {
        return html! {};
    }
    html! {
        section {
            h2 { @if stepped { "Phase by phase" } @else { "Stories" } }
            @if stepped { (steps(view)) }
            @if !stories.is_empty() {
                ol.ladder {
                    @for story in stories.iter().take(STORIES_MAX) {
                        li class=(story.verdict.as_str()) {
                            div { strong { (spaced(&text::name(&story.name))) } " " (badge(story.verdict)) }
                            @if !story.detail.is_empty() { p { (text::cut(&story.detail, DETAIL_BYTES_MAX)) } }
                        }
                    }
                }
                (more(stories.len().saturating_sub(STORIES_MAX), "stories"))
            }
        }
    }
}

fn steps(view: &View<'_>) -> Markup {
    let legend: Vec<(Ink, String)> =
        view.groups.iter().enumerate().map(|(at, group)| (state_ink(at), group.title.clone())).collect();
    let height = (2.0 * (HEAD + STEPS) + names(view).1 + 40.0) as i32;
    html! {
        div.wide {
            (plot::figure(
                "p99 latency and goodput, phase by phase",
                html! { "One mark a phase, one line a state." },
                &legend,
                (WIDTH as i32, height),
                |sheet| draw(sheet, view),
            ))
        }
    }
}

fn state_ink(at: usize) -> Ink {
    super::ink::hue(at)
}

fn draw(sheet: &Sheet<'_>, view: &View<'_>) -> Drawn {
    let x = Axis::linear(-0.5, view.policies.len() as f64 - 0.5);
    let p99 = |state: &State| state.latency_ms.p99.filter(|value| value.is_finite());
    let goodput = |state: &State| state.core_goodput_ratio.filter(|value| value.is_finite());
    let most = view.cases().filter_map(|(_, case)| p99(case.state)).fold(P99_MS, f64::max);
    let upper = (HEAD, HEAD + STEPS);
    let lower = (upper.1 + HEAD + 14.0, upper.1 + HEAD + 14.0 + STEPS);
    shade(sheet, view, x, (upper.0, lower.1))?;
    strip(sheet, view, x, Axis::up_to(most, 4), upper, ("p99 latency", Unit::Ms, &p99))?;
    let least = view.cases().filter_map(|(_, case)| goodput(case.state)).fold(1.0, f64::min);
    let floor = ((least - 0.01) * 10.0).floor().clamp(0.0, 9.0) / 10.0;
    strip(sheet, view, x, Axis::linear(floor, 1.0), lower, ("core goodput", Unit::Ratio, &goodput))?;
    let plane = sheet.plane((LEFT, upper.0), (RIGHT, lower.1), x, Axis::linear(0.0, 1.0));
    let (level, _) = names(view);
    for (at, name) in view.policies.iter().enumerate() {
        let (middle, _) = plane.pixel((at as f64, 0.0));
        match level {
            true => sheet.label(name, (middle, lower.1 + 14.0), Anchor::Middle, TEXT)?,
            false => sheet.upright(name, (middle, lower.1 + 8.0), TEXT)?,
        }
    }
    Ok(())
}

/// Whether the names of the policies fit beside each other, and the room that they need below the plot.
fn names(view: &View<'_>) -> (bool, f64) {
    let longest = view.policies.iter().map(|name| name.chars().count()).max().unwrap_or(0) as f64 * CHAR;
    let level = longest < (RIGHT - LEFT) / view.policies.len().max(1) as f64;
    (level, if level { 22.0 } else { longest + 12.0 })
}

fn shade(sheet: &Sheet<'_>, view: &View<'_>, x: Axis, (top, bottom): (f64, f64)) -> Drawn {
    let plane = sheet.plane((LEFT, top), (RIGHT, bottom), x, Axis::linear(0.0, 1.0));
    for at in (0..view.policies.len()).step_by(2) {
        let (from, _) = plane.pixel((at as f64 - 0.5, 0.0));
        let (until, _) = plane.pixel((at as f64 + 0.5, 0.0));
        sheet.block((from, top), (until, bottom), PANEL)?;
    }
    Ok(())
}

type Measure<'m> = (&'m str, Unit, &'m dyn Fn(&State) -> Option<f64>);

fn strip(
    sheet: &Sheet<'_>,
    view: &View<'_>,
    x: Axis,
    y: Axis,
    (top, bottom): (f64, f64),
    (name, unit, of): Measure<'_>,
) -> Drawn {
    let plane = sheet.plane((LEFT, top), (RIGHT, bottom), x, y);
    sheet.bold(name, (LEFT, top - 11.0), Anchor::Left, TEXT)?;
    plane.y_ticks(&y.ticks(4), |tick| unit.words(Some(tick)))?;
    if unit == Unit::Ms {
        plane.y_bound(P99_MS)?;
        sheet.label(
            &format!("objective {}", unit.words(Some(P99_MS))),
            (RIGHT, top - 11.0),
            Anchor::Right,
            BOUND,
        )?;
    }
    let mut drawn = false;
    for (at, group) in view.groups.iter().enumerate() {
        let points: Vec<(f64, f64)> =
            group.cases.iter().filter_map(|case| Some((case.policy as f64, of(case.state)?))).collect();
        drawn |= !points.is_empty();
        if points.len() > 1 {
            plane.line(&points, state_ink(at), 2.0)?;
        }
        for point in points {
            sheet.dot(plane.pixel(point), 4.0, state_ink(at))?;
        }
    }
    if !drawn {
        let middle = ((LEFT + RIGHT) / 2.0, (top + bottom) / 2.0);
        sheet.label("not measured", middle, Anchor::Middle, MUTED)?;
    }
    Ok(())
}
