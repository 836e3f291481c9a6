//! Embedded event store: events in streams, appended exactly once with an expected revision, and
//! read in the order of their writes.
//!
//! ```
//! # fn main() -> umbel_events::Result<()> {
//! # let folder = tempfile::tempdir().expect("a temporary folder");
//! # let path = folder.path().join("events");
//! use umbel_events::{Direction, ExpectedVersion, NewEvent, Revision, Store, StoreOptions};
//!
//! let store = Store::open(&path, StoreOptions::default())?;
//! let opened = NewEvent::json(store.new_id()?, "Opened", br#"{"by":"ada"}"#);
//! let done = store.append("cart-42", ExpectedVersion::NoStream, &[opened])?;
//! assert_eq!((done.first, done.last), (Some(0), Some(0)));
//! for event in store.read("cart-42", Revision::START, Direction::Forwards) {
//!     let event = event?;
//!     println!("{}@{} {}", event.revision, event.stream, event.kind);
//! }
//! store.close()
//! # }
//! ```
//!
//! The event log is the only source of truth; everything else can be rebuilt from it.
//! [`Durability`] says what an acknowledged append survives. `docs/PROMISES.md` lists every promise
//! and limit. `docs/reference/event-store.md` says what happens to each append whose stream does
//! not match the expected version.
//!
//! A store belongs to the process that opened it: in a forked child every call is refused with
//! [`umbel::Error::Forked`]. Open a store after the fork.
#![forbid(unsafe_code)]

mod append;
mod backup;
mod event_filter;
mod event_log;
mod index;
mod object_backup;
mod open;
mod primitives;
mod read;
mod repair;
mod replication;
mod scavenge;
mod shared_store_state;
mod store;
mod store_components;
mod subscription;
mod types;
mod verify;
mod visibility;
mod write;

pub mod limits;

pub use crate::append::append_request::{
    AppendRequest, CheckedMetadata, StreamAppend, StreamCheck, WriteResult,
};
pub use crate::backup::backup_verify::{BackupVerifyReport, is_backup, verify_backup};
pub use crate::backup::copy_cancellation::CopyCancellation;
pub use crate::backup::copy_rate_limit::{CopyOptions, CopyProgress};
pub use crate::backup::restore::{RestoreReport, restore};
#[doc(hidden)]
pub use crate::event_log::chunk_bytes::{ChunkBytes, ChunkEndRecord};
pub use crate::event_log::log_bytes::LogBytes;
#[doc(hidden)]
pub use crate::event_log::replica_file::{EVENT_LOG_KIND, ReplicatedLog};
pub use crate::index::stream_existence::{ExistenceSize, ExistenceStats};
pub use crate::object_backup::object_backup_error::{ObjectBackupError, ObjectBackupResult};
pub use crate::object_backup::object_restore::{
    ObjectRestoreReport, RestoreTo, restore_events_from_objects, restore_from_objects,
};
pub use crate::object_backup::object_retention::{RemainingCopy, RetentionReport, retain};
pub use crate::object_backup::object_verify::{
    ObjectVerifyReport, RestorableRange, verify_objects,
};
pub use crate::object_backup::{
    ObjectBackup, ObjectBackupOptions, ObjectBackupReport, ObjectBackupState,
};
pub use crate::open::accept_clock::accept_clock;
pub use crate::open::clock_confirmation::{ClockOutcome, ClockReport};
pub use crate::open::folder_kind::check_folder_kind;
pub use crate::primitives::json_keys::{JsonKeysError, read_json_keys};
pub use crate::primitives::store_clock::ClockState;
pub use crate::primitives::wakeup::Wakeup;
pub use crate::read::all_reader::AllReader;
pub use crate::read::event_source::{Source, SourceReader};
pub use crate::read::filtered_reader::{FilteredItem, FilteredReader};
pub use crate::read::link_resolution::ResolvedEvent;
pub use crate::read::read_item::ReadItem;
#[doc(hidden)]
pub use crate::read::scan_planner::FilterStrategy;
pub use crate::read::stream_reader::{StreamItem, StreamReader};
pub use crate::read::view_reader::{ViewEvent, ViewItem, ViewReader, ViewState};
#[doc(hidden)]
pub use crate::replication::deadline_objects::DeadlineObjects;
#[doc(hidden)]
pub use crate::replication::leader_status::{LeaderEnd, LeaderRole, LeaderStatus};
#[doc(hidden)]
pub use crate::replication::leader_thread::LeaderThread;
#[doc(hidden)]
pub use crate::replication::node_status::{LeaderAddress, NodeRole, NodeStatus};
#[doc(hidden)]
pub use crate::replication::replica_node::{ReplicaNode, ReplicaNodeOptions};
#[doc(hidden)]
pub use crate::replication::slot_contents::EVENT_CHUNK_KIND;
#[doc(hidden)]
pub use crate::replication::slot_leader::{
    LeaderProgress, LeaderStep, SlotLeader, SlotLeaderOptions,
};
#[doc(hidden)]
pub use crate::store::log_replication::{LogReplication, SlotRecords};
#[doc(hidden)]
pub use crate::store::slot_applier::SlotApplier;
pub use crate::store::store_stats::Stats;
pub use crate::types::crash_recovery::CrashRecovery;
pub use crate::types::error::{Error, Result};
pub use crate::types::event::{Direction, EventId, NewEvent, Position, RecordedEvent, Revision};
pub use crate::types::expected_version::ExpectedVersion;
pub use crate::types::imported_event::{ImportResult, ImportedEvent};
pub use crate::types::store_options::StoreOptions;
pub use crate::types::stream_metadata::MetadataUpdate;
pub use crate::types::stream_names::{SYSTEM_STREAMS_END, metadata_stream, skip_system_streams};
pub use crate::types::stream_state::StreamState;
pub use crate::types::version_conflict::{PresentEvents, RequestItem, VersionConflict};
pub use crate::types::view_kind::{ViewKind, is_index_name, is_view, parse_index};
pub use crate::visibility::visible_position::Watch;
pub use crate::write::import::{Import, ImportReport};
pub use crate::write::pending_append::PendingAppend;
pub use backup::{BackupReport, check_backup_target};
pub use event_filter::EventFilter;
pub use repair::{
    ChunkRepair, LostRange, LostRevisions, RepairOptions, RepairReport, UnplacedChunk,
    find_unrecovered, repair,
};
pub use scavenge::redaction::{REDACTED_EVENTS_MAX, Redaction, RedactionReport, parse_event_place};
pub use scavenge::{Scavenge, ScavengeOptions, ScavengeReport};
pub use store::Store;
pub use subscription::{Subscription, SubscriptionBatch, SubscriptionStart};
pub use umbel::{Durability, MemoryBudget, MemoryBudgetStats};
pub use umbel_backup::{
    BackupErrorKind as ObjectBackupErrorKind, ObjectRequestOptions, RetentionOptions,
};
#[doc(hidden)]
pub use umbel_slots::LogPoint;
pub use verify::VerifyReport;

/// Decodes a chunk manifest and, where it is well formed, encodes it again. For fuzzing only.
#[doc(hidden)]
pub fn fuzz_chunk_manifest(body: &[u8]) {
    event_log::chunk_manifest::fuzz(body);
}

/// Decodes the record of a replica's last applied slot and, where it is well formed, encodes it
/// again. For fuzzing only.
#[doc(hidden)]
pub fn fuzz_replica(body: &[u8]) {
    event_log::replica_file::fuzz(body);
}

/// Decodes the manifest of a backup and, where it is well formed, encodes it again. For fuzzing
/// only.
#[doc(hidden)]
pub fn fuzz_backup_manifest(body: &[u8]) {
    backup::backup_manifest::fuzz(body);
}

/// Decodes the objects of a backup in an object store and, where they are well formed, encodes them
/// again. For fuzzing only.
#[doc(hidden)]
pub fn fuzz_object_backup(body: &[u8]) {
    object_backup::object_manifest::fuzz(body);
    umbel_backup::fuzz(body);
}

/// Decodes the frame of an event, first with its stated checksum, then with the correct one. For
/// fuzzing only.
#[doc(hidden)]
pub fn fuzz_frame(bytes: &[u8]) {
    event_log::event_format::fuzz(bytes);
}

/// Overwrites bytes of a chunk and salvages the rest. For fuzzing only.
#[doc(hidden)]
pub fn fuzz_repair(bytes: &[u8]) {
    repair::fuzz(bytes);
}

/// Decodes the position map and removed runs of a scavenged chunk, and encodes them again. For
/// fuzzing only.
#[doc(hidden)]
pub fn fuzz_scavenged_chunk(bytes: &[u8]) {
    event_log::scavenged_chunk::fuzz(bytes);
}

/// Decodes a view's head and block and, where they are well formed, encodes them again. For fuzzing
/// only.
#[doc(hidden)]
pub fn fuzz_view(bytes: &[u8]) {
    index::view_block::fuzz(bytes);
}

/// Decodes a stream head and, where it is well formed, encodes it again. For fuzzing only.
#[doc(hidden)]
pub fn fuzz_stream_head(bytes: &[u8]) {
    if let Some(head) = index::stream_head::StreamHead::decode(bytes) {
        let mut again = Vec::new();
        head.encode(&mut again);
        assert_eq!(index::stream_head::StreamHead::decode(&again), Some(head));
    }
}
