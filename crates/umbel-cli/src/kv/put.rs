//! `umbel put`: one value stored.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use umbel::Durability;
use umbel_base::limits::VALUE_BYTES_MAX;

use crate::args::PutArgs;
use crate::errors::{Failure, Outcome};
use crate::store::{Store, keyspace_to_write};
use crate::text;

/// Stores the value; creates store and keyspace where they are missing.
pub fn run(store: &Store, args: &PutArgs) -> Outcome<()> {
    let key = text::argument("key", &args.key, args.hex)?;
    let value = match (&args.value, &args.file) {
        (Some(value), _) => text::argument("value", value, args.hex)?,
        (None, Some(file)) => read_value(file)?,
        (None, None) => return Err(Failure::usage("which value? Give it, or --file FILE")),
    };
    let durability = if args.sync { Durability::Synced } else { Durability::Buffered };
    let db = store.open_or_create(durability)?;
    let keyspace = keyspace_to_write(&db, &args.keyspace.keyspace)?;
    keyspace.put(&key, &value)?;
    drop(keyspace);
    Ok(db.close()?)
}

/// Reads one byte more than a value may have, so that a larger file is refused and not cut.
fn read_value(file: &Path) -> Outcome<Vec<u8>> {
    let limit = VALUE_BYTES_MAX as u64 + 1;
    let mut value = Vec::new();
    let read = if file == Path::new("-") {
        io::stdin().lock().take(limit).read_to_end(&mut value)
    } else {
        File::open(file).and_then(|file| file.take(limit).read_to_end(&mut value))
    };
    read.map_err(|error| Failure::system("read", file, &error))?;
    if value.len() > VALUE_BYTES_MAX {
        return Err(Failure::usage(format!(
            "{} is over the limit of a value, {VALUE_BYTES_MAX} bytes; split it over several keys",
            file.display()
        )));
    }
    Ok(value)
}
