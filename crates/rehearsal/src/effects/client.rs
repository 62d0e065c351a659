//! Client: single requests of the stories, each written down as the callers' are, so that the ledger can be reconciled after
//! them as well.

use std::{io, path::Path};

use base::{WorkloadClass, headers};
use load::record::{self, Attempt, Ending, Operation, Run, SCHEMA};
use tonic::{
    Code, Request,
    metadata::MetadataValue,
    transport::{Channel, Endpoint},
};
use wire::home::v2::{GetHomeRequest, GetHomeResponse, home_service_client::HomeServiceClient};

use crate::slo::RehearsalError;

/// Time for one answer.
const TIMEOUT: &str = "2S";
/// Says with a refusal that the effect may be there.
const EFFECT: &str = "x-mercury-effect";
/// Tenant of the stories; the data set has it.
const TENANT: &str = "tenant-007";

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked<'a> {
    pub(super) id: &'a str,
    pub(super) subject: u32,
    pub(super) class: WorkloadClass,
    pub(super) region: &'a str,
    pub(super) origin: base::Origin,
    /// Which home-api.
    pub(super) at: usize,
}

impl<'a> Asked<'a> {
    /// By a customer, at the first home-api.
    pub(super) const fn new(id: &'a str, subject: u32) -> Self {
        let (class, origin) = (WorkloadClass::Premium, base::Origin::Customer);
        Self { id, subject, class, region: "eu-west", origin, at: 0 }
    }
}

/// Asks for pages.
pub(super) struct Client {
    homes: Vec<HomeServiceClient<Channel>>,
    asked: Vec<Operation>,
}

/// The events of a page.
pub(super) fn events(page: &GetHomeResponse) -> Vec<&str> {
    page.experiments.iter().map(|arm| arm.event_id.as_str()).collect()
}

/// What the page says of its events: `committed` or `replayed`; both when they differ.
pub(super) fn effect(page: &GetHomeResponse) -> String {
    let mut effects: Vec<&str> = page.experiments.iter().map(|arm| arm.effect.as_str()).collect();
    effects.dedup();
    effects.join(", ")
}

impl Client {
    /// Of these home-apis, each a host and port.
    pub(super) fn new(homes: &[String]) -> Result<Self, RehearsalError> {
        let client = |home: &String| {
            let endpoint = Endpoint::from_shared(format!("http://{home}"))
                .map_err(|error| RehearsalError::Usage(format!("{home}: {error}")))?;
            Ok(HomeServiceClient::new(endpoint.connect_lazy()))
        };
        Ok(Self {
            homes: homes.iter().map(client).collect::<Result<_, RehearsalError>>()?,
            asked: Vec::new(),
        })
    }

    /// How many home-apis there are.
    pub(super) const fn homes(&self) -> usize {
        self.homes.len()
    }

    /// Asks once. The code says why there is no page.
    pub(super) async fn ask(&mut self, asked: Asked<'_>) -> Result<GetHomeResponse, Code> {
        let subject = format!("user-{:05}", asked.subject);
        let mut request = Request::new(GetHomeRequest {});
        for (name, value) in [
            (headers::TENANT, TENANT),
            (headers::SUBJECT, &subject),
            (headers::CLASS, asked.class.as_str()),
            (headers::REGION, asked.region),
            (headers::ORIGIN, asked.origin.as_str()),
            (headers::REQUEST_ID, asked.id),
            (headers::GRPC_TIMEOUT, TIMEOUT),
        ] {
            if let Ok(value) = MetadataValue::try_from(value) {
                request.metadata_mut().insert(name, value);
            }
        }
        let home = asked.at % self.homes.len();
        let answer = self.homes[home].clone().get_home(request).await.map(tonic::Response::into_inner);
        let ambiguous = answer.as_ref().is_err_and(|status| {
            status.metadata().get(EFFECT).is_some_and(|effect| effect.as_bytes() == b"ambiguous")
        });
        let answer = answer.map_err(|status| status.code());
        self.note(asked, subject, home, &answer, ambiguous);
        answer
    }

    fn note(
        &mut self,
        asked: Asked<'_>,
        subject: String,
        home: usize,
        answer: &Result<GetHomeResponse, Code>,
        ambiguous: bool,
    ) {
        let outcome = answer.as_ref().map_or_else(|code| format!("{code:?}"), |_| "ok".to_owned());
        let arms = answer.as_ref().map(record::arms).unwrap_or_default();
        self.asked.push(Operation {
            id: asked.id.to_owned(),
            tenant: TENANT.to_owned(),
            subject,
            class: asked.class.as_str().to_owned(),
            region: asked.region.to_owned(),
            origin: asked.origin.as_str().to_owned(),
            ended: if answer.is_ok() { Ending::Answered } else { Ending::Failed },
            attempts: vec![Attempt { target: u8::try_from(home).unwrap_or(u8::MAX), outcome, ambiguous }],
            arms,
        });
    }

    /// Writes down what was asked.
    pub(super) fn write(&self, path: &Path) -> io::Result<()> {
        let run =
            Run { schema: SCHEMA.to_owned(), targets: Vec::new(), id_prefix: "story".to_owned(), seed: 0 };
        record::write_whole(path, run, &self.asked)
    }
}
