//! Long-lived: calls that may stay as long as their caller likes. Until their response head they are bounded all the same, no
//! drain waits for one that is not answered, and they take no other request's place.

use std::{
    future::pending,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http::Response;
use http_body_util::Full;
use serve::{
    exchange::{Accounted, Exchange, LONG_LIVED_MAX},
    lifecycle::Stage,
};
use tokio::sync::oneshot;

use crate::rig::{LASTING, Rig, Trickle, call, call_of, grpc, ms};

fn poll(exchange: &mut Exchange) -> Option<Response<Accounted>> {
    match Pin::new(exchange).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Ok(response)) => Some(response),
        Poll::Ready(Err(never)) => match never {},
        Poll::Pending => None,
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_is_not_answered_ends_at_the_default_deadline() {
    let rig = Rig::new();
    let port = Arc::new(rig.port(axum::Router::new(), |_| pending()));
    // Whoever asks for less gets less; whoever asks for more, no more.
    for (asked, ends) in [(None, 100), (Some(ms(30)), 30), (Some(ms(900)), 100)] {
        let (mut exchange, _term) = port.begin(call_of::<Full<Bytes>>(LASTING, asked));
        assert!(poll(&mut exchange).is_none());
        tokio::time::advance(ms(ends - 1).into()).await;
        assert!(poll(&mut exchange).is_none(), "{asked:?}");
        tokio::time::advance(ms(1).into()).await;
        drop(poll(&mut exchange).expect("it is answered"));
        assert_eq!((rig.lifecycle.open_count(), rig.lifecycle.long_lived_count()), (0, 0));
    }
    assert_eq!(rig.books().outcome(), Some("deadline_exceeded"));
}

#[tokio::test(start_paused = true)]
async fn one_that_is_answered_has_no_deadline() {
    let rig = Rig::new();
    let (end, ended) = oneshot::channel();
    let ended = std::sync::Mutex::new(Some(ended));
    let port = Arc::new(rig.port(axum::Router::new(), move |_| {
        let ended = ended.lock().expect("sound").take().expect("one call");
        async { grpc(Trickle::new(ended, None)) }
    }));
    let (mut exchange, _term) = port.begin(call_of::<Full<Bytes>>(LASTING, None));
    let response = poll(&mut exchange).expect("answered at once");
    tokio::time::advance(ms(60_000).into()).await;
    assert_eq!((rig.lifecycle.responding_count(), rig.lifecycle.long_lived_count()), (1, 1));
    end.send(()).expect("it is still there");
    drop(response);
    assert_eq!(rig.lifecycle.long_lived_count(), 0);
}

#[tokio::test(start_paused = true)]
async fn one_that_is_not_answered_ends_when_the_process_quiesces_and_another_call_does_not() {
    let rig = Rig::new();
    let port = Arc::new(rig.port(axum::Router::new(), |_| pending()));
    let (mut lasting, _term) = port.begin(call_of::<Full<Bytes>>(LASTING, None));
    let (mut plain, _term) = port.begin(call::<Full<Bytes>>(None));
    assert!(poll(&mut lasting).is_none() && poll(&mut plain).is_none());
    rig.lifecycle.advance(Stage::Quiescing);
    drop(poll(&mut lasting).expect("refused"));
    assert!(poll(&mut plain).is_none(), "it was admitted");
    assert_eq!((rig.lifecycle.open_count(), rig.books().finished("quiescing")), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn they_have_a_bound_of_their_own_and_take_no_other_place() {
    let rig = Rig::new();
    let mut port = rig.port(axum::Router::new(), |_| pending());
    port.limits = serve::Limits { requests_max: 1, ..serve::Limits::default() }.into();
    let port = Arc::new(port);
    let mut lasting: Vec<_> =
        (0..LONG_LIVED_MAX).map(|_| port.begin(call_of::<Full<Bytes>>(LASTING, None)).0).collect();
    assert!(lasting.iter_mut().all(|exchange| poll(exchange).is_none()));
    let (mut plain, _term) = port.begin(call::<Full<Bytes>>(None));
    assert!(poll(&mut plain).is_none(), "it is the first of its kind");
    for method in [LASTING, crate::rig::METHOD] {
        let (mut beyond, _term) = port.begin(call_of::<Full<Bytes>>(method, None));
        drop(poll(&mut beyond).expect("refused at once"));
    }
    assert_eq!(rig.books().finished("overload"), 2);
    assert_eq!(
        (rig.lifecycle.under_way_count(), rig.lifecycle.long_lived_count()),
        (1, LONG_LIVED_MAX as usize)
    );
    // A place that was given up is taken again.
    lasting.pop();
    let (mut next, _term) = port.begin(call_of::<Full<Bytes>>(LASTING, None));
    assert!(poll(&mut next).is_none());
}
