//! [`Planned`]: events that were decided to be appended, and how they become frames of the log and
//! changes of the index.

use std::borrow::Cow;

use crate::changes::{Changes, Growing};
use crate::event::NewEvent;
use crate::event_log::Beginning;
use crate::format::{self, Frame, Place, Stamp};
use crate::head::Head;
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

impl Planned<'_> {
    /// Whether it hides events, so that scavenging can make room on the disk.
    pub fn makes_room(&self) -> bool {
        let ends = |event: &NewEvent<'_>| event.kind == names::TOMBSTONE_TYPE;
        names::subject(&self.stream).is_some() || self.events.iter().all(ends)
    }
}

/// How many bytes of frames the plans make.
pub fn payload_bytes(plans: &[Planned<'_>]) -> usize {
    let of_plan = |plan: &Planned<'_>| -> usize {
        plan.events.iter().map(|event| format::frame_bytes(&plan.stream, event)).sum()
    };
    plans.iter().map(of_plan).sum()
}

/// Encodes the plans as one append that stands at `beginning`, adds the streams as it leaves them
/// to `changes`, and puts the position of each event, plan by plan, into `positions`. Returns the
/// offset of the last frame in the chunk.
pub fn encode(
    out: &mut Vec<u8>,
    (changes, positions): (&mut Changes, &mut Vec<u64>),
    plans: &[Planned<'_>],
    beginning: Beginning,
    created: u64,
) -> u64 {
    let Beginning { place, chunk_start, mut last_event } = beginning;
    let mut offset = place.offset;
    let mut left: usize = plans.iter().map(|plan| plan.events.len()).sum();
    positions.clear();
    for plan in plans {
        let mut change = Changing::new(changes, &plan.stream, plan.hash, plan.head);
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
        change.finish();
    }
    last_event
}

/// A stream whose events come one after the other.
struct Changing<'a> {
    stream: &'a str,
    growing: Growing<'a>,
    head: Option<Head>,
    is_new: bool,
}

impl<'a> Changing<'a> {
    fn new(
        changes: &'a mut Changes,
        stream: &'a str,
        hash: u64,
        head: Option<Head>,
    ) -> Changing<'a> {
        Changing { stream, growing: changes.begin(stream, hash), head, is_new: head.is_none() }
    }

    fn add(&mut self, revision: u64, position: u64, event: &NewEvent<'_>) -> Head {
        self.growing.place(&Placed { position, revision, kind: event.kind });
        let settings = names::subject(self.stream)
            .map(|subject| Settings::parse(subject, event.data).unwrap_or_default());
        // Of a stream that nobody wrote to but to end it, the ending is all there is.
        let is_tombstoned = revision == TOMBSTONE_REVISION;
        if let Some(head) = self.head.filter(|head| !head.is_tombstoned) {
            self.growing.entry(head.last_revision, head.last_position);
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

    fn finish(self) {
        if let Some(head) = self.head {
            self.growing.finish(head, self.is_new);
        }
    }
}

/// Adds what an event that is read again from the log changes to `changes`; the name of its stream
/// has this hash. The index may hold it already, and later ones of its stream as well. Returns the
/// stream's head then.
pub fn replay(changes: &mut Changes, head: Option<Head>, frame: &Frame<'_>, hash: u64) -> Head {
    let Stamp { position, revision, .. } = frame.stamp;
    #[cfg(feature = "canary")]
    let head = match umbel_base::canary::Switch::EventsHeadGoesBack.is_on() {
        true => head.map(|head| Head { last_position: position - 1, ..head }),
        false => head,
    };
    // Which events the filter lacks is not known here.
    let is_new = true;
    if let Some(head) = head.filter(|head| head.last_position >= position) {
        let mut growing = changes.begin(frame.stream, hash);
        if revision != TOMBSTONE_REVISION {
            growing.entry(revision, position);
        }
        growing.place(&Placed { position, revision, kind: frame.event.kind });
        growing.finish(head, is_new);
        return head;
    }
    let mut change = Changing::new(changes, frame.stream, hash, head);
    let settings = head.and_then(|head| head.settings);
    let mut head = change.add(revision, position, &frame.event);
    if frame.is_stub && head.settings.is_some() {
        // What this metadata said is gone: what came before it is the last that is known.
        head.settings = Some(settings.unwrap_or_default());
    }
    change.growing.finish(head, is_new);
    head
}
