//! [`Reserve`]: a file that keeps room on the disk for the manifest that an open creates, while
//! that open writes tables.
//!
//! It has the name of a manifest, holds zeros only and is durable, name included, before the first
//! of these tables is begun. So it shows the next open, where this one does not come to its end,
//! which tables it left.
//!
//! INVARIANT: it is gone before `CURRENT` may name a manifest that names these tables, and its id
//! is above all that were taken before. So where the manifest that `CURRENT` names knows nothing of
//! that id, no manifest that may ever be the current one names a table with an id above it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use umbel_base::Result;
use umbel_env::{Access, Env, File};

use crate::names::{self, FileKind};
use crate::version::Edit;
use crate::version::edit::{State, encoded_bytes};

const PAGE_BYTES: u64 = 4096;
/// For `CURRENT.new`, and for ends of files that fill no page.
const PAGES_BESIDES: u64 = 4;
/// What the manifest may say more of a log or of a keyspace than before, and its own headers.
const GROWTH_BYTES: u64 = 64;

/// Room for a manifest. Dropping it removes the file.
#[derive(Debug)]
pub struct Reserve {
    env: Env,
    path: PathBuf,
    file: Arc<dyn File>,
    bytes: u64,
}

impl Reserve {
    /// Keeps room for a manifest with `state` and the ends of its logs. No file has had this id.
    pub fn begin(env: &Env, folder: &Path, id: u64, state: &State) -> Result<Reserve> {
        let path = names::manifest(folder, id);
        let file = env.files.create(&path)?;
        let mut reserve = Reserve { env: env.clone(), path, file, bytes: 0 };
        // One more log is the copy that recovery may make.
        let grow = (state.logs.len() + state.keyspaces.len() + 4) as u64 * GROWTH_BYTES;
        reserve.grow(encoded_bytes(&state.to_edits()) + grow + PAGES_BESIDES * PAGE_BYTES)?;
        env.files.sync_dir(folder)?;
        Ok(reserve)
    }

    /// Keeps room for this edit too.
    pub fn add(&mut self, edit: &Edit) -> Result<()> {
        self.grow(encoded_bytes(std::slice::from_ref(edit)))
    }

    fn grow(&mut self, by: u64) -> Result<()> {
        self.bytes += by;
        self.file.preallocate(self.bytes.next_multiple_of(PAGE_BYTES))
    }

    /// Gives the room back for the manifest to take. The file stays.
    pub fn give_back(&self) -> Result<()> {
        self.file.set_len(0)
    }
}

impl Drop for Reserve {
    fn drop(&mut self) {
        // What cannot be removed now is removed at the next open.
        let _ = self.env.files.remove_file(&self.path);
    }
}

/// Removes the files of opens that were killed: manifests, copies of logs and, where a [`Reserve`]
/// is left, tables and that. `known` is the first id that the manifest says was not taken, so that
/// no process has seen one of these files in a manifest.
/// REQUIRES: no log with such an id has a record of a write but copies.
pub fn remove_left_files(env: &Env, folder: &Path, found: &[FileKind], known: u64) {
    let is_reserve = |id: u64| is_reserve(env, &names::manifest(folder, id)).unwrap_or(false);
    let mut reserves = Vec::new();
    for kind in found {
        let left = match *kind {
            FileKind::Manifest(id) if id >= known && is_reserve(id) => {
                reserves.push(id);
                continue;
            }
            FileKind::Manifest(id) if id >= known => names::manifest(folder, id),
            FileKind::Log(id) if id >= known => names::log(folder, id),
            _ => continue,
        };
        // What cannot be removed now is removed once there is a new manifest.
        let _ = env.files.remove_file(&left);
    }
    remove_left_tables(env, folder, found, &reserves);
}

fn remove_left_tables(env: &Env, folder: &Path, found: &[FileKind], reserves: &[u64]) {
    let Some(&first) = reserves.iter().min() else { return };
    let tables = found.iter().filter_map(|kind| match *kind {
        FileKind::Table(id) if id > first => Some(names::table(folder, id)),
        _ => None,
    });
    let removed = tables.map(|path| env.files.remove_file(&path).is_ok());
    // One that stays is to be found by the next open.
    if removed.fold(true, |all, is_removed| all & is_removed) {
        reserves.iter().for_each(|id| drop(env.files.remove_file(&names::manifest(folder, *id))));
    }
}

/// A manifest begins with other bytes, unless not even its header was written.
fn is_reserve(env: &Env, path: &Path) -> Result<bool> {
    let mut bytes = [0; 8];
    env.files.open(path, Access::Read)?.read_at(&mut bytes, 0)?;
    Ok(bytes == [0; 8])
}
