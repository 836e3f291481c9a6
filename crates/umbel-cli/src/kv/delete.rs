//! `umbel delete`: one key removed.

use umbel::Durability;

use crate::args::DeleteArgs;
use crate::errors::Outcome;
use crate::store::{Store, existing_keyspace};
use crate::text;

/// Removes the key; one that is not there is fine.
pub fn run(store: &Store, args: &DeleteArgs) -> Outcome<()> {
    let key = args.key.as_deref().unwrap_or_default();
    let key = text::argument("key", key, args.hex)?;
    let durability = if args.sync { Durability::Synced } else { Durability::Buffered };
    let db = store.open_to_change(durability)?;
    let keyspace = existing_keyspace(&db, &args.keyspace.keyspace)?;
    keyspace.delete(&key)?;
    drop(keyspace);
    Ok(db.close()?)
}
