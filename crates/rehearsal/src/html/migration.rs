//! Migration: the phases of the summary's migration as they were watched: how many pages relied on the summary, whether their claims
//! were right, what latency they had with the serial hop and without it, and who fell back.

use maud::{Markup, html};

use super::{
    ink::{self, MUTED, TEXT},
    plot::{self, Anchor, Axis, Drawn, Sheet},
    text::{self, NOT_MEASURED, Unit, more, number, spaced},
    view::View,
};
use crate::report::{Fallback, Hop, Migration, Rung};

const SIZE: (i32, i32) = (300, 40);
const RIGHT: f64 = 210.0;
const BAR: f64 = 12.0;
/// Most phases and fallbacks on the page.
const ROWS_MAX: usize = 32;

/// The section; nothing when no migration was rehearsed.
pub(super) fn section(view: &View<'_>) -> Markup {
    let Some(migration) = &view.report.migration else { return html! {} };
    let most = migration.ladder.iter().filter_map(|rung| rung.latency_ms.p99).fold(0.0, f64::max);
    html! {
        section {
            h2 { "The migration, phase by phase" }
            p {
                "Claims are held against what an oracle derives from the stores' own rows, page by page. A phase is left \
                 when the plan's bounds are met."
            }
            div.wide {
                table.mechanisms {
                    thead { tr {
                        th { "phase" } th.figure { "pages" } th.figure { "claims wrong" } th.figure { "on the summary" }
                        th.figure { "fell back" } th.figure { "match" } th { "p50 and p99 latency" }
                    } }
                    tbody { @for rung in migration.ladder.iter().take(ROWS_MAX) { (row(rung, most)) } }
                }
            }
            @if let Some(hop) = &migration.hop { (gain(hop)) }
            (fallbacks(migration))
        }
    }
}

fn row(rung: &Rung, most: f64) -> Markup {
    let words = |unit: Unit, value: Option<f64>| unit.write(value).unwrap_or_else(|| "–".to_owned());
    let Rung { latency_ms, .. } = rung;
    let title = format!(
        "{}: p50 {}, p99 {}",
        text::name(&rung.phase),
        words(Unit::Ms, latency_ms.p50),
        words(Unit::Ms, latency_ms.p99)
    );
    html! {
        tr {
            th scope="row" {
                (spaced(&text::name(&rung.phase)))
                div.note { "decision " (rung.generation) ", " (number(rung.entered_s)) " s after the start" }
            }
            td.figure { (rung.pages) }
            td.figure { @match rung.claims_wrong { Some(wrong) => (wrong), None => (NOT_MEASURED) } }
            td.figure { (words(Unit::Ratio, rung.on_summary_ratio)) }
            td.figure { (words(Unit::Ratio, rung.fallback_ratio)) }
            td.figure { (words(Unit::Ratio, rung.match_ratio)) }
            td { (plot::svg(&title, SIZE, |sheet| draw(sheet, [latency_ms.p50, latency_ms.p99], most))) }
        }
    }
}

/// Two bars, the median above the 99th percentile.
fn draw(sheet: &Sheet<'_>, latencies: [Option<f64>; 2], most: f64) -> Drawn {
    let x = Axis::linear(0.0, if most > 0.0 { most } else { 1.0 });
    let plane = sheet.plane((0.0, 0.0), (RIGHT, f64::from(SIZE.1)), x, Axis::linear(0.0, 1.0));
    for (at, value) in latencies.into_iter().enumerate() {
        let y = 4.0 + at as f64 * 18.0;
        let value = value.filter(|value| value.is_finite());
        let (end, _) = plane.pixel((value.unwrap_or(0.0), 0.0));
        if value.is_some_and(|value| value > 0.0) {
            sheet.block((0.0, y), (end.max(1.0), y + BAR), ink::policy(1 - at, 2))?;
        }
        let words = Unit::Ms.write(value).unwrap_or_else(|| NOT_MEASURED.to_owned());
        let ink = if value.is_some() { TEXT } else { MUTED };
        sheet.label(&words, (end + 6.0, y + BAR / 2.0), Anchor::Left, ink)?;
    }
    Ok(())
}

fn gain(hop: &Hop) -> Markup {
    let of = |with: Option<f64>, without: Option<f64>| {
        Unit::Ms.write(with.zip(without).map(|(with, without)| with - without))
    };
    let words = |text: Option<String>| text.unwrap_or_else(|| NOT_MEASURED.to_owned());
    html! {
        p {
            "Without the serial hop, cutover against shadow: p50 "
            strong { (words(of(hop.p50_with_ms, hop.p50_without_ms))) }
            " less, p99 " strong { (words(of(hop.p99_with_ms, hop.p99_without_ms))) }
            " less; in the study p99 fell by " (words(Unit::Ms.write(Some(hop.reference_p99_gain_ms))))
            ". The repaired policy cuts its optional sections at 280 ms, and p99 is that cut with the hop and without it: \
             what the hop costs shows at the median, and in how many pages are cut."
        }
    }
}

fn fallbacks(migration: &Migration) -> Markup {
    let rows: &[Fallback] = &migration.fallbacks;
    html! {
        h3 { "Fallbacks by class and region" }
        @if rows.is_empty() {
            p { "None: wherever the summary was the authority, it served." }
        } @else {
            div.wide {
                table {
                    thead { tr {
                        th { "phase" } th { "what" } th { "class" } th { "region" } th.figure { "requests" }
                        th.figure { "share" }
                    } }
                    tbody {
                        @for one in rows.iter().take(ROWS_MAX) {
                            tr {
                                td { (text::name(&one.phase)) }
                                td { (spaced(&text::name(&one.kind))) }
                                td { (text::name(&one.class)) }
                                td { (text::name(&one.region)) }
                                td.figure { (one.count) }
                                td.figure { (Unit::Ratio.words(one.ratio)) }
                            }
                        }
                    }
                }
            }
            (more(rows.len().saturating_sub(ROWS_MAX), "fallbacks"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        html::render,
        report::{Quantiles, Report},
        slo::RunInfo,
    };

    fn report() -> Report {
        let rung = |phase: &str, wrong| Rung {
            phase: phase.to_owned(),
            pages: 1_800,
            claims_wrong: wrong,
            latency_ms: Quantiles { p50: Some(75.5), p99: None, ..Quantiles::default() },
            on_summary_ratio: Some(0.1),
            ..Rung::default()
        };
        let fallback = Fallback {
            phase: "canary".to_owned(),
            kind: "fallback:stale_revocations".to_owned(),
            class: "premium".to_owned(),
            region: "<eu-west>".to_owned(),
            count: 3,
            ratio: Some(0.01),
        };
        let migration = Migration {
            ladder: vec![rung("shadow", Some(0)), rung("canary", None)],
            fallbacks: vec![fallback],
            hop: Some(Hop { p50_with_ms: Some(75.0), p50_without_ms: Some(69.0), ..Hop::default() }),
        };
        Report { migration: Some(migration), ..Report::default() }
    }

    #[test]
    fn phases_parity_fallbacks_and_the_hop_are_on_the_page_and_what_is_not_known_is_said() {
        let run = RunInfo::new(0, base::Nanos::ZERO, Vec::new());
        let page = render(&report(), &run);
        for told in [
            "The migration, phase by phase",
            "stale",
            &*Unit::Ms.words(Some(6.0)),
            "1800",
            NOT_MEASURED,
            "&lt;eu-west&gt;",
        ] {
            assert!(page.contains(told as &str), "{told}");
        }
        assert!(!render(&Report::default(), &run).contains("The migration, phase by phase"));
    }
}
