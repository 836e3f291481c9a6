//! 4. One keyed hash for all filters, and why the hash is keyed.
//!
//! A filter never sees a key. A filter gets a hash of 64 bits. A caller hashes a key once for any
//! number of filters, because hashing takes longer than a cached probe.
//!
//! # Why 64, and which
//!
//! [`hash_key`](crate::hash_key) is among the fastest that pass the known tests of quality, and it
//! is **keyed**: its constants are made of 16 secret bytes. [`HashKind`](crate::HashKind) has
//! SipHash-1-3 for callers that want a pseudorandom function, and eleven others, each behind a
//! feature of its name. The eleven others are for filters that are exchanged with other programs,
//! and for comparison.
//!
//! # What an adversary can do
//!
//! With a public hash, an attacker can search for keys that pass a filter: a hundred tries find one
//! at 1 %. If a client looks up only such keys, the filter is useless, and every lookup searches
//! the disk. Chosen keys that each set only unset bits fill the filter faster than other keys. No
//! quality of the hash prevents such attacks; only a secret does. With the keyed hash, keys chosen
//! against one filter are like random keys for another.
//!
//! Worse are collisions that no seed removes. XXH3 has pairs of keys that collide under one seed in
//! 1,400. With published constants, rapidhash, the algorithm of the keyed hash, has pairs that
//! collide under *every* seed. In this crate all its constants are made of the secret.
//!
//! The secret must be as private as the data. Without the secret a filter cannot be probed; with
//! it, an attacker can find keys that pass. A [`FilterFile`](crate::FilterFile) contains the
//! secret, because it is made for other programs.
//!
//! # Some are not good enough
//!
//! `fxhash` turns keys that differ in few bytes into hashes that differ in few bits: with
//! sequential big-endian numbers every absent key passes. This crate has `fxhash` only to
//! demonstrate such a failure and to read filters of other programs.
//!
//! # Separate uses
//!
//! Whole keys and prefixes of keys go through hashes of different seeds
//! ([`HashDomain`](crate::HashDomain)), so that a prefix and a key of the same bytes have different
//! hashes. Another seed for shards keeps filters from using the bits that chose the shard.
