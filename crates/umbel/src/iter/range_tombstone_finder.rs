//! [`RangeTombstoneFinder`]: finds the range tombstone that hides a key, for keys in sequence.

use std::sync::Arc;

use umbel_base::{FragmentedTombstones, SequenceNumber};

/// Range tombstones of several runs. The parts of a run, such as the tables of a level, are in key
/// order and do not overlap.
#[derive(Debug, Clone, Default)]
pub struct TombstoneRuns {
    /// The parts of all runs. INVARIANT: none is empty.
    parts: Vec<Arc<FragmentedTombstones>>,
    /// For each run the end of its parts.
    run_ends: Vec<usize>,
}

impl TombstoneRuns {
    /// Adds parts that each are a run of their own.
    pub fn push_single(&mut self, parts: impl IntoIterator<Item = Arc<FragmentedTombstones>>) {
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            self.parts.push(part);
            self.run_ends.push(self.parts.len());
        }
    }

    /// Adds a part to the run that begins after part number `first` of all.
    ///
    /// REQUIRES: it lies after all parts of the run.
    pub fn push_part(&mut self, first: usize, part: Arc<FragmentedTombstones>) {
        if part.is_empty() {
            return;
        }
        if self.parts.len() > first {
            self.run_ends.pop();
        }
        self.parts.push(part);
        self.run_ends.push(self.parts.len());
    }

    /// Number of parts.
    pub fn len(&self) -> usize {
        self.parts.len()
    }
}

/// Range tombstones with the stretch of keys around the last key, so that neighbouring keys need no
/// search.
#[derive(Debug)]
pub struct RangeTombstoneFinder {
    runs: TombstoneRuns,
    /// `None` before the first search.
    stretch: Option<Stretch>,
}

/// Keys between two bounds of tombstones, over which the same ones hold.
#[derive(Debug)]
struct Stretch {
    /// First key; from the least key on without it.
    first: Option<Bound>,
    /// First key after it; without it there is no end.
    end: Option<Bound>,
    /// The reader.
    reader: SequenceNumber,
    /// The newest tombstone that the reader sees.
    newest: Option<SequenceNumber>,
}

/// A bound of a fragment.
#[derive(Debug, Clone, Copy)]
enum Bound {
    Start { part: usize, fragment: usize },
    End { part: usize, fragment: usize },
}

impl RangeTombstoneFinder {
    /// Starts without a remembered stretch.
    pub fn new(runs: TombstoneRuns) -> Self {
        RangeTombstoneFinder { runs, stretch: None }
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.runs.parts.is_empty()
    }

    /// Whether a tombstone that a reader at `reader` sees hides version `sequence` of `key`.
    #[inline]
    pub fn hides(&mut self, key: &[u8], sequence: SequenceNumber, reader: SequenceNumber) -> bool {
        !self.is_empty() && self.newest_over(key, reader).is_some_and(|newest| newest > sequence)
    }

    fn newest_over(&mut self, key: &[u8], reader: SequenceNumber) -> Option<SequenceNumber> {
        let remembered = self.stretch.as_ref().filter(|stretch| {
            stretch.reader == reader
                && stretch.first.is_none_or(|first| self.runs.key(first) <= key)
                && stretch.end.is_none_or(|end| key < self.runs.key(end))
        });
        if let Some(stretch) = remembered {
            return stretch.newest;
        }
        let stretch = self.runs.stretch_around(key, reader);
        let newest = stretch.newest;
        self.stretch = Some(stretch);
        newest
    }
}

impl TombstoneRuns {
    fn key(&self, bound: Bound) -> &[u8] {
        match bound {
            Bound::Start { part, fragment } => self.parts[part].start(fragment),
            Bound::End { part, fragment } => self.parts[part].end(fragment),
        }
    }

    fn stretch_around(&self, key: &[u8], reader: SequenceNumber) -> Stretch {
        let mut stretch = Stretch { first: None, end: None, reader, newest: None };
        let mut first_part = 0;
        for &end_part in &self.run_ends {
            let (first, end, newest) = self.stretch_of_run((first_part, end_part), key, reader);
            first_part = end_part;
            stretch.newest = stretch.newest.max(newest);
            let both = |a: Option<Bound>, b: Option<Bound>| [a, b].into_iter().flatten();
            let compare = |a: &Bound, b: &Bound| self.key(*a).cmp(self.key(*b));
            stretch.first = both(stretch.first, first).max_by(compare);
            stretch.end = both(stretch.end, end).min_by(compare);
        }
        stretch
    }

    /// The bounds around `key` within one run, and the newest tombstone over it.
    fn stretch_of_run(
        &self,
        (first_part, end_part): (usize, usize),
        key: &[u8],
        reader: SequenceNumber,
    ) -> (Option<Bound>, Option<Bound>, Option<SequenceNumber>) {
        let parts = &self.parts[first_part..end_part];
        let started = first_part + parts.partition_point(|part| part.start(0) <= key);
        let next_part = (started < end_part).then_some(Bound::Start { part: started, fragment: 0 });
        if started == first_part {
            return (None, next_part, None);
        }
        let part = started - 1;
        let tombstones = &self.parts[part];
        let after = tombstones.started_at(key);
        let fragment = after - 1;
        if key < tombstones.end(fragment) {
            let (first, end) = (Bound::Start { part, fragment }, Bound::End { part, fragment });
            return (Some(first), Some(end), tombstones.newest_at(fragment, reader));
        }
        let next = match after < tombstones.len() {
            true => Some(Bound::Start { part, fragment: after }),
            false => next_part,
        };
        (Some(Bound::End { part, fragment }), next, None)
    }
}
