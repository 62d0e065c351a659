//! Metrics: calls by dependency and outcome, what the pools are doing, and how late the timer was.

use std::{
    fmt,
    sync::{Arc, Weak},
};

use base::Dependency;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{counter::ConstCounter, gauge::ConstGauge},
};
use serve::metrics::Registry;

use crate::{books::Outcome, engine::Engine, pool::Load};

/// Reads a gauge off a pool.
type Read = fn(Load) -> u32;

/// Adds the emulator's series. They hold the engine weakly, so that scraping does not keep it alive. The registry puts a
/// full stop behind the help of what is registered, and none behind that of a collector.
pub(crate) fn register(registry: &Registry, engine: &Arc<Engine>) {
    let pools = Series(Arc::downgrade(engine));
    registry.with(|inner| {
        inner.register(
            "emulator_timer_lateness_seconds",
            "How long after its time an emulated sleep was continued",
            engine.alarms.buckets(),
        );
        inner.register_collector(Box::new(pools));
    });
}

/// Read when they are scraped, so that a call pays for nothing.
struct Series(Weak<Engine>);

impl fmt::Debug for Series {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Series")
    }
}

impl Collector for Series {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(engine) = self.0.upgrade() else { return Ok(()) };
        calls(&engine, &mut encoder)?;
        let gauges: [(&str, &str, Read); 4] = [
            ("emulator_in_service", "Calls in service.", |load| load.in_service),
            ("emulator_queued", "Calls that wait for a server.", |load| load.queued),
            ("emulator_servers", "Calls that are served at once at most.", |load| load.capacity.servers),
            ("emulator_queue_max", "Calls that may wait.", |load| load.capacity.queue_max),
        ];
        for (name, help, read) in gauges {
            let kind = ConstGauge::new(0_u64).metric_type();
            let mut metric = encoder.encode_descriptor(name, help, None, kind)?;
            for dependency in Dependency::ALL {
                let value = u64::from(read(engine.pool(dependency).load()));
                let labels = [("dependency", dependency.as_str())];
                ConstGauge::new(value).encode(metric.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

fn calls(engine: &Engine, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
    let kind = ConstCounter::new(0_u64).metric_type();
    let help = "Calls that ended, by dependency and outcome.";
    let mut metric = encoder.encode_descriptor("emulator_calls", help, None, kind)?;
    let books = engine.books();
    for dependency in Dependency::ALL {
        for outcome in Outcome::ALL {
            let ended = books.ended(dependency, outcome);
            let labels = [("dependency", dependency.as_str()), ("outcome", outcome.as_str())];
            ConstCounter::new(ended).encode(metric.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Rig, SERVICE};

    #[test]
    fn calls_pools_and_lateness_are_told_and_end_with_the_engine() {
        let rig = Rig::new();
        let registry = Registry::new("emulator");
        register(&registry, &rig.engine);
        let mut answered = rig.begin(Dependency::Pricing, rig.caller("op"));
        rig.advance(SERVICE);
        assert!(answered.look().is_some());
        let held: Vec<_> = (0..3).map(|_| rig.begin(Dependency::Profile, rig.caller("op"))).collect();
        let text = registry.encode();
        for line in [
            "mercury_emulator_calls_total{dependency=\"pricing\",outcome=\"ok\"} 1",
            "mercury_emulator_calls_total{dependency=\"profile\",outcome=\"ok\"} 0",
            "mercury_emulator_in_service{dependency=\"profile\"} 2",
            "mercury_emulator_queued{dependency=\"profile\"} 1",
            "mercury_emulator_servers{dependency=\"reputation\"} 2",
            "mercury_emulator_queue_max{dependency=\"reputation\"} 2",
            "mercury_emulator_timer_lateness_seconds_count 1",
        ] {
            assert!(text.lines().any(|told| told == line), "{line} is not in:\n{text}");
        }
        let help = text.lines().filter(|line| line.starts_with("# HELP mercury_emulator_"));
        assert_eq!(help.filter(|line| line.ends_with('.') && !line.ends_with("..")).count(), 6);
        drop(held);
        // The registry does not keep the engine alive.
        drop((answered, rig));
        assert!(!registry.encode().contains("mercury_emulator_calls"));
    }
}
