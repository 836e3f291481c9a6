//! Finds the paths (`a::b::{c, d as e}`) in a file's code and expands groups.

/// One path in the code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathUse {
    /// Offset of the path's first byte.
    pub offset: usize,
    /// Segments of the path; at least two.
    pub parts: Vec<String>,
    /// Name that `as` gives the path, if any.
    pub alias: Option<String>,
}

impl PathUse {
    /// Returns the name by which code refers to the path's last segment.
    pub fn name(&self) -> &str {
        self.alias.as_deref().or(self.parts.last().map(String::as_str)).unwrap_or("")
    }
}

/// Returns every path of at least two segments. REQUIRES: comments and strings are blanked.
pub fn paths(code: &str) -> Vec<PathUse> {
    let mut scanner = Scanner { bytes: code.as_bytes(), at: 0, found: Vec::new() };
    while scanner.at < scanner.bytes.len() {
        if scanner.starts_word() {
            scanner.path(&[]);
        } else {
            scanner.skip_to_boundary();
        }
    }
    scanner.found
}

struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
    found: Vec<PathUse>,
}

impl Scanner<'_> {
    fn starts_word(&self) -> bool {
        self.bytes.get(self.at).is_some_and(|byte| byte.is_ascii_alphabetic() || *byte == b'_')
    }

    /// Skips one byte, or a whole number, so that `1e5` is not taken for a word.
    fn skip_to_boundary(&mut self) {
        let digit = self.bytes[self.at].is_ascii_digit();
        self.at += 1;
        while digit && self.bytes.get(self.at).is_some_and(u8::is_ascii_alphanumeric) {
            self.at += 1;
        }
    }

    fn skip_spaces(&mut self) {
        while self.bytes.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
    }

    fn word(&mut self) -> String {
        let start = self.at;
        while self.bytes.get(self.at).is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_') {
            self.at += 1;
        }
        String::from_utf8_lossy(&self.bytes[start..self.at]).into_owned()
    }

    fn eat(&mut self, text: &[u8]) -> bool {
        let before = self.at;
        self.skip_spaces();
        if self.bytes[self.at.min(self.bytes.len())..].starts_with(text) {
            self.at += text.len();
            return true;
        }
        self.at = before;
        false
    }

    /// Reads a path that continues `prefix`. REQUIRES: a word starts at this offset.
    fn path(&mut self, prefix: &[String]) {
        let offset = self.at;
        let mut parts = prefix.to_vec();
        parts.push(self.word());
        loop {
            let before = self.at;
            if !self.eat(b"::") {
                break;
            }
            self.skip_spaces();
            if self.starts_word() {
                parts.push(self.word());
            } else if self.eat(b"{") {
                self.group(&parts);
                return;
            } else if self.eat(b"*") {
                parts.push("*".to_string());
                break;
            } else {
                self.at = before + 2;
                break;
            }
        }
        let alias = self.alias();
        if parts.len() > 1 {
            self.found.push(PathUse { offset, parts, alias });
        }
    }

    fn alias(&mut self) -> Option<String> {
        let before = self.at;
        self.skip_spaces();
        if self.starts_word() && self.at > before && self.word() == "as" {
            self.skip_spaces();
            if self.starts_word() {
                return Some(self.word());
            }
        }
        self.at = before;
        None
    }

    fn group(&mut self, prefix: &[String]) {
        while self.at < self.bytes.len() && !self.eat(b"}") {
            self.skip_spaces();
            if self.starts_word() {
                self.path(prefix);
            } else {
                self.at += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(code: &str) -> Vec<String> {
        paths(code).iter().map(|path| path.parts.join("::")).collect()
    }

    #[test]
    fn groups_are_expanded_and_paths_in_expressions_found() {
        let code = "use std::{fs, io::{self, Read as R}}; let x = crate::a::b(1, std::fs::read);";
        let expected =
            ["std::fs", "std::io::self", "std::io::Read", "crate::a::b", "std::fs::read"];
        assert_eq!(joined(code), expected);
        assert_eq!(joined("Vec::<u8>::new() :: x; a :: b; use m::*;"), ["a::b", "m::*"]);
    }

    #[test]
    fn aliases_are_kept() {
        let found = paths("pub use table::Meta as TableMeta; let y = a::b as u64;");
        assert_eq!(found[0].name(), "TableMeta");
        assert_eq!(found[1].parts, ["a", "b"]);
    }
}
