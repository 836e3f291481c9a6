//! Whether an index was made of the event log beside it: another store's knows other events, and
//! would deny those of this one.

use std::collections::HashMap;
use std::path::Path;

use umbel_env::Env;
use umbel_log::RECORD_ALIGN;

use super::old_index::OldIndex;
use super::salvage::Source;
use super::survey::{Found, Survey, read_file};
use crate::chunk_table::Ended;
use crate::error::Result;
use crate::head::Head;
use crate::limits::{REVISION_MAX, TOMBSTONE_REVISION};
use crate::packed;

/// How many streams are asked at least, where there are as many.
const ASKED: usize = 1024;
/// How many events of each chunk are looked up.
const ASKED_OF_CHUNK: usize = 64;
/// Of so many the index has to know at least one, or the chunk is another store's.
pub const DENIED: usize = 8;

/// Whether it was made of this event log: whether it knows most of the events that can be read in
/// any chunk, of which the first are asked, and in every one that is as the table says. Of an
/// index that is, a chunk that nobody ended is another store's if it knows none of that. Where
/// nothing can be asked so, most of the last events of streams have to stand where it says, as far
/// as those chunks are whole; the first of its streams are asked.
pub fn is_of(index: &OldIndex, env: &Env, folder: &Path, survey: &mut Survey) -> Result<bool> {
    let has_table = survey.table_damage.is_none();
    let (mut agree, mut denied) = (0, Vec::new());
    for (number, found) in survey.chunks.iter().enumerate() {
        if found.is_foreign || found.is_unproven {
            continue;
        }
        let (asked, known) = count_known(index, env, folder, found)?;
        agree += usize::from(known * 2 > asked);
        if asked > 0 && known * 2 <= asked {
            if has_table && found.damage.is_none() && !found.is_unsynced {
                return Ok(false);
            }
            denied.push((number, asked, known));
        }
    }
    if agree == 0 {
        return Ok(denied.is_empty() && are_most_heads_right(index, env, folder, survey)?);
    }
    if !has_table {
        return Ok(agree > denied.len());
    }
    for (number, asked, known) in denied {
        let found = &mut survey.chunks[number];
        if found.damage.is_none() && known == 0 && asked >= DENIED {
            let reason = "the index knows none of its events: the file is of another store";
            found.damage = Some(reason.to_string());
            found.is_foreign = true;
            found.entry.ended = Some(Ended::EMPTY);
        }
    }
    Ok(true)
}

/// Whether most of the last events of streams stand where the index says, as far as those chunks
/// are whole.
fn are_most_heads_right(
    index: &OldIndex,
    env: &Env,
    folder: &Path,
    survey: &Survey,
) -> Result<bool> {
    let mut heads: HashMap<usize, Vec<(String, Head)>> = HashMap::new();
    let (mut count, mut after) = (0, None);
    while count < ASKED {
        let names = index.heads(after.as_deref())?;
        let Some((name, _)) = names.last() else { break };
        after = Some(name.clone());
        for (name, head) in names {
            if let Some(number) = survey.whole_at(head.last_position) {
                heads.entry(number).or_default().push((name, head));
                count += 1;
            }
        }
    }
    let mut right = 0;
    for (number, heads) in heads {
        right += count_right(env, folder, &survey.chunks[number], &heads)?;
    }
    Ok(right * 2 >= count)
}

/// How many of the first events that can be read in a chunk the index has to know, and how many it
/// does.
pub fn count_known(
    index: &OldIndex,
    env: &Env,
    folder: &Path,
    found: &Found,
) -> Result<(usize, usize)> {
    let entry = &found.entry;
    let bytes = read_file(env, &found.path(folder))?;
    let source = Source::new(entry.id, entry.start, &bytes);
    let (mut asked, mut known) = (0, 0);
    let mut offset = packed::HEADER_BYTES;
    while asked < ASKED_OF_CHUNK && offset < bytes.len() as u64 {
        let Some(frame) = source.frame(offset) else {
            offset += RECORD_ALIGN;
            continue;
        };
        offset += frame.bytes as u64;
        let stamp = frame.stamp;
        let is_its = stamp.position <= index.through && stamp.revision <= REVISION_MAX;
        if is_its && !frame.is_stub {
            asked += 1;
            known += usize::from(index.knows(frame.stream, stamp.revision, stamp.position)?);
        }
    }
    Ok((asked, known))
}

/// How many of these streams have their last event where the index says, in a chunk that is whole.
fn count_right(env: &Env, folder: &Path, found: &Found, heads: &[(String, Head)]) -> Result<usize> {
    let entry = &found.entry;
    let bytes = read_file(env, &entry.path(folder))?;
    let source = Source::new(entry.id, entry.start, &bytes);
    // In a packed chunk an event does not stand at its position.
    let mut places: HashMap<u64, u64> = HashMap::new();
    let mut offset = packed::HEADER_BYTES;
    while let Some(frame) = source.frame(offset).filter(|_| entry.packed.is_some()) {
        places.insert(frame.stamp.position, offset);
        offset += frame.bytes as u64;
    }
    let is_right = |(name, head): &&(String, Head)| {
        let offset = match entry.packed {
            Some(_) => places.get(&head.last_position).copied(),
            None => head.last_position.checked_sub(entry.start),
        };
        let revision = if head.is_tombstoned { TOMBSTONE_REVISION } else { head.last_revision };
        offset.and_then(|offset| source.frame(offset)).is_some_and(|frame| {
            frame.stream == name
                && (frame.stamp.revision, frame.stamp.position) == (revision, head.last_position)
        })
    };
    Ok(heads.iter().filter(is_right).count())
}
