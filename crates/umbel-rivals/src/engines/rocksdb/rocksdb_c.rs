//! Declarations of the functions of RocksDB's C interface that this program uses.

use std::ffi::{c_char, c_int, c_uchar, c_void};

macro_rules! opaque {
    ($($name:ident)*) => {
        $(#[repr(C)] pub struct $name { _private: [u8; 0] })*
    };
}

opaque! {
    Db WriteBatch Family Opts TableOpts ReadOpts WriteOpts FlushOpts Iter Snapshot Cache Filter
    Pinned PerfContext
}

// Values of the enumeration of the perf context's counters.
pub const BLOCK_READ_COUNT: c_int = 2;
pub const BLOOM_SST_HIT_COUNT: c_int = 44;
pub const BLOOM_SST_MISS_COUNT: c_int = 45;

#[link(name = "rocksdb")]
unsafe extern "C" {
    pub fn rocksdb_open_column_families(
        options: *const Opts,
        name: *const c_char,
        families: c_int,
        names: *const *const c_char,
        family_options: *const *const Opts,
        handles: *mut *mut Family,
        error: *mut *mut c_char,
    ) -> *mut Db;
    pub fn rocksdb_column_family_handle_destroy(family: *mut Family);
    pub fn rocksdb_close(db: *mut Db);
    pub fn rocksdb_put(
        db: *mut Db,
        options: *const WriteOpts,
        key: *const u8,
        key_len: usize,
        value: *const u8,
        value_len: usize,
        error: *mut *mut c_char,
    );
    pub fn rocksdb_get_pinned(
        db: *mut Db,
        options: *const ReadOpts,
        key: *const u8,
        key_len: usize,
        error: *mut *mut c_char,
    ) -> *mut Pinned;
    pub fn rocksdb_pinnableslice_value(pinned: *const Pinned, len: *mut usize) -> *const u8;
    pub fn rocksdb_pinnableslice_destroy(pinned: *mut Pinned);
    pub fn rocksdb_batched_multi_get_cf(
        db: *mut Db,
        options: *const ReadOpts,
        family: *mut Family,
        keys: usize,
        key_list: *const *const u8,
        key_lens: *const usize,
        values: *mut *mut Pinned,
        errors: *mut *mut c_char,
        sorted: bool,
    );
    pub fn rocksdb_property_int(db: *mut Db, name: *const c_char, value: *mut u64) -> c_int;
    pub fn rocksdb_property_value(db: *mut Db, name: *const c_char) -> *mut c_char;
    pub fn rocksdb_perfcontext_create() -> *mut PerfContext;
    pub fn rocksdb_perfcontext_metric(context: *mut PerfContext, metric: c_int) -> u64;
    pub fn rocksdb_perfcontext_destroy(context: *mut PerfContext);
    pub fn rocksdb_flush(db: *mut Db, options: *const FlushOpts, error: *mut *mut c_char);
    pub fn rocksdb_compact_range(
        db: *mut Db,
        start: *const u8,
        start_len: usize,
        limit: *const u8,
        limit_len: usize,
    );
    pub fn rocksdb_writebatch_create() -> *mut WriteBatch;
    pub fn rocksdb_writebatch_destroy(batch: *mut WriteBatch);
    pub fn rocksdb_writebatch_clear(batch: *mut WriteBatch);
    pub fn rocksdb_writebatch_put(
        batch: *mut WriteBatch,
        key: *const u8,
        key_len: usize,
        value: *const u8,
        value_len: usize,
    );
    pub fn rocksdb_writebatch_delete(batch: *mut WriteBatch, key: *const u8, key_len: usize);
    pub fn rocksdb_write(
        db: *mut Db,
        options: *const WriteOpts,
        batch: *mut WriteBatch,
        error: *mut *mut c_char,
    );
    pub fn rocksdb_delete(
        db: *mut Db,
        options: *const WriteOpts,
        key: *const u8,
        key_len: usize,
        error: *mut *mut c_char,
    );
    pub fn rocksdb_delete_range_cf(
        db: *mut Db,
        options: *const WriteOpts,
        family: *mut Family,
        start: *const u8,
        start_len: usize,
        end: *const u8,
        end_len: usize,
        error: *mut *mut c_char,
    );
    pub fn rocksdb_create_snapshot(db: *mut Db) -> *const Snapshot;
    pub fn rocksdb_release_snapshot(db: *mut Db, snapshot: *const Snapshot);
    pub fn rocksdb_create_iterator(db: *mut Db, options: *const ReadOpts) -> *mut Iter;
    pub fn rocksdb_iter_destroy(iter: *mut Iter);
    pub fn rocksdb_iter_valid(iter: *const Iter) -> c_uchar;
    pub fn rocksdb_iter_seek_to_first(iter: *mut Iter);
    pub fn rocksdb_iter_seek_to_last(iter: *mut Iter);
    pub fn rocksdb_iter_seek(iter: *mut Iter, key: *const u8, key_len: usize);
    pub fn rocksdb_iter_next(iter: *mut Iter);
    pub fn rocksdb_iter_key(iter: *const Iter, len: *mut usize) -> *const u8;
    pub fn rocksdb_iter_value(iter: *const Iter, len: *mut usize) -> *const u8;
    pub fn rocksdb_iter_get_error(iter: *const Iter, error: *mut *mut c_char);
    pub fn rocksdb_options_create() -> *mut Opts;
    pub fn rocksdb_options_destroy(options: *mut Opts);
    pub fn rocksdb_options_set_create_if_missing(options: *mut Opts, on: c_uchar);
    pub fn rocksdb_options_set_write_buffer_size(options: *mut Opts, bytes: usize);
    pub fn rocksdb_options_set_max_write_buffer_number(options: *mut Opts, number: c_int);
    pub fn rocksdb_options_set_level_compaction_dynamic_level_bytes(
        options: *mut Opts,
        on: c_uchar,
    );
    pub fn rocksdb_options_set_max_background_jobs(options: *mut Opts, jobs: c_int);
    pub fn rocksdb_options_set_target_file_size_base(options: *mut Opts, bytes: u64);
    pub fn rocksdb_options_set_max_open_files(options: *mut Opts, files: c_int);
    pub fn rocksdb_options_set_bytes_per_sync(options: *mut Opts, bytes: u64);
    pub fn rocksdb_options_set_compression(options: *mut Opts, kind: c_int);
    pub fn rocksdb_options_set_memtable_whole_key_filtering(options: *mut Opts, on: c_uchar);
    pub fn rocksdb_options_set_memtable_prefix_bloom_size_ratio(options: *mut Opts, ratio: f64);
    pub fn rocksdb_options_set_block_based_table_factory(options: *mut Opts, table: *mut TableOpts);
    pub fn rocksdb_block_based_options_create() -> *mut TableOpts;
    pub fn rocksdb_block_based_options_destroy(options: *mut TableOpts);
    pub fn rocksdb_block_based_options_set_filter_policy(options: *mut TableOpts, f: *mut Filter);
    pub fn rocksdb_block_based_options_set_block_cache(options: *mut TableOpts, cache: *mut Cache);
    pub fn rocksdb_block_based_options_set_format_version(options: *mut TableOpts, version: c_int);
    pub fn rocksdb_block_based_options_set_block_size(options: *mut TableOpts, bytes: usize);
    pub fn rocksdb_block_based_options_set_cache_index_and_filter_blocks(
        options: *mut TableOpts,
        on: c_uchar,
    );
    pub fn rocksdb_block_based_options_set_data_block_index_type(
        options: *mut TableOpts,
        kind: c_int,
    );
    pub fn rocksdb_filterpolicy_create_bloom_full(bits_per_key: f64) -> *mut Filter;
    pub fn rocksdb_cache_create_lru(bytes: usize) -> *mut Cache;
    pub fn rocksdb_cache_destroy(cache: *mut Cache);
    pub fn rocksdb_readoptions_create() -> *mut ReadOpts;
    pub fn rocksdb_readoptions_destroy(options: *mut ReadOpts);
    pub fn rocksdb_writeoptions_create() -> *mut WriteOpts;
    pub fn rocksdb_writeoptions_destroy(options: *mut WriteOpts);
    pub fn rocksdb_writeoptions_set_sync(options: *mut WriteOpts, on: c_uchar);
    pub fn rocksdb_flushoptions_create() -> *mut FlushOpts;
    pub fn rocksdb_flushoptions_destroy(options: *mut FlushOpts);
    pub fn rocksdb_free(pointer: *mut c_void);
}
