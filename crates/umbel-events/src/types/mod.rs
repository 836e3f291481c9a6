//! Types of the interface: events, ids, errors, options, stream metadata and stream states.

pub mod crash_recovery;
pub mod error;
pub mod event;
pub mod event_schema;
pub mod expected_version;
pub mod imported_event;
pub mod nested_store_check;
pub mod store_options;
pub mod stream_metadata;
pub mod stream_names;
pub mod stream_state;
pub mod uuid;
pub mod version_conflict;
pub mod view_kind;
