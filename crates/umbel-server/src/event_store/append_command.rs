//! [`AppendCommand`]: the request of every append that a call submits.

use std::slice;

use umbel_events::{
    AppendRequest, CheckedMetadata, Error, ExpectedVersion, NewEvent, StreamAppend,
};

use crate::limits::{EVENT_OVERHEAD_BYTES, UNCHECKED_METADATA_BYTES_MAX};
use crate::protocol::proto_convert::ProposedEvent;
use crate::resources::deferred_drop::{DeferredDrop, PartCount, ProposedEventList};
use crate::resources::inbound_quota::QuotaShare;

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
    /// The metadata in the events, if it was checked before the append is submitted.
    metadata: Option<Result<CheckedMetadata, Error>>,
    /// The share of the append quota that the events hold.
    #[expect(dead_code, reason = "the field is kept for its Drop, as long as the events")]
    share: QuotaShare,
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
        let target = AppendTarget::Stream(stream);
        AppendCommand { target, checks: Vec::new(), metadata: None, share }
    }

    /// Creates an append to several streams.
    pub fn to_streams(
        streams: DeferredDrop<Vec<StreamEvents>>,
        checks: Vec<(String, ExpectedVersion)>,
        share: QuotaShare,
    ) -> AppendCommand {
        AppendCommand { target: AppendTarget::Streams(streams), checks, metadata: None, share }
    }

    /// The streams to which the events are appended.
    pub fn streams(&self) -> &[StreamEvents] {
        match &self.target {
            AppendTarget::Stream(stream) => slice::from_ref(stream),
            AppendTarget::Streams(streams) => streams,
        }
    }

    /// Whether the append has metadata of streams that takes long to check.
    pub fn has_long_metadata(&self) -> bool {
        let data = |stream: &StreamEvents| -> usize {
            stream.events.iter().map(|event| event.as_new_event().data.len()).sum()
        };
        let system = self.streams().iter().filter(|stream| stream.stream.starts_with('$'));
        self.metadata.is_none() && system.map(data).sum::<usize>() > UNCHECKED_METADATA_BYTES_MAX
    }

    /// Checks the metadata of streams, so that the appender need not.
    pub fn check_metadata(&mut self) {
        let events: Vec<NewEvent<'_>> = self.events().map(ProposedEvent::as_new_event).collect();
        let appends: Vec<_> = stream_appends(self.streams(), &events).collect();
        let request = AppendRequest { appends: &appends, checks: &[] };
        self.metadata = Some(request.check_metadata());
    }

    /// Whether the metadata was checked.
    pub fn has_checked_metadata(&self) -> bool {
        self.metadata.is_some()
    }

    /// Takes the result of the check of the metadata, if there was one.
    pub fn take_checked_metadata(&mut self) -> Option<Result<CheckedMetadata, Error>> {
        self.metadata.take()
    }

    /// Bytes of the types, data and metadata of all events, and the overhead of each event.
    pub fn counted_bytes(&self) -> usize {
        self.events().map(|event| event.bytes() + EVENT_OVERHEAD_BYTES).sum()
    }

    /// The events of all streams.
    pub fn events(&self) -> impl Iterator<Item = &ProposedEvent> {
        self.streams().iter().flat_map(|stream| &*stream.events)
    }

    /// Returns the names of the system streams, whose cached users and ACLs the append invalidates,
    /// and releases the quota share.
    pub fn into_system_streams(self) -> Vec<String> {
        let is_system = |stream: &StreamEvents| stream.stream.starts_with('$');
        match self.target {
            AppendTarget::Stream(stream) if is_system(&stream) => vec![stream.stream],
            AppendTarget::Stream(_) => Vec::new(),
            AppendTarget::Streams(mut streams) => {
                // The streams are dropped together: each alone may have few events.
                let system = streams.iter_mut().filter(|stream| is_system(stream));
                system.map(|stream| std::mem::take(&mut stream.stream)).collect()
            }
        }
    }
}
