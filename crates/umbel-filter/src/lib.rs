//! Filters that say "surely not here" in a few nanoseconds, and the keyed hash under them.
//!
//! A key is hashed once, with [`hash_key`], and the 64 bits that come out are all that any filter
//! is given: the memtable's [`ConcurrentBloom`], the [`BloomBuilder`] of a table, the pinned
//! [`Bloom`] and the borrowed [`BloomView`] of its bytes. All of them are one layout, a Bloom
//! filter cut into lines of 512 bits, the size of a cache line: a key sets and asks bits in one
//! line only, so that a lookup costs one cache miss however large the filter is.
//!
//! Beside that layout stand others, for other uses: [`FilterBuilder`] builds blocks of 256 bits,
//! the textbook's Bloom filter (with [`formulas`]), Apache Parquet's split blocks and counters that
//! keys can be removed from ([`CountingBloom`]), from bits per key or a false positive rate.
//! [`FilterView`] asks a filter of any kind where its bytes lie, one hash or many at once, joins
//! and folds them, and says how good they are; [`Filter`] keeps the bytes aligned. Filters of
//! LevelDB and of Parquet are read and written by [`from_leveldb`] and [`from_parquet`] and their
//! opposites.
//!
//! The bytes are described in `docs/formats/filter.md`.
//!
//! It needs `std`: sizes and rates take logarithms, which `core` has none of, and what the
//! processor can do is asked by a macro of `std`.
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
#![deny(unsafe_code)]

mod algorithms;
mod ask;
mod blocked_256;
mod blocked_512;
mod bloom;
mod bloom_probe;
mod build_error;
mod builder;
mod combine;
mod concurrent;
mod counters;
mod counting;
mod counting_bloom;
mod designed;
mod double;
mod encoding;
mod filter;
mod filter_builder;
mod filter_file;
mod filter_view;
pub mod formulas;
mod fuse;
pub mod guide;
mod hash;
mod hash_domain;
mod hash_kind;
mod header;
mod key_hasher;
mod kind;
mod layout;
mod leveldb;
mod line;
mod options;
mod parquet;
mod plan;
mod prefix;
mod probing;
mod rate;
mod ribbon;
mod scatter;
mod simd;
mod siphash;
mod size;
mod split_block;
mod split_lanes;
mod standard;
mod standard_rate;
mod static_ask;
mod static_header;
mod statics;
mod thrift;
mod view;
mod widened;

pub use bloom::Bloom;
pub use bloom_probe::BloomProbe;
pub use build_error::BuildError;
pub use builder::BloomBuilder;
pub use combine::CombineError;
pub use concurrent::ConcurrentBloom;
pub use counting_bloom::CountingBloom;
pub use encoding::{FilterError, HEADER_BYTES};
pub use filter::Filter;
pub use filter_builder::FilterBuilder;
pub use filter_file::{FileError, FilterFile};
pub use filter_view::FilterView;
pub use fuse::{CannotPeel, FuseArity, FuseBuilder, FuseView};
pub use hash::{HashSecret, KEYED_HASH_KIND, hash_key};
pub use hash_domain::HashDomain;
pub use hash_kind::{HashError, HashKind};
pub use header::MAX_FILTER_BITS;
pub use key_hasher::{KeyHasher, hash_with};
pub use kind::FilterKind;
pub use leveldb::{LEVELDB_SEED, from_leveldb, to_leveldb};
pub use line::MAX_PROBES;
pub use options::FilterOptions;
pub use parquet::{PARQUET_HASH_KIND, ParquetError, from_parquet, to_parquet};
pub use plan::FilterPlan;
pub use prefix::{
    BrokenLaw, KeyPrefix, MAX_EXTRACTOR_NAME_BYTES, ParsedPrefix, PrefixExtractor,
    PrefixFilterBuilder, PrefixFilterView, PrefixHasher, PrefixRuleError, check_laws,
};
pub use probing::Probing;
pub use rate::{MAX_BITS_PER_KEY, designed_rate, line_count, probes, rate_in_cells};
pub use ribbon::{RibbonBuilder, RibbonView};
pub use simd::{ByLine, InstructionSet, LineLanes};
pub use size::FilterSize;
pub use view::{BloomView, Parsed};
pub use widened::widen_hash;
