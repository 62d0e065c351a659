//! Audit: what follows from a policy's figures taken together. A valid policy can still hold rules that cannot close, as
//! the old design's did: serial timeouts that add up to more than the objective that they are meant to keep.

use std::fmt;

use base::{Dependency, Nanos, WorkloadClass};
use control::mode::Mode;

use super::{Boundary, Mechanism, Policy, ServiceName, longest_mandatory_branch};

/// A rule that a policy's figures should keep together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// What a page waits for one after the other fits the objective.
    SerialTimeouts,
    /// What a page need not wait for cannot keep it from the objective.
    OptionalTimeout,
    /// Work ends with its caller.
    WorkOutlivesCaller,
    /// Every queue is bounded.
    UnboundedQueue,
    /// No class can hold every permit.
    ClassHoldsAll,
    /// The longest wait and the critical path fit the objective together.
    QueueAndPath,
    /// A flight may last as long as a profile read usefully does.
    FlightTooShort,
    /// HTTP/2 lets as many streams in as there are slots, so that it is no queue of its own.
    StreamsBelowSlots,
    /// A stopping process waits as long as the longest deadline that it honours.
    DrainTooShort,
}

impl Rule {
    /// The rule's name in output.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SerialTimeouts => "serial_timeouts",
            Self::OptionalTimeout => "optional_timeout",
            Self::WorkOutlivesCaller => "work_outlives_caller",
            Self::UnboundedQueue => "unbounded_queue",
            Self::ClassHoldsAll => "class_holds_all",
            Self::QueueAndPath => "queue_and_path",
            Self::FlightTooShort => "flight_too_short",
            Self::StreamsBelowSlots => "streams_below_slots",
            Self::DrainTooShort => "drain_too_short",
        }
    }
}

/// A rule that cannot close, with the figures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Which rule.
    pub rule: Rule,
    /// The keys involved and what they add up to.
    pub detail: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule.as_str(), self.detail)
    }
}

/// What follows from a policy's figures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audit {
    /// The serial part of a page, in order: each step and the longest that it usefully takes.
    pub critical_path: Vec<(Dependency, Nanos)>,
    /// What ingress keeps for the answer.
    pub reserve: Nanos,
    /// What the objective leaves beside path and reserve: for queues, and for being slower than that.
    pub slack: Nanos,
    /// Longest that a page can take when nothing but timeouts bounds it; `None` where the deadline does, for everybody.
    pub serial_timeouts: Option<Nanos>,
    /// Every rule that cannot close.
    pub findings: Vec<Finding>,
}

impl Policy {
    /// Looks at the figures together.
    pub fn audit(&self) -> Audit {
        let longest = longest_mandatory_branch(&self.branches);
        let steps = [Dependency::Profile, Dependency::Entitlement, longest];
        let critical_path: Vec<_> = steps.map(|step| (step, self.branch(step).worst_useful)).into();
        let path = critical_path.iter().fold(Nanos::ZERO, |sum, (_, useful)| sum + *useful);
        let everywhere = |mechanism| self.is_everywhere(mechanism);
        let timeouts = self.serial_timeouts();
        let serial_timeouts = (!everywhere(Mechanism::Deadline)).then_some(timeouts);
        let mut findings = Vec::new();
        let mut find = |rule, detail: String| findings.push(Finding { rule, detail });

        if serial_timeouts.is_some() && timeouts > self.objective {
            find(
                Rule::SerialTimeouts,
                format!(
                    "independent_timeout_ms of profile, entitlement and the slowest branch add up to {} ms, above objective_ms of \
                 {}; mechanisms.deadline is not on for everybody",
                    timeouts.as_millis(),
                    self.objective.as_millis(),
                ),
            );
        }
        let optional = Dependency::ALL.into_iter().filter(|branch| branch.is_optional());
        let waited = optional.map(|branch| (self.branch(branch).independent_timeout, branch)).max();
        if let Some((timeout, branch)) = waited
            && !(everywhere(Mechanism::Deadline) || everywhere(Mechanism::Degradation))
            && timeout + self.response_reserve > self.objective
        {
            find(
                Rule::OptionalTimeout,
                format!(
                    "a page waits up to {} ms for {branch}, which it could go without; objective_ms is {}",
                    timeout.as_millis(),
                    self.objective.as_millis(),
                ),
            );
        }
        if !everywhere(Mechanism::Cancellation) {
            find(
                Rule::WorkOutlivesCaller,
                format!(
                    "mechanisms.cancellation is not on for everybody: work goes on for up to {} ms after its caller left",
                    timeouts.as_millis(),
                ),
            );
        }
        for boundary in Boundary::ALL {
            self.audit_boundary(boundary, path, &mut find);
        }
        let flight = self.coalescing.duration_max;
        let read = self.branch(Dependency::Profile).worst_useful;
        if self.mechanism(Mechanism::Coalescing).mode() != Mode::Off && flight < read {
            find(
                Rule::FlightTooShort,
                format!(
                    "coalescing.duration_max_ms of {} is below branches.profile.worst_useful_ms of {}",
                    flight.as_millis(),
                    read.as_millis(),
                ),
            );
        }
        let (streams, slots) = (self.limits.streams_max, self.admission(Boundary::Endpoint).slots);
        if streams < slots {
            find(
                Rule::StreamsBelowSlots,
                format!(
                    "limits.streams_max of {streams} makes HTTP/2 a hidden queue before the {slots} slots of endpoint"
                ),
            );
        }
        let honoured = self.service(ServiceName::HomeApi).timeout_max;
        if self.drain < honoured {
            find(
                Rule::DrainTooShort,
                format!(
                    "drain_ms of {} cuts requests whose deadline of up to {} ms was accepted",
                    self.drain.as_millis(),
                    honoured.as_millis(),
                ),
            );
        }
        let slack = self.objective.saturating_sub(path + self.response_reserve);
        Audit { critical_path, reserve: self.response_reserve, slack, serial_timeouts, findings }
    }

    fn audit_boundary(&self, boundary: Boundary, path: Nanos, find: &mut impl FnMut(Rule, String)) {
        let bounds = self.admission(boundary);
        if !self.is_everywhere(Mechanism::Admission) {
            find(
                Rule::UnboundedQueue,
                format!(
                    "mechanisms.admission is not on for everybody: waiting for one of the {} slots of {boundary} has no bound \
                 in number or time",
                    bounds.slots,
                ),
            );
            return;
        }
        let gate = bounds.gate();
        for class in WorkloadClass::ALL {
            if gate.reach(class) == gate.limit() {
                find(
                    Rule::ClassHoldsAll,
                    format!(
                        "{class} can hold all {} permits of admission.{boundary}: give another class a floor, or it a ceiling",
                        gate.limit(),
                    ),
                );
            }
        }
        let needed = bounds.queue_age_max() + path + self.response_reserve;
        if needed > self.objective {
            find(
                Rule::QueueAndPath,
                format!(
                    "admission.{boundary}.queue_age_max_ms, the critical path and the reserve need {} ms, above objective_ms of {}",
                    needed.as_millis(),
                    self.objective.as_millis(),
                ),
            );
        }
    }

    /// Whether a mechanism acts on every request.
    fn is_everywhere(&self, mechanism: Mechanism) -> bool {
        self.mechanism(mechanism).is_everywhere()
    }

    /// Longest that a page can take when each step has a timeout of its own.
    fn serial_timeouts(&self) -> Nanos {
        let timeout = |branch| self.branch(branch).independent_timeout;
        let serial = [Dependency::Profile, Dependency::Entitlement];
        let parallel =
            Dependency::ALL.into_iter().filter(|branch| !serial.contains(branch)).map(timeout).max();
        timeout(serial[0]) + timeout(serial[1]) + parallel.unwrap_or_default()
    }
}
