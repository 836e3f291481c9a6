//! The rule for the call paths of ARCHITECTURE with planted violations.

use xtask::Tree;
use xtask::rules::architecture_call_paths::{PATHS, check_paths};

/// Returns the lines of the violations in a page with this table of the path `append`.
fn reported(rows: &[&str]) -> Vec<String> {
    let page = ["# Architecture", "", "| append | function | file | effect |", "|---|---|---|---|"];
    let page = [&page[..], rows, &["", "| put | function | file | effect |"]].concat().join("\n");
    let files = [
        ("ARCHITECTURE.md", page.as_str()),
        ("a.rs", "fn begin() {}"),
        ("b.rs", "fn next<T>() {}"),
    ];
    check_paths(&Tree::from_files(&files), &["append"])
        .into_iter()
        .map(|violation| violation.place)
        .collect()
}

#[test]
fn path_through_each_file_once_is_accepted() {
    let rows = ["| 1 | `A::begin` | [a](a.rs) | `x` |", "| 2 | `next` | [b](b.rs) | [a](a.rs) |"];
    assert!(reported(&rows).is_empty(), "{:?}", reported(&rows));
}

#[test]
fn second_visit_of_a_file_is_reported() {
    let rows = ["| 1 | `begin` | [a](a.rs) | |", "| 2 | `next` | [b](b.rs), [a](a.rs) | |"];
    assert_eq!(reported(&rows), ["ARCHITECTURE.md:6"]);
}

#[test]
fn function_outside_of_its_file_is_reported() {
    let rows = ["| 1 | `begin` ► `next` | [a](a.rs) | |"];
    assert_eq!(reported(&rows), ["ARCHITECTURE.md:5"]);
}

#[test]
fn missing_table_is_reported() {
    let page = [("ARCHITECTURE.md", "# Architecture")];
    assert_eq!(check_paths(&Tree::from_files(&page), &PATHS).len(), PATHS.len());
}
