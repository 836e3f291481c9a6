//! The filters in memory: probes, inserts, and pages that are read lazily.

pub mod active_filters;
pub mod blocked_filter;
pub mod journal_hashes;
pub mod lazy_pages;
pub mod line_probe;
pub mod prefetcher;
pub(crate) mod uncounted_inserts;
