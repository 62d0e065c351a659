//! Images: both Dockerfiles end in the same image, and the compose file runs the eight services and the emulator. What
//! only a running engine can tell (limits, users, exit codes) is in tests/compose/smoke.

use std::collections::BTreeSet;

use crate::repo::Repo;

/// The eight services and the emulator.
pub(crate) const SERVICES: [&str; 9] = [
    "emulator",
    "entitlement",
    "experiment",
    "home-api",
    "inventory",
    "pricing",
    "profile",
    "recommendation",
    "reputation",
];

/// Faults of the Dockerfiles and of docker-compose.yml.
pub(crate) fn faults(repo: &Repo) -> Vec<String> {
    let mut faults = Vec::new();
    let (built, prebuilt) = (image(repo.text("Dockerfile")), image(repo.text("Dockerfile.prebuilt")));
    if built.is_empty() || built != prebuilt {
        faults.push(format!(
            "Dockerfile and Dockerfile.prebuilt differ below FROM scratch:\n{built:#?}\n{prebuilt:#?}"
        ));
    }
    for instruction in ["ENTRYPOINT", "CMD"] {
        let shell_form = built.iter().find(|line| line.starts_with(instruction) && !line.contains('['));
        faults.extend(
            shell_form
                .map(|line| format!("Dockerfile: {line:?} needs a shell, and a scratch image has none")),
        );
    }
    if let Some(channel) = repo.text("rust-toolchain.toml").split('"').nth(1)
        && !repo.text("Dockerfile").contains(&format!("FROM rust:{channel}-"))
    {
        faults
            .push(format!("Dockerfile: does not build with the toolchain of rust-toolchain.toml, {channel}"));
    }
    let found = services(repo.text("docker-compose.yml"));
    let expected: BTreeSet<_> = SERVICES.into_iter().collect();
    for missing in expected.difference(&found) {
        faults.push(format!("docker-compose.yml: {missing} is missing"));
    }
    for unknown in found.difference(&expected) {
        faults.push(format!("docker-compose.yml: {unknown} is no service of the suite"));
    }
    faults
}

/// Names of the services of a compose file: keys indented by two below `services:`.
pub(crate) fn services(compose: &str) -> BTreeSet<&str> {
    compose
        .lines()
        .skip_while(|line| *line != "services:")
        .skip(1)
        .take_while(|line| line.is_empty() || line.starts_with([' ', '#']))
        .filter_map(|line| line.strip_prefix("  ")?.strip_suffix(':'))
        .filter(|name| !name.starts_with([' ', '#']))
        .collect()
}

/// The instructions of the last stage, without comments, and without where a copy comes from.
fn image(dockerfile: &str) -> Vec<String> {
    let lines = dockerfile.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut stage: Vec<String> = Vec::new();
    for line in lines {
        if line.starts_with("FROM ") {
            stage.clear();
        }
        let words = line.split_whitespace().filter(|word| !word.starts_with("--from="));
        stage.push(words.map(|word| word.trim_start_matches("/src/")).collect::<Vec<_>>().join(" "));
    }
    stage
}

#[test]
fn different_images_and_missing_services_are_found() {
    let all: String = SERVICES.iter().map(|name| format!("  {name}:\n    image: x\n")).collect();
    let compose = format!("x-a:\n  b: c\nservices:\n{all}\nvolumes:\n  other:\n");
    let source = "FROM rust AS build\nRUN x\n# why\nFROM scratch\nCOPY --from=build /src/dist/m /m\nENTRYPOINT [\"/m\"]\n";
    let packed = "FROM scratch\nCOPY dist/m /m\nENTRYPOINT [\"/m\"]\n";
    let check = |source: &str, packed: &str, compose: &str| {
        faults(&Repo::of(&[
            ("Dockerfile", source),
            ("Dockerfile.prebuilt", packed),
            ("docker-compose.yml", compose),
        ]))
        .len()
    };
    assert_eq!(check(source, packed, &compose), 0);
    assert_eq!(check(source, "FROM scratch\nCOPY dist/m /m\n", &compose), 1);
    assert_eq!(check("", "", &compose), 1);
    let shell = "FROM scratch\nENTRYPOINT /m\n";
    assert_eq!(check(shell, shell, &compose), 1);
    assert_eq!(check(source, packed, &compose.replace("  pricing:\n", "")), 1);
    let pinned = Repo::of(&[
        ("rust-toolchain.toml", "channel = \"1.95.0\""),
        ("Dockerfile", source),
        ("Dockerfile.prebuilt", packed),
        ("docker-compose.yml", &compose),
    ]);
    assert_eq!(faults(&pinned).len(), 1);
    assert_eq!(check(source, packed, &compose.replace("  pricing:\n", "  prizing:\n")), 2);
}
