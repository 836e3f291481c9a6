//! What follows when a chunk was written anew: the index forgets the events that were left out,
//! then the chunk's old file goes.
//!
//! INVARIANT: the old file is there until the index has durably forgotten, so that after a crash
//! it tells what has to be forgotten yet.

use std::collections::HashMap;
use std::sync::Arc;

use umbel_log::Expectation;

use crate::chunk::Chunk;
use crate::chunk_read::read_chunk;
use crate::chunk_table::{ChunkEntry, chunk_folder, parse_name};
use crate::error::Result;
use crate::parts::Parts;

/// How many entries of the index are deleted at a time.
const ENTRIES: usize = 4096;

/// Has the index forget the events of `old` that are not in `new`.
pub fn forget(parts: &Parts, old: &Arc<Chunk>, new: &Arc<Chunk>) -> Result<()> {
    let (mut left, mut right) = (parts.log.cursor(), parts.log.cursor());
    let mut ids: HashMap<String, Option<(u64, u64)>> = HashMap::new();
    let mut entries = Vec::new();
    let (mut offset, mut kept) = (old.first_offset(), new.first_offset());
    let mut next_kept = right.walk(new, kept)?.map(|(frame, next)| (frame.stamp.position, next));
    while let Some((frame, next)) = left.walk(old, offset)? {
        offset = next;
        let position = frame.stamp.position;
        if let Some((_, behind)) = next_kept.filter(|(at, _)| *at == position) {
            kept = behind;
            next_kept = right.walk(new, kept)?.map(|(frame, next)| (frame.stamp.position, next));
            continue;
        }
        let id = match ids.get(frame.stream) {
            Some(id) => *id,
            None => {
                let head = parts.index.head(frame.stream)?;
                let id = head.map(|head| (head.id, head.last_revision));
                ids.insert(frame.stream.to_string(), id);
                id
            }
        };
        let revision = frame.stamp.revision;
        entries.extend(id.filter(|id| revision < id.1).map(|(id, _)| (id, revision)));
        if entries.len() >= ENTRIES {
            parts.index.forget(&entries)?;
            entries.clear();
        }
    }
    Ok(parts.index.forget(&entries)?)
}

/// Makes durable that the index forgot, then removes the old files, each with the chunk that took
/// its place.
///
/// REQUIRES: nobody else flushes the index.
pub fn settle(parts: &Parts, swapped: &[(Arc<Chunk>, Arc<Chunk>)]) -> Result<()> {
    for (old, new) in swapped {
        forget(parts, old, new)?;
    }
    parts.index.flush(&parts.log, parts.visible.position())?;
    for (old, _) in swapped {
        parts.log.chunks.retire(old)?;
        // One that stays costs room until the store is opened again.
        parts.log.remove_file(&old.path);
    }
    Ok(())
}

/// Does what a scavenge that was killed, or failed, had yet to do after chunks were written anew.
///
/// REQUIRES: the index holds all of the log; nobody else flushes it, and no chunk is written anew.
pub fn finish(parts: &Parts) -> Result<()> {
    let mut swapped = Vec::new();
    for chunk in parts.log.chunks.all().iter() {
        if let Some(old) = parts.log.made_of(chunk)
            && !parts.log.kept.holds(&old.path)
            && parts.env.files.exists(&old.path)?
        {
            swapped.push((old, Arc::clone(chunk)));
        }
    }
    match swapped.is_empty() {
        true => Ok(()),
        false => settle(parts, &swapped),
    }
}

/// Removes files of chunks that the table does not name: those that were made and never came into
/// it, and those that were kept for readers when the store was closed. What a chunk was made of
/// stays for [`finish`].
///
/// REQUIRES: the table was read from the disk and not written since.
pub fn remove_unnamed(parts: &Parts) -> Result<()> {
    let chunks = parts.log.chunks.all();
    for entry in parts.env.files.read_dir(&chunk_folder(&parts.folder))? {
        let Some((id, version)) = parse_name(&entry.name) else { continue };
        let is_named = match chunks.iter().find(|chunk| chunk.id == id) {
            Some(chunk) => {
                let made_of = chunk.packed.map(|packed| packed.made_of);
                version == chunk.version() || Some(version) == made_of
            }
            None => version > 0 || !holds_nothing(parts, id)?,
        };
        if !is_named {
            parts.log.remove_file(&parts.log.path(id, version));
        }
    }
    Ok(())
}

/// Whether a file that the table does not name is that of a chunk that was never used. Every other
/// one stays: what is in it may be events.
fn holds_nothing(parts: &Parts, id: u64) -> Result<bool> {
    let entry = ChunkEntry { id, start: 0, capacity: 0, key: 0, ended: None, packed: None };
    match read_chunk(&parts.env, &parts.folder, &entry, Expectation::Open) {
        Ok(read) => Ok(read.outcome.records == 0 && !read.outcome.torn && !read.has_more),
        Err(error) if error.is_damage() => Ok(false),
        Err(error) => Err(error),
    }
}
