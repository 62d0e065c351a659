//! Hearing: how a process is asked what it has to say about the migration. Who is asked is handed in, so that decisions are
//! tested without a socket.

use std::{future::Future, time::Duration};

use ::rollout::report::{PATH, ProcessReport};
use futures_util::future;
use http::StatusCode;
use tokio::time;

use super::judge::Heard;
use crate::{admin, suite::Endpoints};

/// Most rows of counts that a report may have: all kinds by three classes and a bounded number of regions are far below.
const ROWS_MAX: usize = 4_096;

/// How long a process is waited for at most: longer than [`Admin`] waits, whose word on what is wrong says more.
pub(super) const HEAR_MAX: Duration = Duration::from_millis(2_500);

/// Who can be asked.
pub trait Hearing {
    /// What the process at `address` (the host and port of its admin port) says, or why there is nothing.
    fn hear(&self, address: &str) -> impl Future<Output = Result<ProcessReport, String>>;
}

/// The admin ports of processes; two seconds each.
#[derive(Clone, Copy, Debug, Default)]
pub struct Admin;

impl Hearing for Admin {
    async fn hear(&self, address: &str) -> Result<ProcessReport, String> {
        let (status, body) = admin::get(address, PATH).await.map_err(|error| error.to_string())?;
        if status != StatusCode::OK {
            return Err(format!(
                "GET http://{address}{PATH}: it answers {status}: it has no part in a migration"
            ));
        }
        let report: ProcessReport = serde_json::from_slice(&body)
            .map_err(|error| format!("GET http://{address}{PATH}: not a report of this version: {error}"))?;
        let rows = report.counts.comparisons.len() + report.counts.authority.len();
        if rows > ROWS_MAX {
            return Err(format!("GET http://{address}{PATH}: {rows} rows of counts, more than {ROWS_MAX}"));
        }
        Ok(report)
    }
}

/// Asks all of them at once. Who has not answered when `within` is over says nothing.
pub(super) async fn all(hearing: &impl Hearing, addresses: &[String], within: Duration) -> Vec<Heard> {
    let one = async |address: &String| {
        let report = time::timeout(within, hearing.hear(address)).await;
        let report = report.unwrap_or_else(|_| Err(format!("no answer within {} ms", within.as_millis())));
        Heard { address: address.clone(), report }
    };
    future::join_all(addresses.iter().map(one)).await
}

/// The admin ports of a suite's processes that take part: every home-api, and profile.
pub fn taking_part(endpoints: &Endpoints) -> Vec<String> {
    let takes_part = |name: &str| name == "profile" || name == "home-api" || name.starts_with("home-api-");
    endpoints.iter().filter(|(name, _)| takes_part(name)).map(|(_, at)| at.admin.clone()).collect()
}
