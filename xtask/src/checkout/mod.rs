//! The checkout as the rules read it: files, manifests, Rust sources, paths in code.

pub mod cargo_manifest;
pub mod file_tree;
pub mod path_scan;
pub mod rust_source;
