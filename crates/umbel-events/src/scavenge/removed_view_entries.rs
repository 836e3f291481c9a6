//! [`ViewGaps`]: what scavenging took out of the log, told to the views when they are made anew, so
//! that events keep their numbers in them.

use std::sync::Arc;

use crate::chunk::Chunk;
use crate::error::Result;
use crate::packed::{Gap, Gaps};
use crate::parts::Parts;
use crate::view_name::ViewKind;

/// Walks over the gaps of all chunks, in order.
#[derive(Debug)]
pub struct ViewGaps {
    chunks: Arc<Vec<Arc<Chunk>>>,
    /// How many chunks were looked at.
    looked: usize,
    gaps: Gaps,
    /// How many of these runs were told.
    told: usize,
}

impl ViewGaps {
    /// Before the first gap.
    pub fn new(parts: &Parts) -> ViewGaps {
        let chunks = parts.log.chunks.all();
        ViewGaps { chunks, looked: 0, gaps: Gaps::default(), told: 0 }
    }

    /// Whether there is a gap before `position` that was not told.
    pub fn is_before(&mut self, parts: &Parts, position: u64) -> Result<bool> {
        loop {
            if let Some(gap) = self.gaps.runs.get(self.told) {
                return Ok(gap.position < position);
            }
            let Some(chunk) = self.chunks.get(self.looked) else { return Ok(false) };
            if chunk.start >= position {
                return Ok(false);
            }
            (self.gaps, self.told) = (parts.log.gaps(chunk)?, 0);
            self.looked += 1;
        }
    }

    /// Tells the views of all gaps before `position`.
    ///
    /// REQUIRES: the views have what stands before these gaps, and each gap lies before what they
    /// hold durably or behind it: only what the index holds durably is scavenged.
    pub fn tell(&mut self, parts: &Parts, position: u64) -> Result<()> {
        while self.is_before(parts, position)? {
            let Some(gap) = self.gaps.runs.get(self.told) else { break };
            parts.index.views.skip(gap.position, of_gap(&self.gaps, gap));
            self.told += 1;
        }
        Ok(())
    }
}

/// How many events of each view are gone in a gap.
fn of_gap<'a>(
    gaps: &'a Gaps,
    gap: &'a Gap,
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
