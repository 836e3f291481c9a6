//! [`Slot`]: one object of the replicated log, and its bytes.
//!
//! FORMAT: `docs/formats/slots.md`.

use umbel_base::{Decoder, varint};
use umbel_env::ObjectName;

use crate::object_frame::ObjectFrame;

const FRAME: ObjectFrame = ObjectFrame { magic: *b"UmbelSlt", noun: "slot", offset: 0 };
/// Maximum bytes of a slot: 16 MiB of records, or one record, and the rest.
pub const SLOT_BYTES_MAX: u64 = 80 << 20;
/// Maximum number of entries of a slot. It bounds the memory of a decoded slot.
pub const SLOT_ENTRIES_MAX: usize = 4096;
/// Prefix of the names of slots.
pub const SLOT_PREFIX: &str = "slots/";
/// Digits of a number in a name.
const NUMBER_DIGITS: usize = 20;

/// The log of a store: the event log, or the log of one part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LogId {
    /// Kind of the log, by the layer above.
    pub kind: u8,
    /// Id of the log within its kind.
    pub id: u64,
}

/// Statement of a slot.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum SlotEntry {
    /// A leader begins: the slot's epoch is its own. Only the first entry of a slot.
    EpochBegins {
        /// Host at which clients and followers reach the leader.
        host: String,
        /// Port at this host.
        port: u16,
    },
    /// Whole records of a log.
    Bytes {
        /// The log.
        log: LogId,
        /// Position at which the log starts.
        start: u64,
        /// Bytes for which the log has room.
        capacity: u64,
        /// Offset of the bytes in the log.
        from: u64,
        /// The records.
        bytes: Vec<u8>,
    },
    /// A log ended at this offset.
    LogEnded {
        /// The log.
        log: LogId,
        /// Offset of its end.
        end: u64,
    },
    /// Another object stands for a log, such as a scavenged chunk.
    Object {
        /// The log for which it stands.
        log: LogId,
        /// Name of the object.
        name: String,
        /// Number of its bytes.
        bytes: u64,
        /// Checksum of its bytes.
        digest: u64,
    },
    /// A snapshot has the state after the slots up to this number.
    Snapshot {
        /// Number of the last slot in it.
        number: u64,
        /// Name of the object.
        name: String,
    },
    /// The leader lives, and had nothing to write.
    Nothing,
    /// The leader gives up its epoch: a follower takes over at once. Only the last entry of a slot.
    Resigned,
}

/// Ids in every object of a replicated log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SlotIds {
    /// Random id of the replicated log.
    pub store: [u8; 16],
    /// Random id of this object.
    pub uid: [u8; 16],
}

/// One object of the replicated log.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Slot {
    /// Ids of the log and of this slot.
    pub ids: SlotIds,
    /// Number, from 1 on.
    pub number: u64,
    /// Epoch of the leader that created it.
    pub epoch: u64,
    /// Uid of the slot before; zeros in the first slot.
    pub previous: [u8; 16],
    /// Name of the node that created it.
    pub node: String,
    /// Wall clock of this node, in microseconds since 1970; for messages only.
    pub wall_micros: u64,
    /// Statements of the slot.
    pub entries: Vec<SlotEntry>,
}

/// Name of the slot of a number.
pub fn slot_name(number: u64) -> ObjectName {
    ObjectName::new(format!("{SLOT_PREFIX}{number:0width$}", width = NUMBER_DIGITS))
        .expect("digits are a name")
}

/// Number of the slot with this name; `None` if it is no slot's.
pub fn number_of_slot(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(SLOT_PREFIX)?;
    let number = digits.parse().ok()?;
    (slot_name(number).as_str() == name).then_some(number)
}

impl SlotEntry {
    fn encode(&self, out: &mut Vec<u8>) {
        let put_log = |out: &mut Vec<u8>, log: &LogId| {
            out.push(log.kind);
            varint::put_u64(out, log.id);
        };
        match self {
            SlotEntry::EpochBegins { host, port } => {
                out.push(1);
                varint::put_bytes(out, host.as_bytes());
                varint::put_u64(out, u64::from(*port));
            }
            SlotEntry::Bytes { log, start, capacity, from, bytes } => {
                out.push(2);
                put_log(out, log);
                [*start, *capacity, *from].iter().for_each(|it| varint::put_u64(out, *it));
                varint::put_bytes(out, bytes);
            }
            SlotEntry::LogEnded { log, end } => {
                out.push(3);
                put_log(out, log);
                varint::put_u64(out, *end);
            }
            SlotEntry::Object { log, name, bytes, digest } => {
                out.push(4);
                put_log(out, log);
                varint::put_bytes(out, name.as_bytes());
                varint::put_u64(out, *bytes);
                out.extend_from_slice(&digest.to_le_bytes());
            }
            SlotEntry::Snapshot { number, name } => {
                out.push(5);
                varint::put_u64(out, *number);
                varint::put_bytes(out, name.as_bytes());
            }
            SlotEntry::Nothing => out.push(6),
            SlotEntry::Resigned => out.push(7),
        }
    }

    fn decode(decoder: &mut Decoder<'_>) -> Option<SlotEntry> {
        let text = |decoder: &mut Decoder<'_>| String::from_utf8(decoder.bytes()?.to_vec()).ok();
        let log =
            |decoder: &mut Decoder<'_>| Some(LogId { kind: decoder.u8()?, id: decoder.varint()? });
        Some(match decoder.u8()? {
            1 => SlotEntry::EpochBegins {
                host: text(decoder)?,
                port: u16::try_from(decoder.varint()?).ok()?,
            },
            2 => SlotEntry::Bytes {
                log: log(decoder)?,
                start: decoder.varint()?,
                capacity: decoder.varint()?,
                from: decoder.varint()?,
                bytes: decoder.bytes()?.to_vec(),
            },
            3 => SlotEntry::LogEnded { log: log(decoder)?, end: decoder.varint()? },
            4 => SlotEntry::Object {
                log: log(decoder)?,
                name: text(decoder)?,
                bytes: decoder.varint()?,
                digest: decoder.u64()?,
            },
            5 => SlotEntry::Snapshot { number: decoder.varint()?, name: text(decoder)? },
            6 => SlotEntry::Nothing,
            7 => SlotEntry::Resigned,
            _ => return None,
        })
    }
}

impl Slot {
    /// Whether the slot begins an epoch.
    pub fn begins_epoch(&self) -> bool {
        matches!(self.entries.first(), Some(SlotEntry::EpochBegins { .. }))
    }

    /// Returns the bytes of the object.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = FRAME.begin();
        out.extend_from_slice(&self.ids.store);
        varint::put_u64(&mut out, self.number);
        varint::put_u64(&mut out, self.epoch);
        out.extend_from_slice(&self.ids.uid);
        out.extend_from_slice(&self.previous);
        varint::put_bytes(&mut out, self.node.as_bytes());
        varint::put_u64(&mut out, self.wall_micros);
        varint::put_u64(&mut out, self.entries.len() as u64);
        self.entries.iter().for_each(|entry| entry.encode(&mut out));
        FRAME.seal(self.number, out)
    }

    /// Decodes the slot of a number of a replicated log.
    ///
    /// # Errors
    /// The reason why the bytes are not this slot.
    pub fn decode(bytes: &[u8], store: &[u8; 16], number: u64) -> Result<Slot, String> {
        let body = FRAME.open(number, bytes)?;
        let slot = Slot::decode_body(body).ok_or("the object is malformed")?;
        if slot.ids.store != *store {
            return Err("it belongs to another replicated log".into());
        }
        if slot.number != number {
            return Err(format!("it states the number {}", slot.number));
        }
        slot.check_entries()?;
        Ok(slot)
    }

    /// Returns the reason why these entries cannot be together in one slot.
    pub fn check_entries(&self) -> Result<(), String> {
        let is_begin = |entry: &SlotEntry| matches!(entry, SlotEntry::EpochBegins { .. });
        let count = self.entries.len();
        if count == 0 || count > SLOT_ENTRIES_MAX {
            return Err(format!("it has {count} entries, but must have 1 to {SLOT_ENTRIES_MAX}"));
        }
        if self.entries.iter().skip(1).any(is_begin) {
            return Err("an entry after the first one begins an epoch".into());
        }
        match self.entries[..count - 1].contains(&SlotEntry::Resigned) {
            true => Err("an entry before the last one gives up the epoch".into()),
            false => Ok(()),
        }
    }

    /// Whether the leader gives up its epoch with the slot.
    pub fn ends_epoch(&self) -> bool {
        self.entries.last() == Some(&SlotEntry::Resigned)
    }

    fn decode_body(bytes: &[u8]) -> Option<Slot> {
        let mut decoder = Decoder::new(bytes);
        let store = decoder.array()?;
        let (number, epoch) = (decoder.varint()?, decoder.varint()?);
        let (uid, previous) = (decoder.array()?, decoder.array()?);
        let node = String::from_utf8(decoder.bytes()?.to_vec()).ok()?;
        let wall_micros = decoder.varint()?;
        let count = decoder.varint_usize()?;
        if count > SLOT_ENTRIES_MAX {
            return None;
        }
        let mut entries = Vec::new();
        for _ in 0..count {
            entries.push(SlotEntry::decode(&mut decoder)?);
        }
        let ids = SlotIds { store, uid };
        let slot = Slot { ids, number, epoch, previous, node, wall_micros, entries };
        decoder.is_done().then_some(slot)
    }
}

/// Decodes the bytes with the correct ids and checksum. For fuzzing only.
pub fn fuzz(bytes: &[u8]) {
    let _ = Slot::decode(bytes, &[0; 16], 1);
    if let Some(slot) = Slot::decode_body(bytes) {
        let again = Slot::decode(&slot.encode(), &slot.ids.store, slot.number);
        assert!(again.is_err() || again == Ok(slot), "a slot changed in its bytes");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A slot with an entry of each kind.
    pub fn example() -> Slot {
        let log = LogId { kind: 1, id: 300 };
        Slot {
            ids: SlotIds { store: [7; 16], uid: [8; 16] },
            number: 12_345,
            epoch: 3,
            previous: [9; 16],
            node: "a".into(),
            wall_micros: 1_700_000_000_000_000,
            entries: vec![
                SlotEntry::EpochBegins { host: "a.example".into(), port: 2113 },
                SlotEntry::Bytes { log, start: 8, capacity: 64, from: 16, bytes: vec![1, 2, 3] },
                SlotEntry::LogEnded { log, end: 19 },
                SlotEntry::Object { log, name: "chunks/1-x".into(), bytes: 19, digest: u64::MAX },
                SlotEntry::Snapshot { number: 12_000, name: "snapshots/1-x".into() },
                SlotEntry::Nothing,
                SlotEntry::Resigned,
            ],
        }
    }

    #[test]
    fn slots_are_decoded_as_they_were_encoded() {
        let slot = example();
        assert_eq!(Slot::decode(&slot.encode(), &[7; 16], 12_345), Ok(slot));
    }

    #[test]
    fn changed_bytes_other_numbers_and_other_logs_are_refused() {
        let bytes = example().encode();
        for index in 0..bytes.len() {
            for bit in 0..8 {
                let mut changed = bytes.clone();
                changed[index] ^= 1 << bit;
                Slot::decode(&changed, &[7; 16], 12_345).expect_err("changed");
            }
            Slot::decode(&bytes[..index], &[7; 16], 12_345).expect_err("cut");
        }
        Slot::decode(&bytes, &[6; 16], 12_345).expect_err("of another log");
        Slot::decode(&bytes, &[7; 16], 12_346).expect_err("of another number");
    }

    #[test]
    fn more_entries_than_the_maximum_are_refused() {
        for (count, is_valid) in [(SLOT_ENTRIES_MAX, true), (SLOT_ENTRIES_MAX + 1, false)] {
            let slot = Slot { entries: vec![SlotEntry::Nothing; count], ..example() };
            assert_eq!(Slot::decode(&slot.encode(), &[7; 16], 12_345).is_ok(), is_valid);
        }
    }

    #[test]
    fn names_have_contiguous_numbers() {
        assert_eq!(slot_name(12_345).as_str(), "slots/00000000000000012345");
        assert_eq!(number_of_slot("slots/00000000000000012345"), Some(12_345));
        for other in ["slots/12345", "slots/", "slot/00000000000000012345", "slots/x"] {
            assert_eq!(number_of_slot(other), None, "{other}");
        }
    }
}
