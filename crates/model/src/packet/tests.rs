//! Tests of packets: the shipped ones, what a changed input makes of them, and what is found to blame.

mod domains;
mod file;

use proptest::prelude::*;

use super::*;
use crate::workload::Workload;

/// A small packet that agrees: `a_count x b_count = product`, and a comparison.
pub(super) const SMALL: &str = r#"
name = "small"
version = 1
about = "Two numbers and what they come to."
source = "Nowhere"

[inputs]
a_count = 6
b_count = 7
most_count = 50

[[figures]]
name = "product"
unit = "things"
formula = "product"
of = ["a_count", "b_count"]
value = 42
decimals = 0

[[figures]]
name = "enough"
unit = "things"
formula = "at_most"
of = ["product", "most_count"]
"#;

pub(super) fn small() -> Packet {
    Packet::parse("p.toml", SMALL).expect("valid")
}

fn case_study() -> Packet {
    Packet::shipped().remove(0)
}

fn with(packet: &Packet, name: &str, value: f64) -> Packet {
    packet.with_input(name, value).expect("there is such an input")
}

/// What the figures imply about each input that would explain why they do not agree.
fn implied(packet: &Packet) -> Vec<(String, Range)> {
    let diagnosis = packet.verify().diagnosis.expect("something does not agree");
    diagnosis.fits.into_iter().map(|fit| (fit.input, fit.implied)).collect()
}

#[test]
fn every_shipped_figure_agrees() {
    for packet in Packet::shipped() {
        let report = packet.verify();
        let wrong: Vec<_> =
            report.outcomes.iter().filter(|outcome| outcome.verdict == Verdict::Differs).collect();
        assert!(wrong.is_empty(), "{}: {wrong:?}", packet.name);
        assert!(report.agrees() && report.diagnosis.is_none() && report.decides_domains());
    }
}

#[test]
fn figures_are_spelt_out_down_to_the_inputs() {
    let report = case_study().verify();
    let spelt = |name: &str| {
        report.outcomes.iter().find(|outcome| outcome.name == name).map(|outcome| outcome.spelt.as_str())
    };
    assert_eq!(spelt("leaders"), Some("18400 x 0.26 / 2.6"));
    assert_eq!(spelt("avoided"), Some("18400 x 0.26 - 18400 x 0.26 / 2.6"));
    assert_eq!(spelt("p99_gain_share"), Some("(487 - 268) / 487 x 100"));
    assert_eq!(spelt("premium"), Some("18400 x 23 / (23 + 72 + 5)"));
    assert_eq!(spelt("late_ratio"), Some("18400 x 0.2 x 0.085 / (18400 x 0.015 x 0.015)"));
    assert_eq!(spelt("endpoint_bound_in_frontier"), Some("480 <= 520 <= 560"));
    assert!(spelt("any_slow").is_some_and(|text| text.starts_with("(1 - (1 - 0.015) x (1 - 0.02) x ")));
}

#[test]
fn a_figure_may_state_what_does_not_follow_and_says_why() {
    let relay = Packet::shipped().remove(2);
    let outcome = |packet: &Packet| packet.verify().outcomes.pop().expect("figures");
    assert!(matches!(outcome(&relay).verdict, Verdict::Explained { stated: 78.0, .. }));
    // The reason is for what the inputs come to. It covers nothing else, not even what is stated.
    assert_eq!(outcome(&with(&relay, "sockets", 9_800.0 * 78.0)).verdict, Verdict::Differs);
}

#[test]
fn a_wrong_input_is_named_with_the_value_that_fits() {
    let packet = case_study();
    for (input, wrong, right) in [
        ("coalescible_ratio", 0.27, 0.26),
        ("group_mean_requests", 2.5, 2.6),
        ("endpoint_busy_slots", 603.0, 602.0),
        ("profile_slow_ratio", 0.051, 0.015),
        ("requests_per_s", 18_500.0, 18_400.0),
        ("before_p99_ms", 0.0, 487.0),
        ("enterprise_parts", 9.0, 5.0),
        ("core_correct_percent", 99.0, 100.0),
    ] {
        let found = implied(&with(&packet, input, wrong));
        assert!(found.contains(&(input.to_owned(), Range::Value(right))), "{input}: {found:?}");
    }
}

#[test]
fn an_input_beyond_a_bound_is_named_with_the_bound() {
    let packet = case_study();
    let named = |input: &str, value: f64| {
        let found = implied(&with(&packet, input, value));
        found.into_iter().find(|(name, _)| name == input).map(|(_, range)| range.to_string())
    };
    assert_eq!(named("normal_omission_percent", 9.0).as_deref(), Some("at most 8"));
    assert_eq!(named("after_recovery_min", 6.5).as_deref(), Some("4.5"), "another figure holds it closer");
    assert_eq!(named("drill_p99_ms", 290.0).as_deref(), Some("more than 300"));
    assert_eq!(named("endpoint_bound_slots", 470.0).as_deref(), Some("at least 480"));
    assert_eq!(named("after_p50_ms", 82.0).as_deref(), Some("less than 82"));
}

#[test]
fn a_bound_holds_at_itself_and_not_beyond() {
    let packet = case_study();
    assert!(with(&packet, "normal_omission_percent", 8.0).verify().agrees());
    assert!(!with(&packet, "normal_omission_percent", 8.000_001).verify().agrees());
    assert!(!with(&packet, "drill_p99_ms", 300.0).verify().agrees(), "above is more than");
    assert!(with(&packet, "drill_p99_ms", 300.001).verify().agrees());
}

#[test]
fn what_is_cut_off_is_not_rounded() {
    let journey = Packet::shipped().remove(1);
    let rate = |connections: f64| {
        let report = with(&journey, "pool_connections", connections).verify();
        report.outcomes.into_iter().find(|outcome| outcome.name == "pool_rate").map(|outcome| outcome.verdict)
    };
    assert_eq!(rate(285.0 * 0.14), Some(Verdict::Agrees));
    assert_eq!(rate(285.999 * 0.14), Some(Verdict::Agrees));
    assert_eq!(rate(286.0 * 0.14), Some(Verdict::Differs));
    assert_eq!(rate(284.9 * 0.14), Some(Verdict::Differs));
}

#[test]
fn two_wrong_inputs_are_not_explained_by_one() {
    let packet = with(&with(&case_study(), "endpoint_slots", 650.0), "profile_connections", 400.0);
    let diagnosis = packet.verify().diagnosis.expect("something does not agree");
    assert_eq!(diagnosis.fits, []);
    assert_eq!(diagnosis.figures, ["endpoint_occupancy", "profile_occupancy"]);
    let inputs = ["endpoint_busy_slots", "endpoint_slots", "profile_busy_connections", "profile_connections"];
    assert_eq!(diagnosis.inputs, inputs);
}

#[test]
fn an_input_is_not_blamed_when_its_value_would_break_another_figure() {
    // 602 of 650 slots would be 94.0625 % with 611.4 busy, and then nothing else minds; 30 of 50 minds.
    let found = implied(&with(&small(), "a_count", 5.0));
    assert_eq!(found, [("a_count".to_owned(), Range::Value(6.0)), ("b_count".to_owned(), Range::Value(8.4))]);
    let tight = with(&with(&small(), "most_count", 41.0), "a_count", 5.0);
    assert_eq!(implied(&tight), [], "42 would be too many");
}

#[test]
fn inputs_that_are_only_held_to_a_side_are_listed() {
    let loose = case_study().verify().loose;
    assert!(loose.contains(&"drill_queue_age_ms".to_owned()), "{loose:?}");
    assert!(!loose.contains(&"requests_per_s".to_owned()), "{loose:?}");
    assert_eq!(small().verify().loose, ["most_count"]);
}

#[test]
fn the_number_of_domains_is_the_one_that_the_workload_is_shared_by() {
    let domains = case_study().verify().domains.expect("the case study asks");
    let workload = Workload::shipped();
    assert_eq!(domains.reading, Reading::One(workload.admission_domains));
    assert!((domains.requests_per_s - workload.region_requests_per_s).abs() < 1e-9);
}

/// The position of a shipped packet, and something to choose one of its inputs by.
fn any_input() -> impl Strategy<Value = (usize, usize)> {
    (0..SHIPPED.len(), 0..INPUTS_MAX)
}

/// The packet, and the name and value of the input.
fn chosen((packet, at): (usize, usize)) -> (Packet, String, f64) {
    let packet = Packet::shipped().remove(packet);
    let Input { name, value } = packet.inputs[at % packet.inputs.len()].clone();
    (packet, name, value)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    /// An input that is held to its value is missed when it is changed, and found to be to blame, with the value that it had.
    #[test]
    fn a_changed_input_is_noticed_and_named(at in any_input(), factor in prop_oneof![0.2..0.9, 1.1..5.0]) {
        let (packet, name, value) = chosen(at);
        let changed = with(&packet, &name, value * factor);
        let report = changed.verify();
        if packet.verify().loose.contains(&name) {
            // Held to a side at most; whatever it does, an input to blame is one that was changed.
            prop_assert!(report.agrees() || implied(&changed).iter().any(|(input, _)| *input == name));
        } else {
            prop_assert!(!report.agrees(), "{name} x {factor}");
            let found = implied(&changed);
            let range = found.iter().find(|(input, _)| *input == name).map(|(_, range)| *range);
            let near = |implied: f64| (implied - value).abs() <= value * 0.1;
            match range {
                Some(Range::Value(implied) | Range::AtLeast(implied) | Range::AtMost(implied)) => {
                    prop_assert!(near(implied), "{name}: {implied}, not {value}");
                }
                other => prop_assert!(false, "{name} x {factor}: {other:?}"),
            }
        }
    }

    /// Whatever is said to fit does.
    #[test]
    fn what_is_said_to_fit_fits(at in any_input(), factor in 0.0..8.0_f64) {
        let (packet, name, value) = chosen(at);
        let changed = with(&packet, &name, value * factor);
        let diagnosis = changed.verify().diagnosis;
        for fit in diagnosis.iter().flat_map(|diagnosis| &diagnosis.fits) {
            let value = match fit.implied {
                Range::Value(value) | Range::AtMost(value) | Range::AtLeast(value) => value,
                Range::LessThan(value) => value * (1.0 - 1e-6),
                Range::MoreThan(value) => value * (1.0 + 1e-6),
            };
            prop_assert!(with(&changed, &fit.input, value).verify().agrees(), "{fit:?}");
        }
    }
}
