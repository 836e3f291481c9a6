//! The rule for lock files of packages outside the workspace: they know what our crates depend on.
//!
//! The workspace's own is written by every build. Of the others nobody notices that they lag behind
//! until a command that insists on them fails on somebody else's machine.

use std::collections::{BTreeMap, BTreeSet};

use crate::manifest::DependencyKind;
use crate::{Tree, Violation};

/// What a lock file says of packages that are no registry's: the line each begins on, and the names
/// of those it depends on.
fn own_packages(text: &str) -> BTreeMap<&str, (usize, BTreeSet<&str>)> {
    let mut found = BTreeMap::new();
    for (start, package) in text.match_indices("[[package]]") {
        let package = package_text(&text[start + package.len()..]);
        let line = text[..start].lines().count() + 1;
        let value = |key: &str| package.lines().find_map(|line| quoted(line.strip_prefix(key)?));
        if let Some(name) = value("name = ").filter(|_| value("source = ").is_none()) {
            // `"name"`, or `"name version"` where there are several of that name.
            let names = package.lines().filter(|line| line.starts_with(' ')).filter_map(quoted);
            let names = names.filter_map(|name| name.split(' ').next());
            found.insert(name, (line, names.collect()));
        }
    }
    found
}

/// The text up to the next package.
fn package_text(text: &str) -> &str {
    text.split("[[package]]").next().unwrap_or(text)
}

/// What stands between quotes on a line.
fn quoted(line: &str) -> Option<&str> {
    line.split('"').nth(1)
}

/// Checks every lock file but the workspace's own.
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
                    "`{}` depends on `{}`, which is not here: run `cargo metadata` beside this \
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

    /// Story: a crate of the engine was given one more of our crates to depend on, and `cargo xtask
    /// rivals` refused to run in every fresh clone.
    #[test]
    fn a_lock_file_that_lags_behind_is_told() {
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
        let told = |dependencies: &str| {
            let lock = lock(dependencies);
            let files = [("crates/a/Cargo.toml", manifest), ("fuzz/Cargo.lock", &*lock)];
            check(&Tree::from_files(&files)).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(told(" \"b\",\n \"c 1.0.0\",\n"), [""; 0]);
        let lags = told(" \"c\",\n");
        assert!(lags.len() == 1 && lags[0].contains("fuzz/Cargo.lock:3"), "{lags:?}");
        assert!(lags[0].contains("`a` depends on `b`"), "{lags:?}");
    }
}
