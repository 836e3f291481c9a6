//! One file of a store: a table, a long value, a log segment or a manifest, told apart by its name.

use std::path::Path;

use serde_json::{Value, json};
use umbel::Env;
use umbel_blob::Blob;
use umbel_env::Access;
use umbel_log::{Expectation, LogKind, LogReader};
use umbel_table::{Compression, Table};

use crate::errors::{Failure, Outcome};
use crate::number::{bytes, grouped};
use crate::output::Output;
use crate::text;

/// Says what the file holds. Reads what is needed for that; `verify` reads every byte.
pub fn inspect(output: &mut Output, path: &Path, json: bool) -> Outcome<()> {
    let facts = match kind(path) {
        Some(("table", id)) => table(path, id)?,
        Some(("blob", id)) => blob(path, id)?,
        Some(("log", id)) => log(path, LogKind::WriteAhead, id)?,
        Some(("manifest", id)) => log(path, LogKind::Manifest, id)?,
        _ => {
            return Err(Failure::usage(format!(
                "{} is not named like a file of a store (000001.table, .blob, .log or .manifest)",
                path.display()
            )));
        }
    };
    if json {
        let object = facts.into_iter().map(|fact| (fact.name.to_string(), fact.value)).collect();
        return output.json(&Value::Object(object));
    }
    output.line(&path.display().to_string())?;
    for fact in facts {
        output.line(&format!("  {:<22} {}", fact.name.replace('_', " "), fact.text))?;
    }
    Ok(())
}

fn kind(path: &Path) -> Option<(&str, u64)> {
    let id = path.file_stem()?.to_str()?.parse().ok()?;
    Some((path.extension()?.to_str()?, id))
}

/// One thing to say about a file.
struct Fact {
    name: &'static str,
    value: Value,
    text: String,
}

fn count(name: &'static str, number: u64) -> Fact {
    Fact { name, value: json!(number), text: grouped(number) }
}

fn size(name: &'static str, number: u64) -> Fact {
    Fact { name, value: json!(number), text: bytes(number) }
}

fn said(name: &'static str, text: &str) -> Fact {
    Fact { name, value: json!(text), text: text.to_string() }
}

fn table(path: &Path, id: u64) -> Outcome<Vec<Fact>> {
    let file = Env::system().files.open(path, Access::Read)?;
    let table = Table::open_standalone(file, id)?;
    let (meta, properties) = (table.meta(), table.properties());
    let compression = match Compression::from_u8(properties.compression) {
        Some(Compression::None) => "none",
        Some(Compression::Lz4) => "lz4",
        Some(Compression::Zstd) => "zstd",
        None => "unknown",
    };
    let bits = meta.filter_bytes as f64 * 8.0 / meta.entries.max(1) as f64;
    let largest = if meta.largest_is_exclusive { "keys_before" } else { "largest_key" };
    Ok(vec![
        said("kind", "table"),
        count("id", meta.id),
        size("file_bytes", meta.file_bytes),
        count("entries", meta.entries),
        count("deletes", meta.deletes),
        count("range_tombstones", meta.range_tombstones),
        count("blocks", u64::from(meta.blocks)),
        size("block_bytes", properties.block_bytes),
        said("compression", compression),
        size("key_bytes", meta.key_bytes),
        size("value_bytes", meta.value_bytes),
        size("index_bytes", meta.index_bytes),
        size("filter_bytes", meta.filter_bytes),
        Fact { name: "filter_bits_per_entry", value: json!(bits), text: format!("{bits:.1}") },
        count("sequence_min", meta.sequence_min),
        count("sequence_max", meta.sequence_max),
        said("smallest_key", &text::escaped(&meta.smallest)),
        said(largest, &text::escaped(&meta.largest)),
        count("blobs", meta.blobs.len() as u64),
        size("blob_value_bytes", meta.blob_value_bytes()),
    ])
}

fn blob(path: &Path, id: u64) -> Outcome<Vec<Fact>> {
    let file = Env::system().files.open(path, Access::Read)?;
    let blob = Blob::open_standalone(file, id)?;
    let pointer = blob.pointer();
    Ok(vec![
        said("kind", "blob"),
        count("id", pointer.id),
        size("file_bytes", umbel_blob::file_bytes(pointer.value_bytes)),
        size("value_bytes", pointer.value_bytes),
        said("checksum", &format!("{:016x}", pointer.checksum)),
    ])
}

fn log(path: &Path, kind: LogKind, id: u64) -> Outcome<Vec<Fact>> {
    let env = Env::system();
    let mut reader = LogReader::open_bound(&env, path, kind, id, None, Expectation::Open)?;
    let (mut first, mut last, mut payload) = (None, 0, 0);
    while let Some(record) = reader.next()? {
        first = first.or(Some(record.sequence));
        last = record.sequence;
        payload += record.payload.len() as u64;
    }
    let outcome = reader.outcome();
    if outcome.end == 0 {
        let reason = "it does not begin with the header of such a file";
        let (file, reason) = (path.to_path_buf(), reason.to_string());
        return Err(umbel::Error::Corruption { file, offset: 0, reason }.into());
    }
    let kind = if kind == LogKind::Manifest { "manifest" } else { "write-ahead log" };
    let end = match (outcome.sealed, outcome.torn) {
        (true, _) => "closed",
        (false, true) => "not closed, with bytes behind the last whole record",
        (false, false) => "not closed",
    };
    Ok(vec![
        said("kind", kind),
        count("id", id),
        count("records", outcome.records),
        size("payload_bytes", payload),
        count("end", outcome.end),
        count("durable_to", outcome.durable_max),
        said("state", end),
        count("first_sequence", first.unwrap_or(0)),
        count("last_sequence", last),
    ])
}
