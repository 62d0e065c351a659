//! Packet: `mercury packet verify`: every closed-form figure of a document recomputed from its declared inputs, and the input
//! named that is to blame when one does not agree.

use std::{fmt::Write as _, path::PathBuf};

use model::packet::{Domains, Outcome, Packet, Reading, Report, Verdict, number};
use serde_json::{Value, json};

use crate::{check, exit::Exit, load::Output};

/// Subcommands of `mercury packet`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Recompute every figure of packets from their inputs, and hold it against what the document states.
    ///
    /// Ends 0 when every figure agrees, 99 when one does not, 98 when the occupancies of a packet do not decide how many admission
    /// domains it speaks of, 2 when a file is not valid.
    Verify(VerifyArgs),
}

/// Arguments of `mercury packet verify`.
#[derive(Debug, clap::Args)]
pub(crate) struct VerifyArgs {
    /// Packets, like config/packets/relay.toml [default: those that this binary ships with].
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// How the result is printed.
    #[arg(long, value_enum, default_value_t = Output::Human)]
    output: Output,
}

pub(crate) fn run(command: Command) -> Exit {
    match command {
        Command::Verify(args) => verify(&args),
    }
}

fn verify(args: &VerifyArgs) -> Exit {
    let (mut packets, mut faults) = (Vec::new(), Vec::new());
    for path in &args.files {
        match check::read(path, Packet::parse) {
            Ok(packet) => packets.push(packet),
            Err(fault) => faults.push(fault),
        }
    }
    if args.files.is_empty() {
        packets = Packet::shipped();
    }
    let verified: Vec<(Packet, Report)> = packets
        .into_iter()
        .map(|packet| {
            let report = packet.verify();
            (packet, report)
        })
        .collect();
    match args.output {
        Output::Human => {
            let texts: Vec<String> = verified.iter().map(|(packet, report)| human(packet, report)).collect();
            print!("{}", texts.join("\n"));
        }
        Output::Json => {
            let all: Vec<Value> = verified.iter().map(|(packet, report)| machine(packet, report)).collect();
            println!("{:#}", Value::from(all));
        }
    }
    if !faults.is_empty() {
        return Exit::Usage(faults.join("\n"));
    }
    let (mut failed, mut undecided) = (Vec::new(), Vec::new());
    for (packet, report) in &verified {
        let differ = report.outcomes.iter().filter(|outcome| outcome.verdict == Verdict::Differs).count();
        if differ > 0 {
            failed.push(format!(
                "{}: {differ} of {} figures do not agree",
                packet.name,
                report.outcomes.len()
            ));
        }
        if !report.fits_domains() {
            failed.push(format!("{}: its occupancies fit no number of admission domains", packet.name));
        } else if !report.decides_domains() {
            undecided.push(format!(
                "{}: its occupancies fit more than one number of admission domains",
                packet.name
            ));
        }
    }
    match (failed.is_empty(), undecided.is_empty()) {
        (false, _) => Exit::GateFailed(failed.join("\n")),
        (true, false) => Exit::Inconclusive(undecided.join("\n")),
        (true, true) => Exit::Pass,
    }
}

fn human(packet: &Packet, report: &Report) -> String {
    let mut text = format!(
        "{} {}: {}\n  from {:?}; digest {:016x}\n",
        packet.name, packet.version, packet.about, packet.source, packet.digest
    );
    let wide = report.outcomes.iter().map(|outcome| outcome.name.len()).max().unwrap_or_default();
    let mut line = |line: String| {
        let _ = writeln!(text, "  {line}"); // Writing to a String cannot fail.
    };
    for outcome in &report.outcomes {
        let verdict = match outcome.verdict {
            Verdict::Differs => "DIFFERS",
            Verdict::Agrees | Verdict::Explained { .. } => outcome.verdict.as_str(),
        };
        line(format!("{verdict:<9} {:<wide$}  {}", outcome.name, outcome.line()));
        if let Verdict::Explained { stated, why } = &outcome.verdict {
            line(format!("{:<9} {:<wide$}  the document states {}: {why}", "", "", number(*stated)));
        }
    }
    if let Some(diagnosis) = &report.diagnosis {
        diagnosis.to_string().lines().for_each(|said| line(said.to_owned()));
    }
    if !report.loose.is_empty() {
        line(format!("a tenth more or less would go unnoticed of {}", report.loose.join(", ")));
    }
    if let Some(domains) = &report.domains {
        domain_lines(domains).into_iter().for_each(line);
    }
    text
}

fn domain_lines(domains: &Domains) -> Vec<String> {
    let [whole, part, rate, median] =
        [domains.whole_slots, domains.part_slots, domains.requests_per_s, domains.median_ms].map(number);
    let mut lines = vec![
        format!(
            "by Little's law, {whole} and {part} occupied of each domain at {rate} requests/s are held for:"
        ),
        format!("{:>7}  {:>12}  {:>12}", "domains", "page", "connection"),
    ];
    lines.extend(domains.rows.iter().map(|row| {
        let agrees =
            if row.agrees { format!("  the median page of {median} ms lies between") } else { String::new() };
        format!("{:>7}  {:>9.2} ms  {:>9.2} ms{agrees}", row.domains, row.whole_ms, row.part_ms)
    }));
    lines.push(match &domains.reading {
        Reading::One(1) => "the figures speak of one admission domain".to_owned(),
        Reading::One(number) => format!("the figures speak of {number} admission domains"),
        Reading::Several(numbers) => {
            let numbers: Vec<String> = numbers.iter().map(u32::to_string).collect();
            format!("the figures do not decide between {} admission domains", numbers.join(", "))
        }
        Reading::None => "the figures fit no number of admission domains".to_owned(),
    });
    lines
}

fn machine(packet: &Packet, report: &Report) -> Value {
    let figure = |outcome: &Outcome| {
        let explained = match &outcome.verdict {
            Verdict::Explained { stated, why } => json!({"stated": stated, "why": why}),
            Verdict::Agrees | Verdict::Differs => Value::Null,
        };
        json!({
            "name": outcome.name,
            "unit": outcome.unit,
            "spelt": outcome.spelt,
            "inputs": outcome.inputs,
            // Of a comparison, the margin.
            "computed": outcome.computed,
            "stated": outcome.claim.value(),
            "explained": explained,
            "verdict": outcome.verdict.as_str(),
        })
    };
    let inputs: serde_json::Map<_, _> =
        packet.inputs.iter().map(|input| (input.name.clone(), Value::from(input.value))).collect();
    let diagnosis = report.diagnosis.as_ref().map(|diagnosis| {
        let fit = |fit: &model::packet::Fit| json!({"input": fit.input, "declared": fit.declared, "implied": fit.implied.to_string()});
        json!({
            "figures": diagnosis.figures,
            "fits": diagnosis.fits.iter().map(fit).collect::<Vec<_>>(),
            "inputs": diagnosis.inputs,
        })
    });
    let domains = report.domains.as_ref().map(|domains| {
        let row = |row: &model::packet::Row| {
            json!({"domains": row.domains, "whole_ms": row.whole_ms, "part_ms": row.part_ms, "agrees": row.agrees})
        };
        let agree: Vec<u32> = domains.rows.iter().filter(|row| row.agrees).map(|row| row.domains).collect();
        json!({
            "requests_per_s": domains.requests_per_s,
            "whole_slots": domains.whole_slots,
            "part_slots": domains.part_slots,
            "median_ms": domains.median_ms,
            "rows": domains.rows.iter().map(row).collect::<Vec<_>>(),
            "agree": agree,
        })
    });
    json!({
        "packet": packet.name,
        "version": packet.version,
        "digest": format!("{:016x}", packet.digest),
        "source": packet.source,
        "agrees": report.agrees(),
        "inputs": inputs,
        "figures": report.outcomes.iter().map(figure).collect::<Vec<_>>(),
        "diagnosis": diagnosis,
        "loose": report.loose,
        "domains": domains,
    })
}
