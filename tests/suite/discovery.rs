//! Discovery: health and reflection on every port that speaks gRPC. What is listed is healthy and can be called.

use std::{collections::BTreeSet, net::SocketAddr, sync::Arc};

use base::{Dependency, Reason};
use prost::Message as _;
use prost_types::FileDescriptorProto;
use serve::supervisor::Supervisor;
use stack::Link;
use tokio_stream::{StreamExt as _, wrappers::ReceiverStream};
use tonic::Code;
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

use ::wire::emulator::v1::fault_rule::Effect;

use crate::harness::{
    CUSTOMER, Options, Suite, bounded, link, member, patient,
    talk::{self, soon},
};

const HEALTH: &str = "grpc.health.v1.Health";
const REFLECTION: [&str; 2] =
    ["grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection"];

/// Every port that speaks gRPC, with the services that it is there for.
fn ports(suite: &Suite) -> Vec<(&'static str, SocketAddr, Vec<&'static str>)> {
    let own = |member, service| (member, suite.at(member), vec![service]);
    vec![
        own("home-api", "mercury.home.v2.HomeService"),
        own("profile", "mercury.profile.v1.ProfileService"),
        (
            "entitlement",
            suite.at("entitlement"),
            vec!["mercury.entitlement.v1.EntitlementService", "mercury.entitlement.v1.RevocationService"],
        ),
        own("inventory", "mercury.inventory.v1.InventoryService"),
        own("pricing", "mercury.pricing.v1.PricingService"),
        own("experiment", "mercury.experiment.v1.ExperimentService"),
        own("recommendation", "mercury.recommendation.v1.RecommendationService"),
        own("reputation", "mercury.reputation.v1.ReputationService"),
        (
            "emulator",
            suite.at("emulator"),
            vec![
                "mercury.emulator.v1.ProfileStoreService",
                "mercury.emulator.v1.PolicyStoreService",
                "mercury.emulator.v1.PriceBookService",
                "mercury.emulator.v1.StockService",
                "mercury.emulator.v1.ModelScoreService",
                "mercury.emulator.v1.ReviewScoreService",
                "mercury.emulator.v1.ExperimentCatalogService",
                "mercury.emulator.v1.RevocationFeedService",
            ],
        ),
        (
            "emulator's control",
            suite.members["emulator"].control.expect("a control port"),
            vec!["mercury.emulator.v1.EmulatorControlService"],
        ),
    ]
}

/// The two versions differ in nothing but their package.
macro_rules! reflection {
    ($version:ident) => {
        mod $version {
            use super::*;
            use tonic_reflection::pb::$version::{
                ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
                server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
            };

            /// What a port answers, question by question, on one stream.
            async fn ask(link: &Link, questions: Vec<MessageRequest>) -> Vec<MessageResponse> {
                let (sender, receiver) = tokio::sync::mpsc::channel(1);
                let mut answers = ServerReflectionClient::new(link.clone())
                    .server_reflection_info(bounded(ReceiverStream::new(receiver)))
                    .await
                    .expect("a stream")
                    .into_inner();
                let mut told = Vec::new();
                for question in questions {
                    let request =
                        ServerReflectionRequest { host: "h".into(), message_request: Some(question) };
                    sender.send(request.clone()).await.expect("the stream is open");
                    let answer = soon(answers.next()).await.expect("the stream is open").expect("an answer");
                    assert_eq!(answer.valid_host, "h");
                    assert_eq!(answer.original_request, Some(request));
                    told.push(answer.message_response.expect("an answer"));
                }
                drop(sender);
                assert!(soon(answers.next()).await.is_none(), "the stream ends with its questions");
                told
            }

            /// The services that are listed, after a question that has no answer.
            pub(super) async fn services(link: &Link) -> BTreeSet<String> {
                let list = MessageRequest::ListServices(String::new());
                let unknown = MessageRequest::FileContainingSymbol("no.such.Symbol".into());
                let told = ask(link, vec![unknown, list.clone(), list]).await;
                let MessageResponse::ErrorResponse(error) = &told[0] else { panic!("{:?}", told[0]) };
                assert_eq!(error.error_code, Code::NotFound as i32);
                assert_eq!(told[1], told[2]);
                let MessageResponse::ListServicesResponse(list) = &told[1] else { panic!("{:?}", told[1]) };
                list.service.iter().map(|service| service.name.clone()).collect()
            }

            /// The files behind a symbol, the one that declares it first.
            pub(super) async fn files(link: &Link, symbol: &str) -> Vec<FileDescriptorProto> {
                let told = ask(link, vec![MessageRequest::FileContainingSymbol(symbol.into())]).await;
                let MessageResponse::FileDescriptorResponse(files) = &told[0] else {
                    panic!("{symbol}: {told:?}")
                };
                let files = files.file_descriptor_proto.iter();
                files
                    .map(|file| FileDescriptorProto::decode(file.as_slice()).expect("a descriptor"))
                    .collect()
            }
        }
    };
}

reflection!(v1);
reflection!(v1alpha);

#[tokio::test]
async fn every_port_is_healthy_and_lists_what_can_be_called() {
    let suite = Suite::start().await;
    let world = member::world("discovery", Arc::new(Supervisor::new()));
    for (name, at, own) in ports(&suite) {
        let link = link(&world, at);
        let listed = v1::services(&link).await;
        assert_eq!(listed, v1alpha::services(&link).await, "{name}");
        let expected = own.iter().chain(&REFLECTION).chain([&HEALTH]).map(|name| (*name).to_owned());
        assert_eq!(listed, expected.collect::<BTreeSet<_>>(), "{name}");

        let check = async |service: &str| {
            let request = bounded(HealthCheckRequest { service: service.to_owned() });
            HealthClient::new(link.clone()).check(request).await.map(|answer| answer.into_inner().status())
        };
        for service in own.iter().copied().chain(["", HEALTH]) {
            assert_eq!(check(service).await.expect("known"), ServingStatus::Serving, "{name}: {service}");
        }
        for service in ["mercury", "no.such.Service", own[0].trim_end_matches("Service")] {
            assert_eq!(
                check(service).await.expect_err("unknown").code(),
                Code::NotFound,
                "{name}: {service}"
            );
        }
        for service in &listed {
            call_all(name, at, service, &v1::files(&link, service).await).await;
            assert_eq!(v1::files(&link, service).await, v1alpha::files(&link, service).await);
        }
    }
    for dependency in Dependency::ALL {
        assert!(suite.stats(dependency).await.in_service == 0, "{dependency}");
    }
    suite.finish().await;
}

/// Calls every unary method of a service with an empty message: whatever it says, it knows the method.
async fn call_all(port: &str, at: SocketAddr, service: &str, files: &[FileDescriptorProto]) {
    let named = |file: &&FileDescriptorProto| {
        file.service.iter().any(|one| format!("{}.{}", file.package(), one.name()) == service)
    };
    let file = files.iter().find(named).unwrap_or_else(|| panic!("{port}: {service} is declared nowhere"));
    // A client needs every import, directly or indirectly, to read the file.
    let names: BTreeSet<_> = files.iter().map(FileDescriptorProto::name).collect();
    for import in files.iter().flat_map(|file| &file.dependency) {
        assert!(names.contains(import.as_str()), "{port}: {import}");
    }
    let declared = file.service.iter().find(|one| service.ends_with(one.name())).expect("found above");
    assert!(!declared.method.is_empty(), "{service}");
    for method in declared.method.iter().filter(|one| !one.client_streaming() && !one.server_streaming()) {
        let path = format!("/{service}/{}", method.name());
        let told = talk::call(at, &path, &CUSTOMER, &[]).await;
        assert_ne!(told.code(), Code::Unimplemented, "{port}: {path}");
        assert_ne!(told.code(), Code::Unknown, "{port}: {path}: {told:?}");
    }
}

#[tokio::test]
async fn a_watch_lasts_longer_than_any_request_whether_it_names_a_time_or_not() {
    let suite =
        Suite::start_with(Options::quick().policy("services.home-api", "timeout_max_ms", "300")).await;
    // One that names ten seconds, and one over a bare connection that names nothing.
    let request = bounded(HealthCheckRequest::default());
    let mut timed =
        HealthClient::new(suite.link("home-api")).watch(request).await.expect("a watch").into_inner();
    let connection = talk::Http2::open(suite.home()).await;
    let path = format!("/{HEALTH}/Watch");
    let (response, _upload) = connection
        .stream(talk::grpc(suite.home(), &path, &[]), Some(talk::frame(&[])))
        .await
        .expect("a stream");
    let mut untimed = soon(response).await.expect("a head").into_body();
    assert_eq!(
        soon(timed.message()).await.expect("open").expect("a message").status(),
        ServingStatus::Serving
    );
    assert!(soon(untimed.data()).await.expect("open").is_ok());
    // Two requests after which the longest deadline of a request has passed twice.
    suite.fault(Dependency::Profile, Effect::Hang(true)).await;
    for _ in 0..2 {
        suite.both(&patient(&[])).await.refused(Reason::DeadlineExceeded);
    }
    suite.clear_faults().await;
    let mut suite = suite;
    suite.member("home-api").stop();
    assert_eq!(
        soon(timed.message()).await.expect("no error").expect("a message").status(),
        ServingStatus::NotServing
    );
    assert!(soon(timed.message()).await.expect("no error").is_none());
    assert_eq!(soon(untimed.data()).await.expect("open").expect("a message"), talk::frame(&[8, 2]));
    suite.finish_rest().await;
}
