//! Harness: starts the suite, talks to it as strangers would, and takes it down again with its books checked.

pub(crate) mod frames;
pub(crate) mod member;
pub(crate) mod scrape;
pub(crate) mod settings;
pub(crate) mod talk;

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf, sync::Arc};

use ::wire::emulator::v1::{
    ClearFaultsRequest, DependencyStats, FaultRule, GetStatsRequest, InjectFaultRequest, JournalEntry,
    ListJournalRequest, SetCapacityRequest, SetPhaseRequest,
    emulator_control_service_client::EmulatorControlServiceClient, fault_rule::Effect,
};
use base::{
    Clock as _, Deadline, Dependency, Nanos, Reason, World, clock::MonotonicClock, clock::SystemWallClock,
    headers,
};
use http::{Request, StatusCode};
use http_body_util::Full;
use model::policy::ServiceName;
use serve::{render, supervisor::Supervisor};
use stack::{CallBudget, Link, LinkConfig};
use tonic::Code;

pub(crate) use self::{
    member::{Member, StateFiles},
    scrape::Scrape,
    settings::{Options, SEED},
    talk::{Answer, GET_HOME, Told, spawn},
};

/// How long a test waits for what must come to pass.
const PATIENCE: Nanos = Nanos::from_secs(10);
/// Between two looks at a counter. It orders nothing; it leaves the processor to those who are looked at.
const LOOK: std::time::Duration = std::time::Duration::from_millis(2);
/// What a busy machine of two processors may add to a bound before a test calls it broken.
pub(crate) const SLACK: Nanos = Nanos::from_millis(250);

/// The whole suite.
pub(crate) struct Suite {
    pub(crate) members: BTreeMap<&'static str, Member>,
    options: Options,
    /// Keeps the directory of its files.
    state: tempfile::TempDir,
    files: StateFiles,
    ledger: PathBuf,
    control: EmulatorControlServiceClient<Link>,
    world: World,
}

impl Suite {
    /// Starts all nine processes over the quick scenario.
    pub(crate) async fn start() -> Self {
        Self::start_with(Options::quick()).await
    }

    pub(crate) async fn start_with(options: Options) -> Self {
        let state = tempfile::tempdir().expect("a directory");
        let files = StateFiles::new(state.path());
        let ledger = files.exposures();
        let id = ::summary::KeyId::parse("suite").expect("an id");
        files.keys().init(&id, &SUMMARY_SEED).expect("keys");
        let mut members = BTreeMap::new();
        members.insert("emulator", member::emulator(&options, None));
        let emulator = members["emulator"].at;
        for dependency in Dependency::ALL {
            let service = ServiceName::of(dependency);
            let member = member::service(&options, service, emulator, BTreeMap::new(), state.path(), None);
            members.insert(service.as_str(), member);
        }
        let mut peers: BTreeMap<String, String> =
            Dependency::ALL.map(|of| (of.to_string(), members[of.as_str()].at.to_string())).into();
        peers.extend(options.strangers.iter().map(|(of, at)| (of.to_string(), at.to_string())));
        let home = member::service(&options, ServiceName::HomeApi, emulator, peers, state.path(), None);
        members.insert("home-api", home);
        let world = member::world("test", Arc::new(Supervisor::new()));
        let control = control(&world, &members["emulator"]);
        Self { members, options, state, files, ledger, control, world }
    }

    pub(crate) fn at(&self, member: &str) -> SocketAddr {
        self.members[member].at
    }

    pub(crate) fn home(&self) -> SocketAddr {
        self.at("home-api")
    }

    pub(crate) fn member(&mut self, name: &str) -> &mut Member {
        self.members.get_mut(name).expect("a member of the suite")
    }

    /// The files that its members share.
    pub(crate) const fn files(&self) -> &StateFiles {
        &self.files
    }

    pub(crate) fn ledger(&self) -> &std::path::Path {
        &self.ledger
    }

    /// A link of this test to one of the members.
    pub(crate) fn link(&self, name: &str) -> Link {
        link(&self.world, self.at(name))
    }

    /// A link of this test to a process beside the suite.
    pub(crate) fn link_to(&self, at: SocketAddr) -> Link {
        link(&self.world, at)
    }

    /// Starts a killed service again, on the address that it had.
    pub(crate) fn restart(&mut self, dependency: Dependency) {
        let service = ServiceName::of(dependency);
        let (at, emulator) = (self.at(service.as_str()), self.at("emulator"));
        let state = self.state.path();
        let member = member::service(&self.options, service, emulator, BTreeMap::new(), state, Some(at));
        self.members.insert(service.as_str(), member);
    }

    /// Starts a killed emulator again, on the address that it had. Its control port moves.
    pub(crate) fn restart_emulator(&mut self) {
        let member = member::emulator(&self.options, Some(self.at("emulator")));
        self.control = control(&self.world, &member);
        self.members.insert("emulator", member);
    }

    /// The emulator's control port.
    pub(crate) fn control(&self) -> EmulatorControlServiceClient<Link> {
        self.control.clone()
    }

    /// Injects a fault into every call of a dependency.
    pub(crate) async fn fault(&self, dependency: Dependency, effect: Effect) -> u64 {
        let rule = FaultRule {
            dependency: dependency.to_string(),
            share_ppm: 1_000_000,
            effect: Some(effect),
            ..FaultRule::default()
        };
        let message = InjectFaultRequest { rule: Some(rule) };
        self.control().inject_fault(bounded(message)).await.expect("a fault").into_inner().fault_id
    }

    pub(crate) async fn clear_faults(&self) {
        self.control().clear_faults(bounded(ClearFaultsRequest { fault_id: 0 })).await.expect("cleared");
    }

    pub(crate) async fn capacity(&self, dependency: Dependency, servers: u32, queue_max: u32) {
        let message = SetCapacityRequest { dependency: dependency.to_string(), servers, queue_max };
        self.control().set_capacity(bounded(message)).await.expect("changed");
    }

    /// Switches the dependencies to a phase of the scenario.
    pub(crate) async fn phase(&self, phase: &str) {
        self.control()
            .set_phase(bounded(SetPhaseRequest { phase: phase.to_owned() }))
            .await
            .expect("a phase");
    }

    /// Calls of one operation to the dependencies, oldest first.
    pub(crate) async fn journal(&self, request_id: &str) -> Vec<JournalEntry> {
        let message =
            ListJournalRequest { limit: 10_000, request_id: request_id.to_owned(), ..Default::default() };
        self.control().list_journal(bounded(message)).await.expect("a journal").into_inner().entries
    }

    pub(crate) async fn all_stats(&self) -> Vec<DependencyStats> {
        self.control().get_stats(bounded(GetStatsRequest {})).await.expect("stats").into_inner().dependencies
    }

    pub(crate) async fn stats(&self, dependency: Dependency) -> DependencyStats {
        let of = self.all_stats().await.into_iter().find(|of| of.dependency == dependency.as_str());
        of.expect("every dependency has counters")
    }

    /// Calls that have reached any dependency.
    pub(crate) async fn calls(&self) -> u64 {
        self.all_stats().await.iter().map(|of| of.calls).sum()
    }

    /// Waits until a dependency's counters say so.
    pub(crate) async fn until(
        &self,
        dependency: Dependency,
        what: &str,
        holds: impl Fn(&DependencyStats) -> bool,
    ) {
        eventually(&format!("{dependency}: {what}"), async || holds(&self.stats(dependency).await)).await;
    }

    pub(crate) async fn scrape(&self, member: &str) -> Scrape {
        Scrape::of(self.members[member].admin).await
    }

    /// What a member says about the migration.
    pub(crate) async fn rollout(&self, member: &str) -> rollout::report::ProcessReport {
        let at = self.members[member].admin;
        let request = Request::get(rollout::report::PATH).header("host", "admin");
        let answer = talk::http1(at, request.body(Full::default()).expect("a request")).await;
        serde_json::from_value(answer.json()).expect("a report")
    }

    /// Decides that the suite is in a phase, and waits until home-api and profile are.
    pub(crate) async fn decide(&self, phase: rollout::Phase) {
        use rollout::ledger::{Decision, Draft, Ledger};
        let mut ledger = Ledger::open(&self.files.decisions(), &SystemWallClock).expect("a ledger");
        let from = ledger.position(rollout::SUBJECT).map(str::to_owned);
        let decision = match from.as_deref().and_then(rollout::Phase::parse) {
            None => Decision::Begin,
            Some(from) if phase < from => Decision::Reverse,
            Some(_) => Decision::Advance,
        };
        let draft = Draft {
            actor: "test".to_owned(),
            command: "test".to_owned(),
            subject: rollout::SUBJECT.to_owned(),
            from,
            to: phase.as_str().to_owned(),
            decision,
            reason: "a test wants it".to_owned(),
            policy: None,
            evidence: serde_json::json!({}),
        };
        let generation = ledger.append(draft, &SystemWallClock).expect("decided").sequence;
        for member in ["home-api", "profile"] {
            eventually(&format!("{member} is in phase {phase}"), async || {
                self.rollout(member).await.generation == generation
            })
            .await;
        }
    }

    /// Waits until home-api has heard every tenant's revocation epoch.
    pub(crate) async fn until_fresh(&self) {
        eventually("revocations are heard of", async || {
            self.rollout("home-api").await.revocations.is_some_and(|stream| stream.fresh)
        })
        .await;
    }

    /// Waits until nothing is under way anywhere: no request of home-api, no call on its links, no call in a dependency.
    pub(crate) async fn until_idle(&self) {
        eventually("nothing is under way", async || {
            let home = self.scrape("home-api").await;
            let stats = self.all_stats().await;
            let quiet = home.sum("mercury_requests_in_flight", &[("server", "home-api")]) == 0.0
                && home.sum("mercury_link_in_flight", &[]) == 0.0
                && stats.iter().all(|of| of.in_service == 0 && of.queued == 0);
            // A call that home-api gave up may still be on its way from a service to its dependency.
            quiet && self.services_are_idle().await
        })
        .await;
    }

    /// Whether no service that runs has a request or a call under way.
    async fn services_are_idle(&self) -> bool {
        for name in Dependency::ALL.map(Dependency::as_str) {
            if !self.members[name].is_running() {
                continue;
            }
            let service = self.scrape(name).await;
            let busy = service.sum("mercury_requests_in_flight", &[("server", name)])
                + service.sum("mercury_link_in_flight", &[]);
            if busy > 0.0 {
                return false;
            }
        }
        true
    }

    /// GET /v2/home over HTTP/1.
    pub(crate) async fn get(&self, head: &[(&str, &str)]) -> Answer {
        talk::http1(self.home(), get_home(head)).await
    }

    /// GetHome over gRPC.
    pub(crate) async fn call(&self, head: &[(&str, &str)]) -> Told {
        talk::call(self.home(), GET_HOME, head, &[]).await
    }

    /// The same request on both faces, at the same time.
    pub(crate) async fn both(&self, head: &[(&str, &str)]) -> Both {
        let (http, grpc) = tokio::join!(self.get(head), self.call(head));
        Both { http, grpc }
    }

    /// Stops everything, home first, and checks that nothing had to be cut and nothing panicked.
    pub(crate) async fn finish(self) {
        assert_eq!(
            self.members.values().filter(|member| member.is_running()).count(),
            9,
            "a member is missing"
        );
        self.finish_rest().await;
    }

    /// As [`Suite::finish`], after a test that has stopped members itself.
    pub(crate) async fn finish_rest(mut self) {
        let services: Vec<_> = Dependency::ALL.iter().map(|of| of.as_str()).collect();
        for together in [&["home-api"][..], &services, &["emulator"]] {
            let running: Vec<_> = together.iter().filter(|name| self.members[**name].is_running()).collect();
            running.iter().for_each(|name| self.member(name).stop());
            for name in running {
                let report = self.member(name).report().await;
                assert!(report.is_clean(), "{name}: {report:?}");
                assert_eq!(report.tasks.panicked, 0, "{name}: {report:?}");
            }
        }
    }
}

/// What both faces said to the same request.
#[derive(Debug)]
pub(crate) struct Both {
    pub(crate) http: Answer,
    pub(crate) grpc: Told,
}

impl Both {
    /// Both faces refused for `reason`, in the words of the one table and with its details.
    #[track_caller]
    pub(crate) fn refused(&self, reason: Reason) {
        let (code, status) = render::codes(reason);
        assert_eq!((self.http.status, self.grpc.code()), (status, code), "{self:?}");
        assert_eq!(self.http.error("reason"), reason.as_str(), "{self:?}");
        assert_eq!(self.http.header(render::REASON_HEADER), reason.as_str(), "{self:?}");
        assert_eq!(self.grpc.header(render::REASON_HEADER), reason.as_str(), "{self:?}");
        let details = self.grpc.details();
        let info = details.error_info().unwrap_or_else(|| panic!("{self:?}"));
        assert_eq!(info.reason, reason.as_str().to_ascii_uppercase());
        assert_eq!(info.domain, render::ERROR_DOMAIN);
    }

    /// Both faces ran out of time over a dependency. Where that is experiment, its effect may be done all the same, and the
    /// caller is told so unless the service itself could still say that it was not.
    #[track_caller]
    pub(crate) fn timed_out(&self, dependency: Dependency) {
        assert_eq!(
            (self.http.status, self.grpc.code()),
            (StatusCode::GATEWAY_TIMEOUT, Code::DeadlineExceeded)
        );
        let ambiguous = Reason::EffectAmbiguousDeadline.as_str();
        for (reason, effect) in [
            (self.http.error("reason"), self.http.error("effect")),
            (self.grpc.header(render::REASON_HEADER).to_owned(), self.grpc.info("effect")),
        ] {
            if dependency == Dependency::Experiment && reason == ambiguous {
                assert_eq!(effect, "ambiguous", "{self:?}");
            } else {
                // The exposure was asked for beside these two.
                let beside = matches!(dependency, Dependency::Inventory | Dependency::Pricing);
                let expected = (Reason::DeadlineExceeded.as_str(), if beside { "ambiguous" } else { "" });
                assert_eq!((reason.as_str(), effect.as_str()), expected, "{self:?}");
            }
        }
    }

    /// Both faces answered with a complete core.
    #[track_caller]
    pub(crate) fn served(&self) -> serde_json::Value {
        assert_eq!(self.http.status, 200, "{self:?}");
        let page = self.http.json();
        assert_eq!(page["core_complete"], true, "{self:?}");
        let message: ::wire::home::v2::GetHomeResponse = self.grpc.message();
        assert!(message.core_complete, "{self:?}");
        page
    }
}

/// Headers of a customer that the data set knows.
pub(crate) const CUSTOMER: [(&str, &str); 4] = [
    (headers::TENANT, "tenant-007"),
    (headers::SUBJECT, "user-00042"),
    (headers::CLASS, "premium"),
    (headers::REGION, "eu-west"),
];

/// [`CUSTOMER`] and more.
pub(crate) fn customer<'a>(more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    CUSTOMER.iter().chain(more).copied().collect()
}

/// As [`customer`], with so much time that no bound of the page is near.
pub(crate) fn patient<'a>(more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    customer(more).into_iter().chain([(headers::GRPC_TIMEOUT, "2S")]).collect()
}

/// The request for the page on the HTTP face.
pub(crate) fn get_home(head: &[(&str, &str)]) -> Request<Full<bytes::Bytes>> {
    let request = Request::get("/v2/home").header("host", "home");
    let request = head.iter().fold(request, |request, (name, value)| request.header(*name, value.as_bytes()));
    request.body(Full::default()).expect("a request")
}

/// Seed of the first key of every suite.
const SUMMARY_SEED: [u8; 32] = [42; 32];

/// The key that profile signs with, where the policy has summaries emitted.
pub(crate) fn summary_issuer() -> ::summary::Issuer {
    ::summary::Issuer::from_seed(::summary::KeyId::parse("suite").expect("an id"), &SUMMARY_SEED)
}

/// Waits until something holds, by looking again and again within [`PATIENCE`].
pub(crate) async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let give_up = now() + PATIENCE;
    while !holds().await {
        assert!(now() < give_up, "it never came about that {what}");
        tokio::time::sleep(LOOK).await;
    }
}

/// The monotonic clock.
pub(crate) fn now() -> Nanos {
    MonotonicClock.now()
}

/// A call that must be over within a span.
pub(crate) fn within<M>(timeout: Nanos, message: M) -> tonic::Request<M> {
    let mut request = tonic::Request::new(message);
    request
        .extensions_mut()
        .insert(CallBudget { deadline: Deadline::after(now(), timeout), reserve: Nanos::ZERO });
    request
}

/// A call that is not about time.
pub(crate) fn bounded<M>(message: M) -> tonic::Request<M> {
    within(PATIENCE, message)
}

/// As [`bounded`], with the customer's identity and more as metadata.
pub(crate) fn identified<M>(message: M, more: &[(&'static str, &str)]) -> tonic::Request<M> {
    let mut request = bounded(message);
    for (name, value) in CUSTOMER.iter().chain(more) {
        request.metadata_mut().insert(*name, value.parse().expect("ASCII"));
    }
    request
}

fn control(world: &World, emulator: &Member) -> EmulatorControlServiceClient<Link> {
    EmulatorControlServiceClient::new(link(world, emulator.control.expect("the emulator has a control port")))
}

/// A link from `world` to an address.
pub(crate) fn link(world: &World, at: SocketAddr) -> Link {
    let config = LinkConfig {
        default_timeout: PATIENCE,
        connect_timeout: Nanos::from_secs(1),
        backoff_min: Nanos::from_millis(5),
        backoff_max: Nanos::from_millis(50),
        keep_alive_interval: Nanos::from_secs(10),
        keep_alive_timeout: Nanos::from_secs(5),
        calls_max: 4_096,
        message_bytes_max: 4 << 20,
        header_bytes_max: 16 << 10,
        stream_window_bytes: 1 << 20,
        connection_window_bytes: 4 << 20,
        reset_streams_max: 1_024,
        reset_stream_memory: Nanos::from_secs(10),
    };
    Link::tcp("link:test", &at.to_string(), config, world.clone()).expect("an address")
}
