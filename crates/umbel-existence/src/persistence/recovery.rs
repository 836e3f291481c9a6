//! Reads the state of a filter from its folder.
//!
//! INVARIANT:
//! 1. Every covered hash is in memory, in an unread page, or in the part of the source that a walk
//!    has still to return. So a missing or damaged part lowers the coverage or makes the answer
//!    "maybe".
//! 2. If the second filter is missing, the first is not probed, since it lacks the hashes that went
//!    to the second.
//!
//! Recovery writes no file, and reads no page of the filters. Recovery adds only a few hashes of
//! the journals. Most hashes are added by the thread that first needs their line, and by the first
//! steps, because each hash costs a cache miss.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use umbel_base::fail_point;
use umbel_base::{Error, Result};
use umbel_env::{Access, Env, File};

use crate::layout::file_meta::FilterFileMeta;
use crate::layout::filter_sizing::FilterDimensions;
use crate::log_coverage::Coverage;
use crate::memory::active_filters::{ActiveFilters, FilterPair};
use crate::memory::blocked_filter::{BlockedFilter, FilterFileState};
use crate::memory::journal_hashes::PartitionedHashes;
use crate::memory::lazy_pages::LazyPages;
use crate::options::ExistenceOptions;
use crate::persistence::checkpoint::Checkpoint;
use crate::persistence::directory::{CHECKPOINT, FilterDirectory, FilterFileKind, name_of};
use crate::persistence::filter_writer::{JOURNAL_SHARE, PersistedState};
use crate::persistence::journal::{Journal, JournalReplay};
use crate::stats::ExistenceStats;

/// An open adds at most a step's number of hashes divided by this.
const OPEN_INSERT_SHARE: usize = 16;

/// State that an open finds.
#[derive(Debug)]
pub(crate) struct RecoveredFilter {
    pub(crate) directory: FilterDirectory,
    pub(crate) filters: ActiveFilters,
    pub(crate) state: PersistedState,
    /// Reason why the filter has to be built from nothing, if so.
    pub(crate) lost: Option<LostReason>,
}

/// Reason why a filter has to be built from nothing.
#[derive(Debug)]
pub(crate) struct LostReason {
    pub(crate) text: String,
    /// Whether its files are damaged or incomplete. Otherwise there are none yet, or they are those
    /// of another filter.
    pub(crate) is_damage: bool,
}

impl LostReason {
    fn of_other_filter(text: impl Into<String>) -> LostReason {
        LostReason { text: text.into(), is_damage: false }
    }
}

/// Opens the filter in the folder at `path`, and creates the folder if it is missing.
///
/// # Errors
/// The file system's error if the folder cannot be listed or created, or if the process has no free
/// file descriptor. [`Error::Invalid`] if a newer version wrote the filter. Damage is no error.
pub(crate) fn recover(
    env: &Env,
    path: &Path,
    options: &ExistenceOptions,
    shape: FilterDimensions,
    is_ours: &dyn Fn(Coverage) -> bool,
) -> Result<RecoveredFilter> {
    let mut folder = FilterDirectory::open(env, path)?;
    folder.read_ahead();
    let mut damaged_journals = 0;
    let lost = match read_checkpoint(&folder, options)? {
        Ok(checkpoint) => match filters(&folder, &checkpoint)? {
            Ok(view) => {
                folder.next_id = folder.next_id.max(checkpoint.next_id);
                let (sorted, found) = sort_journals(&folder, &checkpoint, &view)?;
                damaged_journals = found.damaged_journals;
                let memory = ActiveFilters::new(view);
                memory.insert_recovered(sorted, options.step_hashes() / OPEN_INSERT_SHARE);
                match refusal(options, found.covered, is_ours) {
                    None => {
                        return Ok(RecoveredFilter {
                            directory: folder,
                            filters: memory,
                            state: found,
                            lost: None,
                        });
                    }
                    // A damaged journal lowers the coverage, perhaps too far for the filter's use.
                    Some(text) => LostReason { text, is_damage: damaged_journals > 0 },
                }
            }
            Err(reason) => {
                folder.next_id = folder.next_id.max(checkpoint.next_id);
                reason
            }
        },
        Err(reason) => reason,
    };
    let view = FilterPair { first: None, second: Some(Arc::new(BlockedFilter::new(shape))) };
    let found = PersistedState {
        generation: 0,
        covered: Coverage::default(),
        journal: None,
        cursor: None,
        live: BTreeSet::new(),
        damaged_journals,
    };
    Ok(RecoveredFilter {
        directory: folder,
        filters: ActiveFilters::new(view),
        state: found,
        lost: Some(lost),
    })
}

/// Returns the reason to refuse a filter with this coverage, if any.
fn refusal(
    options: &ExistenceOptions,
    covered: Coverage,
    is_ours: &dyn Fn(Coverage) -> bool,
) -> Option<String> {
    options.rejection_reason(covered.position).or_else(|| {
        (!is_ours(covered)).then(|| {
            format!(
                "it covers the log up to {}, but of another history: it belongs to another \
                 store, or to a diverged copy of this one",
                covered.position
            )
        })
    })
}

/// Describes the filter in the folder at `path` by its files. Reads no page of the filter, and
/// creates no file.
///
/// # Errors
/// As those of [`recover`].
pub(crate) fn describe(
    env: &Env,
    path: &Path,
    options: &ExistenceOptions,
    is_ours: &dyn Fn(Coverage) -> bool,
) -> Result<ExistenceStats> {
    if !env.files.exists(path)? {
        return Ok(ExistenceStats::of_lost("it has no files yet".to_owned()));
    }
    let folder = FilterDirectory::open_existing(env, path)?;
    let checkpoint = match read_checkpoint(&folder, options)? {
        Ok(checkpoint) => checkpoint,
        Err(reason) => return Ok(ExistenceStats::of_lost(reason.text)),
    };
    let (first, second) = (checkpoint.first.as_ref(), checkpoint.second.as_ref());
    let has = |stored: &FilterFileMeta| folder.has(&name_of(FilterFileKind::Filter, stored.id));
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

/// Position in the user's log up to which the filter in the folder at `path` has every key. `None`
/// if no file names a position, or if the filter belongs to another store or hash.
pub(crate) fn covered(
    env: &Env,
    path: &Path,
    whose: Option<(u64, u64)>,
) -> Result<Option<Coverage>> {
    if !env.files.exists(path)? {
        return Ok(None);
    }
    let folder = FilterDirectory::open_existing(env, path)?;
    let Ok(checkpoint) = read_any(&folder)? else { return Ok(None) };
    if whose.is_some_and(|whose| whose != (checkpoint.store, checkpoint.hash)) {
        return Ok(None);
    }
    Ok(Some(read_journals(&folder, &checkpoint, Access::Read, &mut |_| ())?.covered))
}

/// Passes on errors on which the caller can act, and turns all others into the reason why the
/// filter is lost.
fn or_lost<T>(result: Result<T>) -> Result<std::result::Result<T, LostReason>> {
    match result {
        Ok(found) => Ok(Ok(found)),
        Err(error @ Error::Invalid(_)) => Err(error),
        Err(error) if error.is_out_of_descriptors() => Err(error),
        Err(error) => {
            let is_damage = !error.is_missing_file();
            Ok(Err(LostReason { text: error.to_string(), is_damage }))
        }
    }
}

/// Reads the `CHECKPOINT` of a filter, or returns the reason why a filter with these options cannot
/// be opened from it.
fn read_checkpoint(
    folder: &FilterDirectory,
    options: &ExistenceOptions,
) -> Result<std::result::Result<Checkpoint, LostReason>> {
    let whose = (options.store, options.hash);
    Ok(read_any(folder)?.and_then(|found| match whose == (found.store, found.hash) {
        true => Ok(found),
        false => {
            Err(LostReason::of_other_filter("it was made for another store or with another hash"))
        }
    }))
}

/// Reads the `CHECKPOINT` of a filter of any store, or returns the reason why there is none.
fn read_any(folder: &FilterDirectory) -> Result<std::result::Result<Checkpoint, LostReason>> {
    let read =
        read_whole(folder).and_then(|bytes| Checkpoint::decode(&folder.join(CHECKPOINT), &bytes));
    or_lost(read)
}

fn read_whole(folder: &FilterDirectory) -> Result<Vec<u8>> {
    let file = folder.open_file(CHECKPOINT, Access::Read)?;
    let mut bytes = vec![0; usize::try_from(file.len()?).unwrap_or(usize::MAX)];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// Opens the filters of a `CHECKPOINT`, or returns the reason why the filter is lost.
fn filters(
    folder: &FilterDirectory,
    checkpoint: &Checkpoint,
) -> Result<std::result::Result<FilterPair, LostReason>> {
    let mut missing = None;
    let mut open =
        |stored: &Option<FilterFileMeta>, is_final: bool| -> Result<Option<Arc<BlockedFilter>>> {
            let Some(stored) = stored else { return Ok(None) };
            let name = name_of(FilterFileKind::Filter, stored.id);
            match or_lost(folder.open_file(&name, Access::Read))? {
                Ok(file) => Ok(Some(of_file(stored, file, is_final))),
                Err(reason) => {
                    // The CHECKPOINT names the file, so that its absence is damage, too.
                    missing = Some(LostReason { is_damage: true, ..reason });
                    Ok(None)
                }
            }
        };
    // With a second filter the first one had got its last hash when its file was written.
    let first = open(&checkpoint.first, checkpoint.second.is_some())?;
    let second = open(&checkpoint.second, false)?;
    let pair = FilterPair { first, second };
    if has_all_filters(checkpoint, &pair) {
        return Ok(Ok(pair));
    }
    Ok(Err(missing.unwrap_or_else(|| LostReason {
        text: "its CHECKPOINT names no filter".to_owned(),
        is_damage: true,
    })))
}

/// Whether no hash of the checkpoint's filters is denied by the opened filters.
fn has_all_filters(checkpoint: &Checkpoint, pair: &FilterPair) -> bool {
    fail_point!("existence-trust-first-filter-alone", pair.first.is_some(), |_| true);
    match &checkpoint.second {
        Some(_) => pair.second.is_some(),
        None => pair.first.is_some(),
    }
}

fn of_file(stored: &FilterFileMeta, file: Arc<dyn File>, is_final: bool) -> Arc<BlockedFilter> {
    let has_marks = stored.damaged > 0;
    let unread = LazyPages::new(Some(file), stored.key, stored.digests.clone(), has_marks);
    Arc::new(BlockedFilter::from_file(FilterFileState { meta: stored.clone(), is_final }, unread))
}

/// Reads the journals. Returns their hashes sorted by line, and their other content.
fn sort_journals(
    folder: &FilterDirectory,
    checkpoint: &Checkpoint,
    view: &FilterPair,
) -> Result<(PartitionedHashes, PersistedState)> {
    let target = view.target();
    let bytes = target.map_or(0, |lines| lines.shape().bytes());
    let mut sorted = PartitionedHashes::new(bytes / JOURNAL_SHARE / 8);
    let mut take = |hashes: &[[u8; 8]]| {
        if let Some(lines) = target {
            hashes.iter().for_each(|hash| lines.partition(u64::from_le_bytes(*hash), &mut sorted));
        }
    };
    let found = read_journals(folder, checkpoint, Access::ReadWrite, &mut take)?;
    Ok((sorted, found))
}

/// Reads the journals, passes their hashes on, and returns their other content.
fn read_journals(
    folder: &FilterDirectory,
    checkpoint: &Checkpoint,
    access: Access,
    hashes: &mut dyn FnMut(&[[u8; 8]]),
) -> Result<PersistedState> {
    let filters = checkpoint.first.iter().chain(&checkpoint.second);
    let mut found = PersistedState {
        generation: checkpoint.generation,
        covered: checkpoint.covered,
        journal: None,
        cursor: checkpoint.cursor.clone(),
        live: filters.map(|stored| name_of(FilterFileKind::Filter, stored.id)).collect(),
        damaged_journals: 0,
    };
    let mut next = Some(checkpoint.journal);
    while let Some((id, key)) = next.take() {
        found.journal = None;
        let is_new = found.live.insert(name_of(FilterFileKind::Journal, id));
        if !is_new {
            break;
        }
        let Some(replay) = read_journal(folder, id, key, access, hashes)? else {
            // A durable file names the journal, which was made durable before.
            found.damaged_journals += 1;
            break;
        };
        found.damaged_journals += u64::from(replay.is_damaged);
        found.covered = found.covered.intersect(replay.covered);
        next = replay.next;
        found.journal = Some(replay.journal);
    }
    Ok(found)
}

fn read_journal(
    folder: &FilterDirectory,
    id: u64,
    key: u64,
    access: Access,
    hashes: &mut dyn FnMut(&[[u8; 8]]),
) -> Result<Option<JournalReplay>> {
    let name = name_of(FilterFileKind::Journal, id);
    let file = or_lost(folder.open_file(&name, access))?;
    Ok(match file {
        Ok(file) => or_lost(Journal::read(file, id, key, hashes))?.ok().flatten(),
        Err(_) => None,
    })
}
