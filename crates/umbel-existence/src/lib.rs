//! Was this key ever written? [`ExistenceFilter`] answers "no" or "maybe" for a whole store, from
//! one cache line, and is right about every "no" after every crash.
//!
//! A key is given by its 64-bit hash. The filter lies in memory; flushes append new hashes to a
//! journal, and now and then the whole filter is written to a new file. By default it grows with
//! the store. Whatever is lost or damaged on disk is answered "maybe" until it was made anew, a
//! step at a time, from a [`Source`] that hands out every hash there is.
//!
//! **A "no" for a key that exists is data loss.** So the user of a filter owes it this:
//!
//! 1. A key is put where the source finds it, then inserted, then told to others.
//! 2. A flush names a position in the user's own log: everything up to it is durable in that log,
//!    and was inserted. Where copies of a store can go on apart it also names the history that the
//!    position belongs to ([`Covered`]), and the open compares that.
//! 3. After an open, what the log has behind [`ExistenceFilter::covered`] is inserted again before
//!    anybody asks.
//! 4. Somebody calls [`ExistenceFilter::step`] again and again.
//!
//! ```
//! use umbel_env::Env;
//! use umbel_existence::{ExistenceFilter, ExistenceOptions, Progress, Source};
//!
//! struct Keys(Vec<u64>);
//!
//! impl Source for Keys {
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
//! while filter.step(&keys)? != Progress::Idle {}
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

mod asking;
mod background;
mod checkpoint;
mod counters;
mod covered;
mod filter;
mod folder;
mod generation;
mod journal;
mod line;
mod lines;
mod memory;
mod options;
mod page;
mod prefetcher;
mod recover;
mod shape;
mod source;
mod stats;
mod stored;
mod tally;
mod unread;
mod waiting;
mod writer;

pub use covered::Covered;
pub use filter::{ExistenceFilter, ExistenceReader};
pub use options::{ExistenceOptions, Size};
pub use shape::rate;
pub use source::{Progress, Source};
pub use stats::ExistenceStats;
