//! Proto: a protobuf package is where its name says, and a gRPC method that a document names is declared somewhere.

use crate::repo::Repo;

/// Every `.proto` file lies in `proto/mercury/<service>/v<N>/`, and its package is that path with dots.
pub(crate) fn packages(repo: &Repo) -> Vec<String> {
    let mut faults = Vec::new();
    for (path, text) in repo.ending(".proto") {
        let parts: Vec<_> = path.split('/').collect();
        let placed = matches!(parts[..], ["proto", "mercury", _, version, _] if is_version(version));
        if !placed {
            faults.push(format!("{path}: not in proto/mercury/<service>/v<N>/"));
            continue;
        }
        let expected = parts[1..parts.len() - 1].join(".");
        match package(text) {
            Some(found) if found == expected => {}
            found => {
                faults.push(format!("{path}: package {}, expected {expected}", found.unwrap_or("missing")))
            }
        }
    }
    faults
}

/// True when `service/method` (`mercury.home.v2.HomeService/GetHome`) is declared, or is one of the standard services
/// that every port answers.
pub(crate) fn has_method(repo: &Repo, name: &str) -> bool {
    let Some((service, method)) = name.split_once('/') else { return false };
    if service.starts_with("grpc.health.") || service.starts_with("grpc.reflection.") {
        return true;
    }
    let Some((wanted, service)) = service.rsplit_once('.') else { return false };
    repo.ending(".proto").any(|(_, text)| {
        package(text) == Some(wanted)
            && text.contains(&format!("service {service} {{"))
            && text.contains(&format!("rpc {method}("))
    })
}

fn package(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.trim().strip_prefix("package ")?.strip_suffix(';')).map(str::trim)
}

fn is_version(part: &str) -> bool {
    part.strip_prefix('v').is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

#[test]
fn a_package_out_of_place_is_found() {
    let repo = Repo::of(&[
        ("proto/mercury/home/v2/home.proto", "package mercury.home.v1;"),
        ("proto/mercury/home/home.proto", "package mercury.home;"),
        ("proto/mercury/pricing/v1/pricing.proto", "syntax = \"proto3\";\n"),
        ("proto/mercury/profile/v1/profile.proto", "package mercury.profile.v1;"),
    ]);
    let faults = packages(&repo);
    assert_eq!(faults.len(), 3, "{faults:?}");
}

#[test]
fn methods_are_looked_up() {
    let text = "package mercury.home.v2;\nservice HomeService {\n  rpc GetHome(A) returns (B);\n}\n";
    let repo = Repo::of(&[("proto/mercury/home/v2/home.proto", text)]);
    assert!(has_method(&repo, "mercury.home.v2.HomeService/GetHome"));
    assert!(has_method(&repo, "grpc.health.v1.Health/Check"));
    for bad in ["mercury.home.v1.HomeService/GetHome", "mercury.home.v2.HomeService/GetPage", "GetHome"] {
        assert!(!has_method(&repo, bad), "{bad}");
    }
}
