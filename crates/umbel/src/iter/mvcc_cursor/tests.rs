//! Compares the visible cursor with a map built from every version.

use std::ops::Bound;
use std::sync::Arc;

use proptest::prelude::*;
use umbel_base::{Cursor, FragmentedTombstones, RangeTombstone, Result, SequenceNumber, ValueKind};

use crate::cache::cursor_memory::CursorMemory;
use crate::iter::hidden_run::SkipSpanSource;
use crate::iter::merging_cursor::MergingCursor;
use crate::iter::mvcc_cursor::{VisibleCursor, VisibleValue};
use crate::iter::range_tombstone_finder::RangeTombstoneSource;
use crate::iter::range_tombstone_runs::RangeTombstoneRuns;
use crate::test_support::row_cursor::{Row, RowCursor, model};

fn key(number: u8) -> Vec<u8> {
    if number.is_multiple_of(2) { vec![number] } else { vec![number - 1, 0] }
}

fn bound(choice: (u8, u8)) -> Bound<Vec<u8>> {
    match choice.0 % 3 {
        0 => Bound::Unbounded,
        1 => Bound::Included(key(choice.1)),
        _ => Bound::Excluded(key(choice.1)),
    }
}

fn within(key: &[u8], lower: &Bound<Vec<u8>>, upper: &Bound<Vec<u8>>) -> bool {
    let after = match lower {
        Bound::Unbounded => true,
        Bound::Included(b) => key >= b.as_slice(),
        Bound::Excluded(b) => key > b.as_slice(),
    };
    after
        && match upper {
            Bound::Unbounded => true,
            Bound::Included(b) => key <= b.as_slice(),
            Bound::Excluded(b) => key < b.as_slice(),
        }
}

/// Moves the cursor and an index into the list in parallel. `start` and the result are indexes in
/// the list plus one.
fn check_moves<C: Cursor + SkipSpanSource + RangeTombstoneSource>(
    cursor: &mut VisibleCursor<C>,
    list: &[(Vec<u8>, Vec<u8>)],
    moves: &[(u8, u8)],
    start: usize,
) -> usize {
    let mut place = start;
    for &(what, number) in moves {
        let target = key(number);
        let is_valid = (1..=list.len()).contains(&place);
        match what {
            0 => (cursor.seek_to_first().unwrap(), place = 1).1,
            1 => (cursor.seek_to_last().unwrap(), place = list.len()).1,
            2 => {
                cursor.seek(&target).unwrap();
                place = list.partition_point(|(k, _)| *k < target) + 1;
            }
            3 => {
                cursor.seek_for_prev(&target).unwrap();
                place = list.partition_point(|(k, _)| *k <= target);
            }
            4..=7 if is_valid => (cursor.next().unwrap(), place += 1).1,
            _ if is_valid => (cursor.prev().unwrap(), place -= 1).1,
            _ => continue,
        }
        let expected = place.checked_sub(1).and_then(|index| list.get(index));
        assert_eq!(cursor.valid(), expected.is_some(), "after move {what} to {target:?}");
        if let Some((key, value)) = expected {
            // Pointers are recognized by their length.
            let shown = if value.len() == 2 {
                VisibleValue::Pointer(value)
            } else {
                VisibleValue::Value(value)
            };
            assert_eq!((cursor.key(), cursor.shown()), (key.as_slice(), shown));
            assert_eq!(cursor.is_blob_pointer(), value.len() == 2);
        }
    }
    place
}

/// Cursor over merged rows with range tombstones.
struct TombstoneCursor {
    merged: MergingCursor,
    ranges: Vec<RangeTombstone>,
    tombstones: RangeTombstoneRuns,
}

impl SkipSpanSource for TombstoneCursor {}

impl RangeTombstoneSource for TombstoneCursor {
    fn hides(&self, key: &[u8], sequence: SequenceNumber, reader: SequenceNumber) -> Result<bool> {
        Ok(self.ranges.iter().any(|t| {
            (sequence + 1..=reader).contains(&t.sequence)
                && (t.start.as_slice()..t.end.as_slice()).contains(&key)
        }))
    }

    fn tombstone_runs(&self, _: &Bound<Vec<u8>>, _: &Bound<Vec<u8>>) -> Result<RangeTombstoneRuns> {
        Ok(self.tombstones.clone())
    }
}

impl Cursor for TombstoneCursor {
    fn seek_to_first(&mut self) -> Result<()> {
        self.merged.seek_to_first()
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.merged.seek_to_last()
    }

    fn seek(&mut self, key: &[u8], sequence: SequenceNumber) -> Result<()> {
        self.merged.seek(key, sequence)
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.merged.seek_before(key)
    }

    fn next(&mut self) -> Result<()> {
        Cursor::next(&mut self.merged)
    }

    fn next_repeats(&mut self) -> Result<bool> {
        Cursor::next_repeats(&mut self.merged)
    }

    fn try_next(&mut self) -> Option<bool> {
        Cursor::try_next(&mut self.merged)
    }

    fn try_next_visible(&mut self, sequence: SequenceNumber) -> bool {
        Cursor::try_next_visible(&mut self.merged, sequence)
    }

    fn prev(&mut self) -> Result<()> {
        Cursor::prev(&mut self.merged)
    }

    fn release(&mut self) {
        Cursor::release(&mut self.merged);
    }

    fn valid(&self) -> bool {
        Cursor::valid(&self.merged)
    }

    fn key(&self) -> &[u8] {
        Cursor::key(&self.merged)
    }

    fn sequence(&self) -> SequenceNumber {
        Cursor::sequence(&self.merged)
    }

    fn kind(&self) -> ValueKind {
        Cursor::kind(&self.merged)
    }

    fn value(&self) -> &[u8] {
        Cursor::value(&self.merged)
    }
}

/// Returns a merge of `rows`, spread over `sources` sources by sequence number, newest source
/// first.
fn merge(rows: &[Row], sources: u64) -> MergingCursor {
    let share = |source: u64| -> Box<dyn Cursor> {
        let own = |r: &&Row| r.sequence % sources == source;
        Box::new(RowCursor::new(rows.iter().filter(own).cloned().collect()))
    };
    MergingCursor::new((0..sources).map(share).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn cursor_equals_the_model(
        // (key, is a delete); the index in the list is the sequence number.
        history in proptest::collection::vec((0u8..14, 0u8..4), 0..120),
        ranges in proptest::collection::vec((0u8..16, 0u8..16, 0u64..130), 0..5),
        bounds in ((0u8..3, 0u8..16), (0u8..3, 0u8..16)),
        sequence in 0u64..130,
        sources in 1u64..5,
        moves in proptest::collection::vec((0u8..12, 0u8..16), 1..80),
        parks in any::<u64>(),
    ) {
        let rows: Vec<Row> = history.iter().enumerate().map(|(index, &(number, kind))| {
            let (kind, value) = match kind {
                0 => (ValueKind::Delete, Vec::new()),
                1 => (ValueKind::BlobPointer, vec![index as u8, 1]),
                _ => (ValueKind::Put, vec![index as u8]),
            };
            Row { key: key(number), sequence: index as u64 + 1, kind, value }
        }).collect();
        let ranges: Vec<RangeTombstone> = ranges.into_iter()
            .map(|(a, b, sequence)| RangeTombstone { start: key(a), end: key(b), sequence })
            .filter(|t| t.start < t.end)
            .collect();
        let (lower, upper) = (bound(bounds.0), bound(bounds.1));
        let mut map = model(&rows, &ranges, sequence);
        map.retain(|key, _| within(key, &lower, &upper));
        let list: Vec<_> = map.into_iter().collect();
        // Each source has some of them.
        let of_source = |source| {
            let ranges = ranges.iter().enumerate().filter(|(i, _)| *i as u64 % sources == source);
            Arc::new(FragmentedTombstones::new(ranges.map(|(_, tombstone)| tombstone)))
        };
        let mut tombstones = RangeTombstoneRuns::default();
        tombstones.push_single((0..sources).map(of_source));
        let has_tombstones = !tombstones.is_empty();
        let inner = TombstoneCursor { merged: merge(&rows, sources), ranges, tombstones };
        let memory = Arc::new(CursorMemory::new(1));
        let mut cursor = VisibleCursor::new(inner, sequence, has_tombstones, lower, upper);
        cursor.count_memory(&memory, 1);
        // Memory is tight at times, and cursors park or continue.
        let mut place = 0;
        for (number, part) in moves.chunks(3).enumerate() {
            memory.note_blocks(parks >> (number % 64) & 1);
            place = check_moves(&mut cursor, &list, part, place);
            if memory.is_tight() && part.iter().any(|moved| moved.0 < 4) {
                assert!(memory.bytes() > 1 + 1 || !cursor.valid(), "it parked");
            }
        }
        drop(cursor);
        memory.note_blocks(0);
        assert_eq!(memory.bytes(), 0, "all that was counted was given back");
    }

    #[test]
    fn read_error_is_not_reported_as_end(
        history in proptest::collection::vec((0u8..14, 0u8..4), 1..60),
        movements in 0usize..60,
        backward in any::<bool>(),
    ) {
        let rows: Vec<Row> = history.iter().enumerate().map(|(index, &(number, kind))| {
            let kind = if kind == 0 { ValueKind::Delete } else { ValueKind::Put };
            Row { key: key(number), sequence: index as u64 + 1, kind, value: vec![index as u8] }
        }).collect();
        let expected = model(&rows, &[], 1000).len();
        let mut inner = RowCursor::new(rows);
        inner.movements_left = movements;
        let mut cursor =
            VisibleCursor::new(inner, 1000, false, Bound::Unbounded, Bound::Unbounded);
        let mut seen = 0;
        let mut moved = if backward { cursor.seek_to_last() } else { cursor.seek_to_first() };
        while moved.is_ok() && cursor.valid() {
            seen += 1;
            moved = if backward { cursor.prev() } else { cursor.next() };
        }
        prop_assert!(!cursor.valid());
        match moved {
            Ok(()) => prop_assert_eq!(seen, expected),
            Err(_) => {
                prop_assert!(cursor.next().is_err() && cursor.prev().is_err());
                prop_assert!(cursor.seek_to_first().is_err() && !cursor.valid());
            }
        }
    }
}

#[test]
fn long_runs_of_versions_are_skipped_by_seeks() {
    // 10,000 versions of one key between two others. A reader far in the past, one in the middle
    // and one at the end each need a few movements, not thousands.
    let mut rows: Vec<Row> = (1..=10_000)
        .map(|sequence| Row { key: vec![5], sequence, kind: ValueKind::Put, value: vec![1] })
        .collect();
    for key in [1, 9] {
        rows.push(Row { key: vec![key], sequence: 1, kind: ValueKind::Put, value: vec![key] });
    }
    for (sequence, keys) in [(0u64, 0), (1, 3), (5_000, 3), (20_000, 3)] {
        for backward in [false, true] {
            let mut inner = RowCursor::new(rows.clone());
            inner.movements_left = 60;
            let mut cursor =
                VisibleCursor::new(inner, sequence, false, Bound::Unbounded, Bound::Unbounded);
            let mut seen = 0;
            if backward {
                cursor.seek_to_last().unwrap()
            } else {
                cursor.seek_to_first().unwrap()
            }
            while cursor.valid() {
                seen += 1;
                if backward { cursor.prev().unwrap() } else { cursor.next().unwrap() }
            }
            assert_eq!(seen, keys);
        }
    }
}
