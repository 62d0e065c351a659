//! Bounds: every count, size and time that a process is held to, from the policy in force: who holds to it, what happens
//! beyond, and the series in which both are seen. docs/bounds.md is this table, and every limit is a series of its own.

mod table;

use std::fmt::Write as _;

use model::policy::{Policy, ServiceName};
use serve::{Limits, exchange, metrics::Registry};

pub use table::BOUNDS;

/// Which processes hold to a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// All of them.
    Every,
    /// The processes of one service.
    Only(ServiceName),
    /// Those that were told where a collector is.
    Exporting,
}

impl Of {
    /// Whether a process of `service` does, whatever its environment.
    pub fn holds(self, service: ServiceName) -> bool {
        match self {
            Self::Every => true,
            Self::Only(only) => only == service,
            Self::Exporting => false,
        }
    }
}

/// What a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Things.
    Count,
    /// Bytes.
    Bytes,
    /// Milliseconds.
    Millis,
}

/// One bound.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    /// Its name, the label of its series. It ends like a key of the policy.
    pub name: &'static str,
    /// Where it is set: a key of the policy, an environment variable, or `constant` for one of the program's own.
    pub set_by: &'static str,
    /// What the limit counts.
    pub unit: Unit,
    /// Who holds to it.
    pub of: Of,
    /// The limit under a policy.
    pub limit: fn(&Policy) -> u64,
    /// What is bounded.
    pub what: &'static str,
    /// What happens beyond.
    pub beyond: &'static str,
    /// The series that shows how much of it is used, as `name` or `name{label="value"}`. Empty for a time, for what a library
    /// holds without telling, and for what is over before it is seen.
    pub used: &'static str,
    /// The series that counts what went beyond. Empty where a library does not tell.
    pub told: &'static str,
}

/// Tells the limits of a policy in force, for a process of `service`. To be called again when another one is.
pub fn publish(registry: &Registry, policy: &Policy, service: ServiceName) {
    for bound in BOUNDS.iter().filter(|bound| bound.of.holds(service)) {
        registry.bound(bound.name, (bound.limit)(policy));
    }
}

/// Tells the limits of a port that no policy governs, under the names of the table: those of the emulator's.
pub fn publish_port(registry: &Registry, limits: &Limits) {
    let counts = [
        ("connections_max", limits.connections_max),
        ("requests_max", limits.requests_max),
        ("streams_max", limits.streams_max),
        ("pending_reset_streams_max", limits.pending_reset_streams_max),
        ("local_reset_streams_max", limits.local_reset_streams_max),
        ("header_bytes_max", limits.header_bytes_max),
        ("body_bytes_max", limits.body_bytes_max),
        ("stream_window_bytes", limits.stream_window_bytes),
        ("connection_window_bytes", limits.connection_window_bytes),
        ("long_lived_max", exchange::LONG_LIVED_MAX),
    ];
    for (name, limit) in counts {
        registry.bound(name, limit.into());
    }
    let spans = [
        ("first_byte_timeout_ms", limits.first_byte_timeout),
        ("keep_alive_interval_ms", limits.keep_alive_interval),
        ("keep_alive_timeout_ms", limits.keep_alive_timeout),
        ("write_stall_timeout_ms", limits.write_stall_timeout),
    ];
    for (name, span) in spans {
        registry.bound(name, span.as_millis());
    }
}

/// The table as Markdown, for docs/bounds.md.
pub fn markdown(policy: &Policy) -> String {
    let mut text =
        String::from("| Bound | Limit | Set by | Of | What is bounded | Beyond | Used | Counted beyond |\n");
    text.push_str("|---|---|---|---|---|---|---|---|\n");
    let series = |name: &str| if name.is_empty() { "–".to_owned() } else { format!("`{name}`") };
    for bound in BOUNDS {
        let unit = match bound.unit {
            Unit::Count => "",
            Unit::Bytes => " B",
            Unit::Millis => " ms",
        };
        let of = match bound.of {
            Of::Every => "every process",
            Of::Only(service) => service.as_str(),
            Of::Exporting => "with a collector",
        };
        let limit = (bound.limit)(policy);
        let set_by = if bound.set_by == "constant" { "the program".to_owned() } else { series(bound.set_by) };
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "| `{}` | {limit}{unit} | {set_by} | {of} | {} | {} | {} | {} |",
            bound.name,
            bound.what,
            bound.beyond,
            series(bound.used),
            series(bound.told),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_bound_is_named_once_and_as_it_is_counted() {
        let names: BTreeSet<_> = BOUNDS.iter().map(|bound| bound.name).collect();
        assert_eq!(names.len(), BOUNDS.len());
        for Bound { name, unit, what, beyond, .. } in BOUNDS {
            let expected = match unit {
                Unit::Count => "_max",
                Unit::Bytes => "_bytes",
                Unit::Millis => "_ms",
            };
            let fits = name.ends_with(expected) || *unit == Unit::Bytes && name.ends_with("_bytes_max");
            assert!(fits, "{name} counts {unit:?}");
            assert!(!what.is_empty() && !beyond.is_empty(), "{name}");
        }
    }

    #[test]
    fn a_port_without_a_policy_tells_its_limits_by_the_names_of_the_table() {
        let registry = Registry::new("emulator");
        publish_port(&registry, &Limits { connections_max: 7, ..Limits::default() });
        let text = registry.encode();
        assert!(text.contains("mercury_bound_limit{bound=\"connections_max\"} 7\n"), "{text}");
        let told = text.lines().filter_map(|line| line.strip_prefix("mercury_bound_limit{bound=\""));
        for name in told.filter_map(|rest| rest.split('"').next()) {
            assert!(BOUNDS.iter().any(|bound| bound.name == name), "{name}");
        }
    }

    #[test]
    fn a_policy_that_changes_is_told_and_only_what_a_service_holds_to() {
        let registry = Registry::new("experiment");
        let shipped = Policy::shipped();
        let mut other = shipped.clone();
        other.limits.connections_max = 7;
        publish(&registry, &shipped, ServiceName::Experiment);
        publish(&registry, &other, ServiceName::Experiment);
        let text = registry.encode();
        assert!(text.contains("mercury_bound_limit{bound=\"connections_max\"} 7\n"), "{text}");
        assert!(text.contains("bound=\"exposure_queue_max\""), "{text}");
        assert!(!text.contains("bound=\"endpoint_slots_max\""), "{text}");
    }
}
