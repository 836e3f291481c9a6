//! Folders into which cargo puts the programs that the checks run.
//!
//! The test command checks the programs from the build of the tests, because a release build takes
//! longer than all checks. Commands that run one check, and every measured program, use the release
//! build.

use std::path::PathBuf;
use std::sync::OnceLock;

use crate::checkout::file_tree;

/// Build that contains the programs that the checks run.
static CHECKED_BUILD: OnceLock<&str> = OnceLock::new();

const RELEASE: &str = "release";
/// Folder of the build for tests.
const TEST_BUILD: &str = "debug";

/// Makes all later checks use the build of the tests, not the release build.
/// REQUIRES: no check of a program has run.
pub fn use_test_build() {
    // A repeated call changes nothing.
    let _ = CHECKED_BUILD.set(TEST_BUILD);
}

/// Returns the program `umbel` for the checks.
pub fn umbel_program() -> PathBuf {
    checked_program("umbel")
}

/// Returns a program for the checks.
pub fn checked_program(name: &str) -> PathBuf {
    program(CHECKED_BUILD.get_or_init(|| RELEASE), name)
}

/// Returns a program of the release build.
pub fn released_program(name: &str) -> PathBuf {
    program(RELEASE, name)
}

fn program(build: &str, name: &str) -> PathBuf {
    target().join(build).join(format!("{name}{}", std::env::consts::EXE_SUFFIX))
}

/// Returns the target folder of cargo.
pub fn target() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(folder) => file_tree::root().join(folder),
        None => file_tree::root().join("target"),
    }
}
