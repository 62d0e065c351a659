//! Suite: the eight real services over the canned leaves, on the bench's own runtime.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc};

use base::{
    Dependency, Nanos, World,
    clock::{MonotonicClock, SystemWallClock},
    ids::IdSource,
};
use emulator::Emulator;
use experiment::ledger::MemoryLedger;
use model::{
    policy::{Policy, ServiceName},
    scale::Scale,
    scenario::Scenario,
};
use runtime::{HeaderAuthenticator, Host, Policies, link_metrics::Links, process::Process};
use serve::Limits;
use wire::{
    entitlement::v1::{GetEntitlementRequest, entitlement_service_client::EntitlementServiceClient},
    experiment::v1::{AllocateArmsRequest, experiment_service_client::ExperimentServiceClient},
    home::v2::{GetHomeRequest, home_service_client::HomeServiceClient},
    inventory::v1::{GetAvailabilityRequest, inventory_service_client::InventoryServiceClient},
    pricing::v1::{GetPricesRequest, pricing_service_client::PricingServiceClient},
    profile::v1::{GetProfileRequest, profile_service_client::ProfileServiceClient},
    recommendation::v1::{
        GetRecommendationsRequest, recommendation_service_client::RecommendationServiceClient,
    },
    reputation::v1::{GetReputationRequest, reputation_service_client::ReputationServiceClient},
};

use crate::{bare::Payloads, channel, identified, listen, spawn};

/// Far more than any process here lives.
const DRAIN: Nanos = Nanos::from_secs(10);

/// Addresses of the running suite.
pub(crate) struct Suite {
    pub(crate) home: SocketAddr,
    services: BTreeMap<&'static str, SocketAddr>,
}

fn process(name: &'static str) -> Process {
    Process::new(name, |tasks| World {
        clock: Arc::new(MonotonicClock),
        wall: Arc::new(SystemWallClock),
        ids: Arc::new(IdSource::new(1)),
        tasks,
        points: base::inject::Points::default(),
    })
}

fn run(process: Process) {
    spawn(async move {
        process.run(std::future::pending(), std::future::pending(), || DRAIN).await;
    });
}

/// The real emulator, for its replies.
pub(crate) async fn emulator() -> SocketAddr {
    let mut process = process("emulator");
    let scenario = Scenario::shipped();
    let emulator =
        Emulator::new(&scenario, 1, Scale::ONE, &process.world, &process.registry).expect("a timer");
    let (listener, at) = listen().await;
    process.open("emulator", listener, emulator.facts_routes(), Limits::default()).expect("descriptors");
    run(process);
    at
}

/// All eight services over `leaves`.
pub(crate) async fn start(leaves: SocketAddr) -> Suite {
    let mut services = BTreeMap::new();
    for dependency in Dependency::ALL {
        let service = ServiceName::of(dependency);
        services.insert(service.as_str(), open(service, leaves, BTreeMap::new()).await);
    }
    let peers = services.iter().map(|(name, at)| ((*name).to_owned(), at.to_string())).collect();
    let home = open(ServiceName::HomeApi, leaves, peers).await;
    Suite { home, services }
}

async fn open(service: ServiceName, leaves: SocketAddr, peers: BTreeMap<String, String>) -> SocketAddr {
    let mut process = process(service.as_str());
    let host = Host {
        service,
        world: process.world.clone(),
        policies: Policies::new(Policy::shipped()),
        registry: process.registry.clone(),
        readiness: process.readiness.clone(),
        emulator: Some(leaves.to_string()),
        peers,
        authenticator: Arc::new(HeaderAuthenticator),
        links: Links::new(&process.registry),
    };
    let routes = match service {
        ServiceName::HomeApi => home_api::build(&host, &home_api::Files::default()).map(|(routes, _)| routes),
        ServiceName::Profile => profile::build(&host, &profile::Files::default()).map(|(routes, _)| routes),
        ServiceName::Entitlement => entitlement::build(&host),
        ServiceName::Inventory => inventory::build(&host),
        ServiceName::Pricing => pricing::build(&host),
        ServiceName::Experiment => experiment::build_over(&host, MemoryLedger::new()),
        ServiceName::Recommendation => recommendation::build(&host),
        ServiceName::Reputation => reputation::build(&host),
    };
    let (listener, at) = listen().await;
    process.open_service(&host, listener, routes.expect("a service")).expect("descriptors");
    run(process);
    at
}

impl Suite {
    /// What each service answers for the bench's subject: the payloads of the bare side.
    pub(crate) async fn capture(&self) -> Payloads {
        let at = async |dependency: Dependency| channel(self.services[dependency.as_str()]).await;
        macro_rules! ask {
            ($client:ident ($channel:expr) . $method:ident ($question:expr)) => {
                $client::new($channel).$method(identified($question)).await.expect("an answer").into_inner()
            };
        }
        let question = GetProfileRequest { response_schema: 1 };
        let profile = ask!(ProfileServiceClient(at(Dependency::Profile).await).get_profile(question));
        let of = profile.profile.clone().expect("a profile");
        let (plan, segment, policy_version) = (of.plan, of.segment, of.policy_version);
        let question = GetEntitlementRequest { plan, segment, policy_version };
        let entitlement =
            ask!(EntitlementServiceClient(at(Dependency::Entitlement).await).get_entitlement(question));
        let claims = entitlement.entitlement.clone().expect("an entitlement").claims;
        let item_ids = of.home_item_ids;
        let availability = GetAvailabilityRequest { item_ids: item_ids.clone() };
        let prices = GetPricesRequest { item_ids: item_ids.clone(), currency_code: of.currency_code, claims };
        let ranked = GetRecommendationsRequest { limit: 10, exclude_item_ids: item_ids };
        let arms = AllocateArmsRequest { surface: "home".to_owned() };
        Payloads {
            profile,
            entitlement,
            inventory: ask!(
                InventoryServiceClient(at(Dependency::Inventory).await).get_availability(availability)
            ),
            pricing: ask!(PricingServiceClient(at(Dependency::Pricing).await).get_prices(prices)),
            recommendation: ask!(
                RecommendationServiceClient(at(Dependency::Recommendation).await).get_recommendations(ranked)
            ),
            reputation: ask!(
                ReputationServiceClient(at(Dependency::Reputation).await)
                    .get_reputation(GetReputationRequest {})
            ),
            experiment: ask!(ExperimentServiceClient(at(Dependency::Experiment).await).allocate_arms(arms)),
            home: ask!(HomeServiceClient(channel(self.home).await).get_home(GetHomeRequest {})),
        }
    }
}
