//! Tests of the control API: what is let in does what it says, what is refused names its field and changes nothing.

use futures_util::FutureExt as _;
use tonic::Code;
use tonic_types::StatusExt as _;

use super::*;
use crate::{
    faults::FAULTS_MAX,
    testing::{Call, MS, Rig, SEED, SERVICE, START, code, ms},
};

/// A rig and its control API, whose calls all end without waiting.
struct Panel {
    rig: Rig,
    control: Control,
}

/// The answer of a call, or the field that it was refused for.
type Said<T> = Result<T, Status>;

fn now<T>(answer: impl Future<Output = Said<Response<T>>>) -> Said<T> {
    answer.now_or_never().expect("control calls do not wait").map(Response::into_inner)
}

impl Panel {
    fn new() -> Self {
        let rig = Rig::new();
        let control = Control(Arc::clone(&rig.engine));
        Self { rig, control }
    }

    fn set_phase(&self, phase: &str) -> Said<String> {
        let message = SetPhaseRequest { phase: phase.to_owned() };
        now(self.control.set_phase(Request::new(message))).map(|answer| answer.previous_phase)
    }

    fn inject(&self, rule: Option<api::FaultRule>) -> Said<u64> {
        let message = InjectFaultRequest { rule };
        now(self.control.inject_fault(Request::new(message))).map(|answer| answer.fault_id)
    }

    fn clear(&self, fault_id: u64) -> u32 {
        let message = ClearFaultsRequest { fault_id };
        now(self.control.clear_faults(Request::new(message))).expect("cleared").cleared
    }

    fn set_capacity(&self, dependency: &str, servers: u32, queue_max: u32) -> Said<()> {
        let message = SetCapacityRequest { dependency: dependency.to_owned(), servers, queue_max };
        now(self.control.set_capacity(Request::new(message))).map(|SetCapacityResponse {}| ())
    }

    fn journal(&self, limit: u32, request_id: &str) -> ListJournalResponse {
        self.wanted(ListJournalRequest { limit, request_id: request_id.to_owned(), ..Default::default() })
            .expect("a journal")
    }

    fn wanted(&self, message: ListJournalRequest) -> Said<ListJournalResponse> {
        now(self.control.list_journal(Request::new(message)))
    }

    fn revoke(&self, tenant: &str, subject: &str, claims: &[String]) -> Said<u64> {
        let (tenant, subject, claims) = (tenant.to_owned(), subject.to_owned(), claims.to_vec());
        let message = RevokeClaimsRequest { tenant, subject, claims };
        now(self.control.revoke_claims(Request::new(message))).map(|answer| answer.revocation_epoch)
    }

    fn set_feed(&self, state: i32) -> Said<api::FeedState> {
        let message = SetRevocationFeedRequest { state };
        now(self.control.set_revocation_feed(Request::new(message))).map(|answer| answer.previous())
    }

    fn set_copy(&self, copy: i32, share_ppm: u32) -> Said<api::PolicyCopy> {
        let message = SetPolicyCopyRequest { copy, share_ppm };
        now(self.control.set_policy_copy(Request::new(message))).map(|answer| answer.previous())
    }

    fn read(&self, tenant: &str, subject: &str, policy_version: u64) -> Said<ReadSubjectResponse> {
        let (tenant, subject) = (tenant.to_owned(), subject.to_owned());
        now(self.control.read_subject(Request::new(ReadSubjectRequest { tenant, subject, policy_version })))
    }

    fn stats(&self) -> GetStatsResponse {
        now(self.control.get_stats(Request::new(GetStatsRequest {}))).expect("statistics")
    }

    /// Everything that a control call could change.
    fn state(&self) -> (GetStatsResponse, String) {
        let revocations = self.rig.engine.revocations.look(|state| format!("{state:?}"));
        (self.stats(), format!("{:?} {revocations}", self.rig.engine.faults()))
    }

    /// Serves a call of each id to its end.
    fn serve(&self, ids: &[&str]) {
        for id in ids {
            let mut call = self.rig.begin(Dependency::Profile, self.rig.caller(id));
            self.rig.advance(SERVICE);
            assert_eq!(code(&call.look().expect("due")), Code::Ok);
        }
    }
}

/// The field that a refusal names, both in its details and in its message.
fn field<T: std::fmt::Debug>(said: Said<T>) -> String {
    let status = said.expect_err("refused");
    assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    let details = status.get_error_details();
    let [violation] = &details.bad_request().expect("a violation").field_violations[..] else {
        panic!("one violation: {details:?}")
    };
    assert!(status.message().starts_with(&format!("{}: ", violation.field)), "{status:?}");
    violation.field.clone()
}

fn rule(effect: Effect) -> api::FaultRule {
    api::FaultRule {
        dependency: "pricing".to_owned(),
        workload_class: String::new(),
        share_ppm: 1_000_000,
        duration_ms: 0,
        effect: Some(effect),
    }
}

#[test]
fn a_phase_is_set_by_its_name_and_an_unknown_one_is_refused_with_the_known_ones() {
    let panel = Panel::new();
    assert_eq!(panel.set_phase("slowdown").expect("a phase"), "peak");
    assert_eq!(panel.stats().phase, "slowdown");
    let before = panel.state();
    for name in ["", "Slowdown", "slowdown ", "nowhere"] {
        let said = panel.set_phase(name);
        assert!(said.as_ref().is_err_and(|status| status.message().ends_with("peak, slowdown, recovery")));
        assert_eq!(field(said), "phase");
    }
    assert_eq!(panel.state(), before);
}

#[test]
fn every_effect_is_let_in_at_its_bounds() {
    let effects = [
        (Effect::DelayMs(1), FaultEffect::Delay(MS)),
        (Effect::DelayMs(u32::MAX), FaultEffect::Delay(ms(u32::MAX.into()))),
        (Effect::StatusCode(1), FaultEffect::Status(1)),
        (Effect::StatusCode(16), FaultEffect::Status(16)),
        (Effect::Hang(true), FaultEffect::Hang),
        (Effect::Reset(true), FaultEffect::Reset),
        (Effect::Refuse(true), FaultEffect::Refuse),
        (Effect::SlowBodyMs(1), FaultEffect::SlowBody(MS)),
    ];
    for (asked, effect) in effects {
        let read = fault_rule(rule(asked)).expect("a rule");
        let (dependency, share) = (Dependency::Pricing, Share::ALL);
        assert_eq!(read, FaultRule { dependency, class: None, share, duration: None, effect });
    }
    let narrow = api::FaultRule {
        workload_class: "premium".to_owned(),
        share_ppm: 1,
        duration_ms: 250,
        ..rule(Effect::Hang(true))
    };
    let read = fault_rule(narrow).expect("a rule");
    assert_eq!((read.class, read.share.ppb()), (Some(WorkloadClass::Premium), 1_000));
    assert_eq!(read.duration, Some(ms(250)));
}

#[test]
fn a_rule_that_makes_no_sense_is_refused_by_its_field_and_changes_nothing() {
    let panel = Panel::new();
    let before = panel.state();
    let good = || rule(Effect::Refuse(true));
    let with = |effect| Some(api::FaultRule { effect, ..good() });
    let bad = [
        (None, "rule"),
        (Some(api::FaultRule { dependency: String::new(), ..good() }), "rule.dependency"),
        (Some(api::FaultRule { dependency: "price".to_owned(), ..good() }), "rule.dependency"),
        (Some(api::FaultRule { workload_class: "gold".to_owned(), ..good() }), "rule.workload_class"),
        (Some(api::FaultRule { share_ppm: 0, ..good() }), "rule.share_ppm"),
        (Some(api::FaultRule { share_ppm: 1_000_001, ..good() }), "rule.share_ppm"),
        (with(None), "rule.effect"),
        (with(Some(Effect::DelayMs(0))), "rule.effect"),
        (with(Some(Effect::SlowBodyMs(0))), "rule.effect"),
        (with(Some(Effect::StatusCode(0))), "rule.effect"),
        (with(Some(Effect::StatusCode(17))), "rule.effect"),
        (with(Some(Effect::StatusCode(256 + 14))), "rule.effect"),
        (with(Some(Effect::Hang(false))), "rule.effect"),
        (with(Some(Effect::Reset(false))), "rule.effect"),
        (with(Some(Effect::Refuse(false))), "rule.effect"),
    ];
    for (rule, expected) in bad {
        assert_eq!(field(panel.inject(rule.clone())), expected, "{rule:?}");
        assert_eq!(panel.state(), before, "{rule:?}");
    }
    // The good one would have been noticed.
    panel.inject(Some(good())).expect("a rule");
    assert_ne!(panel.state(), before);
}

#[test]
fn rules_are_cleared_one_by_one_or_all_at_once() {
    let panel = Panel::new();
    let refuse = || Some(rule(Effect::Refuse(true)));
    let ids: Vec<u64> = (0..4).map(|_| panel.inject(refuse()).expect("a rule")).collect();
    assert!(ids.is_sorted_by(|one, two| one < two) && ids[0] > 0, "{ids:?}");
    let answer = || code(&panel.rig.at_once(Dependency::Pricing, panel.rig.caller("op")));
    assert_eq!((panel.clear(ids[1]), panel.clear(ids[1]), panel.clear(u64::MAX)), (1, 0, 0));
    assert_eq!(answer(), Code::Unavailable);
    assert_eq!((panel.clear(0), panel.clear(0)), (3, 0));
    let call = panel.rig.begin(Dependency::Pricing, panel.rig.caller("op"));
    drop(call);
    // A rule that ended by itself is gone already.
    panel.inject(Some(api::FaultRule { duration_ms: 5, ..rule(Effect::Refuse(true)) })).expect("a rule");
    assert_eq!(answer(), Code::Unavailable);
    panel.rig.advance(ms(5));
    assert_eq!(panel.clear(0), 0);
}

#[test]
fn one_rule_too_many_is_refused_and_leaves_the_others() {
    let panel = Panel::new();
    for _ in 0..FAULTS_MAX {
        panel.inject(Some(rule(Effect::Refuse(true)))).expect("room");
    }
    let status = panel.inject(Some(rule(Effect::Refuse(true)))).expect_err("no room");
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(status.message().contains(&FAULTS_MAX.to_string()), "{status:?}");
    assert_eq!(panel.clear(0), FAULTS_MAX as u32);
}

#[test]
fn capacity_is_let_in_at_its_bounds_and_refused_beyond_them() {
    let panel = Panel::new();
    let capacity = || panel.rig.load(Dependency::Pricing).capacity;
    for (servers, queue_max) in [(1, 0), (CAPACITY_MAX, CAPACITY_MAX)] {
        panel.set_capacity("pricing", servers, queue_max).expect("a capacity");
        assert_eq!(capacity(), Capacity { servers, queue_max });
    }
    let before = (panel.state(), capacity());
    let bad = [
        ("price", 1, 1, "dependency"),
        ("", 1, 1, "dependency"),
        ("pricing", 0, 1, "servers"),
        ("pricing", CAPACITY_MAX + 1, 1, "servers"),
        ("pricing", 1, CAPACITY_MAX + 1, "queue_max"),
    ];
    for (dependency, servers, queue_max, expected) in bad {
        assert_eq!(field(panel.set_capacity(dependency, servers, queue_max)), expected);
        assert_eq!((panel.state(), capacity()), before, "{dependency} {servers} {queue_max}");
    }
}

#[test]
fn more_servers_serve_who_waits_and_interrupt_nobody() {
    let panel = Panel::new();
    let rig = &panel.rig;
    let mut calls: Vec<Call> =
        (0..4).map(|at| rig.begin(Dependency::Profile, rig.caller(&at.to_string()))).collect();
    assert_eq!(rig.busy(Dependency::Profile), (2, 2));
    panel.set_capacity("profile", 3, 2).expect("a capacity");
    assert!(calls[2].look().is_none());
    assert_eq!(rig.busy(Dependency::Profile), (3, 1));
    panel.set_capacity("profile", 1, 2).expect("a capacity");
    assert_eq!(rig.busy(Dependency::Profile), (3, 1));
    rig.advance(SERVICE);
    assert!(calls[..3].iter_mut().all(|call| call.look().is_some()));
    assert!(calls[3].look().is_none());
    assert_eq!(rig.busy(Dependency::Profile), (1, 0));
}

#[test]
fn the_journal_gives_the_newest_entries_oldest_first() {
    let panel = Panel::new();
    let ids: Vec<String> = (0..PAGE_DEFAULT + 5).map(|at| format!("op-{at}")).collect();
    panel.serve(&ids.iter().map(String::as_str).collect::<Vec<_>>());
    panel.serve(&["op-1"]);
    let sequences = |limit, id: &str| -> Vec<u64> {
        panel.journal(limit, id).entries.iter().map(|entry| entry.sequence).collect()
    };
    let last = PAGE_DEFAULT as u64 + 6;
    assert_eq!(sequences(3, ""), [last - 2, last - 1, last]);
    assert_eq!(sequences(0, ""), (last - PAGE_DEFAULT as u64 + 1..=last).collect::<Vec<_>>());
    assert_eq!(sequences(u32::MAX, ""), (1..=last).collect::<Vec<_>>());
    assert_eq!(sequences(9, "op-1"), [2, last]);
    assert_eq!(sequences(1, "op-1"), [last]);
    assert!(sequences(9, "op").is_empty());
    let journal = panel.journal(1, "op-1");
    let expected = JournalEntry {
        sequence: last,
        dependency: "profile".to_owned(),
        request_id: "op-1".to_owned(),
        attempt: 1,
        workload_class: "standard".to_owned(),
        budget_us: None,
        budget_trail_us: Vec::new(),
        queue_wait_us: 0,
        service_us: 20_000,
        outcome: "ok".to_owned(),
        fault: String::new(),
        arrived_monotonic_us: START.as_micros() + (last - 1) * SERVICE.as_micros(),
        late_us: 0,
        arrived_monotonic_ns: START.get() + (last - 1) * SERVICE.get(),
        ended_monotonic_ns: START.get() + last * SERVICE.get(),
    };
    assert_eq!((&journal.entries[..], journal.dropped), (&[expected][..], 0));
}

#[test]
fn an_entry_carries_every_value_over() {
    let panel = Panel::new();
    panel.inject(Some(rule(Effect::DelayMs(5)))).expect("a rule");
    let rig = &panel.rig;
    let held: Vec<Call> =
        (0..2).map(|at| rig.begin(Dependency::Pricing, rig.caller(&format!("held-{at}")))).collect();
    let arrived = rig.now();
    let mut call = rig.begin(Dependency::Pricing, rig.bounded("op", ms(10)));
    rig.advance(ms(3));
    drop(held);
    assert!(call.look().is_none());
    rig.advance(ms(9));
    assert_eq!(code(&call.look().expect("due")), Code::DeadlineExceeded);
    let [entry] = &panel.journal(0, "op").entries[..] else { panic!("one entry") };
    assert_eq!((entry.budget_us, entry.queue_wait_us, entry.service_us), (Some(10_000), 3_000, 9_000));
    assert_eq!((entry.outcome.as_str(), entry.fault.as_str(), entry.late_us), ("deadline", "delay", 2_000));
    assert_eq!(entry.arrived_monotonic_ns, arrived.get());
    assert_eq!(entry.ended_monotonic_ns, (arrived + ms(12)).get());
}

#[test]
fn the_journal_is_filtered_by_operation_prefix_and_dependency() {
    let panel = Panel::new();
    panel.serve(&["a-1", "a-2", "b-1"]);
    drop(panel.rig.begin(Dependency::Pricing, panel.rig.caller("a-1")));
    let of = |request_id: &str, prefix: &str, dependency: &str| -> Vec<u64> {
        let message = ListJournalRequest {
            request_id: request_id.to_owned(),
            request_id_prefix: prefix.to_owned(),
            dependency: dependency.to_owned(),
            ..Default::default()
        };
        let told = panel.wanted(message).expect("a journal");
        told.entries.iter().map(|entry| entry.sequence).collect()
    };
    assert_eq!(of("", "a-", ""), [1, 2, 4]);
    assert_eq!(of("", "a-", "profile"), [1, 2]);
    assert_eq!(of("a-1", "", ""), [1, 4]);
    assert_eq!(of("a-1", "a", "pricing"), [4]);
    assert_eq!(of("b-1", "a", ""), [0_u64; 0]);
    let unknown = ListJournalRequest { dependency: "stock".to_owned(), ..Default::default() };
    assert_eq!(field(panel.wanted(unknown)), "dependency");
}

#[test]
fn statistics_tell_every_outcome_and_the_load_of_its_dependency_alone() {
    let panel = Panel::new();
    let rig = &panel.rig;
    assert_eq!(panel.stats().timer_lateness_p99_us, None);
    panel.serve(&["ok-1", "ok-2"]);
    panel.inject(Some(rule(Effect::StatusCode(14)))).expect("a rule");
    let mut fault = rig.begin(Dependency::Pricing, rig.caller("fault"));
    rig.advance(SERVICE);
    assert_eq!(code(&fault.look().expect("due")), Code::Unavailable);
    panel.clear(0);
    panel.inject(Some(rule(Effect::Refuse(true)))).expect("a rule");
    assert_eq!(code(&rig.at_once(Dependency::Pricing, rig.caller("refused"))), Code::Unavailable);

    let mut unknown = rig.prepare(Dependency::Profile, rig.caller("unknown"), false);
    assert!(unknown.look().is_none());
    rig.advance(SERVICE);
    assert_eq!(code(&unknown.look().expect("due")), Code::NotFound);
    let mut short = rig.begin(Dependency::Profile, rig.bounded("short", MS));
    rig.advance(MS);
    assert_eq!(code(&short.look().expect("due")), Code::DeadlineExceeded);
    for id in ["leaver-1", "leaver-2"] {
        drop(rig.begin(Dependency::Profile, rig.caller(id)));
    }
    let _held: Vec<Call> =
        (0..4).map(|at| rig.begin(Dependency::Profile, rig.caller(&format!("held-{at}")))).collect();
    assert_eq!(code(&rig.at_once(Dependency::Profile, rig.caller("full"))), Code::ResourceExhausted);

    let stats = panel.stats();
    assert_eq!((stats.seed, stats.phase.as_str(), stats.timer_lateness_p99_us), (SEED, "peak", Some(0)));
    assert_eq!(stats.dependencies.len(), Dependency::ALL.len());
    let of = |name: &str| {
        stats.dependencies.iter().find(|of| of.dependency == name).cloned().expect("every dependency")
    };
    let idle = |dependency: &str| DependencyStats {
        dependency: dependency.to_owned(),
        servers: 2,
        ..DependencyStats::default()
    };
    let profile = DependencyStats {
        calls: 11,
        not_found: 1,
        ok: 2,
        overloaded: 1,
        cancelled: 2,
        expired: 1,
        in_service: 2,
        queued: 2,
        peak_in_service: 2,
        ..idle("profile")
    };
    assert_eq!(of("profile"), profile);
    let ended = profile.ok + profile.not_found + profile.faulted + profile.overloaded;
    let gone = profile.cancelled + profile.expired;
    assert_eq!(profile.calls, ended + gone + u64::from(profile.in_service + profile.queued));
    let pricing = DependencyStats { calls: 2, faulted: 2, peak_in_service: 1, ..idle("pricing") };
    assert_eq!(of("pricing"), pricing);
    assert_eq!(of("reputation"), idle("reputation"));
}

fn claims(count: usize) -> Vec<String> {
    (0..count).map(|at| format!("claim.{at}")).collect()
}

#[test]
fn claims_are_revoked_and_read_back_behind_no_call() {
    let panel = Panel::new();
    let before = panel.read("tenant-007", "user-00042", 0).expect("rows");
    let policy = before.policy.clone().expect("a policy");
    assert_eq!(before.profile.expect("a row").policy_version, policy.policy_version, "the newest");
    let epoch = panel.revoke("tenant-007", "user-00042", &claims(16)).expect("revoked");
    assert_eq!(epoch, policy.revocation_epoch + 1);
    panel.set_copy(api::PolicyCopy::Stale.into(), 0).expect("a copy");
    let after = panel.read("tenant-007", "user-00042", 0).expect("rows");
    let denials = [policy.denials.clone(), claims(16)].concat();
    assert_eq!(after.profile.expect("a row").policy_version, policy.policy_version, "whatever the copy says");
    let expected = api::FetchPolicyResponse { revocation_epoch: epoch, denials, ..policy };
    assert_eq!(after.policy, Some(expected));
    let first = panel.read("tenant-007", "user-00042", 1).expect("rows").policy.expect("a policy");
    assert_eq!((first.policy_version, first.revocation_epoch), (1, epoch));
    assert_eq!(panel.stats().dependencies.iter().map(|of| of.calls).sum::<u64>(), 0);
}

#[test]
fn a_revocation_that_makes_no_sense_is_refused_by_its_field_and_changes_nothing() {
    let panel = Panel::new();
    let before = panel.state();
    let (tenant, subject) = ("tenant-007", "user-00042");
    let with = |claim: &str| vec!["home.view".to_owned(), claim.to_owned()];
    assert_eq!(field(panel.revoke("tenant-200", subject, &claims(1))), "tenant");
    assert_eq!(field(panel.revoke(tenant, "user-10000", &claims(1))), "subject");
    for bad in [claims(0), claims(17), with(""), with("Home"), with("a b"), with(&"x".repeat(65))] {
        assert_eq!(field(panel.revoke(tenant, subject, &bad)), "claims", "{bad:?}");
    }
    for bad in [0, 4, -1] {
        assert_eq!(field(panel.set_feed(bad)), "state", "{bad}");
        assert_eq!(field(panel.set_copy(bad, 1)), "copy", "{bad}");
    }
    assert_eq!(field(panel.set_copy(api::PolicyCopy::Stale.into(), 1_000_001)), "share_ppm");
    assert_eq!(field(panel.read("", subject, 0)), "tenant");
    assert_eq!(field(panel.read(tenant, "", 0)), "subject");
    assert_eq!(field(panel.read(tenant, subject, 99)), "policy_version");
    assert_eq!(panel.state(), before);
    // The good one would have been noticed.
    panel.revoke(tenant, subject, &claims(1)).expect("revoked");
    assert_ne!(panel.state(), before);
}

#[test]
fn no_room_for_a_revocation_is_refused_with_the_bound() {
    let panel = Panel::new();
    for some in claims(64).chunks(16) {
        panel.revoke("tenant-007", "user-00042", some).expect("room");
    }
    let before = panel.state();
    let status = panel.revoke("tenant-007", "user-00042", &claims(65)[64..]).expect_err("no room");
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(status.message().contains("64"), "{status:?}");
    assert_eq!(panel.state(), before);
}

#[test]
fn feed_and_copy_tell_how_they_were_before() {
    let panel = Panel::new();
    let mut previous = api::FeedState::Live;
    for state in [api::FeedState::Cut, api::FeedState::Silent, api::FeedState::Silent, api::FeedState::Live] {
        assert_eq!(panel.set_feed(state.into()).expect("a state"), previous);
        previous = state;
    }
    let mut previous = api::PolicyCopy::Exact;
    for copy in [api::PolicyCopy::Divergent, api::PolicyCopy::Stale, api::PolicyCopy::Exact] {
        assert_eq!(panel.set_copy(copy.into(), 1_000_000).expect("a copy"), previous);
        previous = copy;
    }
}

#[test]
fn a_reset_leaves_a_clean_slate() {
    let panel = Panel::new();
    let fresh = panel.stats();
    let rows = panel.read("tenant-007", "user-00042", 0).expect("rows");
    panel.revoke("tenant-007", "user-00042", &claims(1)).expect("revoked");
    panel.set_feed(api::FeedState::Cut.into()).expect("a state");
    panel.set_copy(api::PolicyCopy::Divergent.into(), 0).expect("a copy");
    panel.serve(&["ok"]);
    panel.set_phase("slowdown").expect("a phase");
    panel.set_capacity("profile", 9, 9).expect("a capacity");
    panel.inject(Some(rule(Effect::Refuse(true)))).expect("a rule");
    panel.rig.at_once(Dependency::Pricing, panel.rig.caller("op")).expect_err("refused");
    assert_ne!(panel.stats(), fresh);
    now(panel.control.reset(Request::new(ResetRequest {}))).expect("reset");
    assert_eq!(panel.stats(), fresh);
    assert_eq!((panel.journal(0, "").entries.len(), panel.clear(0)), (0, 0));
    assert_eq!(panel.read("tenant-007", "user-00042", 0).expect("rows"), rows);
    assert_eq!(panel.set_feed(api::FeedState::Live.into()).expect("a state"), api::FeedState::Live);
    assert_eq!(panel.set_copy(api::PolicyCopy::Exact.into(), 0).expect("a copy"), api::PolicyCopy::Exact);
    drop(panel.rig.begin(Dependency::Pricing, panel.rig.caller("op")));
}
