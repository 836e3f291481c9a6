//! From the regular expressions of .NET, in which users of event stores write their filters, to
//! those of `fancy-regex`. `docs/event-store.md` says what is taken over, what is written anew and
//! what is refused; what neither of the two knows is left to the engine to complain of.

use std::str::Chars;

use crate::effort::{Before, Parts};

/// The end of the text, or before a line feed that ends it. Only whether something matches is ever
/// asked, so that it does not matter that the line feed is taken.
const END: &str = r"(?:\n?\z)";

/// An expression in the other dialect.
#[derive(Debug, PartialEq, Eq)]
pub struct Translated {
    /// The expression.
    pub text: String,
    /// Offsets in it and in the one that was translated, wherever the two go apart.
    marks: Vec<(usize, usize)>,
}

/// Why an expression cannot be translated.
#[derive(Debug, PartialEq, Eq)]
pub struct Broken {
    /// The offset.
    pub at: usize,
    /// What is wrong there.
    pub why: String,
}

impl Translated {
    /// The offset in the source that an offset in the text comes from.
    pub fn source_of(&self, at: usize) -> usize {
        let behind = self.marks.partition_point(|(text, _)| *text <= at);
        match behind.checked_sub(1).map(|index| self.marks[index]) {
            Some((text, source)) => source + (at - text),
            None => at,
        }
    }
}

/// Translates an expression.
pub fn translate(source: &str) -> Result<Translated, Broken> {
    let mut walk = Walk {
        source,
        at: 0,
        out: Translated { text: String::with_capacity(source.len()), marks: Vec::new() },
        has_lines: false,
        parts: Parts::default(),
    };
    while let Some(next) = walk.peek() {
        match next {
            '(' => walk.group()?,
            ')' => {
                walk.copy(1);
                walk.parts.close();
            }
            '|' => {
                walk.copy(1);
                walk.parts.before = Before::Nothing;
            }
            '*' | '+' => walk.repeat(1, (1, u64::MAX))?,
            '?' => walk.repeat(1, (0, 1))?,
            '{' if let Some((bytes, least, most)) = repetition(walk.rest()) => {
                walk.repeat(bytes, (least, most))?;
            }
            other => {
                let looks = is_reference(walk.rest());
                match other {
                    '\\' => walk.escape(false)?,
                    '[' => walk.class()?,
                    '{' => walk.put(r"\{", 1),
                    '}' => walk.put(r"\}", 1),
                    '$' if !walk.has_lines => walk.put(END, 1),
                    _ => walk.copy(other.len_utf8()),
                }
                walk.parts.add_one(looks);
            }
        }
    }
    match walk.parts.too_much() {
        Some(why) => Err(Broken { at: 0, why }),
        None => Ok(walk.out),
    }
}

/// Whether a text begins with what refers back.
fn is_reference(text: &str) -> bool {
    let escaped = text.strip_prefix('\\').and_then(|rest| rest.chars().next());
    matches!(escaped, Some('1'..='9' | 'k' | 'G'))
}

struct Walk<'a> {
    source: &'a str,
    at: usize,
    out: Translated,
    /// Whether `$` stands for the end of a line by now.
    has_lines: bool,
    parts: Parts,
}

/// How long the repetition is that a text begins with, and how often it repeats at least and at
/// most. Any other brace stands for itself.
fn repetition(text: &str) -> Option<(usize, u64, u64)> {
    let (inner, _) = text.strip_prefix('{')?.split_once('}')?;
    let (least, most) = inner.split_once(',').unwrap_or((inner, inner));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if least.is_empty() || !is_number(least) || !is_number(most) {
        return None;
    }
    let number = |text: &str| text.parse().unwrap_or(u64::MAX);
    Some((inner.len() + 2, number(least), number(most)))
}

impl<'a> Walk<'a> {
    fn rest(&self) -> &'a str {
        &self.source[self.at..]
    }

    fn chars(&self) -> Chars<'a> {
        self.rest().chars()
    }

    fn peek(&self) -> Option<char> {
        self.chars().next()
    }

    fn starts(&self, text: &str) -> bool {
        self.rest().starts_with(text)
    }

    /// Takes so many bytes as they are.
    fn copy(&mut self, bytes: usize) {
        self.out.text.push_str(&self.source[self.at..self.at + bytes]);
        self.at += bytes;
    }

    /// Writes this for so many bytes.
    fn put(&mut self, text: &str, bytes: usize) {
        self.out.marks.push((self.out.text.len(), self.at));
        self.out.text.push_str(text);
        self.at += bytes;
        self.out.marks.push((self.out.text.len(), self.at));
    }

    fn put_character(&mut self, code: u32, bytes: usize) {
        self.put(&format!(r"\x{{{code:x}}}"), bytes);
    }

    fn broken<T>(&self, at: usize, why: impl Into<String>) -> Result<T, Broken> {
        Err(Broken { at, why: why.into() })
    }

    /// A backslash and what belongs to it.
    fn escape(&mut self, in_class: bool) -> Result<(), Broken> {
        let Some(escaped) = self.chars().nth(1) else {
            return self.broken(self.at, "nothing follows the backslash");
        };
        match escaped {
            'b' | 'B' if !in_class && self.rest()[2..].starts_with('{') => {
                // Behind it the other dialect has the names of other boundaries in braces.
                self.put(&format!(r"(?:\{escaped})"), 2);
            }
            'Z' if !in_class => self.put(END, 2),
            'A' | 'z' | 'B' | 'G' | 'k' if !in_class => self.copy(2),
            'p' | 'P' if self.rest()[2..].starts_with('{') => match self.rest().find('}') {
                // The engine would take a block for the script of the same name.
                Some(_)
                    if self.rest()[3..].get(..2).is_some_and(|s| s.eq_ignore_ascii_case("is")) =>
                {
                    let why = "blocks are not served; write a category or a script";
                    return self.broken(self.at, why);
                }
                Some(end) => self.copy(end + 1),
                None => return self.broken(self.at, "the property's name is not closed"),
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
                self.put_character(code & 0xff, 1 + digits);
            }
            'c' => match self.chars().nth(2).map(|letter| letter.to_ascii_uppercase()) {
                Some(letter @ '@'..='_') => self.put_character(u32::from(letter) & 0x1f, 3),
                _ => return self.broken(self.at, r"\c stands before a letter"),
            },
            '<' | '>' => self.put(escaped.encode_utf8(&mut [0; 4]), 2),
            other if other.is_ascii_punctuation() && other != '_' => self.copy(2),
            other if other.is_alphanumeric() || other == '_' => {
                return self.broken(self.at, format!("\\{other} stands for nothing"));
            }
            other => self.put(other.encode_utf8(&mut [0; 4]), 1 + other.len_utf8()),
        }
        Ok(())
    }

    /// A class, from its bracket to the one that closes it. Brackets and doubled signs in it stand
    /// for themselves, but for a class that is taken off at the end.
    fn class(&mut self) -> Result<(), Broken> {
        let began = self.at;
        self.copy(1);
        if self.starts("^") {
            self.copy(1);
        }
        let first = self.at;
        loop {
            let is_first = self.at == first;
            let Some(next) = self.peek() else {
                return self.broken(began, "the class that begins here is not closed");
            };
            match next {
                ']' if is_first => self.put(r"\]", 1),
                ']' => {
                    self.copy(1);
                    return Ok(());
                }
                '-' if self.starts("-[") && !is_first => {
                    self.put("--", 1);
                    self.class()?;
                    if !self.starts("]") {
                        let why = "a class that is taken off comes last in its class";
                        return self.broken(self.at, why);
                    }
                }
                '-' if self.starts("--") && is_first => self.put(r"\-", 1),
                '-' if self.starts("--") => self.put(r"-\-", 2),
                '[' => self.put(r"\[", 1),
                '&' => self.put(r"\&", 1),
                '~' => self.put(r"\~", 1),
                '\\' => self.escape(true)?,
                other => self.copy(other.len_utf8()),
            }
        }
    }

    /// The beginning of a group.
    fn group(&mut self) -> Result<(), Broken> {
        let began = self.at;
        if self.starts("(?#") {
            let Some(bytes) = self.rest().find(')') else {
                return self.broken(began, "the comment that begins here is not closed");
            };
            self.put("", bytes + 1);
            return Ok(());
        }
        if let Some(plain) =
            ["(?=", "(?!", "(?<=", "(?<!", "(?:", "(?>"].iter().find(|head| self.starts(head))
        {
            self.copy(plain.len());
            self.parts.open(*plain != "(?:");
            return Ok(());
        }
        for (head, end) in [("(?<", '>'), ("(?'", '\''), ("(?P<", '>')] {
            if self.starts(head) {
                return self.named(head.len(), end);
            }
        }
        if self.starts("(?(") {
            return self.broken(began, "conditions are not served");
        }
        if self.starts("(*") {
            return self.broken(began, "there is nothing to repeat");
        }
        match self.starts("(?") {
            true => self.options(),
            false => {
                self.copy(1);
                self.parts.open(false);
                Ok(())
            }
        }
    }

    fn named(&mut self, head: usize, end: char) -> Result<(), Broken> {
        let began = self.at;
        let Some(bytes) = self.rest()[head..].find(end) else {
            return self.broken(began, "the group's name is not closed");
        };
        let name = &self.rest()[head..head + bytes];
        if name.contains('-') {
            return self.broken(began, "groups that balance others are not served");
        }
        if !name.starts_with(|first: char| first.is_alphabetic() || first == '_') {
            return self.broken(began, "a group's name begins with a letter");
        }
        self.copy(head + bytes + 1);
        self.parts.open(false);
        Ok(())
    }

    /// Options, for the rest of the group around them or for a group of their own.
    fn options(&mut self) -> Result<(), Broken> {
        let mut is_on = true;
        for (offset, letter) in self.rest().char_indices().skip(2) {
            match letter {
                'i' | 's' => {}
                'm' => self.has_lines |= is_on,
                '-' => is_on = false,
                ':' | ')' => {
                    self.copy(offset + 1);
                    if letter == ':' {
                        self.parts.open(false);
                    }
                    return Ok(());
                }
                'n' | 'x' => {
                    let why = format!("the option {letter} is not served");
                    return self.broken(self.at + offset, why);
                }
                other => {
                    let why = format!("no group begins with (?…{other}");
                    return self.broken(self.at + offset, why);
                }
            }
        }
        self.broken(self.at, "the group that begins here is not closed")
    }

    /// A repetition of what stands before.
    fn repeat(&mut self, bytes: usize, (least, most): (u64, u64)) -> Result<(), Broken> {
        if least > most {
            // The engine would take it for the other way round.
            return self.broken(self.at, "it repeats at least more often than at most");
        }
        match self.parts.before {
            Before::Repetition if self.peek() == Some('?') => self.parts.before = Before::Lazy,
            Before::Repetition | Before::Lazy => {
                let why = "what is repeated here is a repetition; put it into a group";
                return self.broken(self.at, why);
            }
            // With nothing before it the engine complains.
            Before::Nothing | Before::Part => self.parts.repeat(least, most),
        }
        self.copy(bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_both_know_stays_and_what_differs_is_written_anew() {
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
    fn what_the_engine_would_take_for_something_else_is_refused_with_its_place() {
        for (source, at, why) in [
            ("a\\", 1, "nothing follows"),
            (r"ab\h", 2, "stands for nothing"),
            (r"\K", 0, "stands for nothing"),
            (r"\_", 0, "stands for nothing"),
            (r"\c1", 0, "before a letter"),
            ("a[b", 1, "not closed"),
            ("[a-[b]c]", 6, "comes last"),
            ("(?#a", 0, "not closed"),
            (r"a\p{Lu", 1, "not closed"),
            (r"a\p{IsGreek}", 1, "blocks"),
            (r"[\P{isgreek}]", 1, "blocks"),
            ("ba{2,1}", 2, "more often"),
            ("(?<a-b>c)", 0, "balance"),
            ("(?<1>c)", 0, "begins with a letter"),
            ("(?<a", 0, "not closed"),
            ("(?(a)b|c)", 0, "conditions"),
            ("(?x) a", 2, "option x"),
            ("(?n:a)", 2, "option n"),
            ("(?~a)", 2, "no group"),
            ("(?P>a)", 2, "no group"),
            ("(?i", 0, "not closed"),
            ("(*FAIL)", 0, "nothing to repeat"),
            ("a**", 2, "is a repetition"),
            ("a++", 2, "is a repetition"),
            ("a+??", 3, "is a repetition"),
            ("a{2}{3}", 4, "is a repetition"),
            ("((((?=a)){1000}){1000}){1000}", 0, "looks around and back 1000000000 times"),
            ("(?:(?=a)(?=b)(?=c)d)*", 0, "looks around and back 48 times"),
            ("(?:(?=a)){33}", 0, "33 times"),
            (r"(a)\1{33}", 0, "33 times"),
            ("(?>b)(a{60}b{40}){50}", 0, "5047 repetitions"),
            ("(?=b)a{99999999999999999999}", 0, "repetitions"),
        ] {
            let broken = translate(source).expect_err(source);
            assert_eq!(broken.at, at, "{source}");
            assert!(broken.why.contains(why), "{source}: {}", broken.why);
        }
    }

    #[test]
    fn places_in_the_translation_are_told_as_those_in_the_source() {
        let translated = translate(r"a$b$(").expect("nothing is wrong in itself");
        let text = &translated.text;
        let (b, group) = (text.find('b').expect("b"), text.len() - 1);
        assert_eq!(translated.source_of(0), 0);
        assert_eq!(translated.source_of(b), 2);
        assert_eq!(translated.source_of(group), 4);
    }
}
