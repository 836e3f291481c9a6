//! The tests of table files from outside: against a model, against damage, and their bytes.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "suite/blobs.rs"]
mod blobs;
#[path = "suite/cache.rs"]
mod cache;
#[path = "suite/damage.rs"]
mod damage;
#[path = "suite/faults.rs"]
mod faults;
#[path = "suite/format.rs"]
mod format;
#[path = "suite/memory.rs"]
mod memory;
#[path = "suite/model.rs"]
mod model;
#[path = "suite/world.rs"]
mod world;
