//! The memtable from outside: against a model, beside a writer, its filter and its tombstones.
#![cfg(not(loom))]

#[cfg(test)]
#[path = "suite/beside_a_writer.rs"]
mod beside_a_writer;
#[cfg(test)]
#[path = "suite/keys.rs"]
mod keys;
#[cfg(test)]
#[path = "suite/memory.rs"]
mod memory;
#[cfg(test)]
#[path = "suite/model.rs"]
mod model;
#[cfg(test)]
#[path = "suite/parts.rs"]
mod parts;
#[cfg(test)]
#[path = "suite/ranges.rs"]
mod ranges;
