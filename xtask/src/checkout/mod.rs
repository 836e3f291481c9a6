//! The checkout as the rules read it: files, manifests, Rust sources, paths in code.

pub mod cargo_manifest;
pub mod file_tree;
pub mod rust_path_scan;
pub mod rust_source;
