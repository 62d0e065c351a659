//! Profile: what a load profile offered and what was accepted, phase by phase, what its peers met, and the way to a knee. The
//! conditions are the page's gates.

use maud::{Markup, html};

use super::{
    text::{NOT_MEASURED, Unit, clip, more, number},
    view::View,
};
use crate::{
    knee::KneeReport,
    profile::{PhaseReport, ProfileReport},
};

/// Most rows of a table.
const ROWS_MAX: usize = 64;

/// The section; nothing where neither a profile was run nor a knee looked for.
pub(super) fn section(view: &View<'_>) -> Markup {
    html! {
        @if let Some(profile) = &view.report.profile { (of_profile(profile)) }
        @if let Some(knee) = &view.report.knee { (of_knee(knee)) }
    }
}

fn words(unit: Unit, value: Option<f64>) -> String {
    unit.write(value).unwrap_or_else(|| NOT_MEASURED.to_owned())
}

fn of_profile(profile: &ProfileReport) -> Markup {
    html! {
        section {
            h2 { "Profile " (clip(&profile.name)) }
            p { (clip(&profile.about)) }
            @if let Some(stopped) = &profile.stopped { p { "Ended before its time: " (clip(stopped)) "." } }
            (phases(&profile.phases))
            (more(profile.phases.len().saturating_sub(ROWS_MAX), "phases"))
            @if !profile.bodies.is_empty() { (bodies(profile)) }
            @if !profile.retained.is_empty() { (retained(profile)) }
            @if let Some(flood) = &profile.flood {
                p {
                    "Connections: " (flood.scheduled) " scheduled within " (number(flood.offered_for_s)) " s, " (flood.taken) " taken, "
                    (flood.refused) " refused (p99 after " (words(Unit::Ms, flood.refusal_p99_ms)) "), " (flood.not_connected)
                    " not connected, " (flood.unsent) " unsent."
                }
            }
            (memory(profile))
        }
    }
}

fn phases(phases: &[PhaseReport]) -> Markup {
    html! {
        div.wide {
            table.many {
                thead { tr {
                    th { "phase" } th.figure { "offered/s" } th.figure { "accepted/s" } th.figure { "rejected" } th.figure { "deadline" }
                    th.figure { "unavailable" } th.figure { "other" } th.figure { "departed" } th.figure { "attempts" }
                    th.figure { "goodput" } th.figure { "p50" } th.figure { "p99" }
                } }
                tbody {
                    @for phase in phases.iter().take(ROWS_MAX) {
                        tr {
                            th scope="row" {
                                (clip(&phase.name))
                                @if !phase.measured { div.note { "not measured" } }
                            }
                            td.figure { (number(phase.offered_per_s)) }
                            td.figure { (number(phase.accepted_per_s)) }
                            @for count in [phase.rejected, phase.deadline, phase.unavailable, phase.other, phase.departed, phase.attempts] {
                                td.figure { (count) }
                            }
                            td.figure { (words(Unit::Ratio, phase.goodput_ratio)) }
                            td.figure { (words(Unit::Ms, phase.latency_ms.p50)) }
                            td.figure { (words(Unit::Ms, phase.latency_ms.p99)) }
                        }
                    }
                }
            }
        }
    }
}

fn bodies(profile: &ProfileReport) -> Markup {
    html! {
        div.wide {
            table {
                thead { tr { th { "body" } th { "answered with" } th.figure { "so" } th.figure { "slowest" } th { "otherwise" } } }
                tbody {
                    @for case in &profile.bodies {
                        tr {
                            th scope="row" { (case.name) }
                            td { (case.expected) }
                            td.figure { (case.as_documented) " of " (case.sent) }
                            td.figure { (words(Unit::Ms, case.slowest_ms)) }
                            td { @if let Some(other) = &case.other { (clip(other)) } }
                        }
                    }
                }
            }
        }
    }
}

fn retained(profile: &ProfileReport) -> Markup {
    html! {
        div.wide {
            table {
                thead { tr { th { "bytes of a held body" } th.figure { "retained by its request" } th.figure { "least" } th.figure { "most" } th.figure { "weighed" } } }
                tbody {
                    @for one in &profile.retained {
                        tr {
                            th scope="row" { (one.body_bytes) }
                            td.figure { (number(one.bytes_per_request)) }
                            td.figure { (number(one.least)) }
                            td.figure { (number(one.most)) }
                            td.figure { (one.rounds) " × " (one.requests) }
                        }
                    }
                }
            }
        }
    }
}

fn memory(profile: &ProfileReport) -> Markup {
    html! {
        details {
            summary { "Resident memory of each process, MiB" }
            div.wide {
                table {
                    thead { tr { th { "process" } th.figure { "before" } th.figure { "most" } th.figure { "at the end" } } }
                    tbody {
                        @for (name, of) in profile.memory.iter().take(ROWS_MAX) {
                            tr {
                                th scope="row" { (name) }
                                td.figure { (number(of.baseline)) }
                                td.figure { (number(of.peak)) }
                                td.figure { (of.end.map_or_else(|| NOT_MEASURED.to_owned(), number)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn of_knee(knee: &KneeReport) -> Markup {
    let per_s = |rate: Option<f64>| rate.map_or_else(|| NOT_MEASURED.to_owned(), number);
    html! {
        section {
            h2 { "The knee" }
            p {
                "The highest offered rate that held, per second: " (per_s(knee.held_per_s)) "; in time of it: " (per_s(knee.in_time_per_s))
                ". The lowest that broke: " (per_s(knee.broken_per_s)) ". A step of " (number(knee.window_s))
                " s holds with a p99 of at most " (number(knee.bounds.p99_max_ms)) " ms, a goodput of at least "
                (words(Unit::Ratio, Some(knee.bounds.goodput_min_ratio))) " and at most "
                (words(Unit::Ratio, Some(knee.bounds.rejection_max_ratio))) " turned away."
            }
            div.wide {
                table.many {
                    thead { tr {
                        th { "offered/s" } th.figure { "in time/s" } th.figure { "goodput" } th.figure { "rejected" } th.figure { "p50" }
                        th.figure { "p99" } th { "" }
                    } }
                    tbody {
                        @for step in knee.steps.iter().take(ROWS_MAX) {
                            tr {
                                th scope="row" { (number(step.offered_per_s)) }
                                td.figure { (number(step.in_time_per_s)) }
                                td.figure { (words(Unit::Ratio, step.goodput_ratio)) }
                                td.figure { (words(Unit::Ratio, step.rejection_ratio)) }
                                td.figure { (words(Unit::Ms, step.p50_ms)) }
                                td.figure { (words(Unit::Ms, step.p99_ms)) }
                                td {
                                    @if !step.valid { "shows nothing: the generator was late" }
                                    @else if step.broke.is_empty() { "held" }
                                    @else { "broke: " (step.broke.join(", ")) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{knee::KneeStep, profile::Retained, report::Report, slo::RunInfo};

    #[test]
    fn a_profile_and_a_knee_are_on_the_page_and_what_was_not_measured_is_said() {
        let phase = PhaseReport { name: "storm<b>".to_owned(), offered: 70, ..PhaseReport::default() };
        let retained = Retained { body_bytes: 16_384, bytes_per_request: 31_952.0, ..Retained::default() };
        let profile = ProfileReport {
            name: "retry-storm".to_owned(),
            phases: vec![phase],
            retained: vec![retained],
            stopped: Some("memory_growth_mib was 70 after 2.5 s".to_owned()),
            ..ProfileReport::default()
        };
        let step = KneeStep {
            offered_per_s: 321.0,
            valid: true,
            broke: vec!["p99 400 ms".to_owned()],
            ..KneeStep::default()
        };
        let knee = KneeReport { steps: vec![step], ..KneeReport::default() };
        let report = Report { profile: Some(profile), knee: Some(knee), ..Report::default() };
        let page = super::super::render(&report, &RunInfo::new(0, base::Nanos::ZERO, Vec::new()));
        for part in [
            "retry-storm",
            "storm&lt;b&gt;",
            "16384",
            "memory_growth_mib was 70",
            "321",
            "p99 400 ms",
            NOT_MEASURED,
        ] {
            assert!(page.contains(part), "{part}");
        }
        assert!(!page.contains("No state was measured"), "it has phases instead");
    }
}
