//! Counterfactual: every switch as its question, what was expected, what the figures say, and the figures.

use maud::{Markup, html};

use super::{text::Unit, view::View};
use crate::counterfactual::Figure;

/// The section; nothing when no switch was thrown.
pub(super) fn section(view: &View<'_>) -> Markup {
    let Some(section) = &view.report.counterfactuals else { return html! {} };
    html! {
        section {
            h2 { "What would have been" }
            @for switch in &section.switches {
                h3 { (switch.name) ": " (switch.verdict.as_str()) }
                p { (switch.question) " Expected: " (switch.expected) "." }
                p { (switch.text) "." }
                p.note { (switch.rule) }
                @if !switch.figures.is_empty() {
                    div.wide {
                        table {
                            thead { tr { th { "figure" } th.figure { "without" } th.figure { "with" } } }
                            tbody {
                                @for figure in &switch.figures {
                                    tr {
                                        th scope="row" { (figure.what) }
                                        td.figure { (shown(figure, figure.without)) }
                                        td.figure { (shown(figure, figure.with)) }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn shown(figure: &Figure, value: Option<f64>) -> String {
    let text = match figure.unit {
        "ratio" => Unit::Ratio.write(value),
        "ms" => Unit::Ms.write(value),
        unit => value.map(|value| format!("{value:.3} {unit}")),
    };
    text.unwrap_or_else(|| "–".to_owned())
}

#[cfg(test)]
mod tests {
    use crate::{
        counterfactual::{CounterfactualReport, Figure, SwitchReport},
        html::{render, sample},
        report::Report,
    };

    #[test]
    fn switches_are_told_with_their_figures_and_what_is_missing_is_no_zero() {
        let figure = |unit, without, with| Figure { what: "a figure".to_owned(), unit, without, with };
        let switch = SwitchReport {
            name: "hosts",
            question: "Why?",
            expected: "hardly",
            text: "<i>nothing</i> moved".to_owned(),
            figures: vec![figure("ms", Some(487.0), None), figure("reads", Some(0.839), Some(0.84))],
            ..SwitchReport::default()
        };
        let section = CounterfactualReport { switches: vec![switch], ..CounterfactualReport::default() };
        let report = Report { counterfactuals: Some(section), ..Report::default() };
        let page = render(&report, &sample::run()).replace('\u{a0}', " ");
        for text in
            ["hosts: inconclusive", "Expected: hardly.", "487 ms", "0.839 reads", "–", "&lt;i&gt;nothing"]
        {
            assert!(page.contains(text), "{text}");
        }
        assert!(!render(&Report::default(), &sample::run()).contains("What would have been"));
    }
}
