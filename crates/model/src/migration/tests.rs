//! Tests of the migration's plan: the shipped one, what a table may say, and every fault at once.

use proptest::prelude::*;

use super::*;
use crate::policy::Policy;

fn faults(text: &str) -> Vec<String> {
    let faults = Plan::parse("m.toml", text).expect_err("faulty");
    faults.to_string().lines().map(str::to_owned).collect()
}

/// The paths of the faults.
fn paths(text: &str) -> Vec<String> {
    faults(text).iter().filter_map(|fault| fault.split(": ").nth(1).map(str::to_owned)).collect()
}

/// The shipped document with one line of one table replaced.
fn with(table: &str, key: &str, line: &str) -> String {
    let (mut inside, mut found) = (table.is_empty(), 0);
    let lines = SHIPPED.1.lines().map(|text| {
        if text.starts_with('[') {
            inside = text == format!("[{table}]");
        }
        if inside && text.starts_with(&format!("{key} = ")) {
            found += 1;
            return line.to_owned();
        }
        text.to_owned()
    });
    let text = lines.collect::<Vec<_>>().join("\n");
    assert_eq!(found, 1, "{table} {key}");
    text
}

#[test]
fn the_shipped_plan_asks_for_more_the_nearer_it_comes_to_the_end() {
    let plan = Plan::shipped();
    assert_eq!((plan.name.as_str(), plan.version), ("entitlement-summary", 1));
    let soaks = Target::ALL.map(|target| plan.transition(target).full.soak);
    assert!(soaks.is_sorted(), "{soaks:?}");
    let contract = plan.transition(Target::Contract);
    let summary = Policy::shipped().summary;
    assert!(
        contract.full.soak > summary.lifetime_max.saturating_add(summary.staleness_max),
        "an old process's summaries may still be alive"
    );
    let whole: u64 = Target::ALL.map(|target| plan.transition(target).quick.soak.as_millis()).iter().sum();
    assert!(whole <= 15_000, "a quick rehearsal soaks for {whole} ms");
}

#[test]
fn a_table_has_the_keys_that_its_phase_has_figures_for() {
    let plan = Plan::shipped();
    let has = |target| {
        let Transition { full, shares, .. } = plan.transition(target);
        [
            full.class_sample_min.is_some(),
            full.region_sample_min.is_some(),
            shares.missing_max_percent.is_some(),
            shares.not_run_max_percent.is_some(),
            shares.match_min_percent.is_some(),
            shares.fallback_max_percent.is_some(),
        ]
    };
    assert_eq!(has(Target::Expand), [false; 6]);
    assert_eq!(has(Target::Shadow), [false, false, true, false, false, false]);
    assert_eq!(has(Target::Canary), [true, true, true, true, true, false]);
    assert_eq!(has(Target::Cutover), [true; 6]);
    assert_eq!(has(Target::Contract), [true, true, false, false, false, true]);
    for target in Target::ALL {
        assert_eq!(Target::parse(target.as_str()), Some(target));
        assert_eq!(plan.transition(target).extent(true), &plan.transition(target).quick);
    }
    assert_eq!(Target::parse("legacy"), None);
}

#[test]
fn every_fault_is_reported_at_once_with_its_path() {
    let text = with("", "name", "name = \"Entitlement Summary\"")
        .replace("version = 1", "version = 0")
        .replace("match_min_percent = 99.0", "match_min_percent = 10")
        .replace("not_run_max_percent = 5.0", "not_run_percent = 5.0")
        .replace("soak_ms = 600000", "soak_ms = 2592000001")
        .replace("fallback_max_percent = 0.5", "fallback_max_percent = nan");
    assert_eq!(
        paths(&text),
        [
            "name",
            "version",
            "transitions.canary",
            "transitions.canary.not_run_percent",
            "transitions.canary.match_min_percent",
            "transitions.cutover",
            "transitions.cutover.not_run_percent",
            "transitions.cutover.match_min_percent",
            "transitions.contract.soak_ms",
            "transitions.contract.fallback_max_percent",
        ]
        .map(|path| match path {
            "transitions.canary" | "transitions.cutover" => format!("{path}.not_run_max_percent"),
            path => path.to_owned(),
        })
    );
}

#[test]
fn what_a_table_may_not_say_is_unknown_there() {
    for (table, key, line, expected) in [
        (
            "transitions.expand",
            "refused_max_percent",
            "class_sample_min = 3",
            "transitions.expand.class_sample_min",
        ),
        (
            "transitions.shadow",
            "missing_max_percent",
            "match_min_percent = 99",
            "transitions.shadow.match_min_percent",
        ),
        ("transitions.contract", "sample_min", "blocking_max = 1", "transitions.contract.blocking_max"),
        (
            "transitions.canary.quick",
            "soak_ms",
            "refused_max_percent = 50.0",
            "transitions.canary.quick.refused_max_percent",
        ),
    ] {
        let found = paths(&with(table, key, line));
        assert!(found.iter().any(|path| path == expected), "{table}: {found:?}");
        assert!(found.contains(&format!("{table}.{key}")), "and {key} is missing: {found:?}");
    }
    let without = SHIPPED.1.replace("[transitions.canary]", "[transitions.canaries]");
    let found = paths(&without);
    assert!(found.iter().any(|path| path == "transitions.canaries"), "{found:?}");
}

#[test]
fn quick_asks_for_no_more_and_a_part_for_no_more_than_the_whole() {
    let found = faults(&with("transitions.expand.quick", "sample_min", "sample_min = 1001"));
    assert!(
        found[0].contains("transitions.expand.quick.sample_min: 1001 is more than the 1000"),
        "{found:?}"
    );
    let found = faults(&with("transitions.contract", "class_sample_min", "class_sample_min = 10001"));
    assert!(
        found[0].contains("transitions.contract.class_sample_min: must not exceed sample_min"),
        "{found:?}"
    );
    let zero = paths(&with("transitions.shadow", "sample_min", "sample_min = 0"));
    assert_eq!(zero, ["transitions.shadow.sample_min"], "no data never passes");
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "\\PC{0,200}", at in 0_usize..4_000) {
        let _ = Plan::parse("m.toml", &text);
        let at = (0..=at.min(SHIPPED.1.len())).rev().find(|at| SHIPPED.1.is_char_boundary(*at)).unwrap_or(0);
        let spliced = format!("{}{text}{}", &SHIPPED.1[..at], &SHIPPED.1[at..]);
        let _ = Plan::parse("m.toml", &spliced);
    }

    #[test]
    fn a_bound_within_its_range_reads_back(percent in 0.0_f64..=100.0, sample in 1000_u64..=SAMPLE_MAX) {
        let text = with("transitions.shadow", "missing_max_percent", &format!("missing_max_percent = {percent:?}"));
        let plan = Plan::parse("m.toml", &text).expect("valid");
        prop_assert_eq!(plan.transition(Target::Shadow).shares.missing_max_percent, Some(percent));
        let text = with("transitions.shadow", "sample_min", &format!("sample_min = {sample}"));
        let plan = Plan::parse("m.toml", &text).expect("valid");
        prop_assert_eq!(plan.transition(Target::Shadow).full.sample_min, sample);
    }
}
