//! 5. Without knowing how many keys come; folding, joining, files, batches.
//!
//! # How many keys?
//!
//! [`FilterBuilder`](crate::FilterBuilder) keeps the hashes, eight bytes each, and builds the
//! filter at the end, in exactly the right size. This suits a table of sorted keys, and is the only
//! way for [static kinds](crate::FilterKind::is_static).
//!
//! Where keys must be found while more arrive, use a blocked filter that is large enough for the
//! maximum. **Fold** it once all keys are there: neighbouring lines combined by OR
//! are bit for bit the filter of the smaller size, because the high bits of the hash choose a
//! line.
//!
//! ```text
//!     twelve lines    a  b  c │ d  e  f │ g  h  i │ j  k  l
//!     folded by 3     a|b|c     d|e|f     g|h|i     j|k|l        the same keys, a third as large
//! ```
//!
//! Folding works by every divisor of the number of lines, and again later: a filter can
//! free memory without its keys.
//!
//! # Two sets
//!
//! Filters of one kind, size and hash combine. Their union has the keys of both and is the filter
//! built of all keys. Their intersection has all keys that are in both, and passes more
//! absent keys than a filter built of these. Static kinds support neither.
//!
//! # Bytes
//!
//! An encoded filter is 64 bytes of header and its payload, the same on every platform.
//! [`FilterView`](crate::FilterView) probes it where it lies, mapped or received, without copying
//! or aligning; [`Filter`](crate::Filter) copies it to where no block lies across two cache lines.
//! A kind, a version or a hash that is not known answers "maybe"; damage is an error where it can
//! be seen. There is no checksum in a filter: its owner has one, or takes
//! [`FilterFile`](crate::FilterFile).
//!
//! # Many questions
//!
//! A filter larger than the caches answers as fast as its memory, after a hundred nanoseconds or
//! more. [`contains_batch`](crate::FilterView::contains_batch) prefetches the memory of many keys
//! before it reads the first, so that the misses overlap:
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
