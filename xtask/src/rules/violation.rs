//! Violation that a rule reports.

use std::fmt;

/// One place where a rule does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The file, relative to the root, and the line if there is one: `docs/reference/cli.md:12`.
    pub place: String,
    /// Short name of the rule.
    pub rule: &'static str,
    /// Description of the violation and its remedy.
    pub message: String,
}

impl Violation {
    /// A violation of `rule` at a whole file.
    pub fn file(path: &str, rule: &'static str, message: impl Into<String>) -> Violation {
        Violation { place: path.to_string(), rule, message: message.into() }
    }

    /// A violation of `rule` at a line, counted from 1.
    pub fn line(
        path: &str,
        line: usize,
        rule: &'static str,
        message: impl Into<String>,
    ) -> Violation {
        Violation { place: format!("{path}:{line}"), rule, message: message.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.place, self.rule, self.message)
    }
}
