//! Cleanup after a chunk was rewritten: the index deletes the entries of the removed events, then
//! the chunk's old file is removed.
//!
//! INVARIANT: the old file exists until the index has durably deleted the entries. After a crash,
//! the old file shows which entries remain to be deleted.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use umbel_log::ExpectedEnd;

use crate::event_log::chunk::Chunk;
use crate::event_log::chunk_manifest::{ChunkEntry, chunk_directory, parse_chunk_name};
use crate::event_log::chunk_scan::scan_chunk;
use crate::store_components::StoreComponents;
use crate::types::error::Result;

/// Number of index entries that are deleted at a time.
const DELETE_BATCH_ENTRIES: usize = 4096;

/// Deletes the index entries of the events of `old` that are not in `new`.
pub fn delete_removed_entries(
    parts: &StoreComponents,
    old: &Arc<Chunk>,
    new: &Arc<Chunk>,
) -> Result<()> {
    let (mut left, mut right) = (parts.log.cursor(), parts.log.cursor());
    let mut ids: HashMap<String, Option<(u64, u64)>> = HashMap::new();
    let mut entries = Vec::new();
    let (mut offset, mut kept) = (old.first_offset(), new.first_offset());
    let mut next_kept =
        right.frame_and_next(new, kept)?.map(|(frame, next)| (frame.meta.position, next));
    while let Some((frame, next)) = left.frame_and_next(old, offset)? {
        offset = next;
        let position = frame.meta.position;
        if let Some((_, next_offset)) = next_kept.filter(|(at, _)| *at == position) {
            kept = next_offset;
            next_kept =
                right.frame_and_next(new, kept)?.map(|(frame, next)| (frame.meta.position, next));
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
        let revision = frame.meta.revision;
        entries.extend(id.filter(|id| revision < id.1).map(|(id, _)| (id, revision)));
        if entries.len() >= DELETE_BATCH_ENTRIES {
            parts.index.delete_entries(&entries)?;
            entries.clear();
        }
    }
    Ok(parts.index.delete_entries(&entries)?)
}

/// Makes the index deletes durable, then removes the old files of the rewritten chunks.
///
/// REQUIRES: no other thread flushes the index.
pub fn remove_swapped_files(
    parts: &StoreComponents,
    swapped: &[(Arc<Chunk>, Arc<Chunk>)],
) -> Result<()> {
    for (old, new) in swapped {
        delete_removed_entries(parts, old, new)?;
    }
    parts.index.flush(&parts.log, parts.visible.position())?;
    for (old, _) in swapped {
        parts.log.chunks.retire(old)?;
        // A file that stays occupies disk space until the next open.
        parts.log.remove_file(&old.path);
    }
    Ok(())
}

/// Finishes the cleanup of a scavenge that was killed, or failed, after it rewrote chunks.
///
/// REQUIRES: the index covers the whole log, no other thread flushes the index, and no chunk is
/// being rewritten.
pub fn finish_interrupted(parts: &StoreComponents) -> Result<()> {
    let mut swapped = Vec::new();
    for chunk in parts.log.chunks.all().iter() {
        if let Some(old) = parts.log.source_chunk(chunk)
            && !parts.log.pinned_files.contains(&old.path)
            && parts.env.files.exists(&old.path)?
        {
            swapped.push((old, Arc::clone(chunk)));
        }
    }
    match swapped.is_empty() {
        true => Ok(()),
        false => remove_swapped_files(parts, &swapped),
    }
}

/// Returns the replaced files of chunks that still exist, of earlier scavenges too.
pub fn replaced_files(parts: &StoreComponents) -> Result<Vec<PathBuf>> {
    let chunks = parts.log.chunks.all();
    let versions: HashMap<u64, u64> =
        chunks.iter().map(|chunk| (chunk.id, chunk.version())).collect();
    let mut files = Vec::new();
    for entry in parts.env.files.read_dir(&chunk_directory(&parts.folder))? {
        let Some((id, version)) = parse_chunk_name(&entry.name) else { continue };
        if versions.get(&id).is_some_and(|current| *current != version) {
            files.push(parts.log.path(id, version));
        }
    }
    files.sort();
    Ok(files)
}

/// Removes files of chunks that the manifest does not name. An orphan file was never published, or
/// readers still used it when the store was closed. The file from which a chunk was rewritten stays
/// for [`finish_interrupted`].
///
/// REQUIRES: this process has read the manifest from disk and not written it since.
pub fn remove_orphan_files(parts: &StoreComponents) -> Result<()> {
    let chunks = parts.log.chunks.all();
    let by_id: HashMap<u64, &Arc<Chunk>> = chunks.iter().map(|chunk| (chunk.id, chunk)).collect();
    for entry in parts.env.files.read_dir(&chunk_directory(&parts.folder))? {
        let Some((id, version)) = parse_chunk_name(&entry.name) else { continue };
        let is_named = match by_id.get(&id) {
            Some(chunk) => {
                let made_of = chunk.scavenged.map(|scavenged| scavenged.source_version);
                version == chunk.version() || Some(version) == made_of
            }
            None => version > 0 || !is_unused_chunk(parts, id)?,
        };
        if !is_named {
            parts.log.remove_file(&parts.log.path(id, version));
        }
    }
    Ok(())
}

/// Whether a file that the manifest does not name belongs to a chunk that was never used. Every
/// other file stays: it may contain events.
fn is_unused_chunk(parts: &StoreComponents, id: u64) -> Result<bool> {
    let entry = ChunkEntry { id, start: 0, capacity: 0, key: 0, ended: None, scavenged: None };
    match scan_chunk(&parts.env, &parts.folder, &entry, ExpectedEnd::Open) {
        Ok(read) => {
            Ok(read.outcome.records == 0 && !read.outcome.torn && !read.has_records_after_end)
        }
        Err(error) if error.is_damage() => Ok(false),
        Err(error) => Err(error),
    }
}
