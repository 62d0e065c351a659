//! Processes: whether all of them were heard, are where the ledger is, and could go where it would put them.

use std::collections::BTreeSet;

use ::rollout::{Phase, report::ProcessReport};

use super::{Case, SERVICES};
use crate::gates::{Action, Gate};

/// Gates that a hearing must pass for its figures to be the whole story.
pub(super) const HEARING: [&str; 7] = [
    "unheard",
    "home_api_processes",
    "profile_processes",
    "heard_twice",
    "behind",
    "head_unread",
    "policy_generations_apart",
];
/// Most names in one remark.
const NAMES_MAX: usize = 8;

pub(super) fn gates(case: &Case<'_>) -> Vec<Gate> {
    let mut gates = vec![
        unheard(case),
        at_least_one(case, "home_api_processes", SERVICES[0]),
        at_least_one(case, "profile_processes", SERVICES[1]),
        heard_twice(case),
        behind(case),
        head_unread(case),
        policy_generations_apart(case),
        able(case),
    ];
    let target = case.question.target();
    if target.reads() {
        gates.push(keys_accepted(case));
    }
    if target >= Phase::Canary {
        gates.push(revocations_stale(case));
    }
    gates
}

/// A gate that passes when nothing was found, and names what was. Nothing is known where there is nobody to ask.
fn none_of(name: &'static str, unit: &'static str, asked: usize, found: &[String]) -> Gate {
    let observed = (asked > 0).then_some(found.len() as f64);
    let mut detail = found.iter().take(NAMES_MAX).map(String::as_str).collect::<Vec<_>>().join("; ");
    if found.len() > NAMES_MAX {
        detail.push_str(&format!("; and {} more", found.len() - NAMES_MAX));
    }
    Gate::at_most(name, unit, observed, 0.0).on_breach(Action::Hold).saying(detail)
}

fn unheard(case: &Case<'_>) -> Gate {
    let found = case.processes.iter().filter_map(|heard| match &heard.report {
        Err(why) => Some(format!("{}: {why}", heard.address)),
        Ok(report) if !SERVICES.contains(&report.service.as_str()) => {
            Some(format!("{}: it is {:?}, which has no part in this", heard.address, report.service))
        }
        Ok(_) => None,
    });
    none_of("unheard", "processes", case.processes.len(), &found.collect::<Vec<_>>()).doubt()
}

fn at_least_one(case: &Case<'_>, name: &'static str, service: &str) -> Gate {
    let count = case.of(service).count();
    Gate::at_least(name, "processes", Some(count as f64), 1.0).doubt()
}

/// A process that is asked at two addresses would count twice.
fn heard_twice(case: &Case<'_>) -> Gate {
    let mut known = BTreeSet::new();
    let twice = case.reports().filter(|(_, report)| !known.insert(&report.instance));
    let found: Vec<String> =
        twice.map(|(address, report)| format!("{address} is {} again", report.instance)).collect();
    none_of("heard_twice", "processes", case.reports().count(), &found).doubt()
}

fn behind(case: &Case<'_>) -> Gate {
    let Some(standing) = case.standing else {
        let gate = Gate::at_most("behind", "processes", None, 0.0).doubt();
        return gate.saying("the ledger has no decision about the migration yet");
    };
    let found = case.reports().filter(|(_, report)| !case.is_current(report)).map(|(address, report)| {
        format!(
            "{} at {address} is in {} of generation {}, the ledger in {} of {}",
            report.service, report.phase, report.generation, standing.phase, standing.generation
        )
    });
    let found: Vec<String> = found.collect();
    none_of("behind", "processes", case.reports().count(), &found).doubt()
}

fn head_unread(case: &Case<'_>) -> Gate {
    let unread = case.reports().filter(|(_, report)| report.head.as_ref() != case.head);
    let found = unread.map(|(address, report)| {
        let read = report.head.as_ref().map_or_else(
            || "nothing of the ledger".to_owned(),
            |head| format!("decision {} ({:.12})", head.sequence, head.digest),
        );
        format!("{} at {address} has read {read} last", report.service)
    });
    let found: Vec<String> = found.collect();
    none_of("head_unread", "processes", case.reports().count(), &found).doubt()
}

/// Figures that were taken under two policies do not add up.
fn policy_generations_apart(case: &Case<'_>) -> Gate {
    let of = |(_, report): (&str, &ProcessReport)| report.policy_generation;
    let (least, most) = (case.reports().map(of).min(), case.reports().map(of).max());
    let apart = least.zip(most).map(|(least, most)| (most - least) as f64);
    let gate = Gate::at_most("policy_generations_apart", "generations", apart, 0.0);
    let detail = match least.zip(most) {
        Some((least, most)) if least < most => format!("from {least} to {most}"),
        _ => String::new(),
    };
    gate.saying(detail).doubt()
}

/// Whether each could serve the phase that it would be put in.
fn able(case: &Case<'_>) -> Gate {
    let target = case.question.target();
    let found = case.reports().filter_map(|(address, report)| {
        let why = report.unable.get(&target)?;
        Some(format!("{} at {address} could not serve {target}: {why}", report.service))
    });
    let found: Vec<String> = found.collect();
    none_of("able", "processes", case.reports().count(), &found).on_breach(Action::Block)
}

/// Whether every home-api accepts what every profile signs with.
fn keys_accepted(case: &Case<'_>) -> Gate {
    let (mut asked, mut found) = (0, Vec::new());
    for (signer, profile) in case.of("profile") {
        for key in &profile.keys {
            for (address, home) in case.of("home-api") {
                asked += 1;
                if !home.keys.contains(key) {
                    found.push(format!(
                        "home-api at {address} does not accept {key:?} of profile at {signer}"
                    ));
                }
            }
        }
    }
    // A profile that signs with nothing has nothing that could be accepted.
    let keyless = case.of("profile").find(|(_, profile)| profile.keys.is_empty());
    let gate = none_of("keys_accepted", "keys refused", if keyless.is_some() { 0 } else { asked }, &found);
    match keyless {
        Some((address, _)) => gate.saying(format!("profile at {address} has no key to sign with")),
        None => gate.on_breach(Action::Block),
    }
}

/// Without word of revocations a summary is no authority.
fn revocations_stale(case: &Case<'_>) -> Gate {
    let found = case.of("home-api").filter_map(|(address, report)| {
        let what = match &report.revocations {
            Some(stream) if stream.fresh => return None,
            None => "has no stream of revocations".to_owned(),
            Some(stream) => match stream.silent_ms {
                Some(silent_ms) => format!("heard nothing of revocations for {silent_ms} ms"),
                None => "never heard of revocations".to_owned(),
            },
        };
        Some(format!("home-api at {address} {what}"))
    });
    let found: Vec<String> = found.collect();
    none_of("revocations_stale", "processes", case.of("home-api").count(), &found)
}
