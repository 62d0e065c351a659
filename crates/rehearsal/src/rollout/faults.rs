//! Faults: named troubles of a dependency that can be let loose during one phase, to see that the rollout stops there.
//!
//! A fault is written into the scenario that the emulator of that run reads, so that its draws are keyed like all others
//! and the file stays beside the evidence.

use std::fmt;

use base::{Dependency, Nanos};
use model::{fault::FaultEffect, rollout::STATES};

/// A named trouble.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NamedFault {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it does, for people.
    pub about: &'static str,
    /// Whose trouble it is.
    pub dependency: Dependency,
    /// What happens to a call.
    pub effect: FaultEffect,
    /// To which share of the calls.
    pub share: f64,
}

const fn fault(
    name: &'static str,
    about: &'static str,
    dependency: Dependency,
    effect: FaultEffect,
    share: f64,
) -> NamedFault {
    NamedFault { name, about, dependency, effect, share }
}

const fn delay(millis: u64) -> FaultEffect {
    FaultEffect::Delay(Nanos::from_millis(millis))
}

/// gRPC status codes: INTERNAL and UNAVAILABLE.
const INTERNAL: FaultEffect = FaultEffect::Status(13);
const UNAVAILABLE: FaultEffect = FaultEffect::Status(14);

/// All of them.
pub const FAULTS: [NamedFault; 12] = [
    fault("profile-slow", "profile reads take 150 ms longer", Dependency::Profile, delay(150), 1.0),
    fault(
        "profile-hang",
        "one profile read in ten never answers",
        Dependency::Profile,
        FaultEffect::Hang,
        0.1,
    ),
    fault("entitlement-slow", "entitlement takes 150 ms longer", Dependency::Entitlement, delay(150), 1.0),
    fault(
        "entitlement-errors",
        "one entitlement call in five fails",
        Dependency::Entitlement,
        UNAVAILABLE,
        0.2,
    ),
    fault("pricing-slow", "pricing takes 400 ms longer", Dependency::Pricing, delay(400), 1.0),
    fault("pricing-errors", "one pricing call in five fails", Dependency::Pricing, UNAVAILABLE, 0.2),
    fault(
        "inventory-refuses",
        "one inventory call in five is refused",
        Dependency::Inventory,
        FaultEffect::Refuse,
        0.2,
    ),
    fault("experiment-errors", "one allocation in five fails", Dependency::Experiment, INTERNAL, 0.2),
    fault(
        "recommendation-hang",
        "recommendation never answers",
        Dependency::Recommendation,
        FaultEffect::Hang,
        1.0,
    ),
    fault(
        "recommendation-slow",
        "recommendation takes 300 ms longer",
        Dependency::Recommendation,
        delay(300),
        1.0,
    ),
    fault("reputation-errors", "every reputation call fails", Dependency::Reputation, INTERNAL, 1.0),
    fault(
        "reputation-resets",
        "every second reputation call is reset",
        Dependency::Reputation,
        FaultEffect::Reset,
        0.5,
    ),
];

impl NamedFault {
    /// The fault of that name.
    pub fn parse(name: &str) -> Option<&'static Self> {
        FAULTS.iter().find(|fault| fault.name == name)
    }

    /// A scenario with this fault in every state. It comes after the scenario's own, of which the first match wins.
    pub(super) fn added_to(&self, scenario: &str) -> String {
        let mut text = scenario.trim_end().to_owned();
        text.push_str(&format!("\n\n# Let loose for this run: {}.\n", self.about));
        for state in STATES {
            text.push_str(&format!(
                "[[faults]]\nphase = \"{state}\"\ndependency = \"{}\"\nshare = {}\neffect = \"{}\"\n{}\n",
                self.dependency,
                self.share,
                self.effect.as_str(),
                detail(self.effect),
            ));
        }
        text
    }
}

fn detail(effect: FaultEffect) -> String {
    match effect {
        FaultEffect::Delay(span) | FaultEffect::SlowBody(span) => {
            format!("delay_ms = {}\n", span.as_millis())
        }
        FaultEffect::Status(code) => format!("status_code = {code}\n"),
        FaultEffect::Hang | FaultEffect::Reset | FaultEffect::Refuse => String::new(),
    }
}

/// A fault and the phase that it is let loose in.
#[derive(Clone, Debug, PartialEq)]
pub struct Injection {
    /// The fault.
    pub fault: &'static NamedFault,
    /// Name of the phase.
    pub phase: String,
}

impl Injection {
    /// Reads `FAULT@PHASE`. Whether there is such a phase is for the rollout to say.
    ///
    /// # Errors
    /// What is wrong, with all known faults.
    pub fn parse(text: &str) -> Result<Self, String> {
        let Some((name, phase)) = text.split_once('@').filter(|(_, phase)| !phase.is_empty()) else {
            return Err(format!("expected FAULT@PHASE, for example pricing-slow@admission\n{}", known()));
        };
        let fault = NamedFault::parse(name).ok_or_else(|| format!("no fault {name:?}\n{}", known()))?;
        Ok(Self { fault, phase: phase.to_owned() })
    }
}

impl fmt::Display for Injection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.fault.name, self.phase)
    }
}

/// The faults that there are, one a line.
fn known() -> String {
    let width = FAULTS.iter().map(|fault| fault.name.len()).max().unwrap_or(0);
    let lines: Vec<String> =
        FAULTS.iter().map(|fault| format!("  {:width$}  {}", fault.name, fault.about)).collect();
    format!("the faults are:\n{}", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use model::scenario::{self, Scenario};

    use super::*;

    #[test]
    fn every_fault_is_in_the_scenario_that_it_makes_and_changes_nothing_else() {
        let plain = Scenario::parse(scenario::SHIPPED.0, scenario::SHIPPED.1).expect("shipped");
        for fault in &FAULTS {
            let text = fault.added_to(scenario::SHIPPED.1);
            let with =
                Scenario::parse("s.toml", &text).unwrap_or_else(|error| panic!("{}: {error}", fault.name));
            let added = &with.faults[plain.faults.len()..];
            assert_eq!(added.len(), STATES.len(), "{}", fault.name);
            for (one, state) in added.iter().zip(STATES) {
                assert_eq!(Some(one.phase), plain.phase_index(state));
                assert_eq!(one.rule.dependency, fault.dependency);
                assert_eq!(one.rule.effect, fault.effect);
                assert_eq!((one.after, one.rule.duration, one.rule.class), (Nanos::ZERO, None, None));
            }
            // The draws are keyed by the version, so the rest of the run is the same.
            assert_eq!((with.version, &with.name), (plain.version, &plain.name));
        }
    }

    #[test]
    fn an_injection_reads_back_and_what_is_unknown_is_answered_with_what_is_known() {
        let one = Injection::parse("pricing-slow@admission").expect("well formed");
        assert_eq!((one.fault.dependency, one.phase.as_str()), (Dependency::Pricing, "admission"));
        assert_eq!(one.to_string(), "pricing-slow@admission");
        for bad in ["pricing-slow", "pricing-slow@", "@admission", "", "pricing-fast@admission"] {
            let error = Injection::parse(bad).expect_err(bad);
            assert!(FAULTS.iter().all(|fault| error.contains(fault.name)), "{bad}: {error}");
        }
    }

    #[test]
    fn names_are_unique() {
        for (at, fault) in FAULTS.iter().enumerate() {
            assert!(FAULTS[..at].iter().all(|other| other.name != fault.name), "{}", fault.name);
        }
    }
}
