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
//!
//! A store belongs to the process that opened it: in a forked child every call is refused with
//! [`umbel::Error::Forked`]. Open a store after the fork.
#![forbid(unsafe_code)]

mod ahead;
mod appender;
mod background;
mod backup;
mod backup_copy;
mod backup_manifest;
mod backup_verify;
mod bell;
mod by_name;
mod callbacks;
mod candidates;
mod changes;
mod chunk;
mod chunk_read;
mod chunk_table;
mod commit;
mod decide;
mod dialect;
mod effort;
mod error;
mod event;
mod event_filter;
mod event_log;
mod existence;
mod expression;
mod filter_way;
mod filtered;
mod format;
mod head;
mod id_table;
mod id_window;
mod import;
mod imported;
mod index;
mod index_marker;
pub mod limits;
mod links;
mod lock;
mod looking;
mod mistaken;
mod names;
mod open;
mod open_read_only;
mod options;
mod packed;
mod panics;
mod parts;
mod queued;
mod read;
mod repair;
mod repair_marker;
mod request;
mod restore;
mod scavenge;
mod seldom;
mod settings;
mod shared;
mod state;
mod stats;
mod store;
mod subscription;
mod sweep;
mod ticket;
mod turn;
mod uuid;
mod verdict;
mod verify;
mod view_block;
mod view_gaps;
mod view_name;
mod view_reader;
mod view_tails;
mod view_targets;
mod view_verify;
mod views;
mod violation;
mod violations;
mod visible;
mod watchers;
mod window;

pub use backup::{BackupReport, check_backup_folder};
pub use backup_copy::{CopyOptions, CopyProgress};
pub use backup_verify::{BackupVerifyReport, is_backup, verify_backup};
pub use error::{Error, Result};
pub use event::{Direction, EventId, Expected, NewEvent, Position, RecordedEvent, Revision};
pub use event_filter::EventFilter;
pub use existence::{ExistenceStats, Size};
#[doc(hidden)]
pub use filter_way::FilterWay;
pub use filtered::{FilteredReader, Step};
pub use import::{Import, ImportReport};
pub use imported::{Imported, ImportedEvent};
pub use links::ResolvedEvent;
pub use mistaken::check_mistaken;
pub use names::metadata_stream;
pub use options::StoreOptions;
pub use read::{AllReader, Next, StreamReader};
pub use repair::{
    ChunkRepair, LostRange, LostRevisions, RepairOptions, RepairReport, Unplaced, left_out, repair,
};
pub use request::{Appended, Check, Request, StreamAppend};
pub use restore::{RestoreReport, restore};
pub use scavenge::{Scavenge, ScavengeOptions, ScavengeReport};
pub use state::StreamState;
pub use stats::Stats;
pub use store::Store;
pub use subscription::{Batch, Since, Subscribed, Subscription};
pub use ticket::Ticket;
pub use umbel::{Durability, MemoryBudget, MemoryBudgetStats};
pub use verify::VerifyReport;
pub use view_name::{ViewKind, is_view};
pub use view_reader::{ViewEvent, ViewReader, ViewState};
pub use violation::{Part, Violation};
pub use visible::Watch;
pub use watchers::Watched;

/// Decodes a table of chunks and, where it is well formed, encodes it again. For fuzzing only.
#[doc(hidden)]
pub fn fuzz_chunk_table(body: &[u8]) {
    chunk_table::fuzz(body);
}

/// Decodes the manifest of a backup and, where it is well formed, encodes it again. For fuzzing
/// only.
#[doc(hidden)]
pub fn fuzz_backup_manifest(body: &[u8]) {
    backup_manifest::fuzz(body);
}

/// Decodes the frame of an event, first as it is, then with a checksum that fits. For fuzzing only.
#[doc(hidden)]
pub fn fuzz_frame(bytes: &[u8]) {
    format::fuzz(bytes);
}

/// Overwrites bytes of a chunk and looks for what can be saved of it. For fuzzing only.
#[doc(hidden)]
pub fn fuzz_repair(bytes: &[u8]) {
    repair::fuzz(bytes);
}

/// Decodes points and gaps of a chunk that was scavenged, and encodes them again. For fuzzing only.
#[doc(hidden)]
pub fn fuzz_packed(bytes: &[u8]) {
    packed::fuzz(bytes);
}

/// Decodes the head of a view and a block of one, and encodes them again where they are well
/// formed. For fuzzing only.
#[doc(hidden)]
pub fn fuzz_view(bytes: &[u8]) {
    view_block::fuzz(bytes);
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
