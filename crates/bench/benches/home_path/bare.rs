//! Bare: the same fan-out in plain tonic, channels and servers as they come. Every hop decodes its request, calls on with a
//! message of the same size and answers with the payload that the suite answers with; nothing else happens.

use std::{net::SocketAddr, sync::Arc};

use tonic::{
    Request, Response, Status,
    transport::{Channel, Server},
};
use wire::{
    emulator::v1 as leaf,
    entitlement::v1::{
        GetEntitlementRequest, GetEntitlementResponse,
        entitlement_service_client::EntitlementServiceClient,
        entitlement_service_server::{EntitlementService, EntitlementServiceServer},
    },
    experiment::v1::{
        AllocateArmsRequest, AllocateArmsResponse,
        experiment_service_client::ExperimentServiceClient,
        experiment_service_server::{ExperimentService, ExperimentServiceServer},
    },
    home::v2::{
        GetHomeRequest, GetHomeResponse,
        home_service_server::{HomeService, HomeServiceServer},
    },
    inventory::v1::{
        GetAvailabilityRequest, GetAvailabilityResponse,
        inventory_service_client::InventoryServiceClient,
        inventory_service_server::{InventoryService, InventoryServiceServer},
    },
    pricing::v1::{
        GetPricesRequest, GetPricesResponse,
        pricing_service_client::PricingServiceClient,
        pricing_service_server::{PricingService, PricingServiceServer},
    },
    profile::v1::{
        GetProfileRequest, GetProfileResponse,
        profile_service_client::ProfileServiceClient,
        profile_service_server::{ProfileService, ProfileServiceServer},
    },
    recommendation::v1::{
        GetRecommendationsRequest, GetRecommendationsResponse,
        recommendation_service_client::RecommendationServiceClient,
        recommendation_service_server::{RecommendationService, RecommendationServiceServer},
    },
    reputation::v1::{
        GetReputationRequest, GetReputationResponse,
        reputation_service_client::ReputationServiceClient,
        reputation_service_server::{ReputationService, ReputationServiceServer},
    },
};

use crate::{IDENTITY, channel, listen, serve_tonic};

/// What each hop answers.
pub(crate) struct Payloads {
    pub(crate) profile: GetProfileResponse,
    pub(crate) entitlement: GetEntitlementResponse,
    pub(crate) inventory: GetAvailabilityResponse,
    pub(crate) pricing: GetPricesResponse,
    pub(crate) recommendation: GetRecommendationsResponse,
    pub(crate) reputation: GetReputationResponse,
    pub(crate) experiment: AllocateArmsResponse,
    pub(crate) home: GetHomeResponse,
}

/// One of the seven services: a channel to its leaf, and the payloads.
#[derive(Clone)]
struct Hop {
    leaf: Channel,
    payloads: Arc<Payloads>,
}

fn tenant() -> String {
    IDENTITY[0].1.to_owned()
}

fn subject() -> String {
    IDENTITY[1].1.to_owned()
}

/// A service that asks its leaf and answers with its payload.
macro_rules! hop {
    ($($service:ident :: $method:ident ($request:ident) -> $response:ident = $field:ident,
       $module:ident :: $client:ident . $fetch:ident (|$asked:ident| $question:expr);)*) => {$(
        #[tonic::async_trait]
        impl $service for Hop {
            async fn $method(&self, request: Request<$request>) -> Result<Response<$response>, Status> {
                let $asked = request.into_inner();
                leaf::$module::$client::new(self.leaf.clone()).$fetch($question).await?;
                Ok(Response::new(self.payloads.$field.clone()))
            }
        }
    )*};
}

hop! {
    ProfileService::get_profile(GetProfileRequest) -> GetProfileResponse = profile,
        profile_store_service_client::ProfileStoreServiceClient.fetch_profile(|_asked| leaf::FetchProfileRequest {
            tenant: tenant(), subject: subject(), with_policy: false,
        });
    EntitlementService::get_entitlement(GetEntitlementRequest) -> GetEntitlementResponse = entitlement,
        policy_store_service_client::PolicyStoreServiceClient.fetch_policy(|asked| leaf::FetchPolicyRequest {
            tenant: tenant(), subject: subject(), policy_version: asked.policy_version,
        });
    InventoryService::get_availability(GetAvailabilityRequest) -> GetAvailabilityResponse = inventory,
        stock_service_client::StockServiceClient.fetch_stock(|asked| leaf::FetchStockRequest {
            item_ids: asked.item_ids, region: IDENTITY[3].1.to_owned(),
        });
    PricingService::get_prices(GetPricesRequest) -> GetPricesResponse = pricing,
        price_book_service_client::PriceBookServiceClient.fetch_prices(|asked| leaf::FetchPricesRequest {
            tenant: tenant(), item_ids: asked.item_ids, currency_code: asked.currency_code,
        });
    RecommendationService::get_recommendations(GetRecommendationsRequest) -> GetRecommendationsResponse = recommendation,
        model_score_service_client::ModelScoreServiceClient.fetch_scores(|_asked| leaf::FetchScoresRequest {
            tenant: tenant(), subject: subject(),
        });
    ReputationService::get_reputation(GetReputationRequest) -> GetReputationResponse = reputation,
        review_score_service_client::ReviewScoreServiceClient.fetch_reviews(|_asked| leaf::FetchReviewsRequest {
            tenant: tenant(), subject: subject(),
        });
    ExperimentService::allocate_arms(AllocateArmsRequest) -> AllocateArmsResponse = experiment,
        experiment_catalog_service_client::ExperimentCatalogServiceClient.fetch_experiments(
            |asked| leaf::FetchExperimentsRequest { surface: asked.surface }
        );
}

/// The home page: profile, entitlement, then five at once.
struct Home {
    profile: ProfileServiceClient<Channel>,
    entitlement: EntitlementServiceClient<Channel>,
    inventory: InventoryServiceClient<Channel>,
    pricing: PricingServiceClient<Channel>,
    recommendation: RecommendationServiceClient<Channel>,
    reputation: ReputationServiceClient<Channel>,
    experiment: ExperimentServiceClient<Channel>,
    payloads: Arc<Payloads>,
}

#[tonic::async_trait]
impl HomeService for Home {
    async fn get_home(&self, _request: Request<GetHomeRequest>) -> Result<Response<GetHomeResponse>, Status> {
        let answer =
            self.profile.clone().get_profile(GetProfileRequest { response_schema: 1 }).await?.into_inner();
        let of = answer.profile.ok_or_else(|| Status::internal("no profile"))?;
        let (plan, segment, policy_version) = (of.plan, of.segment, of.policy_version);
        let question = GetEntitlementRequest { plan, segment, policy_version };
        let answer = self.entitlement.clone().get_entitlement(question).await?.into_inner();
        let claims = answer.entitlement.ok_or_else(|| Status::internal("no entitlement"))?.claims;
        let item_ids = of.home_item_ids;
        let prices = GetPricesRequest { item_ids: item_ids.clone(), currency_code: of.currency_code, claims };
        let ranked = GetRecommendationsRequest { limit: 10, exclude_item_ids: item_ids.clone() };
        let (mut inventory, mut pricing) = (self.inventory.clone(), self.pricing.clone());
        let (mut recommendation, mut reputation) = (self.recommendation.clone(), self.reputation.clone());
        let mut experiment = self.experiment.clone();
        tokio::try_join!(
            inventory.get_availability(GetAvailabilityRequest { item_ids }),
            pricing.get_prices(prices),
            experiment.allocate_arms(AllocateArmsRequest { surface: "home".to_owned() }),
            recommendation.get_recommendations(ranked),
            reputation.get_reputation(GetReputationRequest {}),
        )?;
        Ok(Response::new(self.payloads.home.clone()))
    }
}

/// Starts the bare side; every service has a server and a channel of its own, as the suite's have.
pub(crate) async fn start(leaves: SocketAddr, payloads: Payloads) -> SocketAddr {
    let payloads = Arc::new(payloads);
    macro_rules! service {
        ($server:ident) => {{
            let (listener, at) = listen().await;
            let hop = Hop { leaf: channel(leaves).await, payloads: Arc::clone(&payloads) };
            serve_tonic(Server::builder().add_service($server::new(hop)), listener);
            channel(at).await
        }};
    }
    let home = Home {
        profile: ProfileServiceClient::new(service!(ProfileServiceServer)),
        entitlement: EntitlementServiceClient::new(service!(EntitlementServiceServer)),
        inventory: InventoryServiceClient::new(service!(InventoryServiceServer)),
        pricing: PricingServiceClient::new(service!(PricingServiceServer)),
        recommendation: RecommendationServiceClient::new(service!(RecommendationServiceServer)),
        reputation: ReputationServiceClient::new(service!(ReputationServiceServer)),
        experiment: ExperimentServiceClient::new(service!(ExperimentServiceServer)),
        payloads,
    };
    let (listener, at) = listen().await;
    serve_tonic(Server::builder().add_service(HomeServiceServer::new(home)), listener);
    at
}
