//! One log file: the writer that appends records, and the reader that recovers them. The reader
//! distinguishes a torn tail, which it ignores, from damage of durable bytes, which is an error
//! that names file and offset.
//!
//! WAL segments, manifests and event chunks are such files, and define the payloads of their
//! records. `docs/formats/log.md` describes the format.
//!
//! INVARIANT: the reader returns a record only after every record before it, and only if its bytes,
//! its offset and its log match its checksum.
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
pub use record_salvage::{is_header, record_at, seal_at, stated_bytes, stated_mark};
pub use writer::{AppendPosition, LogOptions, LogWriter, write_recycled_header};
