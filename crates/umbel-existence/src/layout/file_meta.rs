//! [`Stored`]: what `CHECKPOINT` says of a filter file.

use crate::shape::Shape;

/// What is known of a filter file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stored {
    /// The number it is named by.
    pub(crate) id: u64,
    /// A random number that every checksum in it is bound to.
    pub(crate) key: u64,
    pub(crate) shape: Shape,
    /// Hashes that had changed a bit.
    pub(crate) items: u64,
    /// How many lines are marked as damaged in it.
    pub(crate) damaged: u64,
    /// One for each page.
    pub(crate) digests: Vec<u64>,
}
