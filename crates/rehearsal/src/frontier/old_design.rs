//! Old design: one change at a time against its 99th percentile at peak, each with a reason that its figures give. A change
//! that does not move it says something only beside one that does: the control, which reaches the queue that work waits in.

use base::Dependency;
use load::table::{ms, percent};
use model::policy::Boundary;
use simulation::{ClaimsPhase, System};

use super::OldCase;
use crate::{
    gates::Gate,
    report::ratio,
    slo::RehearsalError,
    sweep::{At, Base, Figures, Ground, Measured},
};

/// How far a change may move the 99th percentile and still be called one that does not, over what it was.
const MOVED: f64 = 0.10;
/// Connections of the enlarged pool, and slots of the endpoint where it follows.
const LARGER: u32 = 800;

/// A change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Case {
    /// None.
    Base,
    /// More connections of the profile client.
    Pool,
    /// The same, and as many slots of the endpoint.
    Both,
    /// More hosts.
    Hosts,
    /// Hot tenants are spread like everybody else.
    Placement,
    /// Everything on the way a quarter larger: slots of both pools and servers of every dependency.
    OwnerQuarter,
    /// The same by a half.
    OwnerHalf,
    /// As many slots as the shell holds requests: nobody ever waits for one.
    Unbounded,
}

impl Case {
    pub(super) const ALL: [Self; 8] = [
        Self::Base,
        Self::Pool,
        Self::Both,
        Self::Hosts,
        Self::Placement,
        Self::OwnerQuarter,
        Self::OwnerHalf,
        Self::Unbounded,
    ];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Base => "base",
            Self::Pool => "pool-800",
            Self::Both => "endpoint-and-pool-800",
            Self::Hosts => "hosts-25",
            Self::Placement => "placement-even",
            Self::OwnerQuarter => "owner-and-downstream-25",
            Self::OwnerHalf => "owner-and-downstream-50",
            Self::Unbounded => "slots-unbounded",
        }
    }

    const fn what(self) -> &'static str {
        match self {
            Self::Base => "the old design as it is",
            Self::Pool => "800 connections of the profile client",
            Self::Both => "800 slots of the endpoint and 800 connections",
            Self::Hosts => "a quarter more hosts",
            Self::Placement => "hot tenants spread evenly",
            Self::OwnerQuarter => "slots, connections and every dependency's servers a quarter more",
            Self::OwnerHalf => "slots, connections and every dependency's servers half as much again",
            Self::Unbounded => "nobody waits for a slot or a connection: the floor",
        }
    }

    /// The region with it.
    pub(super) fn system(self, base: &Base) -> Result<System, RehearsalError> {
        let policy = &base.before.policy;
        let slots = |endpoint: Option<u32>, profile: Option<u32>| {
            let text = |name, slots: Option<u32>| {
                slots.map_or_else(String::new, |slots| format!("[admission.{name}]\nslots = {slots}\n"))
            };
            let changes = text("endpoint", endpoint) + &text("profile", profile);
            Ok(base.system(base.before.with(&changes)?, ClaimsPhase::Call))
        };
        let larger = |percent: u32| {
            let of = |boundary| Some(part(policy.admission(boundary).slots, percent));
            let system = slots(of(Boundary::Endpoint), of(Boundary::Profile))?;
            Ok(base.with_capacity_percent(system, |_| percent))
        };
        match self {
            Self::Base => Ok(base.old()),
            Self::Pool => slots(None, Some(LARGER)),
            Self::Both => slots(Some(LARGER), Some(LARGER)),
            Self::Hosts => Ok(more_hosts(base.old())),
            Self::Placement => {
                let mut system = base.old();
                system.placement.concentration = 0.0;
                Ok(system)
            }
            Self::OwnerQuarter => larger(125),
            Self::OwnerHalf => larger(150),
            Self::Unbounded => {
                let waiting = policy.admission(Boundary::Endpoint).queue_max();
                let room = u64::from(policy.limits.requests_max).saturating_sub(waiting);
                let room = u32::try_from(room).ok();
                slots(room, room)
            }
        }
    }

    /// Why it moved what it moved, from its figures and those before it.
    fn reason(self, before: &Figures, after: &Figures, floor_ms: Option<f64>, ground: &Ground) -> String {
        let moved =
            |of: &dyn Fn(&Figures) -> Option<f64>| format!("{} → {} ms", ms(of(before)), ms(of(after)));
        let slot = moved(&|figures| figures.wait_ms.endpoint_p99);
        let connection = moved(&|figures| figures.wait_ms.connection_p99);
        let store = moved(&|figures| figures.wait_ms.store_mean);
        match self {
            Self::Base => format!(
                "{} of the slots and {} of the connections are busy; a page waits {} ms for a slot and {} ms for a connection at p99, \
                 CPU is {} busy",
                percent(before.occupancy_ratio.endpoint),
                percent(before.occupancy_ratio.profile),
                ms(before.wait_ms.endpoint_p99),
                ms(before.wait_ms.connection_p99),
                percent(before.cpu_ratio),
            ),
            Self::Pool => format!(
                "the wait for a connection goes {connection} at p99, that for a slot of the endpoint, which is in front of it, {slot}; a \
                 read waits {store} at the store, which is {} busy before and {} after",
                percent(Some(before.store_ratio)),
                percent(Some(after.store_ratio)),
            ),
            Self::Hosts if after.cpu_ratio.is_none() => {
                "hosts are not modelled at this scale: they have as much as they need".to_owned()
            }
            Self::Hosts => format!(
                "CPU goes from {} busy to {}; slots belong to the admission domains, so that the wait for one goes {slot}",
                percent(before.cpu_ratio),
                percent(after.cpu_ratio),
            ),
            Self::Placement if ground.placement.concentration <= 0.0 => {
                "nothing to move: the placement is even already".to_owned()
            }
            Self::Placement => format!(
                "the share of the hot tenants that one domain alone served goes to all of them; the wait for a slot goes {slot} at p99"
            ),
            Self::Both | Self::OwnerQuarter | Self::OwnerHalf => format!(
                "the wait for a slot goes {slot} and that for a connection {connection} at p99, at the store {store}; {} ms is the floor",
                ms(floor_ms),
            ),
            Self::Unbounded => format!(
                "without any wait for a slot ({slot}) this is left: the pages that wait for a slow optional section until its own timeout, \
                 and what they need besides"
            ),
        }
    }
}

fn part(count: u32, percent: u32) -> u32 {
    u32::try_from(u64::from(count) * u64::from(percent) / 100).unwrap_or(u32::MAX)
}

/// A quarter more hosts, at least one.
pub(crate) fn more_hosts(mut system: System) -> System {
    let workers = system.hosts.workers;
    system.hosts.workers = part(workers, 125).max(workers.saturating_add(u32::from(workers > 0)));
    system
}

/// The states that the old design is tried in. At peak its 99th percentile has a floor that no capacity moves, not far below it; in
/// the slowdown nothing but waiting makes it.
pub(super) const STATES: &[At] = &[At::Peak, At::Slowdown];

/// All cases, and the gates over them. `measured` is in the order of [`Case::ALL`].
pub(super) fn judge(measured: &[Measured], ground: &Ground) -> (Vec<OldCase>, Vec<Gate>) {
    let figures = |case: Case, state| measured.get(case as usize).and_then(|measured| measured.at(state));
    let p99 = |case: Case, state| figures(case, state).and_then(|figures| figures.latency_ms.p99);
    let moved = |case: Case, state| {
        let before = p99(Case::Base, state)?;
        ratio(p99(case, state)? - before, before)
    };
    let floor = p99(Case::Unbounded, At::Peak);
    let cases = Case::ALL.map(|case| OldCase {
        name: case.as_str(),
        what: case.what(),
        p99_ms: p99(case, At::Peak),
        moved_ratio: moved(case, At::Peak),
        slowdown_p99_ms: p99(case, At::Slowdown),
        slowdown_moved_ratio: moved(case, At::Slowdown),
        reason: figures(Case::Base, At::Peak)
            .zip(figures(case, At::Peak))
            .map_or_else(String::new, |(before, after)| case.reason(before, after, floor, ground)),
        figures: figures(case, At::Peak).cloned(),
    });
    // The further of the two; what is not known in one of them may be as far as it likes.
    let distance = |case| Some(moved(case, At::Peak)?.abs().max(moved(case, At::Slowdown)?.abs()));
    // What is not known is no control.
    let shorter = |case, state| moved(case, state).map(|moved| -moved);
    let placed = (ground.placement.concentration > 0.0).then_some(Case::Placement);
    let controls = [Some(Case::OwnerHalf), placed].into_iter().flatten();
    let best = controls
        .flat_map(|case| STATES.iter().map(move |state| (case, *state)))
        .filter_map(|(case, state)| Some((shorter(case, state)?, case, state)))
        .max_by(|one, other| one.0.total_cmp(&other.0));
    let gates = vec![
        Gate::at_most("old_pool_800_moves_p99", "ratio", distance(Case::Pool), MOVED)
            .saying("at peak and in the slowdown: a larger pool behind the queue moves nothing"),
        Gate::at_most("old_hosts_move_p99", "ratio", distance(Case::Hosts), MOVED)
            .saying("at peak and in the slowdown: hosts bring CPU, not slots"),
        // A control that moves nothing says that the others were not tested either.
        Gate::at_least("old_control_moves_p99", "ratio", best.map(|(by, ..)| by), MOVED).doubt().saying(format!(
            "the control that moves most is {}; at peak it is {} for {}, where the floor of {} ms leaves {} to move",
            best.map_or_else(|| "none".to_owned(), |(_, case, state)| format!("{} ({})", case.as_str(), state.as_str())),
            percent(shorter(Case::OwnerHalf, At::Peak)),
            Case::OwnerHalf.as_str(),
            ms(floor),
            percent(shorter(Case::Unbounded, At::Peak)),
        )),
    ];
    (cases.into(), gates)
}

/// The share of pages that a slow optional section makes wait, and until when: what the floor is made of.
pub(super) fn floor_note(base: &Base) -> String {
    let policy = &base.before.policy;
    let waits = [Dependency::Recommendation, Dependency::Reputation].map(|name| {
        let phase = &base.scenario.phases()[0];
        let slow = phase.dependency(name).latency.slow_share().as_ratio();
        (slow, name, policy.branch(name).independent_timeout)
    });
    let [one, other] = waits;
    let (slow, name, timeout) = if one.0 >= other.0 { one } else { other };
    format!(
        "{} of the pages wait for a slow {name} until its timeout of {} ms; while that stays, the 99th percentile cannot fall below that \
         and what a page needs besides, whatever is enlarged.",
        percent(Some(slow)),
        timeout.as_millis(),
    )
}

#[cfg(test)]
mod tests {
    use model::region::{Hosts, Placement};

    use super::*;
    use crate::{report::Quantiles, verdict::Verdict};

    fn measured(peak: Option<f64>, slowdown: Option<f64>) -> Measured {
        let of = |state, p99| {
            let latency_ms = Quantiles { p99, ..Quantiles::default() };
            Figures { state, latency_ms, ..Figures::default() }
        };
        Measured::from(vec![of("peak", peak), of("slowdown", slowdown)])
    }

    fn ground(concentration: f64) -> Ground {
        let placement = Placement { concentration, hot_tenants: 1, ..Placement::EVEN };
        Ground { hosts: Hosts::UNBOUNDED, placement, scale: None }
    }

    /// Verdicts of pool, hosts and control, when the cases have these percentiles at peak and in the slowdown.
    fn verdicts_in(peak: [f64; 8], slowdown: [f64; 8], concentration: f64) -> Vec<Verdict> {
        let all: Vec<Measured> =
            peak.into_iter().zip(slowdown).map(|(peak, slow)| measured(Some(peak), Some(slow))).collect();
        judge(&all, &ground(concentration)).1.iter().map(|gate| gate.verdict).collect()
    }

    /// The same, with a slowdown that nothing moves.
    fn verdicts(peak: [f64; 8], concentration: f64) -> Vec<Verdict> {
        verdicts_in(peak, [2_000.0; 8], concentration)
    }

    #[test]
    fn cases_stand_in_their_own_places() {
        for (at, case) in Case::ALL.into_iter().enumerate() {
            assert_eq!(case as usize, at);
        }
    }

    #[test]
    fn nothing_is_shown_without_a_control_that_moves() {
        use Verdict::{Fail, Inconclusive, Pass};
        let moving = [500.0, 498.0, 420.0, 499.0, 500.0, 430.0, 420.0, 420.0];
        assert_eq!(verdicts(moving, 0.0), [Pass, Pass, Pass]);
        let idle = [500.0, 498.0, 470.0, 499.0, 500.0, 470.0, 470.0, 470.0];
        assert_eq!(verdicts(idle, 0.0), [Pass, Pass, Inconclusive]);
        let mut placed = idle;
        placed[Case::Placement as usize] = 440.0;
        assert_eq!(verdicts(placed, 0.5), [Pass, Pass, Pass], "placement is the control");
        assert_eq!(verdicts(placed, 0.0), [Pass, Pass, Inconclusive], "it was not changed");
        let mut worse = moving;
        worse[Case::Hosts as usize] = 440.0;
        worse[Case::Pool as usize] = 560.0;
        assert_eq!(verdicts(worse, 0.0), [Fail, Fail, Pass], "either way is moving");
        let mut relieved = [2_000.0; 8];
        relieved[Case::OwnerHalf as usize] = 480.0;
        assert_eq!(verdicts_in(idle, relieved, 0.0), [Pass, Pass, Pass], "the slowdown shows it");
        relieved[Case::Pool as usize] = 1_500.0;
        assert_eq!(verdicts_in(idle, relieved, 0.0), [Fail, Pass, Pass], "and whatever else moves there");
        let unknown = vec![measured(None, None); 8];
        let gates = judge(&unknown, &ground(0.0)).1;
        assert!(gates.iter().all(|gate| gate.verdict == Inconclusive));
    }

    #[test]
    fn every_case_is_a_region_that_differs_where_it_says() {
        let hosts = Hosts { workers: 24, vcpus_per_worker: 8, cpu_us_per_page: 4_700, bursts_per_page: 8 };
        let ground = Ground { hosts, ..ground(0.5) };
        let base = Base::read(&crate::sweep::Files::default(), ground).expect("shipped files");
        let of = |case: Case| case.system(&base).expect("a region");
        let slots = |system: &System| Boundary::ALL.map(|boundary| system.policy.admission(boundary).slots);
        assert_eq!(slots(&of(Case::Base)), [640, 420]);
        assert_eq!(slots(&of(Case::Pool)), [640, 800]);
        assert_eq!(slots(&of(Case::Both)), [800, 800]);
        assert_eq!(slots(&of(Case::OwnerHalf)), [960, 630]);
        assert_eq!(slots(&of(Case::Unbounded)), [8_092, 8_092]);
        assert_eq!((of(Case::Hosts).hosts.workers, of(Case::Base).hosts.workers), (30, 24));
        assert_eq!(of(Case::Placement).placement.concentration, 0.0);
        let servers =
            |system: System| system.scenario.phases()[1].dependency(Dependency::Profile).capacity.servers;
        assert_eq!((servers(of(Case::Base)), servers(of(Case::OwnerQuarter))), (480, 600));
        assert!(floor_note(&base).contains("recommendation until its timeout of 400 ms"));
    }
}
