//! Check: whether an answer that says OK is in fact correct.
//!
//! A fast wrong page would improve every percentile, so each OK answer is checked, in a run of any rate. What is found
//! is described by counts and positions, never by the values of a customer.

use std::{
    collections::{HashMap, HashSet, hash_map::Entry},
    fmt,
};

use base::mix::{fold_bytes, fold64};
use serde::Serialize;
use wire::home::v2::{GetHomeResponse, Marker};

use crate::call::Asked;

/// Most identities whose answers are compared with each other; further ones are checked one by one only.
pub const IDENTITIES_MAX: usize = 65_536;

/// Why an answer is not correct. Closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Violation {
    /// `core_complete` is false.
    CoreIncomplete,
    /// The request id is not the one that was sent.
    RequestId,
    /// A mandatory section is missing.
    SectionMissing,
    /// The profile is somebody else's.
    WrongIdentity,
    /// A mandatory field of the profile is empty.
    ProfileEmpty,
    /// Claims are not sorted and unique, or come from no policy version or no known authority.
    Claims,
    /// Items and price lines do not name the same items in the same order, once each.
    Items,
    /// An amount is negative, a net price is above its list price, or there is no currency.
    Price,
    /// No experiment, or one that is incomplete or repeated.
    Experiments,
    /// A marker says one thing and the sections another.
    Marker,
    /// The stable core differs from an earlier answer to the same identity.
    Unstable,
}

impl Violation {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::CoreIncomplete,
        Self::RequestId,
        Self::SectionMissing,
        Self::WrongIdentity,
        Self::ProfileEmpty,
        Self::Claims,
        Self::Items,
        Self::Price,
        Self::Experiments,
        Self::Marker,
        Self::Unstable,
    ];

    /// The name used in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::CoreIncomplete => "core_incomplete",
            Self::RequestId => "request_id",
            Self::SectionMissing => "section_missing",
            Self::WrongIdentity => "wrong_identity",
            Self::ProfileEmpty => "profile_empty",
            Self::Claims => "claims",
            Self::Items => "items",
            Self::Price => "price",
            Self::Experiments => "experiments",
            Self::Marker => "marker",
            Self::Unstable => "unstable",
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A violation with what a reader needs to find it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) violation: Violation,
    pub(crate) detail: String,
}

fn finding(violation: Violation, detail: impl Into<String>) -> Finding {
    Finding { violation, detail: detail.into() }
}

/// What became of the optional sections of a correct answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Markers {
    pub(crate) recommendations: Marker,
    pub(crate) reputation: Marker,
}

impl Markers {
    pub(crate) fn degraded(self) -> bool {
        is_omission(self.recommendations) || is_omission(self.reputation)
    }
}

/// Whether a marker says that a section was left out. An empty section was not.
pub(crate) const fn is_omission(marker: Marker) -> bool {
    !matches!(marker, Marker::Present | Marker::Empty | Marker::Unspecified)
}

/// Checks one answer on its own.
pub(crate) fn check(asked: &Asked<'_>, answer: &GetHomeResponse) -> Result<Markers, Finding> {
    if !answer.core_complete {
        return Err(finding(Violation::CoreIncomplete, "core_complete is false in an OK answer"));
    }
    if answer.request_id != asked.request_id {
        return Err(finding(Violation::RequestId, "request_id is not the one that was sent"));
    }
    profile(asked, answer)?;
    claims(answer)?;
    items(answer)?;
    experiments(answer)?;
    markers(answer)
}

fn profile(asked: &Asked<'_>, answer: &GetHomeResponse) -> Result<(), Finding> {
    let profile =
        answer.profile.as_ref().ok_or_else(|| finding(Violation::SectionMissing, "profile is missing"))?;
    if profile.tenant != asked.tenant || profile.subject != asked.subject {
        let which = if profile.tenant == asked.tenant { "subject" } else { "tenant" };
        return Err(finding(Violation::WrongIdentity, format!("profile.{which} is not the one asked for")));
    }
    let fields = [
        ("display_name", &profile.display_name),
        ("locale", &profile.locale),
        ("segment", &profile.segment),
        ("plan", &profile.plan),
    ];
    match fields.into_iter().find(|(_, value)| value.is_empty()) {
        Some((name, _)) => Err(finding(Violation::ProfileEmpty, format!("profile.{name} is empty"))),
        None => Ok(()),
    }
}

fn claims(answer: &GetHomeResponse) -> Result<(), Finding> {
    let entitlement = answer
        .entitlement
        .as_ref()
        .ok_or_else(|| finding(Violation::SectionMissing, "entitlement is missing"))?;
    if !matches!(entitlement.authority.as_str(), "call" | "summary") {
        return Err(finding(Violation::Claims, "entitlement.authority is neither call nor summary"));
    }
    if entitlement.policy_version == 0 {
        return Err(finding(Violation::Claims, "entitlement.policy_version is 0"));
    }
    let claims = &entitlement.claims;
    match claims.windows(2).position(|pair| pair[0] >= pair[1]) {
        Some(at) => Err(finding(
            Violation::Claims,
            format!("claims {} and {} of {} are not in rising order", at + 1, at + 2, claims.len()),
        )),
        None => Ok(()),
    }
}

fn items(answer: &GetHomeResponse) -> Result<(), Finding> {
    let inventory = answer
        .inventory
        .as_ref()
        .ok_or_else(|| finding(Violation::SectionMissing, "inventory is missing"))?;
    let pricing =
        answer.pricing.as_ref().ok_or_else(|| finding(Violation::SectionMissing, "pricing is missing"))?;
    let (items, lines) = (&inventory.items, &pricing.lines);
    if items.is_empty() || items.len() != lines.len() {
        let detail = format!("{} items and {} price lines", items.len(), lines.len());
        return Err(finding(Violation::Items, detail));
    }
    if let Some(at) = items.iter().zip(lines).position(|(item, line)| item.item_id != line.item_id) {
        return Err(finding(Violation::Items, format!("position {}: item and price line differ", at + 1)));
    }
    let distinct: HashSet<&str> = items.iter().map(|item| item.item_id.as_str()).collect();
    if distinct.len() != items.len() || distinct.contains("") {
        return Err(finding(Violation::Items, "an item is repeated or has no id"));
    }
    if let Some(at) = items.iter().position(|item| !known_status(&item.status, item.available_units)) {
        return Err(finding(Violation::Items, format!("position {}: status and units disagree", at + 1)));
    }
    if pricing.currency_code.len() != 3 {
        return Err(finding(Violation::Price, "currency_code is not three letters"));
    }
    let sound = |list: i64, net: i64| 0 <= net && net <= list;
    match lines.iter().position(|line| !sound(line.list_minor_units, line.net_minor_units)) {
        Some(at) => {
            let detail = format!("position {}: not 0 <= net <= list", at + 1);
            Err(finding(Violation::Price, detail))
        }
        None => Ok(()),
    }
}

fn known_status(status: &str, units: u32) -> bool {
    match status {
        "out_of_stock" => units == 0,
        "in_stock" | "low_stock" => units > 0,
        _ => false,
    }
}

fn experiments(answer: &GetHomeResponse) -> Result<(), Finding> {
    let arms = &answer.experiments;
    if arms.is_empty() {
        return Err(finding(Violation::Experiments, "no experiment"));
    }
    let incomplete =
        |arm: &wire::home::v2::ExperimentArm| arm.experiment_id.is_empty() || arm.variant.is_empty();
    if let Some(at) = arms.iter().position(|arm| incomplete(arm) || arm.event_id.is_empty()) {
        return Err(finding(Violation::Experiments, format!("experiment {} is incomplete", at + 1)));
    }
    let recorded = |effect: &str| matches!(effect, "committed" | "replayed");
    if let Some(at) = arms.iter().position(|arm| !recorded(&arm.effect)) {
        return Err(finding(Violation::Experiments, format!("experiment {} is shown unrecorded", at + 1)));
    }
    let distinct: HashSet<&str> = arms.iter().map(|arm| arm.experiment_id.as_str()).collect();
    if distinct.len() != arms.len() {
        let detail = format!("{} arms of {} experiments", arms.len(), distinct.len());
        return Err(finding(Violation::Experiments, detail));
    }
    Ok(())
}

fn markers(answer: &GetHomeResponse) -> Result<Markers, Finding> {
    let optional = answer
        .optional
        .as_ref()
        .ok_or_else(|| finding(Violation::Marker, "the markers of the optional sections are missing"))?;
    let consistent = |name: &str, value: i32, present: bool| match Marker::try_from(value) {
        Ok(Marker::Unspecified) | Err(_) => {
            Err(finding(Violation::Marker, format!("optional.{name} has no valid marker")))
        }
        Ok(marker) if (marker == Marker::Present) != present => {
            let what = if present { "is set" } else { "is missing" };
            Err(finding(Violation::Marker, format!("optional.{name} is {marker:?} and the section {what}")))
        }
        Ok(marker) => Ok(marker),
    };
    Ok(Markers {
        recommendations: consistent(
            "recommendations",
            optional.recommendations,
            answer.recommendations.is_some(),
        )?,
        reputation: consistent("reputation", optional.reputation, answer.reputation.is_some())?,
    })
}

/// Compares the answers to one identity with each other: profile, claims, list prices and arms do not change during a
/// run.
#[derive(Debug, Default)]
pub(crate) struct Stability {
    seen: HashMap<u64, u64>,
    untracked: u64,
}

impl Stability {
    /// Notes a correct answer, and compares it with the first one to the same identity.
    pub(crate) fn compare(&mut self, asked: &Asked<'_>, answer: &GetHomeResponse) -> Result<(), Finding> {
        let parts = [asked.tenant, asked.subject, asked.class, asked.region];
        let identity = parts.iter().fold(0, |state, part| fold_bytes(state, part.as_bytes()));
        let core = fingerprint(answer);
        let full = self.seen.len() >= IDENTITIES_MAX;
        match self.seen.entry(identity) {
            Entry::Occupied(first) if *first.get() == core => Ok(()),
            Entry::Occupied(_) => {
                let detail = "profile, claims, list prices or arms differ from an earlier answer";
                Err(finding(Violation::Unstable, detail))
            }
            Entry::Vacant(_) if full => {
                self.untracked += 1;
                Ok(())
            }
            Entry::Vacant(slot) => {
                slot.insert(core);
                Ok(())
            }
        }
    }

    /// Answers to identities beyond the bound of the map.
    pub(crate) const fn untracked(&self) -> u64 {
        self.untracked
    }
}

/// Digest of the parts of an answer that stay the same for an identity.
fn fingerprint(answer: &GetHomeResponse) -> u64 {
    let mut state = 0;
    let mut text = |value: &str| state = fold_bytes(state, value.as_bytes());
    if let Some(profile) = &answer.profile {
        for field in [&profile.display_name, &profile.locale, &profile.segment, &profile.plan] {
            text(field);
        }
    }
    if let Some(entitlement) = &answer.entitlement {
        entitlement.claims.iter().for_each(|claim| text(claim));
    }
    for arm in &answer.experiments {
        text(&arm.experiment_id);
        text(&arm.variant);
    }
    if let Some(pricing) = &answer.pricing {
        state = fold_bytes(state, pricing.currency_code.as_bytes());
        for line in &pricing.lines {
            state = fold_bytes(state, line.item_id.as_bytes());
            state = fold64(state, line.list_minor_units.unsigned_abs());
        }
    }
    state
}

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;
#[cfg(test)]
#[path = "check_support.rs"]
pub(crate) mod tests_support;
