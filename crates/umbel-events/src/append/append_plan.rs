//! [`AppendPlan`]: events that were accepted for an append, and their encoding as log frames and
//! index changes.

use std::borrow::Cow;

use crate::append::append_request::StreamAppend;
use crate::event_log::AppendStart;
use crate::event_log::event_format::{self, Frame, FrameLocation, FrameMeta};
use crate::index::index_changes::{ChangeBuilder, IndexChanges};
use crate::index::stream_head::StreamHead;
use crate::index::unflushed_views::IndexedEvent;
use crate::limits::TOMBSTONE_REVISION;
use crate::types::event::NewEvent;
use crate::types::stream_metadata::RetentionRules;
use crate::types::stream_names;
use crate::types::view_kind;

/// Events that will be appended to one stream.
#[derive(Debug)]
pub struct AppendPlan<'a> {
    /// The stream.
    pub stream: Cow<'a, str>,
    /// Hash of the stream's name.
    pub hash: u64,
    /// Head of the stream before the append; unused where the plan follows another.
    pub head: Option<StreamHead>,
    /// Index of the earlier plan of the same append that this plan continues: both are for the
    /// same stream.
    pub follows: Option<usize>,
    /// Revision of the first event.
    pub first: u64,
    /// The events, at least one.
    pub events: &'a [NewEvent<'a>],
    /// Rules in the last event, if the stream holds the metadata of another.
    pub retention: Option<RetentionRules>,
}

impl<'a> AppendPlan<'a> {
    /// A plan of all events of an append, for a stream with this hash and head.
    pub fn of_append(
        append: &StreamAppend<'a>,
        (hash, head): (u64, Option<StreamHead>),
        first: u64,
        retention: Option<RetentionRules>,
    ) -> AppendPlan<'a> {
        let (stream, events) = (Cow::Borrowed(append.stream), append.events);
        AppendPlan { stream, hash, head, follows: None, first, events, retention }
    }

    /// Whether the append hides events, so that a scavenge can free disk space.
    pub fn frees_space(&self) -> bool {
        let ends = |event: &NewEvent<'_>| event.kind == stream_names::TOMBSTONE_TYPE;
        stream_names::metadata_subject(&self.stream).is_some() || self.events.iter().all(ends)
    }

    /// Whether the append may use the reserve above the log's quota: it hides events, or the stream
    /// is a system stream.
    pub fn may_use_reserve(&self) -> bool {
        view_kind::is_system(&self.stream) || self.frees_space()
    }
}

/// Bytes of the frames of all plans.
pub fn payload_bytes(plans: &[AppendPlan<'_>]) -> usize {
    let of_plan = |plan: &AppendPlan<'_>| -> usize {
        plan.events.iter().map(|event| event_format::frame_bytes(&plan.stream, event)).sum()
    };
    plans.iter().map(of_plan).sum()
}

/// Encodes the plans as one append that begins at `beginning`. Adds the streams' new state to
/// `changes` and the position of each event, plan by plan, to `positions`. Returns the offset of
/// the last frame in the chunk.
pub fn encode_plans(
    out: &mut Vec<u8>,
    (changes, positions): (&mut IndexChanges, &mut Vec<u64>),
    plans: &[AppendPlan<'_>],
    beginning: AppendStart,
    created: u64,
) -> u64 {
    let AppendStart { location: place, chunk_start, mut last_event } = beginning;
    let mut offset = place.offset;
    let mut left: usize = plans.iter().map(|plan| plan.events.len()).sum();
    positions.clear();
    // Plans that follow others are the last ones.
    let keeps_heads = plans.last().is_some_and(|plan| plan.follows.is_some());
    let mut heads = Vec::new();
    for plan in plans {
        let before = plan.follows.map_or(plan.head, |index| heads.get(index).copied().flatten());
        let mut change =
            AppendedChange::new(changes, (&plan.stream, plan.hash), before, plan.retention);
        for (revision, event) in (plan.first..).zip(plan.events) {
            left -= 1;
            let back = if last_event == 0 { 0 } else { (offset - last_event) as u32 };
            let place = FrameLocation { chunk: place.chunk, offset };
            let position = chunk_start + offset;
            let ends_append = left == 0;
            let stamp =
                FrameMeta { location: place, position, back, revision, created, ends_append };
            let before = out.len();
            event_format::encode(out, &plan.stream, event, &stamp);
            change.add(revision, position, event);
            positions.push(position);
            last_event = offset;
            offset += (out.len() - before) as u64;
        }
        if keeps_heads {
            heads.push(change.head);
        }
        change.finish();
    }
    last_event
}

/// Change of a stream to which events are appended in order.
struct AppendedChange<'a> {
    retention: Option<RetentionRules>,
    builder: ChangeBuilder<'a>,
    head: Option<StreamHead>,
    is_new: bool,
}

impl<'a> AppendedChange<'a> {
    fn new(
        changes: &'a mut IndexChanges,
        (stream, hash): (&'a str, u64),
        head: Option<StreamHead>,
        retention: Option<RetentionRules>,
    ) -> AppendedChange<'a> {
        AppendedChange {
            retention,
            builder: changes.begin(stream, hash),
            head,
            is_new: head.is_none(),
        }
    }

    fn add(&mut self, revision: u64, position: u64, event: &NewEvent<'_>) -> StreamHead {
        self.builder.add_event(&IndexedEvent { position, revision, kind: event.kind });
        // A stream that was tombstoned before any other event has only the tombstone event.
        let is_tombstoned = revision == TOMBSTONE_REVISION;
        if let Some(head) = self.head.filter(|head| !head.is_tombstoned) {
            self.builder.add_entry(head.last_revision, head.last_position);
        }
        let id = self.head.map_or(position, |head| head.id);
        let last_revision = match self.head {
            Some(head) if is_tombstoned => head.last_revision,
            None if is_tombstoned => 0,
            _ => revision,
        };
        let head = StreamHead {
            id,
            last_revision,
            last_position: position,
            is_tombstoned,
            retention: self.retention,
        };
        self.head = Some(head);
        head
    }

    fn finish(self) {
        if let Some(head) = self.head {
            self.builder.finish(head, self.is_new);
        }
    }
}

/// Adds the changes of an event that another node appended to `changes`. The stream has this head
/// before the event. Returns the stream's new head.
pub fn follow_event(
    changes: &mut IndexChanges,
    head: Option<StreamHead>,
    frame: &Frame<'_>,
    hash: u64,
) -> StreamHead {
    let FrameMeta { position, revision, .. } = frame.meta;
    let retention = retention_in(frame);
    let mut change = AppendedChange::new(changes, (frame.stream, hash), head, retention);
    let head = change.add(revision, position, &frame.event);
    change.finish();
    head
}

/// Retention rules in an event of a metadata stream.
fn retention_in(frame: &Frame<'_>) -> Option<RetentionRules> {
    let subject = stream_names::metadata_subject(frame.stream)?;
    Some(RetentionRules::parse(subject, frame.event.data).unwrap_or_default())
}

/// The stream that this event of its metadata stream deletes.
pub fn deleted_stream<'a>(frame: &Frame<'a>) -> Option<&'a str> {
    let subject = stream_names::metadata_subject(frame.stream)?;
    let rules = RetentionRules::parse(subject, frame.event.data).ok()?;
    rules.is_deleted().then_some(subject)
}

/// Adds the changes of an event that is read again from the log to `changes`. `hash` is the hash of
/// the name of the event's stream. The index may already hold the event and later events of the
/// stream. Returns the stream's new head.
pub fn replay_event(
    changes: &mut IndexChanges,
    head: Option<StreamHead>,
    frame: &Frame<'_>,
    hash: u64,
) -> StreamHead {
    let FrameMeta { position, revision, .. } = frame.meta;
    let is_indexed = head.is_some_and(|head| head.last_position >= position);
    // It is unknown here which events the filter lacks.
    let is_new = true;
    if let Some(head) = head.filter(|_| is_indexed) {
        let mut growing = changes.begin(frame.stream, hash);
        if revision != TOMBSTONE_REVISION {
            growing.add_entry(revision, position);
        }
        growing.add_event(&IndexedEvent { position, revision, kind: frame.event.kind });
        growing.finish(head, is_new);
        return head;
    }
    let retention = retention_in(frame);
    let settings = head.and_then(|head| head.retention);
    let mut change = AppendedChange::new(changes, (frame.stream, hash), head, retention);
    let mut head = change.add(revision, position, &frame.event);
    if frame.is_stub && head.retention.is_some() {
        // A stub no longer has its metadata: the rules before it are the last that are known.
        head.retention = Some(settings.unwrap_or_default());
    }
    change.builder.finish(head, is_new);
    head
}
