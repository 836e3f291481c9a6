//! Tests of the written events that the appender compares a retry with.

use umbel::Durability;
use umbel_base::ignore_poison::IgnorePoison;
use umbel_filter::HashSecret;
use umbel_sim::Sim;

use super::*;
use crate::append::expected_version_check::{StreamHistory, StreamSnapshot, decide};
use crate::append::index_queue::IndexQueue;
use crate::append::pending_heads::PendingHeads;
use crate::append::position_window::PositionWindow;
use crate::append::recent_event_ids::RecentEventIds;
use crate::append::stream_history_reader::StreamHistoryReader;
use crate::event_log::FRAMES_READ;
use crate::index::POSITION_SEEKS;
use crate::types::imported_event::ImportedEvent;

const STREAMS: [&str; 2] = ["a", "b"];

/// Options without threads and with short chunks.
fn options(sim: &Sim, durability: Durability) -> StoreOptions {
    StoreOptions {
        durability,
        background_threads: 0,
        chunk_bytes: 64 << 10,
        memory_bytes: Some(8 << 20),
        env: sim.env(),
        ..StoreOptions::default()
    }
}

fn event(number: u64) -> NewEvent<'static> {
    NewEvent::json(EventId(u128::from(number).to_le_bytes()), "Happened", b"{}")
}

fn set_metadata(store: &Store, stream: &str, metadata: &str) {
    let id = store.new_id().expect("an id");
    let event = NewEvent::json(id, "$metadata", metadata.as_bytes());
    store.append(&metadata_stream(stream), ExpectedVersion::Any, &[event]).expect("appended");
}

/// Scavenges all chunks. Hidden events leave a stub if they are this near the end of the log.
fn scavenge(store: &Store, retry_bytes: u64) {
    let options = ScavengeOptions {
        busy_percent: 100,
        removes_all: true,
        retry_bytes,
        ..ScavengeOptions::default()
    };
    store.scavenge(&options).expect("scavenged");
}

/// Regression: each event of a retry was a range seek of the index under the appender's lock,
/// 100,000 of them for the longest append. A client could repeat that.
#[test]
fn retry_of_long_append_takes_few_index_seeks() {
    let sim = Sim::new(1);
    let options = StoreOptions { chunk_bytes: 8 << 20, ..options(&sim, Durability::Buffered) };
    let store = Store::open("/events", options).expect("a new store");
    let events: Vec<_> = (1..=10_000).map(event).collect();
    let first = store.append("a", ExpectedVersion::Any, &events).expect("appended");
    // Moves the last of these events from the stream's head to an entry.
    store.append("a", ExpectedVersion::Any, &[event(10_001)]).expect("appended");
    for expected in [ExpectedVersion::Any, ExpectedVersion::NoStream] {
        let before = POSITION_SEEKS.get();
        let again = store.append("a", expected, &events).expect("a retry");
        let seeks = POSITION_SEEKS.get() - before;
        assert_eq!(again, WriteResult { is_retry: true, ..first }, "{expected:?}");
        assert!((1..=32).contains(&seeks), "{seeks} seeks, {expected:?}");
    }
}

/// Regression: the events of a retry were read under the appender's lock, 30 ms for 100,000 events.
/// A client could repeat that.
#[test]
fn retry_that_was_compared_before_reads_few_events() {
    let sim = Sim::new(1);
    let options = StoreOptions { chunk_bytes: 8 << 20, ..options(&sim, Durability::Buffered) };
    let store = Store::open("/events", options).expect("a new store");
    let events: Vec<_> = (1..=10_000).map(event).collect();
    let first = store.append("a", ExpectedVersion::Any, &events).expect("appended");
    for expected in [ExpectedVersion::Any, ExpectedVersion::NoStream] {
        let appends = [StreamAppend { stream: "a", expected, events: &events }];
        let request = AppendRequest { appends: &appends, checks: &[] };
        let checked = store.check_append(&request);
        let before = FRAMES_READ.get();
        let submitted = store.submit_each_checked(vec![(request, checked)]);
        let frames = FRAMES_READ.get() - before;
        let again = submitted.into_iter().flatten().next().expect("a retry").results[0];
        assert_eq!(again, WriteResult { is_retry: true, ..first }, "{expected:?}");
        assert!((1..=4).contains(&frames), "{frames} events, {expected:?}");
    }
}

/// A scavenge after the comparison removes events that were compared.
#[test]
fn scavenge_after_events_were_compared_is_noticed() {
    let sim = Sim::new(1);
    let options = StoreOptions { chunk_bytes: 8 << 20, ..options(&sim, Durability::Buffered) };
    let store = Store::open("/events", options).expect("a new store");
    let events: Vec<_> = (0..2000).map(event).collect();
    store.append("a", ExpectedVersion::Any, &events).expect("appended");
    let expected = ExpectedVersion::NoStream;
    let appends = [StreamAppend { stream: "a", expected, events: &events }];
    let request = AppendRequest { appends: &appends, checks: &[] };
    let compared = [store.check_append(&request), store.check_append(&request)];
    let [before, after] = compared.map(|checked| {
        let submitted = store.submit_each_checked(vec![(request, checked)]);
        if store.metadata("a").expect("readable").is_none() {
            set_metadata(&store, "a", r#"{"$maxCount":20}"#);
            scavenge(&store, 0);
        }
        submitted.into_iter().flatten().next()
    });
    assert!(before.expect("all events are there").results[0].is_retry);
    assert!(after.is_none(), "the first events are gone");
}

/// History that reads the position of each event on its own.
struct SingleSeekHistory<'a>(StreamHistoryReader<'a>);

impl StreamHistory for SingleSeekHistory<'_> {
    fn event(&mut self, revision: u64) -> Result<Option<(EventId, u64)>> {
        let reader = &mut self.0;
        let Some(head) = reader.head.filter(|head| revision <= head.last_revision) else {
            return Ok(None);
        };
        let position = if revision == head.last_revision && !head.is_tombstoned {
            Some(head.last_position)
        } else {
            let (queue, heads) = (reader.queue, reader.pending_heads);
            match heads.position(queue, reader.hash, reader.stream, revision) {
                Some(position) => Some(position),
                None => reader.components.index.position(head.id, revision)?,
            }
        };
        let Some(position) = position else { return Ok(None) };
        let frame = reader.cursor.find_event(position)?;
        Ok(frame.map(|frame| (frame.event.id, position)))
    }

    fn recent_revision(&mut self, id: EventId) -> Result<Option<u64>> {
        self.0.recent_revision(id)
    }
}

/// Decisions about an append: by positions that are read together, by single ones, and by events
/// that were compared before.
fn decisions(store: &Store, append: &StreamAppend<'_>) -> [String; 3] {
    let shared = store.shared();
    let compared = shared.written_prefix(append);
    let guard = shared.appender.lock().ignore_poison();
    let Some(appender) = &*guard else { panic!("the store is open") };
    let head_of = |name: &str| {
        let hash = shared.existence.hash(name);
        let queued = appender.pending_heads.head(&appender.queue, hash, name);
        queued.or_else(|| shared.components.head(name).expect("readable"))
    };
    let (head, metadata) = (head_of(append.stream), head_of(&metadata_stream(append.stream)));
    let retention = metadata.and_then(|metadata| metadata.retention_of(head));
    let known = StreamSnapshot { head, retention, depends_on: 0 };
    let StreamAppend { stream, expected, events } = *append;
    let mut cursor = shared.log.cursor();
    [(true, None), (false, None), (true, compared)].map(|(reads_together, prefix)| {
        let mut reader = StreamHistoryReader {
            components: &shared.components,
            stream,
            hash: shared.existence.hash(stream),
            head,
            recent_ids: &appender.recent_ids,
            queue: &appender.queue,
            pending_heads: &appender.pending_heads,
            sees_deleted: false,
            cursor: &mut cursor,
            window: PositionWindow::default(),
            written: prefix,
        };
        let decided = if reads_together {
            decide(stream, &known, expected, events, &mut reader)
        } else {
            decide(stream, &known, expected, events, &mut SingleSeekHistory(reader))
        };
        format!("{decided:?}")
    })
}

/// A store with a random history.
struct RandomHistory {
    sim: Sim,
    durability: Durability,
    store: Store,
    random: u64,
    next_number: u64,
    /// Revisions and numbers of the events of each stream.
    written: [Vec<(u64, u64)>; 2],
    /// Number of decisions that an append is a retry, and that only a part of it exists.
    recognized: [usize; 2],
}

impl RandomHistory {
    fn new(seed: u64) -> RandomHistory {
        let sim = Sim::new(seed);
        let is_synced = seed.is_multiple_of(2);
        let durability = if is_synced { Durability::Synced } else { Durability::Buffered };
        let store = Store::open("/events", options(&sim, durability)).expect("a new store");
        let random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let (written, recognized) = ([Vec::new(), Vec::new()], [0, 0]);
        RandomHistory { sim, durability, store, random, next_number: 1, written, recognized }
    }

    fn random(&mut self, bound: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % bound
    }

    fn next_event(&mut self) -> (u64, NewEvent<'static>) {
        let number = self.next_number;
        self.next_number += 1;
        (number, event(number))
    }

    /// Appends events, which stay queued in a synced store.
    fn append(&mut self, index: usize) {
        let count = 1 + self.random(4) * self.random(50);
        let (numbers, events): (Vec<_>, Vec<_>) = (0..count).map(|_| self.next_event()).unzip();
        let (stream, expected) = (STREAMS[index], ExpectedVersion::Any);
        let appends = [StreamAppend { stream, expected, events: &events }];
        let request = AppendRequest { appends: &appends, checks: &[] };
        let pending = self.store.submit(&request).expect("submitted");
        let first = pending.results[0].first.expect("a revision");
        self.written[index].extend((first..).zip(numbers));
    }

    /// Imports an event after a gap of revisions.
    fn import(&mut self, index: usize) {
        let gap = self.random(5);
        let (number, event) = self.next_event();
        let next = self.written[index].last().map_or(0, |(last, _)| last + 1);
        let (revision, stream) = (next + gap, STREAMS[index]);
        let event = ImportedEvent { stream, revision: Some(revision), created: None, event };
        let mut import = self.store.import().expect("begun");
        import.add(&event).expect("added");
        import.finish().expect("imported");
        self.written[index].push((revision, number));
    }

    fn truncate(&mut self, index: usize) {
        let last = self.written[index].last().map_or(0, |(last, _)| *last);
        let metadata = match self.random(3) {
            0 => format!(r#"{{"$tb":{}}}"#, self.random(last + 2)),
            1 => format!(r#"{{"$maxCount":{}}}"#, 1 + self.random(50)),
            _ => "{}".to_string(),
        };
        set_metadata(&self.store, STREAMS[index], &metadata);
    }

    fn step(&mut self) {
        let index = self.random(2) as usize;
        match self.random(12) {
            0..=5 => self.append(index),
            6 => self.import(index),
            7 | 8 => self.truncate(index),
            // A stream without events cannot be deleted.
            9 => drop(self.store.delete(STREAMS[index], ExpectedVersion::Any)),
            10 => {
                let retry_bytes = self.random(2) << 20;
                scavenge(&self.store, retry_bytes);
            }
            _ => {
                self.store.clone().close().expect("closed");
                let options = options(&self.sim, self.durability);
                self.store = Store::open("/events", options).expect("opened again");
            }
        }
    }

    /// Compares the decisions about an append of consecutive events of a stream, some of them with
    /// a new event in between or after them.
    fn check(&mut self, what: &str) {
        let index = self.random(2) as usize;
        let len = self.written[index].len();
        if len == 0 {
            return;
        }
        let start = self.random(len as u64) as usize;
        let count = 1 + self.random((len - start) as u64) as usize;
        let revision = self.written[index][start].0;
        let written = &self.written[index][start..start + count];
        let mut events: Vec<_> = written.iter().map(|(_, number)| event(*number)).collect();
        match self.random(4) {
            0 => events[self.random(count as u64) as usize] = event(0),
            1 => events.push(event(0)),
            _ => {}
        }
        for expected in [
            ExpectedVersion::Any,
            ExpectedVersion::Exists,
            ExpectedVersion::NoStream,
            ExpectedVersion::Deleted,
            revision.checked_sub(1).map_or(ExpectedVersion::Any, ExpectedVersion::Exact),
        ] {
            let append = StreamAppend { stream: STREAMS[index], expected, events: &events };
            let [together, single, before] = decisions(&self.store, &append);
            assert_eq!(together, single, "{what}, {expected:?}, from {revision}, {count} events");
            assert_eq!(before, single, "{what}, {expected:?}, from {revision}, {count} events");
            self.recognized[0] += usize::from(together.starts_with("Ok(Retry"));
            self.recognized[1] += usize::from(together.contains("present: Some"));
        }
    }
}

/// Positions that are read together lead to the same decisions as single ones, whatever events
/// were scavenged, truncated or deleted, and whether the index has them.
#[test]
fn decisions_agree_with_those_of_single_seeks() {
    let mut recognized = [0, 0];
    for seed in 0..16 {
        let mut history = RandomHistory::new(seed);
        for step in 0..40 {
            history.step();
            for _ in 0..2 {
                history.check(&format!("seed {seed}, step {step}"));
            }
        }
        let [retries, partial] = history.recognized;
        recognized = [recognized[0] + retries, recognized[1] + partial];
        history.store.close().expect("closed");
    }
    assert!(recognized.iter().all(|count| *count > 0), "{recognized:?}");
}

/// A scavenge may delete entries of the index while a retry is compared.
#[test]
fn history_notices_a_scavenge_after_positions_were_read() {
    let sim = Sim::new(1);
    let options = options(&sim, Durability::Buffered);
    let store = Store::open("/events", options).expect("a new store");
    let events: Vec<_> = (0..200).map(event).collect();
    store.append("a", ExpectedVersion::Any, &events).expect("appended");
    set_metadata(&store, "a", r#"{"$maxCount":20}"#);
    let shared = store.shared();
    let recent_ids = RecentEventIds::new(HashSecret::from_seed([1; 16]));
    let (queue, pending_heads) = (IndexQueue::default(), PendingHeads::default());
    let mut cursor = shared.log.cursor();
    let mut reader = StreamHistoryReader {
        components: &shared.components,
        stream: "a",
        hash: shared.existence.hash("a"),
        head: shared.components.head("a").expect("readable"),
        recent_ids: &recent_ids,
        queue: &queue,
        pending_heads: &pending_heads,
        sees_deleted: false,
        cursor: &mut cursor,
        window: PositionWindow::default(),
        written: None,
    };
    let mut id = |revision| reader.event(revision).expect("readable").map(|(id, _)| id);
    for revision in 0..130 {
        assert_eq!(id(revision), Some(event(revision).id), "{revision}");
    }
    // Windows of 1, 2, 4 .. 64 revisions were read, and one from 127 on to the end.
    scavenge(&store, 0);
    for revision in 130..200 {
        let wanted = (revision >= 180).then(|| event(revision).id);
        assert_eq!(id(revision), wanted, "{revision}");
    }
}
