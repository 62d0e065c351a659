//! Claims: the vocabulary of the policies, and which plan, segment and region brings which claim.

use model::names;
use wire::emulator::v1::ClaimRule;

/// Claims of each plan beyond those of the plans below it, in the order of [`names::PLANS`].
const BY_PLAN: [&[&str]; 4] = [
    &["catalog.browse", "home.view"],
    &["pricing.member", "recommendations.personalized"],
    &["export.data", "support.priority"],
    &["inventory.backorder", "pricing.business"],
];

/// Claims of each segment, in the order of [`names::SEGMENTS`].
const BY_SEGMENT: [&[&str]; 4] = [
    &["home.offers"],
    &["billing.invoice", "home.offers"],
    &["pricing.education"],
    &["billing.invoice", "pricing.public_sector"],
];

/// Claims that a region does not have.
const EXCLUDED: [(&str, &[&str]); 2] =
    [("ap-south", &["export.data", "inventory.backorder"]), ("us-west", &["home.offers"])];

/// From this version of a policy on, plus and better may see previews.
const PREVIEWS_SINCE: u64 = 4;
/// The claim that version brought.
const PREVIEW: &str = "home.preview";

/// What a subject may be granted beyond its plan and segment.
pub(crate) const GRANTABLE: [&str; 4] =
    ["beta.features", "export.data", "pricing.member", "support.priority"];
/// What a subject may be denied, whatever brought it.
pub(crate) const DENIABLE: [&str; 4] =
    ["export.data", "home.offers", "pricing.member", "recommendations.personalized"];
/// Discounts that an item may offer, in basis points.
pub(crate) const DISCOUNTS: [(&str, u32); 4] = [
    ("pricing.business", 1_250),
    ("pricing.education", 2_000),
    ("pricing.member", 500),
    ("pricing.public_sector", 800),
];

/// Begins the claims that no policy has: a number follows.
pub(crate) const FOREIGN: &str = "copy.only.";

/// All claims of the policies, grantable ones first.
pub(crate) fn vocabulary() -> impl Iterator<Item = &'static str> {
    let given = BY_PLAN.iter().chain(&BY_SEGMENT).flat_map(|claims| claims.iter().copied());
    GRANTABLE.into_iter().chain([PREVIEW]).chain(given)
}

fn rule<'a>(selector: &str, claims: impl Iterator<Item = &'a str>) -> ClaimRule {
    ClaimRule { selector: selector.to_owned(), claims: claims.map(str::to_owned).collect() }
}

/// A plan has its own claims and those of every cheaper plan.
pub(crate) fn plan_rules(version: u64) -> Vec<ClaimRule> {
    let of_plan = |(position, plan): (usize, &&str)| {
        let own = BY_PLAN[..=position].iter().flat_map(|claims| claims.iter().copied());
        let preview = (position > 0 && version >= PREVIEWS_SINCE).then_some(PREVIEW);
        rule(plan, own.chain(preview))
    };
    names::PLANS.iter().enumerate().map(of_plan).collect()
}

/// Claims by segment.
pub(crate) fn segment_rules() -> Vec<ClaimRule> {
    names::SEGMENTS
        .iter()
        .zip(BY_SEGMENT)
        .map(|(segment, claims)| rule(segment, claims.iter().copied()))
        .collect()
}

/// Claims that regions do not have.
pub(crate) fn region_exclusions() -> Vec<ClaimRule> {
    EXCLUDED.iter().map(|(region, claims)| rule(region, claims.iter().copied())).collect()
}
