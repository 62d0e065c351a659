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
