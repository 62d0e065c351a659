//! Usage: CPU and memory of processes, as the kernel counts them.

use std::{fs, io};

use base::Nanos;
use rustix::param::clock_ticks_per_second;

/// What a process has used up to now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time, user and system, all threads.
    pub cpu: Nanos,
    /// Resident memory now, in bytes.
    pub rss_bytes: u64,
    /// Most resident memory so far, in bytes.
    pub rss_peak_bytes: u64,
}

/// Reads the usage of process `pid`.
///
/// # Errors
/// When there is no such process.
pub fn read(pid: u32) -> io::Result<Usage> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let strange = || io::Error::other(format!("/proc/{pid} does not have the expected form"));
    let cpu = cpu(&stat, clock_ticks_per_second()).ok_or_else(strange)?;
    let (now, peak) = resident(&status).ok_or_else(strange)?;
    Ok(Usage { cpu, rss_bytes: now, rss_peak_bytes: peak })
}

/// Lets the most resident memory of process `pid` count from now on.
///
/// # Errors
/// When there is no such process, or it is not ours, or the kernel does not offer it.
pub fn reset_peak(pid: u32) -> io::Result<()> {
    // 5 resets the high-water mark and nothing else.
    fs::write(format!("/proc/{pid}/clear_refs"), "5")
}

/// Sockets that process `pid` holds, of any kind.
///
/// # Errors
/// When there is no such process, or it is not ours.
pub fn sockets(pid: u32) -> io::Result<u32> {
    let mut count = 0;
    for descriptor in fs::read_dir(format!("/proc/{pid}/fd"))? {
        // One that was closed meanwhile is none.
        let Ok(target) = fs::read_link(descriptor?.path()) else { continue };
        count += u32::from(target.to_string_lossy().starts_with("socket:"));
    }
    Ok(count)
}

/// User and system time of a `stat` line. The name in parentheses may itself hold blanks and parentheses.
fn cpu(stat: &str, ticks_per_s: u64) -> Option<Nanos> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split_ascii_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    let both = ticks()? + ticks()?;
    Some(Nanos::new(both.checked_mul(1_000_000_000)? / ticks_per_s.max(1)))
}

/// `VmRSS` and `VmHWM` of a `status` file, in bytes.
fn resident(status: &str) -> Option<(u64, u64)> {
    let value = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
        line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib * 1_024)
    };
    Some((value("VmRSS")?, value("VmHWM")?))
}

/// What a reader needs to know about the machine.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Machine {
    /// Cores that this process may use.
    pub cores: usize,
    /// Processor model.
    pub cpu_model: Option<String>,
    /// Memory in bytes.
    pub memory_bytes: Option<u64>,
    /// Kernel name and release.
    pub kernel: String,
}

impl Machine {
    /// This machine.
    pub fn this() -> Self {
        let kernel = |name: &str| {
            fs::read_to_string(format!("/proc/sys/kernel/{name}"))
                .map_or_else(|_| String::new(), |t| t.trim().to_owned())
        };
        let field = |path: &str, key: &str| {
            let text = fs::read_to_string(path).ok()?;
            let line = text.lines().find(|line| line.starts_with(key))?;
            line.split_once(':').map(|(_, value)| value.trim().to_owned())
        };
        let memory = field("/proc/meminfo", "MemTotal").and_then(|value| {
            value.strip_suffix(" kB").and_then(|kib| kib.parse::<u64>().ok()).map(|kib| kib * 1_024)
        });
        Self {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            cpu_model: field("/proc/cpuinfo", "model name"),
            memory_bytes: memory,
            kernel: format!("{} {}", kernel("ostype"), kernel("osrelease")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_strange_process_name_does_not_shift_the_fields() {
        let stat = "7 (a) b (c)) S 1 7 7 0 -1 4194304 90 0 0 0 250 50 0 0 20 0 1 0 100 1000 200";
        assert_eq!(cpu(stat, 100), Some(Nanos::from_secs(3)));
        assert_eq!(cpu("7 (x) S 1", 100), None);
    }

    #[test]
    fn resident_memory_is_read_in_bytes() {
        let status = "Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n";
        assert_eq!(resident(status), Some((1 << 20, 2 << 20)));
        assert_eq!(resident("Name:\tx\n"), None);
    }

    #[test]
    fn sockets_are_counted_and_nothing_else() {
        let pid = std::process::id();
        let before = sockets(pid).expect("this process");
        let _file = fs::File::open("/proc/self/stat").expect("a file");
        let held: Vec<_> =
            (0..64).map(|_| std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket")).collect();
        // Other tests of this process have sockets as well, but not so many.
        let now = sockets(pid).expect("this process");
        assert!(now >= before.saturating_sub(32) + 64 && now <= before + 64 + 32, "{before} {now}");
        drop(held);
        assert!(sockets(u32::MAX).is_err());
    }

    #[test]
    fn this_process_has_used_something() {
        let before = read(std::process::id()).expect("this process");
        assert!(before.rss_bytes > 0 && before.rss_peak_bytes >= before.rss_bytes);
        assert!(read(u32::MAX).is_err());
        assert!(reset_peak(u32::MAX).is_err());
        assert!(Machine::this().cores >= 1);
    }
}
