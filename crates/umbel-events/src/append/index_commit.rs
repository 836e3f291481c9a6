//! Step of an append from the log into the index: keyspaces, then views, then the filter of stream
//! names. After this step the events may become visible.

use crate::index::index_batch::IndexBatch;
use crate::index::index_changes::StreamChange;
use crate::store_components::StoreComponents;
use crate::types::error::Result;

/// Commits the changes of the appends up to `position`.
///
/// After an error, the caller must not use the batch again, since some changes may be in the
/// keyspaces.
pub fn commit_changes<'a>(
    parts: &StoreComponents,
    batch: &mut IndexBatch,
    changes: impl Iterator<Item = StreamChange<'a>> + Clone,
    position: u64,
) -> Result<()> {
    for change in changes.clone() {
        batch.add(&parts.index, &change);
    }
    batch.commit(&parts.index, (&parts.log, position))?;
    parts.visible.count_appended(changes.clone().map(|change| change.event_count()).sum());
    update_views_and_filter(parts, changes);
    Ok(())
}

/// Numbers the events in the views, and adds new streams to the filter. REQUIRES: the events are in
/// the keyspaces.
pub fn update_views_and_filter<'a>(
    parts: &StoreComponents,
    changes: impl Iterator<Item = StreamChange<'a>> + Clone,
) {
    let placed = changes.clone().map(|change| (change.stream, change.events()));
    if parts.index.views.add_events(placed) {
        parts.background.request_flush();
    }
    if parts.existence.insert(changes) {
        parts.background.request_existence_step();
    }
}
