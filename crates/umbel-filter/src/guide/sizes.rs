//! 3. Sizes: computing one of keys, rate and memory from the other two; the formulas and their
//!    traps.
//!
//! On this page, `n` is the number of keys, `m` the number of bits, `k` the number of probes, `p`
//! the false positive rate.
//!
//! # Plans
//!
//! [`FilterPlan`](crate::FilterPlan) computes the size and rate of a filter of any kind, by the
//! exact rate of its kind:
//!
//! ```
//! use umbel_filter::{FilterKind, FilterOptions, FilterPlan, FilterSize};
//!
//! let plan = |kind, size| {
//!     let options = FilterOptions { kind, size, ..FilterOptions::default() };
//!     FilterPlan::of(&options, 1_000_000)
//! };
//! let bits = |plan: FilterPlan| plan.bytes as f64 * 8.0 / 1e6;
//! // Size for 1 %:
//! let blocked = plan(FilterKind::Blocked512, FilterSize::Rate(0.01))?;
//! assert!((9.8..10.0).contains(&bits(blocked)));
//! let ribbon = plan(FilterKind::Ribbon, FilterSize::Rate(0.01))?;
//! assert!(bits(ribbon) < 7.2);
//! // Rate of ten bits a key:
//! let standard = plan(FilterKind::Standard, FilterSize::BitsPerKey(10.0))?;
//! assert!((0.0081..0.0083).contains(&standard.designed_rate));
//! # Ok::<(), umbel_filter::BuildError>(())
//! ```
//!
//! # The textbook
//!
//! Formulas of the standard filter ([`bloom_formulas`](crate::bloom_formulas) has them as
//! functions):
//!
//! ```text
//!     p = (1 − e^(−k·n/m))^k          the rate
//!     k = m/n · ln 2                  the best number of probes: half of all bits are then set
//!     m = −n · ln p / (ln 2)²         the bits for a rate: 1.44 for each halving, and key
//!     n = m / (−k / ln(1 − p^(1/k)))  the keys that fit
//!     n ≈ −m/k · ln(1 − X/m)          the keys, estimated from X set bits
//! ```
//!
//! ```
//! use umbel_filter::bloom_formulas;
//!
//! let bits = bloom_formulas::bits(1_000_000, 0.01);
//! assert_eq!((bits, bloom_formulas::probes(bits, 1_000_000)), (9_585_059, 7));
//! ```
//!
//! # The traps
//!
//! - **`k` is a whole number.** Rounding `k` costs little; truncating `k` costs more. LevelDB's
//!   `floor(0.69 · bits)` is 6 at ten bits a key: 0.844 % where seven probes have 0.819 %.
//! - **The textbook's `k` is wrong for blocks.** With many probes, a block with too many keys is
//!   overfull. At ten bits a key 6 probes are best for lines of 512 bits. At sixteen bits a key 9
//!   are best, where the formula says 11.
//! - **The textbook's `p` is wrong for blocks**, and for few bits. With 512 bits a block and ten
//!   bits a key the formula gives 0.82 %, but the rate is 0.97 %.
//!   [`designed_rate`](crate::designed_rate) counts how unevenly keys fall, exactly.
//! - **A hash has a width.** Two keys with the same hash are one key to a filter: with `b` bits of
//!   hash no rate is below `n / 2^b`. With 32 bits and 30 million keys a filter of any size has a
//!   rate of at least 0.7 %.
//! - **Double hashing degenerates.** Double hashing with two halves of 32 bits as start and step
//!   repeats positions: see [`Probing::LevelDb`](crate::Probing::LevelDb). Enhanced double hashing
//!   is no better if its increments never reach the bits that choose positions.
//! - **The remainder is a bad choice of a position.** `hash % m` prefers small positions if `m` is
//!   near the range of the hash, and needs a division. The high half of the product `hash * m` has
//!   neither drawback.
//! - **Bits that are used twice are not two bits.** If a hash's top bits chose the shard, all keys
//!   of the shard have the same top bits. A filter that uses these bits again puts all keys into a
//!   few lines, and 99.99 % of absent keys pass. [`HashDomain`](crate::HashDomain) mixes hashes
//!   again for each use.
//! - **A filter that grew past its plan degrades fast.** Twice the keys turn 1 % into 16 %. Monitor
//!   [`estimated_rate`](crate::FilterView::estimated_rate), which is computed from the set bits,
//!   not from the plan.
