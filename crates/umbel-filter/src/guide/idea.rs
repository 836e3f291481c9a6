//! 1. What a filter is, what it saves and what it costs.
//!
//! A filter stands in front of a set of keys and answers one question: *may this key be in the
//! set?* Its "no" is certain. Its "maybe" is not: a small share of the keys that are absent passes
//! as well, and that share, the **false positive rate**, is what its memory buys down.
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
//! The error goes one way only. A key that was added and is then denied, a **false negative**,
//! would be a key lost, so no kind of filter here has any, however full it is. Whatever a filter
//! cannot tell, it answers with "maybe". Two things can break that from outside: asking with
//! another hash or another seed than the keys were added with, and a flipped bit in bytes that
//! nobody guards with a checksum.
//!
//! # A Bloom filter by hand
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
//! Asking costs `probe`; a "no" saves `search`. If a share `absent` of all questions is for keys
//! that are not there, and a share `rate` of those passes all the same, a filter saves time where
//!
//! ```text
//!     absent · (1 − rate) · search  >  probe
//! ```
//!
//! A probe takes some nanoseconds, a search in memory a few hundred, one on a disk a hundred
//! thousand: in front of a disk a filter pays as soon as one question in some ten thousand is for
//! an absent key. Where every question is for a key that is there, a filter only costs. That is why
//! the last place that is always asked needs none when nearly all that arrives there is found.
//!
//! Memory is the other side: a filter takes about ten bits for each key at a rate of 1 %, and every
//! one and a half bits more halve it. Bits do most good where most absent keys arrive.
