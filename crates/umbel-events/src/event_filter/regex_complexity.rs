//! [`RegexComplexity`]: bounds the repetitions in an expression that the regex engine does not
//! bound.

use crate::limits::{EXPRESSION_LOOKS_MAX, EXPRESSION_REPETITIONS_MAX};

/// Amount of repetition in an expression. The regex engine counts its backtracking steps;
/// `RegexComplexity` bounds repetition that takes no such step.
#[derive(Debug, Default)]
pub struct RegexComplexity {
    /// Costs of the enclosing groups so far, and the kind of the group in each.
    enclosing: Vec<(RepetitionCost, GroupKind)>,
    /// Cost of this group so far.
    current: RepetitionCost,
    /// Cost of the preceding item, which a repetition would repeat.
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
    /// Maximum parts that the backtracking engine compiles one by one, but for the first.
    parts: u64,
}

/// Kind of a group.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum GroupKind {
    /// A group that any engine supports.
    #[default]
    Plain,
    /// A look-ahead or an atomic group. Without look-arounds in it, it is compiled as one part.
    Whole,
    /// A look-behind, whose alternatives are compiled one by one.
    LookBehind,
}

impl RepetitionCost {
    fn plus(self, other: RepetitionCost) -> RepetitionCost {
        let RepetitionCost { items: all, lookarounds: looks, parts } = other;
        RepetitionCost {
            items: self.items.saturating_add(all),
            lookarounds: self.lookarounds.saturating_add(looks),
            parts: self.parts.saturating_add(parts),
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
        let looks = u64::from(looks);
        self.add(RepetitionCost { items: 1, lookarounds: looks, parts: looks });
    }

    /// Begins another alternative.
    pub fn add_alternative(&mut self) {
        self.current.parts = self.current.parts.saturating_add(1);
        self.preceding = PrecedingItem::Start;
    }

    /// Begins a group.
    pub fn open_group(&mut self, kind: GroupKind) {
        self.enclosing.push((std::mem::take(&mut self.current), kind));
        self.preceding = PrecedingItem::Start;
    }

    /// Ends the group.
    pub fn close_group(&mut self) {
        // The engine reports a group that was never opened.
        let (outer, kind) = self.enclosing.pop().unwrap_or_default();
        let mut inner = std::mem::replace(&mut self.current, outer);
        self.item_count += 1;
        if kind == GroupKind::Whole && inner.lookarounds == 0 {
            inner.parts = 0;
        }
        let looks = u64::from(kind != GroupKind::Plain);
        self.add(inner.plus(RepetitionCost { items: 1, lookarounds: looks, parts: 1 }));
    }

    /// Repeats the preceding item between `min` and `max` times.
    pub fn repeat(&mut self, min: u64, max: u64) {
        let RepetitionCost { items: all, lookarounds: looks, parts } = self.last;
        let again = min.max(max.min(UNBOUNDED_REPETITIONS)).max(1) - 1;
        self.current = self.current.plus(RepetitionCost {
            items: all.saturating_mul(min.max(1) - 1),
            lookarounds: looks.saturating_mul(again),
            parts: parts.saturating_mul(min.max(1) - 1).saturating_add(1),
        });
        self.preceding = PrecedingItem::Repetition;
    }

    fn total(&self) -> RepetitionCost {
        self.enclosing.iter().fold(self.current, |sum, (outer, _)| sum.plus(*outer))
    }

    /// Maximum number of parts that are compiled one by one.
    pub fn parts(&self) -> u64 {
        let all = self.total();
        if all.lookarounds == 0 { 1 } else { all.parts.saturating_add(1) }
    }

    /// Describes the exceeded limit; `None` where no limit is exceeded.
    pub fn limit_exceeded(&self) -> Option<String> {
        let all = self.total();
        let repetitions = all.items.saturating_sub(self.item_count);
        if all.lookarounds > EXPRESSION_LOOKS_MAX {
            return Some(format!(
                "the expression has {} look-arounds and back-references, repetitions counted; at \
                 most {} are allowed",
                all.lookarounds, EXPRESSION_LOOKS_MAX
            ));
        }
        if all.lookarounds > 0 && repetitions > EXPRESSION_REPETITIONS_MAX {
            return Some(format!(
                "the expression has look-arounds or back-references and {repetitions} \
                 repetitions; at most {EXPRESSION_REPETITIONS_MAX} are allowed"
            ));
        }
        None
    }
}

/// Count of an unbounded repetition.
const UNBOUNDED_REPETITIONS: u64 = 16;
