//! [`RangeTombstoneRuns`]: the range tombstones of several sources, searched together.

use std::sync::Arc;

use umbel_base::{FragmentedTombstones, SequenceNumber, fail_point};

/// Range tombstones of several runs, shared with their sources. The parts of a run, such as the
/// tables of a level, are in key order and do not overlap.
#[derive(Debug, Clone, Default)]
pub struct RangeTombstoneRuns {
    /// The parts of all runs. INVARIANT: no part is empty.
    parts: Vec<Arc<FragmentedTombstones>>,
    /// For each run, the index in `parts` after its last part.
    run_ends: Vec<usize>,
}

/// Number of a part, and of a fragment in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FragmentId {
    part: usize,
    fragment: usize,
}

/// Keys between two bounds of tombstones, over which the same fragments lie.
#[derive(Debug, Clone, Copy, Default)]
pub struct Stretch {
    /// First key of the stretch; `None` if it begins with the least key.
    first: Option<Bound>,
    /// First key after the stretch; `None` if it has no end.
    end: Option<Bound>,
}

/// A start or end of a fragment.
#[derive(Debug, Clone, Copy)]
enum Bound {
    Start(FragmentId),
    End(FragmentId),
}

impl RangeTombstoneRuns {
    /// Adds parts that each are a run of their own.
    pub fn push_single(&mut self, parts: impl IntoIterator<Item = Arc<FragmentedTombstones>>) {
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            self.parts.push(part);
            self.run_ends.push(self.parts.len());
        }
    }

    /// Adds a part to the run that begins after part number `first` of all.
    ///
    /// REQUIRES: the new part lies after all parts of the run, by key.
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

    /// Whether there are no tombstones.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Calls [`FragmentedTombstones::newest_at`] for fragment `id`.
    #[inline]
    pub fn newest_at(&self, id: FragmentId, reader: SequenceNumber) -> Option<SequenceNumber> {
        self.parts[id.part].newest_at(id.fragment, reader)
    }

    /// Calls [`FragmentedTombstones::oldest_after`] for fragment `id`.
    #[inline]
    pub fn oldest_after(&self, id: FragmentId, sequence: SequenceNumber) -> Option<SequenceNumber> {
        self.parts[id.part].oldest_after(id.fragment, sequence)
    }

    fn key(&self, bound: Bound) -> &[u8] {
        match bound {
            Bound::Start(id) => self.parts[id.part].start(id.fragment),
            Bound::End(id) => self.parts[id.part].end(id.fragment),
        }
    }

    /// Whether `key` is before the end of a stretch.
    #[inline]
    pub fn is_before_end(&self, stretch: &Stretch, key: &[u8]) -> bool {
        stretch.end.is_none_or(|end| key < self.key(end))
    }

    /// Whether `key` is in a stretch.
    #[inline]
    pub fn contains(&self, stretch: &Stretch, key: &[u8]) -> bool {
        stretch.first.is_none_or(|first| self.key(first) <= key) && self.is_before_end(stretch, key)
    }

    /// Returns the stretch around `key`. Replaces the contents of `over` with the fragments over
    /// the stretch, at most one of each run.
    pub fn stretch_around(&self, key: &[u8], over: &mut Vec<FragmentId>) -> Stretch {
        over.clear();
        let mut stretch = Stretch::default();
        let mut first_part = 0;
        for &end_part in &self.run_ends {
            let (first, end, fragment) = self.bounds_in_run((first_part, end_part), key);
            first_part = end_part;
            over.extend(fragment);
            let both = |a: Option<Bound>, b: Option<Bound>| [a, b].into_iter().flatten();
            let compare = |a: &Bound, b: &Bound| self.key(*a).cmp(self.key(*b));
            stretch.first = both(stretch.first, first).max_by(compare);
            stretch.end = both(stretch.end, end).min_by(compare);
        }
        stretch
    }

    /// Whether fragments that `is_wanted` accepts lie over each key from `first` to `last`. With
    /// `last_is_exclusive`, `last` itself does not count.
    pub fn cover(
        &self,
        (first, last): (&[u8], &[u8]),
        last_is_exclusive: bool,
        is_wanted: impl Fn(FragmentId) -> bool,
    ) -> bool {
        let (mut key, mut over) = (first, Vec::new());
        loop {
            let stretch = self.stretch_around(key, &mut over);
            if !over.iter().any(|id| is_wanted(*id)) {
                return false;
            }
            fail_point!("compaction-remove-overlapped-tables", |_| true);
            let Some(end) = stretch.end.map(|end| self.key(end)) else { return false };
            if last < end || last_is_exclusive && last == end {
                return true;
            }
            key = end;
        }
    }

    /// Returns the bounds around `key` within one run, and the fragment over `key`.
    fn bounds_in_run(
        &self,
        (first_part, end_part): (usize, usize),
        key: &[u8],
    ) -> (Option<Bound>, Option<Bound>, Option<FragmentId>) {
        let parts = &self.parts[first_part..end_part];
        let started = first_part + parts.partition_point(|part| part.start(0) <= key);
        let next_part = FragmentId { part: started, fragment: 0 };
        let next_part = (started < end_part).then_some(Bound::Start(next_part));
        if started == first_part {
            return (None, next_part, None);
        }
        let part = started - 1;
        let tombstones = &self.parts[part];
        let fragment = tombstones.bounds_through(key) - 1;
        let id = FragmentId { part, fragment };
        if fragment == tombstones.len() {
            let last = FragmentId { part, fragment: fragment - 1 };
            return (Some(Bound::End(last)), next_part, None);
        }
        let over = (!tombstones.is_gap(fragment)).then_some(id);
        (Some(Bound::Start(id)), Some(Bound::End(id)), over)
    }
}
