//! The rule for failpoints, with one planted violation in each test.

use crate::broken;
use xtask::rules::failpoints::check;

const PRODUCT: &str = "crates/a/src/thing.rs";
const LIST: &str = "crates/a/tests/suite/failpoint_list.rs";
const HUNTED: &str =
    "//! Hunted.\nconst A: (&str, &str) = (\"thing-skip-step\", \"it skips one\");\n";

fn product(name: &str) -> String {
    format!("//! A thing.\nfn a() -> u64 {{\n    fail_point!(\"{name}\", |_| 7);\n    1\n}}\n")
}

#[test]
fn hunted_failpoint_passes() {
    let files = [(PRODUCT, &*product("thing-skip-step")), (LIST, HUNTED)];
    assert_eq!(broken(check, &files), [""; 0]);
}

#[test]
fn failpoint_that_nothing_hunts_is_reported() {
    assert_eq!(broken(check, &[(PRODUCT, &product("thing-skip-step"))]), ["failpoints"]);
    let other = [(PRODUCT, &*product("thing-skip-step")), (LIST, "//! Hunted.\n")];
    assert_eq!(broken(check, &other), ["failpoints"]);
}

#[test]
fn hunted_failpoint_without_a_site_is_reported() {
    assert_eq!(broken(check, &[(LIST, HUNTED)]), ["failpoints"]);
    let in_test = format!("//! A.\n#[cfg(test)]\nmod tests {{ {} }}\n", product("thing-skip-step"));
    assert_eq!(broken(check, &[(PRODUCT, &in_test), (LIST, HUNTED)]), ["failpoints"]);
}

#[test]
fn name_that_is_no_kebab_case_is_reported() {
    let files = [(PRODUCT, &*product("ThingSkipsStep"))];
    assert_eq!(broken(check, &files), ["failpoints"]);
}

#[test]
fn condition_on_the_feature_is_reported() {
    let block = "//! A.\n#[cfg(feature = \"failpoints\")]\nfn wrong() {}\n";
    assert_eq!(broken(check, &[(PRODUCT, block)]), ["failpoints"]);
    let in_test = format!("//! A.\n#[cfg(test)]\nmod tests {{\n{}}}\n", &block[7..]);
    assert_eq!(broken(check, &[(PRODUCT, &in_test)]), [""; 0]);
    assert_eq!(broken(check, &[("crates/umbel-torture/src/a.rs", block)]), [""; 0]);
}
