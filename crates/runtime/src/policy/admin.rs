//! Admin: what the admin port tells about the policy, and the call that reloads it.

use axum::{
    Json, Router,
    http::StatusCode,
    routing::{get, post},
};
use model::policy::Policy;
use serde_json::{Value, json};

use super::{Cause, Policies, Reloader, keep::Looked};

/// - `GET /policy`: the policy in force, as `shown` has it, and under `reload` what came of reloads.
/// - `POST /policy/reload`: looks at the file now. 200 with the generation in force and whether it is new; 422 with `cause` and
///   `detail` when its content is refused, 503 once the process shuts down,
///   and when the replacement broke off.
pub fn router(policies: Policies, reloader: Reloader, shown: fn(&Policy) -> Value) -> Router {
    let told = reloader.clone();
    let show = get(async move || {
        let mut value = shown(&policies.current());
        value["reload"] = told.told();
        Json(value)
    });
    let reload = post(async move || match reloader.reload().await {
        Ok(Looked::Taken(generation)) => {
            (StatusCode::OK, Json(json!({"generation": generation, "changed": true})))
        }
        Ok(Looked::Unchanged(generation)) => {
            (StatusCode::OK, Json(json!({"generation": generation, "changed": false})))
        }
        Err(rejected) => {
            let status = match rejected.cause {
                Cause::Quiescing | Cause::Interrupted => StatusCode::SERVICE_UNAVAILABLE,
                Cause::Unreadable | Cause::Invalid | Cause::Generation | Cause::Unfit => {
                    StatusCode::UNPROCESSABLE_ENTITY
                }
            };
            (status, Json(json!({"cause": rejected.cause.as_str(), "detail": rejected.detail})))
        }
    });
    Router::new().route("/policy", show).route("/policy/reload", reload)
}
