//! Member: one process of the suite: its name, its command line and the files it owns.

use std::{
    ffi::OsString,
    fmt,
    path::{Path, PathBuf},
};

use model::policy::ServiceName;

use super::SuiteOptions;

/// A process of the suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Member {
    /// The emulated dependencies.
    Emulator,
    /// One of the eight services.
    Service(ServiceName),
    /// A further process of a service.
    Replica(Replica),
}

/// A further process of a service that may have several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Replica {
    of: Replicated,
    /// From 2: the first process is the service's own.
    number: u8,
}

/// The services that may have several processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Replicated {
    /// Several share an exposure ledger, which has to be a database.
    Experiment,
    /// Several are several doors to the same suite.
    HomeApi,
}

impl Replicated {
    /// All of them.
    const ALL: [Self; 2] = [Self::Experiment, Self::HomeApi];

    const fn service(self) -> ServiceName {
        match self {
            Self::Experiment => ServiceName::Experiment,
            Self::HomeApi => ServiceName::HomeApi,
        }
    }

    /// Names of its further processes.
    const fn names(self) -> [&'static str; REPLICAS_MAX as usize - 1] {
        match self {
            Self::Experiment => ["experiment-2", "experiment-3", "experiment-4"],
            Self::HomeApi => ["home-api-2", "home-api-3", "home-api-4"],
        }
    }
}

/// Most processes of one service.
pub const REPLICAS_MAX: u8 = 4;

impl Member {
    /// The ingress.
    pub const HOME_API: Self = Self::Service(ServiceName::HomeApi);
    /// Where exposures are recorded.
    pub const EXPERIMENT: Self = Self::Service(ServiceName::Experiment);
    /// A second ingress.
    pub const HOME_API_2: Self = Self::process(Replicated::HomeApi, 2);

    /// All nine in the order of their start: each only calls those before it.
    pub fn all() -> impl Iterator<Item = Self> {
        let backends = ServiceName::ALL.into_iter().filter(|name| *name != ServiceName::HomeApi);
        std::iter::once(Self::Emulator)
            .chain(backends.map(Self::Service))
            .chain(std::iter::once(Self::HOME_API))
    }

    /// All that there can be, further processes included.
    pub fn every() -> impl Iterator<Item = Self> {
        Self::all()
            .chain(Replicated::ALL.into_iter().flat_map(|of| Self::processes(of, REPLICAS_MAX).skip(1)))
    }

    /// The process of a service by number, from 1, which is the service's own. Beyond [`REPLICAS_MAX`] it begins again.
    pub const fn process(of: Replicated, number: u8) -> Self {
        match (number.saturating_sub(1)) % REPLICAS_MAX {
            0 => Self::Service(of.service()),
            further => Self::Replica(Replica { of, number: further + 1 }),
        }
    }

    /// The first processes of a service, so many of them, and at least one.
    pub fn processes(of: Replicated, count: u8) -> impl Iterator<Item = Self> {
        (1..=count.clamp(1, REPLICAS_MAX)).map(move |number| Self::process(of, number))
    }

    /// Its number among the processes of its service, from 1.
    pub const fn number(self) -> u8 {
        match self {
            Self::Replica(replica) => replica.number,
            Self::Emulator | Self::Service(_) => 1,
        }
    }

    /// The service that it is a process of; `None` of the emulator.
    pub const fn service_name(self) -> Option<ServiceName> {
        match self {
            Self::Emulator => None,
            Self::Service(name) => Some(name),
            Self::Replica(replica) => Some(replica.of.service()),
        }
    }

    /// The name used in files and reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Emulator => "emulator",
            Self::Service(name) => name.as_str(),
            Self::Replica(Replica { of, number }) => of.names()[number as usize - 2],
        }
    }

    /// What it serves, as `mercury serve` names it.
    pub const fn service(self) -> &'static str {
        match self {
            Self::Replica(replica) => replica.of.service().as_str(),
            other => other.as_str(),
        }
    }

    /// Whether it answers home pages.
    pub(crate) const fn is_ingress(self) -> bool {
        matches!(self.service_name(), Some(ServiceName::HomeApi))
    }

    /// The member of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::every().find(|member| member.as_str() == name)
    }

    /// When it is started, and in reverse when it is stopped: members of one rank go together.
    pub(crate) const fn rank(self) -> u8 {
        match self.service_name() {
            None => 0,
            Some(ServiceName::HomeApi) => 2,
            Some(_) => 1,
        }
    }
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Where a member is asked to listen; `127.0.0.1:0` picks a free port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listen {
    pub(crate) main: String,
    pub(crate) admin: String,
    /// The emulator's only.
    pub(crate) control: String,
}

impl Listen {
    pub(crate) fn loopback(port: u16) -> Self {
        let any = || "127.0.0.1:0".to_owned();
        Self { main: format!("127.0.0.1:{port}"), admin: any(), control: any() }
    }
}

/// The files of a state directory.
#[derive(Clone, Debug)]
pub(crate) struct StateDir(PathBuf);

impl StateDir {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn lock(&self) -> PathBuf {
        self.0.join("lock")
    }

    pub(crate) fn endpoints(&self) -> PathBuf {
        self.0.join("endpoints.json")
    }

    pub(crate) fn run(&self) -> PathBuf {
        self.0.join("run")
    }

    pub(crate) fn logs(&self) -> PathBuf {
        self.0.join("log")
    }

    pub(crate) fn ledgers(&self) -> PathBuf {
        self.0.join("ledger")
    }

    pub(crate) fn marks(&self) -> PathBuf {
        self.0.join("marks")
    }

    pub(crate) fn announce(&self, member: Member) -> PathBuf {
        self.run().join(format!("{member}.json"))
    }

    pub(crate) fn log(&self, member: Member) -> PathBuf {
        self.logs().join(format!("{member}.log"))
    }
}

/// The arguments of `mercury serve` for a member, without the flag that ties it to this launcher.
pub(crate) fn arguments(
    member: Member,
    listen: &Listen,
    options: &SuiteOptions,
    state: &StateDir,
    peers: &[(Member, String)],
) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = vec!["serve".into(), member.service().into()];
    let mut flag = |name: &str, value: OsString| {
        arguments.push(name.into());
        arguments.push(value);
    };
    flag("--listen", listen.main.clone().into());
    flag("--admin", listen.admin.clone().into());
    flag("--announce", state.announce(member).into());
    flag("--scale", options.scale.to_string().into());
    if options.dilate > 1 {
        flag("--dilate", options.dilate.to_string().into());
    }
    match member.service_name() {
        None => {
            flag("--control", listen.control.clone().into());
            flag("--seed", options.seed.to_string().into());
            if let Some(scenario) = &options.scenario {
                flag("--scenario", scenario.into());
            }
        }
        Some(name) => {
            if let Some(offset_ms) = options.calendar_offsets_ms.get(&member) {
                flag("--calendar-offset-ms", offset_ms.to_string().into());
            }
            if let Some(policy) = &options.policy {
                flag("--policy", policy.into());
            }
            if let Some(files) = &options.migration {
                match name {
                    ServiceName::Profile => flag("--summary-key", files.keys.issuer_file().into()),
                    ServiceName::HomeApi => {
                        flag("--summary-keys", files.keys.set_file().into());
                        flag("--summary-marks", state.marks().join(format!("{member}.ndjson")).into());
                    }
                    _ => {}
                }
                if matches!(name, ServiceName::Profile | ServiceName::HomeApi) {
                    flag("--rollout-ledger", files.ledger.clone().into());
                }
            }
            // Another ledger may be one with a password, which no list of processes shall show: see `environment`.
            if name == ServiceName::Experiment && options.ledger.is_none() {
                flag("--ledger", state.ledgers().join("exposures.db").into());
            }
            for (peer, address) in peers {
                match (peer, name) {
                    (Member::Emulator, ServiceName::HomeApi) => {}
                    (Member::Emulator, _) => flag("--emulator", address.into()),
                    (_, ServiceName::HomeApi) => flag("--peer", format!("{peer}={address}").into()),
                    _ => {}
                }
            }
        }
    }
    arguments
}

/// What a member is told by its environment.
pub(crate) fn environment(member: Member, options: &SuiteOptions) -> Vec<(OsString, OsString)> {
    let ledger = options.ledger.as_ref().filter(|_| member.service_name() == Some(ServiceName::Experiment));
    [
        ("RUST_LOG", options.log_filter.as_ref()),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", options.otlp_endpoint.as_ref()),
        ("MERCURY_LEDGER", ledger),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name.into(), value?.into())))
    .collect()
}

/// A command line that a shell reads back as these words.
pub(crate) fn shell(words: impl IntoIterator<Item = impl AsRef<std::ffi::OsStr>>) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    let quote = |word: &str| {
        if !word.is_empty() && word.chars().all(plain) {
            word.to_owned()
        } else {
            format!("'{}'", word.replace('\'', r"'\''"))
        }
    };
    let words: Vec<String> = words.into_iter().map(|word| quote(&word.as_ref().to_string_lossy())).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(member: Member) -> String {
        let options = SuiteOptions { seed: 7, policy: Some("p.toml".into()), ..SuiteOptions::new("state") };
        let state = StateDir::new("state".into());
        let peers: Vec<_> = Member::all()
            .filter(|peer| peer.rank() < member.rank())
            .map(|peer| (peer, format!("{peer}.test:1")))
            .collect();
        shell(arguments(member, &Listen::loopback(0), &options, &state, &peers))
    }

    #[test]
    fn every_member_gets_the_addresses_that_it_calls_and_no_other() {
        let emulator = line(Member::Emulator);
        assert_eq!(
            emulator,
            "serve emulator --listen 127.0.0.1:0 --admin 127.0.0.1:0 --announce state/run/emulator.json --scale 1 \
             --control 127.0.0.1:0 --seed 7"
        );
        let pricing = line(Member::parse("pricing").expect("a member"));
        assert!(pricing.ends_with("--policy p.toml --emulator emulator.test:1"), "{pricing}");
        let experiment = line(Member::parse("experiment").expect("a member"));
        assert!(experiment.contains("--ledger state/ledger/exposures.db"), "{experiment}");
        let home = line(Member::HOME_API);
        assert_eq!(home.matches("--peer").count(), 7);
        assert!(home.contains("--peer profile=profile.test:1") && !home.contains("--emulator"), "{home}");
    }

    #[test]
    fn ranks_order_the_start_and_names_read_back() {
        let ranks: Vec<u8> = Member::all().map(Member::rank).collect();
        assert_eq!(ranks, [0, 1, 1, 1, 1, 1, 1, 1, 2]);
        for member in Member::every() {
            assert_eq!(Member::parse(member.as_str()), Some(member));
        }
    }

    #[test]
    fn a_service_has_several_processes_of_one_kind() {
        let names = |of, count| Member::processes(of, count).map(Member::as_str).collect::<Vec<_>>();
        assert_eq!(names(Replicated::Experiment, 2), ["experiment", "experiment-2"]);
        assert_eq!(names(Replicated::HomeApi, 0), ["home-api"]);
        assert_eq!(names(Replicated::HomeApi, 9).len(), usize::from(REPLICAS_MAX));
        let second = Member::process(Replicated::Experiment, 2);
        assert_eq!((second.number(), second.service(), second.rank()), (2, "experiment", 1));
        assert!(Member::process(Replicated::HomeApi, 2).is_ingress() && !second.is_ingress());
        assert_eq!(Member::every().count(), 15);
    }

    #[test]
    fn a_ledger_that_is_given_is_told_by_the_environment_and_to_experiment_alone() {
        let ledger = "postgres://m:s3cret@db/exposures".to_owned();
        let options = SuiteOptions { ledger: Some(ledger.clone()), ..SuiteOptions::new("state") };
        let state = StateDir::new("state".into());
        for member in Member::every() {
            let line = shell(arguments(member, &Listen::loopback(0), &options, &state, &[]));
            assert!(!line.contains("--ledger") && !line.contains("s3cret"), "{line}");
            let told = environment(member, &options).iter().any(|(_, value)| *value == *ledger);
            assert_eq!(told, member.service() == "experiment", "{member}");
        }
    }

    #[test]
    fn a_shell_reads_the_words_back() {
        assert_eq!(shell(["a", "b c", "it's", ""]), r"a 'b c' 'it'\''s' ''");
    }
}
