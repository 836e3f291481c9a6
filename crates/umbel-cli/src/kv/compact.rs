//! `umbel compact`: compacts a keyspace.

use std::ffi::OsString;

use serde_json::json;
use umbel::{Durability, Env, Keyspace};

use crate::command_line::CompactArgs;
use crate::errors::{CommandError, CommandResult};
use crate::io::output::Output;
use crate::open_kv_store::{StoreLocation, existing_keyspace};
use crate::text::escaping;
use crate::text::numbers;

/// Compacts the range and prints the keyspace's sizes before and after.
pub fn run(store: &StoreLocation, args: &CompactArgs, json: bool) -> CommandResult<()> {
    let read = |name: &str, text: &Option<OsString>| match text {
        Some(text) => escaping::parse_argument(name, text, args.hex).map(Some),
        None => Ok(None),
    };
    let from = read("from", &args.from)?;
    let to = read("to", &args.to)?;
    if let (Some(from), Some(to)) = (&from, &to)
        && from >= to
    {
        return Err(CommandError::usage(format!(
            "--from `{}` is not before --to `{}`, which selects no key; exchange them, or remove \
             one",
            escaping::escaped(from),
            escaping::escaped(to)
        )));
    }
    let clock = Env::system().clock;
    let db = store.open_existing(Durability::Buffered)?;
    let keyspace = existing_keyspace(&db, &args.keyspace.keyspace)?;
    let start = clock.now();
    let (tables_before, bytes_before) = size(&keyspace);
    keyspace.compact(from.as_deref(), to.as_deref())?;
    let (tables, bytes) = size(&keyspace);
    let seconds = clock.now().saturating_sub(start).as_secs_f64();
    drop(keyspace);
    db.close()?;
    let mut output = Output::new().after("the keyspace was compacted");
    if json {
        output.json(&json!({
            "keyspace": args.keyspace.keyspace,
            "seconds": seconds,
            "tables_before": tables_before,
            "bytes_before": bytes_before,
            "tables": tables,
            "bytes": bytes,
        }))?;
    } else {
        output.line(&format!(
            "compacted `{}` in {seconds:.1} s: {} tables, {} before; {} tables, {} now",
            args.keyspace.keyspace,
            numbers::grouped(tables_before),
            numbers::bytes(bytes_before),
            numbers::grouped(tables),
            numbers::bytes(bytes)
        ))?;
    }
    output.flush()
}

fn size(keyspace: &Keyspace) -> (u64, u64) {
    let levels = keyspace.stats().levels;
    (levels.iter().map(|level| level.tables).sum(), levels.iter().map(|level| level.bytes).sum())
}
