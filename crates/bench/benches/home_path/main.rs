//! Home path: CPU per request of the suite, beside a bare tonic fan-out of the same shape. Same hops, same payloads, no
//! layers; rounds of the two alternate in one process, so that the machine's noise hits both alike.
//!
//! The seven leaves are the same canned tonic servers on either side, so what is compared is the path from the caller to
//! the leaves. The suite keeps exposures in memory here: a disk is not what a bare fan-out could be compared with.
//!
//! For a profiler, `--only suite` or `--only bare` runs one side alone, `--rounds N` sets how long, and `--concurrency 1`
//! keeps a slowed-down request within its deadline.

mod bare;
mod leaf;
mod suite;

use std::net::SocketAddr;

use base::clock;
use futures_util::StreamExt as _;
use tonic::transport::Channel;
use wire::home::v2::{GetHomeRequest, home_service_client::HomeServiceClient};

/// Requests of one round.
const ROUND: usize = 400;
/// Rounds of each side, after one that is not counted.
const ROUNDS: usize = 15;
/// Requests under way at once, about what the suite sees at 250 requests a second.
const CONCURRENCY: usize = 20;
/// What the ratio should not exceed, with every mechanism on.
const GOAL: f64 = 1.35;

/// Identity of every request; the bare side ignores it.
const IDENTITY: [(&str, &str); 4] = [
    (base::headers::TENANT, "tenant-007"),
    (base::headers::SUBJECT, "user-00042"),
    (base::headers::CLASS, "premium"),
    (base::headers::REGION, "eu-west"),
];

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let number =
        |name, default: usize| argument(name).map_or(default, |text| text.parse().expect("a number")).max(1);
    let (rounds, concurrency) = (number("--rounds", ROUNDS), number("--concurrency", CONCURRENCY));
    runtime.block_on(compare(rounds, concurrency, argument("--only").as_deref()));
}

/// The value behind `name` on the command line. Cargo adds arguments of its own, which are nobody's business here.
fn argument(name: &str) -> Option<String> {
    std::env::args().skip_while(|argument| argument != name).nth(1)
}

async fn compare(rounds: usize, concurrency: usize, only: Option<&str>) {
    let replies = leaf::Replies::capture().await;
    let leaves = leaf::serve(replies).await;
    let suite = suite::start(leaves).await;
    let payloads = suite.capture().await;
    let bare = bare::start(leaves, payloads).await;
    let (mut ours, mut theirs) = (client(suite.home).await, client(bare).await);
    round(&mut ours, concurrency).await;
    round(&mut theirs, concurrency).await;
    if let Some(side) = only {
        let alone = if side == "bare" { &mut theirs } else { &mut ours };
        let mut costs = Vec::with_capacity(rounds);
        for _ in 0..rounds {
            costs.push(round(alone, concurrency).await);
        }
        println!("{side} alone: {:.0} us", median(costs.into_iter()));
        return;
    }
    let mut pairs = Vec::with_capacity(rounds);
    for number in 0..rounds {
        // Whoever goes second finds warmer caches, so they take turns.
        let pair = if number % 2 == 0 {
            let ours = round(&mut ours, concurrency).await;
            (ours, round(&mut theirs, concurrency).await)
        } else {
            let theirs = round(&mut theirs, concurrency).await;
            (round(&mut ours, concurrency).await, theirs)
        };
        pairs.push(pair);
    }
    let ratio = median(pairs.iter().map(|(ours, theirs)| ours / theirs));
    let (ours, theirs) = (median(pairs.iter().map(|pair| pair.0)), median(pairs.iter().map(|pair| pair.1)));
    println!("home path, CPU of all hops per request, median of {rounds} alternating rounds of {ROUND}:");
    println!("  suite       {ours:.0} us");
    println!("  bare tonic  {theirs:.0} us");
    println!("  ratio       {ratio:.3} (goal: at most {GOAL})");
}

async fn client(at: SocketAddr) -> HomeServiceClient<Channel> {
    HomeServiceClient::new(channel(at).await)
}

/// CPU of this process per request, in microseconds.
async fn round(client: &mut HomeServiceClient<Channel>, concurrency: usize) -> f64 {
    let before = clock::process_cpu();
    let calls = (0..ROUND).map(|_| {
        let mut client = client.clone();
        async move {
            let page = client.get_home(identified(GetHomeRequest {})).await.expect("a page").into_inner();
            assert!(page.core_complete, "both sides serve whole pages");
        }
    });
    futures_util::stream::iter(calls).buffer_unordered(concurrency).collect::<Vec<()>>().await;
    clock::process_cpu().saturating_sub(before).get() as f64 / 1e3 / ROUND as f64
}

/// A request with the identity that the suite asks for.
fn identified<M>(message: M) -> tonic::Request<M> {
    let mut request = tonic::Request::new(message);
    for (name, value) in IDENTITY {
        request.metadata_mut().insert(name, tonic::metadata::MetadataValue::from_static(value));
    }
    request
}

async fn channel(at: SocketAddr) -> Channel {
    let endpoint = Channel::from_shared(format!("http://{at}")).expect("an address");
    endpoint.connect().await.expect("a connection")
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Serves a tonic router on a port of its own until the process ends.
fn serve_tonic(router: tonic::transport::server::Router, listener: tokio::net::TcpListener) {
    let incoming = tonic::transport::server::TcpIncoming::from(listener).with_nodelay(Some(true));
    spawn(async move { router.serve_with_incoming(incoming).await.expect("a server") });
}

#[expect(clippy::disallowed_methods, reason = "a bench has no drain; its tasks end with the process")]
fn spawn(task: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(task);
}

async fn listen() -> (tokio::net::TcpListener, SocketAddr) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let at = listener.local_addr().expect("an address");
    (listener, at)
}
