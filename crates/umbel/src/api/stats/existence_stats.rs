//! Text report of a keyspace's existence filter.

use std::fmt;

use super::{KeyspaceStats, MEBIBYTE};
use crate::options::ExistenceSize;

/// Writes some lines about the keyspace's existence filter, or one line that says that it has none.
pub fn write(f: &mut fmt::Formatter<'_>, keyspace: &KeyspaceStats) -> fmt::Result {
    let size = match keyspace.existence_filter {
        ExistenceSize::Off => "off".to_owned(),
        ExistenceSize::Fixed { bytes } => format!("{bytes} bytes"),
        ExistenceSize::Growing { .. } => "grows".to_owned(),
    };
    let Some(stats) = &keyspace.existence else {
        writeln!(f, "existence filter: {size}")?;
        return write_problem(f, keyspace);
    };
    let source = if keyspace.existence_is_probed { "" } else { ", as its files say" };
    let percent = |rate: f64| format!("{:.4}%", rate * 100.0);
    writeln!(
        f,
        "existence filter ({size}): {}{source}, {} keys of {} in {:.2} MiB, {:.1}% full, {} lines \
         damaged",
        stats.state(),
        stats.items,
        stats.designed_items,
        stats.memory_bytes as f64 / MEBIBYTE,
        stats.fill * 100.0,
        stats.damaged_lines
    )?;
    write!(
        f,
        "existence filter: rejected {}, passed {}, false positives {}, rate measured {}, designed \
         {}, now {}; its files cover writes up to {}",
        stats.denied,
        stats.maybe,
        stats.false_positives,
        stats.measured_rate.map_or("-".into(), percent),
        percent(stats.designed_rate),
        percent(stats.estimated_rate),
        stats.covered
    )?;
    match keyspace.existence_is_probed {
        true => writeln!(f, " and lack {} keys", stats.lag_items)?,
        false => writeln!(f)?,
    }
    if stats.damaged_journals > 0 {
        let journals = stats.damaged_journals;
        writeln!(f, "existence filter: damaged journals at the open: {journals}; check the disk")?;
    }
    if let Some(reason) = &stats.lost {
        let time = if keyspace.existence_is_probed { "was" } else { "will be" };
        writeln!(f, "existence filter: {time} rebuilt: {reason}")?;
    }
    write_problem(f, keyspace)
}

fn write_problem(f: &mut fmt::Formatter<'_>, keyspace: &KeyspaceStats) -> fmt::Result {
    match &keyspace.existence_problem {
        Some(problem) => writeln!(f, "existence filter: {problem}"),
        None => Ok(()),
    }
}
