//! [`Planned`]: events that were decided to be appended, and how they become frames of the log and
//! changes of the index.

use std::borrow::Cow;

use crate::event::NewEvent;
use crate::event_log::Beginning;
use crate::format::{self, Frame, Place, Stamp};
use crate::head::Head;
use crate::index::Change;
use crate::limits::TOMBSTONE_REVISION;
use crate::names;
use crate::settings::Settings;
use crate::view_tails::Placed;

/// Events that will be appended to one stream.
#[derive(Debug)]
pub struct Planned<'a> {
    /// The stream.
    pub stream: Cow<'a, str>,
    /// The hash of its name.
    pub hash: u64,
    /// Its head so far.
    pub head: Option<Head>,
    /// The revision of the first event.
    pub first: u64,
    /// The events, at least one.
    pub events: &'a [NewEvent<'a>],
}

/// What an append has become.
#[derive(Debug)]
pub struct Encoded<'a> {
    /// The offset of the last frame in the chunk.
    pub last_event: u64,
    /// The position of each event, plan by plan.
    pub positions: Vec<u64>,
    /// The streams as the append leaves them.
    pub changes: Vec<Change<'a>>,
}

/// How many bytes of frames the plans make.
pub fn payload_bytes(plans: &[Planned<'_>]) -> usize {
    let of_plan = |plan: &Planned<'_>| -> usize {
        plan.events.iter().map(|event| format::frame_bytes(&plan.stream, event)).sum()
    };
    plans.iter().map(of_plan).sum()
}

/// Encodes the plans as one append that stands at `beginning`.
pub fn encode<'a>(
    out: &mut Vec<u8>,
    plans: &'a [Planned<'_>],
    beginning: Beginning,
    created: u64,
) -> Encoded<'a> {
    let Beginning { place, chunk_start, mut last_event } = beginning;
    let mut offset = place.offset;
    let mut left: usize = plans.iter().map(|plan| plan.events.len()).sum();
    let mut positions = Vec::with_capacity(left);
    let mut changes = Vec::with_capacity(plans.len());
    for plan in plans {
        let mut change = Growing::new(&plan.stream, plan.hash, plan.head);
        change.placed.reserve_exact(plan.events.len());
        for (revision, event) in (plan.first..).zip(plan.events) {
            left -= 1;
            let back = if last_event == 0 { 0 } else { (offset - last_event) as u32 };
            let place = Place { chunk: place.chunk, offset };
            let position = chunk_start + offset;
            let ends_append = left == 0;
            let stamp = Stamp { place, position, back, revision, created, ends_append };
            let before = out.len();
            format::encode(out, &plan.stream, event, &stamp);
            change.add(revision, position, event);
            positions.push(position);
            last_event = offset;
            offset += (out.len() - before) as u64;
        }
        changes.extend(change.finish());
    }
    Encoded { last_event, positions, changes }
}

/// A stream whose events come one after the other.
struct Growing<'a> {
    stream: &'a str,
    hash: u64,
    head: Option<Head>,
    entries: Vec<(u64, u64)>,
    is_new: bool,
    placed: Vec<Placed<'a>>,
}

impl<'a> Growing<'a> {
    fn new(stream: &'a str, hash: u64, head: Option<Head>) -> Growing<'a> {
        let (entries, placed) = (Vec::new(), Vec::new());
        Growing { stream, hash, head, entries, is_new: head.is_none(), placed }
    }

    fn add(&mut self, revision: u64, position: u64, event: &NewEvent<'a>) -> Head {
        self.placed.push(Placed { position, revision, kind: Cow::Borrowed(event.kind) });
        let settings = names::subject(self.stream)
            .map(|subject| Settings::parse(subject, event.data).unwrap_or_default());
        // Of a stream that nobody wrote to but to end it, the ending is all there is.
        let is_tombstoned = revision == TOMBSTONE_REVISION;
        if let Some(head) = self.head.filter(|head| !head.is_tombstoned) {
            self.entries.push((head.last_revision, head.last_position));
        }
        let id = self.head.map_or(position, |head| head.id);
        let last_revision = match self.head {
            Some(head) if is_tombstoned => head.last_revision,
            None if is_tombstoned => 0,
            _ => revision,
        };
        let head = Head { id, last_revision, last_position: position, is_tombstoned, settings };
        self.head = Some(head);
        head
    }

    fn finish(self) -> Option<Change<'a>> {
        let Growing { stream, hash, head, entries, is_new, placed } = self;
        let stream = Cow::Borrowed(stream);
        head.map(|head| Change { stream, hash, head, entries, is_new, placed })
    }
}

/// What an event that is read again from the log changes; the name of its stream has this hash.
/// The index may hold it already, and later ones of its stream as well.
pub fn replay<'a>(head: Option<Head>, frame: &Frame<'a>, hash: u64) -> Change<'a> {
    let Stamp { position, revision, .. } = frame.stamp;
    #[cfg(feature = "canary")]
    let head = match umbel_base::canary::Switch::EventsHeadGoesBack.is_on() {
        true => head.map(|head| Head { last_position: position - 1, ..head }),
        false => head,
    };
    if let Some(head) = head.filter(|head| head.last_position >= position) {
        let is_event = revision != TOMBSTONE_REVISION;
        let entries = if is_event { vec![(revision, position)] } else { Vec::new() };
        let stream = Cow::Borrowed(frame.stream);
        let placed = vec![Placed { position, revision, kind: Cow::Borrowed(frame.event.kind) }];
        // Which events the filter lacks is not known here.
        return Change { stream, hash, head, entries, is_new: true, placed };
    }
    let mut change = Growing::new(frame.stream, hash, head);
    let settings = head.and_then(|head| head.settings);
    let mut head = change.add(revision, position, &frame.event);
    if frame.is_stub && head.settings.is_some() {
        // What this metadata said is gone: what came before it is the last that is known.
        head.settings = Some(settings.unwrap_or_default());
    }
    let stream = Cow::Borrowed(frame.stream);
    let Growing { entries, placed, .. } = change;
    Change { stream, hash, head, entries, is_new: true, placed }
}
