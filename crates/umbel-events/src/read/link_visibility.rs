//! [`LinkVisibility`]: which targets of the links of a view can be read.

use crate::event_log::event_format::Frame;
use crate::read::stream_reader::{retention_start, tombstone_of_subject};
use crate::shared_store_state::StoreInner;
use crate::types::error::Result;
use crate::types::stream_metadata::RetentionRules;
use crate::types::stream_names;
use crate::types::view_kind::ViewKind;

/// Number of cached streams.
const CACHE_SLOTS: usize = 256;

/// Cached visibility of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct StreamVisibility {
    /// Whether no event of the stream can be read.
    is_hidden: bool,
    /// Retention rules in the stream's metadata.
    retention: Option<RetentionRules>,
}

#[derive(Debug, Default)]
struct CacheSlot {
    hash: u64,
    stream: String,
    visibility: StreamVisibility,
}

/// Visibility of the targets of a view's links. The cache of streams is cleared when an append may
/// hide events.
#[derive(Debug, Default)]
pub struct LinkVisibility {
    slots: Vec<CacheSlot>,
    hiding_epoch: u64,
    may_have_metadata: bool,
    may_have_tombstones: bool,
    metadata: String,
}

impl LinkVisibility {
    /// Whether the event's stream can be read and does not hide the event.
    pub fn is_visible(&mut self, shared: &StoreInner, frame: &Frame<'_>) -> Result<bool> {
        let (stream, stamp) = (frame.stream, &frame.meta);
        if stream_names::metadata_subject(stream).is_some() {
            if tombstone_of_subject(shared, stream)?.is_some() {
                return Ok(false);
            }
            // Only the last event of a metadata stream is visible, and every append changes it.
            return last_revision(shared, stream).map(|last| last == Some(stamp.revision));
        }
        let views = &shared.index.views;
        let hiding = views.hiding_epoch();
        if self.slots.is_empty() || self.hiding_epoch != hiding {
            self.slots.clear();
            self.slots.resize_with(CACHE_SLOTS, CacheSlot::default);
            self.hiding_epoch = hiding;
            let has_metadata =
                || shared.index.stream_names("$$", None, 1).map(|found| !found.is_empty());
            self.may_have_metadata = views.metadata.is_present(has_metadata)?;
            let ended =
                || views.entries(ViewKind::Type, stream_names::TOMBSTONE_TYPE).map(|n| n > 0);
            self.may_have_tombstones = views.tombstones.is_present(ended)?;
        }
        if !self.may_have_metadata && !self.may_have_tombstones {
            return Ok(true);
        }
        let limits = self.stream_visibility(shared, stream)?;
        let Some(settings) = limits.retention.filter(|_| !limits.is_hidden) else {
            return Ok(!limits.is_hidden);
        };
        let first = match settings.max_count {
            // Every append changes the first revision.
            Some(_) => last_revision(shared, stream)?.map(|last| settings.first_revision(last)),
            None => Some(settings.truncate_before),
        };
        let is_young = shared.log.ordered_time(stamp) >= retention_start(shared, Some(settings));
        Ok(is_young && first.is_some_and(|first| stamp.revision >= first))
    }

    fn stream_visibility(&mut self, shared: &StoreInner, stream: &str) -> Result<StreamVisibility> {
        let hash = shared.existence.hash(stream);
        let slot = &mut self.slots[hash as usize % CACHE_SLOTS];
        if slot.hash == hash && slot.stream == stream {
            return Ok(slot.visibility);
        }
        let mut limits = StreamVisibility::default();
        if self.may_have_tombstones {
            limits.is_hidden =
                shared.head_with_hash(stream, hash)?.is_none_or(|head| head.is_tombstoned);
        }
        if self.may_have_metadata && !limits.is_hidden {
            stream_names::write_metadata_stream(stream, &mut self.metadata);
            let metadata = shared.head(&self.metadata)?;
            limits.retention = metadata.and_then(|metadata| metadata.retention);
            if let Some(metadata) = metadata.filter(|_| is_deleted(limits.retention)) {
                // A deletion before the stream's first event does not apply.
                limits.retention = metadata.retention_of(shared.head_with_hash(stream, hash)?);
            }
            limits.is_hidden = is_deleted(limits.retention);
        }
        slot.hash = hash;
        slot.stream.clear();
        slot.stream.push_str(stream);
        slot.visibility = limits;
        Ok(limits)
    }
}

fn is_deleted(rules: Option<RetentionRules>) -> bool {
    rules.is_some_and(|rules| rules.is_deleted())
}

/// Revision of the last readable event of a stream.
fn last_revision(shared: &StoreInner, stream: &str) -> Result<Option<u64>> {
    let head = shared.head(stream)?.filter(|head| !head.is_tombstoned);
    Ok(head.map(|head| head.last_revision))
}
