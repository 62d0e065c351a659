//! Feed: the stream of revocation epochs. Behind no capacity, latency or fault rule: what goes wrong with it is its own
//! state, which the control port changes.
//!
//! A stream is not a task and queues nothing. It remembers the epochs that it has told, and whenever something has changed it
//! looks for those that are higher now: a slow reader misses values in between and never a rise, in memory that does not
//! grow.

use std::{future::Future, pin::Pin, sync::Arc};

use base::{Nanos, Reason, Refusal};
use futures_util::{Stream, stream};
use model::names;
use tokio::sync::watch;
use tonic::{Request, Response, Status};
use wire::emulator::v1::{
    FollowRevocationsRequest, FollowRevocationsResponse, TenantEpoch,
    revocation_feed_service_server::RevocationFeedService,
};

use crate::{
    dataset::DataSet,
    engine::Engine,
    revocations::{FeedState, State},
};

/// Most epochs of one message.
const EPOCHS_MAX: usize = 1_024;
/// A stream that has nothing to say says so after this.
const BEAT: Nanos = Nanos::from_secs(1);

/// The feed over an engine.
pub(crate) struct Feed(pub(crate) Arc<Engine>);

/// Ends when the process quiesces.
type Leaving = Pin<Box<dyn Future<Output = ()> + Send>>;

fn cut() -> Status {
    Status::unavailable("the feed of revocations is cut")
}

fn ended() -> Status {
    Status::unavailable("the feed of revocations begins anew")
}

fn quiescing() -> Status {
    serve::render::status(&Refusal::new(Reason::Quiescing, "the process is shutting down"))
}

/// What a stream has told, by tenant; 0 is no epoch.
struct Told([u64; names::TENANTS as usize]);

impl Told {
    const fn nothing() -> Self {
        Self([0; names::TENANTS as usize])
    }

    /// The epochs that are higher than told, at most so many of them, which are told from now on.
    fn news(&mut self, state: &State, data: &DataSet, epochs_max: usize) -> Vec<TenantEpoch> {
        let mut news = Vec::new();
        for (tenant, told) in (0..names::TENANTS).zip(&mut self.0) {
            let epoch = state.epoch(data, tenant);
            if epoch > *told {
                if news.len() == epochs_max {
                    break;
                }
                *told = epoch;
                news.push(TenantEpoch { tenant: names::tenant(tenant), revocation_epoch: epoch });
            }
        }
        news
    }

    fn is_complete(&self) -> bool {
        !self.0.contains(&0)
    }
}

/// What a stream does next.
enum Next {
    Say(FollowRevocationsResponse),
    End(Status),
    /// Nothing until a change, or this moment.
    Wait(Nanos),
}

/// One stream.
struct Follower {
    engine: Arc<Engine>,
    changes: watch::Receiver<u64>,
    leaving: Leaving,
    told: Told,
    /// Of the feed when the stream was opened.
    lineage: u64,
    /// When something has to be said.
    beat: Nanos,
    over: bool,
}

impl Follower {
    fn next(&mut self) -> Next {
        let (engine, now) = (&self.engine, self.engine.clock.now());
        engine.revocations.look(|state| {
            if state.feed() == FeedState::Cut {
                return Next::End(cut());
            }
            if state.lineage() != self.lineage {
                return Next::End(ended());
            }
            if state.feed() == FeedState::Silent {
                // Something is said as soon as the silence is over, news or not.
                self.beat = now;
                return Next::Wait(Nanos::MAX);
            }
            let epochs = self.told.news(state, &engine.data, EPOCHS_MAX);
            if epochs.is_empty() && now < self.beat {
                return Next::Wait(self.beat);
            }
            self.beat = now + BEAT;
            Next::Say(FollowRevocationsResponse { epochs, complete: self.told.is_complete() })
        })
    }

    /// The next message, once there is one.
    async fn follow(mut self) -> Option<(Result<FollowRevocationsResponse, Status>, Self)> {
        while !self.over {
            // Marked as seen before it is looked at, so that a change in between wakes the wait.
            self.changes.borrow_and_update();
            let said = match self.next() {
                Next::Say(message) => return Some((Ok(message), self)),
                Next::End(status) => Some(status),
                Next::Wait(until) => tokio::select! {
                    biased; // A process that shuts down waits for its streams, so they end first.
                    () = &mut self.leaving => Some(quiescing()),
                    // Its sender is the engine's, which this stream holds.
                    _ = self.changes.changed() => None,
                    () = self.engine.alarms.until(until) => None,
                },
            };
            if let Some(status) = said {
                self.over = true;
                return Some((Err(status), self));
            }
        }
        None
    }
}

impl Feed {
    fn open(&self, leaving: Leaving) -> Result<Follower, Status> {
        let engine = Arc::clone(&self.0);
        let changes = engine.revocations.changes();
        let (feed, lineage) = engine.revocations.look(|state| (state.feed(), state.lineage()));
        if feed == FeedState::Cut {
            return Err(cut());
        }
        let (told, beat) = (Told::nothing(), engine.clock.now());
        Ok(Follower { engine, changes, leaving, told, lineage, beat, over: false })
    }
}

#[tonic::async_trait]
impl RevocationFeedService for Feed {
    type FollowRevocationsStream =
        Pin<Box<dyn Stream<Item = Result<FollowRevocationsResponse, Status>> + Send>>;

    async fn follow_revocations(
        &self,
        request: Request<FollowRevocationsRequest>,
    ) -> Result<Response<Self::FollowRevocationsStream>, Status> {
        let leaving: Leaving = match request.extensions().get::<serve::Arrival>() {
            Some(arrival) => Box::pin(arrival.quiesced()),
            None => Box::pin(std::future::pending()),
        };
        let follower = self.open(leaving)?;
        Ok(Response::new(Box::pin(stream::unfold(follower, Follower::follow))))
    }
}

#[cfg(test)]
mod tests;
