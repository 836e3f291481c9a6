//! Open, recovery, close, checkpoint and verification of a store.

pub mod checkpoint;
pub mod close;
pub mod manifest_reservation;
pub mod open;
pub mod open_read_only;
pub mod read_only_view;
pub mod recovered_wal_copy;
pub mod recovery;
pub mod recovery_flush;
pub mod verify_store;
