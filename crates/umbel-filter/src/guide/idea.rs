//! 1. Idea of a filter, its savings and its cost.
//!
//! A filter stands in front of a set of keys and answers one question: *may this key be in the
//! set?* The answer "no" is certain. The answer "maybe" is not: a small share of absent keys passes
//! as well. The share of absent keys that pass is the **false positive rate**; more memory lowers
//! it.
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
//! A filter never errs in the other direction. A **false negative** would be an added key that the
//! filter denies, so that the key would be lost. No filter of this crate has false negatives,
//! however full it is. If a filter cannot decide, it answers "maybe". A caller can cause a false
//! negative only by probing with another hash or seed than at the build, or by using damaged bytes.
//!
//! # A Bloom filter, worked example
//!
//! The oldest kind, Bloom's of 1970, is an array of bits. A key's hash chooses a few bits of the
//! array. Adding the key sets these bits, and a key may be in the set if all its bits are set.
//! Three keys in 24 bits, three bits each:
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
//! keys, and let a share `rate` of these absent keys pass. Then a filter saves time if
//!
//! ```text
//!     absent · (1 − rate) · search  >  probe
//! ```
//!
//! A probe takes some nanoseconds, a search in memory a few hundred, and a search on a disk a
//! hundred thousand. Before searches on a disk, a filter pays as soon as one probe in some ten
//! thousand is for an absent key. If every probe is for a present key, a filter only costs time. So
//! the last level needs no filter if nearly all keys that are looked up there are found.
//!
//! A filter also costs memory: about ten bits for each key at a rate of 1 %. Each further one and a
//! half bits per key halve the rate. Bits save most in the filters that are probed for most absent
//! keys.
