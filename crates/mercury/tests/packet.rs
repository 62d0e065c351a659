//! Packet: `mercury packet verify` and `mercury check --packet` as a process: what they say, and their exit codes.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Stdio},
};

use serde_json::Value;

/// Runs it to its end: exit code, stdout, stderr.
fn mercury(arguments: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mercury"));
    let output = command.args(arguments).stdin(Stdio::null()).output().expect("it runs");
    let text = |bytes| String::from_utf8(bytes).expect("it prints text");
    (output.status.code().expect("it ended by itself"), text(output.stdout), text(output.stderr))
}

/// The shipped case study with some words replaced, as a file that ends with the directory.
fn edited(directory: &tempfile::TempDir, edits: &[(&str, &str)]) -> String {
    let mut text = model::packet::SHIPPED[0].1.to_owned();
    for (from, to) in edits {
        assert_eq!(text.matches(from).count(), 1, "{from}");
        text = text.replace(from, to);
    }
    let path: PathBuf = directory.path().join("packet.toml");
    fs::write(&path, text).expect("written");
    path.display().to_string()
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().expect("a directory")
}

#[test]
fn the_shipped_packets_agree_and_are_spelt_out() {
    let (code, said, wrong) = mercury(&["packet", "verify"]);
    assert_eq!((code, wrong.as_str()), (0, ""), "{said}");
    for line in [
        "18400 x 0.26 / 2.6 = 1840 calls/s; stated 1840",
        "602 / 640 x 100 = 94.0625 %; stated 94.0625",
        "70 + 35 + max(90, 115) + 140 + 80 = 440 ms; stated 440",
        "40 / 0.14 = 285.714285714 calls/s; stated 285, cut off",
        "the document states 78:",
        "the figures speak of 3 admission domains",
    ] {
        assert!(said.contains(line), "{line:?} is not in\n{said}");
    }
    assert!(!said.contains("DIFFERS"), "{said}");
}

#[test]
fn json_is_one_document_with_every_packet() {
    let (code, said, _) = mercury(&["packet", "verify", "--output", "json"]);
    let all: Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!(code, 0);
    let names: Vec<_> = all.as_array().expect("an array").iter().map(|packet| &packet["packet"]).collect();
    assert_eq!(names, ["mercury-latency-slo", "search-journey", "relay"]);
    assert_eq!(all[0]["domains"]["agree"], serde_json::json!([3]));
    assert_eq!(all[0]["domains"]["rows"].as_array().map(Vec::len), Some(24));
    assert!(all.as_array().expect("an array").iter().all(|packet| packet["agrees"] == true));
}

#[test]
fn a_changed_input_ends_99_and_is_named() {
    let directory = directory();
    let file = edited(&directory, &[("coalescible_ratio = 0.26", "coalescible_ratio = 0.27")]);
    let (code, said, wrong) = mercury(&["packet", "verify", &file]);
    assert_eq!(code, 99, "{said}");
    assert!(said.contains("coalescible_ratio = 0.27 does not fit its figures; 0.26 would\n"), "{said}");
    assert!(wrong.contains("3 of 33 figures do not agree"), "{wrong}");

    let (code, said, _) = mercury(&["packet", "verify", &file, "--output", "json"]);
    let all: Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!(code, 99);
    assert_eq!(all[0]["diagnosis"]["fits"][0]["implied"], "0.26", "{all:#}");
}

#[test]
fn two_changed_inputs_are_named_with_their_figures() {
    let directory = directory();
    let edits = [
        ("coalescible_ratio = 0.26", "coalescible_ratio = 0.27"),
        ("endpoint_busy_slots = 602", "endpoint_busy_slots = 601"),
    ];
    let (code, said, _) = mercury(&["packet", "verify", &edited(&directory, &edits)]);
    assert_eq!(code, 99, "{said}");
    assert!(
        said.contains("no single input explains endpoint_occupancy, eligible, leaders, avoided"),
        "{said}"
    );
}

#[test]
fn occupancies_that_decide_nothing_end_98_and_those_that_fit_nothing_99() {
    let directory = directory();
    // A median page of 200 ms lies between the two pools for seven, eight and nine domains.
    let file = edited(&directory, &[("before_p50_ms = 82", "before_p50_ms = 200")]);
    let (code, said, wrong) = mercury(&["packet", "verify", &file]);
    assert_eq!(code, 98, "{said}{wrong}");
    assert!(said.contains("do not decide between 7, 8, 9 admission domains"), "{said}");
    // Too slow for 2, too fast for 1.
    let edits = [("before_p50_ms = 82", "before_p50_ms = 38"), ("after_p50_ms = 76", "after_p50_ms = 30")];
    let (code, said, wrong) = mercury(&["packet", "verify", &edited(&directory, &edits)]);
    assert_eq!(code, 99, "{said}{wrong}");
    assert!(wrong.contains("fit no number of admission domains"), "{wrong}");
}

#[test]
fn a_bad_file_ends_2_with_every_fault_and_the_good_ones_are_verified_all_the_same() {
    let directory = directory();
    let edits = [("objective_ms = 300", "objective_ms = -300"), ("version = 1", "version = 1\nverzion = 2")];
    let file = edited(&directory, &edits);
    let good = directory.path().join("relay.toml");
    fs::write(&good, model::packet::SHIPPED[2].1).expect("written");
    let (code, said, wrong) = mercury(&["packet", "verify", &file, &good.display().to_string()]);
    assert_eq!(code, 2, "{wrong}");
    assert!(wrong.contains("inputs.objective_ms: expected a number from 0 to"), "{wrong}");
    assert!(wrong.contains("verzion: unknown key"), "{wrong}");
    assert!(said.contains("storage_in_flight"), "{said}");
    let (code, _, again) = mercury(&["check", "--packet", &file]);
    assert_eq!((code, again), (2, wrong));
    assert_eq!(mercury(&["check", "--packet", &good.display().to_string()]).0, 0);
    assert_eq!(mercury(&["packet", "verify", "missing.toml"]).0, 2);
}
