//! Service: the gRPC edge of profile. Protobuf stops here.

use std::sync::Arc;

use base::{Phase, Reason, Refusal, WallClock};
use model::policy::ServiceName;
use runtime::host::Channel;
use tonic::{Code, Request, Response, Status};
use wire::{
    emulator::v1::{
        FetchProfileRequest, FetchProfileResponse, profile_store_service_client::ProfileStoreServiceClient,
    },
    profile::v1::{GetProfileRequest, GetProfileResponse, Profile, profile_service_server::ProfileService},
};

use crate::{
    decide::{self, StoredProfile},
    expand::Expand,
};

pub(crate) struct Service {
    store: ProfileStoreServiceClient<Channel>,
    expand: Arc<Expand>,
    wall: Arc<dyn WallClock>,
}

impl Service {
    pub(crate) fn new(store: Channel, expand: Arc<Expand>, wall: Arc<dyn WallClock>) -> Self {
        Self { store: ProfileStoreServiceClient::new(store), expand, wall }
    }

    async fn resolve(&self, request: Request<GetProfileRequest>) -> Result<GetProfileResponse, Refusal> {
        let context = runtime::context(&request)?;
        let progress = runtime::progress(&request);
        let policy = runtime::policy(&request)?;
        let reserve = policy.service(ServiceName::Profile).reserve;
        decide::check_schema(request.get_ref().response_schema)?;
        let identity = &context.identity;
        let era = self.expand.era();
        let question = FetchProfileRequest {
            tenant: identity.tenant.as_str().to_owned(),
            subject: identity.subject.as_str().to_owned(),
            with_policy: era.emits(policy.summary.emit),
        };
        progress.enter(Phase::Upstream);
        let answer = self.store.clone().fetch_profile(runtime::outbound(&context, reserve, question)).await;
        let mut row = answer.map_err(|status| refuse(&status))?.into_inner();
        progress.enter(Phase::Handler);
        let consulted = row.policy.take();
        let profile = decide::resolve(identity.subject.as_str(), stored(row))?;
        let emitted = era.emits(policy.summary.emit).then(|| {
            let consulted = consulted.map(Into::into);
            self.expand.emit(&profile, identity, consulted, policy.summary.lifetime, self.wall.unix_ms())
        });
        let entitlement_summary = era.count(emitted);
        let profile = Profile {
            tenant: identity.tenant.as_str().to_owned(),
            subject: identity.subject.as_str().to_owned(),
            display_name: profile.display_name,
            locale: profile.locale,
            currency_code: profile.currency_code,
            segment: profile.segment,
            plan: profile.plan,
            policy_version: profile.policy_version,
            home_item_ids: profile.home_item_ids,
        };
        Ok(GetProfileResponse { profile: Some(profile), entitlement_summary })
    }
}

/// A subject that the store does not know may not see a profile. Whether its tenant exists is not told.
fn refuse(status: &Status) -> Refusal {
    if status.code() == Code::NotFound {
        let message = "the authenticated subject has no profile at this tenant";
        return Refusal::new(Reason::PermissionDenied, message).in_phase(Phase::Upstream);
    }
    runtime::upstream_error(Phase::Upstream, status)
}

fn stored(row: FetchProfileResponse) -> StoredProfile {
    StoredProfile {
        given_name: row.given_name,
        family_name: row.family_name,
        locale: row.locale,
        currency_code: row.currency_code,
        segment: row.segment,
        plan: row.plan,
        policy_version: row.policy_version,
        home_item_ids: row.home_item_ids,
    }
}

#[tonic::async_trait]
impl ProfileService for Service {
    async fn get_profile(
        &self,
        request: Request<GetProfileRequest>,
    ) -> Result<Response<GetProfileResponse>, Status> {
        runtime::answer(self.resolve(request).await)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_subject_is_not_allowed_and_other_failures_are_not_blamed_on_the_caller() {
        let unknown = refuse(&Status::not_found("no tenant tenant-999"));
        assert_eq!(unknown.reason(), Reason::PermissionDenied);
        assert!(!unknown.message().contains("tenant-999"));
        assert_eq!(refuse(&Status::unavailable("down")).reason(), Reason::DependencyUnavailable);
        assert_eq!(refuse(&Status::permission_denied("store")).reason(), Reason::DependencyBug);
        assert_eq!(refuse(&Status::deadline_exceeded("late")).reason(), Reason::DeadlineExceeded);
    }
}
