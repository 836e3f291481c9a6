//! [`FilterFileMeta`]: metadata of a filter file in `CHECKPOINT`.

use crate::layout::filter_sizing::FilterDimensions;

/// Metadata of a filter file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FilterFileMeta {
    /// The number in the file's name.
    pub(crate) id: u64,
    /// A random number to which every checksum in the file is bound.
    pub(crate) key: u64,
    pub(crate) dimensions: FilterDimensions,
    /// Number of hashes that changed a bit when they were inserted.
    pub(crate) items: u64,
    /// Number of lines in the file that are marked as damaged.
    pub(crate) damaged: u64,
    /// The digest of each page.
    pub(crate) digests: Vec<u64>,
}
