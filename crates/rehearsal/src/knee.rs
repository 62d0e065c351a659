//! Knee: `mercury load --find-knee`, the offered rate at which the objective breaks.
//!
//! One suite, one window a step, each step at a rate of its own and with operations of its own: more and more by a fixed
//! factor until a step breaks, then halves between the last that held and the first that broke. The knee is between those two.
//! A step in which the generator or the emulator was itself the bottleneck shows nothing, and ends the search without a verdict.

mod search;

use std::{
    fmt::Write as _,
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use base::{Clock, Nanos, Origin, WallClock, clock::MonotonicClock, clock::SystemWallClock};
use load::{
    LoadError, Plan, Rate, StagePlan, Stop,
    table::{grid, ms, percent},
};
use model::{Scale, policy::Policy, workload::Workload};
use serde::Serialize;

use crate::{
    control::Control,
    evidence,
    gates::{self, Gate},
    measure::start_generator,
    report::{self, Report},
    screen::{Screen, clock},
    slo::{Conclusion, Output, RehearsalError, RunInfo},
    suite::{Member, OnChildExit, Suite, SuiteOptions},
    up::Signals,
    verdict::Verdict,
};

use search::{Next, next};

/// Least goodput of a step that holds.
const GOODPUT_MIN: f64 = 0.95;
/// Most that a step that holds may turn away. A small system turns some away in every wave, at any rate.
const REJECTION_MAX: f64 = 0.05;
/// Time at the rate of a step before its window begins.
const WARM_UP: Nanos = Nanos::from_secs(2);
/// Operations that may still be under way between two steps are waited for so long.
const DRAIN: Nanos = Nanos::from_secs(2);

/// What is looked for, and where.
#[derive(Clone, Debug)]
pub struct KneeOptions {
    /// Size of the system.
    pub scale: Scale,
    /// How long each step is watched.
    pub window: Nanos,
    /// Seed of arrivals, data and draws.
    pub seed: u64,
    /// Where the evidence is written.
    pub out: PathBuf,
    /// What is printed.
    pub output: Output,
    /// Policy file; `None` is the shipped one.
    pub policy: Option<PathBuf>,
    /// The `mercury` binary; `None` is the one that runs.
    pub executable: Option<PathBuf>,
}

/// What was found.
#[derive(Clone, Debug, Default, Serialize)]
pub struct KneeReport {
    /// The highest offered rate that held, per second; null when none did.
    pub held_per_s: Option<f64>,
    /// Correct answers within the objective at that rate, per second.
    pub in_time_per_s: Option<f64>,
    /// The lowest offered rate that broke; null when none did.
    pub broken_per_s: Option<f64>,
    /// What broke there.
    pub because: Vec<String>,
    /// What a step that holds keeps to.
    pub bounds: KneeBounds,
    /// Length of a step.
    pub window_s: f64,
    /// Every step, in the order in which they were taken.
    pub steps: Vec<KneeStep>,
}

/// What a step that holds keeps to.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct KneeBounds {
    /// 99th percentile of the latency: the objective.
    pub p99_max_ms: f64,
    /// Goodput.
    pub goodput_min_ratio: f64,
    /// Share that is turned away.
    pub rejection_max_ratio: f64,
}

/// One step.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct KneeStep {
    /// In percent of the workload's rate at this scale.
    pub rate_percent: u32,
    /// What was offered, per second.
    pub offered_per_s: f64,
    /// What was answered correctly, per second.
    pub accepted_per_s: f64,
    /// What was answered correctly within the objective, per second.
    pub in_time_per_s: f64,
    /// Median latency.
    pub p50_ms: Option<f64>,
    /// 99th percentile of it.
    pub p99_ms: Option<f64>,
    /// Correct within the objective over offered whose caller stayed.
    pub goodput_ratio: Option<f64>,
    /// Turned away over offered.
    pub rejection_ratio: Option<f64>,
    /// 99th percentile of the lateness of the emulator's timers up to the end of the step.
    pub emulator_timer_ms: Option<f64>,
    /// Whether the generator and the emulator kept time; otherwise the step shows nothing.
    pub valid: bool,
    /// What broke; empty when the step held.
    pub broke: Vec<String>,
}

/// Looks, writes the evidence, prints the result and says how it ended.
///
/// # Errors
/// [`RehearsalError`] when there is no evidence.
pub async fn find(options: KneeOptions) -> Result<Conclusion, RehearsalError> {
    let started_unix_ms = SystemWallClock.unix_ms();
    let began = MonotonicClock.now();
    let policy = policy(options.policy.as_deref())?;
    plan(&options, &policy, 100, 0).check().map_err(RehearsalError::Load)?;
    let mut signals = Signals::new().map_err(|error| RehearsalError::Io { path: "signals".into(), error })?;
    let screen = Screen::new(options.output == Output::Human);
    let step = WARM_UP + options.window + DRAIN;
    if options.output == Output::Human {
        let steps = clock(step.times(search::STEPS_MAX as u32));
        let _ = writeln!(io::stderr().lock(), "scale {} · at most {steps}", options.scale);
    }
    screen.expect(step.times(search::STEPS_MAX as u32));
    let found = search(&options, &policy, &screen, &mut signals).await;
    screen.clear();
    let (steps, why) = found?;
    let report = report_of(&options, &policy, steps);
    let run = RunInfo::new(started_unix_ms, MonotonicClock.now() - began, Vec::new());
    evidence::write(&options.out, &report, &run)?;
    let text = match (options.output, &report.knee) {
        (Output::Human, Some(knee)) => render(knee, report.verdict, &options.out),
        _ => evidence::json(&report),
    };
    // A reader that went away has the files.
    let _ = io::stdout().lock().write_all(text.as_bytes());
    Ok(Conclusion { verdict: report.verdict, why: why.unwrap_or_default() })
}

/// Steps until the knee is between two of them; why not, where it is not.
async fn search(
    options: &KneeOptions,
    policy: &Policy,
    screen: &Screen,
    signals: &mut Signals,
) -> Result<(Vec<KneeStep>, Option<String>), RehearsalError> {
    let start = Suite::start(suite(options), |_| {});
    let mut suite = tokio::select! {
        // An interrupted start is given up; dropping it ends what was started.
        biased;
        () = signals.next() => return Err(RehearsalError::Interrupted),
        suite = start => suite.map_err(RehearsalError::Launch)?,
    };
    let mut steps: Vec<KneeStep> = Vec::new();
    let result = loop {
        let rate_percent = match next(&steps) {
            Next::Offer(rate_percent) => rate_percent,
            Next::Found => break Ok(None),
            Next::Nothing(why) => break Ok(Some(why)),
        };
        screen.say(format!("step {}: {rate_percent} %", steps.len() + 1));
        match step(options, policy, &mut suite, signals, rate_percent, steps.len()).await {
            Ok(step) => steps.push(step),
            Err(error) => break Err(error),
        }
        screen.at((WARM_UP + options.window + DRAIN).times(steps.len() as u32));
    };
    suite.stop().await;
    Ok((steps, result?))
}

async fn step(
    options: &KneeOptions,
    policy: &Policy,
    suite: &mut Suite,
    signals: &mut Signals,
    rate_percent: u32,
    number: usize,
) -> Result<KneeStep, RehearsalError> {
    let mut plan = plan(options, policy, rate_percent, number);
    let home = suite.endpoints().get(Member::HOME_API).and_then(|home| home.main());
    plan.target = home.unwrap_or_default().to_owned();
    let stop = Stop::default();
    let (mut generator, mut reports, mut ended) = start_generator(plan, &stop)?;
    let result = loop {
        tokio::select! {
            // What spoils the step comes first.
            biased;
            () = signals.next() => break Err(RehearsalError::Interrupted),
            exit = suite.exited() => break Err(RehearsalError::Died(Box::new(exit))),
            result = &mut ended => {
                break result.unwrap_or(Err(LoadError::Panicked("load"))).map_err(RehearsalError::Load);
            }
            // Its steps are short; nobody looks on, and it must not wait for a reader.
            Some(_) = reports.recv() => {}
        }
    };
    stop.set();
    drop(reports);
    if let Some(thread) = generator.take() {
        // It ends within its drain once it is stopped.
        let _ = thread.join();
    }
    let result = result?;
    let control = suite.endpoints().get(Member::Emulator).and_then(|one| one.control.clone());
    let mut control = Control::new(&control.unwrap_or_default()).map_err(RehearsalError::Control)?;
    let timers = control.stats().await.map_err(RehearsalError::Control)?.timer_p99_ms;
    Ok(judged(rate_percent, &result, timers, bounds(policy)))
}

fn bounds(policy: &Policy) -> KneeBounds {
    KneeBounds {
        p99_max_ms: policy.objective.as_millis_f64(),
        goodput_min_ratio: GOODPUT_MIN,
        rejection_max_ratio: REJECTION_MAX,
    }
}

/// A step whose latencies the emulator's own lateness may have made shows nothing, and neither does one without its timers.
fn kept_time(generator_valid: bool, emulator_timer_ms: Option<f64>) -> bool {
    generator_valid
        && emulator_timer_ms.is_some_and(|late| late <= gates::evidence::TIMER_LATENESS_P99_MAX_MS)
}

fn judged(
    rate_percent: u32,
    load: &load::Report,
    emulator_timer_ms: Option<f64>,
    bounds: KneeBounds,
) -> KneeStep {
    let total = &load.total;
    let per_s = |count: u64| if total.duration_s > 0.0 { count as f64 / total.duration_s } else { 0.0 };
    let all = &total.all;
    let mut broke = Vec::new();
    let mut holds = |held: Option<bool>, what: String| {
        // What was not measured has not held.
        if held != Some(true) {
            broke.push(what);
        }
    };
    let p99 = all.latency_ms.p99;
    holds(p99.map(|p99| p99 <= bounds.p99_max_ms), format!("p99 {} ms", ms(p99)));
    let goodput = all.core_goodput_ratio;
    holds(goodput.map(|share| share >= bounds.goodput_min_ratio), format!("goodput {}", percent(goodput)));
    let rejection = all.rejection_ratio;
    holds(
        rejection.map(|share| share <= bounds.rejection_max_ratio),
        format!("rejected {}", percent(rejection)),
    );
    KneeStep {
        rate_percent,
        offered_per_s: per_s(all.scheduled),
        accepted_per_s: per_s(all.completed.correct()),
        in_time_per_s: per_s(all.within_objective),
        p50_ms: all.latency_ms.p50,
        p99_ms: p99,
        goodput_ratio: goodput,
        rejection_ratio: rejection,
        emulator_timer_ms,
        valid: kept_time(load.generator.valid, emulator_timer_ms),
        broke,
    }
}

fn policy(path: Option<&Path>) -> Result<Policy, RehearsalError> {
    let (name, text) = match path {
        Some(path) => {
            let text = fs::read_to_string(path)
                .map_err(|error| RehearsalError::Usage(format!("cannot read {}: {error}", path.display())))?;
            (path.display().to_string(), text)
        }
        None => (model::policy::SHIPPED.0.to_owned(), model::policy::SHIPPED.1.to_owned()),
    };
    Policy::parse(&name, &text).map_err(|faults| RehearsalError::Files(vec![faults]))
}

fn plan(options: &KneeOptions, policy: &Policy, rate_percent: u32, number: usize) -> Plan {
    let rate = Rate::Scale(options.scale);
    Plan {
        seed: options.seed.wrapping_add(number as u64),
        stages: vec![
            StagePlan::warm_up("warm-up", WARM_UP).at_percent(rate_percent),
            StagePlan::measured("step", options.window).at_percent(rate_percent),
        ],
        objective: policy.objective,
        origin: Origin::Customer,
        id_prefix: format!("knee-{number}"),
        connections: 4,
        drain: DRAIN,
        ..Plan::new("", Workload::shipped(), rate, options.window)
    }
}

fn suite(options: &KneeOptions) -> SuiteOptions {
    SuiteOptions {
        executable: options.executable.clone(),
        policy: options.policy.clone(),
        seed: options.seed,
        scale: options.scale,
        on_child_exit: OnChildExit::Stop,
        fresh_ledger: true,
        ..SuiteOptions::new(options.out.join("state"))
    }
}

fn report_of(options: &KneeOptions, policy: &Policy, steps: Vec<KneeStep>) -> Report {
    let bracket = search::bracket(&steps);
    let knee = KneeReport {
        held_per_s: bracket.held.map(|step| step.offered_per_s),
        in_time_per_s: bracket.held.map(|step| step.in_time_per_s),
        broken_per_s: bracket.broken.map(|step| step.offered_per_s),
        because: bracket.broken.map(|step| step.broke.clone()).unwrap_or_default(),
        bounds: bounds(policy),
        window_s: options.window.as_secs_f64(),
        steps: steps.clone(),
    };
    let apart = bracket.held.zip(bracket.broken);
    let apart_max = search::apart_max(bracket.held.map_or(100, |held| held.rate_percent));
    let apart = apart.map(|(held, broken)| f64::from(broken.rate_percent) / f64::from(held.rate_percent));
    let invalid = search::invalid_in_a_row(&steps);
    let gates = vec![
        Gate::at_most("generator_bottleneck", "steps", Some(invalid as f64), 0.0).doubt().saying(
            "steps at the end in which the generator or the emulator was late; an earlier one was made again",
        ),
        Gate::at_most("knee_bracket", "ratio", apart, apart_max)
            .doubt()
            .saying("the lowest rate that broke over the highest that held"),
    ];
    Report {
        schema: report::SCHEMA,
        command: "load --find-knee".to_owned(),
        seed: options.seed,
        runs: 1,
        verdict: gates::verdict(&gates),
        workload: Workload::shipped().name,
        scenario: (&model::scenario::Scenario::shipped()).into(),
        scale: Some(options.scale.to_string()),
        rate_per_s: plan(options, policy, 100, 0).declared_per_s(),
        dilate: 1,
        histogram: load::HISTOGRAM_SCHEME,
        tolerance: "Latency counts from the intended start. A step holds when all of its bounds do."
            .to_owned(),
        gates,
        knee: Some(knee),
        ..Report::default()
    }
}

const HEADER: [&str; 8] = ["%", "offered/s", "in time/s", "goodput", "rejected", "p50 ms", "p99 ms", ""];

fn render(knee: &KneeReport, verdict: Verdict, out: &Path) -> String {
    let rows = knee.steps.iter().map(|step| {
        let held = match (step.valid, step.broke.is_empty()) {
            (false, _) => "shows nothing: the generator or the emulator was late".to_owned(),
            (true, true) => "held".to_owned(),
            (true, false) => format!("broke: {}", step.broke.join(", ")),
        };
        vec![
            step.rate_percent.to_string(),
            format!("{:.0}", step.offered_per_s),
            format!("{:.0}", step.in_time_per_s),
            percent(step.goodput_ratio),
            percent(step.rejection_ratio),
            ms(step.p50_ms),
            ms(step.p99_ms),
            held,
        ]
    });
    let table = grid(&HEADER, 7, rows);
    let mut text = String::from("\n");
    for line in table.lines() {
        let _ = writeln!(text, "{}", line.trim_end());
    }
    let per_s = |rate: Option<f64>| rate.map_or_else(|| "–".to_owned(), |rate| format!("{rate:.0}/s"));
    let _ = writeln!(
        text,
        "\nthe knee: {} held ({} of them in time), {} did not: {}\nverdict: {verdict} · evidence in {}",
        per_s(knee.held_per_s),
        per_s(knee.in_time_per_s),
        per_s(knee.broken_per_s),
        if knee.because.is_empty() { "–".to_owned() } else { knee.because.join(", ") },
        out.display()
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_has_both_sides_of_the_knee_and_is_no_verdict_without_them() {
        let options = KneeOptions {
            scale: Scale::ONE,
            window: Nanos::from_secs(5),
            seed: 1,
            out: "out".into(),
            output: Output::Human,
            policy: None,
            executable: None,
        };
        let policy = policy(None).expect("shipped");
        let step = |rate_percent: u32, broke: &[&str]| KneeStep {
            rate_percent,
            offered_per_s: f64::from(rate_percent),
            in_time_per_s: f64::from(rate_percent) * 0.8,
            valid: true,
            broke: broke.iter().map(|text| (*text).to_owned()).collect(),
            ..KneeStep::default()
        };
        let found = report_of(&options, &policy, vec![step(100, &[]), step(105, &["p99 400 ms"])]);
        assert_eq!(found.verdict, Verdict::Pass);
        let knee = found.knee.expect("a knee");
        assert_eq!(
            (knee.held_per_s, knee.in_time_per_s, knee.broken_per_s),
            (Some(100.0), Some(80.0), Some(105.0))
        );
        let text = render(&knee, Verdict::Pass, Path::new("out"));
        assert!(text.contains("100/s held") && text.contains("p99 400 ms"), "{text}");
        assert_eq!(report_of(&options, &policy, vec![step(100, &[])]).verdict, Verdict::Inconclusive);
        // Two sides that are one percent apart are as close as sides can be, however low the rate.
        let low = report_of(&options, &policy, vec![step(5, &[]), step(6, &["p99 400 ms"])]);
        assert_eq!(low.verdict, Verdict::Pass, "{:?}", low.gates);
        let wide = report_of(&options, &policy, vec![step(50, &[]), step(55, &["p99 400 ms"])]);
        assert_eq!(wide.verdict, Verdict::Inconclusive);
        assert!(kept_time(true, Some(3.0)) && !kept_time(false, Some(1.0)));
        assert!(!kept_time(true, Some(3.1)) && !kept_time(true, None), "a late emulator shows nothing");
        let late = KneeStep { valid: false, ..step(105, &["p99 400 ms"]) };
        let report = report_of(&options, &policy, vec![step(100, &[]), late]);
        assert_eq!(report.verdict, Verdict::Inconclusive, "the generator was the bottleneck");
        plan(&options, &policy, 130, 3).check().expect("possible");
    }
}
