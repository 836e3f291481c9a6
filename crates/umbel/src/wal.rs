//! The write-ahead log as a row of segments, and the one sync that serves all who wait.
//!
//! INVARIANTS:
//! 1. A segment is named by a durable manifest edit before a record is put in it.
//! 2. A newer segment is never synced before every older one is.
//! 3. Syncs happen outside the commit lock; one thread syncs for all who wait.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use umbel_base::{Error, Result, SequenceNumber};
use umbel_env::{Env, File};
use umbel_log::{
    END_RECORD_BYTES, HEADER_BYTES, LogKind, LogOptions, LogWriter, Sealed, record_bytes,
};

use crate::counters::{StoreCounters, add};
use crate::names;
use crate::poison::Poison;
use crate::version::{Edit, LogState, Manifest};

/// Bytes of a segment where the disk has no room for one of the usual size.
const SMALL_SEGMENT_BYTES: u64 = 1 << 20;

/// A segment that no longer grows.
#[derive(Debug)]
pub struct OldSegment {
    /// Its id.
    pub id: u64,
    /// The newest sequence number in it.
    pub last_sequence: SequenceNumber,
    /// Its length in bytes.
    pub bytes: u64,
    /// Its file while it is not known to be durable.
    unsynced: Option<Arc<dyn File>>,
    /// Where it ends, until the manifest knows.
    unrecorded: Option<Sealed>,
}

/// The segments. Lives under the commit lock.
#[derive(Debug)]
pub struct Wal {
    env: Env,
    folder: PathBuf,
    segment_bytes: u64,
    ids: Arc<AtomicU64>,
    current: Option<LogWriter>,
    last_sequence: SequenceNumber,
    old: Vec<OldSegment>,
}

/// What one sync has to cover, taken under the commit lock.
#[derive(Debug)]
pub struct SyncWork {
    files: Vec<Arc<dyn File>>,
    old_ids: Vec<u64>,
    current: Option<(u64, u64)>,
    through: SequenceNumber,
}

impl Wal {
    /// A log whose earlier segments, read by recovery and durable, are `old`.
    pub fn new(
        env: Env,
        folder: PathBuf,
        segment_bytes: u64,
        ids: Arc<AtomicU64>,
        old: Vec<OldSegment>,
    ) -> Wal {
        let last_sequence = old.iter().map(|segment| segment.last_sequence).max().unwrap_or(0);
        Wal { env, folder, segment_bytes, ids, current: None, last_sequence, old }
    }

    /// Whether a record with this payload needs a new segment first.
    pub fn needs_segment(&self, payload_bytes: usize) -> bool {
        self.current.as_ref().is_none_or(|writer| !writer.fits(payload_bytes))
    }

    /// Creates the file of a segment that `payload_bytes` fit in; on a disk too full for one of the
    /// usual size a smaller one. A failure leaves the log as it was, so that the caller may try
    /// again after making room.
    pub fn create_segment(&mut self, payload_bytes: usize) -> Result<LogWriter> {
        let least = HEADER_BYTES + record_bytes(payload_bytes as u64) + END_RECORD_BYTES;
        let usual = self.segment_bytes.max(least);
        let small = SMALL_SEGMENT_BYTES.max(least);
        match self.create_segment_of(usual) {
            Err(Error::Full { .. }) if small < usual => self.create_segment_of(small),
            created => created,
        }
    }

    fn create_segment_of(&self, segment_bytes: u64) -> Result<LogWriter> {
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        let options = LogOptions { kind: LogKind::WriteAhead, log_id: id, segment_bytes };
        let path = names::log(&self.folder, id);
        LogWriter::create(&self.env, &path, options).inspect_err(|_| {
            // What was created of it is in the way of nothing, but takes room.
            let _ = self.env.files.remove_file(&path);
        })
    }

    /// Ends the current segment and goes on in `writer`, a new one. After a failure nothing may be
    /// appended any more and the caller poisons the store, unless it was for want of a descriptor:
    /// then everything is as it was.
    pub fn start_segment(
        &mut self,
        mut writer: LogWriter,
        manifest: &Mutex<Manifest>,
    ) -> Result<()> {
        writer.file().sync()?;
        self.env.files.sync_dir(&self.folder).inspect_err(|error| {
            if error.is_short_of_descriptors() {
                // No edit names it.
                let _ = self.env.files.remove_file(&names::log(&self.folder, writer.log_id()));
            }
        })?;
        // A header that was durable and is lost later is damage, not a torn creation.
        writer.set_durable(HEADER_BYTES);
        let edit = Edit::Log { id: writer.log_id(), state: LogState::Open };
        manifest.lock().unwrap_or_else(PoisonError::into_inner).commit(&[edit])?;
        self.retire_current()?;
        self.current = Some(writer);
        Ok(())
    }

    fn retire_current(&mut self) -> Result<()> {
        let Some(mut writer) = self.current.take() else { return Ok(()) };
        let sealed = writer.seal()?;
        self.old.push(OldSegment {
            id: writer.log_id(),
            last_sequence: self.last_sequence,
            bytes: sealed.len,
            unsynced: Some(writer.file()),
            unrecorded: Some(sealed),
        });
        Ok(())
    }

    /// Appends one record; `last` is the newest sequence number in it.
    /// REQUIRES: not [`Wal::needs_segment`].
    pub fn append(
        &mut self,
        first: SequenceNumber,
        last: SequenceNumber,
        payload: &[&[u8]],
    ) -> Result<u64> {
        let writer = self.current.as_mut().expect("the caller started a segment");
        let before = writer.end();
        let appended = writer.append(first, payload)?;
        self.last_sequence = last;
        Ok(appended.end - before)
    }

    /// The newest sequence number in the log.
    pub fn last_sequence(&self) -> SequenceNumber {
        self.last_sequence
    }

    /// What a sync of everything so far has to cover.
    pub fn sync_work(&self) -> SyncWork {
        let mut files = Vec::new();
        let mut old_ids = Vec::new();
        for segment in &self.old {
            if let Some(file) = &segment.unsynced {
                files.push(Arc::clone(file));
                old_ids.push(segment.id);
            }
        }
        let current = self.current.as_ref().map(|writer| {
            files.push(writer.file());
            (writer.log_id(), writer.end())
        });
        SyncWork { files, old_ids, current, through: self.last_sequence }
    }

    /// Notes that `work` is done.
    pub fn synced(&mut self, work: &SyncWork) {
        for segment in &mut self.old {
            if work.old_ids.contains(&segment.id) {
                segment.unsynced = None;
            }
        }
        if let (Some(writer), Some((id, end))) = (&mut self.current, work.current)
            && writer.log_id() == id
        {
            writer.set_durable(end);
        }
    }

    /// Takes out the old segments whose every entry is at or below `sequence`, oldest first.
    pub fn take_obsolete(&mut self, sequence: SequenceNumber) -> Vec<OldSegment> {
        let count = self.old.iter().take_while(|s| s.last_sequence <= sequence).count();
        self.old.drain(..count).collect()
    }

    /// How many old segments are kept, their bytes, and the newest sequence number of the oldest.
    pub fn old_summary(&self) -> (usize, u64, Option<SequenceNumber>) {
        let bytes = self.old.iter().map(|segment| segment.bytes).sum();
        (self.old.len(), bytes, self.old.first().map(|segment| segment.last_sequence))
    }

    /// Bytes of the segments that are still needed, the current one up to where it is written.
    pub fn live_bytes(&self) -> u64 {
        self.old_summary().1 + self.current.as_ref().map_or(0, LogWriter::end)
    }

    /// Bytes of memory that the mapping of the current segment takes, about: what was written and
    /// what was made ready to be.
    pub fn mapped_bytes(&self) -> u64 {
        let ahead = |end: u64| end.clamp(64 << 10, 1 << 20).min(self.segment_bytes);
        self.current.as_ref().map_or(0, |writer| writer.end() + ahead(writer.end()))
    }

    /// Edits that write down where old segments end that are durable by now: from then on any
    /// damage to them is noticed.
    pub fn take_ends(&mut self) -> Vec<Edit> {
        let durable = self.old.iter_mut().filter(|segment| segment.unsynced.is_none());
        let end = |segment: &mut OldSegment| {
            let state = LogState::Sealed(segment.unrecorded.take()?);
            Some(Edit::Log { id: segment.id, state })
        };
        durable.filter_map(end).collect()
    }

    /// Ends the current segment for good and cuts off what was reserved behind its end. Answers
    /// with the edits that say where the segments end.
    pub fn close(&mut self) -> Result<Vec<Edit>> {
        let Some(mut writer) = self.current.take() else { return Ok(Vec::new()) };
        let sealed = writer.seal()?;
        let (id, file) = (writer.log_id(), writer.file());
        // The mapping goes with the writer; only then may the file be cut.
        drop(writer);
        file.set_len(sealed.len)?;
        file.sync()?;
        Ok(vec![Edit::Log { id, state: LogState::Sealed(sealed) }])
    }
}

impl OldSegment {
    /// A segment that recovery has read and made durable.
    pub fn recovered(id: u64, last_sequence: SequenceNumber, bytes: u64) -> OldSegment {
        OldSegment { id, last_sequence, bytes, unsynced: None, unrecorded: None }
    }
}

/// One sync for all who wait.
#[derive(Debug, Default)]
pub struct Syncer {
    progress: Mutex<Progress>,
    moved: Condvar,
}

#[derive(Debug, Default)]
struct Progress {
    through: SequenceNumber,
    running: bool,
}

impl Syncer {
    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns once everything up to `sequence` is durable. The first to come syncs for all who
    /// come meanwhile; a failed sync poisons the store and fails them all.
    ///
    /// `begin` says what is to be covered and `end` notes that it was; both take the commit lock.
    pub fn sync_through(
        &self,
        sequence: SequenceNumber,
        poison: &Poison,
        counters: &StoreCounters,
        begin: impl Fn() -> SyncWork,
        end: impl Fn(&SyncWork),
    ) -> Result<()> {
        let mut progress = self.progress();
        while progress.through < sequence {
            poison.check()?;
            if progress.running {
                progress = self.moved.wait(progress).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            progress.running = true;
            drop(progress);
            let work = begin();
            add(&counters.log_syncs, 1);
            let result = work.files.iter().try_for_each(|file| file.sync());
            if result.is_ok() {
                end(&work);
            }
            progress = self.progress();
            progress.running = false;
            let outcome = match result {
                Ok(()) => {
                    progress.through = progress.through.max(work.through);
                    Ok(())
                }
                Err(error) => Err(poison.set(error)),
            };
            self.moved.notify_all();
            outcome?;
        }
        Ok(())
    }
}
