//! Tests of the desk: a fleet that follows the ledger like real processes do, and can be cut off, frozen and harmed.

mod admin;
mod crashes;
mod sequences;

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
};

use ::rollout::{
    Phase, SUBJECT, Standing,
    ledger::{self, Decision, Entry, LedgerError},
    report::ProcessReport,
};
use base::WallClock;
use model::migration::Plan;
use tempfile::TempDir;

use super::{
    example::{self, count},
    *,
};
use crate::verdict::Verdict;

const HOMES: [&str; 3] = ["h1:1", "h2:1", "h3:1"];
const PROFILE: &str = "p1:1";

/// A calendar that the test turns.
#[derive(Debug)]
struct Calendar(AtomicI64);

impl WallClock for Calendar {
    fn unix_ms(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What is wrong with the fleet.
#[derive(Debug, Default)]
struct Harm {
    /// Not heard.
    cut: BTreeSet<String>,
    /// Asked, and silent for ever.
    hung: BTreeSet<String>,
    /// Does not follow the ledger any more.
    frozen: BTreeMap<String, ProcessReport>,
    /// The first home-api sees one of these.
    lies: bool,
    /// Nobody sees anything.
    idle: bool,
}

struct Fleet<'t> {
    ledger: &'t Path,
    harm: &'t RefCell<Harm>,
}

impl Hearing for Fleet<'_> {
    async fn hear(&self, address: &str) -> Result<ProcessReport, String> {
        if self.harm.borrow().hung.contains(address) {
            std::future::pending::<()>().await;
        }
        let harm = self.harm.borrow();
        if harm.cut.contains(address) {
            return Err("connection refused".to_owned());
        }
        if let Some(report) = harm.frozen.get(address) {
            return Ok(report.clone());
        }
        let (standing, head) = Standing::read(self.ledger).map_err(|error| error.to_string())?;
        let nowhere = Standing { phase: Phase::Legacy, generation: 0, since_unix_ms: 0 };
        let standing = standing.unwrap_or(nowhere);
        let mut report = match address {
            PROFILE => example::profile(address, &standing, head),
            _ => example::home_api(address, &standing, head),
        };
        if harm.lies && address == HOMES[0] && standing.phase.reads() {
            report.counts.comparisons.push(count("claims_mismatch", "premium", "eu-west", 1));
        }
        if harm.idle {
            report.counts = Default::default();
        }
        Ok(report)
    }
}

struct Bench {
    home: TempDir,
    harm: RefCell<Harm>,
    calendar: Arc<Calendar>,
}

impl Bench {
    fn new() -> Self {
        Self {
            home: tempfile::tempdir().expect("a directory"),
            harm: RefCell::default(),
            calendar: Arc::new(Calendar(AtomicI64::new(example::SINCE_UNIX_MS))),
        }
    }

    fn ledger(&self) -> std::path::PathBuf {
        self.home.path().join("decisions.ndjson")
    }

    /// A desk like another invocation of the command would have.
    fn desk<'t>(&'t self, ledger: &'t Path) -> Desk<Fleet<'t>> {
        Desk {
            ledger: ledger.to_owned(),
            processes: HOMES.iter().chain([&PROFILE]).map(|address| (*address).to_owned()).collect(),
            plan: Plan::shipped(),
            quick: false,
            actor: "ines".to_owned(),
            command: "mercury rollout".to_owned(),
            wall: Arc::clone(&self.calendar) as Arc<dyn WallClock>,
            hearing: Fleet { ledger, harm: &self.harm },
        }
    }

    /// An hour later.
    fn soak(&self) {
        self.calendar.0.fetch_add(3_600_000, Ordering::Relaxed);
    }

    fn harm<R>(&self, harm: impl FnOnce(&mut Harm) -> R) {
        harm(&mut self.harm.borrow_mut());
    }

    fn standing(&self) -> Option<Standing> {
        Standing::read(&self.ledger()).expect("sound").0
    }

    fn phase(&self) -> Option<Phase> {
        self.standing().map(|standing| standing.phase)
    }

    fn last(&self) -> Entry {
        ledger::verify(&self.ledger()).expect("sound").entries.pop().expect("a decision")
    }

    /// Goes up to `phase` through all before it.
    async fn climb(&self, phase: Phase) {
        let ledger = self.ledger();
        self.desk(&ledger).advance().await.expect("begun");
        while self.phase() != Some(phase) {
            self.soak();
            let decided = self.desk(&ledger).advance().await.expect("decided");
            assert_eq!(decided.verdict(), Verdict::Pass, "{}", decided.why());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_healthy_fleet_goes_from_nothing_to_contract_and_no_further() {
    let bench = Bench::new();
    let path = bench.ledger();
    let first = bench.desk(&path).advance().await.expect("decided");
    assert_eq!(
        (first.verdict(), first.entry.decision),
        (Verdict::Inconclusive, Decision::Hold),
        "no soak yet"
    );
    assert!(first.why().starts_with("hold before expand: soak"), "{}", first.why());
    assert_eq!(bench.phase(), Some(Phase::Legacy));
    for phase in &Phase::ALL[1..] {
        bench.soak();
        let decided = bench.desk(&path).advance().await.expect("decided");
        assert_eq!((decided.verdict(), &decided.confirmation), (Verdict::Pass, &Confirmation::ByAll));
        assert_eq!((decided.why(), bench.phase()), (String::new(), Some(*phase)));
        assert_eq!(bench.standing().map(|standing| standing.generation), Some(decided.entry.sequence));
        assert_eq!(decided.entry.evidence["plan"]["quick"], false);
    }
    bench.soak();
    let error = bench.desk(&path).advance().await.expect_err("the end");
    assert_eq!(error.exit_code(), 2);
    assert!(error.to_string().contains("nothing after it"), "{error}");
    let history = bench.desk(&path).history().expect("sound");
    let decisions: Vec<Decision> = history.entries.iter().map(|entry| entry.decision).collect();
    assert_eq!(decisions[..2], [Decision::Begin, Decision::Hold]);
    assert_eq!(decisions[2..], [Decision::Advance; 5]);
}

#[tokio::test(start_paused = true)]
async fn a_lie_is_refused_and_no_traffic_held_with_the_evidence_in_the_ledger() {
    let bench = Bench::new();
    let path = bench.ledger();
    bench.climb(Phase::Shadow).await;
    bench.soak();
    bench.harm(|harm| harm.lies = true);
    let refused = bench.desk(&path).advance().await.expect("decided");
    assert_eq!((refused.verdict(), refused.verdict().exit_code()), (Verdict::Fail, 99));
    assert!(refused.why().contains("blocking: 1, must be ≤ 0"), "{}", refused.why());
    let entry = bench.last();
    assert_eq!(
        (entry.decision, entry.to.as_str(), bench.phase()),
        (Decision::Refuse, "canary", Some(Phase::Shadow))
    );
    let checks = entry.evidence["checks"].as_array().expect("checks");
    assert!(checks.iter().any(|check| check["name"] == "blocking" && check["verdict"] == "fail"));
    // The generation has not changed, so neither has what was counted since.
    let generation = bench.standing().expect("begun").generation;
    bench.harm(|harm| (harm.lies, harm.idle) = (false, true));
    let held = bench.desk(&path).advance().await.expect("decided");
    assert_eq!((held.verdict().exit_code(), held.entry.decision), (98, Decision::Hold));
    assert_eq!(bench.standing().expect("begun").generation, generation);
}

#[tokio::test(start_paused = true)]
async fn a_process_that_is_not_heard_holds_the_advance_and_not_the_way_back() {
    let bench = Bench::new();
    let path = bench.ledger();
    bench.climb(Phase::Canary).await;
    bench.soak();
    bench.harm(|harm| harm.cut.insert(HOMES[1].to_owned()));
    let held = bench.desk(&path).advance().await.expect("decided");
    assert_eq!((held.entry.decision, held.verdict()), (Decision::Hold, Verdict::Inconclusive));
    assert!(held.why().contains("h2:1: connection refused"), "{}", held.why());
    let back = bench.desk(&path).rollback(Phase::Shadow).await.expect("decided");
    assert_eq!((back.entry.decision, bench.phase()), (Decision::Reverse, Some(Phase::Shadow)));
    assert_eq!(back.verdict(), Verdict::Inconclusive);
    assert_eq!(back.why(), "reverse to shadow is decided, and not confirmed by h2:1 (connection refused)");
    assert_eq!(back.entry.evidence["processes"][1]["unheard"], "connection refused");
    bench.harm(|harm| harm.cut.clear());
    let further = bench.desk(&path).rollback(Phase::Legacy).await.expect("decided");
    assert_eq!((further.verdict(), bench.phase()), (Verdict::Pass, Some(Phase::Legacy)));
}

#[tokio::test(start_paused = true)]
async fn a_hung_process_does_not_keep_a_way_back_from_being_decided() {
    let bench = Bench::new();
    let path = bench.ledger();
    bench.climb(Phase::Cutover).await;
    bench.harm(|harm| harm.hung.insert(PROFILE.to_owned()));
    let began = tokio::time::Instant::now();
    let desk = bench.desk(&path);
    let mut back = std::pin::pin!(desk.rollback(Phase::Canary));
    while bench.phase() == Some(Phase::Cutover) {
        let step = std::time::Duration::from_millis(10);
        assert!(tokio::time::timeout(step, &mut back).await.is_err(), "it waits for the hung one");
    }
    assert!(began.elapsed() <= std::time::Duration::from_millis(600), "{:?}", began.elapsed());
    let back = back.await.expect("decided");
    assert_eq!(
        back.confirmation,
        Confirmation::Missing(vec![Unconfirmed {
            address: PROFILE.to_owned(),
            why: "no answer within 2500 ms".to_owned()
        }])
    );
}

#[tokio::test(start_paused = true)]
async fn a_way_back_leads_to_an_earlier_phase_of_a_migration_that_has_begun() {
    let bench = Bench::new();
    let path = bench.ledger();
    for error in [
        bench.desk(&path).rollback(Phase::Legacy).await.expect_err("not begun"),
        bench.desk(&path).rollback_one().await.expect_err("not begun"),
        bench.desk(&path).begin().await.expect_err("not begun"),
    ] {
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("no decision about the migration yet"), "{error}");
    }
    assert!(!path.exists(), "nothing is made by asking");
    bench.climb(Phase::Shadow).await;
    for to in [Phase::Shadow, Phase::Canary, Phase::Contract] {
        let error = bench.desk(&path).rollback(to).await.expect_err("no way back");
        assert_eq!(error.exit_code(), 2, "{error}");
    }
    assert_eq!(bench.desk(&path).begin().await.expect_err("the call is there").exit_code(), 2);
    assert_eq!(bench.last().to, "shadow", "a mistake of use is no decision");
    for phase in [Phase::Expand, Phase::Legacy] {
        let back = bench.desk(&path).rollback_one().await.expect("decided");
        assert_eq!((back.verdict(), bench.phase()), (Verdict::Pass, Some(phase)));
    }
    let error = bench.desk(&path).rollback_one().await.expect_err("the beginning");
    assert_eq!(error.exit_code(), 2);
    assert!(error.to_string().contains("nothing before it"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn after_contract_a_way_back_is_refused_and_the_forward_change_works() {
    let bench = Bench::new();
    let path = bench.ledger();
    bench.climb(Phase::Contract).await;
    let one = bench.desk(&path).rollback_one().await.expect("decided");
    assert_eq!((one.entry.decision, one.entry.to.as_str()), (Decision::Refuse, "cutover"));
    let refused = bench.desk(&path).rollback(Phase::Canary).await.expect("decided");
    assert_eq!((refused.verdict().exit_code(), refused.entry.decision), (99, Decision::Refuse));
    let why = refused.why();
    assert!(why.contains("call is gone") && why.contains("mercury rollout begin"), "{why}");
    assert_eq!(bench.phase(), Some(Phase::Contract));
    assert_eq!(bench.last().digest, refused.entry.digest);
    // Without word of revocations nothing shows that entitlement is there.
    let standing = bench.standing().expect("begun");
    let (_, head) = Standing::read(&path).expect("sound");
    let mut stale = example::home_api(HOMES[2], &standing, head);
    stale.revocations = None;
    bench.harm(|harm| harm.frozen.insert(HOMES[2].to_owned(), stale));
    let refused = bench.desk(&path).begin().await.expect("decided");
    assert_eq!(refused.entry.decision, Decision::Refuse, "{}", refused.why());
    bench.harm(|harm| harm.frozen.clear());
    let begun = bench.desk(&path).begin().await.expect("decided");
    assert_eq!((begun.verdict(), begun.entry.decision), (Verdict::Pass, Decision::Begin), "{}", begun.why());
    assert_eq!(bench.phase(), Some(Phase::Cutover));
    let back = bench.desk(&path).rollback(Phase::Legacy).await.expect("decided");
    assert_eq!((back.verdict(), bench.phase()), (Verdict::Pass, Some(Phase::Legacy)));
}

#[tokio::test(start_paused = true)]
async fn status_changes_nothing_and_shows_what_would_be_decided() {
    let bench = Bench::new();
    let path = bench.ledger();
    let before = bench.desk(&path).status().await.expect("nothing yet");
    assert_eq!((before.standing.clone(), path.exists()), (None, false));
    assert_eq!(before.next.as_ref().map(|next| next.verdict), Some(Verdict::Inconclusive));
    bench.climb(Phase::Canary).await;
    bench.soak();
    let bytes = std::fs::read(&path).expect("there");
    let status = bench.desk(&path).status().await.expect("sound");
    assert_eq!(std::fs::read(&path).expect("there"), bytes);
    let next = status.next.as_ref().expect("a way on");
    assert_eq!((next.target, next.verdict), (Phase::Cutover, Verdict::Pass));
    assert_eq!(status.counts.authority_of("summary"), 18_000, "of three home-apis");
    let text = print::status(&status, &path);
    for part in ["canary · generation", "h3:1", "summary 18,000", "blocking", "verdict: pass"] {
        assert!(text.contains(part), "{part}:\n{text}");
    }
    let json = print::status_json(&status, &path);
    assert_eq!((&json["phase"], &json["next"]["verdict"]), (&"canary".into(), &"pass".into()));
    assert_eq!(json["processes"].as_array().map(Vec::len), Some(4));
    bench.climb(Phase::Contract).await;
    let last = bench.desk(&path).status().await.expect("sound");
    assert!(print::status(&last, &path).contains("mercury rollout begin"));
}

#[tokio::test(start_paused = true)]
async fn an_edited_ledger_is_named_by_every_command_and_decides_nothing() {
    let bench = Bench::new();
    let path = bench.ledger();
    bench.climb(Phase::Shadow).await;
    let sound = std::fs::read_to_string(&path).expect("there");
    let edited = sound.replacen("\"to\":\"expand\"", "\"to\":\"shadow\"", 1);
    assert_ne!(edited, sound);
    let cut = sound.lines().next().map(|line| format!("{line}\n")).expect("a line");
    for (text, said) in [(edited, "this line was edited"), (cut, "decisions are missing at the end")] {
        std::fs::write(&path, &text).expect("written");
        let errors = [
            bench.desk(&path).status().await.map(drop),
            bench.desk(&path).advance().await.map(drop),
            bench.desk(&path).rollback(Phase::Legacy).await.map(drop),
            bench.desk(&path).begin().await.map(drop),
            bench.desk(&path).history().map(drop),
        ]
        .map(|result| result.expect_err("not sound"));
        for error in errors {
            assert_eq!(error.exit_code(), 1);
            assert!(
                error.to_string().contains(said) && error.to_string().contains("decisions.ndjson"),
                "{error}"
            );
        }
        assert_eq!(std::fs::read_to_string(&path).expect("there"), text);
    }
}

#[tokio::test(start_paused = true)]
async fn decisions_are_printed_with_their_grounds_and_who_is_missing() {
    let bench = Bench::new();
    let path = bench.ledger();
    bench.climb(Phase::Expand).await;
    bench.soak();
    let frozen =
        example::profile(PROFILE, &bench.standing().expect("begun"), Standing::read(&path).expect("sound").1);
    bench.harm(|harm| harm.frozen.insert(PROFILE.to_owned(), frozen));
    let decided = bench.desk(&path).advance().await.expect("decided");
    assert_eq!((decided.verdict(), bench.phase()), (Verdict::Inconclusive, Some(Phase::Shadow)), "it stands");
    let text = print::decided(&decided);
    for part in ["expand → shadow", "not confirmed by", "p1:1 (profile in expand of generation"] {
        assert!(text.contains(part), "{part}:\n{text}");
    }
    let json = print::decided_json(&decided);
    assert_eq!((&json["confirmed"], &json["phase"]), (&false.into(), &"shadow".into()));
    assert_eq!(json["unconfirmed"][0]["address"], PROFILE);
    let history = bench.desk(&path).history().expect("sound");
    let text = print::history(&history);
    assert_eq!(text.lines().count(), history.entries.len());
    assert!(text.contains("2023-11-14 22:13:20 UTC  begin    nothing → legacy"), "{text}");
    let json = print::history_json(&history);
    assert_eq!(json["entries"][0]["subject"], SUBJECT);
    assert_eq!(json["entries"][0]["schema"], ledger::SCHEMA);
}
