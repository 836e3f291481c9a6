//! [`Transaction`]: records of several streams, appended all or none.

use std::collections::HashSet;
use std::sync::Arc;

use tonic::Status;
use umbel_events::limits::APPEND_STREAMS_MAX;
use umbel_events::{Error, ExpectedVersion, StreamState, WriteResult};
use umbel_proto::v2::streams::expected;

use crate::access_control::acl::StreamAction;
use crate::event_store::EventStore;
use crate::event_store::append_command::{AppendCommand, StreamEvents};
use crate::limits::EVENT_OVERHEAD_BYTES;
use crate::protocol::grpc_status;
use crate::resources::deferred_drop::{DeferredDrop, ProposedEventList};
use crate::resources::inbound_quota::{InboundQuota, QuotaShare};
use crate::services::streams::record_part;

/// Records of several streams, within the limits of one append.
#[derive(Debug)]
pub struct Transaction {
    streams: DeferredDrop<Vec<StreamEvents>>,
    checks: Vec<(String, ExpectedVersion)>,
    records: usize,
    bytes: usize,
    share: QuotaShare,
    /// The quota share of the streams' names, which the response repeats.
    names_share: QuotaShare,
}

/// Result of a transaction, with the streams in the order of their addition.
#[derive(Debug)]
pub struct TransactionResult {
    /// Streams and their results.
    pub streams: Vec<(String, WriteResult)>,
    /// The quota share of the streams' names.
    _quota_share: QuotaShare,
}

impl Transaction {
    /// Creates an empty transaction.
    pub fn new(budget: &Arc<InboundQuota>) -> Transaction {
        let (streams, checks) = (DeferredDrop::default(), Vec::new());
        let (share, names_share) = (budget.new_share(), budget.new_share());
        Transaction { streams, checks, records: 0, bytes: 0, share, names_share }
    }

    /// Adds a stream that was not added before. Returns the index of the stream.
    pub fn add_stream(
        &mut self,
        stream: String,
        expected: ExpectedVersion,
    ) -> Result<usize, Status> {
        let stream = self.charge_name(stream)?;
        if !self.names_share.grow(stream.len()) {
            return Err(grpc_status::append_quota_exhausted());
        }
        self.streams.push(StreamEvents { stream, expected, events: ProposedEventList::default() });
        Ok(self.streams.len() - 1)
    }

    /// Adds events with this many bytes to the stream at an index.
    pub fn add_all(
        &mut self,
        index: usize,
        mut added: ProposedEventList,
        bytes: usize,
    ) -> Result<(), Status> {
        self.bytes += bytes;
        self.records += added.len();
        record_part::check_transaction_limits(self.bytes, self.records)?;
        if !self.share.grow(bytes + added.len() * EVENT_OVERHEAD_BYTES) {
            return Err(grpc_status::append_quota_exhausted());
        }
        let events = &mut self.streams[index].events;
        if events.is_empty() {
            *events = added;
        } else {
            events.append(&mut added);
        }
        Ok(())
    }

    /// Returns each access that the transaction needs once: writes of streams, and reads of those
    /// that it checks.
    pub fn accesses(&self) -> impl Iterator<Item = (StreamAction, &str)> {
        let written = self.streams.iter().map(|one| (StreamAction::Write, &*one.stream));
        let mut checked = HashSet::new();
        let read = self.checks.iter().map(|(stream, _)| &**stream);
        let read = read.filter(move |stream| checked.insert(*stream));
        written.chain(read.map(|stream| (StreamAction::Read, stream)))
    }

    /// Whether the stream at an index has no records.
    pub fn has_no_records(&self, index: usize) -> bool {
        self.streams[index].events.is_empty()
    }

    /// Sets the expectation of the append to the stream at an index, unless it has one. Returns
    /// whether the append now has this expectation.
    pub fn set_expected(&mut self, index: usize, expected: ExpectedVersion) -> bool {
        let of_stream = &mut self.streams[index].expected;
        let is_free = *of_stream == ExpectedVersion::Any;
        if is_free {
            *of_stream = expected;
        }
        is_free
    }

    /// Adds a check. Returns the index of the new check among the checks.
    pub fn add_check(
        &mut self,
        stream: String,
        expected: ExpectedVersion,
    ) -> Result<usize, Status> {
        let stream = self.charge_name(stream)?;
        self.checks.push((stream, expected));
        Ok(self.checks.len() - 1)
    }

    /// Charges a stream's name to the quota, and shrinks the name's memory to its length.
    fn charge_name(&mut self, mut stream: String) -> Result<String, Status> {
        record_part::check_stream_name(&stream)?;
        if self.streams.len() + self.checks.len() == APPEND_STREAMS_MAX {
            return Err(record_part::too_many_streams());
        }
        if !self.share.grow(stream.len() + EVENT_OVERHEAD_BYTES) {
            return Err(grpc_status::append_quota_exhausted());
        }
        stream.shrink_to_fit();
        Ok(stream)
    }

    /// Submits the transaction to the store. The future resolves once the append has the store's
    /// configured durability.
    pub async fn submit(self, store: &EventStore) -> Result<TransactionResult, Error> {
        let Transaction { streams, checks, share, names_share, .. } = self;
        let names: Vec<String> = streams.iter().map(|one| one.stream.clone()).collect();
        let append = AppendCommand::to_streams(streams, checks, share);
        let results = store.appends().submit(append).await?;
        Ok(TransactionResult {
            streams: names.into_iter().zip(results).collect(),
            _quota_share: names_share,
        })
    }
}

impl TransactionResult {
    /// Position of the last record.
    pub fn position(&self) -> i64 {
        let positions = self.streams.iter().filter_map(|(_, appended)| appended.position);
        positions.max().map_or(0, |position| position as i64)
    }
}

/// Expectation that a client's number means; `None` for an invalid number.
pub fn expected_from_number(number: i64) -> Option<ExpectedVersion> {
    match number {
        expected::NO_STREAM => Some(ExpectedVersion::NoStream),
        expected::ANY => Some(ExpectedVersion::Any),
        expected::EXISTS => Some(ExpectedVersion::Exists),
        expected::DELETED => Some(ExpectedVersion::Deleted),
        expected::TOMBSTONED => Some(ExpectedVersion::Tombstoned),
        revision => u64::try_from(revision).ok().map(ExpectedVersion::Exact),
    }
}

/// Number that stands for an expectation.
pub fn expected_number(expected: ExpectedVersion) -> i64 {
    match expected {
        ExpectedVersion::NoStream => expected::NO_STREAM,
        ExpectedVersion::Any => expected::ANY,
        ExpectedVersion::Exists => expected::EXISTS,
        ExpectedVersion::Deleted => expected::DELETED,
        ExpectedVersion::Tombstoned => expected::TOMBSTONED,
        ExpectedVersion::Exact(revision) => i64::try_from(revision).unwrap_or(i64::MAX),
    }
}

/// Number that stands for the state of a stream.
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
    fn stream_names_hold_only_their_counted_memory() {
        let budget = Arc::new(InboundQuota::default());
        let mut transaction = Transaction::new(&budget);
        let name = || {
            let mut name = String::with_capacity(1 << 20);
            name.push_str("cart");
            name
        };
        transaction.add_stream(name(), ExpectedVersion::Any).unwrap();
        transaction.add_check(name(), ExpectedVersion::Any).unwrap();
        let capacities =
            [transaction.streams[0].stream.capacity(), transaction.checks[0].0.capacity()];
        assert!(capacities.iter().all(|capacity| *capacity < 1000), "{capacities:?}");
    }

    /// Story: an append with 10,000 checks of one stream checked its ACL 10,000 times.
    #[test]
    fn each_access_is_authorized_once() {
        let mut transaction = Transaction::new(&Arc::new(InboundQuota::default()));
        transaction.add_stream("cart".to_string(), ExpectedVersion::Any).unwrap();
        for number in 0..9_000 {
            let stream = format!("s-{}", number % 2);
            transaction.add_check(stream, ExpectedVersion::Exact(number)).unwrap();
        }
        let accesses: Vec<_> = transaction.accesses().collect();
        let (write, read) = (StreamAction::Write, StreamAction::Read);
        assert_eq!(accesses, [(write, "cart"), (read, "s-0"), (read, "s-1")]);
    }

    #[test]
    fn expected_state_numbers_are_parsed() {
        for number in [-1, -2, -4, -5, -6, 0, 7, i64::MAX] {
            assert_eq!(expected_from_number(number).map(expected_number), Some(number));
        }
        for number in [-3, -7, i64::MIN] {
            assert_eq!(expected_from_number(number), None);
        }
    }
}
