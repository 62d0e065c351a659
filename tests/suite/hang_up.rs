//! Hang up: a thousand callers that leave after 20 ms under load, while each dependency in turn takes two seconds. What
//! they set going stops with them, everywhere, and everything that it held comes back.

use std::collections::HashMap;

use ::wire::emulator::v1::fault_rule::Effect;
use base::{Dependency, Nanos, headers};

use crate::harness::{
    GET_HOME, Options, Suite, eventually, now, spawn,
    talk::{self, Http2},
};

const CALLERS: usize = 1_000;
const AT_ONCE: usize = 10;
const PATIENCE: Nanos = Nanos::from_millis(20);
/// From the moment at which a caller hung up to the end of the work in the dependency.
const STOP_P99_MAX: Nanos = Nanos::from_millis(10);
/// Fewest callers of a dependency whose work had reached it before they left; without a sample nothing is shown.
const SAMPLE_MIN: usize = 300;

fn head<'a>(subject: &'a str, id: &'a str) -> [(&'a str, &'a str); 6] {
    [
        (headers::TENANT, "tenant-007"),
        (headers::SUBJECT, subject),
        (headers::CLASS, "standard"),
        (headers::REGION, "eu-west"),
        (headers::GRPC_TIMEOUT, "2S"),
        (headers::REQUEST_ID, id),
    ]
}

/// One caller on a connection of many. Returns when it hung up.
async fn hang_up(connection: &Http2, suite_at: std::net::SocketAddr, subject: &str, id: &str) -> Nanos {
    let request = talk::grpc(suite_at, GET_HOME, &head(subject, id));
    let (_response, mut upload) = connection.stream(request, Some(talk::frame(&[]))).await.expect("a stream");
    // The patience itself is what is tested; it orders nothing.
    tokio::time::sleep(PATIENCE.into()).await;
    upload.send_reset(h2::Reason::CANCEL);
    now()
}

#[tokio::test]
#[ignore = "measures milliseconds, so it runs alone: --ignored --test-threads 1, as .ci/run does"]
async fn a_thousand_callers_that_hang_up_leave_nothing_running() {
    let suite = Suite::start_with(Options::sharing()).await;
    for dependency in Dependency::ALL {
        suite.fault(dependency, Effect::DelayMs(2_000)).await;
        suite.capacity(dependency, 512, 512).await;
        let mut left = HashMap::new();
        for round in 0..CALLERS / AT_ONCE {
            let at = suite.home();
            let callers: Vec<_> = (0..AT_ONCE)
                .map(|number| {
                    spawn(async move {
                        let connection = Http2::open(at).await;
                        let id = format!("{dependency}-{round}-{number}");
                        let subject = format!("user-{:05}", round * AT_ONCE + number);
                        (hang_up(&connection, at, &subject, &id).await, id)
                    })
                })
                .collect();
            for caller in callers {
                let (at, id) = caller.await.expect("no panic");
                left.insert(id, at);
            }
        }
        suite.until_idle().await;
        let mut delays: Vec<Nanos> = suite
            .journal("")
            .await
            .iter()
            .filter(|entry| entry.dependency == dependency.as_str() && entry.outcome == "cancelled")
            .filter_map(|entry| {
                let left = left.get(&entry.request_id)?;
                Some(Nanos::new(entry.ended_monotonic_ns).saturating_sub(*left))
            })
            .collect();
        delays.sort_unstable();
        assert!(delays.len() >= SAMPLE_MIN, "{dependency}: only {} were reached in time", delays.len());
        let p99 = delays[delays.len() * 99 / 100];
        println!("{dependency}: work stopped {p99} after its caller at p99 of {}", delays.len());
        assert!(p99 <= STOP_P99_MAX, "{dependency}: {p99} at p99 of {}", delays.len());
        suite.clear_faults().await;
        suite.capacity(dependency, 64, 64).await;
    }
    eventually("every permit and every flight is back", async || {
        let home = suite.scrape("home-api").await;
        home.sum("mercury_home_held", &[]) == 0.0
            && home.sum("mercury_home_waiting", &[]) == 0.0
            && home.sum("mercury_home_flights_open", &[]) == 0.0
    })
    .await;
    let home = suite.scrape("home-api").await;
    let server = ("server", "home-api");
    let offered = home.sum("mercury_requests_offered_total", &[server]);
    assert!(offered >= (CALLERS * Dependency::ALL.len()) as f64);
    assert_eq!(offered, home.sum("mercury_requests_finished_total", &[server]));
    assert_eq!(offered, home.sum("mercury_home_finished_total", &[]), "every page ended once");
    suite.finish().await;
}
