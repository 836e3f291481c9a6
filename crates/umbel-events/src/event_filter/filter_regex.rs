//! [`FilterRegex`]: a regular expression of a filter, with bounds on its memory and time.

use fancy_regex::{CompileError, Error as EngineError, Regex, RegexBuilder};

use crate::event_filter::dotnet_regex::{Translation, translate};
use crate::limits::{
    EXPRESSION_BACKTRACKS_MAX, EXPRESSION_BYTES_MAX, EXPRESSION_COMPILED_BYTES_MAX,
    EXPRESSION_PARTS_MAX,
};
use crate::types::error::{Error, Result, shorten};

/// Maximum number of compiled instructions of an expression with look-arounds.
const INSTRUCTIONS_MAX: usize = EXPRESSION_COMPILED_BYTES_MAX / 32;
/// Bytes of the engine's caches of states that it computes while it runs. The parts of an
/// expression share them equally, but each part has the minimum. So 256 parts may have 8 MiB, and
/// the engine adds bytes where a part needs more for its first states.
const REGEX_CACHE_BYTES: usize = 2 * EXPRESSION_COMPILED_BYTES_MAX;
const REGEX_CACHE_BYTES_MIN: usize = 32 << 10;

/// Origin of an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpressionOrigin {
    /// A client sends the expression.
    Request,
    /// A store has the expression, perhaps from a version that limited no parts.
    Stored,
}

/// A regular expression of a filter.
#[derive(Debug)]
pub struct FilterRegex {
    source: String,
    matcher: Matcher,
}

#[derive(Debug)]
enum Matcher {
    /// The expression only requires a prefix.
    Prefix(String),
    Engine(Box<Regex>),
}

impl FilterRegex {
    /// Compiles an expression in the .NET dialect. The number of parts is limited only for the
    /// expression of a request.
    ///
    /// # Errors
    /// `Invalid` where it is empty, too long, malformed, or too large once compiled.
    pub fn new(source: &str, origin: ExpressionOrigin) -> Result<FilterRegex> {
        if source.is_empty() {
            return Err(Error::invalid(
                "the filter's expression is empty and would pass every event; leave the filter \
                 out, or give an expression",
            ));
        }
        if source.len() > EXPRESSION_BYTES_MAX {
            return Err(Error::invalid(format!(
                "the filter's expression has {} bytes, but may have at most \
                 {EXPRESSION_BYTES_MAX}; use prefixes, or several filters",
                source.len()
            )));
        }
        let matcher = match plain_prefix(source) {
            Some(prefix) => Matcher::Prefix(prefix),
            None => Matcher::Engine(Box::new(compile(source, origin)?)),
        };
        Ok(FilterRegex { source: source.to_string(), matcher })
    }

    /// Prefix that a matching name needs, if the expression requires only a prefix.
    pub fn prefix(&self) -> Option<&str> {
        match &self.matcher {
            Matcher::Prefix(prefix) => Some(prefix),
            Matcher::Engine(_) => None,
        }
    }

    /// Whether a name matches.
    ///
    /// # Errors
    /// `RegexTooExpensive` where the match takes too long.
    pub fn is_match(&self, name: &str) -> Result<bool> {
        match &self.matcher {
            Matcher::Prefix(prefix) => Ok(name.starts_with(prefix)),
            Matcher::Engine(regex) => regex.is_match(name).map_err(|_| Error::RegexTooExpensive {
                expression: self.source.clone(),
                name: name.to_string(),
            }),
        }
    }
}

fn compile(source: &str, origin: ExpressionOrigin) -> Result<Regex> {
    let broken = |at: usize, why: &str| {
        let before = source.get(..at).unwrap_or(source);
        Error::invalid(format!(
            "the filter's expression '{}' is broken at character {}: {why}",
            shorten(source),
            before.chars().count() + 1
        ))
    };
    let translated = translate(source).map_err(|wrong| broken(wrong.offset, &wrong.reason))?;
    if origin == ExpressionOrigin::Request
        && let Some(why) = parts_limit_exceeded(&translated)
    {
        return Err(broken(0, &why));
    }
    let unusable = |why: &CompileError| {
        Error::invalid(format!(
            "the filter's expression '{}' cannot be used: {}",
            shorten(source),
            compile_error_text(why)
        ))
    };
    // The engine limits each part that it compiles, but not all of them together.
    if let Some(plain) = translated.plain_text()
        && let Err(EngineError::CompileError(why)) = build(&plain, REGEX_CACHE_BYTES)
        && is_too_large(&why)
    {
        return Err(unusable(&why));
    }
    let parts = usize::try_from(translated.parts).unwrap_or(usize::MAX);
    let cache_bytes = (REGEX_CACHE_BYTES / parts).max(REGEX_CACHE_BYTES_MIN);
    build(&translated.text, cache_bytes).map_err(|error| match error {
        EngineError::ParseError(at, why) => broken(translated.source_offset(at), &why.to_string()),
        EngineError::CompileError(why) => unusable(&why),
        other => Error::invalid(other.to_string()),
    })
}

/// Describes the excess of parts; `None` where the parts are within their limit.
fn parts_limit_exceeded(translated: &Translation) -> Option<String> {
    let parts = translated.parts;
    (parts > EXPRESSION_PARTS_MAX).then(|| {
        format!(
            "it has look-arounds or back-references and {parts} alternatives, groups and \
             repetitions outside of look-aheads; at most {EXPRESSION_PARTS_MAX} are allowed"
        )
    })
}

/// Compiles an expression whose parts have a cache of this many bytes each, or of the bytes that a
/// look-behind needs at least. These depend on its compiled size, which is limited.
fn build(text: &str, cache_bytes: usize) -> std::result::Result<Regex, EngineError> {
    RegexBuilder::new(text)
        .backtrack_limit(EXPRESSION_BACKTRACKS_MAX)
        .delegate_size_limit(EXPRESSION_COMPILED_BYTES_MAX)
        .delegate_dfa_size_limit(cache_bytes)
        .delegate_dfa_skip_cache_capacity_check(true)
        .max_prog_size(INSTRUCTIONS_MAX)
        .build()
}

fn is_too_large(error: &CompileError) -> bool {
    match error {
        CompileError::InnerError(inner) => inner.size_limit().is_some(),
        CompileError::PatternTooComplex | CompileError::DfaBuildError(..) => true,
        _ => false,
    }
}

/// The regex engine's error, in one line.
fn compile_error_text(error: &CompileError) -> String {
    match error {
        error if is_too_large(error) => format!(
            "the compiled expression takes more than {EXPRESSION_COMPILED_BYTES_MAX} bytes; make \
             the expression smaller"
        ),
        CompileError::InnerError(inner) => match inner.syntax_error() {
            // The last of several lines, which show the expression.
            Some(syntax) => {
                let text = syntax.to_string();
                let last = text.lines().last().unwrap_or_default();
                last.trim_start_matches("error: ").to_string()
            }
            None => inner.to_string(),
        },
        other => other.to_string(),
    }
}

/// Prefix that the expression requires, if it requires only a prefix.
fn plain_prefix(source: &str) -> Option<String> {
    let rest = source.strip_prefix('^')?;
    // A suffix that may match anything, including nothing, adds no condition.
    let rest = match rest.strip_suffix(".*") {
        Some(before) if !before.ends_with('\\') => before,
        _ => rest,
    };
    let mut prefix = String::new();
    let mut letters = rest.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => prefix
                .push(letters.next().filter(|next| next.is_ascii_punctuation() && *next != '_')?),
            '.' | '[' | ']' | '(' | ')' | '{' | '}' | '*' | '+' | '?' | '|' | '$' | '^' => {
                return None;
            }
            other => prefix.push(other),
        }
    }
    Some(prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compiled(expression: &str) -> Result<FilterRegex> {
        FilterRegex::new(expression, ExpressionOrigin::Request)
    }

    fn is_match(expression: &str, name: &str) -> bool {
        compiled(expression).expect(expression).is_match(name).expect("in time")
    }

    #[test]
    fn expressions_match_as_in_dotnet() {
        let default = r"^(?!(\$.+$|PersistentConfig\d+$|Result$))";
        for (expression, passing, left_out) in [
            (
                default,
                vec!["Opened", "Results", "$"],
                vec!["$metadata", "Result", "PersistentConfig7"],
            ),
            (r"^[^\$].*", vec!["a"], vec!["$a", ""]),
            (r"^Opened|Closed$", vec!["Opened!", "NotClosed"], vec!["IsOpened"]),
            (r"(?<=cart-)\d+\Z", vec!["cart-7", "cart-7\n"], vec!["cart-", "cart-7\n\n"]),
            (r"(?<letter>\w)\k<letter>", vec!["aa"], vec!["ab"]),
            (r"^[a-z-[aeiou]]+$", vec!["xyz"], vec!["xaz", "x-z"]),
            (r"^[\--a]+$", vec!["-", "a", "Z"], vec!["b", "+"]),
            (r"^[+--]$", vec!["+", ",", "-"], vec!["."]),
            (r"^[a&&b]+$", vec!["a&b"], vec!["c"]),
            (r"^[[a]$", vec!["[", "a"], vec!["]"]),
            (r"(?i)^CART", vec!["cart-1"], vec!["art"]),
            (r"^\d+$", vec!["7", "\u{0667}"], vec!["x"]),
            (r"^a{,2}$", vec!["a{,2}"], vec!["a", "aa"]),
            (r"^{x}$", vec!["{x}"], vec!["x"]),
            (r"(a)(b)\2\1", vec!["abba"], vec!["abab"]),
            (r"^(?>a+)b", vec!["aab"], vec!["aa"]),
        ] {
            for name in passing {
                assert!(is_match(expression, name), "{expression} lets {name:?} pass");
            }
            for name in left_out {
                assert!(!is_match(expression, name), "{expression} leaves {name:?} out");
            }
        }
    }

    #[test]
    fn prefix_expressions_bypass_the_engine() {
        for (expression, prefix) in [
            ("^cart-", Some("cart-")),
            ("^cart-.*", Some("cart-")),
            (r"^\$\.x", Some("$.x")),
            ("^", Some("")),
            ("^käse", Some("käse")),
            ("cart-", None),
            ("^a|b", None),
            ("^ab*", None),
            ("^ab?.*", None),
            (r"^a\d", None),
            (r"^a\.*", None),
            (r"^a\", None),
            ("^a$", None),
        ] {
            assert_eq!(plain_prefix(expression).as_deref(), prefix, "{expression}");
        }
        assert_eq!(compiled("^cart-").expect("plain").prefix(), Some("cart-"));
        assert!(is_match("^cart-", "cart-1") && !is_match("^cart-", "a cart-1"));
        assert!(is_match(r"^a\.*", "a..") && is_match(r"^a\.*", "a"));
    }

    #[test]
    fn invalid_expression_error_shows_the_offset() {
        let long = "x".repeat(EXPRESSION_BYTES_MAX + 1);
        let deep = "(".repeat(5000);
        for (expression, reason) in [
            ("", "is empty"),
            (long.as_str(), "has 16385 bytes, but may have at most 16384"),
            ("ä(b", "broken at character"),
            (r"käse\h", "broken at character 5"),
            ("a**)", "broken at character"),
            ("*", "broken at character 1"),
            ("(?<a-b>x)", "broken at character 1: balancing groups"),
            (deep.as_str(), "broken at character"),
            (r"\p{Nonsense}", "cannot be used"),
            (r"(a)\2", "reference"),
            ("[z-a]", "cannot be used"),
            (r"(\w{60}){60}", "cannot be used"),
            ("((?=a)a{1000}){1000}", "has 1000 look-arounds"),
        ] {
            match compiled(expression) {
                Err(Error::Invalid(message)) => {
                    assert!(message.contains(reason), "{message}");
                    assert!(!message.contains('\n'), "{message}");
                    assert!(message.len() < 1000, "{message}");
                }
                other => panic!("{expression:.40}: {other:?}"),
            }
        }
    }

    /// Regression: each part of an expression with look-arounds had a limit of its own. 1200
    /// alternatives beside a look-around took 180 MB, and more while it ran.
    #[test]
    fn parts_of_an_expression_are_limited_together() {
        let alternatives = |count: usize, text: &str| {
            (0..count).map(|number| format!("{text}{number}")).collect::<Vec<_>>().join("|")
        };
        let many = format!(r"(?:(?=a)x|{})", alternatives(1200, r"\w*x"));
        let large = format!(r"(?:(?=a)x|{})", alternatives(60, r"\w*x\w+\w\w\w"));
        let hidden = format!(r"(?!{})a", alternatives(400, r"\w*x\w+\w"));
        for (expression, reason) in [
            (many, "2403 alternatives, groups and repetitions"),
            (large, "takes more than 1048576 bytes"),
            (hidden, "takes more than 1048576 bytes"),
        ] {
            let error = compiled(&expression).map(drop).expect_err(&expression[..20]);
            assert!(error.to_string().contains(reason), "{error}");
        }
        // Many names beside a look-around, and in one, fit.
        let names = alternatives(100, "Opened");
        assert!(is_match(&format!("(?<!x)(?:{names})$"), "Opened77"));
        let left_out = alternatives(1000, "Opened");
        let but = format!("^(?!(?:{left_out})$)");
        assert!(is_match(&but, "Opened1000") && !is_match(&but, "Opened999"));
    }

    /// Regression: a look-behind of variable length got no more than its share of the cache. Where
    /// it needs more, the expression was refused, as one that takes more than 1 MiB.
    #[test]
    fn look_behinds_of_variable_length_get_the_cache_that_they_need() {
        let names = |count: usize, text: &str| {
            (1..=count).map(|number| format!("{text}{number}")).collect::<Vec<_>>().join("|")
        };
        let events = format!(r"(?<=\w+-)(?:{})$", names(80, "E"));
        assert!(is_match(&events, "cart-E80") && is_match(&events, "cart-E1"));
        assert!(!is_match(&events, "-E80") && !is_match(&events, "cart-E81"));
        let left_out = format!("(?<!{})$", names(120, "name"));
        assert!(is_match(&left_out, "name") && is_match(&left_out, "other"));
        assert!(!is_match(&left_out, "name120") && !is_match(&left_out, "my name7"));
    }

    /// Regression: the limit of parts was also that of stored filters, so an upgrade stopped
    /// consumer groups.
    #[test]
    fn parts_of_a_stored_expression_are_not_limited() {
        let names: Vec<String> = (0..300).map(|number| format!("Opened{number}")).collect();
        let expression = format!(r"^(?!\$)(?:{})$", names.join("|"));
        let error = compiled(&expression).map(drop).expect_err("too many parts");
        assert!(error.to_string().contains("at most 256 are allowed"), "{error}");
        let stored = FilterRegex::new(&expression, ExpressionOrigin::Stored).expect("stored");
        for (name, wanted) in [("Opened299", true), ("Opened300", false), ("$Opened1", false)] {
            assert_eq!(stored.is_match(name).expect("in time"), wanted, "{name}");
        }
    }

    #[test]
    fn runaway_expression_is_stopped_and_named() {
        let name = "a".repeat(1024);
        for expression in
            [r"^(a+)+(?!a)b$", r"(?=(a*)*b)x", r"(a*)*\1b", r"(.*)(.*)(.*)(.*)(?=x)\1y"]
        {
            let run = compiled(expression).expect(expression);
            match run.is_match(&name) {
                Err(Error::RegexTooExpensive { expression: named, name: on }) => {
                    assert_eq!((named.as_str(), on.as_str()), (expression, name.as_str()));
                }
                // The engine may also detect at once that nothing can match.
                Ok(false) => {}
                other => panic!("{expression}: {other:?}"),
            }
        }
        let run = compiled(r"(a*)*\1b").expect("compiles");
        let error = run.is_match(&name).expect_err("runs away");
        let reason = error.to_string();
        assert!(
            reason.contains("10000 backtracking steps") && reason.contains("(a*)*"),
            "{reason}"
        );
        assert!(reason.len() < 600, "{reason}");
    }
}
