//! What can be saved of a damaged chunk: events whose bytes match their checksums, at places that
//! something else proves.
//!
//! A checksum is no proof that an event was appended: the image of a frame or of a record can be
//! put into the data of another event by whoever writes events. So places come from elsewhere:
//!
//! - the first event of a chunk has its place;
//! - an event that was proven tells where the next one begins, by its length, and where the one
//!   before begins (`back`);
//! - the table of chunks says where the last event begins;
//! - the index says where events begin, and which these are: another one there is not taken;
//! - where an event is damaged, the lengths that it and its record state lead to a next one that
//!   says that this is the one before it, and to one such place only.
//!
//! INVARIANT: of a chunk that was appended to, appends are saved as a whole or not at all.

use std::collections::{BTreeMap, BTreeSet};

use umbel_log::{Binding, RECORD_ALIGN, record_at, stated_bytes};

use super::old_index::KnownEvent;
use crate::chunk::FIRST_EVENT_AT;
use crate::format::{BETWEEN_RECORDS, FRAME_HEADER_BYTES, Frame, FrameHead, Place};
use crate::packed::{self, Points};

/// How many bytes may be checksummed per byte of a lost range when unproven appends are looked for.
const CHECKSUMMED_PER_BYTE: u64 = 4;

/// The bytes of a chunk's file, and what is known of it.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    /// The chunk's id.
    pub id: u64,
    /// The position of the first byte of the file that was appended to.
    pub start: u64,
    /// The file, as much of it as there is.
    pub bytes: &'a [u8],
    /// The offset behind the last append; `None` where nobody noted it.
    pub end: Option<u64>,
    /// What the index says of the events of the chunk.
    pub known: Option<KnownPart<'a>>,
}

/// What the index knows of a chunk: all events up to a position, and nothing behind it.
#[derive(Clone, Copy)]
pub struct KnownPart<'a> {
    /// The events, by position.
    pub events: &'a [KnownEvent],
    /// The names of their streams.
    pub streams: &'a [String],
    /// The position up to which these are all.
    pub through: u64,
}

impl KnownPart<'_> {
    /// Whether the index says the same of an event. What it denies was written by another store.
    fn admits(&self, frame: &Frame<'_>) -> bool {
        let position = frame.stamp.position;
        let known = self.events.binary_search_by_key(&position, |event| event.position);
        let same = |event: &KnownEvent| {
            let stream = self.streams.get(event.stream);
            event.revision == frame.stamp.revision && stream.is_some_and(|s| s == frame.stream)
        };
        match known {
            Ok(at) => same(&self.events[at]),
            Err(_) => position > self.through,
        }
    }
}

/// What was saved.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Saved {
    /// The offsets of the events, rising.
    pub offsets: Vec<u64>,
    /// What is lost.
    pub lost: Vec<Lost>,
}

/// A range that is lost: positions from `from` up to, and without, `to`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lost {
    /// The first position.
    pub from: u64,
    /// The position behind the last one.
    pub to: u64,
    /// How many bytes of the file that is.
    pub bytes: u64,
    /// How many appends look whole in it.
    pub unproven: u64,
}

/// Appends that look whole where nothing proves that they were appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unproven {
    /// How many.
    pub count: u64,
    /// Where the first event of the last one begins.
    pub last: Option<u64>,
    /// The offset behind the last one.
    pub end: u64,
}

/// What is kept of a frame while places are followed.
#[derive(Debug, Clone, Copy)]
struct Seen {
    bytes: u64,
    step: u64,
    back: u64,
    position: u64,
    ends_append: bool,
}

impl<'a> Source<'a> {
    /// The bytes of a file of a chunk whose positions begin at `start`, and nothing else.
    pub fn new(id: u64, start: u64, bytes: &'a [u8]) -> Source<'a> {
        Source { id, start, bytes, end: None, known: None }
    }

    /// The frame at an offset.
    pub fn frame(&self, offset: u64) -> Option<Frame<'a>> {
        let bytes = self.bytes.get(usize::try_from(offset).ok()?..)?;
        Frame::decode(bytes, Place { chunk: self.id, offset })
    }

    /// The same, where its position is its place.
    fn placed(&self, offset: u64) -> Option<Seen> {
        let is_aligned = offset.is_multiple_of(RECORD_ALIGN);
        if !is_aligned || offset < FIRST_EVENT_AT || self.end.is_some_and(|end| offset >= end) {
            return None;
        }
        let frame = self.frame(offset)?;
        let is_here = frame.stamp.position == self.start.checked_add(offset)?
            && !frame.is_stub
            && self.known.is_none_or(|known| known.admits(&frame));
        is_here.then(|| Seen::of(&frame))
    }

    /// The append that begins with the frame at `offset`, by its record: how long that is.
    fn record(&self, offset: u64) -> Option<u64> {
        let at = offset.checked_sub(BETWEEN_RECORDS)?;
        let bytes = self.bytes.get(at as usize..)?;
        let record = record_at(Binding { log_id: self.id, salt: 0 }, at, bytes)?;
        let is_ours = record.sequence == self.start.checked_add(offset)?;
        is_ours.then_some(record.payload.len() as u64)
    }

    /// What can be saved of a chunk that was appended to, in which events are known to begin at
    /// the places in `proven`.
    pub fn appended(&self, proven: &[u64], accept_unproven: bool) -> Saved {
        let last_proven = proven.iter().copied().max().unwrap_or(0);
        let (frames, broken) = (BTreeMap::new(), BTreeSet::new());
        let mut places = Places { source: self, frames, broken, last_proven };
        places.follow(proven.iter().copied().chain([FIRST_EVENT_AT]).collect());
        loop {
            let (offsets, ranges) = places.whole();
            let mut lost = Vec::new();
            let mut accepted = None;
            for (from, to) in ranges {
                let Unproven { count, last, .. } = self.unproven(from, to);
                accepted = accepted.or(last.filter(|last| !places.frames.contains_key(last)));
                let position = |offset: u64| self.start + offset;
                let (from, to, bytes) = (position(from), position(to), to - from);
                lost.push(Lost { from, to, bytes, unproven: count });
            }
            match accepted.filter(|_| accept_unproven) {
                Some(place) => {
                    places.broken.remove(&place);
                    places.follow(vec![place]);
                }
                None => return Saved { offsets, lost },
            }
        }
    }

    /// Looks for appends that look whole in a range that is lost.
    pub fn unproven(&self, from: u64, to: u64) -> Unproven {
        let mut budget = to.saturating_sub(from).saturating_mul(CHECKSUMMED_PER_BYTE);
        let mut found = Unproven { count: 0, last: None, end: from };
        let mut at = from.next_multiple_of(RECORD_ALIGN);
        while at + BETWEEN_RECORDS < to.min(self.bytes.len() as u64) {
            let bytes = &self.bytes[at as usize..];
            let low = bytes.get(12..16).and_then(|low| low.first_chunk());
            let is_like = low.is_some_and(|low| u32::from_le_bytes(*low) == self.id as u32);
            let stated = stated_bytes(bytes).filter(|stated| is_like && at + stated <= to);
            let Some(stated) = stated.filter(|stated| *stated <= budget) else {
                at += RECORD_ALIGN;
                continue;
            };
            budget -= stated;
            let place = at + BETWEEN_RECORDS;
            if self.record(place).is_some() && self.placed(place).is_some() {
                at += stated;
                found = Unproven { count: found.count + 1, last: Some(place), end: at };
            } else {
                at += RECORD_ALIGN;
            }
        }
        found
    }

    /// What can be saved of a chunk that was written anew, whose positions are up to, and without,
    /// `limit`. Its events stand for themselves: what was scavenged may have been of the same
    /// append. `last` is the position of the last event, where it is known.
    pub fn packed(&self, limit: u64, points: Option<&Points>, last: Option<u64>) -> Saved {
        let end = points.map_or(self.bytes.len() as u64, |points| points.frames_end);
        let source = Source { end: Some(end), ..*self };
        let mut frames: BTreeMap<u64, Seen> = BTreeMap::new();
        let mut broken = BTreeSet::new();
        let mut work = vec![packed::HEADER_BYTES];
        work.extend(points.into_iter().flat_map(Points::offsets));
        loop {
            while let Some(at) = work.pop() {
                if frames.contains_key(&at) || broken.contains(&at) {
                    continue;
                }
                let Some(seen) = source.in_packed(at, limit) else {
                    broken.insert(at);
                    continue;
                };
                frames.insert(at, seen);
                work.extend((at + seen.bytes < end).then_some(at + seen.bytes));
                work.extend(at.checked_sub(seen.back).filter(|_| seen.back > 0));
            }
            let unreached = |at: &u64| !frames.contains_key(at) && !broken.contains(at);
            let next = broken.iter().filter_map(|at| source.behind_packed(*at, limit));
            match next.into_iter().find(unreached) {
                Some(at) => work.push(at),
                None => break,
            }
        }
        rising(&mut frames);
        source.lost_of_packed(&frames, (limit, end), points.is_some(), last)
    }

    /// The frame at an offset of a chunk that was written anew.
    fn in_packed(&self, offset: u64, limit: u64) -> Option<Seen> {
        let is_aligned = offset.is_multiple_of(RECORD_ALIGN);
        let is_inside = offset >= packed::HEADER_BYTES && offset < self.end?;
        let frame = self.frame(offset).filter(|_| is_aligned && is_inside)?;
        let is_ours = (self.start..limit).contains(&frame.stamp.position)
            && self.known.is_none_or(|known| known.admits(&frame));
        is_ours.then(|| Seen::of(&frame))
    }

    /// Where the event behind a damaged one of a packed chunk begins, by its length, where that
    /// one says that the damaged one is before it.
    fn behind_packed(&self, at: u64, limit: u64) -> Option<u64> {
        let bytes = self.bytes.get(at as usize..)?;
        let next = at + FrameHead::decode(bytes, bytes.len())?.padded_bytes() as u64;
        let seen = self.in_packed(next, limit)?;
        (seen.back == next - at).then_some(next)
    }

    fn lost_of_packed(
        &self,
        frames: &BTreeMap<u64, Seen>,
        (limit, end): (u64, u64),
        is_end_known: bool,
        last: Option<u64>,
    ) -> Saved {
        let mut saved = Saved { offsets: frames.keys().copied().collect(), lost: Vec::new() };
        let (mut position, mut offset) = (self.start, packed::HEADER_BYTES);
        for (at, seen) in frames {
            if *at != offset {
                let (from, to, bytes) = (position, seen.position, at - offset);
                saved.lost.push(Lost { from, to, bytes, unproven: 0 });
            }
            (position, offset) = (seen.position + seen.bytes, at + seen.bytes);
        }
        let newest = frames.values().next_back().map(|seen| seen.position);
        let is_complete = last.is_some() && newest == last || is_end_known && offset >= end;
        if !is_complete {
            let bytes = end.saturating_sub(offset);
            saved.lost.push(Lost { from: position, to: limit, bytes, unproven: 0 });
        }
        saved
    }
}

/// Takes out what does not stand in the order of positions.
fn rising(frames: &mut BTreeMap<u64, Seen>) {
    let mut before = None;
    frames.retain(|_, seen| {
        let rises = before.is_none_or(|before| seen.position > before);
        before = before.max(Some(seen.position));
        rises
    });
}

impl Seen {
    fn of(frame: &Frame<'_>) -> Seen {
        Seen {
            bytes: frame.bytes as u64,
            step: frame.step(),
            back: u64::from(frame.stamp.back),
            position: frame.stamp.position,
            ends_append: frame.stamp.ends_append,
        }
    }
}

/// The places of a chunk at which events are proven to begin.
struct Places<'s, 'a> {
    source: &'s Source<'a>,
    /// Those whose bytes are right.
    frames: BTreeMap<u64, Seen>,
    /// Those whose bytes are not.
    broken: BTreeSet<u64>,
    /// The last one that was proven by something else than the chunk.
    last_proven: u64,
}

impl Places<'_, '_> {
    /// Follows proven places as far as they lead.
    fn follow(&mut self, mut work: Vec<u64>) {
        loop {
            while let Some(at) = work.pop() {
                if self.frames.contains_key(&at) || self.broken.contains(&at) {
                    continue;
                }
                let Some(seen) = self.source.placed(at) else {
                    self.broken.insert(at);
                    continue;
                };
                self.frames.insert(at, seen);
                work.push(at + seen.step);
                work.extend(at.checked_sub(seen.back).filter(|_| seen.back > 0));
            }
            let bridges = self.broken.iter().filter_map(|at| self.behind(*at));
            let unreached = |at: &u64| !self.frames.contains_key(at);
            match bridges.into_iter().find(unreached) {
                Some(at) => {
                    self.broken.remove(&at);
                    work.push(at);
                }
                None => return,
            }
        }
    }

    /// The place behind a damaged event to which the lengths lead that stand there, and where an
    /// event says that the damaged one, or one behind it, is before it. `None` where the lengths
    /// lead to places that cannot both be right.
    fn behind(&self, at: u64) -> Option<u64> {
        let bytes = self.source.bytes.get(at as usize..)?;
        let says = |next: u64, before: std::ops::Range<u64>| {
            let seen = self.source.placed(next)?;
            let place = next.checked_sub(seen.back)?;
            (seen.back > 0 && before.contains(&place)).then_some(next)
        };
        let head = FrameHead::decode(bytes, bytes.len());
        let end = head.map(|head| at + head.padded_bytes() as u64);
        let in_append = end.and_then(|end| says(end, at..at + 1));
        let behind_it = end.and_then(|end| says(end + BETWEEN_RECORDS, at..at + 1));
        let by_record = self.append_of(at).and_then(|first| {
            let record = first.checked_sub(BETWEEN_RECORDS)?;
            let stated = stated_bytes(self.source.bytes.get(record as usize..)?)?;
            let next = record.checked_add(stated)?.checked_add(BETWEEN_RECORDS)?;
            says(next, at..next)
        });
        match (in_append, behind_it, by_record) {
            (Some(inner), None, Some(next)) => self.leads_to(inner, next).then_some(next),
            (None, Some(one), Some(next)) => (one == next).then_some(next),
            (Some(_), Some(_), _) => None,
            (one, None, None) | (None, one, None) | (None, None, one) => one,
        }
    }

    /// Whether the events from one place on, as far as they are whole, do not contradict that
    /// their append ends before `next`.
    fn leads_to(&self, mut at: u64, next: u64) -> bool {
        while let Some(seen) = self.source.placed(at) {
            at += seen.step;
            if seen.ends_append || at >= next {
                return seen.ends_append && at == next;
            }
        }
        at < next
    }

    /// The first event of the append that the one at `at` belongs to, where those before it in the
    /// append are whole.
    fn append_of(&self, at: u64) -> Option<u64> {
        let mut first = at;
        while first > FIRST_EVENT_AT {
            let (before, seen) = self.frames.range(..first).next_back()?;
            if before + seen.step != first {
                return None;
            }
            if seen.ends_append {
                return Some(first);
            }
            first = *before;
        }
        Some(first)
    }

    /// The offsets of the events of whole appends, and the ranges between them.
    fn whole(&self) -> (Vec<u64>, Vec<(u64, u64)>) {
        let (mut saved, mut lost) = (Vec::new(), Vec::new());
        let mut covered = FIRST_EVENT_AT - BETWEEN_RECORDS;
        let mut next = FIRST_EVENT_AT;
        let mut append: Option<Vec<u64>> = None;
        let mut begins = true;
        for (at, seen) in &self.frames {
            if *at != next {
                append = None;
                begins = self.source.record(*at).is_some();
            }
            if begins {
                append = Some(Vec::new());
            }
            if let Some(append) = &mut append {
                append.push(*at);
            }
            next = at + seen.step;
            begins = seen.ends_append;
            let Some(append) = append.take_if(|_| seen.ends_append) else { continue };
            let begin = append[0] - BETWEEN_RECORDS;
            if begin > covered {
                lost.push((covered, begin));
            }
            covered = at + seen.bytes;
            saved.extend(append);
        }
        let end = self.source.end.unwrap_or_else(|| self.furthest(covered));
        if end > covered {
            lost.push((covered, end));
        }
        (saved, lost)
    }

    /// Where the last of what looks like an append ends, in a chunk of which nobody noted the end.
    fn furthest(&self, covered: u64) -> u64 {
        let proven = self.frames.iter().next_back().map_or(covered, |(at, seen)| at + seen.bytes);
        let unproven = self.source.unproven(proven, self.source.bytes.len() as u64);
        let record = unproven.last.and_then(|place| Some(place + self.source.record(place)?));
        let known = match self.frames.contains_key(&self.last_proven) || self.last_proven == 0 {
            true => 0,
            false => self.last_proven + FRAME_HEADER_BYTES as u64,
        };
        record.unwrap_or(0).max(proven).max(covered).max(known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What an index knows of a chunk can reach behind its file, which was cut: to look between
    /// there and the file's end took a larger number from a smaller one.
    #[test]
    fn nothing_is_found_in_a_range_that_ends_before_it_begins() {
        let source = Source::new(1, 0, &[0; 4096]);
        let nothing = Unproven { count: 0, last: None, end: 4200 };
        assert_eq!(source.unproven(4200, 4096), nothing);
    }
}
