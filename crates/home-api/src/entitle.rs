//! Entitle: where a page's claims come from. The call, with the summary held beside it; or the summary, with the call to fall back
//! to within the same request, or with nothing, once the call is gone.

use std::sync::Arc;

use base::{Dependency, Phase, Reason, Refusal};
use model::policy::Mechanism;
use summary::Signed;

use crate::{
    authority::NoAuthority,
    page::{self, Entitlement, Profile, Spent},
    request::PageRequest,
    serve_page::Home,
    tally::Source,
};

impl Home {
    /// The claims of the page's subject. No time is spent on the branch where the summary is the authority.
    ///
    /// # Errors
    /// Those of the entitlement call; `DependencyUnavailable` naming why the summary is none once the call is gone.
    pub(crate) async fn entitle(
        &self,
        request: &PageRequest,
        profile: &Profile,
        signed: Option<Arc<Signed>>,
    ) -> Result<(Entitlement, Option<Spent>), Refusal> {
        let decision = request.applied.of_mechanism(Mechanism::Summary);
        if !decision.acts() {
            let identity = &request.context.identity;
            let pending = decision.computes().then(|| {
                self.bench.begin(&request.era, &request.policy, identity, profile.policy_version, signed)
            });
            let (entitlement, spent) = self.call_entitlement(request, profile).await?;
            if let Some(pending) = pending {
                pending.call_said(&entitlement);
            }
            self.claims_came_from(request, Source::Call);
            return Ok((entitlement, Some(spent)));
        }
        request.enter(Phase::Entitlement);
        let identity = &request.context.identity;
        let judged = self.authority.judge(
            &request.policy.summary,
            identity,
            profile.policy_version,
            signed.as_deref(),
        );
        self.metrics.decided(Mechanism::Summary, judged.is_ok(), judged.is_ok());
        match judged {
            Ok(summary) => {
                self.claims_came_from(request, Source::Summary);
                let entitlement = Entitlement {
                    authority: page::Authority::Summary,
                    policy_version: summary.policy_version,
                    revocation_epoch: summary.revocation_epoch,
                    claims: summary.claims,
                };
                Ok((entitlement, None))
            }
            Err(why) if request.era.has_call(&request.policy) => {
                self.claims_came_from(request, Source::Fallback(why));
                let (entitlement, spent) = self.call_entitlement(request, profile).await?;
                Ok((entitlement, Some(spent)))
            }
            Err(why) => {
                self.claims_came_from(request, Source::Closed(why));
                Err(closed(why))
            }
        }
    }

    async fn call_entitlement(
        &self,
        request: &PageRequest,
        profile: &Profile,
    ) -> Result<(Entitlement, Spent), Refusal> {
        self.mandatory(request, Phase::Entitlement, Dependency::Entitlement, |budget| {
            self.clients.entitlement(&request.context, budget, profile)
        })
        .await
    }

    fn claims_came_from(&self, request: &PageRequest, source: Source) {
        let identity = &request.context.identity;
        request.era.tally.source(source, identity.class, &identity.region);
        self.metrics.claims_came_from(source, identity.class);
    }
}

/// Without claims there is no page, and nothing is granted in their place.
fn closed(why: NoAuthority) -> Refusal {
    let message =
        format!("the entitlement summary is no authority ({why}), and the call that it replaced is gone");
    Refusal::new(Reason::DependencyUnavailable, message).in_phase(Phase::Entitlement)
}
