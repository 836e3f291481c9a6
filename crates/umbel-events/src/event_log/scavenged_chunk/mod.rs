//! A chunk that was written anew with events left out: [`Packer`] makes its file, [`Points`] say
//! where in it events begin, [`Gaps`] what was left out.
//!
//! FORMAT: `docs/formats/event-log.md`. Header, frames, points, gaps. What is left keeps its
//! position; the frames stand one behind the other, each bound to its place by its checksum.

use std::collections::{BTreeMap, HashMap};

use umbel_base::checksum::checksum;
use umbel_base::{Decoder, Error, Result, varint};
use umbel_env::File;

use crate::chunk_table::Packed;
use crate::format::{self, Frame, Place, Stamp};
use crate::limits::FILE_BYTES_MAX;

/// What stands before the first frame.
pub const HEADER_BYTES: u64 = 64;
const MAGIC: [u8; 8] = *b"UmbelPck";
const FORMAT: u32 = 1;
/// From one point to the next at least so many bytes of frames.
const POINT_BYTES: u64 = 2048;

/// Where events begin in the file of a packed chunk.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Points {
    /// The offset behind the last frame.
    pub frames_end: u64,
    /// The offset behind the points.
    points_end: u64,
    /// The offset behind the gaps.
    file_bytes: u64,
    /// Positions and offsets, both rising.
    points: Vec<(u64, u64)>,
}

impl Points {
    /// Offsets at which events begin, rising.
    pub fn offsets(&self) -> impl Iterator<Item = u64> + '_ {
        self.points.iter().map(|point| point.1)
    }

    /// The offset of an event at or before `position`, or of the first.
    pub fn before(&self, position: u64) -> u64 {
        let behind = self.points.partition_point(|point| point.0 <= position);
        behind.checked_sub(1).map_or(HEADER_BYTES, |index| self.points[index].1)
    }
}

/// A run of events that were left out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Gap {
    /// The position of the first of them.
    pub position: u64,
    /// How many they are.
    pub events: u64,
    /// How many of them were the first of their streams, streams of the system not counted.
    pub streams: u64,
    /// How many were in each category, by the number of its name.
    pub categories: BTreeMap<u64, u64>,
    /// How many were of each type, by the number of its name.
    pub kinds: BTreeMap<u64, u64>,
}

/// What was left out of a chunk.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Gaps {
    /// Names of categories and types.
    pub names: Vec<String>,
    /// The runs, by position.
    pub runs: Vec<Gap>,
}

/// The category of a stream: what stands before the first `-` of its name.
fn category(stream: &str) -> Option<&str> {
    let (category, _) = stream.split_once('-')?;
    Some(category).filter(|category| !category.is_empty() && !stream.starts_with('$'))
}

/// Makes the file of a packed chunk.
#[derive(Debug)]
pub struct Packer {
    id: u64,
    start: u64,
    version: u64,
    made_of: u64,
    bytes: Vec<u8>,
    points: Vec<(u64, u64)>,
    /// Offset and position of the last frame.
    last: Option<(u64, u64)>,
    first_position: u64,
    gaps: Gaps,
    numbers: HashMap<String, u64>,
    /// Whether the last run goes on.
    in_gap: bool,
}

impl Packer {
    /// The file with this version of a chunk, made of another.
    pub fn new(id: u64, start: u64, version: u64, made_of: u64) -> Packer {
        Packer {
            id,
            start,
            version,
            made_of,
            bytes: vec![0; HEADER_BYTES as usize],
            points: Vec::new(),
            last: None,
            first_position: 0,
            gaps: Gaps::default(),
            numbers: HashMap::new(),
            in_gap: false,
        }
    }

    /// Takes an event along, or what is left of it as a stub.
    pub fn keep(&mut self, frame: &Frame<'_>, as_stub: bool) {
        let offset = self.bytes.len() as u64;
        let position = frame.stamp.position;
        let back = self.last.map_or(0, |(last, _)| (offset - last) as u32);
        let stamp = Stamp { place: Place { chunk: self.id, offset }, back, ..frame.stamp };
        let encode = if as_stub { format::encode_stub } else { format::encode };
        encode(&mut self.bytes, frame.stream, &frame.event, &stamp);
        if self.points.last().is_none_or(|point| offset >= point.1 + POINT_BYTES) {
            self.points.push((position, offset));
        }
        if self.last.is_none() {
            self.first_position = position;
        }
        self.last = Some((offset, position));
        self.in_gap = false;
    }

    fn number(&mut self, name: &str) -> u64 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = self.gaps.names.len() as u64;
        self.gaps.names.push(name.to_string());
        self.numbers.insert(name.to_string(), number);
        number
    }

    /// Leaves an event out.
    pub fn leave(&mut self, frame: &Frame<'_>) {
        let category = category(frame.stream).map(|name| self.number(name));
        let kind = self.number(frame.event.kind);
        let begins = frame.stamp.revision == 0 && !frame.stream.starts_with('$');
        let gap = Gap {
            position: frame.stamp.position,
            events: 1,
            streams: u64::from(begins),
            categories: category.map(|number| (number, 1)).into_iter().collect(),
            kinds: BTreeMap::from([(kind, 1)]),
        };
        self.add(gap);
    }

    /// Takes over what an earlier file of the chunk left out.
    /// REQUIRES: in the order of positions, between [`Packer::keep`] and [`Packer::leave`].
    pub fn leave_again(&mut self, gaps: &Gaps, run: &Gap) {
        let mut renumbered = |counts: &BTreeMap<u64, u64>| -> BTreeMap<u64, u64> {
            let name = |number: u64| gaps.names.get(number as usize).map_or("", String::as_str);
            counts.iter().map(|(number, count)| (self.number(name(*number)), *count)).collect()
        };
        let (categories, kinds) = (renumbered(&run.categories), renumbered(&run.kinds));
        self.add(Gap { categories, kinds, ..*run });
    }

    fn add(&mut self, gap: Gap) {
        let Some(run) = self.gaps.runs.last_mut().filter(|_| self.in_gap) else {
            self.gaps.runs.push(gap);
            self.in_gap = true;
            return;
        };
        run.events += gap.events;
        run.streams += gap.streams;
        for (number, count) in gap.categories {
            *run.categories.entry(number).or_default() += count;
        }
        for (number, count) in gap.kinds {
            *run.kinds.entry(number).or_default() += count;
        }
    }

    /// The bytes of the file, and what the table of chunks says of it.
    pub fn finish(mut self) -> (Vec<u8>, Packed) {
        let frames_end = self.bytes.len() as u64;
        let tail = encode_points(&self.points);
        seal(&mut self.bytes, self.id, &tail);
        let points_end = self.bytes.len() as u64;
        let tail = encode_gaps(&self.gaps);
        seal(&mut self.bytes, self.id, &tail);
        let file_bytes = self.bytes.len() as u64;
        let header =
            header(self.id, self.version, [self.start, frames_end, points_end, file_bytes]);
        self.bytes[..HEADER_BYTES as usize].copy_from_slice(&header);
        let ends = self
            .last
            .map_or((0, 0), |(_, last)| (self.first_position - self.start, last - self.start));
        let packed = Packed {
            version: self.version,
            made_of: self.made_of,
            file_bytes,
            checksum: checksum(self.id, 0, &self.bytes),
            first_event: ends.0,
            last_event: ends.1,
        };
        (self.bytes, packed)
    }
}

/// Appends a part of the file with its checksum.
fn seal(bytes: &mut Vec<u8>, id: u64, part: &[u8]) {
    let sum = checksum(id, bytes.len() as u64, part);
    bytes.extend_from_slice(part);
    bytes.extend_from_slice(&sum.to_le_bytes());
}

fn header(id: u64, version: u64, numbers: [u64; 4]) -> [u8; HEADER_BYTES as usize] {
    let mut header = [0; HEADER_BYTES as usize];
    header[..8].copy_from_slice(&MAGIC);
    header[8..16].copy_from_slice(&id.to_le_bytes());
    header[16..20].copy_from_slice(&FORMAT.to_le_bytes());
    header[20..24].copy_from_slice(&(version as u32).to_le_bytes());
    for (index, number) in numbers.into_iter().enumerate() {
        header[24 + index * 8..32 + index * 8].copy_from_slice(&number.to_le_bytes());
    }
    let sum = checksum(id, 0, &header[..56]);
    header[56..].copy_from_slice(&sum.to_le_bytes());
    header
}

fn encode_points(points: &[(u64, u64)]) -> Vec<u8> {
    let mut out = Vec::new();
    varint::put_u64(&mut out, points.len() as u64);
    let (mut position, mut offset) = (0, 0);
    for point in points {
        varint::put_u64(&mut out, point.0 - position);
        varint::put_u64(&mut out, point.1 - offset);
        (position, offset) = *point;
    }
    out
}

fn encode_gaps(gaps: &Gaps) -> Vec<u8> {
    let mut out = Vec::new();
    varint::put_u64(&mut out, gaps.names.len() as u64);
    gaps.names.iter().for_each(|name| varint::put_bytes(&mut out, name.as_bytes()));
    varint::put_u64(&mut out, gaps.runs.len() as u64);
    let mut position = 0;
    for run in &gaps.runs {
        for number in [run.position - position, run.events, run.streams] {
            varint::put_u64(&mut out, number);
        }
        position = run.position;
        for counts in [&run.categories, &run.kinds] {
            varint::put_u64(&mut out, counts.len() as u64);
            for (number, count) in counts {
                varint::put_u64(&mut out, *number);
                varint::put_u64(&mut out, *count);
            }
        }
    }
    out
}

/// Points out of bytes whose checksum was checked; `None` where they are malformed. Positions are
/// from `range.0` up to, and without, `range.1`.
fn decode_points(bytes: &[u8], frames_end: u64, range: (u64, u64)) -> Option<Vec<(u64, u64)>> {
    let mut decoder = Decoder::new(bytes);
    let count = decoder.varint()?;
    let mut points: Vec<(u64, u64)> = Vec::new();
    let (mut position, mut offset) = (0_u64, 0_u64);
    for _ in 0..count {
        let (further, behind) = (decoder.varint()?, decoder.varint()?);
        (position, offset) = (position.checked_add(further)?, offset.checked_add(behind)?);
        let is_first = points.is_empty();
        let rises = is_first || further > 0 && behind > 0;
        let fits = (range.0..range.1).contains(&position) && offset < frames_end;
        let begins = offset >= HEADER_BYTES && offset % 8 == 0;
        if !rises || !fits || !begins || is_first && offset != HEADER_BYTES {
            return None;
        }
        points.push((position, offset));
    }
    let is_whole = decoder.is_done() && points.is_empty() == (frames_end == HEADER_BYTES);
    is_whole.then_some(points)
}

/// Gaps out of bytes whose checksum was checked; `None` where they are malformed.
fn decode_gaps(bytes: &[u8], range: (u64, u64)) -> Option<Gaps> {
    let mut decoder = Decoder::new(bytes);
    let mut gaps = Gaps::default();
    for _ in 0..decoder.varint()? {
        let len = decoder.varint_usize()?;
        gaps.names.push(std::str::from_utf8(decoder.take(len)?).ok()?.to_string());
    }
    let mut position = 0_u64;
    for number in 0..decoder.varint()? {
        let further = decoder.varint()?;
        position = position.checked_add(further)?;
        let (events, streams) = (decoder.varint()?, decoder.varint()?);
        let mut run = Gap { position, events, streams, ..Gap::default() };
        let rises = number == 0 || further > 0;
        if !rises || !(range.0..range.1).contains(&position) || events == 0 || streams > events {
            return None;
        }
        for counts in [&mut run.categories, &mut run.kinds] {
            let mut last = None;
            for _ in 0..decoder.varint()? {
                let (name, count) = (decoder.varint()?, decoder.varint()?);
                let is_good = last.is_none_or(|last| name > last) && (1..=events).contains(&count);
                if name >= gaps.names.len() as u64 || !is_good {
                    return None;
                }
                last = Some(name);
                counts.insert(name, count);
            }
        }
        gaps.runs.push(run);
    }
    decoder.is_done().then_some(gaps)
}

/// Reads a part of the file that ends with its checksum.
fn read_part(file: &dyn File, id: u64, (from, end): (u64, u64), what: &str) -> Result<Vec<u8>> {
    let corrupt = |reason: String| Error::corruption(file.path(), from, reason);
    let mut bytes = vec![0; (end - from) as usize];
    file.read_exact_at(&mut bytes, from)?;
    let part = bytes.split_last_chunk::<8>();
    let (part, sum) = part.ok_or_else(|| corrupt(format!("the {what} are cut short")))?;
    if checksum(id, from, part) != u64::from_le_bytes(*sum) {
        return Err(corrupt(format!("the {what} do not match their checksum")));
    }
    bytes.truncate(bytes.len() - 8);
    Ok(bytes)
}

/// The id and the version that the header of a packed chunk states; `None` where it is no header.
pub fn stated(bytes: &[u8; HEADER_BYTES as usize]) -> Option<(u64, u64)> {
    let number = |at: usize| bytes[at..at + 8].iter().rev().fold(0, |n, b| n << 8 | u64::from(*b));
    let (id, version) = (number(8), number(16) >> 32);
    let numbers = [number(24), number(32), number(40), number(48)];
    (*bytes == header(id, version, numbers)).then_some((id, version))
}

/// Reads header and points of the file of a packed chunk, whose positions are in `range`.
pub fn read_points(file: &dyn File, id: u64, version: u64, range: (u64, u64)) -> Result<Points> {
    let corrupt = |offset: u64, reason: &str| Error::corruption(file.path(), offset, reason);
    let mut bytes = [0; HEADER_BYTES as usize];
    file.read_exact_at(&mut bytes, 0)?;
    let number = |at: usize| bytes[at..at + 8].iter().rev().fold(0, |n, b| n << 8 | u64::from(*b));
    let numbers = [number(24), number(32), number(40), number(48)];
    if bytes != header(id, version, numbers) {
        return Err(corrupt(0, "the file is not the packed chunk that the table of chunks names"));
    }
    let [start, frames_end, points_end, file_bytes] = numbers;
    let is_ordered = HEADER_BYTES <= frames_end && frames_end < points_end;
    let fits = points_end < file_bytes && file_bytes <= FILE_BYTES_MAX;
    if start != range.0 || !is_ordered || !fits {
        return Err(corrupt(24, "the header of the packed chunk is malformed"));
    }
    let part = read_part(file, id, (frames_end, points_end), "points of the packed chunk")?;
    let points = decode_points(&part, frames_end, range)
        .ok_or_else(|| corrupt(frames_end, "the points of the packed chunk are malformed"))?;
    Ok(Points { frames_end, points_end, file_bytes, points })
}

/// Reads what was left out of a chunk.
pub fn read_gaps(file: &dyn File, id: u64, points: &Points, range: (u64, u64)) -> Result<Gaps> {
    let from = points.points_end;
    let part = read_part(file, id, (from, points.file_bytes), "gaps of the packed chunk")?;
    decode_gaps(&part, range).ok_or_else(|| {
        Error::corruption(file.path(), from, "the gaps of the packed chunk are malformed")
    })
}

/// Reads the whole file and compares it with what the table of chunks says.
pub fn check(file: &dyn File, id: u64, packed: &Packed) -> Result<()> {
    let mut bytes = vec![0; packed.file_bytes.min(FILE_BYTES_MAX) as usize];
    file.read_exact_at(&mut bytes, 0)?;
    if file.len()? != packed.file_bytes || checksum(id, 0, &bytes) != packed.checksum {
        let reason = "the packed chunk does not match its checksum in the table of chunks";
        return Err(Error::corruption(file.path(), 0, reason));
    }
    Ok(())
}

/// Decodes points and gaps without their checksums, and encodes them again. For fuzzing only.
pub fn fuzz(bytes: &[u8]) {
    let range = (4096, 1 << 40);
    if let Some(points) = decode_points(bytes, 1 << 30, range) {
        let again = decode_points(&encode_points(&points), 1 << 30, range);
        assert_eq!(again, Some(points), "what was read can be written and read again");
    }
    if let Some(gaps) = decode_gaps(bytes, range) {
        let again = decode_gaps(&encode_gaps(&gaps), range);
        assert_eq!(again, Some(gaps), "what was read can be written and read again");
    }
}

#[cfg(test)]
#[path = "packed_tests.rs"]
mod tests;
