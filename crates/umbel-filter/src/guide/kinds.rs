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
//! In short: **blocked** while keys still arrive, **fuse** once they no longer do, **ribbon**
//! when memory matters more than time, **split blocks** to exchange with Parquet, **counting** only
//! where keys are removed, and the **standard** filter where another program's formula or bytes
//! require it.
//!
//! # Blocked
//!
//! The first bits of the hash choose a line of 512 bits, one cache line, and all probes stay in it:
//! one cache miss, where the standard filter has one for each probe.
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
//! The price: keys fall unevenly on lines, as raindrops on tiles, and the
//! crowded ones pass more absent keys. At 1 % that costs 3 % more bits than the standard filter, at
//! 0.1 % 8 %; in blocks of 256 bits about twice as much. After Putze, Sanders and Singler (2007).
//!
//! # Split blocks
//!
//! A block of 256 bits is eight words of 32, and a key has one bit in each: eight multiplications
//! and one comparison of vector registers. This is the filter of Apache Parquet. Eight bits a key
//! are too many below ten bits a key and too few far above.
//!
//! ```text
//!     ┌──────────┬──────────┬──────────┬──────────┬─── eight words ───┐
//!     │ ···x···· │ x······· │ ······x· │ ··x····· │  …                │   one bit in each
//!     └──────────┴──────────┴──────────┴──────────┴───────────────────┘
//! ```
//!
//! # Binary fuse
//!
//! No bits are set. Every key has a fingerprint of `b` bits and one slot in each of three
//! neighbouring segments of a long array. The slots are filled so that the three of a key, combined
//! by exclusive or, *are* its fingerprint. An absent key's three slots give its fingerprint by
//! chance: `2^-b`.
//!
//! ```text
//!     segments   │ 0     │ 1     │ 2     │ 3     │ 4     │ …
//!     key        │       │ ··s·· │ s···· │ ···s· │       │      s ^ s ^ s = its fingerprint
//! ```
//!
//! 1.125 · `b` bits for each key, and the array can only be solved once all keys are known. In
//! small filters it needs more: 1.28 · `b` at ten thousand keys. After Graf and Lemire (2022).
//!
//! # Ribbon
//!
//! Each key is an equation over a window of 64 neighbouring slots. The system, which has ones only
//! in a band along its diagonal, is solved part by part. Columns may be mixed, so that any rate can
//! be requested, not only powers of a half. A probe multiplies 64 bits by each column:
//!
//! ```text
//!     key a    x x · x · · x
//!     key b        x · x x · · x               the band: windows that begin where
//!     key c          x x · · x · x             the hash says
//!     key d              x · x · x x
//! ```
//!
//! Within a twentieth of the theoretical minimum, and several times slower than a fuse filter to
//! probe. After Dillinger, Hübschle-Schneider, Sanders and Walzer (2022).
//!
//! # One by one, or many at once
//!
//! A filter that a cache holds answers in two to ten nanoseconds; one that no cache holds in the
//! time of a cache miss. Use [`contains_batch`] where there are many keys: it prefetches the memory
//! of dozens before it reads that of the first, and takes a half to a fifth of the time. Single
//! probes overlap only as far as the processor looks ahead. `cargo xtask filters`
//! measures it, together with other crates; results are in `docs/lab`.
//!
//! [`contains_batch`]: crate::FilterView::contains_batch
//!
//! # Counting
//!
//! The standard filter with a counter of four bits in place of each bit: adding counts up, removing
//! counts down. A counter that reaches 15 stays there, so that no removal takes another key's.
//! Remove only added keys: any other removal may deny a present key.
//!
//! [`Blocked512`]: crate::FilterKind::Blocked512
//! [`Blocked256`]: crate::FilterKind::Blocked256
//! [`SplitBlock`]: crate::FilterKind::SplitBlock
//! [`Standard`]: crate::FilterKind::Standard
//! [`BinaryFuse`]: crate::FilterKind::BinaryFuse
//! [`Ribbon`]: crate::FilterKind::Ribbon
//! [`Counting`]: crate::FilterKind::Counting
