//! Figures: what the processes counted since the phase began, against the bounds of the plan.

use std::collections::BTreeMap;

use ::rollout::report::{Count, Counts, total};
use model::migration::{Target, Transition};
use summary::{Comparison, Rejection};

use super::{Case, joined};
use crate::{
    gates::{Action, Gate, Kind},
    verdict::Verdict,
};

/// What a count is told apart by.
type Part = fn(&Count) -> &str;

/// A region with less than one in so many requests has no say.
const STRAY_SHARE: u64 = 200;
/// The bound of what must not be.
const NEVER: f64 = 0.0;

pub(super) fn gates(case: &Case<'_>, target: Target, counts: &Counts) -> Vec<Gate> {
    let transition = case.plan.transition(target);
    // What a lie costs is told before what is too little, and what is not known after it: the first breach is cited.
    let (mut gates, unknown): (Vec<Gate>, Vec<Gate>) =
        never(target, counts).into_iter().partition(|gate| gate.verdict == Verdict::Fail);
    let sampled = sample(case, target, transition, counts);
    let enough = sampled.iter().all(|gate| gate.verdict == Verdict::Pass);
    gates.extend(sampled);
    gates.push(soak(case, transition));
    let mut shares = vec![share(
        "refused",
        Ratio {
            part: pages(counts, "refused"),
            whole: pages(counts, "answered").saturating_add(pages(counts, "refused")),
        },
        "pages",
        Bound::AtMost(transition.shares.refused_max_percent),
    )];
    shares.extend(bounded_shares(target, transition, counts));
    if !enough {
        let few = |gate: Gate| {
            let detail = joined(&gate.detail, "of a sample that is too small");
            if gate.verdict == Verdict::Fail { gate.doubt().saying(detail) } else { gate }
        };
        shares = shares.into_iter().map(few).collect();
    }
    gates.extend(shares);
    gates.extend(unknown);
    gates.into_iter().map(|gate| Gate { kind: Kind::Objective, ..gate }).collect()
}

/// What must not be at all. The phases before shadow compare nothing, and those before canary serve nobody by a summary.
fn never(target: Target, counts: &Counts) -> Vec<Gate> {
    let mut gates = Vec::new();
    if target >= Target::Canary {
        gates.push(blocking(counts));
    }
    if target >= Target::Cutover {
        let served = total(&counts.authority, |count| count.kind != "call");
        let observed = (served > 0).then_some(closed(counts) as f64);
        let worst = kinds(counts.authority.iter().filter(|count| count.kind.starts_with("closed:")));
        gates.push(
            Gate::at_most("closed", "requests", observed, NEVER).on_breach(Action::Block).saying(worst),
        );
    }
    gates
}

/// How much there is: in all, and in the least of the classes and regions that were seen.
fn sample(case: &Case<'_>, target: Target, transition: &Transition, counts: &Counts) -> Vec<Gate> {
    let (observed, unit) = match target {
        Target::Expand => (pages(counts, "answered"), "pages answered"),
        Target::Shadow => (emitted(counts, "signed"), "summaries signed"),
        Target::Canary => (total(&counts.comparisons, made), "comparisons"),
        Target::Cutover | Target::Contract => {
            (counts.authority_of("summary"), "requests served by the summary")
        }
    };
    let extent = transition.extent(case.quick);
    let at_least = |name, unit, observed: Option<u64>, least: u64| {
        let observed = observed.map(|observed| observed as f64);
        Gate::at_least(name, unit, observed, least as f64).doubt()
    };
    let mut gates = vec![at_least("sample", unit, Some(observed), extent.sample_min)];
    let parts: [(&'static str, Option<u64>, Part); 2] = [
        ("class_sample", extent.class_sample_min, |count| &count.class),
        ("region_sample", extent.region_sample_min, |count| &count.region),
    ];
    for (name, least, part) in parts {
        let Some(least) = least else { continue };
        let by_part = by_part(counts, part);
        // A region is what a caller says: one that hardly anybody names does not hold the others up.
        let whole = by_part.values().fold(0, |sum: u64, count| sum.saturating_add(*count));
        let counts_for = |count: u64| name != "region_sample" || count.saturating_mul(STRAY_SHARE) >= whole;
        let few = by_part.iter().filter(|(_, count)| counts_for(**count)).min_by_key(|(_, count)| **count);
        let gate = at_least(name, "requests", few.map(|(_, count)| *count), least);
        gates.push(gate.saying(few.map_or_else(
            || "none was seen".to_owned(),
            |(name, _)| format!("{name}, the least of {} seen", by_part.len()),
        )));
    }
    gates
}

/// Comparisons made and requests served by the summary or by its fallback, by part. A part whose every request was the
/// call's alone was seen, and has none.
fn by_part(counts: &Counts, part: Part) -> BTreeMap<&str, u64> {
    let served = |count: &Count| count.kind == "summary" || count.kind.starts_with("fallback:");
    let all = counts.comparisons.iter().map(|count| (count, made(count)));
    let all = all.chain(counts.authority.iter().map(|count| (count, served(count))));
    let mut parts = BTreeMap::new();
    for (count, tells) in all.filter(|(count, _)| count.count > 0) {
        let known: &mut u64 = parts.entry(part(count)).or_default();
        *known = known.saturating_add(if tells { count.count } else { 0 });
    }
    parts
}

/// How long the phase is in force, and every process counts: what one saw before it was started again is not known any more. A
/// clock that was set back shows a negative span, which is too short.
fn soak(case: &Case<'_>, transition: &Transition) -> Gate {
    let counting = case.processes.iter().filter_map(|heard| heard.report.as_ref().ok());
    let latest = counting.map(|report| report.counting_since_unix_ms).max();
    let begun = case
        .standing
        .map(|standing| latest.map_or(standing.since_unix_ms, |at| at.max(standing.since_unix_ms)));
    let since = begun.map(|begun| case.now_unix_ms.saturating_sub(begun));
    let least = transition.extent(case.quick).soak.as_millis();
    Gate::at_least("soak", "ms", since.map(|since| since as f64), least as f64).doubt()
}

fn bounded_shares(target: Target, transition: &Transition, counts: &Counts) -> Vec<Gate> {
    let shares = &transition.shares;
    let of = |comparison: Comparison| counts.comparisons_of(comparison.as_str());
    let due = total(&counts.comparisons, |_| true);
    let made = total(&counts.comparisons, made);
    let missing = if target == Target::Shadow {
        let whole = counts.emitted.values().fold(0, |sum: u64, count| sum.saturating_add(*count));
        (Ratio { part: whole - emitted(counts, "signed"), whole }, "answers of profile")
    } else {
        (Ratio { part: of(Comparison::Missing), whole: made }, "comparisons")
    };
    let found = made - of(Comparison::Missing);
    let agree = of(Comparison::Match).saturating_add(of(Comparison::OrderOnly));
    let fallback = counts.authority_of("fallback:");
    let served = total(&counts.authority, |count| count.kind != "call");
    let mut gates = Vec::new();
    if let Some(most) = shares.missing_max_percent {
        gates.push(share("missing", missing.0, missing.1, Bound::AtMost(most)));
    }
    if let Some(most) = shares.not_run_max_percent {
        let ratio = Ratio { part: of(Comparison::NotRun), whole: due };
        gates.push(share("not_run", ratio, "comparisons due", Bound::AtMost(most)));
    }
    if let Some(least) = shares.match_min_percent {
        let ratio = Ratio { part: agree, whole: found };
        let others = counts
            .comparisons
            .iter()
            .filter(|count| !["match", "order_only", "missing", "not_run"].contains(&count.kind.as_str()));
        let gate = share("match", ratio, "comparisons with a summary", Bound::AtLeast(least));
        let detail = joined(&gate.detail, &kinds(others));
        gates.push(if gate.verdict == Verdict::Pass { gate } else { gate.saying(detail) });
    }
    if let Some(most) = shares.fallback_max_percent {
        let reasons = counts.authority.iter().filter(|count| count.kind.starts_with("fallback:"));
        let gate =
            share("fallback", Ratio { part: fallback, whole: served }, "requests", Bound::AtMost(most));
        let detail = joined(&gate.detail, &kinds(reasons));
        gates.push(if gate.verdict == Verdict::Pass { gate } else { gate.saying(detail) });
    }
    gates
}

/// Summaries that lied, or cannot be trusted: by the comparison, and where the summary was the authority by the reason of
/// the fallback. A single one of a million stops it.
fn blocking(counts: &Counts) -> Gate {
    let blocks = |count: &&Count| {
        let reason = count.kind.strip_prefix("fallback:").or_else(|| count.kind.strip_prefix("closed:"));
        let class = match reason {
            Some(reason) => {
                let rejection = Rejection::ALL.into_iter().find(|rejection| rejection.as_str() == reason);
                rejection.map(Comparison::of_rejection)
            }
            None => Comparison::ALL.into_iter().find(|class| class.as_str() == count.kind),
        };
        class.is_some_and(Comparison::blocks)
    };
    let all = || counts.comparisons.iter().chain(&counts.authority);
    // What the call alone served, and what was not compared, could not have shown any.
    let looked = all().filter(|count| count.kind != "call" && made(count)).any(|count| count.count > 0);
    let found = all().filter(blocks).fold(0_u64, |sum, count| sum.saturating_add(count.count));
    let gate = Gate::at_most("blocking", "summaries", looked.then_some(found as f64), NEVER);
    gate.on_breach(Action::Block).saying(kinds(all().filter(blocks)))
}

/// Which side of a percentage passes.
#[derive(Clone, Copy)]
enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

#[derive(Clone, Copy)]
struct Ratio {
    part: u64,
    whole: u64,
}

/// A share in percent; of nothing there is none.
fn share(name: &'static str, Ratio { part, whole }: Ratio, of: &str, bound: Bound) -> Gate {
    let percent = (whole > 0).then(|| part as f64 / whole as f64 * 100.0);
    let gate = match bound {
        Bound::AtMost(most) => Gate::at_most(name, "percent", percent, most),
        Bound::AtLeast(least) => Gate::at_least(name, "percent", percent, least),
    };
    gate.on_breach(Action::Hold).saying(format!("{part} of {whole} {of}"))
}

/// Whether a comparison was made.
fn made(count: &Count) -> bool {
    count.kind != Comparison::NotRun.as_str()
}

fn closed(counts: &Counts) -> u64 {
    counts.authority_of("closed:")
}

fn pages(counts: &Counts, ended: &str) -> u64 {
    counts.pages.get(ended).copied().unwrap_or(0)
}

fn emitted(counts: &Counts, kind: &str) -> u64 {
    counts.emitted.get(kind).copied().unwrap_or(0)
}

/// Counts by kind, the most frequent first.
fn kinds<'c>(counts: impl Iterator<Item = &'c Count>) -> String {
    let mut kinds: BTreeMap<&str, u64> = BTreeMap::new();
    for count in counts {
        let known = kinds.entry(&count.kind).or_default();
        *known = known.saturating_add(count.count);
    }
    let mut kinds: Vec<(&str, u64)> = kinds.into_iter().filter(|(_, count)| *count > 0).collect();
    kinds.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let texts: Vec<String> = kinds.iter().take(6).map(|(kind, count)| format!("{kind} {count}")).collect();
    texts.join(", ")
}
