//! Commands for an event store: `append`, `read`, `streams`, `delete --stream`, `verify`,
//! `metadata`, `scavenge`, `redact`, `backup`, `restore`, `repair`, `import-events`, `serve`,
//! `promote`, `subscribe`, `doctor`, `user`, `group`.

pub mod accept_clock;
pub mod append;
pub mod auto_scavenge;
pub mod backup;
pub mod client;
mod damage_count;
pub mod delete_stream;
pub mod doctor;
pub mod event_args;
pub mod event_filter;
pub mod event_json;
pub mod groups;
pub mod import_events;
pub mod list_streams;
pub mod name_source;
pub mod object_backup;
pub mod open_event_store;
pub mod promote;
pub mod read_events;
pub mod redact;
pub mod remaining_data;
pub mod repair;
pub mod scavenge;
pub mod serve;
pub mod server_history;
pub mod stream_metadata;
pub mod subscribe;
pub mod timestamps;
pub mod tombstoned_stream;
pub mod users;
pub mod verify_events;
