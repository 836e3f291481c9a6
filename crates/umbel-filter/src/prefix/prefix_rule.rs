//! The built-in prefix rules, by name.

use crate::prefix::prefix_extractor::PrefixExtractor;
use std::fmt;
use std::str::FromStr;

/// One of the built-in rules.
///
/// | name | prefix of a key | keys without one |
/// |---|---|---|
/// | `fixed:8` | its first 8 bytes | shorter ones |
/// | `capped:8` | its first 8 bytes, or all of it if it is shorter | none |
/// | `until:/` | all up to the first `/`, with it | those that have no `/` |
/// | `until:/:2` | all up to the second `/`, with it | those with fewer |
///
/// A separator that is not a visible ASCII character is written as a hexadecimal byte:
/// `until:0x00`.
///
/// ```
/// use umbel_filter::{KeyPrefix, PrefixExtractor};
///
/// let rule: KeyPrefix = "until:/:2".parse()?;
/// assert_eq!(rule.prefix(b"berlin/42/name"), Some(&b"berlin/42/"[..]));
/// assert_eq!(rule.shared(b"berlin/42"), None);
/// # Ok::<(), umbel_filter::PrefixRuleError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeyPrefix {
    name: String,
    rule: RuleKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum RuleKind {
    Fixed(usize),
    Capped(usize),
    Until { separator: u8, occurrence: usize },
}

impl KeyPrefix {
    /// Rule by which the prefix is the first `bytes` bytes; shorter keys have no prefix.
    ///
    /// # Errors
    /// [`PrefixRuleError::NotInRange`] where `bytes` is not 1 to 65,536.
    pub fn fixed(bytes: usize) -> Result<KeyPrefix, PrefixRuleError> {
        KeyPrefix::new(RuleKind::Fixed(bytes))
    }

    /// Rule by which the prefix is the first `bytes` bytes, or the whole of a shorter key.
    ///
    /// # Errors
    /// [`PrefixRuleError::NotInRange`] where `bytes` is not 1 to 65,536.
    pub fn capped(bytes: usize) -> Result<KeyPrefix, PrefixRuleError> {
        KeyPrefix::new(RuleKind::Capped(bytes))
    }

    /// Rule by which the prefix ends with the given occurrence of `separator`, counted from 1.
    ///
    /// # Errors
    /// [`PrefixRuleError::NotInRange`] where `occurrence` is not 1 to 65,536.
    pub fn until(separator: u8, occurrence: usize) -> Result<KeyPrefix, PrefixRuleError> {
        KeyPrefix::new(RuleKind::Until { separator, occurrence })
    }

    fn new(rule: RuleKind) -> Result<KeyPrefix, PrefixRuleError> {
        let (RuleKind::Fixed(number)
        | RuleKind::Capped(number)
        | RuleKind::Until { occurrence: number, .. }) = rule;
        if !(1..=MAX_NUMBER).contains(&number) {
            return Err(PrefixRuleError::NotInRange { number });
        }
        Ok(KeyPrefix { name: name(rule), rule })
    }
}

/// Largest number of bytes or occurrences in a rule: the length of the longest key.
const MAX_NUMBER: usize = 65_536;

/// FORMAT: the unique name of a rule, as filters contain it.
fn name(rule: RuleKind) -> String {
    match rule {
        RuleKind::Fixed(bytes) => format!("fixed:{bytes}"),
        RuleKind::Capped(bytes) => format!("capped:{bytes}"),
        RuleKind::Until { separator, occurrence } => {
            let separator = if separator.is_ascii_graphic() {
                char::from(separator).to_string()
            } else {
                format!("0x{separator:02x}")
            };
            match occurrence {
                1 => format!("until:{separator}"),
                _ => format!("until:{separator}:{occurrence}"),
            }
        }
    }
}

impl PrefixExtractor for KeyPrefix {
    fn name(&self) -> &str {
        &self.name
    }

    fn prefix<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]> {
        match self.rule {
            RuleKind::Fixed(bytes) => key.get(..bytes),
            RuleKind::Capped(bytes) => Some(&key[..bytes.min(key.len())]),
            RuleKind::Until { separator, occurrence } => {
                let found = |(_, byte): &(usize, &u8)| **byte == separator;
                let (last, _) = key.iter().enumerate().filter(found).nth(occurrence - 1)?;
                Some(&key[..=last])
            }
        }
    }

    fn shared<'k>(&self, start: &'k [u8]) -> Option<&'k [u8]> {
        match self.rule {
            // A shorter start begins keys that are cut later than it ends.
            RuleKind::Fixed(bytes) | RuleKind::Capped(bytes) => start.get(..bytes),
            RuleKind::Until { .. } => self.prefix(start),
        }
    }
}

impl fmt::Display for KeyPrefix {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&self.name)
    }
}

impl FromStr for KeyPrefix {
    type Err = PrefixRuleError;

    fn from_str(name: &str) -> Result<KeyPrefix, PrefixRuleError> {
        let unknown = || PrefixRuleError::Unknown { name: name.to_string() };
        let number = |digits: &str| -> Result<usize, PrefixRuleError> {
            let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            if plain { digits.parse().map_err(|_| unknown()) } else { Err(unknown()) }
        };
        let (rule, rest) = name.split_once(':').ok_or_else(unknown)?;
        match rule {
            "fixed" => KeyPrefix::fixed(number(rest)?),
            "capped" => KeyPrefix::capped(number(rest)?),
            "until" => {
                let (separator, rest) = separator(rest).ok_or_else(unknown)?;
                let occurrence = match rest.strip_prefix(':') {
                    Some(digits) => number(digits)?,
                    None if rest.is_empty() => 1,
                    None => return Err(unknown()),
                };
                KeyPrefix::until(separator, occurrence)
            }
            _ => Err(unknown()),
        }
    }
}

/// Parses the separator at the start of `text`. Returns it and the text after it.
fn separator(text: &str) -> Option<(u8, &str)> {
    let digits = text.strip_prefix("0x").and_then(|rest| rest.split_at_checked(2));
    if let Some((digits, rest)) = digits
        && let Ok(separator) = u8::from_str_radix(digits, 16)
        && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
    {
        return Some((separator, rest));
    }
    let first = *text.as_bytes().first().filter(|byte| byte.is_ascii_graphic())?;
    Some((first, &text[1..]))
}

/// Errors of a prefix rule's name.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PrefixRuleError {
    /// No built-in rule has the given name.
    Unknown {
        /// The name that was given.
        name: String,
    },
    /// The number of bytes or occurrences is 0, or more than a key can have.
    NotInRange {
        /// The number that was given.
        number: usize,
    },
    /// The name of a caller's own rule is empty or too long for a filter.
    Name {
        /// Number of bytes the name has.
        bytes: usize,
    },
}

impl fmt::Display for PrefixRuleError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PrefixRuleError::Unknown { name } => write!(
                formatter,
                "there is no prefix rule `{name}`; there are fixed:N, capped:N, until:C and \
                 until:C:N, where C is a character or a byte like 0x1f"
            ),
            PrefixRuleError::NotInRange { number } => {
                write!(
                    formatter,
                    "a prefix rule's number is {number}, but must be 1 to {MAX_NUMBER}"
                )
            }
            PrefixRuleError::Name { bytes } => write!(
                formatter,
                "the prefix rule's name has {bytes} bytes, but must have 1 to 255"
            ),
        }
    }
}

impl std::error::Error for PrefixRuleError {}
