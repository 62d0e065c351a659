//! Source: the seam to `model::workload`: its arrivals become operations with names, and its callers' habits retries.

use base::{Identity, Region, Subject, Tenant, WorkloadClass};
use model::{names, workload::Arrival};

use crate::{Plan, Rate, retry::Retries, schedule::Operation};

/// What a report says about where the arrivals came from.
pub(crate) struct Facts {
    pub(crate) workload: String,
    pub(crate) rate_per_s: f64,
    pub(crate) scale: Option<String>,
}

/// Where the operations of a run come from.
pub(crate) struct Source {
    pub(crate) arrivals: Box<dyn Iterator<Item = Operation> + Send>,
    pub(crate) retries: Retries,
    pub(crate) facts: Facts,
}

impl Source {
    /// The plan's workload, at its rate, from its seed.
    pub(crate) fn of(plan: &Plan) -> Self {
        let workload = &plan.workload;
        let scale = match plan.rate {
            Rate::PerSecond(_) => None,
            Rate::Scale(scale) => Some(scale.to_string()),
        };
        let names = Names::new();
        let retries = &workload.retries;
        Self {
            arrivals: Box::new(plan.arrivals().map(move |arrival| names.name(&arrival))),
            retries: plan.settle.as_ref().map_or_else(
                || Retries::declared(plan.seed, retries.share, retries.attempts_max, retries.delay),
                |settle| Retries::settling(plan.seed, settle),
            ),
            facts: Facts {
                workload: workload.name.clone(),
                rate_per_s: plan.offered().requests_per_s,
                scale,
            },
        }
    }
}

/// How many operations of each class the plan's workload declares for each of its stages: the schedule made again, with
/// nobody to follow it.
pub fn declared(plan: &Plan) -> Vec<[u64; WorkloadClass::ALL.len()]> {
    let course = plan.course(base::Nanos::ZERO);
    let mut counts = vec![[0; WorkloadClass::ALL.len()]; plan.stages.len()];
    for (stage, class) in
        plan.arrivals().map_while(|arrival| Some((course.stage(arrival.at)?, arrival.class)))
    {
        counts[stage][class.index()] += 1;
    }
    counts
}

/// Names of the data set that come up often, made once.
struct Names {
    tenants: Vec<Tenant>,
    regions: [Region; names::REGIONS.len()],
}

const WELL_FORMED: &str = "the names of the data set are well formed";

impl Names {
    fn new() -> Self {
        Self {
            tenants: (0..names::TENANTS)
                .map(|index| Tenant::parse(&names::tenant(index)).expect(WELL_FORMED))
                .collect(),
            regions: names::REGIONS.map(|name| Region::parse(name).expect(WELL_FORMED)),
        }
    }

    fn name(&self, arrival: &Arrival) -> Operation {
        Operation {
            at: arrival.at,
            number: arrival.number,
            identity: Identity {
                tenant: self.tenants[arrival.tenant as usize].clone(),
                subject: Subject::parse(&arrival.subject_name()).expect(WELL_FORMED),
                class: arrival.class,
                region: self.regions[usize::from(arrival.region)].clone(),
            },
            patience: arrival.patience,
        }
    }
}

#[cfg(test)]
mod tests {
    use base::Nanos;
    use model::{Scale, workload::Workload};

    use super::*;

    fn first(plan: &Plan, count: usize) -> Vec<Operation> {
        Source::of(plan).arrivals.take(count).collect()
    }

    #[test]
    fn operations_are_the_arrivals_of_the_workload_by_name() {
        let workload = Workload::shipped();
        let mut plan = Plan::new("h:1", workload.clone(), Rate::PerSecond(250.0), Nanos::from_secs(1));
        plan.seed = 7;
        let operations = first(&plan, 1_000);
        let arrivals = workload.arrivals(7, workload.at_rate(250.0)).take(1_000);
        for (operation, arrival) in operations.iter().zip(arrivals) {
            assert_eq!(operation.identity.tenant.as_str(), arrival.tenant_name());
            assert_eq!(operation.identity.subject.as_str(), arrival.subject_name());
            assert_eq!(operation.identity.region.as_str(), arrival.region_name());
            assert_eq!((operation.at, operation.patience), (arrival.at, arrival.patience));
        }
        plan.seed = 8;
        let others = first(&plan, 1_000);
        assert!(others.iter().zip(&operations).any(|(one, other)| one.at != other.at));
    }

    #[test]
    fn what_is_declared_is_what_is_scheduled() {
        let seconds = Nanos::from_secs;
        let mut plan = Plan::new("h:1", Workload::shipped(), Rate::PerSecond(250.0), seconds(2));
        plan.stages.push(crate::StagePlan::measured("next", seconds(3)));
        plan.seed = 9;
        let operations = first(&plan, 3_000);
        assert!(operations.last().expect("many").at > seconds(5), "all of them were made");
        let of = |from: Nanos, to: Nanos| {
            WorkloadClass::ALL.map(|class| {
                let within = |operation: &&Operation| {
                    (from..to).contains(&operation.at) && operation.identity.class == class
                };
                operations.iter().filter(within).count() as u64
            })
        };
        let expected = [of(seconds(0), seconds(2)), of(seconds(2), seconds(5))];
        assert_eq!(declared(&plan), expected);
        plan.stages[1].rate_percent = 300;
        let [calm, surge] = [0, 1].map(|stage| declared(&plan)[stage].iter().sum::<u64>() as f64);
        assert!((2.4..3.6).contains(&(surge / 3.0 / (calm / 2.0))), "{calm} in 2 s and {surge} in 3 s");
        plan.stages[1].rate_percent = 100;
        assert_eq!(declared(&Plan { dilate: 7, ..plan }), expected, "slow motion changes no count");
    }

    #[test]
    fn a_scale_is_told_and_a_rate_is_not_one() {
        let scale = Scale::parse("1/60").expect("a scale");
        let plan = Plan::new("h:1", Workload::shipped(), Rate::Scale(scale), Nanos::from_secs(1));
        let facts = Source::of(&plan).facts;
        assert_eq!(facts.scale.as_deref(), Some("1/60"));
        assert!((facts.rate_per_s - 18_400.0 / 3.0 / 60.0).abs() < 1e-9);
        let plan = Plan { rate: Rate::PerSecond(250.0), ..plan };
        let facts = Source::of(&plan).facts;
        assert_eq!((facts.scale, facts.rate_per_s), (None, 250.0));
    }
}
