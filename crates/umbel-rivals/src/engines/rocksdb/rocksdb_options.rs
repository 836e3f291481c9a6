//! Options that RocksDB is opened with.

use std::ffi::c_int;

use umbel_lab::engine::{EngineSettings, Result};

use crate::engines::rocksdb::rocksdb_c::*;

/// Upper bound on the bits per key of RocksDB's Bloom filters; RocksDB reduces any higher setting
/// to it.
pub const BLOOM_BITS_MAX: i32 = 100;
const MEMTABLES_MAX: c_int = 4;
const MEMTABLE_FILTER_SHARE: f64 = 0.1;
const TABLE_BYTES: u64 = 64 << 20;
const BLOCK_BYTES: usize = 4096;
const FORMAT_VERSION: c_int = 5;
const BACKGROUND_JOBS: c_int = 2;
const BYTES_PER_SYNC: u64 = 1 << 20;

/// Describes in words the settings of [`options`] that the run does not set.
pub fn in_words() -> String {
    let settings = EngineSettings::default();
    format!(
        "memtables of {} MiB (unless the run sets it; up to {MEMTABLES_MAX}) with whole-key filter \
         of {MEMTABLE_FILTER_SHARE} of their bytes, dynamic level sizes, {} MiB tables, {} KiB \
         blocks with hash index, format {FORMAT_VERSION}, filters of {} bits per key (unless the \
         run sets it, at most {BLOOM_BITS_MAX}: the library cuts more) at every level, indexes and \
         filters pinned in the open tables, all of which stay open, no compression, \
         {BACKGROUND_JOBS} background jobs for two processors, tables given to the device each {} \
         MiB while they are written, the cache of the run; of its guide's general advice, \
         blocks of 16 KiB, and indexes and filters in the cache, both of which save memory, are \
         left at its defaults, as this run gives it memory for everything; single puts, log given \
         to the kernel with each; reads through pinned slices",
        settings.memtable_bytes >> 20,
        TABLE_BYTES >> 20,
        BLOCK_BYTES >> 10,
        settings.bloom_bits,
        BYTES_PER_SYNC >> 20,
    )
}

/// Makes the options that an expert of RocksDB would choose for this work.
///
/// # Safety
/// `cache` comes from the library and outlives the stores that are opened with the options.
pub unsafe fn options(cache: *mut Cache, settings: &EngineSettings) -> Result<*mut Opts> {
    let memtable_bytes = usize::try_from(settings.memtable_bytes)?;
    // SAFETY: the constructors take nothing and return an object of their kind. The setters get
    // that object and plain numbers. The table options own the filter policy. They are copied into
    // the options, which is why they may be freed here.
    unsafe {
        let table = rocksdb_block_based_options_create();
        if settings.bloom_bits > 0 {
            let filter = rocksdb_filterpolicy_create_bloom_full(f64::from(settings.bloom_bits));
            rocksdb_block_based_options_set_filter_policy(table, filter);
        }
        rocksdb_block_based_options_set_block_cache(table, cache);
        rocksdb_block_based_options_set_format_version(table, FORMAT_VERSION);
        rocksdb_block_based_options_set_block_size(table, BLOCK_BYTES);
        rocksdb_block_based_options_set_cache_index_and_filter_blocks(table, 0);
        rocksdb_block_based_options_set_data_block_index_type(table, 1);
        let options = rocksdb_options_create();
        rocksdb_options_set_create_if_missing(options, 1);
        rocksdb_options_set_write_buffer_size(options, memtable_bytes);
        rocksdb_options_set_max_write_buffer_number(options, MEMTABLES_MAX);
        rocksdb_options_set_level_compaction_dynamic_level_bytes(options, 1);
        rocksdb_options_set_target_file_size_base(options, TABLE_BYTES);
        rocksdb_options_set_max_background_jobs(options, BACKGROUND_JOBS);
        rocksdb_options_set_max_open_files(options, -1);
        rocksdb_options_set_bytes_per_sync(options, BYTES_PER_SYNC);
        rocksdb_options_set_compression(options, 0);
        rocksdb_options_set_memtable_whole_key_filtering(options, 1);
        rocksdb_options_set_memtable_prefix_bloom_size_ratio(options, MEMTABLE_FILTER_SHARE);
        rocksdb_options_set_block_based_table_factory(options, table);
        rocksdb_block_based_options_destroy(table);
        Ok(options)
    }
}
