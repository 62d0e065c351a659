//! Statuses: whatever a peer sends or fails to send, the caller gets exactly one status, by the tables of the protocol,
//! and a generated client survives it.

use std::{future::Future, pin::Pin, sync::Arc};

use base::Nanos;
use bytes::Bytes;
use h2::{Reason, server::SendResponse};
use http::Response;
use stack::{LinkConfig, LocalFailure};
use tonic::Code;
use wire::profile::v1::{GetProfileRequest, profile_service_client::ProfileServiceClient};

use crate::support::{Answer, CONFIG, Order, Peer, Rig, grpc_head, message, soon, trailers};

type Script = Arc<dyn Fn(SendResponse<Bytes>) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

fn script<F>(act: impl Fn(SendResponse<Bytes>) -> F + Send + Sync + 'static) -> Script
where
    F: Future<Output = ()> + Send + 'static,
{
    Arc::new(move |respond| Box::pin(act(respond)))
}

/// Calls a peer that follows `script`, once by hand and once through a generated client, and checks that both saw the
/// same status.
async fn outcome(config: LinkConfig, script: Script) -> Answer {
    let peer = Peer::new(move |_request, respond| script(respond));
    let rig = Rig::with(config, peer.route());
    let answer = rig.ask(Nanos::from_millis(500)).await;
    let mut client = ProfileServiceClient::new(rig.link.clone());
    let mut call = tonic::Request::new(GetProfileRequest::default());
    call.extensions_mut().insert(rig.within(Nanos::from_millis(500)));
    if let Err(status) = soon("a generated client", client.get_profile(call)).await {
        assert_eq!(status.code() as i32, answer.code, "{status:?}");
    } else {
        assert_eq!(answer.code, 0);
    }
    drop(client);
    rig.end().await;
    answer
}

/// Head and one message, then `end`.
fn after_message(end: impl Fn(&mut h2::SendStream<Bytes>) + Send + Sync + 'static) -> Script {
    let end = Arc::new(end);
    script(move |mut respond| {
        let end = Arc::clone(&end);
        async move {
            let mut stream = respond.send_response(grpc_head(), false).expect("a head");
            stream.send_data(message(b""), false).expect("data");
            end(&mut stream);
        }
    })
}

/// A32: no status at all, and statuses that are none.
#[tokio::test(start_paused = true)]
async fn a_response_without_a_valid_status_is_unknown() {
    let cases: Vec<(&str, Script)> = vec![
        (
            "END_STREAM without trailers",
            after_message(|stream| stream.send_data(Bytes::new(), true).expect("end")),
        ),
        (
            "trailers without status",
            after_message(|stream| stream.send_trailers(trailers(&[("x", "y")])).expect("end")),
        ),
        (
            "99",
            after_message(|stream| stream.send_trailers(trailers(&[("grpc-status", "99")])).expect("end")),
        ),
        (
            "00",
            after_message(|stream| stream.send_trailers(trailers(&[("grpc-status", "00")])).expect("end")),
        ),
        (
            "17",
            after_message(|stream| stream.send_trailers(trailers(&[("grpc-status", "17")])).expect("end")),
        ),
        (
            "word",
            after_message(|stream| stream.send_trailers(trailers(&[("grpc-status", "OK")])).expect("end")),
        ),
        (
            "head alone, without status",
            script(|mut respond| async move {
                respond.send_response(grpc_head(), true).expect("a head");
            }),
        ),
        (
            "head alone, invalid status",
            script(|mut respond| async move {
                let mut head = grpc_head();
                head.headers_mut().insert("grpc-status", "00".parse().expect("a value"));
                respond.send_response(head, true).expect("a head");
            }),
        ),
    ];
    for (name, script) in cases {
        let answer = outcome(CONFIG, script).await;
        assert_eq!(
            (answer.code, answer.failure),
            (Code::Unknown as i32, Some(LocalFailure::Malformed)),
            "{name}"
        );
        assert!(answer.metadata.get("x").is_none_or(|value| value == "y"), "other metadata stays");
    }
}

/// A32: details that are no base64 must not panic the client behind, and the peer's code stays.
#[tokio::test(start_paused = true)]
async fn invalid_details_are_dropped_and_the_status_stays() {
    for (details, kept) in [("***", false), ("aGk=", true), ("aGk", true), ("aGk=,aGk=", false)] {
        let in_trailers = after_message(move |stream| {
            let pairs =
                [("grpc-status", "5"), ("grpc-message", "no such"), ("grpc-status-details-bin", details)];
            stream.send_trailers(trailers(&pairs)).expect("end");
        });
        let in_head = script(move |mut respond| async move {
            let mut head = grpc_head();
            let pairs =
                [("grpc-status", "5"), ("grpc-message", "no such"), ("grpc-status-details-bin", details)];
            head.headers_mut().extend(trailers(&pairs));
            respond.send_response(head, true).expect("a head");
        });
        for script in [in_trailers, in_head] {
            let answer = outcome(CONFIG, script).await;
            assert_eq!((answer.code, answer.failure), (Code::NotFound as i32, None), "{details}");
            assert_eq!(answer.message, "no such");
            assert_eq!(answer.metadata.contains_key("grpc-status-details-bin"), kept, "{details}");
        }
    }
}

/// A32: an HTTP answer from something that is no gRPC server.
#[tokio::test(start_paused = true)]
async fn http_answers_follow_the_http_table() {
    for (http, code) in [
        (400, Code::Internal),
        (401, Code::Unauthenticated),
        (403, Code::PermissionDenied),
        (404, Code::Unimplemented),
        (408, Code::Unknown),
        (415, Code::Unknown),
        (429, Code::Unavailable),
        (431, Code::Internal),
        (500, Code::Unknown),
        (502, Code::Unavailable),
        (503, Code::Unavailable),
        (504, Code::Unavailable),
        (200, Code::Unknown),
        (204, Code::Unknown),
        (302, Code::Unknown),
    ] {
        for content_type in [Some("text/html"), None] {
            let answer = outcome(
                CONFIG,
                script(move |mut respond| async move {
                    let mut head = Response::builder().status(http);
                    if let Some(content_type) = content_type {
                        head = head.header("content-type", content_type);
                    }
                    let mut stream =
                        respond.send_response(head.body(()).expect("a head"), false).expect("a head");
                    let _ = stream.send_data(Bytes::from_static(b"<html>"), true);
                }),
            )
            .await;
            assert_eq!(
                (answer.code, answer.failure),
                (code as i32, Some(LocalFailure::NotGrpc)),
                "HTTP {http}"
            );
            assert_eq!(
                (answer.http.as_u16(), answer.data.len()),
                (200, 0),
                "nothing of the page gets through"
            );
        }
    }
    // With a status, the status wins, whatever the HTTP status.
    let answer = outcome(
        CONFIG,
        script(|mut respond| async move {
            let head = Response::builder().status(503).header("content-type", "application/grpc");
            let head = head.header("grpc-status", "8").body(()).expect("a head");
            respond.send_response(head, true).expect("a head");
        }),
    )
    .await;
    assert_eq!((answer.code, answer.failure), (Code::ResourceExhausted as i32, None));
}

/// An OK in the head, with messages behind it, hides neither them nor the status that really follows.
#[tokio::test(start_paused = true)]
async fn an_ok_in_the_head_is_not_the_end() {
    let answer = outcome(
        CONFIG,
        script(|mut respond| async move {
            let mut head = grpc_head();
            head.headers_mut().insert("grpc-status", "0".parse().expect("a value"));
            let mut stream = respond.send_response(head, false).expect("a head");
            stream.send_data(message(b""), false).expect("data");
            stream.send_trailers(trailers(&[("grpc-status", "9")])).expect("end");
        }),
    )
    .await;
    assert_eq!((answer.code, answer.data.len()), (Code::FailedPrecondition as i32, 5));
}

#[tokio::test(start_paused = true)]
async fn resets_follow_the_reset_table_before_the_head_and_within_the_body() {
    for (reason, code, failure) in [
        (Reason::NO_ERROR, Code::Internal, LocalFailure::Reset),
        (Reason::PROTOCOL_ERROR, Code::Internal, LocalFailure::Reset),
        (Reason::INTERNAL_ERROR, Code::Internal, LocalFailure::Reset),
        (Reason::FLOW_CONTROL_ERROR, Code::Internal, LocalFailure::Reset),
        (Reason::SETTINGS_TIMEOUT, Code::Internal, LocalFailure::Reset),
        (Reason::FRAME_SIZE_ERROR, Code::Internal, LocalFailure::Reset),
        (Reason::REFUSED_STREAM, Code::Unavailable, LocalFailure::NotProcessed),
        (Reason::CANCEL, Code::Cancelled, LocalFailure::Reset),
        (Reason::COMPRESSION_ERROR, Code::Internal, LocalFailure::Reset),
        (Reason::CONNECT_ERROR, Code::Internal, LocalFailure::Reset),
        (Reason::ENHANCE_YOUR_CALM, Code::ResourceExhausted, LocalFailure::Reset),
        (Reason::INADEQUATE_SECURITY, Code::PermissionDenied, LocalFailure::Reset),
    ] {
        let before = script(move |mut respond| async move { respond.send_reset(reason) });
        let within = script(move |mut respond| async move {
            let mut stream = respond.send_response(grpc_head(), false).expect("a head");
            stream.send_data(message(b""), false).expect("data");
            // What is queued when a stream is reset is never sent: let it out first.
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            stream.send_reset(reason);
        });
        for (at, script) in [("before the head", before), ("within the body", within)] {
            let answer = outcome(CONFIG, script).await;
            // A peer that has answered has processed the call, and cannot refuse it any more.
            let failure = if at == "within the body" { LocalFailure::Reset } else { failure };
            assert_eq!((answer.code, answer.failure), (code as i32, Some(failure)), "{reason:?} {at}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_connection_is_unavailable_before_the_head_and_within_the_body() {
    for order in [Order::Vanish, Order::Abrupt(Reason::NO_ERROR), Order::Abrupt(Reason::ENHANCE_YOUR_CALM)] {
        for head_first in [false, true] {
            let (tx, mut arrived) = tokio::sync::mpsc::channel(1);
            let peer = Peer::new(move |_request, mut respond: SendResponse<Bytes>| {
                let tx = tx.clone();
                async move {
                    let stream =
                        head_first.then(|| respond.send_response(grpc_head(), false).expect("a head"));
                    tx.send(()).await.expect("the test listens");
                    let _held = (stream, respond);
                    std::future::pending::<()>().await;
                }
            });
            let rig = Rig::new(peer.route());
            let call = rig.ask(Nanos::from_millis(500));
            let breaks = async {
                arrived.recv().await.expect("a call");
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
                peer.order(order);
            };
            let (answer, ()) = tokio::join!(call, breaks);
            assert_eq!(
                (answer.code, answer.failure),
                (Code::Unavailable as i32, Some(LocalFailure::ConnectionLost)),
                "{order:?}, head first: {head_first}: {}",
                answer.message
            );
            rig.end().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_above_the_bound_is_resource_exhausted_as_soon_as_it_is_declared() {
    let config = LinkConfig { message_bytes_max: 100, ..CONFIG };
    let sized = |len: usize| {
        script(move |mut respond: SendResponse<Bytes>| async move {
            let mut stream = respond.send_response(grpc_head(), false).expect("a head");
            let _ = stream.send_data(message(&vec![0x0a; len]), false);
            let _ = stream.send_trailers(trailers(&[("grpc-status", "0")]));
        })
    };
    let peer = Peer::new({
        let script = sized(100);
        move |_request, respond| script(respond)
    });
    let rig = Rig::with(config, peer.route());
    let answer = rig.ask(Nanos::from_millis(500)).await;
    assert_eq!((answer.code, answer.data.len()), (0, 105));
    rig.end().await;

    let answer = outcome(config, sized(101)).await;
    assert_eq!(
        (answer.code, answer.failure, answer.data.len()),
        (Code::ResourceExhausted as i32, Some(LocalFailure::MessageTooLarge), 0)
    );
    // Declared and never sent: the verdict does not wait for the bytes.
    let declared = script(|mut respond: SendResponse<Bytes>| async move {
        let mut stream = respond.send_response(grpc_head(), false).expect("a head");
        let _ = stream.send_data(Bytes::from_static(&[0, 0xff, 0xff, 0xff, 0xff]), false);
        let _ = std::future::poll_fn(|cx| stream.poll_reset(cx)).await;
    });
    let answer = outcome(config, declared).await;
    assert_eq!(answer.code, Code::ResourceExhausted as i32);
}

#[tokio::test(start_paused = true)]
async fn a_response_that_ends_within_a_message_is_internal_whatever_it_says() {
    let cut = script(|mut respond: SendResponse<Bytes>| async move {
        let mut stream = respond.send_response(grpc_head(), false).expect("a head");
        let _ = stream.send_data(message(b"whole").slice(..7), false);
        let _ = stream.send_trailers(trailers(&[("grpc-status", "0")]));
    });
    let answer = outcome(CONFIG, cut).await;
    assert_eq!((answer.code, answer.failure), (Code::Internal as i32, Some(LocalFailure::Malformed)));
}

/// A34, as far as it is the link's: the peer's own codes pass through as the peer's, and nothing is made of them here.
#[tokio::test(start_paused = true)]
async fn the_peers_own_codes_are_told_apart_from_those_made_here() {
    for code in 1..=16 {
        let answer = outcome(
            CONFIG,
            after_message(move |stream| {
                let forged = [
                    ("grpc-status", code.to_string()),
                    ("grpc-message", "caf%C3%A9".to_owned()),
                    (stack::LOCAL_FAILURE_HEADER, "unreachable".to_owned()),
                ];
                let pairs = forged.each_ref().map(|(name, value)| (*name, value.as_str()));
                stream.send_trailers(trailers(&pairs)).expect("end");
            }),
        )
        .await;
        assert_eq!((answer.code, answer.failure, answer.message.as_str()), (code, None, "café"));
    }
}
