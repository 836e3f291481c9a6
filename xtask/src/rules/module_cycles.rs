//! The rule for modules: inside a crate, the graph of top-level modules has no cycle.
//!
//! An edge `a -> b` stands for a path in the files of module `a` that names module `b`, by
//! `crate::b`, by `super::b` or through a re-export of the crate's root. Tests do not count.

use std::collections::{BTreeMap, BTreeSet};

use crate::path_scan::{PathUse, paths};
use crate::source::{Source, words};
use crate::tidy::{covers, test_files};
use crate::{Tree, Violation};

/// Where an edge was first seen.
type Edges = BTreeMap<String, BTreeMap<String, String>>;

/// Checks every crate.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    let tests = test_files(tree);
    for package in tree.crates() {
        let folder = format!("{}/src", package.folder);
        for root in ["lib.rs", "main.rs"] {
            let root = format!("{folder}/{root}");
            let Some(text) = tree.text(&root) else { continue };
            let edges = edges(tree, &folder, &Root::read(&root, text), &tests);
            if let Some(cycle) = find_cycle(&edges) {
                found.push(Violation::file(&root, "module-cycle", describe(&cycle, &edges)));
            }
        }
    }
    found
}

/// A crate's root: its modules, and the names it re-exports with the module they come from.
struct Root {
    modules: BTreeSet<String>,
    exports: BTreeMap<String, String>,
}

impl Root {
    fn read(path: &str, text: &str) -> Root {
        let code = Source::parse(path, text).code_without_tests();
        let mut modules = BTreeSet::new();
        for at in words(&code, "mod") {
            let rest = code[at + 3..].trim_start();
            let name: String =
                rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            modules.insert(name);
        }
        let mut exports = BTreeMap::new();
        for path in paths(&code) {
            let skipped = usize::from(matches!(path.parts[0].as_str(), "crate" | "self"));
            if let Some(module) = path.parts.get(skipped).filter(|part| modules.contains(*part)) {
                exports.insert(path.name().to_string(), module.clone());
            }
        }
        Root { modules, exports }
    }

    fn module_of(&self, name: &str) -> Option<&str> {
        if let Some(module) = self.modules.get(name) {
            return Some(module);
        }
        self.exports.get(name).map(String::as_str)
    }
}

fn edges(tree: &Tree, folder: &str, root: &Root, tests: &[String]) -> Edges {
    let mut edges = Edges::new();
    for (path, text) in tree.rust_files_below(folder) {
        let inside = module_path(&path[folder.len() + 1..]);
        let Some(own) = inside.first().filter(|module| root.modules.contains(*module)) else {
            continue;
        };
        if tests.iter().any(|test| covers(test, path)) {
            continue;
        }
        let source = Source::parse(path, text);
        for used in paths(&source.code_without_tests()) {
            let Some(name) = root_name(&used, &inside) else { continue };
            let Some(other) = root.module_of(&name).filter(|other| *other != own) else { continue };
            let place = || format!("{path}:{}", source.line_of(used.offset));
            edges.entry(own.clone()).or_default().entry(other.to_string()).or_insert_with(place);
        }
    }
    edges
}

/// `version/edit.rs` is `["version", "edit"]`; `version/mod.rs` is `["version"]`.
fn module_path(file: &str) -> Vec<String> {
    let mut parts: Vec<String> =
        file.trim_end_matches(".rs").split('/').map(str::to_string).collect();
    if parts.last().is_some_and(|part| part == "mod") {
        parts.pop();
    }
    parts
}

/// The name that a path looks up at the crate's root, or `None` where it does not.
fn root_name(used: &PathUse, inside: &[String]) -> Option<String> {
    let mut parts = used.parts.iter().peekable();
    let mut base = match parts.peek()?.as_str() {
        "crate" => {
            parts.next();
            Vec::new()
        }
        "self" => {
            parts.next();
            inside.to_vec()
        }
        "super" => inside.to_vec(),
        _ => return None,
    };
    while parts.next_if(|part| *part == "super").is_some() {
        base.pop()?;
    }
    base.extend(parts.cloned());
    base.into_iter().next()
}

fn find_cycle(edges: &Edges) -> Option<Vec<String>> {
    let mut finished = BTreeSet::new();
    for start in edges.keys() {
        let mut way = Vec::new();
        if let Some(cycle) = walk(edges, start, &mut way, &mut finished) {
            return Some(cycle);
        }
    }
    None
}

fn walk(
    edges: &Edges,
    module: &str,
    way: &mut Vec<String>,
    finished: &mut BTreeSet<String>,
) -> Option<Vec<String>> {
    if let Some(at) = way.iter().position(|other| other == module) {
        let mut cycle = way[at..].to_vec();
        cycle.push(module.to_string());
        return Some(cycle);
    }
    if finished.contains(module) {
        return None;
    }
    way.push(module.to_string());
    for next in edges.get(module).into_iter().flat_map(BTreeMap::keys) {
        if let Some(cycle) = walk(edges, next, way, finished) {
            return Some(cycle);
        }
    }
    way.pop();
    finished.insert(module.to_string());
    None
}

fn describe(cycle: &[String], edges: &Edges) -> String {
    let steps: Vec<String> = cycle
        .windows(2)
        .map(|step| format!("{} -> {} ({})", step[0], step[1], edges[&step[0]][&step[1]]))
        .collect();
    format!("the modules go round in a circle: {}", steps.join(", "))
}
