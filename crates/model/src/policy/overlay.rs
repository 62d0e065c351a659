//! Overlay: a policy made of another one and a few changes, as a rollout makes it phase by phase. Tables are merged key by
//! key; anything else in the changes takes the place of what was there.

use toml::{Table, Value};

use super::Policy;
use crate::{faults::Faults, read};

/// The text of the policy that `changes` make of `base`, both given as a file name for messages and a text. Comments are
/// not carried over.
///
/// # Errors
/// [`Faults`] of whichever is not TOML, or of the policy that results; their lines are those of that document.
pub fn overlay(base: (&str, &str), changes: (&str, &str)) -> Result<String, Faults> {
    let text = merged(base, changes)?;
    Policy::parse(changes.0, &text)?;
    Ok(text)
}

/// A document with changes in its own form, whatever it is a document of.
///
/// # Errors
/// [`Faults`] of whichever is not TOML.
pub(crate) fn merged(base: (&str, &str), changes: (&str, &str)) -> Result<String, Faults> {
    let mut merged = table(base)?;
    merge(&mut merged, table(changes)?);
    toml::to_string(&merged).map_err(|error| Faults::whole(changes.0, error.to_string()))
}

fn table((name, text): (&str, &str)) -> Result<Table, Faults> {
    read::syntax(name, text)?;
    text.parse().map_err(|error: toml::de::Error| Faults::whole(name, error.message().to_owned()))
}

fn merge(into: &mut Table, from: Table) {
    for (key, value) in from {
        match (into.get_mut(&key), value) {
            (Some(Value::Table(inner)), Value::Table(changes)) => merge(inner, changes),
            (_, value) => {
                into.insert(key, value);
            }
        }
    }
}
