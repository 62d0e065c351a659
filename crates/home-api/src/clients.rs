//! Clients: the calls to the seven services. Protobuf goes in and out here and nowhere further inside.

use std::sync::Arc;

use base::{CallContext, Dependency, Nanos, Phase, Reason, Refusal, WallClock, headers};
use runtime::{Host, StartError, host::Channel, outbound_within, upstream_error};
use serve::render::{EFFECT_HEADER, REASON_HEADER};
use stack::{CallBudget, LOCAL_FAILURE_HEADER, LinkTiming, LocalFailure};
use summary::Signed;
use tonic::{Code, Response, Status};
use wire::{
    entitlement::v1::{GetEntitlementRequest, entitlement_service_client::EntitlementServiceClient},
    experiment::v1::{
        AllocateArmsRequest, EffectOutcome, experiment_service_client::ExperimentServiceClient,
    },
    inventory::v1::{
        GetAvailabilityRequest, StockStatus as Told, inventory_service_client::InventoryServiceClient,
    },
    pricing::v1::{GetPricesRequest, pricing_service_client::PricingServiceClient},
    profile::v1::{GetProfileRequest, profile_service_client::ProfileServiceClient},
    recommendation::v1::{
        GetRecommendationsRequest, recommendation_service_client::RecommendationServiceClient,
    },
    reputation::v1::{GetReputationRequest, reputation_service_client::ReputationServiceClient},
};

use crate::{
    decide::{Branch, broken},
    page::{
        Arm, Authority, Availability, Entitlement, Inventory, PriceLine, Pricing, Profile, RankedItem,
        Recommendations, Reputation, StockStatus,
    },
};

/// Version of the profile response that this service understands.
pub(crate) const PROFILE_SCHEMA: u32 = 1;
/// Where the page's experiment arms are shown.
const SURFACE: &str = "home";
/// Recommended items on a page.
const RECOMMENDATIONS_MAX: u32 = 10;

/// One long-lived channel a service.
pub(crate) struct Clients {
    profile: ProfileServiceClient<Channel>,
    entitlement: EntitlementServiceClient<Channel>,
    inventory: InventoryServiceClient<Channel>,
    pricing: PricingServiceClient<Channel>,
    experiment: ExperimentServiceClient<Channel>,
    recommendation: RecommendationServiceClient<Channel>,
    reputation: ReputationServiceClient<Channel>,
    wall: Arc<dyn WallClock>,
}

/// An answer, and how long its call waited before it was sent.
pub(crate) struct Answer<T> {
    pub(crate) value: T,
    pub(crate) wait: Nanos,
}

impl Clients {
    /// Channels to all seven; they connect when they are first used.
    pub(crate) fn new(host: &Host) -> Result<Self, StartError> {
        Ok(Self {
            profile: ProfileServiceClient::new(host.peer(Dependency::Profile)?),
            entitlement: EntitlementServiceClient::new(host.peer(Dependency::Entitlement)?),
            inventory: InventoryServiceClient::new(host.peer(Dependency::Inventory)?),
            pricing: PricingServiceClient::new(host.peer(Dependency::Pricing)?),
            experiment: ExperimentServiceClient::new(host.peer(Dependency::Experiment)?),
            recommendation: RecommendationServiceClient::new(host.peer(Dependency::Recommendation)?),
            reputation: ReputationServiceClient::new(host.peer(Dependency::Reputation)?),
            wall: Arc::clone(&host.world.wall),
        })
    }

    pub(crate) async fn profile(
        &self,
        context: &CallContext,
        budget: CallBudget,
    ) -> Result<Answer<(Profile, Option<Signed>)>, Refusal> {
        let message = GetProfileRequest { response_schema: PROFILE_SCHEMA };
        let request = outbound_within(context, budget, message);
        let (wait, message) =
            opened(self.profile.clone().get_profile(request).await).map_err(profile_error)?;
        let signed = message.entitlement_summary;
        let profile =
            message.profile.ok_or_else(|| broken(Dependency::Profile, "answered without a profile"))?;
        let profile = Profile {
            tenant: profile.tenant,
            subject: profile.subject,
            display_name: profile.display_name,
            locale: profile.locale,
            segment: profile.segment,
            plan: profile.plan,
            currency_code: profile.currency_code,
            policy_version: profile.policy_version,
            home_item_ids: profile.home_item_ids,
        };
        Ok(Answer { value: (profile, signed), wait })
    }

    pub(crate) async fn entitlement(
        &self,
        context: &CallContext,
        budget: CallBudget,
        profile: &Profile,
    ) -> Result<Answer<Entitlement>, Refusal> {
        let message = GetEntitlementRequest {
            plan: profile.plan.clone(),
            segment: profile.segment.clone(),
            policy_version: profile.policy_version,
        };
        let request = outbound_within(context, budget, message);
        let (wait, message) = opened(self.entitlement.clone().get_entitlement(request).await)
            .map_err(|status| upstream_error(Phase::Entitlement, &status))?;
        let missing = || broken(Dependency::Entitlement, "answered without an entitlement");
        let entitlement = message.entitlement.ok_or_else(missing)?;
        let value = Entitlement {
            authority: Authority::Call,
            policy_version: entitlement.policy_version,
            revocation_epoch: entitlement.revocation_epoch,
            claims: entitlement.claims,
        };
        Ok(Answer { value, wait })
    }

    pub(crate) async fn inventory(
        &self,
        context: &CallContext,
        budget: CallBudget,
        profile: &Profile,
    ) -> Result<Answer<Inventory>, Refusal> {
        if profile.home_item_ids.is_empty() {
            // A page without items needs nobody's word on them.
            let value = Inventory { items: Vec::new(), as_of_unix_ms: self.wall.unix_ms() };
            return Ok(Answer { value, wait: Nanos::ZERO });
        }
        let request = outbound_within(
            context,
            budget,
            GetAvailabilityRequest { item_ids: profile.home_item_ids.clone() },
        );
        let (wait, message) = opened(self.inventory.clone().get_availability(request).await)
            .map_err(|status| upstream_error(Phase::Fanout(Dependency::Inventory), &status))?;
        let items = message.items.into_iter().map(|item| {
            let status = match Told::try_from(item.status) {
                Ok(Told::InStock) => StockStatus::InStock,
                Ok(Told::LowStock) => StockStatus::LowStock,
                Ok(Told::OutOfStock) => StockStatus::OutOfStock,
                Ok(Told::Unspecified) | Err(_) => {
                    return Err(broken(Dependency::Inventory, "answered with an unknown stock status"));
                }
            };
            Ok(Availability { item_id: item.item_id, available_units: item.available_units, status })
        });
        let items = items.collect::<Result<_, _>>()?;
        Ok(Answer { value: Inventory { items, as_of_unix_ms: message.as_of_unix_ms }, wait })
    }

    pub(crate) async fn pricing(
        &self,
        context: &CallContext,
        budget: CallBudget,
        profile: &Profile,
        entitlement: &Entitlement,
    ) -> Result<Answer<Pricing>, Refusal> {
        if profile.home_item_ids.is_empty() {
            let value = Pricing { currency_code: profile.currency_code.clone(), lines: Vec::new() };
            return Ok(Answer { value, wait: Nanos::ZERO });
        }
        let message = GetPricesRequest {
            item_ids: profile.home_item_ids.clone(),
            currency_code: profile.currency_code.clone(),
            claims: entitlement.claims.clone(),
        };
        let request = outbound_within(context, budget, message);
        let (wait, message) = opened(self.pricing.clone().get_prices(request).await)
            .map_err(|status| upstream_error(Phase::Fanout(Dependency::Pricing), &status))?;
        let lines = message.lines.into_iter().map(|line| {
            let (Some(list), Some(net)) = (line.list_price, line.net_price) else {
                return Err(broken(Dependency::Pricing, "answered with a line without a price"));
            };
            if list.currency_code != profile.currency_code || net.currency_code != profile.currency_code {
                return Err(broken(Dependency::Pricing, "answered in another currency"));
            }
            Ok(PriceLine {
                item_id: line.item_id,
                list_minor_units: list.minor_units,
                net_minor_units: net.minor_units,
                discount_basis_points: line.discount_basis_points,
            })
        });
        let lines = lines.collect::<Result<_, _>>()?;
        Ok(Answer { value: Pricing { currency_code: profile.currency_code.clone(), lines }, wait })
    }

    pub(crate) async fn experiments(
        &self,
        context: &CallContext,
        budget: CallBudget,
    ) -> Result<Answer<Vec<Arm>>, Refusal> {
        let request = outbound_within(context, budget, AllocateArmsRequest { surface: SURFACE.to_owned() });
        let answer = opened(self.experiment.clone().allocate_arms(request).await);
        let (wait, message) = answer.map_err(|status| experiment_error(&status))?;
        let arms = message.allocations.into_iter().map(|allocation| {
            let effect = match allocation.effect_outcome() {
                EffectOutcome::Committed => "committed",
                EffectOutcome::Replayed => "replayed",
                // An arm without a row must not be shown.
                _ => return Err(broken(Dependency::Experiment, "answered with an arm that is not recorded")),
            };
            Ok(Arm {
                experiment_id: allocation.experiment_id,
                experiment_version: allocation.experiment_version,
                variant: allocation.variant,
                event_id: allocation.event_id,
                effect,
            })
        });
        Ok(Answer { value: arms.collect::<Result<_, _>>()?, wait })
    }

    pub(crate) async fn recommendations(
        &self,
        context: &CallContext,
        budget: CallBudget,
        profile: &Profile,
    ) -> Answer<Branch<Recommendations>> {
        let message = GetRecommendationsRequest {
            limit: RECOMMENDATIONS_MAX,
            exclude_item_ids: profile.home_item_ids.clone(),
        };
        let request = outbound_within(context, budget, message);
        optional(self.recommendation.clone().get_recommendations(request).await, |message| {
            let items = message.items.into_iter();
            let items: Vec<_> = items
                .map(|item| RankedItem { item_id: item.item_id, score_micros: item.score_micros })
                .collect();
            (!items.is_empty()).then_some(Recommendations { items })
        })
    }

    pub(crate) async fn reputation(
        &self,
        context: &CallContext,
        budget: CallBudget,
    ) -> Answer<Branch<Reputation>> {
        let request = outbound_within(context, budget, GetReputationRequest {});
        optional(self.reputation.clone().get_reputation(request).await, |message| {
            message.reputation.map(|reputation| Reputation {
                score: reputation.score,
                review_count: reputation.review_count,
                lower_bound: reputation.lower_bound,
                upper_bound: reputation.upper_bound,
            })
        })
    }
}

/// Splits an answer into the time it waited to be sent and its message.
fn opened<M>(result: Result<Response<M>, Status>) -> Result<(Nanos, M), Status> {
    let response = result?;
    let wait = response.extensions().get::<LinkTiming>().map_or(Nanos::ZERO, |timing| timing.acquire);
    Ok((wait, response.into_inner()))
}

/// The profile service says whether the subject exists at all, which is the one verdict of a dependency that the caller
/// must hear; everything else of it is mapped like any other failure.
fn profile_error(status: Status) -> Refusal {
    if status.code() == Code::PermissionDenied {
        return Refusal::new(Reason::PermissionDenied, "the tenant has no such subject")
            .in_phase(Phase::Profile);
    }
    upstream_error(Phase::Profile, &status)
}

/// What is known of the exposure's effect survives the hop: a conflict, an effect that nobody can vouch for, and a
/// deadline that passed after the call had left.
fn experiment_error(status: &Status) -> Refusal {
    let phase = Phase::Fanout(Dependency::Experiment);
    let told = |name| status.metadata().get(name).and_then(|value| value.to_str().ok());
    let reason = told(REASON_HEADER).and_then(Reason::parse);
    let unanswered = Refusal::new(
        Reason::EffectAmbiguousDeadline,
        "the deadline passed before the exposure was answered for; a retry of the same operation settles it",
    );
    let ambiguous = Refusal::new(
        Reason::EffectAmbiguous,
        "the exposure may or may not be recorded; a retry of the same operation settles it",
    );
    let open = told(EFFECT_HEADER) == Some("ambiguous");
    match (reason, status.code()) {
        // Whatever the service's own reason is, it says that it may have recorded.
        (Some(Reason::DeadlineExceeded), _) if open => unanswered.in_phase(phase),
        (Some(other), _) if open && other != Reason::EffectAmbiguousDeadline => ambiguous.in_phase(phase),
        (Some(Reason::Conflict), _) => Refusal::new(
            Reason::Conflict,
            "the operation id was used before for another exposure; use a new x-request-id",
        )
        .for_field(headers::REQUEST_ID)
        .in_phase(phase),
        (Some(Reason::EffectAmbiguous), _) => ambiguous.in_phase(phase),
        (Some(Reason::EffectAmbiguousDeadline), _) => unanswered.in_phase(phase),
        // The service itself was never asked, or says that it stopped before any effect.
        (Some(Reason::DeadlineExceeded), _) => upstream_error(phase, status),
        (_, Code::DeadlineExceeded)
            if told(LOCAL_FAILURE_HEADER) != Some(LocalFailure::NoBudget.as_str()) =>
        {
            unanswered.in_phase(phase)
        }
        // The call broke off when the service had it: it may have recorded before it went.
        _ if told(LOCAL_FAILURE_HEADER).and_then(LocalFailure::parse).is_some_and(broke_off) => {
            ambiguous.in_phase(phase)
        }
        _ => upstream_error(phase, status),
    }
}

/// Whether the peer may have done the work of a call that failed so.
const fn broke_off(failure: LocalFailure) -> bool {
    match failure {
        LocalFailure::ConnectionLost
        | LocalFailure::Reset
        | LocalFailure::NotGrpc
        | LocalFailure::Malformed
        | LocalFailure::MessageTooLarge
        | LocalFailure::RequestBody => true,
        // A deadline has a reason of its own; in all other cases no call was sent, or the peer says that it did nothing.
        LocalFailure::Deadline
        | LocalFailure::NoBudget
        | LocalFailure::Saturated
        | LocalFailure::Unreachable
        | LocalFailure::NotProcessed
        | LocalFailure::Closed => false,
    }
}

fn optional<M, T>(
    result: Result<Response<M>, Status>,
    section: impl FnOnce(M) -> Option<T>,
) -> Answer<Branch<T>> {
    match opened(result) {
        Ok((wait, message)) => Answer { value: Branch::Answered(section(message)), wait },
        Err(status) => {
            let value = match status.code() {
                Code::DeadlineExceeded => Branch::TimedOut,
                Code::ResourceExhausted => Branch::Overloaded,
                _ => Branch::Failed,
            };
            Answer { value, wait: Nanos::ZERO }
        }
    }
}

#[cfg(test)]
mod tests {
    use tonic::metadata::MetadataValue;

    use super::*;

    fn status(code: Code, header: &'static str, value: &'static str) -> Status {
        let mut status = Status::new(code, "");
        status.metadata_mut().insert(header, MetadataValue::from_static(value));
        status
    }

    fn open(code: Code, reason: &'static str) -> Status {
        let mut status = status(code, REASON_HEADER, reason);
        status.metadata_mut().insert(EFFECT_HEADER, MetadataValue::from_static("ambiguous"));
        status
    }

    #[test]
    fn what_is_known_of_the_effect_survives_the_hop() {
        use Reason::{
            Conflict, DeadlineExceeded, DependencyUnavailable, EffectAmbiguous, EffectAmbiguousDeadline,
        };
        for (status, expected) in [
            (status(Code::AlreadyExists, REASON_HEADER, "conflict"), Conflict),
            (status(Code::Unknown, REASON_HEADER, "effect_ambiguous"), EffectAmbiguous),
            (open(Code::DeadlineExceeded, "deadline_exceeded"), EffectAmbiguousDeadline),
            (open(Code::Internal, "internal"), EffectAmbiguous),
            (open(Code::Unavailable, "quiescing"), EffectAmbiguous),
            (open(Code::DeadlineExceeded, "effect_ambiguous_deadline"), EffectAmbiguousDeadline),
            (
                status(Code::DeadlineExceeded, REASON_HEADER, "effect_ambiguous_deadline"),
                EffectAmbiguousDeadline,
            ),
            (status(Code::DeadlineExceeded, REASON_HEADER, "deadline_exceeded"), DeadlineExceeded),
            (status(Code::DeadlineExceeded, LOCAL_FAILURE_HEADER, "no_budget"), DeadlineExceeded),
            (status(Code::DeadlineExceeded, LOCAL_FAILURE_HEADER, "deadline"), EffectAmbiguousDeadline),
            (status(Code::Unavailable, LOCAL_FAILURE_HEADER, "unreachable"), DependencyUnavailable),
            (status(Code::Unavailable, LOCAL_FAILURE_HEADER, "not_processed"), DependencyUnavailable),
            (status(Code::Unavailable, LOCAL_FAILURE_HEADER, "connection_lost"), EffectAmbiguous),
            (status(Code::Unavailable, LOCAL_FAILURE_HEADER, "reset"), EffectAmbiguous),
            (status(Code::Unknown, LOCAL_FAILURE_HEADER, "malformed"), EffectAmbiguous),
        ] {
            let refusal = experiment_error(&status);
            assert_eq!(refusal.reason(), expected, "{status:?}");
            assert_eq!(refusal.phase(), Some(Phase::Fanout(Dependency::Experiment)));
        }
    }
}
