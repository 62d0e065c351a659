//! Decide: prices items in integer minor units. No floating point takes part at any step.
//!
//! - An amount is a whole number of its currency's minor unit. [`Currency`] knows the exponent of ISO 4217, which says how
//!   many minor units make one major unit: 10^2 cents, 10^0 yen, 10^3 fils.
//! - Of the discounts that the subject's claims earn, the one with most basis points applies, and of equal ones that
//!   of the first claim by byte value. Discounts do not add up.
//! - `discount = list × basis points ÷ 10,000`, rounded half to even to a whole minor unit: of two equally near amounts
//!   the even one, so that rounding favours neither side over many lines. `net = list − discount`, never negative. The
//!   product is taken in 128 bits, where it cannot overflow.
//! - Every requested item gets exactly one line, in the order of the request, or the call fails.

use std::fmt;

use base::{Reason, Refusal};

/// Most items in one request.
pub const ITEMS_MAX: usize = 64;
/// Longest item id, in bytes.
pub const ITEM_ID_BYTES_MAX: usize = 64;
/// Most claims in one request.
pub const CLAIMS_MAX: usize = 256;
/// Basis points in the whole.
pub const BASIS_POINTS_WHOLE: u32 = 10_000;

/// A currency that this suite sells in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Currency {
    /// Euro.
    Eur,
    /// United States dollar.
    Usd,
    /// Pound sterling.
    Gbp,
    /// Yen.
    Jpy,
    /// Kuwaiti dinar.
    Kwd,
}

impl Currency {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Eur, Self::Usd, Self::Gbp, Self::Jpy, Self::Kwd];

    /// ISO 4217 alphabetic code.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Eur => "EUR",
            Self::Usd => "USD",
            Self::Gbp => "GBP",
            Self::Jpy => "JPY",
            Self::Kwd => "KWD",
        }
    }

    /// ISO 4217 exponent: one major unit is ten to this power of minor units.
    pub const fn exponent(self) -> u32 {
        match self {
            Self::Jpy => 0,
            Self::Eur | Self::Usd | Self::Gbp => 2,
            Self::Kwd => 3,
        }
    }

    /// The currency of that code, exactly as written.
    ///
    /// # Errors
    /// `InvalidInput` naming `currency_code`.
    pub fn parse(code: &str) -> Result<Self, Refusal> {
        Self::ALL.into_iter().find(|currency| currency.code() == code).ok_or_else(|| {
            let known = Self::ALL.map(Self::code).join(", ");
            Refusal::invalid("currency_code", format!("currency_code: expected one of {known}"))
        })
    }
}

/// An amount of money.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Money {
    /// Of what.
    pub currency: Currency,
    /// How much, in minor units.
    pub minor_units: i64,
}

impl fmt::Display for Money {
    /// Major units with as many decimals as the currency has, then the code: `-0.05 EUR`, `1200 JPY`, `1.250 KWD`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exponent = self.currency.exponent();
        let scale = 10_u64.pow(exponent);
        let (amount, code) = (self.minor_units.unsigned_abs(), self.currency.code());
        let sign = if self.minor_units < 0 { "-" } else { "" };
        match exponent {
            0 => write!(f, "{sign}{amount} {code}"),
            _ => write!(
                f,
                "{sign}{}.{:0width$} {code}",
                amount / scale,
                amount % scale,
                width = exponent as usize
            ),
        }
    }
}

/// What the caller wants priced, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    items: Vec<String>,
    currency: Currency,
    claims: Vec<String>,
}

impl Order {
    /// Checks a request.
    ///
    /// # Errors
    /// `InvalidInput` naming the field: no items, more than [`ITEMS_MAX`], a malformed or repeated id, a currency
    /// that is not sold in, or claims that are not sorted and unique.
    pub fn new(items: Vec<String>, currency_code: &str, claims: Vec<String>) -> Result<Self, Refusal> {
        check_items(&items)?;
        let currency = Currency::parse(currency_code)?;
        if claims.len() > CLAIMS_MAX || !claims.is_sorted_by(|left, right| left < right) {
            return Err(Refusal::invalid(
                "claims",
                "claims: expected at most 256, sorted by byte value and unique",
            ));
        }
        Ok(Self { items, currency, claims })
    }

    /// Distinct ids, 1 to [`ITEMS_MAX`], in the order of the request.
    pub fn items(&self) -> &[String] {
        &self.items
    }

    /// The currency of every line.
    pub const fn currency(&self) -> Currency {
        self.currency
    }
}

fn check_items(items: &[String]) -> Result<(), Refusal> {
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
    match order.windows(2).find(|pair| items[pair[0]] == items[pair[1]]) {
        Some(pair) => {
            Err(Refusal::invalid(format!("item_ids[{}]", pair[1]), "item_ids: an item is named twice"))
        }
        None => Ok(()),
    }
}

fn is_item_id(id: &str) -> bool {
    (1..=ITEM_ID_BYTES_MAX).contains(&id.len())
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

/// A discount that a claim earns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discount {
    /// The claim.
    pub claim: String,
    /// Of the list price.
    pub basis_points: u32,
}

/// An entry of the price book, unchecked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PriceEntry {
    /// The item.
    pub item_id: String,
    /// ISO 4217 alphabetic code.
    pub currency_code: String,
    /// List price.
    pub list_minor_units: i64,
    /// Discounts by claim.
    pub discounts: Vec<Discount>,
}

/// The price of one item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PriceLine {
    /// The item.
    pub item_id: String,
    /// Before discount; not negative.
    pub list: Money,
    /// After discount; from zero to the list price.
    pub net: Money,
    /// Discount that was applied, 0 when none.
    pub discount_basis_points: u32,
    /// The claim that earned it, empty when none did.
    pub discount_claim: String,
}

/// Prices every item of the order, in its order.
///
/// # Errors
/// - `InvalidInput` naming the item when the book has no price for it: the book leaves out items that it does not know.
/// - `DependencyBug` when an entry that is needed breaks the book's contract: two prices for one item, another
///   currency, a negative price, a discount above the whole.
///
/// Entries for items that nobody asked for are ignored.
pub fn price(order: Order, entries: Vec<PriceEntry>) -> Result<Vec<PriceLine>, Refusal> {
    let mut entries = entries;
    entries.sort_unstable_by(|left, right| left.item_id.cmp(&right.item_id));
    let Order { items, currency, claims } = order;
    let mut lines = Vec::with_capacity(items.len());
    for (position, item) in items.into_iter().enumerate() {
        let first = entries.partition_point(|entry| entry.item_id < item);
        let mut found = entries[first..].iter().take_while(|entry| entry.item_id == item);
        let entry = found.next().ok_or_else(|| {
            let message = format!("item_ids: {item} has no price in {}", currency.code());
            Refusal::invalid(format!("item_ids[{position}]"), message)
        })?;
        if found.next().is_some() {
            return Err(broken(format!("two prices for {item}")));
        }
        lines.push(price_item(item, entry, currency, &claims)?);
    }
    Ok(lines)
}

fn price_item(
    item_id: String,
    entry: &PriceEntry,
    currency: Currency,
    claims: &[String],
) -> Result<PriceLine, Refusal> {
    if entry.currency_code != currency.code() {
        return Err(broken(format!("{item_id} is not priced in {}", currency.code())));
    }
    let list = Money { currency, minor_units: entry.list_minor_units };
    if list.minor_units < 0 {
        return Err(broken(format!("{item_id} is listed at {list}")));
    }
    if entry.discounts.iter().any(|discount| discount.basis_points > BASIS_POINTS_WHOLE) {
        return Err(broken(format!("{item_id} has a discount above the whole price")));
    }
    let best = best_discount(&entry.discounts, claims);
    let discount_basis_points = best.map_or(0, |discount| discount.basis_points);
    let net = Money {
        currency,
        minor_units: list.minor_units - discount_minor_units(list.minor_units, discount_basis_points),
    };
    let discount_claim = best.map(|discount| discount.claim.clone()).unwrap_or_default();
    Ok(PriceLine { item_id, list, net, discount_basis_points, discount_claim })
}

fn broken(fault: String) -> Refusal {
    Refusal::new(Reason::DependencyBug, format!("price book broke its contract: {fault}"))
}

/// The largest discount among the claims, of equal ones the first by claim. One of zero is none.
fn best_discount<'a>(discounts: &'a [Discount], claims: &[String]) -> Option<&'a Discount> {
    let earned = discounts
        .iter()
        .filter(|discount| discount.basis_points > 0 && claims.binary_search(&discount.claim).is_ok());
    earned.max_by(|left, right| {
        left.basis_points.cmp(&right.basis_points).then_with(|| right.claim.cmp(&left.claim))
    })
}

/// The discount in whole minor units, rounded half to even. `list` is not negative and `basis_points` is at most
/// [`BASIS_POINTS_WHOLE`], so the result is from zero to `list`.
fn discount_minor_units(list: i64, basis_points: u32) -> i64 {
    let whole = i128::from(BASIS_POINTS_WHOLE);
    let product = i128::from(list) * i128::from(basis_points);
    let (quotient, remainder) = (product / whole, product % whole);
    let up = match (remainder * 2).cmp(&whole) {
        std::cmp::Ordering::Less => false,
        std::cmp::Ordering::Equal => quotient % 2 == 1,
        std::cmp::Ordering::Greater => true,
    };
    i64::try_from(quotient + i128::from(up)).expect("a share of at most the whole of an i64 fits an i64")
}

#[cfg(test)]
mod tests;
