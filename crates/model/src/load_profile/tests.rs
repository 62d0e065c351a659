//! Tests of the profiles: the shipped ones hold, and what cannot be is refused with every fault.

use super::*;

fn faults(text: &str) -> Vec<String> {
    let faults = Profile::parse("profile.toml", text).expect_err("refused");
    faults.to_string().lines().map(str::to_owned).collect()
}

/// The shipped steady profile with `from` replaced.
fn steady(from: &str, to: &str) -> String {
    let text = SHIPPED[0].1;
    assert!(text.contains(from), "{from}");
    text.replacen(from, to, 1)
}

#[test]
fn the_shipped_profiles_are_valid_and_each_has_conditions_of_both_kinds() {
    let names: Vec<&str> = Profile::names().collect();
    assert_eq!(names.len(), SHIPPED.len());
    for name in names {
        let profile = Profile::shipped(name).expect("shipped");
        assert_eq!(profile.name, name, "a profile is named after its file");
        assert!(profile.accept.len() >= 5 && profile.stop.len() >= 3, "{name}");
        let stops = |figure| profile.stop.iter().any(|stop| stop.figure == figure);
        assert!(stops(Figure::Ambiguous) && stops(Figure::Panics), "{name}");
        assert!(stops(Figure::SpansLost) && stops(Figure::Blind), "{name}");
        assert!(stops(Figure::DependencyOverload), "{name}: harm to a dependency");
        let collects =
            |one: &Condition| one.figure == Figure::SpansCollected && one.bound == Bound::AtLeast(1.0);
        assert!(profile.accept.iter().any(collects), "{name}: no span would be lost if none were collected");
        assert!(stops(Figure::MemoryGrowth) || stops(Figure::FloodMemory), "{name}");
        // A stop condition is looser than the acceptance of the same figure, or the run could never be judged by it.
        for stop in &profile.stop {
            let same = profile.accept.iter().find(|accept| accept.figure == stop.figure);
            if let (Some(Bound::AtMost(accept)), Bound::AtMost(stop)) =
                (same.map(|one| one.bound), stop.bound)
            {
                assert!(accept <= stop, "{name}");
            }
        }
    }
    assert_eq!(Profile::shipped("no-such"), None);
}

#[test]
fn figures_have_names_of_their_own_that_end_with_their_unit() {
    let mut names: Vec<&str> = Figure::ALL.iter().map(|figure| figure.name()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), Figure::ALL.len());
    for figure in Figure::ALL {
        assert_eq!(Figure::parse(figure.name()), Some(*figure));
        let suffix = match figure.unit() {
            "ms" => "_ms",
            "s" => "_s",
            "ratio" => "_ratio",
            "1/s" => "_per_s",
            "MiB" => "_mib",
            _ => "",
        };
        assert!(figure.name().ends_with(suffix), "{figure:?}");
    }
}

#[test]
fn every_fault_is_named_with_its_key() {
    let text = steady("scale = \"1/48\"", "scale = \"2\"\nspeed = 3")
        .replacen("at_most = 300", "at_most = 300\nat_least = 1", 1)
        .replacen("figure = \"core_mismatch\"", "figure = \"core_missmatch\"", 1);
    let told = faults(&text).join("\n");
    for part in ["scale", "speed", "accept[0].at_most", "accept[6].figure"] {
        assert!(told.contains(part), "{part} in {told}");
    }
}

#[test]
fn a_condition_must_be_measurable() {
    let told = |from: &str, to: &str| faults(&steady(from, to)).join("\n");
    let phase = told("figure = \"p99_ms\"\nphase = \"steady\"", "figure = \"p99_ms\"");
    assert!(phase.contains("accept[0].phase") && phase.contains("missing"), "{phase}");
    let warm_up = told("figure = \"p99_ms\"\nphase = \"steady\"", "figure = \"p99_ms\"\nphase = \"warm-up\"");
    assert!(warm_up.contains("is not measured"), "{warm_up}");
    let whole = told("figure = \"core_mismatch\"", "figure = \"core_mismatch\"\nphase = \"steady\"");
    assert!(whole.contains("of the whole run"), "{whole}");
    let table = told("figure = \"core_mismatch\"", "figure = \"readers_cut_ratio\"");
    assert!(table.contains("without readers"), "{table}");
    let watched = steady("dependency = \"pricing\"\n", "").replacen(
        "figure = \"p99_ms\"",
        "figure = \"dependency_calls_per_operation\"",
        1,
    );
    let watched = faults(&watched).join("\n");
    assert!(
        watched.contains("needs the key dependency") && watched.contains("without dependency"),
        "{watched}"
    );
    let afterwards = told("figure = \"blind_s\"", "figure = \"core_mismatch\"");
    assert!(afterwards.contains("stop[3].figure"), "{afterwards}");
    let none = told("quick_ms = 10000", "quick_ms = 10000\nmeasured = false");
    assert!(none.contains("none is measured"), "{none}");
}

#[test]
fn home_api_is_stopped_last_and_a_short_run_is_no_longer_than_a_whole_one() {
    let shutdown =
        SHIPPED[7].1.replacen("[stopping]\nphase = \"shutdown\"", "[stopping]\nphase = \"calm\"", 1);
    assert!(faults(&shutdown).join("\n").contains("stopping.phase"));
    let longer = steady("quick_ms = 3000", "quick_ms = 30000");
    assert!(faults(&longer).join("\n").contains("phases[0].quick_ms"));
    let later = format!(
        "{}\n[[faults]]\nphase = \"steady\"\nafter_ms = 5\ndependency = \"pricing\"\nshare = 1.0\neffect = \"hang\"\n",
        SHIPPED[0].1
    );
    assert!(faults(&later).join("\n").contains("begins and ends with its phase"));
}

#[test]
fn callers_of_a_profile_take_the_place_of_the_workloads() {
    let storm = Profile::shipped("retry-storm").expect("shipped");
    let workload = storm.callers_of(Workload::shipped());
    assert_eq!(workload.retries.attempts_max, 3);
    assert_eq!(workload.departures.share, Share::from_ratio(0.0));
    let steady = Profile::shipped("steady").expect("shipped");
    assert_eq!(steady.callers_of(Workload::shipped()), Workload::shipped());
    assert_eq!(steady.baseline(), 1, "after the warm-up");
}
