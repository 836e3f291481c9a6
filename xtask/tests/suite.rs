//! The project's rules as tests. Each rule also runs on a tree with one planted violation, so that
//! a rule that cannot fail is noticed.

mod suite {
    pub mod architecture_call_paths;
    pub mod documents;
    pub mod failpoints;
    pub mod layers;
    pub mod prose;
    pub mod repository;
    pub mod tidy;
}

use xtask::{Tree, Violation};

/// Returns the rules that `check` finds broken in a tree of these files, without repeats.
fn broken(check: fn(&Tree) -> Vec<Violation>, files: &[(&str, &str)]) -> Vec<&'static str> {
    let mut rules: Vec<_> =
        check(&Tree::from_files(files)).iter().map(|violation| violation.rule).collect();
    rules.sort_unstable();
    rules.dedup();
    rules
}
