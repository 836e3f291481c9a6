//! [`SuperVersionCursor`]: merge of all entries of a super version within bounds.

use std::ops::{Bound, Range};
use std::sync::Arc;

use umbel_base::{Cursor, Result, SequenceNumber, ValueKind};
use umbel_table::{ContextTableCursor, Table};

use crate::iter::context_cursor::ContextCursor;
use crate::iter::hidden_run::SkipSpanSource;
use crate::iter::level_cursor::{LevelCursor, SortedRun};
use crate::iter::merging_cursor::MergingCursor;
use crate::iter::range_tombstone_finder::RangeTombstoneSource;
use crate::iter::range_tombstone_runs::RangeTombstoneRuns;
use crate::super_version::SuperVersion;
use crate::super_version::memtable_cursor::DetachedMemtableCursor;
use crate::super_version::skip_spans::SkipSpans;
use crate::super_version::sorted_runs::{KeyBounds, first_reaching, last_before, overlaps};
use crate::version::lsm_version::{LevelBounds, PointIndex, TableBounds};
use crate::version::{LiveTable, PrefixProbe};

/// A cursor over every version of every key of a super version. The sources that the cursor merges
/// find their tables through its one reference to the super version.
pub struct SuperVersionCursor {
    merged: MergingCursor<EntrySource>,
    // Keeps memtables and tables alive; dropped after the cursors over them.
    super_version: Arc<SuperVersion>,
}

impl SuperVersionCursor {
    /// Returns the skip spans of the keyspace.
    pub fn skip_spans(&self) -> &SkipSpans {
        &self.super_version.skip_spans
    }

    /// Bytes that the cursor takes besides the current blocks, if each source reads `ahead` bytes
    /// ahead.
    pub fn memory_bytes(&self, ahead: u64) -> u64 {
        self.merged.children() as u64 * (size_of::<EntrySource>() as u64 + ahead)
    }
}

/// One source of a super version.
#[expect(clippy::large_enum_variant, reason = "nearly all are tables; a box adds a pointer")]
enum EntrySource {
    Memtable(DetachedMemtableCursor),
    Tables(LevelCursor<TableRange, ContextTableCursor>),
}

/// Tables of one level of a super version that do not overlap; for level 0 a single table.
#[derive(Debug, Clone)]
struct TableRange {
    /// Index of the level among the version's deeper levels that have tables; `None` for level 0.
    deeper: Option<usize>,
    tables: Range<usize>,
}

impl TableRange {
    #[inline]
    fn tables<'a>(&self, view: &'a SuperVersion) -> &'a [TableBounds] {
        let all = match self.deeper {
            None => view.version.level0(),
            Some(place) => view.version.deeper()[place].tables(),
        };
        &all[self.tables.clone()]
    }
}

impl SortedRun<SuperVersion> for TableRange {
    type Table = Table;

    #[inline]
    fn len(&self) -> usize {
        self.tables.len()
    }

    #[inline]
    fn find(&self, view: &SuperVersion, key: &[u8]) -> usize {
        let head = view.version.head(key);
        match self.deeper {
            None => self.tables(view).partition_point(|near| !near.reaches(key, head)),
            Some(place) => {
                let first = view.version.deeper()[place].first_reaching(key, head);
                first.clamp(self.tables.start, self.tables.end) - self.tables.start
            }
        }
    }

    fn find_before(&self, view: &SuperVersion, key: &[u8]) -> Option<usize> {
        let starts_before = |near: &TableBounds| near.table().meta.smallest.as_slice() < key;
        self.tables(view).partition_point(starts_before).checked_sub(1)
    }

    #[inline]
    fn table<'a>(&'a self, view: &'a SuperVersion, index: usize) -> Result<&'a Table> {
        self.tables(view)[index].table().reader().map(|table| &**table)
    }
}

/// Parameters of a read of a super version.
#[derive(Debug, Clone, Copy)]
pub struct ReadParams<'a> {
    /// Sequence number of the reader; later writes are not visible.
    pub sequence: SequenceNumber,
    /// Probe of prefix filters, if all keys within the bounds have one prefix.
    pub prefix_probe: Option<&'a PrefixProbe>,
    /// Whether blocks that the cursor reads enter the block cache.
    pub fill_cache: bool,
}

/// Opens a merge of all entries of `view` within `bounds` that a reader with `params` can see. Also
/// returns whether a source can have range tombstones within `bounds`.
pub fn open(
    view: Arc<SuperVersion>,
    bounds: &KeyBounds,
    reading: ReadParams<'_>,
) -> Result<(SuperVersionCursor, bool)> {
    let ReadParams { sequence, prefix_probe: probe, fill_cache } = reading;
    let levels = &view.version.levels;
    let mut sources = Vec::with_capacity(view.frozen.len() + levels[0].len() + levels.len());
    for buffer in view.memtables() {
        // Every write visible to the reader was recorded before its number became visible.
        if buffer.first_sequence() <= sequence && buffer.memtable.entries() > 0 {
            let cursor = buffer.memtable.cursor();
            sources.push(EntrySource::Memtable(DetachedMemtableCursor::new(cursor)));
        }
    }
    let mut add = |deeper: Option<usize>, tables: Range<usize>| {
        let run = TableRange { deeper, tables };
        sources
            .push(EntrySource::Tables(LevelCursor::over(run, ContextTableCursor::new(fill_cache))));
    };
    for (place, table) in levels[0].iter().enumerate() {
        if table.meta.entries > 0
            && overlaps(table, &bounds.0, &bounds.1)
            && may_have(table, probe)?
        {
            add(None, place..place + 1);
        }
    }
    for (place, level) in view.version.deeper().iter().enumerate() {
        let mut near = tables_in_bounds(&levels[level.level], bounds);
        // Keys with one prefix are adjacent: mostly in one table.
        while !near.is_empty() && !may_have(&levels[level.level][near.start], probe)? {
            near.start += 1;
        }
        if !near.is_empty() {
            add(Some(place), near);
        }
    }
    let has_tombstones = has_tombstones(&view, bounds);
    let merged = MergingCursor::new(sources);
    Ok((SuperVersionCursor { merged, super_version: view }, has_tombstones))
}

/// Whether a table can have keys with the probed prefix.
fn may_have(table: &LiveTable, probe: Option<&PrefixProbe>) -> Result<bool> {
    match probe {
        Some(probe) if table.meta.prefix_filter_bytes > 0 => {
            let may = table.open()?.may_have_prefix(probe);
            probe.count(may);
            Ok(may)
        }
        _ => Ok(true),
    }
}

/// Returns the indexes of the tables of a sorted level that can hold keys within `bounds`.
fn tables_in_bounds(tables: &[Arc<LiveTable>], bounds: &KeyBounds) -> Range<usize> {
    let from = match &bounds.0 {
        Bound::Unbounded => 0,
        Bound::Included(key) | Bound::Excluded(key) => first_reaching(tables, key),
    };
    let tail = &tables[from..];
    let count = match &bounds.1 {
        Bound::Unbounded => tail.len(),
        Bound::Included(key) => {
            tail.partition_point(|table| table.meta.smallest.as_slice() <= key.as_slice())
        }
        Bound::Excluded(key) => last_before(tail, key).map_or(0, |last| last + 1),
    };
    from..from + count
}

/// Whether a source can have range tombstones within the bounds.
fn has_tombstones(view: &SuperVersion, (lower, upper): &KeyBounds) -> bool {
    let index = view.version.range_tombstone_index();
    view.memtables().any(|buffer| buffer.memtable.has_tombstones())
        || index.level0().iter().any(|near| overlaps(near.table(), lower, upper))
        || index.deeper().iter().any(|level| {
            // A table that ends with an excluded bound has nothing within the bounds, but the next
            // one may.
            let near = reaching(index, level, lower).iter().take(2);
            near.into_iter().any(|near| overlaps(near.table(), lower, upper))
        })
}

/// Returns the tables of a level from the first one that can hold keys at or after `lower`.
fn reaching<'a>(
    index: &PointIndex,
    level: &'a LevelBounds,
    lower: &Bound<Vec<u8>>,
) -> &'a [TableBounds] {
    let first = match lower {
        Bound::Unbounded => 0,
        Bound::Included(key) | Bound::Excluded(key) => level.first_reaching(key, index.head(key)),
    };
    &level.tables()[first..]
}

impl RangeTombstoneSource for SuperVersionCursor {
    fn hides(&self, key: &[u8], sequence: SequenceNumber, reader: SequenceNumber) -> Result<bool> {
        let view = &*self.super_version;
        // Only tombstones newer than the entry hide it, and few sources have them.
        for buffer in view.memtables().filter(|buffer| buffer.memtable.has_tombstones()) {
            if buffer.last_sequence() > sequence
                && buffer.memtable.covering(key, reader) > Some(sequence)
            {
                return Ok(true);
            }
        }
        for table in view.version.range_tombstone_index().candidates(key) {
            if table.meta.sequence_max > sequence
                && table.reader()?.covering(key, reader) > sequence
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The tombstones of a source are shared by all cursors, so this call takes no time for each
    /// tombstone.
    fn tombstone_runs(
        &self,
        lower: &Bound<Vec<u8>>,
        upper: &Bound<Vec<u8>>,
    ) -> Result<RangeTombstoneRuns> {
        let view = &*self.super_version;
        let mut runs = RangeTombstoneRuns::default();
        let mut parts = Vec::new();
        view.memtables().for_each(|buffer| buffer.add_fragmented_tombstones(&mut parts));
        runs.push_single(parts);
        let index = view.version.range_tombstone_index();
        let overlaps = |near: &&TableBounds| overlaps(near.table(), lower, upper);
        for near in index.level0().iter().filter(overlaps) {
            runs.push_single([Arc::clone(near.table().reader()?.tombstones())]);
        }
        for level in index.deeper() {
            let first = runs.len();
            for near in reaching(index, level, lower).iter().filter(overlaps) {
                runs.push_part(first, Arc::clone(near.table().reader()?.tombstones()));
            }
        }
        Ok(runs)
    }
}

/// Calls one method of the source, whatever its kind.
macro_rules! of_source {
    ($source:expr, $walk:ident => $call:expr) => {
        match $source {
            EntrySource::Memtable($walk) => $call,
            EntrySource::Tables($walk) => $call,
        }
    };
}

impl ContextCursor<SuperVersion> for EntrySource {
    fn seek_to_first(&mut self, view: &SuperVersion) -> Result<()> {
        of_source!(self, walk => walk.seek_to_first(view))
    }

    fn seek_to_last(&mut self, view: &SuperVersion) -> Result<()> {
        of_source!(self, walk => walk.seek_to_last(view))
    }

    fn seek(&mut self, view: &SuperVersion, key: &[u8], sequence: SequenceNumber) -> Result<()> {
        of_source!(self, walk => walk.seek(view, key, sequence))
    }

    fn begin_seek(
        &mut self,
        view: &SuperVersion,
        key: &[u8],
        sequence: SequenceNumber,
    ) -> Result<()> {
        of_source!(self, walk => walk.begin_seek(view, key, sequence))
    }

    fn prefetch_seek(&mut self, view: &SuperVersion) -> Result<()> {
        of_source!(self, walk => walk.prefetch_seek(view))
    }

    fn narrow_seek(
        &mut self,
        view: &SuperVersion,
        key: &[u8],
        sequence: SequenceNumber,
    ) -> Result<()> {
        of_source!(self, walk => walk.narrow_seek(view, key, sequence))
    }

    fn finish_seek(
        &mut self,
        view: &SuperVersion,
        key: &[u8],
        sequence: SequenceNumber,
    ) -> Result<()> {
        of_source!(self, walk => walk.finish_seek(view, key, sequence))
    }

    #[inline]
    fn prefetch_entries(&self) {
        of_source!(self, walk => ContextCursor::<SuperVersion>::prefetch_entries(walk));
    }

    fn seek_before(&mut self, view: &SuperVersion, key: &[u8]) -> Result<()> {
        of_source!(self, walk => walk.seek_before(view, key))
    }

    #[inline]
    fn next(&mut self, view: &SuperVersion) -> Result<()> {
        of_source!(self, walk => walk.next(view))
    }

    #[inline]
    fn next_repeats(&mut self, view: &SuperVersion) -> Result<bool> {
        of_source!(self, walk => walk.next_repeats(view))
    }

    #[inline]
    fn prev(&mut self, view: &SuperVersion) -> Result<()> {
        of_source!(self, walk => walk.prev(view))
    }

    #[inline]
    fn try_next(&mut self) -> Option<bool> {
        of_source!(self, walk => ContextCursor::<SuperVersion>::try_next(walk))
    }

    #[inline]
    fn set_limit(&mut self, key: Option<&[u8]>) {
        of_source!(self, walk => ContextCursor::<SuperVersion>::set_limit(walk, key));
    }

    #[inline]
    fn try_next_visible(&mut self, sequence: SequenceNumber) -> bool {
        of_source!(self, walk => ContextCursor::<SuperVersion>::try_next_visible(walk, sequence))
    }

    #[inline]
    fn try_prev(&mut self) -> bool {
        of_source!(self, walk => ContextCursor::<SuperVersion>::try_prev(walk))
    }

    fn release(&mut self) {
        of_source!(self, walk => ContextCursor::<SuperVersion>::release(walk));
    }

    #[inline]
    fn valid(&self) -> bool {
        of_source!(self, walk => ContextCursor::<SuperVersion>::valid(walk))
    }

    #[inline]
    fn key(&self) -> &[u8] {
        of_source!(self, walk => ContextCursor::<SuperVersion>::key(walk))
    }

    #[inline]
    fn sequence(&self) -> SequenceNumber {
        of_source!(self, walk => ContextCursor::<SuperVersion>::sequence(walk))
    }

    #[inline]
    fn kind(&self) -> ValueKind {
        of_source!(self, walk => ContextCursor::<SuperVersion>::kind(walk))
    }

    #[inline]
    fn value(&self) -> &[u8] {
        of_source!(self, walk => ContextCursor::<SuperVersion>::value(walk))
    }
}

impl SkipSpanSource for SuperVersionCursor {
    fn skip_forward(&self, key: &[u8], sequence: SequenceNumber, target: &mut Vec<u8>) -> bool {
        self.super_version.skip_spans.skip_forward(key, sequence, target)
    }

    fn skip_backward(&self, key: &[u8], sequence: SequenceNumber, target: &mut Vec<u8>) -> bool {
        self.super_version.skip_spans.skip_backward(key, sequence, target)
    }

    fn count_hidden(&self, stepped: u32) {
        self.super_version.skip_spans.count_hidden(stepped);
    }

    fn record(&self, range: (&[u8], &[u8]), sequence: SequenceNumber, hidden: u32) {
        self.super_version.skip_spans.record(range, sequence, hidden);
    }
}

impl Cursor for SuperVersionCursor {
    fn seek_to_first(&mut self) -> Result<()> {
        self.merged.seek_to_first(&*self.super_version)
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.merged.seek_to_last(&*self.super_version)
    }

    fn seek(&mut self, key: &[u8], sequence: SequenceNumber) -> Result<()> {
        self.merged.seek(&*self.super_version, key, sequence)
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.merged.seek_before(&*self.super_version, key)
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        ContextCursor::<SuperVersion>::next(&mut self.merged, &self.super_version)
    }

    #[inline]
    fn next_repeats(&mut self) -> Result<bool> {
        ContextCursor::<SuperVersion>::next_repeats(&mut self.merged, &self.super_version)
    }

    #[inline]
    fn try_next(&mut self) -> Option<bool> {
        ContextCursor::<SuperVersion>::try_next(&mut self.merged)
    }

    #[inline]
    fn try_next_visible(&mut self, sequence: SequenceNumber) -> bool {
        ContextCursor::<SuperVersion>::try_next_visible(&mut self.merged, sequence)
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        ContextCursor::<SuperVersion>::prev(&mut self.merged, &self.super_version)
    }

    fn release(&mut self) {
        ContextCursor::<SuperVersion>::release(&mut self.merged);
    }

    #[inline]
    fn valid(&self) -> bool {
        ContextCursor::<SuperVersion>::valid(&self.merged)
    }

    #[inline]
    fn key(&self) -> &[u8] {
        ContextCursor::<SuperVersion>::key(&self.merged)
    }

    #[inline]
    fn sequence(&self) -> SequenceNumber {
        ContextCursor::<SuperVersion>::sequence(&self.merged)
    }

    #[inline]
    fn kind(&self) -> ValueKind {
        ContextCursor::<SuperVersion>::kind(&self.merged)
    }

    #[inline]
    fn value(&self) -> &[u8] {
        ContextCursor::<SuperVersion>::value(&self.merged)
    }
}
