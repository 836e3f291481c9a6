//! [`StoreObject`]: the object `STORE`, which says which replicated log a prefix has.
//!
//! FORMAT: `docs/formats/slots.md`.
//!
//! INVARIANT: the object never changes. So its constants are equal at all nodes, whatever their
//! releases have as defaults. What can change is in the settings of the chain.

use std::time::Duration;

use umbel_base::{Decoder, varint};
use umbel_env::{Clock, ObjectName, Objects};

use crate::chain::ChainState;
use crate::decode_error::DecodeError;
use crate::freshness::SlotTimes;
use crate::object_frame::ObjectFrame;
use crate::slot_error::SlotResult;
use crate::slot_format::SlotIds;
use crate::slot_requests::{read_whole, unreadable};
use crate::slot_settings::{SETTING_MICROS_MAX, SlotSettings};
use crate::slot_snapshot::SlotSnapshot;

const FRAME: ObjectFrame = ObjectFrame { magic: *b"UmbelSto", noun: "STORE object", offset: 3 };
/// Name of the object.
pub const STORE_OBJECT_NAME: &str = "STORE";
/// Maximum bytes of the object.
const STORE_BYTES_MAX: u64 = 4096;
/// Version of the rules that this Umbel follows as a node of a replicated log.
pub const NODE_VERSION: u64 = 1;
/// Remedy for an object that is no `STORE`.
const REMEDY: &str = "restore it, or check the prefix";

/// The object `STORE`: the id of a replicated log, and what all its nodes do alike for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StoreObject {
    /// Random id of the replicated log.
    pub store: [u8; 16],
    /// Least [`NODE_VERSION`] of a node of the log.
    pub node_version_min: u64,
    /// Age up to which a contact proves that nothing was deleted since, in microseconds.
    pub fresh_micros: u64,
    /// Largest difference between the clocks of the store's servers, in microseconds.
    pub skew_micros: u64,
    /// Time without a success after which a leader serves no reads that require one, in
    /// microseconds.
    pub lease_micros: u64,
    /// Settings before the first slot.
    pub settings: SlotSettings,
}

impl StoreObject {
    /// The object of a new log with this random id, and the usual constants.
    pub fn new(store: [u8; 16]) -> StoreObject {
        let seconds = |count: u64| count * 1_000_000;
        StoreObject {
            store,
            node_version_min: NODE_VERSION,
            fresh_micros: seconds(60),
            skew_micros: seconds(15),
            lease_micros: seconds(5),
            settings: SlotSettings::default(),
        }
    }

    /// Durations of the protocol.
    pub fn times(&self) -> SlotTimes {
        SlotTimes {
            fresh: Duration::from_micros(self.fresh_micros),
            skew: Duration::from_micros(self.skew_micros),
            keep: Duration::from_micros(self.settings.keep_micros),
        }
    }

    /// The id of the log as text, for messages.
    pub fn id_text(&self) -> String {
        format!("{:032x}", u128::from_be_bytes(self.store))
    }

    /// The snapshot with number 0, from which the log begins. Its uid is the id of the log, so that
    /// two attempts to create a log write the same object.
    pub fn first_snapshot(&self) -> SlotSnapshot {
        let ids = SlotIds { store: self.store, uid: self.store };
        let chain = ChainState { settings: self.settings, ..ChainState::default() };
        SlotSnapshot { ids, chain, state: Vec::new() }
    }

    /// Returns the reason why no replicated log has these constants.
    pub fn check(&self) -> Result<(), String> {
        if self.node_version_min == 0 {
            return Err("it states no version of its nodes".into());
        }
        for (micros, name) in
            [(self.fresh_micros, "fresh"), (self.skew_micros, "skew"), (self.lease_micros, "lease")]
        {
            if micros == 0 || micros > SETTING_MICROS_MAX {
                return Err(format!("its {name} of {micros} µs is not above 0 and up to 366 days"));
            }
        }
        self.settings.check()?;
        let (lease, fresh) = (self.lease_micros, self.fresh_micros);
        if lease > fresh {
            return Err(format!("its lease of {lease} µs is longer than its fresh of {fresh} µs"));
        }
        let (keep, least) = (self.settings.keep_micros, 4 * fresh + 16 * self.skew_micros);
        match keep >= least {
            true => Ok(()),
            false => Err(format!(
                "its keep of {keep} µs is below 4 times fresh and 16 times skew, {least} µs"
            )),
        }
    }

    /// Name of the object.
    pub fn name() -> ObjectName {
        ObjectName::new(STORE_OBJECT_NAME).expect("letters are a name")
    }

    /// Returns the bytes of the object.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = FRAME.begin();
        out.extend_from_slice(&self.store);
        for number in
            [self.node_version_min, self.fresh_micros, self.skew_micros, self.lease_micros]
        {
            varint::put_u64(&mut out, number);
        }
        let mut settings = Vec::new();
        self.settings.encode(&mut settings);
        varint::put_bytes(&mut out, &settings);
        FRAME.seal(0, out)
    }

    /// Decodes the output of [`StoreObject::encode`].
    ///
    /// # Errors
    /// The reason why this Umbel cannot be a node of the log.
    pub fn decode(bytes: &[u8]) -> Result<StoreObject, DecodeError> {
        let object = StoreObject::decode_body(FRAME.open(0, bytes)?)?;
        object.check()?;
        Ok(object)
    }

    fn decode_body(bytes: &[u8]) -> Result<StoreObject, DecodeError> {
        let mut decoder = Decoder::new(bytes);
        let malformed = DecodeError::malformed;
        let store = decoder.array().ok_or_else(malformed)?;
        let node_version_min = decoder.varint().ok_or_else(malformed)?;
        if node_version_min > NODE_VERSION {
            // Such an object may have more fields.
            return Err(DecodeError::Newer(format!("its nodes have version {node_version_min}")));
        }
        let (times, settings) = StoreObject::decode_rest(&mut decoder).ok_or_else(malformed)?;
        let settings = SlotSettings::decode(settings)?;
        let [fresh_micros, skew_micros, lease_micros] = times;
        Ok(StoreObject {
            store,
            node_version_min,
            fresh_micros,
            skew_micros,
            lease_micros,
            settings,
        })
    }

    /// Takes the three durations, and the bytes of the settings, after which nothing follows.
    fn decode_rest<'a>(decoder: &mut Decoder<'a>) -> Option<([u64; 3], &'a [u8])> {
        let times = [decoder.varint()?, decoder.varint()?, decoder.varint()?];
        let settings = decoder.bytes()?;
        decoder.is_done().then_some((times, settings))
    }

    /// Reads the object; `None` if the prefix has none.
    ///
    /// # Errors
    /// A failed request, or an object that this Umbel cannot use.
    pub fn read(objects: &dyn Objects, clock: &dyn Clock) -> SlotResult<Option<StoreObject>> {
        let name = StoreObject::name();
        let found = read_whole(objects, clock, &name, STORE_BYTES_MAX)?.value;
        found.map(|bytes| StoreObject::decode_found(objects, &bytes)).transpose()
    }

    /// Decodes the bytes that the prefix has under the name.
    pub(crate) fn decode_found(objects: &dyn Objects, bytes: &[u8]) -> SlotResult<StoreObject> {
        StoreObject::decode(bytes)
            .map_err(|error| unreadable(objects, &StoreObject::name(), error, REMEDY))
    }
}

/// Decodes the bytes with the correct checksum. For fuzzing only.
pub fn fuzz(bytes: &[u8]) {
    let _ = StoreObject::decode(bytes);
    if let Ok(object) = StoreObject::decode_body(bytes) {
        let encoded = object.encode();
        assert_eq!(FRAME.open(0, &encoded), Ok(bytes), "a STORE object has other bytes");
        let again = StoreObject::decode(&encoded);
        assert_eq!(again.is_ok(), object.check().is_ok(), "readers and writers differ");
        assert!(again.is_err() || again == Ok(object), "a STORE object changed in its bytes");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(object: StoreObject) -> Result<StoreObject, DecodeError> {
        StoreObject::decode(&object.encode())
    }

    #[test]
    fn constants_that_no_log_has_are_refused() {
        let good = StoreObject::new([7; 16]);
        assert_eq!(round_trip(good), Ok(good));
        assert_eq!(good.times(), SlotTimes::default());
        let keep = |keep_micros| SlotSettings { keep_micros, ..good.settings };
        let least = 4 * good.fresh_micros + 16 * good.skew_micros;
        let shortest = StoreObject { settings: keep(least), ..good };
        assert_eq!(round_trip(shortest), Ok(shortest));
        for bad in [
            StoreObject { settings: keep(least - 1), ..good },
            StoreObject { settings: keep(0), ..good },
            StoreObject { node_version_min: 0, ..good },
            StoreObject { fresh_micros: 0, ..good },
            StoreObject { fresh_micros: good.lease_micros - 1, ..good },
            StoreObject { skew_micros: 0, ..good },
            StoreObject { skew_micros: SETTING_MICROS_MAX + 1, ..good },
            StoreObject { lease_micros: 0, ..good },
            StoreObject { lease_micros: u64::MAX, ..good },
        ] {
            assert!(matches!(round_trip(bad), Err(DecodeError::Wrong(_))), "{bad:?}");
        }
    }

    #[test]
    fn logs_of_newer_nodes_are_named() {
        let newer = StoreObject { node_version_min: NODE_VERSION + 1, ..StoreObject::new([7; 16]) };
        let error = round_trip(newer).expect_err("a later version");
        assert_eq!(
            error.to_string(),
            "a newer Umbel wrote it (its nodes have version 2); use that Umbel"
        );
    }

    #[test]
    fn first_snapshot_is_that_of_an_empty_log() {
        let object = StoreObject::new([7; 16]);
        let snapshot = object.first_snapshot();
        assert_eq!(snapshot.name(), crate::snapshot_name(0, &object.store));
        let again = SlotSnapshot::decode(&snapshot.encode(), &object.store, 0);
        assert_eq!(again, Ok(snapshot));
    }
}
