//! The checkout as the rules see it: every name, and the text of every readable file.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use crate::checkout::cargo_manifest::Manifest;

/// Folders without files of this project.
const SKIPPED_FOLDERS: [&str; 6] =
    [".git", "target", "corpus", "artifacts", "node_modules", ".venv"];

/// File name endings of files whose text is read.
const TEXT_ENDINGS: [&str; 5] = [".rs", ".md", ".toml", ".txt", ".lock"];

/// The files of a checkout. Paths are relative to its root and use `/`.
#[derive(Debug, Default)]
pub struct Tree {
    texts: BTreeMap<String, String>,
    names: BTreeSet<String>,
}

/// One crate of the checkout.
#[derive(Debug)]
pub struct Crate {
    /// Folder of the crate, relative to the root: `crates/umbel-log`.
    pub folder: String,
    /// The crate's `Cargo.toml`.
    pub manifest: Manifest,
}

impl Tree {
    /// Reads the checkout at `root`.
    pub fn read(root: &Path) -> io::Result<Tree> {
        let mut tree = Tree::default();
        tree.read_folder(root, "")?;
        Ok(tree)
    }

    /// Builds a tree of these files, for the tests of the rules.
    pub fn from_files(files: &[(&str, &str)]) -> Tree {
        let mut tree = Tree::default();
        for (path, text) in files {
            for (at, _) in path.match_indices('/') {
                tree.names.insert(path[..at].to_string());
            }
            tree.names.insert((*path).to_string());
            tree.texts.insert((*path).to_string(), (*text).to_string());
        }
        tree
    }

    fn read_folder(&mut self, folder: &Path, prefix: &str) -> io::Result<()> {
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = format!("{prefix}{name}");
            if entry.file_type()?.is_dir() {
                if !SKIPPED_FOLDERS.contains(&name.as_str()) {
                    self.names.insert(path.clone());
                    self.read_folder(&entry.path(), &format!("{path}/"))?;
                }
                continue;
            }
            let is_text = TEXT_ENDINGS.iter().any(|ending| name.ends_with(ending));
            if is_text || path == ".ci/run" {
                let bytes = std::fs::read(entry.path())?;
                self.texts.insert(path.clone(), String::from_utf8_lossy(&bytes).into_owned());
            }
            self.names.insert(path);
        }
        Ok(())
    }

    /// Whether the checkout has a file or folder with this name.
    pub fn exists(&self, path: &str) -> bool {
        path.is_empty() || self.names.contains(path)
    }

    /// The text of a file.
    pub fn text(&self, path: &str) -> Option<&str> {
        self.texts.get(path).map(String::as_str)
    }

    /// Returns every file with this ending, and its text.
    pub fn ending(&self, ending: &'static str) -> impl Iterator<Item = (&str, &str)> {
        self.texts
            .iter()
            .filter(move |(path, _)| path.ends_with(ending))
            .map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// Returns every Rust file below this folder, and its text.
    pub fn rust_files_below<'a>(
        &'a self,
        folder: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.ending(".rs").filter(move |(path, _)| {
            path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
        })
    }

    /// Every package of the checkout: the crates and `xtask`, in order of their folders.
    pub fn crates(&self) -> Vec<Crate> {
        let mut crates = Vec::new();
        for (path, text) in self.ending("Cargo.toml") {
            let Some(folder) = path.strip_suffix("/Cargo.toml") else { continue };
            let manifest = Manifest::parse(text);
            if !manifest.name.is_empty() {
                crates.push(Crate { folder: folder.to_string(), manifest });
            }
        }
        crates
    }
}

/// Returns the root of the checkout that this program was built from.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().map_or_else(|| here.to_path_buf(), Path::to_path_buf)
}
