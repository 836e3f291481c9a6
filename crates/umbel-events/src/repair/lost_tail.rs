//! Ends of the log that were lost, as the index tells, or the length of a file.

use std::path::Path;

use umbel_env::{Env, check_path};

use super::old_index::OldIndex;
use super::own_index;
use super::survey::{Found, Survey, is_short, read_open, survey};
use crate::chunk_table::{ChunkEntry, ChunkTable, Ended};
use crate::error::Result;
use crate::existence::covered_on_disk;
use crate::limits::RESTORE_GAP_BYTES;

/// Puts a chunk of which nothing is left where its id belongs.
fn insert(chunks: &mut Vec<Found>, entry: ChunkEntry, damage: String) {
    let entry = ChunkEntry { ended: Some(Ended::EMPTY), packed: None, ..entry };
    let at = chunks.partition_point(|found| found.entry.id < entry.id);
    chunks.insert(at, Found { is_foreign: true, ..Found::new(entry, Some(damage)) });
}

/// Notes that the log lost its end, where `who` knows events behind it: an index is never durable
/// before the log is.
pub fn note_behind(survey: &mut Survey, furthest: u64, who: &str) {
    let damage = format!(
        "it ends before, but the {who} holds events up to position {furthest}: it is an older copy \
         or was cut"
    );
    // An index from before a scavenge knows what that took from the end of a chunk.
    let last_event = |found: &Found| {
        let ended = found.entry.ended.map_or(0, |ended| ended.last_event);
        found.entry.start + found.entry.packed.map_or(0, |packed| packed.last_event).max(ended)
    };
    if survey.table_damage.is_some()
        && let Some(last) = survey.chunks.last_mut().filter(|last| is_open(&last.entry))
        && last_event(last) < furthest
    {
        // Of what nobody ended the room is not known either.
        let entry = &mut last.entry;
        entry.capacity = entry.capacity.max((furthest + 1 - entry.start).next_multiple_of(8));
        let (end, table) = (entry.capacity, &mut survey.table);
        entry.ended = entry.ended.map(|ended| Ended { end, ..ended });
        table.next_start =
            table.next_start.max((entry.start + end).saturating_add(RESTORE_GAP_BYTES));
        last.damage.get_or_insert(damage);
        last.is_end_known = true;
        return;
    }
    let end = survey.chunks.last().map_or(0, |last| last.entry.start + last.entry.capacity);
    let is_inside =
        |entry: &ChunkEntry| (entry.start..entry.start + entry.capacity).contains(&furthest);
    if let Some(found) = survey.chunks.iter_mut().find(|found| is_inside(&found.entry)) {
        if found.damage.is_none() && last_event(found) < furthest {
            found.damage = Some(damage);
        }
    } else if let Some(entry) = survey.left_out.iter().copied().find(is_inside) {
        insert(&mut survey.chunks, entry, damage);
    } else if furthest >= end && furthest > 0 {
        let (id, table) = (survey.table.next_id, &mut survey.table);
        let capacity = (furthest + 1 - end).next_multiple_of(8);
        let ended = Some(Ended::EMPTY);
        let entry = ChunkEntry { id, start: end, capacity, key: 0, ended, packed: None };
        let damage = damage.replacen("it ends", "the event log ends", 1);
        table.next_id += 1;
        table.next_start = table.next_start.max(end + capacity).saturating_add(RESTORE_GAP_BYTES);
        survey.chunks.push(Found::new(entry, Some(damage)));
    }
}

/// Notes chunks that are gone together with what the table said of them, as where that is another
/// store's: the index knows events between the positions of two chunks.
pub fn note_holes(survey: &mut Survey, index: &OldIndex) -> Result<()> {
    if !survey.is_damaged() {
        return Ok(());
    }
    let mut from = 0;
    let mut holes = Vec::new();
    for ChunkEntry { start, capacity, .. } in survey.chunks.iter().map(|found| found.entry) {
        holes.extend((from < start).then_some((from, start)));
        from = start + capacity;
    }
    if holes.is_empty() {
        return Ok(());
    }
    let known = index.places(&holes)?;
    for hole in holes.into_iter().rev().filter(|hole| !known.between(*hole).is_empty()) {
        let at = survey.chunks.partition_point(|found| found.entry.start < hole.0.max(1));
        let before = at.checked_sub(1).map(|last| survey.chunks[last].entry);
        let id = before.map_or(1, |before| before.id + 1);
        let damage = "no chunk has these positions, but the index knows events there".to_string();
        if survey.chunks.get(at).is_none_or(|behind| id < behind.entry.id) {
            let capacity = hole.1 - hole.0;
            let entry =
                ChunkEntry { id, start: hole.0, capacity, key: 0, ended: None, packed: None };
            insert(&mut survey.chunks, entry, damage);
        } else if let Some(before) = at.checked_sub(1).and_then(|at| survey.chunks.get_mut(at)) {
            before.entry.capacity = hole.1 - before.entry.start;
            before.damage.get_or_insert(format!("behind its end {damage}"));
        }
    }
    Ok(())
}

/// Notes that the log lost its end where no index tells, but the existence filter covered events
/// behind it: it is never durable before the log is. Returns up to where that tells.
pub fn note_uncovered(env: &Env, folder: &Path, survey: &mut Survey) -> u64 {
    if survey.existence_damage.is_some() {
        return 0;
    }
    let seed = survey.table_damage.is_none().then_some(survey.table.seed);
    let covered = covered_on_disk(env, &folder.join("existence"), seed);
    let (key, covered) = (covered.history, covered.position);
    let is_other = |entry: ChunkEntry| {
        let positions = entry.start..entry.start + entry.capacity;
        positions.contains(&covered) && ![0, entry.key].contains(&key)
    };
    if survey.table_damage.is_none() && survey.chunks.iter().any(|found| is_other(found.entry)) {
        // It covers the log of a copy of the store that went on by itself.
        return 0;
    }
    let last = survey.chunks.last().map(|last| last.entry);
    if let Some(ChunkEntry { start, packed: Some(packed), .. }) = last
        && survey.table_damage.is_some()
    {
        // What stood behind may be lost, or a scavenge took it.
        return if start + packed.last_event == covered { covered } else { 0 };
    }
    note_behind(survey, covered, "existence filter");
    covered
}

/// Whether nothing tells that no chunks are gone behind the last one: the table is damaged, which
/// would have named them, and neither index nor existence filter, which tell up to `furthest`, know
/// what stands there last.
pub fn is_end_unknown(survey: &Survey, furthest: u64) -> bool {
    if survey.table_damage.is_none() {
        return false;
    }
    let Some(found) = survey.chunks.last() else { return furthest == 0 };
    let entry = &found.entry;
    let ended = entry.ended.unwrap_or(Ended::EMPTY);
    let last_event = entry.packed.map_or(ended.last_event, |packed| packed.last_event);
    furthest < entry.start + last_event.max(1)
}

/// Whether nobody ended the chunk.
fn is_open(entry: &ChunkEntry) -> bool {
    entry.packed.is_none() && entry.ended.is_none_or(|ended| ended.sealed.is_none())
}

/// What is said of a chunk whose file is shorter than it was made.
fn short_sentence(id: u64) -> String {
    format!(
        "log/{id:08}.chunk is shorter than it was made, and no index tells what it held: it was \
         cut, or opening the store was interrupted"
    )
}

/// What opening the store would leave out although it may have been appended: for each chunk that
/// nobody ended a sentence with file and offset. Nothing is changed.
pub fn left_out(env: &Env, folder: &Path) -> Result<Vec<String>> {
    check_path("the event store", folder)?;
    let table = ChunkTable::read(env, folder)?;
    let mut sentences = Vec::new();
    let mut short = Vec::new();
    for entry in table.chunks.iter().filter(|entry| entry.ended.is_none()) {
        // What cannot be read is said by who opens the store.
        let opened = read_open(env, &entry.path(folder), entry).ok();
        let is_sealed = opened.as_ref().is_some_and(|opened| opened.ended.sealed.is_some());
        short.extend((is_short(env, folder, entry) && !is_sealed).then_some(entry.id));
        sentences.extend(opened.and_then(|opened| opened.gap).map(|gap| gap.to_string()));
    }
    if !short.is_empty() {
        let index = OldIndex::find(env, folder, table.seed)?.and_then(|index| index.ok());
        let is_told = match index {
            Some(index) => own_index::is_of(&index, env, folder, &mut survey(env, folder)?)?,
            None => false,
        };
        if !is_told {
            sentences.extend(short.into_iter().map(short_sentence));
        }
    }
    Ok(sentences)
}

/// Notes the chunks that nobody ended and whose files are shorter than they were made, where no
/// index tells what they held: they were cut, or opening the store was interrupted, which takes off
/// what nobody appended to.
pub fn note_short(survey: &mut Survey) {
    for entry in survey.short.clone() {
        let damage = short_sentence(entry.id);
        let Some(found) = survey.chunks.iter_mut().find(|found| found.entry.id == entry.id) else {
            insert(&mut survey.chunks, entry, damage);
            continue;
        };
        let is_sealed = found.entry.ended.is_some_and(|ended| ended.sealed.is_some());
        if found.damage.is_none() && !is_sealed {
            found.damage = Some(damage);
            found.is_end_known = true;
            let ended = found.entry.ended;
            found.entry.ended = ended.map(|ended| Ended { end: entry.capacity, ..ended });
        }
    }
}
