//! Relay: the gRPC edge of the stream of revocations. One stream of the store for each subscriber, message by message, so
//! that nothing is kept here and what is silent upstream is silent to the subscriber.

use std::{future::Future, pin::Pin};

use base::{Phase, Reason, Refusal};
use futures_util::{Stream, stream};
use runtime::host::Channel;
use serve::render;
use tonic::{Request, Response, Status, Streaming};
use wire::{
    emulator::v1::{
        FollowRevocationsRequest, FollowRevocationsResponse,
        revocation_feed_service_client::RevocationFeedServiceClient,
    },
    entitlement::v1::{
        RevocationEpoch, WatchRevocationsRequest, WatchRevocationsResponse,
        revocation_service_server::RevocationService,
    },
};

pub(crate) struct Relay {
    feed: RevocationFeedServiceClient<Channel>,
}

/// Ends when the process quiesces.
type Leaving = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Relay {
    pub(crate) fn new(store: Channel) -> Self {
        Self { feed: RevocationFeedServiceClient::new(store) }
    }

    /// Opens the store's stream. How long that takes is the subscriber's to bound.
    async fn open(&self, mut leaving: Leaving) -> Result<Subscription, Refusal> {
        let mut feed = self.feed.clone();
        let question = runtime::outbound_endless(FollowRevocationsRequest {});
        tokio::select! {
            biased; // A process that shuts down waits for its exchanges, so they end first.
            () = &mut leaving => Err(quiescing()),
            answer = feed.follow_revocations(question) => match answer {
                Ok(answer) => Ok(Subscription { upstream: answer.into_inner(), leaving, over: false }),
                Err(status) => Err(lost(Some(&status))),
            },
        }
    }
}

fn quiescing() -> Refusal {
    Refusal::new(Reason::Quiescing, "the process is shutting down")
}

/// The store's stream is no more. Whatever it ended with, the subscriber opens another one.
fn lost(status: Option<&Status>) -> Refusal {
    let code = status.map(Status::code);
    tracing::debug!(?code, message = status.map(Status::message), "the feed of revocations ended");
    Refusal::new(Reason::DependencyUnavailable, "the feed of revocations is lost").in_phase(Phase::Upstream)
}

fn relayed(message: FollowRevocationsResponse) -> WatchRevocationsResponse {
    let epochs = message.epochs.into_iter();
    WatchRevocationsResponse {
        epochs: epochs
            .map(|of| RevocationEpoch { tenant: of.tenant, revocation_epoch: of.revocation_epoch })
            .collect(),
        complete: message.complete,
    }
}

/// One subscriber's stream. Dropping it cancels the store's.
struct Subscription {
    upstream: Streaming<FollowRevocationsResponse>,
    leaving: Leaving,
    over: bool,
}

impl Subscription {
    async fn next(mut self) -> Option<(Result<WatchRevocationsResponse, Status>, Self)> {
        if self.over {
            return None;
        }
        let told = tokio::select! {
            biased; // As above; and a message that the subscriber does not get is told again by the next process.
            () = &mut self.leaving => Err(quiescing()),
            message = self.upstream.message() => match message {
                Ok(Some(message)) => Ok(relayed(message)),
                Ok(None) => Err(lost(None)),
                Err(status) => Err(lost(Some(&status))),
            },
        };
        self.over = told.is_err();
        Some((told.map_err(|refusal| render::status(&refusal)), self))
    }
}

#[tonic::async_trait]
impl RevocationService for Relay {
    type WatchRevocationsStream =
        Pin<Box<dyn Stream<Item = Result<WatchRevocationsResponse, Status>> + Send>>;

    async fn watch_revocations(
        &self,
        request: Request<WatchRevocationsRequest>,
    ) -> Result<Response<Self::WatchRevocationsStream>, Status> {
        let subscription = runtime::answer(self.open(runtime::quiesced(&request)).await)?.into_inner();
        Ok(Response::new(Box::pin(stream::unfold(subscription, Subscription::next))))
    }
}

#[cfg(test)]
mod tests {
    use tonic::Code;
    use wire::emulator::v1::TenantEpoch;

    use super::*;

    #[test]
    fn every_end_of_the_store_is_unavailable_and_tells_nothing_of_it() {
        for code in (0..=16).map(Code::from_i32) {
            let status = render::status(&lost(Some(&Status::new(code, "secret of the store"))));
            assert_eq!(status.code(), Code::Unavailable, "{code:?}");
            assert!(!status.message().contains("secret"));
        }
        assert_eq!(render::status(&lost(None)).code(), Code::Unavailable);
        assert_eq!(render::status(&quiescing()).code(), Code::Unavailable);
    }

    #[test]
    fn a_message_is_passed_on_as_it_is_and_so_is_an_empty_one() {
        let epochs = vec![TenantEpoch { tenant: "tenant-001".to_owned(), revocation_epoch: 7 }];
        let told = relayed(FollowRevocationsResponse { epochs, complete: true });
        let epochs = vec![RevocationEpoch { tenant: "tenant-001".to_owned(), revocation_epoch: 7 }];
        assert_eq!(told, WatchRevocationsResponse { epochs, complete: true });
        assert_eq!(relayed(FollowRevocationsResponse::default()), WatchRevocationsResponse::default());
    }
}
