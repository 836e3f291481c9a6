//! Open, recovery, close, checkpoint and verification of a store.

pub mod checkpoint;
pub mod close;
pub mod manifest_reservation;
pub mod open;
pub mod open_read_only;
pub mod recovered_wal_copy;
pub mod recovery;
pub mod recovery_flush;
pub mod stale_read_check;
pub mod state_capture;
pub mod verify_store;
