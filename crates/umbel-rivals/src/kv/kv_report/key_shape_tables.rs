//! Tables about keys of one shape.

use umbel_lab::engine::Engine;
use umbel_lab::measure::Sample;
use umbel_lab::measure::latency::Latency;

use crate::engines;
use crate::kv::kv_report::markdown_table::{NO_VALUE, Table, cell, figure, optional_cell};
use crate::kv::kv_report::target_table;
use crate::kv::kv_results::{KvResults, OURS, PhaseRecord, Spread};
use crate::kv::phase::Phase;

type TimeColumn = fn(&Sample) -> f64;

/// Returns the engines with results, in the usual order.
fn present_engines(results: &KvResults) -> impl Iterator<Item = Engine> {
    let measured = |name| results.records.iter().any(|record| record.engine == name);
    engines::ALL.into_iter().filter(move |engine| measured(engine.name))
}

/// Times of reads, with a row for each read path of each engine.
pub fn reads(results: &KvResults, time: TimeColumn) -> String {
    let mut table = Table::new("engine", Phase::READS.iter().map(|phase| phase.head()));
    for engine in present_engines(results) {
        for (read_path, path_name) in engine.read_paths.iter().enumerate() {
            let cells = Phase::READS
                .iter()
                .map(|&phase| cell(results.spread(engine.name, read_path, phase, time)));
            let name = match engine.read_paths.len() {
                1 => engine.name.to_string(),
                _ => format!("{}, {path_name}", engine.name),
            };
            table.row(&name, cells);
        }
    }
    table.text()
}

/// Times of writes and opens, and sizes on disk.
pub fn writes(results: &KvResults) -> String {
    let more = [
        "fill, processor ns of all threads per put",
        "written / user bytes",
        "device / user bytes",
        "on disk / user bytes",
        "lived in, on disk / live bytes",
    ];
    let mut table =
        Table::new("engine", Phase::WRITES.iter().map(|phase| phase.head()).chain(more));
    for engine in present_engines(results) {
        let name = engine.name;
        // The null engine does nothing: only making the entries takes time.
        let counts = |phase| name != "none" || phase != Phase::Open;
        let spread = |phase: Phase| {
            cell(results.spread(name, 0, phase, Sample::wall).filter(|_| counts(phase)))
        };
        let share = |bytes: Option<u64>, all: u64| {
            optional_cell(
                bytes.filter(|_| name != "none").map(|bytes| bytes as f64 / all.max(1) as f64),
            )
        };
        let fills = || results.of(name, 0, Phase::FillRandom).map(|record| record.sample);
        let processor = Spread::of(fills().map(|s| s.process_ns as f64 / s.operations as f64));
        let participant = results.participant(name);
        let more = [
            cell(processor),
            share(results.written_bytes(name), results.user_bytes),
            share(fills().next().and_then(|sample| sample.device_bytes), results.user_bytes),
            share(participant.and_then(|p| p.disk_bytes), results.user_bytes),
            share(participant.and_then(|p| p.aged_disk_bytes), results.live_bytes),
        ];
        table.row(name, Phase::WRITES.iter().map(|&phase| spread(phase)).chain(more));
    }
    table.text()
}

fn microseconds(records: &[&PhaseRecord], of: fn(Latency) -> u64) -> String {
    let latencies = records.iter().filter_map(|record| record.sample.latency);
    cell(Spread::of(latencies.map(|latency| of(latency) as f64 / 1000.0)))
}

/// Table of the effect of a concurrent writer on a reader.
pub fn concurrent_reads(results: &KvResults) -> String {
    let heads = [
        "load",
        "reads, thousand/s",
        "/ alone",
        "writes, thousand/s",
        "p50 µs",
        "p99 µs",
        "p99.99 µs",
        "max µs",
    ];
    let mut table = Table::new("engine", heads);
    for engine in present_engines(results) {
        let read_path = engine.fresh_read_path;
        for (phase, load) in Phase::CONCURRENT.into_iter().zip([
            "alone",
            "beside a writer",
            "beside a writer, at half rate",
        ]) {
            let records: Vec<&PhaseRecord> = results.of(engine.name, read_path, phase).collect();
            if records.is_empty() {
                continue;
            }
            let rates = results.spread(engine.name, read_path, phase, Sample::wall);
            let share = match phase {
                Phase::ReadWhileWriting => {
                    cell(target_table::concurrent_share(results, engine.name))
                }
                _ => NO_VALUE.to_string(),
            };
            let writes = records.iter().filter_map(|record| record.sample.writes_per_second);
            let cells = [
                load.to_string(),
                cell(rates),
                share,
                cell(Spread::of(writes.map(|rate| rate / 1000.0))),
                microseconds(&records, |latency| latency.p50_ns),
                microseconds(&records, |latency| latency.p99_ns),
                microseconds(&records, |latency| latency.p9999_ns),
                microseconds(&records, |latency| latency.max_ns),
            ];
            table.row(engine.name, cells);
        }
    }
    table.text()
}

/// Memory of each engine; `None` if it was not measured.
pub fn memory(results: &KvResults) -> Option<String> {
    let heads = ["fill, own", "fill, with mapped files", "read, own", "read, with mapped files"];
    let mut table = Table::new("engine", heads);
    let mut any = false;
    for participant in &results.participants {
        let Some(memory) = participant.memory else { continue };
        any = true;
        let figures = [memory.fill_own, memory.fill_all, memory.read_own, memory.read_all];
        table.row(participant.name, figures.map(|bytes| figure(bytes as f64 / (1 << 20) as f64)));
    }
    any.then(|| table.text())
}

/// Umbel's time as a fraction of each other engine's, for both read paths of Umbel.
pub fn ratios(results: &KvResults, time: TimeColumn) -> String {
    let mut table = Table::new("umbel /", Phase::READS.iter().map(|phase| phase.name()));
    for engine in present_engines(results).filter(|engine| ![OURS, "none"].contains(&engine.name)) {
        for (read_path, note) in [(0, ""), (1, ", copied")] {
            let cells = Phase::READS.iter().map(|&phase| {
                let counts = read_path == 0 || phase != Phase::SeekKept;
                let ratio = results.ratio((phase, read_path), (engine.name, phase), time);
                cell(ratio.filter(|_| counts))
            });
            table.row(&format!("{}{note}", engine.name), cells);
        }
    }
    table.text()
}

/// Whether the engines' answers agree.
pub fn answers(results: &KvResults) -> String {
    let disagreements = results.disagreements();
    if disagreements.is_empty() {
        return "All engines found the same number of values with the same checksum in every \
                round of every phase.\n"
            .to_string();
    }
    disagreements.iter().map(|sentence| format!("- {sentence}\n")).collect()
}
