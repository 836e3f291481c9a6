//! [`ObjectName`]: a checked name of an object, which is safe as a path and as a key.

use std::fmt;

use umbel_base::{Error, Result};

/// Maximum number of bytes of a name. Stores allow 1024 bytes for a key; the rest is left for the
/// prefix.
pub const OBJECT_NAME_BYTES_MAX: usize = 512;
/// Maximum number of bytes of one segment of a name.
pub const OBJECT_NAME_SEGMENT_BYTES_MAX: usize = 200;
/// Maximum number of segments of a name.
pub const OBJECT_NAME_SEGMENTS_MAX: usize = 8;

/// Name of an object: one to eight segments with `/` between them.
///
/// A segment has 1 to 200 letters, digits, `-`, `_` and `.`, and does not begin with `.`. So no
/// name leads out of the store's prefix, and hidden files of a directory are never objects. Names
/// are ordered by their bytes.
///
/// ```
/// use umbel_env::ObjectName;
///
/// assert!(ObjectName::new("slots/00000000000000012345").is_ok());
/// assert!(ObjectName::new("slots/../secret").is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectName(String);

impl ObjectName {
    /// Checks a name.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the reason.
    pub fn new(name: impl Into<String>) -> Result<ObjectName> {
        let name = name.into();
        let invalid = |reason: &str| {
            let shown: String = name.chars().take(80).collect();
            Err(Error::invalid(format!("{shown:?} is no name of an object: {reason}")))
        };
        if name.len() > OBJECT_NAME_BYTES_MAX {
            return invalid("it is longer than 512 bytes");
        }
        let mut count = 0;
        for segment in name.split('/') {
            count += 1;
            if !is_segment(segment) {
                return invalid(
                    "each segment needs 1 to 200 letters, digits, '-', '_' and '.', and must not \
                     begin with '.'",
                );
            }
        }
        match count > OBJECT_NAME_SEGMENTS_MAX {
            true => invalid("it has more than 8 segments"),
            false => Ok(ObjectName(name)),
        }
    }

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether these bytes can be one segment of a name.
fn is_segment(segment: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=OBJECT_NAME_SEGMENT_BYTES_MAX).contains(&segment.len())
        && !segment.starts_with('.')
        && segment.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        let long = "a".repeat(201);
        let deep = ["a"; 9].join("/");
        let huge = ["a".repeat(190), "b".repeat(190), "c".repeat(190)].join("/");
        let refused = [
            "", "/", "/a", "a/", "a//b", ".", "..", "a/..", "../a", "a/./b", ".hidden", "a/.b",
            "a\\b", "a b", "a\0", "a\n", "ä", "a+b", "a%2e", "c:d", &long, &deep, &huge,
        ];
        for name in refused {
            let error = ObjectName::new(name).expect_err(name).to_string();
            assert!(error.contains("no name of an object"), "{error}");
        }
        let eight = ["a"; 8].join("/");
        let full = "a".repeat(200);
        for name in ["STORE", "slots/00000000000000012345", "a..b", "-", "_", &eight, &full] {
            assert_eq!(ObjectName::new(name).expect("a name").as_str(), name);
        }
    }

    #[test]
    fn names_are_ordered_by_their_bytes() {
        let name = |text| ObjectName::new(text).expect("a name");
        assert!(name("a-b") < name("a/b"));
        assert!(name("a.b") < name("a/b"));
        assert!(name("a/b") < name("a0"));
    }
}
