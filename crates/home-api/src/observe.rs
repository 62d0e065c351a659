//! Observe: the series that are read when they are scraped: pools and gates, open flights, pressure.

use std::{
    fmt,
    sync::{Arc, Weak},
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric as _},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
    registry::Unit,
};

use crate::{serve_page::Home, slots::Standing};

/// Reads a [`Home`] at each scrape. It does not keep it alive.
pub(crate) struct Observer(Weak<Home>);

impl Observer {
    pub(crate) fn of(home: &Arc<Home>) -> Self {
        Self(Arc::downgrade(home))
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observer")
    }
}

/// A gauge of a boundary, as scraped.
type Read = fn(&Standing) -> f64;

const GAUGES: [(&str, &str, Option<Unit>, Read); 5] = [
    ("home_slots", "Slots of a pool", None, |standing| f64::from(standing.slots)),
    ("home_limit", "Permits of the gate before a pool", None, |standing| f64::from(standing.limit)),
    ("home_held", "Slots of a pool in use", None, |standing| f64::from(standing.held)),
    ("home_waiting", "Work that waits for a slot or a permit", None, |standing| f64::from(standing.waiting)),
    ("home_queue_oldest_age", "Age of the oldest work that waits", Some(Unit::Seconds), |standing| {
        standing.oldest_age.as_secs_f64()
    }),
];

impl Collector for Observer {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(home) = self.0.upgrade() else { return Ok(()) };
        let boundaries = home.boundaries().map(|slots| (slots.boundary().as_str(), slots.observe()));
        for (name, help, unit, read) in GAUGES {
            let mut family = encoder.encode_descriptor(name, help, unit.as_ref(), MetricType::Gauge)?;
            for (gate, standing) in &boundaries {
                ConstGauge::new(read(standing)).encode(family.encode_family(&[("gate", *gate)])?)?;
            }
        }
        let help = "Sum over the slots of a pool of the time that each was held; its rate is their mean number in use";
        let unit = Some(&Unit::Seconds);
        let mut family = encoder.encode_descriptor("home_permit", help, unit, MetricType::Counter)?;
        for (gate, standing) in &boundaries {
            let held = ConstCounter::new(standing.held_time.as_secs_f64());
            held.encode(family.encode_family(&[("gate", *gate)])?)?;
        }
        let counts = home.flights();
        let help = "Shared profile reads by how they ended";
        let mut family = encoder.encode_descriptor("home_flights", help, None, MetricType::Counter)?;
        let ended = [
            ("completed", counts.completed),
            ("failed", counts.failed),
            ("panicked", counts.panicked),
            ("stopped", counts.stopped),
            ("expired", counts.expired),
            ("cancelled", counts.cancelled),
        ];
        for (outcome, count) in ended {
            ConstCounter::new(count).encode(family.encode_family(&[("outcome", outcome)])?)?;
        }
        let help = "Profile reads that shared the call of another";
        let family = encoder.encode_descriptor("home_joined", help, None, MetricType::Counter)?;
        ConstCounter::new(counts.joined).encode(family)?;
        let (comparing, samples) = home.bench.held();
        for (name, help, value) in [
            ("home_comparisons_open", "Comparisons of summaries under way", comparing as u64),
            ("home_samples", "Samples of differences that are kept", samples as u64),
            ("home_flights_open", "Shared profile reads under way", counts.open()),
            ("home_flight_waiters", "Pages that wait for a shared profile read", counts.waiting()),
            ("home_pressure", "1 while optional sections give way to pressure", u64::from(home.pressure())),
        ] {
            let family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            // Counts of things that exist at one moment are exact in a double.
            ConstGauge::new(value as f64).encode(family)?;
        }
        Ok(())
    }
}
