//! Each floor rule with one planted violation.

use crate::broken;
use xtask::rules::crate_rules::THIRD_PARTY;
use xtask::{Tree, layers};

const LIB: &str = "//! A.\n#![forbid(unsafe_code)]\n";

fn package(name: &str, floor: u32, rest: &str) -> String {
    format!("[package]\nname = \"{name}\"\n[package.metadata]\nfloor = {floor}\n{rest}")
}

/// Returns the rules that a crate `umbel-high` of floor 2 with this manifest breaks, above
/// `umbel-low`.
fn rules_of_manifest(low_floor: u32, rest: &str, third_party: &str) -> Vec<&'static str> {
    let low = package("umbel-low", low_floor, "");
    let high = package("umbel-high", 2, rest);
    let files = [
        ("crates/umbel-low/Cargo.toml", low.as_str()),
        ("crates/umbel-high/Cargo.toml", high.as_str()),
        (THIRD_PARTY, third_party),
    ];
    broken(layers, &files)
}

/// Returns the rules that the files of one crate break; names are below `src`.
fn rules_of_sources(name: &str, sources: &[(&str, &str)]) -> Vec<&'static str> {
    let manifest = package(name, 3, "");
    let folder = format!("crates/{name}");
    let mut files = vec![(format!("{folder}/Cargo.toml"), manifest)];
    for (path, text) in sources {
        files.push((format!("{folder}/src/{path}"), (*text).to_string()));
    }
    let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    broken(layers, &files)
}

#[test]
fn upward_imports_are_reported() {
    let edge = "[dependencies]\numbel-low.workspace = true\n";
    assert_eq!(rules_of_manifest(1, edge, ""), [""; 0]);
    assert_eq!(rules_of_manifest(2, edge, ""), ["floors"]);
    assert_eq!(rules_of_manifest(3, edge, ""), ["floors"]);
    let in_tests = "[dev-dependencies]\numbel-low.workspace = true\n";
    assert_eq!(rules_of_manifest(3, in_tests, ""), [""; 0]);
    let missing = [("crates/a/Cargo.toml", "[package]\nname = \"a\"\n")];
    assert_eq!(broken(layers, &missing), ["floors"]);
}

#[test]
fn unit_tests_that_do_not_run_are_reported() {
    let manifest = package("umbel-low", 1, "[lib]\ntest = false\n");
    let tested = format!("{LIB}#[cfg(test)]\nmod tests {{}}\n");
    for (source, expected) in [(LIB, vec![]), (tested.as_str(), vec!["unit-tests"])] {
        let files = [
            ("crates/umbel-low/Cargo.toml", manifest.as_str()),
            ("crates/umbel-low/src/lib.rs", source),
        ];
        assert_eq!(broken(layers, &files), expected);
    }
}

#[test]
fn crash_disk_outside_tests_is_reported() {
    let sim = package("umbel-sim", 2, "");
    let rest = "[dependencies]\numbel-sim.workspace = true\n";
    for (name, expected) in [("umbel-torture", vec![]), ("umbel-cli", vec!["floors"])] {
        let user = package(name, 7, rest);
        let path = format!("crates/{name}/Cargo.toml");
        let files = [("crates/umbel-sim/Cargo.toml", sim.as_str()), (path.as_str(), &user)];
        assert_eq!(broken(layers, &files), expected);
    }
}

#[test]
fn third_party_crates_are_listed_used_and_explained() {
    let edge = "[dependencies]\nzstd.workspace = true\n";
    assert_eq!(rules_of_manifest(1, edge, "umbel-high: zstd\n"), [""; 0]);
    assert_eq!(rules_of_manifest(1, edge, ""), ["third-party"]);
    assert_eq!(rules_of_manifest(1, "", "umbel-high: zstd\n"), ["third-party"]);
    assert_eq!(
        rules_of_manifest(1, "[dependencies]\nzstd = \"1\"\n", "umbel-high: zstd\n"),
        ["versions"]
    );
    let root = [("Cargo.toml", "[workspace.dependencies]\nzstd = \"1\"\n")];
    assert_eq!(broken(layers, &root), ["third-party"]);
}

#[test]
fn modules_of_a_crate_form_no_cycle() {
    let cycle = |lib: &str, a: &str, b: &str| {
        rules_of_sources(
            "umbel-a",
            &[("lib.rs", &format!("{LIB}{lib}")), ("a.rs", a), ("b/mod.rs", b)],
        )
    };
    let modules = "mod a;\nmod b;\n";
    let found = ["module-cycle"];
    assert_eq!(cycle(modules, "use crate::b::B;\n", "use std::io;\n"), [""; 0]);
    assert_eq!(cycle(modules, "use crate::b::B;\n", "use crate::a::A;\n"), found);
    assert_eq!(cycle(modules, "use super::b::B;\n", "fn f() { crate::a::g(); }\n"), found);
    let exports = "mod a;\nmod b;\npub use a::A;\npub use b::{B as Beta};\n";
    assert_eq!(cycle(exports, "use crate::Beta;\n", "use crate::{A};\n"), found);
    let in_tests = "#[cfg(test)]\nmod tests { use crate::a::A; }\n";
    assert_eq!(cycle(modules, "use crate::b::B;\n", in_tests), [""; 0]);
}

#[test]
fn modules_of_a_folder_form_no_cycle() {
    let cycle = |front: &str, a: &str, b: &str| {
        let files = [
            ("lib.rs", &*format!("{LIB}mod f;\nmod g;\n")),
            ("f/mod.rs", front),
            ("f/a.rs", a),
            ("f/b.rs", b),
            ("g.rs", "use std::io;\n"),
        ];
        rules_of_sources("umbel-a", &files)
    };
    let front = "mod a;\nmod b;\npub use a::A;\npub use b::B as Beta;\n";
    let found = ["module-cycle"];
    assert_eq!(cycle(front, "use super::b::B;\n", "use crate::g::G;\n"), [""; 0]);
    assert_eq!(cycle(front, "use super::b::B;\n", "use crate::f::a::A;\n"), found);
    // Through the re-exports of the folder's `mod.rs`.
    assert_eq!(cycle(front, "use super::Beta;\n", "use crate::f::A;\n"), found);
    // The `mod.rs` is the folder: it may use its files, and they may use it.
    let with_code = &format!("{front}pub struct C;\nfn f() {{ a::f(); }}\n");
    assert_eq!(cycle(with_code, "use super::C;\n", "use super::C;\n"), [""; 0]);
}

#[test]
fn the_report_names_the_cycle() {
    let manifest = package("umbel-a", 0, "");
    let tree = Tree::from_files(&[
        ("crates/umbel-a/Cargo.toml", manifest.as_str()),
        ("crates/umbel-a/src/lib.rs", "//! A.\n#![forbid(unsafe_code)]\nmod a;\nmod b;\n"),
        ("crates/umbel-a/src/a.rs", "//! A.\nuse crate::b::B;\n"),
        ("crates/umbel-a/src/b.rs", "//! B.\nuse crate::a::A;\n"),
    ]);
    let found = layers(&tree);
    let expected = "modules of one folder form a cycle: a -> b (crates/umbel-a/src/a.rs:2), \
                    b -> a (crates/umbel-a/src/b.rs:2)";
    assert_eq!(found[0].message, expected);
}

#[test]
fn unsafe_code_outside_its_crates_is_reported() {
    let unsafe_code = "//! A.\nfn a() { unsafe { b() } }\n";
    let sources = [("lib.rs", LIB), ("a.rs", unsafe_code)];
    assert_eq!(rules_of_sources("umbel-a", &sources), ["unsafe"]);
    assert_eq!(rules_of_sources("umbel-memtable", &sources), [""; 0]);
    assert_eq!(rules_of_sources("umbel-a", &[("lib.rs", "//! A.\n")]), ["unsafe"]);

    // One module of the filters may have unsafe code; their root denies it everywhere else.
    let deny = "//! A.\n#![deny(unsafe_code)]\n";
    let filter =
        |root, file| rules_of_sources("umbel-filter", &[("lib.rs", root), (file, unsafe_code)]);
    assert!(filter(deny, "simd/mod.rs").is_empty());
    assert_eq!(filter(deny, "line.rs"), ["unsafe"]);
    assert_eq!(filter(deny, "simd/more.rs"), ["unsafe"]);
    assert_eq!(filter(LIB, "simd/mod.rs"), ["unsafe"]);
}

#[test]
fn system_calls_outside_env_are_reported() {
    for line in [
        "use std::fs;",
        "use std::{fs::File, io};",
        "fn a() { std::thread::spawn(b); }",
        "use std::thread; fn a() { thread::spawn(b); }",
        "use std::time::{Duration, Instant};",
        "fn a() { std::time::SystemTime::now(); }",
    ] {
        let sources = [("lib.rs", LIB), ("a.rs", line)];
        assert_eq!(rules_of_sources("umbel-log", &sources), ["outside-world"], "{line}");
        assert_eq!(rules_of_sources("umbel-env", &sources), [""; 0], "{line}");
    }
    let sources = [("lib.rs", LIB), ("a.rs", "use std::time::Duration; use std::thread;")];
    assert_eq!(rules_of_sources("umbel-log", &sources), [""; 0]);
}

/// Story: five tests printed that they were skipped in words that the test command does not count,
/// so they counted as passed.
#[test]
fn own_reports_of_skipped_tests_are_reported() {
    let with = |floor: u32, line: &str| {
        let manifest = package("umbel-a", floor, "");
        let files = [
            ("crates/umbel-a/Cargo.toml", manifest.as_str()),
            ("crates/umbel-a/src/lib.rs", LIB),
            ("crates/umbel-a/tests/suite/b.rs", line),
        ];
        broken(layers, &files)
    };
    let uncounted = "fn a() { println!(\"skipped: there is no curl\"); }";
    let copy = "fn a() { println!(\"SKIPPED: b: there is no curl\"); }";
    assert_eq!(with(1, uncounted), ["skips"]);
    assert_eq!(with(1, copy), ["skips"]);
    assert_eq!(with(0, uncounted), ["skips"]);
    assert_eq!(with(0, copy), [""; 0]);
    assert_eq!(with(1, "fn a() { print_skipped(\"b\", \"there is no curl\"); }"), [""; 0]);
}

#[test]
fn async_and_event_names_in_low_floors_are_reported() {
    let with = |name: &str, line: &str| rules_of_sources(name, &[("lib.rs", LIB), ("a.rs", line)]);
    assert_eq!(with("umbel-log", "async fn a() { b().await }"), ["async"]);
    assert_eq!(with("umbel", "struct EventStoreHead;"), ["absences"]);
    assert_eq!(with("umbel", "fn expected_revision() {}"), ["absences"]);
    assert_eq!(
        with("umbel", "struct CompactionStream; struct ReadEvent; fn prevent() {}"),
        [""; 0]
    );
}
