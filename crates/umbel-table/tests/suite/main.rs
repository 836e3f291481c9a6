//! Tests of table files through the public API: against a model, with damage, and of their bytes.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod blob_pointers;
mod block_cache;
mod damage;
mod fixture;
mod format_example;
mod io_errors;
mod model;
