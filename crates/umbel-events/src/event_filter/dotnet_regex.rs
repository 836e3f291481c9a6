//! Translation of .NET regular expressions, in which users of event stores write their filters, to
//! expressions of `fancy-regex`. `docs/reference/event-store.md` lists which syntax is kept,
//! translated and refused. The regex engine reports syntax that neither dialect has.

use std::ops::Range;
use std::str::Chars;

use crate::event_filter::regex_complexity::{GroupKind, PrecedingItem, RegexComplexity};

/// Matches at the end of the text, or before a line feed that ends the text. The match may include
/// the line feed, since only the existence of a match is evaluated.
const END_OF_TEXT: &str = r"(?:\n?\z)";

/// An expression in the engine's dialect.
#[derive(Debug, PartialEq, Eq)]
pub struct Translation {
    /// The translated expression.
    pub text: String,
    /// Pairs of offsets in the translation and in the source, one at each point where they diverge.
    source_map: Vec<(usize, usize)>,
    /// Maximum number of parts that the engine compiles one by one.
    pub parts: u64,
    /// Ranges of the text that only the backtracking engine supports, and what replaces each of
    /// them in [`Translation::plain_text`].
    lookarounds: Vec<(Range<usize>, &'static str)>,
}

/// The reason why an expression cannot be translated.
#[derive(Debug, PartialEq, Eq)]
pub struct SyntaxError {
    /// Offset of the error.
    pub offset: usize,
    /// Description of the error.
    pub reason: String,
}

impl Translation {
    /// Returns the text with plain groups in place of look-arounds, and nothing in place of back
    /// references. It is compiled as one part, with about the size of all parts of the text. `None`
    /// where the text itself is compiled as one part.
    pub fn plain_text(&self) -> Option<String> {
        if self.lookarounds.is_empty() {
            return None;
        }
        let mut plain = String::with_capacity(self.text.len());
        let mut from = 0;
        for (range, replacement) in &self.lookarounds {
            plain.push_str(&self.text[from..range.start]);
            plain.push_str(replacement);
            from = range.end;
        }
        plain.push_str(&self.text[from..]);
        Some(plain)
    }

    /// Returns the source offset of an offset in the text.
    pub fn source_offset(&self, at: usize) -> usize {
        let next_index = self.source_map.partition_point(|(text, _)| *text <= at);
        match next_index.checked_sub(1).map(|index| self.source_map[index]) {
            Some((text, source)) => source + (at - text),
            None => at,
        }
    }
}

/// Translates an expression.
pub fn translate(source: &str) -> Result<Translation, SyntaxError> {
    let mut walk = Translator {
        source,
        offset: 0,
        out: Translation {
            text: String::with_capacity(source.len()),
            source_map: Vec::new(),
            parts: 1,
            lookarounds: Vec::new(),
        },
        is_multiline: false,
        complexity: RegexComplexity::default(),
    };
    while let Some(next) = walk.peek() {
        match next {
            '(' => walk.translate_group()?,
            ')' => {
                walk.copy(1);
                walk.complexity.close_group();
            }
            '|' => {
                walk.copy(1);
                walk.complexity.add_alternative();
            }
            '*' | '+' => walk.translate_quantifier(1, (1, u64::MAX))?,
            '?' => walk.translate_quantifier(1, (0, 1))?,
            '{' if let Some((bytes, min, max)) = parse_quantifier(walk.rest()) => {
                walk.translate_quantifier(bytes, (min, max))?;
            }
            other => {
                let looks = is_reference(walk.rest());
                let start = walk.out.text.len();
                match other {
                    '\\' => walk.translate_escape(false)?,
                    '[' => walk.translate_class()?,
                    '{' => walk.emit(r"\{", 1),
                    '}' => walk.emit(r"\}", 1),
                    '$' if !walk.is_multiline => walk.emit(END_OF_TEXT, 1),
                    _ => walk.copy(other.len_utf8()),
                }
                if looks {
                    walk.out.lookarounds.push((start..walk.out.text.len(), "(?:)"));
                }
                walk.complexity.add_item(looks);
            }
        }
    }
    match walk.complexity.limit_exceeded() {
        Some(why) => Err(SyntaxError { offset: 0, reason: why }),
        None => Ok(Translation { parts: walk.complexity.parts(), ..walk.out }),
    }
}

/// Whether a text begins with a back reference.
fn is_reference(text: &str) -> bool {
    let escaped = text.strip_prefix('\\').and_then(|rest| rest.chars().next());
    matches!(escaped, Some('1'..='9' | 'k' | 'G'))
}

struct Translator<'a> {
    source: &'a str,
    offset: usize,
    out: Translation,
    /// Whether `$` now matches at the end of a line.
    is_multiline: bool,
    complexity: RegexComplexity,
}

/// Length of the repetition `{m,n}` at the start of a text, with its minimum and maximum. A brace
/// that begins no repetition is literal.
fn parse_quantifier(text: &str) -> Option<(usize, u64, u64)> {
    let (inner, _) = text.strip_prefix('{')?.split_once('}')?;
    let (min, max) = inner.split_once(',').unwrap_or((inner, inner));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if min.is_empty() || !is_number(min) || !is_number(max) {
        return None;
    }
    let number = |text: &str| text.parse().unwrap_or(u64::MAX);
    Some((inner.len() + 2, number(min), number(max)))
}

impl<'a> Translator<'a> {
    fn rest(&self) -> &'a str {
        &self.source[self.offset..]
    }

    fn chars(&self) -> Chars<'a> {
        self.rest().chars()
    }

    fn peek(&self) -> Option<char> {
        self.chars().next()
    }

    fn starts_with(&self, text: &str) -> bool {
        self.rest().starts_with(text)
    }

    /// Copies `bytes` bytes unchanged.
    fn copy(&mut self, bytes: usize) {
        self.out.text.push_str(&self.source[self.offset..self.offset + bytes]);
        self.offset += bytes;
    }

    /// Writes `text` for `bytes` bytes of the source.
    fn emit(&mut self, text: &str, bytes: usize) {
        self.out.source_map.push((self.out.text.len(), self.offset));
        self.out.text.push_str(text);
        self.offset += bytes;
        self.out.source_map.push((self.out.text.len(), self.offset));
    }

    fn emit_char(&mut self, code: u32, bytes: usize) {
        self.emit(&format!(r"\x{{{code:x}}}"), bytes);
    }

    fn syntax_error<T>(&self, at: usize, why: impl Into<String>) -> Result<T, SyntaxError> {
        Err(SyntaxError { offset: at, reason: why.into() })
    }

    /// Translates a backslash and the escape after it.
    fn translate_escape(&mut self, in_class: bool) -> Result<(), SyntaxError> {
        let Some(escaped) = self.chars().nth(1) else {
            return self.syntax_error(self.offset, "nothing follows the backslash");
        };
        match escaped {
            'b' | 'B' if !in_class && self.rest()[2..].starts_with('{') => {
                // After it the engine has other boundaries, whose names are in braces.
                self.emit(&format!(r"(?:\{escaped})"), 2);
            }
            'Z' if !in_class => self.emit(END_OF_TEXT, 2),
            'A' | 'z' | 'B' | 'G' | 'k' if !in_class => self.copy(2),
            'p' | 'P' if self.rest()[2..].starts_with('{') => match self.rest().find('}') {
                // The engine would take a block for the script of the same name.
                Some(_)
                    if self.rest()[3..].get(..2).is_some_and(|s| s.eq_ignore_ascii_case("is")) =>
                {
                    let why = "Unicode blocks are not supported; write a category or a script";
                    return self.syntax_error(self.offset, why);
                }
                Some(end) => self.copy(end + 1),
                None => {
                    return self.syntax_error(
                        self.offset,
                        "the name of the Unicode property is not closed",
                    );
                }
            },
            'a' | 'b' | 'd' | 'D' | 'e' | 'f' | 'n' | 'p' | 'P' | 'r' | 's' | 'S' | 't' | 'u'
            | 'v' | 'w' | 'W' | 'x' => self.copy(2),
            '1'..='9' if !in_class => {
                let digits = self.rest()[1..].bytes().take_while(u8::is_ascii_digit).count();
                self.copy(1 + digits);
            }
            '0'..='7' => {
                let octal =
                    self.rest()[1..].bytes().take(3).take_while(|b| matches!(b, b'0'..=b'7'));
                let (digits, code) =
                    octal.fold((0, 0), |(n, code), b| (n + 1, code * 8 + u32::from(b - b'0')));
                self.emit_char(code & 0xff, 1 + digits);
            }
            'c' => match self.chars().nth(2).map(|letter| letter.to_ascii_uppercase()) {
                Some(letter @ '@'..='_') => self.emit_char(u32::from(letter) & 0x1f, 3),
                _ => return self.syntax_error(self.offset, r"\c stands before a letter"),
            },
            '<' | '>' => self.emit(escaped.encode_utf8(&mut [0; 4]), 2),
            other if other.is_ascii_punctuation() && other != '_' => self.copy(2),
            other if other.is_alphanumeric() || other == '_' => {
                return self.syntax_error(self.offset, format!("\\{other} is not a known escape"));
            }
            other => self.emit(other.encode_utf8(&mut [0; 4]), 1 + other.len_utf8()),
        }
        Ok(())
    }

    /// Translates a character class, from its opening to its closing bracket. Inner brackets and
    /// doubled operators are literal, except for a class that is subtracted at the end.
    fn translate_class(&mut self) -> Result<(), SyntaxError> {
        let began = self.offset;
        self.copy(1);
        if self.starts_with("^") {
            self.copy(1);
        }
        let first = self.offset;
        loop {
            let is_first = self.offset == first;
            let Some(next) = self.peek() else {
                return self.syntax_error(began, "the class that begins here is not closed");
            };
            match next {
                ']' if is_first => self.emit(r"\]", 1),
                ']' => {
                    self.copy(1);
                    return Ok(());
                }
                '-' if self.starts_with("-[") && !is_first => {
                    self.emit("--", 1);
                    self.translate_class()?;
                    if !self.starts_with("]") {
                        let why = "a subtracted class must be last in its class";
                        return self.syntax_error(self.offset, why);
                    }
                }
                '-' if self.starts_with("--") && is_first => self.emit(r"\-", 1),
                '-' if self.starts_with("--") => self.emit(r"-\-", 2),
                '[' => self.emit(r"\[", 1),
                '&' => self.emit(r"\&", 1),
                '~' => self.emit(r"\~", 1),
                '\\' => self.translate_escape(true)?,
                other => self.copy(other.len_utf8()),
            }
        }
    }

    /// Translates the beginning of a group.
    fn translate_group(&mut self) -> Result<(), SyntaxError> {
        let began = self.offset;
        if self.starts_with("(?#") {
            let Some(bytes) = self.rest().find(')') else {
                return self.syntax_error(began, "the comment that begins here is not closed");
            };
            self.emit("", bytes + 1);
            return Ok(());
        }
        if let Some(plain) =
            ["(?=", "(?!", "(?<=", "(?<!", "(?:", "(?>"].iter().find(|head| self.starts_with(head))
        {
            let start = self.out.text.len();
            self.copy(plain.len());
            let kind = match *plain {
                "(?:" => GroupKind::Plain,
                "(?<=" | "(?<!" => GroupKind::LookBehind,
                _ => GroupKind::Whole,
            };
            if kind != GroupKind::Plain {
                self.out.lookarounds.push((start..self.out.text.len(), "(?:"));
            }
            self.complexity.open_group(kind);
            return Ok(());
        }
        for (head, end) in [("(?<", '>'), ("(?'", '\''), ("(?P<", '>')] {
            if self.starts_with(head) {
                return self.translate_named_group(head.len(), end);
            }
        }
        if self.starts_with("(?(") {
            return self.syntax_error(began, "conditions are not supported");
        }
        if self.starts_with("(*") {
            return self.syntax_error(began, "there is nothing to repeat");
        }
        match self.starts_with("(?") {
            true => self.translate_options(),
            false => {
                self.copy(1);
                self.complexity.open_group(GroupKind::Plain);
                Ok(())
            }
        }
    }

    fn translate_named_group(&mut self, head: usize, end: char) -> Result<(), SyntaxError> {
        let began = self.offset;
        let Some(bytes) = self.rest()[head..].find(end) else {
            return self.syntax_error(began, "the group's name is not closed");
        };
        let name = &self.rest()[head..head + bytes];
        if name.contains('-') {
            return self.syntax_error(began, "balancing groups are not supported");
        }
        if !name.starts_with(|first: char| first.is_alphabetic() || first == '_') {
            return self.syntax_error(began, "a group's name begins with a letter");
        }
        self.copy(head + bytes + 1);
        self.complexity.open_group(GroupKind::Plain);
        Ok(())
    }

    /// Translates inline options, which hold for the rest of the enclosing group or for a group of
    /// their own.
    fn translate_options(&mut self) -> Result<(), SyntaxError> {
        let mut is_on = true;
        for (offset, letter) in self.rest().char_indices().skip(2) {
            match letter {
                'i' | 's' => {}
                'm' => self.is_multiline |= is_on,
                '-' => is_on = false,
                ':' | ')' => {
                    self.copy(offset + 1);
                    if letter == ':' {
                        self.complexity.open_group(GroupKind::Plain);
                    }
                    return Ok(());
                }
                'n' | 'x' => {
                    let why = format!("the option {letter} is not supported");
                    return self.syntax_error(self.offset + offset, why);
                }
                other => {
                    let why = format!("no group begins with (?…{other}");
                    return self.syntax_error(self.offset + offset, why);
                }
            }
        }
        self.syntax_error(self.offset, "the group that begins here is not closed")
    }

    /// Translates a repetition of the preceding item.
    fn translate_quantifier(
        &mut self,
        bytes: usize,
        (min, max): (u64, u64),
    ) -> Result<(), SyntaxError> {
        if min > max {
            // The engine would swap the two numbers.
            return self.syntax_error(
                self.offset,
                "the minimum of the repetition is greater than its maximum",
            );
        }
        match self.complexity.preceding {
            PrecedingItem::Repetition if self.peek() == Some('?') => {
                self.complexity.preceding = PrecedingItem::Lazy
            }
            PrecedingItem::Repetition | PrecedingItem::Lazy => {
                let why = "a repetition is repeated here; put the inner repetition into a group";
                return self.syntax_error(self.offset, why);
            }
            // Without a preceding item the engine reports an error.
            PrecedingItem::Start | PrecedingItem::Item => self.complexity.repeat(min, max),
        }
        self.copy(bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn translation_rewrites_only_constructs_that_differ() {
        for same in [
            r"^cart-",
            r"^[^\$].*",
            r"(?<year>\d{4})-(?'month'\d\d)\k<year>",
            r"(?i:abc)|(?-s).",
            r"a{2}b{2,}c{2,3}",
            r"(?<!x)(?=y)(?>z)",
            r"\p{Lu}\u00e4\x41\.\$",
            r"[a-z\d\-]",
            r"(?m)^a$",
            r"a*?b+?c??d{2}?(?:e*)*",
            r"(a{60}b{40}|c){400000}",
            r"(?:(?!foo)(?!bar).)*",
            r"(?=(?:[0-9a-f]{8}){3})",
            r"(?:(?=a)){0,16}",
        ] {
            assert_eq!(translate(same).expect(same).text, same);
        }
        for (source, text) in [
            (r"a$", r"a(?:\n?\z)"),
            (r"a\Z\z", r"a(?:\n?\z)\z"),
            (r"{a}{,3}", r"\{a\}\{,3\}"),
            (r"a(?#why [not])b", "ab"),
            (r"\cA\0\07\<a\>", r"\x{1}\x{0}\x{7}<a>"),
            (r"\b{x}", r"(?:\b)\{x\}"),
            (r"[]a][^]b]", r"[\]a][^\]b]"),
            (r"[[:a&&~~]", r"[\[:a\&\&\~\~]"),
            (r"[a-z-[aeiou]]", r"[a-z--[aeiou]]"),
            (r"[--a][+--]", r"[\--a][+-\-]"),
            (r"[\b\1]", r"[\b\x{1}]"),
        ] {
            assert_eq!(translate(source).expect(source).text, text);
        }
    }

    #[test]
    fn unsupported_constructs_are_rejected_with_their_offset() {
        for (source, at, why) in [
            ("a\\", 1, "nothing follows"),
            (r"ab\h", 2, "not a known escape"),
            (r"\K", 0, "not a known escape"),
            (r"\_", 0, "not a known escape"),
            (r"\c1", 0, "before a letter"),
            ("a[b", 1, "not closed"),
            ("[a-[b]c]", 6, "must be last"),
            ("(?#a", 0, "not closed"),
            (r"a\p{Lu", 1, "not closed"),
            (r"a\p{IsGreek}", 1, "blocks"),
            (r"[\P{isgreek}]", 1, "blocks"),
            ("ba{2,1}", 2, "greater than its maximum"),
            ("(?<a-b>c)", 0, "balancing"),
            ("(?<1>c)", 0, "begins with a letter"),
            ("(?<a", 0, "not closed"),
            ("(?(a)b|c)", 0, "conditions"),
            ("(?x) a", 2, "option x"),
            ("(?n:a)", 2, "option n"),
            ("(?~a)", 2, "no group"),
            ("(?P>a)", 2, "no group"),
            ("(?i", 0, "not closed"),
            ("(*FAIL)", 0, "nothing to repeat"),
            ("a**", 2, "a repetition is repeated"),
            ("a++", 2, "a repetition is repeated"),
            ("a+??", 3, "a repetition is repeated"),
            ("a{2}{3}", 4, "a repetition is repeated"),
            ("((((?=a)){1000}){1000}){1000}", 0, "has 1000000000 look-arounds"),
            ("(?:(?=a)(?=b)(?=c)d)*", 0, "has 48 look-arounds"),
            ("(?:(?=a)){33}", 0, "has 33 look-arounds"),
            (r"(a)\1{33}", 0, "has 33 look-arounds"),
            ("(?>b)(a{60}b{40}){50}", 0, "5047 repetitions"),
            ("(?=b)a{99999999999999999999}", 0, "repetitions"),
        ] {
            let broken = translate(source).expect_err(source);
            assert_eq!(broken.offset, at, "{source}");
            assert!(broken.reason.contains(why), "{source}: {}", broken.reason);
        }
    }

    #[test]
    fn translated_offsets_map_back_to_the_source() {
        let translated = translate(r"a$b$(").expect("nothing is wrong in itself");
        let text = &translated.text;
        let (b, group) = (text.find('b').expect("b"), text.len() - 1);
        assert_eq!(translated.source_offset(0), 0);
        assert_eq!(translated.source_offset(b), 2);
        assert_eq!(translated.source_offset(group), 4);
    }
}
