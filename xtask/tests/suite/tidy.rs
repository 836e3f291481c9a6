//! Each tidy rule with one planted violation.

use crate::broken;
use xtask::rules::tidy::{check, long_files};

fn rules(text: &str) -> Vec<&'static str> {
    broken(check, &[("crates/a/src/thing.rs", text)])
}

#[test]
fn a_clean_file_passes() {
    assert_eq!(rules("//! A thing.\n\nfn a() -> &'static str {\n    \".unwrap()\"\n}\n"), [""; 0]);
}

#[test]
fn long_files_and_functions_are_reported() {
    let long = format!("//! A thing.\n{}", "//\n".repeat(1000));
    assert_eq!(rules(&long), [""; 0]);
    assert_eq!(broken(long_files, &[("crates/a/src/thing.rs", &long)]), ["file-length"]);
    let function = format!("//! A thing.\nfn a() {{\n{}}}\n", "    b();\n".repeat(69));
    assert_eq!(rules(&function), ["function-length"]);
    let shorter = format!("//! A thing.\nfn a() {{\n{}}}\n", "    b();\n".repeat(68));
    assert_eq!(rules(&shorter), [""; 0]);
}

#[test]
fn wide_lines_and_trailing_spaces_are_reported() {
    assert_eq!(rules(&format!("//! {}\n", "a".repeat(97))), ["width"]);
    assert_eq!(rules(&format!("//! https://{}\n", "a".repeat(97))), [""; 0]);
    assert_eq!(rules("//! A thing.\nfn a() {} \n"), ["width"]);
}

#[test]
fn missing_first_doc_line_is_reported() {
    assert_eq!(rules("\n//! Too late.\n"), ["first-line"]);
}

#[test]
fn meaningless_file_names_are_reported() {
    assert_eq!(broken(check, &[("crates/a/src/utils.rs", "//! Things.\n")]), ["file-name"]);
    assert_eq!(broken(check, &[("crates/a/src/helpers/a.rs", "//! Things.\n")]), ["file-name"]);
}

#[test]
fn unwrap_outside_tests_is_reported() {
    assert_eq!(rules("//! A.\nfn a() { b().unwrap(); }\n"), ["unwrap"]);
    let inside = "//! A.\n#[cfg(test)]\nmod tests { fn a() { b().unwrap(); } }\n";
    assert_eq!(rules(inside), [""; 0]);
    let declared = [
        ("crates/a/src/thing.rs", "//! A.\n#[cfg(test)]\nmod model;\n"),
        ("crates/a/src/thing/model.rs", "//! A.\nfn a() { b().unwrap(); }\n"),
    ];
    assert_eq!(broken(check, &declared), [""; 0]);
}

#[test]
fn unfinished_work_is_reported() {
    let marks = [concat!("to", "do!()"), concat!("unimple", "mented!()"), concat!("// TO", "DO")];
    for mark in marks {
        assert_eq!(rules(&format!("//! A.\nfn a() {{ {mark}\n}}\n")), ["unfinished"], "{mark}");
    }
}

#[test]
fn allow_and_expect_without_reason_are_reported() {
    assert_eq!(rules("//! A.\n#[allow(dead_code)]\nfn a() {}\n"), ["allow"]);
    assert_eq!(rules("//! A.\n#![cfg_attr(x, allow(dead_code))]\n"), ["allow"]);
    assert_eq!(rules("//! A.\n#[expect(dead_code)]\nfn a() {}\n"), ["allow"]);
    assert_eq!(rules("//! A.\n#[expect(dead_code, reason = \"b\")]\nfn a() {}\n"), [""; 0]);
}

#[test]
fn ignored_test_without_reason_is_reported() {
    assert_eq!(rules("//! A.\n#[ignore]\nfn a() {}\n"), ["ignore"]);
    assert_eq!(rules("//! A.\n#[ignore = \"slow\"]\nfn a() {}\n"), [""; 0]);
}

#[test]
fn second_test_binary_is_reported() {
    let files = [
        ("crates/a/Cargo.toml", "[package]\nname = \"a\"\n"),
        ("crates/a/tests/suite.rs", "//! A.\n"),
        ("crates/a/tests/other.rs", "//! A.\n"),
    ];
    assert_eq!(broken(check, &files), ["test-binaries"]);
    assert_eq!(broken(check, &files[..2]), [""; 0]);
}

#[test]
fn exceptions_only_shrink() {
    let long = format!("//! A thing.\nfn a() {{\n{}}}\n", "    b();\n".repeat(78));
    let with = |row: &str| {
        broken(check, &[("xtask/tidy-exceptions.txt", row), ("crates/a/src/thing.rs", &long)])
    };
    assert_eq!(with("crates/a/src/thing.rs::a: 80\n"), [""; 0]);
    assert_eq!(with("crates/a/src/thing.rs::a: 90\n"), ["exceptions"]);
    assert_eq!(with("crates/a/src/thing.rs::a: 75\n"), ["function-length"]);
    assert_eq!(with("crates/a/src/thing.rs::a: 80\nb.rs::c: 90\n"), ["exceptions"]);
    assert_eq!(with("crates/a/src/thing.rs::a: 80\nnonsense\n"), ["exceptions"]);
}
