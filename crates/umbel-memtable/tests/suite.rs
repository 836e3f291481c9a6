//! The memtable from outside: against a model, beside a writer, its filter and its tombstones.
#![cfg(not(loom))]

#[path = "suite/beside_a_writer.rs"]
mod beside_a_writer;
#[path = "suite/keys.rs"]
mod keys;
#[path = "suite/model.rs"]
mod model;
#[path = "suite/parts.rs"]
mod parts;
