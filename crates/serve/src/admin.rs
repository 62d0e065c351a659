//! Admin: what operators and probes ask over HTTP/1 on the admin port.
//!
//! Liveness, readiness and startup are three answers: restart me, send me requests, I am set up.

use axum::{
    Json, Router,
    http::{StatusCode, header},
    response::{IntoResponse as _, Response},
    routing::get,
};
use serde_json::json;

use crate::{
    health::{Readiness, State},
    lifecycle::{Lifecycle, Stage},
    metrics::{self, Registry},
    supervisor::Supervisor,
};

/// The routes of the admin port, with `extra` beside them (`/policy`, for one). Panics if `extra` claims one of ours.
///
/// - `/livez`: 200 as long as the process can answer at all; no dependency, exporter or policy can fail it.
/// - `/readyz`: 200 while serving, else 503; the body says `state` and, where there is one, `reason`.
/// - `/startupz`: 503 until the process is set up, 200 ever after.
/// - `/metrics`: OpenMetrics text.
pub fn router(readiness: &Readiness, registry: &Registry, extra: Router) -> Router {
    let (ready, startup) = (readiness.clone(), readiness.clone());
    let registry = registry.clone();
    Router::new()
        .route("/livez", get(async || answer(true, json!({"state": "live"}))))
        .route("/readyz", get(async move || describe(&ready.get(), State::is_serving)))
        .route("/startupz", get(async move || describe(&startup.get(), State::has_started)))
        .route(
            "/metrics",
            get(async move || ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], registry.encode())),
        )
        .merge(extra)
}

/// `/lifecycle`: the stage, the milliseconds spent in each so far, what the process waits for, and its live tasks by name.
pub fn lifecycle(lifecycle: &Lifecycle, supervisor: &Supervisor) -> Router {
    let (lifecycle, supervisor) = (lifecycle.clone(), supervisor.clone());
    Router::new().route("/lifecycle", get(async move || answer(true, standing(&lifecycle, &supervisor))))
}

fn standing(lifecycle: &Lifecycle, supervisor: &Supervisor) -> serde_json::Value {
    let spent = lifecycle.spent();
    let stage = |stage: Stage| (stage.as_str().to_owned(), spent[stage.index()].as_millis_f64().into());
    let live = supervisor.by_name().into_iter().filter(|(_, counts)| counts.live() > 0);
    let ended = supervisor.counts();
    json!({
        "stage": lifecycle.stage().as_str(),
        "spent_ms": Stage::ALL.into_iter().map(stage).collect::<serde_json::Map<_, _>>(),
        "exchanges": lifecycle.open_count(),
        "responses": lifecycle.responding_count(),
        "tasks": live.map(|(task, counts)| (task.to_owned(), counts.live().into())).collect::<serde_json::Map<_, _>>(),
        "ended": {
            "completed": ended.completed,
            "cancelled": ended.cancelled,
            "panicked": ended.panicked,
            "aborted": ended.aborted,
        },
    })
}

fn describe(state: &State, passes: fn(&State) -> bool) -> Response {
    let body = match state {
        State::NotServing(reason) => json!({"state": state.as_str(), "reason": reason}),
        State::Starting | State::Serving | State::Quiescing => json!({"state": state.as_str()}),
    };
    answer(passes(state), body)
}

fn answer(pass: bool, body: serde_json::Value) -> Response {
    let status = if pass { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, [(header::CACHE_CONTROL, "no-store")], Json(body)).into_response()
}

#[cfg(test)]
mod tests {
    use axum::{body::Body, http::Request};
    use http_body_util::BodyExt as _;
    use tower::ServiceExt as _;

    use super::*;

    async fn ask(router: &Router, path: &str) -> (StatusCode, Option<String>, String) {
        let request = Request::get(path).body(Body::empty()).expect("a request");
        let response = router.clone().oneshot(request).await.expect("infallible");
        let status = response.status();
        let content_type = response.headers().get(header::CONTENT_TYPE);
        let content_type = content_type.map(|value| value.to_str().expect("ascii").to_owned());
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        (status, content_type, String::from_utf8(body.to_vec()).expect("utf-8"))
    }

    #[tokio::test]
    async fn the_three_probes_answer_differently() {
        let readiness = Readiness::new();
        let router = router(&readiness, &Registry::new("profile"), Router::new());
        let ledger = readiness.condition("ledger");
        let full = r#"{"reason":"ledger: \"a\" is full","state":"not_serving"}"#;
        let steps: [(&dyn Fn(), u16, u16, &str); 4] = [
            (&|| {}, 503, 503, r#"{"state":"starting"}"#),
            (&|| readiness.serving(), 200, 200, r#"{"state":"serving"}"#),
            (&|| ledger.fails("\"a\" is full"), 503, 200, full),
            (&|| readiness.quiescing(), 503, 200, r#"{"state":"quiescing"}"#),
        ];
        for (step, ready, started, body) in steps {
            step();
            let live = ask(&router, "/livez").await;
            assert_eq!((live.0.as_u16(), live.2.as_str()), (200, r#"{"state":"live"}"#));
            let answer = ask(&router, "/readyz").await;
            assert_eq!((answer.0.as_u16(), answer.2.as_str()), (ready, body));
            assert_eq!(answer.1.as_deref(), Some("application/json"));
            assert_eq!(ask(&router, "/startupz").await.0.as_u16(), started);
        }
    }

    #[tokio::test]
    async fn metrics_are_open_metrics_and_extra_routes_stand_beside_them() {
        let extra = Router::new().route("/policy", get(async || "generation 7"));
        let router = router(&Readiness::new(), &Registry::new("profile"), extra);
        let (status, content_type, body) = ask(&router, "/metrics").await;
        assert_eq!(status, StatusCode::OK);
        assert_eq!(content_type.as_deref(), Some(metrics::CONTENT_TYPE));
        assert!(body.ends_with("# EOF\n"), "{body}");
        assert_eq!(ask(&router, "/policy").await.2, "generation 7");
        assert_eq!(ask(&router, "/other").await.0, StatusCode::NOT_FOUND);
    }
}
