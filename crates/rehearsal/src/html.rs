//! Html: `report.html`, the evidence as one page: first the verdict and what it rests on, then the plots, then every number
//! behind them. It needs nothing beside it, no script, no font and no request, so that it can be kept and sent as it is.
//!
//! What was not measured is said in words and is never drawn as zero. Text from outside is escaped by the templates.

mod bars;
mod bounds;
#[cfg(test)]
mod browser;
mod by_class;
mod counterfactual;
mod effects;
mod frontier;
mod head;
mod ink;
mod ladder;
mod latency;
mod mechanisms;
mod migration;
mod plot;
mod profile;
#[cfg(test)]
mod sample;
mod simulation;
mod tables;
#[cfg(test)]
mod tests;
mod text;
mod timeline;
mod view;

use maud::{DOCTYPE, PreEscaped, html};

use crate::{report::Report, slo::RunInfo};

/// The page is never larger, however long the run and however much the report holds.
pub const BYTES_MAX: usize = 1 << 20;

/// Renders a report as one page. Of a simulation, nothing of `run` is on it: the same report is the same page.
///
/// Any number of policies, states, gates and stories will do, none included.
pub fn render(report: &Report, run: &RunInfo) -> String {
    let view = view::View::of(report, run);
    // Where there are many policies, the way from one to the next is the story.
    let stepped = view.policies.len() > 2;
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width,initial-scale=1";
                // Nothing is fetched, not even by mistake.
                meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:";
                link rel="icon" href="data:,";
                title { "Mercury · " (text::name(&report.command)) " · " (text::spaced(report.verdict.as_str())) }
                style { (PreEscaped(ink::style_sheet())) (PreEscaped(include_str!("html/report.css"))) }
            }
            body {
                main {
                    (head::head(&view))
                    @if stepped { (ladder::ladder(&view)) }
                    (migration::section(&view))
                    (effects::section(&view))
                    (profile::section(&view))
                    (frontier::section(&view))
                    (counterfactual::section(&view))
                    (simulation::section(&view))
                    @if !(report.states.is_empty() && has_own_section(report)) {
                        (bounds::plot(&view))
                        (tables::figures(&view))
                        (latency::plots(&view))
                        (timeline::plot(&view))
                        // Where slow answers spend their time is not in the model's account.
                        @if !report.is_simulated() { (bars::slow(&view)) }
                        (bars::omissions(&view))
                        (mechanisms::table(&view))
                    }
                    @if !stepped { (ladder::ladder(&view)) }
                    (tables::gates(&view))
                    (tables::classes(&view))
                    @if !(report.states.is_empty() && has_own_section(report)) { (tables::costs(&view)) }
                    @if !report.is_simulated() { (tables::generator(&view)) }
                    footer {
                        "Made from report.json" @if view.run.is_some() { " and run.json, which hold" } @else { ", which holds" }
                        " every figure of this page."
                    }
                }
            }
        }
    };
    page.into_string()
}

/// Whether it shows something else than states, so that there being none says nothing.
const fn has_own_section(report: &Report) -> bool {
    report.migration.is_some()
        || report.effects.is_some()
        || report.profile.is_some()
        || report.knee.is_some()
        || report.frontier.is_some()
        || report.counterfactuals.is_some()
}
