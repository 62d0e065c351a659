//! Region: what lies under a whole region's admission domains: its hosts, and which domain serves whom.

mod file;

use base::WorkloadClass;

pub use self::file::{MINUTES_MAX, RUNS_MAX, Reference, ReferenceFigure, Region, SHIPPED, StateName};

/// The hosts of a region. They bring CPU; slots belong to the admission domains, so more hosts bring none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hosts {
    /// Hosts.
    pub workers: u32,
    /// Processors of one host.
    pub vcpus_per_worker: u32,
    /// CPU time that a page takes of home-api, in microseconds; zero where hosts have as much as they need.
    pub cpu_us_per_page: u64,
    /// Into how many even bursts it falls. They are worked on beside the page's calls, at once as far as there are processors,
    /// and the page is ready when the last of both is.
    pub bursts_per_page: u32,
}

impl Hosts {
    /// As much as is needed.
    pub const UNBOUNDED: Self =
        Self { workers: 0, vcpus_per_worker: 0, cpu_us_per_page: 0, bursts_per_page: 1 };

    /// Processors of all hosts; `None` where there are as many as are needed.
    pub const fn processors(&self) -> Option<u32> {
        if self.cpu_us_per_page == 0 {
            None
        } else {
            Some(self.workers.saturating_mul(self.vcpus_per_worker))
        }
    }
}

/// Which domain serves whom: subjects are spread evenly, but for a share of the busiest tenants of one class, who stay where
/// they are: on the first domain.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Placement {
    /// The class of the tenants that stay.
    pub class: WorkloadClass,
    /// How many of its busiest tenants.
    pub hot_tenants: u32,
    /// The share of their requests that the first domain serves beyond its even share, from 0 to 1.
    pub concentration: f64,
}

impl Placement {
    /// Everybody is spread evenly.
    pub const EVEN: Self = Self { class: WorkloadClass::Enterprise, hot_tenants: 0, concentration: 0.0 };

    /// How many times its even share of a tenant's requests a domain serves. `rank` counts the tenants of a class from 0, the
    /// busiest first.
    pub fn share(&self, domain: u32, domains: u32, class: WorkloadClass, rank: u32) -> f64 {
        if class != self.class || rank >= self.hot_tenants {
            return 1.0;
        }
        let pinned = if domain == 0 { f64::from(domains) } else { 0.0 };
        (1.0 - self.concentration) + self.concentration * pinned
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// However tenants are placed, all of their requests are served somewhere.
        #[test]
        fn nobody_is_lost(
            domains in 1_u32..9, rank in 0_u32..20, hot_tenants in 0_u32..20, concentration in 0.0_f64..=1.0,
        ) {
            let placement = Placement { class: WorkloadClass::Premium, hot_tenants, concentration };
            for class in WorkloadClass::ALL {
                let shares: f64 = (0..domains).map(|domain| placement.share(domain, domains, class, rank)).sum();
                prop_assert!((shares - f64::from(domains)).abs() < 1e-9, "{}", shares);
            }
        }
    }
}
