//! Admin: processes that are asked over a socket, and what they may answer instead of a report.

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use super::*;
use crate::migration::example::standing;

/// Asks a server that answers once, with this.
async fn answered(head: &str, body: &str) -> Result<ProcessReport, String> {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound").to_string();
    let serve = async {
        let (mut stream, _) = listener.accept().await.expect("a caller");
        let mut request = vec![0; 4_096];
        let read = stream.read(&mut request).await.expect("a request");
        assert!(request[..read].starts_with(b"GET /rollout HTTP/1.1\r\n"));
        let text =
            format!("HTTP/1.1 {head}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len());
        // A caller that has read enough may be gone.
        let _ = stream.write_all(text.as_bytes()).await;
    };
    let (heard, ()) = tokio::join!(Admin.hear(&address), serve);
    heard
}

#[tokio::test]
async fn a_report_is_heard_and_anything_else_is_named() {
    let report = example::home_api("h1", &standing(Phase::Canary), Some(example::head()));
    let body = serde_json::to_string(&report).expect("plain data");
    assert_eq!(answered("200 OK", &body).await, Ok(report.clone()));
    let none = answered("404 Not Found", "").await.expect_err("no report");
    assert!(none.contains("404") && none.contains("no part"), "{none}");
    for bad in ["", "{}", "[]", &body[..90], &body.replace("canary", "dissolved")] {
        let error = answered("200 OK", bad).await.expect_err(bad);
        assert!(error.contains("not a report of this version"), "{error}");
    }
    let mut many = report;
    many.counts.comparisons = vec![count("match", "premium", "eu-west", 1); 4_097];
    let body = serde_json::to_string(&many).expect("plain data");
    assert!(answered("200 OK", &body).await.expect_err("too many").contains("rows of counts"));
}

#[tokio::test]
async fn nobody_at_the_address_is_said_within_a_bounded_time() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound").to_string();
    drop(listener);
    assert!(Admin.hear(&address).await.expect_err("nobody").contains(&address));
}

#[test]
fn those_who_take_part_are_every_home_api_and_profile() {
    let home = tempfile::tempdir().expect("a directory");
    let path = home.path().join("endpoints.json");
    let one = |port: u16| serde_json::json!({ "grpc": "h:1", "admin": format!("h:{port}"), "pid": 1 });
    let text = serde_json::json!({
        "home-api": one(2), "home-api-2": one(3), "profile": one(4), "pricing": one(5), "emulator": one(6),
    });
    std::fs::write(&path, text.to_string()).expect("written");
    let endpoints = crate::suite::Endpoints::read(&path).expect("endpoints");
    assert_eq!(hearing::taking_part(&endpoints), ["h:2", "h:3", "h:4"]);
}
