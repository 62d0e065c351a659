//! Tests of the workload: the shipped file, every fault at once, and what the schedule promises.

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;

use super::*;

/// The shipped workload at a rate, for so many seconds.
fn schedule(seed: u64, rate: f64, secs: u64) -> Vec<Arrival> {
    let workload = Workload::shipped();
    let end = Nanos::from_secs(secs);
    workload.arrivals(seed, workload.at_rate(rate)).take_while(|arrival| arrival.at < end).collect()
}

fn share(arrivals: &[Arrival], of: impl Fn(&Arrival) -> bool) -> f64 {
    arrivals.iter().filter(|arrival| of(arrival)).count() as f64 / arrivals.len() as f64
}

#[test]
fn the_shipped_workload_holds_the_declared_figures() {
    let workload = Workload::shipped();
    assert_eq!((workload.name.as_str(), workload.version), ("mercury-home-peak-v4", 4));
    assert_eq!(workload.region_requests_per_s, 18_400.0);
    assert_eq!(workload.waves.requests_per_s, 22_700.0);
    assert_eq!(WorkloadClass::ALL.map(|class| workload.class_share(class)), [0.72, 0.23, 0.05]);
    assert_eq!((workload.coalescing.share, workload.coalescing.group_mean), (0.26, 2.6));
    let quarter = workload.at_scale(Scale::parse("1/4").expect("valid"));
    assert!((quarter.requests_per_s - 18_400.0 / 12.0).abs() < 1e-9);
}

#[test]
fn every_fault_is_reported_at_once() {
    let text = SHIPPED
        .1
        .replace("requests_per_s = 22700", "requests_per_s = 18000")
        .replace("period_ms = 10000", "period_ms = 7000")
        .replace("share = 0.72", "share = 0.73")
        .replace("tenants = 150", "tenants = 151")
        .replace("eu-west = 0.40", "eu-west = 0.41\nmoon = 0.1")
        .replace("group_mean = 2.6", "group_mean = 5.1")
        .replace("patience_min_ms = 5", "patience_min_ms = 61")
        .replace("attempts_max = 2", "attempts_max = 6");
    let faults = Workload::parse("w.toml", &text).expect_err("faulty");
    let paths: Vec<&str> = faults.list().iter().map(|fault| fault.path.as_str()).collect();
    assert_eq!(
        paths,
        [
            "waves.requests_per_s",
            "waves.period_ms",
            "classes.standard",
            "classes.standard",
            "regions.eu-west",
            "regions.moon",
            "coalescing.group_mean",
            "departures.patience_min_ms",
            "retries.attempts_max"
        ],
        "{faults}"
    );
    for (line, replacement, path) in [
        ("duration_ms = 1000", "duration_ms = 10000", "waves.duration_ms"),
        ("duration_ms = 1000", "duration_ms = 9000", "waves.requests_per_s"),
        ("window_ms = 20", "window_ms = -1", "coalescing.window_ms"),
    ] {
        let faults = Workload::parse("w.toml", &SHIPPED.1.replace(line, replacement)).expect_err("faulty");
        assert_eq!(faults.list()[0].path, path, "{faults}");
        assert_eq!(faults.list().len(), 1, "{faults}");
    }
}

#[test]
fn the_minute_has_its_mean_and_the_wave_its_height() {
    let arrivals = schedule(5, 2_000.0, 60);
    // Poisson in groups: 120,000 expected, deviation below 450.
    assert!((118_200..121_800).contains(&arrivals.len()), "{}", arrivals.len());
    let wave = share(&arrivals, |arrival| arrival.at.get() % 10_000_000_000 >= 9_000_000_000);
    let expected = 0.1 * 22_700.0 / 18_400.0;
    assert!((wave / expected - 1.0).abs() < 0.03, "{wave} {expected}");
}

#[test]
fn classes_regions_and_departures_follow_their_shares() {
    let arrivals = schedule(6, 2_000.0, 60);
    let workload = Workload::shipped();
    for class in WorkloadClass::ALL {
        let (observed, declared) =
            (share(&arrivals, |arrival| arrival.class == class), workload.class_share(class));
        assert!((observed / declared - 1.0).abs() < 0.05, "{class}: {observed}");
    }
    let west = share(&arrivals, |arrival| arrival.region_name() == "eu-west");
    assert!((0.38..0.42).contains(&west), "{west}");
    let leaving = share(&arrivals, |arrival| arrival.patience.is_some());
    assert!((0.19..0.21).contains(&leaving), "{leaving}");
    let spans: Vec<u64> =
        arrivals.iter().filter_map(|arrival| arrival.patience).map(Nanos::as_micros).collect();
    assert!(spans.iter().all(|span| (5_000..=60_000).contains(span)));
    let mean = spans.iter().sum::<u64>() as f64 / spans.len() as f64;
    assert!((31_500.0..33_500.0).contains(&mean), "{mean}");
}

#[test]
fn groups_are_as_common_as_large_and_as_close_as_declared() {
    let arrivals = schedule(7, 2_000.0, 60);
    let coalescible = share(&arrivals, |arrival| arrival.group.is_some());
    assert!((0.25..0.27).contains(&coalescible), "{coalescible}");
    let mut groups: HashMap<u64, Vec<Arrival>> = HashMap::new();
    for arrival in arrivals.iter().filter(|arrival| arrival.at < Nanos::from_secs(59)) {
        if let Some(group) = arrival.group {
            groups.entry(group).or_default().push(*arrival);
        }
    }
    let sizes: Vec<usize> = groups.values().map(Vec::len).collect();
    let mean = sizes.iter().sum::<usize>() as f64 / sizes.len() as f64;
    assert!((2.55..2.65).contains(&mean), "{mean}");
    assert_eq!(sizes.iter().max(), Some(&8));
    for group in groups.values() {
        let (first, last) = (group[0], group[group.len() - 1]);
        assert!(last.at.saturating_sub(first.at) <= Nanos::from_millis(20));
        let same = |arrival: &Arrival| (arrival.tenant, arrival.subject, arrival.class, arrival.region);
        assert!(group.iter().all(|arrival| same(arrival) == same(&first)));
    }
}

#[test]
fn tenants_are_skewed_keep_their_class_and_subjects_their_region() {
    let arrivals = schedule(8, 2_000.0, 60);
    let mut class = HashMap::new();
    let mut region = HashMap::new();
    for arrival in &arrivals {
        assert_eq!(*class.entry(arrival.tenant).or_insert(arrival.class), arrival.class);
        assert_eq!(
            *region.entry((arrival.tenant, arrival.subject)).or_insert(arrival.region),
            arrival.region
        );
        assert!(arrival.tenant < names::TENANTS && arrival.subject < names::SUBJECTS);
    }
    assert_eq!(class.len(), names::TENANTS as usize, "every tenant appears");
    // Zipf with exponent 1 over ten tenants: the first takes 1/2.929 of its class.
    let enterprise: Vec<Arrival> =
        arrivals.iter().filter(|arrival| arrival.class == WorkloadClass::Enterprise).copied().collect();
    let hottest = share(&enterprise, |arrival| arrival.tenant == 190);
    assert!((0.31..0.37).contains(&hottest), "{hottest}");
}

#[test]
fn the_key_space_scales_with_the_system() {
    let workload = Workload::shipped();
    let scale = Scale::parse("1/60").expect("valid");
    let arrivals: Vec<Arrival> = workload.arrivals(9, workload.at_scale(scale)).take(20_000).collect();
    assert!(arrivals.iter().all(|arrival| arrival.subject < 167));
    assert_eq!(arrivals.iter().map(|arrival| arrival.subject).collect::<HashSet<_>>().len(), 167);
    let secs = arrivals[arrivals.len() - 1].at.as_secs_f64();
    assert!((20_000.0 / secs / (18_400.0 / 180.0) - 1.0).abs() < 0.05, "{secs}");
}

#[test]
fn the_schedule_is_pinned() {
    let first = schedule(42, 100.0, 1)[0];
    assert_eq!((first.at.get(), first.tenant, first.subject, first.region), (4_527_351, 14, 5_470, 3));
}

#[test]
fn a_vanishing_rate_and_a_silence_between_waves_do_not_hang() {
    let workload = Workload::shipped();
    assert_eq!(workload.arrivals(1, workload.at_rate(0.0)).take(3).count(), 3);
    assert_eq!(workload.arrivals(1, workload.at_rate(1e-9)).take(3).count(), 3);
    let text = SHIPPED.1.replace("requests_per_s = 22700", "requests_per_s = 184000");
    let bursts = Workload::parse("w.toml", &text).expect("waves that are the whole mean");
    let inside = |arrival: &Arrival| {
        // A group that starts at the end of a wave may reach into the silence.
        arrival.group.is_some() || arrival.at.get() % 10_000_000_000 >= 9_000_000_000
    };
    assert!(bursts.arrivals(1, bursts.at_rate(500.0)).take(5_000).all(|arrival| inside(&arrival)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn time_never_runs_back_and_numbers_are_consecutive(seed: u64, rate in 1.0_f64..50_000.0) {
        let workload = Workload::shipped();
        let mut last = Nanos::ZERO;
        for (number, arrival) in workload.arrivals(seed, workload.at_rate(rate)).take(3_000).enumerate() {
            prop_assert!(arrival.at >= last);
            prop_assert_eq!(arrival.number, number as u64);
            last = arrival.at;
        }
    }

    #[test]
    fn a_schedule_is_a_pure_function(seed: u64, rate in 1.0_f64..50_000.0) {
        let workload = Workload::shipped();
        let one = workload.arrivals(seed, workload.at_rate(rate)).take(500);
        let two = Workload::shipped().arrivals(seed, workload.at_rate(rate)).take(500);
        prop_assert!(one.eq(two));
        let other = workload.arrivals(seed ^ 1, workload.at_rate(rate)).take(500);
        prop_assert!(!other.eq(workload.arrivals(seed, workload.at_rate(rate)).take(500)));
    }

    #[test]
    fn what_waits_stays_bounded(seed: u64) {
        let workload = Workload::shipped();
        let mut arrivals = workload.arrivals(seed, workload.at_rate(18_400.0));
        // By Little's law about 18,400 · 0.16 · 10 ms wait, some 30.
        let most = (0..20_000).map(|_| { arrivals.next(); arrivals.waiting() }).max();
        prop_assert!(most < Some(200), "{:?}", most);
    }
}

#[test]
fn a_piece_has_the_rate_that_it_says_and_groups_stay_whole() {
    let workload = Workload::shipped();
    let seconds = Nanos::from_secs;
    let pieces = [(60, 100), (120, 300), (180, 50)]
        .map(|(until, rate_percent)| Piece { until: seconds(until), rate_percent });
    let arrivals: Vec<Arrival> = workload
        .arrivals_by(3, workload.at_rate(200.0), &pieces)
        .take_while(|arrival| arrival.at < seconds(240))
        .collect();
    let rate = |from: u64| {
        let within = |arrival: &&Arrival| (seconds(from)..seconds(from + 60)).contains(&arrival.at);
        arrivals.iter().filter(within).count() as f64 / 60.0
    };
    for (from, expected) in [(0, 200.0), (60, 600.0), (120, 100.0), (180, 100.0)] {
        // Five standard deviations of a minute, and some for groups, which come together.
        let slack = 5.0 * (expected * 2.6_f64 / 60.0).sqrt();
        assert!((rate(from) - expected).abs() < slack, "from {from} s: {} for {expected}", rate(from));
    }
    let coalescible = share(&arrivals, |arrival| arrival.group.is_some());
    assert!((coalescible - workload.coalescing.share).abs() < 0.02, "{coalescible}");
    assert!(arrivals.is_sorted_by_key(|arrival| (arrival.at, arrival.number)));
}

#[test]
fn pieces_of_one_rate_are_the_plain_schedule_at_that_rate() {
    let workload = Workload::shipped();
    let pieces = [10, 20].map(|until| Piece { until: Nanos::from_secs(until), rate_percent: 150 });
    let pieced = workload.arrivals_by(3, workload.at_rate(200.0), &pieces).take(5_000);
    assert!(pieced.eq(workload.arrivals(3, workload.at_rate(300.0)).take(5_000)));
    let silent = [Piece { until: Nanos::from_secs(1), rate_percent: 0 }];
    assert_eq!(workload.arrivals_by(3, workload.at_rate(200.0), &silent).take(3).count(), 3, "it goes on");
}
