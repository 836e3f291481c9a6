//! What an open finds in the folder.
//!
//! INVARIANT:
//! 1. What is claimed to be covered is in memory, in pages still to be read, or in the part of the
//!    source that is still to be walked through. So whatever is missing or damaged lowers the claim
//!    or makes the answer "maybe".
//! 2. A first filter without the second one that took its hashes is not asked: it lacks them.
//!
//! Nothing is written here, and of the filters nothing is read. What the journals have is added
//! here where it is little, and where it is much by whoever first asks for such a line, and by the
//! first steps: each hash costs a miss of the cache.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use umbel_base::{Error, Result};
use umbel_env::{Access, Env, File};

use crate::checkpoint::Checkpoint;
use crate::covered::Covered;
use crate::folder::{CHECKPOINT, Folder, Kind, name_of};
use crate::journal::{Journal, Replay};
use crate::lines::{Kept, Lines};
use crate::memory::{Memory, View};
use crate::options::ExistenceOptions;
use crate::shape::Shape;
use crate::stats::ExistenceStats;
use crate::stored::Stored;
use crate::unread::Unread;
use crate::waiting::Sorted;
use crate::writer::{Found, JOURNAL_SHARE};

/// An open adds this part of the hashes that a step may take.
const AT_ONCE_SHARE: usize = 16;

/// What an open finds.
#[derive(Debug)]
pub(crate) struct Recovered {
    pub(crate) folder: Folder,
    pub(crate) memory: Memory,
    pub(crate) found: Found,
    /// Why the filter has to be made from nothing.
    pub(crate) lost: Option<String>,
}

/// Opens what is in the folder at `path`, which is created where it is missing.
///
/// # Errors
/// What the folder says where it cannot be listed or created; [`Error::Invalid`] where a newer
/// version wrote it; being short of descriptors. Damage is no error.
pub(crate) fn recover(
    env: &Env,
    path: &Path,
    options: &ExistenceOptions,
    shape: Shape,
    is_ours: &dyn Fn(Covered) -> bool,
) -> Result<Recovered> {
    let mut folder = Folder::open(env, path)?;
    folder.read_ahead();
    let lost = match read_checkpoint(&folder, options)? {
        Ok(checkpoint) => match filters(&folder, &checkpoint)? {
            Ok(view) => {
                folder.next_id = folder.next_id.max(checkpoint.next_id);
                let (sorted, found) = sort_journals(&folder, &checkpoint, &view)?;
                let memory = Memory::new(view);
                memory.insert_stored(sorted, options.step_hashes() / AT_ONCE_SHARE);
                match refusal(options, found.covered, is_ours) {
                    None => return Ok(Recovered { folder, memory, found, lost: None }),
                    Some(reason) => reason,
                }
            }
            Err(reason) => {
                folder.next_id = folder.next_id.max(checkpoint.next_id);
                reason
            }
        },
        Err(reason) => reason,
    };
    let view = View { first: None, second: Some(Arc::new(Lines::new(shape))) };
    let found = Found {
        generation: 0,
        covered: Covered::default(),
        journal: None,
        cursor: None,
        live: BTreeSet::new(),
    };
    Ok(Recovered { folder, memory: Memory::new(view), found, lost: Some(lost) })
}

/// Why a filter that covers so much is not to be believed.
fn refusal(
    options: &ExistenceOptions,
    covered: Covered,
    is_ours: &dyn Fn(Covered) -> bool,
) -> Option<String> {
    options.refusal(covered.position).or_else(|| {
        (!is_ours(covered)).then(|| {
            format!(
                "it covers the log up to {}, but of another history: it is of another store, or of \
                 a copy of this one that went on by itself",
                covered.position
            )
        })
    })
}

/// What the files in the folder at `path` say of their filter. Of the filter itself nothing is
/// read, and nothing is created.
///
/// # Errors
/// As those of [`recover`].
pub(crate) fn describe(
    env: &Env,
    path: &Path,
    options: &ExistenceOptions,
    is_ours: &dyn Fn(Covered) -> bool,
) -> Result<ExistenceStats> {
    if !env.files.exists(path)? {
        return Ok(ExistenceStats::of_lost("it has no files yet".to_owned()));
    }
    let folder = Folder::listed(env, path)?;
    let checkpoint = match read_checkpoint(&folder, options)? {
        Ok(checkpoint) => checkpoint,
        Err(reason) => return Ok(ExistenceStats::of_lost(reason)),
    };
    let (first, second) = (checkpoint.first.as_ref(), checkpoint.second.as_ref());
    let has = |stored: &Stored| folder.has(&name_of(Kind::Filter, stored.id));
    if !second.or(first).map_or(Ok(false), has)? {
        let reason = "the filter that its CHECKPOINT names is missing".to_owned();
        return Ok(ExistenceStats::of_lost(reason));
    }
    let has_first = first.map_or(Ok(false), has)?;
    let mut count = 0;
    let mut take = |hashes: &[[u8; 8]]| count += hashes.len() as u64;
    let found = read_journals(&folder, &checkpoint, Access::Read, &mut take)?;
    if let Some(reason) = refusal(options, found.covered, is_ours) {
        return Ok(ExistenceStats::of_lost(reason));
    }
    let stats = ExistenceStats { covered: found.covered.position, ..ExistenceStats::default() };
    Ok(stats.of_files(first.filter(|_| has_first), second, count))
}

/// Up to where in its user's log the filter in the folder at `path` was said to have every key.
/// `None` where no file tells, or it is not of this store and hash.
pub(crate) fn covered(
    env: &Env,
    path: &Path,
    whose: Option<(u64, u64)>,
) -> Result<Option<Covered>> {
    if !env.files.exists(path)? {
        return Ok(None);
    }
    let folder = Folder::listed(env, path)?;
    let Ok(checkpoint) = read_any(&folder)? else { return Ok(None) };
    if whose.is_some_and(|whose| whose != (checkpoint.store, checkpoint.hash)) {
        return Ok(None);
    }
    Ok(Some(read_journals(&folder, &checkpoint, Access::Read, &mut |_| ())?.covered))
}

/// Passes on what the caller can do something about; else tells why there is nothing.
fn or_lost<T>(result: Result<T>) -> Result<std::result::Result<T, String>> {
    match result {
        Ok(found) => Ok(Ok(found)),
        Err(error @ Error::Invalid(_)) => Err(error),
        Err(error) if error.is_short_of_descriptors() => Err(error),
        Err(error) => Ok(Err(error.to_string())),
    }
}

/// The `CHECKPOINT` of a filter that may be opened with these options, or why there is none.
fn read_checkpoint(
    folder: &Folder,
    options: &ExistenceOptions,
) -> Result<std::result::Result<Checkpoint, String>> {
    let whose = (options.store, options.hash);
    Ok(read_any(folder)?.and_then(|found| match whose == (found.store, found.hash) {
        true => Ok(found),
        false => Err("it was made for another store or with another hash".to_owned()),
    }))
}

/// The `CHECKPOINT` of a filter, whosever it is, or why there is none.
fn read_any(folder: &Folder) -> Result<std::result::Result<Checkpoint, String>> {
    let read =
        read_whole(folder).and_then(|bytes| Checkpoint::decode(&folder.join(CHECKPOINT), &bytes));
    or_lost(read)
}

fn read_whole(folder: &Folder) -> Result<Vec<u8>> {
    let file = folder.open_file(CHECKPOINT, Access::Read)?;
    let mut bytes = vec![0; usize::try_from(file.len()?).unwrap_or(usize::MAX)];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// The filters of a `CHECKPOINT`, or why it is as if there were none.
fn filters(folder: &Folder, checkpoint: &Checkpoint) -> Result<std::result::Result<View, String>> {
    let mut missing = None;
    let mut open = |stored: &Option<Stored>, is_final: bool| -> Result<Option<Arc<Lines>>> {
        let Some(stored) = stored else { return Ok(None) };
        let name = name_of(Kind::Filter, stored.id);
        match or_lost(folder.open_file(&name, Access::Read))? {
            Ok(file) => Ok(Some(of_file(stored, file, is_final))),
            Err(reason) => {
                missing = Some(reason);
                Ok(None)
            }
        }
    };
    // With a second filter the first one had got its last hash when its file was written.
    let first = open(&checkpoint.first, checkpoint.second.is_some())?;
    let second = open(&checkpoint.second, false)?;
    let is_whole = match &checkpoint.second {
        Some(_) => second.is_some(),
        None => first.is_some(),
    };
    #[cfg(feature = "canary")]
    let is_whole = is_whole
        || (umbel_base::canary::Switch::ExistenceTrustsFirstAlone.is_on() && first.is_some());
    if is_whole {
        return Ok(Ok(View { first, second }));
    }
    Ok(Err(missing.unwrap_or_else(|| "its CHECKPOINT names no filter".to_owned())))
}

fn of_file(stored: &Stored, file: Arc<dyn File>, is_final: bool) -> Arc<Lines> {
    let has_marks = stored.damaged > 0;
    let unread = Unread::new(Some(file), stored.key, stored.digests.clone(), has_marks);
    Arc::new(Lines::of_file(Kept { stored: stored.clone(), is_final }, unread))
}

/// The hashes in the journals by the lines that they belong to, and what else was found.
fn sort_journals(folder: &Folder, checkpoint: &Checkpoint, view: &View) -> Result<(Sorted, Found)> {
    let target = view.target();
    let bytes = target.map_or(0, |lines| lines.shape().bytes());
    let mut sorted = Sorted::new(bytes / JOURNAL_SHARE / 8);
    let mut take = |hashes: &[[u8; 8]]| {
        if let Some(lines) = target {
            hashes.iter().for_each(|hash| lines.sort_in(u64::from_le_bytes(*hash), &mut sorted));
        }
    };
    let found = read_journals(folder, checkpoint, Access::ReadWrite, &mut take)?;
    Ok((sorted, found))
}

/// Hands out the hashes in the journals, and tells what else was found up to their end.
fn read_journals(
    folder: &Folder,
    checkpoint: &Checkpoint,
    access: Access,
    hashes: &mut dyn FnMut(&[[u8; 8]]),
) -> Result<Found> {
    let filters = checkpoint.first.iter().chain(&checkpoint.second);
    let mut found = Found {
        generation: checkpoint.generation,
        covered: checkpoint.covered,
        journal: None,
        cursor: checkpoint.cursor.clone(),
        live: filters.map(|stored| name_of(Kind::Filter, stored.id)).collect(),
    };
    let mut next = Some(checkpoint.journal);
    while let Some((id, key)) = next.take() {
        found.journal = None;
        let is_new = found.live.insert(name_of(Kind::Journal, id));
        if !is_new {
            break;
        }
        let Some(replay) = read_journal(folder, id, key, access, hashes)? else { break };
        found.covered = found.covered.and(replay.covered);
        next = replay.next;
        found.journal = Some(replay.journal);
    }
    Ok(found)
}

fn read_journal(
    folder: &Folder,
    id: u64,
    key: u64,
    access: Access,
    hashes: &mut dyn FnMut(&[[u8; 8]]),
) -> Result<Option<Replay>> {
    let name = name_of(Kind::Journal, id);
    let file = or_lost(folder.open_file(&name, access))?;
    Ok(match file {
        Ok(file) => or_lost(Journal::read(file, id, key, hashes))?.ok().flatten(),
        Err(_) => None,
    })
}
