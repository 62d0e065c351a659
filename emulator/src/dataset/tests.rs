//! Tests of the data set: the same rows for the same seed, nothing for unknown names, and every kind of row present.

use std::collections::HashSet;

use super::*;

const SEED: u64 = 42;

fn subjects() -> impl Iterator<Item = (String, String)> {
    (0..4_000).map(|n| (names::tenant(n % names::TENANTS), names::subject(n * 7 % names::SUBJECTS)))
}

fn items(range: std::ops::Range<u32>) -> Vec<String> {
    range.map(names::item).collect()
}

#[test]
fn a_seed_gives_the_same_rows_and_another_one_others() {
    let (one, two, other) = (DataSet::new(SEED), DataSet::new(SEED), DataSet::new(SEED + 1));
    let all = items(0..64);
    let rows = |data: &DataSet, tenant: &str, subject: &str| {
        (
            data.profile(tenant, subject),
            data.policy(tenant, subject, 1),
            data.prices(tenant, &all, "EUR"),
            data.stock(&all, "eu-west", 7),
            data.scores(tenant, subject),
            data.reviews(tenant, subject),
        )
    };
    for (tenant, subject) in subjects().take(50) {
        assert_eq!(rows(&one, &tenant, &subject), rows(&two, &tenant, &subject));
        assert_ne!(rows(&one, &tenant, &subject), rows(&other, &tenant, &subject));
    }
}

#[test]
fn unknown_names_have_no_rows() {
    let data = DataSet::new(SEED);
    assert!(data.profile("tenant-200", "user-00001").is_none());
    assert!(data.profile("tenant-001", "user-10000").is_none());
    assert!(data.profile("", "").is_none());
    assert!(data.policy("tenant-200", "user-00001", 1).is_none());
    assert!(data.policy("tenant-001", "user-00001", 0).is_none());
    assert!(data.prices("tenant-200", &items(0..2), "EUR").entries.is_empty());
    assert!(data.prices("tenant-001", &items(0..2), "XXX").entries.is_empty());
    let some = ["item-0001".to_owned(), "item-2000".to_owned(), "x".to_owned()];
    assert_eq!(data.prices("tenant-001", &some, "EUR").entries.len(), 1);
    assert_eq!(data.stock(&some, "eu-west", 0).records.len(), 1);
    assert!(data.scores("tenant-001", "nobody").candidates.is_empty());
    assert_eq!(data.reviews("tenant-001", "nobody").star_counts, [0; 5]);
    assert!(data.experiments("checkout").experiments.is_empty());
}

#[test]
fn profiles_use_the_public_vocabulary_and_every_value_occurs() {
    let data = DataSet::new(SEED);
    let (mut plans, mut segments, mut currencies) = (HashSet::new(), HashSet::new(), HashSet::new());
    for (tenant, subject) in subjects() {
        let row = data.profile(&tenant, &subject).expect("a known subject");
        let distinct: HashSet<&String> = row.home_item_ids.iter().collect();
        assert_eq!(distinct.len(), row.home_item_ids.len(), "{row:?}");
        assert!((4..=8).contains(&row.home_item_ids.len()));
        assert!(row.home_item_ids.iter().all(|item| names::item_index(item).is_some()));
        assert!(data.policy(&tenant, &subject, row.policy_version).is_some());
        assert!(data.policy(&tenant, &subject, row.policy_version + 1).is_none());
        plans.insert(row.plan);
        segments.insert(row.segment);
        currencies.insert(row.currency_code);
    }
    assert_eq!(plans, names::PLANS.map(str::to_owned).into());
    assert_eq!(segments, names::SEGMENTS.map(str::to_owned).into());
    assert_eq!(currencies, names::CURRENCIES.map(str::to_owned).into());
}

#[test]
fn policies_have_rules_for_everybody_and_some_have_grants_and_denials() {
    let data = DataSet::new(SEED);
    let (mut granted, mut denied) = (0, 0);
    for (tenant, subject) in subjects() {
        let policy = data.policy(&tenant, &subject, 1).expect("every tenant has version 1");
        assert_eq!(policy.plan_rules.len(), names::PLANS.len());
        assert_eq!(policy.segment_rules.len(), names::SEGMENTS.len());
        assert!(policy.plan_rules.iter().chain(&policy.segment_rules).all(|rule| !rule.claims.is_empty()));
        assert!(!policy.region_exclusions.is_empty() && policy.revocation_epoch >= 1);
        granted += policy.grants.len();
        denied += policy.denials.len();
    }
    // 8 % and 4 % of 4,000.
    assert!((250..400).contains(&granted) && (100..230).contains(&denied), "{granted} {denied}");
    let claims = |version| claims::plan_rules(version)[1].claims.clone();
    assert_ne!(claims(3), claims(4), "versions differ");
}

#[test]
fn prices_are_positive_and_discounts_refer_to_claims_that_policies_give() {
    let data = DataSet::new(SEED);
    let given: HashSet<String> = claims::plan_rules(9)
        .into_iter()
        .chain(claims::segment_rules())
        .flat_map(|rule| rule.claims)
        .collect();
    let mut discounted = 0;
    for currency in names::CURRENCIES {
        let entries = data.prices("tenant-007", &items(0..64), currency).entries;
        assert_eq!(entries.len(), 64);
        for entry in entries {
            assert!(entry.list_minor_units > 0 && entry.currency_code == currency, "{entry:?}");
            assert!(entry.discounts.iter().all(|discount| given.contains(&discount.claim)));
            discounted += usize::from(!entry.discounts.is_empty());
        }
    }
    assert!(discounted > 200, "{discounted}");
    let price = |tenant: &str| data.prices(tenant, &items(0..1), "EUR").entries[0].list_minor_units;
    assert!((1..10).any(|n| price(&names::tenant(n)) != price("tenant-000")), "tenants have their own book");
}

#[test]
fn stock_varies_and_only_its_age_depends_on_the_call() {
    let data = DataSet::new(SEED);
    let mut all = Vec::new();
    for start in (0..1_000).step_by(50) {
        all.extend(data.stock(&items(start..start + 50), "eu-west", 3).records);
    }
    assert!(all.iter().any(|record| record.on_hand_units == 0));
    let reservations = || all.iter().flat_map(|record| &record.reservations);
    assert!(
        reservations().any(|held| held.expires_in_ms <= 0)
            && reservations().any(|held| held.expires_in_ms > 0)
    );
    let ageless = |payload| {
        let mut records = data.stock(&items(0..50), "eu-west", payload).records;
        records.iter_mut().for_each(|record| record.count_age_ms = 0);
        records
    };
    assert_eq!(ageless(1), ageless(u64::MAX));
    assert_ne!(data.stock(&items(0..50), "eu-west", 1), data.stock(&items(0..50), "us-east", 1));
}

#[test]
fn scores_tie_sometimes_and_stay_in_range() {
    let data = DataSet::new(SEED);
    let (mut empty, mut tied) = (0, 0);
    for (tenant, subject) in subjects() {
        let candidates = data.scores(&tenant, &subject).candidates;
        assert!(candidates.iter().all(|candidate| candidate.score_micros <= 1_000_000));
        let items: HashSet<&String> = candidates.iter().map(|candidate| &candidate.item_id).collect();
        assert_eq!(items.len(), candidates.len());
        let scores: HashSet<u32> = candidates.iter().map(|candidate| candidate.score_micros).collect();
        empty += usize::from(candidates.is_empty());
        tied += usize::from(scores.len() < candidates.len());
    }
    assert!((15..75).contains(&empty) && tied > 2_000, "{empty} {tied}");
}

#[test]
fn reviews_are_mostly_good_and_sometimes_absent() {
    let data = DataSet::new(SEED);
    let mut absent = 0;
    let mut stars = [0_u64; 5];
    for (tenant, subject) in subjects() {
        let counts = data.reviews(&tenant, &subject).star_counts;
        assert_eq!(counts.len(), 5);
        absent += usize::from(counts.iter().sum::<u64>() == 0);
        for (total, count) in stars.iter_mut().zip(counts) {
            *total += count;
        }
    }
    assert!((140..260).contains(&absent), "{absent}");
    assert!(stars[4] > stars[3] && stars[3] > stars[0], "{stars:?}");
}

#[test]
fn three_experiments_run_on_home() {
    let experiments = DataSet::new(SEED).experiments(names::HOME_SURFACE).experiments;
    let ids: HashSet<&String> = experiments.iter().map(|experiment| &experiment.experiment_id).collect();
    assert_eq!(ids.len(), 3);
    assert!(
        experiments.iter().all(|experiment| experiment.variants.iter().any(|variant| variant.weight > 0))
    );
}
