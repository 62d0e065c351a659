//! Serve page: the one function behind both faces. A slot, profile, entitlement, then five branches at once, then the page;
//! before each step the budget is asked whether the step can still end usefully.

use std::sync::{Arc, Mutex, PoisonError};

use base::{CallContext, Clock, Dependency, Nanos, Phase, Reason, Refusal, tasks::Spawn};
use control::{
    budget::Rules,
    degradation::{self, Hold, Marker, Observation, Pressure},
};
use model::policy::{Mechanism, Policy};
use serve::Arrival;
use stack::{CallBudget, coalescing::Coalescer};
use tokio::sync::oneshot;

use crate::{
    applied::{Applied, Term},
    authority::Authority,
    clients::{Answer, Clients},
    decide::{self, Branch},
    era::Era,
    metrics::HomeMetrics,
    migration::Migration,
    page::{Entitlement, Optional, Page, Profile, Spent},
    read_profile::{ProfileKey, Read, ShadowFlights},
    request::{Account, PageRequest},
    shadow::Bench,
    slots::{Ask, Slots},
};

/// Name of a page's task where it may outlive its caller.
const PAGE_TASK: &str = "page";

/// The service: its layers, from the inside. Built by [`crate::stack`].
pub(crate) struct Home {
    pub(crate) clients: Clients,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) tasks: Arc<dyn Spawn>,
    pub(crate) metrics: Arc<HomeMetrics>,
    pub(crate) endpoint_slots: Arc<Slots>,
    pub(crate) profile_slots: Arc<Slots>,
    pub(crate) coalescer: Coalescer<ProfileKey, Read, Refusal>,
    pub(crate) shadow_flights: ShadowFlights,
    pub(crate) pressures: Pressures,
    pub(crate) authority: Arc<Authority>,
    pub(crate) bench: Arc<Bench>,
    pub(crate) migration: Arc<Migration>,
}

/// A page and where its time went, branch by branch. A branch that was never started has no entry.
#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) page: Page,
    /// How long the page waited for a slot of the endpoint.
    pub(crate) admission: Nanos,
    pub(crate) spent: [Option<Spent>; Dependency::ALL.len()],
}

/// What one request goes by: taken once, so that no page mixes two policies or two phases.
#[derive(Clone)]
pub(crate) struct Terms {
    pub(crate) policy: Arc<Policy>,
    /// The phase of the migration.
    pub(crate) era: Arc<Era>,
    pub(crate) applied: Applied,
}

/// How much of a deadline a branch must find.
fn rules(policy: &Policy) -> Rules {
    Rules { response_reserve: policy.response_reserve, optional_floor: policy.optional_floor }
}

/// Whether the process is under pressure. Never held across an await.
pub(crate) struct Pressures(Mutex<Hold>);

impl Pressures {
    pub(crate) const fn new(hold: Hold) -> Self {
        Self(Mutex::new(hold))
    }

    fn with<T>(&self, ask: impl FnOnce(&mut Hold) -> T) -> T {
        ask(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Home {
    /// What a request that came by `arrival` goes by, to its end.
    ///
    /// # Errors
    /// `Internal` when it came by a port that no policy governs.
    pub(crate) fn terms(&self, context: &CallContext, arrival: &Arrival) -> Result<Terms, Refusal> {
        let (policy, era) = (runtime::policy::policy_of(arrival)?, self.migration.era());
        let applied = Applied::of(&policy, &era, &context.identity);
        Ok(Terms { policy, era, applied })
    }

    /// From now on pages stand under pressure by these bounds.
    pub(crate) fn bound_pressure(&self, bounds: degradation::Bounds) {
        self.pressures.with(|hold| hold.set_bounds(bounds));
    }

    /// The boundaries, outermost first.
    pub(crate) fn boundaries(&self) -> [&Slots; 2] {
        [&self.endpoint_slots, &self.profile_slots]
    }

    /// Whether optional sections give way to pressure now.
    pub(crate) fn pressure(&self) -> bool {
        let now = self.clock.now();
        self.pressures.with(|hold| hold.is_on(now))
    }

    /// Assembles the page. Dropping the future cancels every call that is under way, unless the cancellation mechanism does
    /// not act on the request: then its work goes on to its end.
    ///
    /// # Errors
    /// The deadline, with the phase in which it was reached; want of capacity; a mandatory dependency's failure; an unknown
    /// subject.
    pub(crate) async fn page(
        self: &Arc<Self>,
        context: Arc<CallContext>,
        terms: &Terms,
        arrival: &Arrival,
    ) -> Result<Served, Refusal> {
        let Terms { policy, era, applied } = terms.clone();
        let held = Arc::clone(&context);
        let account = Account::open(&self.metrics, &*self.clock, &held, applied, Arc::clone(&era));
        let deadline = applied.of_mechanism(Mechanism::Deadline);
        let term = Term::of(&policy, deadline, context.arrived, context.deadline, arrival.asked);
        let work = arrival.work();
        work.objective(term.intended);
        let progress = arrival.progress.clone();
        let request = PageRequest { context, policy, applied, era, term, progress, _work: work };
        let result = if applied.acts(Mechanism::Cancellation) {
            self.within_deadline(&request).await
        } else {
            self.detached(request).await
        };
        // Whatever it is that fails the page, an exposure that was asked for may be there.
        let result = result.map_err(|refusal| arrival.progress.settle(refusal));
        account.close(&result);
        result
    }

    /// Runs the page as a task that goes on when its caller leaves, as the old design did. Supervised, so that shutdown
    /// waits for it and its late work is counted.
    async fn detached(self: &Arc<Self>, request: PageRequest) -> Result<Served, Refusal> {
        let (tell, told) = oneshot::channel();
        let home = Arc::clone(self);
        let task = async move {
            let result = home.within_deadline(&request).await;
            // The work ends here, before anybody hears of it.
            drop(request);
            let _gone = tell.send(result);
        };
        self.tasks.spawn(PAGE_TASK, Box::pin(task));
        // A supervisor drops what it is offered once shutdown has run out of time.
        let stopped = |_| Err(Refusal::new(Reason::Quiescing, "the process is shutting down"));
        told.await.unwrap_or_else(stopped)
    }

    /// Runs the page, no longer than the deadline that the policy enforces. The shell keeps its own, so a timer is set only
    /// for one that is earlier.
    async fn within_deadline(self: &Arc<Self>, request: &PageRequest) -> Result<Served, Refusal> {
        let run = self.run(request);
        match request.term.enforced {
            Some(deadline) if deadline < request.context.deadline => {
                let left = deadline.remaining(self.clock.now());
                let expired = |_| Err(Refusal::deadline(request.progress.phase()));
                tokio::time::timeout(left.into(), run).await.unwrap_or_else(expired)
            }
            _ => run.await,
        }
    }

    async fn run(self: &Arc<Self>, request: &PageRequest) -> Result<Served, Refusal> {
        let PageRequest { context, policy, applied, term, .. } = request;
        request.enter(Phase::Admission);
        let admission = applied.of_mechanism(Mechanism::Admission);
        let profile = policy.branch(Dependency::Profile).worst_useful;
        let ask = Ask {
            class: context.identity.class,
            arrived: context.arrived,
            now: context.arrived,
            deadline: term.enforced,
            useful: profile.saturating_add(policy.response_reserve),
            trace: &context.trace,
        };
        let slot = self.endpoint_slots.enter(admission, ask).await;
        let slot = slot.map_err(|denied| denied.refusal(Phase::Admission))?;
        if applied.of_mechanism(Mechanism::Degradation).computes() {
            let seen = Observation {
                queue_age: slot.waited(),
                occupancy_per_10_000: self.endpoint_slots.occupancy_per_10_000(admission),
            };
            let now = context.arrived.saturating_add(slot.waited());
            self.pressures.with(|hold| hold.observe(seen, now));
        }
        let (profile, signed, on_profile) = self.profile(request).await?;
        let (entitlement, on_entitlement) = self.entitle(request, &profile, signed).await?;
        let mut served = self.fan_out(request, profile, entitlement).await?;
        served.admission = slot.waited();
        served.spent[Dependency::Profile.index()] = Some(on_profile);
        served.spent[Dependency::Entitlement.index()] = on_entitlement;
        request.enter(Phase::Respond);
        self.metrics.optional(context.identity.class, served.page.optional);
        Ok(served)
    }

    /// The five branches. The first mandatory failure ends the others; an optional one never does.
    async fn fan_out(
        &self,
        request: &PageRequest,
        profile: Profile,
        entitlement: Entitlement,
    ) -> Result<Served, Refusal> {
        use Dependency::{Experiment, Inventory, Pricing, Recommendation, Reputation};
        let (clients, context) = (&self.clients, &*request.context);
        let branch = Phase::Fanout;
        let (inventory, pricing, experiments, recommendations, reputation) = tokio::try_join!(
            self.mandatory(request, branch(Inventory), Inventory, |budget| {
                clients.inventory(context, budget, &profile)
            }),
            self.mandatory(request, branch(Pricing), Pricing, |budget| {
                clients.pricing(context, budget, &profile, &entitlement)
            }),
            self.mandatory(request, branch(Experiment), Experiment, |budget| {
                let call = clients.experiments(context, budget);
                async {
                    request.progress.effect_opens();
                    call.await.inspect_err(|refusal| {
                        // What it says itself is settled: nothing was recorded, or it is the refusal's own reason.
                        if refusal.effect() != Some("ambiguous") {
                            request.progress.effect_is_settled();
                        }
                    })
                }
            }),
            self.optional(request, Recommendation, |budget| clients
                .recommendations(context, budget, &profile)),
            self.optional(request, Reputation, |budget| clients.reputation(context, budget)),
        )?;
        let asked = (context.identity.tenant.as_str(), context.identity.subject.as_str());
        decide::check_core(asked, &profile, &inventory.0, &pricing.0)?;
        let mut spent = [None; Dependency::ALL.len()];
        spent[Inventory.index()] = Some(inventory.1);
        spent[Pricing.index()] = Some(pricing.1);
        spent[Experiment.index()] = Some(experiments.1);
        spent[Recommendation.index()] = recommendations.2;
        spent[Reputation.index()] = reputation.2;
        let page = Page {
            core_complete: true,
            profile,
            entitlement,
            inventory: inventory.0,
            pricing: pricing.0,
            experiments: experiments.0,
            optional: Optional { recommendations: recommendations.0, reputation: reputation.0 },
            recommendations: recommendations.1,
            reputation: reputation.1,
            request_id: context.request_id.as_str().to_owned(),
            policy_generation: request.policy.generation,
        };
        Ok(Served { page, admission: Nanos::ZERO, spent })
    }

    /// Whether a mandatory branch runs: only if its bounded worst useful run still fits, where the deadline mechanism acts.
    ///
    /// # Errors
    /// The deadline, in `phase`.
    pub(crate) fn may_run(
        &self,
        request: &PageRequest,
        phase: Phase,
        branch: Dependency,
        now: Nanos,
    ) -> Result<(), Refusal> {
        let deadline = request.applied.of_mechanism(Mechanism::Deadline);
        if !deadline.computes() {
            return Ok(());
        }
        let worst_useful = request.policy.branch(branch).worst_useful;
        let stop =
            rules(&request.policy).mandatory(request.term.intended, now, worst_useful).granted().is_err();
        self.metrics.decided(Mechanism::Deadline, stop, stop && deadline.acts());
        if stop && deadline.acts() { Err(Refusal::deadline(phase)) } else { Ok(()) }
    }

    /// Runs a mandatory branch.
    pub(crate) async fn mandatory<T, F>(
        &self,
        request: &PageRequest,
        phase: Phase,
        branch: Dependency,
        call: impl FnOnce(CallBudget) -> F,
    ) -> Result<(T, Spent), Refusal>
    where
        F: Future<Output = Result<Answer<T>, Refusal>>,
    {
        request.enter(phase);
        let start = self.clock.now();
        self.may_run(request, phase, branch, start)?;
        let timeout = request.policy.branch(branch).independent_timeout;
        let Answer { value, wait } =
            call(request.budget(start, request.policy.response_reserve, timeout)).await?;
        Ok((value, self.spent(branch, start, wait)))
    }

    /// Runs an optional branch, if the policy lets it start. The outer result is never an error; it fits `try_join!`.
    async fn optional<T, F>(
        &self,
        request: &PageRequest,
        branch: Dependency,
        call: impl FnOnce(CallBudget) -> F,
    ) -> Result<(Marker, Option<T>, Option<Spent>), Refusal>
    where
        F: Future<Output = Answer<Branch<T>>>,
    {
        let start = self.clock.now();
        if let Err(omission) = self.may_start(request, branch, start) {
            return Ok((Marker::Omitted(omission), None, None));
        }
        let reserve = request.policy.response_reserve;
        let budget = if request.applied.acts(Mechanism::Degradation) {
            // Past this it can no longer be part of a useful answer, whoever enforces that answer's deadline.
            CallBudget { deadline: request.term.intended, reserve }
        } else {
            request.budget(start, reserve, request.policy.branch(branch).independent_timeout)
        };
        let Answer { value, wait } = call(budget).await;
        let spent = self.spent(branch, start, wait);
        let (marker, section) = decide::settle_optional(value);
        Ok((marker, section, Some(spent)))
    }

    /// Whether an optional branch starts. What degradation intends is recorded where it decides, and done where it acts.
    fn may_start(
        &self,
        request: &PageRequest,
        branch: Dependency,
        now: Nanos,
    ) -> Result<(), degradation::Omission> {
        let policy = &*request.policy;
        let enabled = policy.branch(branch).enabled;
        let decision = request.applied.of_mechanism(Mechanism::Degradation);
        let without = if enabled { Ok(()) } else { Err(degradation::Omission::Disabled) };
        if !decision.computes() {
            return without;
        }
        let budget = rules(policy).optional(request.term.intended, now);
        let pressure = if self.pressures.with(|hold| hold.is_on(now)) {
            let floor = policy.degradation.floor;
            Pressure::On { budget_min: floor.saturating_sub(policy.response_reserve) }
        } else {
            Pressure::Off
        };
        let intended = degradation::start(enabled, budget, pressure).map(drop);
        if enabled {
            self.metrics.decided(
                Mechanism::Degradation,
                intended.is_err(),
                intended.is_err() && decision.acts(),
            );
        }
        decision.choose(without, intended)
    }

    fn spent(&self, branch: Dependency, start: Nanos, wait: Nanos) -> Spent {
        let spent = Spent { wait, service: self.clock.now().saturating_sub(start).saturating_sub(wait) };
        self.metrics.branch(branch, spent);
        spent
    }
}
