//! The filters in memory: probes, inserts, and pages that are read lazily.

pub mod active_filters;
pub mod blocked_filter;
pub mod deferred_inserts;
pub mod lazy_pages;
pub mod line_probe;
pub mod prefetcher;
