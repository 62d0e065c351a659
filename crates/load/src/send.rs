//! Send: the one thread that hands operations to connections and reads their answers.
//!
//! Everything here belongs to one current-thread runtime, so nothing is locked. Operations in flight are futures that
//! this room owns: none is detached, and dropping one resets its stream, which is how a caller departs.

use std::{cell::RefCell, rc::Rc};

use base::{Clock, Nanos, clock::MonotonicClock};
use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::{sync::mpsc, time};
use wire::home::v2::GetHomeResponse;

use crate::{
    Lost, Observe, Observed,
    call::{Answered, Asked, Template, exchange},
    check::{Finding, Markers, Stability, check},
    connection::Connections,
    outcome::{Failed, Failure, Outcome},
    progress::Gauges,
    record::{Ending, Note, Recorder},
    retry::{Budget, Retries},
    schedule::{Course, Due},
    tally::{Ended, Tally},
};

/// A caller without any timeout gives up after this much model time, and the operation counts as past its deadline.
const PATIENCE_MAX: Nanos = Nanos::from_secs(120);

/// One target and the way there.
pub(crate) struct Lane {
    pub(crate) template: Template,
    pub(crate) connections: Rc<Connections>,
}

/// What the operations of a run share.
pub(crate) struct Sending {
    pub(crate) course: Course,
    /// At least one.
    pub(crate) lanes: Vec<Lane>,
    pub(crate) retries: Retries,
    /// `None` where retries are not counted.
    pub(crate) budget: Option<Budget>,
    /// `None` where nothing is recorded.
    pub(crate) recorder: Option<Recorder>,
    /// Timeout of every operation in model time, sent as `grpc-timeout`.
    pub(crate) timeout: Option<Nanos>,
    pub(crate) id_prefix: String,
    pub(crate) in_flight_max: usize,
    /// How long the end of the schedule waits for what is in flight, wall time.
    pub(crate) drain: Nanos,
    pub(crate) tally: RefCell<Tally>,
    pub(crate) stability: RefCell<Stability>,
    pub(crate) gauges: std::sync::Arc<Gauges>,
    pub(crate) observer: Option<std::sync::Arc<dyn Observe>>,
}

/// Sends what comes due until the schedule ends, then waits for what is in flight, within the drain bound. What is
/// still in flight then stays counted as such.
pub(crate) async fn drive(
    sending: Rc<Sending>,
    mut feed: mpsc::Receiver<Due>,
    keepers: impl IntoIterator<Item = impl Future<Output = ()>>,
) {
    let mut keepers: FuturesUnordered<_> = keepers.into_iter().collect();
    let mut operations = FuturesUnordered::new();
    let mut ended = None;
    loop {
        tokio::select! {
            // What is due goes out before any answer is looked at, or the generator would be polite.
            biased;
            due = feed.recv(), if ended.is_none() => match due {
                Some(due) if operations.len() >= sending.in_flight_max => sending.refuse(&due),
                Some(due) => {
                    sending.begin(&due, operations.len() + 1);
                    operations.push(Rc::clone(&sending).operate(due));
                }
                None => ended = Some(Box::pin(time::sleep(sending.drain.into()))),
            },
            Some(()) = operations.next(), if !operations.is_empty() => {}
            () = async { ended.as_mut().expect("guarded").await }, if ended.is_some() => break,
            Some(()) = keepers.next(), if !keepers.is_empty() => {}
        }
        if ended.is_some() && operations.is_empty() {
            break;
        }
    }
}

/// How the attempts at one operation ended.
struct Answer {
    result: Result<Answered, Failure>,
    attempts: u32,
    departed: bool,
}

impl Answer {
    const fn ending(&self) -> Ending {
        match &self.result {
            _ if self.departed => Ending::Departed,
            Ok(_) => Ending::Answered,
            Err(_) => Ending::Failed,
        }
    }
}

impl Sending {
    fn refuse(&self, due: &Due) {
        self.tally.borrow_mut().unsent(due.place);
        self.gauges.unsent();
    }

    fn begin(&self, due: &Due, in_flight: usize) {
        let mut tally = self.tally.borrow_mut();
        tally.begin(due.place);
        tally.in_flight_peak = tally.in_flight_peak.max(in_flight);
        self.gauges.begin();
        if let Some(budget) = &self.budget {
            budget.begin();
        }
    }

    async fn operate(self: Rc<Self>, due: Due) {
        let request_id = format!("{}-{}", self.id_prefix, due.operation.number);
        let recorder = self.recorder.as_ref();
        let mut note = recorder.map(|recorder| recorder.begin(&due.operation.identity, &request_id));
        let answer = self.attempts(&due, &request_id, &mut note).await;
        if let Some(mut note) = note.take() {
            note.ended(answer.ending());
        }
        let latency = self.course.model(MonotonicClock.now() - due.intended);
        let ended = self.judge(&due, request_id, answer, latency);
        self.gauges.end(ended.outcome);
        let mut tally = self.tally.borrow_mut();
        tally.end(ended);
        self.gauges.recent_p99(tally.timeline.recent_p99_ms());
    }

    /// Whether there is another attempt, and it is paid for.
    fn again(&self, failed: Failed, attempt: u32, request_id: &str) -> bool {
        self.retries.again(failed, attempt, request_id) && self.budget.as_ref().is_none_or(Budget::take)
    }

    /// Attempts until one is final, the caller leaves, or time is up.
    async fn attempts(&self, due: &Due, request_id: &str, note: &mut Option<Note>) -> Answer {
        let ends = due.intended + self.course.wall(self.timeout.unwrap_or(PATIENCE_MAX));
        let leaves = due.operation.patience.map(|patience| due.intended + self.course.wall(patience));
        let until = leaves.map_or(ends, |leaves| leaves.min(ends));
        let mut attempts = 0;
        let many = async {
            loop {
                attempts += 1;
                let result = self.attempt(due, request_id, attempts, ends, note).await;
                match result {
                    Err(failed) if self.again(failed, attempts, request_id) => {
                        time::sleep(self.course.wall(self.retries.backoff(attempts, request_id)).into())
                            .await;
                    }
                    _ => break result.map_err(|failed| failed.failure),
                }
            }
        };
        let remaining = until - MonotonicClock.now();
        let result = time::timeout(remaining.into(), many).await.unwrap_or(Err(Failure::ClientDeadline));
        // An answer that comes after its caller left is none, however the timers of this runtime fell.
        let departed = leaves.is_some_and(|leaves| leaves <= ends && leaves <= MonotonicClock.now());
        Answer { result, attempts, departed }
    }

    async fn attempt(
        &self,
        due: &Due,
        request_id: &str,
        attempt: u32,
        ends: Nanos,
        note: &mut Option<Note>,
    ) -> Result<Answered, Failed> {
        let place = (due.operation.number as usize).wrapping_add(attempt as usize - 1) % self.lanes.len();
        if let Some(note) = note {
            note.sent(u8::try_from(place).unwrap_or(u8::MAX));
        }
        let result = self.exchange(&self.lanes[place], due, request_id, attempt, ends).await;
        match (&result, note) {
            (Ok(answered), Some(note)) => note.answered(&answered.home),
            (Err(failed), Some(note)) => note.failed(*failed),
            (_, None) => {}
        }
        result
    }

    async fn exchange(
        &self,
        lane: &Lane,
        due: &Due,
        request_id: &str,
        attempt: u32,
        ends: Nanos,
    ) -> Result<Answered, Failed> {
        let mut sender = lane.connections.sender().ok_or(Failure::NotConnected)?;
        let now = MonotonicClock.now();
        let asked = Asked { attempt, timeout: self.timeout.map(|_| ends - now), ..asked(due, request_id) };
        let request = lane.template.request(&asked).ok_or(Failure::ClientDeadline)?;
        let exchange = exchange(&mut sender, request);
        if attempt == 1 {
            let error = MonotonicClock.now() - due.intended;
            self.tally.borrow_mut().handed(due.place, error);
        }
        let result = exchange.await;
        if let (Some(observer), Err(failed)) = (&self.observer, &result)
            && matches!(failed.failure, Failure::ConnectionLost | Failure::StreamReset)
        {
            observer.lost(Lost { sent_at: now, lost_at: MonotonicClock.now() });
        }
        result
    }

    /// What the answer counts as.
    fn judge(&self, due: &Due, request_id: String, answer: Answer, latency: Nanos) -> Ended {
        let Answer { result, attempts, departed } = answer;
        let mut ended = Ended {
            place: due.place,
            outcome: Outcome::Departed,
            failure: None,
            latency,
            attempts,
            markers: None,
            finding: None,
            timing: None,
            bytes: 0,
        };
        if departed {
            return ended;
        }
        match result.map(|answered| (self.verify(due, &request_id, &answered.home), answered)) {
            Ok((Ok(markers), answered)) => {
                ended.timing = answered.timing;
                ended.bytes = answered.bytes;
                ended.outcome = if markers.degraded() { Outcome::OkDegraded } else { Outcome::Ok };
                ended.markers = Some(markers);
            }
            Ok((Err(finding), _)) => {
                ended.outcome = Failure::CoreMismatch.outcome();
                ended.failure = Some(Failure::CoreMismatch);
                ended.finding = Some((request_id, finding));
            }
            Err(failure) => {
                ended.outcome = failure.outcome();
                ended.failure = Some(failure);
            }
        }
        ended
    }

    fn verify(&self, due: &Due, request_id: &str, home: &GetHomeResponse) -> Result<Markers, Finding> {
        let asked = asked(due, request_id);
        let markers = check(&asked, home)?;
        if let Some(observer) = &self.observer {
            observer.answered(&Observed {
                identity: &due.operation.identity,
                asked_at: due.intended,
                answered_at: MonotonicClock.now(),
                answer: home,
            });
        }
        if !self.observer.as_ref().is_some_and(|observer| observer.judges()) {
            self.stability.borrow_mut().compare(&asked, home)?;
        }
        Ok(markers)
    }
}

fn asked<'a>(due: &'a Due, request_id: &'a str) -> Asked<'a> {
    let identity = &due.operation.identity;
    Asked {
        tenant: identity.tenant.as_str(),
        subject: identity.subject.as_str(),
        class: identity.class.as_str(),
        region: identity.region.as_str(),
        request_id,
        attempt: 1,
        timeout: None,
    }
}
