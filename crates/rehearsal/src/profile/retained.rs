//! Retained: what a request retains while it is held, weighed and not guessed: the growth of a home-api that has just been
//! started, with so many requests open whose bodies are whole but for the last byte.
//!
//! The line through the three sizes tells what a request costs whatever its body, and what each byte of its body costs. A new
//! process for every weighing: what an allocator has kept from the last one would be taken for nothing.

use std::{net::SocketAddr, time::Duration};

use base::{Clock, Nanos, clock::MonotonicClock};
use futures_util::{StreamExt, future::join_all, stream::FuturesUnordered};
use model::load_profile::{Bodies, Figure, RETAINED_BODY_BYTES};
use serde::Serialize;
use tokio::time;

use super::{observed::Observed, peer};
use crate::{
    measure::scrape,
    slo::RehearsalError,
    suite::{Member, Suite},
    usage,
};

/// Streams of one connection.
const STREAMS: usize = 64;
/// Requests that are answered before anything is weighed, so that what is made once is there.
const WARM_UPS: usize = 128;
/// How long the held requests are looked at: below the longest deadline that the policy grants, which ends them.
const LOOK_FOR: Nanos = Nanos::from_millis(1_200);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(20);

/// What was weighed at one size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Retained {
    /// Bytes of each body.
    pub body_bytes: u32,
    /// Requests that were held together.
    pub requests: u32,
    /// Weighings.
    pub rounds: u32,
    /// Bytes retained by a request: the median over the weighings.
    pub bytes_per_request: f64,
    /// The least.
    pub least: f64,
    /// The most.
    pub most: f64,
}

/// Weighs every size in every round. `suite` is left with a home-api that has just been started.
pub(super) async fn weigh(
    bodies: Bodies,
    suite: &mut Suite,
) -> Result<(Observed, Vec<Retained>), RehearsalError> {
    let mut all = Vec::with_capacity(RETAINED_BODY_BYTES.len());
    for body_bytes in RETAINED_BODY_BYTES {
        let mut rounds = Vec::with_capacity(bodies.retained_rounds as usize);
        for _ in 0..bodies.retained_rounds {
            suite.restart(Member::HOME_API).await.map_err(RehearsalError::Launch)?;
            rounds.extend(once(suite, body_bytes as usize, bodies.retained_requests as usize).await);
        }
        rounds.sort_unstable_by(f64::total_cmp);
        if let (Some(least), Some(most)) = (rounds.first(), rounds.last()) {
            all.push(Retained {
                body_bytes,
                requests: bodies.retained_requests,
                rounds: rounds.len() as u32,
                bytes_per_request: rounds[rounds.len() / 2],
                least: *least,
                most: *most,
            });
        }
    }
    let mut observed = Observed::default();
    if let Some((fixed, per_byte)) = line(&all) {
        observed.put(Figure::RetainedFixed, fixed);
        observed.put(Figure::RetainedPerByte, per_byte);
    }
    Ok((observed, all))
}

/// Bytes per request with so many held; `None` when they were not all there together.
async fn once(suite: &Suite, body_bytes: usize, requests: usize) -> Option<f64> {
    let endpoint = suite.endpoints().get(Member::HOME_API)?;
    let home: SocketAddr = endpoint.main()?.parse().ok()?;
    let admin = endpoint.admin.clone();
    let (_, pid) = suite.running().find(|(member, _)| *member == Member::HOME_API)?;
    let (mut senders, mut drivers) = (Vec::new(), Vec::new());
    for _ in 0..requests.div_ceil(STREAMS) {
        let (sender, driver) = peer::http2(home, None).await.ok()?;
        senders.push(sender);
        drivers.push(driver);
    }
    let work = async {
        let warming = (0..WARM_UPS).map(|number| {
            let mut sender = senders[number % senders.len()].clone();
            async move {
                let body = peer::whole(peer::framed(0, 0, &[]));
                let request = peer::page_call(home, "2S").body(body).ok()?;
                // A page or a refusal: either has gone all the way.
                peer::told(sender.send_request(request).await).await
            }
        });
        join_all(warming).await.into_iter().collect::<Option<Vec<_>>>()?;
        let before = usage::read(pid).ok()?.rss_bytes;
        let message = peer::message(body_bytes);
        let most_of_it = peer::framed(0, u32::try_from(body_bytes).ok()?, &message[..body_bytes - 1]);
        let mut held = FuturesUnordered::new();
        for number in 0..requests {
            let request = peer::page_call(home, "2S").body(peer::endless(most_of_it.clone())).ok()?;
            let mut sender = senders[number % senders.len()].clone();
            held.push(async move { sender.send_request(request).await });
        }
        let looking = look(&admin, pid, requests as f64, before);
        tokio::select! {
            biased; // Enough was seen before any of them ends.
            grown = looking => grown,
            // None ends before it is looked at, unless it was refused.
            Some(_ended) = held.next() => None,
        }
    };
    let grown = peer::driven(work, drivers).await?;
    Some(grown as f64 / requests as f64)
}

/// The most that the process grew by while all requests were in flight.
async fn look(admin: &str, pid: u32, requests: f64, before: u64) -> Option<u64> {
    let ends = MonotonicClock.now() + LOOK_FOR;
    let (mut most, mut all_there) = (0, false);
    while MonotonicClock.now() < ends {
        let in_flight = scrape(admin).await;
        let in_flight =
            in_flight.and_then(|s| s.sum("mercury_requests_in_flight", &[("server", "home-api")], &[]));
        all_there |= in_flight.is_some_and(|count| count >= requests);
        most = most.max(usage::read(pid).ok()?.rss_bytes);
        time::sleep(LOOK).await;
    }
    all_there.then(|| most.saturating_sub(before))
}

/// Least squares through the sizes: what there is at zero, and what a byte adds.
fn line(all: &[Retained]) -> Option<(f64, f64)> {
    let count = all.len() as f64;
    if all.len() < 2 {
        return None;
    }
    let x = |one: &Retained| f64::from(one.body_bytes);
    let (mean_x, mean_y) = (
        all.iter().map(x).sum::<f64>() / count,
        all.iter().map(|one| one.bytes_per_request).sum::<f64>() / count,
    );
    let spread: f64 = all.iter().map(|one| (x(one) - mean_x).powi(2)).sum();
    let both: f64 = all.iter().map(|one| (x(one) - mean_x) * (one.bytes_per_request - mean_y)).sum();
    let per_byte = both / spread;
    Some((mean_y - per_byte * mean_x, per_byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_goes_through_what_was_weighed() {
        let weighed = |body_bytes: u32, bytes_per_request: f64| Retained {
            body_bytes,
            bytes_per_request,
            ..Retained::default()
        };
        let all: Vec<_> = RETAINED_BODY_BYTES
            .iter()
            .map(|bytes| weighed(*bytes, 5_000.0 + 1.5 * f64::from(*bytes)))
            .collect();
        let (fixed, per_byte) = line(&all).expect("three sizes");
        assert!((fixed - 5_000.0).abs() < 1e-6 && (per_byte - 1.5).abs() < 1e-9, "{fixed} {per_byte}");
        assert_eq!(line(&all[..1]), None);
    }
}
