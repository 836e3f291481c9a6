//! Readers of streams, views and all events, by revision, position and filter.

pub mod all_reader;
pub mod created_search;
pub mod event_source;
pub mod filtered_reader;
pub mod link_resolution;
pub mod link_visibility;
pub mod read_item;
pub mod scan_planner;
pub mod stream_reader;
pub mod view_merge;
pub mod view_reader;

#[cfg(test)]
mod tests;
