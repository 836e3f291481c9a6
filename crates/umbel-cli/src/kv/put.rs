//! `umbel put`: stores one value.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use umbel::Durability;
use umbel_base::limits::VALUE_BYTES_MAX;

use crate::command_line::PutArgs;
use crate::errors::{CommandError, CommandResult};
use crate::open_kv_store::{StoreLocation, open_or_create_keyspace};
use crate::text::escaping;

/// Stores the value; creates the store and the keyspace if they are missing.
pub fn run(store: &StoreLocation, args: &PutArgs) -> CommandResult<()> {
    let key = escaping::parse_argument("key", &args.key, args.hex)?;
    let value = match (&args.value, &args.file) {
        (Some(value), _) => escaping::parse_argument("value", value, args.hex)?,
        (None, Some(file)) => read_value(file)?,
        (None, None) => {
            return Err(CommandError::usage(
                "no value is given; pass it as argument or with --file FILE",
            ));
        }
    };
    let durability = if args.sync { Durability::Synced } else { Durability::Buffered };
    let db = store.open_or_create(durability)?;
    let keyspace = open_or_create_keyspace(&db, &args.keyspace.keyspace)?;
    keyspace.put(&key, &value)?;
    drop(keyspace);
    Ok(db.close()?)
}

/// Reads at most one byte more than a value may have, so that a larger file is refused and not
/// truncated.
fn read_value(file: &Path) -> CommandResult<Vec<u8>> {
    let limit = VALUE_BYTES_MAX as u64 + 1;
    let mut value = Vec::new();
    let read = if file == Path::new("-") {
        io::stdin().lock().take(limit).read_to_end(&mut value)
    } else {
        File::open(file).and_then(|file| file.take(limit).read_to_end(&mut value))
    };
    read.map_err(|error| CommandError::system("read", file, &error))?;
    if value.len() > VALUE_BYTES_MAX {
        return Err(CommandError::usage(format!(
            "{} is over the limit of a value, {VALUE_BYTES_MAX} bytes; split it over several keys",
            file.display()
        )));
    }
    Ok(value)
}
