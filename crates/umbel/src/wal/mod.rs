//! The write-ahead log as a row of segments.
//!
//! Segments are made ready ahead of the writers: `segments` does what this module says is to be
//! done, on another thread where there is one.
//!
//! INVARIANTS:
//! 1. A segment is named by a durable manifest edit before a record is put in it.
//! 2. A newer segment is never synced before every older one is; but for its header, which says
//!    nothing about others.
//! 3. Syncs happen outside the commit lock; one thread syncs for all who wait.
//! 4. Segments are written in the order of their ids. When a record is put in one, the manifest
//!    names none with a lower id that is not sealed: recovery stops at the first that is not.

mod bell;
mod end;
mod files;
mod options;
mod room;
mod segment;
mod syncer;
mod write_back;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use umbel_base::{Error, Result, SequenceNumber};
use umbel_env::{Env, File, Mapping};
use umbel_filter::HashSecret;
use umbel_log::{HEADER_BYTES, LogWriter};

use crate::names;
use crate::obsolete::ObsoleteFiles;
use crate::version::{Edit, LogState, Manifest};

pub use bell::{Bell, Call};
pub use files::{create, log_options, read};
pub use options::{SegmentBytes, WalOptions};
pub use segment::{Chore, LogShape, OldSegment, Reusable, Surplus};
pub use syncer::{Syncer, Tail};
use write_back::WriteBack;

/// Bytes of the first segment, and the most of the spare one of a log at rest. Each next one is
/// twice as long up to what the options say.
const SMALL_SEGMENT_BYTES: u64 = 4 << 20;
/// Pages of the current segment are made ready so far ahead at least, and at most, each time.
const AHEAD_BYTES: (u64, u64) = (64 << 10, 1 << 20);

/// The segments. Lives under the commit lock.
#[derive(Debug)]
pub struct Wal {
    env: Env,
    folder: PathBuf,
    /// The most bytes of a segment, unless a record needs more.
    segment_bytes: SegmentBytes,
    secret: HashSecret,
    ids: Arc<AtomicU64>,
    /// Whether a thread makes pages ready.
    obsolete: Arc<ObsoleteFiles>,
    is_tended: bool,
    current: Option<LogWriter>,
    /// So many bytes at the end of the current segment only what makes room is put in.
    reserve_bytes: usize,
    /// Whether a record that found no room was cut off and that could not be made durable.
    is_cut_in_vain: bool,
    /// Named by the manifest, in the order of their ids, and without a record.
    spares: VecDeque<LogWriter>,
    /// As the spares, but to be dropped: the disk had no room for the edit that does it. No spare
    /// is begun before that.
    unwanted: Vec<LogWriter>,
    reusable: Option<Reusable>,
    /// Mappings of old segments.
    retired: Vec<Box<dyn Mapping>>,
    write_back: WriteBack,
    /// Files to cut, and to which length.
    to_cut: Vec<(Arc<dyn File>, u64)>,
    tail: Arc<Tail>,
    last_sequence: SequenceNumber,
    old: Vec<OldSegment>,
    /// The id of the newest segment that was begun.
    newest_id: u64,
    /// Where in the current segment chores come up.
    nudge_at: u64,
    /// Where in the current segment a spare one is to be made.
    spare_at: u64,
    /// Whether what was ready was given back, and nothing much was written since.
    is_at_rest: bool,
    /// Bytes of the spare segment of a log at rest.
    resting_bytes: u64,
    /// Whether pages of the current segment are to be made ready.
    to_populate: bool,
    /// Whether a chore came up.
    nudged: bool,
    /// How many times segments were taken out that the manifest may name still.
    giving_back: usize,
    shape: LogShape,
}

impl Wal {
    /// A log whose earlier segments, read by recovery and durable, are `old`.
    pub fn new(options: WalOptions, old: Vec<OldSegment>) -> Wal {
        let last_sequence = old.iter().map(|segment| segment.last_sequence).max().unwrap_or(0);
        Wal {
            env: options.env,
            folder: options.folder,
            segment_bytes: options.segment_bytes,
            secret: options.secret,
            ids: options.ids,
            obsolete: options.obsolete,
            is_tended: options.is_tended,
            current: None,
            reserve_bytes: 0,
            is_cut_in_vain: false,
            spares: VecDeque::new(),
            unwanted: Vec::new(),
            reusable: None,
            retired: Vec::new(),
            write_back: WriteBack::default(),
            to_cut: Vec::new(),
            tail: Arc::new(Tail::new(last_sequence)),
            last_sequence,
            newest_id: old.iter().map(|segment| segment.id).max().unwrap_or(0),
            old,
            nudge_at: 0,
            spare_at: 0,
            is_at_rest: false,
            resting_bytes: 0,
            to_populate: false,
            nudged: false,
            giving_back: 0,
            shape: LogShape::default(),
        }
    }

    /// What a sync has to cover.
    pub fn tail(&self) -> Arc<Tail> {
        Arc::clone(&self.tail)
    }

    /// Whether a record with this payload needs a new segment first.
    #[inline]
    pub fn needs_segment(&self, payload_bytes: usize) -> bool {
        let with_reserve = payload_bytes.saturating_add(self.reserve_bytes);
        self.current.as_ref().is_none_or(|writer| !writer.fits(with_reserve))
    }

    /// Goes on in a spare segment. `false`, with nothing done, where there is none in which the
    /// payload fits, or where older ones are about to be dropped: recovery would stop at one of
    /// them that it finds empty. After a failure nothing may be appended any more and the caller
    /// poisons the store.
    pub fn take_spare(&mut self, payload_bytes: usize) -> Result<bool> {
        if self.giving_back > 0 || !self.unwanted.is_empty() {
            return Ok(false);
        }
        if !self.spares.front().is_some_and(|spare| spare.fits(payload_bytes)) {
            return Ok(false);
        }
        self.retire_current()?;
        if let Some(spare) = self.spares.pop_front() {
            self.begin(spare);
        }
        Ok(true)
    }

    /// Ends the current segment and goes on in `writer`, a new one. After a failure nothing may be
    /// appended any more and the caller poisons the store, unless it was for want of a descriptor
    /// or of room: then the log can be written as before.
    pub fn start_segment(
        &mut self,
        mut writer: LogWriter,
        manifest: &Mutex<Manifest>,
    ) -> Result<()> {
        let path = names::log(&self.folder, writer.log_id());
        let give_up = |error: &Error| {
            if error.is_short_of_descriptors() || matches!(error, Error::Full { .. }) {
                // No edit names it, and it takes room that is wanting.
                let _ = self.env.files.remove_file(&path);
            }
        };
        writer.file().sync().inspect_err(give_up)?;
        self.env.files.sync_dir(&self.folder).inspect_err(give_up)?;
        // A header that was durable and is lost later is damage, not a torn creation.
        writer.set_durable(HEADER_BYTES);
        {
            let mut manifest = manifest.lock().unwrap_or_else(PoisonError::into_inner);
            // Spare segments with lower ids would stand between this one and its predecessor. One
            // of them may be on its way here: it is turned away.
            let skipped = manifest.state().logs.range(self.newest_id + 1..writer.log_id());
            let mut edits: Vec<_> = skipped.map(|(id, _)| Edit::DropLog(*id)).collect();
            edits.push(Edit::Log { id: writer.log_id(), state: LogState::Open });
            if let Some(refused) = manifest.commit_if_room(&edits)? {
                give_up(&refused);
                return Err(refused);
            }
        }
        // Each of them got its id before this one.
        let unwanted = std::mem::take(&mut self.unwanted);
        for spare in std::mem::take(&mut self.spares).into_iter().chain(unwanted) {
            self.obsolete.remove(&names::log(&self.folder, spare.log_id()));
        }
        self.shape.made += 1;
        self.shape.waited += 1;
        if let Err(error) = self.retire_current() {
            // It is named and empty, and there is no other.
            self.spares.push_back(writer);
            return Err(error);
        }
        self.begin(writer);
        Ok(())
    }

    /// Goes on in `writer`. REQUIRES: there is no current segment.
    fn begin(&mut self, writer: LogWriter) {
        self.reserve_bytes = room::reserve_bytes(writer.capacity());
        self.newest_id = writer.log_id();
        self.tail.add(Arc::clone(writer.progress()));
        self.shape.is_mapped = Some(writer.is_mapped());
        self.shape.why_unmapped = writer.file().why_unmapped();
        self.spare_at = writer.capacity() / 4;
        self.nudge_at = 0;
        self.is_at_rest = false;
        self.nudged = true;
        self.current = Some(writer);
    }

    /// Ends the current segment. After [`Error::Full`] it goes on, where the log is whole.
    fn retire_current(&mut self) -> Result<()> {
        let Some(writer) = &mut self.current else { return Ok(()) };
        let sealed = writer.seal().map_err(|error| self.make_cut_durable(error))?;
        let Some(writer) = self.current.take() else { return Ok(()) };
        let progress = Arc::clone(writer.progress());
        let reusable_bytes = if writer.is_mapped() { writer.capacity() } else { 0 };
        if self.is_tended {
            self.write_back.end(writer.file(), sealed.len);
        }
        self.old.push(OldSegment {
            id: writer.log_id(),
            last_sequence: self.last_sequence,
            bytes: sealed.len,
            reusable_bytes,
            unrecorded: Some((progress, sealed)),
        });
        self.retired.extend(writer.into_mapping());
        Ok(())
    }

    /// Appends one record; `last` is the newest sequence number in it. After [`Error::Full`]
    /// everything is as it was, where the log [is whole](Wal::is_whole).
    /// REQUIRES: not [`Wal::needs_segment`], or [`Wal::fits_in_reserve`].
    #[inline]
    pub fn append(
        &mut self,
        first: SequenceNumber,
        last: SequenceNumber,
        payload: &[&[u8]],
    ) -> Result<u64> {
        let writer = self.current.as_mut().expect("the caller started a segment");
        let before = writer.end();
        let end = match writer.append(first, payload) {
            Ok(appended) => appended.end,
            Err(error) => return Err(self.make_cut_durable(error)),
        };
        self.last_sequence = last;
        self.tail.set_through(last);
        if end >= self.nudge_at {
            self.nudge(end);
        }
        Ok(end - before)
    }

    #[cold]
    fn nudge(&mut self, end: u64) {
        let populates = self.is_tended && self.current.as_ref().is_some_and(LogWriter::is_mapped);
        self.nudge_at = if populates { end + ahead(end) } else { u64::MAX };
        if end < self.spare_at {
            self.nudge_at = self.nudge_at.min(self.spare_at);
        }
        self.is_at_rest &= end < self.spare_at;
        self.to_populate |= populates;
        self.nudged |= populates || end >= self.spare_at;
    }

    /// Whether chores came up since this was asked last.
    #[inline]
    pub fn take_nudge(&mut self) -> bool {
        std::mem::take(&mut self.nudged)
    }

    /// The bytes of the next segment.
    fn next_bytes(&self) -> u64 {
        let current = self.current.as_ref().map_or(0, LogWriter::capacity);
        if self.is_at_rest && current == 0 {
            return self.resting_bytes;
        }
        self.small_bytes().max(current.saturating_mul(2).min(self.segment_bytes.next()))
    }

    /// The bytes of the first segment.
    pub fn small_bytes(&self) -> u64 {
        SMALL_SEGMENT_BYTES.min(self.segment_bytes.next())
    }

    /// What is to be done next.
    pub fn next_chore(&mut self) -> Option<Chore> {
        if std::mem::take(&mut self.to_populate)
            && let Some(writer) = &self.current
            && let Some(populator) = writer.populator()
        {
            return Some(Chore::Populate(populator, writer.end() + 2 * ahead(writer.end())));
        }
        if !self.retired.is_empty() {
            return Some(Chore::Unmap(std::mem::take(&mut self.retired)));
        }
        let current = self.current.as_ref().filter(|_| self.is_tended);
        if let Some(chore) = self.write_back.next(current) {
            return Some(chore);
        }
        if let Some((file, len)) = self.to_cut.pop() {
            return Some(Chore::Cut(file, len));
        }
        let is_due = match &self.current {
            Some(writer) => writer.end() >= self.spare_at,
            None => self.is_at_rest && self.spare_at < u64::MAX,
        };
        let in_the_way = self.spares.len() + self.unwanted.len() + self.giving_back;
        if !is_due || in_the_way > 0 {
            return None;
        }
        // Not again where it fails.
        self.spare_at = u64::MAX;
        let bytes = self.next_bytes();
        Some(Chore::Make(bytes, self.reusable.take_if(|file| file.bytes == bytes)))
    }

    /// Takes a spare segment, which the manifest names. Hands it back where it comes too late: a
    /// newer one is written to already, or nobody writes any more and it is too long to lie ready.
    pub fn add_spare(&mut self, writer: LogWriter, is_reused: bool) -> Option<LogWriter> {
        let is_too_long = self.is_at_rest && writer.capacity() > self.small_bytes();
        if writer.log_id() < self.newest_id || is_too_long {
            return Some(writer);
        }
        match is_reused {
            true => self.shape.reused += 1,
            false => self.shape.made += 1,
        }
        self.spares.push_back(writer);
        None
    }

    /// Takes the file of a dropped segment to make a new one of it; `false` where none is wanted.
    pub fn offer(&mut self, segment: &OldSegment) -> bool {
        let wanted = self.reusable.is_none()
            && self.current.is_some()
            && segment.reusable_bytes > 0
            && segment.reusable_bytes == self.next_bytes();
        if wanted {
            self.reusable = Some(Reusable { id: segment.id, bytes: segment.reusable_bytes });
        }
        wanted
    }

    /// Bytes that were made ready and hold no record.
    fn spare_bytes(&self) -> u64 {
        let current = self.current.as_ref().map_or(0, |writer| writer.capacity() - writer.end());
        let spares: u64 = self.spares.iter().map(LogWriter::capacity).sum();
        current + spares + self.reusable.map_or(0, |file| file.bytes)
    }

    /// Gives back what is ready beyond `allowance` bytes, because nobody writes at this moment: the
    /// caller drops it from the manifest and removes it. After a failure the caller poisons the
    /// store.
    pub fn rest(&mut self, allowance: u64) -> Result<Surplus> {
        if self.spare_bytes() <= allowance && self.unwanted.is_empty() {
            return Ok(Surplus::default());
        }
        let mut spares: Vec<_> = std::mem::take(&mut self.spares).into();
        spares.append(&mut self.unwanted);
        let surplus = Surplus { spares, reusable: self.reusable.take() };
        if self.spare_bytes() > allowance {
            match self.retire_current() {
                // It stays as long as it is.
                Err(Error::Full { .. }) if self.is_whole() => return Ok(surplus),
                retired => retired?,
            }
            self.cut_last();
            self.spare_at = 0;
        } else if let Some(writer) = &self.current {
            // The next one when half of what is left is written.
            let left = writer.capacity() - writer.end();
            self.spare_at = writer.end() + left.saturating_sub(self.reserve_bytes as u64) / 2;
            self.nudge_at = self.nudge_at.min(self.spare_at);
        }
        self.resting_bytes = allowance.min(self.small_bytes());
        (self.is_at_rest, self.nudged) = (true, true);
        Ok(surplus)
    }

    /// The newest sequence number in the log.
    pub fn last_sequence(&self) -> SequenceNumber {
        self.last_sequence
    }

    /// Takes out the old segments whose every entry is at or below `sequence`, oldest first.
    pub fn take_obsolete(&mut self, sequence: SequenceNumber) -> Vec<OldSegment> {
        let count = self.old.iter().take_while(|s| s.last_sequence <= sequence).count();
        self.old.drain(..count).collect()
    }

    /// Notes that segments were taken out which the manifest names until [`Wal::gave_back`] says
    /// otherwise: until then a sync covers them, so that no newer one is durable before them.
    pub fn give_back(&mut self) {
        self.giving_back += 1;
    }

    /// Takes back what was to be given back: the disk has no room for the edit.
    pub fn keep(&mut self, obsolete: Vec<OldSegment>, surplus: Surplus) {
        self.giving_back -= 1;
        self.old.splice(..0, obsolete);
        self.unwanted.extend(surplus.spares);
        self.reusable = self.reusable.or(surplus.reusable);
    }

    /// Notes that no edit names any more what was given back.
    pub fn gave_back(&mut self, obsolete: &[OldSegment]) {
        self.giving_back -= 1;
        self.nudged = true;
        obsolete.iter().for_each(|segment| self.tail.remove(segment.id));
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
    /// not let go of, and what was made ready to be written.
    pub fn mapped_bytes(&self) -> u64 {
        let bytes =
            |writer: &LogWriter| (writer.end() + 2 * ahead(writer.end())).min(writer.capacity());
        self.current.as_ref().map_or(0, bytes).saturating_sub(self.write_back.begun())
    }

    /// How it is written.
    pub fn shape(&self) -> LogShape {
        LogShape { spare_bytes: self.spare_bytes(), ..self.shape.clone() }
    }
}

/// How many bytes behind `end` are made ready: the more the longer the segment has grown.
fn ahead(end: u64) -> u64 {
    end.clamp(AHEAD_BYTES.0, AHEAD_BYTES.1)
}

#[cfg(test)]
#[path = "wal_tests.rs"]
mod tests;
