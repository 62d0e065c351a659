//! Strangers: peers of home-api that are not the real ones. One writes down what it is sent, one answers wrongly, and one
//! does not even speak the protocol.

use std::sync::{Arc, Mutex};

use ::wire::{
    pricing::v1::{
        GetPricesRequest, GetPricesResponse, Money, PriceLine,
        pricing_service_server::{PricingService, PricingServiceServer},
    },
    recommendation::v1::{
        GetRecommendationsRequest, GetRecommendationsResponse,
        recommendation_service_server::{RecommendationService, RecommendationServiceServer},
    },
};
use base::{Dependency, Reason, headers, timeout, trace::TraceContext};
use bytes::Bytes;
use h2::server::SendResponse;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use prost::Message as _;
use serve::Routes;
use tokio::net::TcpListener;
use tonic::{Request, Status};

use crate::harness::{Options, Suite, member, patient, spawn};

/// Writes down the head of every call.
#[derive(Clone, Default)]
struct Witness(Arc<Mutex<Vec<HeaderMap>>>);

impl Witness {
    fn last(&self) -> HeaderMap {
        self.0.lock().expect("no panic").last().expect("a call").clone()
    }
}

#[tonic::async_trait]
impl RecommendationService for Witness {
    async fn get_recommendations(
        &self,
        request: Request<GetRecommendationsRequest>,
    ) -> Result<tonic::Response<GetRecommendationsResponse>, Status> {
        self.0.lock().expect("no panic").push(request.metadata().clone().into_headers());
        Ok(tonic::Response::new(GetRecommendationsResponse::default()))
    }
}

#[tokio::test]
async fn what_leaves_ingress_is_the_context_and_nothing_else() {
    let witness = Witness::default();
    let routes = Routes::new().grpc(RecommendationServiceServer::new(witness.clone()));
    let stranger = member::stranger("witness", routes);
    let suite = Suite::start_with(Options::quick().stranger(Dependency::Recommendation, stranger.at)).await;
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let head = patient(&[
        (headers::REQUEST_ID, "seen-1"),
        (headers::ATTEMPT, "4"),
        (headers::ORIGIN, "probe"),
        (headers::TRACEPARENT, parent),
        (headers::TRACESTATE, "vendor=opaque,other=1"),
        ("authorization", "Bearer secret"),
        ("cookie", "session=secret"),
        ("x-forwarded-for", "10.1.2.3"),
    ]);
    let page = suite.get(&head).await;
    assert_eq!(page.status, 200);
    assert_eq!(page.json()["optional"]["recommendations"], "empty", "an empty list is an answer");

    let seen = witness.last();
    let one = |name: &str| {
        let values: Vec<_> = seen.get_all(name).iter().collect();
        assert_eq!(values.len(), 1, "{name}: {values:?}");
        values[0].to_str().expect("ASCII").to_owned()
    };
    for (name, value) in [
        (headers::TENANT, "tenant-007"),
        (headers::SUBJECT, "user-00042"),
        (headers::CLASS, "premium"),
        (headers::REGION, "eu-west"),
        (headers::REQUEST_ID, "seen-1"),
        (headers::ATTEMPT, "4"),
        (headers::ORIGIN, "probe"),
        (headers::TRACESTATE, "vendor=opaque,other=1"),
        (headers::BUDGET_TRAIL, "2000000"),
    ] {
        assert_eq!(one(name), value, "{name}");
    }
    let left = timeout::parse(one(headers::GRPC_TIMEOUT).as_bytes()).expect("the strict grammar");
    assert!(left.as_millis() <= 1_980 && left.as_millis() > 1_000, "{left}");
    let (sent, came) =
        (TraceContext::parse(parent).expect("one"), TraceContext::parse(&one(headers::TRACEPARENT)));
    let came = came.expect("well formed");
    assert_eq!((came.trace_id, came.sampled), (sent.trace_id, sent.sampled), "the same trace");
    assert_ne!(came.span_id, sent.span_id, "from a span of this hop");
    for private in ["authorization", "cookie", "x-forwarded-for"] {
        assert!(!seen.contains_key(private), "{private} is not passed on");
    }

    // What cannot be read is no parent: a new trace begins, each time another one, and the vendor's state goes with it.
    let mut traces = std::collections::BTreeSet::new();
    let long = format!("vendor={}", "x".repeat(600));
    for malformed in
        ["", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7", &parent.to_uppercase(), "junk"]
    {
        let head = patient(&[(headers::TRACEPARENT, malformed), (headers::TRACESTATE, "vendor=opaque")]);
        assert_eq!(suite.get(&head).await.status, 200);
        let seen = witness.last();
        let came =
            seen[headers::TRACEPARENT].to_str().ok().and_then(TraceContext::parse).expect("well formed");
        assert_ne!(came.trace_id, sent.trace_id);
        assert!(traces.insert(came.trace_id), "another trace each time");
        assert!(!seen.contains_key(headers::TRACESTATE), "{malformed:?}");
    }
    let twice = patient(&[(headers::TRACEPARENT, parent), (headers::TRACEPARENT, parent)]);
    assert_eq!(suite.get(&twice).await.status, 200);
    assert!(!witness.last()[headers::TRACEPARENT].to_str().expect("ASCII").contains(&parent[3..35]));
    // State that is too long to carry is left out, and the trace goes on.
    let head = patient(&[(headers::TRACEPARENT, parent), (headers::TRACESTATE, &long)]);
    assert_eq!(suite.get(&head).await.status, 200);
    assert!(!witness.last().contains_key(headers::TRACESTATE));
    assert!(witness.last()[headers::TRACEPARENT].to_str().expect("ASCII").contains(&parent[3..35]));
    suite.finish().await;
}

/// How a price service lies.
type Lie = fn(&mut GetPricesResponse);

/// Answers with made-up prices, and then with a lie about them.
#[derive(Clone)]
struct Liar(Arc<Mutex<Lie>>);

#[tonic::async_trait]
impl PricingService for Liar {
    async fn get_prices(
        &self,
        request: Request<GetPricesRequest>,
    ) -> Result<tonic::Response<GetPricesResponse>, Status> {
        let GetPricesRequest { item_ids, currency_code, .. } = request.into_inner();
        let money = |minor_units| Some(Money { currency_code: currency_code.clone(), minor_units });
        let lines = item_ids.into_iter().map(|item_id| PriceLine {
            item_id,
            list_price: money(1_000),
            net_price: money(900),
            discount_basis_points: 1_000,
            discount_claim: String::new(),
        });
        let mut answer = GetPricesResponse { lines: lines.collect() };
        (self.0.lock().expect("no panic"))(&mut answer);
        Ok(tonic::Response::new(answer))
    }
}

#[tokio::test]
async fn a_core_that_is_not_whole_is_an_error_and_never_a_page() {
    let liar = Liar(Arc::new(Mutex::new(|_| {})));
    let routes = Routes::new().grpc(PricingServiceServer::new(liar.clone()));
    let stranger = member::stranger("liar", routes);
    let suite = Suite::start_with(Options::quick().stranger(Dependency::Pricing, stranger.at)).await;
    suite.both(&patient(&[])).await.served();
    let lies: [(&str, Lie); 8] = [
        ("nothing at all", |answer| answer.lines.clear()),
        ("one line missing", |answer| drop(answer.lines.pop())),
        ("another order", |answer| answer.lines.rotate_left(1)),
        ("an item twice", |answer| answer.lines[1] = answer.lines[0].clone()),
        ("a line without a price", |answer| answer.lines[0].net_price = None),
        ("a negative price", |answer| answer.lines[0].net_price.as_mut().expect("set").minor_units = -1),
        ("dearer than listed", |answer| answer.lines[0].net_price.as_mut().expect("set").minor_units = 1_001),
        ("another currency", |answer| {
            answer.lines[0].list_price.as_mut().expect("set").currency_code = "XTS".into()
        }),
    ];
    for (name, lie) in lies {
        *liar.0.lock().expect("no panic") = lie;
        let both = suite.both(&patient(&[])).await;
        assert_eq!(both.http.status, 503, "{name}: {both:?}");
        both.refused(Reason::DependencyUnavailable);
    }
    *liar.0.lock().expect("no panic") = |_| {};
    suite.both(&patient(&[])).await.served();
    suite.finish().await;
}

/// What a stranger does with a call.
#[derive(Clone, Copy, Debug)]
enum Odd {
    /// An HTTP answer without a gRPC status, and a body of this length.
    Http(u16, usize),
    /// An empty message and these trailers.
    Trailers(&'static [(&'static str, &'static [u8])]),
    /// A message whose prefix promises more than comes, and a good status.
    Short,
    /// The stream is reset, before or after the head.
    Reset(h2::Reason, bool),
    /// The connection is dropped.
    Drop,
}

/// A peer on raw HTTP/2 that does as it is told.
struct Oddity {
    odd: Mutex<Odd>,
    calls: std::sync::atomic::AtomicU32,
}

impl Oddity {
    async fn accept(self: Arc<Self>, listener: TcpListener) {
        while let Ok((stream, _)) = listener.accept().await {
            let oddity = Arc::clone(&self);
            let _serving = spawn(async move { oddity.serve(stream).await });
        }
    }

    async fn serve(&self, stream: tokio::net::TcpStream) {
        let Ok(mut connection) = h2::server::handshake(stream).await else { return };
        while let Some(Ok((_request, respond))) = connection.accept().await {
            self.calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let odd = *self.odd.lock().expect("no panic");
            if matches!(odd, Odd::Drop) {
                return;
            }
            let _ = answer(odd, respond);
        }
    }
}

fn answer(odd: Odd, mut respond: SendResponse<Bytes>) -> Result<(), h2::Error> {
    let head = |status: u16, content_type: &'static str| {
        let mut response = Response::new(());
        *response.status_mut() = StatusCode::from_u16(status).expect("a status");
        response.headers_mut().insert("content-type", HeaderValue::from_static(content_type));
        response
    };
    let empty = Bytes::from_static(&[0; 5]);
    match odd {
        Odd::Http(200, _) => {
            respond.send_response(head(200, "application/grpc"), false)?.send_data(empty, true)
        }
        Odd::Http(status, length) => {
            let mut body = respond.send_response(head(status, "text/html"), false)?;
            body.send_data(Bytes::from(vec![b'<'; length]), true)
        }
        Odd::Trailers(fields) => {
            let mut body = respond.send_response(head(200, "application/grpc"), false)?;
            body.send_data(empty, false)?;
            let fields = fields.iter().map(|(name, value)| {
                let name = http::HeaderName::from_static(name);
                (name, HeaderValue::from_bytes(value).expect("a value"))
            });
            body.send_trailers(fields.collect())
        }
        Odd::Short => {
            let mut body = respond.send_response(head(200, "application/grpc"), false)?;
            body.send_data(Bytes::from_static(&[0, 0, 0, 0, 99, 1, 2, 3]), false)?;
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", HeaderValue::from_static("0"));
            body.send_trailers(trailers)
        }
        Odd::Reset(reason, after_head) => {
            if after_head {
                let mut body = respond.send_response(head(200, "application/grpc"), false)?;
                body.send_reset(reason);
            } else {
                respond.send_reset(reason);
            }
            Ok(())
        }
        Odd::Drop => Ok(()),
    }
}

#[tokio::test]
async fn a_peer_that_breaks_the_protocol_is_unavailable_or_our_bug_and_nothing_else() {
    use Reason::{DependencyBug, DependencyUnavailable};
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let at = listener.local_addr().expect("an address");
    let oddity = Arc::new(Oddity { odd: Mutex::new(Odd::Drop), calls: Default::default() });
    let _accepting = spawn(Arc::clone(&oddity).accept(listener));
    let options = Options::quick().stranger(Dependency::Pricing, at).stranger(Dependency::Recommendation, at);
    let suite = Suite::start_with(options).await;
    let odds = [
        // A good message is no answer without a status.
        (Odd::Http(200, 0), DependencyUnavailable),
        (Odd::Http(503, 100), DependencyUnavailable),
        (Odd::Http(429, 0), DependencyUnavailable),
        (Odd::Http(500, 100_000), DependencyUnavailable),
        (Odd::Http(404, 10), DependencyBug),
        (Odd::Http(401, 10), DependencyBug),
        (Odd::Trailers(&[("grpc-status", b"99")]), DependencyUnavailable),
        (Odd::Trailers(&[("grpc-status", b"00")]), DependencyUnavailable),
        (Odd::Trailers(&[("grpc-status", b"")]), DependencyUnavailable),
        (Odd::Trailers(&[("grpc-message", b"no status")]), DependencyUnavailable),
        (
            Odd::Trailers(&[("grpc-status", b"14"), ("grpc-status-details-bin", b"***")]),
            DependencyUnavailable,
        ),
        (Odd::Trailers(&[("grpc-status", b"14"), ("grpc-message", b"%ff%zz\xff")]), DependencyUnavailable),
        (Odd::Short, DependencyUnavailable),
        (Odd::Reset(h2::Reason::REFUSED_STREAM, false), DependencyUnavailable),
        (Odd::Reset(h2::Reason::CANCEL, false), DependencyUnavailable),
        (Odd::Reset(h2::Reason::ENHANCE_YOUR_CALM, true), DependencyUnavailable),
        (Odd::Reset(h2::Reason::INTERNAL_ERROR, true), DependencyUnavailable),
        (Odd::Reset(h2::Reason::PROTOCOL_ERROR, false), DependencyUnavailable),
        (Odd::Drop, DependencyUnavailable),
    ];
    for (odd, reason) in odds {
        *oddity.odd.lock().expect("no panic") = odd;
        let both = suite.both(&patient(&[])).await;
        assert_eq!(both.http.error("reason"), reason.as_str(), "{odd:?}: {both:?}");
        both.refused(reason);
    }
    // Nothing panicked and nothing is stuck; the other half of the page was asked each time.
    suite.until_idle().await;
    assert!(oddity.calls.load(std::sync::atomic::Ordering::Relaxed) >= 38);
    suite.finish().await;
}

#[tokio::test]
async fn an_optional_peer_that_breaks_the_protocol_costs_its_section_and_no_more() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let at = listener.local_addr().expect("an address");
    let oddity = Arc::new(Oddity { odd: Mutex::new(Odd::Drop), calls: Default::default() });
    let _accepting = spawn(Arc::clone(&oddity).accept(listener));
    let suite = Suite::start_with(Options::quick().stranger(Dependency::Recommendation, at)).await;
    for odd in [
        Odd::Http(200, 0),
        Odd::Http(401, 10),
        Odd::Http(503, 10),
        Odd::Trailers(&[("grpc-status", b"99")]),
        Odd::Trailers(&[("grpc-status", b"7"), ("grpc-status-details-bin", b"***")]),
        Odd::Short,
        Odd::Reset(h2::Reason::CANCEL, false),
        Odd::Reset(h2::Reason::INTERNAL_ERROR, true),
        Odd::Drop,
    ] {
        *oddity.odd.lock().expect("no panic") = odd;
        let page = suite.both(&patient(&[])).await.served();
        assert_eq!(page["optional"]["recommendations"], "omitted_dependency_error", "{odd:?}: {page}");
        assert!(page.get("recommendations").is_none(), "{odd:?}: {page}");
    }
    // And a right answer is a right answer again.
    *oddity.odd.lock().expect("no panic") = Odd::Trailers(&[("grpc-status", b"0")]);
    crate::harness::eventually("the section is back", async || {
        let page = suite.both(&patient(&[])).await.served();
        page["optional"]["recommendations"] == "empty"
    })
    .await;
    assert_eq!(
        GetRecommendationsResponse::default().encoded_len(),
        0,
        "what the stranger sends is a whole message"
    );
    suite.until_idle().await;
    suite.finish().await;
}
