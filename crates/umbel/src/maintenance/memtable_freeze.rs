//! Freezes memtables of several keyspaces at one moment.

use std::sync::Arc;

use crate::maintenance::flush_job::FlushJob;
use crate::state::keyspace_state::KeyspaceState;
use crate::state::store::Store;

/// Returns `keyspaces` and their flush partners: keyspaces that are flushed whenever one of
/// `keyspaces` is.
pub fn with_flush_partners(keyspaces: &[Arc<KeyspaceState>]) -> Vec<Arc<KeyspaceState>> {
    let mut all = keyspaces.to_vec();
    for other in keyspaces.iter().filter_map(|keyspace| keyspace.flush_partner()) {
        if !all.iter().any(|keyspace| keyspace.id == other.id) {
            all.push(other);
        }
    }
    all
}

/// Freezes the memtables of `keyspaces` at one moment, and returns their flush jobs.
pub fn freeze_all(
    store: &Store,
    keyspaces: &[Arc<KeyspaceState>],
    marker: Option<&[u8]>,
) -> Vec<FlushJob> {
    // One moment for all of them: no commit runs meanwhile.
    let _commit = store.commit_lock();
    let job = |keyspace: &Arc<KeyspaceState>| {
        if !keyspace.super_version.load().active.is_empty() {
            keyspace.super_version.freeze(&keyspace.options());
        }
        FlushJob {
            keyspace: Arc::clone(keyspace),
            memtables: keyspace.super_version.load().frozen.clone(),
            marker: marker.map(<[u8]>::to_vec),
        }
    };
    let mut jobs: Vec<FlushJob> = keyspaces.iter().map(job).collect();
    for index in 0..jobs.len() {
        // A keyspace without later entries has the same state as the other.
        let Some(marker) = jobs[index].marker() else { continue };
        let Some(other) = jobs[index].keyspace.flush_partner() else { continue };
        jobs.iter_mut()
            .filter(|job| job.keyspace.id == other.id)
            .for_each(|job| job.marker = Some(marker.clone()));
    }
    jobs.retain(|job| !job.memtables.is_empty() || job.marker.is_some());
    jobs
}

/// Freezes memtables that are not full, and limits the size of WAL segments meanwhile: a segment is
/// freed only as a whole.
pub fn freeze_early(store: &Store, keyspaces: &[Arc<KeyspaceState>]) {
    let table_bytes = store.table_file_bytes();
    let mut state = store.commit_lock();
    for keyspace in keyspaces {
        if !keyspace.super_version.load().active.is_empty() {
            keyspace.super_version.freeze(&keyspace.options());
        }
    }
    state.wal.limit_segments(table_bytes);
}
