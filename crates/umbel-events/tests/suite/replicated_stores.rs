//! Rules B1, B10, B11 and B12 of `docs/explanation/replication.md` for the event store: what no
//! acknowledged slot has is neither visible nor acknowledged, by any path.

use std::sync::mpsc;
use std::time::Duration;

use umbel_env::{Access, Env};
use umbel_events::{
    AppendRequest, CopyOptions, Direction, Durability, Error, ExpectedVersion, ImportedEvent,
    LogPoint, LogReplication, NewEvent, PendingAppend, Position, Revision, ScavengeOptions,
    SlotRecords, Source, Store, StoreOptions, StreamAppend, StreamState, SubscriptionStart,
    ViewKind, WriteResult,
};
use umbel_sim::{Sim, Survival};

use super::support::{all, event, id, options};

const START: LogPoint = LogPoint { epoch: 0, offset: 0 };
/// Upper bound of a wait, which is exceeded only if a call never comes.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

fn replica_options(sim: &Sim, background_threads: usize) -> StoreOptions {
    StoreOptions { durability: Durability::Synced, background_threads, ..options(sim) }
}

fn open(sim: &Sim, in_slots: LogPoint) -> (Store, LogReplication) {
    Store::open_replicated("/events", replica_options(sim, 0), in_slots).expect("opened")
}

/// A new store that leads in epoch 1.
fn leader(sim: &Sim, background_threads: usize) -> (Store, LogReplication) {
    let options = replica_options(sim, background_threads);
    let (store, log) = Store::open_replicated("/events", options, START).expect("a new store");
    log.promote(1).expect("a follower with an empty log");
    (store, log)
}

fn submit_event(
    store: &Store,
    stream: &str,
    expected: ExpectedVersion,
    event: NewEvent<'_>,
) -> umbel_events::Result<PendingAppend> {
    let appends = [StreamAppend { stream, expected, events: &[event] }];
    store.submit(&AppendRequest { appends: &appends, checks: &[] })
}

fn submit(store: &Store, stream: &str, number: u64) -> PendingAppend {
    submit_event(store, stream, ExpectedVersion::Any, event(number)).expect("submitted")
}

/// The records of the next slot.
fn next_slot(log: &LogReplication, bytes_max: u64) -> SlotRecords {
    log.next_slot(bytes_max).expect("readable").expect("something to write")
}

/// Adds a slot with everything.
fn create_slot(log: &LogReplication) {
    log.slot_created(next_slot(log, u64::MAX).to).expect("a slot of this log");
}

fn visible_numbers(store: &Store) -> Vec<u64> {
    let number = |id: umbel_events::EventId| {
        u64::from_le_bytes(*id.0.first_chunk().expect("an id has 16 bytes"))
    };
    all(store).into_iter().map(|event| number(event.id)).collect()
}

fn is_ambiguous<T: std::fmt::Debug>(result: umbel_events::Result<T>) -> bool {
    matches!(result, Err(Error::AppendAmbiguous))
}

/// Asserts that no reader sees an event of the stream `cart-1`.
fn assert_hidden(store: &Store) {
    let read = store.read("cart-1", Revision::START, Direction::Forwards);
    assert_eq!(read.count(), 0);
    assert_eq!(store.read_all(Position::END, Direction::Backwards).count(), 0);
    assert_eq!(store.stream_state("cart-1").expect("readable"), StreamState::Missing);
    assert_eq!(store.streams("", None, 10).expect("readable"), []);
    for view in ["$ce-cart", "$et-Happened", "$streams"] {
        let read = store.read_view(view, Revision::START, Direction::Forwards, Position::END);
        assert_eq!(read.count(), 0, "{view}");
        assert_eq!(store.view(view, Position::END).expect("readable"), None, "{view}");
    }
    assert_eq!(store.views(ViewKind::Category, "", None, 10).expect("readable"), []);
    for source in [Source::All, Source::Stream("cart-1".into()), Source::View("$streams".into())] {
        let mut subscription =
            store.subscribe(source.clone(), SubscriptionStart::Start).expect("subscribed");
        let batch = subscription.try_next_batch(10, 100).expect("readable");
        assert_eq!((batch.events.len(), batch.is_caught_up), (0, true), "{source:?}");
    }
    let stats = store.stats().expect("open");
    assert_eq!((stats.position, stats.events_appended, stats.existence.items), (0, 0, 0));
    assert_eq!(store.visible_position(), Position::START);
}

#[test]
fn nothing_beyond_the_slots_is_visible_or_acknowledged() {
    let sim = Sim::new(1);
    let (store, log) = leader(&sim, 0);
    let mut watched = store.subscribe(Source::All, SubscriptionStart::Start).expect("subscribed");
    let (pending, retried) = (submit(&store, "cart-1", 1), submit(&store, "cart-1", 1));
    assert_hidden(&store);
    let slot = next_slot(&log, u64::MAX);
    assert!(!pending.is_acknowledged() && !retried.is_acknowledged(), "durable, and in no slot");
    assert_hidden(&store);
    assert!(!log.unslotted().expect("open").is_empty());

    log.slot_created(slot.to).expect("a slot of this log");
    assert!(pending.is_acknowledged() && retried.is_acknowledged());
    assert_eq!((log.in_slots().expect("open"), visible_numbers(&store)), (slot.to, vec![1]));
    assert_eq!(watched.try_next_batch(10, 100).expect("readable").events.len(), 1);
    assert_eq!(pending.wait().expect("acknowledged")[0].last, Some(0));
    assert!(retried.wait().expect("acknowledged")[0].is_retry);
    let stats = store.stats().expect("open");
    assert_eq!((stats.events_appended, stats.existence.items), (1, 1));
    assert_eq!(log.next_slot(u64::MAX).expect("readable"), None);
    // A later append is hidden as well, although the stream exists.
    let pending = submit(&store, "cart-1", 2);
    store.sync().expect("durable");
    assert_eq!((pending.is_acknowledged(), visible_numbers(&store)), (false, vec![1]));
    assert!(store.verify().expect("verified").damage.is_empty());
}

#[test]
fn callbacks_run_once_a_slot_has_their_append() {
    for background_threads in [0, 2] {
        let sim = Sim::new(1);
        let (store, log) = leader(&sim, background_threads);
        let (sender, called) = mpsc::channel();
        for number in 1..=3 {
            let sender = sender.clone();
            submit(&store, "cart-1", number).on_acknowledged(move |results| {
                let results = results.expect("acknowledged");
                sender.send((number, results[0].last)).expect("the receiver exists");
            });
        }
        let slot = next_slot(&log, 1);
        assert_eq!(called.try_iter().count(), 0, "in no slot");
        log.slot_created(slot.to).expect("a slot of this log");
        assert_eq!(called.recv_timeout(WAIT_TIMEOUT), Ok((1, Some(0))));
        assert_eq!((called.try_iter().count(), visible_numbers(&store)), (0, vec![1]));
        create_slot(&log);
        assert_eq!(called.recv_timeout(WAIT_TIMEOUT), Ok((2, Some(1))));
        assert_eq!(called.recv_timeout(WAIT_TIMEOUT), Ok((3, Some(2))));
        assert_eq!(visible_numbers(&store), [1, 2, 3]);
        store.close().expect("closed");
    }
}

/// Runs `call` on a thread of its own.
fn on_thread<T: Send + 'static>(
    call: impl FnOnce() -> T + Send + 'static,
) -> (mpsc::Receiver<T>, Box<dyn umbel_env::JoinHandle>) {
    let (sender, receiver) = mpsc::channel();
    let work = Box::new(move || sender.send(call()).expect("the receiver exists"));
    (receiver, Env::system().threads.spawn("call", work).expect("a thread"))
}

fn append_on_thread(
    store: &Store,
    expected: ExpectedVersion,
    number: u64,
) -> (mpsc::Receiver<umbel_events::Result<WriteResult>>, Box<dyn umbel_env::JoinHandle>) {
    let store = store.clone();
    on_thread(move || store.append("cart-1", expected, &[event(number)]))
}

#[test]
fn waiting_append_returns_after_its_slot() {
    for background_threads in [0, 2] {
        let (store, log) = leader(&Sim::new(1), background_threads);
        let (result, thread) = append_on_thread(&store, ExpectedVersion::NoStream, 1);
        assert!(!log.wait_unslotted(WAIT_TIMEOUT).expect("open").is_empty(), "an append");
        let slot = next_slot(&log, u64::MAX);
        assert!(result.try_recv().is_err(), "in no slot");
        log.slot_created(slot.to).expect("a slot of this log");
        let written = result.recv_timeout(WAIT_TIMEOUT).expect("an answer");
        assert_eq!(written.expect("acknowledged").last, Some(0));
        assert!(thread.join());
        store.close().expect("closed");
    }
}

#[test]
fn every_kind_of_write_waits_for_its_slot() {
    let (store, log) = leader(&Sim::new(1), 0);
    let events = [event(1), event(2), event(3)];
    let appends = events.each_ref().map(|event| StreamAppend {
        stream: "cart-1",
        expected: ExpectedVersion::Any,
        events: std::slice::from_ref(event),
    });
    let requests = appends
        .each_ref()
        .map(|append| AppendRequest { appends: std::slice::from_ref(append), checks: &[] });
    let submitted = store.submit_each(&requests[..2]).into_iter();
    let mut pending: Vec<_> = submitted.map(|append| append.expect("submitted")).collect();
    pending.push(store.try_submit(&requests[2]).expect("at once"));
    store.sync().expect("durable");
    assert!(!pending.iter().any(PendingAppend::is_acknowledged));
    assert_hidden(&store);
    create_slot(&log);
    assert!(pending.iter().all(PendingAppend::is_acknowledged));
    assert_eq!(visible_numbers(&store), [1, 2, 3]);

    type Write = fn(&Store) -> umbel_events::Result<()>;
    let writes: [Write; 4] = [
        |store| store.delete("cart-1", ExpectedVersion::Any).map(drop),
        |store| {
            store
                .append_streams(
                    &[
                        StreamAppend {
                            stream: "cart-1",
                            expected: ExpectedVersion::Any,
                            events: &[event(4)],
                        },
                        StreamAppend {
                            stream: "cart-2",
                            expected: ExpectedVersion::Any,
                            events: &[event(5)],
                        },
                    ],
                    &[],
                )
                .map(drop)
        },
        |store| {
            let mut import = store.import()?;
            let imported =
                ImportedEvent { stream: "cart-3", revision: None, created: None, event: event(6) };
            import.add(&imported)?;
            import.finish().map(drop)
        },
        |store| store.tombstone("cart-1", ExpectedVersion::Any).map(drop),
    ];
    for (number, write) in writes.into_iter().enumerate() {
        let (visible, writer) = (store.visible_position(), store.clone());
        let (result, thread) = on_thread(move || write(&writer));
        assert!(!log.wait_unslotted(WAIT_TIMEOUT).expect("open").is_empty(), "write {number}");
        let slot = next_slot(&log, u64::MAX);
        assert!(result.try_recv().is_err(), "in no slot: write {number}");
        assert_eq!(store.visible_position(), visible, "write {number}");
        log.slot_created(slot.to).expect("a slot of this log");
        result.recv_timeout(WAIT_TIMEOUT).expect("an answer").expect("acknowledged");
        assert!(store.visible_position() > visible && thread.join(), "write {number}");
    }
    assert!(store.verify().expect("verified").damage.is_empty());
}

#[test]
fn flush_waits_for_the_slots() {
    let (store, log) = leader(&Sim::new(1), 0);
    submit(&store, "cart-1", 1).on_acknowledged(|results| drop(results.expect("acknowledged")));
    let flushing = store.clone();
    let (result, thread) = on_thread(move || flushing.flush());
    let slot = next_slot(&log, u64::MAX);
    assert!(result.try_recv().is_err(), "in no slot");
    assert_eq!(store.stats().expect("open").indexed_through, 0);
    log.slot_created(slot.to).expect("a slot of this log");
    result.recv_timeout(WAIT_TIMEOUT).expect("an answer").expect("flushed");
    assert!(store.stats().expect("open").indexed_through > 0);
    assert!(thread.join());
}

/// A refusal names a revision, which must be in a slot first.
#[test]
fn refusal_waits_for_the_slot_of_the_events_that_it_names() {
    let (store, log) = leader(&Sim::new(1), 0);
    let first = submit(&store, "cart-1", 1);
    let (result, thread) = append_on_thread(&store, ExpectedVersion::NoStream, 2);
    let slot = next_slot(&log, u64::MAX);
    assert!(result.try_recv().is_err(), "in no slot");
    log.slot_created(slot.to).expect("a slot of this log");
    let refused = result.recv_timeout(WAIT_TIMEOUT).expect("an answer");
    assert!(matches!(refused, Err(Error::WrongExpectedVersion { current: Some(0), .. })));
    assert!(first.is_acknowledged() && thread.join());

    submit(&store, "cart-2", 3).on_acknowledged(|results| assert!(is_ambiguous(results)));
    let other = store.clone();
    let (result, thread) = on_thread(move || {
        submit_event(&other, "cart-2", ExpectedVersion::NoStream, event(4)).map(drop)
    });
    log.end().expect("ended");
    let refused = result.recv_timeout(WAIT_TIMEOUT).expect("an answer");
    // Either the end came before the append, which wrote nothing, or the append waited.
    let expected = [Error::AppendAmbiguous, Error::NotLeader, umbel::Error::Closed.into()];
    let texts = expected.map(|error| error.to_string());
    let refused = refused.expect_err("no append").to_string();
    assert!(texts.contains(&refused), "{refused}");
    assert!(thread.join());
}

/// Ends a leader with one append in a slot and three in none, which the log has. Returns the
/// slot's end.
fn end_with_queue(
    sim: &Sim,
    background_threads: usize,
    end: impl FnOnce(Store, &LogReplication),
) -> LogPoint {
    let (store, log) = leader(sim, background_threads);
    let acknowledged = submit(&store, "cart-1", 1);
    create_slot(&log);
    let (waited, thread) = append_on_thread(&store, ExpectedVersion::Any, 4);
    assert!(!log.wait_unslotted(WAIT_TIMEOUT).expect("open").is_empty(), "an append");
    let (sender, called) = mpsc::channel();
    let done = move |results| sender.send(results).expect("the receiver exists");
    submit(&store, "cart-1", 2).on_acknowledged(done);
    let pending = submit(&store, "cart-2", 3);
    let slot = next_slot(&log, u64::MAX);
    end(store, &log);
    assert!(is_ambiguous(called.recv_timeout(WAIT_TIMEOUT).expect("a call")));
    assert!(is_ambiguous(waited.recv_timeout(WAIT_TIMEOUT).expect("an answer")));
    assert!(!pending.is_acknowledged());
    assert!(is_ambiguous(pending.wait()));
    assert!(acknowledged.is_acknowledged());
    assert_eq!(acknowledged.wait().expect("acknowledged")[0].last, Some(0));
    assert!(thread.join());
    // The answer about the slot comes too late.
    let in_slots = log.in_slots().expect("known");
    assert!(log.slot_created(slot.to).is_err());
    assert!(log.promote(2).is_err(), "a store that led never follows");
    assert_eq!(log.next_slot(u64::MAX).expect("nothing"), None);
    assert_eq!(log.in_slots().expect("known"), in_slots);
    in_slots
}

/// Opens the directory of a leader again, whose log has records beyond the slots.
fn assert_opens_with_one_event(sim: &Sim, in_slots: LogPoint) {
    let (store, log) = open(sim, in_slots);
    assert_eq!(visible_numbers(&store), [1]);
    assert_eq!(store.stream_state("cart-2").expect("readable"), StreamState::Missing);
    assert_eq!(store.view("$streams", Position::END).expect("a view").map(|it| it.last), Some(0));
    assert!(store.verify().expect("verified").damage.is_empty());
    assert!(log.promote(2).is_err(), "the log was not cut");
    for number in [1, 2, 5] {
        let refused = submit_event(&store, "cart-1", ExpectedVersion::Any, event(number));
        assert!(matches!(refused, Err(Error::NotLeader)), "{refused:?}");
    }
    store.close().expect("closed");
}

#[test]
fn close_acknowledges_and_indexes_nothing() {
    for background_threads in [0, 2] {
        let sim = Sim::new(1);
        let close = |store: Store, _: &LogReplication| store.close().expect("closed");
        let in_slots = end_with_queue(&sim, background_threads, close);
        assert_opens_with_one_event(&sim, in_slots);
        assert_opens_with_one_event(&sim, in_slots);
    }
}

#[test]
fn end_of_the_epoch_fails_all_waits() {
    for background_threads in [0, 2] {
        let sim = Sim::new(1);
        let end = |store: Store, log: &LogReplication| {
            log.end().expect("ended");
            let refused = submit_event(&store, "cart-1", ExpectedVersion::Any, event(9));
            assert!(refused.is_err());
            log.end().expect("no second end");
        };
        let in_slots = end_with_queue(&sim, background_threads, end);
        assert_opens_with_one_event(&sim, in_slots);
    }
}

/// The catch-up of an open finds records that the index lacks, within the slots and beyond them.
#[test]
fn open_after_a_crash_indexes_nothing_beyond_the_slots() {
    let sim = Sim::new(1);
    let (store, log) = leader(&sim, 0);
    for number in 1..=20 {
        submit(&store, &format!("cart-{}", number % 3), number).on_acknowledged(|_| ());
        if number % 4 == 0 {
            let slot = next_slot(&log, u64::MAX);
            let images = [sim.kill_image(), sim.crash_image(&Survival::None, number)];
            for (image, created) in images.iter().flat_map(|image| [(image, false), (image, true)])
            {
                let image = image.clone_disk();
                let in_slots = if created { slot.to } else { log.in_slots().expect("open") };
                let shown = if created { number } else { number - 4 };
                let (store, log) = open(&image, in_slots);
                assert_eq!(visible_numbers(&store), (1..=shown).collect::<Vec<_>>());
                assert!(store.verify().expect("verified").damage.is_empty());
                assert_eq!(log.promote(2).is_ok(), created);
                if created {
                    // The window of recent ids has the records.
                    let again = submit(&store, &format!("cart-{}", number % 3), number);
                    assert!(again.wait().expect("acknowledged")[0].is_retry);
                    submit(&store, "cart-1", 100).on_acknowledged(|_| ());
                    create_slot(&log);
                    assert_eq!(visible_numbers(&store).last(), Some(&100));
                }
            }
            log.slot_created(slot.to).expect("a slot of this log");
        }
    }
}

#[test]
fn slots_have_the_bytes_of_the_chunks() {
    let sim = Sim::new(1);
    let (store, log) = leader(&sim, 0);
    let mut ends = std::collections::BTreeMap::new();
    let (mut numbers, mut ended_chunks) = (0, 0);
    for round in 0..30 {
        for _ in 0..=round % 3 {
            numbers += 1;
            let data = vec![numbers as u8; 9000];
            let large = NewEvent::binary(id(numbers), "Large", &data);
            let submitted = submit_event(&store, "cart-1", ExpectedVersion::Any, large);
            submitted.expect("submitted").on_acknowledged(|_| ());
        }
        let bytes_max = [1, 20_000, u64::MAX][round % 3];
        while let Some(slot) = log.next_slot(bytes_max).expect("readable") {
            for part in slot.chunks {
                let end = ends.entry(part.chunk).or_insert(part.from);
                assert_eq!(*end, part.from, "contiguous");
                *end += part.bytes.len() as u64;
                let path = format!("/events/log/{:08}.chunk", part.chunk);
                let file = sim.env().files.open(path.as_ref(), Access::Read).expect("a chunk");
                let mut bytes = vec![0; part.bytes.len()];
                file.read_exact_at(&mut bytes, part.from).expect("durable");
                assert!(bytes == part.bytes, "those of the file");
                if let Some(ended) = part.ended {
                    assert_eq!(ended.end, *end, "after the last record");
                    let mut record = [0; 48];
                    file.read_exact_at(&mut record, ended.end).expect("an end record");
                    assert_eq!(record[24..28], ended.mark.to_le_bytes());
                    assert_eq!(record[40..48], ended.running.to_le_bytes());
                    ended_chunks += 1;
                }
            }
            log.slot_created(slot.to).expect("a slot of this log");
        }
        assert_eq!(visible_numbers(&store).len() as u64, numbers);
        // An append into the next chunk would wait for this, and so for a slot.
        store.flush().expect("flushed");
    }
    assert!(ends.len() > 3, "{ends:?}");
    assert_eq!(ended_chunks + 1, ends.len(), "each chunk but the last one ends once");
}

#[test]
fn random_slots_show_exactly_their_records() {
    for seed in 1..=20_u64 {
        let (store, log) = leader(&Sim::new(seed), 0);
        let mut state = seed;
        let mut below = |limit: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(seed | 1);
            (state >> 33) % limit
        };
        let (mut pending, mut ends) = (Vec::new(), Vec::new());
        for _ in 0..200 {
            if below(3) > 0 {
                let stream = format!("cart-{}", below(4));
                let number = pending.len() as u64;
                pending.push(submit(&store, &stream, number));
                ends.push(log.unslotted().expect("open").end);
            } else if let Some(slot) = log.next_slot(below(2000)).expect("readable") {
                log.slot_created(slot.to).expect("a slot of this log");
            }
            let in_slots = log.in_slots().expect("open").offset;
            let shown = ends.iter().filter(|end| **end <= in_slots).count();
            assert_eq!(visible_numbers(&store), (0..shown as u64).collect::<Vec<_>>());
            let acknowledged = pending.iter().filter(|it| it.is_acknowledged()).count();
            assert_eq!(acknowledged, shown);
        }
        assert!(store.verify().expect("verified").damage.is_empty());
    }
}

#[test]
fn slots_that_are_not_of_this_log_are_refused() {
    let sim = Sim::new(1);
    let (store, log) = leader(&sim, 0);
    let pending = submit(&store, "cart-1", 1);
    let LogPoint { epoch, offset } = next_slot(&log, u64::MAX).to;
    for to in [
        LogPoint { epoch, offset: offset - 8 },
        LogPoint { epoch, offset: offset + 8 },
        LogPoint { epoch: epoch + 1, offset },
        LogPoint { epoch: 0, offset },
    ] {
        assert!(log.slot_created(to).is_err(), "{to:?}");
    }
    assert!(!pending.is_acknowledged() && visible_numbers(&store).is_empty());
    // A slot without records.
    log.slot_created(LogPoint { epoch, offset: 0 }).expect("a heartbeat");
    assert!(!pending.is_acknowledged());
    let image = sim.kill_image();
    for offset in [offset - 8, offset + 8] {
        let in_slots = LogPoint { epoch, offset };
        let refused = Store::open_replicated("/events", replica_options(&image, 0), in_slots);
        assert!(matches!(refused, Err(Error::Invalid(_))), "{offset}");
    }
}

#[test]
fn store_that_cannot_be_replicated_is_refused() {
    let sim = Sim::new(1);
    let buffered = StoreOptions { durability: Durability::Buffered, ..options(&sim) };
    let refused = Store::open_replicated("/events", buffered, START);
    assert!(matches!(refused, Err(Error::Invalid(_))));
    assert!(!sim.env().files.exists("/events".as_ref()).expect("readable"), "nothing was created");

    let (store, log) = open(&sim, START);
    let refused = submit_event(&store, "cart-1", ExpectedVersion::Any, event(1));
    assert!(matches!(refused, Err(Error::NotLeader)), "a follower: {refused:?}");
    store.flush().expect("flushed");
    log.promote(1).expect("a follower");
    assert!(log.promote(2).is_err(), "in one epoch");
    // Their rules are plans.
    assert!(matches!(store.scavenge(&ScavengeOptions::default()), Err(Error::Invalid(_))));
    assert!(matches!(store.backup("/backup", CopyOptions::default()), Err(Error::Invalid(_))));
    store.close().expect("closed");
}
