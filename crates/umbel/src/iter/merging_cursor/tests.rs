//! Compares the merge, and the cursor over a run of tables, with one sorted list.

use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use umbel_base::{Cursor, Error, Result, ValueKind, cmp_internal};

use crate::iter::level_cursor::{LevelCursor, SortedRun};
use crate::iter::merging_cursor::MergingCursor;
use crate::test_support::row_cursor::{Row, RowCursor, RowWalk, sort_rows};

/// Returns keys of which many have equal first eight bytes, and some are shorter than eight bytes.
fn key(number: u8) -> Vec<u8> {
    match number % 3 {
        0 => vec![b'k', number],
        1 => [b"prefix--".as_slice(), &[number]].concat(),
        _ => vec![b'k', number, 0],
    }
}

/// Moves `cursor` and a position in the list `rows` in parallel; `moves` are (movement, key,
/// sequence).
fn check_moves<C: Cursor + ?Sized>(cursor: &mut C, rows: &[Row], moves: &[(u8, u8, u64)]) {
    let mut place = 0usize; // index + 1
    for &(what, number, sequence) in moves {
        let target = key(number);
        let is_valid = (1..=rows.len()).contains(&place);
        match what {
            0 => (cursor.seek_to_first().unwrap(), place = 1).1,
            1 => (cursor.seek_to_last().unwrap(), place = rows.len()).1,
            2 => {
                cursor.seek(&target, sequence).unwrap();
                let at = |r: &Row| cmp_internal(&r.key, r.sequence, &target, sequence).is_lt();
                place = rows.partition_point(at) + 1;
            }
            3 => {
                cursor.seek_before(&target).unwrap();
                place = rows.partition_point(|r| r.key < target);
            }
            4 | 5 if is_valid => (cursor.next().unwrap(), place += 1).1,
            6 | 7 if is_valid => {
                let repeats = cursor.next_repeats().unwrap();
                let same = rows.get(place).is_some_and(|row| row.key == rows[place - 1].key);
                assert_eq!(repeats, same);
                place += 1;
            }
            8 | 9 if is_valid => {
                if cursor.try_next_visible(sequence) {
                    let (left, row) = (&rows[place - 1], &rows[place]);
                    assert!(row.key != left.key && row.kind == ValueKind::Put);
                    assert!(row.sequence <= sequence);
                    place += 1;
                }
            }
            _ if is_valid => (cursor.prev().unwrap(), place -= 1).1,
            _ => continue,
        }
        let expected = place.checked_sub(1).and_then(|index| rows.get(index));
        assert_eq!(cursor.valid(), expected.is_some(), "after move {what}");
        if let Some(row) = expected {
            assert_eq!((cursor.key(), cursor.sequence()), (row.key.as_slice(), row.sequence));
            assert_eq!((cursor.kind(), cursor.value()), (row.kind, row.value.as_slice()));
        }
    }
}

fn row(number: u8, sequence: u64, child: usize) -> Row {
    let kind = if sequence.is_multiple_of(5) { ValueKind::Delete } else { ValueKind::Put };
    let value = if kind == ValueKind::Put { vec![number, child as u8] } else { Vec::new() };
    Row { key: key(number), sequence, kind, value }
}

/// A run of tables; tables with an even index hold no entry between their bounds.
struct Tables(Vec<(Vec<u8>, Vec<u8>, Vec<Row>)>);

impl SortedRun<()> for Tables {
    type Table = Vec<Row>;
    fn len(&self) -> usize {
        self.0.len()
    }
    fn find(&self, _: &(), key: &[u8]) -> usize {
        self.0.partition_point(|(_, largest, _)| largest.as_slice() < key)
    }
    fn find_before(&self, _: &(), key: &[u8]) -> Option<usize> {
        self.0.partition_point(|(smallest, _, _)| smallest.as_slice() < key).checked_sub(1)
    }
    fn table<'a>(&'a self, _: &'a (), index: usize) -> Result<&'a Vec<Row>> {
        Ok(&self.0[index].2)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn merge_iterates_as_one_sorted_list(
        list in proptest::collection::vec((0u8..24, 0u64..12, 0usize..9), 0..80),
        has_duplicates in any::<bool>(),
        children in 0usize..9,
        moves in proptest::collection::vec((0u8..14, 0u8..26, 0u64..14), 1..120),
    ) {
        let mut runs: Vec<Vec<Row>> = vec![Vec::new(); children];
        for (number, sequence, child) in list {
            if children == 0 {
                continue;
            }
            let row = row(number, sequence, child % children);
            let same = |r: &Row| r.key == row.key && r.sequence == row.sequence;
            let own = runs[child % children].iter().any(same);
            if !own && (has_duplicates || !runs.iter().flatten().any(same)) {
                runs[child % children].push(row);
            }
        }
        // The stable sort and dedup keep the earliest child's duplicate.
        let mut rows: Vec<Row> = runs.iter().flatten().cloned().collect();
        sort_rows(&mut rows);
        rows.dedup_by(|a, b| a.key == b.key && a.sequence == b.sequence);
        let boxed = |rows| Box::new(RowCursor::new(rows));
        let erased = runs.iter().cloned().map(|r| boxed(r) as Box<dyn Cursor>).collect();
        check_moves(&mut MergingCursor::new(erased), &rows, &moves);
        let lists = runs.iter().cloned().map(|mut rows| {
            sort_rows(&mut rows);
            let tables = Tables(vec![(Vec::new(), vec![255], rows)]);
            LevelCursor::over(tables, RowWalk::default())
        });
        check_moves(&mut MergingCursor::new(lists.collect::<Vec<_>>()), &rows, &moves);
        let runs = runs.into_iter().map(boxed).collect::<Vec<_>>();
        check_moves(&mut MergingCursor::new(runs), &rows, &moves);
    }

    #[test]
    fn concat_iterates_as_one_sorted_list(
        list in proptest::collection::vec((0u8..24, 0u64..12), 0..60),
        cuts in proptest::collection::vec(0u8..30, 0..6),
        moves in proptest::collection::vec((0u8..14, 0u8..26, 0u64..14), 1..120),
    ) {
        let mut rows: Vec<Row> = list.into_iter().map(|(n, s)| row(n, s, 0)).collect();
        sort_rows(&mut rows);
        rows.dedup();
        let mut cuts: Vec<Vec<u8>> = cuts.into_iter().map(key).collect();
        cuts.extend([Vec::new(), vec![255]]);
        cuts.sort();
        cuts.dedup();
        let tables = cuts.windows(2).map(|cut| {
            let within = |r: &&Row| cut[0] <= r.key && r.key < cut[1];
            let within: Vec<Row> = rows.iter().filter(within).cloned().collect();
            // The bounds of a table reach beyond its entries where range tombstones do.
            let largest = within.last().map_or(cut[0].clone(), |r| r.key.clone());
            (cut[0].clone(), largest, within)
        });
        let mut cursor = LevelCursor::over(Tables(tables.collect()), RowWalk::default());
        check_moves(&mut cursor, &rows, &moves);
    }
}

/// A cursor that sees rows added during iteration, like a cursor over a memtable.
struct LiveCursor {
    rows: Arc<Mutex<Vec<Row>>>,
    at: Option<Row>,
}

impl LiveCursor {
    fn run(&mut self, run: impl FnOnce(&mut RowCursor, Option<&Row>) -> Result<()>) -> Result<()> {
        let mut cursor = RowCursor::new(self.rows.lock().unwrap().clone());
        run(&mut cursor, self.at.as_ref())?;
        self.at = cursor.valid().then(|| Row {
            key: cursor.key().to_vec(),
            sequence: cursor.sequence(),
            kind: cursor.kind(),
            value: cursor.value().to_vec(),
        });
        Ok(())
    }
    fn step(cursor: &mut RowCursor, at: Option<&Row>, ahead: bool) -> Result<()> {
        let at = at.expect("moved while not valid");
        cursor.seek(&at.key, at.sequence)?;
        if ahead { cursor.next() } else { cursor.prev() }
    }
}

impl Cursor for LiveCursor {
    fn seek_to_first(&mut self) -> Result<()> {
        self.run(|cursor, _| cursor.seek_to_first())
    }
    fn seek_to_last(&mut self) -> Result<()> {
        self.run(|cursor, _| cursor.seek_to_last())
    }
    fn seek(&mut self, key: &[u8], sequence: u64) -> Result<()> {
        self.run(|cursor, _| cursor.seek(key, sequence))
    }
    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.run(|cursor, _| cursor.seek_before(key))
    }
    fn next(&mut self) -> Result<()> {
        self.run(|cursor, at| LiveCursor::step(cursor, at, true))
    }
    fn prev(&mut self) -> Result<()> {
        self.run(|cursor, at| LiveCursor::step(cursor, at, false))
    }
    fn valid(&self) -> bool {
        self.at.is_some()
    }
    fn key(&self) -> &[u8] {
        &self.at.as_ref().unwrap().key
    }
    fn sequence(&self) -> u64 {
        self.at.as_ref().unwrap().sequence
    }
    fn kind(&self) -> ValueKind {
        self.at.as_ref().unwrap().kind
    }
    fn value(&self) -> &[u8] {
        &self.at.as_ref().unwrap().value
    }
}

#[test]
fn concurrent_inserts_keep_the_order() {
    // The memtable's cursor is far ahead of the merge (on 30, or past its end), and then the
    // memtable gets entries in between. A single step back by each child would reach those, ahead
    // of the merge's position.
    for memtable_first in [Some(30), None] {
        let first = memtable_first.map(|n| row(n, 2, 0));
        let rows = Arc::new(Mutex::new(first.into_iter().collect::<Vec<_>>()));
        let memtable: Box<dyn Cursor> = Box::new(LiveCursor { rows: rows.clone(), at: None });
        let table = Box::new(RowCursor::new((0..3).map(|n| row(n * 3, 1, 0)).collect()));
        let mut merge = MergingCursor::new(vec![memtable, table]);
        merge.seek(&key(3), 9).unwrap();
        rows.lock().unwrap().extend([9, 12, 15, 18].map(|n| row(n, 7, 0)));
        merge.prev().unwrap();
        assert_eq!(merge.key(), key(0));
        rows.lock().unwrap().insert(0, row(0, 8, 0));
        merge.next().unwrap();
        assert_eq!(merge.key(), key(3));
        for expected in [6, 9, 12, 15, 18] {
            merge.next().unwrap();
            assert_eq!(merge.key(), key(expected));
        }
    }
}

#[test]
fn failed_child_fails_the_merge_until_next_seek() {
    let list: Vec<Row> = (0..20).map(|n| row(n * 3, 1, 0)).collect();
    for movements in 0..30 {
        let (odd, even): (Vec<_>, Vec<_>) =
            list.iter().cloned().enumerate().partition(|(i, _)| i % 2 == 1);
        let [odd, even] = [odd, even].map(|l| l.into_iter().map(|(_, r)| r).collect());
        let mut failing = RowCursor::new(odd);
        failing.movements_left = movements;
        let mut merge = MergingCursor::new(vec![Box::new(failing), Box::new(RowCursor::new(even))]);
        let mut seen = 0;
        let outcome: std::result::Result<(), Error> = (|| {
            merge.seek_to_first()?;
            while merge.valid() {
                assert_eq!(merge.key(), list[seen].key);
                seen += 1;
                merge.next()?;
            }
            Ok(())
        })();
        assert!(!merge.valid());
        match outcome {
            Ok(()) => assert!(seen == 20 && movements >= 11, "{movements} movements lost entries"),
            Err(_) => assert!(movements < 11 && merge.seek_to_first().is_err()),
        }
    }
}
