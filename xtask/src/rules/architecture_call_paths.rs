//! Rule for the call paths of ARCHITECTURE: a path goes through each file once, and each function
//! of a row is in one of the row's files.

use std::collections::BTreeMap;

use crate::rules::documents::linked_files;
use crate::{Tree, Violation};

/// The page with the tables.
const ARCHITECTURE: &str = "ARCHITECTURE.md";
/// Paths that the rule covers, by the first cell of their tables.
pub const PATHS: [&str; 5] =
    ["put", "get", "append", "subscribe (catch-up): open", "subscribe (catch-up): an event"];

/// Checks every covered path.
pub fn check(tree: &Tree) -> Vec<Violation> {
    check_paths(tree, &PATHS)
}

/// Checks the tables of these call paths.
pub fn check_paths(tree: &Tree, paths: &[&str]) -> Vec<Violation> {
    let mut found = Vec::new();
    let Some(page) = tree.text(ARCHITECTURE) else { return found };
    for &path in paths {
        let rows = rows(page, path);
        if rows.is_empty() {
            let message = format!("the table of the path `{path}` is missing");
            found.push(Violation::file(ARCHITECTURE, "call-paths", message));
        }
        check_files(&rows, &mut found);
        check_functions(tree, &rows, &mut found);
    }
    found
}

/// A row of a table, with its line, functions and files.
struct PathRow {
    line: usize,
    functions: Vec<String>,
    files: Vec<String>,
}

/// Returns the rows of the table `| path | function | file | ...`.
fn rows(page: &str, path: &str) -> Vec<PathRow> {
    let cells = |line: &str| -> Vec<String> {
        line.trim_matches('|').split('|').map(|cell| cell.trim().to_string()).collect()
    };
    let lines = page.lines().enumerate();
    let heading = lines.skip_while(|(_, line)| {
        !line.starts_with('|')
            || cells(line).get(..3).is_none_or(|head| head != [path, "function", "file"])
    });
    let body = heading.skip(2).take_while(|(_, line)| line.starts_with('|'));
    body.map(|(index, line)| {
        let cells = cells(line);
        let cell = |column: usize| cells.get(column).map_or("", String::as_str);
        let functions = cell(1).split('`').skip(1).step_by(2).map(str::to_string).collect();
        PathRow { line: index + 1, functions, files: linked_files(ARCHITECTURE, cell(2)) }
    })
    .collect()
}

fn check_files(rows: &[PathRow], found: &mut Vec<Violation>) {
    let mut lines: BTreeMap<&str, usize> = BTreeMap::new();
    for row in rows {
        for file in &row.files {
            if let Some(before) = lines.insert(file, row.line) {
                let message = format!("the path already went through `{file}` in line {before}");
                found.push(Violation::line(ARCHITECTURE, row.line, "call-paths", message));
            }
        }
    }
}

fn check_functions(tree: &Tree, rows: &[PathRow], found: &mut Vec<Violation>) {
    for row in rows {
        let texts: Vec<&str> = row.files.iter().filter_map(|file| tree.text(file)).collect();
        for function in &row.functions {
            let name = function.rsplit("::").next().unwrap_or(function);
            let is_there = |text: &&str| {
                ["(", "<"].iter().any(|after| text.contains(&format!("fn {name}{after}")))
            };
            if !texts.iter().any(is_there) {
                let message = format!("no file of this row has the function `{function}`");
                found.push(Violation::line(ARCHITECTURE, row.line, "call-paths", message));
            }
        }
    }
}
