//! Snapshot: what the suite has used and counted at the boundary between two stages.

use std::collections::BTreeMap;

use base::{Clock, Nanos, clock::MonotonicClock};
use futures_util::future::join_all;
use http::StatusCode;

use super::reading::Reading;
use crate::{
    control::{Control, Stats},
    scrape::{ADMIN, Histogram, Late, Scrape},
    suite::{Member, Suite},
    usage::{self, Usage},
};

/// Counters at one instant. What could not be read is missing, not zero.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) at: Nanos,
    pub(crate) emulator: Option<Stats>,
    pub(crate) late: BTreeMap<Member, Late>,
    pub(crate) usage: BTreeMap<Member, Usage>,
    /// Of this process, which generates the load.
    pub(crate) own: Option<Usage>,
    pub(crate) home: Option<Reading>,
    /// From a cancellation to the end of the work, by member.
    pub(super) stops: BTreeMap<Member, Histogram>,
}

impl Snapshot {
    /// Reads everything, all members at once.
    pub(crate) async fn take(suite: &Suite, control: &mut Control) -> Self {
        let at = MonotonicClock.now();
        let running: Vec<(Member, u32)> = suite.running().collect();
        let usage = running.iter().filter_map(|(member, pid)| Some((*member, usage::read(*pid).ok()?)));
        let usage = usage.collect();
        let own = usage::read(std::process::id()).ok();
        let scrapes = running.iter().filter_map(|(member, _)| {
            let admin = suite.endpoints().get(*member)?.admin.clone();
            Some(async move { (*member, scrape(&admin).await) })
        });
        let (emulator, scraped) = tokio::join!(control.stats(), join_all(scrapes));
        let scraped: BTreeMap<Member, Scrape> =
            scraped.into_iter().filter_map(|(member, scrape)| Some((member, scrape?))).collect();
        let stop =
            |scrape: &Scrape| scrape.histogram("mercury_cancellation_stop_delay_seconds", &[], &[ADMIN]);
        Self {
            at,
            emulator: emulator.ok(),
            late: scraped.iter().map(|(member, scrape)| (*member, Late::read(scrape))).collect(),
            usage,
            own,
            home: scraped.get(&Member::HOME_API).map(Reading::of),
            stops: scraped.iter().filter_map(|(member, scrape)| Some((*member, stop(scrape)?))).collect(),
        }
    }
}

/// The metrics of a member, when it answers.
pub(crate) async fn scrape(admin: &str) -> Option<Scrape> {
    match crate::admin::get(admin, "/metrics").await {
        Ok((StatusCode::OK, body)) => Some(Scrape::new(String::from_utf8_lossy(&body))),
        _ => None,
    }
}
