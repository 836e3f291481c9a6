//! Each floor rule with one violation planted.

use crate::broken;
use xtask::{Tree, floors};

const LIB: &str = "//! A.\n#![forbid(unsafe_code)]\n";

fn package(name: &str, floor: u32, rest: &str) -> String {
    format!("[package]\nname = \"{name}\"\n[package.metadata]\nfloor = {floor}\n{rest}")
}

/// The rules broken by a crate `umbel-high` of floor 2 with this manifest, above `umbel-low`.
fn rules_of_manifest(low_floor: u32, rest: &str, third_party: &str) -> Vec<&'static str> {
    let low = package("umbel-low", low_floor, "");
    let high = package("umbel-high", 2, rest);
    let files = [
        ("crates/umbel-low/Cargo.toml", low.as_str()),
        ("crates/umbel-high/Cargo.toml", high.as_str()),
        (floors::THIRD_PARTY, third_party),
    ];
    broken(floors, &files)
}

/// The rules broken by the files of one crate, given by their names below `src`.
fn rules_of_sources(name: &str, sources: &[(&str, &str)]) -> Vec<&'static str> {
    let manifest = package(name, 3, "");
    let folder = format!("crates/{name}");
    let mut files = vec![(format!("{folder}/Cargo.toml"), manifest)];
    for (path, text) in sources {
        files.push((format!("{folder}/src/{path}"), (*text).to_string()));
    }
    let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    broken(floors, &files)
}

#[test]
fn imports_point_down() {
    let edge = "[dependencies]\numbel-low.workspace = true\n";
    assert_eq!(rules_of_manifest(1, edge, ""), [""; 0]);
    assert_eq!(rules_of_manifest(2, edge, ""), ["floors"]);
    assert_eq!(rules_of_manifest(3, edge, ""), ["floors"]);
    let in_tests = "[dev-dependencies]\numbel-low.workspace = true\n";
    assert_eq!(rules_of_manifest(3, in_tests, ""), [""; 0]);
    let missing = [("crates/a/Cargo.toml", "[package]\nname = \"a\"\n")];
    assert_eq!(broken(floors, &missing), ["floors"]);
}

#[test]
fn the_crash_disk_is_for_tests() {
    let sim = package("umbel-sim", 2, "");
    let rest = "[dependencies]\numbel-sim.workspace = true\n";
    for (name, expected) in [("umbel-torture", vec![]), ("umbel-cli", vec!["floors"])] {
        let user = package(name, 7, rest);
        let path = format!("crates/{name}/Cargo.toml");
        let files = [("crates/umbel-sim/Cargo.toml", sim.as_str()), (path.as_str(), &user)];
        assert_eq!(broken(floors, &files), expected);
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
    assert_eq!(broken(floors, &root), ["third-party"]);
}

#[test]
fn modules_do_not_go_round_in_a_circle() {
    let cycle = |lib: &str, a: &str, b: &str| {
        rules_of_sources(
            "umbel-a",
            &[("lib.rs", &format!("{LIB}{lib}")), ("a.rs", a), ("b/mod.rs", b)],
        )
    };
    let modules = "mod a;\nmod b;\n";
    let circle = ["module-cycle"];
    assert_eq!(cycle(modules, "use crate::b::B;\n", "use std::io;\n"), [""; 0]);
    assert_eq!(cycle(modules, "use crate::b::B;\n", "use crate::a::A;\n"), circle);
    assert_eq!(cycle(modules, "use super::b::B;\n", "fn f() { crate::a::g(); }\n"), circle);
    let exports = "mod a;\nmod b;\npub use a::A;\npub use b::{B as Beta};\n";
    assert_eq!(cycle(exports, "use crate::Beta;\n", "use crate::{A};\n"), circle);
    let in_tests = "#[cfg(test)]\nmod tests { use crate::a::A; }\n";
    assert_eq!(cycle(modules, "use crate::b::B;\n", in_tests), [""; 0]);
}

#[test]
fn the_report_names_the_circle() {
    let manifest = package("umbel-a", 0, "");
    let tree = Tree::from_files(&[
        ("crates/umbel-a/Cargo.toml", manifest.as_str()),
        ("crates/umbel-a/src/lib.rs", "//! A.\n#![forbid(unsafe_code)]\nmod a;\nmod b;\n"),
        ("crates/umbel-a/src/a.rs", "//! A.\nuse crate::b::B;\n"),
        ("crates/umbel-a/src/b.rs", "//! B.\nuse crate::a::A;\n"),
    ]);
    let found = floors(&tree);
    let expected = "the modules go round in a circle: a -> b (crates/umbel-a/src/a.rs:2), \
                    b -> a (crates/umbel-a/src/b.rs:2)";
    assert_eq!(found[0].message, expected);
}

#[test]
fn unsafe_code_stays_where_it_is_needed() {
    let unsafe_code = "//! A.\nfn a() { unsafe { b() } }\n";
    let sources = [("lib.rs", LIB), ("a.rs", unsafe_code)];
    assert_eq!(rules_of_sources("umbel-a", &sources), ["unsafe"]);
    assert_eq!(rules_of_sources("umbel-memtable", &sources), [""; 0]);
    assert_eq!(rules_of_sources("umbel-a", &[("lib.rs", "//! A.\n")]), ["unsafe"]);

    // One module of the filters may have it, and their root denies it everywhere else.
    let deny = "//! A.\n#![deny(unsafe_code)]\n";
    let filter =
        |root, file| rules_of_sources("umbel-filter", &[("lib.rs", root), (file, unsafe_code)]);
    assert!(filter(deny, "simd.rs").is_empty());
    assert_eq!(filter(deny, "line.rs"), ["unsafe"]);
    assert_eq!(filter(deny, "simd/more.rs"), ["unsafe"]);
    assert_eq!(filter(LIB, "simd.rs"), ["unsafe"]);
}

#[test]
fn the_outside_world_is_reached_through_env() {
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

#[test]
fn nothing_low_is_async_and_the_engine_knows_no_streams_of_happenings() {
    let with = |name: &str, line: &str| rules_of_sources(name, &[("lib.rs", LIB), ("a.rs", line)]);
    assert_eq!(with("umbel-log", "async fn a() { b().await }"), ["async"]);
    assert_eq!(with("umbel", "struct EventStoreHead;"), ["absences"]);
    assert_eq!(with("umbel", "fn expected_revision() {}"), ["absences"]);
    assert_eq!(
        with("umbel", "struct CompactionStream; struct ReadEvent; fn prevent() {}"),
        [""; 0]
    );
}
