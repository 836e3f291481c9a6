//! [`accept_clock`]: confirms the wall clock for a store that no process has open.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use umbel_env::{Env, PinnedFiles, check_path};

use crate::event_log::chunk_manifest::ChunkManifest;
use crate::event_log::replica_file::check_not_replica;
use crate::open::clock_confirmation::{ClockReport, confirm_clock};
use crate::open::{self, LOCK_FILE, repair_marker};
use crate::types::error::Result;
use crate::types::store_options::StoreOptions;

/// Confirms the wall clock for the store in a folder, like an open with
/// [`StoreOptions::accept_clock`], and reports what changed.
///
/// A store that agrees with the wall clock is not changed, apart from the recovery of a store that
/// was not closed.
///
/// # Errors
/// - There is no store in the folder, or another process has it open after `lock_wait`.
/// - The wall clock is before 1970.
/// - The end of the log is damaged, or a call of the system fails.
pub fn accept_clock(env: &Env, folder: &Path, lock_wait: Duration) -> Result<ClockReport> {
    check_path("the event store", folder)?;
    let folder = &*env.files.absolute(folder)?;
    let options = StoreOptions { create_if_missing: false, ..StoreOptions::default() };
    open::check_openable(env, folder, &options, false)?;
    let (env, root) = open::own_directory_env(env, folder)?;
    let lock = env.lock(&folder.join(LOCK_FILE), lock_wait)?;
    let pinned = PinnedFiles::new(Arc::clone(&env.files), Some(lock));
    open::check_openable_locked(&env, folder, &options)?;
    repair_marker::check_no_repair(&env, folder)?;
    check_not_replica(&env, folder)?;
    open::list_own_files(&env, folder)?;
    let mut manifest = ChunkManifest::read_for_writer(&env, folder, root)?;
    open::recover_chunks(&env, folder, &mut manifest, &pinned)?;
    open::check_files(&env, folder, &manifest)?;
    confirm_clock(&env, folder, &mut manifest)
}
