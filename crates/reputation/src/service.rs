//! Service: the gRPC edge of reputation. Protobuf stops here.

use base::{Phase, Refusal};
use model::policy::ServiceName;
use runtime::host::Channel;
use tonic::{Request, Response, Status};
use wire::{
    emulator::v1::{FetchReviewsRequest, review_score_service_client::ReviewScoreServiceClient},
    reputation::v1::{
        GetReputationRequest, GetReputationResponse, Reputation, reputation_service_server::ReputationService,
    },
};

use crate::decide;

pub(crate) struct Service {
    reviews: ReviewScoreServiceClient<Channel>,
}

impl Service {
    pub(crate) fn new(reviews: Channel) -> Self {
        Self { reviews: ReviewScoreServiceClient::new(reviews) }
    }

    async fn resolve(
        &self,
        request: Request<GetReputationRequest>,
    ) -> Result<GetReputationResponse, Refusal> {
        let context = runtime::context(&request)?;
        let progress = runtime::progress(&request);
        let reserve = runtime::policy(&request)?.service(ServiceName::Reputation).reserve;
        let question = FetchReviewsRequest {
            tenant: context.identity.tenant.as_str().to_owned(),
            subject: context.identity.subject.as_str().to_owned(),
        };
        progress.enter(Phase::Upstream);
        let answer = self.reviews.clone().fetch_reviews(runtime::outbound(&context, reserve, question)).await;
        let answer = answer.map_err(|status| runtime::upstream_error(Phase::Upstream, &status))?.into_inner();
        progress.enter(Phase::Handler);
        let reputation = decide::summarise(&answer.star_counts)?.map(|reputation| Reputation {
            score: reputation.score,
            review_count: reputation.review_count,
            lower_bound: reputation.lower_bound,
            upper_bound: reputation.upper_bound,
        });
        Ok(GetReputationResponse { reputation })
    }
}

#[tonic::async_trait]
impl ReputationService for Service {
    async fn get_reputation(
        &self,
        request: Request<GetReputationRequest>,
    ) -> Result<Response<GetReputationResponse>, Status> {
        runtime::answer(self.resolve(request).await)
    }
}
