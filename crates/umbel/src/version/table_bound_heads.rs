//! Heads of the bounds of tables: [`KeyHeadRange`] tells for most keys whether they are within a
//! table's bounds, without a comparison of whole keys.

/// The heads of a table's bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyHeadRange {
    /// The head of the table's smallest key.
    pub smallest: u64,
    /// The head of the table's upper bound.
    pub largest: u64,
}

/// Position of a key relative to a table's bounds, as far as its head shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BoundMatch {
    /// The key is outside the bounds.
    OutOfRange,
    /// The key is within the bounds.
    InRange,
    /// The head equals that of a bound, so only the whole key decides.
    OnBound,
}

impl KeyHeadRange {
    /// Returns the position of keys with this head.
    #[inline]
    pub fn locate(&self, head: u64) -> BoundMatch {
        if self.smallest < head && head < self.largest {
            BoundMatch::InRange
        } else if head < self.smallest || self.largest < head {
            BoundMatch::OutOfRange
        } else {
            BoundMatch::OnBound
        }
    }
}
