//! A Rust file as the rules see it: its code without comments and strings, its test-only ranges,
//! and the lengths of its functions.
//!
//! INVARIANT: `code` has the length and the line breaks of `text`, so offsets and lines agree.

use std::ops::Range;

/// One Rust file.
#[derive(Debug)]
pub struct Source<'a> {
    /// Path of the file, relative to the root.
    pub path: &'a str,
    /// Text of the file.
    pub text: &'a str,
    /// Text of the file with the insides of comments, strings and characters blanked.
    pub code: String,
    /// Ranges of bytes that only tests compile.
    pub tests: Vec<Range<usize>>,
    /// Files of test-only modules that this file declares; without `.rs`.
    pub test_files: Vec<String>,
}

/// One function with a body.
#[derive(Debug, PartialEq, Eq)]
pub struct Function {
    /// Name of the function.
    pub name: String,
    /// Line of the function's `fn`, counted from 1.
    pub line: usize,
    /// Number of lines from the function's `fn` to its closing brace, both included.
    pub lines: usize,
}

impl<'a> Source<'a> {
    /// Reads a file.
    pub fn parse(path: &'a str, text: &'a str) -> Source<'a> {
        let code = blank(text);
        let (tests, modules) = find_tests(&code);
        let test_files =
            modules.into_iter().map(|module| module_file(path, text, &module)).collect();
        Source { path, text, code, tests, test_files }
    }

    /// The line of a byte offset, counted from 1.
    pub fn line_of(&self, offset: usize) -> usize {
        line_of(&self.code, offset)
    }

    /// Whether the whole file is test code, as its path or `#![cfg(test)]` shows.
    pub fn is_test_file(&self) -> bool {
        let in_folder =
            self.path.split('/').any(|part| matches!(part, "tests" | "benches" | "examples"));
        let inner = self.code.find("#![cfg(").is_some_and(|at| is_test_attribute(&self.code[at..]));
        in_folder || inner || self.path.ends_with("/tests.rs")
    }

    /// Returns the code with the test-only ranges blanked as well.
    pub fn code_without_tests(&self) -> String {
        if self.is_test_file() {
            return blank_all(&self.code);
        }
        let mut bytes = self.code.clone().into_bytes();
        for range in &self.tests {
            for byte in &mut bytes[range.clone()] {
                if *byte != b'\n' {
                    *byte = b' ';
                }
            }
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Every function with a body, nested ones included.
    pub fn functions(&self) -> Vec<Function> {
        let mut functions = Vec::new();
        for at in words(&self.code, "fn") {
            let rest = &self.code[at + 2..];
            let name: String = rest
                .trim_start()
                .chars()
                .take_while(|c| c.is_alphanumeric() || *c == '_')
                .collect();
            if name.is_empty() {
                continue; // A function pointer type.
            }
            let Some(end) = body_end(&self.code, at) else { continue };
            let line = self.line_of(at);
            functions.push(Function { name, line, lines: self.line_of(end) - line + 1 });
        }
        functions
    }

    /// Every attribute, outer and inner, as byte ranges of the code.
    pub fn attributes(&self) -> Vec<Range<usize>> {
        let mut attributes = Vec::new();
        for (at, _) in self.code.match_indices('#') {
            let rest = self.code[at + 1..].trim_start_matches('!');
            if !rest.starts_with('[') {
                continue;
            }
            let open = self.code.len() - rest.len();
            if let Some(end) = matching(&self.code, open) {
                attributes.push(at..end + 1);
            }
        }
        attributes
    }
}

/// Returns the offsets of `word` as a whole word in `code`.
pub fn words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let bytes = code.as_bytes();
    code.match_indices(word).map(|(at, _)| at).filter(move |&at| {
        let before = at.checked_sub(1).map(|before| bytes[before]);
        let after = bytes.get(at + word.len()).copied();
        !before.is_some_and(is_word_byte) && !after.is_some_and(is_word_byte)
    })
}

/// The line of a byte offset, counted from 1.
pub fn line_of(text: &str, offset: usize) -> usize {
    text.as_bytes()[..offset.min(text.len())].iter().filter(|byte| **byte == b'\n').count() + 1
}

fn is_word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

fn blank_all(code: &str) -> String {
    code.bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }).collect()
}

/// Returns the offset of the bracket that closes the bracket at `open`.
fn matching(code: &str, open: usize) -> Option<usize> {
    let mut depth = 0usize;
    for (at, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

/// The end of the item that starts at `start`: its closing brace, or `None` if it has no body.
fn body_end(code: &str, start: usize) -> Option<usize> {
    let mut depth = 0i32;
    for (at, byte) in code.bytes().enumerate().skip(start) {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth -= 1,
            b'{' if depth == 0 => return matching(code, at),
            b';' if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

fn is_test_attribute(attribute: &str) -> bool {
    let text = attribute.split(']').next().unwrap_or(attribute);
    let inner = text.trim_start_matches(['#', '!', '[']);
    if inner.trim_end_matches(']').trim() == "test" {
        return true;
    }
    let conditional = inner.starts_with("cfg(");
    let names_test = words(inner, "test").next().is_some() || words(inner, "loom").next().is_some();
    conditional && names_test && !inner.contains("not(")
}

/// A module whose text is in another file: its name and the place of its declaration.
struct DeclaredModule {
    name: String,
    declaration: Range<usize>,
}

/// The file of a module that the file at `path` declares, without `.rs`.
fn module_file(path: &str, text: &str, module: &DeclaredModule) -> String {
    let stem = path.strip_suffix(".rs").unwrap_or(path);
    let (folder, file) = stem.rsplit_once('/').unwrap_or(("", stem));
    let declaration = &text[module.declaration.clone()];
    let named = declaration.split_once("#[path = \"").and_then(|(_, rest)| rest.split_once('"'));
    if let Some((name, _)) = named {
        return format!("{folder}/{}", name.trim_end_matches(".rs"));
    }
    let own = if matches!(file, "lib" | "main" | "mod") { folder } else { stem };
    format!("{own}/{}", module.name)
}

fn find_tests(code: &str) -> (Vec<Range<usize>>, Vec<DeclaredModule>) {
    let mut ranges: Vec<Range<usize>> = Vec::new();
    let mut modules = Vec::new();
    for (at, _) in code.match_indices("#[") {
        if ranges.last().is_some_and(|range| range.contains(&at)) {
            continue;
        }
        let Some(close) = matching(code, at + 1) else { continue };
        if !is_test_attribute(&code[at..=close]) {
            continue;
        }
        let item = skip_attributes(code, close + 1);
        match body_end(code, item) {
            Some(end) => ranges.push(at..end + 1),
            None => {
                let end = code[item..].find(';').map_or(code.len(), |length| item + length + 1);
                let mut words = code[item..end].trim_end_matches(';').split_whitespace();
                if words.by_ref().any(|word| word == "mod") {
                    let declared = |name: &str| DeclaredModule {
                        name: name.to_string(),
                        declaration: at..end,
                    };
                    modules.extend(words.next().map(declared));
                }
                ranges.push(at..end);
            }
        }
    }
    (ranges, modules)
}

fn skip_attributes(code: &str, mut at: usize) -> usize {
    loop {
        at += code[at..].len() - code[at..].trim_start().len();
        if !code[at..].starts_with("#[") {
            return at;
        }
        match matching(code, at + 1) {
            Some(close) => at = close + 1,
            None => return at,
        }
    }
}

/// Blanks the insides of comments, strings and characters of a text.
fn blank(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let inside = literal_at(bytes, at);
        for byte in &mut code[inside.blanked.clone()] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = inside.next;
    }
    String::from_utf8_lossy(&code).into_owned()
}

struct Literal {
    blanked: Range<usize>,
    next: usize,
}

/// Parses the element at offset `at`: a comment, string or character to blank, or one byte of code.
fn literal_at(bytes: &[u8], at: usize) -> Literal {
    let rest = &bytes[at..];
    if rest.starts_with(b"//") {
        let end = at + rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
        return Literal { blanked: at..end, next: end };
    }
    if rest.starts_with(b"/*") {
        let end = block_comment_end(bytes, at);
        return Literal { blanked: at..end, next: end };
    }
    if rest[0] == b'"' {
        let end = string_end(bytes, at + 1);
        return Literal { blanked: at + 1..end.saturating_sub(1).max(at + 1), next: end };
    }
    let starts_word = at == 0 || !is_word_byte(bytes[at - 1]);
    if starts_word && let Some(literal) = raw_string_at(bytes, at) {
        return literal;
    }
    if rest[0] == b'\''
        && let Some(end) = character_end(bytes, at)
    {
        return Literal { blanked: at + 1..end - 1, next: end };
    }
    Literal { blanked: at..at, next: at + 1 }
}

fn block_comment_end(bytes: &[u8], start: usize) -> usize {
    let mut depth = 0usize;
    let mut at = start;
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if bytes[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    at
}

fn string_end(bytes: &[u8], mut at: usize) -> usize {
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

fn raw_string_at(bytes: &[u8], at: usize) -> Option<Literal> {
    let mut open = at;
    if matches!(bytes[open], b'b' | b'c') {
        open += 1;
    }
    if bytes.get(open) != Some(&b'r') {
        return None;
    }
    open += 1;
    let hashes = bytes[open..].iter().take_while(|byte| **byte == b'#').count();
    open += hashes;
    if bytes.get(open) != Some(&b'"') {
        return None;
    }
    let mut close = b"\"".to_vec();
    close.resize(1 + hashes, b'#');
    let start = open + 1;
    let length = bytes[start..].windows(close.len()).position(|window| window == close)?;
    Some(Literal { blanked: start..start + length, next: start + length + close.len() })
}

/// The end of the character literal at `at`, or `None` if the quote begins a lifetime.
fn character_end(bytes: &[u8], at: usize) -> Option<usize> {
    let first = *bytes.get(at + 1)?;
    if first == b'\\' {
        let length = bytes.get(at + 3..)?.iter().position(|byte| *byte == b'\'')?;
        return Some(at + 3 + length + 1);
    }
    let width = match first {
        0..0x80 => 1,
        0x80..0xE0 => 2,
        0xE0..0xF0 => 3,
        _ => 4,
    };
    (bytes.get(at + 1 + width) == Some(&b'\'')).then_some(at + 2 + width)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_comments_strings_and_characters_but_not_lifetimes() {
        let text = "let a = \"x.unwrap()\"; // y.unwrap()\n/* a /* b */ c */ let b = 'q';\n\
                    fn f<'a>(x: &'a str) { r#\"z\"z\"#; b\"w\"; '\\''; '\\u{1f}' }\n";
        let code = blank(text);
        assert_eq!(code.len(), text.len());
        for hidden in ["unwrap", "q", "z", "w", "u{"] {
            assert!(!code.contains(hidden), "{hidden} is still in {code}");
        }
        assert!(code.contains("<'a>(x: &'a str) {"), "{code}");
    }

    #[test]
    fn function_length_includes_the_signature() {
        let source = Source::parse("a.rs", "fn one() {}\ntype T = fn(u8);\nfn two(\n) {\n{}\n}\n");
        let seen: Vec<_> =
            source.functions().into_iter().map(|f| (f.name, f.line, f.lines)).collect();
        assert_eq!(seen, [("one".to_string(), 1, 1), ("two".to_string(), 3, 4)]);
    }

    #[test]
    fn test_only_code_is_recognized() {
        let text = "fn real() {}\n#[cfg(test)]\n#[expect(x)]\nmod tests { fn t() {} }\n\
                    #[cfg(test)]\nmod model;\n#[cfg(not(test))]\nfn also_real() {}\n\
                    #[cfg(test)]\n#[path = \"a_tests.rs\"]\nmod more;\n";
        let source = Source::parse("src/a.rs", text);
        let code = source.code_without_tests();
        assert!(code.contains("fn real") && code.contains("fn also_real"), "{code}");
        assert!(!code.contains("fn t()"), "{code}");
        assert_eq!(source.test_files, ["src/a/model", "src/a_tests"]);
        assert!(Source::parse("crates/a/tests/suite.rs", "").is_test_file());
        assert!(Source::parse("src/a.rs", "//! A.\n#![cfg(test)]\n").is_test_file());
    }
}
