//! Several keys at once.

use umbel_base::{Result, SequenceNumber};

use super::look::Look;
use crate::keyspace_core::KeyspaceCore;
use crate::store::Store;
use crate::version::head::head;

/// Looks up several keys in one consistent state and hands each value, with the index of its key,
/// to `read`; `None` where there is none. The order of the calls is not that of the keys.
pub fn multi_get_with<K: AsRef<[u8]>>(
    store: &Store,
    keyspace: &KeyspaceCore,
    keys: &[K],
    at: Option<SequenceNumber>,
    mut read: impl FnMut(usize, Option<&[u8]>),
) -> Result<()> {
    // The view first, the number second: see the invariant of `View`.
    let view = keyspace.view.load();
    let sequence = at.unwrap_or_else(|| store.snapshots.visible());
    let counters = keyspace.reads.own();
    counters.count_gets(keys.len());
    for (index, key) in keys.iter().enumerate() {
        let key = key.as_ref();
        let look = Look { key, head: head(key), hash: store.hash(key), sequence, counters };
        if look.up(&view, |value| read(index, Some(value)))?.is_none() {
            read(index, None);
        }
    }
    counters.count_loads();
    Ok(())
}
