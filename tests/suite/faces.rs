//! Faces: one page on two faces, what it must hold, the headers around it, and what is not a page.

use ::wire::home::v2::{GetHomeResponse, Marker};
use base::{Dependency, Reason, headers};
use http::{Method, Request};
use http_body_util::Full;
use serde_json::{Value, json};
use tonic::Code;

use crate::harness::{
    Both, CUSTOMER, GET_HOME, Suite, customer, patient,
    talk::{self, Http1},
};

/// Subjects of every class, from both ends of the data set, and a region each.
const SUBJECTS: [[&str; 4]; 6] = [
    ["tenant-000", "user-00000", "standard", "eu-west"],
    ["tenant-007", "user-00042", "premium", "eu-north"],
    ["tenant-042", "user-01234", "enterprise", "us-east"],
    ["tenant-101", "user-04711", "standard", "us-west"],
    ["tenant-150", "user-08080", "premium", "ap-south"],
    ["tenant-199", "user-09999", "enterprise", "eu-west"],
];

#[tokio::test]
async fn both_faces_serve_the_same_page_and_it_is_whole() {
    let suite = Suite::start().await;
    let mut names = std::collections::BTreeSet::new();
    for (number, [tenant, subject, class, region]) in SUBJECTS.into_iter().enumerate() {
        let id = format!("same-{number}");
        let head = [
            (headers::TENANT, tenant),
            (headers::SUBJECT, subject),
            (headers::CLASS, class),
            (headers::REGION, region),
            (headers::REQUEST_ID, &id),
            (headers::GRPC_TIMEOUT, "2S"),
        ];
        let both = suite.both(&head).await;
        let mut json = both.served();
        check_page(&json, tenant, subject);
        assert_eq!(json["request_id"], *id);
        names.insert(json["profile"]["display_name"].to_string());

        let mut proto = as_json(&both.grpc.message());
        // One operation was asked for twice: whichever face was first recorded its exposures, and the other one replayed.
        let [http, grpc] = [&mut json, &mut proto].map(effects);
        assert!(
            http != grpc
                && [&http, &grpc].iter().all(|one| ["committed", "replayed"].contains(&one.as_str()))
        );
        for face in [&mut json, &mut proto] {
            // The two answers were given at two moments.
            let as_of = face["inventory"]["as_of_unix_ms"].take();
            assert!(as_of.as_i64().is_some_and(|at| at > 1_600_000_000_000), "{as_of}");
        }
        assert_eq!(json, proto);
    }
    assert!(names.len() > 1, "different people have different names: {names:?}");
    suite.finish().await;
}

/// Takes out what became of the page's exposures, which is the same for all of them.
fn effects(page: &mut Value) -> String {
    let arms = page["experiments"].as_array_mut().expect("a list");
    let taken: std::collections::BTreeSet<String> =
        arms.iter_mut().map(|arm| arm["effect"].take().as_str().expect("text").to_owned()).collect();
    assert_eq!(taken.len(), 1, "{taken:?}");
    taken.into_iter().next().unwrap_or_default()
}

/// The page as the JSON face writes it, from the gRPC face's message.
fn as_json(page: &GetHomeResponse) -> Value {
    let (profile, entitlement) =
        (page.profile.as_ref().expect("set"), page.entitlement.as_ref().expect("set"));
    let (inventory, pricing) = (page.inventory.as_ref().expect("set"), page.pricing.as_ref().expect("set"));
    let optional = page.optional.as_ref().expect("set");
    let marker = |marker: Marker| marker.as_str_name().trim_start_matches("MARKER_").to_lowercase();
    let mut json = json!({
        "core_complete": page.core_complete,
        "profile": {
            "tenant": profile.tenant, "subject": profile.subject, "display_name": profile.display_name,
            "locale": profile.locale, "segment": profile.segment, "plan": profile.plan,
        },
        "entitlement": {
            "authority": entitlement.authority, "policy_version": entitlement.policy_version,
            "claims": entitlement.claims,
        },
        "inventory": {
            "items": inventory.items.iter().map(|item| json!({
                "item_id": item.item_id, "available_units": item.available_units, "status": item.status,
            })).collect::<Value>(),
            "as_of_unix_ms": inventory.as_of_unix_ms,
        },
        "pricing": {
            "currency_code": pricing.currency_code,
            "lines": pricing.lines.iter().map(|line| json!({
                "item_id": line.item_id, "list_minor_units": line.list_minor_units,
                "net_minor_units": line.net_minor_units, "discount_basis_points": line.discount_basis_points,
            })).collect::<Value>(),
        },
        "experiments": page.experiments.iter().map(|arm| json!({
            "experiment_id": arm.experiment_id, "experiment_version": arm.experiment_version,
            "variant": arm.variant, "event_id": arm.event_id, "effect": arm.effect,
        })).collect::<Value>(),
        "optional": {
            "recommendations": marker(optional.recommendations()), "reputation": marker(optional.reputation()),
        },
        "request_id": page.request_id,
        "policy_generation": page.policy_generation,
    });
    if let Some(section) = &page.recommendations {
        let items = section.items.iter();
        json["recommendations"] = json!({ "items": items.map(|item| json!({
            "item_id": item.item_id, "score_micros": item.score_micros,
        })).collect::<Value>() });
    }
    if let Some(section) = &page.reputation {
        // Through text, as the other face's figures went.
        let text = json!({
            "score": section.score, "review_count": section.review_count,
            "lower_bound": section.lower_bound, "upper_bound": section.upper_bound,
        });
        json["reputation"] = serde_json::from_str(&text.to_string()).expect("JSON");
    }
    json
}

/// What holds for every page.
fn check_page(page: &Value, tenant: &str, subject: &str) {
    assert_eq!((&page["profile"]["tenant"], &page["profile"]["subject"]), (&json!(tenant), &json!(subject)));
    for field in ["display_name", "locale", "segment", "plan"] {
        assert!(page["profile"][field].as_str().is_some_and(|text| !text.is_empty()), "{field}: {page}");
    }
    assert_eq!(page["entitlement"]["authority"], "call");
    let claims = texts(&page["entitlement"]["claims"], |claim| claim);
    assert!(!claims.is_empty() && claims.is_sorted_by(|one, next| one < next), "{claims:?}");

    let items = texts(&page["inventory"]["items"], |item| &item["item_id"]);
    assert!((1..=8).contains(&items.len()), "{items:?}");
    assert_eq!(items, texts(&page["pricing"]["lines"], |line| &line["item_id"]));
    for line in page["pricing"]["lines"].as_array().expect("a list") {
        let (list, net) = (line["list_minor_units"].as_i64(), line["net_minor_units"].as_i64());
        assert!(list > Some(0) && net >= Some(0) && net <= list, "{line}");
    }
    for item in page["inventory"]["items"].as_array().expect("a list") {
        let none = item["available_units"] == 0;
        assert_eq!(none, item["status"] == "out_of_stock", "{item}");
    }
    let arms = texts(&page["experiments"], |arm| &arm["experiment_id"]);
    assert!(arms.len() == 3 && arms.is_sorted_by(|one, next| one < next), "{arms:?}");

    for section in ["recommendations", "reputation"] {
        let marker = page["optional"][section].as_str().expect("a marker");
        assert_eq!(page.get(section).is_some(), marker == "present", "{section}: {page}");
        assert!(["present", "empty"].contains(&marker), "nothing was slow or broken: {page}");
    }
    if let Some(section) = page.get("recommendations") {
        let ranked: Vec<_> = section["items"].as_array().expect("a list").iter().collect();
        let key = |item: &Value| {
            let score = item["score_micros"].as_u64().expect("a score");
            (std::cmp::Reverse(score), item["item_id"].as_str().expect("an id").to_owned())
        };
        assert!(!ranked.is_empty() && ranked.is_sorted_by_key(|item| key(item)), "{section}");
        let repeated = ranked.iter().any(|item| items.contains(&item["item_id"].as_str().expect("an id")));
        assert!(!repeated, "what is on the page is not recommended: {page}");
    }
    if let Some(section) = page.get("reputation") {
        let figure = |name: &str| section[name].as_f64().expect("a figure");
        let (low, score, high) = (figure("lower_bound"), figure("score"), figure("upper_bound"));
        assert!(1.0 <= low && low <= score && score <= high && high <= 5.0, "{section}");
        assert!(section["review_count"].as_u64() > Some(0), "{section}");
    }
}

fn texts<'v>(list: &'v Value, field: impl Fn(&'v Value) -> &'v Value) -> Vec<&'v str> {
    let list = list.as_array().expect("a list").iter();
    list.map(|entry| field(entry).as_str().expect("text")).collect()
}

#[tokio::test]
async fn a_subject_without_reviews_has_an_empty_reputation_and_no_section() {
    let suite = Suite::start().await;
    let mut markers = std::collections::BTreeSet::new();
    for number in 0..400 {
        let subject = model::names::subject(number);
        let mut head = patient(&[]);
        head[1].1 = &subject;
        let page = suite.get(&head).await.json();
        check_page(&page, "tenant-007", &subject);
        markers.insert(page["optional"]["reputation"].as_str().expect("a marker").to_owned());
        if markers.len() == 2 {
            break;
        }
    }
    assert!(markers.iter().eq(["empty", "present"]), "of 400 subjects: {markers:?}");
    suite.finish().await;
}

#[tokio::test]
async fn every_answer_says_who_answered_what_and_where_the_time_went() {
    let suite = Suite::start().await;
    let generation = model::policy::Policy::shipped().generation.to_string();
    let Both { http, grpc } = suite.both(&patient(&[(headers::REQUEST_ID, "op-1.A_b")])).await;
    for (face, header) in [("http", &http.head as &http::HeaderMap), ("grpc", &grpc.head)] {
        let value = |name: &str| header.get(name).map(|value| value.to_str().expect("ASCII"));
        assert_eq!(value(headers::REQUEST_ID), Some("op-1.A_b"), "{face}");
        assert_eq!(value(headers::POLICY_GENERATION), Some(generation.as_str()), "{face}");
        let applied = "deadline=on,cancellation=on,admission=on,degradation=on";
        assert_eq!(value(headers::MECHANISMS), Some(applied), "{face}");
        assert_eq!(value("cache-control"), Some("private, no-store"), "{face}");
        check_server_timing(value("server-timing").expect("a header"));
    }
    assert_eq!(http.header("content-type"), "application/json");
    assert_eq!(grpc.header("content-type"), "application/grpc");
    assert_eq!(http.json()["policy_generation"].to_string(), generation);

    // Made where it is absent, each time another one, and told in header and page alike.
    let (one, two) = (suite.get(&patient(&[])).await, suite.get(&patient(&[])).await);
    for answer in [&one, &two] {
        let id = answer.header(headers::REQUEST_ID);
        assert!(uuid::Uuid::parse_str(id).is_ok(), "{id}");
        assert_eq!(answer.json()["request_id"], id);
    }
    assert_ne!(one.header(headers::REQUEST_ID), two.header(headers::REQUEST_ID));

    // A refusal is an answer too.
    let Both { http, grpc } =
        suite.both(&customer(&[(headers::REQUEST_ID, "op-2"), (headers::GRPC_TIMEOUT, "1m")])).await;
    assert_eq!((http.status.as_u16(), grpc.code()), (504, Code::DeadlineExceeded));
    assert_eq!((http.header(headers::REQUEST_ID), grpc.header(headers::REQUEST_ID)), ("op-2", "op-2"));
    suite.finish().await;
}

/// One entry a branch, each with service and waiting time.
fn check_server_timing(text: &str) {
    let entries: Vec<_> = text.split(", ").map(|entry| entry.split(';').collect::<Vec<_>>()).collect();
    let names: Vec<_> = entries.iter().map(|entry| entry[0]).collect();
    assert_eq!(names[0], "admission", "{text}");
    assert_eq!(names[1..], Dependency::ALL.map(Dependency::as_str));
    for entry in &entries[1..] {
        let figure = |at: usize, name: &str| -> f64 {
            let value = entry[at].strip_prefix(name).unwrap_or_else(|| panic!("{entry:?}"));
            value.parse().unwrap_or_else(|_| panic!("{entry:?}"))
        };
        assert!(figure(1, "dur=") >= 1.0, "the dependency alone takes a millisecond: {entry:?}");
        assert!(figure(2, "wait=") >= 0.0, "{entry:?}");
    }
}

#[tokio::test]
async fn what_is_not_a_page_is_told_apart() {
    let suite = Suite::start().await;
    let home = suite.home();
    let send = async |method: Method, path: &str, content_type: Option<&str>| {
        let mut request = Request::builder().method(method).uri(path).header("host", "home");
        for (name, value) in CUSTOMER {
            request = request.header(name, value);
        }
        if let Some(content_type) = content_type {
            request = request.header("content-type", content_type);
        }
        Http1::open(home).await.send(request.body(Full::default()).expect("a request")).await
    };
    for (method, path, content_type, status, reason) in [
        (Method::GET, "/", None, 404, Reason::UnknownMethod),
        (Method::GET, "/v2/home/", None, 404, Reason::UnknownMethod),
        (Method::GET, "/v1/home", None, 404, Reason::UnknownMethod),
        (Method::POST, "/v2/home", Some("application/json"), 405, Reason::MethodNotAllowed),
        (Method::DELETE, "/v2/home", None, 405, Reason::MethodNotAllowed),
        (Method::OPTIONS, "/v2/home", None, 405, Reason::MethodNotAllowed),
        (Method::POST, GET_HOME, Some("application/json"), 415, Reason::UnsupportedMediaType),
        (Method::POST, GET_HOME, Some("application/grpc-web"), 415, Reason::UnsupportedMediaType),
        (Method::GET, GET_HOME, None, 415, Reason::UnsupportedMediaType),
    ] {
        let answer = send(method.clone(), path, content_type).await;
        assert_eq!(answer.status, status, "{method} {path}: {answer:?}");
        assert_eq!(answer.error("reason"), reason.as_str(), "{method} {path}");
        assert_eq!(answer.header("x-mercury-reason"), reason.as_str(), "{method} {path}");
        if status == 405 {
            assert!(answer.header("allow").split(", ").any(|allowed| allowed == "GET"), "{answer:?}");
        }
    }
    // HEAD is GET without its body.
    let head = send(Method::HEAD, "/v2/home", None).await;
    assert_eq!((head.status.as_u16(), head.body.len()), (200, 0));
    assert!(head.header("content-length").parse::<u32>().is_ok_and(|length| length > 100), "{head:?}");

    // Unknown on the gRPC face, in the two ways there are: a service that is not here, and a method that is not in it.
    for path in ["/mercury.home.v1.HomeService/GetHome", "/mercury.home.v2.HomeService/GetHouse", "/", "/x"] {
        let told = talk::call(home, path, &CUSTOMER, &[]).await;
        assert_eq!((told.http.as_u16(), told.code()), (200, Code::Unimplemented), "{path}");
        assert_eq!(told.header("x-mercury-reason"), Reason::UnknownMethod.as_str(), "{path}: {told:?}");
    }
    // A service that speaks gRPC alone says so.
    let answer = talk::get(suite.at("profile"), "/v2/home").await;
    assert_eq!((answer.status.as_u16(), answer.error("reason").as_str()), (415, "unsupported_media_type"));
    suite.finish().await;
}
