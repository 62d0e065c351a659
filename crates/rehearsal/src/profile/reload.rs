//! Reload: edits of the policy file under load, some of them broken, and every answer held against the generations that can have
//! been in force for it.
//!
//! Optional sections are switched off in every odd generation, so that an answer shows on its face by which one it was made: a
//! page that says one generation and has the sections of another is mixed.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use base::{Clock, Nanos, clock::MonotonicClock};
use futures_util::future::join_all;
use load::{Observe, Observed as Page};
use model::{
    load_profile::{Figure, Reload},
    policy::overlay,
};
use serde_json::Value;
use tokio::time;
use wire::home::v2::Marker;

use super::observed::{Observed, share};
use crate::{measure::scrape, slo::RehearsalError};

/// Most answers that are kept; more than any profile's callers ask for.
const PAGES_MAX: usize = 1 << 20;
/// Between two looks at whether an edit is in force.
const LOOK: Duration = Duration::from_millis(20);
/// Longest wait for one edit. The services look at the file four times a second.
const EDIT_MAX: Nanos = Nanos::from_secs(3);

/// What an answer says about the policy that it was made by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Said {
    asked_at: Nanos,
    answered_at: Nanos,
    generation: u64,
    /// Whether its optional sections are switched off; `None` when they disagree.
    disabled: Option<bool>,
}

/// Keeps what every answer says. Part of the generator.
#[derive(Debug, Default)]
pub(super) struct Ear(Mutex<Vec<Said>>);

impl Observe for Ear {
    fn answered(&self, page: &Page<'_>) {
        let optional = page.answer.optional.as_ref();
        let off = |marker: Option<i32>| marker == Some(Marker::OmittedDisabled.into());
        let (one, other) =
            (off(optional.map(|of| of.recommendations)), off(optional.map(|of| of.reputation)));
        let said = Said {
            asked_at: page.asked_at,
            answered_at: page.answered_at,
            generation: page.answer.policy_generation,
            disabled: (one == other).then_some(one),
        };
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() < PAGES_MAX {
            all.push(said);
        }
    }
}

/// A generation: from when on it can have been in force, and when it surely was in every service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reign {
    generation: u64,
    from: Nanos,
    surely: Nanos,
}

/// The file that is edited, and what its generations are.
#[derive(Debug)]
pub(super) struct Edited {
    base: (String, String),
    file: PathBuf,
    first: u64,
}

impl Edited {
    /// Writes the policy down where the suite is to read it.
    pub(super) fn prepare(
        base: (String, String),
        first: u64,
        directory: &Path,
    ) -> Result<Self, RehearsalError> {
        let file = directory.join("policy.toml");
        let edited = Self { base, file, first };
        fs::create_dir_all(directory).map_err(|error| at(directory, error))?;
        edited.write(&edited.text(first)?)?;
        Ok(edited)
    }

    pub(super) fn file(&self) -> &Path {
        &self.file
    }

    /// The policy of a generation. Its sections are switched off in every odd one.
    fn text(&self, generation: u64) -> Result<String, RehearsalError> {
        let enabled = generation.is_multiple_of(2);
        let changes = format!(
            "generation = {generation}\n[branches.recommendation]\nenabled = {enabled}\n\
             [branches.reputation]\nenabled = {enabled}\n"
        );
        overlay((&self.base.0, &self.base.1), ("the edit", &changes))
            .map_err(|faults| RehearsalError::Files(vec![faults]))
    }

    /// Replaces the file as an editor or a deployment does.
    fn write(&self, text: &str) -> Result<(), RehearsalError> {
        let beside = self.file.with_extension("new");
        fs::write(&beside, text)
            .and_then(|()| fs::rename(&beside, &self.file))
            .map_err(|error| at(&self.file, error))
    }
}

fn at(path: &Path, error: io::Error) -> RehearsalError {
    RehearsalError::Io { path: path.to_owned(), error }
}

/// Edits, and sees each edit in force, or refused, in every service.
pub(super) async fn run(
    reload: Reload,
    edits: u32,
    edited: &Edited,
    admins: &[String],
    ear: &Ear,
) -> Result<Observed, RehearsalError> {
    let mut reigns = vec![Reign { generation: edited.first, from: Nanos::ZERO, surely: Nanos::ZERO }];
    let (mut sound, mut applied, mut broken, mut refused) = (0_u64, 0_u64, 0_u64, 0_u64);
    let mut took = Nanos::ZERO;
    let mut tick = time::interval(reload.interval.into());
    // An edit that took longer moves the ones after it.
    tick.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
    for number in 1..=edits {
        tick.tick().await;
        let generation = edited.first + u64::from(number);
        let began = MonotonicClock.now();
        if number.is_multiple_of(reload.broken_every) {
            broken += 1;
            let before = refusals(admins).await;
            edited.write(&edited.text(generation)?.replace("objective_ms", "objectiv_ms"))?;
            let all = async || {
                let now = refusals(admins).await;
                before.iter().zip(&now).all(|(before, now)| before.zip(*now).is_some_and(|(b, n)| n > b))
            };
            refused += u64::from(until(began, all).await);
            continue;
        }
        sound += 1;
        edited.write(&edited.text(generation)?)?;
        let all = async || generations(admins).await.iter().all(|of| *of == Some(generation));
        if until(began, all).await {
            applied += 1;
            took = took.max(MonotonicClock.now() - began);
        }
        reigns.push(Reign { generation, from: began, surely: MonotonicClock.now() });
    }
    // Those who asked before the last edit may still wait; the books are closed on what has been answered.
    let said = std::mem::take(&mut *ear.0.lock().unwrap_or_else(PoisonError::into_inner));
    let mut observed = Observed::default();
    observed.put(Figure::ReloadEdits, (applied + refused) as f64);
    observed.put(Figure::ReloadMade, share(applied + refused, u64::from(edits)));
    observed.put(Figure::ReloadApplied, share(applied, sound));
    observed.put(Figure::ReloadRefused, share(refused, broken));
    observed.put(Figure::ReloadTook, (applied > 0).then(|| took.as_millis_f64()));
    // No answer at all would show nothing.
    let mixed = said.iter().filter(|said| is_mixed(said, &reigns)).count();
    observed.put(Figure::ReloadMixed, (!said.is_empty()).then_some(mixed as f64));
    Ok(observed)
}

/// Whether it comes to pass in time.
async fn until(began: Nanos, done: impl AsyncFn() -> bool) -> bool {
    while MonotonicClock.now() - began < EDIT_MAX {
        if done().await {
            return true;
        }
        time::sleep(LOOK).await;
    }
    false
}

/// The generation that each service goes by.
async fn generations(admins: &[String]) -> Vec<Option<u64>> {
    let each = admins.iter().map(|admin| async {
        let (_, body) = crate::admin::get(admin, "/policy").await.ok()?;
        serde_json::from_slice::<Value>(&body).ok()?["generation"].as_u64()
    });
    join_all(each).await
}

/// The files that each service has refused as invalid.
async fn refusals(admins: &[String]) -> Vec<Option<f64>> {
    let each = admins.iter().map(|admin| async {
        scrape(admin).await?.sum("mercury_policy_reloads_total", &[("outcome", "invalid")], &[])
    });
    join_all(each).await
}

/// Whether an answer is of a generation that cannot have been in force for it, or of two.
fn is_mixed(said: &Said, reigns: &[Reign]) -> bool {
    let Some(at) = reigns.iter().position(|reign| reign.generation == said.generation) else { return true };
    let too_early = said.answered_at < reigns[at].from;
    // Once the next one was surely in force, no request begins by this one.
    let too_late = reigns.get(at + 1).is_some_and(|next| next.surely < said.asked_at);
    let other_sections = said.disabled != Some(!said.generation.is_multiple_of(2));
    too_early || too_late || other_sections
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_of_one_generation_that_was_in_force_for_it() {
        let millis = Nanos::from_millis;
        let reign =
            |generation, from, surely| Reign { generation, from: millis(from), surely: millis(surely) };
        let reigns = [reign(4, 0, 0), reign(5, 100, 150), reign(6, 200, 250)];
        let said = |generation: u64, asked: u64, answered: u64| Said {
            asked_at: millis(asked),
            answered_at: millis(answered),
            generation,
            disabled: Some(generation % 2 == 1),
        };
        for sound in
            [said(4, 10, 90), said(4, 149, 240), said(5, 90, 101), said(5, 160, 300), said(6, 199, 201)]
        {
            assert!(!is_mixed(&sound, &reigns), "{sound:?}");
        }
        for mixed in [
            said(4, 151, 200),
            said(5, 10, 99),
            said(5, 251, 300),
            said(7, 300, 400),
            Said { disabled: Some(false), ..said(5, 160, 180) },
            Said { disabled: None, ..said(6, 260, 280) },
        ] {
            assert!(is_mixed(&mixed, &reigns), "{mixed:?}");
        }
    }

    #[test]
    fn an_edit_changes_what_shows_on_the_page() {
        let home = tempfile::tempdir().expect("a directory");
        let (name, text) = model::policy::SHIPPED;
        let first = model::policy::Policy::shipped().generation;
        let edited =
            Edited::prepare((name.to_owned(), text.to_owned()), first, home.path()).expect("it is written");
        let read = |generation| {
            let text = edited.text(generation).expect("a policy");
            model::policy::Policy::parse("edit", &text).expect("valid")
        };
        let (one, two) = (read(first + 1), read(first + 2));
        assert_ne!(one, two);
        assert_eq!((one.generation, two.generation), (first + 1, first + 2));
        let written = fs::read_to_string(edited.file()).expect("a file");
        assert_eq!(model::policy::Policy::parse("file", &written).expect("valid").generation, first);
        let broken = edited.text(first + 3).expect("a policy").replace("objective_ms", "objectiv_ms");
        assert!(model::policy::Policy::parse("broken", &broken).is_err(), "a broken edit is one");
    }
}
