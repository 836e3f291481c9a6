//! [`ManifestReservation`]: a file that reserves disk space for the manifest of an open while the
//! open writes tables.
//!
//! It has the name of a manifest, holds zeros only and is durable, name included, before the first
//! of these tables is begun. So where this open is interrupted, the next one knows by it which
//! tables are orphans.
//!
//! INVARIANT: it is removed before `CURRENT` may name a manifest that names these tables, and its
//! id is above all earlier ids. So where the current manifest does not know that id, no later
//! current manifest names a table with an id above it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use umbel_base::Result;
use umbel_env::{Access, Env, File};

use crate::fs::filenames::{self, FileKind};
use crate::version::Edit;
use crate::version::version_edit::{ManifestState, encoded_bytes};

const PAGE_BYTES: u64 = 4096;
/// Pages for `CURRENT.new`, and for partly filled last pages of files.
const PAGES_BESIDES: u64 = 4;
/// Growth of the manifest for each WAL segment or keyspace, and its own headers.
const GROWTH_BYTES: u64 = 64;

/// Reserved space for a manifest. Dropping it removes the file.
#[derive(Debug)]
pub struct ManifestReservation {
    env: Env,
    path: PathBuf,
    file: Arc<dyn File>,
    bytes: u64,
}

impl ManifestReservation {
    /// Reserves space for a manifest with `state` and the ends of its WAL segments. No file has had
    /// this id.
    pub fn create(
        env: &Env,
        folder: &Path,
        id: u64,
        state: &ManifestState,
    ) -> Result<ManifestReservation> {
        let path = filenames::manifest(folder, id);
        let file = env.files.create(&path)?;
        let mut reserve = ManifestReservation { env: env.clone(), path, file, bytes: 0 };
        // The additional segment is the copy that recovery may make.
        let grow = (state.logs.len() + state.keyspaces.len() + 4) as u64 * GROWTH_BYTES;
        reserve.grow(encoded_bytes(&state.to_edits()) + grow + PAGES_BESIDES * PAGE_BYTES)?;
        env.files.sync_dir(folder)?;
        Ok(reserve)
    }

    /// Reserves space for this edit too.
    pub fn add(&mut self, edit: &Edit) -> Result<()> {
        self.grow(encoded_bytes(std::slice::from_ref(edit)))
    }

    fn grow(&mut self, by: u64) -> Result<()> {
        self.bytes += by;
        self.file.preallocate(self.bytes.next_multiple_of(PAGE_BYTES))
    }

    /// Releases the space for the manifest to take. The file stays.
    pub fn release(&self) -> Result<()> {
        self.file.set_len(0)
    }
}

impl Drop for ManifestReservation {
    fn drop(&mut self) {
        // A file that cannot be removed now is removed at the next open.
        let _ = self.env.files.remove_file(&self.path);
    }
}

/// Removes orphans of killed opens: manifests, copies of WAL segments and, where a
/// [`ManifestReservation`] is left, that and tables. The manifest does not count `known` and higher
/// ids as taken, so no process has seen one of these files in a manifest.
/// REQUIRES: no WAL segment with such an id has a record of a write, except copies.
pub fn remove_orphan_reservations(env: &Env, folder: &Path, found: &[FileKind], known: u64) {
    let is_reserve =
        |id: u64| is_reservation(env, &filenames::manifest(folder, id)).unwrap_or(false);
    let mut reserves = Vec::new();
    for kind in found {
        let left = match *kind {
            FileKind::Manifest(id) if id >= known && is_reserve(id) => {
                reserves.push(id);
                continue;
            }
            FileKind::Manifest(id) if id >= known => filenames::manifest(folder, id),
            FileKind::Segment(id) if id >= known => filenames::segment(folder, id),
            _ => continue,
        };
        // A file that cannot be removed now is removed once there is a new manifest.
        let _ = env.files.remove_file(&left);
    }
    remove_orphan_tables(env, folder, found, &reserves);
}

fn remove_orphan_tables(env: &Env, folder: &Path, found: &[FileKind], reserves: &[u64]) {
    let Some(&first) = reserves.iter().min() else { return };
    let tables = found.iter().filter_map(|kind| match *kind {
        FileKind::Table(id) if id > first => Some(filenames::table(folder, id)),
        _ => None,
    });
    let removed = tables.map(|path| env.files.remove_file(&path).is_ok());
    // A reservation that stays must be found by the next open.
    if removed.fold(true, |all, is_removed| all & is_removed) {
        reserves
            .iter()
            .for_each(|id| drop(env.files.remove_file(&filenames::manifest(folder, *id))));
    }
}

/// Whether a file is a reservation. A manifest begins with other bytes, unless not even its header
/// was written.
fn is_reservation(env: &Env, path: &Path) -> Result<bool> {
    let mut bytes = [0; 8];
    env.files.open(path, Access::Read)?.read_at(&mut bytes, 0)?;
    Ok(bytes == [0; 8])
}
