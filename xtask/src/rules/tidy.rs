//! Rules for sources: size, first line, names, banned words, and attributes.

use crate::checkout::rust_source::{Source, words};
use crate::rules::size_exceptions::SizeExceptions;
use crate::{Tree, Violation};

/// Number of lines of a file above which a warning is printed.
pub const FILE_LINES_MAX: usize = 1000;
/// Largest number of lines of a function, from its `fn` to its closing brace.
pub const FUNCTION_LINES_MAX: usize = 70;
/// Largest number of characters of a line.
pub const LINE_WIDTH_MAX: usize = 100;

/// File names without meaning.
const EMPTY_NAMES: [&str; 5] = ["utils", "util", "helpers", "helper", "misc"];

/// Words that mark unfinished work, spelled in parts so that this file does not contain them.
const UNFINISHED: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];

/// Checks every Rust file and the exception list.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut exceptions = SizeExceptions::read(tree);
    let mut found = Vec::new();
    let test_files = test_files(tree);
    for (path, text) in tree.ending(".rs") {
        let source = Source::parse(path, text);
        let is_test = source.is_test_file() || test_files.iter().any(|test| covers(test, path));
        check_shape(&source, &mut exceptions, &mut found);
        check_name(path, &mut found);
        check_words(&source, is_test, &mut found);
        check_attributes(&source, &mut found);
    }
    check_test_binaries(tree, &mut found);
    found.extend(exceptions.stale());
    found
}

/// Returns a warning for each file that is so long that it may hold two nouns.
pub fn long_files(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for (path, text) in tree.ending(".rs") {
        let lines = text.lines().count();
        if lines > FILE_LINES_MAX {
            let message = format!("{lines} lines: split the file if two nouns share it");
            found.push(Violation::file(path, "file-length", message));
        }
    }
    found
}

/// Returns the files, without `.rs`, that are test-only because of their module's declaration.
pub fn test_files(tree: &Tree) -> Vec<String> {
    tree.ending(".rs").flat_map(|(path, text)| Source::parse(path, text).test_files).collect()
}

/// Whether `path` is the file of the module `test`, or is in that module's folder.
pub fn covers(test: &str, path: &str) -> bool {
    path.strip_prefix(test).is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
}

fn check_shape(source: &Source<'_>, exceptions: &mut SizeExceptions, found: &mut Vec<Violation>) {
    for function in source.functions() {
        let name = format!("{}::{}", source.path, function.name);
        let limit = exceptions.limit(&name, FUNCTION_LINES_MAX, function.lines);
        if function.lines > limit {
            let message = format!(
                "`{}` has {} lines, at most {limit}: it does more than one thing",
                function.name, function.lines
            );
            found.push(Violation::line(source.path, function.line, "function-length", message));
        }
    }
    for (index, line) in source.text.lines().enumerate() {
        let width = line.chars().count();
        if width > LINE_WIDTH_MAX && !line.contains("://") {
            let message = format!("{width} characters, at most {LINE_WIDTH_MAX}");
            found.push(Violation::line(source.path, index + 1, "width", message));
        }
        if line.ends_with([' ', '\t']) {
            found.push(Violation::line(source.path, index + 1, "width", "space at the line's end"));
        }
    }
    if !source.text.starts_with("//!") {
        let message = "the first line must be `//!` with the purpose of the file";
        found.push(Violation::file(source.path, "first-line", message));
    }
}

fn check_name(path: &str, found: &mut Vec<Violation>) {
    for part in path.split('/') {
        let name = part.strip_suffix(".rs").unwrap_or(part);
        if EMPTY_NAMES.contains(&name) {
            let message = format!("`{name}` has no meaning: name the file after its noun");
            found.push(Violation::file(path, "file-name", message));
        }
    }
}

fn check_words(source: &Source<'_>, is_test: bool, found: &mut Vec<Violation>) {
    let path = source.path;
    if !is_test {
        let code = source.code_without_tests();
        for (at, _) in code.match_indices(".unwrap()") {
            let message = "no unwrap outside tests: return an error, or `expect` a true invariant";
            found.push(Violation::line(path, source.line_of(at), "unwrap", message));
        }
    }
    for name in ["todo", "unimplemented", "dbg"] {
        for at in words(&source.code, name) {
            if source.code[at + name.len()..].starts_with('!') {
                let message = format!("`{name}!` is unfinished work");
                found.push(Violation::line(path, source.line_of(at), "unfinished", message));
            }
        }
    }
    for mark in UNFINISHED {
        for at in words(source.text, mark) {
            let message = format!("`{mark}`: finish it, or open an issue and remove the mark");
            found.push(Violation::line(path, source.line_of(at), "unfinished", message));
        }
    }
}

fn check_attributes(source: &Source<'_>, found: &mut Vec<Violation>) {
    for range in source.attributes() {
        let attribute = &source.code[range.clone()];
        let line = source.line_of(range.start);
        let has = |name: &str| {
            words(attribute, name)
                .any(|at| attribute[at + name.len()..].trim_start().starts_with('('))
        };
        if has("allow") {
            let message =
                "write `#[expect(lint, reason = \"...\")]`: it fails when it is no longer needed";
            found.push(Violation::line(source.path, line, "allow", message));
        }
        if has("expect") && words(attribute, "reason").next().is_none() {
            let message = "an expectation needs a `reason`";
            found.push(Violation::line(source.path, line, "allow", message));
        }
        if words(attribute, "ignore").next().is_some() && !attribute.contains('=') {
            let message = "an ignored test needs a reason: `#[ignore = \"...\"]`";
            found.push(Violation::line(source.path, line, "ignore", message));
        }
    }
}

/// Checks that each crate has only one integration-test binary, because linking a binary takes
/// minutes on two cores.
fn check_test_binaries(tree: &Tree, found: &mut Vec<Violation>) {
    for package in tree.crates() {
        let folder = format!("{}/tests", package.folder);
        let binaries = tree
            .rust_files_below(&folder)
            .filter(|(path, _)| !path[folder.len() + 1..].contains('/'))
            .count();
        if binaries > 1 {
            let message = format!("{binaries} test binaries: make them modules of tests/suite.rs");
            found.push(Violation::file(&folder, "test-binaries", message));
        }
    }
}
