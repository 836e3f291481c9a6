//! [`RetentionPolicy`]: decides which events of a chunk stay, leave a stub, or are removed.

use std::collections::HashMap;

use crate::event_log::event_format::Frame;
use crate::index::stream_head::StreamHead;
use crate::limits::TOMBSTONE_REVISION;
use crate::primitives::store_clock::TICKS_PER_SECOND;
use crate::store_components::StoreComponents;
use crate::types::error::Result;
use crate::types::stream_metadata::RetentionRules;
use crate::types::stream_names;

/// Metadata that deletes a stream, without other keys.
const BARE_DELETION: &[u8] = br#"{"$tb":9223372036854775807}"#;
/// Verdict on an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The event stays unchanged.
    Keep,
    /// The event's stream, type, id and revision stay; data and metadata are removed.
    Stub,
    /// The event stays with this data, and without metadata.
    Replace(&'static [u8]),
    /// The event is removed.
    Drop,
}

/// Judges the events of one chunk by the state that a stream has when the policy meets its first
/// event.
#[derive(Debug)]
pub struct RetentionPolicy<'a> {
    components: &'a StoreComponents,
    streams: HashMap<String, Option<StreamRetention>>,
    /// Current time, in the units of events.
    now: u64,
    /// Events from this position on leave at least stubs, so that retries are recognized.
    stubs_from: u64,
}

/// Retention state of a stream.
#[derive(Debug, Clone, Copy)]
struct StreamRetention {
    head: StreamHead,
    /// Events with lower revisions than this are hidden for good.
    first_revision: u64,
    /// Events that were appended before this time are hidden for good.
    retained_since: u64,
}

impl RetentionPolicy<'_> {
    /// Creates the policy for the current state of the store.
    pub fn new(parts: &StoreComponents, stubs_from: u64) -> RetentionPolicy<'_> {
        let now = parts.clock().now();
        RetentionPolicy { components: parts, streams: HashMap::new(), now, stubs_from }
    }

    fn stream_retention(&self, name: &str) -> Result<Option<StreamRetention>> {
        let Some(head) = self.components.head(name)? else { return Ok(None) };
        let mut stream = StreamRetention { head, first_revision: 0, retained_since: 0 };
        let is_ended = |head: Option<StreamHead>| head.is_some_and(|head| head.is_tombstoned);
        if let Some(subject) = stream_names::metadata_subject(name) {
            let ended = is_ended(self.components.head(subject)?);
            stream.first_revision = if ended { u64::MAX } else { head.last_revision };
            return Ok(Some(stream));
        }
        if head.is_tombstoned {
            stream.first_revision = u64::MAX;
            return Ok(Some(stream));
        }
        let metadata = self.components.head(&stream_names::metadata_stream(name))?;
        let settings = metadata.and_then(|metadata| metadata.retention_of(Some(head)));
        let settings: RetentionRules = settings.unwrap_or_default();
        stream.first_revision = settings.first_revision(head.last_revision);
        let age = settings.max_age_seconds.map(|seconds| seconds.saturating_mul(TICKS_PER_SECOND));
        stream.retained_since = age.map_or(0, |age| self.now.saturating_sub(age));
        Ok(Some(stream))
    }

    /// Verdict on an event.
    pub fn verdict(&mut self, frame: &Frame<'_>) -> Result<Verdict> {
        let (revision, position) = (frame.meta.revision, frame.meta.position);
        if revision == TOMBSTONE_REVISION {
            return Ok(Verdict::Keep);
        }
        let stream = match self.streams.get(frame.stream) {
            Some(stream) => *stream,
            None => {
                let stream = self.stream_retention(frame.stream)?;
                self.streams.insert(frame.stream.to_string(), stream);
                stream
            }
        };
        // Events that the index does not know are not judged.
        let Some(StreamRetention { head, first_revision: first, retained_since: oldest }) = stream
        else {
            return Ok(Verdict::Keep);
        };
        let created = self.components.log.ordered_time(&frame.meta);
        let is_hidden = revision < first || created < oldest || frame.is_stub;
        if !is_hidden || revision > head.last_revision {
            return Ok(Verdict::Keep);
        }
        let is_last = revision == head.last_revision;
        Ok(match is_last || position >= self.stubs_from {
            // Retries are not recognized beyond a deletion, so it stays as long as their ids.
            true if !is_last && is_deletion(frame) => match has_content(frame, BARE_DELETION) {
                true => Verdict::Replace(BARE_DELETION),
                false => Verdict::Keep,
            },
            true => Verdict::Stub,
            false => Verdict::Drop,
        })
    }
}

/// Whether an event has other data than `data`, or metadata.
pub fn has_content(frame: &Frame<'_>, data: &[u8]) -> bool {
    frame.event.data != data || !frame.event.metadata.is_empty()
}

/// Whether the event is metadata that deletes a stream.
fn is_deletion(frame: &Frame<'_>) -> bool {
    let Some(subject) = stream_names::metadata_subject(frame.stream) else { return false };
    RetentionRules::parse(subject, frame.event.data).is_ok_and(|rules| rules.is_deleted())
}
