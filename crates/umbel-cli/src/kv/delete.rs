//! `umbel delete`: deletes one key, and prints nothing.

use umbel::Durability;

use crate::command_line::DeleteArgs;
use crate::errors::CommandResult;
use crate::io::output::note;
use crate::open_kv_store::{StoreLocation, existing_keyspace};
use crate::text::escaping;

/// Deletes the key, which may be absent.
pub fn run(store: &StoreLocation, args: &DeleteArgs, json: bool) -> CommandResult<()> {
    if json {
        note(
            "umbel: warning: --json has no effect on `delete` without --stream; a later release \
             refuses it",
        );
    }
    let key = args.key.as_deref().unwrap_or_default();
    let key = escaping::parse_argument("key", key, args.hex)?;
    let durability = if args.sync { Durability::Synced } else { Durability::Buffered };
    let db = store.open_existing(durability)?;
    let keyspace = existing_keyspace(&db, &args.keyspace.keyspace)?;
    keyspace.delete(&key)?;
    drop(keyspace);
    Ok(db.close()?)
}
