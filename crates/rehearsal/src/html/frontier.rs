//! Frontier: the pairs of bounds as curves over their limits, with the ends of the usable range, and every number behind them;
//! and what moves the old design's tail.

use maud::{Markup, html};

use super::{
    ink::{self, Ink, MUTED, PANEL, TEXT},
    plot::{self, Anchor, Axis, Drawn, Sheet},
    text::Unit,
    view::View,
};
use crate::{
    frontier::{FrontierReport, Limits},
    sweep::{Figures, RecoveryTime},
};

const SIZE: (i32, i32) = (1_120, 320);
/// The plane.
const FROM: (f64, f64) = (64.0, 32.0);
const TO: (f64, f64) = (1_096.0, 264.0);

/// The section; nothing when no frontier was looked for.
pub(super) fn section(view: &View<'_>) -> Markup {
    let Some(frontier) = &view.report.frontier else { return html! {} };
    let knees = &frontier.knees;
    let end = |limits: Option<Limits>| {
        limits.map_or_else(|| "none in the sweep".to_owned(), |limits| limits.to_string())
    };
    html! {
        section {
            h2 { "Which bounds carry the home path" }
            p {
                "Lower end: " (end(knees.lower)) " (case study: " (knees.reference_lower) "). In force: " (knees.chosen)
                ". Upper end: " (end(knees.upper)) " (case study: " (knees.reference_upper) ")."
            }
            ul { @for note in &frontier.notes { li { (note) } } }
            div.wide {
                (plot::figure(
                    "Goodput by the limit of the endpoint's gate",
                    html! { "Goodput by the limit of the endpoint's gate; the shaded pairs are those between the ends that were found." },
                    &CURVES.map(|(state, place)| (ink::hue(place), state.to_owned())),
                    SIZE,
                    |sheet| draw(sheet, frontier),
                ))
            }
            div.wide { (pairs(frontier)) }
        }
        section {
            h2 { "What moves the old design's tail" }
            div.wide { (old(frontier)) }
        }
    }
}

/// State, and the place of its ink.
const CURVES: [(&str, usize); 2] = [("peak", 0), ("slowdown", 1)];

fn of<'f>(states: &'f [Figures], state: &str) -> Option<&'f Figures> {
    states.iter().find(|figures| figures.state == state)
}

fn draw(sheet: &Sheet<'_>, frontier: &FrontierReport) -> Drawn {
    let limits: Vec<f64> = frontier.pairs.iter().map(|pair| f64::from(pair.limits.endpoint)).collect();
    let (first, last) = (limits.first().copied().unwrap_or(0.0), limits.last().copied().unwrap_or(1.0));
    let points = |state: &str| -> Vec<(f64, f64)> {
        let point = |pair: &crate::frontier::PairFigures| {
            let goodput = of(pair.states.all(), state)?.goodput_ratio?;
            Some((f64::from(pair.limits.endpoint), goodput))
        };
        frontier.pairs.iter().filter_map(point).collect()
    };
    let curves = CURVES.map(|(state, place)| (points(state), ink::hue(place)));
    let least = curves.iter().flat_map(|(points, _)| points).map(|(_, goodput)| *goodput).fold(1.0, f64::min);
    let low = (least * 20.0).floor() / 20.0;
    let plane = sheet.plane(FROM, TO, Axis::linear(first, last), Axis::linear(low, 1.0));
    let x = |endpoint: u32| plane.pixel((f64::from(endpoint), low)).0;
    let knees = &frontier.knees;
    if let Some(lower) = knees.lower {
        let to = knees.upper.map_or(TO.0, |upper| x(upper.endpoint));
        sheet.block((x(lower.endpoint), FROM.1), (to, TO.1), PANEL)?;
    }
    plane.y_ticks(&Axis::linear(low, 1.0).ticks(5), |share| {
        Unit::Ratio.write(Some(share)).unwrap_or_default()
    })?;
    plane.x_ticks(&limits, |limit| format!("{limit:.0}"))?;
    sheet.label("limit of the endpoint's gate", (TO.0, TO.1 + 34.0), Anchor::Right, MUTED)?;
    plane.x_bound(f64::from(knees.chosen.endpoint))?;
    sheet.label("in force", (x(knees.chosen.endpoint), FROM.1 - 12.0), Anchor::Middle, TEXT)?;
    for (points, hue) in &curves {
        curve(sheet, points, *hue, |at| plane.pixel(at))?;
    }
    Ok(())
}

fn curve(
    sheet: &Sheet<'_>,
    points: &[(f64, f64)],
    hue: Ink,
    pixel: impl Fn((f64, f64)) -> (f64, f64),
) -> Drawn {
    let pixels: Vec<(f64, f64)> = points.iter().map(|at| pixel(*at)).collect();
    if pixels.len() > 1 {
        sheet.path(&pixels, hue, 2.0)?;
    }
    for at in pixels {
        sheet.dot(at, 3.0, hue)?;
    }
    Ok(())
}

fn pairs(frontier: &FrontierReport) -> Markup {
    let share = |value: Option<f64>| Unit::Ratio.write(value).unwrap_or_else(|| "–".to_owned());
    let ms = |value: Option<f64>| Unit::Ms.write(value).unwrap_or_else(|| "–".to_owned());
    let recovery = |recovery: Option<RecoveryTime>| match recovery {
        Some(RecoveryTime { s: Some(s), .. }) => format!("{s:.0} s"),
        Some(RecoveryTime { at_least_s: Some(s), .. }) => format!("≥ {s:.0} s"),
        _ => "–".to_owned(),
    };
    html! {
        table {
            thead {
                tr {
                    th { "pair" } th { "state" } th.figure { "goodput" } th.figure { "p99" } th.figure { "turned away" }
                    th.figure { "omitted" } th.figure { "endpoint slots" } th.figure { "profile gate" } th.figure { "longest wait" }
                    th.figure { "reads per operation" } th.figure { "store" } th.figure { "recovery" }
                }
            }
            tbody {
                @for pair in &frontier.pairs {
                    @for figures in pair.states.all() {
                        tr {
                            th scope="row" { (pair.limits) }
                            td { (figures.state) }
                            td.figure { (share(figures.goodput_ratio)) }
                            td.figure { (ms(figures.latency_ms.p99)) }
                            td.figure { (share(figures.rejection_ratio)) }
                            td.figure { (share(figures.omission_ratio)) }
                            td.figure { (share(figures.occupancy_ratio.endpoint)) }
                            td.figure { (share(figures.bound_ratio.profile)) }
                            td.figure { (ms(figures.wait_ms.longest())) }
                            td.figure {
                                (figures.profile_calls_per_operation.map_or_else(|| "–".to_owned(), |calls| format!("{calls:.3}")))
                            }
                            td.figure { (share(Some(figures.store_ratio))) }
                            td.figure { (recovery(figures.recovery)) }
                        }
                    }
                }
            }
        }
    }
}

fn old(frontier: &FrontierReport) -> Markup {
    html! {
        table {
            thead { tr { th { "change" } th.figure { "p99 at peak" } th.figure { "moved" }
                    th.figure { "p99 in the slowdown" } th.figure { "moved" } th { "why" } } }
            tbody {
                @for case in &frontier.old_design {
                    tr {
                        th scope="row" { (case.what) }
                        td.figure { (Unit::Ms.write(case.p99_ms).unwrap_or_else(|| "–".to_owned())) }
                        td.figure { (moved(case.moved_ratio)) }
                        td.figure { (Unit::Ms.write(case.slowdown_p99_ms).unwrap_or_else(|| "–".to_owned())) }
                        td.figure { (moved(case.slowdown_moved_ratio)) }
                        td { (case.reason) }
                    }
                }
            }
        }
    }
}

fn moved(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| "–".to_owned(), |moved| format!("{:+.1} %", moved * 100.0))
}

#[cfg(test)]
mod tests {
    use crate::{
        frontier::{FrontierReport, Knees, Limits, OldCase, PairFigures},
        html::{render, sample},
        report::Report,
        sweep::{Figures, Measured},
    };

    fn limits(endpoint: u32, profile: u32) -> Limits {
        Limits { endpoint, profile }
    }

    #[test]
    fn pairs_ends_and_old_design_are_told_and_what_was_not_found_is_said() {
        let pair = |endpoint, profile, goodput: f64| {
            let of = |state| Figures { state, goodput_ratio: Some(goodput), ..Figures::default() };
            PairFigures {
                limits: limits(endpoint, profile),
                states: Measured::from(["peak", "slowdown"].map(of).to_vec()),
            }
        };
        let knees = Knees { lower: Some(limits(480, 310)), chosen: limits(520, 340), ..Knees::default() };
        let old = OldCase { what: "<b>more</b> hosts", moved_ratio: Some(-0.051), ..OldCase::default() };
        let frontier = FrontierReport {
            knees,
            notes: vec!["a note".to_owned()],
            pairs: vec![pair(400, 250, 0.88), pair(480, 310, 0.984), pair(520, 340, 0.994)],
            old_design: vec![old],
            ..FrontierReport::default()
        };
        let report = Report { frontier: Some(frontier), ..Report::default() };
        let page = render(&report, &sample::run()).replace('\u{a0}', " ");
        for text in
            ["480/310", "Upper end: none in the sweep", "a note", "in force", "98.4 %", "-5.1 %", "<svg"]
        {
            assert!(page.contains(text), "{text}");
        }
        assert!(!page.contains("<b>"), "nothing from outside becomes markup");
        assert!(!page.contains("<h2>Figures</h2>"), "there are no states to compare");
        let empty = Report { frontier: Some(FrontierReport::default()), ..Report::default() };
        assert!(render(&empty, &sample::run()).contains("Which bounds"), "nothing at all is still a page");
        assert!(!render(&Report::default(), &sample::run()).contains("Which bounds"));
    }
}
