//! Link metrics: the series of the channels of a process, read when they are scraped.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric as _},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
};
use serve::metrics::Registry;
use stack::{LinkStats, LocalFailure};

/// A channel's label and its counters.
type Labelled = (&'static str, Arc<LinkStats>);

/// The channels of one process, by label.
#[derive(Clone, Debug, Default)]
pub struct Links(Arc<Mutex<Vec<Labelled>>>);

impl Links {
    /// A set that `registry` reads from now on.
    pub fn new(registry: &Registry) -> Self {
        let links = Self::default();
        registry.with(|registry| registry.register_collector(Box::new(links.clone())));
        links
    }

    /// Adds a channel; its series appear with the next scrape.
    pub fn add(&self, label: &'static str, stats: Arc<LinkStats>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((label, stats));
    }

    fn each(&self) -> Vec<Labelled> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// One counter or gauge of a link, as scraped.
type Read = fn(&LinkStats) -> u64;

const COUNTERS: [(&str, &str, Read); 5] = [
    ("link_calls", "Calls that were begun on a link", LinkStats::calls),
    ("link_connects", "Connections that a link made", LinkStats::connects),
    ("link_connect_failures", "Connection attempts of a link that failed", LinkStats::connect_failures),
    ("link_disconnects", "Connections of a link that ended", LinkStats::disconnects),
    ("link_replays", "Calls sent again because the peer had not processed them", LinkStats::replays),
];

const GAUGES: [(&str, &str, Read); 2] = [
    ("link_in_flight", "Calls under way on a link", LinkStats::in_flight),
    ("link_in_flight_peak", "Most calls that were under way at one time", LinkStats::in_flight_peak),
];

impl Collector for Links {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let links = self.each();
        for (name, help, read) in COUNTERS {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (label, stats) in &links {
                ConstCounter::new(read(stats)).encode(family.encode_family(&[("link", *label)])?)?;
            }
        }
        for (name, help, read) in GAUGES {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (label, stats) in &links {
                ConstGauge::new(read(stats)).encode(family.encode_family(&[("link", *label)])?)?;
            }
        }
        let help = "Calls that ended in a status made on this side, by cause";
        let mut family = encoder.encode_descriptor("link_failures", help, None, MetricType::Counter)?;
        for (label, stats) in &links {
            for failure in LocalFailure::ALL {
                let labels = [("link", *label), ("cause", failure.as_str())];
                ConstCounter::new(stats.failures(failure)).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}
