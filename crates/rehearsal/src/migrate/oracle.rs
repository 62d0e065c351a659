//! Oracle: which claims are right, by nobody's code but this: from the emulated stores' own rows, without the crate that the services
//! derive and check claims with. Every page that the generator got is held against it.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use base::{Identity, Nanos};
use load::{Observe, Observed};
use wire::emulator::v1::{ClaimRule, FetchPolicyResponse};

use crate::control::{Control, ControlError};

/// Most pages that are kept until they are checked.
const PAGES_MAX: usize = 400_000;

/// A page as its caller got it, as far as its claims go.
#[derive(Clone, Debug)]
pub(super) struct Page {
    pub(super) identity: Identity,
    pub(super) plan: String,
    pub(super) segment: String,
    pub(super) policy_version: u64,
    pub(super) claims: Vec<String>,
    pub(super) on_summary: bool,
    pub(super) asked_at: Nanos,
    pub(super) answered_at: Nanos,
}

/// Keeps every page that was answered.
#[derive(Default)]
pub(super) struct Watcher {
    pages: Mutex<Vec<Page>>,
    beyond: AtomicU64,
}

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watcher")
    }
}

impl Watcher {
    /// The pages that were answered in a window. The others are not touched, since whoever sends is held up meanwhile.
    pub(super) fn pages(&self, from: Nanos, until: Nanos) -> Vec<Page> {
        let pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        let within = pages.iter().filter(|page| page.answered_at >= from && page.answered_at < until);
        within.cloned().collect()
    }

    /// Pages that there was no room for; with any, nothing is known about all.
    pub(super) fn beyond(&self) -> u64 {
        self.beyond.load(Ordering::Relaxed)
    }

    /// Notes a page.
    pub(super) fn note(&self, page: Page) {
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        if pages.len() < PAGES_MAX {
            pages.push(page);
        } else {
            self.beyond.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Observe for Watcher {
    fn answered(&self, page: &Observed<'_>) {
        self.note(page_of(page));
    }
}

/// What is kept of an answer.
pub(super) fn page_of(page: &Observed<'_>) -> Page {
    let answer = page.answer;
    let profile = answer.profile.clone().unwrap_or_default();
    let entitlement = answer.entitlement.clone().unwrap_or_default();
    Page {
        identity: page.identity.clone(),
        plan: profile.plan,
        segment: profile.segment,
        policy_version: entitlement.policy_version,
        claims: entitlement.claims,
        on_summary: entitlement.authority == "summary",
        asked_at: page.asked_at,
        answered_at: page.answered_at,
    }
}

/// Claims that were taken away while the suite ran.
#[derive(Clone, Debug)]
pub(super) struct Revocation {
    pub(super) tenant: String,
    pub(super) subject: String,
    pub(super) claims: Vec<String>,
    /// When it was asked for: no store had it before.
    pub(super) from: Nanos,
    /// When the stores had it.
    pub(super) at: Nanos,
}

/// What the check of pages found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Parity {
    /// Pages that were checked.
    pub(super) pages: u64,
    /// Pages with claims that are not the policy's.
    pub(super) wrong: u64,
    /// The first of them, without whom it was about.
    pub(super) first: String,
}

/// What a key of the policy store's rows is.
type Row = (String, String, u64);

/// Knows what is right.
pub(super) struct Oracle {
    control: Control,
    rows: HashMap<Row, (String, String, FetchPolicyResponse)>,
    revocations: Vec<Revocation>,
    /// How long a revocation may take to reach every page.
    bound: Nanos,
}

impl Oracle {
    pub(super) fn new(control: Control, bound: Nanos) -> Self {
        Self { control, rows: HashMap::new(), revocations: Vec::new(), bound }
    }

    /// Claims are taken away from now on.
    pub(super) fn revoked(&mut self, revocation: Revocation) {
        // What was read before is no longer what the stores hold.
        self.rows.retain(|(tenant, _, _), _| *tenant != revocation.tenant);
        self.revocations.push(revocation);
    }

    /// Holds pages against the stores.
    ///
    /// # Errors
    /// When the stores cannot be read.
    pub(super) async fn check<'p>(
        &mut self,
        pages: impl IntoIterator<Item = &'p Page>,
    ) -> Result<Parity, ControlError> {
        let mut parity = Parity::default();
        for page in pages {
            parity.pages += 1;
            let told: BTreeSet<String> = page.claims.iter().cloned().collect();
            let (now, before) = self.right(page).await?;
            // Asked for before it was taken away or just after, either is right; answered before it, only the old one.
            let right = match self.taken(page) {
                None => told == now,
                Some((from, _)) if page.answered_at < from => told == before,
                Some((_, at)) if page.asked_at < at + self.bound => told == now || told == before,
                Some(_) => told == now,
            };
            if !right || told.len() != page.claims.len() {
                parity.wrong += 1;
                if parity.first.is_empty() {
                    let missing = now.difference(&told).count();
                    let beyond = told.difference(&now).count();
                    parity.first = format!("{missing} claims missing, {beyond} beyond the policy's");
                }
            }
        }
        Ok(parity)
    }

    /// When the page's subject lost claims for the last time.
    fn taken(&self, page: &Page) -> Option<(Nanos, Nanos)> {
        self.of(page).map(|revocation| (revocation.from, revocation.at)).max()
    }

    fn of(&self, page: &Page) -> impl Iterator<Item = &Revocation> {
        let (tenant, subject) = (page.identity.tenant.as_str(), page.identity.subject.as_str());
        self.revocations.iter().filter(move |one| one.tenant == tenant && one.subject == subject)
    }

    /// The claims under the version that the page names: as the stores are, and as they were before anything was taken away.
    async fn right(&mut self, page: &Page) -> Result<(BTreeSet<String>, BTreeSet<String>), ControlError> {
        let (tenant, subject) = (page.identity.tenant.as_str(), page.identity.subject.as_str());
        let key = (tenant.to_owned(), subject.to_owned(), page.policy_version);
        if !self.rows.contains_key(&key) {
            let rows = self.control.subject(tenant, subject, page.policy_version).await?;
            let (profile, policy) = (rows.profile.unwrap_or_default(), rows.policy.unwrap_or_default());
            self.rows.insert(key.clone(), (profile.plan, profile.segment, policy));
        }
        let Some((plan, segment, policy)) = self.rows.get(&key) else { return Ok(Default::default()) };
        let region = page.identity.region.as_str();
        let now = claims(policy, plan, segment, region, &[]);
        let taken: Vec<String> = self.of(page).flat_map(|one| one.claims.clone()).collect();
        let before = claims(policy, plan, segment, region, &taken);
        // A page of another plan or segment is wrong whatever its claims.
        if page.plan != *plan || page.segment != *segment {
            return Ok((BTreeSet::from(["another subject's plan".to_owned()]), BTreeSet::new()));
        }
        Ok((now, before))
    }
}

/// What a subject may do: what its plan, its segment and its own grants give, without what the region and its own denials take.
/// A denial that is `undone` does not count.
fn claims(
    policy: &FetchPolicyResponse,
    plan: &str,
    segment: &str,
    region: &str,
    undone: &[String],
) -> BTreeSet<String> {
    let of = |rules: &[ClaimRule], selector: &str| -> Vec<String> {
        rules.iter().filter(|rule| rule.selector == selector).flat_map(|rule| rule.claims.clone()).collect()
    };
    let mut claims: BTreeSet<String> = of(&policy.plan_rules, plan).into_iter().collect();
    claims.extend(of(&policy.segment_rules, segment));
    claims.extend(policy.grants.iter().cloned());
    for gone in of(&policy.region_exclusions, region) {
        claims.remove(&gone);
    }
    for gone in policy.denials.iter().filter(|denial| !undone.contains(denial)) {
        claims.remove(gone);
    }
    claims
}

/// Exact quantiles of latencies.
pub(super) fn quantiles(pages: &[&Page]) -> BTreeMap<&'static str, f64> {
    let mut spans: Vec<Nanos> = pages.iter().map(|page| page.answered_at - page.asked_at).collect();
    spans.sort_unstable();
    let at = |q: f64| {
        let rank = (spans.len() as f64 * q).ceil().max(1.0) as usize - 1; // Far below 2^52.
        spans.get(rank).map(|span| span.as_millis_f64())
    };
    let named = [("p50", 0.5), ("p99", 0.99), ("p999", 0.999)];
    named.into_iter().filter_map(|(name, q)| Some((name, at(q)?))).collect()
}

/// Shared with the generator.
pub(super) type Shared = Arc<Watcher>;

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(selector: &str, claims: &[&str]) -> ClaimRule {
        ClaimRule {
            selector: selector.to_owned(),
            claims: claims.iter().map(|claim| (*claim).to_owned()).collect(),
        }
    }

    #[test]
    fn what_is_taken_wins_over_what_is_given_and_what_was_undone_is_back() {
        let policy = FetchPolicyResponse {
            plan_rules: vec![rule("plus", &["a", "b"]), rule("free", &["x"])],
            segment_rules: vec![rule("consumer", &["b", "c"])],
            region_exclusions: vec![rule("eu-west", &["c"]), rule("us-east", &["a"])],
            grants: vec!["d".to_owned()],
            denials: vec!["a".to_owned(), "d".to_owned()],
            ..FetchPolicyResponse::default()
        };
        let told = |undone: &[String]| -> Vec<String> {
            claims(&policy, "plus", "consumer", "eu-west", undone).into_iter().collect()
        };
        assert_eq!(told(&[]), ["b"]);
        assert_eq!(told(&["a".to_owned()]), ["a", "b"]);
    }
}
