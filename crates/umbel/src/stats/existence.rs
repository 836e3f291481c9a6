//! The existence filter of a keyspace, as text.

use std::fmt;

use super::{KeyspaceStats, MEBIBYTE};

/// A line or two on the existence filter, where there is one.
pub fn write(f: &mut fmt::Formatter<'_>, keyspace: &KeyspaceStats) -> fmt::Result {
    if let Some(stats) = &keyspace.existence {
        let state = match (stats.is_answering, stats.is_filling) {
            (false, _) => ", being made",
            (true, true) => ", being made anew",
            (true, false) => "",
        };
        let measured = stats.measured_rate.map_or("-".into(), |r| format!("{:.4}%", r * 100.0));
        writeln!(
            f,
            "existence filter{state}: {} keys of {} in {:.2} MiB, {:.1}% full, denied {}, maybe \
             {}, in vain {}, measured {measured}, designed {:.4}%, {} lines damaged",
            stats.items,
            stats.designed_items,
            stats.memory_bytes as f64 / MEBIBYTE,
            stats.fill * 100.0,
            stats.denied,
            stats.maybe,
            stats.in_vain,
            stats.designed_rate * 100.0,
            stats.damaged_lines
        )?;
    }
    match &keyspace.existence_problem {
        Some(problem) => writeln!(f, "existence filter: {problem}"),
        None => Ok(()),
    }
}
