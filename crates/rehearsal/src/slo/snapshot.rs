//! Snapshot: what the suite has used and counted at the boundary between two stages.

use std::collections::BTreeMap;

use base::{Clock, Nanos, clock::MonotonicClock};
use futures_util::future::join_all;
use http::StatusCode;

use crate::{
    control::{Control, Stats},
    scrape::Late,
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
            Some(async move { (*member, crate::admin::get(&admin, "/metrics").await) })
        });
        let (emulator, scraped) = tokio::join!(control.stats(), join_all(scrapes));
        let late = scraped.into_iter().filter_map(|(member, answer)| match answer {
            Ok((StatusCode::OK, body)) => Some((member, Late::read(&String::from_utf8_lossy(&body)))),
            _ => None,
        });
        Self { at, emulator: emulator.ok(), late: late.collect(), usage, own }
    }
}
