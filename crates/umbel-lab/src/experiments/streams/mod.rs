//! Experiments about new streams of an event store and its existence filter.

pub mod filter_saturation;
pub mod lookup_then_put;
pub mod new_stream_runs;
pub mod new_streams;
pub mod synced_streams;
