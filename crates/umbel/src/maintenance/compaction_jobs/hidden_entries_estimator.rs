//! Estimates from samples which entries are hidden: garbage that a compaction, or a flush and then
//! a compaction, would drop.
//!
//! Some keys of a table, or of a memtable, are looked up in the tables below. Filters spare most
//! reads of tables without the key. The entry that is found gives the hidden bytes. Range
//! tombstones are compared with the bounds and indexes of the tables below.

use std::collections::VecDeque;
use std::sync::Arc;

use umbel_base::{BlobPointer, Cursor, Result, SequenceNumber, ValueKind};
use umbel_table::{FilterResidency, ResidentFilter, SequentialReader};

use crate::compaction::bottommost_picker::LAST_LEVEL;
use crate::state::store::{GarbageEstimate, MemtableGarbage, Store};
use crate::store_budget::MemoryReservation;
use crate::super_version::SuperVersion;
use crate::super_version::sorted_runs::first_reaching;
use crate::version::{LiveTable, Version};

/// Number of places in a table at which keys are sampled.
const SAMPLES: usize = 8;
const KEYS_PER_SAMPLE: usize = 32;
/// Number of sampled entries of a memtable.
const MEMTABLE_SAMPLES: u64 = 256;
/// Maximum number of range tombstones of a table that are compared with the tables below.
const RANGES_MAX: usize = 256;

/// Returns `part * number / whole`, at most `u64::MAX`.
pub fn proportion(part: u64, number: u64, whole: u64) -> u64 {
    let scaled = u128::from(part) * u128::from(number) / u128::from(whole.max(1));
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

/// Returns the tables above the last level.
pub fn tables_above_last_level(
    version: &Version,
) -> impl Iterator<Item = (usize, &Arc<LiveTable>)> {
    version.tables().filter(|(level, _)| *level < LAST_LEVEL)
}

/// Entries and bytes of a table, long values included.
pub fn size_of(table: &LiveTable) -> GarbageEstimate {
    let blobs: u64 = table.meta.blobs.iter().map(|blob| blob.value_bytes).sum();
    GarbageEstimate { entries: table.meta.entries, bytes: table.meta.file_bytes + blobs }
}

/// Estimates the garbage; `None` once `should_preempt` returns `true`.
pub fn estimate(
    store: &Store,
    version: &Version,
    should_preempt: impl Fn() -> bool,
) -> Result<Option<GarbageEstimate>> {
    let mut garbage = GarbageEstimate::default();
    let bytes_max = version.tables().map(|(_, table)| size_of(table).bytes).sum();
    for (level, table) in tables_above_last_level(version) {
        let sampled = sample(store, version, (level, table), &should_preempt)?;
        let Some(sampled) = sampled else { return Ok(None) };
        let scaled = |part: u64| part.saturating_mul(table.meta.entries) / sampled.keys.max(1);
        // A few samples that meet long entries say little about their share.
        garbage.add(GarbageEstimate {
            entries: scaled(sampled.hiding) + table.meta.deletes,
            bytes: scaled(sampled.hidden_bytes).min(bytes_max),
        });
        if table.meta.range_tombstones > 0 {
            garbage.add(hidden_by_ranges(version, level, table)?);
        }
    }
    Ok(Some(garbage))
}

/// Estimates the entries and bytes that the range tombstones of a table hide in the tables below
/// it.
fn hidden_by_ranges(version: &Version, level: usize, table: &LiveTable) -> Result<GarbageEstimate> {
    let tombstones = table.reader()?.tombstones();
    let fragments = (0..tombstones.len()).filter(|&fragment| !tombstones.is_gap(fragment));
    let step = fragments.clone().count().div_ceil(RANGES_MAX).max(1);
    let sampled: Vec<usize> = fragments.step_by(step).collect();
    let mut garbage =
        GarbageEstimate { entries: table.meta.range_tombstones, bytes: table.meta.file_bytes };
    for other in tables_below(version, level, table) {
        let mut covered = 0;
        for &fragment in &sampled {
            let (start, end) = (tombstones.start(fragment), tombstones.end(fragment));
            covered += covered_bytes(other, start, end)?;
        }
        let size = size_of(other);
        let bytes = covered.saturating_mul(step as u64).min(size.bytes);
        let entries = proportion(size.entries, bytes, size.bytes);
        garbage.add(GarbageEstimate { entries, bytes });
    }
    Ok(garbage)
}

/// Approximate bytes of a table between two keys.
fn covered_bytes(table: &LiveTable, start: &[u8], end: &[u8]) -> Result<u64> {
    let meta = &table.meta;
    if !is_met(table, start, end) {
        return Ok(0);
    }
    if is_hidden_whole(table, start, end) {
        return Ok(size_of(table).bytes);
    }
    if let Some(entries) = entries_of_short_range(table, start, end)? {
        return Ok(proportion(size_of(table).bytes, entries, meta.entries));
    }
    let is_to_end = meta.largest.as_slice() < end;
    // Each part of the index that the range meets counts whole.
    let (mut from, mut to, mut previous) = (0, 0, None);
    for (split, offset) in table.reader()?.block_separators() {
        if split < start {
            from = offset;
        }
        if is_to_end || previous.is_none_or(|previous| previous < end) {
            to = offset;
        }
        previous = Some(split);
    }
    Ok(proportion(to.saturating_sub(from), size_of(table).bytes, meta.file_bytes))
}

/// Number of a table's entries between two keys; `None` if there are many.
fn entries_of_short_range(table: &LiveTable, start: &[u8], end: &[u8]) -> Result<Option<u64>> {
    let (reader, mut run) = (table.reader()?, SequentialReader::for_lookups());
    run.seek(reader, start, SequenceNumber::MAX)?;
    for entries in 0..KEYS_PER_SAMPLE as u64 {
        if !run.valid() || run.key() >= end {
            return Ok(Some(entries));
        }
        run.next(reader)?;
    }
    Ok(None)
}

/// Tables that are older than `table` of `level`, or lie below that level.
fn tables_below<'a>(
    version: &'a Version,
    level: usize,
    table: &'a LiveTable,
) -> impl Iterator<Item = &'a Arc<LiveTable>> {
    let older = version.levels[0].iter().skip_while(|other| other.meta.id != table.meta.id);
    let older = older.skip(1).filter(move |_| level == 0);
    older.chain(version.levels.iter().skip(level + 1).flatten())
}

/// Counts of the sampled keys of a table.
#[derive(Debug, Default)]
struct SampleCounts {
    keys: u64,
    /// Number of sampled keys that tables below have, too.
    hiding: u64,
    /// Bytes of the entries that these keys hide: for each key, those in the next table below.
    hidden_bytes: u64,
}

/// Samples keys of a table, and counts the keys that tables below have. Returns `None` once
/// `should_preempt` returns `true`.
fn sample(
    store: &Store,
    version: &Version,
    (level, table): (usize, &Arc<LiveTable>),
    should_preempt: impl Fn() -> bool,
) -> Result<Option<SampleCounts>> {
    let reader = table.reader()?;
    let places: Vec<&[u8]> = reader.block_separators().map(|(key, _)| key).collect();
    let step = places.len().div_ceil(SAMPLES).max(1);
    let mut counts = SampleCounts::default();
    let mut below = TablesBelow::new(store, version);
    let mut run = SequentialReader::default();
    let starts = [table.meta.smallest.as_slice()];
    for key in starts.into_iter().chain(places.into_iter().step_by(step)) {
        store.check_open()?;
        if should_preempt() {
            return Ok(None);
        }
        run.seek(reader, key, SequenceNumber::MAX)?;
        for _ in 0..KEYS_PER_SAMPLE {
            if !run.valid() {
                break;
            }
            counts.keys += 1;
            if let Some(bytes) = below.hidden_bytes((level, Some(table)), run.key())? {
                counts.hiding += 1;
                counts.hidden_bytes += bytes.stored;
            }
            run.next(reader)?;
        }
    }
    Ok(Some(counts))
}

/// Returns the estimate of a memtable without garbage.
pub fn no_garbage(view: &SuperVersion) -> MemtableGarbage {
    MemtableGarbage {
        first_sequence: view.active.first_sequence(),
        entries: view.active.memtable.entries(),
        range_deletes: view.active.range_deletes(),
        visible_bytes: view.active.memtable.bytes() as u64,
        ..MemtableGarbage::default()
    }
}

/// Counts of the sampled entries of a memtable.
#[derive(Debug, Default)]
struct MemtableSamples {
    entries: u64,
    all: EntryBytes,
    /// Entries that newer entries of the memtable hide.
    own: EntryBytes,
    /// Entries in tables that the sampled entries hide.
    hidden: EntryBytes,
}

impl MemtableSamples {
    /// Whether half of the memtable is garbage or hides as much in tables.
    fn is_half_garbage(&self) -> bool {
        let garbage = self.own.plain.saturating_add(self.hidden.plain);
        garbage > 0 && garbage >= self.all.plain / 2
    }
}

/// Size of an entry, a long value in a file of its own included.
#[derive(Debug, Clone, Copy, Default)]
struct EntryBytes {
    /// Bytes of the key and the value.
    plain: u64,
    /// Of these, bytes of a long value in a file of its own.
    long: u64,
    /// Bytes that the entry takes in the files.
    stored: u64,
}

impl EntryBytes {
    fn add(&mut self, other: EntryBytes) {
        self.plain = self.plain.saturating_add(other.plain);
        self.long = self.long.saturating_add(other.long);
        self.stored = self.stored.saturating_add(other.stored);
    }
}

/// Estimates what the entries of the active memtable hide, in the memtable itself and in tables.
/// Tables that one of its range tombstones hides whole do not count. Returns `None` once
/// `should_preempt` returns `true`.
pub fn estimate_memtable(
    store: &Store,
    view: &SuperVersion,
    should_preempt: impl Fn() -> bool,
) -> Result<Option<MemtableGarbage>> {
    let slot = &view.active;
    // For the number of entries before the first lookup, since writers go on meanwhile.
    let empty = no_garbage(view);
    let entries = empty.entries;
    let mut below = TablesBelow::new(store, &view.version);
    let mut run = slot.memtable.cursor();
    let mut sampled = MemtableSamples::default();
    let is_small = entries <= MEMTABLE_SAMPLES;
    if is_small {
        run.seek_to_first()?;
    }
    let is_covered = |key: &[u8], sequence| {
        slot.memtable.covering(key, SequenceNumber::MAX).is_some_and(|it| it > sequence)
    };
    while sampled.entries < MEMTABLE_SAMPLES {
        if sampled.entries % SAMPLES as u64 == 0 {
            store.check_open()?;
            if should_preempt() {
                return Ok(None);
            }
        }
        if !is_small {
            run.seek_to_sample(sampled.entries.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        }
        if !run.valid() {
            break;
        }
        let (key, sequence) = (run.key().to_vec(), run.sequence());
        let bytes = entry_bytes(&key, run.kind(), run.value());
        sampled.entries += 1;
        sampled.all.add(bytes);
        run.next()?;
        if is_covered(&key, sequence) {
            sampled.own.add(bytes);
        } else if run.valid() && run.key() == key {
            // A covered one counts when it is sampled itself.
            if !is_covered(&key, run.sequence()) {
                sampled.own.add(entry_bytes(&key, run.kind(), run.value()));
            }
        } else if let Some(bytes) = below.hidden_bytes((0, None), &key)? {
            sampled.hidden.add(bytes);
        }
    }
    let partly_hidden = partly_hidden_bytes(view, &should_preempt)?;
    let Some(partly_hidden_bytes) = partly_hidden else { return Ok(None) };
    let scaled = |bytes| proportion(bytes, entries, sampled.entries);
    let (all, own) = (sampled.all, sampled.own);
    let own_bytes = own.plain.saturating_sub(own.long);
    Ok(Some(MemtableGarbage {
        own_bytes: scaled(own_bytes),
        own_long_bytes: scaled(own.long),
        visible_bytes: scaled(all.plain.saturating_sub(all.long).saturating_sub(own_bytes)),
        hidden_bytes: scaled(sampled.hidden.stored),
        partly_hidden_bytes,
        is_half_garbage: sampled.is_half_garbage(),
        ..empty
    }))
}

/// Estimates the bytes that the active memtable's range tombstones hide in tables that no single
/// one of them hides whole. Returns `None` once `should_preempt` returns `true`.
fn partly_hidden_bytes(
    view: &SuperVersion,
    should_preempt: impl Fn() -> bool,
) -> Result<Option<u64>> {
    let memtable = &view.active.memtable;
    if !memtable.has_tombstones() {
        return Ok(Some(0));
    }
    let step = memtable.range_tombstones().count().div_ceil(RANGES_MAX).max(1);
    let sampled: Vec<_> = memtable.range_tombstones().step_by(step).collect();
    let mut hidden = 0u64;
    for (_, table) in view.version.tables() {
        if should_preempt() {
            return Ok(None);
        }
        if sampled.iter().any(|range| is_hidden_whole(table, range.start, range.end)) {
            continue;
        }
        let mut covered = 0u64;
        for range in &sampled {
            covered = covered.saturating_add(covered_bytes(table, range.start, range.end)?);
        }
        let covered = covered.saturating_mul(step as u64).min(size_of(table).bytes);
        hidden = hidden.saturating_add(covered);
    }
    Ok(Some(hidden))
}

/// Whether a range from `start` to before `end` contains all keys of a table.
pub fn is_hidden_whole(table: &LiveTable, start: &[u8], end: &[u8]) -> bool {
    start <= table.meta.smallest.as_slice() && table.meta.largest.as_slice() < end
}

/// Whether a range from `start` to before `end` can contain keys of a table.
pub fn is_met(table: &LiveTable, start: &[u8], end: &[u8]) -> bool {
    table.reaches(start) && table.meta.smallest.as_slice() < end
}

/// Bytes of an entry outside of tables.
fn entry_bytes(key: &[u8], kind: ValueKind, value: &[u8]) -> EntryBytes {
    let long = match kind {
        ValueKind::BlobPointer => BlobPointer::decode(value).map_or(0, |blob| blob.value_bytes),
        _ => 0,
    };
    let plain = ((key.len() + value.len()) as u64).saturating_add(long);
    EntryBytes { plain, long, stored: plain }
}

/// The tables of a version, in which an estimate looks up keys of newer tables or of a memtable.
struct TablesBelow<'a> {
    store: &'a Store,
    version: &'a Version,
    loader: FilterLoader,
    reader: SequentialReader,
}

impl<'a> TablesBelow<'a> {
    fn new(store: &'a Store, version: &'a Version) -> TablesBelow<'a> {
        let (loader, reader) = (FilterLoader::new(version), SequentialReader::for_lookups());
        TablesBelow { store, version, loader, reader }
    }

    /// Returns the size of the newest entry with `key` in a table older than `above`, a table and
    /// its level; the table is `None` for a memtable. Returns `None` without such an entry.
    fn hidden_bytes(
        &mut self,
        above: (usize, Option<&LiveTable>),
        key: &[u8],
    ) -> Result<Option<EntryBytes>> {
        let mut hash = None;
        for table in tables_reaching(self.version, above, key) {
            let hash = *hash.get_or_insert_with(|| table.hash(key));
            if !self.loader.may_contain(self.store, table, hash)? {
                continue;
            }
            self.reader.seek(table.reader()?, key, SequenceNumber::MAX)?;
            if self.reader.valid() && self.reader.key() == key {
                return Ok(Some(self.read_bytes(table)));
            }
        }
        Ok(None)
    }

    /// Bytes of the reader's entry in its table.
    fn read_bytes(&self, table: &LiveTable) -> EntryBytes {
        let bytes = entry_bytes(self.reader.key(), self.reader.kind(), self.reader.value());
        // Entries of compressed tables take fewer bytes in the file.
        let meta = &table.meta;
        let of_table = (meta.key_bytes + meta.value_bytes).max(1);
        if meta.file_bytes >= of_table || self.reader.kind() == ValueKind::BlobPointer {
            return bytes;
        }
        EntryBytes { stored: proportion(bytes.plain, meta.file_bytes, of_table), ..bytes }
    }
}

/// Loads, for the duration of an estimate, filters that the advisor released. The most recently
/// probed filters are first.
#[derive(Debug)]
struct FilterLoader {
    filters_max: usize,
    filters: VecDeque<(u64, Option<ResidentFilter>, MemoryReservation)>,
}

impl FilterLoader {
    fn new(version: &Version) -> FilterLoader {
        FilterLoader { filters_max: version.sources(), filters: VecDeque::new() }
    }

    /// Whether a table possibly has a key with this hash: every key if the table has no filter.
    fn may_contain(&mut self, store: &Store, table: &LiveTable, hash: u64) -> Result<bool> {
        let open = table.open()?;
        if !open.is_filter_omitted() {
            return Ok(open.may_contain(hash));
        }
        let id = table.meta.id;
        match self.filters.iter().position(|(known, ..)| *known == id) {
            Some(0) => {}
            Some(place) => self.filters.swap(0, place),
            None => {
                self.filters.truncate(self.filters_max.saturating_sub(1));
                let filter = open.table().read_filter(FilterResidency::default())?;
                let claim = store.budget.reserve(table.meta.plain_filter_bytes());
                self.filters.push_front((id, filter, claim));
            }
        }
        let cached = self.filters.front().and_then(|(_, filter, _)| filter.as_ref());
        Ok(cached.is_none_or(|filter| filter.may_contain(hash)))
    }
}

/// Tables older than `above` whose bounds include `key`, newest first. `above` is a level and a
/// table of it with the key; the table is `None` for a memtable.
fn tables_reaching<'a>(
    version: &'a Version,
    (level, above): (usize, Option<&'a LiveTable>),
    key: &'a [u8],
) -> impl Iterator<Item = &'a LiveTable> {
    let newer = above.map_or(0, |above| {
        1 + version.levels[0].iter().take_while(|it| it.meta.id != above.meta.id).count()
    });
    let older = version.levels[0].iter().skip(newer).filter(move |_| level == 0);
    let reaching = |tables: &'a Vec<Arc<LiveTable>>| tables.get(first_reaching(tables, key));
    let below = version.levels.iter().skip(level + 1).filter_map(reaching);
    let older = older.filter(|table| table.reaches(key));
    older.chain(below).filter(|table| table.meta.smallest.as_slice() <= key).map(|table| &**table)
}
