//! Report of the engines as JSON.

use serde_json::{Value, json};
use umbel_keygen::keys::KeyShape;
use umbel_lab::engine::Engine;

use crate::engines;
use crate::kv::kv_report::{KvHeading, settings_of};
use crate::kv::kv_results::{KvResults, PhaseRecord};

/// Returns the report as JSON.
pub fn json(heading: &KvHeading<'_>, done: &[(KeyShape, KvResults)]) -> Value {
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
        "beside_rounds": arguments.concurrent_rounds,
        "reads": arguments.reads,
        "beside_reads": arguments.concurrent_reads,
        "synced": arguments.synced,
        "cache_mib": arguments.cache_mib,
        "memtable_mib": arguments.memtable_mib,
        "bloom_bits": arguments.bloom_bits,
        "lived_in": arguments.aged,
        "compacted_first": arguments.compact,
        "shapes": done.iter().map(|(shape, results)| of_shape(*shape, results)).collect::<Vec<_>>(),
    })
}

fn of_shape(shape: KeyShape, results: &KvResults) -> Value {
    let participants = results.participants.iter().map(|participant| {
        json!({
            "name": participant.name,
            "version": participant.version,
            "settings": settings_of(participant.name),
            "recommended": engine(participant.name).map(|engine| engine.recommended),
            "disk_bytes": participant.disk_bytes,
            "lived_in_disk_bytes": participant.aged_disk_bytes,
            "written_bytes_fill_random": results.written_bytes(participant.name),
            "memory": participant.memory.map(|memory| memory.json()),
            "absent_because": participant.absence_reason,
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

fn of_record(record: &PhaseRecord) -> Value {
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
        "way": engine.and_then(|engine| engine.read_paths.get(record.read_path).copied()),
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
        "checksum": format!("{:016x}", sample.tally.checksum),
        "load_1_minute": record.load,
    })
}
