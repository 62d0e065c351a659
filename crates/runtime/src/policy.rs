//! Policy: the snapshot that a process goes by, and its replacement as one transaction (DESIGN 3.9).
//!
//! A candidate is checked as a whole: that it is valid, that its generation is higher, and that every part of the process could
//! live by it. Then all parts take it over, and last of all the port, which hands it to every request that comes from then on.
//! Requests under way keep the snapshot that they came in under. Whatever is wrong, the last good one stays in force.
//!
//! One lock is the owner of reload and shutdown: a process that stops closes the policies first, and from there on every
//! candidate is refused.

mod admin;
mod keep;

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use arc_swap::ArcSwap;
use base::{Reason, Refusal};
use model::policy::Policy;
use serve::Arrival;
use tonic::Request;

pub use admin::router;
pub use keep::{Reloader, Source, keep};

/// Longest text of a diagnostic. Faults of a policy name keys and bounds, and no secret has a place in one.
const DETAIL_BYTES_MAX: usize = 2_048;

/// Something that was made by the policy and is in use while the policy changes. It must not keep alive what ends with the
/// process's ports.
pub trait Part: Send + Sync + 'static {
    /// Why the process could not live by `next`; then it stays with what it has.
    ///
    /// # Errors
    /// The reason, for operators, beginning with the key that asks for what is not there.
    fn fits(&self, _next: &Policy) -> Result<(), String> {
        Ok(())
    }

    /// Goes by `next` from now on. Nothing can be refused any more.
    fn adopt(&self, next: &Arc<Policy>);
}

impl<F: Fn(&Arc<Policy>) + Send + Sync + 'static> Part for F {
    fn adopt(&self, next: &Arc<Policy>) {
        self(next);
    }
}

/// Why a candidate is not in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// In a word.
    pub cause: Cause,
    /// For people: every fault, bounded.
    pub detail: String,
}

/// In a word, why a candidate is not in force. The names are a label's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The file cannot be read.
    Unreadable,
    /// It is no policy.
    Invalid,
    /// Its generation is not above the one in force.
    Generation,
    /// A part of the process cannot live by it.
    Unfit,
    /// The process shuts down.
    Quiescing,
    /// The replacement broke off before anything had changed.
    Interrupted,
}

impl Cause {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Unreadable, Self::Invalid, Self::Generation, Self::Unfit, Self::Quiescing, Self::Interrupted];

    /// The name used in metrics and answers.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unreadable => "unreadable",
            Self::Invalid => "invalid",
            Self::Generation => "generation",
            Self::Unfit => "unfit",
            Self::Quiescing => "quiescing",
            Self::Interrupted => "interrupted",
        }
    }
}

impl Rejected {
    fn new(cause: Cause, detail: impl Into<String>) -> Self {
        let mut detail = detail.into();
        if detail.len() > DETAIL_BYTES_MAX {
            let end = (0..=DETAIL_BYTES_MAX).rev().find(|at| detail.is_char_boundary(*at)).unwrap_or(0);
            detail.truncate(end);
            detail.push('…');
        }
        Self { cause, detail }
    }
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.cause.as_str(), self.detail)
    }
}

impl std::error::Error for Rejected {}

/// The policy of a process. Clones share it.
#[derive(Clone)]
pub struct Policies(Arc<Shared>);

struct Shared {
    current: ArcSwap<Policy>,
    /// In the order in which they take a policy over; `None` once the process shuts down.
    parts: Mutex<Option<Vec<Box<dyn Part>>>>,
}

impl Policies {
    /// A process that goes by `policy`.
    pub fn new(policy: Policy) -> Self {
        let (current, parts) = (ArcSwap::from_pointee(policy), Mutex::new(Some(Vec::new())));
        Self(Arc::new(Shared { current, parts }))
    }

    /// The policy in force. A request has its own, see [`policy`]; this is for what belongs to none.
    pub fn current(&self) -> Arc<Policy> {
        self.0.current.load_full()
    }

    /// Adds a part that was made by the current policy.
    pub fn add(&self, part: impl Part) {
        if let Some(parts) = &mut *self.parts() {
            parts.push(Box::new(part));
        }
    }

    /// Puts `next` in force, for all parts or for none.
    ///
    /// # Errors
    /// [`Rejected`]; the policy in force stays so.
    pub fn replace(&self, next: Policy) -> Result<Arc<Policy>, Rejected> {
        let parts = self.parts();
        let Some(parts) = &*parts else { return Err(quiescing()) };
        let current = self.current();
        if next.generation <= current.generation {
            let detail = format!(
                "generation is {}, which is not above {}, the one in force; raise it with every change",
                next.generation, current.generation
            );
            return Err(Rejected::new(Cause::Generation, detail));
        }
        let unfit: Vec<String> = parts.iter().filter_map(|part| part.fits(&next).err()).collect();
        if !unfit.is_empty() {
            return Err(Rejected::new(Cause::Unfit, unfit.join("; ")));
        }
        let next = Arc::new(next);
        for part in parts {
            part.adopt(&next);
        }
        self.0.current.store(Arc::clone(&next));
        Ok(next)
    }

    /// The process shuts down: every candidate is refused from now on, and the parts are let go.
    pub fn close(&self) {
        *self.parts() = None;
    }

    fn parts(&self) -> MutexGuard<'_, Option<Vec<Box<dyn Part>>>> {
        self.0.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn quiescing() -> Rejected {
    Rejected::new(Cause::Quiescing, "the process is shutting down")
}

/// The policy that a request came in under.
///
/// # Errors
/// `Internal` when it came by a port that no policy governs.
pub fn policy<T>(request: &Request<T>) -> Result<Arc<Policy>, Refusal> {
    request.extensions().get::<Arrival>().map_or_else(|| Err(ungoverned()), policy_of)
}

/// As [`policy`], of a request whose arrival is at hand.
///
/// # Errors
/// As [`policy`].
pub fn policy_of(arrival: &Arrival) -> Result<Arc<Policy>, Refusal> {
    arrival.snapshot.get().ok_or_else(ungoverned)
}

fn ungoverned() -> Refusal {
    Refusal::new(Reason::Internal, "a call came by a port that no policy governs")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use model::policy::{SHIPPED, overlay};

    use super::*;

    /// The shipped policy with another generation.
    fn generation(number: u64) -> Policy {
        let text = overlay(SHIPPED, ("changes", &format!("generation = {number}\n"))).expect("valid");
        Policy::parse("changed", &text).expect("valid")
    }

    struct Picky(Arc<AtomicU64>);

    impl Part for Picky {
        fn fits(&self, next: &Policy) -> Result<(), String> {
            if next.generation == 13 { Err("generation: thirteen".to_owned()) } else { Ok(()) }
        }

        fn adopt(&self, next: &Arc<Policy>) {
            self.0.store(next.generation, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_candidate_is_in_force_everywhere_or_nowhere() {
        let policies = Policies::new(generation(10));
        let (first, second) = <(Arc<AtomicU64>, Arc<AtomicU64>)>::default();
        let seen = Arc::clone(&first);
        policies.add(move |next: &Arc<Policy>| seen.store(next.generation, Ordering::Relaxed));
        policies.add(Picky(Arc::clone(&second)));
        let standing = || {
            let parts = [&first, &second].map(|part| part.load(Ordering::Relaxed));
            (policies.current().generation, parts)
        };
        assert_eq!(policies.replace(generation(13)).expect_err("picky").cause, Cause::Unfit);
        assert_eq!(standing(), (10, [0, 0]), "the first part has not moved either");
        policies.replace(generation(12)).expect("fits");
        assert_eq!(standing(), (12, [12, 12]));
        for old in [11, 12] {
            let rejected = policies.replace(generation(old)).expect_err("not above");
            assert_eq!(rejected.cause, Cause::Generation);
            assert!(rejected.detail.contains("not above 12"), "{rejected}");
        }
        policies.close();
        assert_eq!(policies.replace(generation(14)).expect_err("closed").cause, Cause::Quiescing);
        assert_eq!(standing(), (12, [12, 12]));
    }

    #[test]
    fn a_diagnostic_is_bounded_and_stays_text() {
        let rejected = Rejected::new(Cause::Invalid, "ä".repeat(DETAIL_BYTES_MAX));
        assert_eq!(rejected.detail.len(), DETAIL_BYTES_MAX + '…'.len_utf8());
        assert_eq!(Rejected::new(Cause::Invalid, "short").to_string(), "invalid: short");
    }
}
