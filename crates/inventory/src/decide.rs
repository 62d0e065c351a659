//! Decide: what can still be promised of each item.
//!
//! - `available = on hand − units of live reservations`, and never below zero. A reservation is live while it has time
//!   left; at zero milliseconds it has lapsed.
//! - At most [`LOW_STOCK_UNITS_MAX`] units are low stock, none is out of stock.
//! - The answer is as fresh as its oldest count: `as of = now − greatest age of a count behind it`.
//! - Every requested item gets exactly one entry, in the order of the request, or the call fails.

use base::{Reason, Refusal};

/// Most items in one request.
pub const ITEMS_MAX: usize = 64;
/// Longest item id, in bytes.
pub const ITEM_ID_BYTES_MAX: usize = 64;
/// Most units that count as low stock.
pub const LOW_STOCK_UNITS_MAX: u32 = 5;

/// Checked item ids: distinct, 1 to [`ITEMS_MAX`], in the order of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Items(Vec<String>);

impl Items {
    /// Checks a request.
    ///
    /// # Errors
    /// `InvalidInput` naming `item_ids`, or the one id that is malformed or named before.
    pub fn new(items: Vec<String>) -> Result<Self, Refusal> {
        if !(1..=ITEMS_MAX).contains(&items.len()) {
            return Err(Refusal::invalid("item_ids", "item_ids: expected 1 to 64 distinct item ids"));
        }
        for (position, item) in items.iter().enumerate() {
            if !is_item_id(item) {
                return Err(Refusal::invalid(format!("item_ids[{position}]"), "item_ids: malformed item id"));
            }
        }
        // Sorted positions find a repeat without comparing every pair.
        let mut order: Vec<usize> = (0..items.len()).collect();
        order.sort_unstable_by(|left, right| items[*left].cmp(&items[*right]).then(left.cmp(right)));
        if let Some(pair) = order.windows(2).find(|pair| items[pair[0]] == items[pair[1]]) {
            let message = "item_ids: an item is named twice";
            return Err(Refusal::invalid(format!("item_ids[{}]", pair[1]), message));
        }
        Ok(Self(items))
    }

    /// The ids.
    pub fn as_slice(&self) -> &[String] {
        &self.0
    }
}

fn is_item_id(id: &str) -> bool {
    (1..=ITEM_ID_BYTES_MAX).contains(&id.len())
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

/// Units set aside for a buyer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// How many.
    pub units: u32,
    /// Time left; zero or less when it has lapsed.
    pub expires_in_ms: i32,
}

/// A record of the stock system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StockRecord {
    /// The item.
    pub item_id: String,
    /// Units counted.
    pub on_hand_units: u32,
    /// Reservations, live and lapsed.
    pub reservations: Vec<Reservation>,
    /// How long ago the units were counted.
    pub count_age_ms: u32,
}

/// Coarse availability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// More than [`LOW_STOCK_UNITS_MAX`] units.
    InStock,
    /// From one to [`LOW_STOCK_UNITS_MAX`] units.
    LowStock,
    /// Nothing left to promise.
    OutOfStock,
}

impl Status {
    /// The status of so many units.
    pub const fn of(available_units: u32) -> Self {
        match available_units {
            0 => Self::OutOfStock,
            1..=LOW_STOCK_UNITS_MAX => Self::LowStock,
            _ => Self::InStock,
        }
    }
}

/// What can be promised of one item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Availability {
    /// The item.
    pub item_id: String,
    /// Units on hand less live reservations.
    pub available_units: u32,
    /// Derived from the units.
    pub status: Status,
}

/// What can be promised of every item of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// One entry an item, in the order of the request.
    pub items: Vec<Availability>,
    /// When the oldest count behind the answer was taken, in milliseconds since the Unix epoch.
    pub as_of_unix_ms: i64,
}

/// Answers for every item at `now_unix_ms`.
///
/// # Errors
/// - `InvalidInput` naming the item when there is no record of it: the stock system leaves out items that it does not
///   know.
/// - `DependencyBug` when it answers twice for one item: which count holds cannot be told.
///
/// Records of items that nobody asked for are ignored, and their age does not count.
pub fn availability(
    items: Items,
    mut records: Vec<StockRecord>,
    now_unix_ms: i64,
) -> Result<Answer, Refusal> {
    records.sort_unstable_by(|left, right| left.item_id.cmp(&right.item_id));
    let mut oldest_ms = 0;
    let mut answers = Vec::with_capacity(items.0.len());
    for (position, item_id) in items.0.into_iter().enumerate() {
        let first = records.partition_point(|record| record.item_id < item_id);
        let mut found = records[first..].iter().take_while(|record| record.item_id == item_id);
        let record = found.next().ok_or_else(|| {
            let message = format!("item_ids: {item_id} has no stock record");
            Refusal::invalid(format!("item_ids[{position}]"), message)
        })?;
        if found.next().is_some() {
            let message = format!("stock system broke its contract: two records of {item_id}");
            return Err(Refusal::new(Reason::DependencyBug, message));
        }
        oldest_ms = oldest_ms.max(record.count_age_ms);
        let available_units = available(record);
        answers.push(Availability { item_id, available_units, status: Status::of(available_units) });
    }
    Ok(Answer { items: answers, as_of_unix_ms: now_unix_ms.saturating_sub(i64::from(oldest_ms)) })
}

/// The sum is taken in 64 bits: reservations may add up to more than the counter of one holds.
fn available(record: &StockRecord) -> u32 {
    let live = record.reservations.iter().filter(|reservation| reservation.expires_in_ms > 0);
    let reserved: u64 = live.map(|reservation| u64::from(reservation.units)).sum();
    let left = u64::from(record.on_hand_units).saturating_sub(reserved);
    u32::try_from(left).expect("no more than on_hand_units, which is a u32")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record(item: &str, on_hand: u32, reservations: &[(u32, i32)], age: u32) -> StockRecord {
        StockRecord {
            item_id: item.into(),
            on_hand_units: on_hand,
            reservations: reservations
                .iter()
                .map(|&(units, expires_in_ms)| Reservation { units, expires_in_ms })
                .collect(),
            count_age_ms: age,
        }
    }

    fn items(ids: &[&str]) -> Items {
        Items::new(ids.iter().map(|id| (*id).to_owned()).collect()).expect("valid items")
    }

    fn units(on_hand: u32, reservations: &[(u32, i32)]) -> u32 {
        available(&record("a", on_hand, reservations, 0))
    }

    #[test]
    fn only_live_reservations_count() {
        assert_eq!(units(10, &[(3, 1), (4, 0), (2, -1), (1, i32::MAX), (9, i32::MIN)]), 6);
    }

    #[test]
    fn more_reserved_than_there_is_leaves_nothing() {
        assert_eq!(units(10, &[(11, 1)]), 0);
        assert_eq!(units(u32::MAX, &[(u32::MAX, 1), (u32::MAX, 1)]), 0);
        assert_eq!(units(u32::MAX, &[]), u32::MAX);
    }

    #[test]
    fn thresholds_are_where_they_are_said_to_be() {
        let expected =
            [(0, Status::OutOfStock), (1, Status::LowStock), (5, Status::LowStock), (6, Status::InStock)];
        for (units, status) in expected {
            assert_eq!(Status::of(units), status, "{units}");
        }
    }

    #[test]
    fn entries_follow_the_request_and_the_oldest_count_dates_the_answer() {
        let records = vec![record("a", 1, &[], 10), record("c", 9, &[], 700), record("z", 1, &[], 9_999)];
        let answer = availability(items(&["c", "a"]), records, 5_000).expect("all there");
        let seen: Vec<_> =
            answer.items.iter().map(|item| (item.item_id.as_str(), item.available_units)).collect();
        assert_eq!(seen, [("c", 9), ("a", 1)]);
        assert_eq!(answer.as_of_unix_ms, 4_300);
    }

    #[test]
    fn a_missing_or_doubled_record_is_an_error() {
        let missing =
            availability(items(&["a", "b"]), vec![record("a", 1, &[], 0)], 0).expect_err("b is missing");
        assert_eq!((missing.reason(), missing.field()), (Reason::InvalidInput, Some("item_ids[1]")));
        let twice = vec![record("a", 1, &[], 0), record("a", 2, &[], 0)];
        let doubled = availability(items(&["a"]), twice, 0).expect_err("two records");
        assert_eq!(doubled.reason(), Reason::DependencyBug);
    }

    #[test]
    fn requests_are_checked_at_their_limits() {
        let named = |count: usize| (0..count).map(|at| format!("item-{at}")).collect::<Vec<_>>();
        assert!(Items::new(named(1)).is_ok());
        assert!(Items::new(named(ITEMS_MAX)).is_ok());
        let field = |ids: Vec<String>| {
            let refusal = Items::new(ids).expect_err("invalid");
            assert_eq!(refusal.reason(), Reason::InvalidInput);
            refusal.field().expect("named").to_owned()
        };
        assert_eq!(field(vec![]), "item_ids");
        assert_eq!(field(named(ITEMS_MAX + 1)), "item_ids");
        assert_eq!(field(vec!["a".into(), "b".into(), "a".into()]), "item_ids[2]");
        assert_eq!(field(vec!["a/b".into()]), "item_ids[0]");
        assert_eq!(field(vec!["a".repeat(ITEM_ID_BYTES_MAX + 1)]), "item_ids[0]");
    }

    proptest! {
        #[test]
        fn stock_is_conserved(
            on_hand: u32,
            reservations in proptest::collection::vec((any::<u32>(), any::<i32>()), 0..20),
        ) {
            let live: u128 = reservations.iter().filter(|(_, left)| *left > 0).map(|(units, _)| u128::from(*units)).sum();
            let promised = u128::from(units(on_hand, &reservations));
            if live <= u128::from(on_hand) {
                prop_assert_eq!(promised + live, u128::from(on_hand));
            } else {
                prop_assert_eq!(promised, 0);
            }
        }

        #[test]
        fn one_more_reservation_never_frees_stock(
            on_hand: u32,
            mut reservations in proptest::collection::vec((0_u32..1_000, -5_i32..5), 0..10),
            more in (0_u32..1_000, -5_i32..5),
        ) {
            let before = units(on_hand, &reservations);
            reservations.push(more);
            prop_assert!(units(on_hand, &reservations) <= before);
        }
    }
}
