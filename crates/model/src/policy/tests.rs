//! Tests of the policy: the shipped documents, every fault at once, and the rules across keys.

mod derived;

use proptest::prelude::*;

use super::*;

fn faults(text: &str) -> Vec<String> {
    let faults = Policy::parse("p.toml", text).expect_err("faulty");
    faults.to_string().lines().map(str::to_owned).collect()
}

/// The shipped document with one line replaced; fails when the line is not there exactly once.
fn with(line: &str, replacement: &str) -> String {
    assert_eq!(SHIPPED.1.matches(line).count(), 1, "{line:?} must occur once");
    SHIPPED.1.replace(line, replacement)
}

#[test]
fn the_shipped_policy_holds_the_declared_figures() {
    let policy = Policy::shipped();
    assert_eq!(policy.objective, Nanos::from_millis(300));
    assert_eq!(policy.response_reserve, Nanos::from_millis(20));
    assert_eq!(policy.optional_floor, Nanos::from_millis(70));
    assert_eq!(policy.service(ServiceName::HomeApi).default_timeout, policy.objective);
    assert_eq!(policy.service(ServiceName::Reputation).reserve, Nanos::from_millis(2));
    assert!(Dependency::ALL.iter().all(|name| policy.branch(*name).enabled));
    // A request with more than 150 ms left is never refused for want of time.
    let longest = Dependency::ALL.iter().map(|name| policy.branch(*name).worst_useful).max();
    assert!(longest.expect("seven branches") + policy.response_reserve < Nanos::from_millis(150));
}

#[test]
fn names_read_back() {
    for (position, name) in ServiceName::ALL.into_iter().enumerate() {
        assert_eq!(ServiceName::parse(name.as_str()), Some(name));
        assert_eq!(name as usize, position);
    }
    for dependency in Dependency::ALL {
        assert_eq!(ServiceName::of(dependency).as_str(), dependency.as_str());
    }
    assert_eq!(ServiceName::parse("home"), None);
}

#[test]
fn the_digest_is_of_the_bytes() {
    let one = Policy::shipped();
    let other = Policy::parse("p.toml", &format!("{}\n", SHIPPED.1)).expect("valid");
    assert_ne!(one.digest, other.digest);
    assert_eq!(one.digest, Policy::shipped().digest);
    assert_eq!(Policy { digest: one.digest, ..other }, one);
}

#[test]
fn every_fault_is_reported_at_once() {
    let text = with("objective_ms = 300", "objective_ms = \"300\"")
        .replace("connections_max = 1024", "connections_max = 0\nconections_max = 1")
        .replace("\nqueue_max = 1024", "\nqueue_max = 63")
        .replace(
            "[mechanisms.coalescing]\nmode = \"on\"",
            "[mechanisms.coalescing]\nmode = \"maybe\"\npercent = 101",
        )
        .replace("slots = 420", "slots = 339")
        .replace("enterprise = { floor_percent = 6,", "enterprise = { floor_percent = 96,")
        .replace("[branches.profile]\nworst_useful_ms = 90", "[branches.profile]\nenabled = false")
        .replace("generation = 5\n", "");
    let found = faults(&text);
    let paths: Vec<&str> = found.iter().filter_map(|fault| fault.split(": ").nth(1)).collect();
    assert_eq!(
        paths,
        [
            "generation",
            "objective_ms",
            "mechanisms.coalescing.mode",
            "mechanisms.coalescing.percent",
            "admission.endpoint.classes",
            "admission.endpoint.classes.enterprise.ceiling_percent",
            "admission.profile.limit",
            "admission.profile.classes",
            "admission.profile.classes.enterprise.ceiling_percent",
            "branches.profile.worst_useful_ms",
            "branches.profile.enabled",
            "limits.connections_max",
            "limits.conections_max",
            "exposure.queue_max"
        ],
        "{found:#?}"
    );
}

#[test]
fn rules_across_keys_hold() {
    for (line, replacement, expected) in [
        (
            "response_reserve_ms = 20",
            "response_reserve_ms = 70",
            "optional_floor_ms: must be above response_reserve_ms",
        ),
        (
            "optional_floor_ms = 70",
            "optional_floor_ms = 300",
            "optional_floor_ms: must be below objective_ms",
        ),
        (
            "optional_floor_ms = 70",
            "optional_floor_ms = 39",
            "must cover branches.recommendation.worst_useful_ms",
        ),
        (
            "reserve_ms = 20 #",
            "reserve_ms = 19 #",
            "response_reserve_ms: must equal services.home-api.reserve_ms",
        ),
        ("worst_useful_ms = 90", "worst_useful_ms = 259", "objective_ms: is too short"),
        (
            "lifetime_max_ms = 300000",
            "lifetime_max_ms = 59999",
            "summary.lifetime_ms: must not exceed lifetime_max_ms",
        ),
        ("lifetime_max_ms = 300000", "lifetime_max_ms = 3600001", "summary.lifetime_max_ms: expected"),
        (
            "default_timeout_ms = 300\n",
            "default_timeout_ms = 2001\n",
            "default_timeout_ms: must not exceed timeout_max_ms",
        ),
        ("requests_max = 8192", "requests_max = 739", "limits.requests_max: must be 740 or more"),
        (
            "store_timeout_ms = 2000",
            "store_timeout_ms = 1000",
            "exposure.store_timeout_ms: must be above busy_timeout_ms",
        ),
        ("probe_interval_ms = 1000", "probe_interval_ms = 9", "exposure.probe_interval_ms: expected"),
        (
            "stream_window_bytes = 262144",
            "stream_window_bytes = 4194305",
            "stream_window_bytes: must not exceed",
        ),
        (
            "worst_useful_ms = 8",
            "worst_useful_ms = 8\nenabled = false",
            "branches.entitlement.enabled: must be true",
        ),
    ] {
        let found = faults(&with(line, replacement));
        assert!(found.iter().any(|fault| fault.contains(expected)), "{replacement}: {found:#?}");
    }
    let at_bound = with("worst_useful_ms = 90", "worst_useful_ms = 258");
    assert!(Policy::parse("p.toml", &at_bound).is_ok());
}

#[test]
fn an_optional_branch_may_be_off() {
    let text = SHIPPED.1.replace("enabled = true", "enabled = false");
    let policy = Policy::parse("p.toml", &text).expect("valid");
    assert!(!policy.branch(Dependency::Recommendation).enabled);
    assert!(policy.branch(Dependency::Pricing).enabled);
}

/// Every line of the shipped document that gives a key a plain value, by number.
fn assignments() -> Vec<usize> {
    let assigned = |line: &str| {
        line.split_once(" = ").is_some_and(|(key, value)| !key.starts_with('#') && !value.starts_with('{'))
    };
    SHIPPED.1.lines().enumerate().filter(|(_, line)| assigned(line)).map(|(number, _)| number).collect()
}

fn with_value(number: usize, value: &str) -> String {
    let edit = |(at, line): (usize, &str)| match line.split_once(" = ") {
        Some((key, _)) if at == number => format!("{key} = {value}\n"),
        _ => format!("{line}\n"),
    };
    SHIPPED.1.lines().enumerate().map(edit).collect()
}

proptest! {
    #[test]
    fn every_key_refuses_zero_or_means_it_and_refuses_another_type(which in any::<prop::sample::Index>()) {
        let number = *which.get(&assignments());
        let line = SHIPPED.1.lines().nth(number).unwrap_or_default();
        let fractional = line.contains("offered_concurrency") || line.starts_with("percent");
        for wrong in ["\"1\"", "[1]", "1.5", "-1", "{ a = 1 }"] {
            if fractional && wrong == "1.5" {
                continue; // The two kinds of figures that need not be whole.
            }
            let faults = Policy::parse("p.toml", &with_value(number, wrong)).expect_err("wrong type");
            prop_assert_eq!(faults.list().len(), 1, "{}", faults);
            prop_assert_eq!(faults.list()[0].line, number + 1);
        }
        let zero = Policy::parse("p.toml", &with_value(number, "0"));
        // Only an internal hop's own reserve may be nothing, the leeway of clocks that agree, samples that nobody wants and a
        // share that is nobody.
        let may = ["leeway_ms", "samples_max", "percent"].iter().any(|key| line.starts_with(key));
        prop_assert_eq!(zero.is_ok(), may || line == "reserve_ms = 2", "{}", line);
    }

    #[test]
    fn every_key_is_needed_and_none_may_be_misspelt(which in any::<prop::sample::Index>()) {
        let number = *which.get(&assignments());
        let line = SHIPPED.1.lines().nth(number).unwrap_or_default();
        let misspelt: String =
            SHIPPED.1.lines().enumerate().map(|(at, line)| if at == number { format!("x{line}\n") } else { format!("{line}\n") }).collect();
        let faults = Policy::parse("p.toml", &misspelt).expect_err("misspelt");
        let optional = ["enabled", "emit", "call", "percent"].iter().any(|key| line.starts_with(key));
        let expected = if optional { 1 } else { 2 };
        prop_assert_eq!(faults.list().len(), expected, "{}", faults);
    }
}

#[test]
fn slow_motion_multiplies_every_budget_and_leaves_the_machine_alone() {
    let (policy, slow) = (Policy::shipped(), Policy::shipped().dilated(5));
    assert_eq!(slow.objective, policy.objective.times(5));
    assert_eq!(slow.response_reserve, policy.response_reserve.times(5));
    assert_eq!(slow.optional_floor, policy.optional_floor.times(5));
    for name in ServiceName::ALL {
        let (before, after) = (policy.service(name), slow.service(name));
        assert_eq!(after.default_timeout, before.default_timeout.times(5));
        assert_eq!(after.timeout_max, before.timeout_max.times(5));
        assert_eq!(after.reserve, before.reserve.times(5));
    }
    for dependency in Dependency::ALL {
        assert_eq!(slow.branch(dependency).worst_useful, policy.branch(dependency).worst_useful.times(5));
    }
    assert_eq!(slow.summary.lifetime, policy.summary.lifetime.times(5));
    assert_eq!(slow.summary.lifetime_max, policy.summary.lifetime_max.times(5));
    assert_eq!(slow.summary.leeway, policy.summary.leeway, "clocks differ by as much as they do");
    assert_eq!((slow.drain, slow.limits, slow.exposure), (policy.drain, policy.limits, policy.exposure));
    assert_eq!(policy.dilated(1), policy);
}
