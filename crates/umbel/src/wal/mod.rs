//! The write-ahead log (WAL) as a sequence of segments.
//!
//! Segments are prepared before writers need them: `wal_recycling` does the tasks that this module
//! requests, on a thread of its own if the store has threads.
//!
//! INVARIANTS:
//! 1. A durable manifest edit names a segment before its first record.
//! 2. A segment is never synced before every older segment, except for its header, which says
//!    nothing about other segments.
//! 3. Syncs happen outside the commit lock; one thread syncs for all waiting writers.
//! 4. Segments are written in the order of their ids. When a segment gets its first record, the
//!    manifest names no empty segment with a lower id, since recovery would stop at it.

mod disk_full;
mod group_sync;
mod segment_files;
mod segment_seal;
mod segment_switch;
mod segment_types;
mod wal_options;
mod worker_signal;
mod write_back;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use umbel_base::{Error, Result, SequenceNumber};
use umbel_env::{Env, File, Mapping};
use umbel_filter::HashSecret;
use umbel_log::LogWriter;

use crate::fs::fatal_error::FatalError;
use crate::fs::obsolete_files::ObsoleteFiles;
use crate::version::Manifest;

pub use group_sync::{GroupSync, UnsyncedTail};
pub use segment_files::{create, log_options, read};
pub use segment_types::{OldSegment, ReclaimableSegments, RecyclableSegment, WalStats, WalTask};
pub use wal_options::{SegmentSize, WalOptions};
pub use worker_signal::{Wakeup, WorkerSignal};
use write_back::WriteBack;

/// Maximum size of the first segment, and of the spare segment of an idle WAL. Each further segment
/// is at most twice as long as the one before, up to the configured size.
const FIRST_SEGMENT_BYTES_MAX: u64 = 4 << 20;
/// A segment that is longer than the first one has at most one part in this number of the most
/// bytes that the WAL has had, so that prepared space is a small share of the WAL.
const GROWTH_SHARE: u64 = 4;
/// While memtables are flushed early, a segment has at most one part in this number of the tables'
/// bytes.
const EARLY_FLUSH_SEGMENT_SHARE: u64 = 16;
/// Minimum and maximum of the bytes of the current segment whose pages are populated in advance.
const AHEAD_BYTES: (u64, u64) = (64 << 10, 1 << 20);

/// The segments of the WAL, which the commit lock guards.
#[derive(Debug)]
pub struct Wal {
    env: Env,
    folder: PathBuf,
    /// Maximum bytes of a segment, unless a record needs more.
    segment_bytes: SegmentSize,
    secret: HashSecret,
    ids: Arc<AtomicU64>,
    /// Set that takes files that no edit names any more.
    obsolete: Arc<ObsoleteFiles>,
    fatal_error: Arc<FatalError>,
    has_worker: bool,
    current: Option<LogWriter>,
    /// Bytes at the end of the current segment that only batches that free space may use.
    reserve_bytes: usize,
    /// Whether the truncation of a partial record after a full disk could not be made durable.
    is_truncation_lost: bool,
    /// Empty segments that the manifest names, in the order of their ids.
    spares: VecDeque<LogWriter>,
    /// Spare segments to be dropped, because the disk had no space for the edit that drops them. No
    /// spare segment is begun before they are dropped.
    released_spares: Vec<LogWriter>,
    reusable: Option<RecyclableSegment>,
    /// Mappings of old segments, which a task unmaps.
    retired: Vec<Box<dyn Mapping>>,
    write_back: WriteBack,
    /// Files to truncate, with their new lengths.
    to_truncate: Vec<(Arc<dyn File>, u64)>,
    tail: Arc<UnsyncedTail>,
    last_sequence: SequenceNumber,
    old: Vec<OldSegment>,
    /// Id of the newest segment that was begun.
    newest_id: u64,
    /// Offset in the current segment at which WAL tasks become due.
    task_at: u64,
    /// Offset in the current segment at which a spare segment is made.
    spare_at: u64,
    /// Whether the prepared space was released and little was written since.
    is_idle: bool,
    /// Bytes of the spare segment of an idle WAL.
    idle_segment_bytes: u64,
    /// Limit of the prepared bytes, until the next segment begins.
    prepared_bytes_max: u64,
    /// The most bytes that the WAL has had at the start of a segment.
    bytes_max: u64,
    /// Limit of the size of new segments while memtables are flushed early.
    early_flush_bytes_max: Option<u64>,
    /// Whether the next append makes a task due, so that the worker notices that writes go on.
    notifies_at_append: bool,
    /// Whether pages of the current segment must be populated.
    needs_populate: bool,
    /// Whether a WAL task became due.
    is_task_due: bool,
    /// Number of releases whose segments the manifest possibly still names.
    pending_releases: usize,
    stats: WalStats,
}

impl Wal {
    /// Creates a WAL. `old` are its earlier segments, which recovery has read and which are
    /// durable.
    pub fn new(options: WalOptions, old: Vec<OldSegment>) -> Wal {
        let last_sequence = old.iter().map(|segment| segment.last_sequence).max().unwrap_or(0);
        Wal {
            env: options.env,
            folder: options.folder,
            segment_bytes: options.segment_bytes,
            secret: options.secret,
            ids: options.ids,
            obsolete: options.obsolete,
            fatal_error: options.fatal_error,
            has_worker: options.has_worker,
            current: None,
            reserve_bytes: 0,
            is_truncation_lost: false,
            spares: VecDeque::new(),
            released_spares: Vec::new(),
            reusable: None,
            retired: Vec::new(),
            write_back: WriteBack::default(),
            to_truncate: Vec::new(),
            tail: Arc::new(UnsyncedTail::new(last_sequence)),
            last_sequence,
            newest_id: old.iter().map(|segment| segment.id).max().unwrap_or(0),
            old,
            task_at: 0,
            spare_at: 0,
            is_idle: false,
            idle_segment_bytes: 0,
            prepared_bytes_max: u64::MAX,
            bytes_max: 0,
            early_flush_bytes_max: None,
            notifies_at_append: false,
            needs_populate: false,
            is_task_due: false,
            pending_releases: 0,
            stats: WalStats::default(),
        }
    }

    /// Returns the part of the WAL that a sync must cover.
    pub fn tail(&self) -> Arc<UnsyncedTail> {
        Arc::clone(&self.tail)
    }

    /// Whether a record with a payload of `payload_bytes` needs a new segment first.
    #[inline]
    fn needs_segment(&self, payload_bytes: usize) -> bool {
        let with_reserve = payload_bytes.saturating_add(self.reserve_bytes);
        self.current.as_ref().is_none_or(|writer| !writer.fits(with_reserve))
    }

    /// Appends one record, after a switch to another segment if the current one is full. `first`
    /// and `last` are the first and last sequence number of the record's operations. An error that
    /// is not fatal for the store leaves the WAL as it was.
    #[inline]
    pub fn append(
        &mut self,
        (first, last): (SequenceNumber, SequenceNumber),
        payload: &[&[u8]],
        manifest: &Mutex<Manifest>,
        frees_space: impl Fn() -> bool,
    ) -> Result<u64> {
        let payload_bytes = payload.iter().map(|part| part.len()).sum();
        if self.needs_segment(payload_bytes) {
            self.switch_segment(manifest, payload_bytes, frees_space())?;
        }
        let appended = self.append_to_current(first, last, payload);
        appended.map_err(|error| self.fatal_unless_full(error))
    }

    /// Appends one record to the current segment. After [`Error::DiskFull`] the WAL is as it was,
    /// if it [is writable](Wal::is_writable). REQUIRES: the record fits.
    #[inline]
    fn append_to_current(
        &mut self,
        first: SequenceNumber,
        last: SequenceNumber,
        payload: &[&[u8]],
    ) -> Result<u64> {
        let writer = self.current.as_mut().expect("the caller started a segment");
        let before = writer.end();
        let end = match writer.append(first, payload) {
            Ok(appended) => appended.end,
            Err(error) => return Err(self.sync_truncation(error)),
        };
        self.last_sequence = last;
        self.tail.set_through(last);
        if end >= self.task_at {
            self.note_task_due(end);
        }
        Ok(end - before)
    }

    #[cold]
    fn note_task_due(&mut self, end: u64) {
        let populates = self.has_worker && self.current.as_ref().is_some_and(LogWriter::is_mapped);
        self.task_at = if populates { end + ahead(end) } else { u64::MAX };
        if end < self.spare_at {
            self.task_at = self.task_at.min(self.spare_at);
        }
        self.is_idle &= end < self.spare_at;
        self.needs_populate |= populates;
        let notifies = std::mem::take(&mut self.notifies_at_append);
        self.is_task_due |= populates || notifies || end >= self.spare_at;
    }

    /// Returns whether WAL tasks became due since the last call.
    #[inline]
    pub fn take_task_due(&mut self) -> bool {
        std::mem::take(&mut self.is_task_due)
    }

    /// Returns the bytes of the next segment.
    fn next_bytes(&self) -> u64 {
        let current = self.current.as_ref().map_or(0, LogWriter::capacity);
        if self.is_idle && current == 0 {
            return self.idle_segment_bytes;
        }
        let limit = self.early_flush_bytes_max.unwrap_or(u64::MAX).min(self.segment_bytes.next());
        // A power of two, so that files of dropped segments can be reused.
        let share = (self.bytes_max / GROWTH_SHARE).checked_ilog2().map_or(0, |bits| 1 << bits);
        self.small_bytes().max(current.saturating_mul(2).min(share).min(limit))
    }

    /// Limits the size of new segments, because memtables are flushed before they are full. The
    /// limit is about one part in a number of `table_bytes`, the bytes of all tables. It is a power
    /// of two, so that files of dropped segments can be reused.
    pub fn limit_segments(&mut self, table_bytes: u64) {
        let limit = FIRST_SEGMENT_BYTES_MAX.max(table_bytes / EARLY_FLUSH_SEGMENT_SHARE);
        self.early_flush_bytes_max = Some(1 << limit.ilog2());
    }

    /// Ends the limit of the size of segments, because memtables are flushed when they are full.
    pub fn lift_segment_limit(&mut self) {
        self.early_flush_bytes_max = None;
    }

    /// Returns the limit of the prepared bytes if they exceed it by far, because the segments are
    /// from a time when they could be larger.
    pub fn excess_allowance(&self) -> Option<u64> {
        let allowance = self.early_flush_bytes_max?.saturating_mul(4);
        (self.spare_bytes() > allowance).then_some(allowance)
    }

    /// Makes a task due at the next append. Returns `false`, with nothing done, if there was an
    /// append after the write with number `sequence`.
    pub fn notify_at_append_after(&mut self, sequence: SequenceNumber) -> bool {
        let is_newest = self.last_sequence == sequence;
        if is_newest {
            (self.notifies_at_append, self.task_at) = (true, 0);
        }
        is_newest
    }

    /// Returns the bytes of the first segment.
    pub fn small_bytes(&self) -> u64 {
        FIRST_SEGMENT_BYTES_MAX.min(self.segment_bytes.next())
    }

    /// Returns the next WAL task to do.
    pub fn next_task(&mut self) -> Option<WalTask> {
        if std::mem::take(&mut self.needs_populate)
            && let Some(writer) = &self.current
            && let Some(populator) = writer.prefaulter()
        {
            return Some(WalTask::Populate(populator, writer.end() + 2 * ahead(writer.end())));
        }
        if !self.retired.is_empty() {
            return Some(WalTask::Unmap(std::mem::take(&mut self.retired)));
        }
        let current = self.current.as_ref().filter(|_| self.has_worker);
        if let Some(task) = self.write_back.next(current) {
            return Some(task);
        }
        if let Some((file, len)) = self.to_truncate.pop() {
            return Some(WalTask::Truncate(file, len));
        }
        let is_due = match &self.current {
            Some(writer) => writer.end() >= self.spare_at,
            None => self.is_idle && self.spare_at < u64::MAX,
        };
        let pending = self.spares.len() + self.released_spares.len() + self.pending_releases;
        if !is_due || pending > 0 {
            return None;
        }
        // No retry after a failure.
        self.spare_at = u64::MAX;
        let bytes = self.next_bytes();
        Some(WalTask::CreateSpare(bytes, self.reusable.take_if(|file| file.bytes == bytes)))
    }

    /// Takes a spare segment, which the manifest names. Returns the segment if it comes too late: a
    /// newer segment has records, or writes have stopped and the segment is too long for an idle
    /// WAL.
    pub fn add_spare(&mut self, writer: LogWriter, is_reused: bool) -> Option<LogWriter> {
        let is_too_long = self.is_idle && writer.capacity() > self.small_bytes();
        if writer.log_id() < self.newest_id || is_too_long {
            return Some(writer);
        }
        match is_reused {
            true => self.stats.reused += 1,
            false => self.stats.made += 1,
        }
        self.spares.push_back(writer);
        None
    }

    /// Takes the file of a dropped segment for reuse if one of its size is needed. Returns the id
    /// of the file to remove: this one, or one of another size that it replaces.
    pub fn offer_for_reuse(&mut self, segment: &OldSegment) -> Option<u64> {
        let (bytes, held) = (segment.reusable_bytes, self.reusable.map_or(0, |file| file.bytes));
        let is_needed = self.current.is_some()
            && bytes > 0
            && bytes == self.next_bytes()
            && bytes != held
            && bytes + self.spare_bytes() - held <= self.prepared_bytes_max;
        if !is_needed {
            return Some(segment.id);
        }
        self.reusable.replace(RecyclableSegment { id: segment.id, bytes }).map(|file| file.id)
    }

    /// Prepared bytes of the WAL that hold no record.
    fn spare_bytes(&self) -> u64 {
        let current = self.current.as_ref().map_or(0, |writer| writer.capacity() - writer.end());
        let spares: u64 = self.spares.iter().map(LogWriter::capacity).sum();
        current + spares + self.reusable.map_or(0, |file| file.bytes)
    }

    /// Releases the prepared space beyond `allowance` bytes, because writes have stopped: the
    /// caller drops it from the manifest and removes it. Where `is_flushed` says that all writes
    /// are in tables, the written part of the current segment counts, too. After a failure the
    /// caller sets the fatal error.
    pub fn release_idle(
        &mut self,
        allowance: u64,
        is_flushed: bool,
    ) -> Result<ReclaimableSegments> {
        self.prepared_bytes_max = allowance.max(FIRST_SEGMENT_BYTES_MAX);
        let written = self.current.as_ref().map_or(0, LogWriter::end);
        let written = if is_flushed { written } else { 0 };
        if self.spare_bytes() + written <= allowance && self.released_spares.is_empty() {
            return Ok(ReclaimableSegments::default());
        }
        let mut spares: Vec<_> = std::mem::take(&mut self.spares).into();
        spares.append(&mut self.released_spares);
        let surplus = ReclaimableSegments { spares, reusable: self.reusable.take() };
        if self.spare_bytes() + written > allowance {
            match self.retire_current() {
                // The segment keeps its length.
                Err(Error::DiskFull { .. }) if self.is_writable() => return Ok(surplus),
                retired => retired?,
            }
            self.truncate_last();
            self.spare_at = 0;
        } else if let Some(writer) = &self.current {
            // Makes the next one when half of the rest is written.
            let left = writer.capacity() - writer.end();
            self.spare_at = writer.end() + left.saturating_sub(self.reserve_bytes as u64) / 2;
            self.task_at = self.task_at.min(self.spare_at);
        }
        self.idle_segment_bytes = allowance.min(self.small_bytes());
        (self.is_idle, self.is_task_due) = (true, true);
        Ok(surplus)
    }

    /// Returns the newest sequence number in the WAL.
    pub fn last_sequence(&self) -> SequenceNumber {
        self.last_sequence
    }

    /// Removes from the list, and returns, the old segments in which every write is at or below
    /// `sequence`, oldest first.
    pub fn take_obsolete(&mut self, sequence: SequenceNumber) -> Vec<OldSegment> {
        let count = self.old.iter().take_while(|s| s.last_sequence <= sequence).count();
        self.old.drain(..count).collect()
    }

    /// Records that segments were removed from this list which the manifest names until
    /// [`Wal::note_released`]. Until then a sync covers these segments, so that no newer segment is
    /// durable before them.
    pub fn begin_release(&mut self) {
        self.pending_releases += 1;
    }

    /// Cancels a release, because the disk has no space for its edit.
    pub fn cancel_release(&mut self, obsolete: Vec<OldSegment>, surplus: ReclaimableSegments) {
        self.pending_releases -= 1;
        self.old.splice(..0, obsolete);
        self.released_spares.extend(surplus.spares);
        self.reusable = self.reusable.or(surplus.reusable);
    }

    /// Records that no edit names the released segments any more.
    pub fn note_released(&mut self, obsolete: &[OldSegment]) {
        self.pending_releases -= 1;
        self.is_task_due = true;
        obsolete.iter().for_each(|segment| self.tail.remove(segment.id));
    }

    /// Returns the number of old segments, their bytes, and the newest sequence number of the
    /// oldest segment.
    pub fn old_summary(&self) -> (usize, u64, Option<SequenceNumber>) {
        let bytes = self.old.iter().map(|segment| segment.bytes).sum();
        (self.old.len(), bytes, self.old.first().map(|segment| segment.last_sequence))
    }

    /// Returns the newest sequence number and the bytes of each old segment, oldest first.
    pub fn old_sizes(&self) -> impl Iterator<Item = (SequenceNumber, u64)> + '_ {
        self.old.iter().map(|segment| (segment.last_sequence, segment.bytes))
    }

    /// Bytes of the segments that are still needed; of the current segment only the written part
    /// counts.
    pub fn live_bytes(&self) -> u64 {
        self.old_summary().1 + self.current.as_ref().map_or(0, LogWriter::end)
    }

    /// Approximate bytes of memory of the current segment's mapping: written pages that are not
    /// evicted yet, and populated pages.
    pub fn mapped_bytes(&self) -> u64 {
        let bytes =
            |writer: &LogWriter| (writer.end() + 2 * ahead(writer.end())).min(writer.capacity());
        self.current.as_ref().map_or(0, bytes).saturating_sub(self.write_back.begun())
    }

    /// Statistics of the WAL.
    pub fn stats(&self) -> WalStats {
        WalStats { spare_bytes: self.spare_bytes(), ..self.stats.clone() }
    }
}

/// Number of bytes after offset `end` of the current segment that are populated. The number grows
/// with `end`.
fn ahead(end: u64) -> u64 {
    end.clamp(AHEAD_BYTES.0, AHEAD_BYTES.1)
}

#[cfg(test)]
mod tests;
