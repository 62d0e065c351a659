//! Tests of the reader: every fault at once, each at its line and path.

use proptest::prelude::*;

use super::*;

#[derive(Debug, PartialEq)]
struct Sample {
    count: u64,
    wait: Nanos,
    ratio: f64,
    flag: bool,
    name: String,
    inner: u64,
    rows: Vec<u64>,
}

fn sample(table: &mut Table<'_>) -> Option<Sample> {
    let count = table.integer("count", 1..=10);
    let wait = table.millis("wait_ms", 0..=1_000);
    let ratio = table.number("ratio", 0.0..=1.0);
    let flag = table.boolean_or("flag", true);
    let name = table.text("name", "a name", |text| (!text.is_empty()).then(|| text.to_owned()));
    let inner = table.section("inner", |inner| inner.integer("depth", 0..=9));
    let rows = table.sections("rows", 0..=2, |row| row.integer("value", 0..=9));
    if let (Some(count), Some(inner)) = (count, inner)
        && inner > count
    {
        table.fault("count", "must not be below inner.depth");
        return None;
    }
    Some(Sample {
        count: count?,
        wait: wait?,
        ratio: ratio?,
        flag: flag?,
        name: name?,
        inner: inner?,
        rows: rows?,
    })
}

const GOOD: &str =
    "count = 3\nwait_ms = 20\nratio = 0.5\nname = \"x\"\n[inner]\ndepth = 1\n[[rows]]\nvalue = 4\n";

fn faults(text: &str) -> Vec<String> {
    let faults = document("f.toml", text, sample).expect_err("faulty");
    faults.to_string().lines().map(str::to_owned).collect()
}

#[test]
fn a_good_document_is_read() {
    let read = document("f.toml", GOOD, sample).expect("good");
    let wait = Nanos::from_millis(20);
    let name = "x".to_owned();
    assert_eq!(read, Sample { count: 3, wait, ratio: 0.5, flag: true, name, inner: 1, rows: vec![4] });
}

#[test]
fn every_fault_is_reported_at_once_with_line_and_path() {
    let text = "count = 0\nwait_ms = \"2\"\nratio = nan\nflag = 1\nextra = 1\n\"od d\" = 1\n\
                [inner]\ndeep = 1\n[[rows]]\nvalue = 10\n[[rows]]\n";
    assert_eq!(
        faults(text),
        [
            "f.toml:1: count: expected an integer from 1 to 10, found 0",
            "f.toml:1: name: missing",
            "f.toml:2: wait_ms: expected an integer from 0 to 1000, found \"2\"",
            "f.toml:3: ratio: expected a number from 0 to 1, found nan",
            "f.toml:4: flag: expected true or false, found 1",
            "f.toml:5: extra: unknown key; the keys here are count, wait_ms, ratio, flag, name, inner, rows",
            "f.toml:6: \"od d\": unknown key; the keys here are count, wait_ms, ratio, flag, name, inner, rows",
            "f.toml:7: inner.depth: missing",
            "f.toml:8: inner.deep: unknown key; the keys here are depth",
            "f.toml:10: rows[0].value: expected an integer from 0 to 9, found 10",
            "f.toml:11: rows[1].value: missing",
        ]
    );
}

#[test]
fn wrong_types_and_impossible_numbers_are_refused() {
    for (line, found) in [
        ("count = -1", "-1"),
        ("count = 99999999999999999999999999", "99999999999999999999999999"),
        ("count = 2.0", "2.0"),
        ("count = [2]", "an array"),
        ("count = {}", "a table"),
        ("count = 1979-05-27", "a date"),
        ("count = true", "true"),
    ] {
        let expected = format!("f.toml:1: count: expected an integer from 1 to 10, found {found}");
        assert_eq!(faults(&GOOD.replace("count = 3", line)), [expected]);
    }
    for line in ["ratio = inf", "ratio = -0.1", "ratio = 1.0000001", "ratio = \"0.5\"", "ratio = 1e400"] {
        let found = faults(&GOOD.replace("ratio = 0.5", line));
        assert_eq!(found.len(), 1, "{line}: {found:?}");
        assert!(found[0].starts_with("f.toml:3: ratio: expected a number from 0 to 1, found "), "{found:?}");
    }
    let read = document("f.toml", &GOOD.replace("count = 3", "count = 0xa").replace("0.5", "0x1"), sample);
    let read = read.expect("hexadecimal is fine");
    assert_eq!((read.count, read.ratio), (10, 1.0));
    assert_eq!(
        faults(&GOOD.replace("[inner]\ndepth = 1", "inner = 3")),
        ["f.toml:5: inner: expected a table, found 3"]
    );
}

#[test]
fn syntax_faults_and_duplicates_do_not_hide_the_rest() {
    let duplicate = faults(&GOOD.replace("ratio = 0.5", "ratio = 0.5\nratio = 0.6\nwrong = 1"));
    assert_eq!(duplicate.len(), 2, "{duplicate:?}");
    assert!(duplicate[0].starts_with("f.toml:4: ") && duplicate[0].contains("duplicate"), "{duplicate:?}");
    assert!(duplicate[1].starts_with("f.toml:5: wrong: unknown key"), "{duplicate:?}");
    let broken = faults(&GOOD.replace("count = 3", "count = = 3").replace("wait_ms = 20", "wait_ms = 2000"));
    assert!(broken.iter().any(|fault| fault.starts_with("f.toml:1: ")), "{broken:?}");
    assert!(broken.iter().any(|fault| fault.starts_with("f.toml:2: wait_ms: ")), "{broken:?}");
    assert!(!broken.iter().any(|fault| fault.contains("missing")), "{broken:?}");
}

#[test]
fn rules_across_keys_point_at_their_key() {
    assert_eq!(
        faults(&GOOD.replace("depth = 1", "depth = 4")),
        ["f.toml:1: count: must not be below inner.depth"]
    );
}

#[test]
fn the_number_of_tables_and_the_size_are_bounded() {
    let three = format!("{GOOD}[[rows]]\nvalue = 1\n[[rows]]\nvalue = 11\n");
    assert_eq!(
        faults(&three),
        [
            "f.toml:7: rows: expected 0 to 2 tables, found 3",
            "f.toml:12: rows[2].value: expected an integer from 0 to 9, found 11",
        ]
    );
    let padding = "#".repeat(TEXT_BYTES_MAX + 1 - GOOD.len());
    assert!(document("f.toml", &format!("{GOOD}{}", &padding[1..]), sample).is_ok());
    assert_eq!(faults(&format!("{GOOD}{padding}")).len(), 1);
}

#[test]
fn a_long_value_is_cut_in_the_message() {
    let found =
        faults(&GOOD.replace("name = \"x\"", &format!("name = [\"{}\"]\ncount2 = 1", "é".repeat(300))));
    assert!(found.iter().all(|fault| fault.len() < 200), "{found:?}");
    let long = faults(&GOOD.replace("count = 3", &format!("count = \"{}\"", "é".repeat(300))));
    assert!(long[0].len() < 200 && long[0].ends_with('…'), "{long:?}");
}

proptest! {
    #[test]
    fn no_text_panics(text in "(\\PC|\n|=|\\[|\\]|\"|#){0,120}") {
        let _ = document("f.toml", &text, sample);
    }

    #[test]
    fn a_damaged_document_never_panics(at in 0_usize..90, byte in "[\\[\\]=\"#\n{},.x0-9]") {
        let mut text = GOOD.to_owned();
        text.replace_range(at.min(GOOD.len() - 1)..(at + 1).min(GOOD.len()), &byte);
        let _ = document("f.toml", &text, sample);
    }
}
