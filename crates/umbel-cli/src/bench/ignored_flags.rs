//! Flags of db_bench that scripts pass and that change no measurement of `umbel bench`.
//!
//! INVARIANT: a flag that would change what a benchmark does or means is not in this list; such a
//! flag is either supported or refused.

use clap::ArgMatches;
use clap::parser::ValueSource;

use crate::io::output::note;

/// Names of the ignored flags, as db_bench spells them.
pub const IGNORED_FLAGS: &[&str] = &[
    "allow_concurrent_memtable_write",
    "bytes_per_sync",
    "cache_index_and_filter_blocks",
    "cache_numshardbits",
    "cache_type",
    "comparisons",
    "compaction_pri",
    "compaction_readahead_size",
    "compression_max_dict_bytes",
    "compression_parallel_threads",
    "compression_zstd_max_train_bytes",
    "delete_obsolete_files_period_micros",
    "enable_pipelined_write",
    "enable_write_thread_adaptive_yield",
    "hard_rate_limit",
    "level0_slowdown_writes_trigger",
    "level0_stop_writes_trigger",
    "level_compaction_dynamic_level_bytes",
    "max_background_compactions",
    "max_background_flushes",
    "max_bytes_for_level_multiplier_additional",
    "max_write_buffer_number",
    "memtablerep",
    "min_level_to_compress",
    "mmap_read",
    "mmap_write",
    "num_levels",
    "open_files",
    "partition_index",
    "perf_level",
    "pin_l0_filter_and_index_blocks_in_cache",
    "pin_top_level_index_and_filter",
    "progress_reports",
    "rate_limit_delay_max_milliseconds",
    "reuse_logs",
    "soft_rate_limit",
    "soft_pending_compaction_bytes_limit",
    "hard_pending_compaction_bytes_limit",
    "stats_dump_period_sec",
    "stats_per_interval",
    "subcompactions",
    "target_file_size_multiplier",
    "undefok",
    "unordered_write",
    "use_ribbon_filter",
    "verify_checksum",
    "wal_bytes_per_sync",
];

/// Warns of ignored flags that were given.
pub fn warn_ignored_flags(matches: &ArgMatches) {
    for name in IGNORED_FLAGS {
        if matches.value_source(name) == Some(ValueSource::CommandLine) {
            note(&format!("umbel: note: --{name} has no effect on `umbel bench` and was ignored"));
        }
    }
}
