//! `event_store.client.streams`: appends, reads, subscriptions and deletes.

mod append;
mod batch_append;
mod delete;
mod read;

pub use append::{AppendReq, AppendResp, append_req, append_resp};
pub use batch_append::{BatchAppendReq, BatchAppendResp, batch_append_req, batch_append_resp};
pub use delete::{
    DeleteOptions, DeletePosition, DeleteReq, DeleteResp, DeleteResult, ExpectedRevision,
    TombstoneReq, TombstoneResp,
};
pub use read::{ReadReq, ReadResp, read_req, read_resp};

/// Name of the service in request paths.
pub const SERVICE: &str = "event_store.client.streams.Streams";
