//! Each rule for prose with one planted violation.

use crate::broken;
use xtask::rules::prose::check;

fn source(text: &str) -> Vec<&'static str> {
    broken(check, &[("crates/a/src/thing.rs", text)])
}

fn document(text: &str) -> Vec<&'static str> {
    broken(check, &[("docs/page.md", text)])
}

#[test]
fn banned_words_are_reported_in_comments_and_strings_only() {
    let word = concat!("who", "ever");
    assert_eq!(source(&format!("//! A thing.\n// For {word} reads.\n")), ["words"]);
    assert_eq!(source(&format!("//! A thing.\nconst A: &str = \"for {word}\";\n")), ["words"]);
    assert_eq!(source(&format!("//! A thing.\nconst A: &str = \"{word}\";\n")), [""; 0]);
    assert_eq!(source(&format!("//! A thing.\nfn {word}() {{}}\n")), [""; 0]);
    assert_eq!(source(&format!("//! A thing.\n// {word}s\n")), [""; 0]);
}

#[test]
fn a_doc_comment_that_begins_with_a_question_is_reported() {
    assert_eq!(source("//! What it does.\n"), ["first-doc-line"]);
    assert_eq!(source("//! A thing.\n/// How many.\nfn a() {}\n"), ["first-doc-line"]);
    assert_eq!(source("//! A thing,\n//! When it is late.\n"), [""; 0]);
}

#[test]
fn banned_words_and_long_lines_of_documents_are_reported() {
    let word = concat!("so", " many");
    assert_eq!(document(&format!("There are {word} keys.\n")), ["words"]);
    assert_eq!(document(&format!("There are `{word}` keys.\n```\n{word}\n```\n")), [""; 0]);
    let history = [("CHANGELOG.md", &*format!("{word}\n"))];
    assert_eq!(broken(check, &history), [""; 0]);
    assert_eq!(document(&format!("{}\n", "a".repeat(121))), ["width"]);
    assert_eq!(document(&format!("| {} |\n", "a".repeat(121))), [""; 0]);
}

#[test]
fn long_sentences_of_documents_are_reported() {
    let words = |count: usize| "and ".repeat(count).trim_end().to_string();
    assert_eq!(document(&format!("{}.\n", words(26))), ["sentence"]);
    assert_eq!(document(&format!("{}\n{}.\n", words(20), words(6))), ["sentence"]);
    assert_eq!(document(&format!("{}.\n{}.\n", words(25), words(25))), [""; 0]);
    assert_eq!(document(&format!("- {}\n- {}\n", words(20), words(20))), [""; 0]);
    assert_eq!(document(&format!("| {} |\n", words(26))), [""; 0]);
}
