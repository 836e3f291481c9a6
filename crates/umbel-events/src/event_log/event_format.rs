//! Encoding of an event in the event log.
//!
//! FORMAT: `docs/formats/event-log.md` is the description. One record of a log file is one append.
//! A record's payload is a sequence of frames, one for each event; the length of a frame is a
//! multiple of 8 bytes.

use umbel_base::checksum::checksum;
use umbel_log::{RECORD_ALIGN, RECORD_HEADER_BYTES};

use crate::types::event::{EventId, NewEvent, RecordedEvent};

/// Bytes of a frame before the event's strings and data.
pub const FRAME_HEADER_BYTES: usize = 72;
/// Bytes from the end of the last frame of one record to the first frame of the next.
pub const RECORD_GAP_BYTES: u64 = RECORD_HEADER_BYTES as u64;

const IS_JSON: u8 = 1;
const ENDS_APPEND: u8 = 2;
const IS_STUB: u8 = 4;
/// Offset of the flags in a frame.
const FLAGS_OFFSET: usize = 68;

/// Location of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameLocation {
    /// Id of the chunk.
    pub chunk: u64,
    /// Offset in the chunk's file.
    pub offset: u64,
}

/// Fields of a frame besides the fields of the event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameMeta {
    /// Location of the frame.
    pub location: FrameLocation,
    /// Position of the event.
    pub position: u64,
    /// Distance from the beginning of the previous frame in the same chunk; 0 for the first frame.
    pub back: u32,
    /// Revision of the event.
    pub revision: u64,
    /// Time of the append, in units of 100 ns since 1970.
    pub created: u64,
    /// Whether this event is the last one of its append.
    pub ends_append: bool,
}

/// Bytes of an event's frame.
pub fn frame_bytes(stream: &str, event: &NewEvent<'_>) -> usize {
    let text = stream.len() + event.kind.len();
    padded(FRAME_HEADER_BYTES + text + event.metadata.len() + event.data.len())
}

fn padded(len: usize) -> usize {
    len.next_multiple_of(RECORD_ALIGN as usize)
}

/// Appends the frame of an event to `out`.
/// REQUIRES: the event is within the limits.
pub fn encode(out: &mut Vec<u8>, stream: &str, event: &NewEvent<'_>, stamp: &FrameMeta) {
    let start = out.len();
    let parts = [stream.as_bytes(), event.kind.as_bytes(), event.metadata, event.data];
    let len = FRAME_HEADER_BYTES + parts.iter().map(|part| part.len()).sum::<usize>();
    out.reserve(padded(len));
    out.extend_from_slice(&[0; 8]);
    out.extend_from_slice(&(len as u32).to_le_bytes());
    out.extend_from_slice(&stamp.back.to_le_bytes());
    out.extend_from_slice(&stamp.position.to_le_bytes());
    out.extend_from_slice(&stamp.revision.to_le_bytes());
    out.extend_from_slice(&stamp.created.to_le_bytes());
    out.extend_from_slice(&event.id.0);
    out.extend_from_slice(&(event.data.len() as u32).to_le_bytes());
    out.extend_from_slice(&(event.metadata.len() as u32).to_le_bytes());
    out.extend_from_slice(&(stream.len() as u16).to_le_bytes());
    out.extend_from_slice(&(event.kind.len() as u16).to_le_bytes());
    let mut flags = 0;
    if event.is_json {
        flags |= IS_JSON;
    }
    if stamp.ends_append {
        flags |= ENDS_APPEND;
    }
    out.extend_from_slice(&[flags, 0, 0, 0]);
    parts.iter().for_each(|part| out.extend_from_slice(part));
    let sum = checksum(stamp.location.chunk, stamp.location.offset, &out[start + 8..]);
    out[start..start + 8].copy_from_slice(&sum.to_le_bytes());
    out.resize(start + padded(len), 0);
}

/// Appends the stub of a scavenged event, which has only stream, type, id and revision. REQUIRES:
/// the same as [`encode`].
pub fn encode_stub(out: &mut Vec<u8>, stream: &str, event: &NewEvent<'_>, stamp: &FrameMeta) {
    let start = out.len();
    let bare = NewEvent { data: &[], metadata: &[], ..*event };
    encode(out, stream, &bare, stamp);
    out[start + FLAGS_OFFSET] |= IS_STUB;
    let end = start + FRAME_HEADER_BYTES + stream.len() + event.kind.len();
    let sum = checksum(stamp.location.chunk, stamp.location.offset, &out[start + 8..end]);
    out[start..start + 8].copy_from_slice(&sum.to_le_bytes());
}

/// Header of a frame, which is not verified yet.
#[derive(Debug, Clone, Copy)]
pub struct FrameHeader {
    /// Bytes without padding.
    len: u32,
    /// Position of the event, as the frame states it.
    pub position: u64,
}

impl FrameHeader {
    /// Decodes a header; `None` if no frame can have the stated length. So a damaged length cannot
    /// request much memory.
    pub fn decode(bytes: &[u8], bytes_max: usize) -> Option<FrameHeader> {
        let len = u32::from_le_bytes(*bytes.get(8..12)?.first_chunk()?);
        let position = u64::from_le_bytes(*bytes.get(16..24)?.first_chunk()?);
        let fits = (FRAME_HEADER_BYTES..=bytes_max).contains(&(len as usize));
        fits.then_some(FrameHeader { len, position })
    }

    /// Bytes of the frame, padding included.
    pub fn padded_bytes(self) -> usize {
        padded(self.len as usize)
    }
}

/// An event, borrowed from the bytes of its frame.
#[derive(Debug, Clone, Copy)]
pub struct Frame<'a> {
    /// Location, position, revision and time of the event.
    pub meta: FrameMeta,
    /// Name of the event's stream.
    pub stream: &'a str,
    /// The event.
    pub event: NewEvent<'a>,
    /// Bytes of the frame, padding included.
    pub bytes: usize,
    /// Whether the event was scavenged, so that this frame is only a stub, which no reader sees.
    pub is_stub: bool,
}

impl<'a> Frame<'a> {
    /// Decodes the frame at the start of `bytes`; `None` if the bytes are not the frame that was
    /// written at this location.
    pub fn decode(bytes: &'a [u8], place: FrameLocation) -> Option<Frame<'a>> {
        let head = FrameHeader::decode(bytes, bytes.len())?;
        let frame = &bytes[..head.len as usize];
        let u32_at = |at: usize| Some(u32::from_le_bytes(*frame.get(at..at + 4)?.first_chunk()?));
        let u64_at = |at: usize| Some(u64::from_le_bytes(*frame.get(at..at + 8)?.first_chunk()?));
        let u16_at = |at: usize| Some(u16::from_le_bytes(*frame.get(at..at + 2)?.first_chunk()?));
        if u64_at(0)? != checksum(place.chunk, place.offset, &frame[8..]) {
            return None;
        }
        let id = EventId(*frame.get(40..56)?.first_chunk()?);
        let (data, metadata) = (u32_at(56)? as usize, u32_at(60)? as usize);
        let (stream, kind) = (u16_at(64)? as usize, u16_at(66)? as usize);
        let flags =
            frame.get(FLAGS_OFFSET..72).filter(|rest| rest[0] < 8 && rest[1..] == [0; 3])?[0];
        let mut rest = &frame[FRAME_HEADER_BYTES..];
        let mut take = |len: usize| {
            let (part, after) = rest.split_at_checked(len)?;
            rest = after;
            Some(part)
        };
        let stream = std::str::from_utf8(take(stream)?).ok()?;
        let kind = std::str::from_utf8(take(kind)?).ok()?;
        let (metadata, data) = (take(metadata)?, take(data)?);
        let is_stub = flags & IS_STUB != 0;
        if !rest.is_empty() || is_stub && !(data.is_empty() && metadata.is_empty()) {
            return None;
        }
        let stamp = FrameMeta {
            location: place,
            position: u64_at(16)?,
            back: u32_at(12)?,
            revision: u64_at(24)?,
            created: u64_at(32)?,
            ends_append: flags & ENDS_APPEND != 0,
        };
        let event = NewEvent { id, kind, is_json: flags & IS_JSON != 0, data, metadata };
        Some(Frame { meta: stamp, stream, event, bytes: head.padded_bytes(), is_stub })
    }

    /// Distance from the beginning of this frame to the beginning of the next frame of the chunk.
    pub fn next_distance(&self) -> u64 {
        let between = if self.meta.ends_append { RECORD_GAP_BYTES } else { 0 };
        self.bytes as u64 + between
    }

    /// Returns a copy of the event.
    pub fn to_recorded(self) -> RecordedEvent {
        RecordedEvent {
            stream: self.stream.to_string(),
            revision: self.meta.revision,
            position: self.meta.position,
            id: self.event.id,
            kind: self.event.kind.to_string(),
            is_json: self.event.is_json,
            created: self.meta.created,
            data: self.event.data.to_vec(),
            metadata: self.event.metadata.to_vec(),
        }
    }
}

/// The frames in consecutive bytes of a chunk's file. Bytes that are no frame are an error, with
/// their offset in the file, and end the frames.
#[derive(Debug)]
pub struct Frames<'a> {
    place: FrameLocation,
    bytes: &'a [u8],
}

impl<'a> Frames<'a> {
    /// Returns the frames of `bytes`, which begin at an offset of a chunk's file.
    pub fn new(bytes: &'a [u8], place: FrameLocation) -> Frames<'a> {
        Frames { place, bytes }
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Result<Frame<'a>, u64>;

    fn next(&mut self) -> Option<Result<Frame<'a>, u64>> {
        if self.bytes.is_empty() {
            return None;
        }
        let frame = Frame::decode(self.bytes, self.place);
        let rest = frame.as_ref().and_then(|frame| self.bytes.get(frame.bytes..));
        let (Some(frame), Some(rest)) = (frame, rest) else {
            self.bytes = &[];
            return Some(Err(self.place.offset));
        };
        self.bytes = rest;
        self.place.offset += frame.bytes as u64;
        Some(Ok(frame))
    }
}

/// Decodes a frame, first with its stated checksum, then with the correct one. For fuzzing only.
pub fn fuzz(bytes: &[u8]) {
    let place = FrameLocation { chunk: 3, offset: 96 };
    let _ = Frame::decode(bytes, place).map(|frame| frame.to_recorded());
    let mut bytes = bytes.to_vec();
    let Some(head) = FrameHeader::decode(&bytes, bytes.len()) else { return };
    let sum = checksum(place.chunk, place.offset, &bytes[8..head.len as usize]);
    bytes[..8].copy_from_slice(&sum.to_le_bytes());
    if let Some(frame) = Frame::decode(&bytes, place) {
        let mut again = Vec::new();
        let encode = if frame.is_stub { encode_stub } else { encode };
        encode(&mut again, frame.stream, &frame.event, &frame.meta);
        assert_eq!(again[..head.len as usize], bytes[..head.len as usize], "one encoding");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> (Vec<u8>, FrameMeta) {
        let id = EventId::from_random([7; 16]);
        let event = NewEvent::json(id, "Opened", b"{}").with_metadata(b"m");
        let place = FrameLocation { chunk: 3, offset: 96 };
        let (position, back, revision, created) = (4096 + 96, 0, 5, 123);
        let stamp =
            FrameMeta { location: place, position, back, revision, created, ends_append: true };
        let mut bytes = Vec::new();
        encode(&mut bytes, "cart-1", &event, &stamp);
        assert_eq!(bytes.len(), frame_bytes("cart-1", &event));
        (bytes, stamp)
    }

    #[test]
    fn frame_round_trips() {
        let (bytes, stamp) = example();
        let frame = Frame::decode(&bytes, stamp.location).expect("just written");
        assert_eq!(frame.meta, stamp);
        assert_eq!(
            (frame.stream, frame.event.kind, frame.event.data),
            ("cart-1", "Opened", &b"{}"[..])
        );
        assert_eq!((frame.event.metadata, frame.event.is_json), (&b"m"[..], true));
        assert_eq!(frame.next_distance(), bytes.len() as u64 + 32);
    }

    #[test]
    fn frames_end_at_the_end_of_the_bytes_or_at_damage() {
        let (first, stamp) = example();
        let second = FrameLocation { offset: 96 + first.len() as u64, ..stamp.location };
        let mut bytes = first.clone();
        let frame = Frame::decode(&first, stamp.location).expect("just written");
        encode(&mut bytes, "cart-1", &frame.event, &FrameMeta { location: second, ..stamp });
        let offsets = |bytes: &[u8]| {
            let frames = Frames::new(bytes, stamp.location);
            frames.map(|frame| frame.map(|frame| frame.meta.location.offset)).collect::<Vec<_>>()
        };
        assert_eq!(offsets(&bytes), [Ok(96), Ok(second.offset)]);
        assert_eq!(offsets(&bytes[..bytes.len() - 8]), [Ok(96), Err(second.offset)]);
        assert!(offsets(&[]).is_empty());
        bytes[60] ^= 1;
        assert_eq!(offsets(&bytes), [Err(96)]);
    }

    #[test]
    fn stub_has_neither_data_nor_metadata() {
        let (bytes, stamp) = example();
        let frame = Frame::decode(&bytes, stamp.location).expect("just written");
        assert!(!frame.is_stub);
        let mut stub = Vec::new();
        encode_stub(&mut stub, frame.stream, &frame.event, &stamp);
        let read = Frame::decode(&stub, stamp.location).expect("just written");
        assert_eq!((read.meta, read.stream, read.is_stub), (stamp, "cart-1", true));
        assert_eq!((read.event.id, read.event.kind), (frame.event.id, "Opened"));
        assert!(read.event.data.is_empty() && read.event.metadata.is_empty());
        assert!(stub.len() < bytes.len() + 8);
    }

    #[test]
    fn changed_bits_and_other_positions_are_rejected() {
        let (bytes, stamp) = example();
        let unpadded = u32::from_le_bytes(bytes[8..12].try_into().expect("four bytes")) as usize;
        for bit in 0..unpadded * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(Frame::decode(&changed, stamp.location).is_none(), "bit {bit}");
        }
        for len in 0..unpadded {
            assert!(Frame::decode(&bytes[..len], stamp.location).is_none(), "{len} bytes");
        }
        let FrameLocation { chunk, offset } = stamp.location;
        assert!(Frame::decode(&bytes, FrameLocation { chunk: chunk + 1, offset }).is_none());
        assert!(Frame::decode(&bytes, FrameLocation { chunk, offset: offset + 8 }).is_none());
    }
}
