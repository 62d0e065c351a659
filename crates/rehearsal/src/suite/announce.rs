//! Announce: what a member writes once it is ready, and the list of all addresses that the suite publishes.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::Member;

/// Most bytes of an announcement.
const ANNOUNCE_BYTES_MAX: u64 = 64 << 10;

/// Addresses of one member, each a host and port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// Home, HTTP and gRPC on one port; home-api only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http: Option<String>,
    /// gRPC; all others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grpc: Option<String>,
    /// Liveness, readiness, metrics and policy.
    pub admin: String,
    /// Control of the emulated dependencies; emulator only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control: Option<String>,
    /// Process id.
    pub pid: u32,
}

impl Endpoint {
    /// The address that callers use.
    pub fn main(&self) -> Option<&str> {
        self.http.as_deref().or(self.grpc.as_deref())
    }
}

/// An announcement: the endpoint and who it belongs to.
#[derive(Debug, Deserialize)]
struct Announcement {
    service: String,
    #[serde(flatten)]
    endpoint: Endpoint,
}

/// Reads the announcement of `member` as process `pid`. `None` while it is not there, or is another process's.
///
/// # Errors
/// What is wrong with a file that is there: it is written atomically, so it is never half a file.
pub(crate) fn read(path: &Path, member: Member, pid: u32) -> Result<Option<Endpoint>, String> {
    let text = match fs::metadata(path) {
        Ok(found) if found.len() > ANNOUNCE_BYTES_MAX => return Err("it is larger than 64 KiB".to_owned()),
        Ok(_) => fs::read_to_string(path).map_err(|error| error.to_string())?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let said: Announcement = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    if said.service != member.service() {
        return Err(format!("it announces {:?}", said.service));
    }
    if said.endpoint.pid != pid {
        return Ok(None);
    }
    let whole = said.endpoint.main().is_some()
        && (member == Member::Emulator) == said.endpoint.control.is_some()
        && member.is_ingress() == said.endpoint.http.is_some();
    if whole { Ok(Some(said.endpoint)) } else { Err("an address is missing or out of place".to_owned()) }
}

/// The addresses of the suite by member name, as `endpoints.json` holds them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Endpoints(BTreeMap<String, Endpoint>);

impl Endpoints {
    /// The endpoint of a member that is up.
    pub fn get(&self, member: Member) -> Option<&Endpoint> {
        self.0.get(member.as_str())
    }

    /// All of them, in order of name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Endpoint)> {
        self.0.iter().map(|(name, endpoint)| (name.as_str(), endpoint))
    }

    /// Reads `endpoints.json`.
    ///
    /// # Errors
    /// When the file cannot be read or is not one.
    pub fn read(path: &Path) -> io::Result<Self> {
        serde_json::from_str(&fs::read_to_string(path)?).map_err(io::Error::other)
    }

    pub(crate) fn set(&mut self, member: Member, endpoint: Endpoint) {
        self.0.insert(member.as_str().to_owned(), endpoint);
    }
}

/// Writes `value` as pretty JSON so that a reader sees the old file or the new one, never a part.
///
/// # Errors
/// When the directory cannot be written.
pub fn write_json(path: &Path, value: &impl Serialize) -> io::Result<()> {
    let mut text = serde_json::to_string_pretty(value).map_err(io::Error::other)?;
    text.push('\n');
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".tmp");
    let temporary: PathBuf = path.with_file_name(name);
    fs::write(&temporary, text)?;
    fs::rename(&temporary, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn announced(text: &str) -> Result<Option<Endpoint>, String> {
        let home = tempfile::tempdir().expect("a directory");
        let path = home.path().join("emulator.json");
        fs::write(&path, text).expect("written");
        read(&path, Member::Emulator, 7)
    }

    #[test]
    fn an_announcement_counts_only_from_the_process_that_was_started() {
        let good = r#"{"service":"emulator","grpc":"h:1","admin":"h:2","control":"h:3","pid":7}"#;
        let endpoint = announced(good).expect("well formed").expect("this process");
        assert_eq!(endpoint.main(), Some("h:1"));
        assert_eq!(announced(&good.replace(":7", ":8")), Ok(None), "left by an earlier process");
        assert!(announced(&good.replace(r#""control":"h:3","#, "")).is_err());
        assert!(announced(&good.replace("emulator", "pricing")).is_err());
        assert!(announced(&good[..30]).is_err());
        assert!(announced(&" ".repeat(70_000)).is_err());
        assert_eq!(read(Path::new("/nonexistent/x.json"), Member::Emulator, 7), Ok(None));
    }

    #[test]
    fn endpoints_are_written_whole_and_read_back() {
        let home = tempfile::tempdir().expect("a directory");
        let path = home.path().join("endpoints.json");
        let mut endpoints = Endpoints::default();
        let endpoint = |port: u16| Endpoint {
            http: Some(format!("127.0.0.1:{port}")),
            grpc: None,
            admin: "127.0.0.1:2".to_owned(),
            control: None,
            pid: 3,
        };
        for port in [1, 2] {
            endpoints.set(Member::HOME_API, endpoint(port));
            write_json(&path, &endpoints).expect("written");
        }
        assert_eq!(Endpoints::read(&path).expect("read"), endpoints);
        let text = fs::read_to_string(&path).expect("read");
        assert!(text.contains("\"home-api\"") && !text.contains("grpc"), "{text}");
        assert_eq!(fs::read_dir(home.path()).expect("listed").count(), 1, "no temporary file is left");
    }
}
