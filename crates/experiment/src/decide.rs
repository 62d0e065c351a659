//! Decide: which arm of every experiment a subject is shown, and what is recorded about it.
//!
//! Definitions come from the catalogue and are checked here ([`Definitions`]); [`allocate`] picks an arm; [`exposure`]
//! says what the durable record of having shown it is. All of it is a pure function of its inputs, in integers only, so
//! every replica on every machine gives a subject the same arm and a retry the same record.

pub mod allocate;
pub mod exposure;

use base::{CallContext, Reason, Refusal};

pub use exposure::Exposure;

/// Most experiments on one surface: the most rows that one request adds to the ledger.
pub const EXPERIMENTS_MAX: usize = 32;
/// Most arms of one experiment.
pub const VARIANTS_MAX: usize = 16;
/// Longest surface, experiment id and variant name, in bytes.
pub const NAME_BYTES_MAX: usize = 64;

/// An arm and its share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variant {
    /// The arm.
    pub name: String,
    /// Relative weight; 0 takes no subject.
    pub weight: u32,
}

/// A running experiment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Experiment {
    /// The experiment.
    pub id: String,
    /// Version of the definition, from 1. Part of the exposure's identity, not of the allocation: a new version is a
    /// new event, and moves nobody whose weights did not change.
    pub version: u32,
    /// Arms.
    pub variants: Vec<Variant>,
}

/// Where the arms are shown, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Surface(String);

impl Surface {
    /// Checks a surface.
    ///
    /// # Errors
    /// `InvalidInput` naming `surface`.
    pub fn new(surface: String) -> Result<Self, Refusal> {
        if is_name(&surface) {
            return Ok(Self(surface));
        }
        let message = "surface: expected 1 to 64 characters of A-Z, a-z, 0-9, '-', '_' and '.'";
        Err(Refusal::invalid("surface", message))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The experiments of a surface, checked: by id ascending, each with at least one arm that takes subjects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definitions(Vec<Experiment>);

impl Definitions {
    /// Checks what the catalogue answered.
    ///
    /// # Errors
    /// `DependencyBug` when a name is malformed or given twice, a version is 0, an experiment has no arm or none with a
    /// weight, or there are too many of either. Experiments of a core surface are answered all or none: leaving a
    /// broken one out would show its subjects something that no analysis expects.
    pub fn new(mut experiments: Vec<Experiment>) -> Result<Self, Refusal> {
        if experiments.len() > EXPERIMENTS_MAX {
            return Err(broken("a surface has more than 32 experiments"));
        }
        experiments.sort_unstable_by(|left, right| left.id.cmp(&right.id));
        if experiments.windows(2).any(|pair| pair[0].id == pair[1].id) {
            return Err(broken("an experiment is defined twice"));
        }
        experiments.iter().try_for_each(check)?;
        Ok(Self(experiments))
    }

    /// The experiments, by id ascending.
    pub fn as_slice(&self) -> &[Experiment] {
        &self.0
    }
}

fn check(experiment: &Experiment) -> Result<(), Refusal> {
    if !is_name(&experiment.id) {
        return Err(broken("an experiment id is malformed"));
    }
    let fault = |what: &str| Err(broken(&format!("experiment {} {what}", experiment.id)));
    let variants = &experiment.variants;
    if experiment.version == 0 {
        return fault("has version 0");
    }
    if variants.len() > VARIANTS_MAX {
        return fault("has more than 16 arms");
    }
    if !variants.iter().all(|variant| is_name(&variant.name)) {
        return fault("has a malformed arm");
    }
    let repeated =
        |(at, variant): (usize, &Variant)| variants[..at].iter().any(|other| other.name == variant.name);
    if variants.iter().enumerate().any(repeated) {
        return fault("names an arm twice");
    }
    if variants.iter().all(|variant| variant.weight == 0) {
        return fault("has no arm that takes subjects");
    }
    Ok(())
}

fn broken(fault: &str) -> Refusal {
    Refusal::new(Reason::DependencyBug, format!("experiment catalogue broke its contract: {fault}"))
}

/// Whether a surface, an experiment or an arm may be called so.
pub(crate) fn is_name(name: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

/// Allocates an arm of every experiment to the call's subject, by experiment id ascending.
pub fn expose(context: &CallContext, surface: &Surface, definitions: &Definitions) -> Vec<Exposure> {
    let identity = &context.identity;
    let chosen = definitions.0.iter().map(|experiment| {
        let arm = allocate::arm(identity.tenant.as_str(), identity.subject.as_str(), experiment);
        Exposure::new(context, surface, experiment, arm)
    });
    chosen.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn experiment(id: &str, version: u32, arms: &[(&str, u32)]) -> Experiment {
        let variants = arms.iter().map(|&(name, weight)| Variant { name: name.into(), weight }).collect();
        Experiment { id: id.into(), version, variants }
    }

    #[test]
    fn definitions_come_out_by_id() {
        let list = vec![experiment("b", 1, &[("x", 1)]), experiment("a", 2, &[("x", 0), ("y", 1)])];
        let definitions = Definitions::new(list).expect("sound");
        let ids: Vec<_> = definitions.as_slice().iter().map(|experiment| experiment.id.as_str()).collect();
        assert_eq!(ids, ["a", "b"]);
        assert!(Definitions::new(vec![]).expect("nothing runs").as_slice().is_empty());
    }

    #[test]
    fn a_catalogue_that_breaks_its_contract_is_refused_by_fault() {
        let fault = |list: Vec<Experiment>| {
            let refusal = Definitions::new(list).expect_err("broken");
            assert_eq!(refusal.reason(), Reason::DependencyBug);
            refusal.message().to_owned()
        };
        let sound = experiment("a", 1, &[("x", 1)]);
        assert!(fault(vec![sound.clone(), sound.clone()]).contains("defined twice"));
        assert!(fault(vec![experiment("", 1, &[("x", 1)])]).contains("malformed"));
        assert!(fault(vec![experiment("a b", 1, &[("x", 1)])]).contains("malformed"));
        assert!(fault(vec![experiment("a", 0, &[("x", 1)])]).contains("a has version 0"));
        assert!(fault(vec![experiment("a", 1, &[("", 1)])]).contains("malformed arm"));
        assert!(fault(vec![experiment("a", 1, &[("x", 1), ("x", 2)])]).contains("arm twice"));
        assert!(fault(vec![experiment("a", 1, &[])]).contains("no arm that takes"));
        assert!(fault(vec![experiment("a", 1, &[("x", 0), ("y", 0)])]).contains("no arm that takes"));
    }

    #[test]
    fn definitions_are_bounded_and_one_above_is_refused() {
        let many =
            |count: usize| (0..count).map(|at| experiment(&format!("e{at}"), 1, &[("x", 1)])).collect();
        assert!(Definitions::new(many(EXPERIMENTS_MAX)).is_ok());
        assert!(Definitions::new(many(EXPERIMENTS_MAX + 1)).is_err());
        let arms = |count: usize| {
            let names: Vec<String> = (0..count).map(|at| format!("v{at}")).collect();
            let arms: Vec<_> = names.iter().map(|name| (name.as_str(), 1)).collect();
            vec![experiment("a", 1, &arms)]
        };
        assert!(Definitions::new(arms(VARIANTS_MAX)).is_ok());
        assert!(Definitions::new(arms(VARIANTS_MAX + 1)).is_err());
        let long = |bytes: usize| vec![experiment(&"a".repeat(bytes), 1, &[("x", 1)])];
        assert!(Definitions::new(long(NAME_BYTES_MAX)).is_ok());
        assert!(Definitions::new(long(NAME_BYTES_MAX + 1)).is_err());
    }

    #[test]
    fn a_surface_is_a_name() {
        assert_eq!(Surface::new("home".into()).expect("valid").as_str(), "home");
        for bad in ["", "home page", "é", &"a".repeat(NAME_BYTES_MAX + 1)] {
            let refusal = Surface::new(bad.into()).expect_err("no name");
            assert_eq!((refusal.reason(), refusal.field()), (Reason::InvalidInput, Some("surface")));
        }
    }
}
