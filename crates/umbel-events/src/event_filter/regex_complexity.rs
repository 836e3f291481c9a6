//! [`Parts`]: how much an expression may have to repeat for a name, as far as the engine does not
//! bound it by itself.

use crate::limits::{EXPRESSION_LOOKS_MAX, EXPRESSION_REPETITIONS_MAX};

/// How much there is to repeat. The engine counts its steps back; what it repeats without taking
/// one is bounded by this.
#[derive(Debug, Default)]
pub struct Parts {
    /// Of the groups around, up to here, and whether each looks around or is atomic.
    outer: Vec<(Sum, bool)>,
    /// Of this group, up to here.
    here: Sum,
    /// Of what a repetition would repeat.
    last: Sum,
    /// What stands before.
    pub before: Before,
    /// All parts, each once.
    once: u64,
}

/// Parts, each counted as often as it is repeated.
#[derive(Debug, Default, Clone, Copy)]
struct Sum {
    all: u64,
    /// Those that only the engine that steps back knows: look-arounds and their like.
    looks: u64,
}

impl Sum {
    fn plus(self, other: Sum) -> Sum {
        let Sum { all, looks } = other;
        Sum { all: self.all.saturating_add(all), looks: self.looks.saturating_add(looks) }
    }
}

/// What stands before.
#[derive(Debug, Default, PartialEq, Eq)]
pub enum Before {
    #[default]
    /// Nothing, or the beginning of a group.
    Nothing,
    /// Something that can be repeated.
    Part,
    /// A repetition.
    Repetition,
    /// A repetition that takes as little as it can.
    Lazy,
}

impl Parts {
    fn add(&mut self, sum: Sum) {
        self.here = self.here.plus(sum);
        (self.last, self.before) = (sum, Before::Part);
    }

    /// One part; whether only the engine that steps back knows it.
    pub fn add_one(&mut self, looks: bool) {
        self.once += 1;
        self.add(Sum { all: 1, looks: u64::from(looks) });
    }

    /// A group begins; whether it looks around or is atomic.
    pub fn open(&mut self, looks: bool) {
        self.outer.push((std::mem::take(&mut self.here), looks));
        self.before = Before::Nothing;
    }

    /// The group ends.
    pub fn close(&mut self) {
        // A group that nobody opened is for the engine to complain of.
        let (outer, looks) = self.outer.pop().unwrap_or_default();
        let inner = std::mem::replace(&mut self.here, outer);
        self.once += 1;
        self.add(inner.plus(Sum { all: 1, looks: u64::from(looks) }));
    }

    /// What stands before is repeated so often.
    pub fn repeat(&mut self, least: u64, most: u64) {
        let Sum { all, looks } = self.last;
        self.here = self.here.plus(Sum {
            all: all.saturating_mul(least.max(1) - 1),
            looks: looks.saturating_mul(least.max(most.min(UNBOUNDED)).max(1) - 1),
        });
        self.before = Before::Repetition;
    }

    /// Why there is too much; `None` where there is not.
    pub fn too_much(&self) -> Option<String> {
        let all = self.outer.iter().fold(self.here, |sum, (outer, _)| sum.plus(*outer));
        let repetitions = all.all.saturating_sub(self.once);
        if all.looks > EXPRESSION_LOOKS_MAX {
            return Some(format!(
                "it looks around and back {} times, repetitions counted, but may {} times",
                all.looks, EXPRESSION_LOOKS_MAX
            ));
        }
        if all.looks > 0 && repetitions > EXPRESSION_REPETITIONS_MAX {
            return Some(format!(
                "it looks around or back and asks for {repetitions} repetitions, but may for \
                 {EXPRESSION_REPETITIONS_MAX}"
            ));
        }
        None
    }
}

/// For how many times one without a bound counts.
const UNBOUNDED: u64 = 16;
