//! The tests of table files from outside: against a model, against damage, and their bytes.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod blob_pointers;
mod block_cache;
mod damage;
mod fixture;
mod format_example;
mod io_errors;
mod model;
