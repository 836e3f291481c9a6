//! A table of another copy of the store, as of one that was restored from a backup and went on: it
//! knows the first chunks, and where both went on says of chunks what is not this copy's.
//!
//! The index tells: it knows events of a file where the table has none. Then the table's chunks
//! from there on are forgotten, and found as without it. Where there is no index, nothing tells
//! which of the two is this store's; the file is named.

use std::path::Path;

use umbel_env::Env;

use super::examine::{Candidate, examine};
use super::misplaced::{stated_file, unplaced};
use super::old_index::OldIndex;
use super::own_index::count_known;
use super::survey::{ChunkFile, Found, Survey};
use crate::chunk_table::{ChunkEntry, chunk_folder};
use crate::error::Result;

/// Forgets the chunks of the table that are those of another copy of the store. Names the files
/// that stand where the table does not say, where nothing tells whose they are.
pub fn forget_tail(
    env: &Env,
    folder: &Path,
    files: &[ChunkFile],
    index: Option<&OldIndex>,
    survey: &mut Survey,
) -> Result<()> {
    if survey.is_seed_lost || survey.chunks.iter().all(|found| found.damage.is_none()) {
        return Ok(());
    }
    let mut elsewhere = Vec::new();
    for file in files {
        let stated = stated_file(env, folder, file);
        if may_be_elsewhere(survey, stated.id)
            && let Some(candidate) = examine(env, folder, &stated)?
            && (candidate.events > 0 && !candidate.is_start_guessed)
            && (is_elsewhere(survey, &candidate) || is_passed_over(survey, &candidate))
        {
            elsewhere.push(candidate);
        }
    }
    let holes = holes(survey);
    if elsewhere.is_empty() && holes.is_empty() {
        return Ok(());
    }
    let mut denied = Vec::new();
    let known = match index {
        Some(index) => first_known(index, env, folder, &elsewhere, &holes, &mut denied)?,
        None => None,
    };
    let number = known.and_then(|(position, _)| cut_at(survey, position));
    if let (Some(number), Some((_, reason))) = (number, known) {
        forget_from(survey, number, reason);
        return Ok(());
    }
    for candidate in &elsewhere {
        // What lies behind the table's chunks is named where these are placed, and what it passes
        // over is no loss where an index that would know it does not.
        let is_in_table = candidate.found.entry.id < survey.table.next_id;
        let is_others = is_passed_over(survey, candidate) && denied.contains(&candidate.name);
        if is_in_table && !is_others {
            survey.unplaced.push(unplaced(candidate));
            survey.strangers.push(candidate.name.clone());
        }
    }
    Ok(())
}

/// Whether a file of the chunk with this id has to be looked at.
fn may_be_elsewhere(survey: &Survey, id: u64) -> bool {
    let found = survey.chunks.iter().find(|found| found.entry.id == id);
    found.is_none_or(|found| found.damage.is_some())
}

/// Whether the events of a file stand at other positions than the table says.
fn is_elsewhere(survey: &Survey, candidate: &Candidate) -> bool {
    let (id, start) = (candidate.found.entry.id, candidate.found.entry.start);
    match survey.chunks.iter().find(|found| found.entry.id == id) {
        Some(found) => found.entry.start != start,
        None => survey.chunks.last().is_some_and(|last| start < last.entry.start),
    }
}

/// Whether the table passes over the chunk of a file, or says that a scavenge wrote it anew, and of
/// what it was made another end than the file has: it is of another store. Of this one the file
/// would be a leftover of the scavenge, from which nothing is brought back.
fn is_passed_over(survey: &Survey, candidate: &Candidate) -> bool {
    let entry = &candidate.found.entry;
    let last_event = |entry: &ChunkEntry| entry.ended.map_or(0, |ended| ended.last_event);
    match survey.chunks.iter().find(|found| found.entry.id == entry.id) {
        Some(Found { entry: named, .. }) => {
            let is_whole = candidate.found.damage.is_none() && entry.packed.is_none();
            named.packed.is_some() && is_whole && last_event(named) != last_event(entry)
        }
        None => entry.id < survey.table.next_id,
    }
}

/// Positions between chunks of the table, before one that is damaged.
fn holes(survey: &Survey) -> Vec<(u64, u64)> {
    let end = |found: &Found| found.entry.start + found.entry.capacity;
    let pairs = survey.chunks.iter().zip(survey.chunks.iter().skip(1));
    let damaged = pairs.filter(|(_, next)| next.damage.is_some());
    let holes = damaged.map(|(found, next)| (end(found), next.entry.start));
    holes.filter(|(from, to)| from < to).collect()
}

/// The first position of which the index says that something stands there of which the table knows
/// nothing, and what that is. Adds the names of the files whose events it would know and does not.
fn first_known(
    index: &OldIndex,
    env: &Env,
    folder: &Path,
    elsewhere: &[Candidate],
    holes: &[(u64, u64)],
    denied: &mut Vec<String>,
) -> Result<Option<(u64, &'static str)>> {
    let mut first: Option<u64> = None;
    for candidate in elsewhere {
        let mut found = candidate.found.clone();
        found.misnamed = Some(chunk_folder(folder).join(&candidate.name));
        let (asked, known) = count_known(index, env, folder, &found)?;
        denied.extend((asked > 0 && known * 2 <= asked).then(|| candidate.name.clone()));
        if known * 2 > asked {
            first = Some(first.map_or(found.entry.start, |first| first.min(found.entry.start)));
        }
    }
    if let Some(first) = first {
        return Ok(Some((first, "the index knows events of files that stand where it has none")));
    }
    let furthest = index.furthest()?;
    let is_inside = holes.iter().any(|(from, to)| (*from..*to).contains(&furthest));
    Ok(is_inside.then_some((furthest, "the index knows events where it has no chunk")))
}

/// The number of the first chunk of the table that cannot be right where something else stands at
/// this position. `None` where chunks from there on are as it says.
fn cut_at(survey: &Survey, position: u64) -> Option<usize> {
    let is_behind = |found: &Found| found.entry.start + found.entry.capacity > position;
    let number = survey.chunks.iter().position(is_behind)?;
    survey.chunks[number..].iter().all(|found| found.damage.is_some()).then_some(number)
}

/// Has the chunks from this number on be found as if the table did not name them.
fn forget_from(survey: &mut Survey, number: usize, reason: &str) {
    survey.chunks.truncate(number);
    // It passes over ids that this store may have.
    let id = survey.chunks.last().map_or(1, |last| last.entry.id + 1);
    survey.left_out.retain(|entry| entry.id < id);
    survey.short.retain(|entry| entry.id < id);
    survey.table.next_id = id;
    survey.is_tail_lost = true;
    survey.table_damage = Some(format!("it is of another copy of this store: {reason}"));
}
