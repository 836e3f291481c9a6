//! Chunks that no table names: all of them where the table is damaged, and those behind the last
//! one that it knows where it is an older copy.
//!
//! A chunk's header knows its id. Where its positions begin is known from its first event, or from
//! the header of a packed chunk; how many positions it had room for only from the next chunk, and
//! of the last one from its file.

use std::collections::HashMap;
use std::path::Path;

use umbel_env::{Access, Env};

use super::salvage::Source;
use super::survey::{ChunkFile, Found, Opened, Survey, damage_of, read_file, read_open};
use crate::chunk::FIRST_EVENT_AT;
use crate::chunk_table::{ChunkEntry, Ended, Packed, version_path};
use crate::error::Result;
use crate::limits::{POSITION_MAX, RESTORE_GAP_BYTES};
use crate::packed;

/// Rooms of chunks are multiples of this.
const ROOM_BYTES: u64 = 4096;

/// A file that may become a chunk.
struct Candidate {
    found: Found,
    /// How many positions it may have had room for.
    extent: u64,
    /// How many of them its events reach over.
    used: u64,
    /// How many events can be read in it.
    events: usize,
    /// Whether its first position is only that of what could be read.
    is_start_guessed: bool,
    name: String,
}

impl Candidate {
    /// Has it begin earlier: what stood before its first event that can be read is lost with it.
    fn begin_at(&mut self, start: u64) {
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

/// Takes in the chunks and the files of chunks that the table does not know.
pub fn adopt(env: &Env, folder: &Path, files: &[ChunkFile], survey: &mut Survey) -> Result<()> {
    take_newer(env, folder, files, survey)?;
    let is_unknown = |file: &&ChunkFile| survey.is_seed_lost || file.id >= survey.table.next_id;
    let unknown: Vec<_> = files.iter().filter(is_unknown).collect();
    let mut candidates = Vec::new();
    for versions in unknown.chunk_by(|file, next| file.id == next.id) {
        match best(env, folder, versions)? {
            Some(best) => candidates.push(best),
            // One that nobody has appended to yet is none of the table's.
            None if survey.is_seed_lost => {
                survey.strangers.extend(versions.iter().map(|file| file.name.clone()));
            }
            None => {}
        }
    }
    if candidates.is_empty() {
        return Ok(());
    }
    if survey.table_damage.is_none() {
        let name = &candidates[0].name;
        let reason = format!("it is an older copy: log/{name} holds events that it does not know");
        survey.table_damage = Some(reason);
    }
    place(candidates, survey);
    Ok(())
}

/// Takes another file of a chunk whose own is missing: the table is a copy from before a scavenge
/// wrote the chunk anew.
fn take_newer(env: &Env, folder: &Path, files: &[ChunkFile], survey: &mut Survey) -> Result<()> {
    for found in survey.chunks.iter_mut().filter(|found| found.damage.is_some()) {
        let entry = &mut found.entry;
        let own = entry.packed.map_or(0, |packed| packed.version);
        let others = files.iter().filter(|file| file.id == entry.id && file.version > own);
        let others: Vec<_> = others.collect();
        if others.is_empty() || env.files.exists(&entry.path(folder))? {
            continue;
        }
        let Some(Candidate { found: other, used, name, .. }) = best(env, folder, &others)? else {
            continue;
        };
        if other.entry.start != entry.start || used > entry.capacity {
            continue;
        }
        entry.packed = other.entry.packed;
        entry.ended = entry.ended.filter(|ended| ended.last_event > 0).or(other.entry.ended);
        let (damage, is_unsynced) = (other.damage, true);
        *found = Found { is_unsynced, ..Found::new(*entry, damage) };
        survey.table_damage.get_or_insert_with(|| {
            format!("it is an older copy: the chunk of log/{name} was written anew behind it")
        });
    }
    Ok(())
}

/// The file with the most events among those of one chunk.
fn best(env: &Env, folder: &Path, versions: &[&ChunkFile]) -> Result<Option<Candidate>> {
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

/// Gives each of them the positions between its first and those of the next.
fn place(candidates: Vec<Candidate>, survey: &mut Survey) {
    let mut used_by_last = None;
    for mut candidate in candidates {
        if let Some(last) = survey.chunks.last().map(|last| last.entry)
            && (candidate.is_start_guessed && candidate.found.entry.id == last.id + 1)
            && candidate.found.entry.start > last.start + last.capacity
        {
            candidate.begin_at(last.start + last.capacity);
        }
        let Candidate { mut found, extent, used, name, .. } = candidate;
        let mut last = survey.chunks.last_mut().map(|last| &mut last.entry);
        let (mut from, mut next_id) = (0, 1);
        if let Some(last) = &last {
            (from, next_id) = (last.start + last.capacity, last.id + 1);
        }
        let entry = &mut found.entry;
        if let (Some(last), Some(used)) = (&mut last, used_by_last)
            && (last.start + used..from).contains(&entry.start)
        {
            // Its file is longer than its room was: no event of it stands there.
            last.capacity = entry.start - last.start;
            from = entry.start;
        }
        if entry.start < from || entry.start > POSITION_MAX - extent {
            survey.strangers.push(name);
            continue;
        }
        if entry.start > from && entry.id == next_id {
            // The room of the chunk before reached up to here.
            if let Some(last) = last {
                last.capacity = entry.start - last.start;
            }
        } else if entry.start > from && survey.is_seed_lost {
            let id = next_id;
            let capacity = entry.start - from;
            let ended = Some(Ended::EMPTY);
            let missing = ChunkEntry { id, start: from, capacity, ended, packed: None };
            let damage = format!(
                "no file has its id, nor that of another chunk before chunk {}; they may have \
                 held nothing",
                entry.id
            );
            survey.chunks.push(Found::new(missing, Some(damage)));
        }
        entry.capacity = extent.next_multiple_of(ROOM_BYTES);
        survey.chunks.push(found);
        used_by_last = Some(used);
    }
    note_cut(&mut survey.chunks);
    let Some(last) = survey.chunks.last().map(|last| last.entry) else { return };
    let table = &mut survey.table;
    table.next_id = table.next_id.max(last.id + 1);
    // There may have been chunks behind it.
    table.next_start = table.next_start.max(last.start + last.capacity + RESTORE_GAP_BYTES);
}

/// Notes the chunks that were cut, or damaged where it looks like their end: one that others follow
/// was sealed before. Nothing but the table knew where it ended.
fn note_cut(chunks: &mut [Found]) {
    let Some((_, before)) = chunks.split_last_mut() else { return };
    for found in before {
        let entry = &mut found.entry;
        let is_plain = found.is_unsynced && found.damage.is_none() && entry.packed.is_none();
        let Some(ended) = entry.ended.filter(|ended| is_plain && ended.sealed.is_none()) else {
            continue;
        };
        found.damage = Some(format!(
            "log/{:08}.chunk at byte {}: it ends here without an end, although chunks follow it: \
             it was cut or is damaged",
            entry.id, ended.end
        ));
        found.is_end_known = true;
        entry.ended = Some(Ended { end: entry.capacity, ..ended });
    }
}

/// What a file holds; `None` where nothing in it tells which positions are its own, or it holds
/// nothing.
fn examine(env: &Env, folder: &Path, file: &ChunkFile) -> Result<Option<Candidate>> {
    let path = version_path(folder, file.id, file.version);
    let bytes = read_file(env, &path)?;
    if file.version > 0 {
        return examine_packed(env, folder, file, &bytes);
    }
    let Some(start) = start_of(file.id, &bytes) else { return Ok(None) };
    let (id, capacity) = (file.id, bytes.len() as u64);
    let mut entry = ChunkEntry { id, start, capacity, ended: Some(Ended::EMPTY), packed: None };
    let read = read_open(env, folder, &entry);
    let source = Source::new(id, start, &bytes);
    let mut is_end_known = false;
    let (damage, events, used) = match read {
        Ok(Opened { ended, gap: Some(gap), .. }) => {
            is_end_known = true;
            entry.ended = Some(Ended { end: gap.end, ..ended });
            (Some(gap.to_string()), count(&source, ended.end), gap.end)
        }
        Ok(Opened { ended, .. }) => {
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
    let found = Found { is_unsynced: true, is_end_known, ..Found::new(entry, damage) };
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

fn examine_packed(
    env: &Env,
    folder: &Path,
    file: &ChunkFile,
    bytes: &[u8],
) -> Result<Option<Candidate>> {
    let path = version_path(folder, file.id, file.version);
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
    let (Some(first), Some(last)) = ends else { return Ok(None) };
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
        checksum: umbel_base::checksum::checksum(file.id, 0, bytes),
        first_event: first.stamp.position - start,
        last_event,
    };
    let ended = Ended { end: extent, last_event, sealed: None };
    let (id, packed) = (file.id, Some(packed));
    let entry = ChunkEntry { id, start, capacity: extent, ended: Some(ended), packed };
    let damage = match read {
        Ok(_) if saved.lost.is_empty() => None,
        Ok(_) => Some(format!("log/{}: events in it are damaged", file.name)),
        Err(error) => Some(damage_of(error.into(), folder)?),
    };
    let found = Found { is_unsynced: true, ..Found::new(entry, damage) };
    let (events, name) = (saved.offsets.len(), file.name.clone());
    let is_start_guessed = read_failed;
    Ok(Some(Candidate { found, extent, used: extent, events, is_start_guessed, name }))
}
