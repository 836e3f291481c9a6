//! [`Transaction`]: records for several streams that are appended together or not at all.

use std::sync::Arc;

use tokio::sync::oneshot;
use tonic::Status;
use umbel_events::limits::{
    APPEND_BYTES_MAX, APPEND_EVENTS_MAX, APPEND_STREAMS_MAX, EVENT_BYTES_MAX, STREAM_NAME_BYTES_MAX,
};
use umbel_events::{
    Appended, Check, Error, Expected, NewEvent, Request, Store, StreamAppend, StreamState, Ticket,
};
use umbel_proto::v2::streams::expected;

use crate::acl::Action;
use crate::budget::{Budget, Share};
use crate::limits::EVENT_BYTES_BESIDE;
use crate::record::Record;
use crate::rich_failure::{self, invalid};
use crate::store::EventStore;
use crate::{convert, failure};

/// Records for several streams, within the limits of one append.
#[derive(Debug)]
pub struct Transaction {
    streams: Vec<StreamRecords>,
    checks: Vec<(String, Expected)>,
    records: usize,
    bytes: usize,
    share: Share,
}

#[derive(Debug)]
struct StreamRecords {
    stream: String,
    expected: Expected,
    records: Vec<Record>,
}

/// What came of a transaction: each stream in the order in which it was added.
#[derive(Debug)]
pub struct Done {
    /// The streams.
    pub streams: Vec<(String, Appended)>,
    /// What their names hold of what all appends together may.
    _share: Share,
}

impl Transaction {
    /// An empty one.
    pub fn new(budget: &Arc<Budget>) -> Transaction {
        let (streams, checks) = (Vec::new(), Vec::new());
        Transaction { streams, checks, records: 0, bytes: 0, share: budget.share() }
    }

    /// Adds a stream, which was not added before. Returns its place.
    pub fn add_stream(&mut self, stream: String, expected: Expected) -> Result<usize, Status> {
        let stream = self.hold_name(stream)?;
        self.streams.push(StreamRecords { stream, expected, records: Vec::new() });
        Ok(self.streams.len() - 1)
    }

    /// Adds a record to the stream at a place.
    pub fn add(&mut self, place: usize, record: Record) -> Result<(), Status> {
        let StreamRecords { stream, records, .. } = &mut self.streams[place];
        if record.event_bytes() > EVENT_BYTES_MAX {
            let id = record.id().to_string();
            return Err(rich_failure::record_too_large(stream, id, record.event_bytes()));
        }
        self.bytes += record.bytes();
        if self.bytes > APPEND_BYTES_MAX {
            return Err(rich_failure::transaction_too_large(self.bytes as u64));
        }
        if self.records == APPEND_EVENTS_MAX {
            return Err(invalid(format!(
                "an append may have {APPEND_EVENTS_MAX} records; append them in parts"
            )));
        }
        if !self.share.grow(record.bytes() + EVENT_BYTES_BESIDE) {
            return Err(failure::no_room());
        }
        self.records += 1;
        records.push(record);
        Ok(())
    }

    /// The streams that are appended to, and those that are only looked at.
    pub fn streams(&self) -> impl Iterator<Item = (Action, &str)> {
        let written = self.streams.iter().map(|one| (Action::Write, &*one.stream));
        written.chain(self.checks.iter().map(|(stream, _)| (Action::Read, &**stream)))
    }

    /// Whether the stream at a place has no records.
    pub fn has_no_records(&self, place: usize) -> bool {
        self.streams[place].records.is_empty()
    }

    /// Lets the append to the stream at a place expect this, where it expects nothing. Returns
    /// whether it does now.
    pub fn expect(&mut self, place: usize, expected: Expected) -> bool {
        let of_stream = &mut self.streams[place].expected;
        let is_free = *of_stream == Expected::Any;
        if is_free {
            *of_stream = expected;
        }
        is_free
    }

    /// Adds a check. Returns its place among the checks.
    pub fn add_check(&mut self, stream: String, expected: Expected) -> Result<usize, Status> {
        let stream = self.hold_name(stream)?;
        self.checks.push((stream, expected));
        Ok(self.checks.len() - 1)
    }

    /// The name, with no more memory than it needs and is counted for.
    fn hold_name(&mut self, mut stream: String) -> Result<String, Status> {
        if stream.is_empty() || convert::is_too_long(stream.as_bytes()) {
            return Err(invalid(format!(
                "a stream's name has {} bytes, but must have 1 to {STREAM_NAME_BYTES_MAX}",
                stream.len()
            )));
        }
        if self.streams.len() + self.checks.len() == APPEND_STREAMS_MAX {
            return Err(invalid(format!(
                "an append may be about {APPEND_STREAMS_MAX} streams, checks included"
            )));
        }
        if !self.share.grow(stream.len() + EVENT_BYTES_BESIDE) {
            return Err(failure::no_room());
        }
        stream.shrink_to_fit();
        Ok(stream)
    }

    /// Hands it to the store. What comes of it comes once that is as durable as the store makes
    /// appends.
    pub async fn submit(self, store: &EventStore) -> Result<Done, Error> {
        let (done, told) = oneshot::channel();
        let rules = Arc::clone(store.rules());
        let submitted = store.blocking(move |store| {
            let ticket = self.ticket(store)?;
            let names = self.streams.iter().map(|one| one.stream.clone());
            let of_system: Vec<String> = names.filter(|name| name.starts_with('$')).collect();
            ticket.then(move |answers| {
                of_system.iter().for_each(|name| rules.forget(name));
                // Whoever asked may have gone away; the append is done all the same.
                let _ = done.send(answers);
            });
            let Transaction { streams, share, .. } = self;
            Ok((streams.into_iter().map(|one| one.stream).collect::<Vec<_>>(), share))
        });
        let (names, share) = submitted.await?;
        let answers = told.await.unwrap_or(Err(Error::Store(umbel::Error::Closed)))?;
        Ok(Done { streams: names.into_iter().zip(answers).collect(), _share: share })
    }

    fn ticket(&self, store: &Store) -> Result<Ticket, Error> {
        let events: Vec<Vec<NewEvent<'_>>> = self
            .streams
            .iter()
            .map(|one| one.records.iter().map(Record::event).collect())
            .collect();
        let mut appends = Vec::with_capacity(events.len());
        for (StreamRecords { stream, expected, .. }, events) in self.streams.iter().zip(&events) {
            appends.push(StreamAppend { stream, expected: *expected, events });
        }
        let mut checks = Vec::with_capacity(self.checks.len());
        for (stream, expected) in &self.checks {
            checks.push(Check { stream, expected: *expected });
        }
        store.submit_checked(&Request { appends: &appends, checks: &checks })
    }
}

impl Done {
    /// The position of the last record of all.
    pub fn position(&self) -> i64 {
        let positions = self.streams.iter().filter_map(|(_, appended)| appended.position);
        positions.max().map_or(0, |position| position as i64)
    }
}

/// What a number of a client expects; `None` where it is none of those.
pub fn expected(number: i64) -> Option<Expected> {
    match number {
        expected::NO_STREAM => Some(Expected::NoStream),
        expected::ANY => Some(Expected::Any),
        expected::EXISTS => Some(Expected::Exists),
        expected::DELETED => Some(Expected::Deleted),
        expected::TOMBSTONED => Some(Expected::Tombstoned),
        revision => u64::try_from(revision).ok().map(Expected::Exact),
    }
}

/// The number by which clients know what is expected.
pub fn expected_number(expected: Expected) -> i64 {
    match expected {
        Expected::NoStream => expected::NO_STREAM,
        Expected::Any => expected::ANY,
        Expected::Exists => expected::EXISTS,
        Expected::Deleted => expected::DELETED,
        Expected::Tombstoned => expected::TOMBSTONED,
        Expected::Exact(revision) => i64::try_from(revision).unwrap_or(i64::MAX),
    }
}

/// The number by which clients know what there is of a stream.
pub fn actual_number(state: StreamState) -> i64 {
    match state {
        StreamState::Missing => expected::NO_STREAM,
        StreamState::Live { last, .. } => last as i64,
        StreamState::Deleted { .. } => expected::DELETED,
        StreamState::Tombstoned => expected::TOMBSTONED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_no_more_memory_than_they_are_counted_for() {
        let budget = Arc::new(Budget::default());
        let mut transaction = Transaction::new(&budget);
        let name = || {
            let mut name = String::with_capacity(1 << 20);
            name.push_str("cart");
            name
        };
        transaction.add_stream(name(), Expected::Any).unwrap();
        transaction.add_check(name(), Expected::Any).unwrap();
        let capacities =
            [transaction.streams[0].stream.capacity(), transaction.checks[0].0.capacity()];
        assert!(capacities.iter().all(|capacity| *capacity < 1000), "{capacities:?}");
    }

    #[test]
    fn every_number_is_read_as_what_it_is_written_for() {
        for number in [-1, -2, -4, -5, -6, 0, 7, i64::MAX] {
            assert_eq!(expected(number).map(expected_number), Some(number));
        }
        for number in [-3, -7, i64::MIN] {
            assert_eq!(expected(number), None);
        }
    }
}
