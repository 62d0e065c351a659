//! Print: the result of a rehearsal for people.

use std::{fmt::Write as _, path::Path};

use base::WorkloadClass;
use load::table::{NOT_MEASURED, count, grid, ms, percent};

use super::Rehearsed;
use crate::{
    gates::Gate,
    report::{Report, State},
    slo::RunInfo,
};

/// The whole result.
pub fn render(rehearsed: &Rehearsed, out: &Path) -> String {
    let Rehearsed { report, run } = rehearsed;
    let scale = report.scale.as_ref().map_or_else(String::new, |scale| format!(" · scale {scale}"));
    let mut text = format!(
        "\n{} · {} · scenario {} v{} · seed {} · {:.1} req/s{scale}\n\n",
        report.command,
        report.workload,
        report.scenario.name,
        report.scenario.version,
        report.seed,
        report.rate_per_s
    );
    let _ = writeln!(text, "{}\n", states(report));
    if let Some(lines) = omissions(report) {
        let _ = writeln!(text, "{lines}");
    }
    let _ = writeln!(text, "{}\n", gates(&report.gates));
    let _ = writeln!(text, "{}", machine(run));
    for reason in &report.generator.reasons {
        let _ = writeln!(text, "invalid: {reason}");
    }
    let _ = writeln!(text, "\nverdict: {} · evidence in {}", report.verdict, out.display());
    text
}

fn states(report: &Report) -> String {
    let header = [
        "policy", "state", "class", "offered", "p50 ms", "p99 ms", "p99.9 ms", "goodput", "omitted",
        "rejected", "failed", "departed", "mismatch",
    ];
    let mut rows = Vec::new();
    for state in &report.states {
        rows.push(state_row(state));
        let classes =
            WorkloadClass::ALL.iter().filter_map(|class| state.classes.get_key_value(class.as_str()));
        rows.extend(classes.map(|(name, class)| {
            let latency = &class.latency_ms;
            let blank = String::new;
            let share = percent(class.share);
            vec![
                blank(),
                blank(),
                (*name).to_owned(),
                share,
                ms(latency.p50),
                ms(latency.p99),
                ms(latency.p999),
                percent(class.core_goodput_ratio),
                percent(class.omission_ratio),
                percent(class.rejection_ratio),
                blank(),
                blank(),
                blank(),
            ]
        }));
    }
    grid(&header, 3, rows)
}

fn state_row(state: &State) -> Vec<String> {
    let latency = &state.latency_ms;
    let outcome = |name: &str| state.outcomes.get(name).copied().unwrap_or(0);
    let failed = ["rejected", "deadline", "unavailable", "error_other", "transport"].map(outcome);
    vec![
        state.policy.clone(),
        state.state.clone(),
        "all".to_owned(),
        count(state.arrivals.scheduled),
        ms(latency.p50),
        ms(latency.p99),
        ms(latency.p999),
        percent(state.core_goodput_ratio),
        percent(state.omission_ratio),
        percent(state.rejection_ratio),
        count(failed.iter().sum()),
        count(outcome("departed")),
        count(state.core_mismatch),
    ]
}

/// What was omitted and what failed, by cause; `None` when nothing was.
fn omissions(report: &Report) -> Option<String> {
    let mut text = String::new();
    for state in &report.states {
        let omitted = state.omissions.iter().flat_map(|(section, causes)| {
            causes.iter().map(move |(cause, n)| format!("{section} {cause} {}", count(*n)))
        });
        let failed = state.failures.iter().map(|(kind, n)| format!("{kind} {}", count(*n)));
        let causes: Vec<String> = omitted.chain(failed).collect();
        if !causes.is_empty() {
            let _ = writeln!(text, "{:<12}{}", state.state, causes.join(" · "));
        }
    }
    (!text.is_empty()).then_some(text)
}

fn gates(gates: &[Gate]) -> String {
    let figure = |value: Option<f64>| {
        value.map_or_else(
            || NOT_MEASURED.to_owned(),
            |value| {
                let text = format!("{value:.4}");
                text.trim_end_matches('0').trim_end_matches('.').to_owned()
            },
        )
    };
    let rows = gates.iter().map(|gate| {
        vec![
            gate.name.to_owned(),
            gate.verdict.as_str().replace('_', " "),
            figure(gate.observed),
            figure(Some(gate.bound)),
            gate.unit.to_owned(),
        ]
    });
    grid(&["gate", "verdict", "observed", "bound", "unit"], 2, rows)
}

fn machine(run: &RunInfo) -> String {
    let cpu = run.stages.iter().map(|stage| format!("{} {}", stage.name, percent(stage.cpu_ratio)));
    let cpu: Vec<String> = cpu.collect();
    let rss: Vec<String> =
        run.rss_peaks().into_iter().map(|(name, mib)| format!("{name} {mib:.1}")).collect();
    let error = &run.generator.clock_error_ms;
    format!(
        "suite ready in {:.0} ms · CPU of {} cores: {}\nresident at most, MiB: {}\n\
         generator: clock error p50 {} p99 {} max {} ms · nice {} · in flight at most {} of {}",
        run.suite_start_ms,
        run.machine.cores,
        cpu.join(", "),
        rss.join(", "),
        ms(error.p50),
        ms(error.p99),
        ms(error.max),
        run.generator.schedule_priority.nice,
        run.generator.in_flight_peak,
        run.generator.in_flight_max,
    )
}
