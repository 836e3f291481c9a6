//! [`AppendCommand`]: the request of every append that a call submits.

use std::slice;

use umbel_events::{
    AppendRequest, CheckedMetadata, Error, ExpectedVersion, NewEvent, Store, StreamAppend,
    StreamCheck,
};

use crate::limits::{EVENT_OVERHEAD_BYTES, UNCHECKED_METADATA_BYTES_MAX, UNCHECKED_PARTS_MAX};
use crate::protocol::proto_convert::ProposedEvent;
use crate::resources::deferred_drop::{DeferredDrop, PartCount, ProposedEventList};
use crate::resources::inbound_quota::QuotaShare;

#[cfg(test)]
thread_local! {
    /// Number of events whose bytes this thread has counted, for tests of the work of a call.
    pub static EVENTS_COUNTED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Events for one stream.
#[derive(Debug)]
pub struct StreamEvents {
    /// The stream.
    pub stream: String,
    /// The expected revision of the stream.
    pub expected: ExpectedVersion,
    /// The events.
    pub events: ProposedEventList,
}

impl PartCount for Vec<StreamEvents> {
    fn part_count(&self) -> usize {
        self.iter().map(|stream| stream.events.len() + 1).sum()
    }
}

/// An append to one or several streams, of all events or none.
#[derive(Debug)]
pub struct AppendCommand {
    target: AppendTarget,
    /// Streams that are only checked, with their expected revisions.
    pub checks: Vec<(String, ExpectedVersion)>,
    /// Result of the checks that need no state of the store, if they precede the submission.
    checked: Option<Result<CheckedMetadata, Error>>,
    /// Bytes of the events, if they were counted with the checks.
    counted: Option<usize>,
    /// The share of the append quota that the events hold; `None` once it is being dropped.
    share: Option<QuotaShare>,
}

/// The streams of an append. Most appends have one stream, which needs no vector.
#[derive(Debug)]
enum AppendTarget {
    Stream(StreamEvents),
    Streams(DeferredDrop<Vec<StreamEvents>>),
}

/// The appends to these streams, whose events are in `events`, in the same order.
pub fn stream_appends<'a>(
    streams: impl IntoIterator<Item = &'a StreamEvents>,
    mut events: &'a [NewEvent<'a>],
) -> impl Iterator<Item = StreamAppend<'a>> {
    streams.into_iter().map(move |target| {
        let (own, others) = events.split_at(target.events.len());
        events = others;
        StreamAppend { stream: &target.stream, expected: target.expected, events: own }
    })
}

impl AppendCommand {
    /// Creates an append to one stream.
    pub fn to_stream(stream: StreamEvents, share: QuotaShare) -> AppendCommand {
        let (target, share) = (AppendTarget::Stream(stream), Some(share));
        AppendCommand { target, checks: Vec::new(), checked: None, counted: None, share }
    }

    /// Creates an append to several streams.
    pub fn to_streams(
        streams: DeferredDrop<Vec<StreamEvents>>,
        checks: Vec<(String, ExpectedVersion)>,
        share: QuotaShare,
    ) -> AppendCommand {
        let (target, share) = (AppendTarget::Streams(streams), Some(share));
        AppendCommand { target, checks, checked: None, counted: None, share }
    }

    /// The streams to which the events are appended.
    pub fn streams(&self) -> &[StreamEvents] {
        match &self.target {
            AppendTarget::Stream(stream) => slice::from_ref(stream),
            AppendTarget::Streams(streams) => streams,
        }
    }

    /// Whether the append takes long to check: it has many events, or long metadata of streams.
    pub fn needs_check(&self) -> bool {
        self.checked.is_none() && (self.has_many_parts() || self.has_long_metadata())
    }

    fn has_many_parts(&self) -> bool {
        let events: usize = self.streams().iter().map(|stream| stream.events.len()).sum();
        events + self.streams().len() + self.checks.len() > UNCHECKED_PARTS_MAX
    }

    fn has_long_metadata(&self) -> bool {
        let data = |stream: &StreamEvents| -> usize {
            stream.events.iter().map(|event| event.as_new_event().data.len()).sum()
        };
        let system = self.streams().iter().filter(|stream| stream.stream.starts_with('$'));
        system.map(data).sum::<usize>() > UNCHECKED_METADATA_BYTES_MAX
    }

    /// Checks everything that needs no state of the store, and compares the events with written
    /// ones, so that the appender need not. Counts the bytes, so that no asynchronous worker need
    /// do so.
    pub fn check(&mut self, store: &Store) {
        self.counted = Some(self.count_bytes());
        let events: Vec<NewEvent<'_>> = self.events().map(ProposedEvent::as_new_event).collect();
        let appends: Vec<_> = stream_appends(self.streams(), &events).collect();
        let checks: Vec<_> = self.stream_checks().collect();
        let request = AppendRequest { appends: &appends, checks: &checks };
        self.checked = Some(store.check_append(&request));
    }

    /// The streams that are only checked.
    pub fn stream_checks(&self) -> impl Iterator<Item = StreamCheck<'_>> {
        let checks = self.checks.iter();
        checks.map(|(stream, expected)| StreamCheck { stream, expected: *expected })
    }

    /// Whether the append was checked.
    pub fn is_checked(&self) -> bool {
        self.checked.is_some()
    }

    /// Takes the result of the check, if there was one.
    pub fn take_checked(&mut self) -> Option<Result<CheckedMetadata, Error>> {
        self.checked.take()
    }

    /// Takes the error of the check, if it refused the append.
    pub fn take_refusal(&mut self) -> Option<Error> {
        self.checked.take_if(|checked| checked.is_err())?.err()
    }

    /// Bytes of the types, data and metadata of all events, and the overhead of each event.
    pub fn counted_bytes(&self) -> usize {
        self.counted.unwrap_or_else(|| self.count_bytes())
    }

    fn count_bytes(&self) -> usize {
        #[cfg(test)]
        EVENTS_COUNTED.set(EVENTS_COUNTED.get() + self.events().count());
        self.events().map(|event| event.bytes() + EVENT_OVERHEAD_BYTES).sum()
    }

    /// The events of all streams.
    pub fn events(&self) -> impl Iterator<Item = &ProposedEvent> {
        self.streams().iter().flat_map(|stream| &*stream.events)
    }

    /// Returns the names of the system streams, whose cached users and ACLs the append invalidates,
    /// and drops the append.
    pub fn into_system_streams(mut self) -> Vec<String> {
        let streams = match &mut self.target {
            AppendTarget::Stream(stream) => slice::from_mut(stream),
            AppendTarget::Streams(streams) => streams.as_mut_slice(),
        };
        let system = streams.iter_mut().filter(|stream| stream.stream.starts_with('$'));
        system.map(|stream| std::mem::take(&mut stream.stream)).collect()
    }
}

impl Drop for AppendCommand {
    /// Releases the quota share. If many events wait to be freed, it is released after these.
    fn drop(&mut self) {
        let Some(share) = self.share.take() else { return };
        match &mut self.target {
            AppendTarget::Stream(stream) => stream.events.leave_with(share),
            // The streams are left together: each alone may have few events.
            AppendTarget::Streams(streams) => streams.leave_with(share),
        }
    }
}
