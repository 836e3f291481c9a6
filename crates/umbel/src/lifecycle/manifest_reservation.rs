//! [`ManifestReservation`]: a file that reserves disk space for the manifest of an open while the
//! open writes tables.
//!
//! The reservation has the name of a manifest, holds only zeros, and is durable, name included,
//! before the open begins its first table. If the open is interrupted, the reservation shows the
//! next open which tables are orphans.
//!
//! INVARIANT: the reservation is removed before `CURRENT` can name a manifest that names the open's
//! tables. The id of the reservation is above all earlier ids. So while a reservation exists whose
//! id the current manifest does not know, no manifest names tables with higher ids.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use umbel_base::Result;
use umbel_env::{Access, Env, File};

use crate::fs::filenames::{self, FileKind};
use crate::version::Edit;
use crate::version::version_edit::{ManifestState, encoded_bytes};

const PAGE_BYTES: u64 = 4096;
/// Number of pages reserved for `CURRENT.new` and for partly filled last pages of files.
const PAGES_BESIDES: u64 = 4;
/// Bytes reserved for the manifest's headers, and for its growth for each WAL segment or keyspace.
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
    /// Reserves space for a manifest with `state` and the ends of its WAL segments. REQUIRES: no
    /// file has had the id of the reservation.
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

    /// Reserves space in the manifest for `edit` too.
    pub fn add(&mut self, edit: &Edit) -> Result<()> {
        self.grow(encoded_bytes(std::slice::from_ref(edit)))
    }

    fn grow(&mut self, by: u64) -> Result<()> {
        self.bytes += by;
        self.file.preallocate(self.bytes.next_multiple_of(PAGE_BYTES))
    }

    /// Frees the reserved space, which the manifest is to take. The file of the reservation stays.
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

/// Removes orphans of killed opens: manifests and copies of WAL segments, and also tables and
/// reservations if a [`ManifestReservation`] is left. Orphans have ids from `known` on, the first
/// id that the manifest does not count as taken, so no manifest names them. REQUIRES: of the WAL
/// segments with such ids, only copies have records of writes.
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

/// Whether a file is a reservation, by its first bytes. A manifest begins with other bytes, unless
/// not even its header was written.
fn is_reservation(env: &Env, path: &Path) -> Result<bool> {
    let mut bytes = [0; 8];
    env.files.open(path, Access::Read)?.read_at(&mut bytes, 0)?;
    Ok(bytes == [0; 8])
}
