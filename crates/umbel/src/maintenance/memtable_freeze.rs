//! Memtables that nobody writes to any more, of several keyspaces at one moment.

use std::sync::Arc;

use crate::flush::FlushJob;
use crate::keyspace_core::KeyspaceCore;
use crate::store::Store;

/// These keyspaces, and those that are flushed whenever one of them is.
pub fn with_companions(keyspaces: &[Arc<KeyspaceCore>]) -> Vec<Arc<KeyspaceCore>> {
    let mut all = keyspaces.to_vec();
    for other in keyspaces.iter().filter_map(|keyspace| keyspace.flushed_with()) {
        if !all.iter().any(|keyspace| keyspace.id == other.id) {
            all.push(other);
        }
    }
    all
}

/// Freezes these keyspaces at one moment and says what is to be flushed of them.
pub fn freeze_all(
    store: &Store,
    keyspaces: &[Arc<KeyspaceCore>],
    marker: Option<&[u8]>,
) -> Vec<FlushJob> {
    // One moment for all of them: nobody commits meanwhile.
    let _commit = store.commit_lock();
    let job = |keyspace: &Arc<KeyspaceCore>| {
        if !keyspace.view.load().active.is_empty() {
            keyspace.view.freeze(&keyspace.options());
        }
        FlushJob {
            keyspace: Arc::clone(keyspace),
            buffers: keyspace.view.load().frozen.clone(),
            marker: marker.map(<[u8]>::to_vec),
        }
    };
    let mut jobs: Vec<FlushJob> = keyspaces.iter().map(job).collect();
    for index in 0..jobs.len() {
        // One that had no entry since holds as much as the other.
        let Some(marker) = jobs[index].marker() else { continue };
        let Some(other) = jobs[index].keyspace.flushed_with() else { continue };
        jobs.iter_mut()
            .filter(|job| job.keyspace.id == other.id)
            .for_each(|job| job.marker = Some(marker.clone()));
    }
    jobs.retain(|job| !job.buffers.is_empty() || job.marker.is_some());
    jobs
}
