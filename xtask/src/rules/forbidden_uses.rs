//! Rules for the absences that ARCHITECTURE.md states: words that a floor must not name, system
//! calls outside `umbel-env`, async code below floor 5, needless unsafe code, and tests that print
//! their own reports of skipped checks.

use crate::checkout::file_tree::Crate;
use crate::checkout::rust_path_scan::paths;
use crate::checkout::rust_source::{Source, words};
use crate::rules::tidy::{covers, test_files};
use crate::{Tree, Violation};

/// Crates that need unsafe code: mapped files, memory that readers share without a lock, the
/// memtable, and the C interfaces of other engines, which no user of Umbel builds.
const UNSAFE_CRATES: [&str; 4] = ["umbel-env", "umbel-arena", "umbel-memtable", "umbel-rivals"];

/// Crates with one audited module of unsafe code; the other code of these crates denies it.
const UNSAFE_MODULES: [(&str, &str); 1] = [("umbel-filter", "src/simd/mod.rs")];

/// Crates that make system calls only through `umbel-env`.
const OUTSIDE_WORLD_NAMES: [&str; 11] = [
    "umbel-arena",
    "umbel-base",
    "umbel-filter",
    "umbel-sim",
    "umbel-log",
    "umbel-blob",
    "umbel-backup",
    "umbel-existence",
    "umbel-table",
    "umbel-memtable",
    "umbel",
];

/// Paths of functions that make system calls, with their replacements.
const OUTSIDE_WORLD_PATHS: [(&[&str], &str); 6] = [
    (&["std", "fs"], "umbel_env::FileSystem"),
    (&["std", "time", "Instant"], "umbel_env::Clock::now"),
    (&["std", "time", "SystemTime"], "umbel_env::Clock::wall_micros"),
    (&["std", "thread", "spawn"], "umbel_env::Threads::spawn"),
    (&["thread", "spawn"], "umbel_env::Threads::spawn"),
    (&["std", "thread", "Builder"], "umbel_env::Threads::spawn"),
];

/// Words that a crate must not use, each as a sequence of parts of names, with the reason.
const FORBIDDEN_WORDS: [(&str, &[&str], &str); 1] = [(
    "umbel",
    &[
        "umbel_events",
        "event_store",
        "event_id",
        "event_type",
        "stream_id",
        "stream_name",
        "revision",
        "revisions",
        "subscriber",
        "subscription",
    ],
    "the engine knows keys and values; their meaning belongs to higher floors",
)];

/// The lowest floor that may have async code.
const ASYNC_LAYER_MIN: u32 = 5;

/// Checks every crate.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    let tests = test_files(tree);
    for package in tree.crates() {
        if package.folder == "fuzz" {
            continue;
        }
        check_forbids_unsafe(tree, &package, &mut found);
        check_skips(tree, &package, &mut found);
        let folder = format!("{}/src", package.folder);
        for (path, text) in tree.rust_files_below(&folder) {
            let source = Source::parse(path, text);
            check_unsafe(&package, &source, &mut found);
            if tests.iter().any(|test| covers(test, path)) {
                continue;
            }
            let code = source.code_without_tests();
            check_async(&package, &source, &code, &mut found);
            check_outside(&package, &source, &code, &mut found);
            check_forbidden_words(&package, &source, &code, &mut found);
        }
    }
    found
}

fn check_forbids_unsafe(tree: &Tree, package: &Crate, found: &mut Vec<Violation>) {
    if UNSAFE_CRATES.contains(&package.manifest.name.as_str()) {
        return;
    }
    // `forbid` cannot be overridden inside.
    let attribute = match unsafe_module(package) {
        Some(_) => "#![deny(unsafe_code)]",
        None => "#![forbid(unsafe_code)]",
    };
    for root in ["lib.rs", "main.rs"] {
        let root = format!("{}/src/{root}", package.folder);
        if tree.text(&root).is_some_and(|text| !text.contains(attribute)) {
            let message = format!("lacks `{attribute}`");
            found.push(Violation::file(&root, "unsafe", message));
        }
    }
}

/// Checks that tests of crates report skipped checks by the common function: the test command does
/// not count a check with another report.
fn check_skips(tree: &Tree, package: &Crate, found: &mut Vec<Violation>) {
    if !package.folder.starts_with("crates/") {
        return;
    }
    // The function is in floor 1.
    let is_lowest = package.manifest.layer == Some(0);
    let folder = format!("{}/tests", package.folder);
    for (path, text) in tree.rust_files_below(&folder) {
        for (index, line) in text.lines().enumerate() {
            if line.contains("\"skipped: ") || (!is_lowest && line.contains("\"SKIPPED: ")) {
                let message = "use umbel_env::skipped_test::print_skipped".to_string();
                found.push(Violation::line(path, index + 1, "skips", message));
            }
        }
    }
}

/// Returns the path of the crate's module that may have unsafe code.
fn unsafe_module(package: &Crate) -> Option<String> {
    let (_, module) = UNSAFE_MODULES.iter().find(|(name, _)| *name == package.manifest.name)?;
    Some(format!("{}/{module}", package.folder))
}

fn check_unsafe(package: &Crate, source: &Source<'_>, found: &mut Vec<Violation>) {
    if UNSAFE_CRATES.contains(&package.manifest.name.as_str()) {
        return;
    }
    if unsafe_module(package).is_some_and(|module| source.path == module) {
        return;
    }
    for at in words(&source.code, "unsafe") {
        let modules = UNSAFE_MODULES.map(|(name, module)| format!("{name}/{module}")).join(", ");
        let crates = UNSAFE_CRATES.join(", ");
        let message = format!("unsafe code is allowed only in {crates} and {modules}");
        found.push(Violation::line(source.path, source.line_of(at), "unsafe", message));
    }
}

fn check_async(package: &Crate, source: &Source<'_>, code: &str, found: &mut Vec<Violation>) {
    if package.manifest.layer.is_none_or(|floor| floor >= ASYNC_LAYER_MIN) {
        return;
    }
    for word in ["async", "await", "tokio"] {
        for at in words(code, word) {
            let message = format!("`{word}`: code below floor {ASYNC_LAYER_MIN} must not be async");
            found.push(Violation::line(source.path, source.line_of(at), "async", message));
        }
    }
}

fn check_outside(package: &Crate, source: &Source<'_>, code: &str, found: &mut Vec<Violation>) {
    if !OUTSIDE_WORLD_NAMES.contains(&package.manifest.name.as_str()) {
        return;
    }
    for used in paths(code) {
        for (banned, instead) in OUTSIDE_WORLD_PATHS {
            if used.parts.len() >= banned.len()
                && used.parts.iter().zip(banned).all(|(a, b)| a == b)
            {
                let message = format!("`{}`: use {instead}", used.parts.join("::"));
                let line = source.line_of(used.offset);
                found.push(Violation::line(source.path, line, "outside-world", message));
            }
        }
    }
}

fn check_forbidden_words(
    package: &Crate,
    source: &Source<'_>,
    code: &str,
    found: &mut Vec<Violation>,
) {
    for (name, unspoken, reason) in FORBIDDEN_WORDS {
        if package.manifest.name != name {
            continue;
        }
        for (offset, identifier) in identifiers(code) {
            let parts = format!("_{}_", name_parts(identifier).join("_"));
            for phrase in unspoken {
                if parts.contains(&format!("_{phrase}_")) {
                    let message = format!("`{identifier}` names `{phrase}`: {reason}");
                    let line = source.line_of(offset);
                    found.push(Violation::line(source.path, line, "absences", message));
                }
            }
        }
    }
}

fn identifiers(code: &str) -> impl Iterator<Item = (usize, &str)> {
    code.split(|c: char| !(c.is_alphanumeric() || c == '_'))
        .filter(|word| word.starts_with(|c: char| c.is_alphabetic() || c == '_'))
        .map(|word| (word.as_ptr().addr() - code.as_ptr().addr(), word))
}

/// Splits a name into parts: `FlushEvent` and `flush_event` both have `flush` and `event`.
fn name_parts(identifier: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut previous_is_lower = false;
    for c in identifier.chars() {
        if c == '_' || (c.is_uppercase() && previous_is_lower) {
            parts.push(String::new());
        }
        if c != '_'
            && let Some(part) = parts.last_mut()
        {
            part.extend(c.to_lowercase());
        }
        previous_is_lower = c.is_lowercase();
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_split_into_words() {
        assert_eq!(name_parts("FlushEvent"), ["flush", "event"]);
        assert_eq!(name_parts("prevents_all"), ["prevents", "all"]);
        assert_eq!(name_parts("EVENT_MAX"), ["event", "max"]);
    }
}
