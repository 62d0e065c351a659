//! Arrivals: the schedule of a workload, one request after the other.
//!
//! Events form a Poisson process whose rate follows the waves. An event is either a single request or the first of a
//! group for the same subject, whose other members arrive within the window; they wait in a small heap, so that requests
//! come out in order of time. Where a piece of the schedule has a smaller rate than another, events are left out. Every draw is keyed by the number of its event, so the schedule is a pure function of
//! workload, seed and offer.

use std::{cmp::Reverse, collections::BinaryHeap};

use base::{Nanos, WorkloadClass, mix};

use super::{Coalescing, Departures, Offered, Workload};
use crate::{names, scale::Scale};

/// Group members that may wait at once; beyond it a group arrives all at once. At the region's full rate some 30 wait.
pub const PENDING_MAX: usize = 65_536;
/// Longest pause between two events, so that a vanishing rate does not end in an infinite one: a day.
const PAUSE_MAX_NS: f64 = 86_400e9;

/// One request of the schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Position in the schedule, from 0. Ends the logical operation id.
    pub number: u64,
    /// Intended start, since the start of the schedule.
    pub at: Nanos,
    /// Index of the tenant; see [`names::tenant`].
    pub tenant: u32,
    /// Index of the subject within its tenant; see [`names::subject`].
    pub subject: u32,
    /// Class of the tenant.
    pub class: WorkloadClass,
    /// Index of the subject's region in [`names::REGIONS`].
    pub region: u8,
    /// The group of requests for the same subject that this one belongs to.
    pub group: Option<u64>,
    /// How long the caller waits; `None` for as long as it takes.
    pub patience: Option<Nanos>,
}

impl Arrival {
    /// The name of the tenant.
    pub fn tenant_name(&self) -> String {
        names::tenant(self.tenant)
    }

    /// The name of the subject.
    pub fn subject_name(&self) -> String {
        names::subject(self.subject)
    }

    /// The name of the region.
    pub fn region_name(&self) -> &'static str {
        names::REGIONS[usize::from(self.region)]
    }
}

/// A part of a schedule with a rate of its own. The last one goes on without end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where it ends, since the start of the schedule.
    pub until: Nanos,
    /// Its rate, in percent of the one that is offered; 0 counts as 1, since a schedule without end has to go on.
    pub rate_percent: u32,
}

impl Piece {
    fn percent(&self) -> u32 {
        self.rate_percent.max(1)
    }
}

/// The rate that is offered, as the share of it that a piece has.
pub const PERCENT: u32 = 100;

/// What is drawn for an event.
#[derive(Clone, Copy)]
enum Purpose {
    Gap = 1,
    Kind,
    Size,
    Class,
    Tenant,
    Subject,
    Member,
    Keep,
}

/// A request that has been drawn and not yet come out. Ordered by time, then by event and member.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Pending {
    at: Nanos,
    event: u64,
    member: u32,
    who: Who,
    grouped: bool,
    patience: Option<Nanos>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Who {
    tenant: u32,
    subject: u32,
    class: WorkloadClass,
    region: u8,
}

/// Where cumulative shares are cut, as fractions of 2^64; what lies above the last cut belongs to the last one.
#[derive(Clone, Debug)]
struct Cuts {
    cuts: Vec<u64>,
    /// By the uppermost bits of a fraction: how many cuts lie below all that begin so.
    guide: Box<[u16]>,
}

impl Cuts {
    const GUIDE_BITS: u32 = 8;

    fn of(weights: impl Iterator<Item = f64> + Clone) -> Self {
        let total: f64 = weights.clone().sum();
        let mut below = 0.0;
        // A float-to-integer cast saturates.
        let cut = |weight: f64| {
            below += weight;
            (below / total * libm::ldexp(1.0, 64)) as u64
        };
        let cuts: Vec<u64> = weights.map(cut).collect();
        let least = |at: u64| at << (u64::BITS - Self::GUIDE_BITS);
        let guide = (0..1 << Self::GUIDE_BITS)
            .map(|at| cuts.partition_point(|cut| *cut <= least(at)) as u16)
            .collect();
        Self { cuts, guide }
    }

    #[inline]
    fn pick(&self, bits: u64) -> usize {
        let from = usize::from(self.guide[(bits >> (u64::BITS - Self::GUIDE_BITS)) as usize]);
        let above = self.cuts[from..].iter().position(|cut| *cut > bits);
        above.map_or(self.cuts.len() - 1, |above| from + above)
    }
}

/// The schedule. Without end.
#[derive(Clone)]
pub struct Arrivals {
    state: u64,
    /// The state folded with the number of the event, which keys every draw of it.
    event_state: u64,
    /// Events per nanosecond between waves and in one.
    rates: [f64; 2],
    /// Where in a period the wave begins, and where it ends.
    wave_start: u64,
    period: u64,
    group_share: f64,
    group_sizes: Cuts,
    classes: Cuts,
    tenants: [(u32, Cuts); 3],
    regions: Cuts,
    subjects: u32,
    coalescing: Coalescing,
    departures: Departures,
    /// When the event drawn last takes place, and its number.
    next: u64,
    event: u64,
    pending: BinaryHeap<Reverse<Pending>>,
    number: u64,
    /// Ends of the pieces, and which share of the events drawn in each takes place; none when all of them do.
    pieces: Vec<(Nanos, f64)>,
}

impl Arrivals {
    /// `weight` says how many times its share of a class's tenant, by rank from 0, is asked for here.
    pub(super) fn new(
        workload: &Workload,
        seed: u64,
        offered: Offered,
        pieces: &[Piece],
        weight: impl Fn(WorkloadClass, u32) -> f64,
    ) -> Self {
        // Drawn at the largest rate and thinned to that of each piece: what remains is a Poisson process of its rate, and
        // groups stay whole.
        let most = pieces.iter().map(Piece::percent).max().unwrap_or(PERCENT);
        let even = pieces.iter().all(|piece| piece.percent() == most);
        let kept = |piece: &Piece| (piece.until, f64::from(piece.percent()) / f64::from(most));
        let Coalescing { share, group_mean, group_max, .. } = workload.coalescing;
        let events_per_request = 1.0 - share + share / group_mean;
        let Offered { requests_per_s, key_scale } = offered;
        let zipf = |class: WorkloadClass, rank: u32| {
            libm::pow(f64::from(rank + 1), -workload.classes[class.index()].skew)
        };
        // A class's share here over its share of the whole.
        let placed = WorkloadClass::ALL.map(|class| {
            let ranks = 0..workload.classes[class.index()].tenants;
            let (here, whole) = ranks.fold((0.0, 0.0), |(here, whole), rank| {
                let zipf = zipf(class, rank);
                (here + zipf * weight(class, rank), whole + zipf)
            });
            here / whole
        });
        let class_shares =
            WorkloadClass::ALL.map(|class| workload.classes[class.index()].share * placed[class.index()]);
        // Exactly one where everybody has the weight of one, so that such a schedule does not move by a rounding.
        let here =
            class_shares.iter().sum::<f64>() / workload.classes.iter().map(|class| class.share).sum::<f64>();
        let requests_per_s = requests_per_s * f64::from(most) / f64::from(PERCENT) * here;
        let (period, duration) = (workload.waves.period.as_secs_f64(), workload.waves.duration.as_secs_f64());
        let wave = requests_per_s * workload.waves.requests_per_s / workload.region_requests_per_s;
        let calm = (requests_per_s * period - wave * duration) / (period - duration);
        let mut first = 0;
        let tenants = WorkloadClass::ALL.map(|class| {
            let (start, count) = (first, workload.classes[class.index()].tenants);
            first += count;
            let weights: Vec<f64> = (0..count).map(|rank| zipf(class, rank) * weight(class, rank)).collect();
            (start, Cuts::of(weights.iter().copied()))
        });
        let state = mix::fold64(mix::fold64(seed, 0x6172_7269_7661_6c73), u64::from(workload.version));
        let mut arrivals = Self {
            state,
            event_state: mix::fold64(state, 0),
            rates: [calm, wave].map(|rate| rate.max(0.0) * events_per_request / 1e9),
            wave_start: workload.waves.period.get() - workload.waves.duration.get(),
            period: workload.waves.period.get(),
            group_share: share / group_mean / events_per_request,
            group_sizes: group_sizes(group_mean, group_max),
            classes: Cuts::of(class_shares.iter().copied()),
            tenants,
            regions: Cuts::of(workload.regions.iter().copied()),
            subjects: subjects(key_scale),
            coalescing: workload.coalescing,
            departures: workload.departures,
            next: 0,
            event: 0,
            pending: BinaryHeap::new(),
            number: 0,
            pieces: if even { Vec::new() } else { pieces.iter().map(kept).collect() },
        };
        arrivals.advance();
        arrivals
    }

    /// Requests that have been drawn and not yet come out.
    pub fn waiting(&self) -> usize {
        self.pending.len()
    }

    #[inline]
    fn bits(&self, purpose: Purpose) -> u64 {
        mix::fold64(self.event_state, purpose as u64)
    }

    fn next_event(&mut self) {
        self.event += 1;
        self.event_state = mix::fold64(self.state, self.event);
    }

    /// Moves `next` on by one exponential gap of the Poisson process, through as many changes of rate as it spans.
    fn advance(&mut self) {
        let mut events = -libm::log(open_unit(self.bits(Purpose::Gap)));
        let (calm, wave) = (self.wave_start as f64, (self.period - self.wave_start) as f64);
        let in_period = self.rates[0] * calm + self.rates[1] * wave;
        if events >= in_period {
            // Whole periods at once: from any point, a period later is the same point.
            let periods_max = libm::floor(PAUSE_MAX_NS / self.period as f64);
            let periods =
                if in_period > 0.0 { libm::floor(events / in_period).min(periods_max) } else { periods_max };
            self.next += periods as u64 * self.period;
            events = (events - periods * in_period).clamp(0.0, in_period);
        }
        loop {
            let within = self.next % self.period;
            let (rate, end) = if within < self.wave_start {
                (self.rates[0], self.wave_start)
            } else {
                (self.rates[1], self.period)
            };
            let left = (end - within) as f64;
            if events < rate * left || in_period <= 0.0 {
                // Rounded, not cut, so that the rate is not biased. A rate of zero has nothing left to cover.
                let gap = if rate > 0.0 { (events / rate).min(left) } else { 0.0 };
                self.next += libm::round(gap) as u64;
                return;
            }
            events -= rate * left;
            self.next += end - within;
        }
    }

    /// Draws the event at `next`, puts its requests on the heap and moves on to the following event.
    ///
    /// Its first request comes at that very instant and so before everything that waits; it is handed out at once.
    fn expand(&mut self) -> Option<Pending> {
        if !self.takes_place() {
            self.next_event();
            self.advance();
            return None;
        }
        let grouped = unit(self.bits(Purpose::Kind)) < self.group_share;
        let size = if grouped { 2 + self.group_sizes.pick(self.bits(Purpose::Size)) as u32 } else { 1 };
        let class = self.classes.pick(self.bits(Purpose::Class));
        let (first, ranks) = &self.tenants[class];
        let tenant = first + ranks.pick(self.bits(Purpose::Tenant)) as u32;
        let subject = mix::below(self.bits(Purpose::Subject), u64::from(self.subjects)) as u32;
        // Of the subject, not of the event: a subject has one home.
        let home = mix::fold64(mix::fold64(self.state, u64::from(tenant)), u64::from(subject));
        let region = self.regions.pick(home) as u8;
        let who = Who { tenant, subject, class: WorkloadClass::ALL[class], region };
        let window = if self.pending.len() < PENDING_MAX { self.coalescing.window.get() } else { 0 };
        let members = self.bits(Purpose::Member);
        let pending = |member: u32| {
            let bits = mix::fold64(members, u64::from(member));
            let after = if member == 0 { 0 } else { mix::below(mix::fold64(bits, 1), window + 1) };
            let at = Nanos::new(self.next + after);
            Pending { at, event: self.event, member, who, grouped, patience: self.patience(bits) }
        };
        let first = pending(0);
        if size > 1 {
            let others: Vec<_> = (1..size).map(|member| Reverse(pending(member))).collect();
            self.pending.extend(others);
        }
        self.next_event();
        self.advance();
        Some(first)
    }

    fn takes_place(&self) -> bool {
        let at = self.pieces.partition_point(|(until, _)| until.get() <= self.next);
        let piece = self.pieces.get(at).or(self.pieces.last());
        piece.is_none_or(|(_, kept)| unit(self.bits(Purpose::Keep)) < *kept)
    }

    fn patience(&self, bits: u64) -> Option<Nanos> {
        let Departures { share, patience_min, patience_max } = self.departures;
        let span = patience_max.saturating_sub(patience_min).get() + 1;
        let drawn = || patience_min + Nanos::new(mix::below(mix::fold64(bits, 3), span));
        share.takes(mix::fold64(bits, 2)).then(drawn)
    }
}

impl Iterator for Arrivals {
    type Item = Arrival;

    fn next(&mut self) -> Option<Arrival> {
        // Whatever is due before the next event can be drawn no earlier any more.
        let first = loop {
            if self.pending.peek().is_some_and(|Reverse(first)| first.at.get() <= self.next) {
                let Reverse(first) = self.pending.pop()?;
                break first;
            }
            if let Some(first) = self.expand() {
                break first;
            }
        };
        let Who { tenant, subject, class, region } = first.who;
        let number = self.number;
        self.number += 1;
        let group = first.grouped.then_some(first.event);
        Some(Arrival {
            number,
            at: first.at,
            tenant,
            subject,
            class,
            region,
            group,
            patience: first.patience,
        })
    }
}

/// Subjects of a tenant at a scale.
fn subjects(scale: Scale) -> u32 {
    scale.of(names::SUBJECTS).max(1)
}

/// Uniform in [0, 1).
fn unit(bits: u64) -> f64 {
    (bits >> 11) as f64 * libm::ldexp(1.0, -53)
}

/// Uniform in (0, 1).
fn open_unit(bits: u64) -> f64 {
    ((bits >> 12) as f64 + 0.5) * libm::ldexp(1.0, -52)
}

/// Sizes of a group beyond two: geometric, cut at `max` and with its ratio solved so that the mean holds all the same.
fn group_sizes(mean: f64, max: u32) -> Cuts {
    let weights =
        |ratio: f64| (0..=max.saturating_sub(2)).map(move |extra| libm::pow(ratio, f64::from(extra)));
    let mean_at = |ratio: f64| {
        let weighted: f64 = weights(ratio).enumerate().map(|(extra, weight)| extra as f64 * weight).sum();
        2.0 + weighted / weights(ratio).sum::<f64>()
    };
    // The mean rises with the ratio, from 2 at 0 to the middle at 1; 60 halvings exhaust a float's precision.
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if mean_at(middle) < mean {
            low = middle;
        } else {
            high = middle;
        }
    }
    Cuts::of(weights(high))
}
