//! Confirm: whether every process has arrived where the ledger put it. It changes nothing about the decision.

use std::fmt;

use serde::Serialize;
use tokio::time;

use super::{CONFIRM_MAX, Desk, POLL};
use crate::migration::hearing::{self, HEAR_MAX, Hearing};

/// Whether a decision arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Confirmation {
    /// It moved nobody.
    NotNeeded,
    /// Every process is there.
    ByAll,
    /// These are not, or could not be heard.
    Missing(Vec<Unconfirmed>),
}

/// A process that is not known to be where the ledger put it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unconfirmed {
    /// Its admin port.
    pub address: String,
    /// What it said last, or why there is nothing.
    pub why: String,
}

impl fmt::Display for Unconfirmed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.address, self.why)
    }
}

impl<H: Hearing> Desk<H> {
    /// Asks again and again, for a bounded time, those that are not there yet. Who is already past it is there.
    pub(super) async fn confirm(&self, generation: u64) -> Confirmation {
        let unheard =
            |address: &String| Unconfirmed { address: address.clone(), why: "not heard".to_owned() };
        let mut missing: Vec<Unconfirmed> = self.processes.iter().map(unheard).collect();
        let arrive = async {
            loop {
                let addresses: Vec<String> = missing.iter().map(|one| one.address.clone()).collect();
                let heard = hearing::all(&self.hearing, &addresses, HEAR_MAX).await;
                let not_there = heard.into_iter().filter_map(|heard| {
                    let why = match heard.report {
                        Ok(report) if report.generation >= generation => return None,
                        Ok(report) => format!(
                            "{} in {} of generation {}",
                            report.service, report.phase, report.generation
                        ),
                        Err(why) => why,
                    };
                    Some(Unconfirmed { address: heard.address, why })
                });
                missing = not_there.collect();
                if missing.is_empty() {
                    return;
                }
                time::sleep(POLL).await;
            }
        };
        // Whoever is missing then is named.
        let _ = time::timeout(CONFIRM_MAX, arrive).await;
        if missing.is_empty() && !self.processes.is_empty() {
            Confirmation::ByAll
        } else {
            Confirmation::Missing(missing)
        }
    }
}
