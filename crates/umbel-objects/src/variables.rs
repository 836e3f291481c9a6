//! [`Variables`]: the settings of a store that are not in its URL.

use std::collections::BTreeMap;
use std::fmt;

/// Environment variables, with credentials and settings of stores.
#[derive(Clone, Default)]
pub struct Variables {
    values: BTreeMap<String, String>,
}

impl fmt::Debug for Variables {
    /// Shows the names only, since values can be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.values.keys()).finish()
    }
}

impl Variables {
    /// Reads the environment variables of this process, except those that are not UTF-8.
    pub fn of_process() -> Variables {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Variables { values: std::env::vars_os().filter_map(text).collect() }
    }

    /// Creates variables with these names and values.
    pub fn new<N: Into<String>, V: Into<String>>(
        values: impl IntoIterator<Item = (N, V)>,
    ) -> Variables {
        let owned = values.into_iter().map(|(name, value)| (name.into(), value.into()));
        Variables { values: owned.collect() }
    }
}

#[cfg(feature = "buckets")]
impl Variables {
    /// Returns the value of a variable. An empty variable counts as absent.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Returns the value of the first of these variables that has one.
    pub(crate) fn first(&self, names: &[&str]) -> Option<&str> {
        names.iter().find_map(|name| self.get(name))
    }

    /// Returns the variables whose names begin with `prefix`.
    pub(crate) fn with_prefix<'v>(
        &'v self,
        prefix: &'v str,
    ) -> impl Iterator<Item = (&'v str, &'v str)> {
        let found = self.values.iter().filter(move |(name, _)| name.starts_with(prefix));
        found.map(|(name, value)| (name.as_str(), value.as_str())).filter(|(_, v)| !v.is_empty())
    }

    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.values.insert(name.to_owned(), value.to_owned());
    }

    pub(crate) fn remove(&mut self, name: &str) {
        self.values.remove(name);
    }
}

#[cfg(all(test, feature = "buckets"))]
mod tests {
    use super::*;

    #[test]
    fn empty_variables_are_absent_and_values_are_hidden() {
        let variables = Variables::new([("A_ID", "x"), ("A_SECRET", "hidden"), ("A_EMPTY", "")]);
        assert_eq!(variables.first(&["A_EMPTY", "A_ID"]), Some("x"));
        assert_eq!(variables.get("B"), None);
        assert_eq!(variables.with_prefix("A_").count(), 2);
        assert_eq!(format!("{variables:?}"), r#"{"A_EMPTY", "A_ID", "A_SECRET"}"#);
    }
}
