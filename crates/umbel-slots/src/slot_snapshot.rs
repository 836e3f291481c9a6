//! [`SlotSnapshot`]: the state after the slots up to a number, from which a node can begin.
//!
//! FORMAT: `docs/formats/slots.md`.

use umbel_base::{Decoder, varint};
use umbel_env::ObjectName;

use crate::chain::ChainState;
use crate::decode_error::DecodeError;
use crate::object_frame::{NUMBER_LIMIT, ObjectFrame};
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
    /// The chain up to the last slot in it.
    pub chain: ChainState,
    /// The state, in the format of the layer above.
    pub state: Vec<u8>,
}

/// Name of the snapshot with this number and uid.
pub fn snapshot_name(number: u64, uid: &[u8; 16]) -> ObjectName {
    let uid = u128::from_be_bytes(*uid);
    ObjectName::new(format!("{SNAPSHOT_PREFIX}{number:020}-{uid:032x}")).expect("digits are a name")
}

/// The number in the name of a snapshot; `None` for other names.
pub fn parse_snapshot_name(name: &str) -> Option<u64> {
    let (number, uid) = name.strip_prefix(SNAPSHOT_PREFIX)?.split_once('-')?;
    let is_hex = uid.len() == 32 && uid.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = number.parse().ok().filter(|number| *number < NUMBER_LIMIT)?;
    (is_hex && name == format!("{SNAPSHOT_PREFIX}{number:020}-{uid}")).then_some(number)
}

impl SlotSnapshot {
    /// Name of the object.
    pub fn name(&self) -> ObjectName {
        snapshot_name(self.chain.end.number, &self.ids.uid)
    }

    /// Returns the bytes of the object.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = FRAME.begin();
        out.extend_from_slice(&self.ids.store);
        out.extend_from_slice(&self.ids.uid);
        self.chain.encode(&mut out);
        varint::put_bytes(&mut out, &self.state);
        FRAME.seal(self.chain.end.number, out)
    }

    /// Decodes a snapshot of a replicated log.
    ///
    /// # Errors
    /// The reason why the bytes are not a snapshot with this number.
    pub fn decode(
        bytes: &[u8],
        store: &[u8; 16],
        number: u64,
    ) -> Result<SlotSnapshot, DecodeError> {
        let body = FRAME.open(number, bytes)?;
        let snapshot = SlotSnapshot::decode_body(body)?;
        if snapshot.ids.store != *store {
            return Err(DecodeError::Wrong("it belongs to another replicated log".into()));
        }
        match snapshot.chain.end.number == number {
            true => Ok(snapshot),
            false => {
                let stated = snapshot.chain.end.number;
                Err(DecodeError::Wrong(format!("it states the number {stated}")))
            }
        }
    }

    fn decode_body(bytes: &[u8]) -> Result<SlotSnapshot, DecodeError> {
        let mut decoder = Decoder::new(bytes);
        let malformed = DecodeError::malformed;
        let store = decoder.array().ok_or_else(malformed)?;
        let uid = decoder.array().ok_or_else(malformed)?;
        let chain = ChainState::decode(&mut decoder)?;
        let state = decoder.bytes().filter(|_| decoder.is_done()).ok_or_else(malformed)?;
        Ok(SlotSnapshot { ids: SlotIds { store, uid }, chain, state: state.to_vec() })
    }
}

/// Decodes the bytes with the correct ids and checksum. For fuzzing only.
pub fn fuzz(bytes: &[u8]) {
    let _ = SlotSnapshot::decode(bytes, &[0; 16], 1);
    if let Ok(snapshot) = SlotSnapshot::decode_body(bytes) {
        let (number, object) = (snapshot.chain.end.number, snapshot.encode());
        assert_eq!(FRAME.open(number, &object), Ok(bytes), "a snapshot has other bytes");
        assert_eq!(snapshot.chain.check_continues(&snapshot.chain), Ok(()));
        let again = SlotSnapshot::decode(&object, &snapshot.ids.store, number);
        assert_eq!(again, Ok(snapshot), "a snapshot changed in its bytes");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_number_and_uid() {
        let name = snapshot_name(300, &[8; 16]);
        assert_eq!(name.as_str(), format!("snapshots/00000000000000000300-{}", "08".repeat(16)));
        assert_eq!(parse_snapshot_name(name.as_str()), Some(300));
        let huge = snapshot_name(NUMBER_LIMIT, &[8; 16]);
        for other in [huge.as_str(), "snapshots/300-08", "snapshots/", "slots/1", "snapshots/x-y"] {
            assert_eq!(parse_snapshot_name(other), None, "{other}");
        }
    }
}
