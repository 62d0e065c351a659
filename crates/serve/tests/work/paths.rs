//! Paths: an exchange driven by hand, millisecond by millisecond, through whatever can happen to it, and what the books say
//! of its work: first the paths one by one, then all mixtures against a model.

use std::{
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
};

use base::{Deadline, Nanos};
use bytes::Bytes;
use http_body::Body as _;
use http_body_util::Full;
use proptest::prelude::*;
use serve::{
    Arrival, Work,
    exchange::{Accounted, Exchange, Port},
    lifecycle::Stage,
};
use tokio::sync::oneshot;

use crate::rig::{Costly, Rig, Trickle, call, grpc, ms};

/// What happens to a call and when, in milliseconds after it arrived.
#[derive(Clone, Copy, Debug)]
struct Course {
    /// By then it must have been answered.
    deadline: u64,
    /// From then on the answer is of no use, the handler says.
    objective: Option<u64>,
    /// The head of the answer is ready.
    answer: Option<u64>,
    /// Its body has ended.
    body: Option<u64>,
    /// The caller is gone.
    gone: Option<u64>,
    /// A task that works for the call ends, whatever becomes of the call.
    task: Option<u64>,
    /// How long it takes to drop the handler, or its body, before its end.
    cost: u64,
}

const NOTHING: Course =
    Course { deadline: 200, objective: None, answer: None, body: None, gone: None, task: None, cost: 0 };

/// Longest course, in milliseconds.
const END: u64 = 400;

/// Where a call is.
enum Stand {
    Head(Box<Exchange>),
    Body(Pin<Box<Accounted>>),
    Over,
}

impl Stand {
    /// As hyper would.
    fn poll(self) -> Self {
        let mut cx = Context::from_waker(Waker::noop());
        match self {
            Self::Head(mut exchange) => match Pin::new(&mut *exchange).poll(&mut cx) {
                Poll::Ready(Ok(response)) => {
                    drop(exchange);
                    Self::Body(Box::pin(response.into_body())).poll()
                }
                Poll::Ready(Err(never)) => match never {},
                Poll::Pending => Self::Head(exchange),
            },
            Self::Body(mut body) => {
                while !body.is_end_stream() {
                    match body.as_mut().poll_frame(&mut cx) {
                        Poll::Ready(Some(Ok(_))) => {}
                        Poll::Ready(_) => break,
                        Poll::Pending => return Self::Body(body),
                    }
                }
                Self::Over
            }
            Self::Over => Self::Over,
        }
    }
}

/// Drives a call through its course. Returns its outcome and what the books say of its work.
fn drive(course: Course) -> (String, [u64; 4]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(async {
        let rig = Rig::new();
        let (answer, answered) = oneshot::channel::<()>();
        let (end, ended) = oneshot::channel::<()>();
        let task = Arc::<Mutex<Option<Work>>>::default();
        let handler = Mutex::new(Some((answered, ended)));
        let (taken, clock) = (Arc::clone(&task), Arc::clone(&rig.clock));
        let port = rig.port(axum::Router::new(), move |request| {
            let (answered, ended) = handler.lock().expect("sound").take().expect("one call");
            let costly = Costly { clock: Arc::clone(&clock), cost: ms(course.cost) };
            let arrival = request.extensions().get::<Arrival>().expect("by the shell").clone();
            if course.task.is_some() {
                *taken.lock().expect("sound") = Some(arrival.work());
            }
            if let Some(objective) = course.objective {
                arrival.work().objective(Deadline::at(arrival.at + ms(objective)));
            }
            async move {
                let costly = costly;
                answered.await.expect("told to answer");
                grpc(Trickle::new(ended, Some(costly)))
            }
        });
        let (exchange, _term) = Arc::new(port).begin(call::<Full<Bytes>>(Some(ms(course.deadline))));
        let mut stand = Stand::Head(Box::new(exchange)).poll();
        let (mut answer, mut end) = (Some(answer), Some(end));
        for _ in 0..END {
            tokio::time::advance(ms(1).into()).await;
            let due = |at: Option<u64>| at.is_some_and(|at| ms(at) <= rig.clock.elapsed());
            if due(course.answer) {
                answer.take().map(|answer| answer.send(()));
            }
            if due(course.body) {
                end.take().map(|end| end.send(()));
            }
            if due(course.gone) {
                stand = Stand::Over;
            }
            stand = stand.poll();
            if due(course.task) {
                task.lock().expect("sound").take();
            }
        }
        assert!(matches!(stand, Stand::Over) && task.lock().expect("sound").is_none(), "{course:?}");
        assert_eq!(rig.lifecycle.open_count(), 0);
        let books = rig.books();
        (books.outcome().expect("one request").to_owned(), books.work())
    })
}

#[test]
fn every_path_has_its_outcome_and_its_account() {
    let rows: &[(&str, Course, &str, [u64; 4])] = &[
        ("answered in time", Course { answer: Some(50), body: Some(51), ..NOTHING }, "ok", [0, 0, 0, 0]),
        (
            "answered, and the caller closes its connection later",
            Course { answer: Some(50), body: Some(51), gone: Some(60), cost: 9, ..NOTHING },
            "ok",
            [0, 0, 0, 0],
        ),
        (
            "answered in time, a task goes on and ends in time",
            Course { answer: Some(50), body: Some(51), task: Some(190), ..NOTHING },
            "ok",
            [0, 0, 0, 0],
        ),
        (
            "answered in time, a task goes on past the deadline",
            Course { answer: Some(50), body: Some(51), task: Some(230), ..NOTHING },
            "ok",
            [1, 30, 1, 30],
        ),
        (
            "answered after the objective",
            Course { objective: Some(30), answer: Some(50), body: Some(51), ..NOTHING },
            "ok",
            [1, 21, 0, 0],
        ),
        (
            "answered within 5 ms after the objective",
            Course { objective: Some(46), answer: Some(50), body: Some(51), ..NOTHING },
            "ok",
            [0, 0, 0, 0],
        ),
        (
            "the caller leaves and the handler stops",
            Course { gone: Some(40), ..NOTHING },
            "cancelled",
            [0, 0, 1, 0],
        ),
        (
            "the caller leaves and the handler takes its time",
            Course { gone: Some(40), cost: 7, ..NOTHING },
            "cancelled",
            [1, 7, 1, 7],
        ),
        ("5 ms are in time", Course { gone: Some(40), cost: 5, ..NOTHING }, "cancelled", [0, 0, 1, 5]),
        (
            "the caller leaves and a task goes on",
            Course { gone: Some(40), task: Some(100), ..NOTHING },
            "cancelled",
            [1, 60, 1, 60],
        ),
        (
            "the same with an objective, which comes later",
            Course { objective: Some(60), gone: Some(40), task: Some(100), ..NOTHING },
            "cancelled",
            [1, 60, 1, 60],
        ),
        (
            "the caller leaves after the objective: late from there, stopped from here",
            Course { objective: Some(30), gone: Some(40), task: Some(100), ..NOTHING },
            "cancelled",
            [1, 70, 1, 60],
        ),
        (
            "the caller leaves and the task has ended before",
            Course { gone: Some(40), task: Some(20), ..NOTHING },
            "cancelled",
            [0, 0, 1, 0],
        ),
        (
            "the caller leaves, and its task goes on past the deadline: one account",
            Course { deadline: 60, gone: Some(40), task: Some(100), ..NOTHING },
            "cancelled",
            [1, 60, 1, 60],
        ),
        (
            "the deadline passes and the handler stops",
            Course { deadline: 60, ..NOTHING },
            "deadline_exceeded",
            [0, 0, 1, 0],
        ),
        (
            "the deadline passes and the handler takes its time",
            Course { deadline: 60, cost: 8, ..NOTHING },
            "deadline_exceeded",
            [1, 8, 1, 8],
        ),
        (
            "the deadline passes and a task goes on",
            Course { deadline: 60, task: Some(100), ..NOTHING },
            "deadline_exceeded",
            [1, 40, 1, 40],
        ),
        (
            "the same, told the objective, which came first",
            Course { deadline: 60, objective: Some(50), task: Some(100), ..NOTHING },
            "deadline_exceeded",
            [1, 50, 1, 40],
        ),
        (
            "the deadline passes and the caller leaves then",
            Course { deadline: 60, gone: Some(80), task: Some(100), ..NOTHING },
            "deadline_exceeded",
            [1, 40, 1, 40],
        ),
        (
            "the caller leaves within the body",
            Course { answer: Some(20), gone: Some(40), cost: 6, ..NOTHING },
            "cancelled",
            [1, 6, 1, 6],
        ),
        (
            "the caller leaves within the body and a task goes on",
            Course { answer: Some(20), gone: Some(40), task: Some(90), ..NOTHING },
            "cancelled",
            [1, 50, 1, 50],
        ),
        (
            "the body ends after the deadline",
            Course { deadline: 60, answer: Some(20), body: Some(70), ..NOTHING },
            "deadline_exceeded",
            [1, 10, 1, 10],
        ),
        (
            "the stream is cut within the body after the deadline",
            Course { deadline: 60, answer: Some(20), gone: Some(65), ..NOTHING },
            "deadline_exceeded",
            [0, 0, 1, 5],
        ),
    ];
    for (what, course, outcome, work) in rows {
        assert_eq!(drive(*course), ((*outcome).to_owned(), *work), "{what}: {course:?}");
    }
}

/// What must come out, from the definitions alone: an exchange ends once, its work with whatever ends last.
fn model(course: Course) -> (String, [u64; 4]) {
    let Course { deadline, objective, answer, body, gone, task, cost } = course;
    let never = u64::MAX;
    let left = gone.unwrap_or(never);
    let answered = answer.filter(|answer| *answer < deadline.min(left));
    let ends = answered.map_or(deadline, |answer| body.unwrap_or(never).max(answer));
    let departed = if left < ends { left } else { never };
    let complete = departed == never && answered.is_some();
    let exchange = departed.min(ends) + if complete { 0 } else { cost };
    let outcome = match (departed.min(if complete { ends } else { deadline }) < deadline, departed == never) {
        (false, _) => "deadline_exceeded",
        (true, true) => "ok",
        (true, false) => "cancelled",
    };
    let end = exchange.max(task.unwrap_or(0));
    let cancelled = departed.min(deadline);
    let stop = (end >= cancelled).then(|| end - cancelled);
    let late = Some(end.saturating_sub(cancelled.min(objective.unwrap_or(never)))).filter(|late| *late > 5);
    let work = [u64::from(late.is_some()), late.unwrap_or(0), u64::from(stop.is_some()), stop.unwrap_or(0)];
    (outcome.to_owned(), work)
}

/// A time of that remainder by four, so that no two things happen in the same millisecond.
fn at(remainder: u64) -> impl Strategy<Value = u64> {
    (2_u64..60).prop_map(move |quarter| quarter * 4 + remainder)
}

fn course() -> impl Strategy<Value = Course> {
    let times = (at(0), prop::option::of(at(1)), at(1), prop::option::of(at(2)), prop::option::of(at(3)));
    (times, 0_u64..12, any::<bool>()).prop_map(
        |((deadline, objective, answer, task, gone), cost, answers)| {
            // The body ends with the answer or a little later; who gets no answer is patient to its deadline.
            let body = answers.then_some(answer + 4 * (cost % 3) + 1);
            Course { deadline, objective, answer: answers.then_some(answer), body, gone, task, cost }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn whatever_happens_is_accounted_for_once(course in course()) {
        prop_assert_eq!(drive(course), model(course));
    }
}

/// A port whose method never answers.
fn hanging(rig: &Rig) -> Arc<Port> {
    Arc::new(rig.port(axum::Router::new(), |_| std::future::pending()))
}

#[tokio::test(start_paused = true)]
async fn a_request_that_reaches_no_handler_has_no_work() {
    type Prepare = fn(&Rig) -> http::Request<Full<Bytes>>;
    let rows: [(&str, Prepare); 4] = [
        ("deadline_exceeded", |_| call(Some(Nanos::ZERO))),
        ("malformed_timeout", |_| {
            let mut request = call(None);
            request.headers_mut().insert("grpc-timeout", http::HeaderValue::from_static("5 S"));
            request
        }),
        ("unknown_method", |_| {
            let mut request = call(None);
            *request.uri_mut() = "/test.Other/Run".parse().expect("a path");
            request
        }),
        ("quiescing", |rig| {
            rig.lifecycle.advance(Stage::Quiescing);
            call(None)
        }),
    ];
    for (outcome, prepare) in rows {
        for told in [true, false] {
            let rig = Rig::new();
            let request = prepare(&rig);
            let (exchange, _term) = hanging(&rig).begin(request);
            // Long past every deadline, as the peer does not read.
            tokio::time::advance(ms(500).into()).await;
            drop(if told { Stand::Head(Box::new(exchange)).poll() } else { Stand::Head(Box::new(exchange)) });
            let books = rig.books();
            assert_eq!((books.outcome(), books.work()), (Some(outcome), [0; 4]), "told: {told}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_learns_that_its_caller_is_gone_and_whether_it_asked_for_its_deadline() {
    for (timeout, budget) in [(Some(ms(70)), 70), (None, 100)] {
        let rig = Rig::new();
        let slot = Arc::<Mutex<Option<Arrival>>>::default();
        let taken = Arc::clone(&slot);
        let port = Arc::new(rig.port(axum::Router::new(), move |request| {
            *taken.lock().expect("sound") = request.extensions().get::<Arrival>().cloned();
            std::future::pending()
        }));
        let (exchange, _term) = port.begin(call::<Full<Bytes>>(timeout));
        let stand = Stand::Head(Box::new(exchange)).poll();
        let arrival = slot.lock().expect("sound").take().expect("by the shell");
        assert_eq!((arrival.asked, arrival.deadline.instant() - arrival.at), (timeout.is_some(), ms(budget)));
        let work = arrival.work();
        drop(arrival);
        assert!(!work.caller_gone());
        drop(stand);
        assert!(work.caller_gone() && work.clone().caller_gone());
        assert_eq!(rig.books().work(), [0; 4], "a share is still held");
        assert_eq!(rig.books().finished("cancelled"), 1, "its exchange has ended all the same");
        rig.clock.pass(ms(20));
        drop(work);
        assert_eq!(rig.books().work(), [1, 20, 1, 20]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_exchange_that_is_dropped_late_expired_where_it_was() {
    // The runtime was too busy to let the timer end it.
    let rig = Rig::new();
    let port = Arc::new(rig.port(axum::Router::new(), |request| {
        let arrival = request.extensions().get::<Arrival>().expect("by the shell");
        arrival.progress.enter(base::Phase::Admission);
        std::future::pending()
    }));
    let (exchange, _term) = port.begin(call::<Full<Bytes>>(Some(ms(50))));
    let stand = Stand::Head(Box::new(exchange)).poll();
    rig.clock.pass(ms(60));
    drop(stand);
    let books = rig.books();
    assert_eq!((books.outcome(), books.work()), (Some("deadline_exceeded"), [1, 10, 1, 10]));
    assert_eq!((books.expired("admission"), books.expired("respond")), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_stop_delay_leads_to_its_trace_when_that_is_sampled() {
    for (flags, expected) in [("01", 1), ("00", 0)] {
        let rig = Rig::new();
        let mut request = call::<Full<Bytes>>(None);
        let parent = format!("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-{flags}");
        request.headers_mut().insert("traceparent", parent.parse().expect("ASCII"));
        let (exchange, _term) = hanging(&rig).begin(request);
        drop(Stand::Head(Box::new(exchange)).poll());
        let text = rig.books().text;
        let told = text.lines().filter(|line| {
            line.starts_with("mercury_cancellation_stop_delay_seconds_bucket")
                && line.contains("trace_id=\"4bf92f3577b34da6a3ce929d0e0e4736\"")
        });
        assert_eq!(told.count(), expected, "{text}");
    }
}
