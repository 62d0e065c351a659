//! Decide: ranks candidates.
//!
//! Items already on the page are left out; of several scores for one item the best counts; what is left is ordered by
//! score descending and then by item id ascending, and cut at the limit. The order is total, so the same candidates give
//! the same ranking in whatever order they come. An empty ranking is an answer: the model had nothing to offer.

use base::{Reason, Refusal};

/// Items when the caller does not say how many.
pub const LIMIT_DEFAULT: u32 = 10;
/// Most items in an answer.
pub const LIMIT_MAX: u32 = 50;
/// Most items that a caller may exclude.
pub const EXCLUDED_MAX: usize = 64;
/// Most candidates that the model server may offer.
pub const CANDIDATES_MAX: usize = 4_096;
/// The best score, in millionths.
pub const SCORE_MICROS_MAX: u32 = 1_000_000;

/// What the caller wants, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    limit: usize,
    excluded: Vec<String>,
}

impl Wanted {
    /// Checks a request; a limit of 0 means [`LIMIT_DEFAULT`].
    ///
    /// # Errors
    /// `InvalidInput` naming `limit` or `exclude_item_ids` when it is above its maximum.
    pub fn new(limit: u32, mut excluded: Vec<String>) -> Result<Self, Refusal> {
        if limit > LIMIT_MAX {
            return Err(Refusal::invalid("limit", "limit: expected 1 to 50, or 0 for 10"));
        }
        if excluded.len() > EXCLUDED_MAX {
            return Err(Refusal::invalid(
                "exclude_item_ids",
                "exclude_item_ids: expected at most 64 item ids",
            ));
        }
        excluded.sort_unstable();
        let limit = if limit == 0 { LIMIT_DEFAULT } else { limit };
        Ok(Self { limit: limit as usize, excluded })
    }
}

/// An item with the model's score, before or after ranking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scored {
    /// The item.
    pub item_id: String,
    /// In millionths, at most [`SCORE_MICROS_MAX`].
    pub score_micros: u32,
}

/// Ranks `candidates`, best first.
///
/// # Errors
/// `DependencyBug` when a score is above [`SCORE_MICROS_MAX`], an item has no id, or there are more than
/// [`CANDIDATES_MAX`]: scores of another scale would rank wrongly without anybody noticing.
pub fn rank(wanted: &Wanted, mut candidates: Vec<Scored>) -> Result<Vec<Scored>, Refusal> {
    if candidates.len() > CANDIDATES_MAX {
        return Err(broken("more than 4096 candidates"));
    }
    if candidates.iter().any(|candidate| candidate.score_micros > SCORE_MICROS_MAX) {
        return Err(broken("a score is above 1000000 millionths"));
    }
    if candidates.iter().any(|candidate| candidate.item_id.is_empty()) {
        return Err(broken("a candidate has no item id"));
    }
    candidates.retain(|candidate| wanted.excluded.binary_search(&candidate.item_id).is_err());
    // By item with its best score first, so that dropping the repeats keeps the best.
    candidates.sort_unstable_by(|left, right| {
        left.item_id.cmp(&right.item_id).then(right.score_micros.cmp(&left.score_micros))
    });
    candidates.dedup_by(|later, kept| later.item_id == kept.item_id);
    // Stable: items of one score stay in the order of their ids.
    candidates.sort_by_key(|candidate| std::cmp::Reverse(candidate.score_micros));
    candidates.truncate(wanted.limit);
    Ok(candidates)
}

fn broken(fault: &str) -> Refusal {
    Refusal::new(Reason::DependencyBug, format!("model server broke its contract: {fault}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn scored(list: &[(&str, u32)]) -> Vec<Scored> {
        list.iter().map(|&(item, score_micros)| Scored { item_id: item.into(), score_micros }).collect()
    }

    fn wanted(limit: u32, excluded: &[&str]) -> Wanted {
        Wanted::new(limit, excluded.iter().map(|item| (*item).to_owned()).collect()).expect("valid")
    }

    #[test]
    fn best_first_ties_by_id_repeats_by_best_score() {
        let candidates = scored(&[("b", 5), ("d", 9), ("a", 5), ("c", 1), ("c", 7), ("c", 3)]);
        let ranking = rank(&wanted(0, &[]), candidates).expect("sound");
        assert_eq!(ranking, scored(&[("d", 9), ("c", 7), ("a", 5), ("b", 5)]));
    }

    #[test]
    fn excluded_items_do_not_use_up_the_limit() {
        let candidates = scored(&[("a", 9), ("b", 8), ("c", 7), ("d", 6)]);
        let ranking = rank(&wanted(2, &["c", "a", "x"]), candidates).expect("sound");
        assert_eq!(ranking, scored(&[("b", 8), ("d", 6)]));
    }

    #[test]
    fn nothing_to_offer_is_an_answer() {
        assert_eq!(rank(&wanted(0, &[]), vec![]), Ok(vec![]));
        assert_eq!(rank(&wanted(0, &["a"]), scored(&[("a", 1)])), Ok(vec![]));
    }

    #[test]
    fn limits_hold_and_one_above_is_refused() {
        let many: Vec<_> =
            (0..60).map(|at| Scored { item_id: format!("item-{at:02}"), score_micros: at }).collect();
        assert_eq!(rank(&wanted(0, &[]), many.clone()).expect("sound").len(), 10);
        assert_eq!(rank(&wanted(1, &[]), many.clone()).expect("sound").len(), 1);
        assert_eq!(rank(&wanted(LIMIT_MAX, &[]), many).expect("sound").len(), 50);
        let refusal = Wanted::new(LIMIT_MAX + 1, vec![]).expect_err("too many");
        assert_eq!((refusal.reason(), refusal.field()), (Reason::InvalidInput, Some("limit")));
        assert!(Wanted::new(1, vec!["a".into(); EXCLUDED_MAX]).is_ok());
        let refusal = Wanted::new(1, vec!["a".into(); EXCLUDED_MAX + 1]).expect_err("too many");
        assert_eq!((refusal.reason(), refusal.field()), (Reason::InvalidInput, Some("exclude_item_ids")));
    }

    #[test]
    fn a_model_server_that_breaks_its_contract_is_refused() {
        let reason = |candidates| rank(&wanted(0, &[]), candidates).map_err(|refusal| refusal.reason());
        assert!(reason(scored(&[("a", SCORE_MICROS_MAX)])).is_ok());
        assert_eq!(reason(scored(&[("a", SCORE_MICROS_MAX + 1)])), Err(Reason::DependencyBug));
        assert_eq!(reason(scored(&[("", 1)])), Err(Reason::DependencyBug));
        assert!(reason(vec![Scored { item_id: "a".into(), score_micros: 1 }; CANDIDATES_MAX]).is_ok());
        let over = vec![Scored { item_id: "a".into(), score_micros: 1 }; CANDIDATES_MAX + 1];
        assert_eq!(reason(over), Err(Reason::DependencyBug));
    }

    proptest! {
        #[test]
        fn the_ranking_does_not_depend_on_the_order_of_candidates(
            list in proptest::collection::vec(("[a-h]", 0_u32..4), 0..40),
            excluded in proptest::collection::vec("[a-h]", 0..4),
            limit in 0..=LIMIT_MAX,
            shuffle: u64,
        ) {
            let candidates: Vec<_> =
                list.into_iter().map(|(item_id, score_micros)| Scored { item_id, score_micros }).collect();
            let mut shuffled: Vec<_> = candidates.iter().cloned().enumerate().collect();
            shuffled.sort_by_key(|(at, _)| base::mix::fold64(shuffle, *at as u64));
            let shuffled: Vec<_> = shuffled.into_iter().map(|(_, candidate)| candidate).collect();
            let wanted = Wanted::new(limit, excluded.clone()).expect("valid");
            let ranking = rank(&wanted, candidates.clone()).expect("sound");
            prop_assert_eq!(&rank(&wanted, shuffled).expect("sound"), &ranking);

            // The naive reading of the rule: best score of every allowed item, sorted, cut.
            let mut best = std::collections::BTreeMap::new();
            for candidate in candidates {
                if !excluded.contains(&candidate.item_id) {
                    let entry = best.entry(candidate.item_id).or_insert(0);
                    *entry = candidate.score_micros.max(*entry);
                }
            }
            let mut naive: Vec<(u32, String)> = best.into_iter().map(|(item, score)| (score, item)).collect();
            naive.sort_by(|left, right| right.0.cmp(&left.0).then(left.1.cmp(&right.1)));
            naive.truncate(if limit == 0 { 10 } else { limit as usize });
            let seen: Vec<_> = ranking.into_iter().map(|item| (item.score_micros, item.item_id)).collect();
            prop_assert_eq!(seen, naive);
        }
    }
}
