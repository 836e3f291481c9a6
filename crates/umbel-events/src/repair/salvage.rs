//! Salvage of a damaged chunk: events whose bytes match their checksums, at offsets that other
//! evidence proves.
//!
//! A checksum does not prove that an event was appended. A writer can put the image of a frame or
//! of a record into the data of another event. So offsets come from other evidence:
//!
//! - the first event of a chunk has a fixed offset;
//! - a proven event shows by its length where the next event begins, and by `back` where the
//!   previous event begins;
//! - the chunk manifest has the position of the last event;
//! - the index knows which event begins at which offset; a different event at that offset is
//!   rejected;
//! - the lengths of a damaged event and of its record lead to the next event; exactly one such
//!   event must name the damaged one as its previous event.
//!
//! INVARIANT: in a chunk that no scavenge rewrote, an append is salvaged as a whole or not at all.

use std::collections::{BTreeMap, BTreeSet};

use umbel_log::{RECORD_ALIGN, RecordBinding, record_at, stated_bytes};

use crate::event_log::chunk::FIRST_EVENT_OFFSET;
use crate::event_log::event_format::{
    FRAME_HEADER_BYTES, Frame, FrameHeader, FrameLocation, RECORD_GAP_BYTES,
};
use crate::event_log::scavenged_chunk::{self, PositionMap};
use crate::repair::old_index_events::OldIndexEntry;

/// Maximum number of checksummed bytes per byte of a lost range in the search for unproven appends.
const CHECKSUMMED_PER_BYTE: u64 = 4;

/// Bytes of a chunk's file, with the evidence about the chunk.
#[derive(Clone, Copy)]
pub struct ChunkBytes<'a> {
    /// The chunk's id.
    pub id: u64,
    /// Position of the first byte of the chunk's original file.
    pub start: u64,
    /// The existing bytes of the file.
    pub bytes: &'a [u8],
    /// Offset after the last append; `None` if it was not recorded.
    pub end: Option<u64>,
    /// Events of the chunk that the index knows.
    pub indexed: Option<IndexedRange<'a>>,
}

/// Evidence of the index for a chunk: all its events up to a position, and no event after this
/// position.
#[derive(Clone, Copy)]
pub struct IndexedRange<'a> {
    /// The events, by position.
    pub events: &'a [OldIndexEntry],
    /// Names of the events' streams.
    pub streams: &'a [String],
    /// The list is complete up to this position.
    pub through: u64,
}

impl IndexedRange<'_> {
    /// Whether the index agrees with an event. An event that the index denies was written by
    /// another store.
    fn admits(&self, frame: &Frame<'_>) -> bool {
        let position = frame.meta.position;
        let known = self.events.binary_search_by_key(&position, |event| event.position);
        let same = |event: &OldIndexEntry| {
            let stream = self.streams.get(event.stream);
            event.revision == frame.meta.revision && stream.is_some_and(|s| s == frame.stream)
        };
        match known {
            Ok(at) => same(&self.events[at]),
            Err(_) => position > self.through,
        }
    }
}

/// Result of a salvage.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SalvageResult {
    /// Offsets of the salvaged events, ascending.
    pub offsets: Vec<u64>,
    /// Lost ranges.
    pub lost: Vec<LostSpan>,
}

/// Lost range: positions from `from` up to `to`, exclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LostSpan {
    /// First position.
    pub from: u64,
    /// Position after the last one.
    pub to: u64,
    /// Number of bytes of the range in the file.
    pub bytes: u64,
    /// Number of appends in the range that look whole.
    pub unproven: u64,
}

/// Appends that look whole, without proof that they were appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnprovenAppends {
    /// Number of appends.
    pub count: u64,
    /// Offset of the first event of the last such append.
    pub last: Option<u64>,
    /// Offset after the last such append.
    pub end: u64,
}

/// Summary of a frame, kept while the salvage follows offsets.
#[derive(Debug, Clone, Copy)]
struct FrameSummary {
    bytes: u64,
    step: u64,
    back: u64,
    position: u64,
    ends_append: bool,
}

impl<'a> ChunkBytes<'a> {
    /// Creates the bytes of a chunk whose positions begin at `start`, without other evidence.
    pub fn new(id: u64, start: u64, bytes: &'a [u8]) -> ChunkBytes<'a> {
        ChunkBytes { id, start, bytes, end: None, indexed: None }
    }

    /// Frame at an offset.
    pub fn frame(&self, offset: u64) -> Option<Frame<'a>> {
        let bytes = self.bytes.get(usize::try_from(offset).ok()?..)?;
        Frame::decode(bytes, FrameLocation { chunk: self.id, offset })
    }

    /// Frame at an offset, if its position matches the offset.
    fn located_frame(&self, offset: u64) -> Option<FrameSummary> {
        let is_aligned = offset.is_multiple_of(RECORD_ALIGN);
        if !is_aligned || offset < FIRST_EVENT_OFFSET || self.end.is_some_and(|end| offset >= end) {
            return None;
        }
        let frame = self.frame(offset)?;
        let is_here = frame.meta.position == self.start.checked_add(offset)?
            && !frame.is_stub
            && self.indexed.is_none_or(|known| known.admits(&frame));
        is_here.then(|| FrameSummary::of(&frame))
    }

    /// Length of the append that begins with the frame at `offset`, from its record.
    fn record_bytes(&self, offset: u64) -> Option<u64> {
        let at = offset.checked_sub(RECORD_GAP_BYTES)?;
        let bytes = self.bytes.get(at as usize..)?;
        let record = record_at(RecordBinding { log_id: self.id, salt: 0 }, at, bytes)?;
        let is_ours = record.sequence == self.start.checked_add(offset)?;
        is_ours.then_some(record.payload.len() as u64)
    }

    /// Salvages a chunk that no scavenge rewrote. Events are known to begin at the offsets in
    /// `proven`.
    pub fn salvage_appended(&self, proven: &[u64], accept_unproven: bool) -> SalvageResult {
        let last_proven = proven.iter().copied().max().unwrap_or(0);
        let (frames, broken) = (BTreeMap::new(), BTreeSet::new());
        let mut places = ProvenOffsets { source: self, frames, damaged: broken, last_proven };
        places.follow(proven.iter().copied().chain([FIRST_EVENT_OFFSET]).collect());
        loop {
            let (offsets, ranges) = places.whole_appends();
            let mut lost = Vec::new();
            let mut accepted = None;
            for (from, to) in ranges {
                let UnprovenAppends { count, last, .. } = self.find_unproven(from, to);
                accepted = accepted.or(last.filter(|last| !places.frames.contains_key(last)));
                let position = |offset: u64| self.start + offset;
                let (from, to, bytes) = (position(from), position(to), to - from);
                lost.push(LostSpan { from, to, bytes, unproven: count });
            }
            match accepted.filter(|_| accept_unproven) {
                Some(place) => {
                    places.damaged.remove(&place);
                    places.follow(vec![place]);
                }
                None => return SalvageResult { offsets, lost },
            }
        }
    }

    /// Searches a lost range for appends that look whole.
    pub fn find_unproven(&self, from: u64, to: u64) -> UnprovenAppends {
        let mut budget = to.saturating_sub(from).saturating_mul(CHECKSUMMED_PER_BYTE);
        let mut found = UnprovenAppends { count: 0, last: None, end: from };
        let mut at = from.next_multiple_of(RECORD_ALIGN);
        while at + RECORD_GAP_BYTES < to.min(self.bytes.len() as u64) {
            let bytes = &self.bytes[at as usize..];
            let low = bytes.get(12..16).and_then(|low| low.first_chunk());
            let is_like = low.is_some_and(|low| u32::from_le_bytes(*low) == self.id as u32);
            let stated = stated_bytes(bytes).filter(|stated| is_like && at + stated <= to);
            let Some(stated) = stated.filter(|stated| *stated <= budget) else {
                at += RECORD_ALIGN;
                continue;
            };
            budget -= stated;
            let place = at + RECORD_GAP_BYTES;
            if self.record_bytes(place).is_some() && self.located_frame(place).is_some() {
                at += stated;
                found = UnprovenAppends { count: found.count + 1, last: Some(place), end: at };
            } else {
                at += RECORD_ALIGN;
            }
        }
        found
    }

    /// Salvages a scavenged chunk, whose positions are up to `limit`, exclusive. Each event of the
    /// chunk is salvaged on its own: a scavenge may have removed other events of the same append.
    /// `last` is the position of the last event, if known.
    pub fn salvage_scavenged(
        &self,
        limit: u64,
        points: Option<&PositionMap>,
        last: Option<u64>,
    ) -> SalvageResult {
        let end = points.map_or(self.bytes.len() as u64, |points| points.frames_end);
        let source = ChunkBytes { end: Some(end), ..*self };
        let mut frames: BTreeMap<u64, FrameSummary> = BTreeMap::new();
        let mut broken = BTreeSet::new();
        let mut work = vec![scavenged_chunk::HEADER_BYTES];
        work.extend(points.into_iter().flat_map(PositionMap::offsets));
        loop {
            while let Some(at) = work.pop() {
                if frames.contains_key(&at) || broken.contains(&at) {
                    continue;
                }
                let Some(seen) = source.scavenged_frame(at, limit) else {
                    broken.insert(at);
                    continue;
                };
                frames.insert(at, seen);
                work.extend((at + seen.bytes < end).then_some(at + seen.bytes));
                work.extend(at.checked_sub(seen.back).filter(|_| seen.back > 0));
            }
            let unreached = |at: &u64| !frames.contains_key(at) && !broken.contains(at);
            let next = broken.iter().filter_map(|at| source.next_after_damaged_frame(*at, limit));
            match next.into_iter().find(unreached) {
                Some(at) => work.push(at),
                None => break,
            }
        }
        retain_rising(&mut frames);
        source.lost_in_scavenged(&frames, (limit, end), points.is_some(), last)
    }

    /// Frame at an offset of a scavenged chunk.
    fn scavenged_frame(&self, offset: u64, limit: u64) -> Option<FrameSummary> {
        let is_aligned = offset.is_multiple_of(RECORD_ALIGN);
        let is_inside = offset >= scavenged_chunk::HEADER_BYTES && offset < self.end?;
        let frame = self.frame(offset).filter(|_| is_aligned && is_inside)?;
        let is_ours = (self.start..limit).contains(&frame.meta.position)
            && self.indexed.is_none_or(|known| known.admits(&frame));
        is_ours.then(|| FrameSummary::of(&frame))
    }

    /// Offset of the event after a damaged event of a scavenged chunk, by the damaged event's
    /// length. The event at that offset must name the damaged event as its previous one.
    fn next_after_damaged_frame(&self, at: u64, limit: u64) -> Option<u64> {
        let bytes = self.bytes.get(at as usize..)?;
        let next = at + FrameHeader::decode(bytes, bytes.len())?.padded_bytes() as u64;
        let seen = self.scavenged_frame(next, limit)?;
        (seen.back == next - at).then_some(next)
    }

    fn lost_in_scavenged(
        &self,
        frames: &BTreeMap<u64, FrameSummary>,
        (limit, end): (u64, u64),
        is_end_known: bool,
        last: Option<u64>,
    ) -> SalvageResult {
        let mut saved =
            SalvageResult { offsets: frames.keys().copied().collect(), lost: Vec::new() };
        let (mut position, mut offset) = (self.start, scavenged_chunk::HEADER_BYTES);
        for (at, seen) in frames {
            if *at != offset {
                let (from, to, bytes) = (position, seen.position, at - offset);
                saved.lost.push(LostSpan { from, to, bytes, unproven: 0 });
            }
            (position, offset) = (seen.position + seen.bytes, at + seen.bytes);
        }
        let newest = frames.values().next_back().map(|seen| seen.position);
        let is_complete = last.is_some() && newest == last || is_end_known && offset >= end;
        if !is_complete {
            let bytes = end.saturating_sub(offset);
            saved.lost.push(LostSpan { from: position, to: limit, bytes, unproven: 0 });
        }
        saved
    }
}

/// Removes frames that are not in ascending order of positions.
fn retain_rising(frames: &mut BTreeMap<u64, FrameSummary>) {
    let mut before = None;
    frames.retain(|_, seen| {
        let rises = before.is_none_or(|before| seen.position > before);
        before = before.max(Some(seen.position));
        rises
    });
}

impl FrameSummary {
    fn of(frame: &Frame<'_>) -> FrameSummary {
        FrameSummary {
            bytes: frame.bytes as u64,
            step: frame.next_distance(),
            back: u64::from(frame.meta.back),
            position: frame.meta.position,
            ends_append: frame.meta.ends_append,
        }
    }
}

/// Offsets of a chunk at which events are proven to begin.
struct ProvenOffsets<'s, 'a> {
    source: &'s ChunkBytes<'a>,
    /// Proven offsets with valid frames.
    frames: BTreeMap<u64, FrameSummary>,
    /// Proven offsets with damaged frames.
    damaged: BTreeSet<u64>,
    /// Last offset that evidence outside the chunk proved.
    last_proven: u64,
}

impl ProvenOffsets<'_, '_> {
    /// Follows proven offsets as far as they lead.
    fn follow(&mut self, mut work: Vec<u64>) {
        loop {
            while let Some(at) = work.pop() {
                if self.frames.contains_key(&at) || self.damaged.contains(&at) {
                    continue;
                }
                let Some(seen) = self.source.located_frame(at) else {
                    self.damaged.insert(at);
                    continue;
                };
                self.frames.insert(at, seen);
                work.push(at + seen.step);
                work.extend(at.checked_sub(seen.back).filter(|_| seen.back > 0));
            }
            let bridges = self.damaged.iter().filter_map(|at| self.next_after_damage(*at));
            let unreached = |at: &u64| !self.frames.contains_key(at);
            match bridges.into_iter().find(unreached) {
                Some(at) => {
                    self.damaged.remove(&at);
                    work.push(at);
                }
                None => return,
            }
        }
    }

    /// Offset after a damaged event to which the lengths of the event and its record lead. The
    /// event at that offset must name the damaged event, or a later one, as its previous event.
    /// `None` if the lengths lead to offsets that contradict each other.
    fn next_after_damage(&self, at: u64) -> Option<u64> {
        let bytes = self.source.bytes.get(at as usize..)?;
        let says = |next: u64, before: std::ops::Range<u64>| {
            let seen = self.source.located_frame(next)?;
            let place = next.checked_sub(seen.back)?;
            (seen.back > 0 && before.contains(&place)).then_some(next)
        };
        let head = FrameHeader::decode(bytes, bytes.len());
        let end = head.map(|head| at + head.padded_bytes() as u64);
        let in_append = end.and_then(|end| says(end, at..at + 1));
        let in_next_append = end.and_then(|end| says(end + RECORD_GAP_BYTES, at..at + 1));
        let by_record = self.first_of_append(at).and_then(|first| {
            let record = first.checked_sub(RECORD_GAP_BYTES)?;
            let stated = stated_bytes(self.source.bytes.get(record as usize..)?)?;
            let next = record.checked_add(stated)?.checked_add(RECORD_GAP_BYTES)?;
            says(next, at..next)
        });
        match (in_append, in_next_append, by_record) {
            (Some(inner), None, Some(next)) => self.leads_to(inner, next).then_some(next),
            (None, Some(one), Some(next)) => (one == next).then_some(next),
            (Some(_), Some(_), _) => None,
            (one, None, None) | (None, one, None) | (None, None, one) => one,
        }
    }

    /// Whether the whole events from an offset on are consistent with an end of their append before
    /// `next`.
    fn leads_to(&self, mut at: u64, next: u64) -> bool {
        while let Some(seen) = self.source.located_frame(at) {
            at += seen.step;
            if seen.ends_append || at >= next {
                return seen.ends_append && at == next;
            }
        }
        at < next
    }

    /// First event of the append with the event at `at`, if the events before it in the append are
    /// whole.
    fn first_of_append(&self, at: u64) -> Option<u64> {
        let mut first = at;
        while first > FIRST_EVENT_OFFSET {
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

    /// Offsets of the events of whole appends, and the ranges between them.
    fn whole_appends(&self) -> (Vec<u64>, Vec<(u64, u64)>) {
        let (mut saved, mut lost) = (Vec::new(), Vec::new());
        let mut covered = FIRST_EVENT_OFFSET - RECORD_GAP_BYTES;
        let mut next = FIRST_EVENT_OFFSET;
        let mut append: Option<Vec<u64>> = None;
        let mut begins = true;
        for (at, seen) in &self.frames {
            if *at != next {
                append = None;
                begins = self.source.record_bytes(*at).is_some();
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
            let begin = append[0] - RECORD_GAP_BYTES;
            if begin > covered {
                lost.push((covered, begin));
            }
            covered = at + seen.bytes;
            saved.extend(append);
        }
        let end = self.source.end.unwrap_or_else(|| self.last_append_end(covered));
        if end > covered {
            lost.push((covered, end));
        }
        (saved, lost)
    }

    /// End of the last apparent append in a chunk without a recorded end.
    fn last_append_end(&self, covered: u64) -> u64 {
        let proven = self.frames.iter().next_back().map_or(covered, |(at, seen)| at + seen.bytes);
        let unproven = self.source.find_unproven(proven, self.source.bytes.len() as u64);
        let record = unproven.last.and_then(|place| Some(place + self.source.record_bytes(place)?));
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

    /// Regression: the index's evidence of a chunk can reach past the end of its truncated file. A
    /// search between these two ends subtracted a larger number from a smaller one.
    #[test]
    fn range_that_ends_before_its_start_salvages_no_event() {
        let source = ChunkBytes::new(1, 0, &[0; 4096]);
        let nothing = UnprovenAppends { count: 0, last: None, end: 4200 };
        assert_eq!(source.find_unproven(4200, 4096), nothing);
    }
}
