//! Service: the gRPC edge of entitlement. Protobuf stops here.

use base::{Phase, Refusal};
use model::policy::ServiceName;
use runtime::host::Channel;
use summary::claims::{self, Facts};
use tonic::{Code, Request, Response, Status};
use wire::{
    emulator::v1::{FetchPolicyRequest, policy_store_service_client::PolicyStoreServiceClient},
    entitlement::v1::{
        Entitlement, GetEntitlementRequest, GetEntitlementResponse,
        entitlement_service_server::EntitlementService,
    },
};

use crate::decide;

pub(crate) struct Service {
    store: PolicyStoreServiceClient<Channel>,
}

impl Service {
    pub(crate) fn new(store: Channel) -> Self {
        Self { store: PolicyStoreServiceClient::new(store) }
    }

    async fn resolve(
        &self,
        request: Request<GetEntitlementRequest>,
    ) -> Result<GetEntitlementResponse, Refusal> {
        let context = runtime::context(&request)?;
        let progress = runtime::progress(&request);
        let reserve = runtime::policy(&request)?.service(ServiceName::Entitlement).reserve;
        let GetEntitlementRequest { plan, segment, policy_version } = request.into_inner();
        let facts = Facts::new(plan, segment, policy_version)?;
        let identity = &context.identity;
        let question = FetchPolicyRequest {
            tenant: identity.tenant.as_str().to_owned(),
            subject: identity.subject.as_str().to_owned(),
            policy_version: facts.policy_version(),
        };
        progress.enter(Phase::Upstream);
        let answer = self.store.clone().fetch_policy(runtime::outbound(&context, reserve, question)).await;
        let document = answer.map_err(|status| refuse(&status))?.into_inner();
        progress.enter(Phase::Handler);
        let entitlement = claims::entitle(&document.into(), &facts, identity.region.as_str())?;
        let entitlement = Entitlement {
            policy_version: entitlement.policy_version,
            revocation_epoch: entitlement.revocation_epoch,
            claims: entitlement.claims,
        };
        Ok(GetEntitlementResponse { entitlement: Some(entitlement) })
    }
}

fn refuse(status: &Status) -> Refusal {
    if status.code() == Code::NotFound {
        return decide::unknown_version().in_phase(Phase::Upstream);
    }
    runtime::upstream_error(Phase::Upstream, status)
}

#[tonic::async_trait]
impl EntitlementService for Service {
    async fn get_entitlement(
        &self,
        request: Request<GetEntitlementRequest>,
    ) -> Result<Response<GetEntitlementResponse>, Status> {
        runtime::answer(self.resolve(request).await)
    }
}

#[cfg(test)]
mod tests {
    use base::Reason;

    use super::*;

    #[test]
    fn an_unknown_version_is_the_callers_and_other_failures_are_not() {
        let unknown = refuse(&Status::not_found("tenant-999 has no version 7"));
        assert_eq!((unknown.reason(), unknown.field()), (Reason::InvalidInput, Some("policy_version")));
        assert!(!unknown.message().contains("tenant-999"));
        assert_eq!(refuse(&Status::aborted("moved")).reason(), Reason::DependencyUnavailable);
        assert_eq!(refuse(&Status::invalid_argument("store")).reason(), Reason::DependencyBug);
    }
}
