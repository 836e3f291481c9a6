//! Where cargo puts the programs that the checks run.
//!
//! The test command checks the programs that the tests were built with: to build them for release,
//! too, takes longer than all checks of them. Commands that run one check alone, and every program
//! that is measured, take the release build.

use std::path::PathBuf;
use std::sync::OnceLock;

use crate::tree;

/// The build that the checks take their programs from.
static BUILD: OnceLock<&str> = OnceLock::new();

const RELEASE: &str = "release";
/// Where cargo puts what it builds for tests.
const TESTS: &str = "debug";

/// From here on the checks run what the tests were built with, not the release build.
/// REQUIRES: no check has run.
pub fn take_those_of_tests() {
    // Only the test command calls this, once.
    let _ = BUILD.set(TESTS);
}

/// The program `umbel` that the checks run.
pub fn umbel() -> PathBuf {
    checked("umbel")
}

/// A program that the checks run.
pub fn checked(name: &str) -> PathBuf {
    program(BUILD.get_or_init(|| RELEASE), name)
}

/// A program of the release build.
pub fn released(name: &str) -> PathBuf {
    program(RELEASE, name)
}

fn program(build: &str, name: &str) -> PathBuf {
    target().join(build).join(format!("{name}{}", std::env::consts::EXE_SUFFIX))
}

/// The folder that cargo builds into.
pub fn target() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(folder) => tree::root().join(folder),
        None => tree::root().join("target"),
    }
}
