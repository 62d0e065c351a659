//! Judge: the gates of the rehearsal, and its report.

use model::{policy, policy::Policy, scenario, workload::Workload};

use super::{EffectsOptions, kills::Killed};
use crate::{
    exposures::{Account, Class},
    gates::{self, Gate, Role},
    report::{self, Effects, Generator, Kills, PolicyRef, Quantiles, Report, Scenario},
    slo::RehearsalError,
    verdict::Verdict,
};

/// Largest share of the operations that may end without an answer though their caller stayed: with settling callers, it says
/// that the suite did not come back.
const FAILED_RATIO_MAX: f64 = 0.05;
/// Kills from which on each of the moments has to be among them: one in five is meant for the rarest, so thirty miss it once in
/// eight hundred seeds.
const EVERY_MOMENT_FROM: u32 = 30;

/// Everything that was seen.
pub(super) struct Evidence {
    pub(super) killed: Killed,
    /// Whether time was kept.
    pub(super) generator: Generator,
    /// Pages that were not what their request has to get.
    pub(super) core_mismatch: u64,
    pub(super) account: Account,
    pub(super) told: Vec<Scenario>,
    /// Whether several processes share the ledger.
    pub(super) shared: bool,
}

/// The report with its verdict.
pub(super) fn report(options: &EffectsOptions, evidence: Evidence) -> Result<Report, RehearsalError> {
    let mut report = frame(options)?;
    report.gates = gates(options, &evidence);
    report.scenarios.push(story(options, &evidence));
    let Evidence { killed, generator, account, told, .. } = evidence;
    report.add_policy("effects", policy_ref(options, generator)?);
    report.scenarios.extend(told);
    report.effects = Some(Effects {
        kills: Kills {
            total: killed.kills.iter().sum(),
            any: killed.kills[0],
            submitted: killed.kills[1],
            committing: killed.kills[2],
            rows_in_flight: killed.rows_in_flight,
            restart_ms: quantiles(&killed.restarts),
        },
        account,
    });
    let verdicts = report.scenarios.iter().map(|story| story.verdict);
    report.verdict = Verdict::of_all(verdicts.chain([gates::verdict(&report.gates)]));
    Ok(report)
}

fn gates(options: &EffectsOptions, evidence: &Evidence) -> Vec<Gate> {
    let Evidence { killed, generator, account, .. } = evidence;
    let count = |count: u64| Some(count as f64); // Far below 2^52.
    let known = account.arms.shown > 0;
    let kills = f64::from(killed.kills.iter().sum::<u32>());
    let mut gates = vec![
        Gate::at_least("kills", "kills", Some(kills), options.kills.into()).doubt(),
        Gate::at_least("arms_shown", "arms", count(account.arms.shown), 1.0).doubt(),
    ];
    let names = [
        ("exposures_lost", Class::Lost),
        ("exposures_duplicated", Class::Duplicated),
        ("exposures_orphan", Class::Orphan),
        ("exposures_forged", Class::Forged),
        ("exposures_altered", Class::Altered),
        ("exposures_misallocated", Class::Misallocated),
        ("exposures_extra", Class::Extra),
    ];
    for (name, class) in names {
        let observed = known.then(|| account.count(class) as f64);
        gates.push(Gate::at_most(name, "exposures", observed, 0.0).saying(class.meaning()));
    }
    // A caller that is told nothing of its rows believes that there are none.
    let undeclared = known.then_some(account.undeclared as f64);
    gates.push(Gate::at_most("effects_undeclared", "operations", undeclared, 0.0));
    gates.push(Gate::at_most("core_mismatch", "answers", count(evidence.core_mismatch), 0.0));
    if options.kills >= EVERY_MOMENT_FROM {
        let [_, submitted, committing] = killed.kills.map(|kills| Some(f64::from(kills)));
        gates.push(Gate::at_least("kills_submitted", "kills", submitted, 1.0).doubt());
        gates.push(Gate::at_least("kills_committing", "kills", committing, 1.0).doubt());
        gates.push(Gate::at_least("rows_in_flight", "rows", count(killed.rows_in_flight), 1.0).doubt());
    }
    let gaps = account.records.iter().filter(|record| record.gap.is_some()).count();
    gates.push(Gate::at_most("record_gaps", "records", count(gaps as u64), 0.0).doubt());
    // Without one, no kill met a row that was committed and not answered for.
    gates.push(Gate::at_least("exposures_replayed", "arms", count(account.arms.replayed), 1.0).doubt());
    if evidence.shared {
        // And none of them at another process, if there are two.
        let elsewhere = count(account.arms.replayed_elsewhere);
        gates.push(Gate::at_least("exposures_replayed_elsewhere", "arms", elsewhere, 1.0).doubt());
    }
    let stayed = account.operations.answered + account.operations.failed;
    let failed = report::ratio(account.operations.failed as f64, stayed as f64);
    gates.push(Gate::at_most("failed_ratio", "ratio", failed, FAILED_RATIO_MAX));
    let unsent = generator.unsent_ratio;
    gates.push(Gate::at_most("generator_unsent", "ratio", unsent, load::health::UNSENT_RATIO_MAX).doubt());
    gates
}

/// The kills as a story.
fn story(options: &EffectsOptions, evidence: &Evidence) -> Scenario {
    let Evidence { killed, generator, account, .. } = evidence;
    let (verdict, detail) = if account.verdict != Verdict::Pass {
        (account.verdict, account.why())
    } else if !killed.wrong.is_empty() {
        // It did not come back in time. Where the generator did not keep time either, it may have been the machine.
        let verdict = if generator.valid { Verdict::Fail } else { Verdict::Inconclusive };
        (verdict, killed.wrong.join("; "))
    } else if let Some(cut) = &killed.cut {
        (Verdict::Inconclusive, cut.clone())
    } else {
        let [any, submitted, committing] = killed.kills;
        let detail = format!(
            "{} kills of seed {} ({any} at any moment, {submitted} with rows submitted, {committing} while committing): {} arms \
             shown, each with one row; {} of them recorded by an attempt before the one that was answered; {} rows of callers that \
             left or were not answered",
            any + submitted + committing,
            options.seed,
            account.arms.shown,
            account.arms.replayed,
            account.rows.unshown
        );
        (Verdict::Pass, detail)
    };
    Scenario { name: "killed_under_load".to_owned(), verdict, detail }
}

fn quantiles(ascending: &[base::Nanos]) -> Quantiles {
    let at = |q: f64| {
        let rank = (ascending.len() as f64 * q).ceil().max(1.0) as usize - 1; // Far below 2^52.
        ascending.get(rank).map(|span| span.as_millis_f64())
    };
    Quantiles { n: ascending.len() as u64, p50: at(0.5), p99: at(0.99), ..Quantiles::default() }
}

fn policy_ref(options: &EffectsOptions, generator: Generator) -> Result<PolicyRef, RehearsalError> {
    let (name, text) = match &options.policy {
        None => (policy::SHIPPED.0.to_owned(), policy::SHIPPED.1.to_owned()),
        Some(path) => {
            let text = std::fs::read_to_string(path);
            let text = text.map_err(|error| RehearsalError::Io { path: path.clone(), error })?;
            (path.display().to_string(), text)
        }
    };
    let policy = Policy::parse(&name, &text).map_err(|faults| RehearsalError::Files(vec![faults]))?;
    Ok(PolicyRef {
        name: "effects".to_owned(),
        role: Role::After,
        generation: policy.generation,
        digest: format!("{:016x}", policy.digest),
        generator,
        ..PolicyRef::default()
    })
}

fn frame(options: &EffectsOptions) -> Result<Report, RehearsalError> {
    let files = |faults| RehearsalError::Files(vec![faults]);
    let scenario = scenario::Scenario::parse(scenario::SHIPPED.0, scenario::SHIPPED.1).map_err(files)?;
    let workload = Workload::parse(model::workload::SHIPPED.0, model::workload::SHIPPED.1).map_err(files)?;
    Ok(Report {
        schema: report::SCHEMA,
        command: "rehearse effects".to_owned(),
        seed: options.seed,
        runs: 1,
        workload: workload.name,
        scenario: (&scenario).into(),
        scale: None,
        rate_per_s: options.rate_per_s,
        dilate: 1,
        histogram: load::HISTOGRAM_SCHEME,
        tolerance: "Rows are counted one by one and there is no tolerance. Whether time was kept takes part in one thing \
                    only: a process that does not record again in time fails the rehearsal if it was, and leaves it open if not."
            .to_owned(),
        ..Report::default()
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::exposures::account::{Arms, Operations};

    fn options() -> EffectsOptions {
        EffectsOptions {
            kills: 5,
            ..EffectsOptions::new("out", Arc::new(|_| Err("nobody opens it".to_owned())))
        }
    }

    /// What a rehearsal without a fault leaves.
    fn sound() -> Evidence {
        let mut account = Account::new();
        account.verdict = Verdict::Pass;
        account.operations = Operations { total: 10, answered: 9, departed: 1, ..Operations::default() };
        account.arms = Arms { shown: 27, committed: 24, replayed: 3, replayed_elsewhere: 3 };
        Evidence {
            killed: Killed { kills: [3, 1, 1], ..Killed::default() },
            core_mismatch: 0,
            generator: Generator { valid: true, unsent_ratio: Some(0.0), ..Generator::default() },
            account,
            told: vec![Scenario { verdict: Verdict::Pass, ..Scenario::default() }],
            shared: true,
        }
    }

    /// What a test does to the evidence.
    type Change = fn(&mut Evidence);

    fn verdict(change: impl FnOnce(&mut Evidence)) -> (Verdict, String) {
        let mut evidence = sound();
        change(&mut evidence);
        let report = report(&options(), evidence).expect("the shipped files are valid");
        (report.verdict, super::super::print::why(&report))
    }

    #[test]
    fn what_is_sound_passes_and_every_discrepancy_fails_by_its_name() {
        assert_eq!(verdict(|_| ()), (Verdict::Pass, String::new()));
        for class in Class::ALL {
            let (verdict, why) = verdict(|evidence| {
                evidence.account.note(class, 1, String::new);
                evidence.account.verdict = Verdict::Fail;
            });
            assert_eq!(verdict, Verdict::Fail, "{class}");
            assert!(why.contains(class.as_str()), "{why}");
            // The gate alone says so as well.
            let (verdict, why) = self::verdict(|evidence| evidence.account.note(class, 1, String::new));
            assert_eq!(verdict, Verdict::Fail, "{class}");
            assert!(why.contains(class.as_str()), "{why}");
        }
        let failed = verdict(|evidence| evidence.account.operations.failed = 5);
        assert_eq!(failed.0, Verdict::Fail, "{}", failed.1);
        let cases: [(&str, Change); 3] = [
            ("effects_undeclared", |evidence| evidence.account.undeclared = 1),
            ("core_mismatch", |evidence| evidence.core_mismatch = 1),
            ("did not record", |evidence| evidence.killed.wrong.push("it did not record".to_owned())),
        ];
        for (named, change) in cases {
            let (verdict, why) = verdict(change);
            assert_eq!(verdict, Verdict::Fail, "{named}: {why}");
            assert!(why.contains(named), "{named}: {why}");
        }
    }

    #[test]
    fn every_moment_is_asked_for_where_there_are_many_kills() {
        let many = EffectsOptions { kills: 50, ..options() };
        for (kills, rows_in_flight, breached) in [
            ([30, 10, 10], 7, None),
            ([40, 0, 10], 7, Some("kills_submitted")),
            ([40, 10, 0], 7, Some("kills_committing")),
            ([30, 10, 10], 0, Some("rows_in_flight")),
        ] {
            let mut evidence = sound();
            evidence.killed = Killed { kills, rows_in_flight, ..Killed::default() };
            let report = report(&many, evidence).expect("the shipped files are valid");
            let expected = if breached.is_some() { Verdict::Inconclusive } else { Verdict::Pass };
            assert_eq!(report.verdict, expected, "{breached:?}");
            let found = report.gates.iter().find(|gate| gate.verdict != Verdict::Pass);
            assert_eq!(found.map(|gate| gate.name), breached);
        }
        assert_eq!(
            verdict(|evidence| evidence.killed.kills = [5, 0, 0]).0,
            Verdict::Pass,
            "five are too few"
        );
    }

    #[test]
    fn what_shows_nothing_or_was_the_machine_is_inconclusive() {
        let cases: [(&str, Change); 8] = [
            ("kills", |evidence| evidence.killed.kills = [1, 0, 0]),
            ("arms", |evidence| evidence.account.arms = Arms::default()),
            ("replayed", |evidence| evidence.account.arms.replayed = 0),
            ("replayed", |evidence| evidence.account.arms.replayed_elsewhere = 0),
            ("unsent", |evidence| evidence.generator.unsent_ratio = Some(0.2)),
            ("did not record", |evidence| {
                evidence.generator.valid = false;
                evidence.killed.wrong.push("it did not record".to_owned());
            }),
            ("callers ended", |evidence| evidence.killed.cut = Some("the callers ended".to_owned())),
            ("a gap", |evidence| {
                evidence.account.verdict = Verdict::Inconclusive;
                evidence.account.reasons.push("a gap".to_owned());
            }),
        ];
        for (named, change) in cases {
            let (verdict, why) = verdict(change);
            assert_eq!(verdict, Verdict::Inconclusive, "{named}: {why}");
            assert!(why.contains(named), "{named}: {why}");
        }
        // One process has nobody else to replay at.
        let alone = verdict(|evidence| {
            evidence.shared = false;
            evidence.account.arms.replayed_elsewhere = 0;
        });
        assert_eq!(alone.0, Verdict::Pass);
    }
}
