//! The shrink-only list of files and functions that exceed the general limits.
//!
//! INVARIANT: a row's number is exactly the size of its file or function. So the list can only
//! shrink: shorter code must lower the number, and longer code fails the test.

use std::collections::BTreeMap;

use crate::{Tree, Violation};

/// Path of the list.
pub const LIST_FILE: &str = "xtask/tidy-exceptions.txt";

/// The list, and the sizes of code that exceeds the general limit.
#[derive(Debug, Default)]
pub struct SizeExceptions {
    rows: BTreeMap<String, (usize, usize)>,
    measured: BTreeMap<String, usize>,
    broken: Vec<Violation>,
}

impl SizeExceptions {
    /// Reads the list. A row is `path: limit` for a file or `path::function: limit`.
    pub fn read(tree: &Tree) -> SizeExceptions {
        let mut exceptions = SizeExceptions::default();
        for (index, line) in tree.text(LIST_FILE).unwrap_or("").lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            match line.rsplit_once(": ").and_then(|(name, limit)| Some((name, limit.parse().ok()?)))
            {
                Some((name, limit)) => {
                    exceptions.rows.insert(name.to_string(), (limit, index + 1));
                }
                None => exceptions.broken.push(Violation::line(
                    LIST_FILE,
                    index + 1,
                    "exceptions",
                    format!("`{line}` is not `path: limit`"),
                )),
            }
        }
        exceptions
    }

    /// Returns the longest allowed length of this file or function.
    pub fn limit(&mut self, name: &str, general_limit: usize, measured: usize) -> usize {
        let Some((limit, _)) = self.rows.get(name) else { return general_limit };
        // Two functions of one name share a row: the longest counts.
        let longest = self.measured.entry(name.to_string()).or_default();
        if measured > general_limit {
            *longest = measured.max(*longest);
        }
        *limit
    }

    /// Returns the rows that are wrong or larger than needed.
    pub fn stale(self) -> Vec<Violation> {
        let mut found = self.broken;
        for (name, (limit, line)) in &self.rows {
            let message = match self.measured.get(name) {
                Some(0) | None => format!("`{name}` needs no exception: remove the row"),
                Some(measured) if measured < limit => {
                    format!("`{name}` measures {measured}, not {limit}: lower the number")
                }
                Some(_) => continue,
            };
            found.push(Violation::line(LIST_FILE, *line, "exceptions", message));
        }
        found
    }
}
