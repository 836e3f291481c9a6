//! [`IndexMarker`]: position up to which a part of the index holds the event log, with the log's
//! lineage.
//!
//! FORMAT: `docs/formats/event-index.md`. Copies of a store that diverged have different events at
//! the same positions. Each copy wrote its events into its own chunks, whose keys are random. So a
//! position and the key of its chunk identify one lineage.

use std::ops::Range;

use umbel_base::{Error, Result};

use crate::event_log::EventLog;

/// Marker of a keyspace's last flush.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IndexMarker {
    /// The keyspace holds everything up to this position; 0 if the keyspace is empty.
    pub position: u64,
    /// Key of the chunk that has the position; `None` if an earlier version of Umbel wrote the
    /// marker.
    pub key: Option<u64>,
}

impl IndexMarker {
    /// Decodes the marker of a keyspace with this name.
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
            Error::invalid(format!(
                "keyspace '{keyspace}' of the index has a marker that is not a position"
            ))
        })
    }
}

/// Encodes markers of positions that are mostly in the same chunk.
#[derive(Debug, Default)]
pub struct MarkerEncoder {
    positions: Range<u64>,
    key: u64,
}

impl MarkerEncoder {
    /// Returns the bytes of a marker for this position.
    #[inline]
    pub fn encode(&mut self, position: u64, log: &EventLog) -> [u8; 16] {
        if !self.positions.contains(&position) {
            (self.positions, self.key) = log.chunk_range_and_key(position);
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
    fn earlier_marker_version_has_no_key_and_others_are_rejected() {
        let bytes: Vec<u8> = [7u64, 9].iter().flat_map(|number| number.to_le_bytes()).collect();
        let read = |bytes: &[u8]| IndexMarker::decode(bytes, "heads");
        assert_eq!(read(&bytes).unwrap(), IndexMarker { position: 7, key: Some(9) });
        assert_eq!(read(&bytes[..8]).unwrap(), IndexMarker { position: 7, key: None });
        for len in [0, 7, 9, 15] {
            assert!(matches!(read(&bytes[..len]), Err(Error::Invalid(_))), "{len} bytes");
        }
    }
}
