//! Leaf: the seven emulated dependencies as canned tonic servers, with replies captured from the real emulator.

use std::net::SocketAddr;

use tonic::{Request, Response, Status, transport::Server};
use wire::emulator::v1::{
    FetchExperimentsRequest, FetchExperimentsResponse, FetchPolicyRequest, FetchPolicyResponse,
    FetchPricesRequest, FetchPricesResponse, FetchProfileRequest, FetchProfileResponse, FetchReviewsRequest,
    FetchReviewsResponse, FetchScoresRequest, FetchScoresResponse, FetchStockRequest, FetchStockResponse,
    experiment_catalog_service_client::ExperimentCatalogServiceClient,
    experiment_catalog_service_server::{ExperimentCatalogService, ExperimentCatalogServiceServer},
    model_score_service_client::ModelScoreServiceClient,
    model_score_service_server::{ModelScoreService, ModelScoreServiceServer},
    policy_store_service_client::PolicyStoreServiceClient,
    policy_store_service_server::{PolicyStoreService, PolicyStoreServiceServer},
    price_book_service_client::PriceBookServiceClient,
    price_book_service_server::{PriceBookService, PriceBookServiceServer},
    profile_store_service_client::ProfileStoreServiceClient,
    profile_store_service_server::{ProfileStoreService, ProfileStoreServiceServer},
    review_score_service_client::ReviewScoreServiceClient,
    review_score_service_server::{ReviewScoreService, ReviewScoreServiceServer},
    stock_service_client::StockServiceClient,
    stock_service_server::{StockService, StockServiceServer},
};

use crate::{IDENTITY, channel, listen, serve_tonic, suite};

/// One reply of each dependency.
#[derive(Clone)]
pub(crate) struct Replies {
    profile: FetchProfileResponse,
    policy: FetchPolicyResponse,
    prices: FetchPricesResponse,
    stock: FetchStockResponse,
    scores: FetchScoresResponse,
    reviews: FetchReviewsResponse,
    experiments: FetchExperimentsResponse,
}

impl Replies {
    /// Asks an emulator once for everything that a page of the bench's subject needs.
    pub(crate) async fn capture() -> Self {
        let at = channel(suite::emulator().await).await;
        let [(_, tenant), (_, subject), _, (_, region)] =
            IDENTITY.map(|(name, value)| (name, value.to_owned()));
        let question =
            FetchProfileRequest { tenant: tenant.clone(), subject: subject.clone(), with_policy: false };
        let profile = ProfileStoreServiceClient::new(at.clone()).fetch_profile(question).await;
        let profile = profile.expect("a known subject").into_inner();
        let (item_ids, currency_code) = (profile.home_item_ids.clone(), profile.currency_code.clone());
        let policy_version = profile.policy_version;
        let policy = FetchPolicyRequest { tenant: tenant.clone(), subject: subject.clone(), policy_version };
        let prices = FetchPricesRequest { tenant: tenant.clone(), item_ids: item_ids.clone(), currency_code };
        let scores = FetchScoresRequest { tenant: tenant.clone(), subject: subject.clone() };
        let surface = "home".to_owned();
        macro_rules! ask {
            ($client:ident . $method:ident ($question:expr)) => {
                $client::new(at.clone()).$method($question).await.expect("an answer").into_inner()
            };
        }
        Self {
            profile,
            policy: ask!(PolicyStoreServiceClient.fetch_policy(policy)),
            prices: ask!(PriceBookServiceClient.fetch_prices(prices)),
            stock: ask!(StockServiceClient.fetch_stock(FetchStockRequest { item_ids, region })),
            scores: ask!(ModelScoreServiceClient.fetch_scores(scores)),
            reviews: ask!(ReviewScoreServiceClient.fetch_reviews(FetchReviewsRequest { tenant, subject })),
            experiments: ask!(
                ExperimentCatalogServiceClient.fetch_experiments(FetchExperimentsRequest { surface })
            ),
        }
    }
}

/// Serves the replies on one port, as the emulator does.
pub(crate) async fn serve(replies: Replies) -> SocketAddr {
    let (listener, at) = listen().await;
    let router = Server::builder()
        .add_service(ProfileStoreServiceServer::new(replies.clone()))
        .add_service(PolicyStoreServiceServer::new(replies.clone()))
        .add_service(PriceBookServiceServer::new(replies.clone()))
        .add_service(StockServiceServer::new(replies.clone()))
        .add_service(ModelScoreServiceServer::new(replies.clone()))
        .add_service(ReviewScoreServiceServer::new(replies.clone()))
        .add_service(ExperimentCatalogServiceServer::new(replies));
    serve_tonic(router, listener);
    at
}

macro_rules! canned {
    ($($service:ident :: $method:ident ($request:ident) -> $response:ident = $field:ident;)*) => {$(
        #[tonic::async_trait]
        impl $service for Replies {
            async fn $method(&self, _request: Request<$request>) -> Result<Response<$response>, Status> {
                Ok(Response::new(self.$field.clone()))
            }
        }
    )*};
}

canned! {
    ProfileStoreService::fetch_profile(FetchProfileRequest) -> FetchProfileResponse = profile;
    PolicyStoreService::fetch_policy(FetchPolicyRequest) -> FetchPolicyResponse = policy;
    PriceBookService::fetch_prices(FetchPricesRequest) -> FetchPricesResponse = prices;
    StockService::fetch_stock(FetchStockRequest) -> FetchStockResponse = stock;
    ModelScoreService::fetch_scores(FetchScoresRequest) -> FetchScoresResponse = scores;
    ReviewScoreService::fetch_reviews(FetchReviewsRequest) -> FetchReviewsResponse = reviews;
    ExperimentCatalogService::fetch_experiments(FetchExperimentsRequest) -> FetchExperimentsResponse = experiments;
}
