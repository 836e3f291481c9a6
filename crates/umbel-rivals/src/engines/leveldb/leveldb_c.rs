//! Declarations of the functions of LevelDB's C interface that this program uses.

use std::ffi::{c_char, c_int, c_uchar, c_void};

macro_rules! opaque {
    ($($name:ident)*) => {
        $(#[repr(C)] pub struct $name { _private: [u8; 0] })*
    };
}

opaque! { Db WriteBatch Opts ReadOpts WriteOpts Iter Snapshot Cache Filter }

#[link(name = "leveldb")]
unsafe extern "C" {
    pub fn leveldb_open(
        options: *const Opts,
        name: *const c_char,
        error: *mut *mut c_char,
    ) -> *mut Db;
    pub fn leveldb_close(db: *mut Db);
    pub fn leveldb_put(
        db: *mut Db,
        options: *const WriteOpts,
        key: *const u8,
        key_len: usize,
        value: *const u8,
        value_len: usize,
        error: *mut *mut c_char,
    );
    pub fn leveldb_get(
        db: *mut Db,
        options: *const ReadOpts,
        key: *const u8,
        key_len: usize,
        value_len: *mut usize,
        error: *mut *mut c_char,
    ) -> *mut u8;
    pub fn leveldb_writebatch_create() -> *mut WriteBatch;
    pub fn leveldb_writebatch_destroy(batch: *mut WriteBatch);
    pub fn leveldb_writebatch_clear(batch: *mut WriteBatch);
    pub fn leveldb_writebatch_put(
        batch: *mut WriteBatch,
        key: *const u8,
        key_len: usize,
        value: *const u8,
        value_len: usize,
    );
    pub fn leveldb_writebatch_delete(batch: *mut WriteBatch, key: *const u8, key_len: usize);
    pub fn leveldb_write(
        db: *mut Db,
        options: *const WriteOpts,
        batch: *mut WriteBatch,
        error: *mut *mut c_char,
    );
    pub fn leveldb_delete(
        db: *mut Db,
        options: *const WriteOpts,
        key: *const u8,
        key_len: usize,
        error: *mut *mut c_char,
    );
    pub fn leveldb_create_snapshot(db: *mut Db) -> *const Snapshot;
    pub fn leveldb_release_snapshot(db: *mut Db, snapshot: *const Snapshot);
    pub fn leveldb_create_iterator(db: *mut Db, options: *const ReadOpts) -> *mut Iter;
    pub fn leveldb_property_value(db: *mut Db, name: *const c_char) -> *mut c_char;
    pub fn leveldb_compact_range(
        db: *mut Db,
        start: *const u8,
        start_len: usize,
        limit: *const u8,
        limit_len: usize,
    );
    pub fn leveldb_iter_destroy(iter: *mut Iter);
    pub fn leveldb_iter_valid(iter: *const Iter) -> c_uchar;
    pub fn leveldb_iter_seek_to_first(iter: *mut Iter);
    pub fn leveldb_iter_seek_to_last(iter: *mut Iter);
    pub fn leveldb_iter_seek(iter: *mut Iter, key: *const u8, key_len: usize);
    pub fn leveldb_iter_next(iter: *mut Iter);
    pub fn leveldb_iter_key(iter: *const Iter, len: *mut usize) -> *const u8;
    pub fn leveldb_iter_value(iter: *const Iter, len: *mut usize) -> *const u8;
    pub fn leveldb_iter_get_error(iter: *const Iter, error: *mut *mut c_char);
    pub fn leveldb_options_create() -> *mut Opts;
    pub fn leveldb_options_destroy(options: *mut Opts);
    pub fn leveldb_options_set_create_if_missing(options: *mut Opts, on: c_uchar);
    pub fn leveldb_options_set_filter_policy(options: *mut Opts, policy: *mut Filter);
    pub fn leveldb_options_set_write_buffer_size(options: *mut Opts, bytes: usize);
    pub fn leveldb_options_set_block_size(options: *mut Opts, bytes: usize);
    pub fn leveldb_options_set_max_open_files(options: *mut Opts, files: c_int);
    pub fn leveldb_options_set_cache(options: *mut Opts, cache: *mut Cache);
    pub fn leveldb_options_set_max_file_size(options: *mut Opts, bytes: usize);
    pub fn leveldb_options_set_compression(options: *mut Opts, kind: c_int);
    pub fn leveldb_filterpolicy_create_bloom(bits_per_key: c_int) -> *mut Filter;
    pub fn leveldb_filterpolicy_destroy(filter: *mut Filter);
    pub fn leveldb_cache_create_lru(bytes: usize) -> *mut Cache;
    pub fn leveldb_cache_destroy(cache: *mut Cache);
    pub fn leveldb_readoptions_create() -> *mut ReadOpts;
    pub fn leveldb_readoptions_destroy(options: *mut ReadOpts);
    pub fn leveldb_writeoptions_create() -> *mut WriteOpts;
    pub fn leveldb_writeoptions_destroy(options: *mut WriteOpts);
    pub fn leveldb_writeoptions_set_sync(options: *mut WriteOpts, on: c_uchar);
    pub fn leveldb_free(pointer: *mut c_void);
    pub fn leveldb_major_version() -> c_int;
    pub fn leveldb_minor_version() -> c_int;
}
