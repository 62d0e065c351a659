//! Revocations: the stream by which entitlement tells what a revocation has outdated, kept open for as long as summaries are
//! read. A stream that ends is opened again and tells everything anew, so nothing is missed in between.

use std::sync::Arc;

use base::{Nanos, Tenant};
use runtime::{Policies, host::Channel};
use serve::health::Readiness;
use tokio::{sync::watch, time};
use tonic::Status;
use wire::entitlement::v1::{WatchRevocationsRequest, revocation_service_client::RevocationServiceClient};

use crate::authority::Authority;

/// Name of the task.
pub(crate) const TASK: &str = "watch revocations";
/// Between two attempts to open the stream.
const PAUSE: Nanos = Nanos::from_millis(200);

/// Keeps the stream open while `wanted`, until the process shuts down.
pub(crate) async fn watch_revocations(
    channel: Channel,
    authority: Arc<Authority>,
    policies: Policies,
    mut wanted: watch::Receiver<bool>,
    readiness: Readiness,
) {
    let client = RevocationServiceClient::new(channel.clone());
    let keep = async {
        let mut told = None;
        // The sender lives in the service; without it nobody wants the stream any more.
        while wanted.wait_for(|wanted| *wanted).await.is_ok() {
            let bounds = channel.config();
            let ended = tokio::select! {
                ended = listen(client.clone(), &authority, &policies, || channel.config() != bounds) => ended,
                _ = wanted.wait_for(|wanted| !*wanted) => continue,
            };
            let ended = (ended.code(), ended.message().to_owned());
            if told.as_ref() != Some(&ended) {
                tracing::warn!(code = ?ended.0, message = %ended.1, "the stream of revocations ended; it is opened again");
                told = Some(ended);
            }
            time::sleep(PAUSE.into()).await;
        }
    };
    tokio::select! {
        () = keep => {}
        () = readiness.quiesced() => {}
    }
}

/// Listens to one stream to its end, and says why it ended.
async fn listen(
    mut client: RevocationServiceClient<Channel>,
    authority: &Authority,
    policies: &Policies,
    outlived: impl Fn() -> bool,
) -> Status {
    // It lasts as long as both sides do; silence is noticed by its age.
    let request = runtime::outbound_endless(WatchRevocationsRequest {});
    let mut stream = match client.watch_revocations(request).await {
        Ok(response) => response.into_inner(),
        Err(status) => return status,
    };
    loop {
        // A stream that is stuck is opened anew before its word is too old.
        let silence_max = Nanos::new(policies.current().summary.staleness_max.get() / 2);
        let Ok(message) = time::timeout(silence_max.into(), stream.message()).await else {
            return Status::deadline_exceeded(format!("nothing was heard for {silence_max}"));
        };
        match message {
            Ok(Some(message)) => {
                let epochs = message.epochs.into_iter().filter_map(|epoch| {
                    // A tenant that is none has no summaries either.
                    Some((Tenant::parse(&epoch.tenant).ok()?, epoch.revocation_epoch))
                });
                // The link has a new connection: the old one could not end as long as the stream is on it.
                if outlived() {
                    return Status::aborted("the bounds of the link changed");
                }
                if !authority.hear(&epochs.collect::<Vec<_>>(), message.complete) {
                    return Status::data_loss("the stream told an epoch that cannot be right");
                }
            }
            Ok(None) => return Status::unavailable("the stream ended"),
            Err(status) => return status,
        }
    }
}
