//! The rules for crates: floors, third-party crates, unsafe code.

use std::collections::{BTreeMap, BTreeSet};

use crate::checkout::cargo_manifest::{Dependency, DependencyKind};
use crate::checkout::file_tree::Crate;
use crate::{Tree, Violation};

/// File that lists the third-party crates of each crate.
pub const THIRD_PARTY: &str = "xtask/third-party.txt";

/// Crates that only tests may use, each with the crates that may use it outside of tests, too.
const TEST_ONLY: [(&str, &[&str]); 2] = [
    ("umbel-sim", &["umbel-testing", "umbel-torture"]),
    ("umbel-testing", &["umbel-torture", "umbel-rivals"]),
];

/// Packages outside the workspace, which have their own dependencies.
const OUTSIDE_PACKAGES: [&str; 3] = ["crates/umbel-rivals", "fuzz", "xtask/clients/rust"];

/// Checks every crate of the workspace.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    let crates = tree.crates();
    let floors: BTreeMap<&str, u32> = crates
        .iter()
        .filter_map(|package| Some((package.manifest.name.as_str(), package.manifest.layer?)))
        .collect();
    let ours: BTreeSet<&str> =
        crates.iter().map(|package| package.manifest.name.as_str()).collect();
    let mut third_party = ThirdParty::read(tree, &mut found);
    for package in &crates {
        let path = format!("{}/Cargo.toml", package.folder);
        check_own_layer(package, &path, &mut found);
        check_unit_tests(tree, package, &mut found);
        for dependency in &package.manifest.dependencies {
            let outside = OUTSIDE_PACKAGES.contains(&package.folder.as_str());
            if !dependency.from_workspace && !outside {
                let message = format!(
                    "`{}` must be `.workspace = true`: versions live in one table",
                    dependency.name
                );
                found.push(Violation::line(&path, dependency.line, "versions", message));
            }
            if dependency.kind == DependencyKind::Dev {
                continue;
            }
            if ours.contains(dependency.name.as_str()) {
                check_edge(package, dependency, &floors, &path, &mut found);
            } else if !outside && !third_party.permits(&package.manifest.name, &dependency.name) {
                let message = format!(
                    "`{}` is not listed for this crate in {THIRD_PARTY}: add it there together \
                     with a decision record",
                    dependency.name
                );
                found.push(Violation::line(&path, dependency.line, "third-party", message));
            }
        }
    }
    third_party.report_unused(&mut found);
    check_reasons(tree, &mut found);
    found
}

fn check_own_layer(package: &Crate, path: &str, found: &mut Vec<Violation>) {
    let folder_name = package.folder.rsplit('/').next().unwrap_or(&package.folder);
    let name = &package.manifest.name;
    if package.folder.starts_with("crates/") && folder_name != name {
        let message = format!("the folder is `{folder_name}`, the crate `{name}`: rename one");
        found.push(Violation::file(path, "floors", message));
    }
    if package.manifest.layer.is_none() && package.folder != "fuzz" {
        let message = "states no floor: add `[package.metadata]` with `floor = N`";
        found.push(Violation::file(path, "floors", message));
    }
}

/// Checks that a library whose unit tests do not run has none.
fn check_unit_tests(tree: &Tree, package: &Crate, found: &mut Vec<Violation>) {
    if !package.manifest.skips_unit_tests {
        return;
    }
    let sources = format!("{}/src", package.folder);
    for (path, text) in tree.rust_files_below(&sources) {
        if text.contains("#[cfg(test)]") || text.contains("#[test]") {
            let message = "its tests do not run: remove `test = false` from the crate's `[lib]`";
            found.push(Violation::file(path, "unit-tests", message));
        }
    }
}

fn check_edge(
    package: &Crate,
    dependency: &Dependency,
    floors: &BTreeMap<&str, u32>,
    path: &str,
    found: &mut Vec<Violation>,
) {
    let name = package.manifest.name.as_str();
    if let (Some(own), Some(other)) = (floors.get(name), floors.get(dependency.name.as_str()))
        && other >= own
    {
        let message = format!(
            "floor {own} imports `{}` of floor {other}: imports must point down",
            dependency.name
        );
        found.push(Violation::line(path, dependency.line, "floors", message));
    }
    for (test_only, users) in TEST_ONLY {
        if dependency.name == test_only && !users.contains(&name) {
            let message = format!("`{test_only}` is for tests: make it a dev-dependency");
            found.push(Violation::line(path, dependency.line, "floors", message));
        }
    }
}

/// Checks that a comment gives the reason for every third-party crate of the workspace table.
fn check_reasons(tree: &Tree, found: &mut Vec<Violation>) {
    let Some(text) = tree.text("Cargo.toml") else { return };
    let workspace = crate::checkout::cargo_manifest::Manifest::parse(text);
    for (name, line, explained) in workspace.workspace_dependencies {
        if !explained {
            let message = format!("`{name}` needs a comment line above it with the reason");
            found.push(Violation::line("Cargo.toml", line, "third-party", message));
        }
    }
}

/// The list of permitted third-party crates: rows `crate: name, name`.
struct ThirdParty {
    permitted: BTreeMap<(String, String), usize>,
    used: BTreeSet<(String, String)>,
}

impl ThirdParty {
    fn read(tree: &Tree, found: &mut Vec<Violation>) -> ThirdParty {
        let mut permitted = BTreeMap::new();
        for (index, line) in tree.text(THIRD_PARTY).unwrap_or("").lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let Some((package, names)) = line.split_once(':') else {
                let message = format!("`{line}` is not `crate: name, name`");
                found.push(Violation::line(THIRD_PARTY, index + 1, "third-party", message));
                continue;
            };
            for name in names.split(',').map(str::trim).filter(|name| !name.is_empty()) {
                permitted.insert((package.trim().to_string(), name.to_string()), index + 1);
            }
        }
        ThirdParty { permitted, used: BTreeSet::new() }
    }

    fn permits(&mut self, package: &str, name: &str) -> bool {
        let key = (package.to_string(), name.to_string());
        let permitted = self.permitted.contains_key(&key);
        if permitted {
            self.used.insert(key);
        }
        permitted
    }

    fn report_unused(&self, found: &mut Vec<Violation>) {
        for (key, line) in &self.permitted {
            if !self.used.contains(key) {
                let message = format!("`{}` does not use `{}`: remove it here", key.0, key.1);
                found.push(Violation::line(THIRD_PARTY, *line, "third-party", message));
            }
        }
    }
}
