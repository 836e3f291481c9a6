//! [`StateCapture`]: the state of a store at one moment, with every write of it in tables.

use std::sync::Arc;

use umbel_base::Result;

use crate::maintenance::manual_flush;
use crate::state::store::Store;
use crate::super_version::SuperVersion;
use crate::version::version_edit::ManifestState;

/// State of a store at one moment.
#[derive(Debug)]
pub struct StateCapture {
    /// The manifest's state, without WAL segments: every write before the capture is in tables.
    pub state: ManifestState,
    /// A super version of each keyspace. While they are held, no table of the state is removed.
    pub views: Vec<Arc<SuperVersion>>,
}

impl StateCapture {
    /// Flushes all keyspaces and captures the state that contains all writes before the call.
    pub fn take(store: &Arc<Store>) -> Result<StateCapture> {
        loop {
            let keyspaces = store.keyspaces();
            // While a super version is held none of its tables is removed. Until the flush returns,
            // no later write gets into the manifest's state.
            let capture = || {
                let manifest = store.manifest_lock()?;
                let views: Vec<_> =
                    keyspaces.iter().map(|keyspace| keyspace.super_version.acquire()).collect();
                let flushed = |id: &u32| keyspaces.iter().any(|keyspace| keyspace.id == *id);
                // A keyspace created meanwhile was not flushed: repeat with it.
                let is_complete = manifest.state().keyspaces.keys().all(flushed);
                Ok(is_complete.then(|| (manifest.state().clone(), views)))
            };
            if let Some((mut state, views)) =
                manual_flush::flush_and_then(store, &keyspaces, None, capture)?
            {
                state.logs.clear();
                return Ok(StateCapture { state, views });
            }
        }
    }
}
