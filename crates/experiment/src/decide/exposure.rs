//! Exposure: the record that a subject was shown an arm, its identity and its body.
//!
//! The event id is a UUID of version 5 (RFC 9562, section 5.5) over tenant, subject, experiment, experiment version,
//! variant and logical operation id. A retried operation gives the same id, so it replays; a new operation, another arm
//! or a new version gives another, so it counts.
//!
//! The body is everything that the record states. Two records with one id must have one body: its SHA-256 is kept
//! beside the row, and an id that comes back with another body is a conflict, never an overwrite. When the row was written
//! and by which attempt is not part of the body, since a retry may differ in both.

use std::fmt;

use base::{CallContext, Origin, Region, RequestId, Subject, Tenant, WorkloadClass};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::{Experiment, NAME_BYTES_MAX, Surface, Variant};

/// Namespace of exposure ids. Changing it would make every retry count twice.
const NAMESPACE: Uuid = Uuid::from_u128(0x28c45387_10d0_4479_a021_6187a01293b7);

/// Separates the digests of bodies from other uses of the hash, and this layout from later ones.
const BODY_DOMAIN: &[u8] = b"mercury.experiment.exposure.body.v1";

/// SHA-256 of a body in canonical form.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct BodyDigest(pub [u8; 32]);

impl fmt::Debug for BodyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exposure {
    /// Idempotent id.
    pub event_id: Uuid,
    /// Digest of everything below.
    pub body: BodyDigest,
    /// The tenant.
    pub tenant: Tenant,
    /// The subject.
    pub subject: Subject,
    /// The experiment.
    pub experiment_id: String,
    /// Version of its definition.
    pub experiment_version: u32,
    /// The arm that was shown.
    pub variant: String,
    /// The logical operation.
    pub request_id: RequestId,
    /// Where it was shown.
    pub surface: String,
    /// The subject's workload class.
    pub class: WorkloadClass,
    /// The caller's region.
    pub region: Region,
    /// Whether a customer, a probe or a load test caused it; analyses count customers.
    pub origin: Origin,
}

impl Exposure {
    /// The most that one occupies, in bytes: itself and its texts, each at its longest.
    pub const BYTES_MAX: usize = size_of::<Self>()
        + Tenant::BYTES_MAX
        + Subject::BYTES_MAX
        + RequestId::BYTES_MAX
        + Region::BYTES_MAX
        + 3 * NAME_BYTES_MAX;

    /// What this one occupies, in bytes. Texts that it shares with others count as its own.
    pub fn bytes(&self) -> usize {
        let Statement { tenant, subject, experiment_id, variant, request_id, surface, region, .. } =
            self.statement();
        let texts = [tenant, subject, experiment_id, variant, request_id, surface, region];
        size_of::<Self>() + texts.iter().map(|text| text.len()).sum::<usize>()
    }

    /// The record that the call's subject is shown `arm` of `experiment`.
    pub fn new(context: &CallContext, surface: &Surface, experiment: &Experiment, arm: &Variant) -> Self {
        let identity = &context.identity;
        let mut exposure = Self {
            event_id: Uuid::nil(),
            body: BodyDigest([0; 32]),
            tenant: identity.tenant.clone(),
            subject: identity.subject.clone(),
            experiment_id: experiment.id.clone(),
            experiment_version: experiment.version,
            variant: arm.name.clone(),
            request_id: context.request_id.clone(),
            surface: surface.as_str().to_owned(),
            class: identity.class,
            region: identity.region.clone(),
            origin: context.origin,
        };
        (exposure.event_id, exposure.body) = exposure.statement().seal();
        exposure
    }

    /// What the record states, as text.
    pub fn statement(&self) -> Statement<'_> {
        Statement {
            tenant: self.tenant.as_str(),
            subject: self.subject.as_str(),
            experiment_id: &self.experiment_id,
            experiment_version: self.experiment_version,
            variant: &self.variant,
            request_id: self.request_id.as_str(),
            surface: &self.surface,
            class: self.class.as_str(),
            region: self.region.as_str(),
            origin: self.origin.as_str(),
        }
    }
}

/// What a record states, as it is written down. Whoever reads a record back seals its statement again: the id and the
/// digest beside it are what the service wrote only if they come out the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statement<'a> {
    /// The tenant.
    pub tenant: &'a str,
    /// The subject.
    pub subject: &'a str,
    /// The experiment.
    pub experiment_id: &'a str,
    /// Version of its definition.
    pub experiment_version: u32,
    /// The arm that was shown.
    pub variant: &'a str,
    /// The logical operation.
    pub request_id: &'a str,
    /// Where it was shown.
    pub surface: &'a str,
    /// The subject's workload class.
    pub class: &'a str,
    /// The caller's region.
    pub region: &'a str,
    /// Who caused it.
    pub origin: &'a str,
}

impl Statement<'_> {
    /// The id and the digest that belong to it.
    pub fn seal(&self) -> (Uuid, BodyDigest) {
        let identifying = self.identifying();
        (Uuid::new_v5(&NAMESPACE, &identifying), self.digest(&identifying))
    }

    /// The canonical form of what makes the event: every field preceded by its length in four bytes, so that no two
    /// lists of fields read alike; numbers big-endian.
    fn identifying(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(192);
        field(&mut bytes, self.tenant.as_bytes());
        field(&mut bytes, self.subject.as_bytes());
        field(&mut bytes, self.experiment_id.as_bytes());
        field(&mut bytes, &self.experiment_version.to_be_bytes());
        field(&mut bytes, self.variant.as_bytes());
        field(&mut bytes, self.request_id.as_bytes());
        bytes
    }

    fn digest(&self, identifying: &[u8]) -> BodyDigest {
        let mut rest = Vec::with_capacity(96);
        field(&mut rest, self.surface.as_bytes());
        field(&mut rest, self.class.as_bytes());
        field(&mut rest, self.region.as_bytes());
        field(&mut rest, self.origin.as_bytes());
        let mut hash = Sha256::new();
        hash.update(BODY_DOMAIN);
        hash.update(identifying);
        hash.update(&rest);
        BodyDigest(hash.finalize().into())
    }
}

fn field(bytes: &mut Vec<u8>, value: &[u8]) {
    let len = u32::try_from(value.len()).expect("names are bounded far below 4 GiB");
    bytes.extend_from_slice(&len.to_be_bytes());
    bytes.extend_from_slice(value);
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::HashSet;

    use base::{Deadline, Identity, Nanos, trace::TraceContext};

    use super::*;

    /// The context of a call by `subject` under the operation `request_id`.
    pub(crate) fn context(subject: &str, request_id: &str) -> CallContext {
        CallContext {
            identity: Identity {
                tenant: Tenant::parse("tenant-000").expect("valid"),
                subject: Subject::parse(subject).expect("valid"),
                class: WorkloadClass::Standard,
                region: Region::parse("eu-west").expect("valid"),
            },
            origin: Origin::Customer,
            request_id: RequestId::parse(request_id).expect("valid"),
            attempt: 1,
            arrived: Nanos::ZERO,
            deadline: Deadline::at(Nanos::MAX),
            budget_trail: vec![],
            trace: TraceContext { trace_id: 1, span_id: 1, sampled: false },
            tracestate: String::new(),
        }
    }

    fn made(context: &CallContext, surface: &str, experiment: &str, version: u32, arm: &str) -> Exposure {
        let surface = Surface::new(surface.into()).expect("valid");
        let arm = Variant { name: arm.into(), weight: 1 };
        let experiment = Experiment { id: experiment.into(), version, variants: vec![arm.clone()] };
        Exposure::new(context, &surface, &experiment, &arm)
    }

    #[test]
    fn ids_and_digests_are_pinned() {
        // Computed by an independent program from the description at the top.
        let exposure = made(&context("user-00001", "op-1"), "home", "home-layout", 3, "compact");
        assert_eq!(exposure.event_id.to_string(), "0de8c7d6-21f7-5632-96d5-a444d3a5f112");
        assert_eq!(
            format!("{:?}", exposure.body),
            "1ed818ab5a77cc1296af430a8175e5ef20dfaf00df4db9d75286f84d338c44ea"
        );
        assert_eq!(exposure.event_id.get_version_num(), 5);
    }

    #[test]
    fn a_retry_is_the_same_event_with_the_same_body() {
        let first = context("user-00001", "op-1");
        let retry = CallContext { attempt: 2, arrived: Nanos::from_secs(9), ..first.clone() };
        assert_eq!(made(&first, "home", "e", 1, "a"), made(&retry, "home", "e", 1, "a"));
    }

    #[test]
    fn a_record_of_the_longest_texts_is_as_large_as_one_may_be() {
        let longest = |text: &str, bytes_max| text.repeat(bytes_max);
        let mut context = context(&longest("s", Subject::BYTES_MAX), &longest("r", RequestId::BYTES_MAX));
        context.identity.tenant = Tenant::parse(&longest("t", Tenant::BYTES_MAX)).expect("valid");
        context.identity.region = Region::parse(&longest("r", Region::BYTES_MAX)).expect("valid");
        let name = longest("n", NAME_BYTES_MAX);
        assert_eq!(made(&context, &name, &name, 1, &name).bytes(), Exposure::BYTES_MAX);
        const { assert!(Exposure::BYTES_MAX < 1 << 10, "the policy's file says so") };
    }

    #[test]
    fn whatever_makes_another_event_changes_the_id() {
        let base = context("user-00001", "op-1");
        let mut other_tenant = base.clone();
        other_tenant.identity.tenant = Tenant::parse("tenant-001").expect("valid");
        let events = [
            made(&base, "home", "e", 1, "a"),
            made(&other_tenant, "home", "e", 1, "a"),
            made(&context("user-00002", "op-1"), "home", "e", 1, "a"),
            made(&context("user-00001", "op-2"), "home", "e", 1, "a"),
            made(&base, "home", "f", 1, "a"),
            made(&base, "home", "e", 2, "a"),
            made(&base, "home", "e", 1, "b"),
            // The same letters, split elsewhere.
            made(&base, "home", "e.a", 1, "b"),
            made(&base, "home", "e", 1, "a.b"),
        ];
        let ids: HashSet<_> = events.iter().map(|event| event.event_id).collect();
        assert_eq!(ids.len(), events.len());
    }

    #[test]
    fn whatever_else_the_record_states_changes_the_body_alone() {
        let first = made(&context("user-00001", "op-1"), "home", "e", 1, "a");
        let mut changed = [(); 3].map(|()| context("user-00001", "op-1"));
        changed[0].identity.class = WorkloadClass::Premium;
        changed[1].identity.region = Region::parse("us-east").expect("valid");
        changed[2].origin = Origin::Probe;
        let others = changed.iter().map(|context| made(context, "home", "e", 1, "a"));
        for other in others.chain([made(&context("user-00001", "op-1"), "search", "e", 1, "a")]) {
            assert_eq!(other.event_id, first.event_id);
            assert_ne!(other.body, first.body);
        }
    }
}
