//! Tests of what is refused before it waits: a full queue, a store that is out of order, a policy that lowers the limits.

use super::*;

#[tokio::test]
async fn a_store_that_is_out_of_order_keeps_nobody_waiting() {
    let (recorder, writer, mut holder) = held(WIDE);
    let metrics = Arc::clone(&recorder.metrics);
    let script = async {
        let first = recorder.submit(three("first"));
        holder.began().await;
        let queued = [recorder.submit(three("a")), recorder.submit(three("b"))];
        assert_eq!(metrics.waiting_now().0, 6);
        holder.breaks(Some("the disk is full"));
        holder.end(End::RollBack).await;
        assert_eq!(answer(first).await, Err(RecordError::KnownAbsent));
        // The probe fails too, so those in the queue are not sent after it one batch at a time.
        for pending in queued {
            assert_eq!(answer(pending).await, Err(RecordError::KnownAbsent));
        }
        assert_eq!(recorder.submit(three("late")).err(), Some(RecordError::Down));
        assert_eq!(metrics.waiting_now(), (0, 0));
        drop(recorder);
    };
    tokio::join!(writer.run(), script);
    assert!(holder.rows.rows().is_empty());
    assert_eq!((metrics.count("known_absent"), metrics.count("down")), (9, 3));
    assert_eq!(holder.began.try_recv(), Err(TryRecvError::Disconnected), "one transaction, and no more");
}

#[tokio::test(start_paused = true)]
async fn readiness_falls_and_returns_without_traffic() {
    let (standing, readiness) = ready();
    let fault = Arc::new(Mutex::new(None));
    let (_began, (_ends, ends)) = (mpsc::channel::<usize>(1), mpsc::channel(1));
    let ledger = Held {
        rows: MemoryLedger::new(),
        began: _began.0,
        ends,
        closed: Arc::default(),
        fault: Arc::clone(&fault),
        patience: Arc::default(),
    };
    let clock = RuntimeClock(tokio::time::Instant::now());
    let metrics = Arc::new(Metrics::new());
    let (recorder, writer) = group_commit(ledger, fixed(WIDE), Arc::new(MonotonicClock), standing, metrics);
    let script = async {
        let mut states = readiness.subscribe();
        assert_eq!(*states.borrow_and_update(), State::Serving);
        *fault.lock().expect("no test panics with it") = Some("read-only".to_owned());
        states.changed().await.expect("it is told");
        assert_eq!(*states.borrow_and_update(), State::NotServing("exposure ledger: read-only".into()));
        assert_eq!(clock.now(), Nanos::from_secs(1), "an idle store is probed");
        assert_eq!(recorder.submit(three("op")).err(), Some(RecordError::Down));
        *fault.lock().expect("no test panics with it") = None;
        states.changed().await.expect("it is told");
        assert_eq!(*states.borrow_and_update(), State::Serving);
        assert_eq!(clock.now(), Nanos::from_secs(2), "and so is one that is down");
        assert!(recorder.submit(Vec::new()).is_ok());
        drop(recorder);
    };
    tokio::select! {
        () = writer.run() => panic!("the recorder is still held"),
        () = script => {}
    }
}

#[tokio::test]
async fn the_queue_shows_what_waits_in_rows_and_bytes() {
    let (recorder, writer, mut holder) = held(Bounds { queue_rows_max: 6, ..WIDE });
    let metrics = Arc::clone(&recorder.metrics);
    let script = async {
        let first = recorder.submit(three("first"));
        holder.began().await;
        assert_eq!(metrics.waiting_now(), (0, 0));
        let second = recorder.submit(three("second"));
        let bytes: usize = three("second").iter().map(Exposure::bytes).sum();
        assert_eq!(metrics.waiting_now(), (3, bytes as i64));
        assert_eq!(recorder.submit([three("x"), three("y")].concat()).err(), Some(RecordError::Full));
        assert_eq!(metrics.waiting_now(), (3, bytes as i64), "what is refused never waits");
        holder.end(End::Commit).await;
        holder.began().await;
        assert_eq!(metrics.waiting_now(), (0, 0));
        holder.end(End::Commit).await;
        answer(first).await.expect("committed");
        answer(second).await.expect("committed");
        drop(recorder);
    };
    tokio::join!(writer.run(), script);
}

#[tokio::test]
async fn a_policy_that_changes_is_gone_by_from_then_on() {
    let (bounds, in_force) = watch::channel(WIDE);
    let (recorder, writer, mut holder) = held_by(in_force);
    let script = async {
        let first = recorder.submit(three("first"));
        holder.began().await;
        let waiting: Vec<_> = (0..3).map(|at| recorder.submit(three(&format!("op-{at}")))).collect();
        let patience = Patience { lock: Nanos::from_millis(7), step: Nanos::from_millis(8) };
        bounds.send_replace(Bounds { queue_rows_max: 3, batch_rows_max: 4, patience, ..WIDE });
        // Nobody who waits is put out, and nobody let in until there is room below the new limit.
        assert_eq!(recorder.submit(three("late")).err(), Some(RecordError::Full));
        for rows in [6, 3] {
            holder.end(End::Commit).await;
            assert_eq!(holder.began().await, rows, "the batch is bounded anew as well");
        }
        assert_eq!(*holder.patience.lock().expect("no test panics with it"), Some(patience));
        let late = recorder.submit(three("late"));
        for _ in 0..2 {
            holder.end(End::Commit).await;
        }
        for pending in waiting.into_iter().chain([first, late]) {
            assert_eq!(answer(pending).await, Ok(vec![Outcome::Committed; 3]));
        }
        drop(recorder);
    };
    tokio::join!(writer.run(), script);
}

#[tokio::test]
async fn what_waits_is_bounded_in_bytes_as_well() {
    let bytes: usize = three("a").iter().map(Exposure::bytes).sum();
    let (recorder, writer, mut holder) = held(Bounds { queue_bytes_max: 2 * bytes, ..WIDE });
    let script = async {
        let gate = recorder.submit(three("g"));
        holder.began().await;
        let fit = [recorder.submit(three("a")), recorder.submit(three("b"))];
        assert_eq!(recorder.submit(vec![exposure("c", "home")]).err(), Some(RecordError::Full));
        for _ in 0..2 {
            holder.end(End::Commit).await;
        }
        for pending in fit.into_iter().chain([gate]) {
            assert_eq!(answer(pending).await, Ok(vec![Outcome::Committed; 3]));
        }
        drop(recorder);
    };
    tokio::join!(writer.run(), script);
}

/// A store that is broken in a way that nobody thought of.
struct Panics;

impl Ledger for Panics {
    async fn record(&mut self, _rows: &[&Exposure]) -> Result<Vec<Stored>, WriteError> {
        panic!("expected by the test");
    }

    async fn probe(&mut self) -> Result<(), String> {
        Ok(())
    }

    fn set_patience(&mut self, _patience: Patience) {}

    async fn close(&mut self) {}
}

#[tokio::test]
async fn a_writer_that_panics_takes_readiness_with_it_and_nobody_waits_for_it() {
    let (standing, readiness) = ready();
    let (recorder, writer) =
        group_commit(Panics, fixed(WIDE), Arc::new(MonotonicClock), standing, Arc::new(Metrics::new()));
    let pending = recorder.submit(three("op"));
    let tasks = serve::supervisor::Supervisor::new();
    tasks.start("exposure-writer", writer.run());
    tasks.idle().await;
    assert_eq!(tasks.counts().panicked, 1);
    assert_eq!(answer(pending).await, Err(RecordError::Ambiguous), "it may have been committed");
    assert!(matches!(readiness.get(), State::NotServing(reason) if reason.contains("started again")));
    assert_eq!(recorder.submit(three("op")).err(), Some(RecordError::Down));
}
