//! An open table: its table reader, and its filter in memory.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use umbel_base::Result;
use umbel_filter::{KeyPrefix, PrefixHasher};
use umbel_table::{FilterResidency, ResidentFilter, ResidentPrefixFilter, Table};

use super::table_context::TableContext;

/// Number of searches of a table for absent keys after which a reader calls the advisor. The number
/// doubles with each call.
const MISSES_MIN: u32 = 16;

/// An open table. The filter is separate from the table reader, so that the same reader, with its
/// cached blocks, can get another filter.
#[derive(Debug)]
pub struct OpenedTable {
    filter: Option<ResidentFilter>,
    /// The prefix filter, which is independent of the filter of keys.
    prefixes: Option<Arc<CountedPrefixFilter>>,
    /// Whether the table has range tombstones.
    has_tombstones: bool,
    /// Whether the table has entries besides range tombstones.
    has_entries: bool,
    table: Arc<Table>,
    /// Requested residency of the filter.
    keep: FilterResidency,
    filter_bytes: FilterBytes,
    /// Tripwire; set if the filter was omitted because it would not pay.
    miss_tripwire: Option<MissTripwire>,
}

/// Probe of prefix filters for the keys with a given start.
#[derive(Debug)]
pub struct PrefixProbe {
    /// The rule that gives keys their prefixes.
    pub rule: KeyPrefix,
    /// Hash function of prefixes.
    pub hasher: PrefixHasher,
    /// Common start of the keys.
    pub start: Vec<u8>,
    /// Counters of probes and rejections.
    pub counters: Arc<PrefixCounters>,
}

/// Counters of prefix filters.
#[derive(Debug, Default)]
pub struct PrefixCounters {
    /// Number of probes of prefix filters.
    pub probes: AtomicU64,
    /// Number of probes that rejected the prefix, each of which saved a scan of a table.
    pub negatives: AtomicU64,
}

impl PrefixProbe {
    /// Counts the result of a probe.
    pub fn count(&self, may: bool) {
        self.counters.probes.fetch_add(1, Ordering::Relaxed);
        self.counters.negatives.fetch_add(u64::from(!may), Ordering::Relaxed);
    }
}

/// Counts the searches that an omitted filter would have saved.
#[derive(Debug)]
struct MissTripwire {
    misses: AtomicU32,
    table: u64,
    context: Arc<TableContext>,
}

impl MissTripwire {
    #[cold]
    fn note(&self) {
        let misses = self.misses.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        if misses >= MISSES_MIN
            && misses.is_power_of_two()
            && let Some(keeper) = self.context.owner.get().and_then(Weak::upgrade)
        {
            keeper.note_filter_miss(self.table);
        }
    }
}

/// A prefix filter in memory.
#[derive(Debug)]
struct CountedPrefixFilter {
    filter: ResidentPrefixFilter,
    _counted: FilterBytes,
}

/// Bytes of a filter, which a sum includes until this value is dropped.
#[derive(Debug)]
struct FilterBytes {
    bytes: u64,
    sum: Arc<AtomicU64>,
}

impl FilterBytes {
    fn new(bytes: usize, sum: &Arc<AtomicU64>) -> FilterBytes {
        sum.fetch_add(bytes as u64, Ordering::Relaxed);
        FilterBytes { bytes: bytes as u64, sum: Arc::clone(sum) }
    }
}

impl Drop for FilterBytes {
    fn drop(&mut self) {
        self.sum.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl OpenedTable {
    /// Creates the handle of a table with the filter that `keep` selects. `has_wire` says that the
    /// advisor chose to keep no filter.
    pub fn new(
        table: Arc<Table>,
        keep: FilterResidency,
        has_wire: bool,
        context: &Arc<TableContext>,
    ) -> Result<OpenedTable> {
        let filter = table.read_filter(keep)?;
        let sum = &context.budget.tables;
        let counted = FilterBytes::new(filter.as_ref().map_or(0, ResidentFilter::bytes), sum);
        let has_tombstones = table.has_tombstones();
        let has_entries = table.meta().entries > 0;
        let wire = has_wire.then(|| MissTripwire {
            misses: AtomicU32::new(0),
            table: table.meta().id,
            context: Arc::clone(context),
        });
        Ok(OpenedTable {
            filter,
            prefixes: None,
            has_tombstones,
            has_entries,
            table,
            keep,
            filter_bytes: counted,
            miss_tripwire: wire,
        })
    }

    /// The same with the table's prefix filter in memory.
    pub fn with_prefixes(mut self, context: &TableContext) -> Result<OpenedTable> {
        let filter = self.table.read_prefix_filter()?;
        self.prefixes = filter.map(|filter| {
            let counted = FilterBytes::new(filter.bytes(), &context.budget.tables);
            Arc::new(CountedPrefixFilter { filter, _counted: counted })
        });
        Ok(self)
    }

    /// Returns the same handle with the prefix filter of `other`, a handle of the same table.
    pub fn with_prefixes_of(mut self, other: &OpenedTable) -> OpenedTable {
        self.prefixes.clone_from(&other.prefixes);
        self
    }

    /// Whether the table's prefix filter says that the table possibly has keys with the start of
    /// `probe`.
    pub fn may_have_prefix(&self, probe: &PrefixProbe) -> bool {
        self.prefixes.as_ref().is_none_or(|prefixes| {
            prefixes.filter.may_contain_start(&probe.rule, &probe.hasher, &probe.start)
        })
    }

    /// Counts a search for an absent key.
    #[inline]
    pub fn note_miss(&self) {
        if let Some(wire) = &self.miss_tripwire {
            wire.note();
        }
    }

    /// Returns the table reader.
    #[inline(always)]
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// Whether the filter passes the key with this hash; `false` proves that the table has no entry
    /// of the key. Without a filter, whether the table has entries at all.
    #[inline(always)]
    pub fn may_contain(&self, hash: u64) -> bool {
        match &self.filter {
            Some(filter) => filter.may_contain(hash),
            None => self.has_entries,
        }
    }

    /// Whether the table has range tombstones.
    #[inline(always)]
    pub fn has_tombstones(&self) -> bool {
        self.has_tombstones
    }

    /// Prefetches the memory that [`OpenedTable::may_contain`] reads for `hash`.
    #[inline]
    pub fn prefetch_filter(&self, hash: u64) {
        if let Some(filter) = &self.filter {
            filter.prefetch(hash);
        }
    }

    /// Whether the table has a filter in memory that can reject keys.
    #[inline]
    pub fn has_filter(&self) -> bool {
        self.filter.is_some()
    }

    /// Whether the filter was omitted because it would not pay, and not for lack of memory.
    pub fn is_filter_omitted(&self) -> bool {
        self.miss_tripwire.is_some()
    }

    /// Bytes of the filter of keys in memory.
    pub fn filter_bytes(&self) -> u64 {
        self.filter_bytes.bytes
    }

    /// Bytes of all filters in memory.
    pub fn all_filter_bytes(&self) -> u64 {
        let prefixes = self.prefixes.as_ref().map_or(0, |prefixes| prefixes.filter.bytes());
        self.filter_bytes.bytes + prefixes as u64
    }

    /// Designed false-positive rate of the filter; 1 without one.
    pub fn designed_rate(&self) -> f64 {
        self.filter.as_ref().map_or(1.0, ResidentFilter::designed_rate)
    }

    /// Requested residency of the filters.
    pub fn keep(&self) -> FilterResidency {
        self.keep
    }
}
