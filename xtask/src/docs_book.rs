//! `cargo xtask docs`: the documents as a book in HTML, built by mdBook.
//!
//! The source of the book is a copy of all documents in their places. So links between documents
//! work in the repository and in the book. Other files to which a document links are copied as
//! well.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Tree;
use crate::checkout::file_tree;
use crate::rules::documents::{SUMMARY, linked_files};
use crate::tools::built_programs::target;
use crate::tools::check_steps::{cargo, run};
use crate::tools::tool_install::succeeded;

/// Version of mdBook, the book builder of the Rust project.
const MDBOOK: &str = "0.4.52";
/// Configuration of the book.
const CONFIGURATION: &str = "\
[book]
title = \"Umbel\"
language = \"en\"
src = \"src\"

[output.html]
default-theme = \"light\"
";

/// Builds the book. Returns whether it was built.
pub fn build() -> bool {
    let folder = target().join("book");
    let program = match mdbook().and_then(|program| {
        write_source(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(program)
    }) {
        Ok(program) => program,
        Err(reason) => {
            eprintln!("the book was not built: {reason}");
            return false;
        }
    };
    let built = run(Command::new(program).arg("build").arg(&folder)).counts.failed == 0;
    if built {
        println!("the book is in {}", folder.join("book").join("index.html").display());
    }
    built
}

/// Returns the program mdBook, and installs it from crates.io if it is missing.
fn mdbook() -> Result<PathBuf, String> {
    let folder = target().join("mdbook");
    let program = folder.join("bin").join(format!("mdbook{}", std::env::consts::EXE_SUFFIX));
    let version = Command::new(&program).arg("--version").output();
    let wanted = format!("mdbook v{MDBOOK}");
    if version.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).trim() == wanted) {
        return Ok(program);
    }
    println!("installing mdBook {MDBOOK}; this takes some minutes once");
    let installed = cargo()
        .args(["install", "mdbook", "--locked", "--quiet", "--no-default-features"])
        .args(["--features", "search", "--version", MDBOOK, "--root"])
        .arg(&folder)
        .output();
    succeeded("cargo install mdbook", installed)?;
    Ok(program)
}

/// Writes the configuration and the source of the book.
fn write_source(folder: &Path) -> std::io::Result<()> {
    let root = file_tree::root();
    let tree = Tree::read(&root)?;
    let source = folder.join("src");
    if source.exists() {
        std::fs::remove_dir_all(&source)?;
    }
    std::fs::create_dir_all(&source)?;
    std::fs::write(folder.join("book.toml"), CONFIGURATION)?;
    let mut files = BTreeSet::new();
    for (path, text) in tree.ending(".md") {
        files.insert(path.to_string());
        files.extend(linked_files(path, text));
    }
    for path in files {
        let (from, to) = (root.join(&path), source.join(&path));
        if from.is_file() {
            if let Some(parent) = to.parent() {
                std::fs::create_dir_all(parent)?;
            }
            match tree.text(&path) {
                Some(text) if path.ends_with(".md") => std::fs::write(to, with_index_links(text))?,
                _ => std::fs::copy(from, to).map(drop)?,
            }
        }
    }
    let summary = at_root(tree.text(SUMMARY).unwrap_or_default());
    let results = tree.ending(".md").map(|(path, _)| path).filter(|path| is_result(path, &summary));
    let results: String = results.map(|path| format!("- [{path}]({path})\n")).collect();
    std::fs::write(source.join("SUMMARY.md"), format!("{summary}\n# Results\n\n{results}"))
}

/// Whether a document is a result, which the summary does not list.
fn is_result(path: &str, summary: &str) -> bool {
    path.starts_with("docs/lab/") && !summary.contains(&format!("({path})"))
}

/// Returns a document whose links to a `README.md` go to its page, which mdBook calls `index`.
fn with_index_links(text: &str) -> String {
    text.replace("/README.md", "/index.md").replace("](README.md", "](index.md")
}

/// Returns the summary with paths relative to the root instead of `docs/`.
fn at_root(summary: &str) -> String {
    let line = |line: &str| match line.split_once("](") {
        Some((label, target)) => match target.strip_prefix("../") {
            Some(target) => format!("{label}]({target}"),
            None => format!("{label}](docs/{target}"),
        },
        None => line.to_string(),
    };
    summary.lines().map(line).collect::<Vec<_>>().join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_to_a_folder_page_go_to_its_index() {
        let links = "[a](lab/README.md#figures) [b](README.md) [c](../README.md)";
        let expected = "[a](lab/index.md#figures) [b](index.md) [c](../index.md)";
        assert_eq!(with_index_links(links), expected);
    }

    #[test]
    fn summary_paths_begin_at_the_root() {
        let summary = "# Summary\n\n- [Use](how-to/use.md)\n- [Shape](../ARCHITECTURE.md)";
        let expected = "# Summary\n\n- [Use](docs/how-to/use.md)\n- [Shape](ARCHITECTURE.md)\n";
        assert_eq!(at_root(summary), expected);
    }
}
