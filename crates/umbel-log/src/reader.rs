//! [`LogReader`]: hands out a log's records in order and decides what the place is where they stop:
//! the end, a torn tail, or damage.
//!
//! INVARIANT: bytes that a sync made durable, and that a later durable mark speaks of, are never
//! passed over in silence. Where the reader cannot tell, it reports corruption.

use std::path::Path;

use umbel_base::{Error, Result};
use umbel_env::{Access, Env};

use crate::format::{
    Binding, FileHeader, HEADER_BYTES, LogKind, RECORD_ALIGN, RECORD_HEADER_BYTES, RecordHeader,
    RecordKind, Running, Sealed, VERSION, record_checksum,
};
use crate::tail::{Tail, examine};
use crate::window::Window;

/// What is known about a log before it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expectation {
    /// Nothing: it may have been in use when the process or the machine died. Torn bytes behind the
    /// last durable mark are a tail, whatever they are.
    Open,
    /// It was sealed, and this is what [`LogWriter::seal`](crate::LogWriter::seal) returned. The
    /// file must be whole.
    Sealed(Sealed),
}

/// One record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// The sequence number it was appended with.
    pub sequence: u64,
    /// Where in the file the record begins, in bytes; its payload is behind its header.
    pub offset: u64,
    /// What was appended, in one piece.
    pub payload: &'a [u8],
}

/// What was learned by reading. Final once [`LogReader::next`] has returned `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// The offset behind the last valid record; 0 where not even the header is valid.
    pub end: u64,
    /// Whether an end record was seen.
    pub sealed: bool,
    /// Whether bytes other than zeros were ignored behind `end`, or the file has no valid header.
    pub torn: bool,
    /// The largest durable mark of all records, in bytes.
    pub durable_max: u64,
    /// How many records were handed out.
    pub records: u64,
    /// The running checksum over these records: with `end` and `sealed` it makes a [`Sealed`].
    pub checksum: u64,
}

/// Reads one log file from its beginning.
#[derive(Debug)]
pub struct LogReader {
    window: Window,
    binding: Binding,
    /// Whether the salt was known before the header was read.
    is_bound: bool,
    expectation: Expectation,
    position: u64,
    sequence: u64,
    running: Running,
    durable_max: u64,
    sealed: bool,
    torn: bool,
    state: State,
}

#[derive(Debug)]
enum State {
    Reading,
    Done,
    Failed(Error),
}

/// Where the payload of the record just read lies.
struct Found {
    sequence: u64,
    offset: u64,
    payload_bytes: usize,
}

impl LogReader {
    /// Opens a log without a salt and judges its header.
    ///
    /// # Errors
    /// [`Error::Corruption`] where the file is another log than `kind` and `log_id` say, where the
    /// damaged header had been durable, and where a sealed log is missing, cut or without header.
    /// [`Error::Invalid`] where a newer Umbel wrote it. A missing file that is not known to be
    /// sealed is [`Error::Io`].
    pub fn open(
        env: &Env,
        path: &Path,
        kind: LogKind,
        log_id: u64,
        expectation: Expectation,
    ) -> Result<LogReader> {
        LogReader::open_bound(env, path, kind, log_id, Some(0), expectation)
    }

    /// As [`LogReader::open`], of a log with this salt or none; with another one the file is
    /// another log. Where nobody knows the salt the header's is believed, and damage to that can
    /// look like a log that was torn when it was made.
    ///
    /// # Errors
    /// As [`LogReader::open`].
    pub fn open_bound(
        env: &Env,
        path: &Path,
        kind: LogKind,
        log_id: u64,
        salt: Option<u64>,
        expectation: Expectation,
    ) -> Result<LogReader> {
        let opened = env.files.open(path, Access::Read);
        let file = match (opened, expectation) {
            (Err(error), Expectation::Sealed(sealed)) if error.is_missing_file() => {
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
            Expectation::Open => len,
            Expectation::Sealed(sealed) if len >= sealed.len => sealed.len,
            Expectation::Sealed(sealed) => {
                let reason = format!(
                    "the file ends here, but the log was sealed with {} bytes: the file is an \
                     older copy or was cut",
                    sealed.len
                );
                return Err(Error::corruption(path, len, reason));
            }
        };
        let mut reader = LogReader {
            window: Window::new(file, limit),
            binding: Binding { log_id, salt: salt.unwrap_or(0) },
            is_bound: salt.is_some(),
            expectation,
            position: 0,
            sequence: 0,
            running: Running::new(0),
            durable_max: 0,
            sealed: false,
            torn: false,
            state: State::Reading,
        };
        reader.read_header(kind)?;
        Ok(reader)
    }

    /// The next record, or `None` at the end of the log or at a tail that may be ignored.
    ///
    /// A sealed log is known to be the right one only when `None` has been returned: what was
    /// handed out before an error must not be relied on.
    ///
    /// # Errors
    /// [`Error::Corruption`] with the file and the offset of the damage. A failed read is an error
    /// and never taken for the log's end. The same error is returned from then on.
    #[expect(
        clippy::should_implement_trait,
        reason = "the record borrows from the reader, which an Iterator cannot lend"
    )]
    pub fn next(&mut self) -> Result<Option<Record<'_>>> {
        match &self.state {
            State::Reading => {}
            State::Done => return Ok(None),
            State::Failed(error) => return Err(error.clone()),
        }
        match self.step_beside_writer() {
            Ok(Some(Found { sequence, offset, payload_bytes })) => {
                let start = offset + RECORD_HEADER_BYTES as u64;
                let payload = self.window.held(start, payload_bytes);
                Ok(Some(Record { sequence, offset, payload }))
            }
            Ok(None) => {
                self.state = State::Done;
                Ok(None)
            }
            Err(error) => {
                self.state = State::Failed(error.clone());
                Err(error)
            }
        }
    }

    /// What was learned so far.
    pub fn outcome(&self) -> Outcome {
        Outcome {
            end: self.position,
            sealed: self.sealed,
            torn: self.torn,
            durable_max: self.durable_max,
            records: self.running.records,
            checksum: self.running.checksum,
        }
    }

    /// Where a whole record of this log stands behind the end of one that is torn: a power cut that
    /// had later pages written first leaves such, and so does damage. `None` where none does, or
    /// where too much looks like records.
    ///
    /// REQUIRES: [`LogReader::next`] said that there is no other record.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn behind(&mut self) -> Result<Option<u64>> {
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

    /// Reads the file's header and puts the position behind it; a torn one ends the reading.
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
            if let Expectation::Sealed(_) = self.expectation {
                let reason = "the file does not begin with the header of an Umbel log";
                return Err(self.corruption(0, reason));
            }
            self.finish_at_gap()?;
            self.torn = true;
            self.state = State::Done;
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
            // A log without a salt is not in a used file: there is nothing to be told from it.
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
        self.running = Running::new(header.checksum);
        self.position = HEADER_BYTES;
        Ok(())
    }

    /// Reads the record at the position, and reads again where it finds damage.
    ///
    /// A writer of another process may store records while this reads. The window then has the
    /// bytes of an earlier moment, and a record behind them proves that there are others by now:
    /// what stands before a record was stored before it. So the second look finds the record, or
    /// the damage is on the disk. The writer may also cut off what it never used of the file.
    fn step_beside_writer(&mut self) -> Result<Option<Found>> {
        match self.step() {
            Err(Error::Corruption { .. }) if self.expectation == Expectation::Open => {
                self.window.forget()?;
                self.step()
            }
            done => done,
        }
    }

    /// Goes on behind the last record after [`LogReader::next`] returned `None`, where a writer of
    /// another process may have gone on. `false` where nothing can follow.
    ///
    /// # Errors
    /// The file's length cannot be read.
    pub fn resume(&mut self) -> Result<bool> {
        if self.sealed || self.position == 0 || !matches!(self.state, State::Done) {
            return Ok(false);
        }
        self.window.forget()?;
        self.window.limit = self.window.file.len()?;
        (self.state, self.torn) = (State::Reading, false);
        Ok(true)
    }

    /// Reads the record at the position. `None` where the log ends in a way that is fine.
    fn step(&mut self) -> Result<Option<Found>> {
        let offset = self.position;
        let Some(record) = self.read_record(offset)? else {
            self.finish_at_gap()?;
            return Ok(None);
        };
        // From here on the bytes are what a writer wrote.
        if record.sequence < self.sequence {
            let reason = format!(
                "sequence number {} comes after {}, but sequence numbers never decrease",
                record.sequence, self.sequence
            );
            return Err(self.corruption(offset, reason));
        }
        if record.durable > offset {
            let reason = format!("the durable mark {} lies behind its own record", record.durable);
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
        Ok(Some(Found { sequence: record.sequence, offset, payload_bytes }))
    }

    /// The record at `offset` with all its bytes in the window; `None` where there is no valid one.
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

    /// The position holds no valid record: an error where it should.
    fn finish_at_gap(&mut self) -> Result<()> {
        let gap = self.position;
        if let Expectation::Sealed(sealed) = self.expectation {
            let reason = format!(
                "there is no valid record here, but the log was sealed with {} bytes: the file is \
                 damaged, an older copy, or was cut",
                sealed.len
            );
            return Err(self.corruption(gap, reason));
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
                    "there is nothing valid here, but the record at byte {offset} tells that \
                     everything below byte {durable} was durable when it was written"
                ),
            )),
            Tail::Undecided => Err(self.corruption(
                gap,
                "there is nothing valid here, and what follows is too much like records to tell \
                 a torn tail from damage",
            )),
        }
    }

    /// The valid record at `offset` is an end record: checks what it vouches for.
    fn finish_at_end(&mut self, offset: u64, payload_bytes: usize) -> Result<()> {
        let payload = self.window.held(offset + RECORD_HEADER_BYTES as u64, payload_bytes);
        let Some(stated) = Running::decode(payload) else {
            let reason = format!("an end record has 16 bytes of payload, not {payload_bytes}");
            return Err(self.corruption(offset, reason));
        };
        if stated != self.running {
            let reason = format!(
                "the end record speaks of {} records with checksum {:016x}, but there are {} with \
                 {:016x}",
                stated.records, stated.checksum, self.running.records, self.running.checksum
            );
            return Err(self.corruption(offset, reason));
        }
        let end = offset + crate::format::record_bytes(payload_bytes as u64);
        if let Expectation::Sealed(sealed) = self.expectation {
            if sealed != (Sealed { len: end, checksum: stated.checksum }) {
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
                    let reason = format!("a record of this log behind its end at byte {end}");
                    return Err(self.corruption(offset, reason));
                }
                Tail::Undecided => {
                    let reason = "what stands behind the log's end is too much like its records";
                    return Err(self.corruption(end, reason));
                }
            }
        }
        self.position = end;
        self.sealed = true;
        Ok(())
    }
}
