//! [`RegexComplexity`]: bounds the repetition in an expression where the engine does not.

use crate::limits::{EXPRESSION_LOOKS_MAX, EXPRESSION_REPETITIONS_MAX};

/// Amount of repetition. The engine counts its steps back; this bounds repetition that takes no
/// such step.
#[derive(Debug, Default)]
pub struct RegexComplexity {
    /// Costs of the enclosing groups so far, and whether each is a look-around or atomic.
    enclosing: Vec<(RepetitionCost, bool)>,
    /// Cost of this group so far.
    current: RepetitionCost,
    /// Cost of the item that a repetition would repeat.
    last: RepetitionCost,
    /// Kind of the preceding item.
    pub preceding: PrecedingItem,
    /// Number of all items, each counted once.
    item_count: u64,
}

/// Number of items, each counted as often as it is repeated.
#[derive(Debug, Default, Clone, Copy)]
struct RepetitionCost {
    items: u64,
    /// Items that only the backtracking engine supports: look-arounds and similar.
    lookarounds: u64,
}

impl RepetitionCost {
    fn plus(self, other: RepetitionCost) -> RepetitionCost {
        let RepetitionCost { items: all, lookarounds: looks } = other;
        RepetitionCost {
            items: self.items.saturating_add(all),
            lookarounds: self.lookarounds.saturating_add(looks),
        }
    }
}

/// Kind of the preceding item.
#[derive(Debug, Default, PartialEq, Eq)]
pub enum PrecedingItem {
    #[default]
    /// Nothing, or the beginning of a group.
    Start,
    /// An item that can be repeated.
    Item,
    /// A repetition.
    Repetition,
    /// A lazy repetition.
    Lazy,
}

impl RegexComplexity {
    fn add(&mut self, sum: RepetitionCost) {
        self.current = self.current.plus(sum);
        (self.last, self.preceding) = (sum, PrecedingItem::Item);
    }

    /// Adds an item; `looks` says whether only the backtracking engine supports it.
    pub fn add_item(&mut self, looks: bool) {
        self.item_count += 1;
        self.add(RepetitionCost { items: 1, lookarounds: u64::from(looks) });
    }

    /// Begins a group; `looks` says whether it is a look-around or atomic.
    pub fn open_group(&mut self, looks: bool) {
        self.enclosing.push((std::mem::take(&mut self.current), looks));
        self.preceding = PrecedingItem::Start;
    }

    /// Ends the group.
    pub fn close_group(&mut self) {
        // The engine reports a group that was never opened.
        let (outer, looks) = self.enclosing.pop().unwrap_or_default();
        let inner = std::mem::replace(&mut self.current, outer);
        self.item_count += 1;
        self.add(inner.plus(RepetitionCost { items: 1, lookarounds: u64::from(looks) }));
    }

    /// Repeats the preceding item between `min` and `max` times.
    pub fn repeat(&mut self, min: u64, max: u64) {
        let RepetitionCost { items: all, lookarounds: looks } = self.last;
        self.current = self.current.plus(RepetitionCost {
            items: all.saturating_mul(min.max(1) - 1),
            lookarounds: looks.saturating_mul(min.max(max.min(UNBOUNDED_REPETITIONS)).max(1) - 1),
        });
        self.preceding = PrecedingItem::Repetition;
    }

    /// Describes the exceeded limit; `None` where no limit is exceeded.
    pub fn limit_exceeded(&self) -> Option<String> {
        let all = self.enclosing.iter().fold(self.current, |sum, (outer, _)| sum.plus(*outer));
        let repetitions = all.items.saturating_sub(self.item_count);
        if all.lookarounds > EXPRESSION_LOOKS_MAX {
            return Some(format!(
                "it has {} look-arounds and back-references, repetitions counted; at most {} are \
                 allowed",
                all.lookarounds, EXPRESSION_LOOKS_MAX
            ));
        }
        if all.lookarounds > 0 && repetitions > EXPRESSION_REPETITIONS_MAX {
            return Some(format!(
                "it has look-arounds or back-references and {repetitions} repetitions; at most \
                 {EXPRESSION_REPETITIONS_MAX} are allowed"
            ));
        }
        None
    }
}

/// Count of an unbounded repetition.
const UNBOUNDED_REPETITIONS: u64 = 16;
