//! Rule for failpoints: each failpoint of the product is hunted by a campaign or test, and each
//! hunted failpoint exists.
//!
//! The files named `failpoint_list.rs` list the hunted failpoints.

use std::collections::BTreeSet;

use crate::checkout::rust_source::{Source, words};
use crate::rules::tidy::{covers, test_files};
use crate::{Tree, Violation};

/// Name of the files that list hunted failpoints.
const LIST: &str = "failpoint_list.rs";
/// Condition for failpoints in code, which only the crate with the macro may have.
const CONDITION: &str = "feature = \"failpoints\"";
/// Crate that defines the failpoint macro.
const MACRO_CRATE: &str = "crates/umbel-base/";
/// Crate of the program that hunts failpoints, which is no part of the product.
const HUNTER: &str = "crates/umbel-torture/";

/// A failpoint's name, and its place.
struct NamedPlace<'a> {
    name: &'a str,
    path: &'a str,
    line: usize,
}

/// Checks every crate.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    let product = product_failpoints(tree, &mut found);
    let hunted = hunted_failpoints(tree);
    let names = |places: &[NamedPlace<'_>]| -> BTreeSet<String> {
        places.iter().map(|place| place.name.to_string()).collect()
    };
    let (product_names, hunted_names) = (names(&product), names(&hunted));
    for NamedPlace { name, path, line } in product {
        if !is_kebab_case(name) {
            let message = format!("`{name}`: name what goes wrong in kebab case");
            found.push(Violation::line(path, line, "failpoints", message));
        } else if !hunted_names.contains(name) {
            let message = format!("`{name}` is not hunted: add it to a {LIST}");
            found.push(Violation::line(path, line, "failpoints", message));
        }
    }
    for NamedPlace { name, path, line } in hunted {
        if !product_names.contains(name) {
            let message = format!("`{name}` is in no product source: remove it here");
            found.push(Violation::line(path, line, "failpoints", message));
        }
    }
    found
}

fn product_failpoints<'a>(tree: &'a Tree, found: &mut Vec<Violation>) -> Vec<NamedPlace<'a>> {
    let mut product = Vec::new();
    let tests = test_files(tree);
    for (path, text) in tree.ending(".rs") {
        let is_product = path.starts_with("crates/") && path.contains("/src/");
        let is_product = is_product && !path.starts_with(HUNTER);
        if !is_product || tests.iter().any(|test| covers(test, path)) {
            continue;
        }
        let source = Source::parse(path, text);
        let code = source.code_without_tests();
        for at in words(&code, "fail_point").filter(|at| code[*at..].starts_with("fail_point!(")) {
            let name = text[at..].split('"').nth(1).unwrap_or_default();
            product.push(NamedPlace { name, path, line: source.line_of(at) });
        }
        let is_code = |at: &usize| code[*at..].starts_with("feature");
        for at in text.match_indices(CONDITION).map(|(at, _)| at).filter(is_code) {
            if !path.starts_with(MACRO_CRATE) {
                let message = "the product does not depend on the feature: use `fail_point!`";
                found.push(Violation::line(path, source.line_of(at), "failpoints", message));
            }
        }
    }
    product
}

fn hunted_failpoints(tree: &Tree) -> Vec<NamedPlace<'_>> {
    let lists = tree.ending(".rs").filter(|(path, _)| path.ends_with(LIST));
    lists.flat_map(|(path, text)| names_in_list(path, text)).collect()
}

/// Returns the strings in kebab case, which are names; descriptions of faults are sentences.
fn names_in_list<'a>(path: &'a str, text: &'a str) -> Vec<NamedPlace<'a>> {
    let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim_start().starts_with("//"));
    let strings = lines.flat_map(|(number, line)| {
        line.split('"').skip(1).step_by(2).map(move |text| (number, text))
    });
    let names = strings.filter(|(_, text)| is_kebab_case(text));
    names.map(|(line, name)| NamedPlace { name, path, line }).collect()
}

/// Whether a text consists of at least two words of lower-case letters and digits, joined by
/// hyphens.
fn is_kebab_case(name: &str) -> bool {
    let is_word = |word: &str| {
        !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
    };
    name.contains('-') && name.split('-').all(is_word)
}
