//! Sockets: the link over real TCP, where names are resolved, ports are refused and peers come back elsewhere.

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use base::Nanos;
use stack::{Connect, Connecting, Link, LinkConfig, LocalFailure, TcpConnect};
use tokio::{net::TcpListener, sync::broadcast};
use tonic::Code;

use crate::support::{CONFIG, Order, Tasks, ask, outside, reply, request, serve, soon, world};

const UNAVAILABLE: i32 = Code::Unavailable as i32;

/// A directory of one name, as a container network's resolver is: the name is looked up on every attempt.
struct Directory(Mutex<SocketAddr>);

struct Resolve(Arc<Directory>);

impl Connect for Resolve {
    fn connect(&self) -> Connecting {
        let address = *self.0.0.lock().expect("directory");
        TcpConnect::new(address.to_string()).connect()
    }
}

/// A server over real sockets. Ends, with all its connections, when the sender goes.
async fn serve_tcp(address: &str) -> io::Result<(SocketAddr, broadcast::Sender<Order>)> {
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    let (orders, mut stop) = broadcast::channel(1);
    let source = orders.clone();
    outside(async move {
        loop {
            tokio::select! {
                biased; // The end first.
                _ = stop.recv() => return,
                accepted = listener.accept() => {
                    let Ok((io, _)) = accepted else { return };
                    let orders = source.subscribe();
                    outside(serve(io, 1_000, |_request, respond| async move { reply(respond, b"answer") }, orders));
                }
            }
        }
    });
    Ok((address, orders))
}

/// A46 on real sockets: the peer goes, and comes back under another address, and then under the same one. Calls made
/// meanwhile fail fast; each return is noticed within a second.
#[tokio::test]
async fn a_peer_that_moves_is_found_within_a_second() {
    let tasks = Arc::<Tasks>::default();
    let (first, mut orders) = serve_tcp("127.0.0.1:0").await.expect("a port");
    let directory = Arc::new(Directory(Mutex::new(first)));
    let link = Link::new(
        "link:test",
        "pricing:50051",
        LinkConfig { default_timeout: Nanos::from_secs(5), ..CONFIG },
        world(&tasks),
        Arc::new(Resolve(Arc::clone(&directory))),
    )
    .expect("an authority");
    assert_eq!(ask(&link, request("/x", None)).await.code, 0);
    for next in ["127.0.0.2:0".to_owned(), "127.0.0.2:same".to_owned()] {
        orders.send(Order::Vanish).expect("a server");
        tasks.down_to(0).await;
        // Well into the backoff.
        for _ in 0..20 {
            let asked = tokio::time::Instant::now();
            let answer = ask(&link, request("/x", None)).await;
            assert_eq!((answer.code, answer.failure), (UNAVAILABLE, Some(LocalFailure::Unreachable)));
            assert!(asked.elapsed() < Duration::from_secs(1), "it took {:?} to fail", asked.elapsed());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let last = *directory.0.lock().expect("directory");
        let address = next.replace("127.0.0.2:same", &last.to_string());
        let (back, returned) = serve_tcp(&address).await.expect("a port");
        orders = returned;
        *directory.0.lock().expect("directory") = back;
        let began = tokio::time::Instant::now();
        soon("the peer to be found", async {
            while ask(&link, request("/x", None)).await.code != 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await;
        assert!(began.elapsed() < Duration::from_secs(1), "found after {:?}", began.elapsed());
    }
    drop(link);
    tasks.down_to(0).await;
}

/// Names are resolved, and a port that nobody listens on is refused rather than waited for.
#[tokio::test]
async fn tcp_resolves_names_and_reports_refusals() {
    let tasks = Arc::<Tasks>::default();
    let (address, _orders) = serve_tcp("127.0.0.1:0").await.expect("a port");
    let config = LinkConfig { connect_timeout: Nanos::from_secs(5), ..CONFIG };
    let named = Link::tcp("link:test", &format!("localhost:{}", address.port()), config, world(&tasks));
    assert_eq!(ask(&named.expect("an authority"), request("/x", None)).await.code, 0);
    let free = TcpListener::bind("127.0.0.1:0").await.expect("a port").local_addr().expect("its address");
    let nobody = Link::tcp("link:test", &free.to_string(), config, world(&tasks)).expect("an authority");
    let answer = ask(&nobody, request("/x", None)).await;
    assert_eq!((answer.code, answer.failure), (UNAVAILABLE, Some(LocalFailure::Unreachable)));
    assert!(answer.message.contains("refused"), "{}", answer.message);
    drop(nobody);
    tasks.down_to(0).await;
}
