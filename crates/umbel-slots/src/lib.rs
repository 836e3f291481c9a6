//! The replicated log in an object store: **slots**, objects with contiguous numbers, each created
//! once and never overwritten.
//!
//! A row of objects that are created once is a row of consensus registers. So the order of the
//! creations is the order of the log, and the object store decides it. Nothing but *create if
//! absent* and *read after write* is needed. The idea is that of the write-once registers of
//! Disk Paxos (Gafni and Lamport, 2003) and of CORFU (Balakrishnan et al., 2012), whose log
//! positions are written once.
//!
//! Every state machine of this crate is plain data without threads and without waiting: one call of
//! its `step` sends at most one request. Its `wait` says how long the caller waits then. So
//! `tests/suite/exploration.rs` explores this code itself, with every order of requests, lost
//! answers, late effects, pauses and crashes.
//!
//! FORMAT: `docs/formats/slots.md`.
#![forbid(unsafe_code)]

mod chain;
mod chain_check;
mod commit_gate;
mod decode_error;
mod epoch_table;
mod freshness;
mod leader_proof;
mod log_init;
mod node_claim;
mod object_frame;
mod retry_pace;
mod slot_collection;
mod slot_creation;
mod slot_entry;
mod slot_error;
mod slot_floor;
mod slot_follower;
mod slot_format;
mod slot_objects;
mod slot_requests;
mod slot_settings;
mod slot_snapshot;
mod slot_takeover;
mod slot_writer;
mod store_object;

pub use chain::{ChainEnd, ChainState};
pub use chain_check::{ChainCheck, check_chain_end, confirm_slot};
pub use commit_gate::{AppendStatus, AppendTicket, CommitGate, GateRefusal, IndexCommit, LogPoint};
pub use decode_error::DecodeError;
pub use epoch_table::{EPOCHS_MAX, EpochStart, EpochTable};
pub use freshness::{Contact, SlotTimes};
pub use leader_proof::{ProofStep, ReadTicket};
pub use log_init::{InitStep, LogInit};
pub use node_claim::{NODE_NAME_BYTES_MAX, NodeClaim};
pub use object_frame::SLOT_FORMAT;
pub use slot_collection::{CollectionStep, SlotCollection};
pub use slot_entry::{LogId, ObjectContent, SlotEntry};
pub use slot_error::{SlotError, SlotResult};
pub use slot_floor::Floor;
pub use slot_follower::{FollowStep, OBJECT_PART_BYTES, SlotFollower};
pub use slot_format::{SLOT_ENTRIES_MAX, SLOT_PREFIX, Slot, SlotIds, slot_name};
pub use slot_objects::{NamedObject, ObjectState, ObjectTable};
pub use slot_settings::{SLOT_BYTES_MAX, SlotSettings};
pub use slot_snapshot::{SNAPSHOT_PREFIX, SlotSnapshot, snapshot_name};
pub use slot_takeover::{SlotTakeover, TakeoverStep};
pub use slot_writer::{SlotWriter, WriteStep};
pub use store_object::{NODE_VERSION, STORE_OBJECT_NAME, StoreObject};

/// Decodes bytes as the objects of a replicated log and as an entry of a slot. Where they are well
/// formed, encodes them again, which returns the same bytes. For fuzzing only.
#[doc(hidden)]
pub fn fuzz_slot(bytes: &[u8]) {
    slot_entry::fuzz(bytes);
    slot_format::fuzz(bytes);
    slot_snapshot::fuzz(bytes);
    slot_floor::fuzz(bytes);
    store_object::fuzz(bytes);
    node_claim::fuzz(bytes);
}
