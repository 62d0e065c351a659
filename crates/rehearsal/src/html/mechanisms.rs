//! Mechanisms: what each one does by itself, without and with it, each on its own axis: their measures have nothing in
//! common but that less is better.

use maud::{Markup, html};

use super::{
    ink::{MUTED, TEXT},
    plot::{self, Anchor, Axis, Drawn, Sheet},
    text::{self, NOT_MEASURED, Unit, badge, clip, more, number, spaced},
    view::View,
};
use crate::report::{Effect, Mechanism};

const SIZE: (i32, i32) = (400, 52);
const LEFT: f64 = 58.0;
/// Room for the value behind the longest bar.
const RIGHT: f64 = 300.0;
const BAR: f64 = 16.0;
/// Most mechanisms on the page.
const ROWS_MAX: usize = 16;

/// The table; nothing when no mechanism was rehearsed alone.
pub(super) fn table(view: &View<'_>) -> Markup {
    let mechanisms = &view.report.mechanisms;
    if mechanisms.is_empty() {
        return html! {};
    }
    html! {
        section {
            h2 { "Each mechanism by itself" }
            p { "The old policy at peak with one mechanism switched on, and nothing else." }
            div.wide {
                table.mechanisms {
                    thead { tr {
                        th { "mechanism" } th { "verdict" } th { "measure" } th { "without and with it" }
                        th.figure { "change" }
                    } }
                    tbody { @for one in mechanisms.iter().take(ROWS_MAX) { (row(view, one)) } }
                }
            }
            (more(mechanisms.len().saturating_sub(ROWS_MAX), "mechanisms"))
        }
    }
}

fn row(view: &View<'_>, one: &Mechanism) -> Markup {
    let Effect { what, unit, without, with } = &one.effect;
    let without = without.filter(|value| value.is_finite() && *value >= 0.0);
    let with = with.filter(|value| value.is_finite() && *value >= 0.0);
    let words = |value: Option<f64>| words(unit, value);
    let name = text::name(&one.name);
    let title = format!("{name}: {} without {}, with {}", clip(what), words(without), words(with));
    html! {
        tr {
            th scope="row" { (spaced(&name)) @if !one.detail.is_empty() { div.note { (clip(&one.detail)) } } }
            td { (badge(one.verdict)) }
            td { (clip(what)) }
            td {
                @if without.is_none() && with.is_none() {
                    span.none { (NOT_MEASURED) }
                } @else {
                    (plot::svg(&title, SIZE, |sheet| draw(sheet, view, without, with, &words)))
                }
            }
            td.figure { (change(without, with)) }
        }
    }
}

fn words(unit: &str, value: Option<f64>) -> String {
    match Unit::named(unit) {
        Unit::Number if !unit.is_empty() => Unit::Number.write(value).map_or_else(
            || NOT_MEASURED.to_owned(),
            |text| format!("{text}\u{a0}{}", spaced(&text::name(unit))),
        ),
        known => known.words(value),
    }
}

/// What the measure moved by, as a share of what it was.
fn change(without: Option<f64>, with: Option<f64>) -> Markup {
    let change =
        without.filter(|without| *without > 0.0).zip(with).map(|(without, with)| with / without - 1.0);
    html! {
        @match change {
            Some(change) if change.is_finite() => { @if change > 0.0 { "+" } (number(change * 100.0)) " %" }
            _ => span.none { "–" },
        }
    }
}

fn draw(
    sheet: &Sheet<'_>,
    view: &View<'_>,
    without: Option<f64>,
    with: Option<f64>,
    words: &impl Fn(Option<f64>) -> String,
) -> Drawn {
    let most = without.into_iter().chain(with).fold(0.0, f64::max);
    let x = Axis::linear(0.0, if most > 0.0 { most } else { 1.0 });
    let plane = sheet.plane((LEFT, 0.0), (RIGHT, f64::from(SIZE.1)), x, Axis::linear(0.0, 1.0));
    for (name, value, y, policy) in [("without", without, 4.0, 0), ("with", with, 30.0, 1)] {
        let middle = y + BAR / 2.0;
        sheet.label(name, (LEFT - 8.0, middle), Anchor::Right, MUTED)?;
        let (end, _) = plane.pixel((value.unwrap_or(0.0), 0.0));
        if value.is_some_and(|value| value > 0.0) {
            sheet.block(
                (LEFT, y),
                (end.max(LEFT + 1.0), y + BAR),
                super::ink::policy(policy, view.policies.len().max(2)),
            )?;
        }
        let ink = if value.is_some() { TEXT } else { MUTED };
        sheet.label(&words(value), (end + 8.0, middle), Anchor::Left, ink)?;
    }
    Ok(())
}
