//! [`ViewCursor`]: everything a view holds within bounds, merged.

use std::ops::{Bound, Range};
use std::sync::Arc;

use umbel_base::{Cursor, FragmentedTombstones, RangeTombstone, Result, SequenceNumber, ValueKind};
use umbel_table::{Table, TableWalk};

use crate::iter::concat::{ConcatCursor, Run};
use crate::iter::merge::MergeCursor;
use crate::iter::walker::Walker;
use crate::memory::View;
use crate::memory_walk::MemoryWalk;
use crate::sources::{Bounds, first_reaching, last_before, overlaps};
use crate::version::levels::NearTable;
use crate::version::{PrefixAsked, TableFile};

/// A cursor over every version of every key of a view. It holds the view once; its parts find
/// their tables in it.
pub struct ViewCursor {
    merged: MergeCursor<Source>,
    // Keeps memtables and tables alive; dropped after the walks over them.
    view: Arc<View>,
}

impl ViewCursor {
    /// Bytes that it takes besides the blocks it stands in, where each walk reads so many ahead.
    pub fn memory_bytes(&self, ahead: u64) -> u64 {
        self.merged.children() as u64 * (size_of::<Source>() as u64 + ahead)
    }
}

/// One source of a view.
#[expect(clippy::large_enum_variant, reason = "nearly all are tables; a box would be a detour")]
enum Source {
    Memory(MemoryWalk),
    Tables(ConcatCursor<TableRange, TableWalk>),
}

/// Tables of one level of a view that do not overlap: of level 0 a single one.
#[derive(Debug, Clone)]
struct TableRange {
    /// Which of the version's deeper levels that have tables; `None` for level 0.
    deeper: Option<usize>,
    tables: Range<usize>,
}

impl TableRange {
    #[inline]
    fn tables<'a>(&self, view: &'a View) -> &'a [NearTable] {
        let all = match self.deeper {
            None => view.version.newest(),
            Some(place) => view.version.deeper()[place].tables(),
        };
        &all[self.tables.clone()]
    }
}

impl Run<View> for TableRange {
    type Table = Table;

    #[inline]
    fn len(&self) -> usize {
        self.tables.len()
    }

    #[inline]
    fn find(&self, view: &View, key: &[u8]) -> usize {
        let head = view.version.head(key);
        match self.deeper {
            None => self.tables(view).partition_point(|near| !near.reaches(key, head)),
            Some(place) => {
                let first = view.version.deeper()[place].first_reaching(key, head);
                first.clamp(self.tables.start, self.tables.end) - self.tables.start
            }
        }
    }

    fn find_before(&self, view: &View, key: &[u8]) -> Option<usize> {
        let starts_before = |near: &NearTable| near.table().meta.smallest.as_slice() < key;
        self.tables(view).partition_point(starts_before).checked_sub(1)
    }

    #[inline]
    fn table<'a>(&'a self, view: &'a View, index: usize) -> Result<&'a Table> {
        self.tables(view)[index].table().reader().map(|table| &**table)
    }
}

/// How a view is read.
#[derive(Debug, Clone, Copy)]
pub struct Reading<'a> {
    /// What came later is not seen.
    pub sequence: SequenceNumber,
    /// What prefix filters are asked, where all keys within the bounds begin alike.
    pub asked: Option<&'a PrefixAsked>,
    /// Whether blocks that are read go into the cache.
    pub fill_cache: bool,
}

/// Everything that `view` holds within `bounds` and this reader may see, merged, and the range
/// tombstones over it that count for him, if there are any.
pub fn open(
    view: Arc<View>,
    bounds: &Bounds,
    reading: Reading<'_>,
) -> Result<(ViewCursor, Option<Arc<FragmentedTombstones>>)> {
    let Reading { sequence, asked, fill_cache } = reading;
    let levels = &view.version.levels;
    let mut sources = Vec::with_capacity(view.frozen.len() + levels[0].len() + levels.len());
    for buffer in std::iter::once(&view.active).chain(&view.frozen) {
        // Whatever the reader sees was noted before its number became visible.
        if buffer.first_sequence() <= sequence && buffer.memtable.entries() > 0 {
            let cursor = buffer.memtable.cursor();
            sources.push(Source::Memory(MemoryWalk::new(cursor)));
        }
    }
    let mut add = |deeper: Option<usize>, tables: Range<usize>| {
        let run = TableRange { deeper, tables };
        sources.push(Source::Tables(ConcatCursor::over(run, TableWalk::new(fill_cache))));
    };
    for (place, table) in levels[0].iter().enumerate() {
        if overlaps(table, bounds) && may_have(table, asked)? {
            add(None, place..place + 1);
        }
    }
    for (place, level) in view.version.deeper().iter().enumerate() {
        let mut near = near(&levels[level.level], bounds);
        // Keys that begin alike stand together: most often in one table.
        while !near.is_empty() && !may_have(&levels[level.level][near.start], asked)? {
            near.start += 1;
        }
        if !near.is_empty() {
            add(Some(place), near);
        }
    }
    let tombstones = tombstones(&view, bounds, sequence)?;
    Ok((ViewCursor { merged: MergeCursor::new(sources), view }, tombstones))
}

/// Whether a table may have keys that begin as asked for.
fn may_have(table: &TableFile, asked: Option<&PrefixAsked>) -> Result<bool> {
    match asked {
        Some(asked) if table.meta.prefix_filter_bytes > 0 => {
            let may = table.open()?.may_have_start(asked);
            asked.count(may);
            Ok(may)
        }
        _ => Ok(true),
    }
}

/// Which tables of a sorted level may hold keys within `bounds`.
fn near(tables: &[Arc<TableFile>], bounds: &Bounds) -> Range<usize> {
    let from = match &bounds.0 {
        Bound::Unbounded => 0,
        Bound::Included(key) | Bound::Excluded(key) => first_reaching(tables, key),
    };
    let behind = &tables[from..];
    let count = match &bounds.1 {
        Bound::Unbounded => behind.len(),
        Bound::Included(key) => {
            behind.partition_point(|table| table.meta.smallest.as_slice() <= key.as_slice())
        }
        Bound::Excluded(key) => last_before(behind, key).map_or(0, |last| last + 1),
    };
    from..from + count
}

/// The range tombstones within reach of `bounds` that a reader at `sequence` sees.
fn tombstones(
    view: &View,
    bounds: &Bounds,
    sequence: SequenceNumber,
) -> Result<Option<Arc<FragmentedTombstones>>> {
    let mut found: Vec<Arc<FragmentedTombstones>> = Vec::new();
    for buffer in std::iter::once(&view.active).chain(&view.frozen) {
        if buffer.memtable.has_tombstones() {
            found.push(buffer.memtable.tombstones());
        }
    }
    if view.version.has_range_tombstones() {
        for (_, table) in view.version.tables() {
            if table.meta.range_tombstones > 0 && overlaps(table, bounds) {
                found.push(Arc::clone(table.reader()?.tombstones()));
            }
        }
    }
    // Those of one source serve as they are: a reader asks for what it sees only.
    if found.len() < 2 {
        return Ok(found.pop());
    }
    let seen: Vec<RangeTombstone> = found.iter().flat_map(|one| one.seen_at(sequence)).collect();
    Ok(Some(Arc::new(FragmentedTombstones::new(&seen))))
}

/// Calls one method of whichever source it is.
macro_rules! of_source {
    ($source:expr, $walk:ident => $call:expr) => {
        match $source {
            Source::Memory($walk) => $call,
            Source::Tables($walk) => $call,
        }
    };
}

impl Walker<View> for Source {
    fn seek_to_first(&mut self, view: &View) -> Result<()> {
        of_source!(self, walk => walk.seek_to_first(view))
    }

    fn seek_to_last(&mut self, view: &View) -> Result<()> {
        of_source!(self, walk => walk.seek_to_last(view))
    }

    fn seek(&mut self, view: &View, key: &[u8], sequence: SequenceNumber) -> Result<()> {
        of_source!(self, walk => walk.seek(view, key, sequence))
    }

    fn aim(&mut self, view: &View, key: &[u8], sequence: SequenceNumber) -> Result<()> {
        of_source!(self, walk => walk.aim(view, key, sequence))
    }

    fn approach(&mut self, view: &View) -> Result<()> {
        of_source!(self, walk => walk.approach(view))
    }

    fn reach(&mut self, view: &View, key: &[u8], sequence: SequenceNumber) -> Result<()> {
        of_source!(self, walk => walk.reach(view, key, sequence))
    }

    fn seek_aimed(&mut self, view: &View, key: &[u8], sequence: SequenceNumber) -> Result<()> {
        of_source!(self, walk => walk.seek_aimed(view, key, sequence))
    }

    #[inline]
    fn expect(&self) {
        of_source!(self, walk => Walker::<View>::expect(walk));
    }

    fn seek_before(&mut self, view: &View, key: &[u8]) -> Result<()> {
        of_source!(self, walk => walk.seek_before(view, key))
    }

    #[inline]
    fn next(&mut self, view: &View) -> Result<()> {
        of_source!(self, walk => walk.next(view))
    }

    #[inline]
    fn next_repeats(&mut self, view: &View) -> Result<bool> {
        of_source!(self, walk => walk.next_repeats(view))
    }

    #[inline]
    fn prev(&mut self, view: &View) -> Result<()> {
        of_source!(self, walk => walk.prev(view))
    }

    #[inline]
    fn step(&mut self) -> Option<bool> {
        of_source!(self, walk => Walker::<View>::step(walk))
    }

    #[inline]
    fn set_limit(&mut self, key: Option<&[u8]>) {
        of_source!(self, walk => Walker::<View>::set_limit(walk, key));
    }

    #[inline]
    fn stride(&mut self, sequence: SequenceNumber) -> bool {
        of_source!(self, walk => Walker::<View>::stride(walk, sequence))
    }

    #[inline]
    fn step_back(&mut self) -> bool {
        of_source!(self, walk => Walker::<View>::step_back(walk))
    }

    fn release(&mut self) {
        of_source!(self, walk => Walker::<View>::release(walk));
    }

    #[inline]
    fn valid(&self) -> bool {
        of_source!(self, walk => Walker::<View>::valid(walk))
    }

    #[inline]
    fn key(&self) -> &[u8] {
        of_source!(self, walk => Walker::<View>::key(walk))
    }

    #[inline]
    fn sequence(&self) -> SequenceNumber {
        of_source!(self, walk => Walker::<View>::sequence(walk))
    }

    #[inline]
    fn kind(&self) -> ValueKind {
        of_source!(self, walk => Walker::<View>::kind(walk))
    }

    #[inline]
    fn value(&self) -> &[u8] {
        of_source!(self, walk => Walker::<View>::value(walk))
    }
}

impl Cursor for ViewCursor {
    fn seek_to_first(&mut self) -> Result<()> {
        self.merged.seek_to_first(&*self.view)
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.merged.seek_to_last(&*self.view)
    }

    fn seek(&mut self, key: &[u8], sequence: SequenceNumber) -> Result<()> {
        self.merged.seek(&*self.view, key, sequence)
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.merged.seek_before(&*self.view, key)
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        Walker::<View>::next(&mut self.merged, &self.view)
    }

    #[inline]
    fn next_repeats(&mut self) -> Result<bool> {
        Walker::<View>::next_repeats(&mut self.merged, &self.view)
    }

    #[inline]
    fn step(&mut self) -> Option<bool> {
        Walker::<View>::step(&mut self.merged)
    }

    #[inline]
    fn stride(&mut self, sequence: SequenceNumber) -> bool {
        Walker::<View>::stride(&mut self.merged, sequence)
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        Walker::<View>::prev(&mut self.merged, &self.view)
    }

    fn release(&mut self) {
        Walker::<View>::release(&mut self.merged);
    }

    #[inline]
    fn valid(&self) -> bool {
        Walker::<View>::valid(&self.merged)
    }

    #[inline]
    fn key(&self) -> &[u8] {
        Walker::<View>::key(&self.merged)
    }

    #[inline]
    fn sequence(&self) -> SequenceNumber {
        Walker::<View>::sequence(&self.merged)
    }

    #[inline]
    fn kind(&self) -> ValueKind {
        Walker::<View>::kind(&self.merged)
    }

    #[inline]
    fn value(&self) -> &[u8] {
        Walker::<View>::value(&self.merged)
    }
}
