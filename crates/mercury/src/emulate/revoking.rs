//! Revoking: the subcommands of `mercury emulator` that are about revocations, and a subject's rows.

use wire::emulator::v1::{
    ClaimRule, FeedState, FetchPolicyResponse, FetchProfileResponse, PolicyCopy, ReadSubjectRequest,
    ReadSubjectResponse, RevokeClaimsRequest, SetPolicyCopyRequest, SetRevocationFeedRequest,
};

use super::{At, bounded, control, ppm, told};
use crate::{exit::Exit, load::Output};

/// What is taken away.
#[derive(Debug, clap::Args)]
pub(crate) struct RevokeArgs {
    #[command(flatten)]
    at: At,
    /// The tenant, for instance tenant-007; its epoch rises.
    #[arg(long, value_name = "NAME")]
    tenant: String,
    /// The subject, for instance user-00042.
    #[arg(long, value_name = "NAME")]
    subject: String,
    /// What it loses; up to 16 times.
    #[arg(long = "claim", value_name = "CLAIM", required = true)]
    claims: Vec<String>,
}

/// Whose rows are printed.
#[derive(Debug, clap::Args)]
pub(crate) struct SubjectArgs {
    #[command(flatten)]
    at: At,
    /// The tenant, for instance tenant-007.
    #[arg(long, value_name = "NAME")]
    tenant: String,
    /// The subject, for instance user-00042.
    #[arg(long, value_name = "NAME")]
    subject: String,
    /// The version of the policy [default: the newest].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    policy_version: Option<u64>,
    /// How they are printed.
    #[arg(long, value_enum, default_value_t = Output::Human)]
    output: Output,
}

/// What becomes of the feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Feed {
    /// It tells what happens.
    Live,
    /// Its streams stay open and say nothing.
    Silent,
    /// Its streams end, and new ones are refused.
    Cut,
}

impl From<Feed> for FeedState {
    fn from(feed: Feed) -> Self {
        match feed {
            Feed::Live => Self::Live,
            Feed::Silent => Self::Silent,
            Feed::Cut => Self::Cut,
        }
    }
}

/// How the copy differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Copied {
    /// Not at all.
    Exact,
    /// The subject's row is one version old, and says so.
    Stale,
    /// The right version has a grant too many.
    Divergent,
}

impl From<Copied> for PolicyCopy {
    fn from(copy: Copied) -> Self {
        match copy {
            Copied::Exact => Self::Exact,
            Copied::Stale => Self::Stale,
            Copied::Divergent => Self::Divergent,
        }
    }
}

/// The name of a state without what all names of its enum begin with.
fn short(name: &str, prefix: &str) -> String {
    name.strip_prefix(prefix).unwrap_or(name).to_ascii_lowercase()
}

pub(super) fn revoke(args: RevokeArgs) -> Result<(), Exit> {
    let RevokeArgs { at, tenant, subject, claims } = args;
    control(&at, async |mut client| {
        let message = RevokeClaimsRequest { tenant: tenant.clone(), subject, claims };
        let epoch = told(client.revoke_claims(bounded(message)).await)?.revocation_epoch;
        println!("{tenant}: revocation epoch {epoch}");
        Ok(())
    })
}

pub(super) fn set_feed(at: &At, feed: Feed) -> Result<(), Exit> {
    let state = FeedState::from(feed);
    control(at, async |mut client| {
        let message = SetRevocationFeedRequest { state: state.into() };
        let previous = told(client.set_revocation_feed(bounded(message)).await)?.previous();
        let name = |state: FeedState| short(state.as_str_name(), "FEED_STATE_");
        println!("feed of revocations {} -> {}", name(previous), name(state));
        Ok(())
    })
}

pub(super) fn set_copy(at: &At, copied: Copied, percent: f64) -> Result<(), Exit> {
    let (copy, share_ppm) = (PolicyCopy::from(copied), ppm(percent)?);
    control(at, async |mut client| {
        let message = SetPolicyCopyRequest { copy: copy.into(), share_ppm };
        let previous = told(client.set_policy_copy(bounded(message)).await)?.previous();
        let name = |copy: PolicyCopy| short(copy.as_str_name(), "POLICY_COPY_");
        println!("copy of the policies {} -> {} for {percent} % of the subjects", name(previous), name(copy));
        Ok(())
    })
}

pub(super) fn print_subject(args: SubjectArgs) -> Result<(), Exit> {
    let SubjectArgs { at, tenant, subject, policy_version, output } = args;
    let message = ReadSubjectRequest { tenant, subject, policy_version: policy_version.unwrap_or_default() };
    control(&at, async |mut client| {
        let ReadSubjectResponse { profile, policy } = told(client.read_subject(bounded(message)).await)?;
        let (Some(profile), Some(policy)) = (profile, policy) else {
            return Err(Exit::Error("the emulator's control port left a row out".to_owned()));
        };
        match output {
            Output::Json => println!("{}", json(&profile, &policy)),
            Output::Human => {
                println!("{}", load::table::grid(&["row", "value"], 2, table(&profile, &policy)))
            }
        }
        Ok(())
    })
}

fn table(profile: &FetchProfileResponse, policy: &FetchPolicyResponse) -> Vec<Vec<String>> {
    let list = |claims: &[String]| if claims.is_empty() { "none".to_owned() } else { claims.join(" ") };
    let rule = |kind: &str, rule: &ClaimRule| (format!("{kind} {}", rule.selector), list(&rule.claims));
    let plain = [
        ("name", format!("{} {}", profile.given_name, profile.family_name)),
        ("locale", profile.locale.clone()),
        ("currency", profile.currency_code.clone()),
        ("segment", profile.segment.clone()),
        ("plan", profile.plan.clone()),
        ("newest policy version", profile.policy_version.to_string()),
        ("home items", list(&profile.home_item_ids)),
        ("policy version", policy.policy_version.to_string()),
        ("revocation epoch", policy.revocation_epoch.to_string()),
        ("grants", list(&policy.grants)),
        ("denials", list(&policy.denials)),
    ];
    let rules = [
        ("plan", &policy.plan_rules),
        ("segment", &policy.segment_rules),
        ("not in region", &policy.region_exclusions),
    ];
    let rules = rules.into_iter().flat_map(|(kind, rules)| rules.iter().map(move |of| rule(kind, of)));
    let plain = plain.into_iter().map(|(name, value)| (name.to_owned(), value));
    plain.chain(rules).map(|(name, value)| vec![name, value]).collect()
}

fn json(profile: &FetchProfileResponse, policy: &FetchPolicyResponse) -> serde_json::Value {
    let rules = |rules: &[ClaimRule]| -> Vec<serde_json::Value> {
        let rules = rules.iter();
        rules.map(|of| serde_json::json!({ "selector": of.selector, "claims": of.claims })).collect()
    };
    serde_json::json!({
        "profile": {
            "given_name": profile.given_name,
            "family_name": profile.family_name,
            "locale": profile.locale,
            "currency_code": profile.currency_code,
            "segment": profile.segment,
            "plan": profile.plan,
            "policy_version": profile.policy_version,
            "home_item_ids": profile.home_item_ids,
        },
        "policy": {
            "policy_version": policy.policy_version,
            "revocation_epoch": policy.revocation_epoch,
            "plan_rules": rules(&policy.plan_rules),
            "segment_rules": rules(&policy.segment_rules),
            "region_exclusions": rules(&policy.region_exclusions),
            "grants": policy.grants,
            "denials": policy.denials,
        },
    })
}
