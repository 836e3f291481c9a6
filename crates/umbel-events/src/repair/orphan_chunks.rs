//! Chunks that no table names: all of them where the table is damaged, and those behind the last
//! one that it knows where it is an older copy.
//!
//! A chunk's header knows its id. Where its positions begin is known from its first event, or from
//! the header of a packed chunk; how many positions it had room for only from the next chunk, and
//! of the last one from its file.

use std::path::Path;

use umbel_env::Env;

use super::copies;
use super::examine::{Candidate, best, is_prepared};
use super::intruders;
use super::misplaced;
use super::old_index::OldIndex;
use super::survey::{ChunkFile, Found, Survey, read_file};
use crate::chunk_table::{ChunkEntry, ChunkTable, Ended, version_path};
use crate::error::{Error, Result};
use crate::limits::{FILE_BYTES_MAX, POSITION_MAX, RESTORE_GAP_BYTES};
use crate::open::check_next;

/// Rooms of chunks are multiples of this.
const ROOM_BYTES: u64 = 4096;

/// Takes in the chunks and the files of chunks that the table does not know.
pub fn adopt(
    env: &Env,
    folder: &Path,
    files: &[ChunkFile],
    index: Option<&OldIndex>,
    survey: &mut Survey,
    accept_unproven: bool,
) -> Result<()> {
    forget_other(env, survey)?;
    copies::forget_tail(env, folder, files, index, survey)?;
    let misnamed = misplaced::misnamed(env, folder, files);
    let is_named = |file: &&ChunkFile| misnamed.iter().all(|other| other.name != file.name);
    let named: Vec<ChunkFile> = files.iter().filter(is_named).cloned().collect();
    take_newer(env, folder, &named, survey)?;
    misplaced::find_named(env, folder, &misnamed, survey, accept_unproven)?;
    let (is_seed_lost, next_id) = (survey.is_seed_lost, survey.table.next_id);
    let is_unknown = |file: &&ChunkFile| is_seed_lost || file.id >= next_id;
    let unknown: Vec<_> = named.iter().filter(is_unknown).collect();
    let mut candidates = Vec::new();
    for versions in unknown.chunk_by(|file, next| file.id == next.id) {
        candidates.extend(best(env, folder, versions)?);
    }
    let others: Vec<_> = misnamed.iter().filter(is_unknown).cloned().collect();
    misplaced::add_unknown(env, folder, &others, &mut candidates, survey, accept_unproven)?;
    if survey.table_damage.is_none()
        && let Some(Candidate { name, .. }) = candidates.first()
    {
        let reason = format!("it is an older copy: log/{name} holds events that it does not know");
        survey.table_damage = Some(reason);
    }
    if survey.table_damage.is_none() {
        return note_in_the_way(env, folder, survey);
    }
    intruders::take_out(env, folder, files, index, &mut candidates, survey)?;
    let is_taken = |id: u64| candidates.iter().any(|candidate| candidate.found.entry.id == id);
    let rest: Vec<_> = files.iter().filter(is_unknown).filter(|file| !is_taken(file.id)).collect();
    if is_seed_lost {
        let strange = rest.iter().map(|file| file.name.clone());
        let read: Vec<String> = candidates.iter().map(|candidate| candidate.name.clone()).collect();
        survey.strangers.extend(strange.filter(|name| !read.contains(name)));
        survey.strangers.sort_unstable();
        survey.strangers.dedup();
    }
    let ghosts = ghosts(env, folder, &rest)?;
    place(candidates, &ghosts, survey);
    for found in &mut survey.chunks {
        if let Some(path) = found.misnamed.clone() {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            misplaced::mark(found, &name, folder);
        }
    }
    Ok(())
}

/// Notes a file where the next chunk belongs that keeps the store from being opened: it is none of
/// this store's, and what it holds is no chunk that the table could have forgotten.
fn note_in_the_way(env: &Env, folder: &Path, survey: &mut Survey) -> Result<()> {
    match check_next(env, folder, &survey.table) {
        Err(Error::Store(umbel::Error::Corruption { .. })) => {
            let path = version_path(folder, survey.table.next_id, 0);
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            survey.strangers.push(name);
            Ok(())
        }
        checked => checked,
    }
}

/// Forgets a table whose chunks are all other files than those that are there, though these are
/// whole: it is another store's.
fn forget_other(env: &Env, survey: &mut Survey) -> Result<()> {
    let is_own = |found: &Found| found.damage.is_none();
    let is_other = survey.chunks.iter().any(|found| found.is_foreign);
    if !is_other || survey.chunks.iter().any(is_own) {
        return Ok(());
    }
    survey.table = ChunkTable::create(env)?;
    survey.table.generation = survey.generation;
    survey.table_damage =
        Some("it names other chunks than are there: it is another store's".into());
    survey.is_seed_lost = true;
    survey.is_tail_lost = true;
    survey.chunks.clear();
    survey.remains_damage = None;
    Ok(())
}

/// A chunk of which nothing is left but the name of its file.
struct Ghost {
    id: u64,
    /// How long that is.
    bytes: u64,
}

/// The chunks whose names are there on files that hold nothing of them. One that nobody has
/// appended to yet is none.
fn ghosts(env: &Env, folder: &Path, files: &[&ChunkFile]) -> Result<Vec<Ghost>> {
    let mut ghosts = Vec::new();
    for versions in files.chunk_by(|file, next| file.id == next.id) {
        if versions[0].id > POSITION_MAX {
            // No chunk has such an id, and there is none behind it.
            continue;
        }
        let (mut is_ghost, mut bytes) = (false, 0);
        for file in versions {
            let found = read_file(env, &version_path(folder, file.id, file.version))?;
            bytes = bytes.max(found.len() as u64);
            is_ghost |= file.version > 0 || !is_prepared(file.id, &found);
        }
        ghosts.extend(is_ghost.then_some(Ghost { id: versions[0].id, bytes }));
    }
    Ok(ghosts)
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
        let newer = best(env, folder, &others)?.filter(|newer| newer.events > 0);
        let Some(Candidate { found: other, used, name, .. }) = newer else { continue };
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

/// Gives each of them the positions between its first and those of the next.
fn place(candidates: Vec<Candidate>, ghosts: &[Ghost], survey: &mut Survey) {
    let mut used_by_last: Option<u64> = None;
    let is_ghost = |from: u64, to: u64| ghosts.iter().any(|ghost| (from..to).contains(&ghost.id));
    for mut candidate in candidates {
        if let Some(last) = survey.chunks.last().map(|last| last.entry)
            && (candidate.is_start_guessed && candidate.found.entry.id == last.id + 1)
            && candidate.found.entry.start > last.start + last.capacity
        {
            candidate.begin_at(last.start + last.capacity);
        }
        let lost = misplaced::unplaced(&candidate);
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
            survey.unplaced.push(lost);
            continue;
        }
        if entry.start > from && entry.id == next_id {
            // The room of the chunk before reached up to here.
            if let Some(last) = last {
                last.capacity = entry.start - last.start;
            }
        } else if entry.start > from && (survey.is_tail_lost || is_ghost(next_id, entry.id)) {
            let id = next_id;
            if let (Some(last), Some(used)) = (last, used_by_last) {
                // Nothing tells how long its room was, but where its events end.
                last.capacity = last.capacity.min(used.next_multiple_of(ROOM_BYTES));
                from = last.start + last.capacity;
            }
            let (capacity, ended) = (entry.start - from, Some(Ended::EMPTY));
            let missing = ChunkEntry { id, start: from, capacity, key: 0, ended, packed: None };
            let damage = format!(
                "no file has its id, nor that of another chunk before chunk {}; they may have \
                 held nothing",
                entry.id
            );
            let mut missing = Found::new(missing, Some(damage));
            missing.is_guessed = true;
            // One that was moved aside may have its name.
            missing.is_foreign = true;
            survey.chunks.push(missing);
        }
        entry.capacity = extent.next_multiple_of(ROOM_BYTES);
        survey.chunks.push(found);
        used_by_last = Some(used);
    }
    add_behind(ghosts, &mut survey.chunks);
    note_cut(&mut survey.chunks);
    let Some(last) = survey.chunks.last().map(|last| last.entry) else { return };
    let table = &mut survey.table;
    table.next_id = table.next_id.max(last.id + 1);
    // There may have been chunks behind it.
    table.next_start = table.next_start.max(last.start + last.capacity + RESTORE_GAP_BYTES);
}

/// Adds the chunks behind the last one of which only the names are left. Each may have had twice
/// the room of the one before.
fn add_behind(ghosts: &[Ghost], chunks: &mut Vec<Found>) {
    for Ghost { id, bytes } in ghosts {
        let last = chunks.last().map(|last| last.entry);
        if last.is_some_and(|last| last.id >= *id) {
            continue;
        }
        let start = last.map_or(0, |last| last.start + last.capacity);
        let room = last.map_or(0, |last| last.capacity.saturating_mul(2)).min(FILE_BYTES_MAX);
        let capacity = room.max(*bytes).max(1).next_multiple_of(ROOM_BYTES);
        if start > POSITION_MAX - capacity {
            return;
        }
        let ended = Some(Ended::EMPTY);
        let entry = ChunkEntry { id: *id, start, capacity, key: 0, ended, packed: None };
        let damage = format!("a file has its name, but nothing in it is of chunk {id}");
        let found = Found { is_foreign: true, ..Found::new(entry, Some(damage)) };
        chunks.push(found);
    }
}

/// Notes the chunks that were cut, or damaged where it looks like their end: one that others follow
/// was sealed before. Nothing but the table knew where it ended.
fn note_cut(chunks: &mut [Found]) {
    let Some((last, before)) = chunks.split_last_mut() else { return };
    if let (Some(end), Some(ended), None) = (last.torn, last.entry.ended, &last.damage) {
        last.damage = Some(format!(
            "log/{:08}.chunk at byte {}: nothing valid stands here, but something did",
            last.entry.id, ended.end
        ));
        last.is_end_known = true;
        last.entry.ended = Some(Ended { end, ..ended });
    }
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
