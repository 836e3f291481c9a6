//! [`Expression`]: a regular expression of a filter, with what it may take of memory and time.

use fancy_regex::{CompileError, Error as EngineError, Regex, RegexBuilder};

use crate::dialect::translate;
use crate::error::{Error, Result, shortened};
use crate::limits::{
    EXPRESSION_BACKTRACKS_MAX, EXPRESSION_BYTES_MAX, EXPRESSION_COMPILED_BYTES_MAX,
};

/// Most instructions of an expression that the engine for look-arounds runs.
const INSTRUCTIONS_MAX: usize = EXPRESSION_COMPILED_BYTES_MAX / 32;
/// Bytes that the engine may keep of what it found out while it ran.
const CACHE_BYTES: usize = 2 * EXPRESSION_COMPILED_BYTES_MAX;

/// A regular expression of a filter.
#[derive(Debug)]
pub struct Expression {
    source: String,
    way: Way,
}

#[derive(Debug)]
enum Way {
    /// It says no more than how a name begins.
    Prefix(String),
    Engine(Box<Regex>),
}

impl Expression {
    /// Compiles an expression as users of .NET write them.
    ///
    /// # Errors
    /// `Invalid` where it is empty, too long, broken, or too large once compiled.
    pub fn new(source: &str) -> Result<Expression> {
        if source.is_empty() {
            return Err(Error::invalid(
                "the filter's expression is empty, which lets every event pass; leave the filter \
                 out, or say what passes",
            ));
        }
        if source.len() > EXPRESSION_BYTES_MAX {
            return Err(Error::invalid(format!(
                "the filter's expression has {} bytes, but may have {EXPRESSION_BYTES_MAX}; use \
                 prefixes, or several filters",
                source.len()
            )));
        }
        let way = match plain_prefix(source) {
            Some(prefix) => Way::Prefix(prefix),
            None => Way::Engine(Box::new(compile(source)?)),
        };
        Ok(Expression { source: source.to_string(), way })
    }

    /// How a name has to begin, where it says no more than that.
    pub fn prefix(&self) -> Option<&str> {
        match &self.way {
            Way::Prefix(prefix) => Some(prefix),
            Way::Engine(_) => None,
        }
    }

    /// Whether a name matches.
    ///
    /// # Errors
    /// `Runaway` where that takes too long.
    pub fn is_match(&self, name: &str) -> Result<bool> {
        match &self.way {
            Way::Prefix(prefix) => Ok(name.starts_with(prefix)),
            Way::Engine(regex) => regex.is_match(name).map_err(|_| Error::Runaway {
                expression: self.source.clone(),
                name: name.to_string(),
            }),
        }
    }
}

fn compile(source: &str) -> Result<Regex> {
    let broken = |at: usize, why: &str| {
        let before = source.get(..at).unwrap_or(source);
        Error::invalid(format!(
            "the filter's expression '{}' is broken at character {}: {why}",
            shortened(source),
            before.chars().count() + 1
        ))
    };
    let translated = translate(source).map_err(|wrong| broken(wrong.at, &wrong.why))?;
    let compiled = RegexBuilder::new(&translated.text)
        .backtrack_limit(EXPRESSION_BACKTRACKS_MAX)
        .delegate_size_limit(EXPRESSION_COMPILED_BYTES_MAX)
        .delegate_dfa_size_limit(CACHE_BYTES)
        .delegate_dfa_skip_cache_capacity_check(false)
        .max_prog_size(INSTRUCTIONS_MAX)
        .build();
    compiled.map_err(|error| match error {
        EngineError::ParseError(at, why) => broken(translated.source_of(at), &why.to_string()),
        EngineError::CompileError(why) => Error::invalid(format!(
            "the filter's expression '{}' cannot be used: {}",
            shortened(source),
            reason(&why)
        )),
        other => Error::invalid(other.to_string()),
    })
}

/// What the engine says, in one line.
fn reason(error: &CompileError) -> String {
    let too_large = || {
        format!(
            "compiled it takes more than {EXPRESSION_COMPILED_BYTES_MAX} bytes; make it smaller"
        )
    };
    match error {
        CompileError::InnerError(inner) if inner.size_limit().is_some() => too_large(),
        CompileError::InnerError(inner) => match inner.syntax_error() {
            // The last of several lines, which show the expression.
            Some(syntax) => {
                let text = syntax.to_string();
                let last = text.lines().last().unwrap_or_default();
                last.trim_start_matches("error: ").to_string()
            }
            None => inner.to_string(),
        },
        CompileError::PatternTooComplex | CompileError::DfaBuildError(..) => too_large(),
        other => other.to_string(),
    }
}

/// How a name has to begin, where the expression says that and nothing else.
fn plain_prefix(source: &str) -> Option<String> {
    let said = source.strip_prefix('^')?;
    // What may follow and may be nothing says nothing.
    let said = match said.strip_suffix(".*") {
        Some(before) if !before.ends_with('\\') => before,
        _ => said,
    };
    let mut prefix = String::new();
    let mut letters = said.chars();
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

    fn is_match(expression: &str, name: &str) -> bool {
        Expression::new(expression).expect(expression).is_match(name).expect("in time")
    }

    #[test]
    fn expressions_mean_what_users_of_dotnet_expect() {
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
    fn what_only_says_how_a_name_begins_does_not_need_the_engine() {
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
        assert_eq!(Expression::new("^cart-").expect("plain").prefix(), Some("cart-"));
        assert!(is_match("^cart-", "cart-1") && !is_match("^cart-", "a cart-1"));
        assert!(is_match(r"^a\.*", "a..") && is_match(r"^a\.*", "a"));
    }

    #[test]
    fn a_broken_expression_is_told_where() {
        let long = "x".repeat(EXPRESSION_BYTES_MAX + 1);
        let deep = "(".repeat(5000);
        for (expression, said) in [
            ("", "is empty"),
            (long.as_str(), "has 16385 bytes, but may have 16384"),
            ("ä(b", "broken at character"),
            (r"käse\h", "broken at character 5"),
            ("a**)", "broken at character"),
            ("*", "broken at character 1"),
            ("(?<a-b>x)", "broken at character 1: groups that balance"),
            (deep.as_str(), "broken at character"),
            (r"\p{Nonsense}", "cannot be used"),
            (r"(a)\2", "reference"),
            ("[z-a]", "cannot be used"),
            (r"(\w{60}){60}", "cannot be used"),
            ("((?=a)a{1000}){1000}", "looks around and back 1000 times"),
        ] {
            match Expression::new(expression) {
                Err(Error::Invalid(message)) => {
                    assert!(message.contains(said), "{message}");
                    assert!(!message.contains('\n'), "{message}");
                    assert!(message.len() < 1000, "{message}");
                }
                other => panic!("{expression:.40}: {other:?}"),
            }
        }
    }

    #[test]
    fn an_expression_that_runs_away_is_stopped_and_names_itself() {
        let name = "a".repeat(1024);
        for expression in
            [r"^(a+)+(?!a)b$", r"(?=(a*)*b)x", r"(a*)*\1b", r"(.*)(.*)(.*)(.*)(?=x)\1y"]
        {
            let run = Expression::new(expression).expect(expression);
            match run.is_match(&name) {
                Err(Error::Runaway { expression: named, name: on }) => {
                    assert_eq!((named.as_str(), on.as_str()), (expression, name.as_str()));
                }
                // The engine may also see at once that nothing can match.
                Ok(false) => {}
                other => panic!("{expression}: {other:?}"),
            }
        }
        let run = Expression::new(r"(a*)*\1b").expect("compiles");
        let error = run.is_match(&name).expect_err("runs away");
        let said = error.to_string();
        assert!(said.contains("10000 steps back") && said.contains("(a*)*"), "{said}");
        assert!(said.len() < 600, "{said}");
    }
}
