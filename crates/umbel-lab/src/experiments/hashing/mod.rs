//! Experiments about hash functions and about hashing a key once for all tables.

pub mod hash_article;
pub mod hash_function;
pub mod hash_sharing;
