//! Control: the emulator's control port: phases and faults of the policies in, counters and rows out.

use std::{collections::BTreeMap, fmt, time::Duration};

use base::Nanos;
use model::fault::{FaultEffect, FaultRule};
use tonic::transport::{Channel, Endpoint};
use wire::emulator::v1::{
    self as emulator, ClearFaultsRequest, FeedState, GetStatsRequest, InjectFaultRequest, PolicyCopy,
    ReadExperimentsRequest, ReadExperimentsResponse, ReadSubjectRequest, ReadSubjectResponse,
    RevokeClaimsRequest, SetPhaseRequest, SetPolicyCopyRequest, SetRevocationFeedRequest,
    emulator_control_service_client::EmulatorControlServiceClient, fault_rule::Effect,
};

/// Longest wait for a connection or an answer.
const TIMEOUT: Duration = Duration::from_secs(3);

/// The control port did not do what it was asked.
#[derive(Debug)]
pub struct ControlError(String);

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "emulator control: {}", self.0)
    }
}

impl std::error::Error for ControlError {}

/// Counters of the emulator since its start.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// 99th percentile of its own timer lateness, in milliseconds; `None` before the first timer.
    pub timer_p99_ms: Option<f64>,
    /// Calls that arrived, by dependency.
    pub calls: BTreeMap<String, u64>,
    /// Most calls in service at once, by dependency, and the servers that there are.
    pub peaks: BTreeMap<String, (u32, u32)>,
    /// Calls that wait for a server now, by dependency.
    pub waiting: BTreeMap<String, u32>,
    /// Calls that were turned away because the queue was full, by dependency.
    pub overloaded: BTreeMap<String, u64>,
}

/// A client of the control port.
#[derive(Clone, Debug)]
pub struct Control(EmulatorControlServiceClient<Channel>);

impl Control {
    /// For the control port at `address` (host and port). Connects with the first call.
    ///
    /// # Errors
    /// When that is not an address.
    pub fn new(address: &str) -> Result<Self, ControlError> {
        let endpoint = Endpoint::from_shared(format!("http://{address}"))
            .map_err(|error| ControlError(format!("{address}: {error}")))?
            .connect_timeout(TIMEOUT)
            .timeout(TIMEOUT);
        Ok(Self(EmulatorControlServiceClient::new(endpoint.connect_lazy())))
    }

    /// Switches the scenario to `phase`.
    ///
    /// # Errors
    /// When there is no such phase, or no emulator.
    pub async fn set_phase(&mut self, phase: &str) -> Result<(), ControlError> {
        let request = SetPhaseRequest { phase: phase.to_owned() };
        self.0.set_phase(request).await.map_err(|status| fault("SetPhase", &status))?;
        Ok(())
    }

    /// Takes claims away from a subject. The tenant's revocation epoch from now on.
    ///
    /// # Errors
    /// When there is no such subject, or no emulator.
    pub async fn revoke(
        &mut self,
        tenant: &str,
        subject: &str,
        claims: &[String],
    ) -> Result<u64, ControlError> {
        let request = RevokeClaimsRequest {
            tenant: tenant.to_owned(),
            subject: subject.to_owned(),
            claims: claims.to_vec(),
        };
        let answer = self.0.revoke_claims(request).await.map_err(|status| fault("RevokeClaims", &status))?;
        Ok(answer.into_inner().revocation_epoch)
    }

    /// Changes what becomes of the feed of revocations.
    ///
    /// # Errors
    /// When there is no emulator.
    pub async fn feed(&mut self, state: FeedState) -> Result<(), ControlError> {
        let request = SetRevocationFeedRequest { state: state.into() };
        self.0.set_revocation_feed(request).await.map_err(|status| fault("SetRevocationFeed", &status))?;
        Ok(())
    }

    /// Changes how the profile store's copy of the policies differs, for a share of the subjects in parts per million.
    ///
    /// # Errors
    /// When there is no emulator.
    pub async fn policy_copy(&mut self, copy: PolicyCopy, share_ppm: u32) -> Result<(), ControlError> {
        let request = SetPolicyCopyRequest { copy: copy.into(), share_ppm };
        self.0.set_policy_copy(request).await.map_err(|status| fault("SetPolicyCopy", &status))?;
        Ok(())
    }

    /// A subject's rows as the stores hold them.
    ///
    /// # Errors
    /// When there is no such subject or version, or no emulator.
    pub async fn subject(
        &mut self,
        tenant: &str,
        subject: &str,
        policy_version: u64,
    ) -> Result<ReadSubjectResponse, ControlError> {
        let request =
            ReadSubjectRequest { tenant: tenant.to_owned(), subject: subject.to_owned(), policy_version };
        let answer = self.0.read_subject(request).await.map_err(|status| fault("ReadSubject", &status))?;
        Ok(answer.into_inner())
    }

    /// Breaks a dependency as the rule says, after the rules that are there.
    ///
    /// # Errors
    /// When the rule cannot be, or there is no emulator.
    pub async fn inject(&mut self, rule: &FaultRule) -> Result<(), ControlError> {
        let request = InjectFaultRequest { rule: Some(on_the_wire(rule)) };
        self.0.inject_fault(request).await.map_err(|status| fault("InjectFault", &status))?;
        Ok(())
    }

    /// Mends everything that was broken.
    ///
    /// # Errors
    /// When there is no emulator.
    pub async fn clear_faults(&mut self) -> Result<(), ControlError> {
        let request = ClearFaultsRequest { fault_id: 0 };
        self.0.clear_faults(request).await.map_err(|status| fault("ClearFaults", &status))?;
        Ok(())
    }

    /// The experiments of a surface, and how often the catalogue answered.
    ///
    /// # Errors
    /// When there is no emulator.
    pub async fn experiments(&mut self, surface: &str) -> Result<ReadExperimentsResponse, ControlError> {
        let request = ReadExperimentsRequest { surface: surface.to_owned() };
        let answer = self.0.read_experiments(request).await;
        Ok(answer.map_err(|status| fault("ReadExperiments", &status))?.into_inner())
    }

    /// Reads the counters.
    ///
    /// # Errors
    /// When there is no emulator.
    pub async fn stats(&mut self) -> Result<Stats, ControlError> {
        let answer =
            self.0.get_stats(GetStatsRequest {}).await.map_err(|status| fault("GetStats", &status))?;
        let answer = answer.into_inner();
        let each = || answer.dependencies.iter();
        Ok(Stats {
            timer_p99_ms: answer.timer_lateness_p99_us.map(|micros| micros as f64 / 1e3),
            calls: each().map(|one| (one.dependency.clone(), one.calls)).collect(),
            peaks: each().map(|one| (one.dependency.clone(), (one.peak_in_service, one.servers))).collect(),
            waiting: each().map(|one| (one.dependency.clone(), one.queued)).collect(),
            overloaded: each().map(|one| (one.dependency.clone(), one.overloaded)).collect(),
        })
    }
}

fn on_the_wire(rule: &FaultRule) -> emulator::FaultRule {
    let millis = |span: Nanos| u32::try_from(span.as_millis()).unwrap_or(u32::MAX);
    let effect = match rule.effect {
        FaultEffect::Delay(span) => Effect::DelayMs(millis(span)),
        FaultEffect::Status(code) => Effect::StatusCode(code.into()),
        FaultEffect::Hang => Effect::Hang(true),
        FaultEffect::Reset => Effect::Reset(true),
        FaultEffect::Refuse => Effect::Refuse(true),
        FaultEffect::SlowBody(span) => Effect::SlowBodyMs(millis(span)),
    };
    emulator::FaultRule {
        dependency: rule.dependency.as_str().to_owned(),
        workload_class: rule.class.map(|class| class.as_str().to_owned()).unwrap_or_default(),
        share_ppm: rule.share.ppm(),
        duration_ms: rule.duration.map_or(0, millis),
        effect: Some(effect),
    }
}

fn fault(call: &str, status: &tonic::Status) -> ControlError {
    ControlError(format!("{call}: {:?}: {}", status.code(), status.message()))
}
