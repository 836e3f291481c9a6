//! Rule for lock files of packages outside the workspace: the lock files match the dependencies of
//! the workspace's crates.
//!
//! Every build writes the workspace's own lock file. Other lock files become stale without notice,
//! until a command with `--locked` fails on another machine.

use std::collections::{BTreeMap, BTreeSet};

use crate::checkout::cargo_manifest::DependencyKind;
use crate::{Tree, Violation};

/// Returns the packages of a lock file that come from no registry, each with its first line and the
/// names of its dependencies.
fn own_packages(text: &str) -> BTreeMap<&str, (usize, BTreeSet<&str>)> {
    let mut found = BTreeMap::new();
    for (start, package) in text.match_indices("[[package]]") {
        let package = package_text(&text[start + package.len()..]);
        let line = text[..start].lines().count() + 1;
        let value = |key: &str| package.lines().find_map(|line| quoted(line.strip_prefix(key)?));
        if let Some(name) = value("name = ").filter(|_| value("source = ").is_none()) {
            // `"name"`, or `"name version"` for several versions.
            let names = package.lines().filter(|line| line.starts_with(' ')).filter_map(quoted);
            let names = names.filter_map(|name| name.split(' ').next());
            found.insert(name, (line, names.collect()));
        }
    }
    found
}

/// Returns the text of a package in a lock file, up to the next package.
fn package_text(text: &str) -> &str {
    text.split("[[package]]").next().unwrap_or(text)
}

/// Returns the text between the quotes of a line.
fn quoted(line: &str) -> Option<&str> {
    line.split('"').nth(1)
}

/// Checks every lock file except the workspace's own.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    let crates = tree.crates();
    for (path, text) in tree.ending("/Cargo.lock") {
        let packages = own_packages(text);
        for package in &crates {
            let Some((line, locked)) = packages.get(package.manifest.name.as_str()) else {
                continue;
            };
            let needed = package.manifest.dependencies.iter();
            let needed =
                needed.filter(|needed| needed.kind != DependencyKind::Dev && !needed.is_optional);
            for dependency in needed.filter(|needed| !locked.contains(needed.name.as_str())) {
                let message = format!(
                    "`{}` depends on `{}`, which is missing here: run `cargo metadata` in this \
                     file",
                    package.manifest.name, dependency.name
                );
                found.push(Violation::line(path, *line, "locks", message));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Story: an engine crate got a new dependency on one of our crates, and `cargo xtask rivals`
    /// failed in every fresh clone.
    #[test]
    fn stale_lock_file_is_reported() {
        let manifest = "[package]\nname = \"a\"\n\n[dependencies]\nb.workspace = true\n\
                        c.workspace = true\no = { workspace = true, optional = true }\n\n\
                        [dev-dependencies]\nd.workspace = true\n";
        let lock = |dependencies: &str| {
            format!(
                "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"0.1.0\"\n\
                 dependencies = [\n{dependencies}]\n\n[[package]]\nname = \"c\"\n\
                 version = \"1.0.0\"\nsource = \"registry\"\n"
            )
        };
        let violations = |dependencies: &str| {
            let lock = lock(dependencies);
            let files = [("crates/a/Cargo.toml", manifest), ("fuzz/Cargo.lock", &*lock)];
            check(&Tree::from_files(&files)).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(violations(" \"b\",\n \"c 1.0.0\",\n"), [""; 0]);
        let lags = violations(" \"c\",\n");
        assert!(lags.len() == 1 && lags[0].contains("fuzz/Cargo.lock:3"), "{lags:?}");
        assert!(lags[0].contains("`a` depends on `b`"), "{lags:?}");
    }
}
