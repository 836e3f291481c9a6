//! Rules for documents: links resolve, headings are fixed, every kind of file has its page.
//! PROMISES repeats the limits, and CI runs the command of the README.

use std::collections::BTreeMap;

use crate::checkout::rust_source::Source;
use crate::rules::const_expression::evaluate;
use crate::{Tree, Violation};

/// The headings of a changelog section, in their order.
const CHANGELOG_HEADINGS: [&str; 4] = ["Safety", "Performance", "Features", "Internals"];
/// The kinds of files that must have a page.
const FORMATS: [&str; 6] = ["log", "table", "filter", "manifest", "current", "wal"];
/// Documents every checkout has.
const REQUIRED: [&str; 13] = [
    "README.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "LICENSE-MIT",
    "LICENSE-APACHE",
    "docs/README.md",
    "docs/PROMISES.md",
    "docs/STYLE.md",
    SUMMARY,
    "docs/TESTING.md",
    "docs/decisions/README.md",
];
/// Table of contents of the book.
pub const SUMMARY: &str = "docs/SUMMARY.md";
/// Documents that the book does not list: its own table of contents, and results.
const UNLISTED: [&str; 2] = [SUMMARY, "docs/lab/"];
const LIMITS: [&str; 2] = ["crates/umbel-base/src/limits.rs", "crates/umbel-events/src/limits.rs"];
const PROMISES: &str = "docs/PROMISES.md";
/// The command of CI and the README that runs every check.
const TEST_COMMAND: &str = "cargo xtask test";

/// Checks every document.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for path in REQUIRED {
        if !tree.exists(path) {
            found.push(Violation::file(path, "documents", "this document is missing"));
        }
    }
    for (path, text) in tree.ending(".md") {
        check_links(tree, path, text, &mut found);
    }
    for (path, text) in tree.ending(".rs") {
        check_mentions(tree, path, text, &mut found);
    }
    if let Some(text) = tree.text("CHANGELOG.md") {
        check_changelog(text, &mut found);
    }
    check_summary(tree, &mut found);
    check_formats(tree, &mut found);
    check_decisions(tree, &mut found);
    if let Some(promises) = tree.text(PROMISES) {
        let limits: Vec<_> =
            LIMITS.iter().filter_map(|path| Some((*path, tree.text(path)?))).collect();
        check_limits(&limits, promises, &mut found);
    }
    for path in ["README.md", ".ci/run"] {
        if tree.text(path).is_some_and(|text| !text.contains(TEST_COMMAND)) {
            let message = format!("must name `{TEST_COMMAND}`: CI runs the command of the README");
            found.push(Violation::file(path, "test-command", message));
        }
    }
    found
}

/// Returns the link targets of a Markdown text with their lines; code is left out.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut fenced = false;
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            continue;
        }
        if fenced {
            continue;
        }
        let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
        for (at, _) in prose.match_indices("](") {
            if let Some(end) = prose[at + 2..].find(')') {
                found.push((index + 1, prose[at + 2..at + 2 + end].to_string()));
            }
        }
        if let Some((label, target)) = prose.split_once("]: ")
            && label.starts_with('[')
        {
            found.push((index + 1, target.trim().to_string()));
        }
    }
    found
}

/// Returns the files that a document links, relative to the root.
pub fn linked_files(path: &str, text: &str) -> Vec<String> {
    let files = links(text).into_iter().filter(|(_, target)| !target.contains("://"));
    files
        .filter_map(|(_, target)| resolve(path, target.split('#').next().unwrap_or(&target)))
        .collect()
}

/// Checks that the book lists every document below `docs/`.
fn check_summary(tree: &Tree, found: &mut Vec<Violation>) {
    let Some(summary) = tree.text(SUMMARY) else { return };
    let listed = linked_files(SUMMARY, summary);
    for (path, _) in tree.ending(".md").filter(|(path, _)| path.starts_with("docs/")) {
        let is_unlisted = UNLISTED.iter().any(|unlisted| path.starts_with(unlisted));
        if !is_unlisted && !listed.iter().any(|page| page == path) {
            let message = format!("`{path}` is not listed: add it, so that the book has it");
            found.push(Violation::file(SUMMARY, "summary", message));
        }
    }
}

fn check_links(tree: &Tree, path: &str, text: &str, found: &mut Vec<Violation>) {
    for (line, target) in links(text) {
        if target.contains("://") || target.starts_with("mailto:") || target.starts_with('#') {
            continue;
        }
        let file = target.split('#').next().unwrap_or(&target);
        let resolved = resolve(path, file);
        if !resolved.as_deref().is_some_and(|resolved| tree.exists(resolved)) {
            let message = format!("the link to `{target}` has no target");
            found.push(Violation::line(path, line, "links", message));
        }
    }
}

/// Checks that every document that a comment names exists.
fn check_mentions(tree: &Tree, path: &str, text: &str, found: &mut Vec<Violation>) {
    if Source::parse(path, text).is_test_file() {
        return;
    }
    for (index, line) in text.lines().enumerate().filter(|(_, line)| line.contains("//")) {
        let is_name = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
        for word in line.split(|c| !is_name(c)) {
            let word = word.trim_end_matches('.');
            if word.starts_with("docs/") && word.ends_with(".md") && !tree.exists(word) {
                let message = format!("`{word}` does not exist");
                found.push(Violation::line(path, index + 1, "links", message));
            }
        }
    }
}

/// Resolves a link of the document at `from` relative to the root. `None` if the link leads outside
/// the checkout.
fn resolve(from: &str, link: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

fn check_changelog(text: &str, found: &mut Vec<Violation>) {
    const FILE: &str = "CHANGELOG.md";
    let mut sections: Vec<(usize, &str, Vec<&str>)> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if let Some(title) = line.strip_prefix("## ") {
            sections.push((index + 1, title, Vec::new()));
        } else if let Some(heading) = line.strip_prefix("### ")
            && let Some((_, _, headings)) = sections.last_mut()
        {
            headings.push(heading);
        }
    }
    if sections.first().is_none_or(|(_, title, _)| *title != "Unreleased") {
        let message = "the first section must be `## Unreleased`";
        found.push(Violation::file(FILE, "changelog", message));
    }
    for (line, title, headings) in sections {
        if headings != CHANGELOG_HEADINGS {
            let message = format!(
                "`{title}` has the headings {headings:?}, not {CHANGELOG_HEADINGS:?} in this order"
            );
            found.push(Violation::line(FILE, line, "changelog", message));
        }
    }
}

/// Checks that each file kind has a page, the index lists every page, and a page names each magic
/// in the code.
fn check_formats(tree: &Tree, found: &mut Vec<Violation>) {
    const INDEX: &str = "docs/formats/README.md";
    for kind in FORMATS {
        let page = format!("docs/formats/{kind}.md");
        if !tree.exists(&page) {
            found.push(Violation::file(&page, "formats", "this file kind has no page"));
        }
    }
    let index = tree.text(INDEX).unwrap_or("");
    let mut pages = String::new();
    for (path, text) in tree.ending(".md") {
        let Some(name) = path.strip_prefix("docs/formats/") else { continue };
        if path == INDEX {
            continue;
        }
        pages.push_str(text);
        if !index.contains(&format!("({name})")) {
            let message = format!("the index does not link `{name}`");
            found.push(Violation::file(INDEX, "formats", message));
        }
    }
    for (path, text) in tree.ending(".rs") {
        if !path.starts_with("crates/") || Source::parse(path, text).is_test_file() {
            continue;
        }
        for (line, magic) in magics(text) {
            if !pages.contains(&magic) {
                let message = format!("no page of docs/formats/ names the magic `{magic}`");
                found.push(Violation::line(path, line, "formats", message));
            }
        }
    }
}

/// Returns the printable start of every byte string in a line that defines a magic.
fn magics(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let defines = line.contains("const ") && line.contains("MAGIC");
        if let Some(at) = line.find("b\"").filter(|_| defines) {
            let magic: String =
                line[at + 2..].chars().take_while(|c| c.is_ascii_alphanumeric()).collect();
            if !magic.is_empty() {
                found.push((index + 1, magic));
            }
        }
    }
    found
}

/// Checks that decisions are numbered without gaps and listed in the index.
fn check_decisions(tree: &Tree, found: &mut Vec<Violation>) {
    const INDEX: &str = "docs/decisions/README.md";
    let index = tree.text(INDEX).unwrap_or("");
    let mut numbers: BTreeMap<u32, &str> = BTreeMap::new();
    for (path, _) in tree.ending(".md") {
        let Some(name) = path.strip_prefix("docs/decisions/").filter(|_| path != INDEX) else {
            continue;
        };
        match name.split('-').next().and_then(|number| number.parse().ok()) {
            Some(number) => {
                if let Some(other) = numbers.insert(number, name) {
                    let message = format!("has the number of `{other}`");
                    found.push(Violation::file(path, "decisions", message));
                }
            }
            None => {
                let message = "must be named `NNNN-what.md`";
                found.push(Violation::file(path, "decisions", message));
            }
        }
        if !index.contains(&format!("({name})")) {
            let message = format!("the index does not link `{name}`");
            found.push(Violation::file(INDEX, "decisions", message));
        }
    }
}

/// Checks that PROMISES and `limits.rs` hold the same names with the same values.
fn check_limits(limits: &[(&str, &str)], promises: &str, found: &mut Vec<Violation>) {
    let promised = promised_limits(promises);
    let mut in_code = Vec::new();
    let lines = limits.iter().flat_map(|(path, text)| text.lines().map(|line| (*path, line)));
    for (path, line) in lines {
        let Some(rest) = line.strip_prefix("pub const ") else { continue };
        let Some((name, expression)) = rest
            .split_once(':')
            .and_then(|(name, rest)| Some((name, rest.split_once('=')?.1)))
            .map(|(name, expression)| (name.trim(), expression.trim().trim_end_matches(';')))
        else {
            continue;
        };
        in_code.push(name);
        let Some(value) = evaluate(expression.trim()) else {
            let message = format!("`{name}` is not an integer expression this rule can read");
            found.push(Violation::file(path, "limits", message));
            continue;
        };
        match promised.get(name) {
            Some((_, number)) if *number == value => {}
            Some((line, number)) => {
                let message = format!("`{name}` is {value} in the code, {number} here");
                found.push(Violation::line(PROMISES, *line, "limits", message));
            }
            None => {
                let message = format!("the table of limits lacks `{name}` ({value})");
                found.push(Violation::file(PROMISES, "limits", message));
            }
        }
    }
    for (name, (line, _)) in &promised {
        if !in_code.contains(&name.as_str()) {
            let files: Vec<_> = limits.iter().map(|(path, _)| *path).collect();
            let message = format!("`{name}` is no constant of {}", files.join(" or "));
            found.push(Violation::line(PROMISES, *line, "limits", message));
        }
    }
}

/// Parses the table `| limit | value | constant |`: returns a map from constants to line and plain
/// value.
fn promised_limits(promises: &str) -> BTreeMap<String, (usize, String)> {
    let mut rows = BTreeMap::new();
    let mut inside = false;
    for (index, line) in promises.lines().enumerate() {
        let cells: Vec<&str> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
        if cells == ["limit", "value", "constant"] {
            inside = true;
        } else if !line.trim_start().starts_with('|') {
            inside = false;
        } else if let [_, value, name] = cells[..]
            && inside
            && value.contains(|c: char| c.is_ascii_digit())
        {
            let plain = value.replace(',', "").replace(" to ", "..=");
            rows.insert(name.trim_matches('`').to_string(), (index + 1, plain));
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_outside_code_are_found() {
        let text = "[a](b.md) `[c](d.md)`\n```\n[e](f.md)\n```\n[g]: h.md\n";
        assert_eq!(links(text), [(1, "b.md".to_string()), (5, "h.md".to_string())]);
        assert_eq!(resolve("docs/formats/log.md", "../../README.md").as_deref(), Some("README.md"));
        assert_eq!(resolve("README.md", "../x"), None);
    }

    #[test]
    fn table_of_limits_is_parsed() {
        let text = "| limit | value | constant |\n|---|---|---|\n| Key | 65,536 | `KEY` |\n\
                    | Bits | -1 to 1,000 | `BITS` |\n\n| x | y | z |\n";
        let rows = promised_limits(text);
        assert_eq!(rows.len(), 2);
        assert_eq!(rows["KEY"], (3, "65536".to_string()));
        assert_eq!(rows["BITS"], (4, "-1..=1000".to_string()));
    }
}
