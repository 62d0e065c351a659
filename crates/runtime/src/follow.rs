//! Follow: where the migration stands, by the ledger of decisions (DESIGN 3.6). A process reads it when it starts and looks at
//! its head ever after, so that all processes are in the phase that was decided last, whenever they were started or killed.
//!
//! A process that cannot read the ledger goes on with what it last knew; one that was put in a phase that it cannot serve does what it
//! can of it, which is to fall back or to refuse. Neither is ready, so that nobody sends it requests.

use std::{path::Path, sync::Arc};

use base::Nanos;
use rollout::{
    Phase, Standing,
    ledger::{self, Head},
};
use tokio::time::{self, MissedTickBehavior};

use crate::host::{Host, StartError};

/// How often the ledger's head is looked at.
const LOOK: Nanos = Nanos::from_millis(100);
/// Longest look: a file system that hangs says nothing.
const LOOK_MAX: Nanos = Nanos::from_secs(1);
/// A ledger that cannot be read for so many looks is lost: one look may meet it while it is replaced.
const LOST_AFTER_LOOKS: u32 = 20;
/// Name of the task.
const TASK: &str = "follow ledger";

/// What the ledger says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Followed {
    /// Where the migration stands; `None` before its first decision: then the policy says.
    pub standing: Option<Standing>,
    /// The last decision, about whatever subject.
    pub head: Option<Head>,
}

impl Followed {
    fn read(path: &Path) -> Result<Self, String> {
        let (standing, head) = Standing::read(path).map_err(|error| error.to_string())?;
        Ok(Self { standing, head })
    }
}

/// Who follows.
pub trait Follower: Send + Sync + 'static {
    /// Why the process could not serve a phase; `None` when it could. It is read by operators.
    fn unable(&self, phase: Phase) -> Option<String>;
    /// The ledger says something new.
    fn moved(&self, to: Followed);
}

/// Has `follower` follow the ledger at `path`: at once, and then until the process shuts down.
///
/// # Errors
/// `Failed` when the ledger cannot be relied on, or puts the process in a phase that it cannot serve.
pub fn follow(host: &Host, path: &Path, follower: Arc<dyn Follower>) -> Result<(), StartError> {
    let name = host.service.as_str();
    let followed = Followed::read(path).map_err(|error| StartError::Failed(format!("{name}: {error}")))?;
    if let Some(why) = unfit(&*follower, &followed) {
        return Err(StartError::Failed(format!("{name}: {why}")));
    }
    follower.moved(followed.clone());
    let (readiness, path) = (host.readiness.clone(), path.to_owned());
    let condition = readiness.condition("migration");
    let task = async move {
        let mut course = Course { followed, bytes: None, failed_looks: 0, fault: None };
        let mut ticks = time::interval(LOOK.into());
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = readiness.quiesced() => return,
                _ = ticks.tick() => {}
            }
            let fault = course.look(&path, &*follower).await;
            if fault == course.fault {
                continue;
            }
            match &fault {
                Some(why) => {
                    tracing::warn!(%why, "not ready");
                    condition.fails(why.clone());
                }
                None => condition.holds(),
            }
            course.fault = fault;
        }
    };
    host.world.tasks.spawn(TASK, Box::pin(task));
    Ok(())
}

/// Why a process cannot serve where it stands.
fn unfit(follower: &dyn Follower, followed: &Followed) -> Option<String> {
    let phase = followed.standing.as_ref()?.phase;
    follower.unable(phase).map(|why| format!("cannot serve phase {phase} of the migration: {why}"))
}

/// What was last known, and what is wrong.
struct Course {
    followed: Followed,
    /// Length of the ledger when it was last read; `None` before that. A line counts for everybody from when it is there, whether
    /// or not whoever wrote it lived to move the head.
    bytes: Option<u64>,
    failed_looks: u32,
    fault: Option<String>,
}

impl Course {
    /// Looks once. What makes the process not ready.
    async fn look(&mut self, path: &Path, follower: &dyn Follower) -> Option<String> {
        let (path, known, read_bytes) = (path.to_owned(), self.followed.head.clone(), self.bytes);
        let looked = tokio::task::spawn_blocking(move || {
            let head = ledger::head(&path).map_err(|error| error.to_string())?;
            // The length first: what is appended between the two is read now and looked at once more.
            let bytes = std::fs::metadata(&path).ok().map(|found| found.len());
            let acknowledged =
                head.as_ref().map(|head| head.sequence) <= known.as_ref().map(|head| head.sequence);
            if acknowledged && bytes == read_bytes && (bytes.is_some() || head.is_none()) {
                return Ok(None);
            }
            Ok(Some((Followed::read(&path)?, bytes)))
        });
        let looked = time::timeout(LOOK_MAX.into(), looked).await;
        let looked = match looked {
            Ok(Ok(looked)) => looked,
            Ok(Err(_)) => Err("the look at the ledger broke off".to_owned()),
            Err(_) => Err(format!("the ledger could not be looked at within {LOOK_MAX}")),
        };
        match looked {
            Ok(news) => {
                self.failed_looks = 0;
                if let Some((followed, bytes)) = news {
                    self.bytes = bytes;
                    if followed != self.followed {
                        follower.moved(followed.clone());
                        self.followed = followed;
                    }
                }
                unfit(follower, &self.followed)
            }
            Err(error) => {
                self.failed_looks = self.failed_looks.saturating_add(1);
                if self.failed_looks < LOST_AFTER_LOOKS { self.fault.clone() } else { Some(error) }
            }
        }
    }
}
