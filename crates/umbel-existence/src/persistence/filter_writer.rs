//! [`FilterWriter`]: makes the filter in memory durable. One thread at a time uses a
//! `FilterWriter`.
//!
//! A flush appends hashes to the journal. When the journal has become long, a new generation of
//! filter files is written, while flushes continue.
//!
//! INVARIANT: `CHECKPOINT` "leads to" the files that it names, and to journals that a durable
//! record of such a journal names.
//! 1. Every hash that a successful flush covered is in a filter file or a journal that the durable
//!    `CHECKPOINT` leads to. So a covered position is never written before the hashes that it
//!    covers. The position is in the same or a later record, or in a `CHECKPOINT` that names
//!    durable files.
//! 2. A generation begins with a journal of its own, and only after that reads the filters. A hash
//!    flushed before that is in the filter files; a hash flushed later is in that journal or a
//!    later one.
//! 3. Hashes of a failed flush stay in `unwritten`, and no later flush succeeds without
//!    them.
//! 4. A file whose sync failed is not written again, and no `CHECKPOINT` or journal relies on it.
//! 5. A journal names the next journal only if no hash flushed in between is missing in both. So a
//!    hash that is in a generation but in no journal ends the chain of journals. If an old
//!    `CHECKPOINT` and its files ever come back, they do not lead over that gap to later covered
//!    positions.
//! 6. No file is removed to which the last durable `CHECKPOINT` leads. While it is unknown which of
//!    two `CHECKPOINT`s is durable, no file is removed at all.

use std::collections::BTreeSet;
use std::sync::Arc;

use umbel_base::fail_point;
use umbel_base::{Error, Result};

use crate::log_coverage::Coverage;
use crate::maintenance_counters::MaintenanceCounters;
use crate::memory::active_filters::ActiveFilters;
use crate::options::ExistenceOptions;
use crate::persistence::checkpoint::Checkpoint;
use crate::persistence::directory::{FilterDirectory, FilterFileKind, name_of};
use crate::persistence::generation_writer::GenerationWriter;
use crate::persistence::journal::Journal;

/// A journal of fewer bytes never requires a generation.
const JOURNAL_BYTES_MIN: u64 = 16 * 1024;
/// A journal with this part of the filter's bytes requires a generation.
pub(crate) const JOURNAL_SHARE: u64 = 32;

/// State that an open reads, from which a writer continues.
#[derive(Debug)]
pub(crate) struct PersistedState {
    pub(crate) generation: u64,
    pub(crate) covered: Coverage,
    pub(crate) journal: Option<Journal>,
    pub(crate) cursor: Option<Vec<u8>>,
    /// The files to which the `CHECKPOINT` leads.
    pub(crate) live: BTreeSet<String>,
    /// Number of journals that are damaged or missing.
    pub(crate) damaged_journals: u64,
}

/// Writes the filter in memory to files and syncs them.
#[derive(Debug)]
pub(crate) struct FilterWriter {
    directory: FilterDirectory,
    options: ExistenceOptions,
    gauges: Arc<MaintenanceCounters>,
    generation: u64,
    covered: Coverage,
    journal: Option<Journal>,
    /// Whether the durable `CHECKPOINT` leads to the journal.
    is_attached: bool,
    /// Whether the journal was begun for a generation that is not committed yet.
    is_fresh: bool,
    /// Whether an attempt to replace `CHECKPOINT` failed, so that the old or the new one may be
    /// durable.
    is_checkpoint_unsure: bool,
    /// Hashes that were taken from the active filters and are in no file yet.
    unwritten: Vec<u64>,
    current_generation: Option<GenerationWriter>,
    /// Source position up to which the second filter has every key.
    cursor: Option<Vec<u8>>,
    /// Whether a new generation is to be written.
    generation_requested: bool,
    /// The files to which the `CHECKPOINT` of the open leads, until orphans were searched for.
    orphans_beside: Option<BTreeSet<String>>,
}

impl FilterWriter {
    pub(crate) fn new(
        folder: FilterDirectory,
        options: ExistenceOptions,
        tally: Arc<MaintenanceCounters>,
        found: PersistedState,
    ) -> FilterWriter {
        tally.covered.set(found.covered.position);
        tally.damaged_journals.set(found.damaged_journals);
        FilterWriter {
            directory: folder,
            options,
            gauges: tally,
            generation: found.generation,
            covered: found.covered,
            is_attached: found.journal.is_some(),
            journal: found.journal,
            is_fresh: false,
            is_checkpoint_unsure: false,
            unwritten: Vec::new(),
            current_generation: None,
            cursor: found.cursor,
            generation_requested: false,
            orphans_beside: Some(found.live),
        }
    }

    /// Source position up to which the second filter has every key.
    pub(crate) fn cursor(&self) -> Option<&[u8]> {
        self.cursor.as_deref()
    }

    /// Sets the source position up to which the second filter has every key.
    ///
    /// REQUIRES: the second filter in memory has these keys.
    pub(crate) fn set_cursor(&mut self, cursor: Option<Vec<u8>>) {
        self.cursor = cursor;
    }

    /// Requests a new generation.
    pub(crate) fn request_generation(&mut self) {
        self.generation_requested = true;
    }

    /// Makes all hashes inserted so far durable, with the position up to which they cover the
    /// user's log.
    pub(crate) fn flush(&mut self, memory: &ActiveFilters, covered: Coverage) -> Result<()> {
        memory.drain(&mut self.unwritten);
        let result = self.flush_drained(memory, covered);
        self.gauges.unwritten.set(self.unwritten.len() as u64);
        self.gauges.covered.set(self.covered.position);
        result
    }

    /// Flushes as [`FilterWriter::flush`] does if there is a journal to append to. Otherwise
    /// requests a generation from the next step, unless one is in progress, and returns `false`.
    pub(crate) fn flush_journal_only(
        &mut self,
        memory: &ActiveFilters,
        covered: Coverage,
    ) -> Result<bool> {
        let is_brief = self.is_attached && self.journal.as_ref().is_some_and(Journal::is_sound);
        if !is_brief {
            self.generation_requested |= self.current_generation.is_none();
            return Ok(false);
        }
        self.flush(memory, covered).map(|()| true)
    }

    fn flush_drained(&mut self, memory: &ActiveFilters, covered: Coverage) -> Result<()> {
        let covered = self.covered.intersect(covered);
        let (attached, before) = (self.is_attached, self.covered);
        let Some(journal) = self.journal.as_mut().filter(|file| attached && file.is_sound()) else {
            return self.write_all(memory, covered);
        };
        if self.unwritten.is_empty() && covered == self.covered {
            return Ok(());
        }
        let bytes = append_hashes(journal, &mut self.unwritten, (before, covered))?;
        let journal_bytes = journal.bytes();
        self.covered = covered;
        self.gauges.flushes.add(1);
        self.gauges.bytes_written.add(bytes);
        self.generation_requested |= journal_bytes > self.journal_bytes_max(memory);
        Ok(())
    }

    fn journal_bytes_max(&self, memory: &ActiveFilters) -> u64 {
        let view = memory.view();
        let target = view.second.as_ref().or(view.first.as_ref());
        let bytes = target.map_or(0, |lines| lines.shape().bytes());
        (bytes / JOURNAL_SHARE).max(JOURNAL_BYTES_MIN)
    }

    /// Makes all hashes durable by writing a whole generation during the call.
    pub(crate) fn write_generation(
        &mut self,
        memory: &ActiveFilters,
        covered: Coverage,
    ) -> Result<()> {
        memory.drain(&mut self.unwritten);
        let result = self.write_all(memory, self.covered.intersect(covered));
        self.gauges.unwritten.set(self.unwritten.len() as u64);
        self.gauges.covered.set(self.covered.position);
        result
    }

    /// Durably lowers the covered position.
    pub(crate) fn truncate(&mut self, memory: &ActiveFilters, covered: Coverage) -> Result<()> {
        if covered.position >= self.covered.position {
            return Ok(());
        }
        self.covered = covered;
        // Until this is durable no flush may go to a journal that promises more.
        self.is_attached = false;
        self.journal = None;
        self.write_generation(memory, covered)
    }

    /// Writes a whole generation.
    fn write_all(&mut self, memory: &ActiveFilters, covered: Coverage) -> Result<()> {
        // The drained hashes go to no journal, so no journal may continue from the existing ones.
        let before = (self.journal.take(), self.is_attached, self.is_fresh);
        self.is_attached = false;
        if let Err(error) = self.write_to_end(memory, covered) {
            // They continue themselves, unless a `CHECKPOINT` without them may exist.
            if !self.is_checkpoint_unsure {
                (self.journal, self.is_attached, self.is_fresh) = before;
            }
            return Err(error);
        }
        self.unwritten.clear();
        self.covered = covered;
        self.gauges.flushes.add(1);
        Ok(())
    }

    fn write_to_end(&mut self, memory: &ActiveFilters, covered: Coverage) -> Result<()> {
        self.begin(memory, covered)?;
        while !self.write_some(u64::MAX)? {}
        Ok(())
    }

    /// Does one step of the pending writes. Returns whether there were pending writes.
    pub(crate) fn step(&mut self, memory: &ActiveFilters) -> Result<bool> {
        if self.current_generation.is_some() {
            self.write_some(self.options.step_pages())?;
            return Ok(true);
        }
        if self.generation_requested {
            self.begin(memory, self.covered)?;
            return Ok(true);
        }
        if let Some(live) = self.orphans_beside.take()
            && self.directory.has_obsolete(&live)
        {
            // The found files may be readable and not yet durable.
            if let Err(error) = self.directory.sync() {
                self.orphans_beside = Some(live);
                return Err(error);
            }
            self.directory.remove_obsolete(&live);
            return Ok(true);
        }
        Ok(false)
    }

    /// Begins a generation, and drops a generation in progress.
    fn begin(&mut self, memory: &ActiveFilters, covered: Coverage) -> Result<()> {
        self.current_generation = None;
        self.generation_requested = true;
        // From here on it is unknown which other files are needed; the generation cleans up itself.
        self.orphans_beside = None;
        let view = memory.view();
        for lines in view.first.iter().chain(&view.second) {
            while lines.read_some(u64::MAX) {}
        }
        self.begin_journal()?;
        let cursor = self.cursor.clone().filter(|_| view.second.is_some());
        let (first, second) = (view.first.as_ref(), view.second.as_ref());
        let begun = GenerationWriter::begin(&mut self.directory, first, second, covered, cursor)?;
        self.current_generation = Some(begun);
        self.generation_requested = false;
        Ok(())
    }

    /// Ensures that flushes go to a journal that begins with the next generation.
    fn begin_journal(&mut self) -> Result<()> {
        if self.is_fresh && self.journal.as_ref().is_some_and(Journal::is_sound) {
            // Files of a failed generation. Memory has the hashes of the journals before it.
            return Ok(());
        }
        self.create_journal()
    }

    /// Creates a journal, to which flushes go from now on.
    fn create_journal(&mut self) -> Result<()> {
        let (id, key, file) = self.directory.create(FilterFileKind::Journal)?;
        let next = Journal::begin(file, id, key)?;
        self.directory.sync()?;
        let attached = self.is_attached;
        let old = self.journal.as_mut().filter(|file| attached && file.is_sound());
        self.is_attached = old.is_some_and(|old| {
            let continued = old.continue_in(&next, self.covered);
            continued.is_ok_and(|bytes| {
                self.gauges.bytes_written.add(bytes);
                true
            })
        });
        self.journal = Some(next);
        self.is_fresh = true;
        Ok(())
    }

    /// Commits a generation whose filter files are written.
    fn commit_written(&mut self, generation: &GenerationWriter) -> Result<()> {
        fail_point!("existence-start-journal-after-filter", |_| {
            self.create_journal().and_then(|()| self.commit(generation))
        });
        self.commit(generation)
    }

    /// Writes up to about `pages_max` pages of the generation in progress, or completes it. Returns
    /// whether the generation is complete. After an error it is dropped, and a new generation is
    /// due.
    fn write_some(&mut self, pages_max: u64) -> Result<bool> {
        let Some(mut generation) = self.current_generation.take() else { return Ok(true) };
        let result = if generation.is_written() {
            self.commit_written(&generation).map(|()| true)
        } else {
            generation.write_some(pages_max).map(|bytes| {
                self.gauges.bytes_written.add(bytes);
                false
            })
        };
        match &result {
            Ok(false) => self.current_generation = Some(generation),
            Ok(true) => {}
            Err(_) => self.generation_requested = true,
        }
        result
    }

    fn commit(&mut self, generation: &GenerationWriter) -> Result<()> {
        let Some(journal) = &self.journal else {
            return Err(Error::invalid("internal: a generation has no journal to continue"));
        };
        let (first, second) = generation.file_metas();
        let checkpoint = Checkpoint {
            generation: self.generation.saturating_add(1),
            next_id: self.directory.next_id,
            store: self.options.store,
            hash: self.options.hash,
            covered: generation.covered,
            journal: (journal.id, journal.key),
            first,
            second,
            cursor: generation.cursor.clone(),
        };
        let bytes = checkpoint.encode();
        // The names of the filter files and of the journal, before one points at them.
        self.directory.sync()?;
        self.is_checkpoint_unsure = true;
        self.directory.replace_checkpoint(&bytes)?;
        self.is_checkpoint_unsure = false;
        self.generation = checkpoint.generation;
        self.is_attached = true;
        self.is_fresh = false;
        self.gauges.generations.add(1);
        self.gauges.bytes_written.add(bytes.len() as u64);
        let mut live: BTreeSet<String> = generation.attach_files().into_iter().collect();
        live.insert(name_of(FilterFileKind::Journal, journal.id));
        self.directory.remove_obsolete(&live);
        Ok(())
    }
}

/// Appends the hashes that are in no file yet to the journal, and removes them from `unwritten`.
/// Returns the number of bytes. After an error the hashes stay in `unwritten` for a later flush.
fn append_hashes(
    journal: &mut Journal,
    unwritten: &mut Vec<u64>,
    (before, covered): (Coverage, Coverage),
) -> Result<u64> {
    fail_point!("existence-forget-failed-flush", |_| {
        journal.append(&std::mem::take(unwritten), before, covered)
    });
    let bytes = journal.append(unwritten, before, covered)?;
    unwritten.clear();
    Ok(bytes)
}
