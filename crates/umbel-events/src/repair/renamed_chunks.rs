//! Chunks whose files have the names of others: somebody exchanged them, or gave one a new name.
//!
//! A file's header says which chunk it is, but not of which store. Where the table knows the
//! chunk, its seal or checksum tells. Where it does not, the streams do: in the chunks beside it
//! the revisions of most of the streams that both have go on without a hole, and in none they
//! contradict. Another store's chunk with the same id is not taken then.

use std::collections::HashMap;
use std::path::Path;

use umbel_base::checksum::checksum;
use umbel_env::{Access, Env};
use umbel_log::Expectation;

use super::examine::{Candidate, examine};
use super::report::Unplaced;
use super::salvage::Source;
use super::survey::{ChunkFile, Found, Survey, read_file};
use crate::chunk_read::read_chunk_file;
use crate::chunk_table::{ChunkEntry, Ended, chunk_folder};
use crate::error::Result;
use crate::event::Position;
use crate::limits::{POSITION_MAX, REVISION_MAX};
use crate::packed;

const LOG_MAGIC: &[u8; 8] = b"UmbelLog";

/// The id and the version that the header of a file states; `None` where it has no such header.
fn stated(env: &Env, path: &Path) -> Option<(u64, u64)> {
    let file = env.files.open(path, Access::Read).ok()?;
    let mut header = [0; packed::HEADER_BYTES as usize];
    file.read_exact_at(&mut header, 0).ok()?;
    if !header.starts_with(LOG_MAGIC) {
        return packed::stated(&header);
    }
    let id = u64::from_le_bytes(*header[16..].first_chunk()?);
    let (said, sum) = header.split_last_chunk::<8>()?;
    (checksum(id, 0, said) == u64::from_le_bytes(*sum)).then_some((id, 0))
}

/// A file with the id and the version that its header states, where that states any.
pub fn stated_file(env: &Env, folder: &Path, file: &ChunkFile) -> ChunkFile {
    let path = chunk_folder(folder).join(&file.name);
    let (id, version) = stated(env, &path).unwrap_or((file.id, file.version));
    ChunkFile { id, version, name: file.name.clone() }
}

/// The files whose headers say that they are others than their names do, with what the headers
/// say.
pub fn misnamed(env: &Env, folder: &Path, files: &[ChunkFile]) -> Vec<ChunkFile> {
    let log = chunk_folder(folder);
    let other = |file: &ChunkFile| {
        let (id, version) = stated(env, &log.join(&file.name))?;
        let is_other = (id, version) != (file.id, file.version) && id > 0;
        is_other.then(|| ChunkFile { id, version, name: file.name.clone() })
    };
    let mut others: Vec<_> = files.iter().filter_map(other).collect();
    others.sort_unstable_by_key(|file| (file.id, file.version));
    others
}

/// What a file says that has the name of another chunk.
fn sentence(name: &str, id: u64) -> String {
    format!("its file has the wrong name, log/{name}: its header says that it is chunk {id}")
}

/// Has the chunk be read from the file that is not called as it should be.
pub fn mark(found: &mut Found, name: &str, folder: &Path) {
    let said = sentence(name, found.entry.id);
    found.misnamed = Some(chunk_folder(folder).join(name));
    found.damage = Some(match found.damage.take() {
        Some(damage) => format!("{said}; {damage}"),
        None => {
            // What was whole ends where it said itself.
            found.is_end_known = true;
            said
        }
    });
}

/// Finds the files of damaged chunks of the table among those that have the names of others.
pub fn find_named(
    env: &Env,
    folder: &Path,
    others: &[ChunkFile],
    survey: &mut Survey,
    accept_unproven: bool,
) -> Result<()> {
    if others.is_empty() {
        return Ok(());
    }
    let whole = survey.chunks.iter().filter(|found| found.damage.is_none());
    let beside: Vec<_> =
        whole.map(|found| Outline::of(env, folder, found)).collect::<Result<_>>()?;
    // One that holds nothing under its own name may be under another.
    for entry in survey.left_out.iter().filter(|entry| others.iter().any(|o| o.id == entry.id)) {
        let entry = ChunkEntry { ended: Some(Ended::EMPTY), ..*entry };
        let damage =
            format!("its file holds nothing, but another says that it is chunk {}", entry.id);
        let at = survey.chunks.partition_point(|found| found.entry.id < entry.id);
        let found = Found { is_foreign: true, ..Found::new(entry, Some(damage)) };
        survey.chunks.insert(at, found);
    }
    for found in survey.chunks.iter_mut().filter(|found| found.damage.is_some()) {
        let entry = found.entry;
        let version = entry.packed.map_or(0, |packed| packed.version);
        if stated(env, &entry.path(folder)) == Some((entry.id, version)) && !found.is_foreign {
            continue;
        }
        for file in others.iter().filter(|file| (file.id, file.version) == (entry.id, version)) {
            let path = chunk_folder(folder).join(&file.name);
            if is_sealed_as(env, &path, &entry) {
                *found = Found::new(entry, None);
                mark(found, &file.name, folder);
                break;
            }
            let Some(candidate) = examine(env, folder, file)? else { continue };
            let outline = Outline::of(env, folder, &candidate.found)?;
            if candidate.found.entry.start != entry.start
                || !(accept_unproven || outline.is_proven(&beside))
            {
                continue;
            }
            let mut other = candidate.found;
            let ended = entry.ended.filter(|ended| ended.last_event > 0);
            other.is_end_known |= ended.is_some();
            other.entry =
                ChunkEntry { ended: ended.or(other.entry.ended), packed: entry.packed, ..entry };
            *found = other;
            mark(found, &file.name, folder);
            break;
        }
    }
    Ok(())
}

/// Whether a file is to the byte what the table says of a chunk.
fn is_sealed_as(env: &Env, path: &Path, entry: &ChunkEntry) -> bool {
    if let Some(packed) = &entry.packed {
        let file = env.files.open(path, Access::Read);
        return file.is_ok_and(|file| packed::check(&*file, entry.id, packed).is_ok());
    }
    let sealed = entry.ended.and_then(|ended| ended.sealed);
    sealed.is_some_and(|sealed| {
        read_chunk_file(env, path, entry.id, Expectation::Sealed(sealed)).is_ok()
    })
}

/// Adds to the candidates, which rise, those whose files have the names of others. What fits
/// nowhere is noted.
pub fn add_unknown(
    env: &Env,
    folder: &Path,
    others: &[ChunkFile],
    candidates: &mut Vec<Candidate>,
    survey: &mut Survey,
    accept_unproven: bool,
) -> Result<()> {
    let whole = survey.chunks.iter().filter(|found| found.damage.is_none());
    let own = candidates.iter().map(|candidate| &candidate.found).chain(whole);
    let mut beside: Vec<_> =
        own.map(|found| Outline::of(env, folder, found)).collect::<Result<_>>()?;
    let mut waiting = Vec::new();
    for file in others {
        if let Some(mut candidate) = examine(env, folder, file)?.filter(|found| found.events > 0) {
            candidate.found.misnamed = Some(chunk_folder(folder).join(&file.name));
            let outline = Outline::of(env, folder, &candidate.found)?;
            let is_there = |other: &Outline| {
                let is_better = !other.is_whole && other.version == outline.version;
                other.id == outline.id && (!is_better || other.holds(&outline))
            };
            if !beside.iter().any(is_there) {
                waiting.push((candidate, outline));
            }
        }
    }
    // Where no file has its own name, those that go on in each other tell.
    let mut is_alone = beside.iter().all(|other| other.positions.is_none());
    loop {
        let rest: Vec<Outline> = match is_alone {
            true => waiting.iter().map(|(_, outline)| outline.clone()).collect(),
            false => Vec::new(),
        };
        let others = if rest.is_empty() { &beside } else { &rest };
        let same = |outline: &Outline| beside.iter().find(|other| other.id == outline.id).cloned();
        let among = |outline: &Outline| {
            outline.is_proven(others) && same(outline).is_none_or(|same| outline.holds(&same))
        };
        let Some(at) = waiting.iter().position(|(_, outline)| among(outline)) else { break };
        is_alone = false;
        let (candidate, outline) = waiting.remove(at);
        candidates.retain(|other| other.found.entry.id != outline.id);
        beside.retain(|other| other.id != outline.id);
        insert(candidates, candidate);
        beside.push(outline);
    }
    if !survey.is_seed_lost && survey.table_damage.is_none() && candidates.is_empty() {
        // The table has all there is.
        return Ok(());
    }
    for (mut candidate, outline) in waiting {
        if outline.fits(&beside) {
            candidate.found.is_unproven = !accept_unproven;
            insert(candidates, candidate);
            beside.push(outline);
        } else {
            survey.unplaced.push(unplaced(&candidate));
            survey.strangers.push(candidate.name);
        }
    }
    Ok(())
}

/// What is said of a file that fits nowhere.
pub fn unplaced(candidate: &Candidate) -> Unplaced {
    let entry = &candidate.found.entry;
    Unplaced {
        name: candidate.name.clone(),
        id: entry.id,
        events: candidate.events as u64,
        from: Position(entry.start),
        to: Position(entry.start + candidate.used),
    }
}

fn insert(candidates: &mut Vec<Candidate>, candidate: Candidate) {
    let id = candidate.found.entry.id;
    let at = candidates.partition_point(|other| other.found.entry.id < id);
    candidates.insert(at, candidate);
}

/// What of a chunk tells which chunks stand beside it.
#[derive(Debug, Clone)]
pub struct Outline {
    id: u64,
    /// Which of its files it is: one from before a scavenge would bring back what that took.
    version: u64,
    /// Whether nothing is wrong with its file.
    is_whole: bool,
    /// The first and the last position of its events; `None` where it has none.
    pub positions: Option<(u64, u64)>,
    /// When the first and the last of them were appended.
    pub created: (u64, u64),
    /// The first and the last revision of each stream.
    pub streams: HashMap<String, (u64, u64)>,
}

impl Outline {
    /// That of a chunk.
    pub fn of(env: &Env, folder: &Path, found: &Found) -> Result<Outline> {
        let entry = &found.entry;
        let bytes = read_file(env, &found.path(folder))?;
        let source = Source::new(entry.id, entry.start, &bytes);
        let saved = match entry.packed {
            Some(_) => source.packed(POSITION_MAX, None, None),
            None => source.appended(&[], false),
        };
        let mut outline = Outline {
            id: entry.id,
            version: entry.packed.map_or(0, |packed| packed.version),
            is_whole: found.damage.is_none(),
            positions: None,
            created: (0, 0),
            streams: HashMap::new(),
        };
        for frame in saved.offsets.iter().filter_map(|offset| source.frame(*offset)) {
            let stamp = frame.stamp;
            if outline.positions.is_none() {
                outline.created.0 = stamp.created;
            }
            outline.created.1 = stamp.created;
            let first = outline.positions.map_or(stamp.position, |(first, _)| first);
            outline.positions = Some((first, stamp.position));
            if stamp.revision <= REVISION_MAX {
                let first = (stamp.revision, stamp.revision);
                match outline.streams.get_mut(frame.stream) {
                    Some(revisions) => revisions.1 = stamp.revision,
                    None => drop(outline.streams.insert(frame.stream.to_string(), first)),
                }
            }
        }
        Ok(outline)
    }

    /// Whether it has everything of another one.
    fn holds(&self, other: &Outline) -> bool {
        let inside = |own: Option<(u64, u64)>, theirs: Option<(u64, u64)>| match (own, theirs) {
            (Some(own), Some(theirs)) => own.0 <= theirs.0 && theirs.1 <= own.1,
            (_, theirs) => theirs.is_none(),
        };
        let same = |(name, theirs): (&String, &(u64, u64))| {
            inside(self.streams.get(name).copied(), Some(*theirs))
        };
        inside(self.positions, other.positions) && other.streams.iter().all(same)
    }

    /// The revisions of the streams that it has with a later one: where it ends, and where that
    /// goes on.
    fn shared<'a>(&'a self, later: &'a Outline) -> impl Iterator<Item = (u64, u64)> + 'a {
        let streams = self.streams.iter();
        streams.filter_map(|(name, (_, last))| Some((*last, later.streams.get(name)?.0)))
    }

    /// Whether nothing in the other chunks contradicts that it stands where it says.
    fn fits(&self, others: &[Outline]) -> bool {
        let Some(own) = self.positions else { return false };
        others.iter().all(|other| {
            let Some(theirs) = other.positions else { return true };
            let (before, later) = if self.id < other.id { (self, other) } else { (other, self) };
            let (end, start) =
                if self.id < other.id { (own.1, theirs.0) } else { (theirs.1, own.0) };
            let rises = end < start && before.created.1 <= later.created.0;
            self.id != other.id && rises && before.shared(later).all(|(last, first)| last < first)
        })
    }

    /// Whether most streams go on where the next chunk before or behind it has them.
    fn is_proven(&self, others: &[Outline]) -> bool {
        let others: Vec<_> = others.iter().filter(|other| other.id != self.id).cloned().collect();
        let is_near = |other: &&Outline| other.positions.is_some();
        let before = others.iter().filter(|other| other.id < self.id).filter(is_near);
        let before = before.max_by_key(|other| other.id).map(|other| (other, self));
        let behind = others.iter().filter(|other| other.id > self.id).filter(is_near);
        let behind = behind.min_by_key(|other| other.id).map(|other| (self, other));
        let goes_on = |(one, next): (&Outline, &Outline)| {
            let (all, joined) = one.shared(next).fold((0, 0), |(all, joined), (last, first)| {
                (all + 1, joined + u64::from(last + 1 == first))
            });
            all > 0 && joined * 2 > all
        };
        self.fits(&others) && (before.is_some_and(goes_on) || behind.is_some_and(goes_on))
    }
}
