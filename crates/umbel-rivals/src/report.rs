//! The results as Markdown, which a terminal shows as well, and as JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::arguments::Arguments;
use crate::engines;
use crate::machine::Machine;
use crate::measure::Sample;
use crate::plan::Phase;
use crate::record::{Results, Spread};

/// What the results are of.
#[derive(Debug)]
pub struct Heading<'a> {
    /// What was asked for.
    pub arguments: &'a Arguments,
    /// Where and when.
    pub machine: &'a Machine,
    /// Bytes of all keys and values.
    pub user_bytes: u64,
    /// The machine's load before the run.
    pub loads_before: Option<[f64; 3]>,
    /// And now.
    pub loads_after: Option<[f64; 3]>,
}

const OURS: &str = "umbel";

type Time = fn(&Sample) -> f64;

/// The results as a page.
pub fn markdown(heading: &Heading<'_>, results: &Results) -> String {
    let mut page = String::new();
    let arguments = heading.arguments;
    put(&mut page, &format!("# Rivals, {} keys, {}\n", arguments.num, heading.machine.date));
    put(&mut page, &settings(heading));
    put(&mut page, "\n## Engines\n");
    put(&mut page, &participants(results));
    put(&mut page, "\n## Reading: wall time in ns, median (min–max)\n");
    put(&mut page, &reads(results, Sample::wall));
    put(&mut page, "\n## Reading: processor time of the asking thread in ns, median (min–max)\n");
    put(&mut page, &reads(results, Sample::thread));
    put(&mut page, "\n## Writing and opening, by the wall clock, median (min–max)\n");
    put(&mut page, &writes(heading, results));
    put(&mut page, "\n## Umbel's time as a part of the other's, reading, processor time\n");
    let note = "Each figure: median (min–max) of the rounds' ratios; below 1 Umbel is faster.\n\n";
    put(&mut page, note);
    put(&mut page, &ratios(results, &Phase::READS, Sample::thread));
    put(&mut page, "\n## The same, wall time\n");
    let phases: Vec<Phase> = Phase::READS.into_iter().chain(Phase::WRITES).collect();
    put(&mut page, &ratios(results, &phases[..6], Sample::wall));
    put(&mut page, "");
    put(&mut page, &ratios(results, &phases[6..], Sample::wall));
    put(&mut page, "\n## Answers\n");
    put(&mut page, &answers(results));
    page
}

fn put(page: &mut String, text: &str) {
    page.push_str(text);
    if !text.ends_with('\n') || text.starts_with('\n') || text.starts_with('#') {
        page.push('\n');
    }
}

fn settings(heading: &Heading<'_>) -> String {
    let (arguments, machine) = (heading.arguments, heading.machine);
    let load = |loads: Option<[f64; 3]>| match loads {
        Some([one, five, fifteen]) => format!("{one:.1} / {five:.1} / {fifteen:.1}"),
        None => "unknown".to_string(),
    };
    let memory = machine.memory_mib.map_or("unknown".to_string(), |mib| format!("{mib} MiB"));
    format!(
        "Commit {}. {} with {} threads, {memory} of memory, {}, {}. Load average (1 / 5 / 15 min) \
         before: {}, after: {}; what else ran on the machine was not ours to stop, so compare \
         ratios and look at the spread.\n\n\
         {} keys of shape {}, {} bytes of keys and values together, values of {} bytes. Rounds: \
         {} of filling, {} of the rest, {} point reads each (a fifth as many seeks), {} synced \
         puts from one thread and twice as many from eight. {}Caches of {} MiB; everything was \
         read twice before measuring. Every engine runs in this process, on this file system; \
         for each phase the engines take turns.\n",
        machine.commit,
        machine.processor,
        machine.threads,
        machine.kernel,
        machine.file_system,
        load(heading.loads_before),
        load(heading.loads_after),
        arguments.num,
        arguments.shape,
        heading.user_bytes,
        arguments.value,
        arguments.fill_rounds,
        arguments.rounds,
        arguments.reads,
        arguments.synced,
        if arguments.compact { "Stores were compacted into one level. " } else { "" },
        arguments.cache_mib,
    )
}

fn participants(results: &Results) -> String {
    let mut text = String::new();
    for participant in &results.participants {
        let name = participant.name;
        let _ = match &participant.absent_because {
            Some(reason) => writeln!(text, "- **{name}** skipped: {reason}."),
            None => writeln!(text, "- **{name}** {}: {}.", participant.version, settings_of(name)),
        };
    }
    text
}

fn settings_of(name: &str) -> String {
    let engine = engines::ALL.into_iter().find(|engine| engine.name == name);
    engine.map_or(String::new(), |engine| {
        let together = if engine.multi_get { "" } else { "; multi_get as single gets" };
        format!("{}{together}", engine.settings)
    })
}

fn present(results: &Results) -> impl Iterator<Item = &'static str> {
    results
        .participants
        .iter()
        .map(|participant| participant.name)
        .filter(|name| results.records.iter().any(|record| record.engine == *name))
}

fn reads(results: &Results, time: Time) -> String {
    let mut table = Table::new("engine", Phase::READS.iter().map(|phase| phase.head()));
    for engine in present(results) {
        let cells = Phase::READS.iter().map(|&phase| cell(results.spread(engine, phase, time)));
        table.row(engine, cells);
    }
    table.text()
}

fn writes(heading: &Heading<'_>, results: &Results) -> String {
    let more = [
        "random fill and settle, processor ns of all threads per put",
        "written / user bytes",
        "on disk / user bytes",
    ];
    let mut table =
        Table::new("engine", Phase::WRITES.iter().map(|phase| phase.head()).chain(more));
    let share = |bytes: Option<u64>| match bytes {
        Some(bytes) => format!("{:.2}", bytes as f64 / heading.user_bytes.max(1) as f64),
        None => "–".to_string(),
    };
    for participant in &results.participants {
        let engine = participant.name;
        if !present(results).any(|name| name == engine) {
            continue;
        }
        // Where nothing is done, only making the entries takes time.
        let counts =
            |phase| engine != "none" || matches!(phase, Phase::FillRandom | Phase::FillSequential);
        let spread = |phase: Phase| {
            cell(results.spread(engine, phase, Sample::wall).filter(|_| counts(phase)))
        };
        let cells = Phase::WRITES.iter().map(|&phase| spread(phase));
        let processor = results.put_processor_ns(engine).map_or("–".to_string(), figure);
        let sizes = [share(results.written_bytes(engine)), share(participant.disk_bytes)];
        table.row(engine, cells.chain([processor]).chain(sizes));
    }
    table.text()
}

fn ratios(results: &Results, phases: &[Phase], time: Time) -> String {
    let mut table = Table::new("umbel /", phases.iter().map(|phase| phase.name()));
    for other in present(results).filter(|name| *name != OURS && *name != "none") {
        let cells = phases.iter().map(|&phase| cell(results.ratio(OURS, other, phase, time)));
        table.row(other, cells);
    }
    table.text()
}

fn answers(results: &Results) -> String {
    let disagreements = results.disagreements();
    if disagreements.is_empty() {
        return "All engines found the same number of values with the same checksum in every \
                round of every phase.\n"
            .to_string();
    }
    disagreements.iter().map(|sentence| format!("- {sentence}\n")).collect()
}

fn cell(spread: Option<Spread>) -> String {
    let Some(Spread { least, median, most }) = spread else { return "–".to_string() };
    if least == most {
        return figure(median);
    }
    format!("{} ({}–{})", figure(median), figure(least), figure(most))
}

/// Three figures that count, and all before the point.
fn figure(number: f64) -> String {
    match number.abs() {
        n if n >= 1000.0 => grouped(&format!("{number:.0}")),
        n if n >= 100.0 => format!("{number:.0}"),
        n if n >= 10.0 => format!("{number:.1}"),
        _ => format!("{number:.2}"),
    }
}

/// The digits of a whole number in groups of three.
fn grouped(digits: &str) -> String {
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A Markdown table whose columns are aligned.
struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    fn new<'a>(first: &str, heads: impl Iterator<Item = &'a str>) -> Table {
        let heads = std::iter::once(first.to_string()).chain(heads.map(str::to_string));
        Table { rows: vec![heads.collect()] }
    }

    fn row(&mut self, first: &str, cells: impl Iterator<Item = String>) {
        self.rows.push(std::iter::once(first.to_string()).chain(cells).collect());
    }

    fn text(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for (at, row) in self.rows.iter().enumerate() {
            for (cell, width) in row.iter().zip(&widths) {
                let _ = write!(text, "| {cell:width$} ");
            }
            text.push_str("|\n");
            if at == 0 {
                let rules = widths.iter().map(|width| "-".repeat(width + 2));
                let _ = writeln!(text, "|{}|", rules.collect::<Vec<_>>().join("|"));
            }
        }
        text
    }
}

/// Everything, for programs.
pub fn json(heading: &Heading<'_>, results: &Results) -> Value {
    let (arguments, machine) = (heading.arguments, heading.machine);
    let records = results.records.iter().map(|record| {
        let sample = &record.sample;
        json!({
            "engine": record.engine,
            "phase": record.phase.name(),
            "round": record.round,
            "operations": sample.operations,
            "wall_ns": sample.wall_ns,
            "thread_processor_ns": sample.thread_ns,
            "process_processor_ns": sample.process_ns,
            "written_bytes": sample.written_bytes,
            "values_found": sample.tally.found,
            "checksum": format!("{:016x}", sample.tally.sum),
            "load_1_minute": record.load,
        })
    });
    let participants = results.participants.iter().map(|participant| {
        json!({
            "name": participant.name,
            "version": participant.version,
            "settings": settings_of(participant.name),
            "disk_bytes": participant.disk_bytes,
            "written_bytes_fill_random_and_settle": results.written_bytes(participant.name),
            "absent_because": participant.absent_because,
        })
    });
    json!({
        "date": machine.date,
        "commit": machine.commit,
        "processor": machine.processor,
        "threads": machine.threads,
        "memory_mib": machine.memory_mib,
        "kernel": machine.kernel,
        "file_system": machine.file_system,
        "loads_before": heading.loads_before,
        "loads_after": heading.loads_after,
        "keys": arguments.num,
        "shape": arguments.shape.to_string(),
        "key_bytes": arguments.key,
        "value_bytes": arguments.value,
        "user_bytes": heading.user_bytes,
        "rounds": arguments.rounds,
        "fill_rounds": arguments.fill_rounds,
        "reads": arguments.reads,
        "synced": arguments.synced,
        "cache_mib": arguments.cache_mib,
        "compacted_first": arguments.compact,
        "disagreements": results.disagreements(),
        "engines": participants.collect::<Vec<_>>(),
        "records": records.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_keep_three_places() {
        assert_eq!(figure(0.1234), "0.12");
        assert_eq!(figure(12.34), "12.3");
        assert_eq!(figure(123.4), "123");
        assert_eq!(figure(12_345.6), "12,346");
        assert_eq!(figure(1_234_567.0), "1,234,567");
    }

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::new("a", ["head"].into_iter());
        table.row("longer", ["–".to_string()].into_iter());
        assert_eq!(table.text(), "| a      | head |\n|--------|------|\n| longer | –    |\n");
    }
}
