//! The rules of the house as ordinary tests, and each rule with one violation planted, so that a
//! rule which cannot fail is noticed.

mod suite {
    pub mod documents;
    pub mod floors;
    pub mod house;
    pub mod tidy;
}

use xtask::{Tree, Violation};

/// The rules that `check` finds broken in a tree of these files, without repeats.
fn broken(check: fn(&Tree) -> Vec<Violation>, files: &[(&str, &str)]) -> Vec<&'static str> {
    let mut rules: Vec<_> =
        check(&Tree::from_files(files)).iter().map(|violation| violation.rule).collect();
    rules.sort_unstable();
    rules.dedup();
    rules
}
