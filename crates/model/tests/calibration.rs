//! Calibration: what follows from the shipped scenario's figures, by exact addition of distributions and by drawing.

use base::{Dependency, Nanos, WorkloadClass};
use model::{
    draw::{CallDraw, Draws, key},
    latency::{Mixture, Quantiles},
    policy::Policy,
    scenario::{Phase, Scenario},
};

/// Width of a bin of the added distributions: a quarter of a millisecond.
const BIN: u64 = 250_000;
/// Bins; the last one holds everything from 500 ms on.
const BINS: usize = 2_001;

/// Probability by bin. A value counts as the upper end of its bin, so sums err towards longer.
type Histogram = Vec<f64>;

fn histogram(mixture: &Mixture, class: WorkloadClass) -> Histogram {
    let mut bins = vec![0.0; BINS];
    let slow = mixture.slow_share().as_ratio();
    for (mode, share) in [(mixture.body(), 1.0 - slow), (mixture.slow(), slow)] {
        for (value, weight) in Quantiles::cells(mode) {
            let bin = mixture.for_class(value, class).get().div_ceil(BIN) as usize;
            bins[bin.min(BINS - 1)] += share * weight as f64 / (1_u64 << 40) as f64;
        }
    }
    bins
}

fn sum(one: &Histogram, two: &Histogram) -> Histogram {
    let mut bins = vec![0.0; BINS];
    for (at, first) in one.iter().enumerate().filter(|(_, weight)| **weight > 0.0) {
        for (bin, second) in two.iter().enumerate().filter(|(_, weight)| **weight > 0.0) {
            bins[(at + bin).min(BINS - 1)] += first * second;
        }
    }
    bins
}

fn longest(parts: &[Histogram]) -> Histogram {
    let mut below = 0.0;
    let mut so_far = vec![0.0; parts.len()];
    (0..BINS)
        .map(|bin| {
            for (total, part) in so_far.iter_mut().zip(parts) {
                *total += part[bin];
            }
            let all: f64 = so_far.iter().product();
            all - std::mem::replace(&mut below, all)
        })
        .collect()
}

/// Probability that the mandatory path takes longer than `bound`: profile, entitlement, then the longest of three.
fn mandatory_exceeds(phase: &Phase, class: WorkloadClass, bound: Nanos) -> f64 {
    let of = |name| histogram(&phase.dependency(name).latency, class);
    let serial = sum(&of(Dependency::Profile), &of(Dependency::Entitlement));
    let parallel = longest(&[Dependency::Inventory, Dependency::Pricing, Dependency::Experiment].map(of));
    sum(&serial, &parallel)[(bound.get() / BIN) as usize + 1..].iter().sum()
}

/// Draws of one home request, by dependency.
struct Page([Nanos; 7]);

impl Page {
    fn draw(draws: &Draws, phase: &Phase, number: u32) -> Self {
        let class = match number % 100 {
            0..72 => WorkloadClass::Standard,
            72..95 => WorkloadClass::Premium,
            _ => WorkloadClass::Enterprise,
        };
        let id = number.to_string();
        Self(Dependency::ALL.map(|name| {
            let call: CallDraw = draws.call(name, "Fetch", key(["tenant-000"]), &id, 1);
            phase.dependency(name).latency.draw(call, class)
        }))
    }

    fn serial(&self) -> Nanos {
        self.0[Dependency::Profile.index()] + self.0[Dependency::Entitlement.index()]
    }

    fn longest(&self, of: impl Fn(Dependency) -> bool) -> Nanos {
        Dependency::ALL[2..]
            .iter()
            .filter(|name| of(**name))
            .map(|name| self.0[name.index()])
            .max()
            .unwrap_or_default()
    }

    /// The whole page when everybody is waited for.
    fn unqueued(&self) -> Nanos {
        self.serial() + self.longest(|_| true)
    }

    fn recommendation_cut_at(&self, bound: Nanos) -> bool {
        self.serial() + self.0[Dependency::Recommendation.index()] > bound
    }
}

fn quantile(mut values: Vec<Nanos>, at: f64) -> f64 {
    values.sort_unstable();
    values[((values.len() - 1) as f64 * at) as usize].as_millis_f64()
}

const PAGES: u32 = 100_000;

fn pages(phase: &str) -> Vec<Page> {
    let scenario = Scenario::shipped();
    let draws = Draws::new(2_026, scenario.version);
    let index = scenario.phase_index(phase).expect("a shipped phase");
    (0..PAGES).map(|number| Page::draw(&draws, &scenario.phases()[index], number)).collect()
}

fn ratio(pages: &[Page], hit: impl Fn(&Page) -> bool) -> f64 {
    pages.iter().filter(|page| hit(page)).count() as f64 / pages.len() as f64
}

/// What is left of the objective for work: 300 ms less the response reserve.
fn usable() -> Nanos {
    let policy = Policy::shipped();
    policy.objective - policy.response_reserve
}

#[test]
fn the_median_page_takes_about_eighty_milliseconds() {
    let p50 = quantile(pages("peak").iter().map(Page::unqueued).collect(), 0.5);
    println!("unqueued page at peak: p50 {p50:.2} ms");
    assert!((77.0..83.0).contains(&p50), "{p50}");
}

#[test]
fn the_mandatory_path_never_costs_a_healthy_request_its_deadline() {
    let scenario = Scenario::shipped();
    for class in WorkloadClass::ALL {
        // Ten milliseconds of the 280 are left to the suite's own hops.
        for bound in [usable(), usable() - Nanos::from_millis(10)] {
            let probability = mandatory_exceeds(&scenario.phases()[0], class, bound);
            println!("mandatory path of {class} beyond {bound}: {probability:.2e}");
            assert!(probability < 1e-6, "{class} {bound}: {probability:e}");
        }
    }
}

#[test]
fn adding_distributions_agrees_with_drawing() {
    // So that the tiny probability above is not an artefact of the addition: at a bound that draws do reach.
    let bound = Nanos::from_millis(110);
    let scenario = Scenario::shipped();
    let shares = [0.72, 0.23, 0.05];
    let added: f64 = WorkloadClass::ALL
        .iter()
        .map(|class| shares[class.index()] * mandatory_exceeds(&scenario.phases()[0], *class, bound))
        .sum();
    let drawn =
        ratio(&pages("peak"), |page| page.serial() + page.longest(|name| !name.is_optional()) > bound);
    println!("mandatory path beyond {bound}: added {added:.4}, drawn {drawn:.4}");
    assert!((added / drawn - 1.0).abs() < 0.1, "{added} {drawn}");
}

#[test]
fn optional_omission_is_a_few_percent_at_peak_and_about_a_fifth_in_the_slowdown() {
    for (phase, range) in [("peak", 0.025..0.045), ("slowdown", 0.16..0.22)] {
        let bound = usable();
        let cut = ratio(&pages(phase), |page| page.recommendation_cut_at(bound));
        println!("recommendation cut at {bound} in {phase}: {:.2} %", cut * 100.0);
        assert!(range.contains(&cut), "{phase}: {cut}");
    }
}

#[test]
fn the_old_policy_misses_the_objective_by_what_recommendation_makes_it_wait() {
    // Independent timeouts of 400 ms: the page waits for recommendation up to there. Queues come on top.
    let timeout = Nanos::from_millis(400);
    let old = |page: &Page| page.serial() + page.longest(|_| true).min(timeout);
    let p99 = quantile(pages("peak").iter().map(old).collect(), 0.99);
    println!("page at peak under independent timeouts, unqueued: p99 {p99:.1} ms");
    assert!((400.0..487.0).contains(&p99), "{p99}");
}

#[test]
fn capacity_holds_the_peak_and_profile_is_short_in_the_slowdown() {
    let scenario = Scenario::shipped();
    for name in Dependency::ALL {
        let servers = f64::from(scenario.phases()[0].dependency(name).capacity.servers);
        let busy = scenario.offered(name) / servers;
        println!("{name}: offered {:.1} of {servers} servers at peak", scenario.offered(name));
        assert!((0.3..0.8).contains(&busy), "{name}: {busy}");
    }
    let slowdown = &scenario.phases()[1].dependency(Dependency::Profile).latency;
    // Every fifth call comes again under the old policy.
    let attempts = scenario.domain_requests_per_s * 1.2;
    let offered = attempts * slowdown.mean(WorkloadClass::Standard).as_secs_f64();
    println!("profile in the slowdown: offered {offered:.1}");
    assert!(offered > f64::from(scenario.phases()[1].dependency(Dependency::Profile).capacity.servers));
}

#[test]
fn worst_useful_lies_between_the_median_and_the_tail_of_the_body() {
    let (scenario, policy) = (Scenario::shipped(), Policy::shipped());
    for name in Dependency::ALL {
        let body = scenario.phases()[0].dependency(name).latency.body();
        let useful = policy.branch(name).worst_useful;
        assert!(body.at(1 << 63) < useful, "{name}: {useful} is below the median {}", body.at(1 << 63));
        let tail = body.at(u64::MAX / 100 * 99);
        assert!(useful < tail, "{name}: {useful} is beyond the p99 {tail}");
    }
}
