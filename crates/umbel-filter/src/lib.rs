//! Filters that say "surely not here" in a few nanoseconds, and the keyed hash under them.
//!
//! A key is hashed once, with [`hash_key`], and the 64 bits that come out are all that any filter
//! is given: the memtable's [`ConcurrentBloom`], the [`BloomBuilder`] of a table, the pinned
//! [`Bloom`] and the borrowed [`BloomView`] of its bytes. All of them are one layout, a Bloom
//! filter cut into lines of 512 bits, the size of a cache line: a key sets and asks bits in one
//! line only, so that a lookup costs one cache miss however large the filter is.
//!
//! The bytes are described in `docs/formats/filter.md`.
//!
//! INVARIANT: a filter never says no to a hash that was added to it. Every doubt (no filter, an
//! unknown kind, a line that is not there) is answered with "maybe".
//!
//! ```
//! use umbel_filter::{Bloom, BloomBuilder, HashSecret, hash_key};
//!
//! let secret = HashSecret::from_seed(*b"sixteen  octets!");
//! let mut builder = BloomBuilder::new(10);
//! builder.add(hash_key(&secret, b"basil"));
//! let bloom = Bloom::decode(&builder.finish())?;
//! assert!(bloom.may_contain(hash_key(&secret, b"basil")));
//! assert!(!bloom.may_contain(hash_key(&secret, b"thyme")));
//! # Ok::<(), umbel_filter::FilterError>(())
//! ```
#![forbid(unsafe_code)]

mod bloom;
mod builder;
mod concurrent;
mod encoding;
mod fuse;
mod hash;
mod line;
mod rate;
mod ribbon;
mod scatter;
mod siphash;
mod static_header;
mod view;

pub use bloom::Bloom;
pub use builder::BloomBuilder;
pub use concurrent::ConcurrentBloom;
pub use encoding::{FilterError, HEADER_BYTES};
pub use fuse::{CannotPeel, FuseArity, FuseBuilder, FuseView};
pub use hash::{HashSecret, KEYED_HASH_KIND, hash_key};
pub use line::MAX_PROBES;
pub use rate::{MAX_BITS_PER_KEY, designed_rate, line_count, probes};
pub use ribbon::{RibbonBuilder, RibbonView};
pub use view::{BloomView, Parsed};
