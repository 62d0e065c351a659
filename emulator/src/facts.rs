//! Facts: the seven services of the main port that answer calls. Each names what its call is about and which row answers
//! it; everything else is the engine's. The feed of revocations beside them is a stream and no call.

use std::sync::Arc;

use base::Dependency;
use model::draw::{self, Purpose};
use serve::Routes;
use tonic::{Request, Response, Status};
use wire::emulator::v1::{
    FetchExperimentsRequest, FetchExperimentsResponse, FetchPolicyRequest, FetchPolicyResponse,
    FetchPricesRequest, FetchPricesResponse, FetchProfileRequest, FetchProfileResponse, FetchReviewsRequest,
    FetchReviewsResponse, FetchScoresRequest, FetchScoresResponse, FetchStockRequest, FetchStockResponse,
    experiment_catalog_service_server::{ExperimentCatalogService, ExperimentCatalogServiceServer},
    model_score_service_server::{ModelScoreService, ModelScoreServiceServer},
    policy_store_service_server::{PolicyStoreService, PolicyStoreServiceServer},
    price_book_service_server::{PriceBookService, PriceBookServiceServer},
    profile_store_service_server::{ProfileStoreService, ProfileStoreServiceServer},
    review_score_service_server::{ReviewScoreService, ReviewScoreServiceServer},
    revocation_feed_service_server::RevocationFeedServiceServer,
    stock_service_server::{StockService, StockServiceServer},
};

use crate::{
    body::Injecting,
    caller::Caller,
    dataset::DataSet,
    engine::{Engine, Subject},
    feed::Feed,
};

/// The main port.
pub(crate) fn routes(engine: &Arc<Engine>) -> Routes {
    let facts = || Facts(Arc::clone(engine));
    Routes::new()
        .grpc(Injecting(ProfileStoreServiceServer::new(facts())))
        .grpc(Injecting(PolicyStoreServiceServer::new(facts())))
        .grpc(Injecting(PriceBookServiceServer::new(facts())))
        .grpc(Injecting(StockServiceServer::new(facts())))
        .grpc(Injecting(ModelScoreServiceServer::new(facts())))
        .grpc(Injecting(ReviewScoreServiceServer::new(facts())))
        .grpc(Injecting(ExperimentCatalogServiceServer::new(facts())))
        .grpc_long_lived(RevocationFeedServiceServer::new(Feed(Arc::clone(engine))))
}

struct Facts(Arc<Engine>);

impl Facts {
    fn receive<T>(&self, request: Request<T>) -> (Caller, T) {
        let (metadata, extensions, message) = request.into_parts();
        (Caller::read(&metadata, &extensions, self.0.clock.now()), message)
    }
}

#[tonic::async_trait]
impl ProfileStoreService for Facts {
    async fn fetch_profile(
        &self,
        request: Request<FetchProfileRequest>,
    ) -> Result<Response<FetchProfileResponse>, Status> {
        let (caller, FetchProfileRequest { tenant, subject, with_policy }) = self.receive(request);
        let key = draw::key([&*tenant, &*subject]);
        let about = Subject { dependency: Dependency::Profile, operation: "FetchProfile", key };
        let row = |data: &DataSet, _, timing| {
            let row = self.0.revocations.profile(data, &tenant, &subject, with_policy)?;
            Some(FetchProfileResponse { timing: Some(timing), ..row })
        };
        self.0.serve(about, caller, row).await
    }
}

#[tonic::async_trait]
impl PolicyStoreService for Facts {
    async fn fetch_policy(
        &self,
        request: Request<FetchPolicyRequest>,
    ) -> Result<Response<FetchPolicyResponse>, Status> {
        let (caller, FetchPolicyRequest { tenant, subject, policy_version }) = self.receive(request);
        let key = base::mix::fold64(draw::key([&*tenant, &*subject]), policy_version);
        let about = Subject { dependency: Dependency::Entitlement, operation: "FetchPolicy", key };
        let row = |data: &DataSet, _, timing| {
            let row = self.0.revocations.policy(data, &tenant, &subject, policy_version)?;
            Some(FetchPolicyResponse { timing: Some(timing), ..row })
        };
        self.0.serve(about, caller, row).await
    }
}

#[tonic::async_trait]
impl PriceBookService for Facts {
    async fn fetch_prices(
        &self,
        request: Request<FetchPricesRequest>,
    ) -> Result<Response<FetchPricesResponse>, Status> {
        let (caller, FetchPricesRequest { tenant, item_ids, currency_code }) = self.receive(request);
        let key = draw::key([&*tenant, &*currency_code].into_iter().chain(item_ids.iter().map(|id| &**id)));
        let about = Subject { dependency: Dependency::Pricing, operation: "FetchPrices", key };
        let row = |data: &DataSet, _, timing| {
            let rows = data.prices(&tenant, &item_ids, &currency_code);
            Some(FetchPricesResponse { timing: Some(timing), ..rows })
        };
        self.0.serve(about, caller, row).await
    }
}

#[tonic::async_trait]
impl StockService for Facts {
    async fn fetch_stock(
        &self,
        request: Request<FetchStockRequest>,
    ) -> Result<Response<FetchStockResponse>, Status> {
        let (caller, FetchStockRequest { item_ids, region }) = self.receive(request);
        let key = draw::key([&*region].into_iter().chain(item_ids.iter().map(|id| &**id)));
        let about = Subject { dependency: Dependency::Inventory, operation: "FetchStock", key };
        let row = |data: &DataSet, call: draw::CallDraw, timing| {
            let rows = data.stock(&item_ids, &region, call.bits(Purpose::Payload));
            Some(FetchStockResponse { timing: Some(timing), ..rows })
        };
        self.0.serve(about, caller, row).await
    }
}

#[tonic::async_trait]
impl ModelScoreService for Facts {
    async fn fetch_scores(
        &self,
        request: Request<FetchScoresRequest>,
    ) -> Result<Response<FetchScoresResponse>, Status> {
        let (caller, FetchScoresRequest { tenant, subject }) = self.receive(request);
        let key = draw::key([&*tenant, &*subject]);
        let about = Subject { dependency: Dependency::Recommendation, operation: "FetchScores", key };
        let row = |data: &DataSet, _, timing| {
            let rows = data.scores(&tenant, &subject);
            Some(FetchScoresResponse { timing: Some(timing), ..rows })
        };
        self.0.serve(about, caller, row).await
    }
}

#[tonic::async_trait]
impl ReviewScoreService for Facts {
    async fn fetch_reviews(
        &self,
        request: Request<FetchReviewsRequest>,
    ) -> Result<Response<FetchReviewsResponse>, Status> {
        let (caller, FetchReviewsRequest { tenant, subject }) = self.receive(request);
        let key = draw::key([&*tenant, &*subject]);
        let about = Subject { dependency: Dependency::Reputation, operation: "FetchReviews", key };
        let row = |data: &DataSet, _, timing| {
            let rows = data.reviews(&tenant, &subject);
            Some(FetchReviewsResponse { timing: Some(timing), ..rows })
        };
        self.0.serve(about, caller, row).await
    }
}

#[tonic::async_trait]
impl ExperimentCatalogService for Facts {
    async fn fetch_experiments(
        &self,
        request: Request<FetchExperimentsRequest>,
    ) -> Result<Response<FetchExperimentsResponse>, Status> {
        let (caller, FetchExperimentsRequest { surface }) = self.receive(request);
        let about = Subject {
            dependency: Dependency::Experiment,
            operation: "FetchExperiments",
            key: draw::key([&*surface]),
        };
        let row = |data: &DataSet, _, timing| {
            let rows = data.experiments(&surface);
            Some(FetchExperimentsResponse { timing: Some(timing), ..rows })
        };
        self.0.serve(about, caller, row).await
    }
}

#[cfg(test)]
mod tests;
