//! Stories: what else may happen to exposures and to their ledger, each with a verdict of its own; and what the reconciliation
//! finds when this very evidence is made to be wrong.

mod faults;
mod start;

use std::time::Duration;

use base::{Clock, Nanos, Origin, WorkloadClass, clock::MonotonicClock};
use http::StatusCode;
use tonic::Code;

use super::{
    EffectsOptions, Stage,
    client::{Asked, Client, effect, events},
    stage::PATIENCE,
};
use crate::{
    Member,
    exposures::{Account, Catalogue, Row},
    migrate::{Failed, Found},
    report::Scenario,
    slo::RehearsalError,
    verdict::Verdict,
};

/// A refusal that waits for nothing is there within this.
const AT_ONCE: Nanos = Nanos::from_millis(500);
/// Longest wait for readiness to fall or to come back.
const READINESS_MAX: Duration = Duration::from_secs(15);

pub(super) async fn play(
    options: &EffectsOptions,
    stage: &mut Stage,
    catalogue: &Catalogue,
) -> Result<Vec<Scenario>, RehearsalError> {
    let mut client = Client::new(&stage.homes())?;
    let mut told = Vec::new();
    let mut play = |name: &str, found: Result<Found, Failed>| -> Result<(), RehearsalError> {
        told.push(Found::told(name, found)?);
        Ok(())
    };
    play("retry_replays", replays(stage, &mut client).await)?;
    play("same_id_other_body", conflict(stage, &mut client).await)?;
    play("ledger_locked", locked(stage, &mut client, catalogue).await)?;
    play("ledger_corrupt_at_start", start::corrupt(options, stage).await)?;
    let record = options.out.join("stories.ndjson");
    client.write(&record).map_err(|error| RehearsalError::Io { path: record.clone(), error })?;
    let records = [stage.record(), record];
    play("ledger_after_the_stories", after(stage.account(catalogue, &records).await?))?;
    play("verification_finds_faults", faults::found(stage, catalogue, &records).await)?;
    Ok(told)
}

/// The rows of an operation.
async fn rows(stage: &Stage, id: &str) -> Result<Vec<Row>, Failed> {
    let mut rows = Vec::new();
    let mut each = |row: Row| {
        if row.request_id == id {
            rows.push(row);
        }
    };
    stage.ledger.scan(&mut each).await.map_err(unreadable)?;
    Ok(rows)
}

fn unreadable(detail: String) -> Failed {
    Failed::Rehearsal(RehearsalError::Io { path: "ledger".into(), error: std::io::Error::other(detail) })
}

/// The same operation again, at the other process where there is one: it shows the same events, and nothing is written.
async fn replays(stage: &Stage, client: &mut Client) -> Result<Found, Failed> {
    let mut found = Found::default();
    let first = Asked::new("story-replay", 11);
    let Ok(page) = client.ask(first).await else {
        found.must(false, "the first request failed");
        return Ok(found);
    };
    let recorded = rows(stage, first.id).await?;
    found.must(effect(&page) == "committed", format!("the first was {}", effect(&page)));
    found.must(recorded.len() == page.experiments.len(), format!("{} rows", recorded.len()));
    for at in 0..client.homes() {
        match client.ask(Asked { at, ..first }).await {
            Ok(again) => {
                found.must(events(&again) == events(&page), "another event was shown");
                found.must(effect(&again) == "replayed", format!("a retry was {}", effect(&again)));
            }
            Err(code) => found.must(false, format!("a retry failed: {code:?}")),
        }
    }
    found.must(rows(stage, first.id).await? == recorded, "the rows changed");
    found.saw(format!(
        "{} events, shown again by {} of {} processes of experiment, {} rows as before",
        page.experiments.len(),
        client.homes(),
        stage.experiments().len(),
        recorded.len()
    ));
    Ok(found)
}

/// The same id for another body is a conflict, whichever process meets it, and the rows stay what they are.
async fn conflict(stage: &Stage, client: &mut Client) -> Result<Found, Failed> {
    let mut found = Found::default();
    let first = Asked::new("story-conflict", 12);
    let page = client.ask(first).await;
    found.must(page.is_ok(), "the first request failed");
    let recorded = rows(stage, first.id).await?;
    found.must(!recorded.is_empty(), "nothing was recorded");
    let mut refused = 0;
    for at in 0..client.homes() {
        for other in [
            Asked { region: "us-east", at, ..first },
            Asked { class: WorkloadClass::Enterprise, at, ..first },
            Asked { origin: Origin::Probe, at, ..first },
        ] {
            let answer = client.ask(other).await.map(|_| ());
            found.must(answer == Err(Code::AlreadyExists), format!("another body was answered {answer:?}"));
            refused += 1;
        }
    }
    found.must(rows(stage, first.id).await? == recorded, "the rows changed");
    let again = client.ask(first).await;
    found.must(again.is_ok_and(|page| effect(&page) == "replayed"), "the first body no longer replays");
    found.saw(format!("{refused} other bodies refused as ALREADY_EXISTS, {} rows unchanged", recorded.len()));
    Ok(found)
}

/// Somebody else holds the ledger: pages are refused and nothing is acknowledged, readiness falls by name and comes back, and
/// the operation is then recorded once.
async fn locked(stage: &Stage, client: &mut Client, catalogue: &Catalogue) -> Result<Found, Failed> {
    let mut found = Found::default();
    let asked = Asked::new("story-locked", 13);
    let lock = stage.ledger.hold().await.map_err(unreadable)?;
    let at = MonotonicClock.now();
    let answer = client.ask(asked).await.map(|_| ());
    let (first, took) = (answer, MonotonicClock.now() - at);
    found.must(
        matches!(first, Err(Code::Unavailable | Code::DeadlineExceeded)),
        format!("a page was answered {first:?} while the ledger was locked"),
    );
    let mut fell = Vec::new();
    for member in stage.experiments() {
        // A process whose ledger is idle finds out by itself.
        let unready = stage.until(READINESS_MAX, async |stage| unready(stage, member).await.is_some()).await;
        found.must(unready, format!("{member} stayed ready"));
        fell.extend(self::unready(stage, member).await);
    }
    let named = fell.iter().all(|reason| reason.contains("exposure ledger"));
    found.must(named, format!("readiness does not name the ledger: {fell:?}"));
    let at = MonotonicClock.now();
    let answer = client.ask(asked).await.map(|_| ());
    let waited = MonotonicClock.now() - at;
    found.must(answer == Err(Code::Unavailable), format!("with the ledger known to be away: {answer:?}"));
    found.must(waited <= AT_ONCE, format!("it was refused after {waited}"));
    found.must(rows(stage, asked.id).await?.is_empty(), "there are rows behind the lock");
    lock.release().await.map_err(unreadable)?;
    let at = MonotonicClock.now();
    for member in stage.experiments() {
        let ready =
            async |stage: &Stage| matches!(stage.get(member, "/readyz").await, Some((StatusCode::OK, _)));
        found.must(stage.until(READINESS_MAX, ready).await, format!("{member} did not become ready again"));
    }
    let healed = MonotonicClock.now() - at;
    let mut page = client.ask(asked).await;
    // home-api may still avoid a process that refused it a moment ago.
    let until = MonotonicClock.now() + Nanos::from(PATIENCE);
    while page.is_err() && MonotonicClock.now() < until {
        page = client.ask(asked).await;
    }
    found.must(page.is_ok(), "the operation is refused with the ledger back");
    let recorded = rows(stage, asked.id).await?.len();
    found.must(recorded == catalogue.experiments.len(), format!("{recorded} rows afterwards"));
    found.saw(format!(
        "refused as {} after {took}, then as UNAVAILABLE after {waited}; readiness fell and was back {healed} after the \
         lock; {recorded} rows, one an experiment",
        first.err().map_or_else(String::new, |code| format!("{code:?}"))
    ));
    Ok(found)
}

/// Why a process is not ready; `None` when it is, or does not answer.
async fn unready(stage: &Stage, member: Member) -> Option<String> {
    match stage.get(member, "/readyz").await? {
        (StatusCode::OK, _) => None,
        (_, reason) => Some(reason),
    }
}

/// The ledger, reconciled with the callers and the stories together.
fn after(account: Account) -> Result<Found, Failed> {
    let mut found = Found::default();
    found.must(account.verdict == Verdict::Pass, account.why());
    found.saw(format!(
        "{} rows of {} operations, stories included, and no discrepancy",
        account.rows.total, account.operations.total
    ));
    Ok(found)
}
