//! Frontier: which pairs of bounds are tried for the two gates of the home path, for how long, and by which rules the ends of
//! the usable range are found among them.

use base::mix;

use crate::{
    faults::Faults,
    policy::{Boundary, Policy},
    read::{self, Table},
    scenario::plain_name,
};

/// The frontier that this version ships with, as a file name for messages and its text.
pub const SHIPPED: (&str, &str) =
    ("config/frontiers/mercury-home.toml", include_str!("../../../config/frontiers/mercury-home.toml"));

/// Fewest pairs: with less there is nothing between two ends.
pub const PAIRS_MIN: usize = 3;
/// Most pairs.
pub const PAIRS_MAX: usize = 32;
/// Longest window and longest warm-up, in minutes.
pub const MINUTES_MAX: u32 = 600;
/// Largest limit that is read; the policy's own slots are the real bound.
const LIMIT_MAX: u32 = 1_000_000;

/// Limits of both gates of one admission domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pair {
    /// Pages at once.
    pub endpoint: u32,
    /// Profile reads at once.
    pub profile: u32,
}

impl Pair {
    /// The limit of one of the gates.
    pub const fn limit(self, boundary: Boundary) -> u32 {
        match boundary {
            Boundary::Endpoint => self.endpoint,
            Boundary::Profile => self.profile,
        }
    }

    /// Whether both limits are above those of `other`.
    pub const fn is_above(self, other: Self) -> bool {
        self.endpoint > other.endpoint && self.profile > other.profile
    }
}

impl std::fmt::Display for Pair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.endpoint, self.profile)
    }
}

/// Where a usable range ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// Goodput at peak that a pair may lose against the best, in percentage points.
    pub goodput_loss_points: f64,
    /// How much longer the wait in the slowdown may be than at the best smaller pair, in milliseconds.
    pub wait_rise_ms: f64,
    /// How much longer recovery may take than at the best smaller pair, in seconds.
    pub recovery_rise_s: f64,
}

/// One validated frontier.
#[derive(Clone, Debug, PartialEq)]
pub struct Frontier {
    /// The name, for reports.
    pub name: String,
    /// Rises with every change of the file.
    pub version: u32,
    /// Digest of the document's bytes, for reports.
    pub digest: u64,
    /// Measured time of each state, in minutes.
    pub minutes: u32,
    /// Time before it, in minutes.
    pub warm_up_minutes: u32,
    /// Where the range ends.
    pub rules: Rules,
    /// The pair in force; one of [`Frontier::pairs`].
    pub chosen: Pair,
    /// The ends of the range that the case study found, the lower one first.
    pub reference: [Pair; 2],
    /// Ascending in both limits.
    pub pairs: Vec<Pair>,
}

impl Frontier {
    /// Reads and validates a document on its own, for pools as the shipped policy has them. `file_name` is for messages.
    ///
    /// # Errors
    /// [`Faults`] with every fault of the document.
    pub fn parse(file_name: &str, text: &str) -> Result<Self, Faults> {
        Self::parse_for(file_name, text, &Policy::shipped())
    }

    /// Reads and validates a document for the pools of `policy`.
    ///
    /// # Errors
    /// [`Faults`] with every fault of the document.
    pub fn parse_for(file_name: &str, text: &str, policy: &Policy) -> Result<Self, Faults> {
        let digest = mix::fold_bytes(0, text.as_bytes());
        let slots = Boundary::ALL.map(|boundary| policy.admission(boundary).slots);
        read::document(file_name, text, |table| frontier(table, digest, slots))
    }
}

fn frontier(table: &mut Table<'_>, digest: u64, slots: [u32; 2]) -> Option<Frontier> {
    let name = table.text("name", "1 to 64 characters of a-z, 0-9 and '-'", plain_name);
    let version = table.integer32("version", 1..=u32::MAX);
    let minutes = table.integer32("minutes", 1..=MINUTES_MAX);
    let warm_up_minutes = table.integer32("warm_up_minutes", 0..=MINUTES_MAX);
    let chosen = table.section("chosen", limits);
    let rules = table.section("rules", rules);
    let reference = table.section("reference", |table| {
        let lower = table.section("lower", limits);
        let upper = table.section("upper", limits);
        let (lower, upper) = (lower?, upper?);
        if !upper.is_above(lower) {
            table.fault("upper", format!("must be above lower, {lower}, in both limits"));
        }
        Some([lower, upper])
    });
    // A pair that cannot be read does not make the next one descend.
    let mut last: Option<Pair> = None;
    let pairs = table.sections("pairs", PAIRS_MIN..=PAIRS_MAX, |table| {
        let pair = limits(table)?;
        for boundary in Boundary::ALL {
            let (limit, slots) = (pair.limit(boundary), slots[boundary.index()]);
            if limit > slots {
                let message = format!(
                    "{limit} exceeds the {slots} slots of admission.{boundary}: those admitted would wait without bound"
                );
                table.fault(boundary.as_str(), message);
            }
            if let Some(last) = last
                && limit <= last.limit(boundary)
            {
                let message = format!("must be above {}, that of the pair before", last.limit(boundary));
                table.fault(boundary.as_str(), message);
            }
        }
        last = Some(pair);
        Some(pair)
    });
    if let (Some(chosen), Some(pairs)) = (chosen, &pairs)
        && !pairs.contains(&chosen)
    {
        table.fault("chosen", format!("{chosen} is none of the pairs"));
    }
    Some(Frontier {
        name: name?,
        version: version?,
        digest,
        minutes: minutes?,
        warm_up_minutes: warm_up_minutes?,
        rules: rules?,
        chosen: chosen?,
        reference: reference?,
        pairs: pairs?,
    })
}

fn limits(table: &mut Table<'_>) -> Option<Pair> {
    let endpoint = table.integer32("endpoint", 1..=LIMIT_MAX);
    let profile = table.integer32("profile", 1..=LIMIT_MAX);
    Some(Pair { endpoint: endpoint?, profile: profile? })
}

fn rules(table: &mut Table<'_>) -> Option<Rules> {
    let goodput_loss_points = table.number("goodput_loss_points", 0.0..=100.0);
    let wait_rise_ms = table.number("wait_rise_ms", 0.0..=60_000.0);
    let recovery_rise_s = table.number("recovery_rise_s", 0.0..=36_000.0);
    Some(Rules {
        goodput_loss_points: goodput_loss_points?,
        wait_rise_ms: wait_rise_ms?,
        recovery_rise_s: recovery_rise_s?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(from: &str, to: &str) -> Result<Frontier, String> {
        assert!(SHIPPED.1.contains(from), "{from}");
        Frontier::parse("f.toml", &SHIPPED.1.replacen(from, to, 1)).map_err(|faults| faults.to_string())
    }

    #[test]
    fn the_shipped_frontier_is_valid_and_tries_the_bounds_in_force() {
        let frontier = Frontier::parse(SHIPPED.0, SHIPPED.1).expect("it is valid");
        assert_eq!(frontier.pairs.len(), 9);
        let policy = Policy::shipped();
        let in_force = Boundary::ALL.map(|boundary| policy.admission(boundary).gate().limit());
        assert_eq!(Boundary::ALL.map(|boundary| frontier.chosen.limit(boundary)), in_force);
    }

    #[test]
    fn limits_stay_within_the_slots_of_the_policy_and_ascend() {
        let told = with("endpoint = 640", "endpoint = 641").expect_err("above the slots");
        assert!(told.contains("pairs[8].endpoint: 641 exceeds the 640 slots"), "{told}");
        let told = with("profile = 420", "profile = 390").expect_err("descending");
        assert!(told.contains("pairs[8].profile: must be above 395"), "{told}");
        let told = with("endpoint = 440", "endpoint = 400").expect_err("no ascent");
        assert!(told.contains("pairs[1].endpoint: must be above 400"), "{told}");
        let smaller =
            crate::policy::overlay(crate::policy::SHIPPED, ("changes", "[admission.profile]\nslots = 400\n"))
                .expect("a policy");
        let policy = Policy::parse("smaller", &smaller).expect("it is valid");
        let told = Frontier::parse_for("f.toml", SHIPPED.1, &policy).expect_err("other pools").to_string();
        assert!(told.contains("pairs[8].profile: 420 exceeds the 400 slots"), "{told}");
    }

    #[test]
    fn every_fault_is_told_with_its_key() {
        for (from, to, key) in [
            ("version = 1", "version = 0", "version: expected an integer"),
            ("minutes = 3", "minutes = 0", "minutes: expected"),
            ("minutes = 3", "minutes = 601", "minutes: expected"),
            ("wait_rise_ms = 3.0", "wait_rise_ms = nan", "rules.wait_rise_ms: expected"),
            ("wait_rise_ms = 3.0", "wait_rise_ms = inf", "rules.wait_rise_ms: expected"),
            ("recovery_rise_s = 5.0", "recovery_rise_s = -1", "rules.recovery_rise_s: expected"),
            ("goodput_loss_points = 2.0", "goodput_loss = 1.0", "rules.goodput_loss: unknown key"),
            ("[chosen]\nendpoint = 520", "[chosen]\nendpoint = 521", "chosen: 521/340 is none of the pairs"),
            (
                "[reference.upper]\nendpoint = 560",
                "[reference.upper]\nendpoint = 480",
                "reference.upper: must",
            ),
            ("profile = 250", "profile = 0", "pairs[0].profile: expected"),
        ] {
            let told = with(from, to).expect_err(to);
            assert!(told.contains(key), "{key} is not in {told}");
        }
        let few = SHIPPED.1.split("[[pairs]]").take(2).collect::<Vec<_>>().join("[[pairs]]");
        let told = Frontier::parse("f.toml", &few).expect_err("one pair").to_string();
        assert!(told.contains("pairs: expected 3 to 32 tables"), "{told}");
    }
}
