//! Flood: several processes of this binary, each offering its part of the connections from addresses of its own.

use std::{net::SocketAddr, path::Path, process::Stdio};

use futures_util::future::try_join_all;
use load::flood::Flooded;
use model::load_profile::{Figure, Flood};
use tokio::process::Command;

use super::observed::{Observed, share};

/// Third part of the first process's addresses: 127.0.11.x, away from what the suite itself is bound to.
const FIRST_NETWORK: u8 = 11;

/// Floods `home` and waits for the last process.
///
/// # Errors
/// What a process said when it could not offer its part.
pub(super) async fn run(
    flood: Flood,
    executable: &Path,
    home: SocketAddr,
) -> Result<(Observed, Flooded), String> {
    let parts = (0..flood.processes).map(|number| part(flood, number, executable, home));
    let parts = try_join_all(parts).await?;
    let all = parts.into_iter().reduce(Flooded::with).unwrap_or_default();
    Ok((figures(&all), all))
}

fn figures(all: &Flooded) -> Observed {
    let mut observed = Observed::default();
    let attempted = all.scheduled.saturating_sub(all.unsent);
    observed.put(Figure::FloodOffered, attempted as f64);
    if all.offered_for_s > 0.0 {
        observed.put(Figure::FloodRate, attempted as f64 / all.offered_for_s);
    }
    observed.put(Figure::FloodSettled, share(all.taken + all.refused, all.scheduled));
    observed.put(Figure::FloodRefused, share(all.refused, attempted.saturating_sub(all.taken)));
    observed.put(Figure::FloodRefusal, all.refusal_p99_ms);
    observed
}

async fn part(flood: Flood, number: u32, executable: &Path, home: SocketAddr) -> Result<Flooded, String> {
    let share_of = |total: u32| total / flood.processes + u32::from(number < total % flood.processes);
    let network = FIRST_NETWORK.saturating_add(u8::try_from(number).unwrap_or(u8::MAX));
    let mut command = Command::new(executable);
    command
        .arg("flood")
        .args(["--target", &home.to_string()])
        .args(["--attempts", &share_of(flood.attempts).to_string()])
        .args(["--attempts-per-s", &share_of(flood.attempts_per_s).max(1).to_string()])
        .args(["--network", &network.to_string()])
        .args(["--sources", &flood.sources.to_string()])
        .args(["--hold-ms", &flood.hold.as_millis().to_string()])
        .stdin(Stdio::null())
        // An interrupted run leaves none behind.
        .kill_on_drop(true);
    let fault = |text: String| format!("the flood's process {number}: {text}");
    let output = command.output().await.map_err(|error| fault(error.to_string()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(fault(format!("{}: {}", output.status, said.trim_end())));
    }
    serde_json::from_slice(&output.stdout)
        .map_err(|error| fault(format!("what it found does not read: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_in_which_nobody_was_refused_shows_no_bound() {
        let flooded = Flooded { scheduled: 1_000, taken: 1_000, ..Flooded::default() };
        assert_eq!(figures(&flooded).get(Figure::FloodRefused, None), None);
        assert_eq!(figures(&flooded).get(Figure::FloodSettled, None), Some(1.0));
        let flooded = Flooded { taken: 200, refused: 600, not_connected: 200, ..flooded };
        assert_eq!(figures(&flooded).get(Figure::FloodRefused, None), Some(0.75));
    }
}
