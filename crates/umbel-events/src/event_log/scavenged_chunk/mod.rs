//! A chunk that a scavenge rewrote without the removed events. [`ScavengedChunkWriter`] makes the
//! chunk's file, [`PositionMap`] has the offsets of events in the file, [`RemovedEvents`] lists the
//! removed events.
//!
//! FORMAT: `docs/formats/event-log.md`. A file consists of header, frames, position map and removed
//! runs. Remaining events keep their positions. The frames are contiguous, and a frame's checksum
//! covers its location.

use std::collections::{BTreeMap, HashMap};

use umbel_base::checksum::checksum;
use umbel_base::{Decoder, Error, Result, varint};
use umbel_env::File;

use crate::event_log::chunk_manifest::ScavengedFile;
use crate::event_log::event_format::{self, Frame, FrameLocation, FrameMeta, Frames};
use crate::limits::FILE_BYTES_MAX;

/// Bytes before the first frame.
pub const HEADER_BYTES: u64 = 64;
const MAGIC: [u8; 8] = *b"UmbelPck";
const FORMAT: u32 = 1;
/// Minimum bytes of frames from one entry of the position map to the next.
const POSITION_SPACING_BYTES: u64 = 2048;

/// Offsets of events in the file of a scavenged chunk.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PositionMap {
    /// Offset after the last frame.
    pub frames_end: u64,
    /// Offset after the position map.
    entries_end: u64,
    /// Offset after the removed runs.
    file_bytes: u64,
    /// Positions and offsets, both ascending.
    entries: Vec<(u64, u64)>,
}

impl PositionMap {
    /// Returns offsets at which events begin, ascending.
    pub fn offsets(&self) -> impl Iterator<Item = u64> + '_ {
        self.entries.iter().map(|point| point.1)
    }

    /// Returns the offset of an event at or before `position`, or of the first event.
    pub fn offset_before(&self, position: u64) -> u64 {
        let next_index = self.entries.partition_point(|point| point.0 <= position);
        next_index.checked_sub(1).map_or(HEADER_BYTES, |index| self.entries[index].1)
    }
}

/// A run of removed events.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RemovedRun {
    /// Position of the first event of the run.
    pub position: u64,
    /// Number of events of the run.
    pub events: u64,
    /// Number of events that were the first of their streams, without those of system streams.
    pub streams: u64,
    /// Number of events in each category, by the index of the category's name in
    /// [`RemovedEvents::names`].
    pub categories: BTreeMap<u64, u64>,
    /// Number of events of each type, by the index of the type's name in [`RemovedEvents::names`].
    pub kinds: BTreeMap<u64, u64>,
}

/// The events that were removed from a chunk.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RemovedEvents {
    /// Names of categories and types.
    pub names: Vec<String>,
    /// The runs, by position.
    pub runs: Vec<RemovedRun>,
}

/// Returns the category of a stream: the part of its name before the first `-`.
fn category(stream: &str) -> Option<&str> {
    let (category, _) = stream.split_once('-')?;
    Some(category).filter(|category| !category.is_empty() && !stream.starts_with('$'))
}

/// Writes the file of a scavenged chunk.
#[derive(Debug)]
pub struct ScavengedChunkWriter {
    id: u64,
    start: u64,
    version: u64,
    source_version: u64,
    bytes: Vec<u8>,
    position_entries: Vec<(u64, u64)>,
    /// Offset and position of the last frame.
    last: Option<(u64, u64)>,
    first_position: u64,
    removed: RemovedEvents,
    name_numbers: HashMap<String, u64>,
    /// Whether the next removed event extends the last run.
    is_run_open: bool,
}

impl ScavengedChunkWriter {
    /// Begins the file with this version of a chunk, which is made from the file with the version
    /// `made_of`.
    pub fn new(id: u64, start: u64, version: u64, made_of: u64) -> ScavengedChunkWriter {
        ScavengedChunkWriter {
            id,
            start,
            version,
            source_version: made_of,
            bytes: vec![0; HEADER_BYTES as usize],
            position_entries: Vec::new(),
            last: None,
            first_position: 0,
            removed: RemovedEvents::default(),
            name_numbers: HashMap::new(),
            is_run_open: false,
        }
    }

    /// Writes a kept event, or the event's stub.
    pub fn keep_event(&mut self, frame: &Frame<'_>, as_stub: bool) {
        let offset = self.bytes.len() as u64;
        let position = frame.meta.position;
        let back = self.last.map_or(0, |(last, _)| (offset - last) as u32);
        let stamp =
            FrameMeta { location: FrameLocation { chunk: self.id, offset }, back, ..frame.meta };
        let encode = if as_stub { event_format::encode_stub } else { event_format::encode };
        encode(&mut self.bytes, frame.stream, &frame.event, &stamp);
        if self
            .position_entries
            .last()
            .is_none_or(|point| offset >= point.1 + POSITION_SPACING_BYTES)
        {
            self.position_entries.push((position, offset));
        }
        if self.last.is_none() {
            self.first_position = position;
        }
        self.last = Some((offset, position));
        self.is_run_open = false;
    }

    fn name_number(&mut self, name: &str) -> u64 {
        if let Some(number) = self.name_numbers.get(name) {
            return *number;
        }
        let number = self.removed.names.len() as u64;
        self.removed.names.push(name.to_string());
        self.name_numbers.insert(name.to_string(), number);
        number
    }

    /// Records a removed event.
    pub fn remove_event(&mut self, frame: &Frame<'_>) {
        let category = category(frame.stream).map(|name| self.name_number(name));
        let kind = self.name_number(frame.event.kind);
        let begins = frame.meta.revision == 0 && !frame.stream.starts_with('$');
        let gap = RemovedRun {
            position: frame.meta.position,
            events: 1,
            streams: u64::from(begins),
            categories: category.map(|number| (number, 1)).into_iter().collect(),
            kinds: BTreeMap::from([(kind, 1)]),
        };
        self.push_run(gap);
    }

    /// Copies a removed run from an earlier file of the chunk.
    /// REQUIRES: calls of this function, [`ScavengedChunkWriter::keep_event`] and
    /// [`ScavengedChunkWriter::remove_event`] are in the order of positions.
    pub fn copy_removed_run(&mut self, gaps: &RemovedEvents, run: &RemovedRun) {
        let mut renumbered = |counts: &BTreeMap<u64, u64>| -> BTreeMap<u64, u64> {
            let name = |number: u64| gaps.names.get(number as usize).map_or("", String::as_str);
            counts.iter().map(|(number, count)| (self.name_number(name(*number)), *count)).collect()
        };
        let (categories, kinds) = (renumbered(&run.categories), renumbered(&run.kinds));
        self.push_run(RemovedRun { categories, kinds, ..*run });
    }

    fn push_run(&mut self, gap: RemovedRun) {
        let Some(run) = self.removed.runs.last_mut().filter(|_| self.is_run_open) else {
            self.removed.runs.push(gap);
            self.is_run_open = true;
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

    /// Returns the bytes of the file, and the file's description for the chunk manifest.
    pub fn finish(mut self) -> (Vec<u8>, ScavengedFile) {
        let frames_end = self.bytes.len() as u64;
        let tail = encode_position_map(&self.position_entries);
        append_section(&mut self.bytes, self.id, &tail);
        let points_end = self.bytes.len() as u64;
        let tail = encode_removed_events(&self.removed);
        append_section(&mut self.bytes, self.id, &tail);
        let file_bytes = self.bytes.len() as u64;
        let header =
            header(self.id, self.version, [self.start, frames_end, points_end, file_bytes]);
        self.bytes[..HEADER_BYTES as usize].copy_from_slice(&header);
        let ends = self
            .last
            .map_or((0, 0), |(_, last)| (self.first_position - self.start, last - self.start));
        let scavenged = ScavengedFile {
            version: self.version,
            source_version: self.source_version,
            file_bytes,
            checksum: checksum(self.id, 0, &self.bytes),
            first_event: ends.0,
            last_event: ends.1,
        };
        (self.bytes, scavenged)
    }
}

/// Appends a section of the file with its checksum.
fn append_section(bytes: &mut Vec<u8>, id: u64, part: &[u8]) {
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

fn encode_position_map(points: &[(u64, u64)]) -> Vec<u8> {
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

fn encode_removed_events(gaps: &RemovedEvents) -> Vec<u8> {
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

/// Decodes a position map whose checksum was checked; `None` where it is malformed. Positions are
/// in `range`, without its second number.
fn decode_position_map(
    bytes: &[u8],
    frames_end: u64,
    range: (u64, u64),
) -> Option<Vec<(u64, u64)>> {
    let mut decoder = Decoder::new(bytes);
    let count = decoder.varint()?;
    let mut points: Vec<(u64, u64)> = Vec::new();
    let (mut position, mut offset) = (0_u64, 0_u64);
    for _ in 0..count {
        let (position_step, offset_step) = (decoder.varint()?, decoder.varint()?);
        (position, offset) =
            (position.checked_add(position_step)?, offset.checked_add(offset_step)?);
        let is_first = points.is_empty();
        let rises = is_first || position_step > 0 && offset_step > 0;
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

/// Decodes removed runs whose checksum was checked; `None` where they are malformed.
fn decode_removed_events(bytes: &[u8], range: (u64, u64)) -> Option<RemovedEvents> {
    let mut decoder = Decoder::new(bytes);
    let mut gaps = RemovedEvents::default();
    for _ in 0..decoder.varint()? {
        let len = decoder.varint_usize()?;
        gaps.names.push(std::str::from_utf8(decoder.take(len)?).ok()?.to_string());
    }
    let mut position = 0_u64;
    for number in 0..decoder.varint()? {
        let position_step = decoder.varint()?;
        position = position.checked_add(position_step)?;
        let (events, streams) = (decoder.varint()?, decoder.varint()?);
        let mut run = RemovedRun { position, events, streams, ..RemovedRun::default() };
        let rises = number == 0 || position_step > 0;
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

/// Reads a section of the file that ends with its checksum.
fn read_section(file: &dyn File, id: u64, (from, end): (u64, u64), what: &str) -> Result<Vec<u8>> {
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

/// Returns id and version from the header of a scavenged chunk; `None` if the bytes are no such
/// header.
pub fn parse_header(bytes: &[u8; HEADER_BYTES as usize]) -> Option<(u64, u64)> {
    let number = |at: usize| bytes[at..at + 8].iter().rev().fold(0, |n, b| n << 8 | u64::from(*b));
    let (id, version) = (number(8), number(16) >> 32);
    let numbers = [number(24), number(32), number(40), number(48)];
    (*bytes == header(id, version, numbers)).then_some((id, version))
}

/// Returns the frames in the bytes of the file of a scavenged chunk, which end where the frames do.
pub fn frames(bytes: &[u8], chunk: u64) -> Frames<'_> {
    let frames = bytes.get(HEADER_BYTES as usize..).unwrap_or_default();
    Frames::new(frames, FrameLocation { chunk, offset: HEADER_BYTES })
}

/// Reads header and position map of the file of a scavenged chunk, whose positions are in `range`.
pub fn read_position_map(
    file: &dyn File,
    id: u64,
    version: u64,
    range: (u64, u64),
) -> Result<PositionMap> {
    let corrupt = |offset: u64, reason: &str| Error::corruption(file.path(), offset, reason);
    let mut bytes = [0; HEADER_BYTES as usize];
    file.read_exact_at(&mut bytes, 0)?;
    let number = |at: usize| bytes[at..at + 8].iter().rev().fold(0, |n, b| n << 8 | u64::from(*b));
    let numbers = [number(24), number(32), number(40), number(48)];
    if bytes != header(id, version, numbers) {
        return Err(corrupt(0, "the file is not the scavenged chunk that the manifest names"));
    }
    let [start, frames_end, points_end, file_bytes] = numbers;
    let is_ordered = HEADER_BYTES <= frames_end && frames_end < points_end;
    let fits = points_end < file_bytes && file_bytes <= FILE_BYTES_MAX;
    if start != range.0 || !is_ordered || !fits {
        return Err(corrupt(24, "the header of the scavenged chunk is malformed"));
    }
    let part = read_section(file, id, (frames_end, points_end), "points of the scavenged chunk")?;
    let points = decode_position_map(&part, frames_end, range)
        .ok_or_else(|| corrupt(frames_end, "the points of the scavenged chunk are malformed"))?;
    Ok(PositionMap { frames_end, entries_end: points_end, file_bytes, entries: points })
}

/// Reads the removed events of a chunk.
pub fn read_removed_events(
    file: &dyn File,
    id: u64,
    points: &PositionMap,
    range: (u64, u64),
) -> Result<RemovedEvents> {
    let from = points.entries_end;
    let part = read_section(file, id, (from, points.file_bytes), "gaps of the scavenged chunk")?;
    decode_removed_events(&part, range).ok_or_else(|| {
        Error::corruption(file.path(), from, "the gaps of the scavenged chunk are malformed")
    })
}

/// Reads the whole file and compares it with the chunk manifest's description.
pub fn verify_file(file: &dyn File, id: u64, scavenged: &ScavengedFile) -> Result<()> {
    let mut bytes = vec![0; scavenged.file_bytes.min(FILE_BYTES_MAX) as usize];
    file.read_exact_at(&mut bytes, 0)?;
    verify_bytes(file, id, scavenged, &bytes)
}

/// Compares the bytes of a whole file with the chunk manifest's description.
pub fn verify_bytes(
    file: &dyn File,
    id: u64,
    scavenged: &ScavengedFile,
    bytes: &[u8],
) -> Result<()> {
    if file.len()? != scavenged.file_bytes || checksum(id, 0, bytes) != scavenged.checksum {
        let reason = "the scavenged chunk does not match its checksum in the chunk manifest";
        return Err(Error::corruption(file.path(), 0, reason));
    }
    Ok(())
}

/// Decodes a position map and removed runs without their checksums, and encodes them again. For
/// fuzzing only.
pub fn fuzz(bytes: &[u8]) {
    let range = (4096, 1 << 40);
    if let Some(points) = decode_position_map(bytes, 1 << 30, range) {
        let again = decode_position_map(&encode_position_map(&points), 1 << 30, range);
        assert_eq!(again, Some(points), "encoding and decoding again returns the same");
    }
    if let Some(gaps) = decode_removed_events(bytes, range) {
        let again = decode_removed_events(&encode_removed_events(&gaps), range);
        assert_eq!(again, Some(gaps), "encoding and decoding again returns the same");
    }
}

#[cfg(test)]
mod tests;
