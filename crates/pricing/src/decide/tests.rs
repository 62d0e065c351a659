//! Tests of the pricing rules, at their limits and over random orders.

use proptest::prelude::*;

use super::*;

fn entry(item: &str, list: i64, discounts: &[(&str, u32)]) -> PriceEntry {
    PriceEntry {
        item_id: item.into(),
        currency_code: "EUR".into(),
        list_minor_units: list,
        discounts: discounts
            .iter()
            .map(|(claim, basis_points)| Discount { claim: (*claim).into(), basis_points: *basis_points })
            .collect(),
    }
}

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn order(items: &[&str], claims: &[&str]) -> Order {
    Order::new(strings(items), "EUR", strings(claims)).expect("valid order")
}

fn one(list: i64, discounts: &[(&str, u32)], claims: &[&str]) -> PriceLine {
    let lines = price(order(&["a"], claims), vec![entry("a", list, discounts)]).expect("sound");
    lines.into_iter().next().expect("one line")
}

#[test]
fn exponents_are_those_of_iso_4217() {
    let exponents = Currency::ALL.map(|currency| (currency.code(), currency.exponent()));
    assert_eq!(exponents, [("EUR", 2), ("USD", 2), ("GBP", 2), ("JPY", 0), ("KWD", 3)]);
    for currency in Currency::ALL {
        assert_eq!(Currency::parse(currency.code()), Ok(currency));
    }
    for unknown in ["", "eur", "CHF", "EUR "] {
        let refusal = Currency::parse(unknown).expect_err("not sold in");
        assert_eq!((refusal.reason(), refusal.field()), (Reason::InvalidInput, Some("currency_code")));
    }
}

#[test]
fn amounts_are_written_with_their_own_decimals() {
    let text = |currency, minor_units| Money { currency, minor_units }.to_string();
    assert_eq!(text(Currency::Eur, -5), "-0.05 EUR");
    assert_eq!(text(Currency::Usd, 123_456), "1234.56 USD");
    assert_eq!(text(Currency::Jpy, 1_200), "1200 JPY");
    assert_eq!(text(Currency::Kwd, 1_250), "1.250 KWD");
    assert_eq!(text(Currency::Gbp, i64::MIN), "-92233720368547758.08 GBP");
}

#[test]
fn the_largest_earned_discount_applies_alone() {
    let discounts = [("campus", 1_000), ("loyal", 1_500), ("vip", 9_000)];
    let line = one(10_000, &discounts, &["campus", "loyal"]);
    assert_eq!((line.net.minor_units, line.discount_basis_points), (8_500, 1_500));
    assert_eq!(line.discount_claim, "loyal");
}

#[test]
fn equal_discounts_go_to_the_first_claim_by_name_in_any_order() {
    for discounts in [[("b", 500), ("a", 500)], [("a", 500), ("b", 500)]] {
        assert_eq!(one(100, &discounts, &["a", "b"]).discount_claim, "a");
    }
}

#[test]
fn without_an_earned_discount_net_is_list() {
    for line in [one(999, &[("vip", 9_000)], &[]), one(999, &[("vip", 0)], &["vip"])] {
        assert_eq!(line.net, line.list);
        assert_eq!((line.discount_basis_points, line.discount_claim.as_str()), (0, ""));
    }
}

#[test]
fn discounts_round_half_to_even() {
    // list, basis points, discount: halves go to the even neighbour, everything else to the nearest.
    let cases = [
        (50, 100, 0),  // 0.5
        (150, 100, 2), // 1.5
        (250, 100, 2), // 2.5
        (350, 100, 4), // 3.5
        (249, 100, 2), // 2.49
        (251, 100, 3), // 2.51
        (1, 5_000, 0), // 0.5
        (3, 5_000, 2), // 1.5
        (1, 5_001, 1), // 0.5001
        (0, 10_000, 0),
        (i64::MAX, 10_000, i64::MAX),
        (i64::MAX, 5_000, 4_611_686_018_427_387_904), // half of 2^63 - 1 is 2^62 - 0.5; 2^62 is even
        (i64::MAX, 1, 922_337_203_685_478),
    ];
    for (list, basis_points, expected) in cases {
        assert_eq!(discount_minor_units(list, basis_points), expected, "{list} at {basis_points}");
    }
}

#[test]
fn lines_follow_the_order_of_the_request() {
    let entries = vec![entry("a", 1, &[]), entry("c", 3, &[]), entry("b", 2, &[])];
    let lines = price(order(&["b", "c", "a"], &[]), entries).expect("sound");
    let seen: Vec<_> = lines.iter().map(|line| (line.item_id.as_str(), line.list.minor_units)).collect();
    assert_eq!(seen, [("b", 2), ("c", 3), ("a", 1)]);
}

#[test]
fn a_missing_price_is_an_error_that_names_the_item() {
    let refusal =
        price(order(&["a", "b"], &[]), vec![entry("a", 1, &[]), entry("z", 1, &[])]).expect_err("no price");
    assert_eq!((refusal.reason(), refusal.field()), (Reason::InvalidInput, Some("item_ids[1]")));
    assert!(refusal.message().contains("b has no price in EUR"));
}

#[test]
fn a_book_that_breaks_its_contract_is_refused() {
    let bug = |entries: Vec<PriceEntry>| {
        let refusal = price(order(&["a"], &["c"]), entries).expect_err("broken");
        assert_eq!(refusal.reason(), Reason::DependencyBug);
        refusal.message().to_owned()
    };
    assert!(bug(vec![entry("a", 1, &[]), entry("a", 1, &[])]).contains("two prices"));
    assert!(
        bug(vec![PriceEntry { currency_code: "USD".into(), ..entry("a", 1, &[]) }])
            .contains("not priced in EUR")
    );
    assert!(bug(vec![entry("a", -5, &[])]).contains("-0.05 EUR"));
    assert!(bug(vec![entry("a", 1, &[("unearned", 10_001)])]).contains("above the whole"));
}

#[test]
fn requests_are_checked_at_their_limits() {
    let named = |count: usize| (0..count).map(|at| format!("item-{at}")).collect::<Vec<_>>();
    assert!(Order::new(named(ITEMS_MAX), "EUR", vec![]).is_ok());
    assert!(Order::new(named(1), "EUR", named(0)).is_ok());
    let field = |items: Vec<String>, claims: Vec<String>| {
        let refusal = Order::new(items, "EUR", claims).expect_err("invalid");
        assert_eq!(refusal.reason(), Reason::InvalidInput);
        refusal.field().expect("named").to_owned()
    };
    assert_eq!(field(vec![], vec![]), "item_ids");
    assert_eq!(field(named(ITEMS_MAX + 1), vec![]), "item_ids");
    assert_eq!(field(strings(&["a", "b", "c", "b"]), vec![]), "item_ids[3]");
    assert_eq!(field(strings(&["a", ""]), vec![]), "item_ids[1]");
    assert_eq!(field(vec!["a".repeat(ITEM_ID_BYTES_MAX + 1)], vec![]), "item_ids[0]");
    assert_eq!(field(strings(&["a"]), strings(&["b", "a"])), "claims");
    assert_eq!(field(strings(&["a"]), strings(&["a", "a"])), "claims");
    let claims = |count: usize| (0..count).map(|at| format!("c{at:04}")).collect::<Vec<_>>();
    assert!(Order::new(named(1), "EUR", claims(CLAIMS_MAX)).is_ok());
    assert_eq!(field(named(1), claims(CLAIMS_MAX + 1)), "claims");
}

proptest! {
    #[test]
    fn a_discount_is_the_nearest_whole_amount(list in 0..=i64::MAX, basis_points in 0..=BASIS_POINTS_WHOLE) {
        let discount = discount_minor_units(list, basis_points);
        prop_assert!((0..=list).contains(&discount));
        // |discount - exact| <= 1/2, in units of 1/10,000; at exactly one half the discount is even.
        let error = (i128::from(discount) * 10_000 - i128::from(list) * i128::from(basis_points)).abs();
        prop_assert!(error <= 5_000);
        prop_assert!(error != 5_000 || discount % 2 == 0);
    }

    #[test]
    fn a_larger_discount_never_costs_more(list in 0..=i64::MAX, basis_points in 0..BASIS_POINTS_WHOLE) {
        prop_assert!(discount_minor_units(list, basis_points) <= discount_minor_units(list, basis_points + 1));
    }

    #[test]
    fn every_item_gets_its_own_line_whatever_the_order_of_the_book(
        prices in proptest::collection::btree_map("[a-z]{1,4}", 0..=i64::MAX, 1..=ITEMS_MAX),
        shuffle: u64,
    ) {
        let mut items: Vec<String> = prices.keys().cloned().collect();
        items.sort_by_key(|item| base::mix::fold_bytes(shuffle, item.as_bytes()));
        let book: Vec<_> = prices.iter().rev().map(|(item, list)| entry(item, *list, &[("c", 77)])).collect();
        let order = Order::new(items.clone(), "EUR", strings(&["c"])).expect("valid");
        let lines = price(order, book).expect("sound");
        prop_assert_eq!(lines.len(), items.len());
        for (line, item) in lines.iter().zip(&items) {
            prop_assert_eq!(&line.item_id, item);
            prop_assert_eq!(line.list.minor_units, prices[item]);
            prop_assert_eq!(line.net.minor_units + discount_minor_units(prices[item], 77), prices[item]);
        }
    }
}
