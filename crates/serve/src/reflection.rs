//! Reflection: gRPC server reflection, v1 and v1alpha, over one pure [`Index`].
//!
//! The generated traits of tonic-reflection are implemented here, since its own service ends the stream on the first
//! unknown symbol and lists whatever its descriptor set holds. Here an error is an answer inside the stream, what is
//! listed can be called, and no stream holds the drain. One request of a stream is worked on at a time: the next one is
//! read when the answer was taken, so a peer that does not read is held by flow control and nothing queues up.

mod index;

use std::{pin::Pin, sync::Arc};

use futures_core::Stream;
use futures_util::stream;
use tonic::{Code, Request, Response, Status, Streaming};

use crate::health::Readiness;

pub use index::{Answer, Index, IndexError, Query};

/// Names of the reflection services themselves.
pub const SERVICE_NAMES: [&str; 2] = [
    tonic_reflection::pb::v1::server_reflection_server::SERVICE_NAME,
    tonic_reflection::pb::v1alpha::server_reflection_server::SERVICE_NAME,
];

/// Both versions of the service, over the same index. Their streams end when `readiness` says quiescing.
pub fn services(
    index: Arc<Index>,
    readiness: &Readiness,
) -> (v1::ServerReflectionServer<v1::Reflection>, v1alpha::ServerReflectionServer<v1alpha::Reflection>) {
    let other = v1alpha::Reflection { index: Arc::clone(&index), readiness: readiness.clone() };
    let one = v1::Reflection { index, readiness: readiness.clone() };
    (v1::ServerReflectionServer::new(one), v1alpha::ServerReflectionServer::new(other))
}

/// The two versions differ in nothing but their package.
macro_rules! version {
    ($version:ident, $doc:literal) => {
        #[doc = $doc]
        pub mod $version {
            use super::*;
            use tonic_reflection::pb::$version::{
                ErrorResponse, ExtensionNumberResponse, FileDescriptorResponse, ListServiceResponse,
                ServerReflectionRequest, ServerReflectionResponse, ServiceResponse,
                server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
                server_reflection_server::ServerReflection,
            };

            pub use tonic_reflection::pb::$version::server_reflection_server::ServerReflectionServer;

            /// The service over an [`Index`].
            #[derive(Clone, Debug)]
            pub struct Reflection {
                pub(super) index: Arc<Index>,
                pub(super) readiness: Readiness,
            }

            #[tonic::async_trait]
            impl ServerReflection for Reflection {
                type ServerReflectionInfoStream =
                    Pin<Box<dyn Stream<Item = Result<ServerReflectionResponse, Status>> + Send>>;

                async fn server_reflection_info(
                    &self,
                    request: Request<Streaming<ServerReflectionRequest>>,
                ) -> Result<Response<Self::ServerReflectionInfoStream>, Status> {
                    let requests = Some(request.into_inner());
                    let state = (requests, Arc::clone(&self.index), self.readiness.clone());
                    Ok(Response::new(Box::pin(stream::unfold(
                        state,
                        async |(requests, index, readiness)| {
                            let mut requests = requests?;
                            let next = tokio::select! {
                                biased; // The drain comes first: a peer that keeps asking must not outlast it.
                                () = readiness.quiesced() => return None,
                                next = requests.message() => next,
                            };
                            match next {
                                Ok(Some(request)) => {
                                    Some((Ok(respond(&index, request)), (Some(requests), index, readiness)))
                                }
                                Ok(None) => None,
                                Err(status) => Some((Err(status), (None, index, readiness))),
                            }
                        },
                    ))))
                }
            }

            fn respond(index: &Index, request: ServerReflectionRequest) -> ServerReflectionResponse {
                let response = message(match &request.message_request {
                    None => Answer::Error(Code::InvalidArgument, "message_request is not set"),
                    Some(MessageRequest::FileByFilename(name)) => index.answer(Query::File(name)),
                    Some(MessageRequest::FileContainingSymbol(name)) => index.answer(Query::Symbol(name)),
                    Some(MessageRequest::FileContainingExtension(wanted)) => {
                        index.answer(Query::Extension(&wanted.containing_type, wanted.extension_number))
                    }
                    Some(MessageRequest::AllExtensionNumbersOfType(name)) => {
                        index.answer(Query::ExtensionNumbers(name))
                    }
                    Some(MessageRequest::ListServices(_)) => index.answer(Query::Services),
                });
                ServerReflectionResponse {
                    valid_host: request.host.clone(),
                    original_request: Some(request),
                    message_response: Some(response),
                }
            }

            fn message(answer: Answer<'_>) -> MessageResponse {
                match answer {
                    Answer::Files(files) => MessageResponse::FileDescriptorResponse(FileDescriptorResponse {
                        file_descriptor_proto: files.into_iter().map(|file| file.to_vec()).collect(),
                    }),
                    Answer::ExtensionNumbers(base, extension_number) => {
                        MessageResponse::AllExtensionNumbersResponse(ExtensionNumberResponse {
                            base_type_name: base.to_owned(),
                            extension_number,
                        })
                    }
                    Answer::Services(names) => MessageResponse::ListServicesResponse(ListServiceResponse {
                        service: names.iter().map(|name| ServiceResponse { name: name.clone() }).collect(),
                    }),
                    Answer::Error(code, message) => MessageResponse::ErrorResponse(ErrorResponse {
                        error_code: code.into(),
                        error_message: message.to_owned(),
                    }),
                }
            }
        }
    };
}

version!(v1, "grpc.reflection.v1.");
version!(v1alpha, "grpc.reflection.v1alpha, for clients that know no other.");

#[cfg(test)]
mod tests;
