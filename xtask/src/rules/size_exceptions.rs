//! The shrink-only list of files and functions that are longer than the house allows.
//!
//! INVARIANT: a row's number is exactly what its file or function measures, so the list can only
//! shrink: who shortens the code must lower the number, and who lengthens it fails the test.

use std::collections::BTreeMap;

use crate::{Tree, Violation};

/// Where the list lies.
pub const LIST: &str = "xtask/tidy-exceptions.txt";

/// The list, and what was measured where a row allows more than the house does.
#[derive(Debug, Default)]
pub struct Exceptions {
    rows: BTreeMap<String, (usize, usize)>,
    measured: BTreeMap<String, usize>,
    broken: Vec<Violation>,
}

impl Exceptions {
    /// Reads the list. A row is `path: limit` for a file or `path::function: limit`.
    pub fn read(tree: &Tree) -> Exceptions {
        let mut exceptions = Exceptions::default();
        for (index, line) in tree.text(LIST).unwrap_or("").lines().enumerate() {
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
                    LIST,
                    index + 1,
                    "exceptions",
                    format!("`{line}` is not `path: limit`"),
                )),
            }
        }
        exceptions
    }

    /// How long this file or function may be.
    pub fn limit(&mut self, name: &str, house_limit: usize, measured: usize) -> usize {
        let Some((limit, _)) = self.rows.get(name) else { return house_limit };
        // Two functions of one name share a row: the longest counts.
        let longest = self.measured.entry(name.to_string()).or_default();
        if measured > house_limit {
            *longest = measured.max(*longest);
        }
        *limit
    }

    /// The rows that are wrong or larger than needed.
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
            found.push(Violation::line(LIST, *line, "exceptions", message));
        }
        found
    }
}
