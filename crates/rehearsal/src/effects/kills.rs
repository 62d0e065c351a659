//! Kills: experiment is killed under load, with no warning, at moments that a seed draws; and each time it has to come back,
//! and to record again before the next kill.

use std::{io, time::Duration};

use base::{
    Clock, Nanos,
    clock::MonotonicClock,
    mix::{below, fold64},
};
use tokio::time;

use super::{EffectsOptions, Stage, stage::PATIENCE};
use crate::{Member, screen::Screen, slo::RehearsalError};

/// Sets the draws of the kills apart from every other use of the seed.
const PURPOSE: u64 = u64::from_be_bytes(*b"killings");
/// Longest time that a lock is held before a kill: less than what the ledger waits for one.
const HELD_MAX: Duration = Duration::from_millis(700);
/// Longest time from giving a lock up to the kill: what a transaction takes.
const COMMIT_MAX: Nanos = Nanos::from_millis(12);

/// At which moment a kill comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    /// Any.
    Any,
    /// Rows were submitted, and a held lock keeps them from the ledger.
    Submitted,
    /// The lock was just given up: rows are being committed, or are and were not answered for yet.
    Committing,
}

/// What came of the kills.
#[derive(Clone, Debug, Default)]
pub(super) struct Killed {
    /// Kills, by moment: any, submitted, committing.
    pub(super) kills: [u32; 3],
    /// Rows that had been submitted and not answered for when a kill came.
    pub(super) rows_in_flight: u64,
    /// From each kill to a process that is ready, ascending.
    pub(super) restarts: Vec<Nanos>,
    /// What the suite did not do in time.
    pub(super) wrong: Vec<String>,
    /// Why there were fewer kills than were asked for, when that was not the suite's doing.
    pub(super) cut: Option<String>,
}

/// Draws of a seed, one after the other.
struct Draws(u64);

impl Draws {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = fold64(self.0, PURPOSE);
        below(self.0, bound)
    }
}

pub(super) async fn play(
    options: &EffectsOptions,
    stage: &mut Stage,
    screen: &Screen,
) -> Result<Killed, RehearsalError> {
    let mut killed = Killed::default();
    let mut draws = Draws(options.seed);
    let members = stage.experiments();
    let wrong = |killed: &mut Killed, what: String| killed.wrong.push(what);
    for round in 0..options.kills {
        screen.say(format!("kill {} of {}", round + 1, options.kills));
        let member = members[draws.below(members.len() as u64) as usize];
        // Nobody is killed before it has recorded something since its start.
        let records = async |stage: &Stage| stage.answered(member).await.is_some_and(|rows| rows > 0.0);
        if !stage.until(PATIENCE, records).await {
            wrong(&mut killed, format!("{member} did not record before kill {}", round + 1));
            return Ok(killed);
        }
        let pause = options.pause.get();
        time::sleep(Nanos::new(pause / 2 + draws.below(pause.max(1))).into()).await;
        let moment = match draws.below(5) {
            0 => Moment::Submitted,
            1 | 2 => Moment::Committing,
            _ => Moment::Any,
        };
        let moment = kill(stage, member, moment, &mut draws, &mut killed).await?;
        let at = MonotonicClock.now();
        let exited = stage.suite.exited().await;
        if exited.member != member {
            // A member that nobody killed is a result that nothing else may hide.
            return Err(RehearsalError::Died(Box::new(exited)));
        }
        stage.suite.restart(member).await.map_err(RehearsalError::Launch)?;
        killed.restarts.push(MonotonicClock.now() - at);
        killed.kills[moment as usize] += 1;
        if !stage.is_called() {
            killed.cut = Some(format!("the callers ended before kill {}", round + 2));
            return Ok(killed);
        }
    }
    for member in members {
        let records = async |stage: &Stage| stage.answered(member).await.is_some_and(|rows| rows > 0.0);
        if !stage.until(PATIENCE, records).await {
            wrong(&mut killed, format!("{member} did not record after the last kill"));
        }
    }
    killed.restarts.sort_unstable();
    Ok(killed)
}

impl Moment {
    /// The moment that it was: without a row that waited for the ledger, it is any.
    const fn of(self, rows_waiting: u64) -> Self {
        if rows_waiting == 0 { Self::Any } else { self }
    }
}

/// Brings the moment about and kills. Says which moment it was in the end.
async fn kill(
    stage: &Stage,
    member: Member,
    moment: Moment,
    draws: &mut Draws,
    killed: &mut Killed,
) -> Result<Moment, RehearsalError> {
    let fault = |what: String| RehearsalError::Io { path: "ledger".into(), error: io::Error::other(what) };
    if moment == Moment::Any {
        stage.suite.kill(member);
        return Ok(moment);
    }
    let lock = stage.ledger.hold().await.map_err(fault)?;
    let mut waiting = 0.0;
    let submitted = async |stage: &Stage| {
        waiting = stage.waiting(member).await.unwrap_or_default();
        waiting > 0.0
    };
    // Callers that are all waiting for a retry may submit nothing for a while; then it is a kill like any other.
    stage.until(HELD_MAX, submitted).await;
    let waiting = waiting as u64;
    killed.rows_in_flight += waiting;
    if moment == Moment::Submitted {
        stage.suite.kill(member);
        lock.release().await.map_err(fault)?;
        return Ok(moment.of(waiting));
    }
    let wait = Nanos::new(draws.below(COMMIT_MAX.get()));
    lock.release().await.map_err(fault)?;
    time::sleep(wait.into()).await;
    stage.suite.kill(member);
    Ok(moment.of(waiting))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_at_which_nothing_waited_is_any() {
        for moment in [Moment::Any, Moment::Submitted, Moment::Committing] {
            assert_eq!((moment.of(0), moment.of(1)), (Moment::Any, moment));
        }
    }
}
