//! The Streams services of both protocol versions: read, subscribe, append, delete.

pub mod append;
pub mod append_records;
pub mod append_session;
pub mod batch_append;
pub mod batch_header_parser;
pub mod batch_response;
pub mod delete;
pub mod in_flight_batches;
pub mod multi_stream_append;
pub mod new_record;
pub mod oversized_messages;
pub mod partial_batch;
pub mod proposed_events;
pub mod read;
pub mod read_request;
pub mod record_part;
pub mod subscription;
pub mod v2_router;
