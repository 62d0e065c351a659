//! Keep: the task that keeps a process by its policy file. It looks at the file's content by itself, and at once when it is told
//! to, by SIGHUP or by the admin port; one candidate at a time.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use base::{
    WallClock,
    inject::{Point, Points},
};
use model::policy::Policy;
use prometheus_client::metrics::{counter::Counter, family::Family, gauge::Gauge};
use serde_json::{Value, json};
use serve::health::{Readiness, State};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::{mpsc, oneshot},
    time::{self, MissedTickBehavior},
};

use super::{Cause, Policies, Rejected, quiescing};
use crate::{
    host::{Host, StartError},
    watched::{Content, Found, LOOK},
};

/// Name of the task.
const TASK: &str = "keep policy";
/// Requests to reload that may wait; further ones wait for their place.
const REQUESTS_MAX: usize = 4;

/// Where the policy comes from.
pub struct Source {
    /// The file; `None` for the one that is built in, which never changes.
    pub path: Option<PathBuf>,
    /// What is made of the document, for this process: its scale and its slow motion.
    pub adjust: Box<dyn Fn(Policy) -> Policy + Send + Sync>,
}

impl Source {
    fn read(&self, text: &str) -> Result<Policy, Rejected> {
        let name = self.path.as_deref().unwrap_or(Path::new("the built-in policy")).display().to_string();
        let policy = Policy::parse(&name, text);
        policy.map(&self.adjust).map_err(|faults| Rejected::new(Cause::Invalid, faults.to_string()))
    }
}

/// What came of a look at the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Looked {
    /// The content is the one in force.
    Unchanged(u64),
    /// It is in force from now on, under this generation.
    Taken(u64),
}

type Answer = oneshot::Sender<Result<Looked, Rejected>>;

/// Asks for a look at the file. Clones share the task.
#[derive(Clone)]
pub struct Reloader {
    requests: Option<mpsc::Sender<Answer>>,
    account: Arc<Account>,
    readiness: Readiness,
}

impl Reloader {
    /// Looks at the file now.
    ///
    /// # Errors
    /// Why its content is not in force.
    pub async fn reload(&self) -> Result<Looked, Rejected> {
        let Some(requests) = &self.requests else {
            let detail = "the process goes by the built-in policy; start it with --policy FILE";
            return Err(Rejected::new(Cause::Unreadable, detail));
        };
        let (answer, answered) = oneshot::channel();
        // Both fail only once the task has ended, which it does when the process shuts down, or when it panicked.
        let asked = requests.send(answer).await.is_ok();
        let answer = if asked { answered.await.ok() } else { None };
        answer.unwrap_or_else(|| {
            let ended =
                "what keeps the policy has ended: no policy is taken over until the process is started again";
            let why = match self.readiness.get() {
                State::Quiescing => quiescing(),
                _ => Rejected::new(Cause::Interrupted, ended),
            };
            Err(self.account.rejected(why))
        })
    }

    /// What has come of reloads so far.
    pub fn told(&self) -> Value {
        self.account.told()
    }
}

/// What came of reloads, for metrics and the admin port.
struct Account {
    path: Option<PathBuf>,
    generation: Gauge,
    taken: Counter,
    rejected: [Counter; Cause::ALL.len()],
    last: Mutex<Option<(i64, Rejected)>>,
    wall: Arc<dyn WallClock>,
}

impl Account {
    fn new(host: &Host, path: Option<PathBuf>) -> Self {
        let reloads = Family::<[(&'static str, &'static str); 1], Counter>::default();
        let generation = Gauge::default();
        generation.set(i64::try_from(host.policies.current().generation).unwrap_or(i64::MAX));
        host.registry.with(|registry| {
            let help = "Policies that were taken over or refused since the start, by what came of them";
            registry.register("policy_reloads", help, reloads.clone());
            let help = "Generation of the policy that new requests come in under";
            registry.register("policy_generation", help, generation.clone());
        });
        let outcome = |outcome| reloads.get_or_create_owned(&[("outcome", outcome)]);
        Self {
            path,
            generation,
            taken: outcome("taken"),
            rejected: Cause::ALL.map(|cause| outcome(cause.as_str())),
            last: Mutex::default(),
            wall: Arc::clone(&host.world.wall),
        }
    }

    fn took(&self, generation: u64) {
        self.taken.inc();
        self.generation.set(i64::try_from(generation).unwrap_or(i64::MAX));
        tracing::info!(generation, "the policy is in force");
    }

    fn rejected(&self, rejected: Rejected) -> Rejected {
        self.rejected[rejected.cause as usize].inc();
        tracing::warn!(cause = rejected.cause.as_str(), detail = %rejected.detail,
            "the policy was refused; the last good one stays in force");
        let told = Some((self.wall.unix_ms(), rejected.clone()));
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = told;
        rejected
    }

    fn told(&self) -> Value {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        json!({
            "file": self.path.as_ref().map(|path| path.display().to_string()),
            "taken": self.taken.get(),
            "refused": self.rejected.iter().map(Counter::get).sum::<u64>(),
            "last_refused": last.map(|(at, rejected)| json!({
                "unix_ms": at,
                "cause": rejected.cause.as_str(),
                "detail": rejected.detail,
            })),
        })
    }
}

/// Keeps the process by its policy file until it shuts down. `text` is the content that the current policy was made of. To be
/// called within a runtime.
///
/// # Errors
/// `Failed` when the system refuses a handler for SIGHUP.
pub fn keep(host: &Host, source: Source, text: String) -> Result<Reloader, StartError> {
    let account = Arc::new(Account::new(host, source.path.clone()));
    // Taken over without a file as well: its default action would end the process.
    let mut hangups = signal(SignalKind::hangup()).map_err(|error| StartError::Failed(error.to_string()))?;
    let (requests, mut asked) = mpsc::channel::<Answer>(REQUESTS_MAX);
    let requests = source.path.is_some().then_some(requests);
    let readiness = host.readiness.clone();
    let reloader = Reloader { requests, account, readiness: readiness.clone() };
    let (policies, points) = (host.policies.clone(), host.world.points.clone());
    let told = reloader.clone();
    let keep = async move {
        let Some(path) = source.path.clone() else {
            loop {
                hangups.recv().await;
                drop(told.reload().await);
            }
        };
        let account = told.account;
        let content = Content::new(path, text);
        let mut course = Course { content, source, policies, points, account, refused: None };
        let mut ticks = time::interval(LOOK.into());
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                // A request that was accepted is answered before the file is looked at for any other reason.
                biased;
                Some(answer) = asked.recv() => {
                    let _gone = answer.send(course.look(true).await);
                }
                // Several signals before a look are one.
                _ = hangups.recv() => drop(course.look(true).await),
                _ = ticks.tick() => drop(course.look(false).await),
            }
        }
    };
    let task = async move {
        tokio::select! {
            biased; // Also in the middle of a replacement, which has changed nothing as long as it waits.
            () = readiness.quiesced() => {}
            () = keep => {}
        }
    };
    host.world.tasks.spawn(TASK, Box::pin(task));
    Ok(reloader)
}

/// The file, and what it is for.
struct Course {
    content: Content,
    source: Source,
    policies: Policies,
    points: Points,
    account: Arc<Account>,
    /// Why the content that was refused last was, under the policy of that generation.
    refused: Option<(u64, Rejected)>,
}

impl Course {
    /// Looks at the file, and puts its content in force if that is news. `asked`: somebody said that it is complete.
    async fn look(&mut self, asked: bool) -> Result<Looked, Rejected> {
        let unchanged = Ok(Looked::Unchanged(self.policies.current().generation));
        let text = match self.content.look(asked).await {
            Found::Nothing => return unchanged,
            Found::Unreadable { error, news } => {
                let rejected = Rejected::new(Cause::Unreadable, error);
                return Err(if news { self.account.rejected(rejected) } else { rejected });
            }
            Found::News(text) => text,
        };
        // Known to be bad, and nothing has changed since: who asks is told again what is wrong.
        if let Some((generation, rejected)) = &self.refused
            && self.content.is_refused(&text)
            && *generation == self.policies.current().generation
        {
            return Err(rejected.clone());
        }
        match self.replace(&text).await {
            Ok(policy) => {
                self.content.taken(text);
                self.account.took(policy.generation);
                Ok(Looked::Taken(policy.generation))
            }
            Err(rejected) => {
                let generation = self.policies.current().generation;
                // What broke off may succeed when it is asked for again; anything else stays wrong.
                self.refused = (rejected.cause != Cause::Interrupted).then(|| (generation, rejected.clone()));
                // A content is told and counted once, however often it is asked about.
                if self.content.refused(text) { Err(self.account.rejected(rejected)) } else { Err(rejected) }
            }
        }
    }

    async fn replace(&self, text: &str) -> Result<Arc<Policy>, Rejected> {
        let next = self.source.read(text)?;
        let passed = self.points.pass(Point::PolicySwap).await;
        passed.map_err(|injected| Rejected::new(Cause::Interrupted, injected.to_string()))?;
        self.policies.replace(next)
    }
}
