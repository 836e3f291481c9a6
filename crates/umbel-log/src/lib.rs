//! One log file: the writer that appends records, the reader that recovers them, and the tail
//! policy that tells a torn tail (trimmed, fine) from damaged bytes that were durable (an error
//! that names file and offset).
//!
//! The write-ahead log and the manifest are both made of such files. What is inside a record's
//! payload is their business. The bytes are described in `docs/formats/log.md`.
//!
//! INVARIANT: a record is only ever handed out when every byte of it, its place in the file and the
//! log it belongs to agree with its checksum, and when every record before it was handed out too.
#![forbid(unsafe_code)]

mod failed;
mod format;
mod held;
pub mod progress;
pub mod reader;
mod single;
mod tail;
mod window;
pub mod writer;

pub use format::{
    Binding, END_RECORD_BYTES, HEADER_BYTES, LogKind, RECORD_ALIGN, RECORD_HEADER_BYTES, Sealed,
    record_bytes,
};
pub use progress::LogProgress;
pub use reader::{Expectation, LogReader, Outcome, Record};
pub use single::{record_at, stated_bytes};
pub use writer::{Appended, LogOptions, LogWriter, relabel};
