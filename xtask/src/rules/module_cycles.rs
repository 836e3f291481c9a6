//! Rule for modules: in each folder of a crate, the graph of its modules has no cycle.
//!
//! An edge `a -> b` between two modules of one folder stands for a path in the files of `a` that
//! leads to `b`, by `crate::`, by `super::` or through a re-export. Files below `a` belong to `a`,
//! and files below `b` to `b`. The `mod.rs` of a folder is no module of the folder. Tests do not
//! count.

use std::collections::{BTreeMap, BTreeSet};

use crate::checkout::rust_path_scan::paths;
use crate::checkout::rust_source::{Source, words};
use crate::rules::tidy::{covers, test_files};
use crate::{Tree, Violation};

/// Names of a module from the crate's root.
type ModulePath = Vec<String>;
/// Edges between modules, each with the place where it was first found.
type Edges = BTreeMap<String, BTreeMap<String, String>>;

/// Longest chain of re-exports that is followed.
const REEXPORTS_MAX: usize = 8;

/// Checks every crate.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    let tests = test_files(tree);
    for package in tree.crates() {
        let folder = format!("{}/src", package.folder);
        for root in ["lib.rs", "main.rs"] {
            let path = format!("{folder}/{root}");
            if tree.text(&path).is_none() {
                continue;
            }
            for (parent, edges) in edges(&Modules::read(tree, &folder, root, &tests)) {
                if let Some(cycle) = find_cycle(&edges) {
                    let file = parent_file(tree, &folder, &parent).unwrap_or_else(|| path.clone());
                    let message = describe(&cycle, &edges);
                    found.push(Violation::file(&file, "module-cycle", message));
                }
            }
        }
    }
    found
}

/// Returns the `mod.rs` of a folder.
fn parent_file(tree: &Tree, folder: &str, parent: &[String]) -> Option<String> {
    let stem = format!("{folder}/{}", parent.join("/"));
    let files = [format!("{stem}/mod.rs"), format!("{stem}.rs")];
    files.into_iter().find(|file| !parent.is_empty() && tree.text(file).is_some())
}

/// The modules of a crate, with their code outside tests.
struct Modules {
    files: BTreeMap<ModulePath, (String, String)>,
    exports: BTreeMap<ModulePath, BTreeMap<String, ModulePath>>,
}

impl Modules {
    fn read(tree: &Tree, folder: &str, root: &str, tests: &[String]) -> Modules {
        let mut modules = Modules { files: BTreeMap::new(), exports: BTreeMap::new() };
        for (path, text) in tree.rust_files_below(folder) {
            let file = &path[folder.len() + 1..];
            let is_other_root = ["lib.rs", "main.rs"].contains(&file) && file != root;
            if is_other_root || tests.iter().any(|test| covers(test, path)) {
                continue;
            }
            let module = if file == root { Vec::new() } else { module_path(file) };
            let code = Source::parse(path, text).code_without_tests();
            modules.files.insert(module, (path.to_string(), code));
        }
        let mut exports = BTreeMap::new();
        for (module, (_, code)) in &modules.files {
            let named: BTreeMap<_, _> = reexports(code)
                .into_iter()
                .filter_map(|(name, parts)| Some((name, absolute(&parts, module, &modules)?)))
                .collect();
            exports.insert(module.clone(), named);
        }
        modules.exports = exports;
        modules
    }

    fn is_module(&self, path: &[String]) -> bool {
        self.files.contains_key(path)
    }

    /// Resolves a path to its module, through re-exports; `None` outside the crate.
    fn resolve(&self, path: ModulePath) -> Option<ModulePath> {
        let mut path = path;
        for _ in 0..REEXPORTS_MAX {
            let mut known = 0;
            while known < path.len() && self.is_module(&path[..=known]) {
                known += 1;
            }
            let Some(name) = path.get(known) else { break };
            match self.exports.get(&path[..known]).and_then(|exports| exports.get(name)) {
                Some(target) => path = [target.as_slice(), &path[known + 1..]].concat(),
                None => {
                    path.truncate(known);
                    break;
                }
            }
        }
        Some(path).filter(|path| !path.is_empty())
    }
}

/// Returns the names that `pub use` gives, and their paths.
fn reexports(code: &str) -> Vec<(String, Vec<String>)> {
    let mut found = Vec::new();
    for at in words(code, "use") {
        if !code[..at].trim_end().ends_with("pub") {
            continue;
        }
        let end = code[at..].find(';').map_or(code.len(), |end| at + end);
        for path in paths(&code[at + 3..end]) {
            found.push((path.name().to_string(), path.parts));
        }
    }
    found
}

/// Returns the path from the crate's root; `None` if the path does not begin in the crate.
fn absolute(parts: &[String], inside: &[String], modules: &Modules) -> Option<ModulePath> {
    let mut parts = parts.iter().peekable();
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
        first => {
            let child = [inside, &[first.to_string()]].concat();
            modules.is_module(&child).then(|| inside.to_vec())?
        }
    };
    while parts.next_if(|part| *part == "super").is_some() {
        base.pop()?;
    }
    base.extend(parts.cloned());
    Some(base)
}

/// Returns the edges inside each folder.
fn edges(modules: &Modules) -> BTreeMap<ModulePath, Edges> {
    let mut folders: BTreeMap<ModulePath, Edges> = BTreeMap::new();
    for (module, (path, code)) in &modules.files {
        for used in paths(code) {
            let target = absolute(&used.parts, module, modules);
            let Some(target) = target.and_then(|target| modules.resolve(target)) else { continue };
            let common = module.iter().zip(&target).take_while(|(a, b)| a == b).count();
            let (Some(from), Some(to)) = (module.get(common), target.get(common)) else {
                continue;
            };
            let line = code[..used.offset].matches('\n').count() + 1;
            let edges = folders.entry(module[..common].to_vec()).or_default().entry(from.clone());
            edges.or_default().entry(to.clone()).or_insert_with(|| format!("{path}:{line}"));
        }
    }
    folders
}

/// Returns the module path of a file: `["version", "edit"]` for `version/edit.rs`, `["version"]`
/// for `version/mod.rs`.
fn module_path(file: &str) -> Vec<String> {
    let mut parts: Vec<String> =
        file.trim_end_matches(".rs").split('/').map(str::to_string).collect();
    if parts.last().is_some_and(|part| part == "mod") {
        parts.pop();
    }
    parts
}

fn find_cycle(edges: &Edges) -> Option<Vec<String>> {
    let mut finished = BTreeSet::new();
    for start in edges.keys() {
        let mut path = Vec::new();
        if let Some(cycle) = walk(edges, start, &mut path, &mut finished) {
            return Some(cycle);
        }
    }
    None
}

fn walk(
    edges: &Edges,
    module: &str,
    path: &mut Vec<String>,
    finished: &mut BTreeSet<String>,
) -> Option<Vec<String>> {
    if let Some(at) = path.iter().position(|other| other == module) {
        let mut cycle = path[at..].to_vec();
        cycle.push(module.to_string());
        return Some(cycle);
    }
    if finished.contains(module) {
        return None;
    }
    path.push(module.to_string());
    for next in edges.get(module).into_iter().flat_map(BTreeMap::keys) {
        if let Some(cycle) = walk(edges, next, path, finished) {
            return Some(cycle);
        }
    }
    path.pop();
    finished.insert(module.to_string());
    None
}

fn describe(cycle: &[String], edges: &Edges) -> String {
    let steps: Vec<String> = cycle
        .windows(2)
        .map(|step| format!("{} -> {} ({})", step[0], step[1], edges[&step[0]][&step[1]]))
        .collect();
    format!("modules of one folder form a cycle: {}", steps.join(", "))
}
