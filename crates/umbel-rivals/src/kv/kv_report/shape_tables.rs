//! The tables about keys of one shape.

use umbel_lab::engine::Engine;
use umbel_lab::latency::Latency;
use umbel_lab::measure::Sample;

use crate::engines;
use crate::plan::Phase;
use crate::record::{OURS, Record, Results, Spread};
use crate::report::table::{NOTHING, Table, cell, figure, maybe};
use crate::report::targets;

type Time = fn(&Sample) -> f64;

/// The engines that did something, in the usual order.
fn present(results: &Results) -> impl Iterator<Item = Engine> {
    let measured = |name| results.records.iter().any(|record| record.engine == name);
    engines::ALL.into_iter().filter(move |engine| measured(engine.name))
}

/// What reading took, a row for each way of each engine.
pub fn reads(results: &Results, time: Time) -> String {
    let mut table = Table::new("engine", Phase::READS.iter().map(|phase| phase.head()));
    for engine in present(results) {
        for (way, way_name) in engine.ways.iter().enumerate() {
            let cells = Phase::READS
                .iter()
                .map(|&phase| cell(results.spread(engine.name, way, phase, time)));
            let name = match engine.ways.len() {
                1 => engine.name.to_string(),
                _ => format!("{}, {way_name}", engine.name),
            };
            table.row(&name, cells);
        }
    }
    table.text()
}

/// What writing and opening took, and what it left behind.
pub fn writes(results: &Results) -> String {
    let more = [
        "fill, processor ns of all threads per put",
        "written / user bytes",
        "device / user bytes",
        "on disk / user bytes",
        "lived in, on disk / live bytes",
    ];
    let mut table =
        Table::new("engine", Phase::WRITES.iter().map(|phase| phase.head()).chain(more));
    for engine in present(results) {
        let name = engine.name;
        // Where nothing is done, only making the entries takes time.
        let counts = |phase| name != "none" || phase != Phase::Open;
        let spread = |phase: Phase| {
            cell(results.spread(name, 0, phase, Sample::wall).filter(|_| counts(phase)))
        };
        let share = |bytes: Option<u64>, all: u64| {
            maybe(bytes.filter(|_| name != "none").map(|bytes| bytes as f64 / all.max(1) as f64))
        };
        let fills = || results.of(name, 0, Phase::FillRandom).map(|record| record.sample);
        let processor = Spread::of(fills().map(|s| s.process_ns as f64 / s.operations as f64));
        let participant = results.participant(name);
        let more = [
            cell(processor),
            share(results.written_bytes(name), results.user_bytes),
            share(fills().next().and_then(|sample| sample.device_bytes), results.user_bytes),
            share(participant.and_then(|p| p.disk_bytes), results.user_bytes),
            share(participant.and_then(|p| p.lived_in_disk_bytes), results.live_bytes),
        ];
        table.row(name, Phase::WRITES.iter().map(|&phase| spread(phase)).chain(more));
    }
    table.text()
}

fn microseconds(records: &[&Record], of: fn(Latency) -> u64) -> String {
    let latencies = records.iter().filter_map(|record| record.sample.latency);
    cell(Spread::of(latencies.map(|latency| of(latency) as f64 / 1000.0)))
}

/// What reading beside a writer did to the reader.
pub fn beside(results: &Results) -> String {
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
    for engine in present(results) {
        let way = engine.fresh_way;
        for (phase, load) in Phase::BESIDE.into_iter().zip([
            "alone",
            "beside a writer",
            "beside a writer, at half rate",
        ]) {
            let records: Vec<&Record> = results.of(engine.name, way, phase).collect();
            if records.is_empty() {
                continue;
            }
            let rates = results.spread(engine.name, way, phase, Sample::wall);
            let share = match phase {
                Phase::ReadBeside => cell(targets::beside(results, engine.name)),
                _ => NOTHING.to_string(),
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

/// What each engine took of memory; nothing where that was not measured.
pub fn memory(results: &Results) -> Option<String> {
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

/// Our time as a part of each other's, for both of our ways.
pub fn ratios(results: &Results, time: Time) -> String {
    let mut table = Table::new("umbel /", Phase::READS.iter().map(|phase| phase.name()));
    for engine in present(results).filter(|engine| ![OURS, "none"].contains(&engine.name)) {
        for (way, note) in [(0, ""), (1, ", copied")] {
            let cells = Phase::READS.iter().map(|&phase| {
                let counts = way == 0 || phase != Phase::SeekKept;
                let ratio = results.ratio((phase, way), (engine.name, phase), time);
                cell(ratio.filter(|_| counts))
            });
            table.row(&format!("{}{note}", engine.name), cells);
        }
    }
    table.text()
}

/// Whether the engines' answers agree.
pub fn answers(results: &Results) -> String {
    let disagreements = results.disagreements();
    if disagreements.is_empty() {
        return "All engines found the same number of values with the same checksum in every \
                round of every phase.\n"
            .to_string();
    }
    disagreements.iter().map(|sentence| format!("- {sentence}\n")).collect()
}
