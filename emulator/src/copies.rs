//! Copies: how the profile store's copy of a policy goes wrong while it claims to be the right version.

use wire::emulator::v1::{ClaimRule, FetchPolicyResponse};

use crate::dataset::{FOREIGN, vocabulary};

/// A claim that the subject gets by being granted it in this policy, and has not otherwise: neither its plan nor its segment
/// nor a grant brings it, and nothing denies it. It is one that every region has, as long as there is such a one.
pub(crate) fn divergent_grant(policy: &FetchPolicyResponse, plan: &str, segment: &str) -> String {
    let has = |rules: &[ClaimRule], selector: &str, claim: &str| {
        rules.iter().any(|rule| rule.selector == selector && rule.claims.iter().any(|known| known == claim))
    };
    let differs = |claim: &str| {
        !has(&policy.plan_rules, plan, claim)
            && !has(&policy.segment_rules, segment, claim)
            && !policy.grants.iter().chain(&policy.denials).any(|known| known == claim)
    };
    let excluded = |claim: &str| {
        policy.region_exclusions.iter().any(|rule| rule.claims.iter().any(|known| known == claim))
    };
    let known = vocabulary().find(|claim| differs(claim) && !excluded(claim));
    known.map_or_else(|| foreign(differs), str::to_owned)
}

/// A claim that no policy has, for a subject that has lost or holds all the others. Denials are bounded, so the search is.
fn foreign(differs: impl Fn(&str) -> bool) -> String {
    let mut numbered = (0_u64..).map(|number| format!("{FOREIGN}{number}"));
    numbered.find(|claim| differs(claim)).unwrap_or_else(|| FOREIGN.to_owned())
}
