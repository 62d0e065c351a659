//! Reading: what home-api says about its two gates, and what happened between two readings.

use crate::{
    report::ratio,
    scrape::{Histogram, Scrape, grown},
};

/// The gates, as their label is written.
const GATES: [&str; 2] = ["endpoint", "profile"];

/// One gate at one instant. Times are wall seconds.
#[derive(Clone, Debug, Default)]
struct Gate {
    queue_age: Option<Histogram>,
    permit_seconds: Option<f64>,
    slots: Option<f64>,
    limit: Option<f64>,
    held: Option<f64>,
}

/// Home-api at one instant.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reading {
    gates: [Gate; 2],
    profile_calls: Option<f64>,
    flights_open: Option<f64>,
    /// Branches that the deadline looked at before they started, and those that it meant to stop and that went on.
    deadline: [Option<f64>; 2],
}

impl Reading {
    pub(crate) fn of(scrape: &Scrape) -> Self {
        let gate = |gate: &str| {
            let sum = |series: &str| scrape.sum(series, &[("gate", gate)], &[]);
            Gate {
                queue_age: scrape.histogram("mercury_home_queue_age_seconds", &[("gate", gate)], &[]),
                permit_seconds: sum("mercury_home_permit_seconds_total"),
                slots: sum("mercury_home_slots"),
                limit: sum("mercury_home_limit"),
                held: sum("mercury_home_held"),
            }
        };
        Self {
            gates: GATES.map(gate),
            profile_calls: scrape.sum("mercury_home_profile_calls_total", &[], &[]),
            flights_open: scrape.sum("mercury_home_flights_open", &[], &[]),
            deadline: [&[][..], &[("intended", "stop"), ("actual", "proceed")]].map(|labels| {
                let labels = [&[("mechanism", "deadline")], labels].concat();
                scrape.sum("mercury_home_decisions_total", &labels, &[])
            }),
        }
    }

    /// Permits held now, of both gates.
    pub(crate) fn held(&self) -> Option<f64> {
        self.gates.iter().try_fold(0.0, |sum, gate| Some(sum + gate.held?))
    }

    /// Profile flights that are open now.
    pub(crate) const fn flights_open(&self) -> Option<f64> {
        self.flights_open
    }

    /// What happened since `before`, `wall_s` ago.
    pub(crate) fn since(&self, before: &Self, wall_s: f64) -> Window {
        let gate = |at: usize| {
            let (then, now) = (&before.gates[at], &self.gates[at]);
            let over = |size: Option<f64>| size.map(|size| size * wall_s).filter(|whole| *whole > 0.0);
            GateWindow {
                queue_age: now.queue_age.as_ref().zip(then.queue_age.as_ref()).and_then(|(n, t)| n.since(t)),
                held_seconds: grown(then.permit_seconds, now.permit_seconds),
                slot_seconds: over(now.slots),
                limit_seconds: over(now.limit),
            }
        };
        Window {
            endpoint: gate(0),
            profile: gate(1),
            profile_calls: grown(before.profile_calls, self.profile_calls),
            deadline: [0, 1].map(|at| grown(before.deadline[at], self.deadline[at])),
        }
    }
}

/// One gate between two readings.
#[derive(Clone, Debug, Default)]
pub(crate) struct GateWindow {
    queue_age: Option<Histogram>,
    held_seconds: Option<f64>,
    slot_seconds: Option<f64>,
    limit_seconds: Option<f64>,
}

impl GateWindow {
    /// Mean held slots over slots.
    pub(crate) fn occupancy(&self) -> Option<f64> {
        ratio(self.held_seconds?, self.slot_seconds?)
    }

    /// Mean held slots over the bound that admission kept.
    pub(crate) fn admitted_occupancy(&self) -> Option<f64> {
        ratio(self.held_seconds?, self.limit_seconds?)
    }

    /// 99th percentile of the age at which a slot was granted, in milliseconds of model time.
    pub(crate) fn queue_age_p99_ms(&self, dilate: f64) -> Option<f64> {
        Some(self.queue_age.as_ref()?.quantile(0.99)? * 1e3 / dilate)
    }

    fn with(&self, other: &Self) -> Self {
        Self {
            queue_age: self.queue_age.as_ref().zip(other.queue_age.as_ref()).and_then(|(a, b)| a.with(b)),
            held_seconds: add(self.held_seconds, other.held_seconds),
            slot_seconds: add(self.slot_seconds, other.slot_seconds),
            limit_seconds: add(self.limit_seconds, other.limit_seconds),
        }
    }
}

/// Home-api between two readings.
#[derive(Clone, Debug, Default)]
pub(crate) struct Window {
    pub(crate) endpoint: GateWindow,
    pub(crate) profile: GateWindow,
    /// Upstream profile reads.
    pub(crate) profile_calls: Option<f64>,
    deadline: [Option<f64>; 2],
}

impl Window {
    /// Queue age of the worse of the two gates; of one that nobody asked nothing is known.
    pub(crate) fn queue_age_p99_ms(&self, dilate: f64) -> Option<f64> {
        let ages = [&self.endpoint, &self.profile].map(|gate| gate.queue_age_p99_ms(dilate));
        ages.into_iter().flatten().reduce(f64::max)
    }

    /// Branches that the deadline meant to stop and that went on, over those that it looked at.
    pub(crate) fn intended_stops(&self) -> Option<f64> {
        let [looked_at, meant] = self.deadline;
        ratio(meant?, looked_at?)
    }

    /// Both windows together; what one of them does not know is not known.
    pub(crate) fn with(&self, other: &Self) -> Self {
        Self {
            endpoint: self.endpoint.with(&other.endpoint),
            profile: self.profile.with(&other.profile),
            profile_calls: add(self.profile_calls, other.profile_calls),
            deadline: [0, 1].map(|at| add(self.deadline[at], other.deadline[at])),
        }
    }
}

/// The sum of two figures that are both known.
pub(crate) fn add(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    Some(one? + other?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `held` slot-seconds of 640 (admitted 520), and ages of so many grants: at once, below 12 ms, and above.
    fn text(held: f64, ages: [u32; 3], calls: u32) -> String {
        let [none, short, long] = ages;
        let gate = |gate: &str, slots: u32, limit: u32| {
            let cumulative = [none, none + short, none + short + long];
            let buckets = ["0.0005", "0.012", "+Inf"].iter().zip(cumulative).map(|(bound, count)| {
                let series = "mercury_home_queue_age_seconds_bucket";
                format!("{series}{{le=\"{bound}\",gate=\"{gate}\",class=\"premium\"}} {count}\n")
            });
            let buckets: String = buckets.collect();
            format!(
                "{buckets}mercury_home_permit_seconds_total{{gate=\"{gate}\"}} {held}\n\
                 mercury_home_slots{{gate=\"{gate}\"}} {slots}\nmercury_home_limit{{gate=\"{gate}\"}} {limit}\n\
                 mercury_home_held{{gate=\"{gate}\"}} 1\n"
            )
        };
        format!(
            "{}{}mercury_home_profile_calls_total {calls}\nmercury_home_flights_open 0\n",
            gate("endpoint", 640, 520),
            gate("profile", 420, 340)
        )
    }

    fn reading(held: f64, ages: [u32; 3], calls: u32) -> Reading {
        Reading::of(&Scrape::new(text(held, ages, calls)))
    }

    #[test]
    fn a_window_is_what_was_added_over_what_there_was() {
        let (before, after) = (reading(100.0, [10, 0, 0], 7), reading(420.0, [10, 97, 3], 107));
        let window = after.since(&before, 1.0);
        assert_eq!(window.endpoint.occupancy(), Some(0.5));
        assert_eq!(window.endpoint.admitted_occupancy(), Some(320.0 / 520.0));
        assert_eq!(window.profile_calls, Some(100.0));
        let age = window.queue_age_p99_ms(1.0).expect("grants");
        assert_eq!(age, 12.0, "beyond the last finite bound, which stands for it");
        assert_eq!(window.queue_age_p99_ms(20.0), Some(0.6), "slow motion is divided back");
        let twice = window.with(&window);
        assert_eq!(twice.endpoint.occupancy(), Some(0.5));
        assert_eq!(twice.profile_calls, Some(200.0));
        assert_eq!((after.held(), after.flights_open()), (Some(2.0), Some(0.0)));
    }

    #[test]
    fn nothing_is_known_of_a_home_api_that_does_not_say() {
        let silent = Reading::of(&Scrape::new("# EOF\n"));
        let window = silent.since(&silent, 1.0);
        assert_eq!((window.endpoint.occupancy(), window.queue_age_p99_ms(1.0)), (None, None));
        assert_eq!((window.profile_calls, silent.held(), silent.flights_open()), (None, None, None));
        let one = reading(1.0, [1, 0, 0], 1);
        assert_eq!(one.since(&silent, 1.0).endpoint.occupancy(), None);
        assert_eq!(one.since(&one, 0.0).endpoint.occupancy(), None, "no time, no mean");
        assert_eq!(one.since(&one, 1.0).queue_age_p99_ms(1.0), None, "nobody asked");
        assert_eq!(
            one.since(&one, 1.0).endpoint.occupancy(),
            Some(0.0),
            "and nothing was held, which is known"
        );
    }
}
