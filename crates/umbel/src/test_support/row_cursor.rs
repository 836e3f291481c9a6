//! A cursor over entries in memory, for tests of code that reads cursors.

use std::collections::BTreeMap;

use umbel_base::{Cursor, Error, RangeTombstone, Result, SequenceNumber, ValueKind, cmp_internal};

use crate::iter::context_cursor::ContextCursor;
use crate::iter::hidden_run::SkipSpanSource;
use crate::iter::merging_cursor::MergingCursor;
use crate::iter::range_tombstone_finder::RangeTombstoneSource;

/// An entry as tests write it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Key of the row.
    pub key: Vec<u8>,
    /// Sequence number of the row.
    pub sequence: SequenceNumber,
    /// Kind of the row.
    pub kind: ValueKind,
    /// Value of the row.
    pub value: Vec<u8>,
}

/// Sorts `rows` into internal order.
pub fn sort_rows(rows: &mut [Row]) {
    rows.sort_by(|a, b| cmp_internal(&a.key, a.sequence, &b.key, b.sequence));
}

/// A cursor over sorted rows that a test can make fail.
pub struct RowCursor {
    rows: Vec<Row>,
    /// Index of the current row plus one; 0 is before the first row, `len() + 1` after the last.
    place: usize,
    /// Number of movements that still succeed.
    pub movements_left: usize,
}

impl RowCursor {
    /// Creates a cursor over `rows`, which it sorts.
    pub fn new(mut rows: Vec<Row>) -> Self {
        sort_rows(&mut rows);
        RowCursor { rows, place: 0, movements_left: usize::MAX }
    }

    fn moved_to(&mut self, place: usize) -> Result<()> {
        if self.movements_left == 0 {
            self.place = 0;
            return Err(Error::invalid("failure injected by the test"));
        }
        self.movements_left -= 1;
        self.place = place;
        Ok(())
    }

    fn row(&self) -> &Row {
        assert!(self.valid(), "used while not valid");
        &self.rows[self.place - 1]
    }
}

impl Cursor for RowCursor {
    fn seek_to_first(&mut self) -> Result<()> {
        self.moved_to(1)
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.moved_to(self.rows.len())
    }

    fn seek(&mut self, key: &[u8], sequence: SequenceNumber) -> Result<()> {
        let before = self
            .rows
            .partition_point(|row| cmp_internal(&row.key, row.sequence, key, sequence).is_lt());
        self.moved_to(before + 1)
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.moved_to(self.rows.partition_point(|row| row.key.as_slice() < key))
    }

    fn next(&mut self) -> Result<()> {
        assert!(self.valid(), "next while not valid");
        self.moved_to(self.place + 1)
    }

    fn prev(&mut self) -> Result<()> {
        assert!(self.valid(), "prev while not valid");
        self.moved_to(self.place - 1)
    }

    fn valid(&self) -> bool {
        (1..=self.rows.len()).contains(&self.place)
    }

    fn key(&self) -> &[u8] {
        &self.row().key
    }

    fn sequence(&self) -> SequenceNumber {
        self.row().sequence
    }

    fn kind(&self) -> ValueKind {
        self.row().kind
    }

    fn value(&self) -> &[u8] {
        &self.row().value
    }
}

/// A cursor that visits only the rows that each movement passes to it.
#[derive(Default)]
pub struct RowWalk {
    inner: Option<RowCursor>,
    /// Key before which `try_next_visible` stops, if a limit was set.
    limit: Option<Option<Vec<u8>>>,
}

impl RowWalk {
    fn on(&mut self, rows: &[Row]) -> &mut RowCursor {
        self.limit = None;
        self.inner.insert(RowCursor::new(rows.to_vec()))
    }

    fn at(&self) -> &RowCursor {
        self.inner.as_ref().unwrap()
    }
}

impl ContextCursor<Vec<Row>> for RowWalk {
    fn seek_to_first(&mut self, rows: &Vec<Row>) -> Result<()> {
        self.on(rows).seek_to_first()
    }

    fn seek_to_last(&mut self, rows: &Vec<Row>) -> Result<()> {
        self.on(rows).seek_to_last()
    }

    fn seek(&mut self, rows: &Vec<Row>, key: &[u8], sequence: SequenceNumber) -> Result<()> {
        self.on(rows).seek(key, sequence)
    }

    fn seek_before(&mut self, rows: &Vec<Row>, key: &[u8]) -> Result<()> {
        self.on(rows).seek_before(key)
    }

    fn next(&mut self, rows: &Vec<Row>) -> Result<()> {
        self.next_repeats(rows).map(|_| ())
    }

    fn next_repeats(&mut self, rows: &Vec<Row>) -> Result<bool> {
        self.limit = None;
        let inner = self.inner.as_mut().unwrap();
        assert!(inner.rows == *rows, "another table than the last seek got");
        inner.next_repeats()
    }

    fn prev(&mut self, rows: &Vec<Row>) -> Result<()> {
        self.limit = None;
        let inner = self.inner.as_mut().unwrap();
        assert!(inner.rows == *rows, "another table than the last seek got");
        inner.prev()
    }

    // Every other row is already loaded.
    fn try_next(&mut self) -> Option<bool> {
        self.limit = None;
        let inner = self.inner.as_mut().unwrap();
        let is_available = inner.place % 2 == 1 && inner.place < inner.rows.len();
        is_available.then(|| inner.next_repeats().unwrap())
    }

    fn set_limit(&mut self, key: Option<&[u8]>) {
        assert!(self.valid(), "limited while not valid");
        self.limit = Some(key.map(<[u8]>::to_vec));
    }

    fn try_next_visible(&mut self, sequence: SequenceNumber) -> bool {
        let (Some(limit), Some(inner)) = (&self.limit, &mut self.inner) else { return false };
        let Some(row) = inner.rows.get(inner.place) else { return false };
        let strides = limit.as_ref().is_none_or(|limit| row.key < *limit)
            && row.key != inner.rows[inner.place - 1].key
            && row.kind == ValueKind::Put
            && row.sequence <= sequence;
        inner.place += usize::from(strides);
        strides
    }

    fn try_prev(&mut self) -> bool {
        self.limit = None;
        let inner = self.inner.as_mut().unwrap();
        let is_available = inner.place.is_multiple_of(2) && inner.place > 1;
        if is_available {
            inner.prev().unwrap();
        }
        is_available
    }

    fn valid(&self) -> bool {
        self.inner.as_ref().is_some_and(Cursor::valid)
    }

    fn key(&self) -> &[u8] {
        self.at().key()
    }

    fn sequence(&self) -> SequenceNumber {
        self.at().sequence()
    }

    fn kind(&self) -> ValueKind {
        self.at().kind()
    }

    fn value(&self) -> &[u8] {
        self.at().value()
    }
}

/// Returns the state that a reader at `sequence` sees, computed by a scan of all rows.
pub fn model(rows: &[Row], ranges: &[RangeTombstone], sequence: u64) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut newest: BTreeMap<&[u8], &Row> = BTreeMap::new();
    for row in rows.iter().filter(|r| r.sequence <= sequence) {
        let slot = newest.entry(&row.key).or_insert(row);
        if row.sequence > slot.sequence {
            *slot = row;
        }
    }
    let hidden = |row: &Row| {
        ranges.iter().any(|t| {
            t.start <= row.key
                && row.key < t.end
                && t.sequence <= sequence
                && t.sequence > row.sequence
        })
    };
    newest
        .into_values()
        .filter(|row| row.kind != ValueKind::Delete && !hidden(row))
        .map(|row| (row.key.clone(), row.value.clone()))
        .collect()
}

impl RangeTombstoneSource for RowCursor {}
impl SkipSpanSource for RowCursor {}
impl<C> SkipSpanSource for MergingCursor<C> {}
