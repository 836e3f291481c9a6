//! `event_store.client.streams`: appending, reading, subscribing, deleting.

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

/// The service's name in paths.
pub const SERVICE: &str = "event_store.client.streams.Streams";
