//! Build script that records the commit of the build for `umbel --version`.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=UMBEL_BUILD_COMMIT");
    // A package without a repository names its commit by the variable.
    let commit = std::env::var("UMBEL_BUILD_COMMIT").ok().or_else(|| {
        if !is_own_repository() {
            return None;
        }
        watch_head();
        git(&["rev-parse", "--short=12", "HEAD"])
    });
    let shown = commit.map_or_else(String::new, |commit| format!(" ({commit})"));
    println!("cargo:rustc-env=UMBEL_COMMIT={shown}");
}

/// Whether the repository is the one of this workspace, and not one that contains a copy of the
/// workspace.
fn is_own_repository() -> bool {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().ok();
    let top = git(&["rev-parse", "--show-toplevel"]);
    let top = top.and_then(|top| Path::new(&top).canonicalize().ok());
    workspace.is_some() && workspace == top
}

/// Makes Cargo run this build script again after the next commit.
fn watch_head() {
    let Some(folder) = git(&["rev-parse", "--absolute-git-dir"]) else { return };
    let logs = Path::new(&folder).join("logs").join("HEAD");
    let watched = if logs.exists() { logs } else { Path::new(&folder).join("HEAD") };
    println!("cargo:rerun-if-changed={}", watched.display());
}

/// Returns the output of a git command; `None` without git or outside a repository.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_string())
}
