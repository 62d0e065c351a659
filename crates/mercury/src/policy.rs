//! Policy: `mercury policy`: what a policy's figures add up to, which of its rules cannot close, every bound that it sets, and having
//! a running suite take it over.

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
};

use base::{Nanos, WorkloadClass};
use control::mode::{Mode, Scope, Share};
use model::policy::{Audit, Boundary, Mechanism, Policy};
use serde_json::{Value, json};

use crate::{
    check, endpoints,
    exit::{self, Exit},
    load::Output,
    world,
};

/// Subcommands of `mercury policy`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Validate policies; print the critical path, the reserve, and every rule that cannot close.
    ///
    /// Ends 0 when every rule closes, 2 when a file is not valid, 99 when a rule of a valid file cannot close.
    Check(CheckArgs),
    /// Print every bound that a process holds to under a policy, as the table of docs/bounds.md.
    Bounds(BoundsArgs),
    /// Have running processes look at their policy files now, and print what each goes by.
    ///
    /// They look by themselves as well, within a second of a change. Ends 0 when every process goes by its file, 2 when one
    /// refuses it and stays with the last good one, 1 when one cannot be asked.
    Reload(ReloadArgs),
}

/// Arguments of `mercury policy reload`.
#[derive(Debug, clap::Args)]
pub(crate) struct ReloadArgs {
    /// Where `mercury up` keeps its endpoints.
    #[arg(long, value_name = "DIR", default_value = ".mercury")]
    state_dir: PathBuf,
    /// The admin port of a process; once for each [default: all services in endpoints.json].
    #[arg(long, value_name = "HOST:PORT")]
    process: Vec<String>,
    /// How the result is printed.
    #[arg(long, value_enum, default_value_t = Output::Human)]
    output: Output,
}

/// Arguments of `mercury policy check`.
#[derive(Debug, clap::Args)]
pub(crate) struct CheckArgs {
    /// Policies, like config/policy.toml.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// How the result is printed.
    #[arg(long, value_enum, default_value_t = Output::Human)]
    output: Output,
}

/// Arguments of `mercury policy bounds`.
#[derive(Debug, clap::Args)]
pub(crate) struct BoundsArgs {
    /// The policy [default: the one that this binary ships with].
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
}

pub(crate) fn run(command: Command) -> Exit {
    match command {
        Command::Check(args) => run_check(&args),
        Command::Bounds(BoundsArgs { file }) => exit::of(bounds(file.as_deref())),
        Command::Reload(args) => run_reload(&args).unwrap_or_else(|exit| exit),
    }
}

fn bounds(file: Option<&Path>) -> Result<(), Exit> {
    let (policy, _text) = crate::serve::policy(file)?;
    print!("{}", runtime::bounds::markdown(&policy));
    Ok(())
}

fn run_reload(args: &ReloadArgs) -> Result<Exit, Exit> {
    let processes: Vec<(String, String)> = if args.process.is_empty() {
        // The emulator goes by a scenario and not by a policy.
        endpoints::admins(&args.state_dir).into_iter().filter(|(name, _)| name != "emulator").collect()
    } else {
        args.process.iter().map(|at| (at.clone(), at.clone())).collect()
    };
    if processes.is_empty() {
        let text =
            format!("no suite in {}: name processes with --process HOST:PORT", args.state_dir.display());
        return Err(Exit::Usage(text));
    }
    let (mut refused, mut unheard) = (Vec::new(), Vec::new());
    let runtime = world::runtime()?;
    let told: Vec<Value> = processes
        .iter()
        .map(|(name, at)| {
            let answer = runtime.block_on(rehearsal::admin::post(at, "/policy/reload"));
            let told = answer.map_err(|error| error.to_string()).and_then(|(status, body)| {
                let value: Value = serde_json::from_slice(&body)
                    .map_err(|_| format!("POST http://{at}/policy/reload: answered {status} and no JSON"))?;
                if !(value["generation"].is_u64() || value["cause"].is_string()) {
                    return Err(format!(
                        "POST http://{at}/policy/reload: answered {status}, and nothing about a policy"
                    ));
                }
                Ok((status.is_success(), value))
            });
            match told {
                Ok((taken, mut value)) => {
                    value["process"] = name.as_str().into();
                    if !taken {
                        refused.push(name.as_str());
                    }
                    value
                }
                Err(error) => {
                    unheard.push(error.clone());
                    json!({"process": name, "error": error})
                }
            }
        })
        .collect();
    match args.output {
        Output::Json => println!("{:#}", Value::from(told)),
        Output::Human => told.iter().for_each(|value| println!("{}", reloaded(value))),
    }
    if !unheard.is_empty() {
        return Ok(Exit::Error(unheard.join("\n")));
    }
    if !refused.is_empty() {
        return Ok(Exit::Usage(format!("the policy was refused by {}", refused.join(", "))));
    }
    Ok(Exit::Pass)
}

fn reloaded(value: &Value) -> String {
    let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
    let process = text("process");
    match value["generation"].as_u64() {
        Some(generation) => {
            let how = if value["changed"] == true { "taken over" } else { "as before" };
            format!("{process:<16} generation {generation}, {how}")
        }
        None if value["cause"].is_string() => {
            format!("{process:<16} refused: {}: {}", text("cause"), text("detail"))
        }
        None => format!("{process:<16} not heard: {}", text("error")),
    }
}

fn run_check(args: &CheckArgs) -> Exit {
    let read = args.files.iter().map(|path| (path, check::read(path, Policy::parse)));
    let (mut valid, mut faults) = (Vec::new(), Vec::new());
    for (path, policy) in read {
        match policy {
            Ok(policy) => valid.push((path.display().to_string(), policy)),
            Err(fault) => faults.push(fault),
        }
    }
    let audited: Vec<_> = valid.iter().map(|(name, policy)| (name, policy, policy.audit())).collect();
    match args.output {
        Output::Human => {
            let texts = audited.iter().map(|(name, policy, audit)| human(name, policy, audit));
            print!("{}", texts.collect::<Vec<_>>().join("\n"));
        }
        Output::Json => {
            let all: Vec<_> =
                audited.iter().map(|(name, policy, audit)| machine(name, policy, audit)).collect();
            println!("{:#}", Value::from(all));
        }
    }
    if !faults.is_empty() {
        return Exit::Usage(faults.join("\n"));
    }
    match audited.iter().map(|(_, _, audit)| audit.findings.len()).sum::<usize>() {
        0 => Exit::Pass,
        1 => Exit::GateFailed("one rule cannot close".to_owned()),
        open => Exit::GateFailed(format!("{open} rules cannot close")),
    }
}

fn human(name: &str, policy: &Policy, audit: &Audit) -> String {
    let mut text = String::new();
    let mut line = |label: &str, value: String| {
        let _ = writeln!(text, "  {label:<15} {value}"); // Writing to a String cannot fail.
    };
    line(
        "objective",
        format!("{} ms, of which {} ms are the response's", ms(policy.objective), ms(audit.reserve)),
    );
    let steps = audit.critical_path.iter().map(|(step, useful)| format!("{step} {}", ms(*useful)));
    let path = audit.critical_path.iter().fold(Nanos::ZERO, |sum, (_, useful)| sum + *useful);
    let steps = steps.collect::<Vec<_>>().join(" + ");
    line("critical path", format!("{steps} = {} ms of useful work", ms(path)));
    line("slack", format!("{} ms for queues and for being slower than that", ms(audit.slack)));
    if let Some(timeouts) = audit.serial_timeouts {
        line("without", format!("the deadline mechanism a page may take {} ms", ms(timeouts)));
    }
    for boundary in Boundary::ALL {
        let (bounds, gate) = (policy.admission(boundary), policy.admission(boundary).gate());
        let class = |class: WorkloadClass| format!("{class} {} to {}", gate.floor(class), gate.reach(class));
        let classes = WorkloadClass::ALL.map(class).join(", ");
        let value = format!(
            "{} slots; gate of {}, queue of {} up to {} ms; {classes}",
            bounds.slots,
            gate.limit(),
            bounds.queue_max(),
            ms(bounds.queue_age_max()),
        );
        line(boundary.as_str(), value);
    }
    for mechanism in Mechanism::ALL {
        line(mechanism.as_str(), mode(policy, mechanism));
    }
    for finding in &audit.findings {
        line("CANNOT CLOSE", finding.to_string());
    }
    if audit.findings.is_empty() {
        line("rules", "every rule closes".to_owned());
    }
    format!("{name}: generation {}, digest {:016x}\n{text}", policy.generation, policy.digest)
}

/// A mechanism's mode, and its scope where it is not everybody.
fn mode(policy: &Policy, mechanism: Mechanism) -> String {
    let rollout = policy.mechanism(mechanism);
    let mut text = rollout.mode().to_string();
    let scope = rollout.scope();
    if rollout.mode() == Mode::Off || *scope == Scope::ALL {
        return text;
    }
    if scope.share != Share::ALL {
        let _ = write!(text, " for {} % of the subjects", f64::from(scope.share.parts()) / 100.0);
    }
    let classes = WorkloadClass::ALL.into_iter().filter(|class| scope.classes.contains(*class));
    let classes: Vec<_> = classes.map(WorkloadClass::as_str).collect();
    if classes.len() < WorkloadClass::ALL.len() {
        let _ = write!(text, ", {} only", classes.join(" and "));
    }
    if let Some(regions) = scope.regions.named() {
        let regions: Vec<_> = regions.iter().map(base::Region::as_str).collect();
        let _ = write!(text, ", in {}", regions.join(" and "));
    }
    text
}

fn machine(name: &str, policy: &Policy, audit: &Audit) -> Value {
    let mut value = shown(policy);
    value["file"] = name.into();
    value["objective_ms"] = policy.objective.as_millis_f64().into();
    value["response_reserve_ms"] = audit.reserve.as_millis_f64().into();
    value["slack_ms"] = audit.slack.as_millis_f64().into();
    value["serial_timeouts_ms"] = audit.serial_timeouts.map(Nanos::as_millis_f64).into();
    let step = |(step, useful): &(base::Dependency, Nanos)| json!({"branch": step.as_str(), "worst_useful_ms": useful.as_millis_f64()});
    value["critical_path"] = audit.critical_path.iter().map(step).collect();
    let finding =
        |finding: &model::policy::Finding| json!({"rule": finding.rule.as_str(), "detail": finding.detail});
    value["findings"] = audit.findings.iter().map(finding).collect();
    value
}

/// A policy in force as the admin port shows it: which document, which mechanisms, which bounds.
pub(crate) fn shown(policy: &Policy) -> Value {
    let mechanism =
        |mechanism: Mechanism| (mechanism.as_str().to_owned(), Value::from(mode(policy, mechanism)));
    let boundary = |boundary: Boundary| {
        let (bounds, gate) = (policy.admission(boundary), policy.admission(boundary).gate());
        let class = |class: WorkloadClass| {
            (class.as_str().to_owned(), json!({"floor": gate.floor(class), "ceiling": gate.reach(class)}))
        };
        let shown = json!({
            "slots": bounds.slots,
            "limit": gate.limit(),
            "queue_max": bounds.queue_max(),
            "queue_age_max_ms": bounds.queue_age_max().as_millis_f64(),
            "classes": WorkloadClass::ALL.map(class).into_iter().collect::<serde_json::Map<_, _>>(),
        });
        (boundary.as_str().to_owned(), shown)
    };
    json!({
        "generation": policy.generation,
        "digest": format!("{:016x}", policy.digest),
        "dilation": policy.dilation,
        "mechanisms": Mechanism::ALL.map(mechanism).into_iter().collect::<serde_json::Map<_, _>>(),
        "admission": Boundary::ALL.map(boundary).into_iter().collect::<serde_json::Map<_, _>>(),
    })
}

fn ms(span: Nanos) -> String {
    let millis = span.as_millis_f64();
    if millis.fract() == 0.0 { format!("{millis:.0}") } else { format!("{millis}") }
}
