//! [`LogCursor`]: reads events by their position, and walks from one to the next.
//!
//! In a chunk that was appended to, a position is a place. In one that was written anew
//! ([`packed`](crate::packed)) it has to be found: by a point before it, or because the cursor
//! comes from the event next to it.

use std::sync::Arc;
use std::time::Duration;

use umbel_base::{Error, Result};

use super::EventLog;
use crate::chunk::Chunk;
use crate::chunk_table::chunk_folder;
use crate::format::{FRAME_HEADER_BYTES, Frame, FrameHead, Place};
use crate::packed::Points;
use crate::window::Window;

/// How much is read for one event that nobody knows the length of.
const SINGLE_BYTES: usize = 4 << 10;
/// How much is read at a time by whoever walks.
const WALK_BYTES: usize = 256 << 10;
/// The same for whoever takes single events out of many.
const SPARSE_BYTES: usize = 16 << 10;
/// What a device gives in a row in about the time of one single read. Whoever takes single events
/// that lie nearer reads in a row once single reads turn out to wait for the device.
const STRETCH_BYTES: u64 = 64 << 10;
/// No single read out of the page cache takes as long, and none as long that is `WALK_BYTES` large.
const SLOW_READ: [Duration; 2] = [Duration::from_micros(20), Duration::from_micros(100)];
/// How much a slow read counts against a quick one; how much is enough, and is counted at most.
const SLOW_WEIGHT: u32 = 2;
const SLOW_ENOUGH: u32 = 8;
const SLOW_MOST: u32 = 16;

/// Reads events by their place, and walks from one to the next.
#[derive(Debug)]
pub struct LogCursor {
    log: Arc<EventLog>,
    window: Window,
    /// How much is read at a time of what lies near what was read last.
    walk_bytes: usize,
    /// How slow the last reads were, of whoever takes single events.
    slow: u32,
    /// The chunk that was written anew and read last.
    packed: Option<PackedChunk>,
}

/// A chunk that was written anew, and where in it the cursor stands.
#[derive(Debug)]
struct PackedChunk {
    id: u64,
    version: u64,
    points: Arc<Points>,
    /// Position and offset of the event read last, and the offset behind it.
    last: Option<(u64, u64, u64)>,
    /// Position and offset of the event before or behind that one.
    near: Option<(u64, u64)>,
}

impl LogCursor {
    pub(super) fn new(log: &Arc<EventLog>) -> LogCursor {
        let (log, window) = (Arc::clone(log), Window::default());
        LogCursor { log, window, walk_bytes: WALK_BYTES, slow: 0, packed: None }
    }

    /// The same, for whoever takes single events out of many.
    pub fn sparse(self) -> LogCursor {
        LogCursor { walk_bytes: SPARSE_BYTES, ..self }
    }

    /// The event at `position`.
    ///
    /// # Errors
    /// `Corruption` where there is none, or not the one that was written.
    pub fn at(&mut self, position: u64) -> Result<Frame<'_>> {
        let folder = chunk_folder(&self.log.folder);
        let gone = || {
            let reason = format!("the event at position {position} is needed, but was scavenged");
            Error::corruption(&folder, position, reason)
        };
        self.find(position)?.ok_or_else(gone)
    }

    /// The event at `position`, or what is left of it; `None` where it was scavenged.
    ///
    /// # Errors
    /// `Corruption` where there never was one, or it is not the one that was written.
    pub fn find(&mut self, position: u64) -> Result<Option<Frame<'_>>> {
        let Some(chunk) = self.log.chunks.find(position) else {
            return Err(Error::corruption(
                &chunk_folder(&self.log.folder),
                position,
                format!("no part of the event log holds position {position}"),
            ));
        };
        if chunk.packed.is_none() {
            let offset = position - chunk.start;
            return self.frame(&chunk, offset).map(Some);
        }
        let near = self.packed(&chunk)?.near;
        let found = match near.filter(|near| near.0 == position) {
            Some(near) => Some(near),
            None => self.first_from(&chunk, position)?,
        };
        match found.filter(|(at, _)| *at == position) {
            Some((_, offset)) => self.frame(&chunk, offset).map(Some),
            None => Ok(None),
        }
    }

    /// What is known of a chunk that was written anew.
    fn packed(&mut self, chunk: &Arc<Chunk>) -> Result<&mut PackedChunk> {
        let (id, version) = (chunk.id, chunk.version());
        let held = self.packed.take().filter(|held| (held.id, held.version) == (id, version));
        let held = match held {
            Some(held) => held,
            None => {
                let points = self.log.chunks.points(chunk)?;
                PackedChunk { id, version, points, last: None, near: None }
            }
        };
        Ok(self.packed.insert(held))
    }

    /// Position and offset of the first event at or behind `position` in a chunk that was written
    /// anew; `None` where there is none in it.
    fn first_from(&mut self, chunk: &Arc<Chunk>, position: u64) -> Result<Option<(u64, u64)>> {
        let mut offset = self.packed(chunk)?.points.before(position);
        let mut before = 0;
        while let Some((frame, next)) = self.walk(chunk, offset)? {
            let at = frame.stamp.position;
            if at >= position {
                return Ok(Some((at, offset)));
            }
            if at <= before {
                return Err(chunk.no_event_at(offset));
            }
            (before, offset) = (at, next);
        }
        Ok(None)
    }

    /// The event that begins at `offset` of a chunk's file, and the offset of the next; `None`
    /// behind the last.
    pub fn walk(&mut self, chunk: &Arc<Chunk>, offset: u64) -> Result<Option<(Frame<'_>, u64)>> {
        let (end, is_packed) = match chunk.packed {
            Some(_) => (self.packed(chunk)?.points.frames_end, true),
            None => (chunk.end(), false),
        };
        if offset >= end {
            return Ok(None);
        }
        let frame = self.frame(chunk, offset)?;
        let step = if is_packed { frame.bytes as u64 } else { frame.step() };
        Ok(Some((frame, offset + step)))
    }

    /// The event that begins at `offset` of a chunk's file.
    pub fn frame(&mut self, chunk: &Arc<Chunk>, offset: u64) -> Result<Frame<'_>> {
        let (head, end) = self.head(chunk, offset)?;
        let most = usize::try_from(end - offset).unwrap_or(usize::MAX);
        let bytes = head.padded_bytes().min(most);
        self.load(chunk, offset, bytes, end)?;
        if chunk.packed.is_some() {
            self.packed(chunk)?.last = Some((head.position, offset, offset + bytes as u64));
        }
        let place = Place { chunk: chunk.id, offset };
        let frame = Frame::decode(self.window.from(offset), place);
        frame.ok_or_else(|| chunk.no_event_at(offset))
    }

    /// What the frame at `offset` says of itself, and where the chunk's frames end.
    fn head(&mut self, chunk: &Arc<Chunk>, offset: u64) -> Result<(FrameHead, u64)> {
        let end = match chunk.packed {
            None => chunk.readable(offset)?,
            Some(_) => self.packed(chunk)?.points.frames_end,
        };
        let most = usize::try_from(end.saturating_sub(offset)).unwrap_or(usize::MAX);
        if offset < chunk.first_offset() || most < FRAME_HEADER_BYTES {
            return Err(chunk.no_event_at(offset));
        }
        self.load(chunk, offset, FRAME_HEADER_BYTES, end)?;
        let head = FrameHead::decode(self.window.from(offset), most);
        // Before the rest is read: what is no frame may say that it is long.
        let is_here = |head: &FrameHead| match chunk.packed {
            None => head.position == chunk.start + offset,
            Some(_) => (chunk.start..chunk.start + chunk.capacity).contains(&head.position),
        };
        let head = head.filter(is_here).ok_or_else(|| chunk.no_event_at(offset))?;
        Ok((head, end))
    }

    /// Brings the bytes into the window. What lies near what was read last is read with much that
    /// follows it, anything else with little.
    fn load(&mut self, chunk: &Arc<Chunk>, offset: u64, len: usize, end: u64) -> Result<()> {
        if self.window.holds(chunk, offset, len) {
            return Ok(());
        }
        let is_sparse = self.walk_bytes == SPARSE_BYTES;
        let is_slow = is_sparse && self.slow >= SLOW_ENOUGH;
        let window = &mut self.window;
        let held_end = window.start + window.buffer.len() as u64;
        let is_same = window.is_of(chunk);
        let near = is_same
            && offset + self.walk_bytes as u64 >= window.start
            && offset <= held_end + SINGLE_BYTES as u64;
        let in_a_row = is_same
            && is_slow
            && offset + STRETCH_BYTES >= window.start
            && offset <= held_end + STRETCH_BYTES;
        if !is_same {
            window.chunk = Some((Arc::clone(chunk), self.log.chunks.file(chunk)?));
        }
        let Some((_, file)) = &window.chunk else { return Ok(()) };
        let walk_bytes = match (in_a_row, near) {
            (true, _) => WALK_BYTES,
            (false, true) => self.walk_bytes,
            (false, false) => SINGLE_BYTES,
        };
        let wanted = len.max(walk_bytes) as u64;
        // Whoever walks backwards wants what lies before it, and the rest of this event.
        let behind = (len as u64).max(walk_bytes as u64 / 4);
        let is_backwards = (near || in_a_row) && offset < window.start;
        let start = match () {
            () if is_backwards => offset.saturating_sub(wanted.saturating_sub(behind)),
            // From where the last piece ended, so that the system reads ahead.
            () if in_a_row && offset > held_end => held_end,
            () => offset,
        };
        let wanted = wanted.max(offset - start + len as u64).min(end - start) as usize;
        window.start = start;
        window.buffer.clear();
        window.buffer.resize(wanted, 0);
        let is_timed = is_sparse && (in_a_row || !near);
        let begun = is_timed.then(|| self.log.env.clock.now());
        let read = chunk.read(&**file, &mut window.buffer, start);
        if read.is_err() {
            window.buffer.clear();
        }
        if let Some(begun) = begun {
            let spent = self.log.env.clock.now().saturating_sub(begun);
            self.slow = match spent >= SLOW_READ[usize::from(in_a_row)] {
                true => (self.slow + SLOW_WEIGHT).min(SLOW_MOST),
                false => self.slow.saturating_sub(1),
            };
        }
        read
    }

    /// The position of the event after the one at `position`, which lies in `chunk` and is `step`
    /// long; `None` at the end of the log.
    pub fn next_position(&mut self, position: u64, step: u64) -> Result<Option<u64>> {
        let Some(chunk) = self.log.chunks.find(position) else { return Ok(None) };
        if chunk.packed.is_none() {
            let next = position + step;
            if next - chunk.start < chunk.end() {
                return Ok(Some(next));
            }
        } else {
            let packed = self.packed(&chunk)?;
            let last = packed.last.filter(|last| last.0 == position);
            // It was read before the chunk was written anew.
            let Some((_, _, next)) = last else { return self.seek(position + 1) };
            if next < packed.points.frames_end {
                let head = self.head(&chunk, next)?.0;
                if head.position <= position {
                    return Err(chunk.no_event_at(next));
                }
                self.packed(&chunk)?.near = Some((head.position, next));
                return Ok(Some(head.position));
            }
        }
        Ok(self.log.chunks.after(&chunk).map(|after| after.first_position()))
    }

    /// The position of the event before the one at `position`, which begins `back` bytes behind
    /// it; `None` at the beginning of the log.
    pub fn previous_position(&mut self, position: u64, back: u32) -> Result<Option<u64>> {
        let Some(chunk) = self.log.chunks.find(position) else { return Ok(None) };
        if chunk.packed.is_some() {
            let last = self.packed(&chunk)?.last.filter(|last| last.0 == position);
            let Some((_, offset, _)) = last else { return self.seek_before(position) };
            if back > 0 {
                let before = offset.checked_sub(u64::from(back));
                let before = before.ok_or_else(|| chunk.no_event_at(offset))?;
                let head = self.head(&chunk, before)?.0;
                if head.position >= position {
                    return Err(chunk.no_event_at(before));
                }
                self.packed(&chunk)?.near = Some((head.position, before));
                return Ok(Some(head.position));
            }
        } else if back > 0 {
            return Ok(position.checked_sub(u64::from(back)));
        }
        let before = self.log.chunks.before(&chunk);
        Ok(before.and_then(|before| Some(before.start + before.last_event()?)))
    }

    /// The position of the first event at or behind `position`; `None` where there is none.
    pub fn seek(&mut self, position: u64) -> Result<Option<u64>> {
        let chunks = self.log.chunks.all();
        let from = chunks.partition_point(|chunk| chunk.start + chunk.end() <= position);
        for chunk in &chunks[from..] {
            let Some(last) = chunk.last_event() else { continue };
            let first = chunk.first_position();
            if position <= first {
                return Ok(Some(first));
            }
            if position > chunk.start + last {
                continue;
            }
            let found = match chunk.packed {
                Some(_) => self.first_from(chunk, position)?.map(|(at, _)| at),
                None => self.seek_in(chunk, position)?,
            };
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// The position of the first event at or behind `position` in a chunk that was appended to.
    fn seek_in(&mut self, chunk: &Arc<Chunk>, position: u64) -> Result<Option<u64>> {
        if self.frame(chunk, position - chunk.start).is_ok() {
            return Ok(Some(position));
        }
        // Between two events: only the way from one before tells where. It is walked once, and
        // leaves marks from which the next one begins.
        let mut offset = chunk.mark_before(position - chunk.start);
        while let Some((_, next)) = self.walk(chunk, offset)? {
            if chunk.start + offset >= position {
                return Ok(Some(chunk.start + offset));
            }
            offset = next;
            if offset < chunk.end() {
                chunk.mark(offset);
            }
        }
        Ok(None)
    }

    /// The position of the last event before `position`; `None` where there is none.
    pub fn seek_before(&mut self, position: u64) -> Result<Option<u64>> {
        loop {
            let Some(at) = self.seek(position)? else { return Ok(self.log.last_position()) };
            // It may be scavenged between these two.
            if let Some(back) = self.find(at)?.map(|frame| frame.stamp.back) {
                return self.previous_position(at, back);
            }
        }
    }
}
