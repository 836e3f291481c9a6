//! [`IndexMarker`]: up to where a part of the index holds the event log, and of which log that is.
//!
//! FORMAT: `docs/formats/event-index.md`. Copies of a store that went on apart have other events at
//! the same positions. Each wrote them into chunks of its own, whose keys are random: the position
//! and the key of the chunk that it lies in belong to one history.

use std::ops::Range;

use umbel_base::{Error, Result};

use crate::event_log::EventLog;

/// What a keyspace of the index was flushed with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IndexMarker {
    /// It holds everything up to here; 0 where it holds nothing.
    pub position: u64,
    /// The key of the chunk that the position lies in; `None` where an earlier version wrote it.
    pub key: Option<u64>,
}

impl IndexMarker {
    /// The marker of a keyspace of this name.
    pub fn decode(bytes: &[u8], keyspace: &str) -> Result<IndexMarker> {
        let number = |bytes: &[u8]| Some(u64::from_le_bytes(*bytes.first_chunk()?));
        let read = match bytes.len() {
            8 => number(bytes).map(|position| IndexMarker { position, key: None }),
            16 => number(bytes)
                .zip(number(&bytes[8..]))
                .map(|(position, key)| IndexMarker { position, key: Some(key) }),
            _ => None,
        };
        read.ok_or_else(|| {
            Error::invalid(format!("keyspace '{keyspace}' has a marker that is no position"))
        })
    }
}

/// Makes markers of positions that mostly lie in the same chunk.
#[derive(Debug, Default)]
pub struct MarkerMaker {
    positions: Range<u64>,
    key: u64,
}

impl MarkerMaker {
    /// The bytes of a marker for this position.
    #[inline]
    pub fn encode(&mut self, position: u64, log: &EventLog) -> [u8; 16] {
        if !self.positions.contains(&position) {
            (self.positions, self.key) = log.positions_and_key(position);
        }
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&position.to_le_bytes());
        bytes[8..].copy_from_slice(&self.key.to_le_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_of_an_earlier_version_has_no_key_and_others_are_refused() {
        let bytes: Vec<u8> = [7u64, 9].iter().flat_map(|number| number.to_le_bytes()).collect();
        let read = |bytes: &[u8]| IndexMarker::decode(bytes, "heads");
        assert_eq!(read(&bytes).unwrap(), IndexMarker { position: 7, key: Some(9) });
        assert_eq!(read(&bytes[..8]).unwrap(), IndexMarker { position: 7, key: None });
        for len in [0, 7, 9, 15] {
            assert!(matches!(read(&bytes[..len]), Err(Error::Invalid(_))), "{len} bytes");
        }
    }
}
