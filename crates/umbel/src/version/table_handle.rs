//! A table's reader, and the filter that is in memory for it.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use umbel_base::Result;
use umbel_filter::{KeyPrefix, PrefixHasher};
use umbel_table::{FilterKeep, PrefixFilter, Table, TableFilter};

use super::table_file::TableContext;

/// So many searches of one table for keys that it does not have call the advisor, and then twice as
/// many each time.
const MISSES: u32 = 16;

/// An open table. Its filter stands beside its reader, so that the same reader, with the blocks
/// that are cached of it, can get another filter.
#[derive(Debug)]
pub struct OpenTable {
    filter: Option<TableFilter>,
    /// The prefix filter, whichever filter of keys there is.
    prefixes: Option<Arc<CountedPrefixes>>,
    /// Whether the table has range tombstones.
    has_tombstones: bool,
    table: Arc<Table>,
    /// What was to be kept.
    keep: FilterKeep,
    counted: FilterBytes,
    /// Where its filter was left out because it would not pay.
    wire: Option<Wire>,
}

/// A beginning of keys that prefix filters are asked for.
#[derive(Debug)]
pub struct PrefixAsked {
    /// The rule by which keys have prefixes.
    pub rule: KeyPrefix,
    /// What prefixes are hashed with.
    pub hasher: PrefixHasher,
    /// The beginning.
    pub start: Vec<u8>,
    /// Where it is counted how often tables were asked, and how often they said no.
    pub counters: Arc<PrefixCounters>,
}

/// How often prefix filters were asked.
#[derive(Debug, Default)]
pub struct PrefixCounters {
    /// How often a table's was asked.
    pub asked: AtomicU64,
    /// How often it said no, which saved scanning the table.
    pub refused: AtomicU64,
}

impl PrefixAsked {
    /// Counts an answer.
    pub fn count(&self, may: bool) {
        self.counters.asked.fetch_add(1, Ordering::Relaxed);
        self.counters.refused.fetch_add(u64::from(!may), Ordering::Relaxed);
    }
}

/// A tripwire: counts what a filter that was left out would have saved.
#[derive(Debug)]
struct Wire {
    misses: AtomicU32,
    table: u64,
    context: Arc<TableContext>,
}

impl Wire {
    #[cold]
    fn note(&self) {
        let misses = self.misses.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        if misses >= MISSES
            && misses.is_power_of_two()
            && let Some(keeper) = self.context.keeper.get().and_then(Weak::upgrade)
        {
            keeper.advise_for(self.table);
        }
    }
}

/// A prefix filter in memory.
#[derive(Debug)]
struct CountedPrefixes {
    filter: PrefixFilter,
    _counted: FilterBytes,
}

/// Bytes of a filter, counted in a sum until this is dropped.
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

impl OpenTable {
    /// The table with the filter that `keep` names. Where that is none because of what the advisor
    /// chose, `has_wire` says so.
    pub fn new(
        table: Arc<Table>,
        keep: FilterKeep,
        has_wire: bool,
        context: &Arc<TableContext>,
    ) -> Result<OpenTable> {
        let filter = table.read_filter(keep)?;
        let sum = &context.budget.tables;
        let counted = FilterBytes::new(filter.as_ref().map_or(0, TableFilter::bytes), sum);
        let has_tombstones = table.has_tombstones();
        let wire = has_wire.then(|| Wire {
            misses: AtomicU32::new(0),
            table: table.meta().id,
            context: Arc::clone(context),
        });
        Ok(OpenTable { filter, prefixes: None, has_tombstones, table, keep, counted, wire })
    }

    /// The same with the table's prefix filter in memory.
    pub fn with_prefixes(mut self, context: &TableContext) -> Result<OpenTable> {
        let filter = self.table.read_prefix_filter()?;
        self.prefixes = filter.map(|filter| {
            let counted = FilterBytes::new(filter.bytes(), &context.budget.tables);
            Arc::new(CountedPrefixes { filter, _counted: counted })
        });
        Ok(self)
    }

    /// The same with the prefix filter that `other` has, which is the same table.
    pub fn with_prefixes_of(mut self, other: &OpenTable) -> OpenTable {
        self.prefixes.clone_from(&other.prefixes);
        self
    }

    /// Whether the table may have keys that begin with `start`, by their prefixes.
    pub fn may_have_start(&self, asked: &PrefixAsked) -> bool {
        self.prefixes.as_ref().is_none_or(|prefixes| {
            prefixes.filter.may_contain_start(&asked.rule, &asked.hasher, &asked.start)
        })
    }

    /// Notes that it was searched for a key that it does not have.
    #[inline]
    pub fn note_miss(&self) {
        if let Some(wire) = &self.wire {
            wire.note();
        }
    }

    /// Its reader.
    #[inline(always)]
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// Whether the key of `hash` may be in the table: never false for one that is.
    #[inline(always)]
    pub fn may_contain(&self, hash: u64) -> bool {
        match &self.filter {
            Some(filter) => filter.may_contain(hash),
            None => true,
        }
    }

    /// Whether the table has range tombstones.
    #[inline(always)]
    pub fn has_tombstones(&self) -> bool {
        self.has_tombstones
    }

    /// Asks for what [`OpenTable::may_contain`] reads for `hash`.
    #[inline]
    pub fn prefetch_filter(&self, hash: u64) {
        if let Some(filter) = &self.filter {
            filter.prefetch(hash);
        }
    }

    /// Whether there is a filter in memory that can say no.
    #[inline]
    pub fn has_filter(&self) -> bool {
        self.filter.is_some()
    }

    /// Whether its filter was left out because it would not pay, and not for want of memory.
    pub fn was_let_go(&self) -> bool {
        self.wire.is_some()
    }

    /// Bytes of the filter of keys in memory.
    pub fn filter_bytes(&self) -> u64 {
        self.counted.bytes
    }

    /// Bytes of all filters in memory.
    pub fn all_filter_bytes(&self) -> u64 {
        let prefixes = self.prefixes.as_ref().map_or(0, |prefixes| prefixes.filter.bytes());
        self.counted.bytes + prefixes as u64
    }

    /// The share of absent keys for which it says "maybe" by its design; 1 without one.
    pub fn designed_rate(&self) -> f64 {
        self.filter.as_ref().map_or(1.0, TableFilter::designed_rate)
    }

    /// What of the filters was to be kept.
    pub fn keep(&self) -> FilterKeep {
        self.keep
    }
}
