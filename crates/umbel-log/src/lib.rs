//! One log file: the writer that appends records, and the reader that recovers them. The tail
//! policy distinguishes a torn tail (which is trimmed) from damaged bytes that were durable (an
//! error that names file and offset).
//!
//! The write-ahead log and the manifest are both made of such files. What is inside a record's
//! payload is their business. The bytes are described in `docs/formats/log.md`.
//!
//! INVARIANT: a record is returned only if every byte of it, its place in the file and the
//! log it belongs to agree with its checksum, and every record before it was returned too.
#![forbid(unsafe_code)]

mod fatal_error;
mod format;
mod pending_records;
mod read_buffer;
mod record_salvage;
mod torn_tail;

pub mod log_progress;
pub mod reader;
pub mod writer;

pub use format::{
    END_RECORD_BYTES, HEADER_BYTES, LogKind, RECORD_ALIGN, RECORD_HEADER_BYTES, RecordBinding,
    Seal, record_bytes,
};
pub use log_progress::LogProgress;
pub use reader::{ExpectedEnd, LogReader, ReadOutcome, Record};
pub use record_salvage::{record_at, stated_bytes};
pub use writer::{AppendPosition, LogOptions, LogWriter, write_recycled_header};
