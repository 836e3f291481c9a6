//! An embedded event store: events in streams, appended with an expected revision, each once, and
//! read back in the order in which they were written.
//!
//! ```
//! # fn main() -> umbel_events::Result<()> {
//! # let folder = tempfile::tempdir().expect("a temporary folder");
//! # let path = folder.path().join("events");
//! use umbel_events::{Direction, Expected, NewEvent, Revision, Store, StoreOptions};
//!
//! let store = Store::open(&path, StoreOptions::default())?;
//! let opened = NewEvent::json(store.new_id()?, "Opened", br#"{"by":"ada"}"#);
//! let done = store.append("cart-42", Expected::NoStream, &[opened])?;
//! assert_eq!((done.first, done.last), (Some(0), Some(0)));
//! for event in store.read("cart-42", Revision::START, Direction::Forwards) {
//!     let event = event?;
//!     println!("{}@{} {}", event.revision, event.stream, event.kind);
//! }
//! store.close()
//! # }
//! ```
//!
//! The event log is the only truth; everything else can be made of it again. What an acknowledged
//! append survives is said by [`Durability`]; `docs/PROMISES.md` has every promise and limit, and
//! `docs/event-store.md` the answer to every append that does not meet what it expects.
#![forbid(unsafe_code)]

mod appender;
mod background;
mod bell;
mod by_name;
mod callbacks;
mod chunk;
mod chunk_table;
mod commit;
mod decide;
mod error;
mod event;
mod event_log;
mod existence;
mod format;
mod head;
mod id_window;
mod index;
pub mod limits;
mod lock;
mod looking;
mod names;
mod open;
mod options;
mod parts;
mod queued;
mod read;
mod request;
mod settings;
mod shared;
mod state;
mod stats;
mod store;
mod ticket;
mod uuid;
mod verify;
mod visible;
mod watchers;
mod window;

pub use error::{Error, Result};
pub use event::{Direction, EventId, Expected, NewEvent, Position, RecordedEvent, Revision};
pub use existence::{ExistenceStats, Size};
pub use names::metadata_stream;
pub use options::StoreOptions;
pub use read::{AllReader, StreamReader};
pub use request::{Appended, Check, Request, StreamAppend};
pub use state::StreamState;
pub use stats::Stats;
pub use store::Store;
pub use ticket::Ticket;
pub use umbel::Durability;
pub use verify::VerifyReport;
pub use visible::Watch;
pub use watchers::Watched;

/// Decodes a table of chunks and, where it is well formed, encodes it again. For fuzzing only.
#[doc(hidden)]
pub fn fuzz_chunk_table(body: &[u8]) {
    chunk_table::fuzz(body);
}

/// Decodes the frame of an event, first as it is, then with a checksum that fits. For fuzzing only.
#[doc(hidden)]
pub fn fuzz_frame(bytes: &[u8]) {
    format::fuzz(bytes);
}

/// Decodes a head and, where it is well formed, encodes it again. For fuzzing only.
#[doc(hidden)]
pub fn fuzz_head(bytes: &[u8]) {
    if let Some(head) = head::Head::decode(bytes) {
        let mut again = Vec::new();
        head.encode(&mut again);
        assert_eq!(head::Head::decode(&again), Some(head));
    }
}
