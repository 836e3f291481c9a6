//! [`SlotEntry`]: one statement of a slot, and its bytes.
//!
//! FORMAT: `docs/formats/slots.md`. Each entry begins with its kind and its length, so that a
//! reader passes over a kind that a newer Umbel added, and names it.

use umbel_base::{Decoder, varint};
use umbel_env::ObjectName;

use crate::decode_error::DecodeError;
use crate::object_frame::NUMBER_LIMIT;
use crate::slot_settings::SlotSettings;

/// Maximum bytes of the name of a node or of a host.
pub const HOST_BYTES_MAX: usize = 255;

mod kind {
    pub const EPOCH_BEGINS: u8 = 1;
    pub const LOG_BEGINS: u8 = 2;
    pub const BYTES: u8 = 3;
    pub const LOG_ENDED: u8 = 4;
    pub const REPLACEMENT: u8 = 5;
    pub const RECORDS: u8 = 6;
    pub const CLOCK_EPOCH: u8 = 7;
    pub const SETTINGS: u8 = 8;
    pub const UPLOAD_BEGINS: u8 = 9;
    pub const SNAPSHOT: u8 = 10;
    pub const NOTHING: u8 = 11;
    pub const RESIGNED: u8 = 12;
}

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
    /// A log begins, such as a chunk of the event log.
    LogBegins {
        /// The log, whose id no other log ever had.
        log: LogId,
        /// Position at which the log starts.
        start: u64,
        /// Bytes for which the log has room.
        capacity: u64,
        /// Random number of the log, equal at all nodes.
        key: u64,
    },
    /// Whole records of a log, without its header and its end record.
    Bytes {
        /// The log.
        log: LogId,
        /// Offset of the bytes in the log.
        from: u64,
        /// The records.
        bytes: Vec<u8>,
    },
    /// A log ended. The end record follows from the records and from `mark`.
    LogEnded {
        /// The log.
        log: LogId,
        /// Offset after its last record.
        end: u64,
        /// Durable mark in the end record, which only the writer of the log knows.
        mark: u32,
        /// Running checksum over all records, which each node compares with its own.
        running: u64,
    },
    /// An object has the bytes of a log.
    Object {
        /// The log.
        log: LogId,
        /// Name of the object.
        name: ObjectName,
        /// Number of its bytes.
        bytes: u64,
        /// Checksum of its bytes.
        checksum: u64,
        /// Meaning of its bytes.
        content: ObjectContent,
    },
    /// A clock epoch of the event log begins.
    ClockEpochBegins {
        /// Events from this position on belong to the epoch or to later ones.
        position: u64,
        /// The wall clock at its beginning, in units of 100 ns since 1970.
        start: u64,
    },
    /// These settings hold from this slot on.
    Settings(SlotSettings),
    /// The leader uploads objects with this uid in their names. A collection spares them.
    UploadBegins {
        /// Random id of the upload.
        uid: [u8; 16],
    },
    /// A snapshot has the state after the slots up to this number.
    Snapshot {
        /// Number of the last slot in it.
        number: u64,
        /// Random id of the snapshot, which is in its name.
        uid: [u8; 16],
    },
    /// The leader lives, and had nothing to write.
    Nothing,
    /// The leader gives up its epoch: a follower takes over at once. Only the last entry of a slot.
    Resigned,
}

/// Meaning of the bytes of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ObjectContent {
    /// The object is the new file of the whole log, such as a scavenged chunk.
    Replacement {
        /// Version of the file, above that of its source.
        version: u64,
        /// Version of the file that it was made of; 0 is the file with the bytes of slots.
        source_version: u64,
        /// Position of the first event, as a distance from the log's start; 0 without events.
        first_event: u64,
        /// Position of the last event, as a distance from the log's start; 0 without events.
        last_event: u64,
    },
    /// The object is a range of the log, such as a record that is too long for a slot.
    Records {
        /// Offset of the range in the log. Its length is that of the object.
        from: u64,
    },
}

impl SlotEntry {
    /// Appends kind, length and body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut head = Vec::new();
        let (kind, tail) = self.encode_body(&mut head);
        out.push(kind);
        varint::put_u64(out, (head.len() + tail.len()) as u64);
        out.extend_from_slice(&head);
        out.extend_from_slice(tail);
    }

    /// Appends the body except its last part. Returns the kind, and the last part, which can be
    /// long.
    fn encode_body<'a>(&'a self, out: &mut Vec<u8>) -> (u8, &'a [u8]) {
        let kind = match self {
            SlotEntry::EpochBegins { host, port } => {
                varint::put_u64(out, u64::from(*port));
                return (kind::EPOCH_BEGINS, host.as_bytes());
            }
            SlotEntry::LogBegins { log, start, capacity, key } => {
                log.encode(out);
                put_numbers(out, &[*start, *capacity]);
                out.extend_from_slice(&key.to_le_bytes());
                kind::LOG_BEGINS
            }
            SlotEntry::Bytes { log, from, bytes } => {
                log.encode(out);
                varint::put_u64(out, *from);
                return (kind::BYTES, bytes);
            }
            SlotEntry::LogEnded { log, end, mark, running } => {
                log.encode(out);
                put_numbers(out, &[*end, u64::from(*mark)]);
                out.extend_from_slice(&running.to_le_bytes());
                kind::LOG_ENDED
            }
            SlotEntry::Object { log, name, bytes, checksum, content } => {
                log.encode(out);
                varint::put_u64(out, *bytes);
                out.extend_from_slice(&checksum.to_le_bytes());
                return (content.encode(out), name.as_str().as_bytes());
            }
            SlotEntry::ClockEpochBegins { position, start } => {
                put_numbers(out, &[*position, *start]);
                kind::CLOCK_EPOCH
            }
            SlotEntry::Settings(settings) => {
                settings.encode(out);
                kind::SETTINGS
            }
            SlotEntry::UploadBegins { uid } => return (kind::UPLOAD_BEGINS, uid),
            SlotEntry::Snapshot { number, uid } => {
                varint::put_u64(out, *number);
                return (kind::SNAPSHOT, uid);
            }
            SlotEntry::Nothing => kind::NOTHING,
            SlotEntry::Resigned => kind::RESIGNED,
        };
        (kind, &[])
    }

    /// Takes kind and body of the next entry; `None` if the bytes are malformed.
    pub fn split<'a>(decoder: &mut Decoder<'a>) -> Option<(u8, &'a [u8])> {
        Some((decoder.u8()?, decoder.bytes()?))
    }

    /// Decodes an entry of this kind.
    pub fn decode(kind: u8, body: &[u8]) -> Result<SlotEntry, DecodeError> {
        if kind == kind::SETTINGS {
            return SlotSettings::decode(body).map(SlotEntry::Settings);
        }
        if kind > kind::RESIGNED {
            return Err(DecodeError::Newer(format!("entry of kind {kind}")));
        }
        let mut decoder = Decoder::new(body);
        SlotEntry::decode_body(kind, &mut decoder)
            .filter(|_| decoder.is_done())
            .ok_or_else(DecodeError::malformed)
    }

    fn decode_body(kind: u8, decoder: &mut Decoder<'_>) -> Option<SlotEntry> {
        Some(match kind {
            kind::EPOCH_BEGINS => SlotEntry::EpochBegins {
                port: u16::try_from(decoder.varint()?).ok()?,
                host: take_text(decoder)?,
            },
            kind::LOG_BEGINS => SlotEntry::LogBegins {
                log: LogId::decode(decoder)?,
                start: decoder.varint()?,
                capacity: decoder.varint()?,
                key: decoder.u64()?,
            },
            kind::BYTES => SlotEntry::Bytes {
                log: LogId::decode(decoder)?,
                from: decoder.varint()?,
                bytes: decoder.take(decoder.remaining())?.to_vec(),
            },
            kind::LOG_ENDED => SlotEntry::LogEnded {
                log: LogId::decode(decoder)?,
                end: decoder.varint()?,
                mark: u32::try_from(decoder.varint()?).ok()?,
                running: decoder.u64()?,
            },
            kind::REPLACEMENT | kind::RECORDS => SlotEntry::Object {
                log: LogId::decode(decoder)?,
                bytes: decoder.varint()?,
                checksum: decoder.u64()?,
                content: ObjectContent::decode(kind, decoder)?,
                name: ObjectName::new(take_text(decoder)?).ok()?,
            },
            kind::CLOCK_EPOCH => SlotEntry::ClockEpochBegins {
                position: decoder.varint()?,
                start: decoder.varint()?,
            },
            kind::UPLOAD_BEGINS => SlotEntry::UploadBegins { uid: decoder.array()? },
            kind::SNAPSHOT => {
                SlotEntry::Snapshot { number: decoder.varint()?, uid: decoder.array()? }
            }
            kind::NOTHING => SlotEntry::Nothing,
            kind::RESIGNED => SlotEntry::Resigned,
            _ => return None,
        })
    }

    /// Returns the reason why no slot can have this entry.
    pub fn check(&self) -> Result<(), String> {
        let fits = |from: u64, bytes: u64| from.checked_add(bytes).is_some();
        let is_valid = match self {
            SlotEntry::EpochBegins { host, .. } => host.len() <= HOST_BYTES_MAX,
            SlotEntry::LogBegins { start, capacity, .. } => {
                *capacity > 0 && fits(*start, *capacity)
            }
            SlotEntry::Bytes { from, bytes, .. } => {
                !bytes.is_empty() && fits(*from, bytes.len() as u64)
            }
            SlotEntry::Object { bytes, content, .. } => content.is_valid(*bytes),
            SlotEntry::Settings(settings) => return settings.check(),
            SlotEntry::Snapshot { number, .. } => *number < NUMBER_LIMIT,
            SlotEntry::LogEnded { .. }
            | SlotEntry::ClockEpochBegins { .. }
            | SlotEntry::UploadBegins { .. }
            | SlotEntry::Nothing
            | SlotEntry::Resigned => true,
        };
        let noun = self.noun();
        is_valid
            .then_some(())
            .ok_or_else(|| format!("its {noun} has an impossible number or length"))
    }

    fn noun(&self) -> &'static str {
        match self {
            SlotEntry::EpochBegins { .. } => "beginning of an epoch",
            SlotEntry::LogBegins { .. } => "beginning of a log",
            SlotEntry::Bytes { .. } => "records",
            SlotEntry::LogEnded { .. } => "end of a log",
            SlotEntry::Object { .. } => "object",
            SlotEntry::ClockEpochBegins { .. } => "clock epoch",
            SlotEntry::Settings(_) => "settings",
            SlotEntry::UploadBegins { .. } => "upload",
            SlotEntry::Snapshot { .. } => "snapshot",
            SlotEntry::Nothing => "heartbeat",
            SlotEntry::Resigned => "resignation",
        }
    }
}

impl LogId {
    fn encode(self, out: &mut Vec<u8>) {
        out.push(self.kind);
        varint::put_u64(out, self.id);
    }

    fn decode(decoder: &mut Decoder<'_>) -> Option<LogId> {
        Some(LogId { kind: decoder.u8()?, id: decoder.varint()? })
    }
}

impl ObjectContent {
    /// Appends the fields. Returns the kind of the entry.
    fn encode(&self, out: &mut Vec<u8>) -> u8 {
        match *self {
            ObjectContent::Replacement { version, source_version, first_event, last_event } => {
                put_numbers(out, &[version, source_version, first_event, last_event]);
                kind::REPLACEMENT
            }
            ObjectContent::Records { from } => {
                varint::put_u64(out, from);
                kind::RECORDS
            }
        }
    }

    fn decode(kind: u8, decoder: &mut Decoder<'_>) -> Option<ObjectContent> {
        Some(match kind {
            kind::REPLACEMENT => ObjectContent::Replacement {
                version: decoder.varint()?,
                source_version: decoder.varint()?,
                first_event: decoder.varint()?,
                last_event: decoder.varint()?,
            },
            _ => ObjectContent::Records { from: decoder.varint()? },
        })
    }

    /// Whether an object with this number of bytes can have this content.
    fn is_valid(&self, bytes: u64) -> bool {
        match *self {
            ObjectContent::Replacement { version, source_version, first_event, last_event } => {
                source_version < version && first_event <= last_event
            }
            ObjectContent::Records { from } => bytes > 0 && from.checked_add(bytes).is_some(),
        }
    }
}

fn put_numbers(out: &mut Vec<u8>, numbers: &[u64]) {
    numbers.iter().for_each(|number| varint::put_u64(out, *number));
}

/// Takes the rest of an entry as a text.
fn take_text(decoder: &mut Decoder<'_>) -> Option<String> {
    let rest = decoder.take(decoder.remaining())?;
    str::from_utf8(rest).ok().map(str::to_owned)
}

/// Decodes the bytes as a kind and a body. For fuzzing only.
pub fn fuzz(bytes: &[u8]) {
    let Some((kind, body)) = bytes.split_first() else { return };
    if let Ok(entry) = SlotEntry::decode(*kind, body) {
        let mut again = Vec::new();
        entry.encode(&mut again);
        let split = SlotEntry::split(&mut Decoder::new(&again));
        assert_eq!(split, Some((*kind, body)), "an entry has other bytes");
        let _ = entry.check();
    }
}
