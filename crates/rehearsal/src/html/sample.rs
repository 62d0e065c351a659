//! Sample: made-up reports for the tests of the page: a full one, a sparse one, a rollout, and one beyond all bounds. Made
//! of the same pieces as real ones, so that a new field is seen here first.

use std::collections::BTreeMap;

use load::{LatencyMs, Priority};

use crate::{
    gates::{
        Action, Gate, Kind, Rule,
        objective::{GOODPUT, LATE_WORK, OMISSION, P99_MS, PROFILE_OCCUPANCY, QUEUE_AGE_MS, RECOVERY_S},
    },
    report::{
        AfterRun, Arrivals, Bucket, CancelStop, Class, Comparison, Effect, Generator, LateWork, Mechanism,
        Occupancy, PolicyRef, Quantiles, QueueAge, RecoveryFold, Report, Scenario, ScenarioRef, Slow, State,
        TimelinePoint,
    },
    slo::{GeneratorInfo, RunInfo, StageInfo, SuiteRun},
    usage::Machine,
    verdict::Verdict,
};

/// How one state of one policy went.
struct Shape {
    policy: &'static str,
    state: &'static str,
    median_ms: f64,
    sigma: f64,
    /// Share and median of the slow mode.
    slow: (f64, f64),
    /// Queue age, occupancy of both pools, profile calls a second, goodput.
    level: [f64; 5],
    omission: f64,
    late: (f64, f64),
    recovery_s: Option<f64>,
    seconds: u32,
}

const SHAPES: [Shape; 6] = [
    Shape {
        policy: "policy-legacy",
        state: "peak",
        median_ms: 82.0,
        sigma: 0.24,
        slow: (0.06, 310.0),
        level: [46.0, 0.94, 0.958, 380.0, 0.968],
        omission: 0.004,
        late: (0.061, 312.8),
        recovery_s: None,
        seconds: 240,
    },
    Shape {
        policy: "policy-legacy",
        state: "slowdown",
        median_ms: 128.0,
        sigma: 0.32,
        slow: (0.17, 470.0),
        level: [420.0, 0.995, 1.0, 520.0, 0.71],
        omission: 0.021,
        late: (0.19, 840.0),
        recovery_s: None,
        seconds: 240,
    },
    Shape {
        policy: "policy-legacy",
        state: "recovery",
        median_ms: 110.0,
        sigma: 0.3,
        slow: (0.12, 420.0),
        level: [260.0, 0.98, 0.99, 450.0, 0.83],
        omission: 0.012,
        late: (0.12, 520.0),
        recovery_s: None,
        seconds: 420,
    },
    Shape {
        policy: "policy",
        state: "peak",
        median_ms: 76.0,
        sigma: 0.23,
        slow: (0.03, 205.0),
        level: [2.2, 0.63, 0.71, 285.0, 0.995],
        omission: 0.034,
        late: (0.0021, 4.14),
        recovery_s: None,
        seconds: 240,
    },
    Shape {
        policy: "policy",
        state: "slowdown",
        median_ms: 97.0,
        sigma: 0.25,
        slow: (0.06, 225.0),
        level: [7.4, 0.74, 0.84, 320.0, 0.987],
        omission: 0.19,
        late: (0.0043, 9.6),
        recovery_s: None,
        seconds: 240,
    },
    Shape {
        policy: "policy",
        state: "recovery",
        median_ms: 79.0,
        sigma: 0.23,
        slow: (0.03, 205.0),
        level: [2.6, 0.64, 0.72, 290.0, 0.994],
        omission: 0.04,
        late: (0.0024, 4.4),
        recovery_s: Some(84.0),
        seconds: 420,
    },
];

/// A number between zero and one, always the same for the same place.
fn noise(at: u64) -> f64 {
    (base::mix::mix64(at) >> 11) as f64 / (1u64 << 53) as f64
}

impl Shape {
    fn state(&self, starts_s: f64) -> State {
        let histogram = self.histogram();
        let n: u64 = histogram.iter().map(|bucket| bucket.count).sum();
        let quantile = |share: f64| {
            let mut left = (n as f64 * share).ceil() as u64;
            histogram.iter().find_map(|bucket| {
                left = left.saturating_sub(bucket.count);
                (left == 0).then_some(bucket.le_ms)
            })
        };
        let latency_ms = Quantiles { n, p50: quantile(0.5), p99: quantile(0.99), p999: quantile(0.999) };
        let [queue, endpoint, profile, calls, goodput] = self.level;
        let legacy = self.policy == "policy-legacy";
        let slowest = latency_ms.p99.unwrap_or_default() * 1.08;
        let waits = if legacy { [0.36, 0.22, 0.16, 0.24] } else { [0.04, 0.05, 0.31, 0.55] };
        let [executor, pool, service, fanout] = waits.map(|share| Some(slowest * share));
        let omitted = n as f64 * self.omission;
        let scheduled = (n as f64 / goodput) as u64 + 310;
        State {
            policy: self.policy.to_owned(),
            state: self.state.to_owned(),
            starts_s,
            duration_s: f64::from(self.seconds),
            latency_ms,
            core_goodput_ratio: Some(goodput),
            omission_ratio: Some(self.omission),
            rejection_ratio: Some(if legacy { 0.0 } else { 0.0021 }),
            late_work: LateWork {
                ratio: Some(self.late.0),
                mean_ms: Some(212.0),
                concurrent: Some(self.late.1),
            },
            occupancy_ratio: Occupancy { endpoint: Some(endpoint), profile: Some(profile) },
            queue_age_ms: QueueAge {
                p99: Some(queue),
                endpoint_p99: Some(queue),
                profile_p99: Some(queue * 0.6),
            },
            cancel_stop_ms: CancelStop {
                n: 812,
                p50: Some(0.4),
                p99: Some(if legacy { 390.0 } else { 3.1 }),
            },
            slow: Slow {
                n: n / 100,
                latency_ms: Some(slowest),
                executor_wait_ms: executor,
                pool_wait_ms: pool,
                service_before_fanout_ms: service,
                fanout_ms: fanout,
            },
            arrivals: Arrivals {
                declared: Some(scheduled),
                scheduled,
                completed: scheduled - 3,
                unsent: 0,
                in_flight: 3,
            },
            recovery_s: self.recovery_s,
            recovery_at_least_s: (legacy && self.state == "recovery").then_some(420.0),
            omissions: BTreeMap::from([
                (
                    "recommendations",
                    BTreeMap::from([
                        ("omitted_deadline_budget", (omitted * 0.55) as u64),
                        ("omitted_timeout", (omitted * 0.30) as u64),
                        ("omitted_overload", (omitted * 0.09) as u64),
                    ]),
                ),
                ("reputation", BTreeMap::from([("omitted_dependency_error", (omitted * 0.1) as u64)])),
            ]),
            departure_ratio: Some(if legacy { 0.19 } else { 0.02 }),
            attempts_per_operation: Some(if legacy { 1.21 } else { 1.03 }),
            profile_calls_per_operation: Some(if legacy { 1.2 } else { 0.84 }),
            dependency_calls_per_operation: BTreeMap::from([
                ("pricing".to_owned(), Some(1.0)),
                ("stock".to_owned(), Some(1.02)),
            ]),
            cpu_ms_per_core_response: Some(if legacy { 1.9 } else { 1.62 }),
            suite_cpu_ms_per_core_response: Some(if legacy { 7.4 } else { 6.6 }),
            memory_peak_mib: Some(if legacy { 412.0 } else { 96.4 }),
            classes: ["standard", "premium", "enterprise"]
                .into_iter()
                .zip([(0.72, 0.97), (0.23, 1.0), (0.05, 1.09)])
                .map(|(name, (share, factor))| (name, self.class(latency_ms, share, factor)))
                .collect(),
            histogram,
            timeline: (0..self.seconds).map(|second| self.second(starts_s, second, calls)).collect(),
            ..State::default()
        }
    }

    fn class(&self, all: Quantiles, share: f64, factor: f64) -> Class {
        let times = |value: Option<f64>| value.map(|value| value * factor);
        Class {
            declared: None,
            scheduled: (all.n as f64 * share) as u64,
            share: Some(share),
            latency_ms: Quantiles {
                n: (all.n as f64 * share) as u64,
                p50: times(all.p50),
                p99: times(all.p99),
                p999: times(all.p999),
            },
            core_goodput_ratio: Some(self.level[4]),
            omission_ratio: Some(self.omission / factor),
            rejection_ratio: Some(0.001),
        }
    }

    /// Two modes, each normal in the logarithm.
    fn histogram(&self) -> Vec<Bucket> {
        let answers = 330.0 * f64::from(self.seconds) * self.level[4];
        let mode =
            |ms: f64, median: f64, sigma: f64| (-((ms / median).ln() / sigma).powi(2) / 2.0).exp() / sigma;
        let bounds: Vec<f64> = (0..240).map(|at| 18.0 * 1.022f64.powi(at)).collect();
        let weight = |ms: &f64| {
            (1.0 - self.slow.0) * mode(*ms, self.median_ms, self.sigma)
                + self.slow.0 * mode(*ms, self.slow.1, 0.16)
        };
        let whole: f64 = bounds.iter().map(weight).sum();
        let count = |ms: &f64| (answers * weight(ms) / whole).round() as u64;
        let all: Vec<Bucket> = bounds.iter().map(|ms| Bucket { le_ms: *ms, count: count(ms) }).collect();
        let seen = |bucket: &&Bucket| bucket.count > 0;
        let from = all.iter().position(|bucket| seen(&bucket)).unwrap_or(0);
        let until = all.iter().rposition(|bucket| seen(&bucket)).map_or(0, |last| last + 1);
        all[from..until].to_vec()
    }

    fn second(&self, starts_s: f64, second: u32, calls: f64) -> TimelinePoint {
        let [queue, endpoint, profile, _, goodput] = self.level;
        let place =
            u64::from(second) * 31 + self.state.len() as u64 * 7_919 + self.policy.len() as u64 * 104_729;
        let wave = 1.0 + 0.10 * (f64::from(second) / 9.0).sin() + 0.16 * (noise(place) - 0.5);
        // What the slowdown left behind drains.
        let heat = match (self.state, self.recovery_s) {
            ("recovery", Some(took)) => 1.0 + 1.8 * (-f64::from(second) / (took / 3.0)).exp(),
            ("recovery", None) => 0.75 + 0.6 * (-f64::from(second) / 320.0).exp(),
            _ => 1.0,
        };
        let offered = (330.0 * wave) as u64;
        let departed = (offered as f64 * 0.02) as u64;
        TimelinePoint {
            at_s: starts_s + f64::from(second),
            offered,
            good: ((offered - departed) as f64 * (1.0 - (1.0 - goodput) * wave * heat).clamp(0.0, 1.0))
                as u64,
            departed,
            p50_ms: Some(self.median_ms * wave),
            p99_ms: Some((self.slow.1 * 1.12 * wave * heat.sqrt()).min(980.0)),
            queue_age_ms: Some(queue * wave * wave * heat),
            occupancy_endpoint: Some((endpoint * wave.sqrt() * heat.powf(0.2)).min(1.0)),
            occupancy_profile: Some((profile * wave.sqrt() * heat.powf(0.15)).min(1.0)),
            profile_calls_per_s: Some(calls * wave),
            omitted: BTreeMap::new(),
        }
    }
}

/// A whole comparison, with one gate missed and one open.
pub(super) fn full() -> Report {
    let mut starts_s = 10.0;
    let mut states = Vec::new();
    for (at, shape) in SHAPES.iter().enumerate() {
        if at == 3 {
            starts_s = 10.0;
        }
        states.push(shape.state(starts_s));
        starts_s += f64::from(shape.seconds) + 10.0;
    }
    let mut report = Report {
        schema: crate::report::SCHEMA,
        command: "rehearse slo".to_owned(),
        seed: 1,
        runs: 2,
        verdict: Verdict::Fail,
        workload: "mercury-home-peak v4".to_owned(),
        scenario: ScenarioRef { name: "peak-slowdown-recovery".to_owned(), version: 1, digest: "9f3a1c5522b80d17".to_owned() },
        scale: Some("1/4".to_owned()),
        rate_per_s: 1_533.3,
        dilate: 5,
        histogram: "HDR, three digits, 1 µs to 60 s",
        tolerance: "Scale 1/4 and slow motion × 5: a p99 of this run is known to ±3 % (95 %, by its sample). Recovery is watched for 7 min.".to_owned(),
        comparison: Some(Comparison {
            p99_reduction_ratio: Some(0.45),
            late_work_fold: Some(75.6),
            recovery_fold: RecoveryFold { value: Some(5.0), at_least: true },
            ..Comparison::default()
        }),
        mechanisms: mechanisms(),
        states,
        generator: generator(),
        policies: vec![policy("policy-legacy", 1), policy("policy", 2)],
        ..Report::default()
    };
    report.gates = gates(&report.states);
    report
}

fn policy(name: &str, generation: u64) -> PolicyRef {
    PolicyRef {
        name: name.to_owned(),
        generation,
        digest: format!("{:016x}", base::mix::mix64(generation)),
        after_run: AfterRun {
            permits_held: Some(0.0),
            flights_open: Some(0.0),
            effects_replayed: Some(412.0),
            effects_conflicting: Some(0.0),
            stopped: None,
        },
        ..PolicyRef::default()
    }
}

fn generator() -> Generator {
    Generator {
        valid: true,
        clock_error_ms: Quantiles { n: 100_000, p50: Some(0.05), p99: Some(0.41), p999: Some(0.9) },
        cpu_ratio: Some(0.11),
        unsent_ratio: Some(0.0),
        emulator_timer_ms: Quantiles { p99: Some(1.18), ..Quantiles::default() },
        reasons: Vec::new(),
    }
}

fn gates(states: &[State]) -> Vec<Gate> {
    let of = |policy: &str, gate: Gate, value: fn(&State) -> Option<f64>| {
        let state = gate.state.clone();
        let found = states.iter().find(|one| one.policy == policy && Some(&one.state) == state.as_ref());
        let observed = found.and_then(value);
        let held = match gate.rule {
            Rule::AtMost | Rule::Below => Verdict::at_most(observed, gate.bound),
            Rule::AtLeast => Verdict::at_least(observed, gate.bound),
        };
        let verdict = if policy == "policy" { held } else { Verdict::NotApplicable };
        Gate { observed, verdict, kind: Kind::Objective, ..gate }.of(policy).on_breach(Action::Hold)
    };
    let most = |name, unit, bound, state: &str| Gate::at_most(name, unit, None, bound).during(state);
    let mut gates = Vec::new();
    for policy in ["policy-legacy", "policy"] {
        for state in ["peak", "slowdown"] {
            gates.push(of(policy, most("p99", "ms", P99_MS, state), |s| s.latency_ms.p99));
            gates.push(of(policy, most("queue_age_p99", "ms", QUEUE_AGE_MS, state), |s| s.queue_age_ms.p99));
            gates.push(of(policy, most("profile_occupancy", "ratio", PROFILE_OCCUPANCY, state), |s| {
                s.occupancy_ratio.profile
            }));
            gates.push(of(policy, most("late_work", "ratio", LATE_WORK, state), |s| s.late_work.ratio));
        }
        gates.push(of(policy, most("omission", "ratio", OMISSION, "peak"), |s| s.omission_ratio));
        let goodput = Gate::at_least("goodput", "ratio", None, GOODPUT).during("peak");
        gates.push(of(policy, goodput, |s| s.core_goodput_ratio));
        gates.push(of(policy, most("recovery", "s", RECOVERY_S, "recovery"), |s| s.recovery_s));
    }
    gates.push(Gate::at_most("core_mismatch", "answers", Some(0.0), 0.0));
    gates.push(Gate::below("class_mix", "ratio", None, 0.15).doubt().saying("the mix was not known before"));
    gates.push(Gate::at_least("samples", "answers", Some(78_000.0), 100.0).doubt());
    gates
}

fn mechanisms() -> Vec<Mechanism> {
    let all = [
        ("deadline", "p99 latency", "ms", 487.0, 341.0),
        ("cancellation", "late operations at once", "operations", 312.8, 4.9),
        ("admission", "queue age p99", "ms", 46.0, 9.4),
        ("coalescing", "upstream profile reads per operation", "", 1.2, 0.86),
        ("degradation", "wait for optional branches p99", "ms", 402.0, 74.0),
    ];
    let ran = all.map(|(name, what, unit, without, with)| Mechanism {
        name: name.to_owned(),
        verdict: Verdict::Pass,
        detail: String::new(),
        effect: Effect {
            what: what.to_owned(),
            unit: unit.to_owned(),
            without: Some(without),
            with: Some(with),
        },
        state: None,
    });
    let absent = Mechanism {
        name: "summary".to_owned(),
        verdict: Verdict::NotApplicable,
        detail: "It is not there yet.".to_owned(),
        effect: Effect { what: "entitlement calls per operation".to_owned(), ..Effect::default() },
        state: None,
    };
    ran.into_iter().chain([absent]).collect()
}

/// One policy, one state, and hardly a figure.
pub(super) fn sparse() -> Report {
    Report {
        schema: crate::report::SCHEMA,
        command: "rehearse slo".to_owned(),
        seed: 7,
        workload: "mercury-home-peak v4".to_owned(),
        rate_per_s: 60.0,
        dilate: 1,
        states: vec![State {
            policy: "policy".to_owned(),
            state: "peak".to_owned(),
            latency_ms: Quantiles { n: 12, p50: Some(81.0), p99: None, p999: None },
            ..State::default()
        }],
        gates: vec![Gate {
            name: "p99",
            unit: "ms",
            bound: 300.0,
            verdict: Verdict::Inconclusive,
            ..Gate::default()
        }],
        generator: Generator {
            reasons: vec!["the emulator's timer lateness is not known".to_owned()],
            ..Generator::default()
        },
        policies: vec![policy("policy", 2)],
        ..Report::default()
    }
}

/// The steps of a rollout under two states, with a story each.
pub(super) fn rollout() -> Report {
    const PHASES: [&str; 13] = [
        "legacy",
        "signals",
        "deadline",
        "cancellation-canary",
        "cancellation",
        "admission-canary",
        "admission",
        "coalescing-canary",
        "coalescing",
        "degradation-canary",
        "degradation",
        "expansion-canary",
        "expansion",
    ];
    let base = full();
    let known = &base.states;
    let states = PHASES.iter().enumerate().flat_map(|(at, phase)| {
        let towards = at as f64 / 12.0;
        ["peak", "slowdown"].into_iter().filter_map(move |name| {
            let find = |policy: &str| known.iter().find(|one| one.policy == policy && one.state == name);
            let (old, new) = find("policy-legacy").zip(find("policy"))?;
            let between = |of: fn(&State) -> Option<f64>| Some(of(old)? + (of(new)? - of(old)?) * towards);
            let mut state = if towards < 0.5 { old.clone() } else { new.clone() };
            state.policy = (*phase).to_owned();
            state.latency_ms.p99 = between(|one| one.latency_ms.p99);
            state.core_goodput_ratio = between(|one| one.core_goodput_ratio);
            Some(state)
        })
    });
    let stories = PHASES.iter().skip(1).enumerate().map(|(at, phase)| Scenario {
        name: (*phase).to_owned(),
        verdict: if at < 6 {
            Verdict::Pass
        } else if at == 6 {
            Verdict::Fail
        } else {
            Verdict::NotApplicable
        },
        detail: if at == 6 {
            "p99 rose by 4.1 % over the phase before, which is beyond 2 %: rolled back."
        } else {
            ""
        }
        .to_owned(),
    });
    let states: Vec<State> = states.collect();
    // The first steps miss the objective, and are not bound by it.
    let bound = states.iter().skip(10).map(|state| {
        Gate::at_most("p99_max_ms", "ms", state.latency_ms.p99, P99_MS)
            .on_breach(Action::Hold)
            .of(&state.policy)
            .during(&state.state)
    });
    let gates = bound.collect();
    Report {
        command: "rehearse rollout".to_owned(),
        states,
        gates,
        scenarios: stories.collect(),
        policies: PHASES.iter().zip(1..).map(|(name, generation)| policy(name, generation)).collect(),
        mechanisms: Vec::new(),
        comparison: None,
        ..base
    }
}

/// How the samples ran.
pub(super) fn run() -> RunInfo {
    RunInfo {
        schema: "mercury.run/v1",
        started_unix_ms: 1_795_986_720_000,
        wall_s: 9_150.0,
        machine: Machine {
            cores: 2,
            cpu_model: Some("A processor of some make @ 2.10GHz".to_owned()),
            memory_bytes: Some(8 << 30),
            kernel: "Linux 6.1.0".to_owned(),
        },
        version: "0.1.0",
        simulation: None,
        git_revision: Some("4d2c1fb0e9a7".to_owned()),
        runs: ["policy-legacy", "policy"].map(suite_run).into(),
    }
}

fn suite_run(policy: &str) -> SuiteRun {
    let stage = |name: &str, cpu_ratio| StageInfo {
        name: name.to_owned(),
        wall_s: 1_200.0,
        offered_per_s: Some(306.0),
        correct_per_s: Some(301.0),
        cpu_ratio,
        cpu_ms_per_operation: None,
        processes: BTreeMap::new(),
    };
    SuiteRun {
        name: policy.to_owned(),
        policy: policy.to_owned(),
        seed: 1,
        wall_s: 4_560.0,
        suite_start_ms: 640.0,
        generator: GeneratorInfo {
            schedule_priority: Priority { nice: 0, raised: false },
            sender_priority: Priority { nice: 0, raised: false },
            schedule_error_ms: LatencyMs::default(),
            clock_error_ms: LatencyMs::default(),
            connections: 8,
            connections_lost: 0,
            in_flight_peak: 1_204,
            in_flight_max: 32_768,
        },
        stages: vec![stage("peak", Some(0.61)), stage("slowdown", Some(0.7)), stage("recovery", None)],
        emulator: BTreeMap::new(),
        stopped: BTreeMap::new(),
    }
}
