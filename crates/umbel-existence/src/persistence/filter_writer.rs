//! [`Writer`]: makes durable what is in memory. One thread at a time uses it.
//!
//! A flush appends hashes to the journal. When that has become long, a new generation of the filter
//! files is written, beside which flushes go on.
//!
//! INVARIANT, with "leads to" for: is named by the durable `CHECKPOINT`, or by a durable record in
//! a journal that it leads to:
//! 1. Every hash that a successful flush covered is in a filter file or a journal that the durable
//!    `CHECKPOINT` leads to. So a position is only ever promised *behind* what it covers: in the
//!    same record or a later one, or in a `CHECKPOINT` that names files which were durable before.
//! 2. A generation begins with a journal of its own, and only then looks at the filters: a hash
//!    flushed earlier is in the filter files, one flushed later in that journal or behind it.
//! 3. Hashes that a failed flush had taken stay in `unwritten`, and no later flush succeeds without
//!    them.
//! 4. A file of which a sync failed is not written again, and nothing relies on it.
//! 5. From a journal only another one goes on that lacks nothing flushed in between. So what is in
//!    a generation alone, and in no journal, ends the chain: if an old `CHECKPOINT` and its files
//!    ever come back, they do not lead over that hole to the promises behind it.
//! 6. Nothing is removed that the last durable `CHECKPOINT` leads to. Where it is not known which
//!    of two is durable, nothing is removed at all.

use std::collections::BTreeSet;
use std::sync::Arc;

use umbel_base::{Error, Result};

use crate::checkpoint::Checkpoint;
use crate::covered::Covered;
use crate::folder::{Folder, Kind, name_of};
use crate::generation::Generation;
use crate::journal::Journal;
use crate::memory::Memory;
use crate::options::ExistenceOptions;
use crate::tally::Tally;

/// A journal is never too long below this.
const JOURNAL_BYTES_MIN: u64 = 16 * 1024;
/// A journal is too long from this part of the filter's bytes on.
pub(crate) const JOURNAL_SHARE: u64 = 32;

/// What an open finds, for a writer to go on with.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) generation: u64,
    pub(crate) covered: Covered,
    pub(crate) journal: Option<Journal>,
    pub(crate) cursor: Option<Vec<u8>>,
    /// The files that the `CHECKPOINT` leads to.
    pub(crate) live: BTreeSet<String>,
}

/// Makes durable what is in memory.
#[derive(Debug)]
pub(crate) struct Writer {
    folder: Folder,
    options: ExistenceOptions,
    tally: Arc<Tally>,
    generation: u64,
    covered: Covered,
    journal: Option<Journal>,
    /// Whether the durable `CHECKPOINT` leads to the journal.
    is_attached: bool,
    /// Whether the journal was begun for a generation that is not there yet.
    is_fresh: bool,
    /// Whether an attempt to replace `CHECKPOINT` failed: the old or the new one may be durable.
    is_checkpoint_unsure: bool,
    /// Taken from memory, in no file.
    unwritten: Vec<u64>,
    under_way: Option<Generation>,
    /// Up to where the source is in the second filter.
    cursor: Option<Vec<u8>>,
    /// Whether a new generation is to be written.
    is_due: bool,
    /// The files that the `CHECKPOINT` found at the open leads to, until others were looked for.
    leftovers_beside: Option<BTreeSet<String>>,
}

impl Writer {
    pub(crate) fn new(
        folder: Folder,
        options: ExistenceOptions,
        tally: Arc<Tally>,
        found: Found,
    ) -> Writer {
        tally.covered.set(found.covered.position);
        Writer {
            folder,
            options,
            tally,
            generation: found.generation,
            covered: found.covered,
            is_attached: found.journal.is_some(),
            journal: found.journal,
            is_fresh: false,
            is_checkpoint_unsure: false,
            unwritten: Vec::new(),
            under_way: None,
            cursor: found.cursor,
            is_due: false,
            leftovers_beside: Some(found.live),
        }
    }

    /// Up to where the source is in the second filter.
    pub(crate) fn cursor(&self) -> Option<&[u8]> {
        self.cursor.as_deref()
    }

    /// Notes up to where the source is in the second filter.
    ///
    /// REQUIRES: it is in memory.
    pub(crate) fn set_cursor(&mut self, cursor: Option<Vec<u8>>) {
        self.cursor = cursor;
    }

    /// Asks for a new generation.
    pub(crate) fn want_generation(&mut self) {
        self.is_due = true;
    }

    /// Makes everything inserted so far durable, and that it covers the log up to there.
    pub(crate) fn flush(&mut self, memory: &Memory, covered: Covered) -> Result<()> {
        memory.drain(&mut self.unwritten);
        let result = self.flush_drained(memory, covered);
        self.tally.unwritten.set(self.unwritten.len() as u64);
        self.tally.covered.set(self.covered.position);
        result
    }

    /// As [`Writer::flush`] where there is a journal to append to; else has a generation begin with
    /// the next step, if none is under way, and says `false`.
    pub(crate) fn flush_briefly(&mut self, memory: &Memory, covered: Covered) -> Result<bool> {
        let is_brief = self.is_attached && self.journal.as_ref().is_some_and(Journal::is_sound);
        if !is_brief {
            self.is_due |= self.under_way.is_none();
            return Ok(false);
        }
        self.flush(memory, covered).map(|()| true)
    }

    fn flush_drained(&mut self, memory: &Memory, covered: Covered) -> Result<()> {
        let covered = self.covered.and(covered);
        let (attached, before) = (self.is_attached, self.covered);
        let Some(journal) = self.journal.as_mut().filter(|file| attached && file.is_sound()) else {
            return self.write_all(memory, covered);
        };
        if self.unwritten.is_empty() && covered == self.covered {
            return Ok(());
        }
        let appended = journal.append(&self.unwritten, before, covered);
        #[cfg(feature = "canary")]
        if umbel_base::canary::Switch::ExistenceForgetsFailedFlush.is_on() {
            self.unwritten.clear();
        }
        let bytes = appended?;
        let journal_bytes = journal.bytes();
        self.unwritten.clear();
        self.covered = covered;
        self.tally.flushes.add(1);
        self.tally.bytes_written.add(bytes);
        self.is_due |= journal_bytes > self.journal_bytes_max(memory);
        Ok(())
    }

    fn journal_bytes_max(&self, memory: &Memory) -> u64 {
        let view = memory.view();
        let target = view.second.as_ref().or(view.first.as_ref());
        let bytes = target.map_or(0, |lines| lines.shape().bytes());
        (bytes / JOURNAL_SHARE).max(JOURNAL_BYTES_MIN)
    }

    /// Makes everything durable in a generation of its own, now.
    pub(crate) fn write_now(&mut self, memory: &Memory, covered: Covered) -> Result<()> {
        memory.drain(&mut self.unwritten);
        let result = self.write_all(memory, self.covered.and(covered));
        self.tally.unwritten.set(self.unwritten.len() as u64);
        self.tally.covered.set(self.covered.position);
        result
    }

    /// Moves what is promised back, durably.
    pub(crate) fn truncate(&mut self, memory: &Memory, covered: Covered) -> Result<()> {
        if covered.position >= self.covered.position {
            return Ok(());
        }
        self.covered = covered;
        // Until this is durable no flush may go to a journal that promises more.
        self.is_attached = false;
        self.journal = None;
        self.write_now(memory, covered)
    }

    /// Writes a generation from beginning to end.
    fn write_all(&mut self, memory: &Memory, covered: Covered) -> Result<()> {
        // What was drained goes to no journal, so nothing may go on from those there are.
        let before = (self.journal.take(), self.is_attached, self.is_fresh);
        self.is_attached = false;
        if let Err(error) = self.write_to_end(memory, covered) {
            // They go on themselves, unless a `CHECKPOINT` that does not know them may be there.
            if !self.is_checkpoint_unsure {
                (self.journal, self.is_attached, self.is_fresh) = before;
            }
            return Err(error);
        }
        self.unwritten.clear();
        self.covered = covered;
        self.tally.flushes.add(1);
        Ok(())
    }

    fn write_to_end(&mut self, memory: &Memory, covered: Covered) -> Result<()> {
        self.begin(memory, covered)?;
        while !self.write_some(u64::MAX)? {}
        Ok(())
    }

    /// One step of what there is to write. Says whether there was something.
    pub(crate) fn step(&mut self, memory: &Memory) -> Result<bool> {
        if self.under_way.is_some() {
            self.write_some(self.options.step_pages())?;
            return Ok(true);
        }
        if self.is_due {
            self.begin(memory, self.covered)?;
            return Ok(true);
        }
        if let Some(live) = self.leftovers_beside.take()
            && self.folder.has_others(&live)
        {
            // What was found may be readable and not yet durable.
            if let Err(error) = self.folder.sync() {
                self.leftovers_beside = Some(live);
                return Err(error);
            }
            self.folder.remove_others(&live);
            return Ok(true);
        }
        Ok(false)
    }

    /// Begins a generation. One that is under way is given up.
    fn begin(&mut self, memory: &Memory, covered: Covered) -> Result<()> {
        self.under_way = None;
        self.is_due = true;
        // From here on it is not known what else may be needed; the generation tidies up itself.
        self.leftovers_beside = None;
        let view = memory.view();
        for lines in view.first.iter().chain(&view.second) {
            while lines.read_some(u64::MAX) {}
        }
        self.begin_journal()?;
        let cursor = self.cursor.clone().filter(|_| view.second.is_some());
        let (first, second) = (view.first.as_ref(), view.second.as_ref());
        let begun = Generation::begin(&mut self.folder, first, second, covered, cursor)?;
        self.under_way = Some(begun);
        self.is_due = false;
        Ok(())
    }

    /// Sees to it that flushes go to a journal that begins with the next generation.
    fn begin_journal(&mut self) -> Result<()> {
        if self.is_fresh && self.journal.as_ref().is_some_and(Journal::is_sound) {
            // Of a generation that failed. What the journals before it have is in memory.
            return Ok(());
        }
        let (id, key, file) = self.folder.create(Kind::Journal)?;
        let next = Journal::begin(file, id, key)?;
        self.folder.sync()?;
        let attached = self.is_attached;
        let old = self.journal.as_mut().filter(|file| attached && file.is_sound());
        self.is_attached = old.is_some_and(|old| {
            let continued = old.continue_in(&next, self.covered);
            continued.is_ok_and(|bytes| {
                self.tally.bytes_written.add(bytes);
                true
            })
        });
        self.journal = Some(next);
        self.is_fresh = true;
        Ok(())
    }

    /// Writes up to about `most` pages of the generation under way, or ends it. Says whether it is
    /// ended. After an error it is given up, and another one is due.
    fn write_some(&mut self, most: u64) -> Result<bool> {
        let Some(mut generation) = self.under_way.take() else { return Ok(true) };
        let result = if generation.is_written() {
            self.commit(&generation).map(|()| true)
        } else {
            generation.write_some(most).map(|bytes| {
                self.tally.bytes_written.add(bytes);
                false
            })
        };
        match &result {
            Ok(false) => self.under_way = Some(generation),
            Ok(true) => {}
            Err(_) => self.is_due = true,
        }
        result
    }

    fn commit(&mut self, generation: &Generation) -> Result<()> {
        #[cfg(feature = "canary")]
        if umbel_base::canary::Switch::ExistenceJournalBehindFilter.is_on() {
            self.is_fresh = false;
            self.begin_journal()?;
        }
        let Some(journal) = &self.journal else {
            return Err(Error::invalid("a generation has no journal to go on with"));
        };
        let (first, second) = generation.stored();
        let checkpoint = Checkpoint {
            generation: self.generation.saturating_add(1),
            next_id: self.folder.next_id,
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
        self.folder.sync()?;
        self.is_checkpoint_unsure = true;
        self.folder.replace_checkpoint(&bytes)?;
        self.is_checkpoint_unsure = false;
        self.generation = checkpoint.generation;
        self.is_attached = true;
        self.is_fresh = false;
        self.tally.generations.add(1);
        self.tally.bytes_written.add(bytes.len() as u64);
        let mut live: BTreeSet<String> = generation.keep().into_iter().collect();
        live.insert(name_of(Kind::Journal, journal.id));
        self.folder.remove_others(&live);
        Ok(())
    }
}
