//! Each rule for documents with one planted violation.

use xtask::Tree;
use xtask::rules::documents::check;

const HEADINGS: &str = "### Safety\n### Performance\n### Features\n### Internals\n";

/// Whether the rule is broken somewhere in a tree of these files.
fn breaks(rule: &str, files: &[(&str, &str)]) -> bool {
    check(&Tree::from_files(files)).iter().any(|violation| violation.rule == rule)
}

#[test]
fn missing_documents_are_reported() {
    assert!(breaks("documents", &[]));
}

#[test]
fn broken_links_are_reported() {
    assert!(breaks("links", &[("docs/a.md", "[b](b.md)")]));
    assert!(breaks("links", &[("docs/a.md", "[b](../../b.md)")]));
    let whole = [
        ("docs/a.md", "[b](b.md#x) [c](https://c) [d](#d) [e](../e/)"),
        ("docs/b.md", ""),
        ("e/f.md", ""),
    ];
    assert!(!breaks("links", &whole));
}

#[test]
fn documents_that_the_book_does_not_list_are_reported() {
    let files = [("docs/SUMMARY.md", "[a](a.md)"), ("docs/a.md", ""), ("docs/lab/b.md", "")];
    assert!(!breaks("summary", &files));
    let unlisted = [files[0], files[1], ("docs/how-to/c.md", "")];
    assert!(breaks("summary", &unlisted));
}

#[test]
fn comments_that_name_missing_documents_are_reported() {
    assert!(breaks("links", &[("crates/a/src/lib.rs", "//! See `docs/formats/a.md`.\n")]));
    assert!(!breaks(
        "links",
        &[("crates/a/src/lib.rs", "//! See docs/a.md.\n"), ("docs/a.md", "")]
    ));
}

#[test]
fn the_changelog_has_its_headings_in_order() {
    let section = |text: String| breaks("changelog", &[("CHANGELOG.md", &text)]);
    assert!(!section(format!("# Changelog\n## Unreleased\n{HEADINGS}")));
    assert!(section(format!("# Changelog\n## 1.0\n{HEADINGS}")));
    assert!(section("# Changelog\n## Unreleased\n### Features\n".to_string()));
}

#[test]
fn every_file_kind_has_a_page_that_is_listed() {
    let pages = [
        ("docs/formats/log.md", "magic `UMBELLOG`"),
        ("docs/formats/table.md", ""),
        ("docs/formats/filter.md", ""),
        ("docs/formats/manifest.md", ""),
        ("docs/formats/current.md", ""),
        ("docs/formats/wal.md", ""),
        (
            "docs/formats/README.md",
            "[l](log.md) [t](table.md) [f](filter.md) [m](manifest.md) [c](current.md) [w](wal.md)",
        ),
    ];
    assert!(!breaks("formats", &pages));
    assert!(breaks("formats", &pages[1..]));
    assert!(breaks("formats", &pages[..6]));
    let magic = |text| {
        let mut files = pages.to_vec();
        files.push(("crates/umbel-log/src/format.rs", text));
        breaks("formats", &files)
    };
    assert!(!magic("pub const MAGIC: [u8; 8] = *b\"UMBELLOG\";\n"));
    assert!(magic("pub const MAGIC: [u8; 8] = *b\"UMBELXYZ\";\n"));
}

#[test]
fn unnumbered_or_unlisted_decisions_are_reported() {
    let with = |name: &str, index: &str| {
        breaks("decisions", &[(name, ""), ("docs/decisions/README.md", index)])
    };
    assert!(!with("docs/decisions/0001-layers.md", "[f](0001-layers.md)"));
    assert!(with("docs/decisions/0001-layers.md", ""));
    assert!(with("docs/decisions/floors.md", "[f](floors.md)"));
}

#[test]
fn promises_repeat_the_limits() {
    const HEAD: &str = "| limit | value | constant |\n|---|---|---|\n";
    let with = |rows: &str| {
        let limits = "pub const KEY: usize = 64 * 1024;\n";
        let promises = format!("{HEAD}{rows}");
        let files = [("crates/umbel-base/src/limits.rs", limits), ("docs/PROMISES.md", &promises)];
        breaks("limits", &files)
    };
    assert!(!with("| Longest key | 65,536 | `KEY` |\n"));
    assert!(with("| Longest key | 65,535 | `KEY` |\n"));
    assert!(with(""));
    assert!(with("| Longest key | 65,536 | `KEY` |\n| Longest name | 1 | `NAME` |\n"));
}

#[test]
fn ci_must_run_the_readme_command() {
    assert!(breaks("test-command", &[(".ci/run", "cargo test\n")]));
    assert!(!breaks("test-command", &[(".ci/run", "cargo xtask test\n")]));
}
