//! Manifest edits: their encoding, and the state that results from a sequence of them.
//!
//! FORMAT: `docs/formats/manifest.md`. A record of the manifest is a sequence of edits, which are
//! applied together or not at all.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use umbel_base::{Decoder, Error, limits, varint};
use umbel_env::Entropy;
use umbel_log::Seal;
use umbel_table::TableMeta;

use crate::fs::filenames;
use crate::options::{ExistenceSize, KeyspaceOptions};
use crate::version::feature_bits;
use crate::version::read_stats::ReadCounts;
use crate::version::sequence_lineage::{OpenRecord, SequenceLineage};
use crate::version::store_identity::Identity;

/// Known state of a WAL segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogState {
    /// The segment can still grow, so recovery accepts a torn tail.
    Open,
    /// The segment was ended and must be complete.
    Sealed(Seal),
    /// Recovery read the segment up to this offset; later bytes are ignored.
    Recovered(u64),
}

/// One change of what the store consists of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Edit {
    /// Identity of the store. It is the first edit of every manifest, and occurs nowhere else.
    Identity(Identity),
    /// Every file id below this one is taken.
    NextFileId(u64),
    /// Sequence numbers up to this one are taken.
    LastSequence(u64),
    /// A keyspace exists, or its options changed.
    Keyspace {
        /// Id of the keyspace, which is never reused.
        id: u32,
        /// Name of the keyspace.
        name: String,
        /// Options of the keyspace.
        options: KeyspaceOptions,
    },
    /// A keyspace was dropped with everything in it.
    DropKeyspace(u32),
    /// A table was added to a level; at level 0 as the newest.
    AddTable {
        /// Id of the table's keyspace.
        keyspace: u32,
        /// Level of the table.
        level: usize,
        /// Metadata of the table.
        meta: Arc<TableMeta>,
    },
    /// A table was removed from a level.
    RemoveTable {
        /// Id of the table's keyspace.
        keyspace: u32,
        /// Level of the table.
        level: usize,
        /// Id of the table.
        id: u64,
    },
    /// All writes of the keyspace up to this sequence number are in tables.
    FlushedThrough {
        /// Id of the keyspace.
        keyspace: u32,
        /// Sequence number up to which all writes are in tables.
        sequence: u64,
    },
    /// Marker that the caller needs again after a crash.
    Marker {
        /// Id of the keyspace.
        keyspace: u32,
        /// The bytes that the caller set as marker.
        marker: Vec<u8>,
    },
    /// A WAL segment exists, or its state changed.
    Log {
        /// Id of the segment.
        id: u64,
        /// State of the segment.
        state: LogState,
    },
    /// A WAL segment is no longer needed.
    DropLog(u64),
    /// Counts of recent reads of a keyspace's levels.
    ReadStats(u32, Arc<ReadCounts>),
    /// Instance id of this copy of the store; of several such edits the last one counts.
    Instance([u8; 16]),
    /// A writer opened the store.
    OpenRecord(OpenRecord),
}

const IDENTITY: u8 = 1;
const NEXT_FILE_ID: u8 = 2;
const LAST_SEQUENCE: u8 = 3;
const KEYSPACE: u8 = 4;
const DROP_KEYSPACE: u8 = 5;
const ADD_TABLE: u8 = 6;
const REMOVE_TABLE: u8 = 7;
const FLUSHED_THROUGH: u8 = 8;
const MARKER: u8 = 9;
const LOG: u8 = 10;
const DROP_LOG: u8 = 11;
const ADD_TABLE_WITH_BLOBS: u8 = 12;
const ADD_TABLE_WITH_FILTERS: u8 = 13;
const READ_STATS: u8 = 14;
const INSTANCE: u8 = 15;
const OPENING: u8 = 16;

impl Edit {
    /// Appends the bytes of the edit to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Edit::Identity(identity) => {
                out.push(IDENTITY);
                out.extend(identity.store_id);
                out.extend(identity.hash_seed);
                varint::put_u64(out, identity.seed_id.into());
                varint::put_u64(out, identity.features);
            }
            Edit::NextFileId(id) => put(out, NEXT_FILE_ID, &[*id]),
            Edit::LastSequence(sequence) => put(out, LAST_SEQUENCE, &[*sequence]),
            Edit::Keyspace { id, name, options } => {
                put(out, KEYSPACE, &[u64::from(*id)]);
                varint::put_bytes(out, name.as_bytes());
                options.encode(out);
            }
            Edit::DropKeyspace(id) => put(out, DROP_KEYSPACE, &[u64::from(*id)]),
            Edit::AddTable { keyspace, level, meta } => {
                let kind = match (meta.has_extra_filters(), meta.blobs.is_empty()) {
                    (true, _) => ADD_TABLE_WITH_FILTERS,
                    (false, true) => ADD_TABLE,
                    (false, false) => ADD_TABLE_WITH_BLOBS,
                };
                put(out, kind, &[u64::from(*keyspace), *level as u64]);
                meta.encode(out);
                if kind == ADD_TABLE_WITH_FILTERS {
                    meta.encode_extra_filters(out);
                    out.push(u8::from(!meta.blobs.is_empty()));
                }
                if !meta.blobs.is_empty() {
                    meta.encode_blobs(out);
                }
            }
            Edit::RemoveTable { keyspace, level, id } => {
                put(out, REMOVE_TABLE, &[u64::from(*keyspace), *level as u64, *id]);
            }
            Edit::FlushedThrough { keyspace, sequence } => {
                put(out, FLUSHED_THROUGH, &[u64::from(*keyspace), *sequence]);
            }
            Edit::Marker { keyspace, marker } => {
                put(out, MARKER, &[u64::from(*keyspace)]);
                varint::put_bytes(out, marker);
            }
            Edit::Log { id, state } => match state {
                LogState::Open => put(out, LOG, &[*id, 0]),
                LogState::Sealed(sealed) => put(out, LOG, &[*id, 1, sealed.len, sealed.checksum]),
                LogState::Recovered(end) => put(out, LOG, &[*id, 2, *end]),
            },
            Edit::DropLog(id) => put(out, DROP_LOG, &[*id]),
            Edit::ReadStats(keyspace, evidence) => {
                put(out, READ_STATS, &[u64::from(*keyspace)]);
                evidence.encode(out);
            }
            Edit::Instance(id) => {
                out.push(INSTANCE);
                out.extend(id);
            }
            Edit::OpenRecord(OpenRecord { after, id }) => {
                put(out, OPENING, &[*after]);
                out.extend(id.to_le_bytes());
            }
        }
    }

    /// Reads one edit; `None` if the bytes are malformed or of an unknown kind.
    pub fn decode(decoder: &mut Decoder<'_>) -> Option<Edit> {
        Some(match decoder.u8()? {
            IDENTITY => Edit::Identity(Identity {
                store_id: decoder.array()?,
                hash_seed: decoder.array()?,
                seed_id: keyspace_id(decoder)?,
                features: decoder.varint()?,
            }),
            NEXT_FILE_ID => Edit::NextFileId(decoder.varint()?),
            LAST_SEQUENCE => Edit::LastSequence(sequence(decoder)?),
            KEYSPACE => {
                let id = keyspace_id(decoder)?;
                let name = std::str::from_utf8(decoder.bytes()?).ok()?.to_string();
                if name.len() > limits::KEYSPACE_NAME_BYTES_MAX {
                    return None;
                }
                Edit::Keyspace { id, name, options: KeyspaceOptions::decode(decoder)? }
            }
            DROP_KEYSPACE => Edit::DropKeyspace(keyspace_id(decoder)?),
            INSTANCE => Edit::Instance(decoder.array()?),
            OPENING => {
                Edit::OpenRecord(OpenRecord { after: sequence(decoder)?, id: decoder.u64()? })
            }
            kind @ (ADD_TABLE | ADD_TABLE_WITH_BLOBS | ADD_TABLE_WITH_FILTERS) => {
                add_table(kind, decoder)?
            }
            READ_STATS => {
                Edit::ReadStats(keyspace_id(decoder)?, Arc::new(ReadCounts::decode(decoder)?))
            }
            REMOVE_TABLE => {
                let (keyspace, level) = (keyspace_id(decoder)?, level(decoder)?);
                Edit::RemoveTable { keyspace, level, id: decoder.varint()? }
            }
            FLUSHED_THROUGH => Edit::FlushedThrough {
                keyspace: keyspace_id(decoder)?,
                sequence: sequence(decoder)?,
            },
            MARKER => {
                let keyspace = keyspace_id(decoder)?;
                let marker = decoder.bytes()?.to_vec();
                if marker.len() > limits::MARKER_BYTES_MAX {
                    return None;
                }
                Edit::Marker { keyspace, marker }
            }
            LOG => {
                let id = decoder.varint()?;
                let state = match decoder.varint()? {
                    0 => LogState::Open,
                    1 => {
                        let (len, checksum) = (decoder.varint()?, decoder.varint()?);
                        LogState::Sealed(Seal { len, checksum })
                    }
                    2 => LogState::Recovered(decoder.varint()?),
                    _ => return None,
                };
                Edit::Log { id, state }
            }
            DROP_LOG => Edit::DropLog(decoder.varint()?),
            _ => return None,
        })
    }
}

fn add_table(kind: u8, decoder: &mut Decoder<'_>) -> Option<Edit> {
    let (keyspace, level) = (keyspace_id(decoder)?, level(decoder)?);
    let mut meta = TableMeta::decode(decoder)?;
    let mut has_blobs = kind == ADD_TABLE_WITH_BLOBS;
    if kind == ADD_TABLE_WITH_FILTERS {
        meta.decode_extra_filters(decoder)?;
        has_blobs = match decoder.u8()? {
            0 => false,
            1 => true,
            _ => return None,
        };
    }
    if has_blobs {
        meta.decode_blobs(decoder)?;
    }
    Some(Edit::AddTable { keyspace, level, meta: Arc::new(meta) })
}

fn put(out: &mut Vec<u8>, tag: u8, numbers: &[u64]) {
    out.push(tag);
    for &number in numbers {
        varint::put_u64(out, number);
    }
}

fn keyspace_id(decoder: &mut Decoder<'_>) -> Option<u32> {
    u32::try_from(decoder.varint()?).ok()
}

fn level(decoder: &mut Decoder<'_>) -> Option<usize> {
    decoder.varint_usize().filter(|&level| level < limits::LEVELS)
}

fn sequence(decoder: &mut Decoder<'_>) -> Option<u64> {
    decoder.varint().filter(|&sequence| sequence <= limits::SEQUENCE_MAX)
}

/// Appends the bytes of one manifest record: its edits one after the other.
pub fn encode_record(edits: &[Edit], out: &mut Vec<u8>) {
    for edit in edits {
        edit.encode(out);
    }
}

/// Number of bytes that [`encode_record`] appends.
pub fn encoded_bytes(edits: &[Edit]) -> u64 {
    let mut record = Vec::new();
    encode_record(edits, &mut record);
    record.len() as u64
}

/// Returns the edits of one manifest record. The error is the offset at which the record is
/// malformed.
pub fn decode_record(bytes: &[u8]) -> Result<Vec<Edit>, usize> {
    let mut decoder = Decoder::new(bytes);
    let mut edits = Vec::new();
    while !decoder.is_done() {
        let at = decoder.position();
        edits.push(Edit::decode(&mut decoder).ok_or(at)?);
    }
    Ok(edits)
}

/// State of a keyspace in the manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyspaceRecord {
    /// Name of the keyspace.
    pub name: String,
    /// Options of the keyspace.
    pub options: KeyspaceOptions,
    /// All writes of the keyspace up to this sequence number are in tables.
    pub flushed_through: u64,
    /// The last durable marker of the keyspace.
    pub marker: Option<Vec<u8>>,
    /// Counts of recent reads of the keyspace's levels, if recorded.
    pub read_stats: Option<Arc<ReadCounts>>,
    /// Metadata of the keyspace's tables by level, level 0 oldest first; shared with the tables of
    /// the versions.
    pub levels: [Vec<Arc<TableMeta>>; limits::LEVELS],
}

/// State that results from all edits so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ManifestState {
    /// Identity of the store; `None` only before the first edit.
    pub identity: Option<Identity>,
    /// Instance id of this copy of the store; `None` in a store of an earlier version.
    pub instance: Option<[u8; 16]>,
    /// The opens of the store and their sequence numbers, if a keyspace has or had an existence
    /// filter.
    pub sequence_lineage: SequenceLineage,
    /// The next free file id.
    pub next_file_id: u64,
    /// The last sequence number known to be assigned.
    pub last_sequence: u64,
    /// The next free keyspace id.
    pub next_keyspace_id: u32,
    /// Keyspaces by id.
    pub keyspaces: BTreeMap<u32, KeyspaceRecord>,
    /// Live WAL segments by id, which is their order.
    pub logs: BTreeMap<u64, LogState>,
}

impl ManifestState {
    /// Applies one edit. The error says why the edit contradicts earlier edits.
    pub fn apply(&mut self, edit: &Edit) -> Result<(), String> {
        match edit {
            Edit::Identity(identity) => {
                if self.identity.replace(identity.clone()).is_some() {
                    return Err("the store's identity is given twice".into());
                }
            }
            _ if self.identity.is_none() => {
                return Err("the store's identity is not the first edit".into());
            }
            Edit::Instance(id) => self.set_instance(*id),
            Edit::OpenRecord(opening) => {
                self.sequence_lineage.add(*opening)?;
                self.add_feature(feature_bits::OPENINGS);
            }
            Edit::NextFileId(id) => self.next_file_id = self.next_file_id.max(*id),
            Edit::LastSequence(last) => self.last_sequence = self.last_sequence.max(*last),
            Edit::Keyspace { id, name, options } => self.put_keyspace(*id, name, options)?,
            Edit::DropKeyspace(id) => {
                self.keyspaces.remove(id).ok_or_else(|| unknown(*id))?;
            }
            Edit::AddTable { keyspace, level, meta } => {
                let tables = &mut self.keyspace(*keyspace)?.levels[*level];
                let at = match level {
                    0 => tables.partition_point(|table| table.sequence_max <= meta.sequence_max),
                    _ => tables.len(),
                };
                tables.insert(at, Arc::clone(meta));
            }
            Edit::RemoveTable { keyspace, level, id } => {
                let tables = &mut self.keyspace(*keyspace)?.levels[*level];
                let missing = || {
                    format!("table {id} is removed from level {level}, but is not in that level")
                };
                let at = tables.iter().position(|t| t.id == *id).ok_or_else(missing)?;
                tables.remove(at);
            }
            Edit::FlushedThrough { keyspace, sequence } => {
                let record = self.keyspace(*keyspace)?;
                record.flushed_through = record.flushed_through.max(*sequence);
            }
            Edit::Marker { keyspace, marker } => {
                self.keyspace(*keyspace)?.marker = Some(marker.clone());
            }
            Edit::Log { id, state } => {
                let before = self.logs.insert(*id, *state);
                if before.is_some_and(|before| before != LogState::Open) {
                    return Err(format!("log {id} changes, although it had ended"));
                }
            }
            Edit::ReadStats(keyspace, evidence) => {
                self.keyspace(*keyspace)?.read_stats = Some(Arc::clone(evidence));
            }
            Edit::DropLog(id) => {
                let missing = || format!("log {id} is dropped, but is not live");
                self.logs.remove(id).ok_or_else(missing)?;
            }
        }
        Ok(())
    }

    /// Whether an edit has an effect. An edit for a WAL segment that is gone or has ended, or read
    /// counts for a dropped keyspace, have none.
    pub fn is_change(&self, edit: &Edit) -> bool {
        match edit {
            Edit::Log { id, .. } => self.logs.get(id) == Some(&LogState::Open),
            Edit::DropLog(id) => self.logs.contains_key(id),
            Edit::ReadStats(keyspace, _) => self.keyspaces.contains_key(keyspace),
            _ => true,
        }
    }

    fn put_keyspace(
        &mut self,
        id: u32,
        name: &str,
        options: &KeyspaceOptions,
    ) -> Result<(), String> {
        let next = id.checked_add(1).ok_or("the store has used up its keyspace ids")?;
        self.next_keyspace_id = self.next_keyspace_id.max(next);
        let record = self.keyspaces.entry(id).or_insert_with(|| KeyspaceRecord {
            name: name.to_string(),
            options: options.clone(),
            flushed_through: 0,
            marker: None,
            read_stats: None,
            levels: Default::default(),
        });
        if record.options.hash != options.hash {
            return Err(format!("keyspace {id} changes its hash"));
        }
        (record.name, record.options) = (name.to_string(), options.clone());
        self.identity
            .iter_mut()
            .for_each(|identity| identity.features |= feature_bits::required_by(options));
        Ok(())
    }

    fn keyspace(&mut self, id: u32) -> Result<&mut KeyspaceRecord, String> {
        self.keyspaces.get_mut(&id).ok_or_else(|| unknown(id))
    }

    /// Checks invariants that one edit cannot show, such as a table in two levels. The error says
    /// why no writer could have left this state.
    pub fn check(&self) -> Result<(), String> {
        if self.identity.is_none() {
            return Err("the store's identity is missing".into());
        }
        if self.next_file_id > filenames::ID_MAX {
            return Err(format!("file id {} is over the limit", self.next_file_id));
        }
        if self.keyspaces.len() > limits::KEYSPACES_MAX {
            return Err(format!("there are {} keyspaces", self.keyspaces.len()));
        }
        let (mut keyspace_names, mut ids) = (HashSet::new(), HashSet::new());
        for record in self.keyspaces.values() {
            if record.name.is_empty() || !keyspace_names.insert(&record.name) {
                return Err(format!("a keyspace's name is empty or used twice: '{}'", record.name));
            }
            for meta in record.levels.iter().flatten() {
                let blobs = meta.blobs.iter().map(|blob| blob.id);
                if let Some(twice) = blobs.chain([meta.id]).find(|id| !ids.insert(*id)) {
                    return Err(format!("file {twice} is listed twice"));
                }
            }
        }
        for &id in self.logs.keys() {
            if !ids.insert(id) {
                return Err(format!("file {id} is listed twice"));
            }
        }
        match ids.into_iter().find(|&id| id >= self.next_file_id) {
            Some(id) => Err(format!("file {id} is named, but its id was never assigned")),
            None => Ok(()),
        }
    }

    /// Sets the instance id of this copy of the store.
    pub fn set_instance(&mut self, id: [u8; 16]) {
        self.instance = Some(id);
        self.add_feature(feature_bits::INSTANCE);
    }

    /// Records an open for writing, if a keyspace has or had an existence filter. REQUIRES: the
    /// open has assigned no sequence number yet.
    pub fn note_opening(&mut self, entropy: &dyn Entropy) -> umbel_base::Result<()> {
        let has_filter =
            |record: &KeyspaceRecord| record.options.existence_filter != ExistenceSize::Off;
        if self.sequence_lineage.is_empty() && !self.keyspaces.values().any(has_filter) {
            return Ok(());
        }
        let id = entropy.number()?;
        let begun = self.sequence_lineage.record_open(self.last_sequence, id);
        self.add_feature(feature_bits::OPENINGS);
        begun.map_err(|reason| Error::invalid(format!("internal: {reason}")))
    }

    fn add_feature(&mut self, feature: u64) {
        self.identity.iter_mut().for_each(|identity| identity.features |= feature);
    }

    /// Returns the fewest edits that result in this state.
    pub fn to_edits(&self) -> Vec<Edit> {
        let mut edits: Vec<Edit> = self.identity.iter().cloned().map(Edit::Identity).collect();
        edits.extend(self.instance.map(Edit::Instance));
        edits.extend(self.sequence_lineage.iter().map(Edit::OpenRecord));
        edits.push(Edit::NextFileId(self.next_file_id));
        edits.push(Edit::LastSequence(self.last_sequence));
        for (&id, record) in &self.keyspaces {
            let (name, options) = (record.name.clone(), record.options.clone());
            edits.push(Edit::Keyspace { id, name, options });
            edits.push(Edit::FlushedThrough { keyspace: id, sequence: record.flushed_through });
            if let Some(marker) = &record.marker {
                edits.push(Edit::Marker { keyspace: id, marker: marker.clone() });
            }
            if let Some(evidence) = &record.read_stats {
                edits.push(Edit::ReadStats(id, Arc::clone(evidence)));
            }
            for (level, tables) in record.levels.iter().enumerate() {
                let add = |meta: &Arc<TableMeta>| {
                    let meta = Arc::clone(meta);
                    Edit::AddTable { keyspace: id, level, meta }
                };
                edits.extend(tables.iter().map(add));
            }
        }
        // The id of a dropped keyspace must not be reused.
        if self.next_keyspace_id > self.keyspaces.last_key_value().map_or(0, |(&id, _)| id + 1) {
            let id = self.next_keyspace_id - 1;
            let (name, options) = (String::new(), KeyspaceOptions::default());
            edits.push(Edit::Keyspace { id, name, options });
            edits.push(Edit::DropKeyspace(id));
        }
        edits.extend(self.logs.iter().map(|(&id, &state)| Edit::Log { id, state }));
        edits
    }
}

fn unknown(id: u32) -> String {
    format!("keyspace {id} is unknown")
}

#[cfg(test)]
mod tests;
