//! Filters that answer "surely absent" in a few nanoseconds, and the keyed hash on which they are
//! based.
//!
//! A caller hashes a key once, with [`hash_key`], and every filter takes only the 64-bit hash. Such
//! filters are the memtable's [`ConcurrentBloom`], a table's [`BloomBuilder`], the [`Bloom`] in
//! memory and the [`BloomView`] of encoded bytes. These four types share one layout, a Bloom filter
//! of lines of 512 bits, the size of a cache line. All bits of a key are in one line, so that a
//! probe of a filter of any size costs one cache miss.
//!
//! There are other layouts for other uses. [`FilterBuilder`] builds blocks of 256 bits, the
//! textbook's Bloom filter (with [`bloom_formulas`]), Apache Parquet's split blocks and counters
//! that permit removals ([`CountingBloom`]), from bits per key or a false positive rate.
//! [`FilterView`] probes a filter of any kind in place, one hash or a batch, combines and folds
//! filters, and estimates their rate; [`Filter`] keeps the bytes aligned. Filters of LevelDB and of
//! Parquet are read and written by [`from_leveldb`] and [`from_parquet`] and their inverses.
//!
//! `docs/formats/filter.md` describes the bytes of filters.
//!
//! The crate needs `std`: sizes and rates take logarithms, which `core` lacks, and a macro of `std`
//! detects the processor's instructions.
//!
//! INVARIANT: a filter never answers "no" for a hash that was added to it. In every doubtful case
//! (no filter, an unknown kind, a missing line) it answers "maybe".
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

mod blocked_bloom;
mod bloom_variants;
mod build;
mod filter;
mod format;
mod fuse;
mod hash;
mod interop;
mod prefix;
mod probe;
mod radix_partition;
mod rate;
mod ribbon;
mod simd;

pub mod bloom_formulas;
pub mod guide;

pub use crate::blocked_bloom::bloom_builder::BloomBuilder;
pub use crate::blocked_bloom::bloom_filter::Bloom;
pub use crate::blocked_bloom::bloom_probe::BloomProbe;
pub use crate::blocked_bloom::bloom_view::{BloomView, ParsedBloom};
pub use crate::blocked_bloom::concurrent_bloom::ConcurrentBloom;
pub use crate::build::build_error::BuildError;
pub use crate::build::filter_builder::FilterBuilder;
pub use crate::build::filter_options::FilterOptions;
pub use crate::build::filter_plan::FilterPlan;
pub use crate::build::filter_size::FilterSize;
pub use crate::filter::combined_filters::CombineError;
pub use crate::filter::counting_bloom::CountingBloom;
pub use crate::filter::filter_file::{FilterFile, FilterFileError};
pub use crate::filter::filter_view::FilterView;
pub use crate::filter::owned_filter::Filter;
pub use crate::format::bloom_header::{FilterError, HEADER_BYTES};
pub use crate::format::filter_header::MAX_FILTER_BITS;
pub use crate::format::filter_kind::FilterKind;
pub use crate::hash::hash_domain::HashDomain;
pub use crate::hash::hash_kind::{HashError, HashKind};
pub use crate::hash::hash_widening::widen_hash;
pub use crate::hash::key_hasher::{KeyHasher, hash_with};
pub use crate::hash::keyed_hash::{HashSecret, KEYED_HASH_KIND, hash_key};
pub use crate::interop::leveldb_filter::{LEVELDB_SEED, from_leveldb, to_leveldb};
pub use crate::interop::parquet_filter::{
    PARQUET_HASH_KIND, ParquetError, from_parquet, to_parquet,
};
pub use crate::probe::cache_line::MAX_PROBES;
pub use crate::probe::probe_positions::Probing;
pub use crate::rate::blocked_rate::{
    MAX_BITS_PER_KEY, designed_rate, line_count, probes, rate_in_cells,
};
pub use fuse::{FuseArity, FuseBuilder, FuseView, PeelingError};
pub use prefix::{
    KeyPrefix, LawViolation, MAX_EXTRACTOR_NAME_BYTES, ParsedPrefixFilter, PrefixExtractor,
    PrefixFilterBuilder, PrefixFilterView, PrefixHasher, PrefixRuleError, check_laws,
};
pub use ribbon::{RibbonBuilder, RibbonView};
pub use simd::{InstructionSet, LineCode, LineLanes};
