//! The project's commands and rules.
//!
//! Every rule is a function from a [`crate::checkout::file_tree::Tree`] (the checkout, read once)
//! to a list of [`Violation`]s. So `cargo xtask`, `cargo test` and the rules' own tests, which
//! plant one violation each, run the same code. This package depends on no other crate: the
//! commands must work on a machine that has only Rust.
#![forbid(unsafe_code)]

pub mod campaigns;
pub mod checkout;
pub mod checks;
pub mod clients;
pub mod docs_book;
pub mod object_stores;
pub mod rules;
pub mod suites;
pub mod test_command;
pub mod tools;

pub use crate::checkout::file_tree::Tree;
pub use crate::rules::violation::Violation;

/// Runs every tidy rule: sources and documents.
pub fn tidy(tree: &Tree) -> Vec<Violation> {
    let mut found = rules::tidy::check(tree);
    found.extend(rules::documents::check(tree));
    found.extend(rules::architecture_call_paths::check(tree));
    found.extend(rules::failpoints::check(tree));
    found.extend(rules::prose::check(tree));
    found
}

/// Returns the warnings that `cargo xtask tidy` prints.
pub fn warnings(tree: &Tree) -> Vec<Violation> {
    rules::tidy::long_files(tree)
}

/// Runs every floor rule: crates, their lock files, modules and absences.
pub fn layers(tree: &Tree) -> Vec<Violation> {
    let mut found = rules::crate_rules::check(tree);
    found.extend(rules::module_cycles::check(tree));
    found.extend(rules::lock_files::check(tree));
    found.extend(rules::forbidden_uses::check(tree));
    found
}
