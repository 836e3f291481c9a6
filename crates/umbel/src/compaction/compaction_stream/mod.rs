//! What survives a compaction: a walk over the merged inputs that leaves out what no reader can
//! see any more.
//!
//! The sequence numbers that readers may ask for are the `boundaries`: those of the snapshots held
//! and the visible sequence when the compaction began, from which all later readers count on. They
//! cut time into stripes: two sequence numbers lie in one stripe where no boundary `s` has
//! `older <= s < newer`. Within a stripe only the newest version of a key can be seen.
//!
//! INVARIANTS:
//! 1. At every boundary, and at every sequence number from the last boundary on, a reader sees the
//!    same in (all above the inputs, outputs, all beneath) as in (all above, inputs, all beneath).
//! 2. What is newer than the last boundary hides nothing: a reader may yet come in between.
//! 3. A delete or range tombstone goes only where nothing older lies beneath, as the caller says.
//! 4. Entries in = entries out + entries dropped.

use umbel_base::{Cursor, FragmentedTombstones, RangeTombstone, Result, SequenceNumber, ValueKind};

/// The stripes of time that readers can tell apart.
#[derive(Debug, Clone)]
pub struct Stripes {
    boundaries: Vec<SequenceNumber>,
}

impl Stripes {
    /// The stripes between `boundaries`, in any order: the sequence numbers of the snapshots held
    /// and the visible one when the compaction begins. Without any boundary nothing is dropped.
    ///
    /// REQUIRES: the visible sequence is read **before** the snapshots are listed, or under the
    /// same lock, so that a snapshot taken meanwhile is either listed or not older than it; and a
    /// snapshot is listed in the same step in which it reads the visible sequence.
    pub fn new(mut boundaries: Vec<SequenceNumber>) -> Stripes {
        boundaries.sort_unstable();
        boundaries.dedup();
        Stripes { boundaries }
    }

    /// The boundaries but for the newest, the visible one: the states that are held.
    pub fn held(&self) -> &[SequenceNumber] {
        self.boundaries.split_last().map_or(&[], |(_, held)| held)
    }

    /// Whether every reader that sees `older` sees `newer` too. REQUIRES: `older <= newer`.
    #[inline]
    fn hides(&self, newer: SequenceNumber, older: SequenceNumber) -> bool {
        let oldest_reader = self.boundaries.partition_point(|&boundary| boundary < older);
        self.boundaries.get(oldest_reader).is_some_and(|&reader| newer <= reader)
    }

    /// Whether every reader, now and later, sees what was written at `sequence`.
    #[inline]
    fn all_see(&self, sequence: SequenceNumber) -> bool {
        self.boundaries.first().is_some_and(|&oldest| sequence <= oldest)
    }
}

/// How many entries went in and where they went.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StreamCounts {
    /// Entries read.
    pub entries_in: u64,
    /// Entries handed on.
    pub entries_out: u64,
    /// Entries dropped because a newer version of the key hides them from every reader.
    pub dropped_shadowed: u64,
    /// Entries dropped because a range tombstone hides them from every reader.
    pub dropped_deleted_by_range: u64,
    /// Deletes dropped because there is nothing left for them to delete.
    pub dropped_tombstones: u64,
    /// Of the entries handed on, those whose sequence number was set to zero.
    pub zeroed: u64,
    /// Of the entries handed on, those behind a newer version of their key: some reader sees them
    /// still.
    pub kept_behind: u64,
    /// Bytes of the keys and values of these.
    pub kept_behind_bytes: u64,
}

impl StreamCounts {
    /// Adds the counts of another part of the same compaction.
    pub fn add(&mut self, other: &StreamCounts) {
        self.entries_in += other.entries_in;
        self.entries_out += other.entries_out;
        self.dropped_shadowed += other.dropped_shadowed;
        self.dropped_deleted_by_range += other.dropped_deleted_by_range;
        self.dropped_tombstones += other.dropped_tombstones;
        self.zeroed += other.zeroed;
        self.kept_behind += other.kept_behind;
        self.kept_behind_bytes += other.kept_behind_bytes;
    }

    /// Entries dropped, for whatever reason.
    pub fn dropped(&self) -> u64 {
        self.dropped_shadowed + self.dropped_deleted_by_range + self.dropped_tombstones
    }

    /// Checks that the inputs' `entries_expected` all came in and that every one was handed on or
    /// dropped for a reason.
    ///
    /// # Errors
    /// A sentence with the numbers; the outputs must then not be used.
    pub fn check(&self, entries_expected: u64) -> std::result::Result<(), String> {
        if self.entries_in != entries_expected {
            return Err(format!(
                "the inputs hold {entries_expected} entries by their properties, but {} were read",
                self.entries_in
            ));
        }
        if self.entries_in != self.entries_out + self.dropped() {
            return Err(format!(
                "{} entries were read, but {} written and {} dropped",
                self.entries_in,
                self.entries_out,
                self.dropped()
            ));
        }
        Ok(())
    }
}

/// A surviving entry, lent until the stream moves on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamEntry<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The sequence number to write, zero where it no longer tells anything apart.
    pub sequence: SequenceNumber,
    /// The kind.
    pub kind: ValueKind,
    /// The value; empty for a delete.
    pub value: &'a [u8],
    /// Whether the entry handed on before has the same key.
    pub repeats: bool,
}

/// What becomes of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Kept,
    KeptAsZero,
    Shadowed,
    DeletedByRange,
    NothingToDelete,
}

/// The surviving entries of the inputs of a compaction, or of one memtable, in internal order.
pub struct CompactionStream<C: Cursor, B: FnMut(&[u8]) -> bool> {
    inner: C,
    tombstones: FragmentedTombstones,
    /// The first fragment that ends behind the current key.
    fragment: usize,
    stripes: Stripes,
    is_bottom: B,
    zero_sequences: bool,
    lower: Option<Vec<u8>>,
    upper: Option<Vec<u8>>,
    started: bool,
    /// Whether the inner cursor's entry has the key of the one before.
    repeats: bool,
    /// The sequence number of the entry read last.
    newer: SequenceNumber,
    /// Whether a version of the current key was handed on.
    handed_on: bool,
    counts: StreamCounts,
}

impl<C: Cursor, B: FnMut(&[u8]) -> bool> CompactionStream<C, B> {
    /// A stream over `inner`, which merges the inputs, with all `tombstones` of the inputs.
    ///
    /// `is_bottom` says whether no entry of a key **and no range tombstone over it** lies in any
    /// source older than the inputs; it is asked with ascending keys. Where unsure it says no.
    /// `zero_sequences` lets entries there lose their sequence number, which makes them smaller;
    /// never set it where tables are ordered by sequence number, which is level 0.
    pub fn new(
        inner: C,
        tombstones: FragmentedTombstones,
        stripes: Stripes,
        zero_sequences: bool,
        is_bottom: B,
    ) -> Self {
        CompactionStream {
            inner,
            tombstones,
            fragment: 0,
            stripes,
            is_bottom,
            zero_sequences,
            lower: None,
            upper: None,
            started: false,
            repeats: false,
            newer: 0,
            handed_on: false,
            counts: StreamCounts::default(),
        }
    }

    /// Limits the stream to keys in `lower..upper`, so that parts can run side by side.
    pub fn within(mut self, lower: Option<&[u8]>, upper: Option<&[u8]>) -> Self {
        self.lower = lower.map(<[u8]>::to_vec);
        self.upper = upper.map(<[u8]>::to_vec);
        self
    }

    /// The next surviving entry; `None` behind the last.
    pub fn next_entry(&mut self) -> Result<Option<StreamEntry<'_>>> {
        let sequence = loop {
            self.advance()?;
            if !self.inner.valid() || self.is_behind_upper() {
                return Ok(None);
            }
            self.counts.entries_in += 1;
            match self.judge() {
                Fate::Kept => break self.inner.sequence(),
                Fate::KeptAsZero => {
                    self.counts.zeroed += 1;
                    break 0;
                }
                Fate::Shadowed => self.counts.dropped_shadowed += 1,
                Fate::DeletedByRange => self.counts.dropped_deleted_by_range += 1,
                Fate::NothingToDelete => self.counts.dropped_tombstones += 1,
            }
        };
        self.counts.entries_out += 1;
        let (kind, value) = (self.inner.kind(), self.inner.value());
        let repeats = std::mem::replace(&mut self.handed_on, true);
        if repeats {
            self.counts.kept_behind += 1;
            self.counts.kept_behind_bytes += (self.inner.key().len() + value.len()) as u64;
        }
        Ok(Some(StreamEntry { key: self.inner.key(), sequence, kind, value, repeats }))
    }

    /// The counts so far.
    pub fn counts(&self) -> StreamCounts {
        self.counts
    }

    #[inline]
    fn advance(&mut self) -> Result<()> {
        if !self.started {
            return self.begin();
        }
        // Asking again behind the end, or after an error, must not step from nowhere.
        if !self.inner.valid() {
            return Ok(());
        }
        self.repeats = match self.inner.step() {
            Some(repeats) => repeats,
            None => self.inner.next_repeats()?,
        };
        Ok(())
    }

    fn begin(&mut self) -> Result<()> {
        self.started = true;
        match &self.lower {
            Some(lower) => self.inner.seek(lower, SequenceNumber::MAX),
            None => self.inner.seek_to_first(),
        }
    }

    fn is_behind_upper(&self) -> bool {
        self.upper.as_ref().is_some_and(|upper| self.inner.key() >= upper.as_slice())
    }

    /// Decides about the entry the inner cursor stands on and remembers it.
    fn judge(&mut self) -> Fate {
        let sequence = self.inner.sequence();
        let newer = std::mem::replace(&mut self.newer, sequence);
        // The nearest newer version hides it from most readers: one farther off need not be asked.
        if self.repeats {
            if self.stripes.hides(newer, sequence) {
                return Fate::Shadowed;
            }
        } else {
            self.handed_on = false;
        }
        let is_covered = match self.tombstones.fragments() {
            [] => false,
            _ => match self.covered(sequence) {
                (_, true) => return Fate::DeletedByRange,
                (is_covered, false) => is_covered,
            },
        };
        if !self.stripes.all_see(sequence) {
            return Fate::Kept;
        }
        match self.inner.kind() {
            ValueKind::Delete if (self.is_bottom)(self.inner.key()) => Fate::NothingToDelete,
            // Every older version lies in the same stripe and is dropped behind this one. A range
            // tombstone over the key would hide an entry with sequence number zero.
            ValueKind::Put | ValueKind::BlobPointer
                if self.zero_sequences
                    && sequence > 0
                    && !is_covered
                    && (self.is_bottom)(self.inner.key()) =>
            {
                Fate::KeptAsZero
            }
            _ => Fate::Kept,
        }
    }

    /// Whether a range tombstone lies over the current key, and whether one hides its entry of this
    /// sequence number from every reader.
    fn covered(&mut self, sequence: SequenceNumber) -> (bool, bool) {
        let key = self.inner.key();
        let fragments = self.tombstones.fragments();
        while fragments.get(self.fragment).is_some_and(|f| f.end.as_slice() <= key) {
            self.fragment += 1;
        }
        let over = fragments.get(self.fragment).filter(|f| f.start.as_slice() <= key);
        let Some(fragment) = over else { return (false, false) };
        let newer = fragment.sequences.partition_point(|&tombstone| tombstone > sequence);
        (true, newer > 0 && self.stripes.hides(fragment.sequences[newer - 1], sequence))
    }
}

/// The range tombstones to write out of those of the inputs, with neighbours that go on joined
/// again. `is_bottom` says whether no older entry lies beneath the inputs in `start..end`.
pub fn surviving_tombstones(
    tombstones: &FragmentedTombstones,
    stripes: &Stripes,
    mut is_bottom: impl FnMut(&[u8], &[u8]) -> bool,
) -> Vec<RangeTombstone> {
    let mut surviving: Vec<RangeTombstone> = Vec::new();
    // Where in `surviving` those of the fragment before stand.
    let mut before = 0..0;
    for fragment in tombstones.fragments() {
        let first = surviving.len();
        let mut joined = Vec::new();
        let mut newer = None;
        for &sequence in &fragment.sequences {
            let hidden = newer.replace(sequence).is_some_and(|n| stripes.hides(n, sequence));
            let gone = stripes.all_see(sequence) && is_bottom(&fragment.start, &fragment.end);
            if hidden || gone {
                continue;
            }
            let goes_on = |index: &usize| {
                surviving[*index].sequence == sequence && surviving[*index].end == fragment.start
            };
            match before.clone().find(goes_on) {
                Some(index) => joined.push(index),
                None => {
                    let (start, end) = (fragment.start.clone(), fragment.end.clone());
                    surviving.push(RangeTombstone { start, end, sequence });
                }
            }
        }
        for index in &joined {
            surviving[*index].end.clone_from(&fragment.end);
        }
        let oldest_joined = joined.into_iter().min().unwrap_or(first);
        before = oldest_joined..surviving.len();
    }
    surviving
}

/// The parts of `tombstones` within `lower..upper`, the keys of one output table.
pub fn clip(
    tombstones: &[RangeTombstone],
    lower: Option<&[u8]>,
    upper: Option<&[u8]>,
) -> Vec<RangeTombstone> {
    let part = |tombstone: &RangeTombstone| {
        let start = lower.map_or(tombstone.start.as_slice(), |l| l.max(&tombstone.start));
        let end = upper.map_or(tombstone.end.as_slice(), |u| u.min(&tombstone.end));
        let sequence = tombstone.sequence;
        (start < end).then(|| RangeTombstone { start: start.to_vec(), end: end.to_vec(), sequence })
    };
    tombstones.iter().filter_map(part).collect()
}

#[cfg(test)]
#[path = "stream_tests.rs"]
mod tests;
