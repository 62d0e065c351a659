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
    /// Another process of home-api, numbered from 0.
    Replica(u8),
}

/// Names of the further processes of home-api.
const REPLICAS: [&str; 3] = ["home-api-2", "home-api-3", "home-api-4"];

impl Member {
    /// The ingress.
    pub const HOME_API: Self = Self::Service(ServiceName::HomeApi);

    /// All nine in the order of their start: each only calls those before it.
    pub fn all() -> impl Iterator<Item = Self> {
        let backends = ServiceName::ALL.into_iter().filter(|name| *name != ServiceName::HomeApi);
        std::iter::once(Self::Emulator)
            .chain(backends.map(Self::Service))
            .chain(std::iter::once(Self::HOME_API))
    }

    /// All that there can be, further processes of home-api included.
    pub fn every() -> impl Iterator<Item = Self> {
        Self::all().chain(Self::replicas(REPLICAS.len() as u8))
    }

    /// So many further processes of home-api.
    pub(crate) fn replicas(count: u8) -> impl Iterator<Item = Self> {
        (0..count.min(REPLICAS.len() as u8)).map(Self::Replica)
    }

    /// The name used in files and reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Emulator => "emulator",
            Self::Service(name) => name.as_str(),
            Self::Replica(number) => REPLICAS[number as usize % REPLICAS.len()],
        }
    }

    /// What it serves, as `mercury serve` names it.
    pub const fn service(self) -> &'static str {
        match self {
            Self::Replica(_) => Self::HOME_API.as_str(),
            other => other.as_str(),
        }
    }

    /// Whether it answers home pages.
    pub(crate) const fn is_ingress(self) -> bool {
        matches!(self, Self::Service(ServiceName::HomeApi) | Self::Replica(_))
    }

    /// The member of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::every().find(|member| member.as_str() == name)
    }

    /// When it is started, and in reverse when it is stopped: members of one rank go together.
    pub(crate) const fn rank(self) -> u8 {
        match self {
            Self::Emulator => 0,
            Self::Service(ServiceName::HomeApi) | Self::Replica(_) => 2,
            Self::Service(_) => 1,
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
    match member {
        Member::Emulator => {
            flag("--control", listen.control.clone().into());
            flag("--seed", options.seed.to_string().into());
            if let Some(scenario) = &options.scenario {
                flag("--scenario", scenario.into());
            }
        }
        Member::Service(_) | Member::Replica(_) => {
            let name = if let Member::Service(name) = member { name } else { ServiceName::HomeApi };
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
            if name == ServiceName::Experiment {
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
        for member in Member::all() {
            assert_eq!(Member::parse(member.as_str()), Some(member));
        }
    }

    #[test]
    fn a_shell_reads_the_words_back() {
        assert_eq!(shell(["a", "b c", "it's", ""]), r"a 'b c' 'it'\''s' ''");
    }
}
