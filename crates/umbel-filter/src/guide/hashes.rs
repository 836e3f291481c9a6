//! 4. One hash for everything, and why it is keyed.
//!
//! A filter never sees a key. It gets 64 bits, made once for each question, however many filters
//! are probed with them: hashing takes longer than a probe in the cache.
//!
//! # Why 64, and which
//!
//! [`hash_key`](crate::hash_key) is among the fastest that pass the known tests of quality, and it
//! is **keyed**: its constants are made of 16 secret bytes. [`HashKind`](crate::HashKind) has
//! SipHash-1-3 for callers that want a pseudorandom function, and eleven others, each behind a
//! feature of its name, for filters that are exchanged with programs that use them, and to see what
//! a hash is worth.
//!
//! # What an adversary can do
//!
//! With a public hash, an attacker can search for keys that pass a filter: a hundred
//! tries find one at 1 %. Probing nothing but such keys makes the filter useless, and every
//! question a search on the disk. Adding chosen keys that each set fresh bits fills it faster than
//! any honest ones. No quality of the hash prevents that; only a secret does. With the keyed hash,
//! keys made against one filter are as good as random against another.
//!
//! It goes further where a hash has collisions that no seed removes: XXH3 has pairs of keys that
//! collide under one seed in 1,400, and published constants of the algorithm after the keyed hash
//! have pairs that collide under *every* seed. Its constants here are all made of the secret.
//!
//! The secret belongs where the data is. A filter without it cannot be probed; with it, keys that
//! pass can be found. [`FilterFile`](crate::FilterFile) has it inside, because it is made to be
//! handed on.
//!
//! # Some are not good enough
//!
//! `fxhash` turns keys that differ in few bytes into hashes that differ in few bits: of sequential
//! big-endian numbers every absent key passes. It is here so that this can be seen.
//!
//! # Separate uses
//!
//! Whole keys and prefixes of keys go through hashes of different seeds
//! ([`HashDomain`](crate::HashDomain)), so that a prefix is not met by a key of the same bytes, and
//! so that bits that chose a shard are not probed again inside it.
