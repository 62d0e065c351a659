//! Routes: what a port serves. gRPC services by name, and at most one HTTP router for everything that is not gRPC.

use std::{convert::Infallible, future::Future, pin::Pin, sync::Arc};

use base::{Reason, Refusal};
use bytes::Bytes;
use http::{Method, Request, Response, request::Parts};
use tonic::{Status, body::Body, server::NamedService};
use tower_service::Service;

use crate::{
    lifecycle::Share,
    render::{self, Face},
};

/// Path of the one method of a long-lived service that is over as soon as it is answered.
const CHECK: &str = "/grpc.health.v1.Health/Check";

/// The future of a handler.
pub type Handling = Pin<Box<dyn Future<Output = Response<Body>> + Send>>;

type Handler = Box<dyn Fn(Request<Body>) -> Handling + Send + Sync>;

/// A check that every gated call passes before its handler runs; it may add extensions.
pub type Gate = Arc<dyn Fn(&mut Parts) -> Result<(), Refusal> + Send + Sync>;

struct GrpcRoute {
    name: &'static str,
    /// Streams that live as long as their caller likes; no default deadline applies.
    long_lived: bool,
    handler: Handler,
    gate: Option<Gate>,
}

/// The services of a port.
#[derive(Default)]
pub struct Routes {
    grpc: Vec<GrpcRoute>,
    http: Option<axum::Router>,
}

impl Routes {
    /// Nothing yet: every gRPC method is unknown and every other content type unsupported.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a generated gRPC server.
    pub fn grpc<S>(self, service: S) -> Self
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>
            + NamedService
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: Send + 'static,
    {
        self.add(service, false)
    }

    /// Adds a generated gRPC server whose streams have no default deadline: health watches and reflection.
    pub fn grpc_long_lived<S>(self, service: S) -> Self
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>
            + NamedService
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: Send + 'static,
    {
        self.add(service, true)
    }

    fn add<S>(mut self, service: S, long_lived: bool) -> Self
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>
            + NamedService
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: Send + 'static,
    {
        let handler: Handler = Box::new(move |request| {
            // Generated servers are always ready.
            let future = service.clone().call(request);
            Box::pin(async move {
                match future.await {
                    Ok(response) if is_unknown_method(&response) => render::response(
                        &Refusal::new(Reason::UnknownMethod, "the service has no such method"),
                        Face::Grpc,
                    ),
                    Ok(response) => response,
                    Err(never) => match never {},
                }
            })
        });
        self.grpc.push(GrpcRoute { name: S::NAME, long_lived, handler, gate: None });
        self
    }

    /// Sets the router for requests that are not gRPC.
    pub fn http(mut self, router: axum::Router) -> Self {
        self.http = Some(router);
        self
    }

    /// Puts every gRPC service added so far behind a check, and leaves long-lived ones (health, reflection) open.
    pub fn gate(mut self, gate: &Gate) -> Self {
        for route in self.grpc.iter_mut().filter(|route| !route.long_lived) {
            route.gate = Some(Arc::clone(gate));
        }
        self
    }

    /// Whether there is a router for requests that are not gRPC.
    pub fn has_http(&self) -> bool {
        self.http.is_some()
    }

    /// Full names of the gRPC services, in the order they were added.
    pub fn names(&self) -> Vec<&'static str> {
        self.grpc.iter().map(|route| route.name).collect()
    }

    /// Joins the services of `other`; its HTTP router wins when it has one.
    pub fn merge(mut self, other: Self) -> Self {
        self.grpc.extend(other.grpc);
        self.http = other.http.or(self.http);
        self
    }

    fn find(&self, path: &str) -> Option<&GrpcRoute> {
        let service = path.strip_prefix('/')?.split_once('/')?.0;
        self.grpc.iter().find(|route| route.name == service)
    }

    /// Whether calls to this path may stay open without a deadline.
    pub fn is_long_lived(&self, path: &str) -> bool {
        self.find(path).is_some_and(|route| route.long_lived)
    }

    /// Which bound a call of this path counts against.
    pub(crate) fn share(&self, path: &str) -> Share {
        match (self.is_long_lived(path), path) {
            (false, _) => Share::Requests,
            // Whoever asks after the process's health is told, however busy it is.
            (true, CHECK) => Share::None,
            (true, _) => Share::LongLived,
        }
    }

    /// Dispatches by content type first: the two faces share paths, and a router's fallback must never answer gRPC.
    ///
    /// # Errors
    /// Unknown method, wrong HTTP method or unsupported content type.
    pub fn dispatch(&self, request: Request<Body>, face: Face) -> Result<Handling, Refusal> {
        match face {
            Face::Grpc => {
                if request.method() != Method::POST {
                    return Err(Refusal::new(Reason::MethodNotAllowed, "gRPC requests use POST"));
                }
                let Some(route) = self.find(request.uri().path()) else {
                    let message = format!("no such method: {}", request.uri().path());
                    return Err(Refusal::new(Reason::UnknownMethod, message));
                };
                let Some(gate) = &route.gate else { return Ok((route.handler)(request)) };
                let (mut head, body) = request.into_parts();
                gate(&mut head)?;
                Ok((route.handler)(Request::from_parts(head, body)))
            }
            Face::Http => {
                let Some(router) = self.http.clone().filter(|_| self.find(request.uri().path()).is_none())
                else {
                    let message = "this path speaks gRPC: content-type must be application/grpc";
                    return Err(Refusal::new(Reason::UnsupportedMediaType, message));
                };
                Ok(Box::pin(call_router(router, request.map(axum::body::Body::new))))
            }
        }
    }
}

/// Whether a generated server answered without a handler. Its bare UNIMPLEMENTED has no [`Status`] beside it, which every
/// handler's refusal has.
fn is_unknown_method(response: &Response<Body>) -> bool {
    response.headers().get(Status::GRPC_STATUS).is_some_and(|code| code == "12")
        && response.extensions().get::<Status>().is_none()
}

async fn call_router(mut router: axum::Router, request: Request<axum::body::Body>) -> Response<Body> {
    match Service::<Request<axum::body::Body>>::call(&mut router, request).await {
        Ok(response) => response.map(Body::new),
        Err(never) => match never {},
    }
}

/// Which face a request speaks, by its content type alone.
pub fn face(request: &Request<impl Sized>) -> Face {
    let content_type = request.headers().get(http::header::CONTENT_TYPE).map(|value| value.as_bytes());
    let grpc = content_type.is_some_and(|value| {
        let rest = value.strip_prefix(b"application/grpc");
        rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
    });
    if grpc { Face::Grpc } else { Face::Http }
}

/// A small complete body.
pub fn full(bytes: impl Into<Bytes>) -> Body {
    Body::new(http_body_util::Full::new(bytes.into()))
}

/// The response of a router that found no path.
pub fn not_found(path: &str) -> Response<Body> {
    render::response(&Refusal::new(Reason::UnknownMethod, format!("no such path: {path}")), Face::Http)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_face_is_told_by_the_content_type() {
        for (content_type, expected) in [
            ("application/grpc", Face::Grpc),
            ("application/grpc+proto", Face::Grpc),
            ("application/grpc;charset=utf-8", Face::Grpc),
            ("application/grpc-web", Face::Http),
            ("application/json", Face::Http),
        ] {
            let request = Request::builder().header("content-type", content_type).body(()).expect("request");
            assert_eq!(face(&request), expected, "{content_type}");
        }
        assert_eq!(face(&Request::new(())), Face::Http);
    }
}
