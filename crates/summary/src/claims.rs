//! Claims: derives claims from one version of a tenant's policy. A pure function: the same policy, facts and region give
//! the same claims on every machine.
//!
//! `claims = (plan rules ∪ segment rules ∪ grants) − region exclusions − denials`
//!
//! Both subtractions come last, so a denial or an exclusion beats every way of having earned a claim. Rules for other
//! plans, segments and regions have no effect; several rules for one selector add up. The result is sorted by byte value
//! and unique.

use std::fmt;

use base::{Reason, Refusal};
use wire::emulator::v1::{ClaimRule, FetchPolicyResponse};

/// Most claims of one subject, and of one list in a policy.
pub const CLAIMS_MAX: usize = 256;
/// Longest claim, in bytes.
pub const CLAIM_BYTES_MAX: usize = 64;
/// Commercial plans of the contract.
pub const PLANS: [&str; 4] = ["free", "plus", "pro", "business"];
/// Market segments of the contract.
pub const SEGMENTS: [&str; 4] = ["consumer", "small_business", "education", "public_sector"];

/// What the caller says about the subject, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    plan: String,
    segment: String,
    policy_version: u64,
}

impl Facts {
    /// Checks the caller's facts.
    ///
    /// # Errors
    /// `InvalidInput` naming the field: an unknown plan or segment, or version 0.
    pub fn new(plan: String, segment: String, policy_version: u64) -> Result<Self, Refusal> {
        if !PLANS.contains(&plan.as_str()) {
            return Err(Refusal::invalid("plan", format!("plan: expected one of {}", Choices(&PLANS))));
        }
        if !SEGMENTS.contains(&segment.as_str()) {
            return Err(Refusal::invalid(
                "segment",
                format!("segment: expected one of {}", Choices(&SEGMENTS)),
            ));
        }
        if policy_version == 0 {
            return Err(Refusal::invalid("policy_version", "policy_version: versions start at 1"));
        }
        Ok(Self { plan, segment, policy_version })
    }

    /// The policy version that the caller wants the claims under; at least 1.
    pub const fn policy_version(&self) -> u64 {
        self.policy_version
    }
}

struct Choices<'a>(&'a [&'a str]);

impl fmt::Display for Choices<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(", "))
    }
}

/// Claims that follow from a plan, a segment or a region.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// The plan, segment or region.
    pub selector: String,
    /// The claims.
    pub claims: Vec<String>,
}

/// One version of a tenant's policy with one subject's own grants and denials, as the store answered it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// The version.
    pub version: u64,
    /// The tenant's revocation epoch.
    pub revocation_epoch: u64,
    /// Claims by plan.
    pub plan_rules: Vec<Rule>,
    /// Claims by segment.
    pub segment_rules: Vec<Rule>,
    /// Claims that a region does not have.
    pub region_exclusions: Vec<Rule>,
    /// Claims that this subject has besides.
    pub grants: Vec<String>,
    /// Claims that this subject does not have, whatever grants them.
    pub denials: Vec<String>,
}

impl From<FetchPolicyResponse> for Policy {
    fn from(document: FetchPolicyResponse) -> Self {
        let rules = |rules: Vec<ClaimRule>| -> Vec<Rule> {
            let rules = rules.into_iter();
            rules.map(|rule| Rule { selector: rule.selector, claims: rule.claims }).collect()
        };
        Self {
            version: document.policy_version,
            revocation_epoch: document.revocation_epoch,
            plan_rules: rules(document.plan_rules),
            segment_rules: rules(document.segment_rules),
            region_exclusions: rules(document.region_exclusions),
            grants: document.grants,
            denials: document.denials,
        }
    }
}

/// What a subject may do under one policy version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entitlement {
    /// The version that produced the claims: the one that was asked for.
    pub policy_version: u64,
    /// The tenant's revocation epoch when the policy was read.
    pub revocation_epoch: u64,
    /// Sorted by byte value, unique, at most [`CLAIMS_MAX`].
    pub claims: Vec<String>,
}

/// Derives the entitlement of a subject with `facts` who calls from `region`.
///
/// # Errors
/// - `DependencyUnavailable` when the policy is of another version than was asked for: the store's replica lags or has run
///   ahead. It is no bug of ours, a later attempt may find it caught up, and claims of another version must not pass
///   for those of this one.
/// - `DependencyBug` when a claim is malformed or there are too many: the policy cannot be applied as written, and
///   leaving a claim out could leave out a denial.
pub fn entitle(policy: &Policy, facts: &Facts, region: &str) -> Result<Entitlement, Refusal> {
    if policy.version != facts.policy_version {
        return Err(Refusal::new(
            Reason::DependencyUnavailable,
            format!(
                "policy store answered with version {} where {} was asked for",
                policy.version, facts.policy_version
            ),
        ));
    }
    let earned = select(&policy.plan_rules, &facts.plan)
        .chain(select(&policy.segment_rules, &facts.segment))
        .chain(policy.grants.iter().map(String::as_str));
    let mut claims = sorted(earned)?;
    let lost =
        sorted(select(&policy.region_exclusions, region).chain(policy.denials.iter().map(String::as_str)))?;
    claims.retain(|claim| lost.binary_search(claim).is_err());
    Ok(Entitlement {
        policy_version: policy.version,
        revocation_epoch: policy.revocation_epoch,
        claims: claims.into_iter().map(str::to_owned).collect(),
    })
}

fn select<'a>(rules: &'a [Rule], selector: &'a str) -> impl Iterator<Item = &'a str> {
    rules
        .iter()
        .filter(move |rule| rule.selector == selector)
        .flat_map(|rule| &rule.claims)
        .map(String::as_str)
}

/// Checks, sorts and dedupes.
fn sorted<'a>(claims: impl Iterator<Item = &'a str>) -> Result<Vec<&'a str>, Refusal> {
    let mut list = Vec::with_capacity(16);
    for claim in claims {
        if !is_claim(claim) {
            return Err(broken("a claim is malformed"));
        }
        list.push(claim);
    }
    list.sort_unstable();
    list.dedup();
    if list.len() > CLAIMS_MAX {
        return Err(broken("a subject has more than 256 claims"));
    }
    Ok(list)
}

fn broken(fault: &str) -> Refusal {
    Refusal::new(Reason::DependencyBug, format!("policy store broke its contract: {fault}"))
}

/// Whether a text is a claim: 1 to 64 bytes of a-z, 0-9, '-', '_', '.' and ':'.
pub(crate) fn is_claim(text: &str) -> bool {
    (1..=CLAIM_BYTES_MAX).contains(&text.len())
        && text.bytes().all(|byte| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_' | b'.' | b':')
        })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn rule(selector: &str, claims: &[&str]) -> Rule {
        Rule { selector: selector.into(), claims: claims.iter().map(|claim| (*claim).to_owned()).collect() }
    }

    fn facts(version: u64) -> Facts {
        Facts::new("pro".into(), "education".into(), version).expect("valid facts")
    }

    fn policy() -> Policy {
        Policy {
            version: 3,
            revocation_epoch: 9,
            plan_rules: vec![
                rule("free", &["page.view"]),
                rule("pro", &["page.view", "export.pdf", "bulk.order"]),
            ],
            segment_rules: vec![
                rule("education", &["discount.campus", "page.view"]),
                rule("consumer", &["gift"]),
            ],
            region_exclusions: vec![
                rule("ap-south", &["bulk.order", "beta.search"]),
                rule("eu-west", &["gift"]),
            ],
            grants: vec!["beta.search".into()],
            denials: vec!["export.pdf".into()],
        }
    }

    #[test]
    fn rules_add_up_and_denials_come_last() {
        let entitlement = entitle(&policy(), &facts(3), "us-east").expect("sound policy");
        assert_eq!(entitlement.claims, ["beta.search", "bulk.order", "discount.campus", "page.view"]);
        assert_eq!((entitlement.policy_version, entitlement.revocation_epoch), (3, 9));
    }

    #[test]
    fn a_region_takes_away_even_what_was_granted() {
        let entitlement = entitle(&policy(), &facts(3), "ap-south").expect("sound policy");
        assert_eq!(entitlement.claims, ["discount.campus", "page.view"]);
    }

    #[test]
    fn a_denial_beats_plan_segment_and_grant_at_once() {
        let mut policy = policy();
        policy.grants.push("page.view".into());
        policy.denials.push("page.view".into());
        let entitlement = entitle(&policy, &facts(3), "us-east").expect("sound policy");
        assert!(!entitlement.claims.contains(&"page.view".to_owned()));
    }

    #[test]
    fn another_version_is_no_answer() {
        for version in [2, 4] {
            let refusal =
                entitle(&policy(), &facts(version), "us-east").expect_err("asked for another version");
            assert_eq!(refusal.reason(), Reason::DependencyUnavailable);
        }
    }

    #[test]
    fn an_empty_policy_entitles_to_nothing() {
        let policy = Policy { version: 1, ..Policy::default() };
        assert_eq!(
            entitle(&policy, &facts(1), "us-east").expect("sound policy").claims,
            Vec::<String>::new()
        );
    }

    #[test]
    fn a_malformed_claim_is_not_left_out_silently() {
        let bad = ["", "A", "a b", "é", &"a".repeat(CLAIM_BYTES_MAX + 1)];
        for claim in bad {
            for place in 0..2 {
                let mut policy = policy();
                if place == 0 {
                    policy.grants.push(claim.into())
                } else {
                    policy.denials.push(claim.into())
                }
                let refusal = entitle(&policy, &facts(3), "us-east").expect_err("malformed");
                assert_eq!(refusal.reason(), Reason::DependencyBug, "{claim:?}");
            }
        }
        let mut longest = policy();
        longest.grants.push("a".repeat(CLAIM_BYTES_MAX));
        assert!(entitle(&longest, &facts(3), "us-east").is_ok());
    }

    #[test]
    fn claims_are_bounded() {
        let many = |count: usize| Policy {
            version: 1,
            grants: (0..count).map(|at| format!("claim.{at}")).collect(),
            ..Policy::default()
        };
        assert_eq!(
            entitle(&many(CLAIMS_MAX), &facts(1), "x").expect("at the limit").claims.len(),
            CLAIMS_MAX
        );
        assert!(entitle(&many(CLAIMS_MAX + 1), &facts(1), "x").is_err());
    }

    #[test]
    fn facts_are_checked_by_field() {
        let field = |plan: &str, segment: &str, version| {
            let refusal = Facts::new(plan.into(), segment.into(), version).expect_err("invalid");
            assert_eq!(refusal.reason(), Reason::InvalidInput);
            refusal.field().map(str::to_owned)
        };
        assert_eq!(field("gold", "consumer", 1).as_deref(), Some("plan"));
        assert_eq!(field("free", "", 1).as_deref(), Some("segment"));
        assert_eq!(field("free", "consumer", 0).as_deref(), Some("policy_version"));
    }

    fn claims() -> impl Strategy<Value = Vec<String>> {
        proptest::collection::vec("[a-f]", 0..6)
    }

    fn rules(selectors: &'static [&'static str]) -> impl Strategy<Value = Vec<Rule>> {
        let rule = (proptest::sample::select(selectors), claims())
            .prop_map(|(selector, claims)| Rule { selector: selector.to_owned(), claims });
        proptest::collection::vec(rule, 0..6)
    }

    prop_compose! {
        fn any_policy()(
            plan_rules in rules(&PLANS),
            segment_rules in rules(&SEGMENTS),
            region_exclusions in rules(&["eu-west", "us-east"]),
            grants in claims(),
            denials in claims(),
        ) -> Policy {
            Policy { version: 1, revocation_epoch: 0, plan_rules, segment_rules, region_exclusions, grants, denials }
        }
    }

    proptest! {
        #[test]
        fn the_result_is_the_set_that_the_formula_says(policy in any_policy()) {
            let pick = |rules: &[Rule], selector: &str| -> BTreeSet<String> {
                let mut set = BTreeSet::new();
                for rule in rules {
                    if rule.selector == selector {
                        set.extend(rule.claims.iter().cloned());
                    }
                }
                set
            };
            let mut expected = pick(&policy.plan_rules, "pro");
            expected.extend(pick(&policy.segment_rules, "education"));
            expected.extend(policy.grants.iter().cloned());
            for lost in pick(&policy.region_exclusions, "eu-west").iter().chain(&policy.denials) {
                expected.remove(lost);
            }
            let expected: Vec<String> = expected.into_iter().collect();
            prop_assert_eq!(entitle(&policy, &facts(1), "eu-west").expect("sound policy").claims, expected);
        }

        #[test]
        fn the_order_of_rules_and_claims_does_not_matter(policy in any_policy()) {
            let mut reversed = policy.clone();
            for rules in [&mut reversed.plan_rules, &mut reversed.segment_rules, &mut reversed.region_exclusions] {
                rules.reverse();
                rules.iter_mut().for_each(|rule| rule.claims.reverse());
            }
            reversed.grants.reverse();
            reversed.denials.reverse();
            prop_assert_eq!(entitle(&policy, &facts(1), "eu-west"), entitle(&reversed, &facts(1), "eu-west"));
        }
    }
}
