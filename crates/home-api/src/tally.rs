//! Tally: what an era saw, as counts by class and region, for who decides about the next phase and for the metrics of the
//! process. Regions are told apart up to a number, since callers name them.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
};

use base::{Region, WorkloadClass};
use rollout::report::{Count, Counts};
use summary::Comparison;

use crate::authority::NoAuthority;

/// Most regions that are told apart.
const REGIONS_MAX: usize = 16;
/// What the others are called.
const OTHER: &str = "other";

/// Where a page's claims came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Source {
    /// From the summary.
    Summary,
    /// From the call, which was the authority.
    Call,
    /// From the call, since the summary was none.
    Fallback(NoAuthority),
    /// From nowhere: the summary was no authority and the call is gone.
    Closed(NoAuthority),
}

impl Source {
    /// All that there can be.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let rejected = summary::Rejection::ALL.into_iter().map(NoAuthority::Rejected);
        let why = [NoAuthority::Missing, NoAuthority::StaleRevocations].into_iter().chain(rejected);
        let either = why.flat_map(|why| [Self::Fallback(why), Self::Closed(why)]);
        [Self::Summary, Self::Call].into_iter().chain(either)
    }

    /// Its name and its reason.
    pub(crate) const fn labels(self) -> (&'static str, &'static str) {
        match self {
            Self::Summary => ("summary", ""),
            Self::Call => ("call", ""),
            Self::Fallback(why) => ("fallback", why.as_str()),
            Self::Closed(why) => ("closed", why.as_str()),
        }
    }
}

/// How a page ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum PageEnd {
    Answered,
    Refused,
    Left,
}

impl PageEnd {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Refused => "refused",
            Self::Left => "left",
        }
    }
}

/// Position of a region in the table; its length stands for all others.
type Place = u8;

#[derive(Debug, Default)]
struct Counted {
    regions: Vec<Region>,
    pages: BTreeMap<PageEnd, u64>,
    comparisons: HashMap<(Comparison, WorkloadClass, Place), u64>,
    sources: HashMap<(Source, WorkloadClass, Place), u64>,
}

impl Counted {
    fn place(&mut self, region: &Region) -> Place {
        let at = self.regions.iter().position(|known| known == region).unwrap_or_else(|| {
            if self.regions.len() < REGIONS_MAX {
                self.regions.push(region.clone());
                self.regions.len() - 1
            } else {
                REGIONS_MAX
            }
        });
        at as Place // At most REGIONS_MAX.
    }

    fn region(&self, place: Place) -> String {
        self.regions
            .get(usize::from(place))
            .map_or_else(|| OTHER.to_owned(), |region| region.as_str().to_owned())
    }
}

/// The counts of an era. Never held across an await.
#[derive(Debug, Default)]
pub(crate) struct Tally(Mutex<Counted>);

impl Tally {
    fn lock(&self) -> MutexGuard<'_, Counted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A page has ended.
    pub(crate) fn page(&self, end: PageEnd) {
        *self.lock().pages.entry(end).or_default() += 1;
    }

    /// Claims were got, or not.
    pub(crate) fn source(&self, source: Source, class: WorkloadClass, region: &Region) {
        let mut counted = self.lock();
        let place = counted.place(region);
        *counted.sources.entry((source, class, place)).or_default() += 1;
    }

    /// A summary was held beside the call, or was to be.
    pub(crate) fn comparison(&self, comparison: Comparison, class: WorkloadClass, region: &Region) {
        let mut counted = self.lock();
        let place = counted.place(region);
        *counted.comparisons.entry((comparison, class, place)).or_default() += 1;
    }

    /// All of it, in a stable order.
    pub(crate) fn counts(&self) -> Counts {
        let counted = self.lock();
        let count = |kind: String, class: WorkloadClass, place: Place, count: u64| Count {
            kind,
            class: class.as_str().to_owned(),
            region: counted.region(place),
            count,
        };
        let mut comparisons: Vec<Count> = counted
            .comparisons
            .iter()
            .map(|(&(comparison, class, place), &times)| {
                count(comparison.as_str().to_owned(), class, place, times)
            })
            .collect();
        let mut authority: Vec<Count> = counted
            .sources
            .iter()
            .map(|(&(source, class, place), &times)| {
                let (name, reason) = source.labels();
                let kind = if reason.is_empty() { name.to_owned() } else { format!("{name}:{reason}") };
                count(kind, class, place, times)
            })
            .collect();
        let order = |one: &Count, other: &Count| {
            (&one.kind, &one.class, &one.region).cmp(&(&other.kind, &other.class, &other.region))
        };
        comparisons.sort_by(order);
        authority.sort_by(order);
        let pages = counted.pages.iter().map(|(end, count)| (end.as_str().to_owned(), *count)).collect();
        Counts { pages, comparisons, authority, emitted: BTreeMap::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_beyond_the_table_are_one_and_nothing_is_lost() {
        let tally = Tally::default();
        for number in 0..40 {
            let region = Region::parse(&format!("region-{number:02}")).expect("well formed");
            tally.comparison(Comparison::Match, WorkloadClass::Premium, &region);
            tally.source(Source::Fallback(NoAuthority::Missing), WorkloadClass::Premium, &region);
        }
        tally.page(PageEnd::Answered);
        let counts = tally.counts();
        assert_eq!(counts.comparisons.len(), REGIONS_MAX + 1);
        assert_eq!(counts.comparisons_of("match"), 40);
        assert_eq!(counts.authority_of("fallback:missing"), 40);
        let other = counts.comparisons.iter().find(|count| count.region == OTHER).expect("beyond the table");
        assert_eq!(other.count, 24);
        assert_eq!(counts.pages.get("answered"), Some(&1));
    }
}
