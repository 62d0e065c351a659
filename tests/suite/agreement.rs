//! Agreement: the live suite and the region's model on the same small workload. What the model says of a size at which nobody
//! can look is worth what it says of one at which anybody can.
//!
//! The suite runs in slow motion, so that what its own hops cost is small beside the model's times; the model runs for long enough
//! that what is left is the sample of the suite.

use base::Nanos;
use load::{Plan, Rate, StagePlan};
use model::{
    Scale,
    policy::{self, Boundary, Policy},
    scenario::Scenario,
    workload::{SHIPPED, Workload},
};
use simulation::{ClaimsPhase, Course, Outcome, Progress, System};

use crate::harness::{Options, Suite};

const SCALE: &str = "1/10";
const DILATE: u32 = 8;
const WARM_UP: Nanos = Nanos::from_secs(1);
const MEASURED: Nanos = Nanos::from_secs(5);
/// How far latencies and occupancies may lie apart, over the model's.
const APART_MAX: f64 = 0.10;
/// How far omission may, as a difference of shares.
const OMISSION_APART_MAX: f64 = 0.02;

/// What is compared.
#[derive(Debug)]
struct Figures {
    p50_ms: f64,
    p99_ms: f64,
    /// Of the endpoint and of the profile client.
    occupancy: [f64; 2],
    omission: f64,
}

/// The declared workload without its waves: of which a run of seconds would see none, or one.
fn flat() -> Workload {
    let text = SHIPPED.1.replace("requests_per_s = 22700", "requests_per_s = 18400");
    assert_ne!(text, SHIPPED.1);
    Workload::parse("flat", &text).expect("valid")
}

fn scale() -> Scale {
    Scale::parse(SCALE).expect("valid")
}

async fn live(text: &str, policy: &Policy) -> Figures {
    let options = Options { policy: text.to_owned(), scale: scale(), dilate: DILATE, ..Options::shipped() };
    let slots = Boundary::ALL.map(|boundary| f64::from(policy.scaled(scale()).admission(boundary).slots));
    let suite = Suite::start_with(options).await;
    let mut plan = Plan::new(suite.home().to_string(), flat(), Rate::Scale(scale()), MEASURED);
    plan.dilate = DILATE;
    plan.stages = vec![StagePlan::warm_up("warm-up", WARM_UP), StagePlan::measured("measured", MEASURED)];
    let report = load::run(plan, |_| {}).expect("a run");
    let measured = report.stages.last().expect("two stages");
    assert!(report.generator.valid, "the generator kept no time: {:?}", report.generator);
    assert_eq!(measured.all.core_mismatch, 0);
    suite.until_idle().await;
    let home = suite.scrape("home-api").await;
    // Everything has ended: what was held in all is what the whole schedule held.
    let wall_s = (WARM_UP + MEASURED).times(DILATE).as_secs_f64();
    let held =
        Boundary::ALL.map(|at| home.sum("mercury_home_permit_seconds_total", &[("gate", at.as_str())]));
    let figures = Figures {
        p50_ms: measured.all.latency_ms.p50.expect("answers"),
        p99_ms: measured.all.latency_ms.p99.expect("answers"),
        occupancy: std::array::from_fn(|at| held[at] / (slots[at] * wall_s)),
        omission: measured.all.omission_ratio.expect("answers"),
    };
    suite.finish().await;
    figures
}

fn modelled(policy: &Policy) -> Figures {
    let system = System {
        claims: ClaimsPhase::Call,
        ..System::fraction(policy, &Scenario::shipped(), flat(), scale())
    };
    let course = Course { warm_up_phase: 0, warm_up_s: 5, phase: 0, window_s: 600 };
    let window = simulation::run(&system, &course, 1, &Progress::default()).expect("nobody stops it");
    let all = window.all();
    let quantile = |q| all.latency.quantile_ms(q).expect("answers");
    Figures {
        p50_ms: quantile(0.5),
        p99_ms: quantile(0.99),
        occupancy: Boundary::ALL.map(|boundary| window.occupancy(boundary)),
        omission: all.outcomes[Outcome::OkDegraded as usize] as f64 / all.correct() as f64,
    }
}

async fn agree(name: &str, (file, text): (&str, &str)) {
    let policy = Policy::parse(file, text).expect("valid");
    let (live, model) = (live(text, &policy).await, modelled(&policy));
    println!("{name}: live {live:?}\n{name}: model {model:?}");
    let apart = |live: f64, model: f64| (live - model).abs() / model;
    for (what, live, model) in [
        ("p50", live.p50_ms, model.p50_ms),
        ("p99", live.p99_ms, model.p99_ms),
        ("occupancy of the endpoint", live.occupancy[0], model.occupancy[0]),
        ("occupancy of the profile client", live.occupancy[1], model.occupancy[1]),
    ] {
        assert!(apart(live, model) <= APART_MAX, "{name}: {what}: live {live:.3}, model {model:.3}");
    }
    assert!(
        (live.omission - model.omission).abs() <= OMISSION_APART_MAX,
        "{name}: omission: live {:.4}, model {:.4}",
        live.omission,
        model.omission
    );
}

#[tokio::test]
#[ignore = "measures milliseconds for a minute, so it runs alone and optimised: --release --ignored --test-threads 1, as .ci/run does"]
async fn the_suite_does_what_the_model_says() {
    agree("before", policy::LEGACY).await;
    agree("after", policy::SHIPPED).await;
}
