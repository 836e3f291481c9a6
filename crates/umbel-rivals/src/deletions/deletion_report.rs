//! Report of the disk space after deletes as Markdown.

use std::fmt::Write as _;

use umbel_lab::measure::machine::Machine;

use crate::deletions::deletion_arguments::DeletionArguments;
use crate::deletions::deletion_run::DeletionRow;
use crate::engine_runs;

/// Returns the report as a page of Markdown.
pub fn markdown(arguments: &DeletionArguments, machine: &Machine, rows: &[DeletionRow]) -> String {
    let mut page = engine_runs::heading("Disk space after deletes", machine);
    let _ = writeln!(
        page,
        "Space is that of all files of the open store, logs included, for each byte of live keys \
         and values; mebibytes where nothing is live. Busy is right after the deletes; under \
         steady writes, the maximum after the first third of {} seconds. Then the store is idle. \
         Write amplification is what the process wrote to files for each byte of keys and values. \
         The number of entries is checked at the end. An engine without range deletes deletes each \
         key. Memtables of {} MiB.\n",
        arguments.steady_seconds, arguments.memtable_mib
    );
    let _ = writeln!(
        page,
        "| kind | engine | live, MiB | busy | idle 5 s | idle {} s | write amplification | \
         writes/s |",
        arguments.idle_seconds
    );
    let _ = writeln!(page, "|{}", "---|".repeat(8));
    for row in rows {
        let _ = writeln!(page, "{}", line(row));
    }
    page
}

fn line(row: &DeletionRow) -> String {
    let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let start =
        format!("| {} | {} | {:.1} |", row.kind.name, row.engine, mebibytes(row.live_bytes));
    if let Some(note) = row.note {
        return format!("{start} {note} | | | | |");
    }
    let space = |bytes: u64| match row.live_bytes {
        0 => format!("{:.1} MiB", mebibytes(bytes)),
        live => format!("{:.2}", bytes as f64 / live as f64),
    };
    let amplification = row.write_amplification.map_or("–".to_string(), |it| format!("{it:.2}"));
    let rate = row.rate.map_or("–".to_string(), |rate| format!("{rate:.0}"));
    format!(
        "{start} {} | {} | {} | {amplification} | {rate} |",
        space(row.space_busy),
        space(row.space_soon),
        space(row.space_idle)
    )
}
