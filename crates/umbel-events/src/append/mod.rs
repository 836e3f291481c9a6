//! Append path: concurrency checks, the appender, the queue before the index, acknowledgements.

pub mod ack_callbacks;
pub mod append_plan;
pub mod append_request;
pub mod appender;
pub mod event_id_table;
pub mod expected_version_check;
pub mod group_sync;
pub mod import;
pub mod index_commit;
pub mod index_queue;
pub mod pending_append;
pub mod pending_heads;
pub mod recent_event_ids;
pub mod shared_store_parts;
pub mod shared_store_state;
pub mod stream_history_reader;
pub mod submit_write;
