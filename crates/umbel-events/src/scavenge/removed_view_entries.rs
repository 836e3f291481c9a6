//! [`RemovedViewEntries`]: the events that scavenges removed, applied to the views that are
//! rebuilt. So the remaining events keep their numbers in rebuilt views.

use std::sync::Arc;

use crate::event_log::chunk::Chunk;
use crate::event_log::scavenged_chunk::{RemovedEvents, RemovedRun};
use crate::store_components::StoreComponents;
use crate::types::error::Result;
use crate::types::view_kind::ViewKind;

/// Cursor over the removed events of all chunks, in order.
#[derive(Debug)]
pub struct RemovedViewEntries {
    chunks: Arc<Vec<Arc<Chunk>>>,
    /// Number of visited chunks.
    visited_chunks: usize,
    removed: RemovedEvents,
    /// Number of runs of the current chunk that were applied to the views.
    applied_runs: usize,
}

impl RemovedViewEntries {
    /// Starts before the first removed run.
    pub fn new(parts: &StoreComponents) -> RemovedViewEntries {
        let chunks = parts.log.chunks.all();
        RemovedViewEntries {
            chunks,
            visited_chunks: 0,
            removed: RemovedEvents::default(),
            applied_runs: 0,
        }
    }

    /// Whether a removed run before `position` was not applied yet.
    pub fn has_run_before(&mut self, parts: &StoreComponents, position: u64) -> Result<bool> {
        loop {
            if let Some(gap) = self.removed.runs.get(self.applied_runs) {
                return Ok(gap.position < position);
            }
            let Some(chunk) = self.chunks.get(self.visited_chunks) else { return Ok(false) };
            if chunk.start >= position {
                return Ok(false);
            }
            (self.removed, self.applied_runs) = (parts.log.removed_events(chunk)?, 0);
            self.visited_chunks += 1;
        }
    }

    /// Applies all removed runs before `position` to the views.
    ///
    /// REQUIRES: the views have the events before these runs, and no run crosses the position up to
    /// which the views are durable. Scavenges never create such a run: they remove only events that
    /// the index holds durably.
    pub fn apply_before(&mut self, parts: &StoreComponents, position: u64) -> Result<()> {
        while self.has_run_before(parts, position)? {
            let Some(gap) = self.removed.runs.get(self.applied_runs) else { break };
            parts.index.views.skip_removed(gap.position, removed_by_view(&self.removed, gap));
            self.applied_runs += 1;
        }
        Ok(())
    }
}

/// Number of removed events of each view in a run.
fn removed_by_view<'a>(
    gaps: &'a RemovedEvents,
    gap: &'a RemovedRun,
) -> impl Iterator<Item = ((ViewKind, &'a str), u64)> + 'a {
    let named = |kind| {
        move |(number, count): (&u64, &u64)| {
            let name = gaps.names.get(*number as usize)?;
            Some(((kind, name.as_str()), *count))
        }
    };
    let categories = gap.categories.iter().filter_map(named(ViewKind::Category));
    let kinds = gap.kinds.iter().filter_map(named(ViewKind::Type));
    let streams = (gap.streams > 0).then_some(((ViewKind::Streams, ""), gap.streams));
    categories.chain(kinds).chain(streams)
}
