//! Figure: the closed set of what a profile can set a condition on, each with its unit and with what it takes to be measured.

/// What must be there for a figure to exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// A measured phase, which the condition names.
    Phase,
    /// The whole run.
    Run,
    /// The whole run, and a dependency that is watched (`dependency` of the profile).
    Dependency,
    /// The table `[readers]`.
    Readers,
    /// The table `[bodies]`.
    Bodies,
    /// The table `[flood]`.
    Flood,
    /// The table `[stopping]`.
    Stopping,
    /// The table `[reload]`.
    Reload,
}

impl Needs {
    /// The table or key that a profile has to declare for it; `None` where it needs none.
    pub const fn key(self) -> Option<&'static str> {
        match self {
            Self::Phase | Self::Run => None,
            Self::Dependency => Some("dependency"),
            Self::Readers => Some("readers"),
            Self::Bodies => Some("bodies"),
            Self::Flood => Some("flood"),
            Self::Stopping => Some("stopping"),
            Self::Reload => Some("reload"),
        }
    }
}

/// Declares the figures once: variant, name, unit, what it needs, whether it is known while the run goes on.
macro_rules! figures {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal, $unit:literal, $needs:ident, $live:literal;)+) => {
        /// Something that is measured in a run.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Figure { $($(#[doc = $doc])+ $variant,)+ }

        impl Figure {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The name in files and reports. It ends with the unit where it has one.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// The unit, as reports write it.
            pub const fn unit(self) -> &'static str {
                match self { $(Self::$variant => $unit,)+ }
            }

            /// What it takes to be measured.
            pub const fn needs(self) -> Needs {
                match self { $(Self::$variant => Needs::$needs,)+ }
            }

            /// Whether it is known while the run goes on, so that a run can be stopped for it.
            pub const fn is_live(self) -> bool {
                match self { $(Self::$variant => $live,)+ }
            }
        }
    };
}

figures! {
    /// Operations that were due, per second.
    Offered = "offered_per_s", "1/s", Phase, false;
    /// Correct answers, per second.
    Accepted = "accepted_per_s", "1/s", Phase, false;
    /// Median latency of correct answers, from the intended start.
    P50 = "p50_ms", "ms", Phase, false;
    /// 99th percentile of the same.
    P99 = "p99_ms", "ms", Phase, false;
    /// Correct answers that came after the objective, over correct answers. The time of a caller who was refused and came again
    /// counts from the first attempt.
    BeyondObjective = "beyond_objective_ratio", "ratio", Phase, false;
    /// Correct within the objective, over offered whose caller stayed.
    Goodput = "goodput_ratio", "ratio", Phase, false;
    /// Refused for lack of capacity, over offered.
    Rejection = "rejection_ratio", "ratio", Phase, false;
    /// Failed in a way that is neither a refusal for lack of capacity nor the deadline, over offered.
    OtherFailure = "other_failure_ratio", "ratio", Phase, false;
    /// Failed in any way, over offered.
    Failure = "failure_ratio", "ratio", Phase, false;
    /// Attempts sent over operations that ended: the amplification by callers who try again.
    Attempts = "attempts_per_operation", "attempts", Phase, false;
    /// 99th percentile of the age of the worse queue of home-api.
    QueueAge = "queue_age_p99_ms", "ms", Phase, false;
    /// Late operations of all members over operations offered.
    LateWork = "late_work_ratio", "ratio", Phase, false;
    /// Calls that reached the watched dependency over operations offered.
    DependencyCalls = "dependency_calls_per_operation", "calls", Phase, false;
    /// From the beginning of the last phase to the first of two seconds with the goodput of the first measured one.
    Recovery = "recovery_s", "s", Run, false;
    /// Answers that said OK and were not correct.
    Mismatch = "core_mismatch", "answers", Run, false;
    /// The most that the resident memory of any one member grew by since the first measured phase began.
    MemoryGrowth = "memory_growth_mib", "MiB", Run, true;
    /// What is left of that growth at the end, of the member where it is most.
    MemoryKept = "memory_kept_mib", "MiB", Run, false;
    /// Most resident memory of home-api.
    HomeMemory = "home_memory_mib", "MiB", Run, true;
    /// Permits of both gates that are held when nothing is in flight any more.
    PermitsHeld = "permits_held", "permits", Run, false;
    /// Profile flights that are open then.
    FlightsOpen = "flights_open", "flights", Run, false;
    /// Requests that home-api still counts as in flight then.
    RequestsOpen = "requests_open", "requests", Run, false;
    /// Handlers that panicked, in any member.
    Panics = "handler_panics", "panics", Run, true;
    /// Requests that home-api ended because nobody can know what became of their exposure, over requests offered to it. What
    /// an answer that failed for another reason says of its exposure is not counted: that is ordinary where a page misses its
    /// deadline.
    Ambiguous = "ambiguous_effects_ratio", "ratio", Run, true;
    /// Exposures of one event with two contents.
    Conflicts = "conflicting_effects", "effects", Run, true;
    /// Spans that no collector got, of all members.
    SpansLost = "telemetry_lost_spans", "spans", Run, true;
    /// Spans that the run's own collector got, of all members.
    SpansCollected = "telemetry_collected_spans", "spans", Run, false;
    /// Longest time without a reading of the metrics of any one member.
    Blind = "blind_s", "s", Run, true;
    /// Most calls that waited for a server of the watched dependency.
    DependencyQueue = "dependency_queue_peak", "calls", Dependency, true;
    /// Most calls that the watched dependency had at once, over the servers that it has.
    DependencyLoad = "dependency_load_peak_ratio", "ratio", Dependency, true;
    /// Calls that the watched dependency turned away because its queue was full.
    DependencyOverload = "dependency_overloads", "calls", Dependency, true;
    /// Peers that stopped reading and were cut, over those that stopped.
    ReadersCut = "readers_cut_ratio", "ratio", Readers, false;
    /// Longest time to the cut: of a stream from the head of its answer, of a connection that never reads from its beginning.
    ReadersCutAfter = "readers_cut_after_s", "s", Readers, false;
    /// Peers that read slowly and got everything, over those that read slowly.
    SlowServed = "slow_readers_served_ratio", "ratio", Readers, false;
    /// Streams that home-api counted as cut.
    StreamsCut = "streams_cut", "streams", Readers, false;
    /// Answers that home-api counted as cut with the connection that did not take them.
    ResponsesCut = "stalled_responses_cut", "answers", Readers, false;
    /// Bodies that were answered as documented, over bodies sent.
    BodiesRight = "bodies_as_documented_ratio", "ratio", Bodies, false;
    /// Longest time from the bytes that break the bound to the refusal.
    BodyRefusal = "body_refusal_ms", "ms", Bodies, false;
    /// Bytes retained per byte of a body that is held.
    RetainedPerByte = "retained_per_body_byte", "bytes", Bodies, false;
    /// Bytes retained by a held request whatever its body: the line through the three sizes at zero.
    RetainedFixed = "retained_fixed_bytes", "bytes", Bodies, false;
    /// Connections that were attempted.
    FloodOffered = "flood_attempts", "connections", Flood, false;
    /// Their rate.
    FloodRate = "flood_attempts_per_s", "1/s", Flood, false;
    /// Most connections that home-api held at once, over its bound: its sockets, as the kernel lists them, less those that it
    /// had beside its connections before the flood.
    FloodOpen = "connections_peak_ratio", "ratio", Flood, true;
    /// Attempts that were either taken or closed at once, over attempts.
    FloodSettled = "flood_settled_ratio", "ratio", Flood, false;
    /// Attempts that were closed at once, over those that were not taken; not known when all were taken.
    FloodRefused = "flood_refused_ratio", "ratio", Flood, false;
    /// 99th percentile from a connection to its refusal.
    FloodRefusal = "flood_refusal_p99_ms", "ms", Flood, false;
    /// Most resident memory of home-api during the flood, over its stated budget.
    FloodMemory = "flood_memory_of_budget_ratio", "ratio", Flood, true;
    /// From the signal to the end of the process.
    StopTook = "stop_took_s", "s", Stopping, false;
    /// Requests in flight at the signal that were answered whole, over those whose reader drains.
    StopAnswered = "stop_answered_ratio", "ratio", Stopping, false;
    /// Operations of the generator that were in flight at the signal and lost their connection or their stream; not known when
    /// none was in flight.
    StopLost = "stop_lost_operations", "operations", Stopping, false;
    /// Connections that were served although readiness had fallen.
    StopAccepted = "accepted_after_unready", "connections", Stopping, false;
    /// Responses whose reader did not drain and that were counted as cut.
    StopCut = "stop_readers_cut", "streams", Stopping, false;
    /// Exit code of the process.
    StopCode = "exit_code", "code", Stopping, false;
    /// Edits of the policy that every service was seen to apply, or to refuse where they were broken.
    ReloadEdits = "reload_edits", "edits", Reload, false;
    /// The same over the edits that the run was to make.
    ReloadMade = "reload_made_ratio", "ratio", Reload, false;
    /// Sound edits that were in force before the next one, over sound edits.
    ReloadApplied = "reload_applied_ratio", "ratio", Reload, false;
    /// Broken edits that were refused and counted, over broken edits.
    ReloadRefused = "reload_refused_ratio", "ratio", Reload, false;
    /// Answers that were of no generation in force between their request and their answer.
    ReloadMixed = "reload_mixed_answers", "answers", Reload, false;
    /// Longest time from an edit to its being in force.
    ReloadTook = "reload_took_ms", "ms", Reload, false;
}

impl Figure {
    /// The figure of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|figure| figure.name() == name)
    }
}
