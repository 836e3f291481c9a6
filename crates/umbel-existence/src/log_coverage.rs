//! [`Covered`]: up to where in its user's log a filter has every key, and in which history.

/// Up to where in the user's log a filter has every key.
///
/// A position alone does not say which log: copies of a store that went on apart have different
/// keys at the same positions. So a flush also names the history that its position belongs to, a
/// random number that changes where two copies can part, such as one for each file of the log. An
/// open compares it with that of the user's log: see
/// [`open_checked`](crate::ExistenceFilter::open_checked).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Covered {
    /// The position.
    pub position: u64,
    /// What tells the history up to it from that of any other log; 0 where that is not known.
    pub history: u64,
}

impl From<u64> for Covered {
    /// A position of which the history is not known.
    fn from(position: u64) -> Covered {
        Covered { position, history: 0 }
    }
}

impl Covered {
    /// What is covered where both are said. Of two histories for the same position the one that is
    /// known counts, then the later one.
    pub(crate) fn and(self, later: Covered) -> Covered {
        let says_more = later.history != 0 || self.history == 0;
        let is_further = later.position > self.position;
        if is_further || later.position == self.position && says_more { later } else { self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_further_one_counts_and_of_the_same_position_the_one_with_a_history() {
        let of = |position, history| Covered { position, history };
        assert_eq!(of(5, 1).and(of(7, 0)), of(7, 0));
        assert_eq!(of(7, 1).and(of(5, 2)), of(7, 1));
        assert_eq!(of(7, 0).and(of(7, 2)), of(7, 2));
        assert_eq!(of(7, 2).and(of(7, 0)), of(7, 2));
        assert_eq!(of(7, 2).and(of(7, 3)), of(7, 3));
    }
}
