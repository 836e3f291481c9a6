//! The project's own commands and the rules of the house.
//!
//! Every rule is a function from a [`tree::Tree`] (the checkout, read once) to a list of
//! [`Violation`]s, so that `cargo xtask`, `cargo test` and the tests of the rules themselves, which
//! plant one violation each, all run the same code. Nothing here depends on another crate: the
//! commands must work on a machine that has only Rust.
#![forbid(unsafe_code)]

pub mod absences;
pub mod audit;
pub mod campaigns;
pub mod client_programs;
pub mod clients;
pub mod clients_secure;
pub mod console;
pub mod documents;
pub mod exceptions;
pub mod expression;
pub mod floors;
pub mod installed;
pub mod instructions;
pub mod kills;
pub mod locks;
pub mod manifest;
pub mod modules;
pub mod packaging;
pub mod parquet;
pub mod path_scan;
pub mod programs;
pub mod smoke;
pub mod source;
pub mod steps;
pub mod test_command;
pub mod tidy;
pub mod transcript;
pub mod tree;
pub mod violation;

pub use tree::Tree;
pub use violation::Violation;

/// Runs every tidy rule: sources and documents.
pub fn tidy(tree: &Tree) -> Vec<Violation> {
    let mut found = tidy::check(tree);
    found.extend(documents::check(tree));
    found
}

/// Runs every floor rule: crates, their lock files, modules and absences.
pub fn floors(tree: &Tree) -> Vec<Violation> {
    let mut found = floors::check(tree);
    found.extend(modules::check(tree));
    found.extend(locks::check(tree));
    found.extend(absences::check(tree));
    found
}
