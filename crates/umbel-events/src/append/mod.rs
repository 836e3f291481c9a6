//! Appender: checks of versions and retries, writes to the log, the queue before the index.

pub mod ack_callbacks;
pub mod append_plan;
pub mod append_request;
pub mod appender;
pub mod event_id_table;
pub mod expected_version_check;
pub mod index_commit;
pub mod index_queue;
pub mod log_quota;
pub mod pending_heads;
pub mod position_window;
pub mod recent_event_ids;
pub mod stream_history_reader;
pub mod written_prefix;
