//! Check, tested: a sound answer passes, and every way in which one can be broken is found.

use wire::home::v2::{Entitlement, ItemAvailability, OptionalSections, PriceLine, Profile, Reputation};

use super::{tests_support::sound, *};

fn asked(subject: &'static str) -> Asked<'static> {
    Asked {
        tenant: "tenant-001",
        subject,
        class: "standard",
        region: "eu-west",
        request_id: "peak-1",
        attempt: 1,
        timeout: None,
    }
}

#[test]
fn a_sound_answer_passes_and_an_empty_section_is_no_omission() {
    let markers = check(&asked("user-00001"), &sound()).expect("sound");
    assert!(!markers.degraded());
    let mut degraded = sound();
    degraded.recommendations = None;
    degraded.optional = Some(OptionalSections {
        recommendations: Marker::OmittedTimeout.into(),
        reputation: Marker::Empty.into(),
    });
    assert!(check(&asked("user-00001"), &degraded).expect("degraded and correct").degraded());
}

/// One way to break a sound answer.
type Break = fn(&mut GetHomeResponse);

#[test]
fn every_break_is_found_by_its_name() {
    fn profile(answer: &mut GetHomeResponse) -> &mut Profile {
        answer.profile.as_mut().expect("set")
    }
    fn entitlement(answer: &mut GetHomeResponse) -> &mut Entitlement {
        answer.entitlement.as_mut().expect("set")
    }
    fn items(answer: &mut GetHomeResponse) -> &mut Vec<ItemAvailability> {
        &mut answer.inventory.as_mut().expect("set").items
    }
    fn lines(answer: &mut GetHomeResponse) -> &mut Vec<PriceLine> {
        &mut answer.pricing.as_mut().expect("set").lines
    }
    fn optional(answer: &mut GetHomeResponse) -> &mut OptionalSections {
        answer.optional.as_mut().expect("set")
    }
    let breaks: &[(Violation, Break)] = &[
        (Violation::CoreIncomplete, |a| a.core_complete = false),
        (Violation::RequestId, |a| a.request_id.push('x')),
        (Violation::SectionMissing, |a| a.profile = None),
        (Violation::SectionMissing, |a| a.entitlement = None),
        (Violation::SectionMissing, |a| a.inventory = None),
        (Violation::SectionMissing, |a| a.pricing = None),
        (Violation::WrongIdentity, |a| profile(a).tenant = "tenant-002".to_owned()),
        (Violation::WrongIdentity, |a| profile(a).subject = "user-00002".to_owned()),
        (Violation::ProfileEmpty, |a| profile(a).plan.clear()),
        (Violation::Claims, |a| entitlement(a).claims.reverse()),
        (Violation::Claims, |a| entitlement(a).claims[1] = "a".to_owned()),
        (Violation::Claims, |a| entitlement(a).policy_version = 0),
        (Violation::Claims, |a| entitlement(a).authority.clear()),
        (Violation::Items, |a| items(a).clear()),
        (Violation::Items, |a| items(a).truncate(1)),
        (Violation::Items, |a| items(a).reverse()),
        (Violation::Items, |a| items(a)[0].available_units = 0),
        (Violation::Items, |a| items(a)[0].status.clear()),
        (Violation::Items, |a| {
            items(a)[1].item_id = "item-0001".to_owned();
            lines(a)[1].item_id = "item-0001".to_owned();
        }),
        (Violation::Price, |a| lines(a)[0].net_minor_units = 501),
        (Violation::Price, |a| lines(a)[0].net_minor_units = -1),
        (Violation::Price, |a| a.pricing.as_mut().expect("set").currency_code.clear()),
        (Violation::Experiments, |a| a.experiments.clear()),
        (Violation::Experiments, |a| a.experiments[1].experiment_id = "layout".to_owned()),
        (Violation::Experiments, |a| a.experiments[0].event_id.clear()),
        (Violation::Experiments, |a| a.experiments[1].effect = "conflict".to_owned()),
        (Violation::Marker, |a| a.optional = None),
        (Violation::Marker, |a| optional(a).recommendations = Marker::Unspecified.into()),
        (Violation::Marker, |a| optional(a).reputation = 99),
        (Violation::Marker, |a| optional(a).recommendations = Marker::Empty.into()),
        (Violation::Marker, |a| a.recommendations = None),
        (Violation::Marker, |a| a.reputation = Some(Reputation::default())),
    ];
    for (at, (expected, broken)) in breaks.iter().enumerate() {
        let mut answer = sound();
        broken(&mut answer);
        let found = check(&asked("user-00001"), &answer).expect_err("broken");
        assert_eq!(found.violation, *expected, "break {at}: {}", found.detail);
    }
    let seen: HashSet<Violation> = breaks.iter().map(|(violation, _)| *violation).collect();
    assert_eq!(seen.len(), Violation::ALL.len() - 1, "all but the one that needs two answers");
}

#[test]
fn a_finding_does_not_repeat_the_values_of_a_customer() {
    let mut answer = sound();
    answer.profile.as_mut().expect("set").subject = "user-09999".to_owned();
    let found = check(&asked("user-00001"), &answer).expect_err("broken");
    assert!(!found.detail.contains("user-"), "{}", found.detail);
}

#[test]
fn two_answers_to_one_identity_agree_in_their_stable_parts() {
    let mut stability = Stability::default();
    let mut answer = sound();
    assert!(stability.compare(&asked("user-00001"), &answer).is_ok());
    // Stock and discounts may move.
    answer.inventory.as_mut().expect("set").items[0].available_units = 2;
    answer.pricing.as_mut().expect("set").lines[0].net_minor_units = 400;
    assert!(stability.compare(&asked("user-00001"), &answer).is_ok());
    answer.experiments[0].variant = "z".to_owned();
    let found = stability.compare(&asked("user-00001"), &answer).expect_err("another arm");
    assert_eq!(found.violation, Violation::Unstable);
    // Another identity starts anew.
    assert!(stability.compare(&asked("user-00002"), &answer).is_ok());
    for change in [
        (|a| a.profile.as_mut().expect("set").plan.push('x')) as Break,
        |a| a.entitlement.as_mut().expect("set").claims.push("c".to_owned()),
        |a| a.pricing.as_mut().expect("set").lines[0].list_minor_units += 1,
    ] {
        let mut other = sound();
        change(&mut other);
        assert!(stability.compare(&asked("user-00001"), &other).is_err());
    }
}

#[test]
fn the_map_of_identities_is_bounded() {
    let mut stability =
        Stability { seen: (0..IDENTITIES_MAX as u64).map(|n| (n, n)).collect(), untracked: 0 };
    assert!(stability.compare(&asked("user-00001"), &sound()).is_ok());
    assert_eq!(stability.untracked(), 1);
    assert_eq!(stability.seen.len(), IDENTITIES_MAX);
}
