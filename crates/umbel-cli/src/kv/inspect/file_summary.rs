//! Prints a summary of one file of a store: a table, long value, WAL segment or manifest,
//! recognized by its name.

use std::path::Path;

use serde_json::{Value, json};
use umbel::Env;
use umbel_blob::BlobReader;
use umbel_env::Access;
use umbel_log::{ExpectedEnd, LogKind, LogReader};
use umbel_table::{Compression, Table};

use crate::errors::{CommandError, CommandResult};
use crate::io::output::Output;
use crate::text::escaping;
use crate::text::numbers::{bytes, grouped};

/// Prints a summary of the file. Reads only the bytes that the summary needs; `umbel verify` reads
/// every byte.
pub fn inspect(output: &mut Output, path: &Path, json: bool) -> CommandResult<()> {
    let facts = match kind(path) {
        Some(("table", id)) => table(path, id)?,
        Some(("blob", id)) => blob(path, id)?,
        Some(("log", id)) => log(path, LogKind::WriteAhead, id)?,
        Some(("manifest", id)) => log(path, LogKind::Manifest, id)?,
        _ => {
            return Err(CommandError::usage(format!(
                "{} is not a file of a store (000001.table, .blob, .log or .manifest)",
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

/// One line of a file's summary.
struct FileFact {
    name: &'static str,
    value: Value,
    text: String,
}

fn count_fact(name: &'static str, number: u64) -> FileFact {
    FileFact { name, value: json!(number), text: grouped(number) }
}

fn size_fact(name: &'static str, number: u64) -> FileFact {
    FileFact { name, value: json!(number), text: bytes(number) }
}

fn text_fact(name: &'static str, text: &str) -> FileFact {
    FileFact { name, value: json!(text), text: text.to_string() }
}

fn table(path: &Path, id: u64) -> CommandResult<Vec<FileFact>> {
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
        text_fact("kind", "table"),
        count_fact("id", meta.id),
        size_fact("file_bytes", meta.file_bytes),
        count_fact("entries", meta.entries),
        count_fact("deletes", meta.deletes),
        count_fact("range_tombstones", meta.range_tombstones),
        count_fact("blocks", u64::from(meta.blocks)),
        size_fact("block_bytes", properties.block_bytes),
        text_fact("compression", compression),
        size_fact("key_bytes", meta.key_bytes),
        size_fact("value_bytes", meta.value_bytes),
        size_fact("index_bytes", meta.index_bytes),
        size_fact("filter_bytes", meta.filter_bytes),
        FileFact { name: "filter_bits_per_entry", value: json!(bits), text: format!("{bits:.1}") },
        count_fact("sequence_min", meta.sequence_min),
        count_fact("sequence_max", meta.sequence_max),
        text_fact("smallest_key", &escaping::escaped(&meta.smallest)),
        text_fact(largest, &escaping::escaped(&meta.largest)),
        count_fact("blobs", meta.blobs.len() as u64),
        size_fact("blob_value_bytes", meta.blob_value_bytes()),
    ])
}

fn blob(path: &Path, id: u64) -> CommandResult<Vec<FileFact>> {
    let file = Env::system().files.open(path, Access::Read)?;
    let blob = BlobReader::open_standalone(file, id)?;
    let pointer = blob.pointer();
    Ok(vec![
        text_fact("kind", "blob"),
        count_fact("id", pointer.id),
        size_fact("file_bytes", umbel_blob::file_bytes(pointer.value_bytes)),
        size_fact("value_bytes", pointer.value_bytes),
        text_fact("checksum", &format!("{:016x}", pointer.checksum)),
    ])
}

fn log(path: &Path, kind: LogKind, id: u64) -> CommandResult<Vec<FileFact>> {
    let env = Env::system();
    let mut reader = LogReader::open_bound(&env, path, kind, id, None, ExpectedEnd::Open)?;
    let (mut first, mut last, mut payload) = (None, 0, 0);
    while let Some(record) = reader.next()? {
        first = first.or(Some(record.sequence));
        last = record.sequence;
        payload += record.payload.len() as u64;
    }
    let outcome = reader.outcome();
    if outcome.end == 0 {
        let reason = "the file does not begin with the header that its name requires";
        let (file, reason) = (path.to_path_buf(), reason.to_string());
        return Err(umbel::Error::Corruption { file, offset: 0, reason }.into());
    }
    let kind = if kind == LogKind::Manifest { "manifest" } else { "write-ahead log" };
    let end = match (outcome.sealed, outcome.torn) {
        (true, _) => "closed",
        (false, true) => "not closed, with a torn record at the end",
        (false, false) => "not closed",
    };
    Ok(vec![
        text_fact("kind", kind),
        count_fact("id", id),
        count_fact("records", outcome.records),
        size_fact("payload_bytes", payload),
        count_fact("end", outcome.end),
        count_fact("durable_to", outcome.durable_max),
        text_fact("state", end),
        count_fact("first_sequence", first.unwrap_or(0)),
        count_fact("last_sequence", last),
    ])
}
