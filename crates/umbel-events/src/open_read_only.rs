//! Opening a store for reading only.
//!
//! Where the folder may not be written to there is no lock, and another process may write to the
//! store meanwhile. It puts a new table of chunks in place before it begins a chunk and before it
//! removes one. So what looks like damage counts only where the table stayed the same.

use std::path::Path;
use std::sync::Arc;

use umbel_env::Env;

use crate::chunk_table::ChunkTable;
use crate::error::{Error, Result};
use crate::open;
use crate::options::StoreOptions;
use crate::shared::Shared;

/// How often an open begins again because the table was replaced meanwhile.
const ATTEMPTS_MAX: u32 = 12;

/// Opens the store in a folder without changing a byte of it.
pub fn open(folder: &Path, options: StoreOptions) -> Result<Arc<Shared>> {
    let env = options.env.clone();
    umbel_env::check_path("the event store", folder).map_err(Error::from)?;
    let path = env.files.absolute(folder).map_err(Error::from)?;
    let mut before = generation(&env, &path);
    for _ in 0..ATTEMPTS_MAX {
        let error = match open::open(folder, options.clone(), true) {
            Err(error) if error.is_damage() => error,
            opened => return opened,
        };
        let now = generation(&env, &path);
        if std::mem::replace(&mut before, now) == now {
            return Err(error);
        }
    }
    let reason = format!("a writer changed it during each of {ATTEMPTS_MAX} attempts to read it");
    Err(umbel::Error::Stale { path, reason }.into())
}

/// Which table of chunks there is; `None` where none can be read.
fn generation(env: &Env, folder: &Path) -> Option<u64> {
    ChunkTable::read(env, folder).ok().map(|table| table.generation)
}
