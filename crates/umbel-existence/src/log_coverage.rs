//! [`Coverage`]: the position in the user's log up to which a filter has every key, and the log's
//! history.

/// Position in the user's log up to which a filter has every key.
///
/// A position alone does not identify the log: copies of a store that diverged have different keys
/// at the same positions. So a flush also names the history of its position, a random number that
/// changes where two copies can diverge, such as one for each file of the log. An open compares
/// that history with the history of the user's log: see
/// [`open_checked`](crate::ExistenceFilter::open_checked).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Coverage {
    /// The position.
    pub position: u64,
    /// Number that identifies the log's history up to the position; 0 if the history is unknown.
    pub history: u64,
}

impl From<u64> for Coverage {
    /// Makes a coverage with an unknown history.
    fn from(position: u64) -> Coverage {
        Coverage { position, history: 0 }
    }
}

impl Coverage {
    /// Returns the coverage with the larger position of `self` and `later`. For the same position a
    /// known history takes precedence, then the later one.
    pub(crate) fn intersect(self, later: Coverage) -> Coverage {
        let says_more = later.history != 0 || self.history == 0;
        let is_further = later.position > self.position;
        if is_further || later.position == self.position && says_more { later } else { self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_position_wins_and_a_history_breaks_ties() {
        let of = |position, history| Coverage { position, history };
        assert_eq!(of(5, 1).intersect(of(7, 0)), of(7, 0));
        assert_eq!(of(7, 1).intersect(of(5, 2)), of(7, 1));
        assert_eq!(of(7, 0).intersect(of(7, 2)), of(7, 2));
        assert_eq!(of(7, 2).intersect(of(7, 0)), of(7, 2));
        assert_eq!(of(7, 2).intersect(of(7, 3)), of(7, 3));
    }
}
