//! What a file of the log holds that no table names.

use std::collections::HashMap;
use std::path::Path;

use umbel_base::checksum::checksum;
use umbel_env::{Access, Env};
use umbel_log::{HEADER_BYTES, RECORD_ALIGN};

use super::salvage::Source;
use super::survey::{ChunkFile, Found, Opened, damage_of, read_file, read_open, used_bytes};
use crate::chunk::FIRST_EVENT_AT;
use crate::chunk_table::{ChunkEntry, Ended, Packed, chunk_folder};
use crate::error::Result;
use crate::limits::{FILE_BYTES_MAX, POSITION_MAX};
use crate::packed;
use crate::repair_marker;

/// A file that may become a chunk.
pub struct Candidate {
    /// The chunk.
    pub found: Found,
    /// How many positions it may have had room for.
    pub extent: u64,
    /// How many of them its events reach over.
    pub used: u64,
    /// How many events can be read in it.
    pub events: usize,
    /// Whether its first position is only that of what could be read.
    pub is_start_guessed: bool,
    /// The name of the file.
    pub name: String,
}

impl Candidate {
    /// Has it begin earlier: what stood before its first event that can be read is lost with it.
    pub fn begin_at(&mut self, start: u64) {
        let entry = &mut self.found.entry;
        let more = entry.start - start;
        entry.start = start;
        let packed = entry.packed.as_mut();
        let ended = entry.ended.as_mut();
        packed.into_iter().for_each(|packed| {
            packed.first_event += more;
            packed.last_event += more;
        });
        ended.into_iter().for_each(|ended| {
            ended.end += more;
            ended.last_event += more;
        });
        self.extent += more;
        self.used += more;
    }
}

/// The file with the most events among those of one chunk.
pub fn best(env: &Env, folder: &Path, versions: &[&ChunkFile]) -> Result<Option<Candidate>> {
    let mut best: Option<Candidate> = None;
    for file in versions {
        let candidate = examine(env, folder, file)?;
        // Of two with the same events the older file has what the newer was made of.
        let is_better =
            |best: &Candidate| candidate.as_ref().is_some_and(|new| new.events > best.events);
        if best.as_ref().is_none_or(is_better) {
            best = candidate.or(best);
        }
    }
    Ok(best)
}

/// What a file holds; `None` where nothing in it tells which positions are its own, or it holds
/// nothing.
pub fn examine(env: &Env, folder: &Path, file: &ChunkFile) -> Result<Option<Candidate>> {
    let path = chunk_folder(folder).join(&file.name);
    let bytes = read_file(env, &path)?;
    if file.version > 0 {
        return examine_packed(env, folder, file, &bytes);
    }
    let Some(start) = start_of(file.id, &bytes) else { return Ok(None) };
    let (id, capacity) = (file.id, bytes.len() as u64);
    let mut entry =
        ChunkEntry { id, start, capacity, key: 0, ended: Some(Ended::EMPTY), packed: None };
    let read = read_open(env, &path, &entry);
    let source = Source::new(id, start, &bytes);
    let (mut is_end_known, mut torn) = (false, None);
    let (damage, events, used) = match read {
        Ok(Opened { ended, gap: Some(gap), .. }) => {
            is_end_known = true;
            entry.ended = Some(Ended { end: gap.used_end, ..ended });
            (Some(gap.to_string()), count(&source, ended.end), gap.end)
        }
        Ok(Opened { ended, .. }) => {
            let used_end = used_bytes(&bytes).next_multiple_of(RECORD_ALIGN);
            torn = Some(used_end).filter(|end| ended.sealed.is_none() && *end > ended.end);
            entry.ended = Some(ended);
            (None, count(&source, ended.end), ended.end)
        }
        Err(error) => {
            let saved = source.appended(&[], false);
            let last = saved.offsets.last().and_then(|at| Some((at, source.frame(*at)?)));
            let saved_end = last.map_or(FIRST_EVENT_AT, |(at, frame)| at + frame.bytes as u64);
            // What only looks like an append may be one of the index.
            let behind = source.unproven(saved_end.min(capacity), capacity);
            let used = if behind.count > 0 { behind.end } else { saved_end };
            (Some(damage_of(error, folder)?), saved.offsets.len(), used)
        }
    };
    let found = Found { is_unsynced: true, is_end_known, torn, ..Found::new(entry, damage) };
    let (extent, name) = (capacity, file.name.clone());
    Ok(Some(Candidate { found, extent, used, events, is_start_guessed: false, name }))
}

/// How many events stand before `end` in a chunk that is whole.
fn count(source: &Source<'_>, end: u64) -> usize {
    let (mut offset, mut events) = (FIRST_EVENT_AT, 0);
    while let Some(frame) = source.frame(offset).filter(|_| offset < end) {
        offset += frame.step();
        events += 1;
    }
    events
}

/// The position of the first byte of a chunk that was appended to: as its first event tells, or,
/// where that is damaged, most of what look like events.
fn start_of(id: u64, bytes: &[u8]) -> Option<u64> {
    let source = Source::new(id, 0, bytes);
    let start = |offset: u64| {
        let frame = source.frame(offset).filter(|frame| !frame.is_stub)?;
        frame.stamp.position.checked_sub(offset)
    };
    if let Some(start) = start(FIRST_EVENT_AT) {
        return Some(start);
    }
    let mut votes: HashMap<u64, usize> = HashMap::new();
    let mut offset = FIRST_EVENT_AT;
    while offset < bytes.len() as u64 {
        match start(offset) {
            Some(start) => {
                *votes.entry(start).or_default() += 1;
                offset += source.frame(offset).map_or(8, |frame| frame.bytes as u64);
            }
            None => offset += 8,
        }
    }
    votes.into_iter().max_by_key(|(start, count)| (*count, *start)).map(|(start, _)| start)
}

/// A packed chunk that nothing was left of, which is whole.
fn empty_packed(file: &ChunkFile, start: u64, bytes: &[u8]) -> Candidate {
    let (id, version, extent) = (file.id, file.version, FIRST_EVENT_AT);
    let packed = Packed {
        version,
        made_of: version - 1,
        file_bytes: bytes.len() as u64,
        checksum: checksum(id, 0, bytes),
        first_event: 0,
        last_event: 0,
    };
    let (ended, packed) = (Some(Ended::EMPTY), Some(packed));
    let entry = ChunkEntry { id, start, capacity: extent, key: 0, ended, packed };
    let found = Found { is_unsynced: true, is_end_known: true, ..Found::new(entry, None) };
    let (used, name) = (extent, file.name.clone());
    Candidate { found, extent, used, events: 0, is_start_guessed: false, name }
}

fn examine_packed(
    env: &Env,
    folder: &Path,
    file: &ChunkFile,
    bytes: &[u8],
) -> Result<Option<Candidate>> {
    let path = chunk_folder(folder).join(&file.name);
    let opened = env.files.open(&path, Access::Read)?;
    let stated = bytes.get(24..32).and_then(|start| start.first_chunk());
    let stated = stated.map_or(u64::MAX, |start| u64::from_le_bytes(*start));
    let read = match stated <= POSITION_MAX {
        true => packed::read_points(&*opened, file.id, file.version, (stated, POSITION_MAX))
            .and_then(|points| {
                let range = (stated, POSITION_MAX);
                packed::read_gaps(&*opened, file.id, &points, range).map(|_| points)
            }),
        false => Err(umbel::Error::corruption(&path, 24, "no chunk begins at such a position")),
    };
    let read_failed = read.is_err();
    let start = if read_failed { 0 } else { stated };
    let source = Source::new(file.id, start, bytes);
    let saved = source.packed(POSITION_MAX, read.as_ref().ok(), None);
    let ends = (saved.offsets.first(), saved.offsets.last());
    let (Some(first), Some(last)) = ends else {
        // A repair that was killed leaves files that never counted and look the same.
        let is_repairing = repair_marker::is_there(env, folder)?;
        let is_empty = !is_repairing
            && read.is_ok_and(|points| {
                let gaps = packed::read_gaps(&*opened, file.id, &points, (stated, POSITION_MAX));
                points.offsets().next().is_none() && gaps.is_ok_and(|gaps| !gaps.runs.is_empty())
            });
        return Ok(is_empty.then(|| empty_packed(file, start, bytes)));
    };
    let (Some(first), Some(last)) = (source.frame(*first), source.frame(*last)) else {
        return Ok(None);
    };
    // Without its header: no event stands nearer to a chunk's beginning.
    let start = match read.is_ok() {
        true => start,
        false => first.stamp.position.saturating_sub(FIRST_EVENT_AT),
    };
    let last_event = last.stamp.position - start;
    let extent = last_event + last.bytes as u64;
    let packed = Packed {
        version: file.version,
        made_of: file.version - 1,
        file_bytes: bytes.len() as u64,
        checksum: checksum(file.id, 0, bytes),
        first_event: first.stamp.position - start,
        last_event,
    };
    let ended = Ended { end: extent, last_event, sealed: None };
    let (id, packed) = (file.id, Some(packed));
    let entry = ChunkEntry { id, start, capacity: extent, key: 0, ended: Some(ended), packed };
    let damage = match read {
        Ok(_) if saved.lost.is_empty() => None,
        Ok(_) => Some(format!("log/{}: events in it are damaged", file.name)),
        Err(error) => Some(damage_of(error.into(), folder)?),
    };
    let found = Found { is_unsynced: true, ..Found::new(entry, damage) };
    let (events, name) = (saved.offsets.len(), file.name.clone());
    // Where the last events are lost nothing tells which positions they had.
    let is_torn = saved.lost.last().is_some_and(|lost| lost.to == POSITION_MAX);
    let (used, is_start_guessed) = (extent, read_failed);
    let extent = if is_torn { extent.max(FILE_BYTES_MAX) } else { extent };
    Ok(Some(Candidate { found, extent, used, events, is_start_guessed, name }))
}

/// Whether nobody has appended to a chunk yet. Its header may be damaged, but is not another's.
pub fn is_prepared(id: u64, bytes: &[u8]) -> bool {
    let Some((header, rest)) = bytes.split_first_chunk::<{ HEADER_BYTES as usize }>() else {
        return false;
    };
    let mut wanted = *b"UmbelLog\x01\0\0\0\x03\0\0\0\0\0\0\0\0\0\0\0";
    wanted[16..].copy_from_slice(&id.to_le_bytes());
    let told = wanted.iter().zip(header).filter(|(wanted, _)| **wanted != 0);
    let (all, right) = told.fold((0, 0), |(all, right), (wanted, byte)| {
        (all + 1, right + usize::from(wanted == byte))
    });
    let (said, sum) = header.split_at(HEADER_BYTES as usize - 8);
    let other = said[16..].first_chunk().map_or(0, |id| u64::from_le_bytes(*id));
    let is_other = other != id && checksum(other, 0, said).to_le_bytes() == sum;
    let is_blank = !rest.is_empty() && rest.iter().all(|byte| *byte == 0);
    is_blank && !is_other && right * 2 >= all
}
