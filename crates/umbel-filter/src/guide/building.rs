//! 5. Building a filter for an unknown number of keys; folding, joining, files, batches.
//!
//! # How many keys?
//!
//! [`FilterBuilder`](crate::FilterBuilder) keeps the hashes, eight bytes each, and builds the
//! filter at the end, in exactly the right size. A `FilterBuilder` suits a table of sorted keys,
//! and is the only way for [static kinds](crate::FilterKind::is_static).
//!
//! If keys must be found while more are added, use a blocked filter that is large enough for the
//! maximum. **Fold** the filter once all keys are added: adjacent lines are combined by OR. The
//! result is bit for bit the filter of the smaller size, because the high bits of the hash choose a
//! line.
//!
//! ```text
//!     twelve lines    a  b  c │ d  e  f │ g  h  i │ j  k  l
//!     folded by 3     a|b|c     d|e|f     g|h|i     j|k|l        the same keys, a third as large
//! ```
//!
//! A filter can be folded by every divisor of its number of lines, and repeatedly. So a filter can
//! shrink without its keys.
//!
//! # Two sets
//!
//! Filters of one kind, size and hash combine. The union of two filters has the keys of both, and
//! is the filter built of all these keys. The intersection has all keys that are in both filters,
//! but passes more absent keys than a filter built of the common keys. Static kinds support
//! neither.
//!
//! # Bytes
//!
//! An encoded filter is 64 bytes of header and its payload, the same on every platform.
//! [`FilterView`](crate::FilterView) probes these bytes in place, mapped or received, without
//! copying or aligning. [`Filter`](crate::Filter) copies them so that no block spans two cache
//! lines. A filter of an unknown kind, version or hash answers "maybe" to every key; detected
//! damage is an error. A filter has no checksum: its owner stores one, or uses
//! [`FilterFile`](crate::FilterFile).
//!
//! # Many questions
//!
//! A probe of a filter larger than the caches waits for memory, a hundred nanoseconds or more.
//! [`contains_batch`](crate::FilterView::contains_batch) prefetches the memory of many keys before
//! it reads the first, so that the misses overlap:
//!
//! ```
//! use umbel_filter::{FilterBuilder, FilterOptions, FilterView};
//!
//! let mut builder = FilterBuilder::new(FilterOptions::default())?;
//! (0..10_000u64).for_each(|number| builder.add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
//! let bytes = builder.finish()?;
//! let filter = FilterView::parse(&bytes)?;
//!
//! let hashes: Vec<u64> = (0..100u64).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
//! let mut found = vec![false; hashes.len()];
//! filter.contains_batch(&hashes, &mut found);
//! assert!(found.iter().all(|found| *found));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
