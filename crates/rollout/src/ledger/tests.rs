//! Tests of the ledger: what is written reads back, what a crash leaves is mended on record, and what anybody changed is
//! found.

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;

/// A wall clock that stands.
struct At(i64);

impl WallClock for At {
    fn unix_ms(&self) -> i64 {
        self.0
    }
}

const AT: At = At(1_795_982_488_559);

fn draft(subject: &str, from: Option<&str>, to: &str, decision: Decision) -> Draft {
    Draft {
        actor: "ines".to_owned(),
        command: "mercury rehearse rollout".to_owned(),
        subject: subject.to_owned(),
        from: from.map(str::to_owned),
        to: to.to_owned(),
        decision,
        reason: "p99 301.5 ms, bound \"300\" ms,\nand so on".to_owned(),
        policy: Some(PolicyRef { generation: 3, digest: "5c".to_owned() }),
        evidence: json!({"checks": [{"observed": 0.1, "bound": 300, "evidence": ",\"evidence\":"}], "none": null}),
    }
}

struct Fixture {
    home: TempDir,
}

impl Fixture {
    fn new() -> Self {
        Self { home: tempfile::tempdir().expect("a directory") }
    }

    fn path(&self) -> PathBuf {
        self.home.path().join("out").join("decisions.jsonl")
    }

    fn open(&self) -> Result<Ledger, LedgerError> {
        Ledger::open(&self.path(), &AT)
    }

    /// A ledger with so many decisions about two subjects, closed.
    fn with(decisions: usize) -> Self {
        let fixture = Self::new();
        let mut ledger = fixture.open().expect("opened");
        for at in 0..decisions {
            let subject = ["home-path", "entitlement"][at % 2];
            let from = ledger.position(subject).map(str::to_owned);
            let next = draft(subject, from.as_deref(), &format!("phase-{at}"), Decision::Advance);
            ledger.append(next, &AT).expect("appended");
        }
        fixture
    }

    fn text(&self) -> Vec<u8> {
        fs::read(self.path()).expect("read")
    }

    fn write(&self, text: &[u8]) {
        fs::write(self.path(), text).expect("written");
    }

    fn append_raw(&self, text: &[u8]) {
        self.write(&[self.text(), text.to_vec()].concat());
    }
}

#[test]
fn decisions_read_back_and_form_a_chain() {
    let fixture = Fixture::with(5);
    let verified = verify(&fixture.path()).expect("sound");
    assert_eq!((verified.entries.len(), verified.torn_bytes), (5, 0));
    let mut previous = NO_DIGEST.to_owned();
    for (at, entry) in verified.entries.iter().enumerate() {
        assert_eq!((entry.sequence, entry.at_unix_ms), (at as u64 + 1, AT.0));
        assert_eq!(entry.previous, previous);
        previous.clone_from(&entry.digest);
    }
    let first = &verified.entries[0];
    let written = draft("home-path", None, "phase-0", Decision::Advance);
    assert_eq!(first.reason, written.reason);
    assert_eq!(first.policy, written.policy);
    assert_eq!(first.evidence, written.evidence);
    // The evidence's digest is of what the line spells, so that a reader can take it from there.
    let line = String::from_utf8(fixture.text()).expect("text").lines().next().expect("a line").to_owned();
    let spelt = serde_json::to_string(&written.evidence).expect("JSON");
    assert!(
        line.contains(&format!(",\"evidence\":{spelt},\"evidence_sha256\":\"{}\"", first.evidence_sha256))
    );
    assert_eq!(first.evidence_sha256, entry::sha256(spelt.as_bytes()));

    let again = fixture.open().expect("opened");
    assert_eq!(again.history(None).cloned().collect::<Vec<_>>(), verified.entries);
    assert_eq!(again.history(Some("entitlement")).count(), 2);
    assert_eq!(again.position("home-path"), Some("phase-4"));
    assert_eq!(again.head().map(|entry| entry.sequence), Some(5));
}

/// Another implementation must be able to check it: the digest is SHA-256 of the schema, a newline, and the line up to
/// its last key. The first figure is that of FIPS 180-4.
#[test]
fn digests_are_pinned() {
    assert_eq!(entry::sha256(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    let fixture = Fixture::with(1);
    let text = String::from_utf8(fixture.text()).expect("text");
    let (body, end) = text.rsplit_once(",\"digest\":\"").expect("a digest");
    assert_eq!(end.trim_end(), format!("{}\"}}", entry::sha256(format!("{SCHEMA}\n{body}").as_bytes())));
}

#[test]
fn a_decision_begins_where_its_subject_stands() {
    let fixture = Fixture::new();
    let mut ledger = fixture.open().expect("opened");
    let mut decide = |from: Option<&str>, to: &str, decision| {
        ledger
            .append(draft("home-path", from, to, decision), &AT)
            .map(|entry| entry.position().map(str::to_owned))
    };
    let stands = |position: &str| Some(position.to_owned());
    assert_eq!(decide(None, "legacy", Decision::Begin).expect("first"), stands("legacy"));
    assert_eq!(decide(Some("legacy"), "signals", Decision::Advance).expect("next"), stands("signals"));
    assert_eq!(decide(Some("signals"), "deadline", Decision::Hold).expect("held"), stands("signals"));
    let wrong = decide(Some("deadline"), "cancellation", Decision::Advance);
    assert!(matches!(wrong, Err(LedgerError::OutOfOrder { position: Some(at), .. }) if at == "signals"));
    assert!(decide(None, "legacy", Decision::Begin).is_err(), "it has begun");
    assert_eq!(decide(Some("signals"), "deadline", Decision::Abort).expect("aborted"), stands("deadline"));
    assert_eq!(decide(Some("deadline"), "signals", Decision::Reverse).expect("reversed"), stands("signals"));
    assert_eq!(decide(Some("signals"), "summary", Decision::Skip).expect("skipped"), stands("summary"));
    ledger.append(draft("entitlement", None, "legacy", Decision::Begin), &AT).expect("its own order");
    let positions = replay(ledger.history(None));
    assert_eq!(positions, BTreeMap::from([("entitlement", "legacy"), ("home-path", "summary")]));
    assert_eq!(ledger.history(None).count(), 7, "a refused decision leaves nothing");
}

#[test]
fn one_at_a_time_may_append_and_anybody_may_verify() {
    let fixture = Fixture::with(2);
    let held = fixture.open().expect("opened");
    assert!(matches!(fixture.open(), Err(LedgerError::Busy(_))));
    assert_eq!(verify(&fixture.path()).expect("sound").entries.len(), 2);
    drop(held);
    assert!(fixture.open().is_ok());
}

#[test]
fn a_torn_last_line_is_cut_off_and_the_cut_is_on_record() {
    let fixture = Fixture::with(3);
    let whole = fixture.text();
    let line = whole.split_inclusive(|byte| *byte == b'\n').next().expect("a line").to_vec();
    for torn in [&line[..1], &line[..line.len() / 2], &line[..line.len() - 1], b"\0\0\0\0"] {
        fixture.append_raw(torn);
        let seen = verify(&fixture.path()).expect("nothing that was acknowledged is wrong");
        assert_eq!(seen.torn_bytes, torn.len());
        let before = seen.entries.len();
        let ledger = fixture.open().expect("mended");
        assert_eq!(ledger.history(None).count(), before + 1);
        let repair = ledger.head().expect("an entry");
        assert_eq!((repair.decision, repair.subject.as_str()), (Decision::Repair, OWN_SUBJECT));
        assert_eq!(repair.evidence["torn_bytes"], torn.len());
        assert_eq!(repair.evidence["torn_sha256"], entry::sha256(torn).as_str());
        assert_eq!(ledger.position("home-path"), Some("phase-2"), "a repair is about no phase");
        assert_eq!(ledger.position(OWN_SUBJECT), None);
    }
    let verified = verify(&fixture.path()).expect("sound");
    assert_eq!((verified.entries.len(), verified.torn_bytes), (7, 0));
    assert!(!file::torn(&fixture.path()).exists());
}

/// The power may fail at any step of a repair.
#[test]
fn a_repair_that_was_itself_cut_short_is_finished_once() {
    // After the cut, before the record.
    let fixture = Fixture::with(2);
    fs::write(file::torn(&fixture.path()), b"{\"sche").expect("written");
    let ledger = fixture.open().expect("mended");
    assert_eq!(ledger.head().expect("an entry").evidence["torn_excerpt"], "{\"sche");
    drop(ledger);
    // After the record, before the part that was cut is forgotten.
    fs::write(file::torn(&fixture.path()), b"{\"sche").expect("written");
    let ledger = fixture.open().expect("mended");
    assert_eq!(ledger.history(None).count(), 3, "recorded once");
    assert!(!file::torn(&fixture.path()).exists());
}

#[test]
fn a_line_whose_head_was_lost_in_a_crash_is_kept() {
    for decisions in [1, 4] {
        let fixture = Fixture::with(decisions - 1);
        let head = fs::read(file::head(&fixture.path())).ok();
        let mut ledger = fixture.open().expect("opened");
        let subject = "third";
        ledger.append(draft(subject, None, "legacy", Decision::Begin), &AT).expect("appended");
        drop(ledger);
        match head {
            Some(head) => fs::write(file::head(&fixture.path()), head).expect("put back"),
            None => fs::remove_file(file::head(&fixture.path())).expect("removed"),
        }
        let ledger = fixture.open().expect("opened");
        assert_eq!(ledger.position(subject), Some("legacy"));
        drop(ledger);
        let head = file::read_head(&fixture.path()).expect("read").expect("there");
        assert_eq!(head.sequence as usize, decisions, "and is acknowledged now");
    }
}

#[test]
fn an_edit_is_named_by_its_line_with_both_digests() {
    let fixture = Fixture::with(3);
    let text = String::from_utf8(fixture.text()).expect("text").replacen("phase-1", "phase-9", 1);
    fixture.write(text.as_bytes());
    let digest = verify(&fixture.path()).expect_err("edited");
    let LedgerError::Edited { line, expected, found, .. } = &digest else { panic!("{digest}") };
    assert_eq!(*line, 2);
    assert!(expected != found && expected.len() == 64 && found.len() == 64);
    assert!(digest.to_string().contains(":2: this line was edited"), "{digest}");
    assert!(
        matches!(fixture.open(), Err(LedgerError::Edited { line: 2, .. })),
        "it is refused for writing too"
    );
    assert_eq!(fixture.text(), text.as_bytes(), "and left as it is");
}

#[test]
fn missing_and_moved_lines_are_found() {
    let fixture = Fixture::with(4);
    let text = fixture.text();
    let lines: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
    let fault = |order: &[usize]| {
        fixture.write(&order.iter().map(|at| lines[*at]).collect::<Vec<_>>().concat());
        verify(&fixture.path()).expect_err("not as it was written")
    };
    assert!(matches!(fault(&[0, 2, 3]), LedgerError::Chain { line: 2, .. }));
    assert!(matches!(fault(&[1, 2, 3]), LedgerError::Chain { line: 1, .. }));
    assert!(matches!(fault(&[0, 2, 1, 3]), LedgerError::Chain { line: 2, .. }));
    assert!(matches!(fault(&[0, 1, 1, 2, 3]), LedgerError::Chain { line: 3, .. }));
    assert!(matches!(fault(&[0, 1, 2]), LedgerError::Truncated { entries: 3, .. }));
    assert!(matches!(fault(&[]), LedgerError::Truncated { entries: 0, .. }));
    fixture.write(&text);
    fs::remove_file(file::head(&fixture.path())).expect("removed");
    assert!(matches!(verify(&fixture.path()), Err(LedgerError::NoHead { .. })));
    fs::write(file::head(&fixture.path()), b"{}").expect("written");
    assert!(matches!(verify(&fixture.path()), Err(LedgerError::Head { .. })));
}

/// A whole chain that was written anew is sound in itself, and is not what was acknowledged.
#[test]
fn a_ledger_that_was_written_anew_is_found_by_its_head() {
    let (fixture, other) = (Fixture::with(3), Fixture::with(2));
    let mut ledger = other.open().expect("opened");
    ledger
        .append(draft("home-path", Some("phase-0"), "elsewhere", Decision::Advance), &AT)
        .expect("appended");
    drop(ledger);
    fixture.write(&other.text());
    assert!(matches!(verify(&fixture.path()), Err(LedgerError::Replaced { line: 3, .. })));
}

#[test]
fn a_forged_line_with_a_sound_seal_has_to_be_a_decision_in_its_place() {
    let fixture = Fixture::new();
    fixture.open().expect("begun");
    let (_, line) = draft("home-path", None, "legacy", Decision::Begin).seal(2, 0, NO_DIGEST);
    fixture.write(line.as_bytes());
    let error = verify(&fixture.path()).expect_err("the wrong number");
    assert!(error.to_string().contains("has the number 2"), "{error}");
    for text in ["\n", "{}\n", "decided\n", "\u{7f}\n"] {
        fixture.write(text.as_bytes());
        assert!(matches!(verify(&fixture.path()), Err(LedgerError::Malformed { line: 1, .. })), "{text:?}");
    }
}

#[test]
fn lines_are_bounded_and_nothing_is_written_beyond() {
    let fixture = Fixture::with(1);
    let text = fixture.text();
    let mut ledger = fixture.open().expect("opened");
    let of = |bytes: usize| Draft {
        evidence: json!("e".repeat(bytes)),
        ..draft("home-path", Some("phase-0"), "next", Decision::Advance)
    };
    let (_, empty) = of(0).seal(2, AT.0, &ledger.head().expect("one").digest.clone());
    let room = LINE_BYTES_MAX - empty.len();
    let refused = ledger.append(of(room + 1), &AT).expect_err("one byte too long");
    assert!(matches!(refused, LedgerError::TooLong { bytes } if bytes == LINE_BYTES_MAX + 1), "{refused}");
    assert_eq!(fixture.text(), text);
    ledger.append(of(room), &AT).expect("as long as may be");
    ledger.bytes = FILE_BYTES_MAX - 10;
    let refused =
        ledger.append(draft("home-path", Some("next"), "last", Decision::Advance), &AT).expect_err("full");
    assert!(matches!(refused, LedgerError::Full(_)));
    drop(ledger);
    assert_eq!(verify(&fixture.path()).expect("sound").entries.len(), 2);
}

#[test]
fn after_a_failed_write_it_has_to_be_opened_again() {
    let fixture = Fixture::with(2);
    let mut ledger = fixture.open().expect("opened");
    let appendable = std::mem::replace(&mut ledger.file, File::open(fixture.path()).expect("to read"));
    let next = || draft("third", None, "legacy", Decision::Begin);
    assert!(matches!(ledger.append(next(), &AT), Err(LedgerError::Io { .. })));
    ledger.file = appendable;
    assert!(matches!(ledger.append(next(), &AT), Err(LedgerError::Reopen(_))));
    drop(ledger);
    let mut ledger = fixture.open().expect("opened");
    ledger.append(next(), &AT).expect("taken now");
}

/// What can happen to the bytes of a file.
#[derive(Clone, Debug)]
enum Harm {
    Flip { at: usize, bit: u8 },
    Insert { at: usize, byte: u8 },
    Remove { at: usize, bytes: usize },
    Truncate { to: usize },
    Swap { one: usize, other: usize },
    Double { line: usize },
}

impl Harm {
    fn apply(&self, text: &[u8]) -> Vec<u8> {
        let mut text = text.to_vec();
        let length = text.len();
        match *self {
            Self::Flip { at, bit } => text[at % length] ^= 1 << (bit % 8),
            Self::Insert { at, byte } => text.insert(at % (length + 1), byte),
            Self::Remove { at, bytes } => {
                let at = at % length;
                drop(text.drain(at..(at + bytes).min(length)));
            }
            Self::Truncate { to } => text.truncate(to % length),
            Self::Swap { one, other } => {
                let mut lines: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
                let count = lines.len();
                lines.swap(one % count, other % count);
                text = lines.concat();
            }
            Self::Double { line } => {
                let mut lines: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
                let line = line % lines.len();
                lines.insert(line, lines[line]);
                text = lines.concat();
            }
        }
        text
    }
}

fn harm() -> impl Strategy<Value = Harm> {
    let at = any::<usize>;
    prop_oneof![
        (at(), 0_u8..8).prop_map(|(at, bit)| Harm::Flip { at, bit }),
        (at(), any::<u8>()).prop_map(|(at, byte)| Harm::Insert { at, byte }),
        (at(), 1_usize..2_000).prop_map(|(at, bytes)| Harm::Remove { at, bytes }),
        at().prop_map(|to| Harm::Truncate { to }),
        (at(), at()).prop_map(|(one, other)| Harm::Swap { one, other }),
        at().prop_map(|line| Harm::Double { line }),
    ]
}

/// Lines of a ledger in memory, and its head.
fn lines(count: usize) -> (Vec<u8>, Head) {
    let (mut text, mut previous) = (Vec::new(), NO_DIGEST.to_owned());
    for at in 0..count {
        let one = draft("home-path", Some("a"), &format!("phase-{at}"), Decision::Advance);
        let (entry, line) = one.seal(at as u64 + 1, AT.0, &previous);
        text.extend_from_slice(line.as_bytes());
        previous = entry.digest;
    }
    (text, Head { sequence: count as u64, digest: previous })
}

proptest! {
    /// Whatever happens to the bytes, either the ledger is refused, or every decision that was acknowledged is there
    /// unchanged and what is more is a torn tail.
    #[test]
    fn corruption_is_always_detected(count in 1_usize..6, harms in proptest::collection::vec(harm(), 1..4)) {
        let (text, head) = lines(count);
        let harmed = harms.iter().fold(text.clone(), |text, harm| if text.is_empty() { text } else { harm.apply(&text) });
        match check(Path::new("l"), &harmed, Some(&head)) {
            Err(_) => prop_assert_ne!(&harmed, &text),
            Ok(found) => {
                prop_assert_eq!(&harmed[..harmed.len() - found.torn_bytes], &text[..]);
                prop_assert_eq!(found.entries.len(), count);
            }
        }
    }

    /// A crash may cut the file anywhere after what was acknowledged, and at no earlier place.
    #[test]
    fn a_cut_is_torn_or_refused(count in 1_usize..6, acknowledged in 1_usize..6, cut in any::<usize>()) {
        let acknowledged = acknowledged.min(count);
        let (text, _) = lines(count);
        let (whole, head) = lines(acknowledged);
        let cut = cut % (text.len() + 1);
        match check(Path::new("l"), &text[..cut], Some(&head)) {
            Ok(found) => {
                prop_assert!(cut >= whole.len());
                prop_assert!(found.entries.len() >= acknowledged);
                prop_assert_eq!(found.torn_bytes == 0, cut == 0 || text[cut - 1] == b'\n');
            }
            Err(error) => {
                prop_assert!(cut < whole.len());
                let truncated = matches!(error, LedgerError::Truncated { .. });
                prop_assert!(truncated, "{}", error);
            }
        }
    }

    /// Whatever the texts are, a line reads back as what was written.
    #[test]
    fn any_text_reads_back(actor in ".*", to in ".*", reason in ".*", key in ".*", number in any::<f64>()) {
        let draft = Draft {
            actor, reason, evidence: json!({ &key: number, "evidence": key }),
            ..draft("home-path", None, &to, Decision::Begin)
        };
        let (entry, line) = draft.seal(1, AT.0, NO_DIGEST);
        prop_assert_eq!(line.matches('\n').count(), 1);
        let found = check(Path::new("l"), line.as_bytes(), None).expect("sound").entries;
        prop_assert_eq!(&found[0].actor, &entry.actor);
        prop_assert_eq!(&found[0].to, &entry.to);
        prop_assert_eq!(&found[0].reason, &entry.reason);
        prop_assert_eq!(&found[0].digest, &entry.digest);
    }
}
