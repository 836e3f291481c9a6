//! [`Targets`]: which of the events that a view points at can be read.

use crate::error::Result;
use crate::format::Frame;
use crate::names;
use crate::read::oldest;
use crate::settings::Settings;
use crate::shared::Shared;
use crate::view_name::ViewKind;

/// How many streams are remembered.
const SLOTS: usize = 256;

/// What is known of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Limits {
    /// Whether none of its events can be read.
    is_gone: bool,
    /// What its metadata says.
    settings: Option<Settings>,
}

#[derive(Debug, Default)]
struct Slot {
    hash: u64,
    stream: String,
    limits: Limits,
}

/// Which of the events that a view points at can be read. What is known of streams is forgotten
/// when anything is appended that may hide events.
#[derive(Debug, Default)]
pub struct Targets {
    slots: Vec<Slot>,
    hiding: u64,
    may_have_metadata: bool,
    may_have_tombstones: bool,
    metadata: String,
}

impl Targets {
    /// Whether the stream of the event can be read and shows it.
    pub fn shows(&mut self, shared: &Shared, frame: &Frame<'_>) -> Result<bool> {
        let (stream, stamp) = (frame.stream, &frame.stamp);
        if names::subject(stream).is_some() {
            // Of metadata the last event is what can be read, and every append changes which.
            return last_revision(shared, stream).map(|last| last == Some(stamp.revision));
        }
        let views = &shared.index.views;
        let hiding = views.hiding();
        if self.slots.is_empty() || self.hiding != hiding {
            self.slots.clear();
            self.slots.resize_with(SLOTS, Slot::default);
            self.hiding = hiding;
            let looked = || shared.index.names("$$", None, 1).map(|found| !found.is_empty());
            self.may_have_metadata = views.metadata.is_there(looked)?;
            let ended = || views.entries(ViewKind::Type, names::TOMBSTONE_TYPE).map(|n| n > 0);
            self.may_have_tombstones = views.tombstones.is_there(ended)?;
        }
        if !self.may_have_metadata && !self.may_have_tombstones {
            return Ok(true);
        }
        let limits = self.limits(shared, stream)?;
        let Some(settings) = limits.settings.filter(|_| !limits.is_gone) else {
            return Ok(!limits.is_gone);
        };
        let first = match settings.max_count {
            // Every append changes it.
            Some(_) => last_revision(shared, stream)?.map(|last| settings.first_revision(last)),
            None => Some(settings.truncate_before),
        };
        let is_young = stamp.created >= oldest(shared, Some(settings));
        Ok(is_young && first.is_some_and(|first| stamp.revision >= first))
    }

    fn limits(&mut self, shared: &Shared, stream: &str) -> Result<Limits> {
        let hash = shared.existence.hash(stream);
        let slot = &mut self.slots[hash as usize % SLOTS];
        if slot.hash == hash && slot.stream == stream {
            return Ok(slot.limits);
        }
        let mut limits = Limits::default();
        if self.may_have_tombstones {
            limits.is_gone = shared.head_of(stream, hash)?.is_none_or(|head| head.is_tombstoned);
        }
        if self.may_have_metadata && !limits.is_gone {
            names::write_metadata_stream(stream, &mut self.metadata);
            limits.settings = shared.head(&self.metadata)?.and_then(|head| head.settings);
            limits.is_gone = limits.settings.is_some_and(|settings| settings.is_deleted());
        }
        slot.hash = hash;
        slot.stream.clear();
        slot.stream.push_str(stream);
        slot.limits = limits;
        Ok(limits)
    }
}

/// The revision of the last event of a stream that can be read.
fn last_revision(shared: &Shared, stream: &str) -> Result<Option<u64>> {
    let head = shared.head(stream)?.filter(|head| !head.is_tombstoned);
    Ok(head.map(|head| head.last_revision))
}
