//! Probe: requests of one subject, several at a time so that they share reads, beside the callers of the workload. What they get
//! goes to the oracle like everybody's.

use base::{Clock, Identity, Nanos, Region, Subject, Tenant, WorkloadClass, clock::MonotonicClock, headers};
use futures_util::future;
use load::Observed;
use tonic::{
    Request,
    metadata::MetadataValue,
    transport::{Channel, Endpoint},
};
use wire::home::v2::{GetHomeRequest, home_service_client::HomeServiceClient};

use super::oracle::{Shared, page_of};
use crate::slo::RehearsalError;

/// A subject that asks for its page.
pub(super) struct Prober {
    client: HomeServiceClient<Channel>,
    identity: Identity,
    watcher: Shared,
    asked: u32,
    name: String,
}

/// What a volley got.
#[derive(Clone, Debug, Default)]
pub(super) struct Volley {
    /// Pages on the summary.
    pub(super) on_summary: usize,
    /// Pages with the claim that was asked about.
    pub(super) with_claim: usize,
    /// Refused or failed.
    pub(super) failed: usize,
    /// The claims of the last page.
    pub(super) claims: Vec<String>,
}

impl Prober {
    pub(super) fn new(home: &str, identity: Identity, watcher: Shared) -> Result<Self, RehearsalError> {
        let endpoint = Endpoint::from_shared(format!("http://{home}"))
            .map_err(|error| RehearsalError::Usage(format!("{home}: {error}")))?;
        let client = HomeServiceClient::new(endpoint.connect_lazy());
        let name = format!("probe-{}", identity.subject.as_str());
        Ok(Self { client, identity, watcher, asked: 0, name })
    }

    /// So many requests at once; `claim` is looked for in the answers.
    pub(super) async fn volley(&mut self, times: u32, claim: &str) -> Volley {
        let calls = (0..times).map(|_| {
            self.asked += 1;
            let mut request = Request::new(GetHomeRequest::default());
            let id = format!("{}-{}", self.name, self.asked);
            let head = [
                (headers::TENANT, self.identity.tenant.as_str()),
                (headers::SUBJECT, self.identity.subject.as_str()),
                (headers::CLASS, self.identity.class.as_str()),
                (headers::REGION, self.identity.region.as_str()),
                (headers::REQUEST_ID, id.as_str()),
                (headers::GRPC_TIMEOUT, "1S"),
            ];
            for (name, value) in head {
                if let Ok(value) = MetadataValue::try_from(value) {
                    request.metadata_mut().insert(name, value);
                }
            }
            let mut client = self.client.clone();
            async move {
                let asked_at = MonotonicClock.now();
                let answer = client.get_home(request).await;
                (asked_at, MonotonicClock.now(), answer)
            }
        });
        let mut volley = Volley::default();
        for (asked_at, answered_at, answer) in future::join_all(calls).await {
            let Ok(answer) = answer else {
                volley.failed += 1;
                continue;
            };
            let answer = answer.into_inner();
            let seen = Observed { identity: &self.identity, asked_at, answered_at, answer: &answer };
            let page = page_of(&seen);
            volley.on_summary += usize::from(page.on_summary);
            volley.with_claim += usize::from(page.claims.iter().any(|one| one == claim));
            volley.claims.clone_from(&page.claims);
            self.watcher.note(page);
        }
        volley
    }

    pub(super) const fn identity(&self) -> &Identity {
        &self.identity
    }
}

/// The subject of a number, of a tenant that the data set has.
pub(super) fn subject(number: u32) -> Option<Identity> {
    Some(Identity {
        tenant: Tenant::parse("tenant-007").ok()?,
        subject: Subject::parse(&format!("user-{number:05}")).ok()?,
        class: WorkloadClass::Premium,
        region: Region::parse("eu-west").ok()?,
    })
}

/// How long after `at` it is.
pub(super) fn since(at: Nanos) -> Nanos {
    MonotonicClock.now().saturating_sub(at)
}
