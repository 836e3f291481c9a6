//! Entries of a slot, from records of the event log.
//!
//! FORMAT: `docs/formats/slots.md`. For each chunk in its order: its beginning before its first
//! record, its records, and its end once a later chunk has a record.

use umbel_log::HEADER_BYTES;
use umbel_slots::{LogId, SlotEntry};

use crate::event_log::chunk_bytes::ChunkBytes;

/// Kind of the logs that are chunks of the event log.
pub const EVENT_CHUNK_KIND: u8 = 1;
/// Bytes of an entry without its records, at most: numbers, ids and lengths.
const ENTRY_BYTES_MAX: u64 = 64;
/// Bytes of a slot without its entries, at most: ids, numbers and the name of the node.
const SLOT_HEAD_BYTES_MAX: u64 = 512;

/// Returns the entries of a slot with these records.
pub fn entries_of(chunks: Vec<ChunkBytes>) -> Vec<SlotEntry> {
    let mut entries = Vec::new();
    for chunk in chunks {
        let ChunkBytes { chunk: id, start, capacity, key, from, bytes, ended } = chunk;
        let log = LogId { kind: EVENT_CHUNK_KIND, id };
        if from == HEADER_BYTES {
            // No slot has a record of the chunk.
            entries.push(SlotEntry::LogBegins { log, start, capacity, key });
        }
        if !bytes.is_empty() {
            entries.push(SlotEntry::Bytes { log, from, bytes });
        }
        if let Some(ended) = ended {
            let (end, mark, running) = (ended.end, ended.mark, ended.running);
            entries.push(SlotEntry::LogEnded { log, end, mark, running });
        }
    }
    entries
}

/// Maximum bytes of a slot with these entries.
pub fn slot_bytes_max(entries: &[SlotEntry]) -> u64 {
    let bytes = entries.iter().map(|entry| match entry {
        SlotEntry::Bytes { bytes, .. } => ENTRY_BYTES_MAX + bytes.len() as u64,
        _ => ENTRY_BYTES_MAX,
    });
    SLOT_HEAD_BYTES_MAX + bytes.sum::<u64>()
}

/// Whether a node without this entry has another event log.
pub fn changes_log(entry: &SlotEntry) -> bool {
    match entry {
        SlotEntry::LogBegins { .. }
        | SlotEntry::Bytes { .. }
        | SlotEntry::LogEnded { .. }
        | SlotEntry::Object { .. }
        | SlotEntry::ClockEpochBegins { .. } => true,
        SlotEntry::EpochBegins { .. }
        | SlotEntry::Settings(_)
        | SlotEntry::UploadBegins { .. }
        | SlotEntry::Snapshot { .. }
        | SlotEntry::Nothing
        | SlotEntry::Resigned => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event_log::chunk_bytes::ChunkEndRecord;

    fn chunk(id: u64, from: u64, bytes: &[u8], has_ended: bool) -> ChunkBytes {
        let end = from + bytes.len() as u64;
        let ended = has_ended.then_some(ChunkEndRecord { end, mark: 3, running: 4 });
        let (start, bytes) = (id * 4096, bytes.to_vec());
        ChunkBytes { chunk: id, start, capacity: 4096, key: 9, from, bytes, ended }
    }

    /// One letter for each entry, with the id of the log.
    fn outline(chunks: Vec<ChunkBytes>) -> Vec<(char, u64)> {
        let letter = |entry: SlotEntry| match entry {
            SlotEntry::LogBegins { log, start, capacity: 4096, key: 9 } => {
                assert_eq!(start, log.id * 4096);
                ('b', log.id)
            }
            SlotEntry::Bytes { log, .. } => ('r', log.id),
            SlotEntry::LogEnded { log, mark: 3, running: 4, .. } => ('e', log.id),
            other => panic!("{other:?}"),
        };
        entries_of(chunks).into_iter().map(letter).collect()
    }

    #[test]
    fn chunks_begin_before_their_records_and_end_after_them() {
        let first = chunk(5, HEADER_BYTES, b"records!", false);
        assert_eq!(outline(vec![first]), [('b', 5), ('r', 5)]);
        assert_eq!(outline(vec![chunk(5, 72, b"records!", false)]), [('r', 5)]);
        let next = chunk(7, HEADER_BYTES, b"records!", false);
        let last = chunk(5, 80, b"records!", true);
        assert_eq!(outline(vec![last, next.clone()]), [('r', 5), ('e', 5), ('b', 7), ('r', 7)]);
        let ended = chunk(5, 88, b"", true);
        assert_eq!(outline(vec![ended, next]), [('e', 5), ('b', 7), ('r', 7)]);
    }

    #[test]
    fn slots_are_no_longer_than_their_bound() {
        let longest = LogId { kind: 255, id: u64::MAX };
        let entries = [
            SlotEntry::LogBegins { log: longest, start: u64::MAX, capacity: u64::MAX, key: 1 },
            SlotEntry::Bytes { log: longest, from: u64::MAX, bytes: vec![1; 300] },
            SlotEntry::LogEnded { log: longest, end: u64::MAX, mark: u32::MAX, running: 1 },
            SlotEntry::Resigned,
        ];
        let slot = umbel_slots::Slot {
            ids: umbel_slots::SlotIds { store: [1; 16], uid: [2; 16] },
            number: u64::MAX,
            epoch: u64::MAX,
            previous: [3; 16],
            node: "n".repeat(255),
            wall_micros: u64::MAX,
            entries: entries.to_vec(),
        };
        assert!(slot.encode().len() as u64 <= slot_bytes_max(&entries));
    }
}
