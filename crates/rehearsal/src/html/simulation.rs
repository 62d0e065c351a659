//! Simulation: the study's figures beside ours with the reason for each difference, what the runs spread over, and what was used.

use maud::{Markup, html};

use super::{text, text::Unit, view::View};
use crate::simulate::{Extremes, ReferenceRow};

/// The section; nothing when nothing was simulated.
pub(super) fn section(view: &View<'_>) -> Markup {
    let Some(section) = &view.report.simulation else { return html! {} };
    html! {
        section {
            h2 { "The region" }
            p {
                "Region " (text::name(&section.region)) ", version " (section.version) ": " (section.domains)
                " admission domains, " (view.report.runs) " of " (section.runs_wanted) " runs of " (section.window_s)
                " s after " (section.warm_up_s) " s. " (section.requests) " requests, " (section.requests_measured)
                " of them measured."
            }
            @for used in section.use_of.iter().filter(|used| used.overloaded) {
                p.note {
                    (used.policy) ", " (used.state)
                    ": more arrives than can be carried. What is shown is the overload, not a steady state."
                }
            }
            @if !section.references.is_empty() {
                h3 { "Beside the case study" }
                div.wide {
                    table {
                        thead {
                            tr {
                                th { "policy" } th { "state" } th { "figure" } th.figure { "study" }
                                th.figure { "ours" } th.figure { "off" } th { "why" }
                            }
                        }
                        tbody {
                            @for row in &section.references {
                                tr {
                                    td { (row.policy) } td { (row.state) } th scope="row" { (row.figure) }
                                    td.figure { (row.study) } td.figure { (ours(row)) } td.figure { (off(row)) }
                                    td { (row.explanation) }
                                }
                            }
                        }
                    }
                }
            }
            @if view.report.runs > 1 {
                h3 { "Run by run" }
                p.note { "Least, middle and most of the runs. Every other figure of this page is one of all their observations." }
                div.wide {
                    table {
                        thead {
                            tr {
                                th { "policy" } th { "state" } th.figure { "p50" } th.figure { "p99" }
                                th.figure { "goodput" } th.figure { "omitted" } th.figure { "recovery, s" }
                            }
                        }
                        tbody {
                            @for one in &section.dispersion {
                                tr {
                                    td { (one.policy) } td { (one.state) }
                                    td.figure { (spread(one.p50_ms, Unit::Ms)) }
                                    td.figure { (spread(one.p99_ms, Unit::Ms)) }
                                    td.figure { (spread(one.goodput_ratio, Unit::Ratio)) }
                                    td.figure { (spread(one.omission_ratio, Unit::Ratio)) }
                                    td.figure { (seconds(one.recovery_s)) }
                                }
                            }
                        }
                    }
                }
            }
            h3 { "What was used" }
            div.wide {
                table {
                    thead {
                        tr {
                            th { "policy" } th { "state" } th.figure { "CPU" } th.figure { "slot held" }
                            th.figure { "connection held" } th.figure { "shares of the domains" } th { "servers" }
                        }
                    }
                    tbody {
                        @for used in &section.use_of {
                            tr {
                                td { (used.policy) } td { (used.state) }
                                td.figure { (shown(used.cpu_ratio, Unit::Ratio)) }
                                td.figure { (shown(used.slot_held_ms, Unit::Ms)) }
                                td.figure { (shown(used.connection_held_ms, Unit::Ms)) }
                                td.figure {
                                    (used.domain_shares.iter().map(|share| shown(Some(*share), Unit::Ratio)).collect::<Vec<_>>().join(" "))
                                }
                                td {
                                    (used.servers_ratio.iter().map(|(name, ratio)| format!("{name} {}", shown(Some(*ratio), Unit::Ratio))).collect::<Vec<_>>().join(", "))
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn ours(row: &ReferenceRow) -> String {
    let least = if row.at_least { "≥ " } else { "" };
    row.ours.map_or_else(|| "–".to_owned(), |ours| format!("{least}{ours:.2}"))
}

fn off(row: &ReferenceRow) -> String {
    row.difference_ratio.map_or_else(|| "–".to_owned(), |off| format!("{:+.1} %", off * 100.0))
}

fn shown(value: Option<f64>, unit: Unit) -> String {
    unit.write(value).unwrap_or_else(|| "–".to_owned())
}

fn spread(extremes: Extremes, unit: Unit) -> String {
    [extremes.min, extremes.median, extremes.max].map(|value| shown(value, unit)).join(" · ")
}

fn seconds(extremes: Extremes) -> String {
    let value = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), |s| format!("{s:.0}"));
    [extremes.min, extremes.median, extremes.max].map(value).join(" · ")
}
