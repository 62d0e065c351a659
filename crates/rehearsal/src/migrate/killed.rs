//! Killed: the command that decides, or a home-api, is killed at some moment of an advance, with no warning. Whatever the moment,
//! afterwards all processes are in one phase, which is the old or the new one.

use std::{process::Stdio, time::Duration};

use ::rollout::{Phase, Standing};
use load::Rate;
use model::{migration::Plan, workload::Workload};
use tokio::{process::Command, time};

use super::{Failed, Files, Found, MigrationOptions, Offered, STORIES_PER_S, Stage};
use crate::{Member, report::Scenario, slo::RehearsalError, verdict::Verdict};

/// How often something is killed.
const ROUNDS: u32 = 12;
/// Between the moments of two rounds, after the command was started. They span the whole of an advance, from the start of its
/// process on.
const STEP: Duration = Duration::from_millis(1);
/// Within this all processes agree.
const AGREE_MAX: Duration = Duration::from_secs(5);

pub(super) async fn play(
    options: &MigrationOptions,
    plan: &Plan,
    workload: &Workload,
    files: &Files,
) -> Result<Scenario, RehearsalError> {
    let mut stage = Stage::start(options, plan, "killed", files.clone(), 2, true).await?;
    let rate = Rate::PerSecond(STORIES_PER_S / 2.0);
    let callers = [Member::HOME_API, Member::HOME_API_2].map(|member| Offered { member, rate });
    stage.call(workload, options.seed + 200, &callers)?;
    let found = rounds(options, &mut stage).await;
    let told = Found::told("killed_in_an_advance", found);
    stage.end().await?;
    told
}

async fn rounds(options: &MigrationOptions, stage: &mut Stage) -> Result<Found, Failed> {
    let mut found = Found::default();
    let mut ended = [0_u32; 2];
    stage.reach(Phase::Expand).await?;
    for round in 0..ROUNDS {
        let old = at(stage).await?;
        if old.phase != Phase::Expand {
            // Each round is about the same step.
            let back = stage.desk.rollback(Phase::Expand).await?;
            found.must(back.verdict() == Verdict::Pass, back.why());
        }
        // Until an advance would pass.
        let ready = time::timeout(Duration::from_secs(20), async {
            while !stage
                .desk
                .status()
                .await
                .is_ok_and(|status| status.next.is_some_and(|next| next.verdict == Verdict::Pass))
            {
                time::sleep(Duration::from_millis(50)).await;
            }
        });
        found.must(ready.await.is_ok(), "an advance was never due");
        let before = at(stage).await?;
        let mut command = advance(options, stage)?;
        time::sleep(STEP * round).await;
        let kills_home = round % 2 == 1;
        if kills_home {
            stage.suite.kill(Member::HOME_API_2);
            let exited = stage.suite.exited().await;
            found.must(exited.member == Member::HOME_API_2, format!("{} died as well", exited.member));
            stage.suite.restart(Member::HOME_API_2).await.map_err(RehearsalError::Launch)?;
            stage.desk.processes = crate::migration::hearing::taking_part(stage.suite.endpoints());
            // It waits for the process that was killed, which is back; what it says of it is no part of this story.
            let _ = command.wait().await;
        } else {
            // Killed, as SIGKILL is: it writes nothing more.
            let _ = command.kill().await;
        }
        let after = at(stage).await?;
        found.must(
            after == before || after.phase == Phase::Shadow,
            format!("round {round}: the ledger went from {} to {}", before.phase, after.phase),
        );
        ended[usize::from(after != before)] += 1;
        let agree = time::timeout(AGREE_MAX, async {
            loop {
                let heard = stage.hear().await;
                let there = |report: &Result<::rollout::report::ProcessReport, String>| {
                    report.as_ref().is_ok_and(|report| {
                        report.generation == after.generation && report.phase == after.phase
                    })
                };
                if heard.iter().all(there) {
                    return;
                }
                time::sleep(Duration::from_millis(20)).await;
            }
        });
        found.must(
            agree.await.is_ok(),
            format!("round {round}: the processes do not agree on {}", after.phase),
        );
    }
    found.saw(format!(
        "{ROUNDS} kills, every other one of a home-api; {} ended in the old phase and {} in the new one, and all processes agreed each time",
        ended[0], ended[1]
    ));
    Ok(found)
}

async fn at(stage: &Stage) -> Result<Standing, Failed> {
    let standing = stage.desk.status().await?.standing;
    standing
        .ok_or_else(|| Failed::NotReached { phase: Phase::Legacy, why: "nothing was decided yet".to_owned() })
}

/// `mercury rollout advance`, as an operator would start it.
fn advance(options: &MigrationOptions, stage: &Stage) -> Result<tokio::process::Child, RehearsalError> {
    let fault = |error| RehearsalError::Io { path: "mercury rollout advance".into(), error };
    let executable = match &options.executable {
        Some(path) => path.clone(),
        None => std::env::current_exe().map_err(fault)?,
    };
    let mut command = Command::new(executable);
    command.args(["rollout", "advance", "--output", "json"]).arg("--ledger").arg(&stage.desk.ledger);
    for process in &stage.desk.processes {
        command.arg("--process").arg(process);
    }
    command.arg("--quick");
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    quiet.spawn().map_err(fault)
}
