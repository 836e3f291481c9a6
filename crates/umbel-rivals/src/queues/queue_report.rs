//! Report of the queues as Markdown.

use std::fmt::Write as _;

use umbel_lab::measure::machine::Machine;

use crate::engine_runs;
use crate::queues::queue_arguments::QueueArguments;
use crate::queues::queue_run::QueueRow;

/// Returns the report as a page of Markdown.
pub fn markdown(arguments: &QueueArguments, machine: &Machine, rows: &[QueueRow]) -> String {
    let mut page = engine_runs::heading("Queues", machine);
    let _ = writeln!(
        page,
        "A pop reads the oldest element, puts a new one and deletes the oldest; LMDB does both \
         writes in one transaction. Times are microseconds a pop, by the wall clock, in spans of \
         {} pops. The time series reads its 100 oldest entries before each pop. Every answer is \
         checked. Space is that of the files at the end, for each live byte.\n",
        arguments.pops
    );
    let heads: Vec<String> = (1..=arguments.spans).map(|span| format!("span {span}")).collect();
    let _ = writeln!(
        page,
        "| workload | engine | {} | last / first | longest read, ms | space / live | \
         write amplification |",
        heads.join(" | ")
    );
    let _ = writeln!(page, "|{}", "---|".repeat(heads.len() + 6));
    for row in rows {
        let _ = writeln!(page, "{}", line(arguments, row));
    }
    page
}

fn line(arguments: &QueueArguments, row: &QueueRow) -> String {
    let mut line = format!("| {} | {} |", row.workload.name, row.engine);
    for span in 0..arguments.spans as usize {
        let cell =
            row.spans.get(span).map_or("–".to_string(), |ns| format!("{:.1}", ns / 1000.0));
        let _ = write!(line, " {cell} |");
    }
    let ratio = match row.spans[..] {
        [first, .., last] if row.note.is_none() => format!("{:.2}", last / first),
        _ => row.note.clone().unwrap_or_default(),
    };
    let amplification = row.write_amplification.map_or("–".to_string(), |it| format!("{it:.2}"));
    let _ = write!(
        line,
        " {ratio} | {:.2} | {:.2} | {amplification} |",
        row.longest_read.as_secs_f64() * 1000.0,
        row.disk_bytes as f64 / row.live_bytes as f64
    );
    line
}
