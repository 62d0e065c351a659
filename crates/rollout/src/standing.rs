//! Standing: the phase that the ledger puts every process in. The ledger's last acknowledged decision is the only place
//! where a phase is kept, so a process that starts again, at whatever moment, finds the one that all others are in.

use std::{fmt, path::Path};

use crate::{
    Phase, SUBJECT,
    ledger::{self, Decision, Entry, Head, LedgerError},
};

/// Where the migration stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The phase.
    pub phase: Phase,
    /// The number of the decision that put it there: it rises with every change of the phase, forward or back.
    pub generation: u64,
    /// When that was decided, in milliseconds since the Unix epoch.
    pub since_unix_ms: i64,
}

/// Why a ledger says nothing that can be served by.
#[derive(Debug)]
pub enum StandingError {
    /// The ledger cannot be relied on.
    Ledger(LedgerError),
    /// It puts the migration in a phase that this version does not know.
    UnknownPhase(String),
}

impl fmt::Display for StandingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ledger(error) => error.fmt(f),
            Self::UnknownPhase(phase) => {
                write!(f, "the ledger is in phase {phase:?}, which this version does not know")
            }
        }
    }
}

impl std::error::Error for StandingError {}

impl Standing {
    /// After these entries; `None` before the migration's first decision.
    ///
    /// # Errors
    /// [`StandingError::UnknownPhase`].
    pub fn of<'e>(
        entries: impl DoubleEndedIterator<Item = &'e Entry> + Clone,
    ) -> Result<Option<Self>, StandingError> {
        let own = entries.filter(|entry| entry.subject == SUBJECT && entry.decision != Decision::Repair);
        let Some(position) = own.clone().next_back().and_then(Entry::position) else { return Ok(None) };
        let phase = Phase::parse(position).ok_or_else(|| StandingError::UnknownPhase(position.to_owned()))?;
        let put = |entry: &&Entry| !matches!(entry.decision, Decision::Hold | Decision::Refuse);
        Ok(own.rev().find(put).map(|entry| Self {
            phase,
            generation: entry.sequence,
            since_unix_ms: entry.at_unix_ms,
        }))
    }

    /// By the ledger at `path`, and the ledger's head. A ledger that is not there yet puts nobody anywhere.
    ///
    /// # Errors
    /// [`StandingError`] when it cannot be relied on.
    pub fn read(path: &Path) -> Result<(Option<Self>, Option<Head>), StandingError> {
        if !path.exists() && ledger::head(path).map_err(StandingError::Ledger)?.is_none() {
            return Ok((None, None));
        }
        let verified = ledger::verify(path).map_err(StandingError::Ledger)?;
        let head =
            verified.entries.last().map(|last| Head { sequence: last.sequence, digest: last.digest.clone() });
        Ok((Self::of(verified.entries.iter())?, head))
    }
}

#[cfg(test)]
mod tests {
    use base::WallClock;
    use serde_json::json;

    use super::*;
    use crate::ledger::{Draft, Ledger};

    struct At(i64);
    impl WallClock for At {
        fn unix_ms(&self) -> i64 {
            self.0
        }
    }

    fn draft(subject: &str, from: Option<&str>, to: &str, decision: Decision) -> Draft {
        Draft {
            actor: "ines".to_owned(),
            command: "mercury rollout advance".to_owned(),
            subject: subject.to_owned(),
            from: from.map(str::to_owned),
            to: to.to_owned(),
            decision,
            reason: "because".to_owned(),
            policy: None,
            evidence: json!({}),
        }
    }

    #[test]
    fn it_is_the_last_change_of_this_subject_and_not_the_last_word() {
        let home = tempfile::tempdir().expect("a directory");
        let path = home.path().join("decisions.ndjson");
        assert_eq!(Standing::read(&path).expect("nothing yet"), (None, None));
        let mut ledger = Ledger::open(&path, &At(1)).expect("opened");
        let steps = [
            (SUBJECT, None, "legacy", Decision::Begin),
            (SUBJECT, Some("legacy"), "expand", Decision::Advance),
            ("home-path", None, "contract", Decision::Begin),
            (SUBJECT, Some("expand"), "shadow", Decision::Hold),
            (SUBJECT, Some("expand"), "shadow", Decision::Refuse),
        ];
        for (at, (subject, from, to, decision)) in steps.into_iter().enumerate() {
            ledger.append(draft(subject, from, to, decision), &At(10 + at as i64)).expect("appended");
        }
        let (standing, head) = Standing::read(&path).expect("sound");
        let expected = Standing { phase: Phase::Expand, generation: 2, since_unix_ms: 11 };
        assert_eq!(standing, Some(expected));
        assert_eq!(head.map(|head| head.sequence), Some(5));
        let back = draft(SUBJECT, Some("expand"), "legacy", Decision::Reverse);
        ledger.append(back, &At(20)).expect("appended");
        let (standing, _) = Standing::read(&path).expect("sound");
        assert_eq!(standing, Some(Standing { phase: Phase::Legacy, generation: 6, since_unix_ms: 20 }));
    }

    #[test]
    fn a_phase_of_a_later_version_and_an_edited_ledger_are_named() {
        let home = tempfile::tempdir().expect("a directory");
        let path = home.path().join("decisions.ndjson");
        let mut ledger = Ledger::open(&path, &At(1)).expect("opened");
        ledger.append(draft(SUBJECT, None, "dissolved", Decision::Begin), &At(1)).expect("appended");
        let told = Standing::read(&path).expect_err("unknown").to_string();
        assert!(told.contains("\"dissolved\""), "{told}");
        let text = std::fs::read_to_string(&path).expect("there");
        std::fs::write(&path, text.replace("dissolved", "shadow")).expect("written");
        assert!(matches!(Standing::read(&path), Err(StandingError::Ledger(_))));
        // A ledger that was taken away while its head is still there is no ledger that was never begun.
        std::fs::remove_file(&path).expect("removed");
        assert!(matches!(Standing::read(&path), Err(StandingError::Ledger(_))));
    }
}
