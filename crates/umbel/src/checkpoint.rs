//! A consistent copy of an open store, by hard links.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use umbel_base::{Error, Result};
use umbel_env::check_path;

use crate::flush_now;
use crate::folder;
use crate::names;
use crate::poison::Poison;
use crate::store::Store;
use crate::version::Manifest;

/// Writes a copy of the present state to `target`, a folder that does not exist or is empty.
///
/// Everything written before the call is in the copy. Tables are shared by hard links, so `target`
/// has to lie on the same file system; the copy is a store of its own.
pub fn checkpoint(store: &Arc<Store>, target: &Path) -> Result<()> {
    check_path("the checkpoint", target)?;
    store.check_writable()?;
    let files = &store.options.env.files;
    if files.exists(target)? && !files.read_dir(target)?.is_empty() {
        return Err(Error::invalid(format!(
            "{} is not empty; name a folder that does not exist yet",
            target.display()
        )));
    }
    folder::create(&store.options.env, target)?;
    let (mut state, views) = loop {
        let keyspaces = store.keyspaces();
        // While a view is held none of its tables is removed; while the flush has not returned, no
        // later write gets into the manifest's state.
        let capture = || {
            let manifest = store.manifest_lock()?;
            let views: Vec<_> = keyspaces.iter().map(|keyspace| keyspace.view.hold()).collect();
            let flushed = |id: &u32| keyspaces.iter().any(|keyspace| keyspace.id == *id);
            // A keyspace that appeared meanwhile was not flushed: once more, with it.
            let whole = manifest.state().keyspaces.keys().all(flushed);
            Ok(whole.then(|| (manifest.state().clone(), views)))
        };
        if let Some(captured) = flush_now::flush_then(store, &keyspaces, None, capture)? {
            break captured;
        }
    };
    state.logs.clear();
    let live = state.keyspaces.values().flat_map(|record| record.levels.iter().flatten());
    for meta in live {
        let (source, link) = (names::table(&store.folder, meta.id), names::table(target, meta.id));
        files.hard_link(&source, &link)?;
        for blob in &meta.blobs {
            files.hard_link(&names::blob(&store.folder, blob.id), &names::blob(target, blob.id))?;
        }
    }
    drop(views);
    let ids = Arc::new(AtomicU64::new(state.next_file_id));
    let (env, poison) = (&store.options.env, Arc::new(Poison::default()));
    Manifest::create(env, target, state, ids, poison)?.seal()
}
