//! Data set: tenants, subjects, catalogue, prices, stock, policies and experiments, each a pure function of the seed. There
//! is no table in memory: a row is computed when it is asked for, and is the same in every process.

mod claims;

use base::mix;
use model::{draw::Share, names};
use wire::emulator::v1::{
    ClaimDiscount, ExperimentDefinition, FetchExperimentsResponse, FetchPolicyResponse, FetchPricesResponse,
    FetchProfileResponse, FetchReviewsResponse, FetchScoresResponse, FetchStockResponse, PriceEntry,
    Reservation, ScoredItem, StockRecord, WeightedVariant,
};

pub(crate) use claims::{FOREIGN, vocabulary};

/// Most items that one call may name; as many as the services let through.
const ITEMS_MAX: usize = 64;
/// Candidates that the model server offers.
const CANDIDATES: u32 = 24;

const GIVEN_NAMES: [&str; 12] =
    ["Ada", "Bruno", "Chiara", "Daan", "Elif", "Farid", "Greta", "Hugo", "Ines", "Jonas", "Keiko", "Liv"];
const FAMILY_NAMES: [&str; 12] = [
    "Adler", "Berg", "Costa", "Dubois", "Eriksen", "Fischer", "Garcia", "Haddad", "Ito", "Jansen", "Kaya",
    "Lund",
];
/// Language tag and currency of a market.
const MARKETS: [(&str, &str); 8] = [
    ("de-DE", "EUR"),
    ("fr-FR", "EUR"),
    ("es-ES", "EUR"),
    ("en-GB", "GBP"),
    ("en-US", "USD"),
    ("es-US", "USD"),
    ("ja-JP", "JPY"),
    ("ar-KW", "KWD"),
];
/// What 10,000 euro cents are in minor units: cents, cents, pence, yen (no decimals), fils (three decimals).
const RATES: [(&str, u64); 5] =
    [("EUR", 10_000), ("USD", 10_800), ("GBP", 8_600), ("JPY", 16_000), ("KWD", 33_000)];

/// What a draw of the data set decides. Keeps the draws of different columns apart.
#[derive(Clone, Copy)]
enum Column {
    GivenName = 1,
    FamilyName,
    Market,
    Segment,
    Plan,
    HomeItems,
    PolicyVersion,
    RevocationEpoch,
    Grant,
    Denial,
    ListPrice,
    PriceBook,
    Discount,
    OnHand,
    Reservations,
    Candidates,
    Score,
    Reviews,
    ReviewShape,
    PolicyCopy,
}

/// The data set of one seed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DataSet {
    root: u64,
}

/// Uniform bits that are spent piece by piece: each draw below a bound takes its own fold.
#[derive(Clone, Copy)]
struct Bits(u64);

impl Bits {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = mix::mix64(self.0);
        mix::below(self.0, bound)
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }

    /// True in so many of a hundred cases.
    fn percent(&mut self, share: u64) -> bool {
        self.below(100) < share
    }
}

/// Distinct items: an arithmetic progression modulo the size of the catalogue, whose step shares no factor with it.
fn progression(bits: &mut Bits, count: u32) -> impl Iterator<Item = u32> {
    /// Coprime to 2,000 = 2^4 · 5^3.
    const STEPS: [u32; 8] = [7, 37, 101, 333, 719, 1_013, 1_427, 1_999];
    let first = bits.below(u64::from(names::ITEMS)) as u32;
    let step = *bits.pick(&STEPS);
    (0..count).map(move |at| (first + at * step) % names::ITEMS)
}

impl DataSet {
    /// The data set of a seed.
    pub(crate) const fn new(seed: u64) -> Self {
        Self { root: mix::fold64(seed, 0x6461_7461_2073_6574) }
    }

    fn bits(&self, column: Column, row: [u64; 2]) -> Bits {
        let state = mix::fold64(self.root, column as u64);
        Bits(mix::fold64(mix::fold64(state, row[0]), row[1]))
    }

    /// The stored row of a subject; `None` when the data set has no such tenant or subject.
    pub(crate) fn profile(&self, tenant: &str, subject: &str) -> Option<FetchProfileResponse> {
        let tenant = u64::from(names::tenant_index(tenant)?);
        let row = [tenant, u64::from(names::subject_index(subject)?)];
        let (locale, currency) = self.bits(Column::Market, row).pick(&MARKETS);
        let mut items = self.bits(Column::HomeItems, row);
        let count = 4 + items.below(5) as u32;
        let weighted = |column, names: &[&'static str; 4], cuts: [u64; 3]| {
            let at = self.bits(column, row).below(100);
            names[cuts.iter().filter(|cut| at >= **cut).count()].to_owned()
        };
        Some(FetchProfileResponse {
            timing: None,
            given_name: (*self.bits(Column::GivenName, row).pick(&GIVEN_NAMES)).to_owned(),
            family_name: (*self.bits(Column::FamilyName, row).pick(&FAMILY_NAMES)).to_owned(),
            locale: (*locale).to_owned(),
            currency_code: (*currency).to_owned(),
            segment: weighted(Column::Segment, &names::SEGMENTS, [70, 88, 96]),
            plan: weighted(Column::Plan, &names::PLANS, [55, 80, 94]),
            policy_version: self.policy_version(tenant),
            home_item_ids: progression(&mut items, count).map(names::item).collect(),
            policy: None,
        })
    }

    /// The newest version of a tenant's policy. A tenant has every version from 1 up to it.
    fn policy_version(&self, tenant: u64) -> u64 {
        2 + self.bits(Column::PolicyVersion, [tenant, 0]).below(7)
    }

    /// One version of a tenant's policy with the grants and denials of a subject. `None` when the tenant has no such
    /// version or the data set no such tenant; an unknown subject has no grants and no denials.
    pub(crate) fn policy(&self, tenant: &str, subject: &str, version: u64) -> Option<FetchPolicyResponse> {
        let index = names::tenant_index(tenant)?;
        let tenant = u64::from(index);
        if !(1..=self.policy_version(tenant)).contains(&version) {
            return None;
        }
        let (mut grants, mut denials) = (Vec::new(), Vec::new());
        if let Some(subject) = names::subject_index(subject) {
            let row = [tenant, u64::from(subject)];
            let mut grant = self.bits(Column::Grant, row);
            if grant.percent(8) {
                grants.push((*grant.pick(&claims::GRANTABLE)).to_owned());
            }
            let mut denial = self.bits(Column::Denial, row);
            if denial.percent(4) {
                denials.push((*denial.pick(&claims::DENIABLE)).to_owned());
            }
        }
        Some(FetchPolicyResponse {
            timing: None,
            policy_version: version,
            revocation_epoch: self.revocation_epoch(index),
            plan_rules: claims::plan_rules(version),
            segment_rules: claims::segment_rules(),
            region_exclusions: claims::region_exclusions(),
            grants,
            denials,
        })
    }

    /// The revocation epoch of a tenant from which nothing has been revoked since the start.
    pub(crate) fn revocation_epoch(&self, tenant: u32) -> u64 {
        1 + self.bits(Column::RevocationEpoch, [tenant.into(), 0]).below(4)
    }

    /// Whether a subject is within a share of all subjects. Whoever is within a share is within every larger one.
    pub(crate) fn copies(&self, tenant: u32, subject: u32, share: Share) -> bool {
        share.takes(self.bits(Column::PolicyCopy, [tenant.into(), subject.into()]).0)
    }

    /// Prices of the items that the catalogue knows, in the order of the request. None at all in a currency that the book
    /// does not hold, or for a tenant without a book.
    pub(crate) fn prices(&self, tenant: &str, items: &[String], currency: &str) -> FetchPricesResponse {
        let rate = RATES.iter().find(|(code, _)| *code == currency).map(|(_, rate)| *rate);
        let known = names::tenant_index(tenant).zip(rate);
        let entries = known.into_iter().flat_map(|(tenant, rate)| {
            items.iter().take(ITEMS_MAX).filter_map(move |id| {
                let item = names::item_index(id)?;
                Some(self.price(u64::from(tenant), u64::from(item), id, currency, rate))
            })
        });
        FetchPricesResponse { timing: None, entries: entries.collect() }
    }

    fn price(&self, tenant: u64, item: u64, id: &str, currency: &str, rate: u64) -> PriceEntry {
        // 1.99 to 499.99 euro, and up to 5 % more in the book of a tenant.
        let cents = 199 + 100 * self.bits(Column::ListPrice, [item, 0]).below(499);
        let markup = self.bits(Column::PriceBook, [tenant, item]).below(501);
        let minor_units = cents * (10_000 + markup) / 10_000 * rate / 10_000;
        let mut discount = self.bits(Column::Discount, [item, 1]);
        let discounts = claims::DISCOUNTS
            .iter()
            .filter(|_| discount.percent(60))
            .map(|(claim, basis_points)| ClaimDiscount {
                claim: (*claim).to_owned(),
                basis_points: *basis_points,
            })
            .collect();
        PriceEntry {
            item_id: id.to_owned(),
            currency_code: currency.to_owned(),
            list_minor_units: minor_units.max(1) as i64,
            discounts,
        }
    }

    /// Stock of the items that the catalogue knows, in the order of the request. `payload` draws the age of the count,
    /// which differs from call to call; everything else stands still.
    pub(crate) fn stock(&self, items: &[String], region: &str, payload: u64) -> FetchStockResponse {
        let region = mix::fold_bytes(0, region.as_bytes());
        let count_age_ms = mix::below(payload, 5_000) as u32;
        let known =
            items.iter().take(ITEMS_MAX).filter_map(|id| names::item_index(id).map(|item| (id, item)));
        let records = known.map(|(id, item)| {
            let row = [region, u64::from(item)];
            let mut on_hand = self.bits(Column::OnHand, row);
            let on_hand_units = if on_hand.percent(6) { 0 } else { on_hand.below(120) as u32 };
            let mut held = self.bits(Column::Reservations, row);
            let reservations = (0..held.below(4))
                .map(|_| Reservation {
                    units: 1 + held.below(4) as u32,
                    // A quarter has lapsed.
                    expires_in_ms: held.below(120_000) as i32 - 30_000,
                })
                .collect();
            StockRecord { item_id: id.clone(), on_hand_units, reservations, count_age_ms }
        });
        FetchStockResponse { timing: None, records: records.collect() }
    }

    /// Candidates for a subject, in no particular order and sometimes with equal scores. One subject in a hundred has
    /// none, as has one that the data set does not know.
    pub(crate) fn scores(&self, tenant: &str, subject: &str) -> FetchScoresResponse {
        let row = names::tenant_index(tenant).zip(names::subject_index(subject));
        let Some((tenant, subject)) = row else { return FetchScoresResponse::default() };
        let row = [u64::from(tenant), u64::from(subject)];
        let mut items = self.bits(Column::Candidates, row);
        let count = if items.percent(1) { 0 } else { CANDIDATES };
        let mut score = self.bits(Column::Score, row);
        let candidates = progression(&mut items, count).map(|item| ScoredItem {
            item_id: names::item(item),
            // Hundredths, so that ties occur.
            score_micros: score.below(101) as u32 * 10_000,
        });
        FetchScoresResponse { timing: None, candidates: candidates.collect() }
    }

    /// Counts by stars, one star first. One subject in twenty has no review, as has one that the data set does not know.
    pub(crate) fn reviews(&self, tenant: &str, subject: &str) -> FetchReviewsResponse {
        let row = names::tenant_index(tenant).zip(names::subject_index(subject));
        let counts = row.map_or([0; 5], |(tenant, subject)| {
            let row = [u64::from(tenant), u64::from(subject)];
            let mut reviews = self.bits(Column::Reviews, row);
            let mut left = if reviews.percent(5) { 0 } else { 1 + reviews.below(400) };
            let mut shape = self.bits(Column::ReviewShape, row);
            // Most reviews are good: each step from five stars down takes at most two thirds of what is left.
            let mut counts = [0; 5];
            for stars in (1..5).rev() {
                counts[stars] = left - left * (1 + shape.below(2)) / 3;
                left -= counts[stars];
            }
            counts[0] = left;
            counts
        });
        FetchReviewsResponse { timing: None, star_counts: counts.to_vec() }
    }

    /// The experiments that run on a surface; the same for every seed, since a change of weights is a decision.
    pub(crate) fn experiments(&self, surface: &str) -> FetchExperimentsResponse {
        let experiment = |id: &str, version, variants: &[(&str, u32)]| ExperimentDefinition {
            experiment_id: id.to_owned(),
            experiment_version: version,
            variants: variants
                .iter()
                .map(|(variant, weight)| WeightedVariant { variant: (*variant).to_owned(), weight: *weight })
                .collect(),
        };
        let experiments = if surface == names::HOME_SURFACE {
            vec![
                experiment("home-hero", 3, &[("control", 50), ("large", 50)]),
                experiment("home-ranking", 1, &[("control", 80), ("learned", 20)]),
                experiment("home-price-badge", 2, &[("control", 1), ("badge", 1), ("retired", 0)]),
            ]
        } else {
            Vec::new()
        };
        FetchExperimentsResponse { timing: None, experiments }
    }
}

#[cfg(test)]
mod tests;
