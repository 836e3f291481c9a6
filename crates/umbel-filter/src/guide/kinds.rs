//! 2. Choice of a kind.
//!
//! | kind | bits for 1 % | a probe touches | can be added to | take it for |
//! |---|---|---|---|---|
//! | [`Blocked512`] | 9.9 | one cache line | yes | most things: the default |
//! | [`Blocked256`] | 10.2 | half a line | yes | rates above 3 %, in cache |
//! | [`SplitBlock`] | 10.5 | half a line | yes | Parquet; the fastest to build and probe |
//! | [`Standard`] | 9.6 | a line for each probe | yes | exchange, small filters, the textbook |
//! | [`BinaryFuse`] | 7.9 at 0.8 % | three lines | no | what lives longer than minutes |
//! | [`Ribbon`] | 6.9 | one or two lines | no | when memory is tight, any rate |
//! | [`Counting`] | 38 | a line for each probe | and removed from | sets with deletes |
//!
//! In short: use **blocked** filters while keys are still added, **fuse** once all keys are known,
//! **ribbon** if memory matters more than time, and **split blocks** to exchange filters with
//! Parquet. Use **counting** filters only if keys are removed, and the **standard** filter if
//! another program's formula or bytes require it.
//!
//! # Blocked
//!
//! The first bits of the hash choose a line of 512 bits, one cache line, and all bits of the key
//! are in that line. So a probe has one cache miss, where the standard filter has one for each bit
//! of the key.
//!
//! ```text
//!     hash ──► line 3
//!     ┌────────┬────────┬────────┬────────┬────────┬───
//!     │ line 0 │ line 1 │ line 2 │ line 3 │ line 4 │ …
//!     └────────┴────────┴────────┴──┬─────┴────────┴───
//!                                   ▼
//!          · · x · · · · x · · · · · · · x · · · · x ·     512 bits, six of them the key's
//! ```
//!
//! The price is that some lines get more keys than others, and these lines pass more absent keys.
//! At a rate of 1 % a filter so takes 3 % more bits than the standard filter, at 0.1 % 8 % more.
//! Blocks of 256 bits take about twice as many additional bits. After Putze, Sanders and Singler
//! (2007).
//!
//! # Split blocks
//!
//! A block of 256 bits is eight words of 32 bits, and a key has one bit in each word. A probe takes
//! eight multiplications and one comparison of vector registers. Apache Parquet uses such filters.
//! For each key eight bits are set, too many for filters with less than ten bits a key, and too few
//! for much larger ones.
//!
//! ```text
//!     ┌──────────┬──────────┬──────────┬──────────┬─── eight words ───┐
//!     │ ···x···· │ x······· │ ······x· │ ··x····· │  …                │   one bit in each
//!     └──────────┴──────────┴──────────┴──────────┴───────────────────┘
//! ```
//!
//! # Binary fuse
//!
//! Every key has a fingerprint of `b` bits and one slot in each of three adjacent segments of a
//! long array. The slots are filled so that the three slots of a key, combined by exclusive or,
//! *are* its fingerprint. An absent key's three slots combine to its fingerprint with the chance
//! `2^-b`.
//!
//! ```text
//!     segments   │ 0     │ 1     │ 2     │ 3     │ 4     │ …
//!     key        │       │ ··s·· │ s···· │ ···s· │       │      s ^ s ^ s = its fingerprint
//! ```
//!
//! The array takes 1.125 · `b` bits for each key, and can only be solved once all keys are known.
//! Small filters take more: 1.28 · `b` bits at ten thousand keys. After Graf and Lemire (2022).
//!
//! # Ribbon
//!
//! In a ribbon filter each key is an equation over a window of 64 adjacent slots. The system, which
//! has ones only in a band along its diagonal, is solved part by part. Blocks can have different
//! numbers of columns, so that any rate can be requested, not only powers of a half. A probe
//! multiplies 64 bits by each column:
//!
//! ```text
//!     key a    x x · x · · x
//!     key b        x · x x · · x               the band: windows that begin where
//!     key c          x x · · x · x             the hash says
//!     key d              x · x · x x
//! ```
//!
//! A ribbon filter's size is within a twentieth of the theoretical minimum. Probes of a ribbon
//! filter are several times slower than those of a fuse filter. After Dillinger,
//! Hübschle-Schneider, Sanders and Walzer (2022).
//!
//! # One by one, or many at once
//!
//! A probe of a cached filter takes two to ten nanoseconds, and a probe of an uncached filter a
//! cache miss. Use [`contains_batch`] for many keys: it prefetches the memory of dozens of keys
//! before it reads that of the first. A batch takes a half to a fifth of the time of single probes,
//! which overlap only as far as the processor looks ahead. `cargo xtask filters` measures probes of
//! this and other crates; results are in `docs/lab`.
//!
//! [`contains_batch`]: crate::FilterView::contains_batch
//!
//! # Counting
//!
//! A counting filter is the standard filter with a counter of four bits in place of each bit.
//! Adding a key increments its counters, removing it decrements them. A counter that reaches 15
//! stays at 15, so that no removal makes the filter deny another key. Remove only added keys: after
//! any other removal the filter can deny a present key.
//!
//! [`Blocked512`]: crate::FilterKind::Blocked512
//! [`Blocked256`]: crate::FilterKind::Blocked256
//! [`SplitBlock`]: crate::FilterKind::SplitBlock
//! [`Standard`]: crate::FilterKind::Standard
//! [`BinaryFuse`]: crate::FilterKind::BinaryFuse
//! [`Ribbon`]: crate::FilterKind::Ribbon
//! [`Counting`]: crate::FilterKind::Counting
