//! 1. Idea of a filter, its savings and its cost.
//!
//! A filter stands in front of a set of keys and answers one question: *may this key be in the
//! set?* Its "no" is certain. Its "maybe" is not: a small share of absent keys passes
//! as well. More memory lowers that share, the **false positive rate**.
//!
//! ```text
//!                        ┌────────┐  no     nothing to look for: done in nanoseconds
//!     is "thyme" there? ─┤ filter ├──────►
//!                        └───┬────┘
//!                            │ maybe
//!                            ▼
//!                   look where it would be       a search, a disk, a network
//! ```
//!
//! The error has one direction only. A **false negative** is a key that was added and is denied:
//! the key would be lost. No kind of filter here has any, however full it is. Where a filter cannot
//! decide, it answers "maybe". Two things can break that from outside: probing with another hash or
//! seed than at the build, and a flipped bit in bytes without a checksum.
//!
//! # A Bloom filter, worked example
//!
//! The oldest kind, Bloom's of 1970, is an array of bits. A key's hash names a few of them; adding
//! the key sets these, and a key may be there if all of its own are set. Three keys in 24 bits,
//! three bits each:
//!
//! ```text
//!     basil   ·  x  ·  ·  ·  ·  ·  x  ·  ·  ·  ·  ·  ·  ·  ·  ·  x  ·  ·  ·  ·  ·  ·
//!     mint    ·  ·  ·  x  ·  ·  ·  x  ·  ·  ·  ·  ·  ·  x  ·  ·  ·  ·  ·  ·  ·  ·  ·
//!     sage    ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  x  ·  ·  ·  ·  ·  ·  ·  ·  x  ·  ·  x  ·
//!             ──────────────────────────────────────────────────────────────────────
//!     filter  0  1  0  1  0  0  0  1  0  0  1  0  0  0  1  0  0  1  0  1  0  0  1  0
//!
//!     thyme   ·  ·  ?  ·  ·  ·  ·  ·  ·  ·  ?  ·  ·  ·  ·  ·  ·  ·  ·  ?  ·  ·  ·  ·
//!                the first of its bits is 0: thyme is not there
//!     dill    ·  ?  ·  ?  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ·  ?  ·  ·  ·  ·
//!                all three are 1, set by others: a false positive
//! ```
//!
//! # When it pays
//!
//! Probing costs `probe`; a "no" saves `search`. Let a share `absent` of all probes be for absent
//! keys, of which a share `rate` passes. Then a filter saves time where
//!
//! ```text
//!     absent · (1 − rate) · search  >  probe
//! ```
//!
//! A probe takes some nanoseconds, a search in memory a few hundred, one on a disk a hundred
//! thousand. In front of a disk a filter pays as soon as one probe in some ten thousand is for
//! an absent key. Where every probe is for a present key, a filter only costs. So
//! the last level needs none when nearly all keys that reach it are found.
//!
//! Memory is the other side: a filter takes about ten bits for each key at a rate of 1 %, and every
//! one and a half bits more halve the rate. Bits help most where most absent keys arrive.
