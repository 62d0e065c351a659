//! Tests of reflection: the index over the suite's own descriptors, and both versions of the stream.

use futures_util::{FutureExt as _, StreamExt as _};
use prost::Message as _;
use prost_types::{
    DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet, ServiceDescriptorProto,
};

use super::*;

const PROFILE: &str = "mercury.profile.v1.ProfileService";
const PROFILE_FILE: &str = "mercury/profile/v1/profile.proto";
/// What it imports.
const SUMMARY_FILE: &str = "mercury/summary/v1/summary.proto";

fn index() -> Index {
    Index::of([PROFILE]).expect("the suite's descriptors")
}

fn names(answer: Answer<'_>) -> Vec<String> {
    let Answer::Files(files) = answer else { panic!("expected files, got {answer:?}") };
    let name = |file| FileDescriptorProto::decode(file).expect("a file").name().to_owned();
    files.into_iter().map(name).collect()
}

fn not_found(answer: &Answer<'_>) -> bool {
    matches!(answer, Answer::Error(Code::NotFound, _))
}

#[test]
fn only_what_this_port_serves_is_listed() {
    let index = index();
    let expected = [
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflection",
        PROFILE,
    ];
    assert_eq!(index.answer(Query::Services), Answer::Services(&expected.map(str::to_owned)));
    for name in expected {
        let imports = usize::from(name == PROFILE);
        assert_eq!(names(index.answer(Query::Symbol(name))).len(), 1 + imports, "{name}");
    }
    assert!(not_found(&index.answer(Query::Symbol("mercury.pricing.v1.PricingService"))));
    assert!(not_found(&index.answer(Query::File("mercury/pricing/v1/pricing.proto"))));
}

#[test]
fn every_kind_of_symbol_leads_to_its_file() {
    let index = index();
    for symbol in [
        PROFILE,
        "mercury.profile.v1.ProfileService.GetProfile",
        "mercury.profile.v1.Profile",
        "mercury.profile.v1.Profile.display_name",
        "mercury.profile.v1.GetProfileRequest",
    ] {
        assert_eq!(names(index.answer(Query::Symbol(symbol))), [PROFILE_FILE, SUMMARY_FILE], "{symbol}");
    }
    // A nested enum, a value of it (scoped to the message that holds the enum), and a oneof.
    for symbol in [
        "grpc.health.v1.HealthCheckResponse.ServingStatus",
        "grpc.health.v1.HealthCheckResponse.SERVICE_UNKNOWN",
        "grpc.reflection.v1.ServerReflectionRequest.message_request",
    ] {
        assert_eq!(names(index.answer(Query::Symbol(symbol))).len(), 1, "{symbol}");
    }
    for symbol in ["", ".", "mercury", "mercury.profile.v1", "mercury.profile.v1.Profile.nothing"] {
        assert!(not_found(&index.answer(Query::Symbol(symbol))), "{symbol:?}");
    }
}

#[test]
fn every_service_of_the_suite_has_a_descriptor() {
    let set = FileDescriptorSet::decode(wire::DESCRIPTORS).expect("a set");
    let services: Vec<_> = set
        .file
        .iter()
        .flat_map(|file| file.service.iter().map(|one| format!("{}.{}", file.package(), one.name())))
        .collect();
    assert!(services.len() >= 9, "{services:?}");
    let index = Index::of(services.iter().map(String::as_str)).expect("all of them");
    for service in &services {
        assert!(matches!(index.answer(Query::Symbol(service)), Answer::Files(_)), "{service}");
    }
}

#[test]
fn a_service_without_descriptor_is_refused_at_start() {
    let unknown = "mercury.nothing.v1.NothingService";
    assert_eq!(Index::of([unknown]).expect_err("unknown"), IndexError::UnknownService(unknown.to_owned()));
    assert!(matches!(Index::new(&[b"\x0a\x05ab"], []), Err(IndexError::Malformed(_))));
}

/// `base.proto` declares `b.Base`; `top.proto` imports it, serves `t.Top` and extends `b.Base` under 100 and 7.
fn synthetic(with_base: bool) -> &'static [u8] {
    let extension = |number: i32| FieldDescriptorProto {
        name: Some(format!("extra_{number}")),
        number: Some(number),
        extendee: Some(".b.Base".to_owned()),
        ..FieldDescriptorProto::default()
    };
    let top = FileDescriptorProto {
        name: Some("top.proto".to_owned()),
        package: Some("t".to_owned()),
        dependency: vec!["base.proto".to_owned()],
        service: vec![ServiceDescriptorProto { name: Some("Top".to_owned()), ..Default::default() }],
        message_type: vec![DescriptorProto {
            name: Some("Holder".to_owned()),
            extension: vec![extension(7)],
            ..DescriptorProto::default()
        }],
        extension: vec![extension(100)],
        ..FileDescriptorProto::default()
    };
    let base = FileDescriptorProto {
        name: Some("base.proto".to_owned()),
        package: Some("b".to_owned()),
        message_type: vec![DescriptorProto { name: Some("Base".to_owned()), ..DescriptorProto::default() }],
        ..FileDescriptorProto::default()
    };
    let file = if with_base { vec![top, base] } else { vec![top] };
    FileDescriptorSet { file }.encode_to_vec().leak()
}

#[test]
fn a_file_comes_with_its_imports_and_extensions_are_found() {
    let index = Index::new(&[synthetic(true)], ["t.Top"]).expect("complete");
    assert_eq!(names(index.answer(Query::Symbol("t.Top"))), ["top.proto", "base.proto"]);
    assert_eq!(names(index.answer(Query::File("base.proto"))), ["base.proto"]);
    assert_eq!(names(index.answer(Query::Extension("b.Base", 7))), ["top.proto", "base.proto"]);
    assert_eq!(names(index.answer(Query::Symbol("t.Holder.extra_7"))), ["top.proto", "base.proto"]);
    assert!(not_found(&index.answer(Query::Extension("b.Base", 8))));
    let numbers = Answer::ExtensionNumbers("b.Base", vec![7, 100]);
    assert_eq!(index.answer(Query::ExtensionNumbers("b.Base")), numbers);
    assert!(not_found(&index.answer(Query::ExtensionNumbers("b.None"))));

    let error = Index::new(&[synthetic(false)], ["t.Top"]).expect_err("an import is missing");
    assert_eq!(error, IndexError::MissingImport("top.proto".to_owned(), "base.proto".to_owned()));
}

/// A conversation with one version: a fault, then good questions on the same stream, then quiesce.
macro_rules! conversation {
    ($test:ident, $version:ident) => {
        #[tokio::test]
        async fn $test() {
            use tonic_reflection::pb::$version::{
                ExtensionRequest, ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
                server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
            };

            let readiness = Readiness::new();
            let server = $version::Reflection { index: Arc::new(index()), readiness: readiness.clone() };
            let mut client = ServerReflectionClient::new($version::ServerReflectionServer::new(server));
            let (ask, questions) = tokio::sync::mpsc::channel(1);
            let questions = stream::unfold(questions, async |mut questions| {
                let question: ServerReflectionRequest = questions.recv().await?;
                Some((question, questions))
            });
            let mut answers = client.server_reflection_info(questions).await.expect("opens").into_inner();
            let mut talk = async |message_request| {
                let question = ServerReflectionRequest { host: "here".to_owned(), message_request };
                ask.send(question.clone()).await.expect("the stream is open");
                let answer = answers.message().await.expect("an answer").expect("the stream is open");
                assert_eq!(answer.original_request, Some(question));
                assert_eq!(answer.valid_host, "here");
                answer.message_response.expect("a response")
            };
            let extension = ExtensionRequest { containing_type: PROFILE.to_owned(), extension_number: 1 };
            for (fault, code) in [
                (Some(MessageRequest::FileContainingSymbol("no.Such".to_owned())), Code::NotFound),
                (Some(MessageRequest::FileByFilename("no.proto".to_owned())), Code::NotFound),
                (Some(MessageRequest::FileContainingExtension(extension)), Code::NotFound),
                (None, Code::InvalidArgument),
            ] {
                match talk(fault).await {
                    MessageResponse::ErrorResponse(error) => assert_eq!(error.error_code, i32::from(code)),
                    other => panic!("expected an error inside the stream, got {other:?}"),
                }
            }
            match talk(Some(MessageRequest::ListServices(String::new()))).await {
                MessageResponse::ListServicesResponse(list) => {
                    assert!(list.service.iter().any(|one| one.name == PROFILE));
                    assert_eq!(list.service.len(), 4);
                }
                other => panic!("{other:?}"),
            }
            match talk(Some(MessageRequest::FileByFilename(PROFILE_FILE.to_owned()))).await {
                MessageResponse::FileDescriptorResponse(files) => {
                    let files = files.file_descriptor_proto;
                    let first = FileDescriptorProto::decode(files[0].as_slice()).expect("a file");
                    assert_eq!(first.name(), PROFILE_FILE);
                }
                other => panic!("{other:?}"),
            }
            let base = "mercury.profile.v1.Profile".to_owned();
            match talk(Some(MessageRequest::AllExtensionNumbersOfType(base.clone()))).await {
                MessageResponse::AllExtensionNumbersResponse(numbers) => {
                    assert_eq!((numbers.base_type_name, numbers.extension_number), (base, vec![]));
                }
                other => panic!("{other:?}"),
            }
            assert!(answers.next().now_or_never().is_none(), "open while nobody asks");
            readiness.quiescing();
            assert!(answers.next().await.is_none(), "ends with OK at quiesce");
        }
    };
}

conversation!(version_1_answers_faults_inside_the_stream_and_ends_at_quiesce, v1);
conversation!(version_1alpha_answers_faults_inside_the_stream_and_ends_at_quiesce, v1alpha);

#[tokio::test]
async fn the_stream_ends_when_the_client_has_no_more_questions() {
    use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;

    let (server, _) = services(Arc::new(index()), &Readiness::new());
    let mut client = ServerReflectionClient::new(server);
    let mut answers = client.server_reflection_info(stream::empty()).await.expect("opens").into_inner();
    assert_eq!(answers.message().await.expect("ends with OK"), None);
}
