//! Diagnose: `mercury diagnose drill`: what may be behind a release's tail, and which action its figures support.

use std::{fmt::Write as _, path::PathBuf};

use model::drill::{Decision, Diagnosis, Drill, SHIPPED, SHOWN};
use serde_json::{Value, json};

use crate::{exit::Exit, load::Output};

/// Subcommands of `mercury diagnose`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Rank what may be behind a tail by readings that tell causes apart, and judge what could be done.
    ///
    /// Ends 0 when there is a diagnosis; with --gate 99 when the release is to be held.
    Drill(DrillArgs),
}

/// Arguments of `mercury diagnose drill`.
#[derive(Debug, clap::Args)]
pub(crate) struct DrillArgs {
    /// The observations, like config/drills/pricing-wait.toml [default: the shipped ones].
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Another value of a key, such as observed.queue_age_p99_ms=40; may be repeated.
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    set: Vec<(String, String)>,
    /// End 99 when the release is to be held.
    #[arg(long)]
    gate: bool,
    /// How the result is printed.
    #[arg(long, value_enum, default_value_t = Output::Human)]
    output: Output,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let plain =
        |key: &str| !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || "._".contains(c));
    match text.split_once('=') {
        Some((key, value)) if plain(key) && !value.is_empty() && !value.contains('\n') => {
            Ok((key.to_owned(), value.to_owned()))
        }
        _ => Err("expected KEY=VALUE, such as observed.p99_ms=310".to_owned()),
    }
}

pub(crate) fn run(command: Command) -> Exit {
    match command {
        Command::Drill(args) => match read(&args) {
            Ok(drill) => told(&args, &drill),
            Err(message) => Exit::Usage(message),
        },
    }
}

/// The drill, with what was set.
fn read(args: &DrillArgs) -> Result<Drill, String> {
    let (name, mut text) = match &args.file {
        None => (SHIPPED.0.to_owned(), SHIPPED.1.to_owned()),
        Some(path) => {
            let text = std::fs::read_to_string(path)
                .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
            (path.display().to_string(), text)
        }
    };
    for (key, value) in &args.set {
        text = Drill::set((&name, &text), key, value).map_err(|faults| faults.to_string())?;
    }
    Drill::parse(&name, &text).map_err(|faults| faults.to_string())
}

fn told(args: &DrillArgs, drill: &Drill) -> Exit {
    let diagnosis = drill.diagnose();
    match args.output {
        Output::Human => print!("{}", human(drill, &diagnosis)),
        Output::Json => println!("{:#}", machine(drill, &diagnosis)),
    }
    if args.gate && diagnosis.decision == Decision::Hold {
        return Exit::GateFailed(format!("hold: {}", diagnosis.breaches.join("; ")));
    }
    Exit::Pass
}

fn human(drill: &Drill, diagnosis: &Diagnosis) -> String {
    let mut text = format!("\n{} v{}: {}\n\n", drill.name, drill.version, drill.about);
    let mut line = |shown: String| {
        let _ = writeln!(text, "{shown}"); // Writing to a String cannot fail.
    };
    if diagnosis.breaches.is_empty() {
        line("inside every budget".to_owned());
    }
    for breach in &diagnosis.breaches {
        line(format!("outside its budget: {breach}"));
    }
    if !diagnosis.comparable {
        line("the mix has moved so far that before and now are no comparison without reweighting".to_owned());
    }
    line(String::new());
    for (at, one) in diagnosis.ranked.iter().take(SHOWN).enumerate() {
        line(format!("{}. {}: {} ({:.2})", at + 1, one.hypothesis, one.standing.as_str(), one.strength));
        line(format!("   {}", one.evidence));
        line(format!("   check: {}", one.check));
        line(format!("   where: {}", one.series));
    }
    line(String::new());
    for judged in &diagnosis.actions {
        line(format!("{:<28} {:<12} {}", judged.action.to_string(), judged.verdict.as_str(), judged.reason));
    }
    line(String::new());
    line(format!("decision: {}", decision(diagnosis)));
    text
}

const fn decision(diagnosis: &Diagnosis) -> &'static str {
    match diagnosis.decision {
        Decision::Proceed => "proceed",
        Decision::Hold => "hold",
    }
}

fn machine(drill: &Drill, diagnosis: &Diagnosis) -> Value {
    let ranked = diagnosis.ranked.iter().map(|one| {
        json!({
            "hypothesis": one.hypothesis.to_string(),
            "standing": one.standing.as_str(),
            "strength": one.strength,
            "evidence": one.evidence,
            "check": one.check,
            "series": one.series,
        })
    });
    let actions = diagnosis.actions.iter().map(|judged| {
        json!({
            "action": judged.action.to_string(),
            "verdict": judged.verdict.as_str(),
            "reason": judged.reason,
        })
    });
    json!({
        "drill": drill.name,
        "version": drill.version,
        "miss_ms": diagnosis.miss_ms,
        "breaches": diagnosis.breaches,
        "comparable": diagnosis.comparable,
        "hypotheses": ranked.collect::<Vec<_>>(),
        "actions": actions.collect::<Vec<_>>(),
        "decision": decision(diagnosis),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(set: &[&str]) -> DrillArgs {
        let set = set.iter().map(|text| pair(text).expect("a pair")).collect();
        DrillArgs { file: None, set, gate: true, output: Output::Human }
    }

    #[test]
    fn the_shipped_drill_is_read_and_holds() {
        let drill = read(&args(&[])).expect("valid");
        let text = human(&drill, &drill.diagnose());
        for told in ["1. wait before pricing", "2. more enterprise requests", "decision: hold", "refused"] {
            assert!(text.contains(told), "{told}: {text}");
        }
        assert!(matches!(told(&args(&[]), &drill), Exit::GateFailed(_)));
        let json = machine(&drill, &drill.diagnose());
        assert_eq!(json["hypotheses"][0]["hypothesis"], "wait before pricing");
    }

    #[test]
    fn what_is_set_counts_and_what_is_no_key_is_refused() {
        let slow = read(&args(&["dependencies.pricing.server_service_p99_ms.now=71"])).expect("valid");
        assert!(human(&slow, &slow.diagnose()).contains("1. computation of pricing"));
        let faults = read(&args(&["observed.latency=3"])).expect_err("no such key");
        assert!(faults.contains("observed.latency"), "{faults}");
        for text in ["observed", "=3", "observed.p99_ms=", "a b=3", "x=1\n[budgets]"] {
            assert!(pair(text).is_err(), "{text}");
        }
    }
}
