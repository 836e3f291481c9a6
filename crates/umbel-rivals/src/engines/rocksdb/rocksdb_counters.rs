//! RocksDB's counters: properties of the store, and the perf context of a thread. RocksDB's full
//! statistics are off by default and would slow it down.

use std::ffi::CStr;

use umbel_lab::engine::Counters;

use crate::engines::rocksdb::rocksdb_c::*;

/// Level names of the file count properties.
const LEVELS: [&CStr; 7] = [
    c"rocksdb.num-files-at-level0",
    c"rocksdb.num-files-at-level1",
    c"rocksdb.num-files-at-level2",
    c"rocksdb.num-files-at-level3",
    c"rocksdb.num-files-at-level4",
    c"rocksdb.num-files-at-level5",
    c"rocksdb.num-files-at-level6",
];

/// Returns the counters of an open store. Block and filter counts are those of the calling thread,
/// over all stores that the thread has read. The difference of two calls is the work between the
/// calls.
///
/// # Safety
/// The store is open, and stays open during the call.
pub unsafe fn counters(db: *mut Db) -> Counters {
    // SAFETY: the caller keeps the store open.
    let property = |name: &CStr| unsafe { property(db, name) };
    let tables = |level: &&CStr| property(level)?.trim().parse::<u64>().ok();
    let [blocks_loaded, maybe, negatives] = thread_counts();
    Counters {
        background_jobs: property(c"rocksdb.cfstats-no-file-histogram")
            .and_then(|stats| jobs(&stats)),
        blocks_loaded: Some(blocks_loaded),
        filter_probes: Some(maybe + negatives),
        filter_negatives: Some(negatives),
        filter_bytes: property(c"rocksdb.aggregated-table-properties")
            .and_then(|properties| filter_bytes(&properties)),
        tables: LEVELS.iter().map(tables).sum(),
        ..Counters::default()
    }
}

/// # Safety
/// The store is open, and stays open during the call.
unsafe fn property(db: *mut Db, name: &CStr) -> Option<String> {
    // SAFETY: the caller keeps the store open. The name ends in a zero. The answer is null or a
    // string that ends in a zero and is ours to free.
    unsafe {
        let text = rocksdb_property_value(db, name.as_ptr());
        if text.is_null() {
            return None;
        }
        let value = CStr::from_ptr(text).to_string_lossy().into_owned();
        rocksdb_free(text.cast());
        Some(value)
    }
}

/// Counts of this thread: blocks read, filter probes that passed, filter probes that did not.
fn thread_counts() -> [u64; 3] {
    // SAFETY: the context belongs to this thread, no other code uses it, and it is freed once.
    unsafe {
        let context = rocksdb_perfcontext_create();
        let counts = [BLOCK_READ_COUNT, BLOOM_SST_HIT_COUNT, BLOOM_SST_MISS_COUNT]
            .map(|metric| rocksdb_perfcontext_metric(context, metric));
        rocksdb_perfcontext_destroy(context);
        counts
    }
}

/// Counts flushes and compactions in the table of levels. Columns are counted from the right,
/// because a size is two words.
fn jobs(stats: &str) -> Option<u64> {
    let words = |line: &str| line.split_whitespace().rev().map(str::to_string).collect::<Vec<_>>();
    let head = stats.lines().find(|line| line.contains("Comp(cnt)")).map(words)?;
    let column = head.iter().position(|word| word == "Comp(cnt)")?;
    let sum = stats.lines().map(words).find(|words| words.last().is_some_and(|w| w == "Sum"))?;
    sum.get(column)?.parse().ok()
}

/// Returns the bytes of all filters. Every table is open, with its filter in memory.
fn filter_bytes(properties: &str) -> Option<u64> {
    let (_, rest) = properties.split_once("filter block size=")?;
    rest.split(';').next()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATS: &str = "\
** Compaction Stats [default] **
Level    Files   Size     Score Read(GB) Comp(sec) Comp(cnt) Avg(sec)
----------------------------------------------------------------------
  L0      2/0   68.13 MB   0.5      0.0      1.01         3    0.337
 Sum      2/0   68.13 MB   0.0      0.1      1.01         7    0.337
 Int      0/0    0.00 KB   0.0      0.0      0.00         0    0.000
";

    #[test]
    fn jobs_of_all_levels_are_counted() {
        assert_eq!(jobs(STATS), Some(7));
        assert_eq!(jobs("nothing of the kind"), None);
    }

    #[test]
    fn filter_bytes_are_parsed_among_other_properties() {
        let properties = "# entries=5; raw key size=9; filter block size=1234; # deletions=0";
        assert_eq!(filter_bytes(properties), Some(1234));
        assert_eq!(filter_bytes("# entries=5"), None);
    }
}
