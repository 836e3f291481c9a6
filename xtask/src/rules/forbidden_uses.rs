//! What ARCHITECTURE.md says is not there: words a floor must not name, the outside world outside
//! `umbel-env`, async code below floor 5, unsafe code where no crate's purpose needs it.

use crate::path_scan::paths;
use crate::source::{Source, words};
use crate::tidy::{covers, test_files};
use crate::tree::Crate;
use crate::{Tree, Violation};

/// Crates whose purpose needs unsafe code: mapped files, memory that readers share without a lock,
/// the memtable, and the C interfaces of other engines, which nobody who uses Umbel builds.
const UNSAFE_CRATES: [&str; 4] = ["umbel-env", "umbel-arena", "umbel-memtable", "umbel-rivals"];

/// Crates whose unsafe code is one audited module; the rest of them denies it.
const UNSAFE_MODULES: [(&str, &str); 1] = [("umbel-filter", "src/simd.rs")];

/// Crates that reach the outside world through `umbel-env` only.
const INSIDE: [&str; 10] = [
    "umbel-arena",
    "umbel-base",
    "umbel-filter",
    "umbel-sim",
    "umbel-log",
    "umbel-blob",
    "umbel-existence",
    "umbel-table",
    "umbel-memtable",
    "umbel",
];

/// Paths that name the outside world, with what to use in their place.
const OUTSIDE: [(&[&str], &str); 6] = [
    (&["std", "fs"], "umbel_env::FileSystem"),
    (&["std", "time", "Instant"], "umbel_env::Clock::now"),
    (&["std", "time", "SystemTime"], "umbel_env::Clock::wall_micros"),
    (&["std", "thread", "spawn"], "umbel_env::Threads::spawn"),
    (&["thread", "spawn"], "umbel_env::Threads::spawn"),
    (&["std", "thread", "Builder"], "umbel_env::Threads::spawn"),
];

/// What a crate must not speak of, as runs of parts of names, with the reason.
const UNSPOKEN: [(&str, &[&str], &str); 1] = [(
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
    "the engine knows keys and values; what they mean lives above it",
)];

/// The lowest floor whose code may be async.
const ASYNC_FLOOR: u32 = 5;

/// Checks every crate.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    let tests = test_files(tree);
    for package in tree.crates() {
        if package.folder == "fuzz" {
            continue;
        }
        check_forbids_unsafe(tree, &package, &mut found);
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
            check_unspoken(&package, &source, &code, &mut found);
        }
    }
    found
}

fn check_forbids_unsafe(tree: &Tree, package: &Crate, found: &mut Vec<Violation>) {
    if UNSAFE_CRATES.contains(&package.manifest.name.as_str()) {
        return;
    }
    // What is forbidden cannot be allowed again inside.
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

/// The path of the module of the crate that may have unsafe code.
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
        let message = format!("unsafe code lives in {crates} and {modules} only");
        found.push(Violation::line(source.path, source.line_of(at), "unsafe", message));
    }
}

fn check_async(package: &Crate, source: &Source<'_>, code: &str, found: &mut Vec<Violation>) {
    if package.manifest.floor.is_none_or(|floor| floor >= ASYNC_FLOOR) {
        return;
    }
    for word in ["async", "await", "tokio"] {
        for at in words(code, word) {
            let message = format!("`{word}`: nothing below floor {ASYNC_FLOOR} is async");
            found.push(Violation::line(source.path, source.line_of(at), "async", message));
        }
    }
}

fn check_outside(package: &Crate, source: &Source<'_>, code: &str, found: &mut Vec<Violation>) {
    if !INSIDE.contains(&package.manifest.name.as_str()) {
        return;
    }
    for used in paths(code) {
        for (banned, instead) in OUTSIDE {
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

fn check_unspoken(package: &Crate, source: &Source<'_>, code: &str, found: &mut Vec<Violation>) {
    for (name, unspoken, reason) in UNSPOKEN {
        if package.manifest.name != name {
            continue;
        }
        for (offset, identifier) in identifiers(code) {
            let parts = format!("_{}_", name_parts(identifier).join("_"));
            for phrase in unspoken {
                if parts.contains(&format!("_{phrase}_")) {
                    let message = format!("`{identifier}` speaks of `{phrase}`: {reason}");
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

/// `FlushEvent` and `flush_event` both speak of `flush` and `event`.
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
    fn parts_names() {
        assert_eq!(name_parts("FlushEvent"), ["flush", "event"]);
        assert_eq!(name_parts("prevents_all"), ["prevents", "all"]);
        assert_eq!(name_parts("EVENT_MAX"), ["event", "max"]);
    }
}
