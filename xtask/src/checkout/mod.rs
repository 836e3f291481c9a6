//! The checkout as the rules read it: files, manifests, Rust sources, paths in code.

pub mod manifest;
pub mod path_scan;
pub mod source;
pub mod tree;
