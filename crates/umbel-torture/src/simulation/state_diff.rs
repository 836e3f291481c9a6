//! Differences of two states, as text.

use std::collections::{BTreeMap, BTreeSet};

type DiffMap = BTreeMap<Vec<u8>, Vec<u8>>;

/// Describes the first differences of two maps.
pub fn difference(name: &str, expected: &DiffMap, found: &DiffMap) -> String {
    let mut text = format!(" keyspace '{name}':");
    let keys: BTreeSet<_> = expected.keys().chain(found.keys()).collect();
    let mut shown = 0;
    for key in keys {
        let (want, have) = (expected.get(key), found.get(key));
        if want == have {
            continue;
        }
        if shown < 4 {
            let brief = |value: Option<&Vec<u8>>| {
                value.map_or("nothing".to_string(), |v| {
                    format!("{} ({} B)", v[..v.len().min(16)].escape_ascii(), v.len())
                })
            };
            let (key, want, have) = (key.escape_ascii(), brief(want), brief(have));
            text.push_str(&format!(" {key} expected {want}, found {have};"));
        }
        shown += 1;
    }
    text.push_str(&format!(" {shown} keys differ"));
    text
}
