//! The rules for sources: size, first line, names, banned words, and which attributes are refused.

use crate::exceptions::Exceptions;
use crate::source::{Source, words};
use crate::{Tree, Violation};

/// Most lines of a file.
pub const FILE_LINES_MAX: usize = 1000;
/// Most lines of a function, from its `fn` to its closing brace.
pub const FUNCTION_LINES_MAX: usize = 70;
/// Most characters of a line.
pub const LINE_WIDTH_MAX: usize = 100;

/// File names that say nothing.
const EMPTY_NAMES: [&str; 5] = ["utils", "util", "helpers", "helper", "misc"];

/// Words that mark unfinished work, spelled in parts so that this file does not contain them.
const UNFINISHED: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];

/// Checks every Rust file and the exception list.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut exceptions = Exceptions::read(tree);
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

/// Files that only tests compile because the module that declares them says so; without `.rs`.
pub fn test_files(tree: &Tree) -> Vec<String> {
    tree.ending(".rs").flat_map(|(path, text)| Source::parse(path, text).test_files).collect()
}

/// Whether `path` is the file, or lies in the folder, of the module `test`.
pub fn covers(test: &str, path: &str) -> bool {
    path.strip_prefix(test).is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
}

fn check_shape(source: &Source<'_>, exceptions: &mut Exceptions, found: &mut Vec<Violation>) {
    let lines = source.text.lines().count();
    let limit = exceptions.limit(source.path, FILE_LINES_MAX, lines);
    if lines > limit {
        let message =
            format!("{lines} lines, at most {limit}: two nouns share this file, part them");
        found.push(Violation::file(source.path, "file-length", message));
    }
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
        let message = "the first line must be `//!` and say what the file is for";
        found.push(Violation::file(source.path, "first-line", message));
    }
}

fn check_name(path: &str, found: &mut Vec<Violation>) {
    for part in path.split('/') {
        let name = part.strip_suffix(".rs").unwrap_or(part);
        if EMPTY_NAMES.contains(&name) {
            let message = format!("`{name}` says nothing: name the file after its noun");
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
            let message = format!("`{mark}`: do it, or open an issue and say nothing here");
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
                "write `#[expect(lint, reason = \"...\")]`: it fails once it is not needed";
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

/// Each integration-test binary links on its own: minutes on two cores.
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
