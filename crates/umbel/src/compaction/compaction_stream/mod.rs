//! The output of a compaction: an iteration over the merged inputs that drops entries that no
//! reader can see any more.
//!
//! The `boundaries` are the sequence numbers that readers can use: those of the snapshots, and the
//! visible sequence number when the compaction began. Readers that begin later use the visible
//! sequence number or a later one. Boundaries divide time into stripes: two sequence numbers lie in
//! one stripe where no boundary `s` has `older <= s < newer`. Within a stripe only the newest
//! version of a key can be seen.
//!
//! INVARIANTS:
//! 1. A compaction changes no result of a reader at a boundary, or at any sequence number from the
//!    last boundary on. The reader sees the outputs, between newer and older data, as it saw the
//!    inputs.
//! 2. An entry newer than the last boundary hides nothing: a reader can still begin at a sequence
//!    number between it and an older entry.
//! 3. A delete or range tombstone is dropped only if the caller says that no older entry lies
//!    beneath it.
//! 4. Entries in = entries out + entries dropped.

use umbel_base::{Cursor, Result, SequenceNumber, ValueKind};

use crate::iter::range_tombstone_runs::{FragmentId, RangeTombstoneRuns, Stretch};

/// Stripes of sequence numbers that readers can distinguish.
#[derive(Debug, Clone)]
pub struct SnapshotStripes {
    boundaries: Vec<SequenceNumber>,
}

impl SnapshotStripes {
    /// Creates the stripes between `boundaries`, which are in any order: sequence numbers of the
    /// snapshots, and the visible sequence number when the compaction begins. Without boundaries
    /// the stream drops nothing.
    ///
    /// REQUIRES: the visible sequence is read **before** the snapshots are listed, or under the
    /// same lock. So a snapshot taken meanwhile is either listed or not older than the visible
    /// sequence. The creation of a snapshot reads the visible sequence and lists the snapshot in
    /// one step.
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
    pub fn hides(&self, newer: SequenceNumber, older: SequenceNumber) -> bool {
        let oldest_reader = self.boundaries.partition_point(|&boundary| boundary < older);
        self.boundaries.get(oldest_reader).is_some_and(|&reader| newer <= reader)
    }

    /// Returns the stripe of a sequence number. After the last boundary, each sequence number is a
    /// stripe of its own.
    pub fn stripe(&self, sequence: SequenceNumber) -> (usize, SequenceNumber) {
        let stripe = self.boundaries.partition_point(|&boundary| boundary < sequence);
        (stripe, if stripe < self.boundaries.len() { 0 } else { sequence })
    }

    /// Whether every present and later reader sees writes at `sequence`.
    #[inline]
    pub fn all_see(&self, sequence: SequenceNumber) -> bool {
        self.boundaries.first().is_some_and(|&oldest| sequence <= oldest)
    }
}

/// Counts of a stream's entries by whether and why they were dropped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StreamCounts {
    /// Number of entries read from the inputs.
    pub entries_in: u64,
    /// Number of entries of the inputs that were not read, because a newer input has the same
    /// entry: an earlier merge of both ended between two steps.
    pub copies: u64,
    /// Number of entries emitted.
    pub entries_out: u64,
    /// Number of entries dropped because a newer version of the key hides them from every reader.
    pub dropped_shadowed: u64,
    /// Number of entries dropped because a range tombstone hides them from every reader.
    pub dropped_deleted_by_range: u64,
    /// Number of deletes dropped because no older version of their key is left.
    pub dropped_tombstones: u64,
    /// Number of emitted entries whose sequence number was set to zero.
    pub zeroed: u64,
    /// Number of emitted entries that follow a newer version of their key, since a reader can still
    /// see them.
    pub versions_kept: u64,
    /// Bytes of the keys and values of the entries in `versions_kept`.
    pub version_bytes_kept: u64,
}

impl StreamCounts {
    /// Adds the counts of another part of the same compaction.
    pub fn add(&mut self, other: &StreamCounts) {
        self.entries_in += other.entries_in;
        self.copies += other.copies;
        self.entries_out += other.entries_out;
        self.dropped_shadowed += other.dropped_shadowed;
        self.dropped_deleted_by_range += other.dropped_deleted_by_range;
        self.dropped_tombstones += other.dropped_tombstones;
        self.zeroed += other.zeroed;
        self.versions_kept += other.versions_kept;
        self.version_bytes_kept += other.version_bytes_kept;
    }

    /// Number of entries dropped, for any reason.
    pub fn dropped(&self) -> u64 {
        self.dropped_shadowed + self.dropped_deleted_by_range + self.dropped_tombstones
    }

    /// Checks that all `entries_expected` entries of the inputs were read, and that each was
    /// emitted or counted as dropped.
    ///
    /// # Errors
    /// A sentence with the numbers that do not match. The caller must not use the outputs after an
    /// error.
    pub fn check(&self, entries_expected: u64) -> std::result::Result<(), String> {
        if self.entries_in + self.copies != entries_expected {
            return Err(format!(
                "the inputs hold {entries_expected} entries by their properties, but {} were read",
                self.entries_in + self.copies
            ));
        }
        self.check_part(0)
    }

    /// Checks the counts of a part of a compaction, whose inputs hold at least `entries_min`
    /// entries by their properties.
    ///
    /// # Errors
    /// As [`check`](StreamCounts::check).
    pub fn check_part(&self, entries_min: u64) -> std::result::Result<(), String> {
        if self.entries_in + self.copies < entries_min {
            return Err(format!(
                "the inputs hold at least {entries_min} entries by their properties, but {} were \
                 read",
                self.entries_in + self.copies
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
    /// The key of the entry.
    pub key: &'a [u8],
    /// Sequence number to write; zero if every reader sees the entry.
    pub sequence: SequenceNumber,
    /// The kind of the entry.
    pub kind: ValueKind,
    /// The value; empty for a delete.
    pub value: &'a [u8],
    /// Whether the previously emitted entry has the same key.
    pub repeats: bool,
}

/// Decision whether to emit an entry.
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
    /// The stretch of keys around the last key, and the range tombstone fragments over it.
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
    /// Creates a stream over `inner`, which merges the inputs, and over all `tombstones` of the
    /// inputs.
    ///
    /// `is_bottommost` says whether no entry of a key **and no range tombstone over it** lies in
    /// any source older than the inputs. `is_bottommost` is called with ascending keys, and returns
    /// `false` if it cannot tell. `zero_sequences` lets bottommost entries lose their sequence
    /// number, which makes them smaller. REQUIRES: `zero_sequences` is `false` for level 0, whose
    /// tables are ordered by sequence number.
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

    /// Limits the stream to keys in `lower..upper`, so that parts of a compaction can run in
    /// parallel.
    pub fn within(mut self, lower: Option<&[u8]>, upper: Option<&[u8]>) -> Self {
        self.lower = lower.map(<[u8]>::to_vec);
        self.upper = upper.map(<[u8]>::to_vec);
        self
    }

    /// Returns the next surviving entry; `None` after the last entry.
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

    /// Returns the counts of the entries read so far.
    pub fn counts(&self) -> StreamCounts {
        StreamCounts { copies: self.inner.skipped_copies(), ..self.counts }
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

    /// Decides whether the inner cursor's current entry is emitted, and notes its key and sequence
    /// number for the next decision.
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

    /// Whether a range tombstone covers the current key, and whether a range tombstone hides the
    /// version at `sequence` from every reader.
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
