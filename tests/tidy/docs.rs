//! Docs: what a document tells its reader to type can be typed, and what it points at is there.

use std::collections::BTreeSet;

use crate::{
    cli::Cli,
    commands::{self, Command},
    images, proto,
    repo::Repo,
};

/// Programs that a reader has, or is told to get; their own arguments are theirs, but paths must exist.
const PROGRAMS: [&str; 13] = [
    "bash", "curl", "git", "grep", "grpcurl", "jq", "ls", "cat", "kill", "python3", "pip", "rustup", "docker",
];
/// Stands where a document waits for the output of a real run.
const GAP: &str = "FILL:";
/// Subcommands of cargo that the repository relies on.
const CARGO: [&str; 9] = ["run", "test", "build", "rustc", "clippy", "fmt", "doc", "bench", "deny"];
/// Subcommands of `docker compose` that are followed by services.
const ON_SERVICES: [&str; 9] = ["up", "stop", "start", "restart", "kill", "logs", "port", "ps", "exec"];

/// Every command of every document names programs, subcommands, packages, services and files that exist.
pub(crate) fn commands(repo: &Repo) -> Vec<String> {
    let cli = Cli::read(repo);
    let mut faults = Vec::new();
    for (path, text) in repo.ending(".md") {
        for command in commands::commands(text) {
            let wrong = check(repo, &cli, &command);
            faults.extend(wrong.into_iter().map(|wrong| format!("{path}:{}: {wrong}", command.line)));
        }
    }
    for path in ["README.md", "CONTRIBUTING.md"] {
        if commands::commands(repo.text(path)).is_empty() {
            faults.push(format!("{path}: missing, or names no command"));
        }
    }
    faults
}

/// Every path, link and gRPC method that a document mentions exists.
pub(crate) fn paths(repo: &Repo) -> Vec<String> {
    let mut faults = Vec::new();
    for (document, text) in repo.ending(".md") {
        for mention in commands::mentions(text) {
            let wrong: Vec<_> = if mention.link {
                link_fault(repo, document, &mention.text).into_iter().collect()
            } else {
                mention.text.split_whitespace().filter_map(|word| word_fault(repo, word)).collect()
            };
            faults.extend(wrong.into_iter().map(|wrong| format!("{document}:{}: {wrong}", mention.line)));
        }
    }
    faults
}

/// No document waits for a figure or an answer that was to come from a real run: [`GAP`] marks one.
pub(crate) fn gaps(repo: &Repo) -> Vec<String> {
    let mut faults = Vec::new();
    for (path, text) in repo.ending(".md") {
        for (index, _) in text.lines().enumerate().filter(|(_, line)| line.contains(GAP)) {
            faults.push(format!("{path}:{}: still has a gap to fill", index + 1));
        }
    }
    faults
}

fn check(repo: &Repo, cli: &Cli, command: &Command) -> Vec<String> {
    let words = &command.words;
    let program = words[0].as_str();
    let mut faults: Vec<_> = words.iter().filter_map(|word| word_fault(repo, word)).collect();
    let arguments = &words[1..];
    if program == "mercury" || program.ends_with("/mercury") {
        faults.extend(cli.fault(arguments));
    } else if program == "cargo" {
        faults.extend(cargo_faults(repo, cli, arguments));
    } else if program == "docker" && arguments.first().is_some_and(|word| word == "compose") {
        faults.extend(compose_faults(repo, &arguments[1..]));
    } else if !PROGRAMS.contains(&program) && !repo.files.contains_key(program) {
        faults.push(format!(
            "{program} is neither a file of this repository nor a program that the reader was told of"
        ));
    }
    faults
}

fn cargo_faults(repo: &Repo, cli: &Cli, arguments: &[String]) -> Vec<String> {
    let mut faults = Vec::new();
    let subcommand = arguments.first().map_or("", String::as_str);
    if !CARGO.contains(&subcommand) {
        faults.push(format!("cargo {subcommand} is not used here"));
    }
    let end = arguments.iter().position(|word| word == "--").unwrap_or(arguments.len());
    for pair in arguments[..end].windows(2) {
        let value = &pair[1];
        match pair[0].as_str() {
            "-p" | "--package" if !has_package(repo, value) => {
                faults.push(format!("there is no package {value}"))
            }
            "--test" if !has_test(repo, value) => faults.push(format!("there is no test target {value}")),
            _ => {}
        }
    }
    if subcommand == "run" {
        faults.extend(cli.fault(arguments.get(end + 1..).unwrap_or_default()));
    }
    faults
}

fn compose_faults(repo: &Repo, arguments: &[String]) -> Vec<String> {
    let mut faults = Vec::new();
    let mut rest = arguments.iter();
    let mut subcommand = "";
    while let Some(word) = rest.next() {
        match word.as_str() {
            "-f" | "--file" => match rest.next() {
                Some(file) if repo.files.contains_key(file) => {}
                file => faults.push(format!("compose file {file:?} does not exist")),
            },
            "-p" | "--project-name" => drop(rest.next()),
            flag if flag.starts_with('-') => {}
            other => {
                subcommand = other;
                break;
            }
        }
    }
    let services = images::services(repo.text("docker-compose.yml"));
    if ON_SERVICES.contains(&subcommand) {
        let named = rest.filter(|word| !word.starts_with('-') && !word.chars().all(|c| c.is_ascii_digit()));
        let unknown = named.filter(|word| !services.contains(word.as_str()));
        faults.extend(unknown.map(|word| format!("compose has no service {word}")));
    } else if !["down", "build", "config", "version"].contains(&subcommand) {
        faults.push(format!("docker compose {subcommand:?} is not used here"));
    }
    faults
}

/// What is wrong with a word of a command or of inline code, when it reads as a path or as a gRPC method.
fn word_fault(repo: &Repo, word: &str) -> Option<String> {
    const TEXTS: [&str; 7] = [".rs", ".toml", ".yml", ".yaml", ".md", ".proto", ".py"];
    let word = word.trim_matches(|c: char| matches!(c, ',' | ';' | ':' | '(' | ')' | '"'));
    let word = word.split_once('=').map_or(word, |(_, value)| value);
    // Placeholders, globs, URLs, absolute paths, shares such as 1/60.
    if !word.contains('/')
        || word.contains(['<', '*', '{', '$', '…', '@', '?'])
        || word.contains("://")
        || word.starts_with('/')
    {
        return None;
    }
    if let Some((service, _)) = word.split_once('/')
        && service.rsplit('.').next().is_some_and(|name| name.starts_with(|c: char| c.is_ascii_uppercase()))
        && service.contains('.')
    {
        return (!proto::has_method(repo, word)).then(|| format!("no protobuf declares {word}"));
    }
    let path = word.trim_start_matches("./");
    let first = path.split('/').next().unwrap_or_default();
    let reads_as_path = repo.is_top_level(first) || TEXTS.iter().any(|ending| path.ends_with(ending));
    (reads_as_path && !repo.ignored.covers(path) && !repo.exists(path))
        .then(|| format!("{word} does not exist"))
}

fn link_fault(repo: &Repo, document: &str, target: &str) -> Option<String> {
    let target = target.split('#').next().unwrap_or_default();
    if target.is_empty() || target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let mut parts: Vec<_> = document.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." | "" => {}
            part => parts.push(part),
        }
    }
    let path = parts.join("/");
    (!repo.exists(&path)).then(|| format!("link to {target}, but {path} does not exist"))
}

fn has_package(repo: &Repo, name: &str) -> bool {
    repo.ending("/Cargo.toml").any(|(_, text)| text.contains(&format!("name = \"{name}\"")))
}

fn has_test(repo: &Repo, name: &str) -> bool {
    let targets: BTreeSet<_> = repo.text("tests/Cargo.toml").split("[[test]]").skip(1).collect();
    targets.iter().any(|target| target.contains(&format!("name = \"{name}\"")))
}

#[cfg(test)]
fn sample(readme: &str) -> Repo {
    Repo::of(&[
        ("README.md", readme),
        ("CONTRIBUTING.md", "```sh\ncargo test\n```\n"),
        ("Cargo.toml", ""),
        ("docker-compose.yml", "services:\n  home-api:\n    image: x\n"),
        ("scripts/static-binary", ""),
        ("crates/mercury/Cargo.toml", "name = \"mercury\""),
        ("crates/mercury/src/main.rs", "#[derive(Subcommand)]\nenum Command {\n    Up,\n}\n"),
        ("tests/Cargo.toml", "[package]\nname = \"tests\"\n[[test]]\nname = \"tidy\"\n"),
        (
            "proto/mercury/home/v2/home.proto",
            "package mercury.home.v2;\nservice HomeService {\n rpc GetHome(A)",
        ),
    ])
}

#[test]
fn commands_that_cannot_be_run_are_found() {
    let bad = [
        "cargo run --release -- down",
        "cargo run",
        "cargo publish",
        "cargo test -p missing",
        "cargo test -p tests --test missing",
        "mercury down",
        "target/release/mercury down",
        "docker compose -f docker-compose.missing.yml up",
        "docker compose stop missing",
        "docker compose explode",
        "scripts/missing",
        "make all",
        "bash scripts/missing",
        "curl -d @x localhost:8080 && python3 tests/missing.py",
        "grpcurl -plaintext localhost:8080 mercury.home.v2.HomeService/GetPage",
    ];
    for line in bad {
        let faults = commands(&sample(&format!("```sh\n{line}\n```\n")));
        assert!(!faults.is_empty(), "{line}");
    }
    assert_eq!(commands(&sample("no commands")).len(), 1);
}

#[test]
fn commands_that_can_be_run_are_accepted() {
    let good = "```sh\ncargo run --release -- up\nMERCURY_SEED=7 target/release/mercury up\nscripts/static-binary\n\
        cargo test --workspace && cargo test -p tests --test tidy\n\
        docker compose -f docker-compose.yml up --build --wait home-api\ndocker compose port home-api 8080\n\
        curl -sS http://localhost:8080/v2/home | jq .\n\
        grpcurl -plaintext localhost:8080 mercury.home.v2.HomeService/GetHome\n```\n";
    assert_eq!(commands(&sample(good)), Vec::<String>::new());
}

#[test]
fn gaps_are_found() {
    assert_eq!(gaps(&sample("| p99 | FILL: mercury load |\nfilled\n")).len(), 1);
    assert_eq!(gaps(&sample("fill: the glass")).len(), 0);
}

#[test]
fn mentions_of_missing_things_are_found() {
    let bad = [
        "`crates/missing`",
        "[a](docs/missing.md)",
        "`config/policy.toml`",
        "`mercury.home.v2.HomeService/GetPage`",
    ];
    for text in bad {
        assert_eq!(paths(&sample(text)).len(), 1, "{text}");
    }
    let good = [
        "`crates/mercury` and `scripts/static-binary`",
        "[a](Cargo.toml#x) and [b](https://example.org/a)",
        "`out/report.json`, `target/release/mercury`, `1/60`, `/v2/home`, `text/html`",
        "`mercury.home.v2.HomeService/GetHome`, `proto/mercury/<service>/v<N>`",
    ];
    for text in good {
        assert_eq!(paths(&sample(text)), Vec::<String>::new(), "{text}");
    }
}
