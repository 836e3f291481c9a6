//! [`SlotSnapshot`]: the state after the slots up to a number, from which a node can begin.
//!
//! FORMAT: `docs/formats/slots.md`.

use umbel_base::{Decoder, varint};
use umbel_env::ObjectName;

use crate::chain::ChainEnd;
use crate::object_frame::ObjectFrame;
use crate::slot_format::SlotIds;

const FRAME: ObjectFrame = ObjectFrame { magic: *b"UmbelSnp", noun: "snapshot", offset: 1 };
/// Prefix of the names of snapshots.
pub const SNAPSHOT_PREFIX: &str = "snapshots/";
/// Maximum bytes of a snapshot.
pub const SNAPSHOT_BYTES_MAX: u64 = 256 << 20;

/// The state after the slots up to a number: a function of these slots alone.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SlotSnapshot {
    /// Ids of the log and of this object.
    pub ids: SlotIds,
    /// The last slot in it.
    pub end: ChainEnd,
    /// The state, in the format of the layer above.
    pub state: Vec<u8>,
}

/// The number and the uid in the name of a snapshot; `None` for other names.
pub fn parse_snapshot_name(name: &str) -> Option<u64> {
    let (number, uid) = name.strip_prefix(SNAPSHOT_PREFIX)?.split_once('-')?;
    let is_hex = uid.len() == 32 && uid.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number: u64 = number.parse().ok()?;
    (is_hex && name == format!("{SNAPSHOT_PREFIX}{number:020}-{uid}")).then_some(number)
}

impl SlotSnapshot {
    /// Name of the object.
    pub fn name(&self) -> ObjectName {
        let uid = u128::from_be_bytes(self.ids.uid);
        ObjectName::new(format!("{SNAPSHOT_PREFIX}{:020}-{uid:032x}", self.end.number))
            .expect("digits are a name")
    }

    /// Returns the bytes of the object.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = FRAME.begin();
        out.extend_from_slice(&self.ids.store);
        out.extend_from_slice(&self.ids.uid);
        varint::put_u64(&mut out, self.end.number);
        varint::put_u64(&mut out, self.end.epoch);
        out.extend_from_slice(&self.end.uid);
        varint::put_bytes(&mut out, &self.state);
        FRAME.seal(self.end.number, out)
    }

    /// Decodes a snapshot of a replicated log.
    ///
    /// # Errors
    /// The reason why the bytes are not a snapshot with this number.
    pub fn decode(bytes: &[u8], store: &[u8; 16], number: u64) -> Result<SlotSnapshot, String> {
        let body = FRAME.open(number, bytes)?;
        let snapshot = SlotSnapshot::decode_body(body).ok_or("the object is malformed")?;
        if snapshot.ids.store != *store {
            return Err("it belongs to another replicated log".into());
        }
        match snapshot.end.number == number {
            true => Ok(snapshot),
            false => Err(format!("it states the number {}", snapshot.end.number)),
        }
    }

    fn decode_body(bytes: &[u8]) -> Option<SlotSnapshot> {
        let mut decoder = Decoder::new(bytes);
        let ids = SlotIds { store: decoder.array()?, uid: decoder.array()? };
        let (number, epoch) = (decoder.varint()?, decoder.varint()?);
        let end = ChainEnd { number, uid: decoder.array()?, epoch };
        let state = decoder.bytes()?.to_vec();
        decoder.is_done().then_some(SlotSnapshot { ids, end, state })
    }
}

/// Decodes the bytes with the correct ids and checksum. For fuzzing only.
pub fn fuzz(bytes: &[u8]) {
    let _ = SlotSnapshot::decode(bytes, &[0; 16], 1);
    if let Some(snapshot) = SlotSnapshot::decode_body(bytes) {
        let again =
            SlotSnapshot::decode(&snapshot.encode(), &snapshot.ids.store, snapshot.end.number);
        assert_eq!(again, Ok(snapshot), "a snapshot changed in its bytes");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> SlotSnapshot {
        SlotSnapshot {
            ids: SlotIds { store: [7; 16], uid: [8; 16] },
            end: ChainEnd { number: 300, uid: [9; 16], epoch: 2 },
            state: vec![1, 2, 3],
        }
    }

    #[test]
    fn snapshots_are_decoded_as_they_were_encoded() {
        let snapshot = example();
        let bytes = snapshot.encode();
        assert_eq!(SlotSnapshot::decode(&bytes, &[7; 16], 300), Ok(snapshot));
        for index in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[index] ^= 1;
            SlotSnapshot::decode(&changed, &[7; 16], 300).expect_err("changed");
            SlotSnapshot::decode(&bytes[..index], &[7; 16], 300).expect_err("cut");
        }
        SlotSnapshot::decode(&bytes, &[6; 16], 300).expect_err("of another log");
        SlotSnapshot::decode(&bytes, &[7; 16], 301).expect_err("of another number");
    }

    #[test]
    fn names_have_number_and_uid() {
        let name = example().name();
        assert_eq!(parse_snapshot_name(name.as_str()), Some(300));
        for other in ["snapshots/300-08", "snapshots/", "slots/1", "snapshots/x-y"] {
            assert_eq!(parse_snapshot_name(other), None, "{other}");
        }
    }
}
