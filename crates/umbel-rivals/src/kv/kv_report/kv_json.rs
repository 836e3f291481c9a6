//! Everything, for programs.

use serde_json::{Value, json};
use umbel_lab::engine::Engine;
use umbel_lab::keys::Shape;

use crate::engines;
use crate::record::{Record, Results};
use crate::report::{Heading, settings_of};

/// The results as JSON.
pub fn json(heading: &Heading<'_>, done: &[(Shape, Results)]) -> Value {
    let (arguments, machine) = (heading.arguments, heading.machine);
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
        "key_bytes": arguments.key,
        "value_bytes": arguments.value,
        "rounds": arguments.rounds,
        "fill_rounds": arguments.fill_rounds,
        "beside_rounds": arguments.beside_rounds,
        "reads": arguments.reads,
        "beside_reads": arguments.beside_reads,
        "synced": arguments.synced,
        "cache_mib": arguments.cache_mib,
        "memtable_mib": arguments.memtable_mib,
        "bloom_bits": arguments.bloom_bits,
        "lived_in": arguments.lived_in,
        "compacted_first": arguments.compact,
        "shapes": done.iter().map(|(shape, results)| of_shape(*shape, results)).collect::<Vec<_>>(),
    })
}

fn of_shape(shape: Shape, results: &Results) -> Value {
    let participants = results.participants.iter().map(|participant| {
        json!({
            "name": participant.name,
            "version": participant.version,
            "settings": settings_of(participant.name),
            "recommended": engine(participant.name).map(|engine| engine.recommended),
            "disk_bytes": participant.disk_bytes,
            "lived_in_disk_bytes": participant.lived_in_disk_bytes,
            "written_bytes_fill_random": results.written_bytes(participant.name),
            "memory": participant.memory.map(|memory| memory.json()),
            "absent_because": participant.absent_because,
        })
    });
    json!({
        "shape": shape.to_string(),
        "user_bytes": results.user_bytes,
        "live_bytes": results.live_bytes,
        "disagreements": results.disagreements(),
        "engines": participants.collect::<Vec<_>>(),
        "records": results.records.iter().map(of_record).collect::<Vec<_>>(),
    })
}

fn engine(name: &str) -> Option<Engine> {
    engines::ALL.into_iter().find(|engine| engine.name == name)
}

fn of_record(record: &Record) -> Value {
    let sample = &record.sample;
    let engine = engine(record.engine);
    let latency = sample.latency.map(|latency| {
        json!({
            "p50": latency.p50_ns,
            "p99": latency.p99_ns,
            "p99.99": latency.p9999_ns,
            "max": latency.max_ns,
        })
    });
    json!({
        "engine": record.engine,
        "way": engine.and_then(|engine| engine.ways.get(record.way).copied()),
        "phase": record.phase.name(),
        "round": record.round,
        "operations": sample.operations,
        "wall_ns": sample.wall_ns,
        "thread_processor_ns": sample.thread_ns,
        "process_processor_ns": sample.process_ns,
        "written_bytes": sample.written_bytes,
        "device_bytes": sample.device_bytes,
        "latency_ns": latency,
        "writes_per_second": sample.writes_per_second,
        "values_found": sample.tally.found,
        "checksum": format!("{:016x}", sample.tally.sum),
        "load_1_minute": record.load,
    })
}
