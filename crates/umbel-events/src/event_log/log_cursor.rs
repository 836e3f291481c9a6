//! [`LogCursor`]: reads events by position, and moves from event to event.
//!
//! In a chunk that no scavenge rewrote, the position determines the offset. In a rewritten chunk
//! ([`scavenged_chunk`](crate::event_log::scavenged_chunk)), the cursor searches for the offset.
//! The search begins at an earlier entry of the position map, or at an adjacent event that was read
//! last.

use std::sync::Arc;
use std::time::Duration;

use umbel_base::{Error, Result};

use super::EventLog;
use crate::event_log::chunk::Chunk;
use crate::event_log::chunk_manifest::chunk_directory;
use crate::event_log::event_format::{FRAME_HEADER_BYTES, Frame, FrameHeader, FrameLocation};
use crate::event_log::read_buffer::ReadBuffer;
use crate::event_log::scavenged_chunk::PositionMap;

/// Bytes read for a single event of unknown length.
const POINT_READ_BYTES: usize = 4 << 10;
/// Bytes read at a time by a scan.
const SCAN_READ_BYTES: usize = 256 << 10;
/// Bytes read at a time by a reader of single events among many.
const SPARSE_READ_BYTES: usize = 16 << 10;
/// Bytes that a device reads sequentially in about the time of a single read. Events nearer than
/// this are read sequentially once single reads turn out to wait for the device.
const READ_THROUGH_BYTES: u64 = 64 << 10;
/// Minimum times of a slow read: of a single event, and of `SCAN_READ_BYTES`. Reads from the page
/// cache are faster.
const SLOW_READ: [Duration; 2] = [Duration::from_micros(20), Duration::from_micros(100)];
/// Weight of a slow read against a quick one; also the threshold and the maximum of the weighted
/// count.
const SLOW_WEIGHT: u32 = 2;
const SLOW_THRESHOLD: u32 = 8;
const SLOW_MAX: u32 = 16;

#[cfg(test)]
thread_local! {
    /// Number of frames that this thread has read, for tests of the work of a call.
    pub static FRAMES_READ: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Reads events by position, and moves from event to event.
#[derive(Debug)]
pub struct LogCursor {
    log: Arc<EventLog>,
    buffer: ReadBuffer,
    /// Bytes to read at a time near the last read.
    scan_bytes: usize,
    /// Weighted count of slow recent reads of single events.
    slow: u32,
    /// The rewritten chunk that was read last.
    scavenged: Option<ScavengedCursor>,
}

/// A rewritten chunk, and the cursor's place in it.
#[derive(Debug)]
struct ScavengedCursor {
    id: u64,
    version: u64,
    position_map: Arc<PositionMap>,
    /// Position and offset of the event read last, and the offset after it.
    last: Option<(u64, u64, u64)>,
    /// Position and offset of the event before or after `last`.
    neighbor: Option<(u64, u64)>,
}

impl LogCursor {
    pub(super) fn new(log: &Arc<EventLog>) -> LogCursor {
        let (log, window) = (Arc::clone(log), ReadBuffer::default());
        LogCursor { log, buffer: window, scan_bytes: SCAN_READ_BYTES, slow: 0, scavenged: None }
    }

    /// Returns the cursor with shorter reads, for single events among many.
    pub fn with_sparse_reads(self) -> LogCursor {
        LogCursor { scan_bytes: SPARSE_READ_BYTES, ..self }
    }

    /// Returns the event at `position`.
    ///
    /// # Errors
    /// `Corruption` if no event has the position, or the bytes there are not the event that was
    /// written.
    pub fn event_at(&mut self, position: u64) -> Result<Frame<'_>> {
        let folder = chunk_directory(&self.log.folder);
        let missing_error = || {
            let reason = format!("the event at position {position} is needed, but was scavenged");
            Error::corruption(&folder, position, reason)
        };
        self.find_event(position)?.ok_or_else(missing_error)
    }

    /// Returns the event at `position`, or its stub; `None` if a scavenge removed the event.
    ///
    /// # Errors
    /// `Corruption` if no event ever had the position, or the bytes there are not the event that
    /// was written.
    pub fn find_event(&mut self, position: u64) -> Result<Option<Frame<'_>>> {
        let Some(chunk) = self.log.chunks.find(position) else {
            return Err(Error::corruption(
                &chunk_directory(&self.log.folder),
                position,
                format!("no chunk of the event log holds position {position}"),
            ));
        };
        if chunk.scavenged.is_none() {
            let offset = position - chunk.start;
            return self.frame(&chunk, offset).map(Some);
        }
        let near = self.scavenged(&chunk)?.neighbor;
        let found = match near.filter(|near| near.0 == position) {
            Some(near) => Some(near),
            None => self.first_at_or_after(&chunk, position)?,
        };
        match found.filter(|(at, _)| *at == position) {
            Some((_, offset)) => self.frame(&chunk, offset).map(Some),
            None => Ok(None),
        }
    }

    /// Returns the [ordered time](EventLog::ordered_time) of the first event at or after
    /// `position`, where an event is or was; `None` without such an event.
    pub fn ordered_time_from(&mut self, mut position: u64) -> Result<Option<u64>> {
        loop {
            if let Some(frame) = self.find_event(position)? {
                let meta = frame.meta;
                return Ok(Some(self.log.ordered_time(&meta)));
            }
            let Some(next) = self.seek(position)? else { return Ok(None) };
            position = next;
        }
    }

    /// Returns the state for a rewritten chunk.
    fn scavenged(&mut self, chunk: &Arc<Chunk>) -> Result<&mut ScavengedCursor> {
        let (id, version) = (chunk.id, chunk.version());
        let held = self.scavenged.take().filter(|held| (held.id, held.version) == (id, version));
        let held = match held {
            Some(held) => held,
            None => {
                let points = self.log.chunks.position_map(chunk)?;
                ScavengedCursor { id, version, position_map: points, last: None, neighbor: None }
            }
        };
        Ok(self.scavenged.insert(held))
    }

    /// Returns position and offset of the first event at or after `position` in a rewritten chunk;
    /// `None` where the chunk has none.
    fn first_at_or_after(
        &mut self,
        chunk: &Arc<Chunk>,
        position: u64,
    ) -> Result<Option<(u64, u64)>> {
        let mut offset = self.scavenged(chunk)?.position_map.offset_before(position);
        let mut before = 0;
        while let Some((frame, next)) = self.frame_and_next(chunk, offset)? {
            let at = frame.meta.position;
            if at >= position {
                return Ok(Some((at, offset)));
            }
            if at <= before {
                return Err(chunk.missing_event_error(offset));
            }
            (before, offset) = (at, next);
        }
        Ok(None)
    }

    /// Returns the event at `offset` of a chunk's file, and the offset of the next event; `None`
    /// after the last event.
    pub fn frame_and_next(
        &mut self,
        chunk: &Arc<Chunk>,
        offset: u64,
    ) -> Result<Option<(Frame<'_>, u64)>> {
        let (end, is_scavenged) = match chunk.scavenged {
            Some(_) => (self.scavenged(chunk)?.position_map.frames_end, true),
            None => (chunk.end(), false),
        };
        if offset >= end {
            return Ok(None);
        }
        let frame = self.frame(chunk, offset)?;
        let step = if is_scavenged { frame.bytes as u64 } else { frame.next_distance() };
        Ok(Some((frame, offset + step)))
    }

    /// Returns the event at `offset` of a chunk's file.
    pub fn frame(&mut self, chunk: &Arc<Chunk>, offset: u64) -> Result<Frame<'_>> {
        #[cfg(test)]
        FRAMES_READ.set(FRAMES_READ.get() + 1);
        let (head, end) = self.frame_header(chunk, offset)?;
        let available = usize::try_from(end - offset).unwrap_or(usize::MAX);
        let bytes = head.padded_bytes().min(available);
        self.fill_buffer(chunk, offset, bytes, end)?;
        if chunk.scavenged.is_some() {
            self.scavenged(chunk)?.last = Some((head.position, offset, offset + bytes as u64));
        }
        let place = FrameLocation { chunk: chunk.id, offset };
        let frame = Frame::decode(self.buffer.bytes_from(offset), place);
        frame.ok_or_else(|| chunk.missing_event_error(offset))
    }

    /// Returns the frame header at `offset`, and the end of the chunk's frames.
    fn frame_header(&mut self, chunk: &Arc<Chunk>, offset: u64) -> Result<(FrameHeader, u64)> {
        let end = match chunk.scavenged {
            None => chunk.readable_end(offset)?,
            Some(_) => self.scavenged(chunk)?.position_map.frames_end,
        };
        let available = usize::try_from(end.saturating_sub(offset)).unwrap_or(usize::MAX);
        if offset < chunk.first_offset() || available < FRAME_HEADER_BYTES {
            return Err(chunk.missing_event_error(offset));
        }
        self.fill_buffer(chunk, offset, FRAME_HEADER_BYTES, end)?;
        let head = FrameHeader::decode(self.buffer.bytes_from(offset), available);
        // Before the rest is read: bytes that are no frame may state a large length.
        let is_here = |head: &FrameHeader| match chunk.scavenged {
            None => head.position == chunk.start + offset,
            Some(_) => (chunk.start..chunk.start + chunk.capacity).contains(&head.position),
        };
        let head = head.filter(is_here).ok_or_else(|| chunk.missing_event_error(offset))?;
        Ok((head, end))
    }

    /// Reads the bytes into the buffer. Reads far ahead if the bytes are near the last read,
    /// otherwise only a little ahead.
    fn fill_buffer(&mut self, chunk: &Arc<Chunk>, offset: u64, len: usize, end: u64) -> Result<()> {
        if self.buffer.contains(chunk, offset, len) {
            return Ok(());
        }
        let is_sparse = self.scan_bytes == SPARSE_READ_BYTES;
        let is_slow = is_sparse && self.slow >= SLOW_THRESHOLD;
        let window = &mut self.buffer;
        let held_end = window.start + window.buffer.len() as u64;
        let is_same = window.is_of_chunk(chunk);
        let near = is_same
            && offset + self.scan_bytes as u64 >= window.start
            && offset <= held_end + POINT_READ_BYTES as u64;
        let in_a_row = is_same
            && is_slow
            && offset + READ_THROUGH_BYTES >= window.start
            && offset <= held_end + READ_THROUGH_BYTES;
        if !is_same {
            window.chunk = Some((Arc::clone(chunk), self.log.chunks.file(chunk)?));
        }
        let Some((_, file)) = &window.chunk else { return Ok(()) };
        let walk_bytes = match (in_a_row, near) {
            (true, _) => SCAN_READ_BYTES,
            (false, true) => self.scan_bytes,
            (false, false) => POINT_READ_BYTES,
        };
        let wanted = len.max(walk_bytes) as u64;
        // A backward scan needs the bytes before `offset`, and the rest of this event.
        let kept_after = (len as u64).max(walk_bytes as u64 / 4);
        let is_backwards = (near || in_a_row) && offset < window.start;
        let start = match () {
            () if is_backwards => offset.saturating_sub(wanted.saturating_sub(kept_after)),
            // From the end of the last read, so that the system reads ahead.
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
            let elapsed = self.log.env.clock.now().saturating_sub(begun);
            self.slow = match elapsed >= SLOW_READ[usize::from(in_a_row)] {
                true => (self.slow + SLOW_WEIGHT).min(SLOW_MAX),
                false => self.slow.saturating_sub(1),
            };
        }
        read
    }

    /// Returns the position of the event after the one at `position`, which is in `chunk` and takes
    /// `step` bytes. `None` at the end of the log.
    pub fn next_position(&mut self, position: u64, step: u64) -> Result<Option<u64>> {
        let Some(chunk) = self.log.chunks.find(position) else { return Ok(None) };
        if chunk.scavenged.is_none() {
            let next = position + step;
            if next - chunk.start < chunk.end() {
                return Ok(Some(next));
            }
        } else {
            let scavenged = self.scavenged(&chunk)?;
            let last = scavenged.last.filter(|last| last.0 == position);
            // It was read before the chunk was rewritten.
            let Some((_, _, next)) = last else { return self.seek(position + 1) };
            if next < scavenged.position_map.frames_end {
                let head = self.frame_header(&chunk, next)?.0;
                if head.position <= position {
                    return Err(chunk.missing_event_error(next));
                }
                self.scavenged(&chunk)?.neighbor = Some((head.position, next));
                return Ok(Some(head.position));
            }
        }
        Ok(self.log.chunks.after(&chunk).map(|after| after.first_position()))
    }

    /// Returns the position of the event before the event at `position`; `back` is the distance
    /// between them in bytes. `None` at the beginning of the log.
    pub fn previous_position(&mut self, position: u64, back: u32) -> Result<Option<u64>> {
        let Some(chunk) = self.log.chunks.find(position) else { return Ok(None) };
        if chunk.scavenged.is_some() {
            let last = self.scavenged(&chunk)?.last.filter(|last| last.0 == position);
            let Some((_, offset, _)) = last else { return self.seek_before(position) };
            if back > 0 {
                let before = offset.checked_sub(u64::from(back));
                let before = before.ok_or_else(|| chunk.missing_event_error(offset))?;
                let head = self.frame_header(&chunk, before)?.0;
                if head.position >= position {
                    return Err(chunk.missing_event_error(before));
                }
                self.scavenged(&chunk)?.neighbor = Some((head.position, before));
                return Ok(Some(head.position));
            }
        } else if back > 0 {
            return Ok(position.checked_sub(u64::from(back)));
        }
        let before = self.log.chunks.before(&chunk);
        Ok(before.and_then(|before| Some(before.start + before.last_event()?)))
    }

    /// Returns the position of the first event at or after `position`; `None` without such an
    /// event.
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
            let found = match chunk.scavenged {
                Some(_) => self.first_at_or_after(chunk, position)?.map(|(at, _)| at),
                None => self.seek_in(chunk, position)?,
            };
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// Returns the position of the first event at or after `position` in a chunk that no scavenge
    /// rewrote.
    fn seek_in(&mut self, chunk: &Arc<Chunk>, position: u64) -> Result<Option<u64>> {
        if self.frame(chunk, position - chunk.start).is_ok() {
            return Ok(Some(position));
        }
        // Between two events, only a scan from an earlier event finds the next one. The scan is
        // done once; it records offsets from which later scans begin.
        let mut offset = chunk.known_offset_before(position - chunk.start);
        while let Some((_, next)) = self.frame_and_next(chunk, offset)? {
            if chunk.start + offset >= position {
                return Ok(Some(chunk.start + offset));
            }
            offset = next;
            if offset < chunk.end() {
                chunk.record_offset(offset);
            }
        }
        Ok(None)
    }

    /// Returns the position of the last event before `position`; `None` without such an event.
    pub fn seek_before(&mut self, position: u64) -> Result<Option<u64>> {
        loop {
            let Some(at) = self.seek(position)? else { return Ok(self.log.last_position()) };
            // A scavenge may remove it between these two calls.
            if let Some(back) = self.find_event(at)?.map(|frame| frame.meta.back) {
                return self.previous_position(at, back);
            }
        }
    }
}
