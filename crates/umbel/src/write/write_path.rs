//! The path of a write: write stall, long values, commit, then the work after the commit. Each
//! stage is a file, and calls no earlier stage: an earlier stage's result is passed as a value.

use std::sync::Arc;

use umbel_base::{BlobPointer, Error, Result};

use crate::maintenance::space_reclaim;
use crate::options::Durability;
use crate::state::keyspace_state::KeyspaceState;
use crate::state::store::Store;
use crate::state::write_batch::{Action, WriteBatch, check_operation};
use crate::write::blob_writer;
use crate::write::commit;
use crate::write::post_commit::{self, PostCommit};
use crate::write::write_stall;

/// Commits a batch, throttled by the compaction debt.
pub fn commit_batch(
    store: &Arc<Store>,
    writes: &mut WriteBatch,
    durability: Option<Durability>,
) -> Result<()> {
    for keyspace in writes.keyspaces() {
        let frees_space = || writes.frees_space();
        write_stall::admit_writer(store, keyspace, writes.bytes(), frees_space)?;
    }
    let mut blobs = None;
    if writes.has_long_values() {
        writes.check(durability)?;
        blobs = blob_writer::write_blobs(store, writes)?;
    }
    let mut post_commit = PostCommit::default();
    let mut committed = commit::commit(store, writes, durability, &mut post_commit);
    if matches!(committed, Err(Error::DiskFull { .. })) && writes.frees_space() {
        post_commit.release_lock(store);
        let again = || {
            let committed = commit::commit(store, writes, durability, &mut post_commit);
            post_commit.release_lock(store);
            committed
        };
        committed = space_reclaim::reclaim_and_retry(store, committed, again);
    }
    if let (Some(blobs), Ok(_)) = (&mut blobs, &committed) {
        blobs.keep();
    }
    drop(blobs);
    post_commit::finish(store, post_commit, committed, durability)
}

/// Commits one write, throttled by the compaction debt.
pub fn commit_write(
    store: &Arc<Store>,
    keyspace: &Arc<KeyspaceState>,
    action: Action,
    key: &[u8],
    value: &[u8],
) -> Result<()> {
    if value.len() > store.options.inline_value_bytes_max && action == Action::Put {
        return commit_long_value(store, keyspace, key, value);
    }
    let bytes = key.len() + value.len();
    write_stall::admit_writer(store, keyspace, bytes, || action.frees_space())?;
    let mut post_commit = PostCommit::default();
    let mut committed = commit::commit_one(store, keyspace, action, key, value, &mut post_commit);
    if matches!(committed, Err(Error::DiskFull { .. })) && action.frees_space() {
        post_commit.release_lock(store);
        let again = || {
            let committed =
                commit::commit_one(store, keyspace, action, key, value, &mut post_commit);
            post_commit.release_lock(store);
            committed
        };
        committed = space_reclaim::reclaim_and_retry(store, committed, again);
    }
    post_commit::finish(store, post_commit, committed, None)
}

/// Commits a put of a long value, which is written to a file of its own.
#[cold]
fn commit_long_value(
    store: &Arc<Store>,
    keyspace: &Arc<KeyspaceState>,
    key: &[u8],
    value: &[u8],
) -> Result<()> {
    check_operation(Action::Put, key, value)?;
    write_stall::admit_writer(store, keyspace, key.len() + BlobPointer::BYTES, || false)?;
    keyspace.check_not_dropped()?;
    let (mut blobs, pointer) = blob_writer::write_blob(store, value)?;
    let (mut post_commit, pointer) = (PostCommit::default(), pointer.encode());
    let committed =
        commit::commit_one(store, keyspace, Action::PutBlob, key, &pointer, &mut post_commit);
    if committed.is_ok() {
        blobs.keep();
    }
    drop(blobs);
    post_commit::finish(store, post_commit, committed, None)
}
