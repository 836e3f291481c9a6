//! Manifest edits: their bytes, and the state that a sequence of them amounts to.
//!
//! FORMAT: `docs/formats/manifest.md`. An edit is one record of the manifest's log; it is applied
//! whole or not at all.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use umbel_base::{Decoder, Error, limits, varint};
use umbel_env::Entropy;
use umbel_log::Sealed;
use umbel_table::TableMeta;

use super::features;
use super::openings::{Opening, Openings};
use crate::evidence::Counts;
use crate::names;
use crate::options::{ExistenceSize, KeyspaceOptions};

/// What makes a store this store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Random, made at creation; in every manifest.
    pub store_id: [u8; 16],
    /// The seed of the keyed hash. Secret.
    pub hash_seed: [u8; 16],
    /// The number by which tables name the seed.
    pub seed_id: u32,
    /// Features a reader must know.
    pub features: u64,
}

/// What is known of a write-ahead log segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogState {
    /// It may still grow: read it by the tail rule.
    Open,
    /// It was closed and must be whole.
    Sealed(Sealed),
    /// Recovery read it up to this offset and synced it; what lies behind does not count.
    Recovered(u64),
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Edit {
    /// Who the store is. First edit of every manifest, and only there.
    Identity(Identity),
    /// Every id below this one is taken.
    NextFileId(u64),
    /// Sequence numbers up to this one are taken.
    LastSequence(u64),
    /// A keyspace exists, or its options changed.
    Keyspace {
        /// Its id, never used again after a drop.
        id: u32,
        /// Its name.
        name: String,
        /// Its options.
        options: KeyspaceOptions,
    },
    /// A keyspace was dropped with everything in it.
    DropKeyspace(u32),
    /// A table joined a level; at level 0 as the newest.
    AddTable {
        /// Its keyspace.
        keyspace: u32,
        /// Its level.
        level: usize,
        /// The table.
        meta: Arc<TableMeta>,
    },
    /// A table left a level.
    RemoveTable {
        /// Its keyspace.
        keyspace: u32,
        /// Its level.
        level: usize,
        /// Its id.
        id: u64,
    },
    /// Everything of the keyspace up to this sequence number is in tables.
    FlushedThrough {
        /// The keyspace.
        keyspace: u32,
        /// The sequence number.
        sequence: u64,
    },
    /// What the caller wants to know again after a crash.
    Marker {
        /// The keyspace.
        keyspace: u32,
        /// The caller's bytes.
        marker: Vec<u8>,
    },
    /// A log segment exists, or more is known of it.
    Log {
        /// Its id.
        id: u64,
        /// What is known.
        state: LogState,
    },
    /// A log segment is no longer needed.
    DropLog(u64),
    /// What reads asked of a keyspace's levels of late.
    Evidence(u32, Arc<Counts>),
    /// Which copy of the store this is. The last one given counts.
    Instance([u8; 16]),
    /// A writer opened the store.
    Opening(Opening),
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
const EVIDENCE: u8 = 14;
const INSTANCE: u8 = 15;
const OPENING: u8 = 16;

impl Edit {
    /// Appends the edit's bytes.
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
                let kind = match (meta.has_other_filters(), meta.blobs.is_empty()) {
                    (true, _) => ADD_TABLE_WITH_FILTERS,
                    (false, true) => ADD_TABLE,
                    (false, false) => ADD_TABLE_WITH_BLOBS,
                };
                put(out, kind, &[u64::from(*keyspace), *level as u64]);
                meta.encode(out);
                if kind == ADD_TABLE_WITH_FILTERS {
                    meta.encode_other_filters(out);
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
            Edit::Evidence(keyspace, evidence) => {
                put(out, EVIDENCE, &[u64::from(*keyspace)]);
                evidence.encode(out);
            }
            Edit::Instance(id) => {
                out.push(INSTANCE);
                out.extend(id);
            }
            Edit::Opening(Opening { after, id }) => {
                put(out, OPENING, &[*after]);
                out.extend(id.to_le_bytes());
            }
        }
    }

    /// Reads one edit; `None` where the bytes are malformed or of an unknown kind.
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
            OPENING => Edit::Opening(Opening { after: sequence(decoder)?, id: decoder.u64()? }),
            kind @ (ADD_TABLE | ADD_TABLE_WITH_BLOBS | ADD_TABLE_WITH_FILTERS) => {
                add_table(kind, decoder)?
            }
            EVIDENCE => Edit::Evidence(keyspace_id(decoder)?, Arc::new(Counts::decode(decoder)?)),
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
                        LogState::Sealed(Sealed { len, checksum })
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
        meta.decode_other_filters(decoder)?;
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

/// How many bytes [`encode_record`] appends.
pub fn encoded_bytes(edits: &[Edit]) -> u64 {
    let mut record = Vec::new();
    encode_record(edits, &mut record);
    record.len() as u64
}

/// The edits of one manifest record. The error says at which byte of the record it is malformed.
pub fn decode_record(bytes: &[u8]) -> Result<Vec<Edit>, usize> {
    let mut decoder = Decoder::new(bytes);
    let mut edits = Vec::new();
    while !decoder.is_done() {
        let at = decoder.position();
        edits.push(Edit::decode(&mut decoder).ok_or(at)?);
    }
    Ok(edits)
}

/// What the manifest says of a keyspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyspaceRecord {
    /// Its name.
    pub name: String,
    /// Its options.
    pub options: KeyspaceOptions,
    /// Everything up to here is in tables.
    pub flushed_through: u64,
    /// The last durable marker.
    pub marker: Option<Vec<u8>>,
    /// What reads asked of its levels of late, where that was written down.
    pub evidence: Option<Arc<Counts>>,
    /// Its tables per level; level 0 oldest first. Shared with the tables of the versions.
    pub levels: [Vec<Arc<TableMeta>>; limits::LEVELS],
}

/// What all edits so far amount to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct State {
    /// `None` only before the first edit.
    pub identity: Option<Identity>,
    /// Which copy of the store this is; `None` in a store of an earlier version.
    pub instance: Option<[u8; 16]>,
    /// Which opens gave which sequence numbers, where a keyspace has or had an existence filter.
    pub openings: Openings,
    /// The next free file id.
    pub next_file_id: u64,
    /// The last sequence number known to be taken.
    pub last_sequence: u64,
    /// The next free keyspace id.
    pub next_keyspace_id: u32,
    /// Keyspaces by id.
    pub keyspaces: BTreeMap<u32, KeyspaceRecord>,
    /// Live log segments by id, which is their order.
    pub logs: BTreeMap<u64, LogState>,
}

impl State {
    /// Applies one edit. The error says why it does not fit what came before it.
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
            Edit::Opening(opening) => {
                self.openings.add(*opening)?;
                self.add_feature(features::OPENINGS);
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
                let missing =
                    || format!("table {id} is removed from level {level}, but is not there");
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
                    return Err(format!("log {id} changes, but had ended"));
                }
            }
            Edit::Evidence(keyspace, evidence) => {
                self.keyspace(*keyspace)?.evidence = Some(Arc::clone(evidence));
            }
            Edit::DropLog(id) => {
                let missing = || format!("log {id} is dropped, but is not live");
                self.logs.remove(id).ok_or_else(missing)?;
            }
        }
        Ok(())
    }

    /// Whether an edit says something new of a log that is live, or something of a keyspace that is
    /// still there. Others say nothing of either.
    pub fn is_news(&self, edit: &Edit) -> bool {
        match edit {
            Edit::Log { id, .. } => self.logs.get(id) == Some(&LogState::Open),
            Edit::DropLog(id) => self.logs.contains_key(id),
            Edit::Evidence(keyspace, _) => self.keyspaces.contains_key(keyspace),
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
            evidence: None,
            levels: Default::default(),
        });
        if record.options.hash != options.hash {
            return Err(format!("keyspace {id} changes what its keys are hashed with"));
        }
        (record.name, record.options) = (name.to_string(), options.clone());
        self.identity.iter_mut().for_each(|identity| identity.features |= features::of(options));
        Ok(())
    }

    fn keyspace(&mut self, id: u32) -> Result<&mut KeyspaceRecord, String> {
        self.keyspaces.get_mut(&id).ok_or_else(|| unknown(id))
    }

    /// The error says why no writer could have left this state: what one edit cannot show, such as
    /// a table that stands in two places.
    pub fn check(&self) -> Result<(), String> {
        if self.identity.is_none() {
            return Err("the store's identity is missing".into());
        }
        if self.next_file_id > names::ID_MAX {
            return Err(format!("file id {} is over the limit", self.next_file_id));
        }
        if self.keyspaces.len() > limits::KEYSPACES_MAX {
            return Err(format!("there are {} keyspaces", self.keyspaces.len()));
        }
        let (mut keyspace_names, mut ids) = (HashSet::new(), HashSet::new());
        for record in self.keyspaces.values() {
            if record.name.is_empty() || !keyspace_names.insert(&record.name) {
                return Err(format!("two keyspaces, or none, are called '{}'", record.name));
            }
            for meta in record.levels.iter().flatten() {
                let blobs = meta.blobs.iter().map(|blob| blob.id);
                if let Some(twice) = blobs.chain([meta.id]).find(|id| !ids.insert(*id)) {
                    return Err(format!("file {twice} stands in two places"));
                }
            }
        }
        for &id in self.logs.keys() {
            if !ids.insert(id) {
                return Err(format!("file {id} stands in two places"));
            }
        }
        match ids.into_iter().find(|&id| id >= self.next_file_id) {
            Some(id) => Err(format!("file {id} is named, but its id was never taken")),
            None => Ok(()),
        }
    }

    /// Says which copy of the store this is.
    pub fn set_instance(&mut self, id: [u8; 16]) {
        self.instance = Some(id);
        self.add_feature(features::INSTANCE);
    }

    /// Notes that a writer opens the store, which has all its numbers by now, where a keyspace has
    /// an existence filter or had one.
    pub fn note_opening(&mut self, entropy: &dyn Entropy) -> umbel_base::Result<()> {
        let has_filter =
            |record: &KeyspaceRecord| record.options.existence_filter != ExistenceSize::Off;
        if self.openings.is_empty() && !self.keyspaces.values().any(has_filter) {
            return Ok(());
        }
        let id = entropy.number()?;
        let begun = self.openings.begin(self.last_sequence, id);
        self.add_feature(features::OPENINGS);
        begun.map_err(|reason| Error::invalid(format!("internal: {reason}")))
    }

    fn add_feature(&mut self, feature: u64) {
        self.identity.iter_mut().for_each(|identity| identity.features |= feature);
    }

    /// The fewest edits that amount to this state.
    pub fn to_edits(&self) -> Vec<Edit> {
        let mut edits: Vec<Edit> = self.identity.iter().cloned().map(Edit::Identity).collect();
        edits.extend(self.instance.map(Edit::Instance));
        edits.extend(self.openings.iter().map(Edit::Opening));
        edits.push(Edit::NextFileId(self.next_file_id));
        edits.push(Edit::LastSequence(self.last_sequence));
        for (&id, record) in &self.keyspaces {
            let (name, options) = (record.name.clone(), record.options.clone());
            edits.push(Edit::Keyspace { id, name, options });
            edits.push(Edit::FlushedThrough { keyspace: id, sequence: record.flushed_through });
            if let Some(marker) = &record.marker {
                edits.push(Edit::Marker { keyspace: id, marker: marker.clone() });
            }
            if let Some(evidence) = &record.evidence {
                edits.push(Edit::Evidence(id, Arc::clone(evidence)));
            }
            for (level, tables) in record.levels.iter().enumerate() {
                let add = |meta: &Arc<TableMeta>| {
                    let meta = Arc::clone(meta);
                    Edit::AddTable { keyspace: id, level, meta }
                };
                edits.extend(tables.iter().map(add));
            }
        }
        // The id of a dropped keyspace must not come back.
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
    format!("keyspace {id} is not known")
}

#[cfg(test)]
#[path = "edit_tests.rs"]
mod tests;
