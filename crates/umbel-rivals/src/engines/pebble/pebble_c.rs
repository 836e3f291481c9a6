//! Declarations of the C interface to Pebble, whose other half is written in Go.

use std::ffi::c_char;

unsafe extern "C" {
    pub fn umbel_pebble_open(
        folder: *const c_char,
        cache_bytes: u64,
        memtable_bytes: u64,
        bloom_bits: i32,
        failure: *mut *mut c_char,
    ) -> i32;
    pub fn umbel_pebble_close(store: i32, failure: *mut *mut c_char) -> i32;
    pub fn umbel_pebble_write(
        store: i32,
        key: *const u8,
        key_len: usize,
        value: *const u8,
        value_len: usize,
        synced: i32,
        failure: *mut *mut c_char,
    ) -> i32;
    pub fn umbel_pebble_write_batch(
        store: i32,
        writes: *const u8,
        len: usize,
        failure: *mut *mut c_char,
    ) -> i32;
    pub fn umbel_pebble_get(
        store: i32,
        key: *const u8,
        key_len: usize,
        buffer: *mut u8,
        capacity: usize,
        len: *mut usize,
        failure: *mut *mut c_char,
    ) -> i32;
    pub fn umbel_pebble_seek(
        store: i32,
        key: *const u8,
        key_len: usize,
        entries: u64,
        buffer: *mut u8,
        capacity: usize,
        used: *mut usize,
        failure: *mut *mut c_char,
    ) -> i64;
    pub fn umbel_pebble_iterator(store: i32, failure: *mut *mut c_char) -> i32;
    pub fn umbel_pebble_iterator_close(iterator: i32, failure: *mut *mut c_char) -> i32;
    pub fn umbel_pebble_find(
        iterator: i32,
        key: *const u8,
        key_len: usize,
        buffer: *mut u8,
        capacity: usize,
        len: *mut usize,
        failure: *mut *mut c_char,
    ) -> i32;
    pub fn umbel_pebble_walk(
        iterator: i32,
        key: *const u8,
        key_len: usize,
        entries: u64,
        buffer: *mut u8,
        capacity: usize,
        used: *mut usize,
        failure: *mut *mut c_char,
    ) -> i64;
    pub fn umbel_pebble_flush(store: i32, failure: *mut *mut c_char) -> i32;
    pub fn umbel_pebble_compact(store: i32, failure: *mut *mut c_char) -> i32;
    pub fn umbel_pebble_snapshot(store: i32, hold: i32, failure: *mut *mut c_char) -> i32;
    pub fn umbel_pebble_metrics(store: i32, figures: *mut u64);
    pub fn umbel_pebble_settings(
        cache_bytes: u64,
        memtable_bytes: u64,
        bloom_bits: i32,
    ) -> *mut c_char;
    pub fn umbel_pebble_version() -> *mut c_char;
    pub fn umbel_pebble_free(text: *mut c_char);
}
