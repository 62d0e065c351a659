//! Edge: the two faces of the service, gRPC and JSON over HTTP, around the same function.

use std::{fmt::Write as _, sync::Arc};

use axum::{Router, extract::State, routing::get};
use base::{CallContext, Dependency, Nanos, Reason, Refusal, headers, ids::IdSource};
use control::degradation::{Marker, Omission};
use http::{HeaderMap, HeaderValue, header, request::Parts};
use runtime::authenticate::{self, Authenticator};
use serve::{
    Arrival,
    render::{self, Face},
    routes,
};
use tonic::{Request, Response, Status, body::Body};
use wire::home::v2 as proto;

use crate::{
    page::{Page, Spent},
    serve_page::{Home, Served, Terms},
};

/// Where the time of the branches went, for a browser's or a person's eye.
const SERVER_TIMING: &str = "server-timing";

/// The gRPC face.
pub(crate) struct GrpcFace {
    pub(crate) home: Arc<Home>,
}

#[tonic::async_trait]
impl proto::home_service_server::HomeService for GrpcFace {
    async fn get_home(
        &self,
        request: Request<proto::GetHomeRequest>,
    ) -> Result<Response<proto::GetHomeResponse>, Status> {
        let context = runtime::context(&request).map_err(|refusal| render::status(&refusal))?;
        let arrival = request.extensions().get::<Arrival>();
        let arrival = arrival.ok_or_else(|| render::status(&bypassed()))?;
        let terms = self.home.terms(&context, arrival).map_err(|refusal| render::status(&refusal))?;
        let mut head = HeaderMap::new();
        let result = self.home.page(Arc::clone(&context), &terms, arrival).await;
        label(&mut head, &context, &terms, result.as_ref().ok());
        match result {
            Ok(served) => {
                let mut response = Response::new(message(served.page));
                *response.metadata_mut() = tonic::metadata::MetadataMap::from_headers(head);
                Ok(response)
            }
            Err(refusal) => {
                let mut status = render::status(&refusal);
                let mut metadata = std::mem::take(status.metadata_mut()).into_headers();
                metadata.extend(head);
                *status.metadata_mut() = tonic::metadata::MetadataMap::from_headers(metadata);
                Err(status)
            }
        }
    }
}

/// The HTTP face.
#[derive(Clone)]
pub(crate) struct HttpFace {
    pub(crate) home: Arc<Home>,
    pub(crate) authenticator: Arc<dyn Authenticator>,
    pub(crate) ids: Arc<IdSource>,
}

/// The paths of the HTTP face. An unknown path is 404 and a known one with another method 405, both with a reason.
pub(crate) fn router(face: HttpFace) -> Router {
    Router::new()
        .route("/v2/home", get(get_home).fallback(async || axum_body(method_not_allowed())))
        .fallback(async |uri: http::Uri| axum_body(routes::not_found(uri.path())))
        .with_state(face)
}

fn method_not_allowed() -> http::Response<Body> {
    let mut response =
        render::response(&Refusal::new(Reason::MethodNotAllowed, "this path answers GET"), Face::Http);
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
    response
}

fn axum_body(response: http::Response<Body>) -> http::Response<axum::body::Body> {
    response.map(axum::body::Body::new)
}

async fn get_home(
    State(face): State<HttpFace>,
    request: axum::extract::Request,
) -> http::Response<axum::body::Body> {
    let (parts, body) = request.into_parts();
    // The page takes no input from a body.
    if let Err(refusal) = serve::body::discard(body).await {
        return axum_body(render::response(&refusal, Face::Http));
    }
    axum_body(face.answer(&parts).await)
}

impl HttpFace {
    async fn answer(&self, parts: &Parts) -> http::Response<Body> {
        let Some(arrival) = parts.extensions.get::<Arrival>() else {
            return render::response(&bypassed(), Face::Http);
        };
        let context = match authenticate::context(&*self.authenticator, &self.ids, &parts.headers, arrival) {
            Ok(context) => Arc::new(context),
            Err(refusal) => return render::response(&refusal, Face::Http),
        };
        let terms = match self.home.terms(&context, arrival) {
            Ok(terms) => terms,
            Err(refusal) => return render::response(&refusal, Face::Http),
        };
        let result = self.home.page(Arc::clone(&context), &terms, arrival).await;
        let mut head = HeaderMap::new();
        label(&mut head, &context, &terms, result.as_ref().ok());
        let mut response = match result.and_then(|served| json(&served.page)) {
            Ok(response) => response,
            Err(refusal) => render::response(&refusal, Face::Http),
        };
        response.headers_mut().extend(head);
        response
    }
}

fn bypassed() -> Refusal {
    Refusal::new(Reason::Internal, "a request bypassed the shell")
}

fn json(page: &Page) -> Result<http::Response<Body>, Refusal> {
    let text = serde_json::to_vec(page)
        .map_err(|error| Refusal::new(Reason::Internal, format!("the page cannot be written: {error}")))?;
    let mut response = http::Response::new(routes::full(text));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

/// Headers that every answer carries, a refusal included.
fn label(head: &mut HeaderMap, context: &CallContext, terms: &Terms, served: Option<&Served>) {
    head.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-store"));
    head.insert(headers::POLICY_GENERATION, HeaderValue::from(terms.policy.generation));
    let mut put = |name: &'static str, text: &str| {
        if let Ok(mut value) = HeaderValue::from_str(text) {
            // No other answer has the same, so it has no place in HPACK's tables.
            value.set_sensitive(true);
            head.insert(name, value);
        }
    };
    put(headers::REQUEST_ID, context.request_id.as_str());
    if let Some(served) = served {
        put(SERVER_TIMING, &server_timing(served.admission, &served.spent));
    }
    // Most answers carry the same, so it does have a place there.
    if let Ok(value) = HeaderValue::from_str(&terms.applied.header())
        && !value.is_empty()
    {
        head.insert(headers::MECHANISMS, value);
    }
}

/// One entry for the wait for a slot and one a branch, in milliseconds: `dur` is service time, `wait` the time before the
/// call was sent.
fn server_timing(admission: Nanos, spent: &[Option<Spent>; Dependency::ALL.len()]) -> String {
    let mut text = String::with_capacity(288);
    let _ = write!(text, "admission;dur=0;wait={}", millis(admission)); // Writing to a String cannot fail.
    for (branch, spent) in Dependency::ALL.into_iter().zip(spent) {
        let Some(Spent { wait, service }) = spent else { continue };
        let (service, wait) = (millis(*service), millis(*wait));
        let _ = write!(text, ", {branch};dur={service};wait={wait}");
    }
    text
}

fn millis(span: Nanos) -> f64 {
    // Microseconds are plenty for a header.
    span.as_micros() as f64 / 1e3
}

fn message(page: Page) -> proto::GetHomeResponse {
    let items = page.inventory.items.into_iter().map(|item| proto::ItemAvailability {
        item_id: item.item_id,
        available_units: item.available_units,
        status: item.status.as_str().to_owned(),
    });
    let lines = page.pricing.lines.into_iter().map(|line| proto::PriceLine {
        item_id: line.item_id,
        list_minor_units: line.list_minor_units,
        net_minor_units: line.net_minor_units,
        discount_basis_points: line.discount_basis_points,
    });
    let arms = page.experiments.into_iter().map(|arm| proto::ExperimentArm {
        experiment_id: arm.experiment_id,
        experiment_version: arm.experiment_version,
        variant: arm.variant,
        event_id: arm.event_id,
        effect: arm.effect.to_owned(),
    });
    let ranked = page.recommendations.map(|section| {
        let items = section.items.into_iter();
        let items =
            items.map(|item| proto::RankedItem { item_id: item.item_id, score_micros: item.score_micros });
        proto::Recommendations { items: items.collect() }
    });
    proto::GetHomeResponse {
        core_complete: page.core_complete,
        profile: Some(proto::Profile {
            tenant: page.profile.tenant,
            subject: page.profile.subject,
            display_name: page.profile.display_name,
            locale: page.profile.locale,
            segment: page.profile.segment,
            plan: page.profile.plan,
        }),
        entitlement: Some(proto::Entitlement {
            authority: page.entitlement.authority.as_str().to_owned(),
            policy_version: page.entitlement.policy_version,
            claims: page.entitlement.claims,
        }),
        inventory: Some(proto::Inventory {
            items: items.collect(),
            as_of_unix_ms: page.inventory.as_of_unix_ms,
        }),
        pricing: Some(proto::Pricing { currency_code: page.pricing.currency_code, lines: lines.collect() }),
        experiments: arms.collect(),
        optional: Some(proto::OptionalSections {
            recommendations: marker(page.optional.recommendations).into(),
            reputation: marker(page.optional.reputation).into(),
        }),
        recommendations: ranked,
        reputation: page.reputation.map(|reputation| proto::Reputation {
            score: reputation.score,
            review_count: reputation.review_count,
            lower_bound: reputation.lower_bound,
            upper_bound: reputation.upper_bound,
        }),
        request_id: page.request_id,
        policy_generation: page.policy_generation,
    }
}

const fn marker(marker: Marker) -> proto::Marker {
    match marker {
        Marker::Present => proto::Marker::Present,
        Marker::Empty => proto::Marker::Empty,
        Marker::Omitted(Omission::DeadlineBudget) => proto::Marker::OmittedDeadlineBudget,
        Marker::Omitted(Omission::Timeout) => proto::Marker::OmittedTimeout,
        Marker::Omitted(Omission::Overload) => proto::Marker::OmittedOverload,
        Marker::Omitted(Omission::DependencyError) => proto::Marker::OmittedDependencyError,
        Marker::Omitted(Omission::Disabled) => proto::Marker::OmittedDisabled,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_timing_tells_waiting_from_service() {
        let mut spent = [None; Dependency::ALL.len()];
        spent[Dependency::Profile.index()] =
            Some(Spent { wait: Nanos::from_micros(250), service: Nanos::from_micros(24_100) });
        spent[Dependency::Pricing.index()] =
            Some(Spent { wait: Nanos::ZERO, service: Nanos::from_millis(8) });
        assert_eq!(
            server_timing(Nanos::from_micros(12_500), &spent),
            "admission;dur=0;wait=12.5, profile;dur=24.1;wait=0.25, pricing;dur=8;wait=0"
        );
    }
}
