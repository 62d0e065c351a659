//! Stopping: SIGTERM to home-api with everything open that could hold its drain, and what becomes of each.
//!
//! Every peer is there before the signal, by a handshake and not by time: idle connections were answered once, watches have
//! their first message, and on the connections whose requests are to be in flight a last one that needs no work was answered
//! after them, so that they had all been taken.

use std::{
    cell::Cell,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use base::{Clock, Nanos, clock::MonotonicClock};
use futures_util::future::{join_all, try_join_all};
use http::StatusCode;
use http_body_util::BodyExt;
use hyper::{Response, body::Incoming};
use model::load_profile::{Figure, Stopping};
use rustix::process::{Pid, Signal, kill_process};
use tokio::{io::AsyncWriteExt, net::TcpStream, time};

use super::{
    observed::{Observed, share},
    peer::{self, Sender},
    readers,
};
use crate::measure::scrape;

/// The method of a health watch.
const WATCH: &str = "/grpc.health.v1.Health/Watch";
/// What a slow reader grants its request, in the form of `grpc-timeout`: it is cut then.
const SLOW_TIMEOUT: &str = "900m";
/// One more of them lasts longer, so that the process is still there when the others have been counted as cut.
const WITNESS_TIMEOUT: &str = "2S";
/// How often a connection is tried after readiness has fallen.
const TRIES: usize = 8;
/// Between two looks at a process that is ending.
const LOOK: Duration = Duration::from_millis(10);
/// How long the signal may take to show.
const UNREADY_MAX: Duration = Duration::from_secs(5);

/// Whom to stop, and where it is seen.
#[derive(Clone, Debug)]
pub(super) struct Subject {
    pub(super) home: SocketAddr,
    pub(super) admin: String,
    pub(super) pid: u32,
}

/// Why the process could not be stopped as planned.
#[derive(Debug)]
pub(super) struct NotStopped(pub(super) String);

fn missing(what: &str) -> impl Fn() -> NotStopped {
    let text = format!("before the signal: {what}");
    move || NotStopped(text.clone())
}

/// Opens the peers, signals, and watches until the admin port is gone. `signalled` is set at the signal, and `ready_until` to
/// the last moment from which on home-api was still seen ready. The end of the process
/// itself is seen by its launcher.
pub(super) async fn run(
    stopping: Stopping,
    subject: &Subject,
    signalled: &Cell<Option<Nanos>>,
    ready_until: &Cell<Option<Nanos>>,
) -> Result<Observed, NotStopped> {
    let home = subject.home;
    // Kept open to the end; whether they are told to go is not what is asked here.
    let _idle = try_join_all((0..stopping.idle).map(|_| idle(home))).await?;
    let silent = (0..stopping.silent).map(|_| peer::connect(home, None));
    let _silent =
        try_join_all(silent).await.map_err(|error| NotStopped(format!("a silent connection: {error}")))?;
    let io = |error: std::io::Error| NotStopped(format!("a connection to home-api: {error}"));
    let (watching, watching_driver) = peer::http2(home, None).await.map_err(io)?;
    let (slow, slow_driver) = peer::http2(home, Some(0)).await.map_err(io)?;
    let (asking, asking_driver) = peer::http2(home, None).await.map_err(io)?;
    let work = async {
        let _watches = try_join_all((0..stopping.watches).map(|_| watch(watching.clone(), home))).await?;
        let slow_ones = (0..stopping.slow_readers).map(|_| headed(slow.clone(), home, SLOW_TIMEOUT));
        let witness = headed(slow.clone(), home, WITNESS_TIMEOUT);
        // The heads of slow readers come, their answers stay.
        let slow_ones = try_join_all(slow_ones.chain([witness])).await?;
        let in_flight = (0..stopping.in_flight).map(|_| {
            let mut asking = asking.clone();
            let body = peer::whole(peer::framed(0, 0, &[]));
            let request = peer::page_call(home, WITNESS_TIMEOUT).body(body);
            request.map(|request| asking.send_request(request)).map_err(|error| NotStopped(error.to_string()))
        });
        let in_flight: Vec<_> = in_flight.collect::<Result<_, _>>()?;
        let in_flight =
            join_all(in_flight.into_iter().map(|response| async { peer::told(response.await).await }));
        let before = cut(subject).await;
        let after_them = async {
            taken(asking.clone(), home).await?;
            signalled.set(Some(MonotonicClock.now()));
            ready_until.set(signalled.get());
            terminate(subject.pid)?;
            Ok(watch_the_end(subject, before, ready_until).await)
        };
        let slow_ones = join_all(slow_ones.into_iter().map(cut_short));
        let (answers, ending, slow_ones) = tokio::join!(in_flight, after_them, slow_ones);
        let answered = answers.iter().filter(|told| told.as_ref().is_some_and(peer::Told::is_ok)).count();
        let mut observed: Observed = ending?;
        // Who was turned away for lack of capacity was not in flight.
        let turned_away = |told: &&Option<peer::Told>| {
            told.as_ref().is_some_and(|told| told.grpc == Some(peer::RESOURCE_EXHAUSTED))
        };
        let in_flight = answers.len() - answers.iter().filter(turned_away).count();
        observed.put(Figure::StopAnswered, share(answered as u64, in_flight as u64));
        // What home-api counted stands only if the peers saw no fewer of them.
        let seen = slow_ones.iter().filter(|cut| **cut).count() as f64;
        let counted = observed.get(Figure::StopCut, None);
        observed.put(Figure::StopCut, counted.map(|counted| counted.min(seen)));
        Ok(observed)
    };
    let drivers: [std::pin::Pin<Box<dyn Future<Output = ()>>>; 3] =
        [Box::pin(watching_driver), Box::pin(slow_driver), Box::pin(asking_driver)];
    peer::driven(work, drivers).await
}

async fn cut(subject: &Subject) -> Option<f64> {
    readers::cut(&scrape(&subject.admin).await?)
}

/// A connection that was answered once.
async fn idle(home: SocketAddr) -> Result<TcpStream, NotStopped> {
    let io = |error: std::io::Error| NotStopped(format!("an idle connection: {error}"));
    let mut stream = peer::connect(home, None).await.map_err(io)?;
    // Without an identity: an answer of any kind makes it an idle one.
    stream.write_all(b"GET /v2/home HTTP/1.1\r\nhost: home\r\n\r\n").await.map_err(io)?;
    let answer = time::timeout(peer::PATIENCE, peer::answer(&mut stream, 4_096, Duration::ZERO)).await;
    answer.ok().flatten().map(|_| stream).ok_or_else(missing("an idle connection was not answered"))
}

/// A health watch that has its first message.
async fn watch(mut sender: Sender, home: SocketAddr) -> Result<Incoming, NotStopped> {
    let none = missing("a health watch was not answered");
    let body = peer::whole(peer::framed(0, 0, &[]));
    let request = peer::call(home, WATCH).body(body).map_err(|_| none())?;
    let mut body = sender.send_request(request).await.map_err(|_| none())?.into_body();
    let first = time::timeout(peer::PATIENCE, body.frame()).await;
    first.ok().flatten().and_then(Result::ok).map(|_| body).ok_or_else(none)
}

/// An answer whose head has come and whose message cannot. Health is asked for, since no gate turns it away.
async fn headed(
    mut sender: Sender,
    home: SocketAddr,
    timeout: &str,
) -> Result<Response<Incoming>, NotStopped> {
    let none = missing("the head of an answer did not come");
    let request = peer::health_check(home, timeout).map_err(|_| none())?;
    sender.send_request(request).await.map_err(|_| none())
}

/// Whether an answer that nobody reads was cut.
async fn cut_short(response: Response<Incoming>) -> bool {
    let next = time::timeout(peer::PATIENCE, response.into_body().frame()).await;
    matches!(next, Ok(Some(Err(_))))
}

/// Returns when home-api has taken everything that was sent on this connection before: it takes streams in their order, and the
/// last of them is answered without work.
async fn taken(mut sender: Sender, home: SocketAddr) -> Result<(), NotStopped> {
    let none = missing("the requests in flight were not taken");
    let body = peer::whole(peer::framed(0, 0, &[]));
    let request = peer::call(home, peer::GET_HOME).body(body).map_err(|_| none())?;
    let answer =
        time::timeout(peer::PATIENCE, async { peer::told(sender.send_request(request).await).await });
    answer.await.ok().flatten().map(|_| ()).ok_or_else(none)
}

fn terminate(pid: u32) -> Result<(), NotStopped> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or_else(missing("no process"))?;
    kill_process(pid, Signal::TERM).map_err(|error| NotStopped(format!("SIGTERM: {error}")))
}

/// From the signal on: new connections once readiness has fallen, and the count of cut streams for as long as it can be read.
async fn watch_the_end(
    subject: &Subject,
    cut_before: Option<f64>,
    ready_until: &Cell<Option<Nanos>>,
) -> Observed {
    let mut observed = Observed::default();
    let unready = time::timeout(UNREADY_MAX, async {
        loop {
            let asked = MonotonicClock.now();
            if !matches!(crate::admin::get(&subject.admin, "/readyz").await, Ok((StatusCode::OK, _))) {
                break;
            }
            ready_until.set(Some(asked));
            time::sleep(LOOK).await;
        }
    });
    if unready.await.is_ok() {
        let served = join_all((0..TRIES).map(|_| served(subject.home))).await;
        let served = served.into_iter().filter(|served| *served).count();
        observed.put(Figure::StopAccepted, served as f64);
    }
    while let Some(now) = cut(subject).await {
        observed.raise(Figure::StopCut, cut_before.map(|before| now - before));
        time::sleep(LOOK).await;
    }
    observed
}

/// Whether a new connection is answered at all.
async fn served(home: SocketAddr) -> bool {
    debug_assert_eq!(home.ip(), IpAddr::from([127, 0, 0, 1]), "a suite listens on loopback");
    let Ok(mut stream) = peer::connect(home, None).await else { return false };
    let request = format!("{}\r\n", peer::page_head());
    peer::exchange(&mut stream, request.as_bytes()).await.is_some()
}
