//! Read profile: the one read that pages share. Alone, in shadow, or as a flight that answers everybody who asks for the
//! same profile at the same time (DESIGN 3.4).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base::{
    CallContext, Deadline, Dependency, Nanos, Phase, Reason, Refusal, Region, Subject, Tenant,
    trace::TraceContext,
};
use control::coalescing::{Counts, Ending, Flights, Role as Entered, Rules, WaiterId};
use model::policy::{Boundary, Mechanism, Policy};
use serve::Progress;
use stack::{
    CallBudget,
    coalescing::{Missed, Role},
};
use summary::Signed;

use crate::{
    applied::Applied,
    clients::{Answer, PROFILE_SCHEMA},
    page::{Profile, Spent},
    request::PageRequest,
    serve_page::Home,
    slots::Ask,
};

/// What pages must have in common to share a read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ProfileKey {
    tenant: Tenant,
    subject: Subject,
    /// The summary that goes with the profile holds in one region.
    region: Region,
    /// As far as it was heard of: a page that comes after a revocation joins no read from before it.
    revocation_epoch: u64,
    /// Version of the rules by which the subject was authorized: those of the policy snapshot.
    authorization_version: u64,
    response_schema: u32,
    freshness: Freshness,
}

/// How old an answer may be. There is one class yet: read for this page, or while this page waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Freshness {
    Live,
}

/// A read's answer, the same for all who shared it.
#[derive(Clone, Debug)]
pub(crate) struct Read {
    profile: Arc<Profile>,
    /// Checked by each page for itself, when it is delivered: what was revoked while a page waited is revoked for it.
    signed: Option<Arc<Signed>>,
    /// How long the call waited for a slot and a connection.
    wait: Nanos,
    /// The span of the page that made the call, for those who share it to point at.
    led_by: TraceContext,
}

/// A flight that does not start because its limit has been reached is tried anew, so often in all.
const ATTEMPTS_MAX: u32 = 2;

impl Home {
    /// Reads the profile of the page's subject, as the policy says.
    pub(crate) async fn profile(
        self: &Arc<Self>,
        request: &PageRequest,
    ) -> Result<(Profile, Option<Arc<Signed>>, Spent), Refusal> {
        request.enter(Phase::Profile);
        let start = self.clock.now();
        self.may_run(request, Phase::Profile, Dependency::Profile, start)?;
        self.metrics.read();
        let coalescing = request.applied.of_mechanism(Mechanism::Coalescing);
        let read = if coalescing.acts() {
            self.shared_read(request, start).await?
        } else {
            let shadow = coalescing.computes().then(|| Shadow::enter(self, self.key(request), request));
            let deadline = request.term.enforced;
            let (policy, progress) = (&request.policy, &request.progress);
            let timeout = independent_timeout(policy);
            let budget = |now| request.budget(now, policy.response_reserve, timeout);
            let context = &request.context;
            let read = self.call_profile(context, policy, request.applied, progress, deadline, budget).await;
            if let Some(shadow) = shadow {
                shadow.ended(read.is_ok());
            }
            read?
        };
        let elapsed = self.clock.now().saturating_sub(start);
        // A follower waited for no longer than it was there.
        let wait = read.wait.min(elapsed);
        let spent = Spent { wait, service: elapsed.saturating_sub(wait) };
        self.metrics.branch(Dependency::Profile, spent);
        Ok((Arc::unwrap_or_clone(read.profile), read.signed, spent))
    }

    /// One read for all who ask for it at the same time. Who shared one that reached its limit, and has time left, asks
    /// once more.
    async fn shared_read(self: &Arc<Self>, request: &PageRequest, mut now: Nanos) -> Result<Read, Refusal> {
        let expired = || Refusal::deadline(Phase::Profile);
        for _ in 0..ATTEMPTS_MAX {
            let Some((until, rules)) = flight_bounds(request, now) else {
                return Err(expired());
            };
            let (home, context, applied) = (Arc::clone(self), Arc::clone(&request.context), request.applied);
            let policy = Arc::clone(&request.policy);
            let progress = request.progress.clone();
            let enforced = request.term.enforced.is_some();
            // The flight holds no share of the page's work: it may outlive the page that began it.
            let call = move |flight: stack::coalescing::FlightBudget| async move {
                let limit = enforced.then_some(flight.limit);
                let budget = |now| CallBudget {
                    deadline: limit.unwrap_or(Deadline::after(now, independent_timeout(&policy))),
                    // The limit has the reserve taken off.
                    reserve: Nanos::ZERO,
                };
                home.call_profile(&context, &policy, applied, &progress, limit, budget).await
            };
            let missed = match self.coalescer.join(rules, self.key(request), until, call).await {
                Ok(joined) => {
                    let follows = joined.role == Role::Follower;
                    self.metrics.decided(Mechanism::Coalescing, follows, follows);
                    if follows {
                        request.progress.follow(joined.value.led_by);
                    }
                    return Ok(joined.value);
                }
                Err(missed) => missed,
            };
            match missed {
                Missed::Limit => {
                    now = self.clock.now();
                    self.may_run(request, Phase::Profile, Dependency::Profile, now)?;
                }
                Missed::Deadline => return Err(expired()),
                Missed::Failed(refusal) => return Err(refusal),
                Missed::Overload => {
                    let refusal = Refusal::new(Reason::Overload, "too many profile reads are under way");
                    let hint = request.policy.admission(Boundary::Profile).gate().retry_after();
                    return Err(refusal.in_phase(Phase::ProfileAcquire).retry_after(hint));
                }
                Missed::Panicked => {
                    return Err(Refusal::new(Reason::Internal, "the shared profile read broke"));
                }
                Missed::Stopped => {
                    return Err(Refusal::new(Reason::Quiescing, "the process is shutting down"));
                }
            }
        }
        Err(expired())
    }

    /// The call itself, once there is a slot for it. `budget` is asked at the moment of sending.
    async fn call_profile(
        &self,
        context: &CallContext,
        policy: &Policy,
        applied: Applied,
        progress: &Progress,
        deadline: Option<Deadline>,
        budget: impl FnOnce(Nanos) -> CallBudget,
    ) -> Result<Read, Refusal> {
        progress.enter(Phase::ProfileAcquire);
        let now = self.clock.now();
        let ask = Ask {
            class: context.identity.class,
            arrived: now,
            now,
            deadline,
            useful: policy.branch(Dependency::Profile).worst_useful,
            trace: &context.trace,
        };
        let admission = applied.of_mechanism(Mechanism::Admission);
        let slot = self.profile_slots.enter(admission, ask).await;
        let slot = slot.map_err(|denied| denied.refusal(Phase::ProfileAcquire))?;
        progress.enter(Phase::Profile);
        self.metrics.profile_call();
        let waited = slot.waited();
        let answer = self.clients.profile(context, budget(now.saturating_add(waited))).await;
        drop(slot);
        let Answer { value: (profile, signed), wait } = answer?;
        let wait = waited.saturating_add(wait);
        Ok(Read { profile: Arc::new(profile), signed: signed.map(Arc::new), wait, led_by: context.trace })
    }

    fn key(&self, request: &PageRequest) -> ProfileKey {
        let context = &request.context;
        ProfileKey {
            tenant: context.identity.tenant.clone(),
            subject: context.identity.subject.clone(),
            region: context.identity.region.clone(),
            revocation_epoch: self.authority.epoch(&context.identity.tenant),
            authorization_version: request.policy.generation,
            response_schema: PROFILE_SCHEMA,
            freshness: Freshness::Live,
        }
    }

    /// Shared reads so far.
    pub(crate) fn flights(&self) -> Counts {
        self.coalescer.counts()
    }
}

fn independent_timeout(policy: &Policy) -> Nanos {
    policy.branch(Dependency::Profile).independent_timeout
}

/// By when a page leaves its flight, and the rules of a flight that it would begin: as long as the policy lets it take, and no
/// longer than its own leader has time for. `None` when no time is left.
fn flight_bounds(request: &PageRequest, now: Nanos) -> Option<(Deadline, Rules)> {
    let mut rules = request.policy.coalescing;
    let until = match request.term.enforced {
        Some(deadline) => deadline.less(request.policy.response_reserve),
        None => request.context.deadline,
    };
    let left = until.remaining(now);
    rules.duration_max = if request.term.enforced.is_some() { rules.duration_max.min(left) } else { left };
    (!left.is_zero()).then_some((until, rules))
}

/// Flights as they would be if the mechanism were on.
#[derive(Default)]
pub(crate) struct ShadowFlights(Mutex<Flights<ProfileKey, ()>>);

impl ShadowFlights {
    fn lock(&self) -> MutexGuard<'_, Flights<ProfileKey, ()>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One page's part in the shadow of a flight. Dropped before its read has ended, the page has left.
struct Shadow<'a> {
    flights: &'a ShadowFlights,
    /// `None` when it would have got no flight, and once its part is over.
    part: Option<WaiterId>,
}

impl<'a> Shadow<'a> {
    fn enter(home: &'a Home, key: ProfileKey, request: &PageRequest) -> Self {
        let now = home.clock.now();
        let flights = &home.shadow_flights;
        let bounds = flight_bounds(request, now);
        let entry = bounds.and_then(|(until, rules)| flights.lock().enter(&rules, key, now, until, ()).ok());
        let follows = entry.is_some_and(|entry| matches!(entry.role, Entered::Follower { .. }));
        home.metrics.decided(Mechanism::Coalescing, follows, false);
        Self { flights, part: entry.map(|entry| entry.waiter) }
    }

    /// The page's own read has ended, which for a leader is the one that would have been shared.
    fn ended(mut self, answered: bool) {
        if let Some(waiter) = self.part.take() {
            let ending = if answered { Ending::Completed } else { Ending::Failed };
            self.flights.lock().own_call_ended(waiter, ending);
        }
    }
}

impl Drop for Shadow<'_> {
    fn drop(&mut self) {
        if let Some(waiter) = self.part.take() {
            let _left = self.flights.lock().leave(waiter);
        }
    }
}
