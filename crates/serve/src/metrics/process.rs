//! Process: what the kernel says about this process, read when it is scraped, and which build it is.

use std::{fmt, fs};

use base::{
    clock,
    inject::{Point, Points},
};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge, info::Info},
    registry::{Registry, Unit},
};

use crate::{
    lifecycle::{Lifecycle, Stage},
    supervisor::Supervisor,
};

/// Kernel clock ticks are read from field 22 of `/proc/self/stat`; the fields after the command's name begin at 3.
const START_TICKS_AFTER_NAME: usize = 22 - 3;

/// Reads the process series at scrape. A value that cannot be read is left out, since a zero would be a claim.
#[derive(Debug)]
pub(super) struct ProcessCollector {
    started_unix_secs: Option<f64>,
    page_bytes: u64,
}

impl ProcessCollector {
    pub(super) fn new() -> Self {
        Self { started_unix_secs: started_unix_secs(), page_bytes: rustix::param::page_size() as u64 }
    }
}

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let cpu = ConstCounter::new(clock::process_cpu().as_secs_f64());
        let help = "CPU time that the process has used, user and system.";
        series(&mut encoder, "process_cpu", help, Some(&Unit::Seconds), &cpu)?;
        if let Some(pages) = resident_pages() {
            let bytes = ConstGauge::new(pages * self.page_bytes);
            series(&mut encoder, "process_resident_memory", "Resident memory.", Some(&Unit::Bytes), &bytes)?;
        }
        if let Some(count) = open_fds() {
            series(
                &mut encoder,
                "process_open_fds",
                "Open file descriptors.",
                None,
                &ConstGauge::new(count),
            )?;
        }
        if let Some(secs) = self.started_unix_secs {
            let help = "When the process started, in seconds since the Unix epoch.";
            series(&mut encoder, "process_start_time", help, Some(&Unit::Seconds), &ConstGauge::new(secs))?;
        }
        Ok(())
    }
}

fn series(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    unit: Option<&Unit>,
    metric: &impl EncodeMetric,
) -> Result<(), fmt::Error> {
    metric.encode(encoder.encode_descriptor(name, help, unit, metric.metric_type())?)
}

fn resident_pages() -> Option<u64> {
    fs::read_to_string("/proc/self/statm").ok()?.split_ascii_whitespace().nth(1)?.parse().ok()
}

fn open_fds() -> Option<u64> {
    // The directory handle that counts is counted too.
    let entries = fs::read_dir("/proc/self/fd").ok()?.count() as u64;
    Some(entries.saturating_sub(1))
}

fn started_unix_secs() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The name stands in parentheses and may itself contain blanks and parentheses.
    let (_, fields) = stat.rsplit_once(')')?;
    let ticks: u64 = fields.split_ascii_whitespace().nth(START_TICKS_AFTER_NAME)?.parse().ok()?;
    let kernel = fs::read_to_string("/proc/stat").ok()?;
    let boot: u64 = kernel.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    Some(boot as f64 + ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// `mercury_build_info`, always 1, with the service and the release as labels.
pub(super) fn register_build(registry: &mut Registry, service: &'static str) {
    let labels = [("service", service), ("release", env!("CARGO_PKG_VERSION"))];
    registry.register("build", "The build that runs", Info::new(labels));
}

/// How the tasks of a [`Supervisor`] ended, read when it is scraped.
#[derive(Debug)]
pub(super) struct TaskCollector(pub(super) Supervisor);

impl Collector for TaskCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let kinds = self.0.by_name();
        let help = "Supervised tasks that have not ended, by name.";
        let mut live = encoder.encode_descriptor("tasks_live", help, None, MetricType::Gauge)?;
        for (task, counts) in &kinds {
            ConstGauge::new(counts.live()).encode(live.encode_family(&[("task", *task)])?)?;
        }
        let help = "Supervised tasks started, by name.";
        let mut started = encoder.encode_descriptor("tasks_started", help, None, MetricType::Counter)?;
        for (task, counts) in &kinds {
            ConstCounter::new(counts.started).encode(started.encode_family(&[("task", *task)])?)?;
        }
        let help = "Supervised tasks by name and ending.";
        let mut ended = encoder.encode_descriptor("tasks_ended", help, None, MetricType::Counter)?;
        for (task, counts) in &kinds {
            for (ending, count) in [
                ("completed", counts.completed),
                ("cancelled", counts.cancelled),
                ("panicked", counts.panicked),
                ("aborted", counts.aborted),
            ] {
                let labels = [("task", *task), ("ending", ending)];
                ConstCounter::new(count).encode(ended.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

/// Where a process is in its life, read when it is scraped.
#[derive(Debug)]
pub(super) struct LifecycleCollector(pub(super) Lifecycle);

impl Collector for LifecycleCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let (now, spent) = (self.0.stage(), self.0.spent());
        let help = "1 for the stage that the process is in.";
        let mut stages = encoder.encode_descriptor("lifecycle_stage", help, None, MetricType::Gauge)?;
        for stage in Stage::ALL {
            let labels = [("stage", stage.as_str())];
            ConstGauge::new(u64::from(stage == now)).encode(stages.encode_family(&labels)?)?;
        }
        let help = "Time that the process has spent in each stage.";
        let unit = Some(&Unit::Seconds);
        let mut times = encoder.encode_descriptor("lifecycle_spent", help, unit, MetricType::Gauge)?;
        for stage in Stage::ALL {
            let labels = [("stage", stage.as_str())];
            ConstGauge::new(spent[stage.index()].as_secs_f64()).encode(times.encode_family(&labels)?)?;
        }
        let help = "Requests of the process that are not answered.";
        let open = ConstGauge::new(self.0.open_count() as u64);
        series(&mut encoder, "exchanges_open", help, None, &open)?;
        let help = "Requests without an answer and answers on their way, without long-lived calls and health checks.";
        let under_way = ConstGauge::new(self.0.under_way_count() as u64);
        series(&mut encoder, "requests_under_way", help, None, &under_way)?;
        let help = "Long-lived calls: health watches, reflection, feeds.";
        let long_lived = ConstGauge::new(self.0.long_lived_count() as u64);
        series(&mut encoder, "long_lived_calls_open", help, None, &long_lived)
    }
}

/// What is made to fail, read when it is scraped.
#[derive(Debug)]
pub(super) struct PointCollector(pub(super) Points);

impl Collector for PointCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        type Read = fn(&Points, Point) -> u64;
        let gauges: [(&str, &str, Read); 2] = [
            ("injection_armed", "1 for a point at which something is made to fail.", |points, point| {
                u64::from(points.is_armed(point))
            }),
            ("injection_holding", "Who is held at a point.", |points, point| points.holding(point) as u64),
        ];
        for (name, help, read) in gauges {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for point in Point::ALL {
                let labels = [("point", point.as_str())];
                ConstGauge::new(read(&self.0, point)).encode(family.encode_family(&labels)?)?;
            }
        }
        let help = "Times that a point acted.";
        let mut acted = encoder.encode_descriptor("injection_acted", help, None, MetricType::Counter)?;
        for point in Point::ALL {
            let labels = [("point", point.as_str())];
            ConstCounter::new(self.0.acted(point)).encode(acted.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_answers_for_this_process() {
        let registry = crate::metrics::Registry::new("profile");
        let text = registry.encode();
        let value = |name: &str| -> f64 {
            let line = text.lines().find(|line| line.starts_with(&format!("{name} ")));
            let line = line.unwrap_or_else(|| panic!("{name} is missing from\n{text}"));
            line.rsplit(' ').next().expect("a value").parse().expect("a number")
        };
        assert!(value("process_cpu_seconds_total") > 0.0);
        let resident = value("process_resident_memory_bytes");
        assert!((65_536.0..1e12).contains(&resident), "{resident}");
        assert!(value("process_open_fds") >= 1.0);
        let now = base::WallClock::unix_ms(&base::clock::SystemWallClock) as f64 / 1_000.0;
        let age = now - value("process_start_time_seconds");
        // The boot time is known to a second only.
        assert!((-2.0..86_400.0).contains(&age), "{age}");
        let release = env!("CARGO_PKG_VERSION");
        assert!(text.contains(&format!("mercury_build_info{{service=\"profile\",release=\"{release}\"}} 1")));
    }

    #[test]
    fn task_endings_are_series() {
        let registry = crate::metrics::Registry::new("profile");
        let supervisor = Supervisor::new();
        registry.watch_tasks(&supervisor);
        supervisor.abort_all();
        supervisor.start("late", async {});
        let text = registry.encode();
        assert!(text.contains("mercury_tasks_ended_total{task=\"late\",ending=\"aborted\"} 1\n"), "{text}");
        assert!(text.contains("mercury_tasks_ended_total{task=\"late\",ending=\"panicked\"} 0\n"), "{text}");
        assert!(text.contains("mercury_tasks_started_total{task=\"late\"} 1\n"), "{text}");
    }
}
