//! Revoking: the part of the control API that is about revocations: what it lets in, and what it makes of it.

use base::{Reason, Refusal};
use model::{draw::Share, names};
use wire::emulator::v1::{
    self as api, ReadSubjectRequest, ReadSubjectResponse, RevokeClaimsRequest, RevokeClaimsResponse,
    SetPolicyCopyRequest, SetPolicyCopyResponse, SetRevocationFeedRequest, SetRevocationFeedResponse,
};

use crate::{
    engine::Engine,
    revocations::{
        CLAIMS_DENIED_MAX, CLAIMS_REVOKED_MAX, FeedState, Full, PolicyCopy, SUBJECTS_DENIED_MAX, Who,
        is_claim,
    },
};

/// The whole, in parts per million.
const WHOLE_PPM: u32 = 1_000_000;

fn who(tenant: &str, subject: &str) -> Result<Who, Refusal> {
    let tenant = names::tenant_index(tenant)
        .ok_or_else(|| Refusal::invalid("tenant", "tenant: the data set has no such tenant"))?;
    let subject = names::subject_index(subject)
        .ok_or_else(|| Refusal::invalid("subject", "subject: the data set has no such subject"))?;
    Ok(Who { tenant, subject })
}

fn check_claims(claims: &[String]) -> Result<(), Refusal> {
    if !(1..=CLAIMS_REVOKED_MAX).contains(&claims.len()) {
        let message = format!("claims: expected 1 to {CLAIMS_REVOKED_MAX} of them");
        return Err(Refusal::invalid("claims", message));
    }
    if claims.iter().any(|claim| !is_claim(claim)) {
        let message = "claims: expected 1 to 64 bytes of a-z, 0-9, '-', '_', '.' and ':' each";
        return Err(Refusal::invalid("claims", message));
    }
    Ok(())
}

/// Takes claims away.
pub(super) fn revoke(engine: &Engine, asked: &RevokeClaimsRequest) -> Result<RevokeClaimsResponse, Refusal> {
    let RevokeClaimsRequest { tenant, subject, claims } = asked;
    let who = who(tenant, subject)?;
    check_claims(claims)?;
    let revocation_epoch =
        engine.revocations.revoke(&engine.data, who, claims).map_err(|full| match full {
            Full::Subjects => {
                let message =
                    format!("{SUBJECTS_DENIED_MAX} subjects have lost claims, the most there may be");
                Refusal::new(Reason::Overload, message)
            }
            Full::Claims => {
                let message = format!(
                    "the subject would have lost more than {CLAIMS_DENIED_MAX} claims, the most it may"
                );
                Refusal::new(Reason::Overload, message)
            }
        })?;
    tracing::info!(%tenant, %subject, ?claims, revocation_epoch, "claims revoked");
    Ok(RevokeClaimsResponse { revocation_epoch })
}

const fn feed_state(state: FeedState) -> api::FeedState {
    match state {
        FeedState::Live => api::FeedState::Live,
        FeedState::Silent => api::FeedState::Silent,
        FeedState::Cut => api::FeedState::Cut,
    }
}

/// Changes what becomes of the feed.
pub(super) fn set_feed(
    engine: &Engine,
    asked: &SetRevocationFeedRequest,
) -> Result<SetRevocationFeedResponse, Refusal> {
    let state = match api::FeedState::try_from(asked.state) {
        Ok(api::FeedState::Live) => FeedState::Live,
        Ok(api::FeedState::Silent) => FeedState::Silent,
        Ok(api::FeedState::Cut) => FeedState::Cut,
        Ok(api::FeedState::Unspecified) | Err(_) => {
            return Err(Refusal::invalid("state", "state: expected live, silent or cut"));
        }
    };
    let previous = engine.revocations.set_feed(state);
    tracing::info!(?state, ?previous, "feed of revocations changed");
    Ok(SetRevocationFeedResponse { previous: feed_state(previous).into() })
}

const fn policy_copy(copy: PolicyCopy) -> api::PolicyCopy {
    match copy {
        PolicyCopy::Exact => api::PolicyCopy::Exact,
        PolicyCopy::Stale => api::PolicyCopy::Stale,
        PolicyCopy::Divergent => api::PolicyCopy::Divergent,
    }
}

/// Changes the profile store's copy of the policies.
pub(super) fn set_copy(
    engine: &Engine,
    asked: &SetPolicyCopyRequest,
) -> Result<SetPolicyCopyResponse, Refusal> {
    let copy = match api::PolicyCopy::try_from(asked.copy) {
        Ok(api::PolicyCopy::Exact) => PolicyCopy::Exact,
        Ok(api::PolicyCopy::Stale) => PolicyCopy::Stale,
        Ok(api::PolicyCopy::Divergent) => PolicyCopy::Divergent,
        Ok(api::PolicyCopy::Unspecified) | Err(_) => {
            return Err(Refusal::invalid("copy", "copy: expected exact, stale or divergent"));
        }
    };
    let share = match asked.share_ppm {
        0 => Share::ALL,
        1..=WHOLE_PPM => Share::from_ppm(asked.share_ppm),
        _ => {
            let message = format!("share_ppm: expected at most {WHOLE_PPM}, or 0 for all");
            return Err(Refusal::invalid("share_ppm", message));
        }
    };
    let previous = engine.revocations.set_copy(copy, share);
    tracing::info!(?copy, share_ppm = share.ppm(), ?previous, "copy of the policies changed");
    Ok(SetPolicyCopyResponse { previous: policy_copy(previous).into() })
}

/// Reads a subject's rows. The profile is the newest, whatever the copy of the policies is like, and comes without one.
pub(super) fn read_subject(
    engine: &Engine,
    asked: &ReadSubjectRequest,
) -> Result<ReadSubjectResponse, Refusal> {
    let ReadSubjectRequest { tenant, subject, policy_version } = asked;
    who(tenant, subject)?;
    let no_row = || Refusal::invalid("subject", "subject: the data set has no such subject");
    let profile = engine.data.profile(tenant, subject).ok_or_else(no_row)?;
    let version = if *policy_version == 0 { profile.policy_version } else { *policy_version };
    let policy = engine.revocations.policy(&engine.data, tenant, subject, version).ok_or_else(|| {
        Refusal::invalid("policy_version", "policy_version: the tenant has no such policy version")
    })?;
    Ok(ReadSubjectResponse { profile: Some(profile), policy: Some(policy) })
}
