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

/// Adds the emulator's series. They hold the engine weakly, so that scraping does not keep it alive.
pub(crate) fn register(registry: &Registry, engine: &Arc<Engine>) {
    let pools = Series(Arc::downgrade(engine));
    registry.with(|inner| {
        inner.register(
            "emulator_timer_lateness_seconds",
            "How long after its time an emulated sleep was continued.",
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
        let gauges: [(&str, &str, fn(Load) -> u32); 4] = [
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
    for dependency in Dependency::ALL {
        for outcome in Outcome::ALL {
            let ended = engine.ended[dependency.index()][outcome.index()].get();
            let labels = [("dependency", dependency.as_str()), ("outcome", outcome.as_str())];
            ConstCounter::new(ended).encode(metric.encode_family(&labels)?)?;
        }
    }
    Ok(())
}
