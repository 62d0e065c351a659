//! Admission's configuration, tested: every fault, all of them at once, and the bounds themselves.

use super::*;

fn faults(settings: Settings) -> Vec<Fault> {
    settings.validate().map_or_else(|faults| faults.iter().collect(), |_| Vec::new())
}

const fn percent(floor: u32, ceiling: u32) -> Partition {
    Partition { floor: Bound::Percent(floor), ceiling: Bound::Percent(ceiling) }
}

#[test]
fn sound_settings_are_resolved() {
    let partitions = [percent(50, 90), percent(30, 60), permits(1, 2)];
    let config = Settings { partitions, ..SETTINGS }.validate().expect("sound settings");
    assert_eq!(WorkloadClass::ALL.map(|class| config.floor(class)), [5, 3, 1]);
    assert_eq!(WorkloadClass::ALL.map(|class| config.ceiling(class)), [9, 6, 2]);
    // Standard's ceiling is 9, and four permits are promised to others.
    assert_eq!(WorkloadClass::ALL.map(|class| config.reach(class)), [6, 4, 2]);
    let legacy = LEGACY.validate().expect("sound settings");
    assert_eq!(legacy.reach(Enterprise), legacy.limit(), "the old design lets one class hold every slot");
}

/// A25: three shares of a third of three round to nothing, and must not silently promise nothing.
#[test]
fn a_share_that_rounds_to_nothing_is_a_fault() {
    let settings = Settings { limit: 3, partitions: [percent(33, 33); CLASSES], ..SETTINGS };
    let expected: Vec<_> = WorkloadClass::ALL
        .into_iter()
        .flat_map(|class| [Fault::FloorRoundsToZero(class), Fault::CeilingRoundsToZero(class)])
        .collect();
    assert_eq!(faults(settings), expected);
    assert_eq!(faults(Settings { partitions: [percent(34, 34); CLASSES], ..settings }), []);
}

/// A25: a partition of 0 % promises nothing as a floor, and is refused as a ceiling.
#[test]
fn zero_is_no_floor_and_no_ceiling() {
    let with = |partition| Settings { partitions: [percent(0, 100), percent(0, 100), partition], ..SETTINGS };
    assert_eq!(faults(with(percent(0, 100))), []);
    assert_eq!(faults(with(percent(0, 0))), [Fault::CeilingZero(Enterprise)]);
    assert_eq!(faults(with(permits(0, 0))), [Fault::CeilingZero(Enterprise)]);
}

#[test]
fn all_faults_are_told_at_once() {
    let settings = Settings {
        limit: 10,
        partitions: [permits(9, 8), permits(1, 11), percent(101, 101)],
        waiting: Waiting::Bounded { count_max: [u32::MAX; CLASSES], age_max: Nanos::ZERO },
        choice: Choice::Share,
        retry_after: Nanos::ZERO,
    };
    let told = settings.validate().expect_err("nothing is right with it");
    assert_eq!(
        told.iter().collect::<Vec<_>>(),
        [
            Fault::CeilingBelowFloor(Standard),
            Fault::CeilingAboveLimit(Premium),
            Fault::FloorAboveWhole(Enterprise),
            Fault::CeilingAboveWhole(Enterprise),
            Fault::AgeZero,
            Fault::TooManyWaiters(3 * u64::from(u32::MAX)),
            Fault::RetryAfterZero,
        ]
    );
    assert_eq!(told.to_string().lines().count(), 7);
    for fault in told.iter() {
        assert!(fault.to_string().starts_with(fault.setting()), "{fault}");
        assert!(fault.class().is_none_or(|class| fault.to_string().contains(class.as_str())), "{fault}");
    }
}

#[test]
fn floors_may_take_all_but_not_more() {
    let partitions = [permits(5, 9), permits(3, 6), permits(2, 2)];
    assert_eq!(faults(Settings { partitions, ..SETTINGS }), []);
    let partitions = [permits(6, 9), permits(3, 6), permits(2, 2)];
    assert_eq!(
        faults(Settings { partitions, ..SETTINGS }),
        [Fault::FloorsExceedLimit { sum: 11, limit: 10 }]
    );
    let partitions = [permits(u32::MAX, u32::MAX); CLASSES];
    assert!(
        faults(Settings { partitions, ..SETTINGS })
            .contains(&Fault::FloorsExceedLimit { sum: 3 * u64::from(u32::MAX), limit: 10 })
    );
}

/// A25: zero is refused, never "unlimited"; and what only follows from it is not told as well.
#[test]
fn a_limit_of_zero_is_refused_alone() {
    assert_eq!(faults(Settings { limit: 0, ..SETTINGS }), [Fault::LimitZero]);
    assert_eq!(faults(Settings { limit: 0, ..LEGACY }), [Fault::LimitZero]);
    assert_eq!(faults(Settings { limit: LIMIT_MAX, ..LEGACY }), []);
    assert_eq!(faults(Settings { limit: LIMIT_MAX + 1, ..LEGACY }), [Fault::LimitAboveMax(LIMIT_MAX + 1)]);
}

#[test]
fn waiters_are_bounded_at_the_bound() {
    let with = |standard| Settings {
        waiting: Waiting::Bounded { count_max: [standard, 1, 1], age_max: ms(1) },
        ..SETTINGS
    };
    assert_eq!(faults(with(WAITERS_MAX - 2)), []);
    assert_eq!(faults(with(WAITERS_MAX - 1)), [Fault::TooManyWaiters(u64::from(WAITERS_MAX) + 1)]);
}
