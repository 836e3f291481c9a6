//! The path of a write: write stall, blobs, commit, then the work that became due.

use std::sync::Arc;

use umbel_base::{BlobPointer, Error, Result};

use crate::maintenance::disk_full_reclaim;
use crate::maintenance::scheduler;
use crate::maintenance::wal_provisioner;
use crate::options::Durability;
use crate::state::keyspace_state::KeyspaceState;
use crate::state::store::Store;
use crate::state::write_batch::{Action, WriteBatch, check_operation};
use crate::write::blob_writer::{self, PendingBlobs};
use crate::write::commit::{self, PostCommit};
use crate::write::write_stall;

/// Commits a batch, throttled by the compaction debt.
pub fn commit_batch(
    store: &Arc<Store>,
    writes: &mut WriteBatch,
    durability: Option<Durability>,
) -> Result<()> {
    for keyspace in writes.keyspaces() {
        let delayed = delay_writer(store, keyspace, writes.bytes());
        delayed.or_else(|error| {
            write_stall::admit_if_frees_space(store, commit::frees_space(writes), error)
        })?;
    }
    let mut blobs = None;
    if writes.has_long_values() {
        writes.check(durability)?;
        blobs = blob_writer::write_blobs(store, writes)?;
    }
    let mut aftermath = PostCommit::default();
    let mut committed = commit::commit(store, writes, durability, &mut aftermath);
    if matches!(committed, Err(Error::DiskFull { .. })) && commit::frees_space(writes) {
        let again = || commit::commit(store, writes, durability, &mut aftermath);
        committed = disk_full_reclaim::reclaim_and_retry(store, committed, again);
    }
    if let (Some(blobs), Ok(())) = (blobs, &committed) {
        blobs.commit();
    }
    finish_commit(store, aftermath, committed)
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
    let delayed = delay_writer(store, keyspace, key.len() + value.len());
    if let Err(error) = delayed {
        write_stall::admit_if_frees_space(store, action.frees_space(), error)?;
    }
    let mut aftermath = PostCommit::default();
    let mut committed = commit::commit_one(store, keyspace, action, key, value, &mut aftermath);
    if matches!(committed, Err(Error::DiskFull { .. })) && action.frees_space() {
        let again = || commit::commit_one(store, keyspace, action, key, value, &mut aftermath);
        committed = disk_full_reclaim::reclaim_and_retry(store, committed, again);
    }
    finish_commit(store, aftermath, committed)
}

/// Commits a put of a long value.
#[cold]
fn commit_long_value(
    store: &Arc<Store>,
    keyspace: &Arc<KeyspaceState>,
    key: &[u8],
    value: &[u8],
) -> Result<()> {
    check_operation(Action::Put, key, value)?;
    delay_writer(store, keyspace, key.len() + BlobPointer::BYTES)?;
    keyspace.check_not_dropped()?;
    let mut blobs = PendingBlobs::begin(store)?;
    let pointer = blobs.write_blob(value)?.encode();
    blobs.finish()?;
    let (mut aftermath, action) = (PostCommit::default(), Action::PutBlob);
    let committed = commit::commit_one(store, keyspace, action, key, &pointer, &mut aftermath);
    if committed.is_ok() {
        blobs.commit();
    }
    finish_commit(store, aftermath, committed)
}

/// Does the work that a commit left, and returns its result. A failed commit may have committed
/// other batches; a successful one stays successful, whatever fails after it.
#[inline]
fn finish_commit(store: &Arc<Store>, aftermath: PostCommit, committed: Result<()>) -> Result<()> {
    if aftermath == PostCommit::default() {
        return committed;
    }
    match run_post_commit(store, aftermath) {
        Err(_) if committed.is_ok() && store.fatal_error.is_set() => Ok(()),
        seen_to => committed.and(seen_to),
    }
}

fn run_post_commit(store: &Arc<Store>, aftermath: PostCommit) -> Result<()> {
    if aftermath.wal_task_due {
        wal_provisioner::run_or_signal(store)?;
    }
    if !aftermath.frozen {
        return Ok(());
    }
    if store.options.background_threads == 0 {
        return match scheduler::run_all_inline(store) {
            // The write is done; the next write retries the work.
            Err(error) if error.is_out_of_descriptors() => Ok(()),
            done => done,
        };
    }
    store.signal();
    Ok(())
}

/// Throttles a writer in proportion to the bytes it writes.
fn delay_writer(store: &Arc<Store>, keyspace: &KeyspaceState, bytes: usize) -> Result<()> {
    write_stall::delay_writer(store, keyspace, bytes, || scheduler::run_all_inline(store))
}
