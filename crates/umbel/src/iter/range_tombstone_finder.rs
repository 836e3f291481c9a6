//! [`RangeTombstoneFinder`]: finds the range tombstone that hides a key, for keys in sequence.

use std::sync::Arc;

use umbel_base::{FragmentedTombstones, SequenceNumber};

/// Range tombstones of several sources, with the stretch of keys around the last key, so that
/// neighbouring keys need no search.
#[derive(Debug)]
pub struct RangeTombstoneFinder {
    /// INVARIANT: none is empty.
    sources: Vec<Arc<FragmentedTombstones>>,
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
    Start { source: usize, fragment: usize },
    End { source: usize, fragment: usize },
}

impl RangeTombstoneFinder {
    /// Starts without a remembered stretch.
    pub fn new(mut sources: Vec<Arc<FragmentedTombstones>>) -> Self {
        sources.retain(|tombstones| !tombstones.is_empty());
        RangeTombstoneFinder { sources, stretch: None }
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    /// Whether a tombstone that a reader at `reader` sees hides version `sequence` of `key`.
    #[inline]
    pub fn hides(&mut self, key: &[u8], sequence: SequenceNumber, reader: SequenceNumber) -> bool {
        !self.is_empty() && self.newest_over(key, reader).is_some_and(|newest| newest > sequence)
    }

    fn newest_over(&mut self, key: &[u8], reader: SequenceNumber) -> Option<SequenceNumber> {
        let remembered = self.stretch.as_ref().filter(|stretch| {
            stretch.reader == reader
                && stretch.first.is_none_or(|first| self.key(first) <= key)
                && stretch.end.is_none_or(|end| key < self.key(end))
        });
        if let Some(stretch) = remembered {
            return stretch.newest;
        }
        let stretch = self.stretch_around(key, reader);
        let newest = stretch.newest;
        self.stretch = Some(stretch);
        newest
    }

    fn key(&self, bound: Bound) -> &[u8] {
        match bound {
            Bound::Start { source, fragment } => self.sources[source].start(fragment),
            Bound::End { source, fragment } => self.sources[source].end(fragment),
        }
    }

    fn stretch_around(&self, key: &[u8], reader: SequenceNumber) -> Stretch {
        let mut stretch = Stretch { first: None, end: None, reader, newest: None };
        for (source, tombstones) in self.sources.iter().enumerate() {
            let started = tombstones.started_at(key);
            let next =
                (started < tombstones.len()).then_some(Bound::Start { source, fragment: started });
            let (first, end) = match started.checked_sub(1) {
                None => (None, next),
                Some(fragment) if key < tombstones.end(fragment) => {
                    stretch.newest = stretch.newest.max(tombstones.newest_at(fragment, reader));
                    let first = Bound::Start { source, fragment };
                    (Some(first), Some(Bound::End { source, fragment }))
                }
                Some(fragment) => (Some(Bound::End { source, fragment }), next),
            };
            stretch.first = [stretch.first, first]
                .into_iter()
                .flatten()
                .max_by(|&a, &b| self.key(a).cmp(self.key(b)));
            stretch.end = [stretch.end, end]
                .into_iter()
                .flatten()
                .min_by(|&a, &b| self.key(a).cmp(self.key(b)));
        }
        stretch
    }
}
