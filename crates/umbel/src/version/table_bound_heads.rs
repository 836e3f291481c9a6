//! Heads of the bounds of tables: [`KeyHeadRange`] separates most keys outside a table
//! from those inside without a comparison of whole keys.

/// The heads of a table's bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyHeadRange {
    /// The head of its smallest key.
    pub smallest: u64,
    /// The head of its upper bound.
    pub largest: u64,
}

/// Position of a head relative to the bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BoundMatch {
    /// The key is outside.
    OutOfRange,
    /// The key is inside.
    InRange,
    /// Only the whole key decides.
    OnBound,
}

impl KeyHeadRange {
    /// Position of keys with this head.
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
