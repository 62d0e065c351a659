//! What a point does, seen from who passes it and from who watches.

use super::*;

fn poll(pass: &mut Pass) -> Poll<Result<(), Injected>> {
    Pin::new(pass).poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn nothing_is_asked_of_a_point_that_is_not_armed() {
    let points = Points::default();
    for point in Point::ALL {
        assert!(!points.is_armed(point));
        assert_eq!(poll(&mut points.pass(point)), Poll::Ready(Ok(())));
        assert_eq!((points.reached(point), points.acted(point)), (0, 0), "{point}");
    }
}

#[test]
fn a_point_fails_as_often_as_it_was_told_and_no_other_does() {
    let points = Points::default();
    points.arm(Injection { times_max: 2, ..Injection::always(Point::BeforeSend, Action::Fail) });
    let failed = Poll::Ready(Err(Injected { point: Point::BeforeSend }));
    let seen: Vec<_> = (0..3).map(|_| poll(&mut points.pass(Point::BeforeSend))).collect();
    assert_eq!(seen, [failed, failed, Poll::Ready(Ok(()))]);
    assert_eq!(poll(&mut points.pass(Point::Respond)), Poll::Ready(Ok(())));
    assert_eq!((points.reached(Point::BeforeSend), points.acted(Point::BeforeSend)), (3, 2));
}

#[test]
fn who_is_held_goes_on_when_it_is_let_go_and_who_leaves_is_held_no_longer() {
    let points = Points::default();
    points.arm(Injection::always(Point::Respond, Action::Hold));
    let (mut first, mut second) = (points.pass(Point::Respond), points.pass(Point::Respond));
    assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending() && poll(&mut first).is_pending());
    assert_eq!(points.holding(Point::Respond), 2);
    drop(second);
    assert_eq!(points.holding(Point::Respond), 1);
    points.release(Point::Respond);
    assert_eq!(poll(&mut first), Poll::Ready(Ok(())));
    let mut third = points.pass(Point::Respond);
    assert!(poll(&mut third).is_pending(), "it came after the release");
    points.disarm(Point::Respond);
    assert_eq!(poll(&mut third), Poll::Ready(Ok(())));
    assert_eq!(points.holding(Point::Respond), 0);
    assert_eq!(poll(&mut points.pass(Point::Respond)), Poll::Ready(Ok(())));
}

#[test]
#[should_panic(expected = "injected panic at drain")]
fn a_point_panics_by_name() {
    let points = Points::default();
    points.arm(Injection::once(Point::Drain, Action::Panic));
    let _never = poll(&mut points.pass(Point::Drain));
}

#[test]
fn the_same_seed_draws_the_same_passes_and_about_the_share_that_was_asked_for() {
    let drawn = |seed| {
        let injection =
            Injection { share_ppm: 250_000, seed, ..Injection::always(Point::Admitted, Action::Fail) };
        (0..10_000).filter(|number| injection.draws(Point::Admitted, *number)).collect::<Vec<_>>()
    };
    let first = drawn(7);
    assert_eq!(first, drawn(7));
    assert_ne!(first, drawn(8));
    assert!((2_200..2_800).contains(&first.len()), "{}", first.len());
}

#[test]
fn what_is_written_is_what_is_read_and_what_is_wrong_is_named() {
    for (text, same) in [
        ("after-commit=kill", "after-commit=kill,0"),
        ("before-send=fail@0.25,7", "before-send=fail@0.25,7"),
        ("respond=hold@0.5/3,9", "respond=hold@0.5/3,9"),
        ("drain=panic/1", "drain=panic/1,0"),
    ] {
        let injection = Injection::parse(text).expect(text);
        assert_eq!(injection.to_string(), same);
        assert_eq!(Injection::parse(same), Ok(injection));
    }
    for (text, part) in [
        ("drain", "POINT=ACTION"),
        ("drian=fail", "\"drian\""),
        ("drain=explode", "\"explode\""),
        ("drain=fail@0", "share"),
        ("drain=fail@1.5", "share"),
        ("drain=fail/0", "times"),
        ("drain=fail,x", "seed"),
    ] {
        let fault = Injection::parse(text).expect_err(text).to_string();
        assert!(fault.contains(part), "{text}: {fault}");
    }
}

#[test]
fn names_read_back_and_positions_are_those_of_the_table() {
    for (position, point) in Point::ALL.into_iter().enumerate() {
        assert_eq!(Point::parse(point.as_str()), Some(point));
        assert_eq!(point.index(), position);
    }
}
