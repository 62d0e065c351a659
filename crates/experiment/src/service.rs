//! Service: the gRPC edge of experiment. Protobuf stops here.

use std::sync::Arc;

use base::{CallContext, Clock, Nanos, Phase, Reason, Refusal};
use model::policy::ServiceName;
use runtime::host::Channel;
use serve::Progress;
use tonic::{Request, Response, Status};
use wire::{
    emulator::v1::{
        ExperimentDefinition, FetchExperimentsRequest,
        experiment_catalog_service_client::ExperimentCatalogServiceClient,
    },
    experiment::v1::{
        AllocateArmsRequest, AllocateArmsResponse, Allocation, EffectOutcome,
        experiment_service_server::ExperimentService,
    },
};

use crate::{
    decide::{self, Definitions, Experiment, Exposure, Surface, Variant},
    recorder::{Outcome, RecordError, Recorder},
};

/// Suggested to a caller that met a full queue: a few transactions later there is room again, or the disk has stalled.
const FULL_RETRY_AFTER: Nanos = Nanos::from_millis(50);

/// Attributes of the span: event ids, and what became of them. Of more ids than a span's attribute takes the first are shown.
const EFFECT_IDS: &str = "mercury.effect.ids";
const EFFECT_OUTCOME: &str = "mercury.effect.outcome";

pub(crate) struct Service {
    catalog: ExperimentCatalogServiceClient<Channel>,
    recorder: Recorder,
    clock: Arc<dyn Clock>,
}

impl Service {
    pub(crate) fn new(catalog: Channel, recorder: Recorder, clock: Arc<dyn Clock>) -> Self {
        Self { catalog: ExperimentCatalogServiceClient::new(catalog), recorder, clock }
    }

    async fn resolve(&self, request: Request<AllocateArmsRequest>) -> Result<AllocateArmsResponse, Refusal> {
        let context = runtime::context(&request)?;
        let progress = runtime::progress(&request);
        let reserve = runtime::policy(&request)?.service(ServiceName::Experiment).reserve;
        let surface = Surface::new(request.into_inner().surface)?;
        let question = FetchExperimentsRequest { surface: surface.as_str().to_owned() };
        progress.enter(Phase::Upstream);
        let answer =
            self.catalog.clone().fetch_experiments(runtime::outbound(&context, reserve, question)).await;
        let answer = answer.map_err(|status| runtime::upstream_error(Phase::Upstream, &status))?.into_inner();
        progress.enter(Phase::Handler);
        let definitions = Definitions::new(answer.experiments.into_iter().map(experiment).collect())?;
        let exposures = decide::expose(&context, &surface, &definitions);
        progress.note(EFFECT_IDS, || listed(exposures.iter().map(|exposure| exposure.event_id.to_string())));
        // What a caller leaves behind that goes before the ledger has answered.
        progress.note(EFFECT_OUTCOME, || "submitted".to_owned());
        let recorded = self.record(&context, &progress, reserve, exposures.clone()).await;
        progress.note(EFFECT_OUTCOME, || match &recorded {
            Ok(outcomes) => listed(outcomes.iter().map(|outcome| outcome.as_str().to_owned())),
            Err(unrecorded) => unrecorded.effect().to_owned(),
        });
        let outcomes = recorded.map_err(|unrecorded| {
            progress.effect_is_settled(); // By the refusal, which says what is known.
            refuse(unrecorded)
        })?;
        let allocations =
            exposures.into_iter().zip(outcomes).map(|(exposure, outcome)| allocation(exposure, outcome));
        Ok(AllocateArmsResponse { allocations: allocations.collect::<Result<_, Refusal>>()? })
    }

    /// Records the exposures and waits for their outcomes, until what is left of the deadline is this hop's reserve: then
    /// there is still time to say that the effect is ambiguous, which the end of the call itself would not say.
    async fn record(
        &self,
        context: &CallContext,
        progress: &Progress,
        reserve: Nanos,
        exposures: Vec<Exposure>,
    ) -> Result<Vec<Outcome>, Unrecorded> {
        if exposures.is_empty() {
            return Ok(Vec::new());
        }
        let limit = context.deadline.less(reserve);
        if limit.expired(self.clock.now()) {
            return Err(Unrecorded::Late);
        }
        let pending = self.recorder.submit(exposures)?;
        // Until the answer has left, a refusal that takes its place must not say that nothing was done.
        progress.effect_opens();
        Ok(pending.answer(self.clock.as_ref(), limit).await?)
    }
}

/// Why there are no outcomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unrecorded {
    /// The deadline had passed before anything was begun.
    Late,
    /// The recorder did not answer for them.
    Error(RecordError),
}

impl From<RecordError> for Unrecorded {
    fn from(error: RecordError) -> Self {
        Self::Error(error)
    }
}

impl Unrecorded {
    /// What is known of the effect.
    const fn effect(self) -> &'static str {
        match self {
            Self::Error(RecordError::Ambiguous | RecordError::Unanswered) => "ambiguous",
            Self::Late
            | Self::Error(
                RecordError::Full | RecordError::Down | RecordError::Closed | RecordError::KnownAbsent,
            ) => "known_absent",
        }
    }
}

/// Without repetitions next to each other, as a span shows it.
fn listed(values: impl Iterator<Item = String>) -> String {
    let mut values: Vec<String> = values.collect();
    values.dedup();
    values.join(",")
}

/// What an exposure that was not answered for means for the caller.
fn refuse(unrecorded: Unrecorded) -> Refusal {
    let error = match unrecorded {
        Unrecorded::Late => return Refusal::deadline(Phase::Handler),
        Unrecorded::Error(error) => error,
    };
    let refusal = match error {
        RecordError::Full => {
            Refusal::new(Reason::Overload, "the exposure queue is full").retry_after(FULL_RETRY_AFTER)
        }
        RecordError::Down => {
            let message = "the exposure ledger is out of order; the exposure was not recorded";
            Refusal::new(Reason::DependencyUnavailable, message)
        }
        RecordError::Closed => Refusal::new(Reason::DependencyUnavailable, "the exposure ledger is closed"),
        RecordError::KnownAbsent => {
            let message = "the exposure was not recorded; repeating the operation is safe";
            Refusal::new(Reason::DependencyUnavailable, message)
        }
        RecordError::Ambiguous => {
            let message =
                "whether the exposure was recorded is not known; repeating the operation settles it";
            Refusal::new(Reason::EffectAmbiguous, message)
        }
        RecordError::Unanswered => {
            let message =
                "deadline exceeded with the exposure unanswered; repeating the operation settles it";
            Refusal::new(Reason::EffectAmbiguousDeadline, message)
        }
    };
    refusal.in_phase(Phase::Handler)
}

fn experiment(definition: ExperimentDefinition) -> Experiment {
    let variants = definition.variants.into_iter();
    Experiment {
        id: definition.experiment_id,
        version: definition.experiment_version,
        variants: variants.map(|arm| Variant { name: arm.variant, weight: arm.weight }).collect(),
    }
}

fn allocation(exposure: Exposure, outcome: Outcome) -> Result<Allocation, Refusal> {
    let outcome = match outcome {
        Outcome::Committed => EffectOutcome::Committed,
        Outcome::Replayed => EffectOutcome::Replayed,
        Outcome::Conflict => {
            let message = format!(
                "exposure {} of experiment {} is recorded with another body, which was left as it was",
                exposure.event_id, exposure.experiment_id
            );
            return Err(Refusal::new(Reason::Conflict, message).in_phase(Phase::Handler));
        }
    };
    Ok(Allocation {
        experiment_id: exposure.experiment_id,
        experiment_version: exposure.experiment_version,
        variant: exposure.variant,
        event_id: exposure.event_id.to_string(),
        effect_outcome: outcome.into(),
    })
}

#[tonic::async_trait]
impl ExperimentService for Service {
    async fn allocate_arms(
        &self,
        request: Request<AllocateArmsRequest>,
    ) -> Result<Response<AllocateArmsResponse>, Status> {
        runtime::answer(self.resolve(request).await)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_unknown_outcome_is_called_ambiguous() {
        let expected = [
            (RecordError::Full, Reason::Overload),
            (RecordError::Down, Reason::DependencyUnavailable),
            (RecordError::Closed, Reason::DependencyUnavailable),
            (RecordError::KnownAbsent, Reason::DependencyUnavailable),
            (RecordError::Ambiguous, Reason::EffectAmbiguous),
            (RecordError::Unanswered, Reason::EffectAmbiguousDeadline),
        ];
        for (error, reason) in expected {
            let refusal = refuse(error.into());
            assert_eq!(refusal.reason(), reason);
            let ambiguous = matches!(reason, Reason::EffectAmbiguous | Reason::EffectAmbiguousDeadline);
            assert_eq!(Unrecorded::from(error).effect() == "ambiguous", ambiguous, "{error:?}");
        }
        assert_eq!(refuse(Unrecorded::Late).reason(), Reason::DeadlineExceeded);
        assert_eq!(Unrecorded::Late.effect(), "known_absent");
        assert_eq!(refuse(RecordError::Full.into()).retry_delay(), Some(FULL_RETRY_AFTER));
    }
}
