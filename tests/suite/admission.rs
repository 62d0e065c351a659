//! Admission: bounded by class, prompt to refuse, and never in the way of a class that keeps to its share.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU32, Ordering},
};

use ::wire::emulator::v1::fault_rule::Effect;
use base::{Dependency, Reason, headers};
use tokio::task::JoinHandle;
use tonic::Code;

use crate::harness::{
    GET_HOME, Options, SLACK, Suite, eventually, now, spawn,
    talk::{self, Told},
};

/// A gate of 40 with places for few; standard is promised 12 of it, and enterprise gets 12 at most.
fn small() -> Options {
    Options::quick().overlaid(
        "[admission.endpoint]\nslots = 48\nlimit = 40\n\
         [admission.endpoint.classes]\n\
         standard = { floor_percent = 30, ceiling_percent = 90, queue_max = 8 }\n\
         premium = { floor_percent = 10, ceiling_percent = 60, queue_max = 4 }\n\
         enterprise = { floor_percent = 6, ceiling_percent = 30, queue_max = 4 }\n",
    )
}

fn head<'a>(class: &'a str, subject: &'a str) -> [(&'a str, &'a str); 5] {
    [
        (headers::TENANT, "tenant-007"),
        (headers::SUBJECT, subject),
        (headers::CLASS, class),
        (headers::REGION, "eu-west"),
        (headers::GRPC_TIMEOUT, "2S"),
    ]
}

fn page(suite: &Suite, class: &'static str, number: u32) -> JoinHandle<Told> {
    let at = suite.home();
    spawn(async move {
        let subject = format!("user-{number:05}");
        talk::call(at, GET_HOME, &head(class, &subject), &[]).await
    })
}

async fn held(suite: &Suite, gate: &str) -> f64 {
    suite.scrape("home-api").await.sum("mercury_home_held", &[("gate", gate)])
}

#[tokio::test]
async fn a_full_gate_refuses_at_once_and_says_when_to_come_back() {
    let suite = Suite::start_with(small()).await;
    suite.fault(Dependency::Pricing, Effect::DelayMs(1_000)).await;
    // Enterprise fills its ceiling of 12.
    let holders: Vec<_> = (0..12).map(|number| page(&suite, "enterprise", number)).collect();
    eventually("the ceiling is reached", async || held(&suite, "endpoint").await == 12.0).await;
    let began = now();
    let refused = suite.both(&head("enterprise", "user-00099")).await;
    refused.refused(Reason::Overload);
    assert!(now() - began < SLACK, "a refusal waits for its age at most");
    assert!(
        refused.grpc.header("grpc-retry-pushback-ms").parse::<u64>().is_ok_and(|hint| hint > 0),
        "{refused:?}"
    );
    assert!(!refused.http.header("retry-after").is_empty(), "{refused:?}");
    assert_eq!(refused.http.error("phase"), "admission");
    // Another class has its floor.
    let standard = page(&suite, "standard", 100);
    eventually("standard is let in", async || held(&suite, "endpoint").await == 13.0).await;
    for holder in holders {
        assert_eq!(holder.await.expect("no panic").code(), Code::Ok);
    }
    assert_eq!(standard.await.expect("no panic").code(), Code::Ok);
    suite.until_idle().await;
    assert_eq!((held(&suite, "endpoint").await, held(&suite, "profile").await), (0.0, 0.0));
    suite.finish().await;
}

/// Ten callers of standard that ask one page after the other, beside a flood of enterprise or without.
async fn standard_beside(suite: &Suite, flood: bool) -> (u32, u32, u32) {
    const CALLERS: u32 = 10;
    const PAGES: u32 = 15;
    let stop = Arc::new(AtomicBool::new(false));
    let refused = Arc::new(AtomicU32::new(0));
    // Enterprise is 5 % of the declared mix against standard's 72: ten times its share is seven callers to ten of
    // standard's. Each asks again at once, and ten of them press on while the others hold.
    let flooders: Vec<_> = (0..if flood { 40 } else { 0 })
        .map(|number| {
            let (at, stop, refused) = (suite.home(), Arc::clone(&stop), Arc::clone(&refused));
            spawn(async move {
                let subject = format!("user-{:05}", 1_000 + number);
                while !stop.load(Ordering::Relaxed) {
                    let told = talk::call(at, GET_HOME, &head("enterprise", &subject), &[]).await;
                    match told.code() {
                        Code::Ok => {}
                        Code::ResourceExhausted => drop(refused.fetch_add(1, Ordering::Relaxed)),
                        other => panic!("{other:?}: {told:?}"),
                    }
                }
            })
        })
        .collect();
    if flood {
        eventually("the flood is refused", async || refused.load(Ordering::Relaxed) > 20).await;
    }
    let callers: Vec<_> = (0..CALLERS)
        .map(|number| {
            let at = suite.home();
            spawn(async move {
                let subject = format!("user-{number:05}");
                let mut good = 0;
                for _ in 0..PAGES {
                    let told = talk::call(at, GET_HOME, &head("standard", &subject), &[]).await;
                    good += u32::from(told.code() == Code::Ok);
                }
                good
            })
        })
        .collect();
    let mut good = 0;
    for caller in callers {
        good += caller.await.expect("no panic");
    }
    stop.store(true, Ordering::Relaxed);
    for flooder in flooders {
        flooder.await.expect("no panic");
    }
    (good, CALLERS * PAGES, refused.load(Ordering::Relaxed))
}

#[tokio::test]
async fn a_flood_of_enterprise_is_refused_its_excess_and_standard_does_not_notice() {
    let suite = Suite::start_with(small()).await;
    suite.fault(Dependency::Pricing, Effect::DelayMs(60)).await;
    let (unflooded, offered, _) = standard_beside(&suite, false).await;
    let (flooded, _, refused) = standard_beside(&suite, true).await;
    assert_eq!(unflooded, offered);
    assert!(f64::from(flooded) >= 0.99 * f64::from(unflooded), "{flooded} of {unflooded}");
    assert!(refused > 20, "the excess was refused: {refused}");
    let home = suite.scrape("home-api").await;
    let outcome = |class, outcome| {
        let labels = [("gate", "endpoint"), ("class", class), ("outcome", outcome)];
        home.sum("mercury_home_admission_total", &labels)
    };
    let turned_away = outcome("enterprise", "queue_full") + outcome("enterprise", "too_old");
    assert_eq!(turned_away, f64::from(refused));
    assert_eq!(outcome("standard", "queue_full") + outcome("standard", "too_old"), 0.0);
    // What was offered is the sum of what became of it.
    for class in ["standard", "premium", "enterprise"] {
        let offered = home.sum("mercury_home_requests_total", &[("class", class)]);
        assert_eq!(offered, home.sum("mercury_home_finished_total", &[("class", class)]), "{class}");
    }
    suite.until_idle().await;
    assert_eq!((held(&suite, "endpoint").await, held(&suite, "profile").await), (0.0, 0.0));
    suite.finish().await;
}

#[tokio::test]
async fn in_shadow_nobody_is_refused_and_who_would_be_is_counted() {
    let options = small().overlaid("[mechanisms.admission]\nmode = \"shadow\"\n");
    let suite = Suite::start_with(options).await;
    suite.fault(Dependency::Pricing, Effect::DelayMs(600)).await;
    let pages: Vec<_> = (0..20).map(|number| page(&suite, "enterprise", number)).collect();
    eventually("all are under way", async || held(&suite, "endpoint").await == 20.0).await;
    for page in pages {
        let told = page.await.expect("no panic");
        assert_eq!(told.code(), Code::Ok, "{told:?}");
        assert!(told.header(headers::MECHANISMS).contains("admission=shadow"), "{told:?}");
    }
    let home = suite.scrape("home-api").await;
    let rejected = [("mechanism", "admission"), ("intended", "reject"), ("actual", "admit")];
    assert_eq!(home.sum("mercury_home_decisions_total", &rejected), 8.0);
    suite.until_idle().await;
    suite.finish().await;
}

#[tokio::test]
async fn a_waiter_gets_the_slot_that_comes_free_and_its_wait_is_told() {
    let options = small().overlaid("[admission.endpoint]\nqueue_age_max_ms = 1500\n");
    let suite = Suite::start_with(options).await;
    suite.fault(Dependency::Pricing, Effect::DelayMs(300)).await;
    let holders: Vec<_> = (0..12).map(|number| page(&suite, "enterprise", number)).collect();
    eventually("the ceiling is reached", async || held(&suite, "endpoint").await == 12.0).await;
    let waiter = suite.get(&head("enterprise", "user-00099")).await;
    assert_eq!(waiter.status, 200, "{waiter:?}");
    let timing = waiter.header("server-timing");
    let wait = timing.strip_prefix("admission;dur=0;wait=").and_then(|rest| rest.split(',').next());
    let wait: f64 = wait.and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("{timing}"));
    assert!(wait > 5.0 && wait < 1_500.0, "{timing}");
    for holder in holders {
        assert_eq!(holder.await.expect("no panic").code(), Code::Ok);
    }
    suite.until_idle().await;
    let home = suite.scrape("home-api").await;
    // The integral of slots held: thirteen pages of some 300 ms each.
    let held = home.sum("mercury_home_permit_seconds_total", &[("gate", "endpoint")]);
    assert!((13.0 * 0.3..13.0 * 1.0).contains(&held), "{held}");
    suite.finish().await;
}
