//! Tests of the rule that picks the number of admission domains, at its edges.

use super::super::domains::{Domains, Question, Reading};

/// 1,000 requests/s, so that one slot of one domain is held for one millisecond.
fn audit(up_to: u32, whole: f64, part: f64, median: f64) -> Domains {
    Question { up_to, rate: 0, whole: 1, part: 2, median: 3 }.audit(&[1_000.0, whole, part, median])
}

fn reading(whole: f64, part: f64, median: f64) -> Reading {
    audit(24, whole, part, median).reading
}

#[test]
fn a_slot_is_held_for_its_share_of_the_domains_requests() {
    let rows = audit(3, 10.0, 6.0, 25.0).rows;
    let held: Vec<_> = rows.iter().map(|row| (row.domains, row.whole_ms, row.part_ms, row.agrees)).collect();
    assert_eq!(held, [(1, 10.0, 6.0, false), (2, 20.0, 12.0, false), (3, 30.0, 18.0, true)]);
}

#[test]
fn the_median_may_be_the_mean_page_and_not_the_part() {
    assert_eq!(reading(80.0, 60.0, 80.0), Reading::One(1), "as long as the mean page");
    assert_eq!(
        reading(80.0, 60.0, 80.001),
        Reading::None,
        "longer than with one, shorter than the part with two"
    );
    assert_eq!(reading(80.0, 60.0, 60.001), Reading::One(1));
    assert_eq!(reading(80.0, 60.0, 60.0), Reading::None, "as long as the part alone");
}

#[test]
fn pools_far_apart_decide_nothing() {
    assert_eq!(reading(30.0, 10.0, 60.0), Reading::Several(vec![2, 3, 4, 5]));
    assert_eq!(audit(3, 30.0, 10.0, 60.0).reading, Reading::Several(vec![2, 3]), "no more than are tried");
    assert_eq!(audit(2, 30.0, 10.0, 60.0).reading, Reading::One(2));
    assert_eq!(audit(1, 30.0, 10.0, 60.0).reading, Reading::None);
}
