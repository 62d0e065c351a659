//! Throwaway postgres: a real PostgreSQL server for as long as a test needs one, reached over a Unix socket in a directory of
//! its own, so that it takes no port and no two of them meet. Never a dependency of what is shipped.
//!
//! The server's programs are the system's (`initdb`, `pg_ctl`, `postgres`, `psql` of one directory). Where there are none a test fails
//! and says so: whoever wants to do without sets [`SKIP`]. They refuse to run as root, so root hands them to another user.

use std::{
    env,
    ffi::OsStr,
    fs,
    os::unix::{
        fs::{MetadataExt as _, chown},
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Arc, Mutex, PoisonError, Weak},
};

use tempfile::TempDir;

/// Environment variable that lets tests pass without a PostgreSQL server, when it is `1`.
pub const SKIP: &str = "MERCURY_SKIP_POSTGRES";
/// Environment variable that names the directory of the server's programs.
pub const BIN: &str = "MERCURY_POSTGRES_BIN";
/// The role that owns everything.
pub const OWNER: &str = "mercury";

/// How long `pg_ctl` waits for a start or a stop, in seconds.
const PATIENCE_S: &str = "60";
/// Users that root may hand the server to, the first one that exists.
const USERS: [&str; 2] = ["postgres", "nobody"];
/// Where Debian puts the programs of each version.
const VERSIONS: &str = "/usr/lib/postgresql";

/// A server, with its data in a temporary directory. Dropping it stops the server and removes the data.
pub struct Server {
    bin: PathBuf,
    directory: TempDir,
    user: Option<(u32, u32)>,
    settings: Vec<String>,
}

/// How a server ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Connections are closed and everything is written down.
    Clean,
    /// As a kill or a loss of power would end it; the next start recovers from the log.
    Kill,
}

/// A server that all who hold one at the same time share. Each takes a [`Server::database`] of its own.
///
/// None when [`SKIP`] says so.
///
/// # Panics
/// When there is no server and nobody said that this is fine.
pub fn shared() -> Option<Arc<Server>> {
    static SHARED: Mutex<Weak<Server>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(server) = shared.upgrade() {
        return Some(server);
    }
    let server = Arc::new(Server::start(&[])?);
    *shared = Arc::downgrade(&server);
    Some(server)
}

impl Server {
    /// Starts a server of one's own, with settings as in its configuration file, each `name=value`.
    ///
    /// None when [`SKIP`] says so.
    ///
    /// # Panics
    /// When there is no server and nobody said that this is fine.
    pub fn start(settings: &[&str]) -> Option<Self> {
        if env::var_os(SKIP).is_some_and(|skip| skip == "1") {
            eprintln!("{SKIP}=1: what needs a PostgreSQL server is not tested");
            return None;
        }
        let bin = programs().unwrap_or_else(|| {
            panic!(
                "no PostgreSQL server: expected initdb, pg_ctl, postgres and psql in ${BIN}, in {VERSIONS}/*/bin or in \
                 $PATH (Debian: apt-get install postgresql). {SKIP}=1 passes without."
            )
        });
        let directory = tempfile::Builder::new().prefix("pg").tempdir().expect("a temporary directory");
        let user = is_root().then(unprivileged);
        if let Some((uid, gid)) = user {
            chown(directory.path(), Some(uid), Some(gid)).expect("root may give away a directory");
        }
        let settings = settings.iter().map(|setting| (*setting).to_owned()).collect();
        let server = Self { bin, directory, user, settings };
        let arguments = ["-U", OWNER, "-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C", "-D"];
        server.run("initdb", arguments.map(OsStr::new).into_iter().chain([server.data().as_os_str()]));
        server.resume();
        Some(server)
    }

    /// Starts it again after [`Server::stop`]. Returns when it takes connections.
    pub fn resume(&self) {
        let mut options =
            format!("-c listen_addresses='' -c unix_socket_directories={}", self.socket().display());
        for setting in ["max_connections=40", "shared_buffers=16MB"]
            .into_iter()
            .chain(self.settings.iter().map(String::as_str))
        {
            options.push_str(&format!(" -c {setting}"));
        }
        let (data, log) = (self.data(), self.directory.path().join("log"));
        let arguments = ["start", "-w", "-t", PATIENCE_S, "-o", &options].map(OsStr::new);
        let files = [OsStr::new("-D"), data.as_os_str(), OsStr::new("-l"), log.as_os_str()];
        self.run("pg_ctl", arguments.into_iter().chain(files));
    }

    /// Stops it. Returns when it is gone; its connections are closed then.
    pub fn stop(&self, how: Stop) {
        let mode = if how == Stop::Clean { "fast" } else { "immediate" };
        let data = self.data();
        let arguments = ["stop", "-w", "-t", PATIENCE_S, "-m", mode, "-D"].map(OsStr::new);
        self.run("pg_ctl", arguments.into_iter().chain([data.as_os_str()]));
    }

    /// Makes an empty database and says where it is.
    pub fn database(&self, name: &str) -> String {
        self.psql("postgres", &format!("CREATE DATABASE {name}"));
        self.url(OWNER, name)
    }

    /// The URL of a database for a role.
    pub fn url(&self, role: &str, database: &str) -> String {
        format!("postgres://{role}@localhost/{database}?host={}", self.socket().display())
    }

    /// The file of the socket.
    pub fn socket_file(&self) -> PathBuf {
        self.socket().join(".s.PGSQL.5432")
    }

    /// Runs SQL as the owner of everything, and returns what it prints: values alone, a row a line.
    pub fn psql(&self, database: &str, sql: &str) -> String {
        let socket = self.socket();
        let arguments =
            ["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-U", OWNER, "-d", database, "-c", sql, "-h"];
        let mut command = self.command("psql");
        let output = command.args(arguments).arg(socket).output().expect("psql runs");
        assert!(output.status.success(), "{sql}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().to_owned()
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.bin.join(program));
        command.current_dir(self.directory.path()).env_clear().env("LC_ALL", "C").stdin(Stdio::null());
        if let Some((uid, gid)) = self.user {
            command.uid(uid).gid(gid);
        }
        command
    }

    /// Its output goes to a file: the server that `pg_ctl` starts would hold a pipe open.
    fn run<'a>(&self, program: &str, arguments: impl Iterator<Item = &'a OsStr>) {
        let told = self.directory.path().join(format!("{program}.out"));
        let output = fs::File::create(&told).expect("a file in its directory");
        let errors = output.try_clone().expect("a descriptor");
        let mut command = self.command(program);
        let status = command.args(arguments).stdout(output).stderr(errors).status().expect("it runs");
        let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
        assert!(status.success(), "{program}: {}{}", read(&told), read(&self.directory.path().join("log")));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.data().join("postmaster.pid").exists() {
            let data = self.data();
            let mut command = self.command("pg_ctl");
            let command = command.args(["stop", "-w", "-t", PATIENCE_S, "-m", "immediate", "-D"]).arg(data);
            // A test that fails has more to say than this.
            let _ = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
        }
    }
}

/// The directory that has all programs: as told, of the newest version that is installed, or of the path.
fn programs() -> Option<PathBuf> {
    let complete = |directory: &PathBuf| {
        ["initdb", "pg_ctl", "postgres", "psql"].iter().all(|program| directory.join(program).is_file())
    };
    if let Some(told) = env::var_os(BIN) {
        return Some(PathBuf::from(told)).filter(complete);
    }
    let versions = fs::read_dir(VERSIONS).into_iter().flatten().flatten();
    let mut versions: Vec<_> = versions
        .filter_map(|entry| {
            Some((entry.file_name().to_str()?.parse::<u32>().ok()?, entry.path().join("bin")))
        })
        .collect();
    versions.sort_unstable_by(|left, right| right.cmp(left));
    let path = env::var_os("PATH").unwrap_or_default();
    versions.into_iter().map(|(_, bin)| bin).chain(env::split_paths(&path)).find(complete)
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

/// User and group of somebody without rights, who must have a name: `initdb` asks for it.
fn unprivileged() -> (u32, u32) {
    let accounts = fs::read_to_string("/etc/passwd").expect("the list of users");
    let account = |wanted: &str| {
        let mut line =
            accounts.lines().find(|line| line.split(':').next() == Some(wanted))?.split(':').skip(2);
        Some((line.next()?.parse().ok()?, line.next()?.parse().ok()?))
    };
    USERS.into_iter().find_map(account).expect("a user without rights to run the server as")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_starts_survives_a_kill_and_is_gone_afterwards() {
        let Some(server) = Server::start(&["work_mem=1MB"]) else { return };
        let url = server.database("first");
        assert!(url.starts_with("postgres://mercury@localhost/first?host=/"), "{url}");
        server.psql("first", "CREATE TABLE t (n int); INSERT INTO t VALUES (1), (2)");
        server.stop(Stop::Kill);
        assert!(!server.socket_file().exists() || !server.data().join("postmaster.pid").exists());
        server.resume();
        assert_eq!(server.psql("first", "SELECT n FROM t ORDER BY n"), "1\n2");
        assert_eq!(server.psql("first", "SHOW work_mem"), "1MB");
        assert_eq!(server.psql("first", "SHOW fsync"), "on");
        let directory = server.directory.path().to_owned();
        drop(server);
        assert!(!directory.exists());
    }

    #[test]
    fn those_who_hold_one_at_a_time_share_it() {
        let (Some(one), Some(other)) = (shared(), shared()) else { return };
        assert!(Arc::ptr_eq(&one, &other));
    }
}
