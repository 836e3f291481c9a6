//! Tests of the memtable through its public API: model, concurrent writer, filter and tombstones.
#![cfg(not(loom))]

#[cfg(test)]
mod concurrent_readers;
#[cfg(test)]
mod filter_and_accounting;
#[cfg(test)]
mod memory_usage;
#[cfg(test)]
mod model;
#[cfg(test)]
mod range_tombstones;
#[cfg(test)]
mod test_keys;
