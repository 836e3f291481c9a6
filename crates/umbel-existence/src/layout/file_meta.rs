//! [`FilterFileMeta`]: metadata of a filter file in `CHECKPOINT`.

use crate::layout::filter_sizing::FilterDimensions;

/// Metadata of a filter file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FilterFileMeta {
    /// The number it is named by.
    pub(crate) id: u64,
    /// A random number that every checksum in it is bound to.
    pub(crate) key: u64,
    pub(crate) dimensions: FilterDimensions,
    /// Hashes that had changed a bit.
    pub(crate) items: u64,
    /// Number of lines that are marked as damaged in it.
    pub(crate) damaged: u64,
    /// One for each page.
    pub(crate) digests: Vec<u64>,
}
