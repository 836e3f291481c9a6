//! The output of a compaction: an iteration over the merged inputs that drops entries that no
//! reader can see any more.
//!
//! The sequence numbers that readers may use are the `boundaries`: those of the snapshots and the
//! visible sequence number when the compaction began. All later readers use that number or a later
//! one. Boundaries divide time into stripes: two sequence numbers lie in one stripe where no
//! boundary `s` has `older <= s < newer`. Within a stripe only the newest version of a key can be
//! seen.
//!
//! INVARIANTS:
//! 1. A reader at any boundary, or at any sequence number from the last boundary on, sees the same
//!    before and after. Before is (all above the inputs, inputs, all beneath), after is (all above
//!    the inputs, outputs, all beneath).
//! 2. An entry newer than the last boundary hides nothing: a reader may still come in between.
//! 3. A delete or range tombstone is dropped only where nothing older lies beneath, as the caller
//!    says.
//! 4. Entries in = entries out + entries dropped.

use umbel_base::{Cursor, Result, SequenceNumber, ValueKind};

use crate::iter::range_tombstone_runs::{FragmentId, RangeTombstoneRuns, Stretch};

/// Stripes of sequence numbers that readers can distinguish.
#[derive(Debug, Clone)]
pub struct SnapshotStripes {
    boundaries: Vec<SequenceNumber>,
}

impl SnapshotStripes {
    /// The stripes between `boundaries`, in any order: the sequence numbers of the snapshots and
    /// the visible one when the compaction begins. Without any boundary nothing is dropped.
    ///
    /// REQUIRES: the visible sequence is read **before** the snapshots are listed, or under the
    /// same lock. So a snapshot taken meanwhile is either listed or not older than it. A snapshot
    /// is listed in the same step in which it reads the visible sequence.
    pub fn new(mut boundaries: Vec<SequenceNumber>) -> SnapshotStripes {
        boundaries.sort_unstable();
        boundaries.dedup();
        SnapshotStripes { boundaries }
    }

    /// Returns the snapshots: all boundaries except the newest, which is the visible sequence
    /// number.
    pub fn boundaries(&self) -> &[SequenceNumber] {
        self.boundaries.split_last().map_or(&[], |(_, held)| held)
    }

    /// Whether every reader that sees `older` sees `newer` too. REQUIRES: `older <= newer`.
    #[inline]
    fn hides(&self, newer: SequenceNumber, older: SequenceNumber) -> bool {
        let oldest_reader = self.boundaries.partition_point(|&boundary| boundary < older);
        self.boundaries.get(oldest_reader).is_some_and(|&reader| newer <= reader)
    }

    /// The stripe of a sequence number. After the last boundary, each is a stripe of its own.
    pub fn stripe(&self, sequence: SequenceNumber) -> (usize, SequenceNumber) {
        let stripe = self.boundaries.partition_point(|&boundary| boundary < sequence);
        (stripe, if stripe < self.boundaries.len() { 0 } else { sequence })
    }

    /// Whether every reader, now and later, sees writes at `sequence`.
    #[inline]
    pub fn all_see(&self, sequence: SequenceNumber) -> bool {
        self.boundaries.first().is_some_and(|&oldest| sequence <= oldest)
    }
}

/// Counts of entries by their fate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StreamCounts {
    /// Entries read.
    pub entries_in: u64,
    /// Entries emitted.
    pub entries_out: u64,
    /// Entries dropped because a newer version of the key hides them from every reader.
    pub dropped_shadowed: u64,
    /// Entries dropped because a range tombstone hides them from every reader.
    pub dropped_deleted_by_range: u64,
    /// Deletes dropped because there is nothing left for them to delete.
    pub dropped_tombstones: u64,
    /// Emitted entries whose sequence number was set to zero.
    pub zeroed: u64,
    /// Emitted entries after a newer version of their key: some reader still sees them.
    pub versions_kept: u64,
    /// Bytes of the keys and values of these entries.
    pub version_bytes_kept: u64,
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
        self.versions_kept += other.versions_kept;
        self.version_bytes_kept += other.version_bytes_kept;
    }

    /// Entries dropped, for any reason.
    pub fn dropped(&self) -> u64 {
        self.dropped_shadowed + self.dropped_deleted_by_range + self.dropped_tombstones
    }

    /// Checks that all `entries_expected` of the inputs were read, and that each was emitted or
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

/// A surviving entry, borrowed until the stream's next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamEntry<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Sequence number to write; zero where it distinguishes nothing any more.
    pub sequence: SequenceNumber,
    /// The kind.
    pub kind: ValueKind,
    /// The value; empty for a delete.
    pub value: &'a [u8],
    /// Whether the entry emitted before has the same key.
    pub repeats: bool,
}

/// Decision on an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EntryFate {
    Keep,
    KeepWithZeroSequence,
    Shadowed,
    DeletedByRange,
    NothingToDelete,
}

/// Stream of the surviving entries of a compaction's inputs, or of one memtable, in internal order.
pub struct CompactionStream<C: Cursor, B: FnMut(&[u8]) -> bool> {
    inner: C,
    tombstones: RangeTombstoneRuns,
    /// The stretch of keys around the last key that was looked up, and the fragments over it.
    stretch: Option<Stretch>,
    over: Vec<FragmentId>,
    stripes: SnapshotStripes,
    is_bottommost: B,
    zero_sequences: bool,
    lower: Option<Vec<u8>>,
    upper: Option<Vec<u8>>,
    started: bool,
    /// Whether the inner cursor's entry has the key of the previous one.
    repeats: bool,
    /// Sequence number of the entry read last.
    newer: SequenceNumber,
    /// Whether a version of the current key was emitted.
    has_emitted: bool,
    counts: StreamCounts,
}

impl<C: Cursor, B: FnMut(&[u8]) -> bool> CompactionStream<C, B> {
    /// A stream over `inner`, which merges the inputs, with all `tombstones` of the inputs.
    ///
    /// `is_bottommost` says whether no entry of a key **and no range tombstone over it** lies in
    /// any source older than the inputs. It is called with ascending keys, and returns `false`
    /// where unsure. `zero_sequences` lets entries there lose their sequence number, which makes
    /// them smaller. Never set it for level 0, whose tables are ordered by sequence number.
    pub fn new(
        inner: C,
        tombstones: RangeTombstoneRuns,
        stripes: SnapshotStripes,
        zero_sequences: bool,
        is_bottom: B,
    ) -> Self {
        CompactionStream {
            inner,
            tombstones,
            stretch: None,
            over: Vec::new(),
            stripes,
            is_bottommost: is_bottom,
            zero_sequences,
            lower: None,
            upper: None,
            started: false,
            repeats: false,
            newer: 0,
            has_emitted: false,
            counts: StreamCounts::default(),
        }
    }

    /// Limits the stream to keys in `lower..upper`, so that parts can run in parallel.
    pub fn within(mut self, lower: Option<&[u8]>, upper: Option<&[u8]>) -> Self {
        self.lower = lower.map(<[u8]>::to_vec);
        self.upper = upper.map(<[u8]>::to_vec);
        self
    }

    /// Returns the next surviving entry; `None` after the last.
    pub fn next_entry(&mut self) -> Result<Option<StreamEntry<'_>>> {
        let sequence = loop {
            self.advance()?;
            if !self.inner.valid() || self.is_past_upper() {
                return Ok(None);
            }
            self.counts.entries_in += 1;
            match self.classify() {
                EntryFate::Keep => break self.inner.sequence(),
                EntryFate::KeepWithZeroSequence => {
                    self.counts.zeroed += 1;
                    break 0;
                }
                EntryFate::Shadowed => self.counts.dropped_shadowed += 1,
                EntryFate::DeletedByRange => self.counts.dropped_deleted_by_range += 1,
                EntryFate::NothingToDelete => self.counts.dropped_tombstones += 1,
            }
        };
        self.counts.entries_out += 1;
        let (kind, value) = (self.inner.kind(), self.inner.value());
        let repeats = std::mem::replace(&mut self.has_emitted, true);
        if repeats {
            self.counts.versions_kept += 1;
            self.counts.version_bytes_kept += (self.inner.key().len() + value.len()) as u64;
        }
        Ok(Some(StreamEntry { key: self.inner.key(), sequence, kind, value, repeats }))
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> StreamCounts {
        self.counts
    }

    #[inline]
    fn advance(&mut self) -> Result<()> {
        if !self.started {
            return self.begin();
        }
        // A call after the end, or after an error, must not step an invalid cursor.
        if !self.inner.valid() {
            return Ok(());
        }
        self.repeats = match self.inner.try_next() {
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

    fn is_past_upper(&self) -> bool {
        self.upper.as_ref().is_some_and(|upper| self.inner.key() >= upper.as_slice())
    }

    /// Decides about the inner cursor's current entry and remembers it.
    fn classify(&mut self) -> EntryFate {
        let sequence = self.inner.sequence();
        let newer = std::mem::replace(&mut self.newer, sequence);
        // The next newer version hides it from most readers; versions further away need no check.
        if self.repeats {
            if self.stripes.hides(newer, sequence) {
                return EntryFate::Shadowed;
            }
        } else {
            self.has_emitted = false;
        }
        let is_covered = match self.tombstones.is_empty() {
            true => false,
            false => match self.range_deleted(sequence) {
                (_, true) => return EntryFate::DeletedByRange,
                (is_covered, false) => is_covered,
            },
        };
        if !self.stripes.all_see(sequence) {
            return EntryFate::Keep;
        }
        match self.inner.kind() {
            ValueKind::Delete if (self.is_bottommost)(self.inner.key()) => {
                EntryFate::NothingToDelete
            }
            // Every older version lies in the same stripe and is dropped after this one. A range
            // tombstone over the key would hide an entry with sequence number zero.
            ValueKind::Put | ValueKind::BlobPointer
                if self.zero_sequences
                    && sequence > 0
                    && !is_covered
                    && (self.is_bottommost)(self.inner.key()) =>
            {
                EntryFate::KeepWithZeroSequence
            }
            _ => EntryFate::Keep,
        }
    }

    /// Whether a range tombstone covers the current key, and whether one hides this sequence number
    /// of it from every reader.
    fn range_deleted(&mut self, sequence: SequenceNumber) -> (bool, bool) {
        let (key, tombstones) = (self.inner.key(), &self.tombstones);
        // Keys ascend, so the end decides.
        if self.stretch.is_none_or(|stretch| !tombstones.is_before_end(&stretch, key)) {
            self.stretch = Some(tombstones.stretch_around(key, &mut self.over));
        }
        let newer = self.over.iter().filter_map(|&id| tombstones.oldest_after(id, sequence)).min();
        (!self.over.is_empty(), newer.is_some_and(|newer| self.stripes.hides(newer, sequence)))
    }
}

#[cfg(test)]
mod tests;
