//! Was this key ever written? [`ExistenceFilter`] answers "no" or "maybe" for a whole store, by
//! reading one cache line. Every "no" is right, also after any crash.
//!
//! Callers pass the 64-bit hash of a key. The filter is in memory; flushes append new hashes to a
//! journal, and at intervals the whole filter is written to a new file. By default the filter grows
//! with the store. For lost or damaged parts the filter answers "maybe" until they are rebuilt, a
//! step at a time, from a [`HashSource`] that returns every existing hash.
//!
//! **A "no" for a key that exists is data loss.** So the user of a filter must ensure the
//! following:
//!
//! 1. The user first puts a key where the source finds it, then inserts the key's hash, then
//!    publishes the key to readers.
//! 2. A flush names a position in the user's own log: all keys up to it are durable in that log and
//!    were inserted. If copies of a store can diverge, a flush also names the history of the
//!    position ([`Coverage`]), which the next open compares.
//! 3. After an open, the log's keys after [`ExistenceFilter::covered`] are inserted again before
//!    any reader probes.
//! 4. A thread calls [`ExistenceFilter::step`] repeatedly.
//!
//! ```
//! use umbel_env::Env;
//! use umbel_existence::{ExistenceFilter, ExistenceOptions, StepProgress, HashSource};
//!
//! struct Keys(Vec<u64>);
//!
//! impl HashSource for Keys {
//!     fn hashes(
//!         &self,
//!         _after: Option<&[u8]>,
//!         _most: usize,
//!         output: &mut Vec<u64>,
//!     ) -> umbel_base::Result<Option<Vec<u8>>> {
//!         output.extend(&self.0);
//!         Ok(None)
//!     }
//! }
//!
//! let folder = tempfile::tempdir()?;
//! let options = ExistenceOptions::default();
//! let filter = ExistenceFilter::open(&Env::system(), folder.path(), options)?;
//! let mut keys = Keys(vec![0x5eed]);
//! // Nothing is known at first, so everything may be there.
//! assert!(filter.may_contain(0xfade));
//! while filter.step(&keys)? != StepProgress::Idle {}
//! assert!(filter.may_contain(0x5eed) && !filter.may_contain(0xfade));
//!
//! keys.0.push(0xfade);
//! filter.insert(0xfade);
//! assert!(filter.may_contain(0xfade));
//! filter.flush(7)?;
//!
//! let again = ExistenceFilter::open(&Env::system(), folder.path(), options)?;
//! assert_eq!(again.covered(), 7);
//! assert!(again.may_contain(0xfade) && !again.may_contain(0xabba));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod background_rebuild;
mod existence_filter;
mod existence_reader;
mod layout;
mod log_coverage;
mod maintenance_counters;
mod memory;
mod options;
mod persistence;
mod probe_counters;
mod rebuild_source;
mod stats;

pub use crate::layout::filter_sizing::false_positive_rate;
pub use existence_filter::ExistenceFilter;
pub use existence_reader::ExistenceReader;
pub use log_coverage::Coverage;
pub use options::{ExistenceOptions, ExistenceSize};
pub use rebuild_source::{HashSource, StepProgress};
pub use stats::ExistenceStats;
