//! Tests of a packet's file: what is refused, with which path, and that all of it is said at once.

use proptest::prelude::*;

use super::{super::*, SMALL};

fn faults(text: &str) -> Vec<String> {
    let faults = Packet::parse("p.toml", text).expect_err("faulty");
    faults.to_string().lines().map(str::to_owned).collect()
}

/// The one fault of the small packet with some words replaced.
fn fault(from: &str, to: &str) -> String {
    assert!(SMALL.contains(from), "{from}");
    let found = faults(&SMALL.replacen(from, to, 1));
    assert_eq!(found.len(), 1, "{found:?}");
    found[0].clone()
}

fn accepted(text: &str) -> bool {
    Packet::parse("p.toml", text).is_ok()
}

#[test]
fn names_and_units_are_those_of_the_format() {
    assert!(
        fault("a_count = 6", "a_count = 6\nslots_of_b = 1")
            .contains("inputs.slots_of_b: the name of an input ends")
    );
    assert!(accepted(&SMALL.replace("b_count", "b_slots")));
    assert!(fault("\"small\"", "\"Small\"").starts_with("p.toml:2: name: expected 1 to 64"));
    assert!(fault("\"product\"\nunit", "\"Product\"\nunit").contains("figures[0].name: expected"));
    assert!(fault("unit = \"things\"", "unit = \"\"").contains("figures[0].unit"));
    assert!(fault("version = 1", "version = 0").contains("version: expected an integer from 1"));
}

#[test]
fn numbers_are_finite_and_not_negative() {
    for bad in ["nan", "inf", "-inf", "-1", "-0.5", "1e13", "\"6\"", "true"] {
        let found = faults(&SMALL.replace("a_count = 6", &format!("a_count = {bad}")));
        assert!(
            found.iter().any(|line| line.contains(":8: inputs.a_count: expected a number")),
            "{bad}: {found:?}"
        );
        let found = faults(&SMALL.replace("value = 42", &format!("value = {bad}")));
        assert!(
            found.iter().any(|line| line.contains("figures[0].value: expected a number")),
            "{bad}: {found:?}"
        );
    }
    let ratio = SMALL.replace("a_count", "a_ratio").replace("= 6", "= 1.5");
    assert!(faults(&ratio)[0].contains("expected a number from 0 to 1, found 1.5"));
}

#[test]
fn keys_formulas_and_operands_are_known() {
    assert!(fault("version = 1", "version = 1\nvarsion = 1").contains("varsion: unknown key"));
    assert!(fault("decimals = 0", "decimals = 0\nround_to = 1").contains("figures[0].round_to: unknown key"));
    assert!(
        fault("formula = \"at_most\"", "formula = \"at_most\"\nvalue = 1")
            .contains("figures[1].value: unknown key")
    );
    let unknown = fault("\"product\"\nof", "\"power\"\nof");
    assert!(
        unknown.contains("figures[0].formula: expected one of sum, ") && unknown.contains("found \"power\"")
    );
    assert!(
        fault("[\"product\", \"most_count\"]", "[\"produce\", \"most_count\"]")
            .contains("figures[1].of: no input and no figure is called produce")
    );
}

#[test]
fn a_formula_takes_as_many_operands_as_it_has_places_for() {
    let quotient = SMALL.replace("\"product\"\nof", "\"quotient\"\nof");
    let found = faults(&quotient.replace("\"b_count\"]", "\"b_count\", \"most_count\"]"));
    assert_eq!(found, ["p.toml:16: figures[0].of: quotient takes 2 operands, found 3"]);
    assert!(
        fault("\"a_count\", \"b_count\"", "\"a_count\", \"a_count\"")
            .contains("operand 2: a_count is taken already")
    );
    assert!(
        faults(&SMALL.replace("[\"a_count\", \"b_count\"]", "[\"b_count\"]"))[0]
            .contains("takes 2 to 16 operands, found 1")
    );
    assert!(
        faults(&SMALL.replace("\"product\"\nof", "\"any_of\"\nof"))
            .iter()
            .any(|line| line.contains("a_count does not"))
    );
    for formula in Formula::ALL {
        assert!(*formula.operands().end() <= OPERANDS_MAX && *formula.operands().start() >= 2);
        assert_eq!(Formula::parse(formula.as_str()), Some(formula));
    }
}

#[test]
fn an_input_that_nothing_uses_is_a_fault() {
    let found = fault("a_count = 6", "a_count = 6\nspare_ms = 1");
    assert_eq!(
        found,
        "p.toml:9: inputs.spare_ms: takes part in no figure, so that it could be changed unnoticed"
    );
}

#[test]
fn figures_that_take_each_other_are_a_fault_of_each() {
    let other = |of: &str| {
        format!(
            "{SMALL}\n[[figures]]\nname = \"other\"\nunit = \"x\"\nformula = \"sum\"\nof = {of}\nvalue = 1\ndecimals = 0\n"
        )
    };
    let circle =
        other("[\"product\", \"a_count\"]").replace("[\"a_count\", \"b_count\"]", "[\"other\", \"b_count\"]");
    let found = faults(&circle);
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found[0].contains("figures[0].of: goes round in a circle: it takes other"), "{found:?}");
    assert!(
        found[1].contains("figures[1].of: goes round in a circle: it takes product"),
        "what rests on it: {found:?}"
    );
    assert!(found[2].contains("figures[2].of: goes round in a circle: it takes product"), "{found:?}");
    let itself = SMALL.replace("[\"a_count\", \"b_count\"]", "[\"a_count\", \"b_count\", \"product\"]");
    assert!(faults(&itself)[0].contains("figures[0].of: goes round in a circle: it takes product"));
    assert!(accepted(&other("[\"product\", \"a_count\"]")), "a value that is wrong is for verify");
}

#[test]
fn a_figure_may_come_before_those_that_it_takes() {
    let (head, tables) = SMALL.split_once("[[figures]]").expect("figures");
    let (first, second) = tables.split_once("[[figures]]").expect("two");
    let turned = format!("{head}[[figures]]{second}\n[[figures]]{first}");
    assert!(Packet::parse("p.toml", &turned).expect("valid").verify().agrees());
}

#[test]
fn names_are_taken_once() {
    assert!(
        fault("name = \"enough\"", "name = \"product\"")
            .contains("figures[1].name: the name product is taken by another")
    );
    assert!(
        fault("name = \"enough\"", "name = \"b_count\"")
            .contains("figures[1].name: the name b_count is taken by an input")
    );
    let twice = faults(&SMALL.replace("a_count = 6", "a_count = 6\na_count = 6"));
    assert!(twice.iter().any(|line| line.contains("duplicate key")), "{twice:?}");
    let taken = format!(
        "{SMALL}\n[[figures]]\nname = \"more\"\nunit = \"x\"\nformula = \"sum\"\nof = [\"enough\", \"a_count\"]\nvalue = 1\ndecimals = 0\n"
    );
    assert!(faults(&taken)[0].contains("enough is a comparison and has no value to take"));
}

#[test]
fn a_figure_that_repeats_another_is_a_fault() {
    assert!(
        fault("b_count = 7", "b_count = 1").contains("figures[0].value: b_count is 1, which changes nothing")
    );
    let sum = SMALL.replace("\"product\"\nof", "\"sum\"\nof").replace("b_count = 7", "b_count = 0");
    assert!(faults(&sum)[0].contains("b_count is 0, which changes nothing"));
    let quotient = SMALL.replace("\"product\"\nof", "\"quotient\"\nof").replace("b_count = 7", "b_count = 0");
    assert!(faults(&quotient)[0].contains("figures[0].of: does not come to a number"));
}

#[test]
fn a_value_says_how_closely_it_is_stated() {
    assert!(fault("decimals = 0", "").contains("figures[0].value: needs either"));
    assert!(fault("decimals = 0", "decimals = 0\ntolerance = 1").contains("needs either"));
    assert!(fault("value = 42", "value = 42.5").contains("has more than the 0 decimals"));
    assert!(accepted(&SMALL.replace("decimals = 0", "tolerance = 4.2")));
    assert!(fault("decimals = 0", "tolerance = 4.3").contains("figures[0].tolerance: is more than a tenth"));
    assert!(fault("decimals = 0", "tolerance = 1\nround = \"down\"").contains("figures[0].round"));
    assert!(
        fault("decimals = 0", "decimals = 0\nround = \"up\"").contains("expected \"nearest\" or \"down\"")
    );
    assert!(fault("decimals = 0", "decimals = 0\nstated = 40").contains("figures[0].why: missing"));
    assert!(fault("decimals = 0", "decimals = 0\nwhy = \"so\"").contains("figures[0].stated: missing"));
    assert!(fault("decimals = 0", "decimals = 0\nstated = 42\nwhy = \"so\"").contains("nothing to explain"));
}

#[test]
fn the_question_about_domains_is_asked_over_inputs() {
    let study = SHIPPED[0].1;
    let fault = |from: &str, to: &str| {
        let found = faults(&study.replacen(from, to, 1));
        assert_eq!(found.len(), 1, "{found:?}");
        found[0].clone()
    };
    assert!(fault("up_to = 24", "up_to = 0").contains("domains.up_to: expected an integer from 1 to 1000"));
    assert!(
        fault("rate = \"requests_per_s\"", "rate = \"endpoint_slots\"")
            .contains("domains.rate: must be an input that ends in _per_s")
    );
    assert!(
        fault("median = \"before_p50_ms\"", "median = \"p50_ms\"")
            .contains("domains.median: no input is called p50_ms")
    );
    assert!(
        fault("part = \"profile_busy_connections\"", "part = \"endpoint_slots\"")
            .contains("domains.part: must be below the whole")
    );
}

#[test]
fn every_fault_is_reported_at_once() {
    let text = SMALL
        .replace("version = 1", "version = 0")
        .replace("b_count = 7", "b_count = nan")
        .replace("formula = \"product\"", "formula = \"power\"")
        .replace("unit = \"things\"\nformula = \"at_most\"", "unit = \"\"\nformula = \"at_most\"");
    let found = faults(&text);
    let paths: Vec<_> = found.iter().filter_map(|line| line.split(": ").nth(1)).collect();
    assert_eq!(paths, ["version", "inputs.b_count", "figures[0].formula", "figures[1].unit"]);
}

#[test]
fn there_is_a_most_of_inputs_and_figures() {
    let inputs = |count: usize| {
        let more: String = (3..count).map(|at| format!("x{at}_count = 2\n")).collect();
        SMALL.replace("most_count = 50\n", &format!("most_count = 50\n{more}"))
    };
    assert!(faults(&inputs(INPUTS_MAX)).iter().all(|line| line.contains("takes part in no figure")));
    assert!(faults(&inputs(INPUTS_MAX + 1))[0].contains("inputs: expected 1 to 64 keys, found 65"));
    let figures = |count: usize| {
        let one = |at| {
            format!(
                "[[figures]]\nname = \"f{at}\"\nunit = \"x\"\nformula = \"above\"\nof = [\"b_count\", \"a_count\"]\n"
            )
        };
        format!("{SMALL}{}", (2..count).map(one).collect::<String>())
    };
    assert!(accepted(&figures(FIGURES_MAX)));
    assert!(faults(&figures(FIGURES_MAX + 1))[0].contains("figures: expected 1 to 64 tables, found 65"));
}

/// Each figure takes the one before twice over: what is spelt out must not double with each.
#[test]
fn deep_figures_stay_readable() {
    let one = |at: usize| {
        let before = at.checked_sub(1).map_or("product".to_owned(), |at| format!("f{at}"));
        format!(
            "[[figures]]\nname = \"f{at}\"\nunit = \"x\"\nformula = \"sum\"\nof = [\"{before}\", \"g{at}\"]\nvalue = 1\ndecimals = 0\n\
            [[figures]]\nname = \"g{at}\"\nunit = \"x\"\nformula = \"product\"\nof = [\"{before}\", \"a_count\"]\nvalue = 1\ndecimals = 0\n"
        )
    };
    let text = format!("{SMALL}{}", (0..8).map(one).collect::<String>());
    let report = Packet::parse("p.toml", &text).expect("valid").verify();
    assert!(report.outcomes.iter().all(|outcome| outcome.spelt.len() < 200), "{report:?}");
}

proptest! {
    /// No edit of a line makes the reader or the audit panic.
    #[test]
    fn no_edit_panics(packet in 0..SHIPPED.len(), at in 0_usize..400, line in ".{0,40}") {
        let lines: Vec<&str> = SHIPPED[packet].1.lines().collect();
        let at = at % lines.len();
        let edited = lines.iter().enumerate().map(|(n, text)| if n == at { line.as_str() } else { *text });
        let text = edited.collect::<Vec<_>>().join("\n");
        if let Ok(packet) = Packet::parse("p.toml", &text) {
            prop_assert_eq!(packet.verify().outcomes.len(), packet.figures.len());
        }
    }
}
