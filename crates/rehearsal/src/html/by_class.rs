//! By class: the p99 of every class of every state, before and after, against the objective: no class may pay for the
//! average of all.

use base::WorkloadClass;
use maud::{Markup, html};

use super::{
    ink::{BOUND, MUTED, RULE, TEXT},
    plot::{self, Anchor, Axis, Drawn, Sheet},
    text::{Unit, number},
    view::{Group, View},
};
use crate::gates::objective::P99_MS;

const WIDTH: f64 = 548.0;
const LEFT: f64 = 158.0;
const RIGHT: f64 = 532.0;
const HEAD: f64 = 26.0;
const FOOT: f64 = 50.0;
/// As high as the plots beside it when there are three states of three classes.
const ROW: f64 = 27.0;
/// Most rows.
const ROWS_MAX: usize = 24;

/// One class in one state: the p99 of every policy that has one.
struct Row<'a> {
    state: &'a str,
    class: &'static str,
    /// Whether it begins a state.
    first: bool,
    p99: Vec<(usize, f64)>,
}

/// The figure; nothing when no class has a p99.
pub(super) fn plot(view: &View<'_>) -> Markup {
    let mut rows: Vec<Row<'_>> = view.groups.iter().flat_map(rows).collect();
    rows.truncate(ROWS_MAX);
    if rows.is_empty() {
        return html! {};
    }
    let height = HEAD + rows.len() as f64 * ROW + FOOT;
    let caption = html! { strong { "p99 by class" } };
    plot::figure("p99 latency by class", caption, &[], (WIDTH as i32, height as i32), |sheet| {
        draw(sheet, view, &rows)
    })
}

fn rows<'a>(group: &'a Group<'_>) -> Vec<Row<'a>> {
    let classes = WorkloadClass::ALL.iter().filter_map(|class| {
        let p99 = group.cases.iter().filter_map(|case| {
            let latency = &case.state.classes.get(class.as_str())?.latency_ms;
            Some((case.policy, latency.p99.filter(|value| value.is_finite())?))
        });
        let p99: Vec<_> = p99.collect();
        (!p99.is_empty()).then_some((class.as_str(), p99))
    });
    let rows =
        classes.enumerate().map(|(at, (class, p99))| Row { state: &group.title, class, first: at == 0, p99 });
    rows.collect()
}

fn draw(sheet: &Sheet<'_>, view: &View<'_>, rows: &[Row<'_>]) -> Drawn {
    let most = rows.iter().flat_map(|row| &row.p99).map(|(_, p99)| *p99).fold(P99_MS, f64::max);
    let x = Axis::up_to(most, 5);
    let bottom = HEAD + rows.len() as f64 * ROW;
    let plane = sheet.plane((LEFT, HEAD), (RIGHT, bottom), x, Axis::linear(0.0, 1.0));
    plane.x_ticks(&x.ticks(5), number)?;
    sheet.label("p99 latency, ms", (RIGHT, bottom + 32.0), Anchor::Right, MUTED)?;
    plane.x_bound(P99_MS)?;
    let (at, _) = plane.pixel((P99_MS, 0.0));
    let words = format!("objective {}", Unit::Ms.words(Some(P99_MS)));
    sheet.label(&words, (at, HEAD - 11.0), Anchor::Middle, BOUND)?;
    for (at, row) in rows.iter().enumerate() {
        let y = HEAD + (at as f64 + 0.5) * ROW;
        if row.first {
            sheet.path(&[(0.0, y - ROW / 2.0), (RIGHT, y - ROW / 2.0)], RULE, 1.0)?;
            sheet.label(row.state, (0.0, y), Anchor::Left, TEXT)?;
        }
        sheet.label(row.class, (LEFT - 10.0, y), Anchor::Right, MUTED)?;
        let marks = || row.p99.iter().map(|(policy, p99)| (*policy, plane.pixel((*p99, 0.0)).0));
        if let (Some((_, from)), Some((_, until))) = (marks().next(), marks().next_back()) {
            sheet.path(&[(from, y), (until, y)], MUTED, 1.25)?;
        }
        for (policy, x) in marks().filter(|(policy, _)| view.draws(*policy)) {
            view.mark(sheet, policy, (x, y))?;
        }
    }
    Ok(())
}
