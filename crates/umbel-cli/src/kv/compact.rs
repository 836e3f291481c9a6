//! `umbel compact`: a keyspace rewritten.

use std::ffi::OsString;

use serde_json::json;
use umbel::{Durability, Env, Keyspace};

use crate::args::CompactArgs;
use crate::errors::{Failure, Outcome};
use crate::number;
use crate::output::Output;
use crate::store::{Store, existing_keyspace};
use crate::text;

/// Compacts the range and says what it gained.
pub fn run(store: &Store, args: &CompactArgs, json: bool) -> Outcome<()> {
    let read = |name: &str, text: &Option<OsString>| match text {
        Some(text) => text::argument(name, text, args.hex).map(Some),
        None => Ok(None),
    };
    let from = read("from", &args.from)?;
    let to = read("to", &args.to)?;
    if let (Some(from), Some(to)) = (&from, &to)
        && from >= to
    {
        return Err(Failure::usage(format!(
            "--from `{}` is not before --to `{}`, so that no key lies between; exchange them, or \
             leave one out",
            text::escaped(from),
            text::escaped(to)
        )));
    }
    let clock = Env::system().clock;
    let db = store.open_to_change(Durability::Buffered)?;
    let keyspace = existing_keyspace(&db, &args.keyspace.keyspace)?;
    let start = clock.now();
    let (tables_before, bytes_before) = size(&keyspace);
    keyspace.compact(from.as_deref(), to.as_deref())?;
    let (tables, bytes) = size(&keyspace);
    let seconds = clock.now().saturating_sub(start).as_secs_f64();
    drop(keyspace);
    db.close()?;
    let mut output = Output::new();
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
            number::grouped(tables_before),
            number::bytes(bytes_before),
            number::grouped(tables),
            number::bytes(bytes)
        ))?;
    }
    output.flush()
}

fn size(keyspace: &Keyspace) -> (u64, u64) {
    let levels = keyspace.stats().levels;
    (levels.iter().map(|level| level.tables).sum(), levels.iter().map(|level| level.bytes).sum())
}
