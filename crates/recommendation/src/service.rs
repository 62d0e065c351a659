//! Service: the gRPC edge of recommendation. Protobuf stops here.

use base::{Phase, Refusal};
use model::policy::ServiceName;
use runtime::host::Channel;
use tonic::{Request, Response, Status};
use wire::{
    emulator::v1::{FetchScoresRequest, model_score_service_client::ModelScoreServiceClient},
    recommendation::v1::{
        GetRecommendationsRequest, GetRecommendationsResponse, RankedItem,
        recommendation_service_server::RecommendationService,
    },
};

use crate::decide::{self, Scored, Wanted};

pub(crate) struct Service {
    scores: ModelScoreServiceClient<Channel>,
}

impl Service {
    pub(crate) fn new(scores: Channel) -> Self {
        Self { scores: ModelScoreServiceClient::new(scores) }
    }

    async fn resolve(
        &self,
        request: Request<GetRecommendationsRequest>,
    ) -> Result<GetRecommendationsResponse, Refusal> {
        let context = runtime::context(&request)?;
        let progress = runtime::progress(&request);
        let reserve = runtime::policy(&request)?.service(ServiceName::Recommendation).reserve;
        let GetRecommendationsRequest { limit, exclude_item_ids } = request.into_inner();
        let wanted = Wanted::new(limit, exclude_item_ids)?;
        let question = FetchScoresRequest {
            tenant: context.identity.tenant.as_str().to_owned(),
            subject: context.identity.subject.as_str().to_owned(),
        };
        progress.enter(Phase::Upstream);
        let answer = self.scores.clone().fetch_scores(runtime::outbound(&context, reserve, question)).await;
        let answer = answer.map_err(|status| runtime::upstream_error(Phase::Upstream, &status))?.into_inner();
        progress.enter(Phase::Handler);
        let candidates = answer.candidates.into_iter();
        let candidates = candidates
            .map(|item| Scored { item_id: item.item_id, score_micros: item.score_micros })
            .collect();
        let ranking = decide::rank(&wanted, candidates)?.into_iter();
        let items = ranking.map(|item| RankedItem { item_id: item.item_id, score_micros: item.score_micros });
        Ok(GetRecommendationsResponse { items: items.collect() })
    }
}

#[tonic::async_trait]
impl RecommendationService for Service {
    async fn get_recommendations(
        &self,
        request: Request<GetRecommendationsRequest>,
    ) -> Result<Response<GetRecommendationsResponse>, Status> {
        runtime::answer(self.resolve(request).await)
    }
}
