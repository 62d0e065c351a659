//! Documents: the files of a rehearsal, read and checked together, and the policies that its suites are given.

use std::{
    fs,
    path::{Path, PathBuf},
};

use model::{
    policy::{self, Mechanism, Policy},
    scenario::{self, Scenario},
    workload::{self, Workload},
};

use super::{RehearsalError, STATES, SloOptions};
use crate::gates::Role;

/// A policy of the rehearsal.
#[derive(Clone, Debug)]
pub(crate) struct Side {
    pub(crate) role: Role,
    /// Its name in reports: of its file, without directory and extension.
    pub(crate) name: String,
    /// Its name on the screen.
    pub(crate) label: String,
    pub(crate) policy: Policy,
    text: String,
}

/// All documents.
#[derive(Clone, Debug)]
pub(crate) struct Documents {
    /// Before first.
    pub(crate) sides: Vec<Side>,
    pub(crate) scenario: Scenario,
    pub(crate) workload: Workload,
}

impl Documents {
    /// Reads them, and reports the faults of all of them at once.
    pub(crate) fn read(options: &SloOptions) -> Result<Self, RehearsalError> {
        let mut faults = Vec::new();
        let mut sides = Vec::new();
        for role in options.roles() {
            let (path, shipped) = match role {
                Role::Before => (options.before.as_deref(), policy::LEGACY),
                Role::After => (options.policy.as_deref(), policy::SHIPPED),
            };
            let (name, text) = text(path, shipped)?;
            match Policy::parse(&name, &text) {
                Ok(policy) => sides.push(Side::new(role, &name, text, policy)),
                Err(found) => faults.push(found),
            }
        }
        let (name, text_of) = text(options.scenario.as_deref(), scenario::SHIPPED)?;
        let scenario = Scenario::parse(&name, &text_of).map_err(|found| faults.push(found)).ok();
        let (name, text_of) = text(options.workload.as_deref(), workload::SHIPPED)?;
        let workload = Workload::parse(&name, &text_of).map_err(|found| faults.push(found)).ok();
        let (Some(scenario), Some(workload), true) = (scenario, workload, faults.is_empty()) else {
            return Err(RehearsalError::Files(faults));
        };
        let missing = STATES.iter().map(|(state, _)| *state);
        let missing: Vec<&str> = missing.filter(|state| scenario.phase_index(state).is_none()).collect();
        if !missing.is_empty() {
            let text = format!("scenario {}: it has no phase {}", scenario.name, missing.join(", "));
            return Err(RehearsalError::Usage(text));
        }
        if let [before, after] = sides.as_mut_slice() {
            tell_apart(before, after)?;
        }
        Ok(Self { sides, scenario, workload })
    }

    /// The policy that is judged: the one after, or the only one.
    pub(crate) fn judged(&self) -> Option<&Side> {
        self.sides.last()
    }
}

impl Side {
    fn new(role: Role, file: &str, text: String, policy: Policy) -> Self {
        let stem = Path::new(file).file_stem().map(|stem| stem.to_string_lossy().into_owned());
        let name = stem.filter(|stem| !stem.is_empty()).unwrap_or_else(|| "policy".to_owned());
        let label = match (role, name.as_str()) {
            (Role::Before, "policy-legacy") => "legacy".to_owned(),
            (Role::After, "policy") => "repaired".to_owned(),
            _ => name.clone(),
        };
        Self { role, name, label, policy, text }
    }

    /// Writes it where its suite reads it, which is also where the evidence keeps it.
    pub(crate) fn write(&self, directory: &Path) -> Result<PathBuf, RehearsalError> {
        write(directory, &self.name, &self.text)
    }

    /// Writes this policy with one mechanism switched on for everybody and the others as they are.
    pub(crate) fn write_with(
        &self,
        mechanism: Mechanism,
        directory: &Path,
    ) -> Result<PathBuf, RehearsalError> {
        let name = format!("alone-{mechanism}");
        let generation = self.policy.generation.saturating_add(1);
        let changes = format!("generation = {generation}\n[mechanisms.{mechanism}]\nmode = \"on\"\n");
        let text = policy::overlay((&self.name, &self.text), (&name, &changes))
            .map_err(|faults| RehearsalError::Files(vec![faults]))?;
        write(directory, &name, &text)
    }
}

/// Two policies of one name would be one in the report; two of one objective are needed to compare.
fn tell_apart(before: &mut Side, after: &mut Side) -> Result<(), RehearsalError> {
    if before.policy.objective != after.policy.objective {
        let text = format!(
            "the policies have different objectives, {} and {}: there is nothing to compare",
            before.policy.objective, after.policy.objective
        );
        return Err(RehearsalError::Usage(text));
    }
    if before.name == after.name {
        for (side, suffix) in [(before, "before"), (after, "after")] {
            side.name = format!("{}-{suffix}", side.name);
            side.label.clone_from(&side.name);
        }
    }
    Ok(())
}

/// The text of a file, or what is shipped, with its name.
fn text(path: Option<&Path>, shipped: (&str, &str)) -> Result<(String, String), RehearsalError> {
    let Some(path) = path else { return Ok((shipped.0.to_owned(), shipped.1.to_owned())) };
    let text =
        fs::read_to_string(path).map_err(|error| RehearsalError::Io { path: path.to_owned(), error })?;
    Ok((path.display().to_string(), text))
}

fn write(directory: &Path, name: &str, text: &str) -> Result<PathBuf, RehearsalError> {
    let path = directory.join(format!("{name}.toml"));
    fs::create_dir_all(directory)
        .and_then(|()| fs::write(&path, text))
        .map_err(|error| RehearsalError::Io { path: path.clone(), error })?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slo::Preset;

    fn options() -> SloOptions {
        SloOptions::new(Preset::quick(), "out")
    }

    #[test]
    fn the_shipped_policies_have_their_names_and_one_mechanism_is_switched_at_a_time() {
        let documents = Documents::read(&options()).expect("the shipped ones are valid");
        let names: Vec<_> =
            documents.sides.iter().map(|side| (side.name.as_str(), side.label.as_str())).collect();
        assert_eq!(names, [("policy-legacy", "legacy"), ("policy", "repaired")]);
        let home = tempfile::tempdir().expect("a directory");
        let before = &documents.sides[0];
        for mechanism in options().alone() {
            let path = before.write_with(mechanism, home.path()).expect("written");
            let text = fs::read_to_string(&path).expect("read");
            let policy = Policy::parse("alone", &text).expect("valid");
            let on = |policy: &Policy| {
                let is_on = |name: &Mechanism| policy.mechanism(*name).mode().as_str() == "on";
                Mechanism::ALL.into_iter().filter(is_on).collect::<Vec<_>>()
            };
            assert_eq!((on(&before.policy), on(&policy)), (vec![], vec![mechanism]));
            assert!(policy.generation > before.policy.generation);
        }
    }

    #[test]
    fn the_same_name_twice_is_told_apart_and_one_policy_needs_no_other() {
        let home = tempfile::tempdir().expect("a directory");
        let path = home.path().join("policy.toml");
        fs::write(&path, policy::LEGACY.1).expect("written");
        let twice = SloOptions { before: Some(path.clone()), ..options() };
        let documents = Documents::read(&twice).expect("valid");
        let names: Vec<_> = documents.sides.iter().map(|side| side.name.as_str()).collect();
        assert_eq!(names, ["policy-before", "policy-after"]);
        let only = SloOptions { only: Some(Role::Before), ..twice };
        let documents = Documents::read(&only).expect("valid");
        assert_eq!(documents.judged().expect("one").name, "policy");
    }

    #[test]
    fn two_objectives_cannot_be_compared() {
        let home = tempfile::tempdir().expect("a directory");
        let path = home.path().join("other.toml");
        fs::write(&path, policy::SHIPPED.1.replace("objective_ms = 300", "objective_ms = 400"))
            .expect("written");
        let other = SloOptions { policy: Some(path), ..options() };
        let error = Documents::read(&other).expect_err("nothing to compare");
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("300.000 ms and 400.000 ms"), "{error}");
    }
}
