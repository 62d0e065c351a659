//! Bounds: every bounded figure as a share of its bound, before and after, on one axis: what lies left of the line holds.

use maud::{Markup, html};

use super::{
    ink::{BOUND, FAIL, MUTED, PANEL, RULE, TEXT},
    plot::{self, Anchor, Axis, Drawn, Sheet},
    text::{NOT_MEASURED, number},
    view::{Case, FIGURES, Figure, View},
};

const WIDTH: f64 = 1_120.0;
/// Right edge of the names.
const NAMES: f64 = 196.0;
/// The plane.
const LEFT: f64 = 212.0;
const RIGHT: f64 = 836.0;
/// Left edges of the columns of values: bound, before, after.
const COLUMNS: [f64; 3] = [856.0, 936.0, 1_030.0];
const ROW: f64 = 24.0;
const HEAD: f64 = 44.0;
const FOOT: f64 = 44.0;
/// The smallest share of a bound that is told apart; what is below lies on it.
const SHARE_MIN: f64 = 0.01;
/// Powers of ten above the bound: at least, and at most.
const POWERS: (i32, i32) = (1, 4);
/// Most rows.
const ROWS_MAX: usize = 40;

/// One row: a figure in a state.
struct Row<'a> {
    figure: &'static Figure,
    title: &'a str,
    bound: f64,
    cases: &'a [Case<'a>],
}

/// The figure; nothing when no figure has a bound of at most.
pub(super) fn plot(view: &View<'_>) -> Markup {
    let rows = rows(view);
    if rows.is_empty() {
        return html! {};
    }
    let height = HEAD + rows.len() as f64 * ROW + FOOT;
    html! {
        section {
            h2 { "Against the bounds" }
            div.wide {
                (plot::figure(
                    "Every figure with a largest value, as a share of it",
                    html! { "Every figure with a largest value, as a share of it. Powers of ten." },
                    &view.legend(),
                    (WIDTH as i32, height as i32),
                    |sheet| draw(sheet, view, &rows),
                ))
            }
        }
    }
}

fn rows<'a>(view: &'a View<'a>) -> Vec<Row<'a>> {
    let all = FIGURES.iter().flat_map(|figure| {
        view.groups.iter().filter_map(move |group| {
            let bound = figure.most_in(&view.report.gates, group).filter(|bound| *bound > 0.0)?;
            // A figure that only one state has, such as recovery, is no row of the others.
            let seen = group.cases.iter().any(|case| figure.of(case.state).is_some());
            seen.then_some(Row { figure, title: &group.title, bound, cases: &group.cases })
        })
    });
    all.take(ROWS_MAX).collect()
}

fn draw(sheet: &Sheet<'_>, view: &View<'_>, rows: &[Row<'_>]) -> Drawn {
    let bottom = HEAD + rows.len() as f64 * ROW;
    let shares = rows.iter().flat_map(|row| {
        row.cases.iter().filter_map(move |case| Some(row.figure.of(case.state)? / row.bound))
    });
    let powers = (shares.fold(1.0, f64::max).log10().ceil() as i32).clamp(POWERS.0, POWERS.1);
    let x = Axis::log(SHARE_MIN, 10f64.powi(powers));
    let plane = sheet.plane((LEFT, HEAD), (RIGHT, bottom), x, Axis::linear(0.0, 1.0));
    let (line, _) = plane.pixel((1.0, 0.0));
    sheet.block((line, HEAD), (RIGHT, bottom), PANEL)?;
    let ticks: Vec<f64> = (-2..=powers).map(|power| 10f64.powi(power)).collect();
    plane.x_ticks(&ticks, |share| match share {
        share if share > 0.99 && share < 1.01 => "bound".to_owned(),
        share if share < 1.0 => format!("{} %", number(share * 100.0)),
        share => format!("{} ×", number(share)),
    })?;
    sheet.label("observed, as a share of its bound", (RIGHT, bottom + 32.0), Anchor::Right, MUTED)?;
    plane.x_bound(1.0)?;
    sheet.label("← holds", (line - 8.0, HEAD - 12.0), Anchor::Right, MUTED)?;
    sheet.label("misses →", (line + 8.0, HEAD - 12.0), Anchor::Left, MUTED)?;
    sheet.label("bound", (COLUMNS[0], HEAD - 12.0), Anchor::Left, MUTED)?;
    let columns = columns(view);
    for (policy, words, left) in &columns {
        sheet.bold(words, (*left, HEAD - 12.0), Anchor::Left, view.ink(*policy))?;
    }
    let mut last = "";
    for (at, row) in rows.iter().enumerate() {
        let y = HEAD + (at as f64 + 0.5) * ROW;
        if last != row.figure.name {
            sheet.path(&[(0.0, y - ROW / 2.0), (WIDTH, y - ROW / 2.0)], RULE, 1.0)?;
            sheet.label(row.figure.name, (0.0, y), Anchor::Left, TEXT)?;
            last = row.figure.name;
        }
        sheet.label(row.title, (NAMES, y), Anchor::Right, MUTED)?;
        draw_row(sheet, view, row, y, |share| plane.pixel((share, 0.0)).0)?;
        sheet.label(&row.figure.unit.words(Some(row.bound)), (COLUMNS[0], y), Anchor::Left, BOUND)?;
        for (policy, _, left) in &columns {
            let case = row.cases.iter().find(|case| case.policy == *policy);
            let words = case.and_then(|case| row.figure.words(case.state));
            let missed = case.is_some_and(|case| row.figure.misses(&view.report.gates, case.state));
            let ink = if words.is_none() {
                MUTED
            } else if missed {
                FAIL
            } else {
                TEXT
            };
            let words = words.unwrap_or_else(|| NOT_MEASURED.to_owned());
            sheet.label(&words, (*left, y), Anchor::Left, ink)?;
            if missed {
                sheet.bold("✕", (*left - 14.0, y), Anchor::Left, FAIL)?;
            }
        }
    }
    Ok(())
}

/// The policies that have a column of values: the first two.
fn columns(view: &View<'_>) -> Vec<(usize, &'static str, f64)> {
    match view.policies.len() {
        0 => Vec::new(),
        1 => vec![(0, "observed", COLUMNS[1])],
        2 if view.is_comparison() => vec![(0, "before", COLUMNS[1]), (1, "after", COLUMNS[2])],
        many => vec![(0, "first", COLUMNS[1]), (many - 1, "last", COLUMNS[2])],
    }
}

/// The marks of a row, and a line from before to after.
fn draw_row(sheet: &Sheet<'_>, view: &View<'_>, row: &Row<'_>, y: f64, place: impl Fn(f64) -> f64) -> Drawn {
    let mut marks: Vec<(usize, f64)> = row
        .cases
        .iter()
        .filter_map(|case| Some((case.policy, place(row.figure.of(case.state)? / row.bound))))
        .collect();
    if let [(_, from), .., (_, to)] = marks.as_slice() {
        sheet.path(&[(*from, y), (*to, y)], MUTED, 1.25)?;
    }
    // The drawn ones lie on the others.
    marks.sort_by_key(|(policy, _)| view.draws(*policy));
    for (policy, x) in marks {
        view.mark(sheet, policy, (x, y))?;
    }
    Ok(())
}
