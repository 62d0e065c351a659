//! Print: the result of a rehearsal for people: what failed or is open first, then before beside after, then the rest.

use std::{fmt::Write as _, path::Path};

use load::table::{NOT_MEASURED, count, grid, ms, percent};

use super::{Rehearsed, RunInfo, STATES};
use crate::{
    gates::{Action, Gate, Kind, Role, evidence::sign},
    report::{Comparison, Mechanism, Report, State},
    verdict::Verdict,
};

/// The whole result.
pub fn render(rehearsed: &Rehearsed, out: &Path) -> String {
    let Rehearsed { report, run } = rehearsed;
    let mut text = format!("\n{}\n", title(report));
    breaches(&mut text, report);
    let _ = writeln!(text, "\n{}", figures(report));
    if let Some(comparison) = &report.comparison {
        let _ = writeln!(text, "\n{}", compared(report, comparison));
    }
    if !report.mechanisms.is_empty() {
        let _ = writeln!(text, "\n{}", mechanisms(&report.mechanisms));
    }
    causes(&mut text, report);
    passed(&mut text, report);
    let _ = writeln!(text, "\n{}", machine(report, run));
    let html = out.join("report.html");
    let _ = writeln!(
        text,
        "\nverdict: {} · evidence in {} · open {}",
        report.verdict,
        out.display(),
        html.display()
    );
    text
}

/// The gates that did not pass, in one sentence; empty when all did.
pub(super) fn why(report: &Report) -> String {
    let named = |verdict: Verdict| {
        let gates = report.gates.iter().filter(|gate| gate.verdict == verdict);
        gates.map(|gate| format!("{} ({})", gate.name, whose(report, gate))).collect::<Vec<_>>().join(", ")
    };
    match report.verdict {
        Verdict::Fail => format!("failed: {}", named(Verdict::Fail)),
        Verdict::Inconclusive => format!("no verdict, open: {}", named(Verdict::Inconclusive)),
        Verdict::Pass | Verdict::NotApplicable => String::new(),
    }
}

fn title(report: &Report) -> String {
    let scale = report.scale.as_ref().map_or_else(String::new, |scale| format!(" · scale {scale}"));
    let slow_motion =
        if report.dilate > 1 { format!(" · slow motion × {}", report.dilate) } else { String::new() };
    let runs = if report.runs > 1 { format!(" · {} runs", report.runs) } else { String::new() };
    format!(
        "{} · {} · scenario {} v{} · seed {} · {:.1} req/s{scale}{slow_motion}{runs}",
        report.command,
        report.workload,
        report.scenario.name,
        report.scenario.version,
        report.seed,
        report.rate_per_s
    )
}

/// What failed, then what is open, each with what it asks for.
fn breaches(text: &mut String, report: &Report) {
    for (verdict, title) in [(Verdict::Fail, "failed"), (Verdict::Inconclusive, "open")] {
        let rows: Vec<_> = report.gates.iter().filter(|gate| gate.verdict == verdict).collect();
        if rows.is_empty() {
            continue;
        }
        let rows = rows.into_iter().map(|gate| {
            let asks = if gate.verdict == Verdict::Fail { gate.action } else { Action::Repeat };
            vec![
                gate.name.to_owned(),
                whose(report, gate),
                figure(gate.observed),
                bound(gate),
                asks.as_str().to_owned(),
                gate.detail.clone(),
            ]
        });
        let header = [title, "of", "observed", "bound", "what it asks for", ""];
        let _ = writeln!(text, "\n{}", left_grid(&header, rows));
    }
    for reason in &report.generator.reasons {
        let _ = writeln!(text, "not valid: {reason}");
    }
}

/// All gates that passed, or that have nothing to judge.
fn passed(text: &mut String, report: &Report) {
    let shown = |kind: Kind, verdict: Verdict| {
        report.gates.iter().filter(move |gate| gate.kind == kind && gate.verdict == verdict)
    };
    // In a comparison, what the policy before misses stands beside what the policy after keeps already.
    let alone = report.policies.len() == 1;
    for (verdict, title) in [(Verdict::Pass, "passed"), (Verdict::NotApplicable, "not judged")] {
        if verdict == Verdict::NotApplicable && !alone {
            continue;
        }
        let gates = shown(Kind::Objective, verdict).chain(shown(Kind::Comparison, verdict));
        let rows: Vec<_> = gates
            .map(|gate| vec![gate.name.to_owned(), whose(report, gate), figure(gate.observed), bound(gate)])
            .collect();
        if !rows.is_empty() {
            let _ = writeln!(text, "\n{}", left_grid(&[title, "of", "observed", "bound"], rows));
        }
    }
    let mut names: Vec<&str> = shown(Kind::Evidence, Verdict::Pass).map(|gate| gate.name).collect();
    names.sort_unstable();
    names.dedup();
    if !names.is_empty() {
        let _ = writeln!(text, "\nevidence that holds: {}", names.join(", "));
    }
}

/// A grid whose texts are all on the left and whose last column may be empty.
fn left_grid(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let table = grid(header, header.len(), rows);
    table.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}

/// Policy and state of a gate.
fn whose(report: &Report, gate: &Gate) -> String {
    let policy = gate.policy.as_deref();
    match (policy, gate.state.as_deref()) {
        (Some(policy), Some(state)) => format!("{policy}, {state}"),
        (Some(policy), None) => policy.to_owned(),
        (None, Some(state)) => state.to_owned(),
        (None, None) => report.policies.iter().map(|one| one.name.as_str()).collect::<Vec<_>>().join(", "),
    }
}

fn figure(value: Option<f64>) -> String {
    value.map_or_else(
        || NOT_MEASURED.to_owned(),
        |value| {
            let text = if value.abs() >= 1_000.0 { format!("{value:.0}") } else { format!("{value:.4}") };
            if text.contains('.') {
                text.trim_end_matches('0').trim_end_matches('.').to_owned()
            } else {
                text
            }
        },
    )
}

fn bound(gate: &Gate) -> String {
    format!("{} {} {}", sign(gate.rule), figure(Some(gate.bound)), gate.unit)
}

type Row = (&'static str, fn(&State) -> String);

/// Figures of a state, one row each.
const ROWS: [Row; 25] = [
    ("offered", |state| count(state.arrivals.scheduled)),
    ("p50 ms", |state| ms(state.latency_ms.p50)),
    ("p99 ms", |state| ms(state.latency_ms.p99)),
    ("p99.9 ms", |state| ms(state.latency_ms.p999)),
    ("goodput", |state| percent(state.core_goodput_ratio)),
    ("after the objective", |state| percent(state.beyond_objective_ratio)),
    ("omitted", |state| percent(state.omission_ratio)),
    ("rejected", |state| percent(state.rejection_ratio)),
    ("failed otherwise", |state| count(failed(state))),
    ("departed", |state| percent(state.departure_ratio)),
    ("wrong answers", |state| count(state.core_mismatch)),
    ("late work", |state| percent(state.late_work.ratio)),
    ("late at once", |state| ms(state.late_work.concurrent)),
    ("queue age p99 ms", |state| ms(state.queue_age_ms.p99)),
    ("endpoint occupancy", |state| percent(state.occupancy_ratio.endpoint)),
    ("profile occupancy", |state| percent(state.occupancy_ratio.profile)),
    ("profile reads/op", |state| ms(state.profile_calls_per_operation)),
    ("attempts/op", |state| ms(state.attempts_per_operation)),
    ("stop after cancel p99 ms", |state| ms(state.cancel_stop_ms.p99)),
    ("slowest 1 %: slot + pool wait ms", |state| {
        format!("{} + {}", ms(state.slow.executor_wait_ms), ms(state.slow.pool_wait_ms))
    }),
    ("slowest 1 %: before + in fan-out ms", |state| {
        format!("{} + {}", ms(state.slow.service_before_fanout_ms), ms(state.slow.fanout_ms))
    }),
    ("CPU/answer ms, home-api, all", |state| {
        format!("{}, {}", ms(state.cpu_ms_per_core_response), ms(state.suite_cpu_ms_per_core_response))
    }),
    ("bytes/answer", |state| ms(state.bytes_per_core_response)),
    ("home-api MiB", |state| ms(state.memory_peak_mib)),
    ("recovery s", recovery),
];

fn failed(state: &State) -> u64 {
    let outcome = |name: &&str| state.outcomes.get(name).copied().unwrap_or(0);
    ["deadline", "unavailable", "error_other", "transport"].iter().map(outcome).sum()
}

fn recovery(state: &State) -> String {
    match (state.recovery_s, state.recovery_at_least_s) {
        (Some(s), _) => figure(Some(s)),
        (None, Some(at_least)) => format!("> {}", figure(Some(at_least))),
        (None, None) if state.state == "recovery" => NOT_MEASURED.to_owned(),
        (None, None) => String::new(),
    }
}

/// Before beside after in each state.
fn figures(report: &Report) -> String {
    let mut header = vec![String::new()];
    let mut columns: Vec<&State> = Vec::new();
    for (name, _) in STATES {
        for policy in &report.policies {
            let found = report.states.iter().find(|one| one.policy == policy.name && one.state == name);
            let Some(state) = found else { continue };
            let part = match (report.policies.len(), policy.role) {
                (1, _) => policy.name.as_str(),
                (_, Role::Before) => "before",
                (_, Role::After) => "after",
            };
            header.push(format!("{name} {part}"));
            columns.push(state);
        }
    }
    let rows = ROWS.iter().map(|(name, value)| {
        let cells = columns.iter().map(|state| value(state));
        std::iter::once((*name).to_owned()).chain(cells).collect()
    });
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    grid(&header, 1, rows)
}

fn compared(report: &Report, comparison: &Comparison) -> String {
    let fold = |value: Option<f64>, at_least: bool| {
        let sign = if at_least { "at least " } else { "" };
        let digits = |value: f64| if value >= 100.0 { count(value as u64) } else { format!("{value:.1}") };
        value.map_or_else(|| NOT_MEASURED.to_owned(), |value| format!("{sign}{} times", digits(value)))
    };
    let recovery = comparison.recovery_fold;
    let after = report.policies.iter().find(|policy| policy.role == Role::After);
    let none_after = report.states.iter().any(|state| {
        after.is_some_and(|after| state.policy == after.name)
            && state.state == "peak"
            && state.late_work.ratio == Some(0.0)
    });
    format!(
        "at peak: p50 {} → {} ms · p99 {} → {} ms, {} less · late work {} less · recovery {} faster",
        ms(comparison.p50_before_ms),
        ms(comparison.p50_after_ms),
        ms(comparison.p99_before_ms),
        ms(comparison.p99_after_ms),
        percent(comparison.p99_reduction_ratio),
        fold(comparison.late_work_fold, none_after),
        fold(recovery.value, recovery.at_least),
    )
}

fn mechanisms(mechanisms: &[Mechanism]) -> String {
    let rows = mechanisms.iter().map(|one| {
        let effect = &one.effect;
        let value = |value: Option<f64>| match effect.unit.as_str() {
            "ratio" => percent(value),
            _ => ms(value),
        };
        let blank = effect.what.is_empty();
        let shown = |value: String| if blank { String::new() } else { value };
        vec![
            one.name.clone(),
            one.verdict.as_str().replace('_', " "),
            effect.what.clone(),
            shown(value(effect.without)),
            shown(value(effect.with)),
            one.detail.clone(),
        ]
    });
    left_grid(&["alone, at peak", "verdict", "its measure", "without", "with", ""], rows)
}

/// What was omitted and what failed, by cause.
fn causes(text: &mut String, report: &Report) {
    let mut lines = String::new();
    for state in &report.states {
        let omitted = state.omissions.iter().flat_map(|(section, causes)| {
            causes.iter().map(move |(cause, n)| format!("{section} {cause} {}", count(*n)))
        });
        let failed = state.failures.iter().map(|(kind, n)| format!("{kind} {}", count(*n)));
        let causes: Vec<String> = omitted.chain(failed).collect();
        if !causes.is_empty() {
            let _ = writeln!(lines, "{} {}: {}", state.policy, state.state, causes.join(" · "));
        }
    }
    if !lines.is_empty() {
        let _ = write!(text, "\n{lines}");
    }
}

fn machine(report: &Report, run: &RunInfo) -> String {
    let cpu = run.runs.iter().filter_map(|suite| {
        let busiest = suite.stages.iter().filter_map(|stage| stage.cpu_ratio).reduce(f64::max)?;
        Some(format!("{} {}", suite.name, percent(Some(busiest))))
    });
    let cpu: Vec<String> = cpu.collect();
    let rss: Vec<String> =
        run.rss_peaks().into_iter().map(|(name, mib)| format!("{name} {mib:.0}")).collect();
    let generator = &report.generator;
    let peak = run.runs.iter().map(|suite| suite.generator.in_flight_peak).max().unwrap_or(0);
    let after = report.policies.iter().map(|policy| {
        let left = &policy.after_run;
        format!(
            "{} {} permits, {} flights, {} exposures replayed, {} conflicting",
            policy.name,
            figure(left.permits_held),
            figure(left.flights_open),
            figure(left.effects_replayed),
            figure(left.effects_conflicting)
        )
    });
    let after: Vec<String> = after.collect();
    format!(
        "left behind: {}\nCPU of {} cores at most: {}\nresident at most, MiB: {}\n\
         generator: clock error p99 {} ms, emulator's timers p99 {} ms (model time, bound 3 ms) · in flight at most {}",
        after.join(" · "),
        run.machine.cores,
        cpu.join(", "),
        rss.join(", "),
        ms(generator.clock_error_ms.p99),
        ms(generator.emulator_timer_ms.p99),
        count(peak as u64),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gates::{self, example};

    fn judged(doctor: impl FnOnce(&mut Report)) -> Report {
        let mut report = example::report();
        doctor(&mut report);
        report.gates = gates::judge(&report);
        report.verdict = gates::verdict(&report.gates);
        report
    }

    #[test]
    fn the_sentence_names_each_gate_with_its_policy_and_state() {
        assert_eq!(why(&judged(|_| ())), "");
        let failed = judged(|report| report.states[4].latency_ms.p99 = Some(310.0));
        assert!(why(&failed).contains("p99 (policy, slowdown)"), "{}", why(&failed));
        let open = judged(|report| report.policies[1].generator.emulator_timer_ms.p99 = None);
        assert_eq!(why(&open), "no verdict, open: emulator_timer (policy)");
    }

    #[test]
    fn what_failed_comes_before_everything_that_passed() {
        let report = judged(|report| report.states[3].late_work.ratio = Some(0.5));
        let mut text = String::new();
        breaches(&mut text, &report);
        let failed = text.lines().find(|line| line.trim_start().starts_with("late_work ")).expect("listed");
        assert!(
            failed.contains("0.5") && failed.contains("≤ 0.02 ratio") && failed.contains("hold"),
            "{failed}"
        );
        let mut rest = String::new();
        passed(&mut rest, &report);
        let all = text + &rest;
        assert!(report.gates.iter().all(|gate| all.contains(gate.name)), "{all}");
    }

    #[test]
    fn before_stands_beside_after_and_an_unfinished_recovery_is_no_number() {
        let report = judged(|report| {
            report.states[2].recovery_s = None;
            report.states[2].recovery_at_least_s = Some(30.0);
        });
        let text = figures(&report);
        let header = text.lines().next().expect("a header");
        let places: Vec<_> = ["peak before", "peak after", "slowdown before", "recovery after"]
            .map(|column| header.find(column))
            .into_iter()
            .collect();
        assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{header}");
        let recovery = text.lines().find(|line| line.contains("recovery s")).expect("a row");
        assert!(recovery.contains("> 30") && recovery.trim_end().ends_with('3'), "{recovery}");
    }

    #[test]
    fn numbers_have_as_many_digits_as_they_need() {
        for (value, text) in [(0.0, "0"), (12.0, "12"), (0.0219, "0.0219"), (1_928.4, "1928"), (100.0, "100")]
        {
            assert_eq!(figure(Some(value)), text);
        }
        assert_eq!(figure(None), NOT_MEASURED);
    }
}
