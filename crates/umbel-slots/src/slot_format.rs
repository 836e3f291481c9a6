//! [`Slot`]: one object of the replicated log, and its bytes.
//!
//! FORMAT: `docs/formats/slots.md`.

use umbel_base::{Decoder, varint};
use umbel_env::ObjectName;

use crate::decode_error::DecodeError;
use crate::object_frame::{NUMBER_LIMIT, ObjectFrame};
use crate::slot_entry::{HOST_BYTES_MAX, SlotEntry};

const FRAME: ObjectFrame = ObjectFrame { magic: *b"UmbelSlt", noun: "slot", offset: 0 };
/// Maximum number of entries of a slot. It bounds the memory of a decoded slot.
pub const SLOT_ENTRIES_MAX: usize = 4096;
/// Prefix of the names of slots.
pub const SLOT_PREFIX: &str = "slots/";
/// Digits of a number in a name.
const NUMBER_DIGITS: usize = 20;

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
    let number = digits.parse().ok().filter(|number| *number < NUMBER_LIMIT)?;
    (slot_name(number).as_str() == name).then_some(number)
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
    pub fn decode(bytes: &[u8], store: &[u8; 16], number: u64) -> Result<Slot, DecodeError> {
        let body = FRAME.open(number, bytes)?;
        let slot = Slot::decode_body(body)?;
        if slot.ids.store != *store {
            return Err(DecodeError::Wrong("it belongs to another replicated log".into()));
        }
        if slot.number != number {
            return Err(DecodeError::Wrong(format!("it states the number {}", slot.number)));
        }
        slot.check_entries()?;
        Ok(slot)
    }

    /// Returns the reason why readers refuse a slot with these numbers and entries.
    pub fn check_entries(&self) -> Result<(), String> {
        let is_begin = |entry: &SlotEntry| matches!(entry, SlotEntry::EpochBegins { .. });
        let count = self.entries.len();
        if count == 0 || count > SLOT_ENTRIES_MAX {
            return Err(format!("it has {count} entries, but must have 1 to {SLOT_ENTRIES_MAX}"));
        }
        if self.entries.iter().skip(1).any(is_begin) {
            return Err("an entry after the first one begins an epoch".into());
        }
        if self.entries[..count - 1].contains(&SlotEntry::Resigned) {
            return Err("an entry before the last one gives up the epoch".into());
        }
        if self.node.len() > HOST_BYTES_MAX {
            return Err(format!("the name of its node has more than {HOST_BYTES_MAX} bytes"));
        }
        if self.number == 0 || self.number.max(self.epoch) >= NUMBER_LIMIT {
            return Err(format!(
                "its number {} or epoch {} is impossible",
                self.number, self.epoch
            ));
        }
        self.entries.iter().try_for_each(SlotEntry::check)
    }

    /// Whether the leader gives up its epoch with the slot.
    pub fn ends_epoch(&self) -> bool {
        self.entries.last() == Some(&SlotEntry::Resigned)
    }

    fn decode_body(bytes: &[u8]) -> Result<Slot, DecodeError> {
        let mut decoder = Decoder::new(bytes);
        let (mut slot, count) =
            Slot::decode_head(&mut decoder).ok_or_else(DecodeError::malformed)?;
        let mut error = None;
        for _ in 0..count {
            let (kind, body) = SlotEntry::split(&mut decoder).ok_or_else(DecodeError::malformed)?;
            match SlotEntry::decode(kind, body) {
                Ok(entry) => slot.entries.push(entry),
                // What a newer Umbel added explains all other errors.
                Err(found) => match error {
                    Some(DecodeError::Newer(_)) => {}
                    Some(_) if matches!(found, DecodeError::Wrong(_)) => {}
                    _ => error = Some(found),
                },
            }
        }
        match error {
            _ if !decoder.is_done() => Err(DecodeError::malformed()),
            Some(error) => Err(error),
            None => Ok(slot),
        }
    }

    /// Takes everything before the entries, and their number.
    fn decode_head(decoder: &mut Decoder<'_>) -> Option<(Slot, usize)> {
        let store = decoder.array()?;
        let (number, epoch) = (decoder.varint()?, decoder.varint()?);
        let (uid, previous) = (decoder.array()?, decoder.array()?);
        let node = str::from_utf8(decoder.bytes()?).ok()?.to_owned();
        let wall_micros = decoder.varint()?;
        let count = decoder.varint_usize().filter(|count| *count <= SLOT_ENTRIES_MAX)?;
        let (ids, entries) = (SlotIds { store, uid }, Vec::new());
        Some((Slot { ids, number, epoch, previous, node, wall_micros, entries }, count))
    }
}

/// Decodes the bytes with the correct ids and checksum. For fuzzing only.
pub fn fuzz(bytes: &[u8]) {
    let _ = Slot::decode(bytes, &[0; 16], 1);
    if let Ok(slot) = Slot::decode_body(bytes) {
        let object = slot.encode();
        assert_eq!(FRAME.open(slot.number, &object), Ok(bytes), "a slot has other bytes");
        let again = Slot::decode(&object, &slot.ids.store, slot.number);
        assert_eq!(again.is_ok(), slot.check_entries().is_ok(), "readers and writers differ");
        assert!(again.is_err() || again == Ok(slot), "a slot changed in its bytes");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Slot {
        let entries = vec![SlotEntry::EpochBegins { host: "a.example".into(), port: 2113 }];
        Slot {
            ids: SlotIds { store: [7; 16], uid: [8; 16] },
            number: 12_345,
            epoch: 3,
            previous: [9; 16],
            node: "a".into(),
            wall_micros: 1_700_000_000_000_000,
            entries,
        }
    }

    /// Decodes a slot with these entries, each with its kind and its body.
    fn decode_raw(entries: &[(u8, &str)]) -> Result<Slot, DecodeError> {
        let slot = example();
        let mut out = slot.encode();
        let mut entry = Vec::new();
        slot.entries[0].encode(&mut entry);
        // Checksum, entry and count.
        out.truncate(out.len() - 8 - entry.len() - 1);
        varint::put_u64(&mut out, entries.len() as u64);
        for (kind, body) in entries {
            out.push(*kind);
            varint::put_bytes(&mut out, body.as_bytes());
        }
        Slot::decode(&FRAME.seal(slot.number, out), &slot.ids.store, slot.number)
    }

    /// Entries of unknown kinds, wherever they are, say that a newer Umbel wrote the slot. The
    /// known ones can have other fields then.
    #[test]
    fn entries_of_a_newer_umbel_are_named() {
        decode_raw(&[(11, ""), (12, "")]).expect("known kinds");
        let newer = Err(DecodeError::Newer("entry of kind 13".into()));
        for entries in [
            vec![(13, "anything")],
            vec![(13, ""), (11, "")],
            vec![(11, ""), (13, "x"), (200, "")],
            vec![(11, "a new field"), (13, "x")],
            vec![(13, "x"), (11, "a new field")],
        ] {
            assert_eq!(decode_raw(&entries), newer, "{entries:?}");
        }
        for entry in [(11, "a new field"), (0, "")] {
            assert_eq!(decode_raw(&[entry]), Err(DecodeError::malformed()));
        }
    }

    #[test]
    fn more_entries_than_the_maximum_are_refused() {
        for (count, is_valid) in [(SLOT_ENTRIES_MAX, true), (SLOT_ENTRIES_MAX + 1, false)] {
            let slot = Slot { entries: vec![SlotEntry::Nothing; count], ..example() };
            assert_eq!(Slot::decode(&slot.encode(), &[7; 16], 12_345).is_ok(), is_valid);
        }
    }

    #[test]
    fn impossible_numbers_and_long_names_are_refused() {
        let longest = "n".repeat(HOST_BYTES_MAX);
        Slot { node: longest.clone(), ..example() }.check_entries().expect("the longest name");
        let host = SlotEntry::EpochBegins { host: longest.clone() + "n", port: 1 };
        for bad in [
            Slot { node: longest + "n", ..example() },
            Slot { number: 0, ..example() },
            Slot { number: NUMBER_LIMIT, ..example() },
            Slot { epoch: NUMBER_LIMIT, ..example() },
            Slot { entries: vec![host], ..example() },
            Slot { entries: Vec::new(), ..example() },
        ] {
            Slot::decode(&bad.encode(), &[7; 16], bad.number).expect_err("readers refuse it");
        }
    }

    #[test]
    fn names_have_contiguous_numbers() {
        assert_eq!(slot_name(12_345).as_str(), "slots/00000000000000012345");
        assert_eq!(number_of_slot("slots/00000000000000012345"), Some(12_345));
        assert_eq!(number_of_slot("slots/09223372036854775807"), Some(NUMBER_LIMIT - 1));
        for other in [
            "slots/12345",
            "slots/",
            "slot/00000000000000012345",
            "slots/x",
            "slots/09223372036854775808",
        ] {
            assert_eq!(number_of_slot(other), None, "{other}");
        }
    }
}
