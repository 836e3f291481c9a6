//! Rules for prose in comments, strings and documents: words, first doc lines, line and sentence
//! length. `docs/STYLE.md` states them.

use crate::checkout::rust_source::{Source, words};
use crate::{Tree, Violation};

/// Words and phrases that the style page bans, spelled in parts so that this file does not contain
/// them.
const BANNED: [&str; 19] = [
    concat!("who", "ever"),
    concat!("some", "body"),
    concat!("no", "body"),
    concat!("any", "body"),
    concat!("every", "body"),
    concat!("men", "ded"),
    concat!("an", "ew"),
    concat!("to", "ld"),
    concat!("tells", " of"),
    concat!("as", "ked"),
    concat!("let", " go of"),
    concat!("lets", " go of"),
    concat!("ow", "ed"),
    concat!("so", " many"),
    concat!("of", " use"),
    concat!("what is", " none"),
    concat!("by", " hand"),
    concat!("in", " vain"),
    concat!("the", " house"),
];
/// Phrases with banned words that are data: names of figures in committed results, and a user of
/// the system. The phrases are spelled in parts as well.
const DATA: [&str; 4] = [
    concat!("as", "ked in", " vain"),
    concat!("searched in", " vain"),
    concat!("missing keys as", "ked"),
    concat!("chown -r no", "body"),
];
/// Words that begin an indirect question instead of a noun or verb phrase.
const QUESTIONS: [&str; 8] = ["What", "How", "Which", "Where", "When", "Who", "Whose", "Why"];
/// Largest number of characters of a line of prose in a document.
const LINE_WIDTH_MAX: usize = 120;
/// Largest number of words of a sentence in a document.
const SENTENCE_WORDS_MAX: usize = 25;
/// Documents that quote other texts or record history.
const UNCHECKED: [&str; 4] = ["CHANGELOG.md", "docs/glossary.md", "docs/STYLE.md", "docs/lab/"];

/// Checks every Rust file and every document.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for (path, text) in tree.ending(".rs") {
        let source = Source::parse(path, text);
        check_source_words(&source, &mut found);
        check_first_doc_lines(&source, &mut found);
    }
    for (path, text) in tree.ending(".md") {
        if !UNCHECKED.iter().any(|unchecked| path.starts_with(unchecked)) {
            check_document(path, text, &mut found);
        }
    }
    found
}

fn banned(word: &str) -> String {
    format!("`{word}` is banned: use the field's word, with a role as the actor")
}

/// Checks the words of comments and strings: the parts of the text that its code leaves blank.
fn check_source_words(source: &Source<'_>, found: &mut Vec<Violation>) {
    let mut text = source.text.to_ascii_lowercase();
    for phrase in DATA {
        text = text.replace(phrase, &" ".repeat(phrase.len()));
    }
    for word in BANNED {
        for at in words(&text, word) {
            // A word that is a whole string is data: a key of JSON, a name on the wire.
            let is_data = text[..at].ends_with('"') && text[at + word.len()..].starts_with('"');
            if source.code[at..].starts_with(' ') && !is_data {
                found.push(Violation::line(source.path, source.line_of(at), "words", banned(word)));
            }
        }
    }
}

/// Checks the first line of each doc comment.
fn check_first_doc_lines(source: &Source<'_>, found: &mut Vec<Violation>) {
    let mut before = "";
    for (index, line) in source.text.lines().enumerate() {
        let doc = line.trim_start();
        let marker = doc.get(..3).filter(|marker| matches!(*marker, "///" | "//!")).unwrap_or("");
        if let Some(phrase) = doc.strip_prefix(marker).filter(|_| !marker.is_empty())
            && marker != before
        {
            let phrase = phrase.trim_start();
            let first = phrase.split(|c: char| !c.is_alphabetic()).next().unwrap_or(phrase);
            if QUESTIONS.contains(&first) {
                let message = format!(
                    "the first doc line begins with `{first}`: write a noun phrase or a verb phrase"
                );
                found.push(Violation::line(source.path, index + 1, "first-doc-line", message));
            }
        }
        before = marker;
    }
}

/// One paragraph or list item of a document, without code.
struct Paragraph {
    line: usize,
    text: String,
}

/// Checks words, lines and sentences of a document; code and tables are left out.
fn check_document(path: &str, text: &str, found: &mut Vec<Violation>) {
    for (line, prose) in prose_lines(text) {
        let lower = prose.to_ascii_lowercase();
        for word in BANNED {
            if words(&lower, word).next().is_some() {
                found.push(Violation::line(path, line, "words", banned(word)));
            }
        }
        let width = prose.chars().count();
        if width > LINE_WIDTH_MAX && !prose.starts_with('|') && !prose.contains("](") {
            let message = format!("{width} characters, at most {LINE_WIDTH_MAX}");
            found.push(Violation::line(path, line, "width", message));
        }
    }
    for paragraph in paragraphs(text) {
        for sentence in sentences(&paragraph.text) {
            let count = sentence.split_whitespace().filter(|word| is_word(word)).count();
            if count > SENTENCE_WORDS_MAX {
                let begin: Vec<&str> = sentence.split_whitespace().take(6).collect();
                let message = format!(
                    "{count} words from `{}`, at most {SENTENCE_WORDS_MAX}: one idea a sentence",
                    begin.join(" ")
                );
                found.push(Violation::line(path, paragraph.line, "sentence", message));
            }
        }
    }
}

fn is_word(word: &str) -> bool {
    word.chars().any(char::is_alphanumeric)
}

/// Returns the lines outside code blocks with their numbers, and with inline code as one word.
fn prose_lines(text: &str) -> Vec<(usize, String)> {
    let mut fenced = false;
    let mut lines = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced && !line.starts_with("    ") && !line.trim_start().starts_with('<') {
            let parts = line.split('`').enumerate();
            let prose: String =
                parts.map(|(part, text)| if part % 2 == 0 { text } else { "code" }).collect();
            lines.push((index + 1, prose));
        } else {
            lines.push((index + 1, String::new()));
        }
    }
    lines
}

/// Joins lines to paragraphs and list items; tables and headings are left out.
fn paragraphs(text: &str) -> Vec<Paragraph> {
    let mut all: Vec<Paragraph> = Vec::new();
    let mut is_open = false;
    for (line, prose) in prose_lines(text) {
        let trimmed = prose.trim();
        if trimmed.is_empty() || trimmed.starts_with(['|', '#']) {
            is_open = false;
            continue;
        }
        let numbered = trimmed.split_once(". ").is_some_and(|(number, _)| {
            !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
        });
        let is_item = numbered || trimmed.starts_with("- ") || trimmed.starts_with("* ");
        match all.last_mut() {
            Some(last) if is_open && !is_item => {
                last.text.push(' ');
                last.text.push_str(trimmed);
            }
            _ => all.push(Paragraph { line, text: trimmed.to_string() }),
        }
        is_open = true;
    }
    all
}

/// Splits a paragraph at the ends of sentences, and at colons and semicolons that end a clause.
fn sentences(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut start = 0;
    let bytes = text.as_bytes();
    for (at, byte) in text.bytes().enumerate() {
        let is_end = matches!(byte, b'.' | b'!' | b'?' | b';' | b':');
        let before_space = bytes.get(at + 1).is_none_or(u8::is_ascii_whitespace);
        if is_end && before_space {
            found.push(&text[start..=at]);
            start = at + 1;
        }
    }
    found.push(&text[start..]);
    found
}
