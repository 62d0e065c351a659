//! Serve page: the one function behind both faces. Profile, then entitlement, then five branches at once, then the page;
//! before each step the budget is asked whether the step can still end usefully.

use std::sync::Arc;

use base::{CallContext, Clock, Dependency, Nanos, Phase, Refusal};
use control::budget::Rules;
use model::policy::Policy;
use serve::Progress;

use crate::{
    clients::{Answer, Clients},
    decide::{self, Branch},
    metrics::HomeMetrics,
    page::{Entitlement, Marker, Optional, Page, Profile, Spent},
};

/// The service.
pub(crate) struct Home {
    clients: Clients,
    policy: Arc<Policy>,
    rules: Rules,
    clock: Arc<dyn Clock>,
    metrics: HomeMetrics,
}

/// A page and where its time went, branch by branch. A branch that was never started has no entry.
#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) page: Page,
    pub(crate) spent: [Option<Spent>; Dependency::ALL.len()],
}

impl Home {
    pub(crate) fn new(
        clients: Clients,
        policy: Arc<Policy>,
        clock: Arc<dyn Clock>,
        metrics: HomeMetrics,
    ) -> Self {
        let rules =
            Rules { response_reserve: policy.response_reserve, optional_floor: policy.optional_floor };
        Self { clients, policy, rules, clock, metrics }
    }

    /// Generation of the policy that pages are served under.
    pub(crate) fn generation(&self) -> u64 {
        self.policy.generation
    }

    /// Assembles the page. Dropping the future cancels every call that is under way.
    ///
    /// # Errors
    /// The deadline, with the phase in which it was reached; a mandatory dependency's failure; an unknown subject.
    pub(crate) async fn page(&self, context: &CallContext, progress: &Progress) -> Result<Served, Refusal> {
        let profile = self.mandatory(
            context,
            progress,
            Phase::Profile,
            Dependency::Profile,
            self.clients.profile(context),
        );
        let (profile, on_profile) = profile.await?;
        let entitlement = self.clients.entitlement(context, &profile);
        let (entitlement, on_entitlement) = self
            .mandatory(context, progress, Phase::Entitlement, Dependency::Entitlement, entitlement)
            .await?;
        let mut served = self.fan_out(context, progress, profile, entitlement).await?;
        served.spent[Dependency::Profile.index()] = Some(on_profile);
        served.spent[Dependency::Entitlement.index()] = Some(on_entitlement);
        progress.enter(Phase::Respond);
        self.metrics.optional(context.identity.class, served.page.optional);
        Ok(served)
    }

    /// The five branches. The first mandatory failure ends the others; an optional one never does.
    async fn fan_out(
        &self,
        context: &CallContext,
        progress: &Progress,
        profile: Profile,
        entitlement: Entitlement,
    ) -> Result<Served, Refusal> {
        use Dependency::{Experiment, Inventory, Pricing, Recommendation, Reputation};
        let branch = Phase::Fanout;
        let pricing = self.clients.pricing(context, &profile, &entitlement);
        let (inventory, pricing, experiments, recommendations, reputation) = tokio::try_join!(
            self.mandatory(
                context,
                progress,
                branch(Inventory),
                Inventory,
                self.clients.inventory(context, &profile)
            ),
            self.mandatory(context, progress, branch(Pricing), Pricing, pricing),
            self.mandatory(
                context,
                progress,
                branch(Experiment),
                Experiment,
                self.clients.experiments(context)
            ),
            self.optional(context, Recommendation, self.clients.recommendations(context, &profile)),
            self.optional(context, Reputation, self.clients.reputation(context)),
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
            policy_generation: self.policy.generation,
        };
        Ok(Served { page, spent })
    }

    /// Runs a mandatory branch, if its bounded worst useful run still fits.
    async fn mandatory<T>(
        &self,
        context: &CallContext,
        progress: &Progress,
        phase: Phase,
        branch: Dependency,
        call: impl Future<Output = Result<Answer<T>, Refusal>>,
    ) -> Result<(T, Spent), Refusal> {
        progress.enter(phase);
        let start = self.clock.now();
        let worst_useful = self.policy.branch(branch).worst_useful;
        if self.rules.mandatory(context.deadline, start, worst_useful).granted().is_err() {
            return Err(Refusal::deadline(phase));
        }
        let Answer { value, wait } = call.await?;
        Ok((value, self.spent(branch, start, wait)))
    }

    /// Runs an optional branch, if enough is left for it. The outer result is never an error; it fits `try_join!`.
    async fn optional<T>(
        &self,
        context: &CallContext,
        branch: Dependency,
        call: impl Future<Output = Answer<Branch<T>>>,
    ) -> Result<(Marker, Option<T>, Option<Spent>), Refusal> {
        let start = self.clock.now();
        let decision = self.rules.optional(context.deadline, start);
        if let Err(marker) = decide::start_optional(self.policy.branch(branch).enabled, decision) {
            return Ok((marker, None, None));
        }
        let Answer { value, wait } = call.await;
        let spent = self.spent(branch, start, wait);
        let (marker, section) = decide::settle_optional(value);
        Ok((marker, section, Some(spent)))
    }

    fn spent(&self, branch: Dependency, start: Nanos, wait: Nanos) -> Spent {
        let spent = Spent { wait, service: self.clock.now().saturating_sub(start).saturating_sub(wait) };
        self.metrics.branch(branch, spent);
        spent
    }
}
