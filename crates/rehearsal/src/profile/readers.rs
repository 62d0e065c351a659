//! Readers: peers that ask and do not read, or read a byte at a time, and what becomes of them.

use std::{net::SocketAddr, time::Duration};

use base::{Clock, Nanos, clock::MonotonicClock};
use futures_util::future::join_all;
use http_body_util::BodyExt;
use model::load_profile::{Figure, Readers};
use tokio::{io::AsyncWriteExt, time};

use super::{
    observed::{Observed, share},
    peer,
};
use crate::{measure::scrape, scrape::Scrape};

/// Streams of one connection.
const STREAMS: u32 = 64;
/// The smallest buffer that is asked for; the kernel gives what it thinks is the least.
const RECEIVE_BYTES: u32 = 2_048;
/// A request that is answered at once and without work, so that answers pile up fast: it names nobody.
const REFUSED: &[u8] = b"GET /v2/home HTTP/1.1\r\nhost: home\r\n\r\n";
/// How many of them are written at once, and how long after the ones before: the kernels' buffers are to fill within seconds,
/// and the processor is everybody's.
const AT_ONCE: usize = 24;
const PACE: Duration = Duration::from_millis(10);
/// How often a page that was turned away for lack of capacity is asked for again.
const TRIES_MAX: usize = 8;
/// The HTTP status of a refusal for lack of capacity.
const TURNED_AWAY: u16 = 503;
/// Longest time that a peer waits to be cut; beyond every bound of the suite.
const CUT_MAX: Duration = Duration::from_secs(20);

/// Streams that were cut so far.
pub(super) fn cut(home: &Scrape) -> Option<f64> {
    home.sum("mercury_streams_cut_total", &[("server", "home-api")], &[])
}

/// Answers that were cut with their connection so far.
fn responses_cut(home: &Scrape) -> Option<f64> {
    home.sum("mercury_readers_cut_total", &[("server", "home-api")], &[])
}

/// Lets them all loose and waits until each was cut or served.
pub(super) async fn run(readers: Readers, home: SocketAddr, admin: &str) -> Observed {
    let before = scrape(admin).await;
    let lanes = readers.stalled_streams.div_ceil(STREAMS);
    let streams = (0..lanes).map(|lane| {
        let count = STREAMS.min(readers.stalled_streams - lane * STREAMS);
        stalled_streams(home, count)
    });
    let connections = (0..readers.stalled_connections).map(|_| stalled_connection(home));
    let trickling = (0..readers.trickling).map(|_| trickle(home, readers.trickle.into()));
    let (streams, connections, trickling) =
        tokio::join!(join_all(streams), join_all(connections), join_all(trickling));
    let cuts: Vec<Option<Nanos>> = streams.into_iter().flatten().chain(connections).collect();
    let mut observed = Observed::default();
    let ended = cuts.iter().flatten().count() as u64;
    let stalled = u64::from(readers.stalled_streams + readers.stalled_connections);
    observed.put(Figure::ReadersCut, share(ended, stalled));
    observed.put(Figure::ReadersCutAfter, cuts.iter().flatten().max().map(|after| after.as_secs_f64()));
    let served = trickling.iter().filter(|served| **served).count() as u64;
    observed.put(Figure::SlowServed, share(served, u64::from(readers.trickling)));
    let after = scrape(admin).await;
    let since =
        |counter: fn(&Scrape) -> Option<f64>| Some(counter(after.as_ref()?)? - counter(before.as_ref()?)?);
    observed.put(Figure::StreamsCut, since(cut));
    observed.put(Figure::ResponsesCut, since(responses_cut));
    observed
}

/// Streams of one connection that open no window: the head of the answer comes, its message never can. When each was cut,
/// since its head; `None` for one that was not.
async fn stalled_streams(home: SocketAddr, count: u32) -> Vec<Option<Nanos>> {
    let none = || vec![None; count as usize];
    let Ok((sender, driver)) = peer::http2(home, Some(0)).await else { return none() };
    let each = (0..count).map(|_| {
        let mut sender = sender.clone();
        async move {
            // Health is answered at once and admitted by no gate: what is tried here is the shell, and not the page.
            let request = peer::health_check(home, "1S").ok()?;
            let response = sender.send_request(request).await.ok()?;
            let headed = MonotonicClock.now();
            // Its data cannot come, so the next thing is the cut.
            let next = time::timeout(CUT_MAX, response.into_body().frame()).await.ok()?;
            matches!(next, Some(Err(_))).then(|| MonotonicClock.now() - headed)
        }
    });
    peer::driven(join_all(each), [driver]).await
}

/// A connection that asks and asks and never reads: when its writing failed, since it was there. Until then the answers fill
/// the buffers of both kernels, and the questions those of the other way.
async fn stalled_connection(home: SocketAddr) -> Option<Nanos> {
    let mut stream = peer::connect(home, Some(RECEIVE_BYTES)).await.ok()?;
    let connected = MonotonicClock.now();
    let batch = REFUSED.repeat(AT_ONCE);
    let writing = async {
        while stream.write_all(&batch).await.is_ok() {
            time::sleep(PACE).await;
        }
    };
    time::timeout(CUT_MAX, writing).await.ok()?;
    Some(MonotonicClock.now() - connected)
}

/// A page that is read a byte at a time: whether all of it came. One that is turned away for lack of capacity, which others
/// decide, is asked for again.
async fn trickle(home: SocketAddr, pause: Duration) -> bool {
    for _ in 0..TRIES_MAX {
        match read_slowly(home, pause).await {
            Some(answer) if answer.status == TURNED_AWAY => {}
            Some(answer) => return answer.status == 200 && answer.body.ends_with(b"}"),
            None => return false,
        }
    }
    false
}

async fn read_slowly(home: SocketAddr, pause: Duration) -> Option<peer::Answer> {
    let mut stream = peer::connect(home, Some(RECEIVE_BYTES)).await.ok()?;
    let request = format!("{}\r\n", peer::page_head());
    stream.write_all(request.as_bytes()).await.ok()?;
    time::timeout(CUT_MAX, peer::answer(&mut stream, 1, pause)).await.ok().flatten()
}
