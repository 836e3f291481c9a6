//! [`LogWriter`]: appends records to a new log file.
//!
//! INVARIANT: a failed write is final. The writer cannot know how much of a failed write reached
//! the file, so it refuses every later append. The only exception is a write on a full disk to a
//! file that is not mapped. The part of the record that reached the file is truncated: if its
//! missing end is zeros, the record could look complete. The truncation is durable once the caller
//! has synced the file. For a log that holds its records in memory, [`LogProgress`] writes and
//! refuses.

use std::path::Path;
use std::sync::Arc;

use umbel_base::{Error, Result};
use umbel_env::{Access, Env, File, Mapping, Prefaulter};

use crate::format::{
    END_RECORD_BYTES, FileHeader, HEADER_BYTES, LogKind, PAYLOAD_BYTES_MAX, RECORD_ALIGN,
    RECORD_HEADER_BYTES, RecordBinding, RecordHeader, RecordKind, RunningChecksum, Seal,
    parts_checksum, record_bytes, record_checksum,
};
use crate::log_progress::LogProgress;
use crate::pending_records::{PendingRecords, initial_fill_bytes};
use crate::reader::{ExpectedEnd, LogReader};

/// Up to this length a record for a mapped file is joined in the buffer and stored with one call. A
/// longer record is stored part by part, because a second copy would cost more than the calls.
const JOIN_BYTES_MAX: u64 = 64 << 10;
/// Bytes of the buffer above which its memory is freed after a record.
const BUFFER_BYTES_RETAINED: usize = 1 << 20;

/// Options of a new log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogOptions {
    /// Use of the log.
    pub kind: LogKind,
    /// Id of the log. REQUIRES: no other log of this store has had this id.
    pub log_id: u64,
    /// Salt of the log; 0 unless the file was used before or can be reused.
    pub salt: u64,
    /// Bytes to preallocate and map, which records must not exceed; 0 for a file that grows.
    pub segment_bytes: u64,
}

impl LogOptions {
    fn binding(&self) -> RecordBinding {
        RecordBinding { log_id: self.log_id, salt: self.salt }
    }
}

/// Writes the header of a new log over the header of an old one, whose records are obsolete. After
/// this call the caller syncs the file, renames it to the new log's name and syncs the directory,
/// in this order. Otherwise a file with the old header could have the new name. Last the caller
/// calls [`LogWriter::reuse`].
///
/// # Errors
/// Any failure of the write.
pub fn write_recycled_header(file: &dyn File, options: LogOptions) -> Result<()> {
    file.write_all_at(&FileHeader::encode(options.kind, options.binding()), 0)
}

/// Position of an appended record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AppendPosition {
    /// Offset after the record. The record is durable once all bytes below this offset are synced.
    pub end: u64,
}

/// Appends records to one log file.
#[derive(Debug)]
pub struct LogWriter {
    progress: Arc<LogProgress>,
    mapping: Option<Box<dyn Mapping>>,
    binding: RecordBinding,
    capacity: u64,
    end: u64,
    sequence: u64,
    running: RunningChecksum,
    buffer: Vec<u8>,
    state: WriterState,
}

#[derive(Debug)]
enum WriterState {
    Open,
    Sealed,
    Failed(String),
}

impl LogWriter {
    /// Creates the file and writes its header. Syncs neither the file nor its directory; the caller
    /// syncs both before it counts a record as durable. After both syncs the caller can call
    /// [`LogWriter::set_durable`] with [`HEADER_BYTES`], so that a lost header counts as damage.
    ///
    /// # Errors
    /// [`Error::Io`] if the name exists, [`Error::DiskFull`] if the segment does not fit on the
    /// disk, [`Error::Invalid`] for a segment too short for any record. A half-created file is
    /// removed again.
    pub fn create(env: &Env, path: &Path, options: LogOptions) -> Result<LogWriter> {
        LogWriter::create_with(env, path, options, false)
    }

    /// Like [`LogWriter::create`], for a log whose records matter only after a sync. Records are
    /// held in memory until [`LogProgress::sync`] or [`LogProgress::write_pending`]; before, they
    /// do not survive the death of the process. The segment is not mapped, but filled with zeros in
    /// advance, so that most syncs write records and no metadata of the file.
    ///
    /// # Errors
    /// As [`LogWriter::create`]; [`Error::Invalid`] also for a file that grows.
    pub fn create_deferred(env: &Env, path: &Path, options: LogOptions) -> Result<LogWriter> {
        if options.segment_bytes == 0 {
            let reason = "a log that holds its records needs the length of a segment";
            return Err(Error::invalid(reason));
        }
        LogWriter::create_with(env, path, options, true)
    }

    fn create_with(env: &Env, path: &Path, options: LogOptions, holds: bool) -> Result<LogWriter> {
        let shortest = HEADER_BYTES + END_RECORD_BYTES;
        if options.segment_bytes != 0 && options.segment_bytes < shortest {
            return Err(Error::invalid(format!(
                "a log segment of {} bytes is too short; the least is {shortest}, or 0 for a file \
                 that grows",
                options.segment_bytes
            )));
        }
        let file = env.files.create(path)?;
        let created = LogWriter::set_up(env, file, options, holds);
        if created.is_err() {
            // The first failure is reported. At worst an empty log is left.
            let _ = env.files.remove_file(path);
        }
        created
    }

    fn set_up(
        env: &Env,
        file: Arc<dyn File>,
        options: LogOptions,
        holds: bool,
    ) -> Result<LogWriter> {
        let segment_bytes = options.segment_bytes / RECORD_ALIGN * RECORD_ALIGN;
        let mut mapping = None;
        if segment_bytes > 0 {
            file.preallocate(segment_bytes)?;
            mapping = file.map(segment_bytes)?;
        }
        // An unmapped file may need new space wherever it is overwritten.
        let fills_to = if mapping.is_some() { segment_bytes } else { 0 };
        if holds {
            mapping = None;
        }
        let header = FileHeader::encode(options.kind, options.binding());
        let filled = if holds { initial_fill_bytes(fills_to) } else { 0 };
        match &mut mapping {
            Some(mapping) => mapping.write_at(&header, 0)?,
            None => {
                let mut first = header.to_vec();
                first.resize(first.len().max(filled as usize), 0);
                file.write_all_at(&first, 0)?;
            }
        }
        let progress = LogProgress::new(Arc::clone(&file), options.log_id, HEADER_BYTES, 0);
        let progress = match holds {
            true => {
                progress.with_pending(PendingRecords::new(env, file.path(), &header, fills_to)?)
            }
            false => progress,
        };
        Ok(LogWriter::begin(progress, mapping, &header, options))
    }

    fn begin(
        progress: LogProgress,
        mapping: Option<Box<dyn Mapping>>,
        header: &[u8; HEADER_BYTES as usize],
        options: LogOptions,
    ) -> LogWriter {
        // The checksum is the header's last eight bytes.
        let (_, sum) = header.split_last_chunk().expect("a header is longer than a checksum");
        let segment_bytes = options.segment_bytes / RECORD_ALIGN * RECORD_ALIGN;
        LogWriter {
            progress: Arc::new(progress),
            mapping,
            binding: options.binding(),
            capacity: if segment_bytes == 0 { u64::MAX } else { segment_bytes },
            end: HEADER_BYTES,
            sequence: 0,
            running: RunningChecksum::new(u64::from_le_bytes(*sum)),
            buffer: Vec::new(),
            state: WriterState::Open,
        }
    }

    /// Begins a log in a file that held an earlier log of the same length and got a new header by
    /// [`write_recycled_header`] with the same options. The bytes after its header stay until
    /// records overwrite them.
    ///
    /// # Errors
    /// Returned if the file cannot be opened or mapped; a reused file has to be mapped.
    pub fn reuse(env: &Env, path: &Path, options: LogOptions) -> Result<LogWriter> {
        let file = env.files.open(path, Access::ReadWrite)?;
        let segment_bytes = options.segment_bytes / RECORD_ALIGN * RECORD_ALIGN;
        let mapping = file.map(segment_bytes)?;
        if mapping.is_none() {
            return Err(Error::invalid(format!(
                "the log {} cannot be mapped, so its file cannot be used again",
                path.display()
            )));
        }
        let header = FileHeader::encode(options.kind, options.binding());
        let progress = LogProgress::new(file, options.log_id, HEADER_BYTES, 0);
        Ok(LogWriter::begin(progress, mapping, &header, options))
    }

    /// Continues a log without a salt that was read up to `end`, where a record ends. Verifies all
    /// records, cuts what follows, and reserves the segment again, which is zero after `end`. The
    /// file is synced. `defers` is whether records [are deferred](LogWriter::create_deferred).
    ///
    /// Only a log whose contents are decided elsewhere is continued. Otherwise a record that was
    /// lost with a torn tail could return under another writer.
    ///
    /// # Errors
    /// [`Error::Corruption`] if the records do not reach `end`. [`Error::Invalid`] if the log is
    /// sealed, its file has another name, or the segment ends before `end`.
    pub fn resume(
        env: &Env,
        path: &Path,
        options: LogOptions,
        end: u64,
        defers: bool,
    ) -> Result<LogWriter> {
        let expected = ExpectedEnd::Prefix(end);
        let mut reader = LogReader::open(env, path, options.kind, options.log_id, expected)?;
        while reader.next()?.is_some() {}
        let (running, sequence) = reader.running();
        let capacity = options.segment_bytes / RECORD_ALIGN * RECORD_ALIGN;
        let file = env.files.open(path, Access::ReadWrite)?;
        let refusal = match () {
            () if reader.outcome().sealed => Some("is sealed"),
            () if end.saturating_add(END_RECORD_BYTES) > capacity => Some("has no space left"),
            () if file.has_other_names()? => Some("has another name, a hard link; copy the file"),
            () => None,
        };
        if let Some(reason) = refusal {
            let path = path.display();
            return Err(Error::invalid(format!("the log {path} cannot be continued: it {reason}")));
        }
        file.set_len(end)?;
        file.preallocate(capacity)?;
        let mut mapping = file.map(capacity)?;
        file.sync()?;
        let progress = LogProgress::new(Arc::clone(&file), options.log_id, end, end);
        let progress = match defers {
            true => {
                let fills_to = if mapping.take().is_some() { capacity } else { 0 };
                progress.with_pending(PendingRecords::resumed(env, &*file, end, fills_to)?)
            }
            false => progress,
        };
        Ok(LogWriter {
            progress: Arc::new(progress),
            mapping,
            binding: options.binding(),
            capacity,
            end,
            sequence,
            running,
            buffer: Vec::new(),
            state: WriterState::Open,
        })
    }

    /// Appends one record whose payload is the concatenation of `payload`. The record survives the
    /// death of the process at once, unless records [are deferred](LogWriter::create_deferred). The
    /// record survives power loss once [`LogWriter::file`] was synced.
    ///
    /// # Errors
    /// [`Error::Invalid`], with nothing written, if the record does not [fit](LogWriter::fits), its
    /// sequence number is lower than the last one, or the log is sealed. Any other error is final:
    /// every later append fails with [`Error::ReadOnly`]. The exception is [`Error::DiskFull`]
    /// while the log [is open](LogWriter::is_open). The caller then syncs the file before the next
    /// append, so that the truncated bytes cannot return.
    pub fn append(&mut self, sequence: u64, payload: &[&[u8]]) -> Result<AppendPosition> {
        let payload_bytes = payload.iter().fold(0, |sum, part| sum + part.len());
        if !self.fits(payload_bytes) {
            self.check_state()?;
            return Err(Error::invalid(format!(
                "a payload of {payload_bytes} bytes does not fit into the log {} after byte {}; \
                 start a new log",
                self.progress.file().path().display(),
                self.end
            )));
        }
        let durable = self.progress.durable();
        self.write_record((sequence, RecordKind::Data, durable), payload, payload_bytes)
    }

    /// Appends whole data records of this log, which another writer made for this offset, as they
    /// are. They keep their durable marks, which say what the other writer had synced.
    ///
    /// # Errors
    /// [`Error::Invalid`], with nothing written, unless the bytes are valid records that continue
    /// the log and leave space for the end record. Otherwise as [`LogWriter::append`].
    pub fn append_encoded(&mut self, records: &[u8]) -> Result<AppendPosition> {
        self.check_state()?;
        let (running, sequence) = self.check_encoded(records)?;
        let written = match &mut self.mapping {
            Some(mapping) => mapping.write_at(records, self.end),
            None => self.progress.write_or_defer(records, self.end),
        };
        if let Err(error) = written {
            if !self.can_undo(&error) {
                self.state = WriterState::Failed(error.to_string());
            }
            return Err(error);
        }
        (self.running, self.sequence) = (running, sequence);
        self.end += records.len() as u64;
        self.progress.set_end(self.end);
        Ok(AppendPosition { end: self.end })
    }

    /// Returns the running checksum and the last sequence number after these records.
    fn check_encoded(&self, records: &[u8]) -> Result<(RunningChecksum, u64)> {
        let invalid = |offset: u64, reason: &str| {
            let path = self.progress.file().path().display();
            Err(Error::invalid(format!("records at byte {offset} of the log {path}: {reason}")))
        };
        let len = records.len() as u64;
        if len.saturating_add(END_RECORD_BYTES) > self.capacity - self.end {
            return invalid(self.end, "they do not fit into the log");
        }
        let (mut running, mut sequence) = (self.running, self.sequence);
        let (mut rest, mut offset) = (records, self.end);
        while !rest.is_empty() {
            let header = rest
                .get(..RECORD_HEADER_BYTES)
                .and_then(|head| RecordHeader::decode(self.binding.checksum_id(), head))
                .filter(|header| header.kind == RecordKind::Data && header.durable <= offset);
            let bytes = header.map_or(0, |header| header.record_bytes());
            let record = usize::try_from(bytes).ok().and_then(|bytes| rest.get(..bytes));
            let (Some(header), Some(record)) = (header, record) else {
                return invalid(offset, "there is no whole data record of this log");
            };
            if record_checksum(self.binding, offset, record) != header.checksum {
                return invalid(offset, "the record does not match its checksum");
            }
            if header.sequence < sequence {
                return invalid(offset, "sequence numbers must not decrease");
            }
            sequence = header.sequence;
            running.add(offset, header.checksum);
            offset += bytes;
            rest = &rest[record.len()..];
        }
        Ok((running, sequence))
    }

    /// Whether a record with a payload of this length can be appended, with space left for the end
    /// record.
    #[inline]
    pub fn fits(&self, payload_bytes: usize) -> bool {
        payload_bytes as u64 <= PAYLOAD_BYTES_MAX
            && record_bytes(payload_bytes as u64) + END_RECORD_BYTES <= self.capacity - self.end
    }

    /// Returns the offset after the last record.
    #[inline]
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Returns the offset in the file that records must not exceed.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Returns the file, so that callers can sync it without holding a lock on the writer.
    pub fn file(&self) -> Arc<dyn File> {
        Arc::clone(self.progress.file())
    }

    /// Returns the progress of the log, for a thread that syncs it without holding a lock on the
    /// writer.
    pub fn progress(&self) -> &Arc<LogProgress> {
        &self.progress
    }

    /// Calls [`LogProgress::note_durable`].
    pub fn set_durable(&mut self, offset: u64) {
        self.progress.note_durable(offset);
    }

    /// Whether the file is mapped, so that its pages can be populated and the file reused.
    pub fn is_mapped(&self) -> bool {
        self.mapping.is_some()
    }

    /// Returns the prefaulter of the pages after the records; `None` if the file is not mapped.
    pub fn prefaulter(&self) -> Option<Arc<dyn Prefaulter>> {
        self.mapping.as_ref().and_then(|mapping| mapping.prefaulter())
    }

    /// Returns the mapping of a sealed log, which does not need it any more. The caller unmaps it
    /// later, since that takes a while.
    pub fn into_mapping(self) -> Option<Box<dyn Mapping>> {
        self.mapping
    }

    /// Appends the end record, for which there is always space; afterwards no record can be
    /// appended. After a sync the caller can keep the result as proof of the log's content.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the log is sealed already; otherwise as [`LogWriter::append`].
    pub fn seal(&mut self) -> Result<Seal> {
        self.seal_durable(self.progress.durable())
    }

    /// Like [`LogWriter::seal`], with the durable mark of another writer of the same records, in
    /// units of [`RECORD_ALIGN`]. So both logs have the same bytes.
    ///
    /// # Errors
    /// [`Error::Invalid`], with nothing written, if the mark is after the last record; otherwise as
    /// [`LogWriter::seal`].
    pub fn seal_with_mark(&mut self, mark: u32) -> Result<Seal> {
        let durable = u64::from(mark) * RECORD_ALIGN;
        if durable > self.end {
            return Err(Error::invalid(format!(
                "the durable mark {durable} is after the end {} of the log {}",
                self.end,
                self.progress.file().path().display()
            )));
        }
        self.seal_durable(durable)
    }

    fn seal_durable(&mut self, durable: u64) -> Result<Seal> {
        let running = self.running;
        let payload = running.encode();
        let head = (self.sequence, RecordKind::End, durable);
        self.write_record(head, &[&payload], payload.len())?;
        self.state = WriterState::Sealed;
        Ok(Seal { len: self.end, checksum: running.checksum })
    }

    /// Running checksum over all records, which an end record would have.
    pub fn running_checksum(&self) -> u64 {
        self.running.checksum
    }

    /// Whether records can be appended: the log is not sealed, and no append failed permanently.
    pub fn is_open(&self) -> bool {
        matches!(self.state, WriterState::Open)
    }

    /// Returns the id of the log.
    pub fn log_id(&self) -> u64 {
        self.binding.log_id
    }

    fn check_state(&self) -> Result<()> {
        match &self.state {
            WriterState::Open => Ok(()),
            WriterState::Sealed => Err(Error::invalid(format!(
                "the log {} is sealed; start a new log",
                self.progress.file().path().display()
            ))),
            WriterState::Failed(reason) => Err(Error::ReadOnly(reason.clone())),
        }
    }

    /// Writes a record with this sequence number, kind and durable mark in bytes. REQUIRES: the
    /// record fits, and `payload_bytes` is the sum of the parts.
    fn write_record(
        &mut self,
        (sequence, kind, durable): (u64, RecordKind, u64),
        payload: &[&[u8]],
        payload_bytes: usize,
    ) -> Result<AppendPosition> {
        self.check_state()?;
        if sequence < self.sequence {
            return Err(Error::invalid(format!(
                "sequence number {sequence} after {} in the log {}: they must not decrease",
                self.sequence,
                self.progress.file().path().display()
            )));
        }
        let header = RecordHeader {
            checksum: 0,
            payload_bytes: payload_bytes as u32,
            sequence,
            durable,
            kind,
        };
        let bytes = header.record_bytes();
        let written = if self.mapping.is_some() && bytes > JOIN_BYTES_MAX {
            self.store_parts(&header, payload, payload_bytes)
        } else {
            self.store_joined(&header, payload, bytes as usize)
        };
        match written {
            Ok(checksum) => {
                self.running.add(self.end, checksum);
                self.end += bytes;
                self.progress.set_end(self.end);
                self.sequence = sequence;
                Ok(AppendPosition { end: self.end })
            }
            Err(error) => {
                if !self.can_undo(&error) {
                    self.state = WriterState::Failed(error.to_string());
                }
                Err(error)
            }
        }
    }

    /// Truncates a write that failed for lack of space. Returns whether the file is as before the
    /// write.
    fn can_undo(&self, error: &Error) -> bool {
        self.mapping.is_none()
            && matches!(error, Error::DiskFull { .. })
            && self.progress.file().set_len(self.end).is_ok()
    }

    /// Frees the space after the last record; no further record can be appended. The caller need
    /// not sync the file.
    ///
    /// # Errors
    /// Returned if the file cannot be truncated; it then keeps its space.
    pub fn release_unused_space(&mut self) -> Result<()> {
        self.state = WriterState::Sealed;
        // A mapped file must not be cut.
        self.mapping = None;
        self.progress.file().set_len(self.end)
    }

    /// Writes the record with one call. Returns its checksum.
    fn store_joined(
        &mut self,
        header: &RecordHeader,
        payload: &[&[u8]],
        record_bytes: usize,
    ) -> Result<u64> {
        self.buffer.clear();
        self.buffer.reserve(record_bytes);
        self.buffer.extend_from_slice(&header.encode(self.binding.checksum_id()));
        for part in payload {
            self.buffer.extend_from_slice(part);
        }
        self.buffer.resize(record_bytes, 0);
        let sum = record_checksum(self.binding, self.end, &self.buffer);
        self.buffer[..8].copy_from_slice(&sum.to_le_bytes());
        match &mut self.mapping {
            Some(mapping) => mapping.write_at(&self.buffer, self.end)?,
            None => self.progress.write_or_defer(&self.buffer, self.end)?,
        }
        if self.buffer.capacity() > BUFFER_BYTES_RETAINED {
            self.buffer = Vec::new();
        }
        Ok(sum)
    }

    /// Stores a long record part by part, and returns its checksum. If the process dies meanwhile,
    /// the partial record does not match its checksum. The header is stored last, so that its
    /// length is not in the file before the payload.
    fn store_parts(
        &mut self,
        header: &RecordHeader,
        payload: &[&[u8]],
        payload_bytes: usize,
    ) -> Result<u64> {
        let mut head = header.encode(self.binding.checksum_id());
        let padding_bytes = header.record_bytes() as usize - RECORD_HEADER_BYTES - payload_bytes;
        let padding = &[0; RECORD_ALIGN as usize][..padding_bytes];
        let mut parts = Vec::with_capacity(payload.len() + 2);
        parts.push(&head[8..]);
        parts.extend_from_slice(payload);
        parts.push(padding);
        let sum = parts_checksum(self.binding, self.end, &parts);
        let mapping = self.mapping.as_mut().expect("only mapped records are stored in parts");
        let mut offset = self.end + RECORD_HEADER_BYTES as u64;
        for part in &parts[1..] {
            if !part.is_empty() {
                mapping.write_at(part, offset)?;
                offset += part.len() as u64;
            }
        }
        head[..8].copy_from_slice(&sum.to_le_bytes());
        mapping.write_at(&head, self.end)?;
        Ok(sum)
    }
}
