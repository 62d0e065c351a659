//! Schema: the steps that the tables of a ledger take, and which program may use which ledger. One rule for all stores.
//!
//! Several replicas use one ledger and are never replaced in one moment, so a new version of the tables meets old programs.
//! A change is therefore two steps, in two releases. A step that only adds (a table, a column with a default, an
//! index) *expands*: programs that know less go on as before. A step that takes something away, or asks for more than
//! before, *contracts*: it comes only when no program is left that needs what goes. The ledger keeps two numbers:
//! `version`, the steps that it has taken, and `compatible_from`, how many steps a program must know to use it. Expanding
//! leaves the second one; contracting raises it to the step's own version. A program that knows fewer steps than that
//! refuses the ledger; one that knows more takes the missing steps when it starts.
//!
//! A step that has been released is never edited, moved or removed.

/// A step, as SQL.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// Only adds.
    Expand(&'static str),
    /// Takes away, or asks for more.
    #[cfg_attr(not(test), expect(dead_code, reason = "no step has taken anything away yet"))]
    Contract(&'static str),
}

impl Step {
    pub(super) const fn sql(self) -> &'static str {
        match self {
            Self::Expand(sql) | Self::Contract(sql) => sql,
        }
    }
}

/// What a ledger says of its tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Version {
    /// Steps that it has taken.
    pub(super) taken: usize,
    /// Steps that a program must know.
    pub(super) compatible_from: usize,
}

impl Version {
    /// After all of `steps`. The first one makes the tables, so every program must know it.
    pub(super) fn after(steps: &[Step]) -> Self {
        let last_contraction = steps.iter().rposition(|step| matches!(step, Step::Contract(_)));
        Self { taken: steps.len(), compatible_from: last_contraction.unwrap_or(0) + 1 }
    }

    /// Whether a program that knows `known` steps may use the ledger.
    ///
    /// # Errors
    /// Why not, for the operator.
    pub(super) fn usable(self, known: usize) -> Result<(), String> {
        if self.compatible_from <= known {
            return Ok(());
        }
        Err(format!(
            "its schema has version {}, which needs a program that knows version {}; this one knows up to {known}",
            self.taken, self.compatible_from
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAKE: Step = Step::Expand("make");
    const ADD: Step = Step::Expand("add");
    const DROP: Step = Step::Contract("drop");

    #[test]
    fn expanding_keeps_old_programs_and_contracting_ends_them() {
        let usable = |steps: &[Step], known| Version::after(steps).usable(known).is_ok();
        assert!(usable(&[MAKE], 1));
        assert!(usable(&[MAKE, ADD], 1) && usable(&[MAKE, ADD], 2));
        assert!(!usable(&[MAKE, ADD, DROP], 2) && usable(&[MAKE, ADD, DROP], 3));
        assert!(usable(&[MAKE, ADD, DROP, ADD], 3), "what is added later asks no more");
        let refusal = Version::after(&[MAKE, ADD, DROP, ADD]).usable(2).expect_err("too old");
        assert!(
            refusal.contains("version 4") && refusal.contains("version 3") && refusal.contains("up to 2")
        );
    }
}
