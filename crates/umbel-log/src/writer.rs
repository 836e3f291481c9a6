//! [`LogWriter`]: appends records to a new log file.
//!
//! INVARIANT: a failed write is final. The writer cannot know what of it reached the file, so it
//! refuses every later append instead of writing on behind or over it. The one exception is a write
//! to a file that is not mapped, on a disk without room: not all of it reached the file, and what
//! did is cut off again, because its missing end may be zeros, which would make it whole. The cut
//! is durable once the caller has synced the file. Of a log that holds its records it is
//! [`LogProgress`] that writes, and refuses to.

use std::path::Path;
use std::sync::Arc;

use umbel_base::{Error, Result};
use umbel_env::{Access, Env, File, Mapping, Populator};

use crate::format::{
    Binding, END_RECORD_BYTES, FileHeader, HEADER_BYTES, LogKind, PAYLOAD_BYTES_MAX, RECORD_ALIGN,
    RECORD_HEADER_BYTES, RecordHeader, RecordKind, Running, Sealed, parts_checksum, record_bytes,
    record_checksum,
};
use crate::held::{Held, filled_first};
use crate::progress::LogProgress;

/// Up to here a mapped record is joined in the buffer and stored with one call; a longer one is
/// stored part by part, because copying it twice would cost more than the calls.
const JOIN_BYTES_MAX: u64 = 64 << 10;
/// A buffer that grew beyond this for one record is given back.
const BUFFER_BYTES_KEPT: usize = 1 << 20;

/// How to create a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogOptions {
    /// What the log is used for.
    pub kind: LogKind,
    /// The log's id. It must never have been used for another log of this store.
    pub log_id: u64,
    /// The log's salt; 0 unless the file may be used again or was.
    pub salt: u64,
    /// Preallocate and map this many bytes; records stop fitting there. 0 for a file that grows.
    pub segment_bytes: u64,
}

impl LogOptions {
    fn binding(&self) -> Binding {
        Binding { log_id: self.log_id, salt: self.salt }
    }
}

/// Writes the header of a new log over that of an old one, whose records nobody needs any more. The
/// caller syncs the file, and only then renames it to the new log's name and makes that durable:
/// under the new name a header of the old log would be a file in the wrong place. Then it calls
/// [`LogWriter::reuse`].
///
/// # Errors
/// A failed write.
pub fn relabel(file: &dyn File, options: LogOptions) -> Result<()> {
    file.write_all_at(&FileHeader::encode(options.kind, options.binding()), 0)
}

/// Where a record was put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// The offset behind the record: it is durable once everything below this is synced.
    pub end: u64,
}

/// Appends records to one log file.
#[derive(Debug)]
pub struct LogWriter {
    progress: Arc<LogProgress>,
    mapping: Option<Box<dyn Mapping>>,
    binding: Binding,
    capacity: u64,
    end: u64,
    sequence: u64,
    running: Running,
    buffer: Vec<u8>,
    state: State,
}

#[derive(Debug)]
enum State {
    Open,
    Sealed,
    Failed(String),
}

impl LogWriter {
    /// Creates the file and writes its header. Syncs neither the file nor its directory: before the
    /// first record is called durable the caller does both. It may then call
    /// [`LogWriter::set_durable`] with [`HEADER_BYTES`], so that a lost header is known as damage.
    ///
    /// # Errors
    /// Where the name exists, and [`Error::Full`] where the segment does not fit on the disk; a
    /// file that could not be set up is removed again. [`Error::Invalid`] for a segment too short
    /// to hold anything.
    pub fn create(env: &Env, path: &Path, options: LogOptions) -> Result<LogWriter> {
        LogWriter::create_as(env, path, options, false)
    }

    /// As [`LogWriter::create`], for a log whose records nobody relies on before they are synced:
    /// they are held in memory until [`LogProgress::sync`] or [`LogProgress::write_out`], and do
    /// not survive the death of the process before. The segment is not mapped but filled with zeros
    /// some way ahead, so that most syncs write the records and nothing about the file.
    ///
    /// # Errors
    /// As [`LogWriter::create`]; [`Error::Invalid`] also for a file that grows.
    pub fn create_held(env: &Env, path: &Path, options: LogOptions) -> Result<LogWriter> {
        if options.segment_bytes == 0 {
            let reason = "a log that holds its records needs the length of a segment";
            return Err(Error::invalid(reason));
        }
        LogWriter::create_as(env, path, options, true)
    }

    fn create_as(env: &Env, path: &Path, options: LogOptions, holds: bool) -> Result<LogWriter> {
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
            // The first failure is the one to report. What is left is an empty log at worst.
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
        // What cannot be mapped may need new space wherever it is written over.
        let fills_to = if mapping.is_some() { segment_bytes } else { 0 };
        if holds {
            mapping = None;
        }
        let header = FileHeader::encode(options.kind, options.binding());
        let filled = if holds { filled_first(fills_to) } else { 0 };
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
            true => progress.holding(Held::new(env, file.path(), &header, fills_to)?),
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
            running: Running::new(u64::from_le_bytes(*sum)),
            buffer: Vec::new(),
            state: State::Open,
        }
    }

    /// Begins a log in a file that held an earlier log of the same length and was [relabelled], as
    /// the same options say. What the file holds behind its header stays until records go over it.
    ///
    /// # Errors
    /// Where the file cannot be opened or, other than before, not be mapped: to be written over, a
    /// file has to be.
    ///
    /// [relabelled]: relabel
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

    /// Appends one record whose payload is the concatenation of `payload`. It survives the death of
    /// the process from now on, unless records [are held](LogWriter::create_held), and power loss
    /// once [`LogWriter::file`] was synced.
    ///
    /// # Errors
    /// [`Error::Invalid`], with nothing written, where the record does not [fit](LogWriter::fits),
    /// its sequence number is lower than the last one, or the log is sealed. Any other error is
    /// final, and every later append refused with [`Error::ReadOnly`], unless it is
    /// [`Error::Full`] and the log [is open](LogWriter::is_open) still: then the caller syncs the
    /// file before anything else is appended, so that what was cut off cannot come back.
    pub fn append(&mut self, sequence: u64, payload: &[&[u8]]) -> Result<Appended> {
        let payload_bytes = payload.iter().fold(0, |sum, part| sum + part.len());
        if !self.fits(payload_bytes) {
            self.check_state()?;
            return Err(Error::invalid(format!(
                "a payload of {payload_bytes} bytes does not fit into the log {} behind byte {}; \
                 start a new log",
                self.progress.file().path().display(),
                self.end
            )));
        }
        self.write_record(sequence, RecordKind::Data, payload, payload_bytes)
    }

    /// Whether a record with a payload of this length can be appended and the log sealed after it.
    #[inline]
    pub fn fits(&self, payload_bytes: usize) -> bool {
        payload_bytes as u64 <= PAYLOAD_BYTES_MAX
            && record_bytes(payload_bytes as u64) + END_RECORD_BYTES <= self.capacity - self.end
    }

    /// The offset behind the last record.
    #[inline]
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Where records stop fitting, in bytes from the file's beginning.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// The file, so that callers can sync it without holding a lock on the writer.
    pub fn file(&self) -> Arc<dyn File> {
        Arc::clone(self.progress.file())
    }

    /// Where the log stands, for whoever syncs it without holding a lock on the writer.
    pub fn progress(&self) -> &Arc<LogProgress> {
        &self.progress
    }

    /// As [`LogProgress::note_durable`].
    pub fn set_durable(&mut self, offset: u64) {
        self.progress.note_durable(offset);
    }

    /// Whether the file is mapped, so that its pages can be made ready and the file used again.
    pub fn is_mapped(&self) -> bool {
        self.mapping.is_some()
    }

    /// What makes pages ready ahead of the records, where the file is mapped.
    pub fn populator(&self) -> Option<Arc<dyn Populator>> {
        self.mapping.as_ref().and_then(|mapping| mapping.populator())
    }

    /// The mapping of a sealed log, which needs it no more: giving it back takes a while.
    pub fn into_mapping(self) -> Option<Box<dyn Mapping>> {
        self.mapping
    }

    /// Appends the end record; there is always room for it. The caller syncs the file, and then may
    /// keep what is returned as proof of what the log holds. Nothing can be appended afterwards.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the log is sealed already; otherwise as [`LogWriter::append`].
    pub fn seal(&mut self) -> Result<Sealed> {
        let running = self.running;
        let payload = running.encode();
        self.write_record(self.sequence, RecordKind::End, &[&payload], payload.len())?;
        self.state = State::Sealed;
        Ok(Sealed { len: self.end, checksum: running.checksum })
    }

    /// Whether records can be appended: it was not sealed, and no append failed for good.
    pub fn is_open(&self) -> bool {
        matches!(self.state, State::Open)
    }

    /// The log's id.
    pub fn log_id(&self) -> u64 {
        self.binding.log_id
    }

    fn check_state(&self) -> Result<()> {
        match &self.state {
            State::Open => Ok(()),
            State::Sealed => Err(Error::invalid(format!(
                "the log {} is sealed; start a new log",
                self.progress.file().path().display()
            ))),
            State::Failed(reason) => Err(Error::ReadOnly(reason.clone())),
        }
    }

    /// REQUIRES: the record fits; `payload_bytes` is the sum of the parts.
    fn write_record(
        &mut self,
        sequence: u64,
        kind: RecordKind,
        payload: &[&[u8]],
        payload_bytes: usize,
    ) -> Result<Appended> {
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
            durable: self.progress.durable(),
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
                Ok(Appended { end: self.end })
            }
            Err(error) => {
                if !self.takes_back(&error) {
                    self.state = State::Failed(error.to_string());
                }
                Err(error)
            }
        }
    }

    /// Whether what was refused for want of room could be cut off, so that everything is as before.
    fn takes_back(&self, error: &Error) -> bool {
        self.mapping.is_none()
            && matches!(error, Error::Full { .. })
            && self.progress.file().set_len(self.end).is_ok()
    }

    /// Gives back the room behind the last record; nothing is appended any more. The caller need
    /// not make that durable.
    ///
    /// # Errors
    /// Where the file cannot be cut: then it keeps its room.
    pub fn give_room_back(&mut self) -> Result<()> {
        self.state = State::Sealed;
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
            None => self.progress.write_or_hold(&self.buffer, self.end)?,
        }
        if self.buffer.capacity() > BUFFER_BYTES_KEPT {
            self.buffer = Vec::new();
        }
        Ok(sum)
    }

    /// Stores a long record without joining it. A process that dies in between leaves a record
    /// that does not match its checksum, whatever the order; the header goes last so that not even
    /// its length stands before the payload does. Returns the record's checksum.
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
