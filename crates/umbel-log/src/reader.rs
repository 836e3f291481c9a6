//! [`LogReader`]: returns a log's records in order, and determines how they end: with the log's
//! end, a torn tail, or damage.
//!
//! INVARIANT: the reader never silently skips bytes that a sync made durable and that a later
//! durable mark covers. If it cannot decide, it reports corruption.

use std::path::Path;

use umbel_base::{Error, Result};
use umbel_env::{Access, Env};

use crate::format::{
    FileHeader, HEADER_BYTES, LogKind, RECORD_ALIGN, RECORD_HEADER_BYTES, RecordBinding,
    RecordHeader, RecordKind, RunningChecksum, Seal, VERSION, record_checksum,
};
use crate::read_buffer::ReadBuffer;
use crate::torn_tail::{Tail, examine};

/// Knowledge about the end of a log before the log is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpectedEnd {
    /// Nothing is known: the log was possibly in use when the process or the machine died. Any
    /// invalid bytes after the last durable mark are a torn tail.
    Open,
    /// The log was sealed with this result of [`LogWriter::seal`](crate::LogWriter::seal), so the
    /// file must be complete.
    Sealed(Seal),
    /// The records, or the end record, up to this offset are durable. Nothing after it is read, and
    /// it can have any bytes.
    Prefix(u64),
}

/// A record of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// Sequence number with which the record was appended.
    pub sequence: u64,
    /// Offset of the record in the file, in bytes; the payload follows the record's header.
    pub offset: u64,
    /// The appended bytes.
    pub payload: &'a [u8],
}

/// Result of reading a log, which is final after [`LogReader::next`] has returned `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadOutcome {
    /// Offset after the last valid record; 0 if not even the header is valid.
    pub end: u64,
    /// Whether the log has an end record.
    pub sealed: bool,
    /// Whether nonzero bytes after `end` were ignored, or the file has no valid header.
    pub torn: bool,
    /// The largest durable mark of all records, in bytes.
    pub durable_max: u64,
    /// Number of records returned.
    pub records: u64,
    /// Running checksum over the returned records. If the log is `sealed`, this checksum and `end`
    /// are its [`Seal`].
    pub checksum: u64,
}

/// Reads one log file from its beginning.
#[derive(Debug)]
pub struct LogReader {
    window: ReadBuffer,
    binding: RecordBinding,
    /// Whether the salt was known before the header was read.
    is_bound: bool,
    expectation: ExpectedEnd,
    position: u64,
    sequence: u64,
    running: RunningChecksum,
    durable_max: u64,
    sealed: bool,
    torn: bool,
    state: ReaderState,
}

#[derive(Debug)]
enum ReaderState {
    Reading,
    Done,
    Failed(Error),
}

/// Location of the payload of the last record.
struct RecordLocation {
    sequence: u64,
    offset: u64,
    payload_bytes: usize,
}

impl LogReader {
    /// Opens a log without a salt, and checks its header.
    ///
    /// # Errors
    /// [`Error::Corruption`] if the file is not the log of `kind` and `log_id`, if a damaged header
    /// had been durable, or if a sealed log is missing or truncated. [`Error::Invalid`] if a newer
    /// Umbel wrote the file. [`Error::Io`] for a missing file that is not known to be sealed.
    pub fn open(
        env: &Env,
        path: &Path,
        kind: LogKind,
        log_id: u64,
        expectation: ExpectedEnd,
    ) -> Result<LogReader> {
        LogReader::open_bound(env, path, kind, log_id, Some(0), expectation)
    }

    /// Like [`LogReader::open`], for a log with the given salt; a file with another salt is another
    /// log. If the salt is unknown, the header's salt is used. Damage of the header can then look
    /// like a log that was torn at its creation.
    ///
    /// # Errors
    /// As [`LogReader::open`].
    pub fn open_bound(
        env: &Env,
        path: &Path,
        kind: LogKind,
        log_id: u64,
        salt: Option<u64>,
        expectation: ExpectedEnd,
    ) -> Result<LogReader> {
        let opened = env.files.open(path, Access::Read);
        let file = match (opened, expectation) {
            (Err(error), ExpectedEnd::Sealed(sealed)) if error.is_missing_file() => {
                let reason = format!(
                    "the {} {log_id}, sealed with {} bytes, is missing",
                    kind.noun(),
                    sealed.len
                );
                return Err(Error::corruption(path, 0, reason));
            }
            (opened, _) => opened?,
        };
        let len = file.len()?;
        let limit = match expectation {
            ExpectedEnd::Open => len,
            ExpectedEnd::Sealed(sealed) if len >= sealed.len => sealed.len,
            ExpectedEnd::Prefix(end) if len >= end => end,
            ExpectedEnd::Prefix(end) => {
                let reason = format!(
                    "the file ends here, but the log was durable up to byte {end}: the file is an \
                     older copy or was truncated"
                );
                return Err(Error::corruption(path, len, reason));
            }
            ExpectedEnd::Sealed(sealed) => {
                let reason = format!(
                    "the file ends here, but the log was sealed with {} bytes: the file is an \
                     older copy or was truncated",
                    sealed.len
                );
                return Err(Error::corruption(path, len, reason));
            }
        };
        let mut reader = LogReader {
            window: ReadBuffer::new(file, limit),
            binding: RecordBinding { log_id, salt: salt.unwrap_or(0) },
            is_bound: salt.is_some(),
            expectation,
            position: 0,
            sequence: 0,
            running: RunningChecksum::new(0),
            durable_max: 0,
            sealed: false,
            torn: false,
            state: ReaderState::Reading,
        };
        reader.read_header(kind)?;
        Ok(reader)
    }

    /// Returns the next record; `None` at the end of the log or at a torn tail.
    ///
    /// Whether a sealed log is the right one is known only after `None`: a caller must not rely on
    /// records returned before an error.
    ///
    /// # Errors
    /// [`Error::Corruption`] with the file and the offset of the damage. A failed read is an error,
    /// and is never taken for the log's end. Later calls return the same error.
    #[expect(
        clippy::should_implement_trait,
        reason = "the record borrows from the reader, which an Iterator cannot lend"
    )]
    pub fn next(&mut self) -> Result<Option<Record<'_>>> {
        match &self.state {
            ReaderState::Reading => {}
            ReaderState::Done => return Ok(None),
            ReaderState::Failed(error) => return Err(error.clone()),
        }
        match self.step_with_live_writer() {
            Ok(Some(RecordLocation { sequence, offset, payload_bytes })) => {
                let start = offset + RECORD_HEADER_BYTES as u64;
                let payload = self.window.filled_bytes(start, payload_bytes);
                Ok(Some(Record { sequence, offset, payload }))
            }
            Ok(None) => {
                self.state = ReaderState::Done;
                Ok(None)
            }
            Err(error) => {
                self.state = ReaderState::Failed(error.clone());
                Err(error)
            }
        }
    }

    /// Returns the result of reading so far.
    pub fn outcome(&self) -> ReadOutcome {
        ReadOutcome {
            end: self.position,
            sealed: self.sealed,
            torn: self.torn,
            durable_max: self.durable_max,
            records: self.running.records,
            checksum: self.running.checksum,
        }
    }

    /// Running checksum over the returned records, and the sequence number of the last one.
    pub(crate) fn running(&self) -> (RunningChecksum, u64) {
        (self.running, self.sequence)
    }

    /// Returns the offset of a valid record of this log after the point where reading ended. Damage
    /// leaves such a record, and also a power loss after which later pages were on the disk first.
    /// `None` if there is no such record, or too many bytes look like records.
    ///
    /// REQUIRES: [`LogReader::next`] returned `None`.
    ///
    /// # Errors
    /// Returned if the file cannot be read.
    pub fn find_record_after_end(&mut self) -> Result<Option<u64>> {
        if !self.torn || self.sealed {
            return Ok(None);
        }
        let start = self.position + RECORD_ALIGN;
        Ok(match examine(&mut self.window, self.binding, start, 0)? {
            Tail::Record { offset, .. } => Some(offset),
            Tail::Zeros | Tail::Bytes | Tail::Undecided => None,
        })
    }

    fn corruption(&self, offset: u64, reason: impl Into<String>) -> Error {
        Error::corruption(self.window.file.path(), offset, reason)
    }

    /// Reads the file's header and moves the position after it; a torn header ends the reading.
    fn read_header(&mut self, kind: LogKind) -> Result<()> {
        let mut header = None;
        if self.window.limit >= HEADER_BYTES {
            let bytes = self.window.get(0, HEADER_BYTES as usize)?;
            header = bytes.first_chunk().and_then(FileHeader::decode);
            if !self.is_bound {
                // In a damaged header it is still the best guess.
                self.binding.salt = FileHeader::salt(bytes);
            }
        }
        let Some(header) = header else {
            if self.expectation != ExpectedEnd::Open {
                let reason = "the file does not begin with the header of an Umbel log";
                return Err(self.corruption(0, reason));
            }
            self.finish_at_gap()?;
            self.torn = true;
            self.state = ReaderState::Done;
            return Ok(());
        };
        if header.version > VERSION || (header.version == VERSION && header.reserved_set) {
            return Err(Error::invalid(format!(
                "{} was written by a newer Umbel (log format {}, this one reads up to {VERSION}); \
                 open the store with that version or a later one",
                self.window.file.path().display(),
                header.version
            )));
        }
        if header.version != VERSION {
            let reason = format!("there is no log format {}", header.version);
            return Err(self.corruption(8, reason));
        }
        if header.binding.salt == 0 {
            // A log without a salt is not in a used file: it says nothing.
            self.binding.salt = 0;
        }
        if header.kind != kind as u8 || header.binding != self.binding {
            let reason = format!(
                "this is log {} of kind {}, but the {} {} (kind {}) of this store was expected: \
                 the file is in the wrong place",
                header.binding.log_id,
                header.kind,
                kind.noun(),
                self.binding.log_id,
                kind as u8
            );
            return Err(self.corruption(0, reason));
        }
        self.running = RunningChecksum::new(header.checksum);
        self.position = HEADER_BYTES;
        Ok(())
    }

    /// Reads the record at the position, and reads it again if it seems damaged.
    ///
    /// A writer in another process can store records during the read. The window can then have
    /// older bytes, although a valid record after them proves that the writer has stored newer
    /// bytes there. So either the second read finds the record, or the damage is on the disk. The
    /// writer can also truncate unused space of the file.
    fn step_with_live_writer(&mut self) -> Result<Option<RecordLocation>> {
        match self.step() {
            Err(Error::Corruption { .. }) if self.expectation == ExpectedEnd::Open => {
                self.window.discard()?;
                self.step()
            }
            done => done,
        }
    }

    /// Lets the reader continue after [`LogReader::next`] returned `None`, because a writer in
    /// another process has possibly appended records. Returns `false` if no record can follow.
    ///
    /// # Errors
    /// Returned if the file's length cannot be read.
    pub fn resume(&mut self) -> Result<bool> {
        let is_prefix = matches!(self.expectation, ExpectedEnd::Prefix(_));
        let is_done = matches!(self.state, ReaderState::Done);
        if self.sealed || is_prefix || self.position == 0 || !is_done {
            return Ok(false);
        }
        self.window.discard()?;
        self.window.limit = self.window.file.len()?;
        (self.state, self.torn) = (ReaderState::Reading, false);
        Ok(true)
    }

    /// Reads the record at the position. Returns `None` at the log's end or a torn tail.
    fn step(&mut self) -> Result<Option<RecordLocation>> {
        let offset = self.position;
        let Some(record) = self.read_record(offset)? else {
            self.finish_at_gap()?;
            return Ok(None);
        };
        // From here on a writer has written the bytes.
        if record.sequence < self.sequence {
            let reason = format!(
                "sequence number {} comes after {}, but sequence numbers never decrease",
                record.sequence, self.sequence
            );
            return Err(self.corruption(offset, reason));
        }
        if record.durable > offset {
            let reason = format!("the durable mark {} is after its own record", record.durable);
            return Err(self.corruption(offset, reason));
        }
        self.sequence = record.sequence;
        self.durable_max = self.durable_max.max(record.durable);
        let payload_bytes = record.payload_bytes as usize;
        if record.kind == RecordKind::End {
            self.finish_at_end(offset, payload_bytes)?;
            return Ok(None);
        }
        self.running.add(offset, record.checksum);
        self.position = offset + record.record_bytes();
        Ok(Some(RecordLocation { sequence: record.sequence, offset, payload_bytes }))
    }

    /// Reads the record at `offset` into the window; returns `None` if there is no valid record.
    #[inline]
    fn read_record(&mut self, offset: u64) -> Result<Option<RecordHeader>> {
        if self.window.remaining(offset) < RECORD_HEADER_BYTES as u64 {
            return Ok(None);
        }
        let head = self.window.get(offset, RECORD_HEADER_BYTES)?;
        let Some(record) = RecordHeader::decode(self.binding.checksum_id(), head) else {
            return Ok(None);
        };
        if record.record_bytes() > self.window.remaining(offset) {
            return Ok(None);
        }
        let bytes = self.window.get(offset, record.record_bytes() as usize)?;
        let valid = record_checksum(self.binding, offset, bytes) == record.checksum;
        Ok(valid.then_some(record))
    }

    /// Ends the reading at a position without a valid record. Returns an error if a valid record
    /// must be there.
    fn finish_at_gap(&mut self) -> Result<()> {
        let gap = self.position;
        match self.expectation {
            ExpectedEnd::Open => {}
            ExpectedEnd::Prefix(end) if gap == end => return Ok(()),
            ExpectedEnd::Prefix(end) => {
                let reason = format!(
                    "there is no valid record here, but the log was durable up to byte {end}: the \
                     file is damaged, or an older copy"
                );
                return Err(self.corruption(gap, reason));
            }
            ExpectedEnd::Sealed(sealed) => {
                let reason = format!(
                    "there is no valid record here, but the log was sealed with {} bytes: the file \
                     is damaged, an older copy, or was truncated",
                    sealed.len
                );
                return Err(self.corruption(gap, reason));
            }
        }
        match examine(&mut self.window, self.binding, gap, gap + 1)? {
            Tail::Zeros => Ok(()),
            Tail::Bytes => {
                self.torn = true;
                Ok(())
            }
            Tail::Record { offset, durable } => Err(self.corruption(
                gap,
                format!(
                    "there is no valid record here, but the record at byte {offset} says that \
                     everything below byte {durable} was durable when it was written"
                ),
            )),
            Tail::Undecided => Err(self.corruption(
                gap,
                "there is no valid record here, and the bytes that follow look so much like \
                 records that a torn tail and damage cannot be distinguished",
            )),
        }
    }

    /// Ends the reading at the end record at `offset`, and checks the content of the log against
    /// it.
    fn finish_at_end(&mut self, offset: u64, payload_bytes: usize) -> Result<()> {
        let payload = self.window.filled_bytes(offset + RECORD_HEADER_BYTES as u64, payload_bytes);
        let Some(stated) = RunningChecksum::decode(payload) else {
            let reason =
                format!("the payload of this end record has {payload_bytes} bytes instead of 16");
            return Err(self.corruption(offset, reason));
        };
        if stated != self.running {
            let reason = format!(
                "the end record counts {} records with checksum {:016x}, but there are {} with \
                 {:016x}",
                stated.records, stated.checksum, self.running.records, self.running.checksum
            );
            return Err(self.corruption(offset, reason));
        }
        let end = offset + crate::format::record_bytes(payload_bytes as u64);
        if let ExpectedEnd::Prefix(through) = self.expectation
            && end != through
        {
            let reason = format!("the log ends here, but it was durable up to byte {through}");
            return Err(self.corruption(end, reason));
        }
        if let ExpectedEnd::Sealed(sealed) = self.expectation {
            if sealed != (Seal { len: end, checksum: stated.checksum }) {
                let reason = format!(
                    "the log ends at byte {end} with checksum {:016x}, but it was sealed at byte \
                     {} with {:016x}: the file is an older copy or another log",
                    stated.checksum, sealed.len, sealed.checksum
                );
                return Err(self.corruption(offset, reason));
            }
        } else {
            match examine(&mut self.window, self.binding, end, 0)? {
                Tail::Zeros => {}
                Tail::Bytes => self.torn = true,
                Tail::Record { offset, .. } => {
                    let reason = format!("a record of this log after its end at byte {end}");
                    return Err(self.corruption(offset, reason));
                }
                Tail::Undecided => {
                    let reason = "the bytes after the log's end look like records: one may be lost";
                    return Err(self.corruption(end, reason));
                }
            }
        }
        self.position = end;
        self.sealed = true;
        Ok(())
    }
}
