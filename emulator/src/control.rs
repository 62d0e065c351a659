//! Control: the control API. Changes what the dependencies do while they run, and reads back what they did.

mod revoking;

use std::sync::Arc;

use base::{Dependency, Nanos, Reason, Refusal, WorkloadClass};
use model::{
    draw::Share,
    fault::{FaultEffect, FaultRule},
    scenario::{CAPACITY_MAX, Capacity},
};
use serve::Routes;
use tonic::{Request, Response, Status};
use wire::emulator::v1::{
    self as api, ClearFaultsRequest, ClearFaultsResponse, DependencyStats, GetStatsRequest, GetStatsResponse,
    InjectFaultRequest, InjectFaultResponse, JournalEntry, ListJournalRequest, ListJournalResponse,
    ReadExperimentsRequest, ReadExperimentsResponse, ReadSubjectRequest, ReadSubjectResponse, ResetRequest,
    ResetResponse, RevokeClaimsRequest, RevokeClaimsResponse, SetCapacityRequest, SetCapacityResponse,
    SetPhaseRequest, SetPhaseResponse, SetPolicyCopyRequest, SetPolicyCopyResponse, SetRevocationFeedRequest,
    SetRevocationFeedResponse,
    emulator_control_service_server::{EmulatorControlService, EmulatorControlServiceServer},
    fault_rule::Effect,
};

use crate::{
    books::{Entry, JOURNAL_MAX, Outcome, Wanted},
    engine::Engine,
};

/// Entries of a page of the journal when the caller does not say how many.
const PAGE_DEFAULT: usize = 100;

/// The control port.
pub(crate) fn routes(engine: &Arc<Engine>) -> Routes {
    Routes::new().grpc(EmulatorControlServiceServer::new(Control(Arc::clone(engine))))
}

struct Control(Arc<Engine>);

fn answer<T>(result: Result<T, Refusal>) -> Result<Response<T>, Status> {
    result.map(Response::new).map_err(|refusal| serve::render::status(&refusal))
}

/// The dependency of that name; `field` is where the caller named it.
fn dependency(field: &'static str, name: &str) -> Result<Dependency, Refusal> {
    Dependency::parse(name).ok_or_else(|| {
        let known = Dependency::ALL.map(Dependency::as_str).join(", ");
        Refusal::invalid(field, format!("{field}: expected one of {known}"))
    })
}

/// Checks a rule as it came over the wire.
fn fault_rule(rule: api::FaultRule) -> Result<FaultRule, Refusal> {
    let api::FaultRule { dependency: name, workload_class, share_ppm, duration_ms, effect } = rule;
    let class = if workload_class.is_empty() {
        None
    } else {
        let message = "rule.workload_class: expected standard, premium or enterprise, or nothing for all";
        Some(
            WorkloadClass::parse(&workload_class)
                .ok_or_else(|| Refusal::invalid("rule.workload_class", message))?,
        )
    };
    if !(1..=1_000_000).contains(&share_ppm) {
        return Err(Refusal::invalid("rule.share_ppm", "rule.share_ppm: expected 1 to 1000000"));
    }
    Ok(FaultRule {
        dependency: dependency("rule.dependency", &name)?,
        class,
        share: Share::from_ppm(share_ppm),
        duration: (duration_ms > 0).then(|| Nanos::from_millis(duration_ms.into())),
        effect: fault_effect(effect)?,
    })
}

fn fault_effect(effect: Option<Effect>) -> Result<FaultEffect, Refusal> {
    let invalid = |message: &'static str| Err(Refusal::invalid("rule.effect", message));
    Ok(match effect {
        None => return invalid("rule.effect: expected one effect"),
        Some(Effect::DelayMs(0) | Effect::SlowBodyMs(0)) => {
            return invalid("rule.effect: a delay of 0 ms is no fault");
        }
        Some(Effect::Hang(false) | Effect::Reset(false) | Effect::Refuse(false)) => {
            return invalid("rule.effect: expected true");
        }
        Some(Effect::DelayMs(millis)) => FaultEffect::Delay(Nanos::from_millis(millis.into())),
        Some(Effect::SlowBodyMs(millis)) => FaultEffect::SlowBody(Nanos::from_millis(millis.into())),
        Some(Effect::StatusCode(code)) => match u8::try_from(code) {
            Ok(code @ 1..=16) => FaultEffect::Status(code),
            _ => return invalid("rule.effect: status_code: expected 1 to 16"),
        },
        Some(Effect::Hang(true)) => FaultEffect::Hang,
        Some(Effect::Reset(true)) => FaultEffect::Reset,
        Some(Effect::Refuse(true)) => FaultEffect::Refuse,
    })
}

fn capacity(servers: u32, queue_max: u32) -> Result<Capacity, Refusal> {
    if !(1..=CAPACITY_MAX).contains(&servers) {
        return Err(Refusal::invalid("servers", format!("servers: expected 1 to {CAPACITY_MAX}")));
    }
    if queue_max > CAPACITY_MAX {
        return Err(Refusal::invalid("queue_max", format!("queue_max: expected at most {CAPACITY_MAX}")));
    }
    Ok(Capacity { servers, queue_max })
}

fn journal_entry(entry: &Entry) -> JournalEntry {
    JournalEntry {
        sequence: entry.sequence,
        dependency: entry.dependency.as_str().to_owned(),
        request_id: (*entry.request_id).to_owned(),
        attempt: entry.attempt,
        workload_class: entry.class.as_str().to_owned(),
        budget_us: entry.budget.map(|budget| budget.get().into()),
        budget_trail_us: entry.trail.hops().iter().map(|micros| u64::from(*micros)).collect(),
        queue_wait_us: entry.queue_wait.get().into(),
        service_us: entry.service.get().into(),
        outcome: entry.outcome.as_str().to_owned(),
        fault: entry.fault.to_owned(),
        arrived_monotonic_us: entry.arrived.as_micros(),
        late_us: entry.late.get().into(),
        arrived_monotonic_ns: entry.arrived.get(),
        ended_monotonic_ns: entry.ended.get(),
    }
}

impl Control {
    fn stats(&self, dependency: Dependency) -> DependencyStats {
        let counts = self.0.books().counts(dependency);
        let load = self.0.pool(dependency).load();
        DependencyStats {
            dependency: dependency.as_str().to_owned(),
            calls: counts.calls,
            ok: counts.of(Outcome::Ok),
            faulted: counts.of(Outcome::Fault) + counts.of(Outcome::Refused),
            overloaded: counts.of(Outcome::Overload),
            cancelled: counts.of(Outcome::Cancelled),
            expired: counts.of(Outcome::Deadline),
            in_service: load.in_service,
            queued: load.queued,
            servers: load.capacity.servers,
            peak_in_service: load.peak_in_service,
            not_found: counts.of(Outcome::NotFound),
        }
    }
}

#[tonic::async_trait]
impl EmulatorControlService for Control {
    async fn set_phase(
        &self,
        request: Request<SetPhaseRequest>,
    ) -> Result<Response<SetPhaseResponse>, Status> {
        let SetPhaseRequest { phase } = request.into_inner();
        answer(match self.0.set_phase(&phase) {
            Some(previous) => {
                tracing::info!(%phase, previous = %previous.name, "phase changed");
                Ok(SetPhaseResponse { previous_phase: previous.name.clone() })
            }
            None => {
                let known: Vec<&str> =
                    self.0.scenario.phases().iter().map(|phase| phase.name.as_str()).collect();
                Err(Refusal::invalid("phase", format!("phase: expected one of {}", known.join(", "))))
            }
        })
    }

    async fn inject_fault(
        &self,
        request: Request<InjectFaultRequest>,
    ) -> Result<Response<InjectFaultResponse>, Status> {
        let rule = request.into_inner().rule.ok_or_else(|| Refusal::invalid("rule", "rule: expected a rule"));
        answer(rule.and_then(fault_rule).and_then(|rule| {
            let injected = self.0.faults().inject(rule, self.0.clock.now());
            let fault_id = injected.map_err(|_too_many| {
                let message = format!("{} fault rules are in force, the most there may be", crate::FAULTS_MAX);
                Refusal::new(Reason::Overload, message)
            })?;
            tracing::info!(fault_id, dependency = %rule.dependency, effect = rule.effect.as_str(), "fault injected");
            Ok(InjectFaultResponse { fault_id })
        }))
    }

    async fn clear_faults(
        &self,
        request: Request<ClearFaultsRequest>,
    ) -> Result<Response<ClearFaultsResponse>, Status> {
        let cleared = self.0.faults().clear(request.into_inner().fault_id, self.0.clock.now());
        Ok(Response::new(ClearFaultsResponse { cleared: u32::try_from(cleared).unwrap_or(u32::MAX) }))
    }

    async fn set_capacity(
        &self,
        request: Request<SetCapacityRequest>,
    ) -> Result<Response<SetCapacityResponse>, Status> {
        let SetCapacityRequest { dependency: name, servers, queue_max } = request.into_inner();
        answer(dependency("dependency", &name).and_then(|dependency| {
            self.0.pool(dependency).set_capacity(capacity(servers, queue_max)?);
            tracing::info!(%dependency, servers, queue_max, "capacity changed");
            Ok(SetCapacityResponse {})
        }))
    }

    async fn list_journal(
        &self,
        request: Request<ListJournalRequest>,
    ) -> Result<Response<ListJournalResponse>, Status> {
        let ListJournalRequest { limit, request_id, dependency: name, request_id_prefix } =
            request.into_inner();
        let limit = if limit == 0 { PAGE_DEFAULT } else { (limit as usize).min(JOURNAL_MAX) };
        let only = if name.is_empty() { Ok(None) } else { dependency("dependency", &name).map(Some) };
        answer(only.map(|dependency| {
            let request_id = Some(&*request_id).filter(|id| !id.is_empty());
            let books = self.0.books();
            let wanted = Wanted { request_id, prefix: &request_id_prefix, dependency };
            let (entries, dropped) = books.journal(limit, &wanted);
            ListJournalResponse { entries: entries.into_iter().map(journal_entry).collect(), dropped }
        }))
    }

    async fn get_stats(
        &self,
        _request: Request<GetStatsRequest>,
    ) -> Result<Response<GetStatsResponse>, Status> {
        Ok(Response::new(GetStatsResponse {
            dependencies: Dependency::ALL.map(|dependency| self.stats(dependency)).into(),
            timer_lateness_p99_us: self.0.alarms.lateness_p99().map(Nanos::as_micros),
            phase: self.0.phase().name.clone(),
            seed: self.0.seed,
        }))
    }

    async fn revoke_claims(
        &self,
        request: Request<RevokeClaimsRequest>,
    ) -> Result<Response<RevokeClaimsResponse>, Status> {
        answer(revoking::revoke(&self.0, &request.into_inner()))
    }

    async fn set_revocation_feed(
        &self,
        request: Request<SetRevocationFeedRequest>,
    ) -> Result<Response<SetRevocationFeedResponse>, Status> {
        answer(revoking::set_feed(&self.0, &request.into_inner()))
    }

    async fn set_policy_copy(
        &self,
        request: Request<SetPolicyCopyRequest>,
    ) -> Result<Response<SetPolicyCopyResponse>, Status> {
        answer(revoking::set_copy(&self.0, &request.into_inner()))
    }

    async fn read_subject(
        &self,
        request: Request<ReadSubjectRequest>,
    ) -> Result<Response<ReadSubjectResponse>, Status> {
        answer(revoking::read_subject(&self.0, &request.into_inner()))
    }

    async fn read_experiments(
        &self,
        request: Request<ReadExperimentsRequest>,
    ) -> Result<Response<ReadExperimentsResponse>, Status> {
        let experiments = self.0.data.experiments(&request.into_inner().surface).experiments;
        let served = self.0.books().counts(Dependency::Experiment).of(Outcome::Ok);
        Ok(Response::new(ReadExperimentsResponse { experiments, served }))
    }

    async fn reset(&self, _request: Request<ResetRequest>) -> Result<Response<ResetResponse>, Status> {
        self.0.reset();
        tracing::info!("reset");
        Ok(Response::new(ResetResponse {}))
    }
}

#[cfg(test)]
mod tests;
