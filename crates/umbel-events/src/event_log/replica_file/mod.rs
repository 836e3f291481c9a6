//! [`ReplicaState`]: the last applied slot of a replica, and its file `REPLICA`, which also says
//! that the directory is a replica. [`ReplicaRecord`]: the state of an open replica.
//!
//! INVARIANT (B13 of `docs/explanation/replication.md`): the records of the slots up to the state
//! are durable before the file has the state. The index becomes durable only up to the state in the
//! file. The file may lag: slots after it are applied again.
//!
//! FORMAT: `docs/formats/replica.md`. Each change replaces the file as a whole.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use umbel_base::checksum::checksum;
use umbel_base::ignore_poison::IgnorePoison;
use umbel_base::{Decoder, Error, Result, varint};
use umbel_env::{Access, Env};
use umbel_log::{END_RECORD_BYTES, HEADER_BYTES};
use umbel_slots::{ChainState, LogId, Slot, SlotEntry, SlotSettings, StoreObject};

/// Kind of the event log's chunks among the logs of slots.
pub const EVENT_LOG_KIND: u8 = 1;

const FILE_NAME: &str = "REPLICA";
const NEW_FILE_NAME: &str = "REPLICA.new";
const MAGIC: [u8; 8] = *b"UmbelRpl";
const VERSION: u8 = 1;
/// Maximum length of the file. A chain lists 65,536 epochs at most.
const BYTES_MAX: u64 = 16 << 20;
/// Number of slots that the file of an open replica can lack, at most.
const UNRECORDED_SLOTS_MAX: u64 = 64;
/// Id of the checksums of which the seed of a log consists.
const SEED_CHECKSUM_ID: u64 = 0x5eed;
/// Limit of offsets in a log.
const END_LIMIT: u64 = 1 << 62;

/// Identity of a replicated log, equal at all its nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplicatedLog {
    /// Random id, which all slots have.
    pub id: [u8; 16],
    /// Seed of the event store: the ids of links depend on it.
    pub seed: [u8; 16],
    /// Settings before the first slot.
    pub settings: SlotSettings,
}

impl ReplicatedLog {
    /// The log that this object describes. Its seed follows from its id, so that a repeated
    /// creation states the same log.
    pub fn new(object: &StoreObject) -> ReplicatedLog {
        let mut seed = [0; 16];
        for (offset, half) in (0..).zip(seed.chunks_exact_mut(8)) {
            half.copy_from_slice(&checksum(SEED_CHECKSUM_ID, offset, &object.store).to_le_bytes());
        }
        ReplicatedLog { id: object.store, seed, settings: object.settings }
    }
}

/// Part of a log that the applied slots have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AppliedLog {
    /// The log.
    pub log: LogId,
    /// Offset after its last record.
    pub end: u64,
    /// Whether a slot says that the log ended there.
    pub has_ended: bool,
}

impl AppliedLog {
    /// Bytes of the log's file that the slots decide, its end record included.
    pub fn file_bytes(&self) -> u64 {
        self.end + if self.has_ended { END_RECORD_BYTES } else { 0 }
    }
}

/// The last applied slot of a replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaState {
    /// Id of the replicated log.
    pub store: [u8; 16],
    /// Instance of the store's directory. A copy with another instance is no replica.
    pub instance: [u8; 16],
    /// Whether the node has led since: its log can have records that no slot has.
    pub has_led: bool,
    /// Number of the directory into which such records are being moved; 0 if none are.
    pub cut: u64,
    /// The chain up to the last applied slot.
    pub chain: ChainState,
    /// The last chunk that began; all earlier ones have ended. `None` before the first one.
    pub last_log: Option<AppliedLog>,
}

impl ReplicaState {
    /// The state of a directory with this instance before the first slot of a log.
    pub fn new(log: &ReplicatedLog, instance: [u8; 16]) -> ReplicaState {
        let chain = ChainState { settings: log.settings, ..ChainState::default() };
        ReplicaState { store: log.id, instance, has_led: false, cut: 0, chain, last_log: None }
    }

    /// Adds the next slot.
    ///
    /// # Errors
    /// The reason why the slot does not follow. It changes nothing then.
    pub fn advance(&mut self, slot: &Slot) -> std::result::Result<(), String> {
        self.chain.advance(slot)?;
        for entry in &slot.entries {
            let (log, end, has_ended) = match entry {
                SlotEntry::LogBegins { log, .. } => (*log, HEADER_BYTES, false),
                SlotEntry::Bytes { log, from, bytes } => (*log, from + bytes.len() as u64, false),
                SlotEntry::LogEnded { log, end, .. } => (*log, *end, true),
                _ => continue,
            };
            self.last_log = Some(AppliedLog { log, end, has_ended });
        }
        Ok(())
    }

    /// Returns the bytes of the file.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.push(VERSION);
        out.extend_from_slice(&self.store);
        out.extend_from_slice(&self.instance);
        out.push(u8::from(self.has_led));
        varint::put_u64(&mut out, self.cut);
        self.chain.encode(&mut out);
        out.push(u8::from(self.last_log.is_some()));
        if let Some(AppliedLog { log, end, has_ended }) = self.last_log {
            out.push(log.kind);
            varint::put_u64(&mut out, log.id);
            varint::put_u64(&mut out, end);
            out.push(u8::from(has_ended));
        }
        let sum = checksum(0, 0, &out);
        out.extend_from_slice(&sum.to_le_bytes());
        out
    }

    /// Decodes the bytes of the file.
    ///
    /// # Errors
    /// Damage, or a newer format.
    pub fn decode(bytes: &[u8], path: &Path) -> Result<ReplicaState> {
        let corrupt = |reason: &str| {
            let remedy = "move the directory away, and start the node with an empty one";
            Error::corruption(path, 0, format!("{reason}; {remedy}"))
        };
        let Some((head, sum)) = bytes.split_last_chunk::<8>() else {
            return Err(corrupt("the record of the last applied slot is truncated"));
        };
        let Some((version, body)) = head.strip_prefix(&MAGIC).and_then(<[u8]>::split_first) else {
            return Err(corrupt("the file is no record of the last applied slot"));
        };
        if checksum(0, 0, head) != u64::from_le_bytes(*sum) {
            return Err(corrupt("the record of the last applied slot does not match its checksum"));
        }
        if *version > VERSION {
            return Err(Error::invalid(format!(
                "{} was written by a newer Umbel (replica format {version}, this Umbel reads up to \
                 {VERSION}); use that Umbel or a later one",
                path.display()
            )));
        }
        let state = ReplicaState::decode_body(body).filter(|_| *version == VERSION);
        state.ok_or_else(|| corrupt("the record of the last applied slot is malformed"))
    }

    /// Decodes what is between version and checksum; `None` where it is malformed.
    fn decode_body(body: &[u8]) -> Option<ReplicaState> {
        let mut decoder = Decoder::new(body);
        let (store, instance) = (decoder.array()?, decoder.array()?);
        let has_led = decode_flag(&mut decoder)?;
        let cut = decoder.varint()?;
        let chain = ChainState::decode(&mut decoder).ok()?;
        let mut last_log = None;
        if decode_flag(&mut decoder)? {
            let log = LogId { kind: decoder.u8()?, id: decoder.varint()? };
            let end = decoder.varint().filter(|end| (HEADER_BYTES..END_LIMIT).contains(end))?;
            last_log = Some(AppliedLog { log, end, has_ended: decode_flag(&mut decoder)? });
        }
        // Only records of a leader are moved.
        let is_possible = decoder.is_done() && (cut == 0 || has_led);
        is_possible.then_some(ReplicaState { store, instance, has_led, cut, chain, last_log })
    }

    /// Reads the state in `folder`; `None` if the directory is no replica.
    ///
    /// # Errors
    /// Damage, a newer format, or a failed call.
    pub fn read(env: &Env, folder: &Path) -> Result<Option<ReplicaState>> {
        let path = folder.join(FILE_NAME);
        if !env.files.exists(&path)? {
            return Ok(None);
        }
        let file = env.files.open(&path, Access::Read)?;
        let len = file.len()?;
        if len > BYTES_MAX {
            let reason = "the file is too long for a record of the last applied slot";
            return Err(Error::corruption(&path, BYTES_MAX, reason));
        }
        let mut bytes = vec![0; len as usize];
        file.read_exact_at(&mut bytes, 0)?;
        ReplicaState::decode(&bytes, &path).map(Some)
    }

    /// Replaces the file in `folder` by this state, durably.
    ///
    /// # Errors
    /// A failed call, after which the file has either state.
    pub fn write(&self, env: &Env, folder: &Path) -> Result<()> {
        let new = folder.join(NEW_FILE_NAME);
        if env.files.exists(&new)? {
            // Left by an earlier write.
            env.files.remove_file(&new)?;
        }
        let file = env.files.create(&new)?;
        file.write_all_at(&self.encode(), 0)?;
        file.sync()?;
        env.files.rename(&new, &folder.join(FILE_NAME))?;
        env.files.sync_dir(folder)
    }
}

fn decode_flag(decoder: &mut Decoder<'_>) -> Option<bool> {
    decoder.u8().filter(|flag| *flag <= 1).map(|flag| flag == 1)
}

/// Returns an error where the directory is a replica (B14): its contents are those of the slots,
/// and a node of the cluster would cut what another program appends.
pub fn check_not_replica(env: &Env, folder: &Path) -> Result<()> {
    if !env.files.exists(&folder.join(FILE_NAME))? {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "{} is a replica of a replicated event log, so only a node of its cluster opens it; start \
         the node with the options of the cluster, or name another directory",
        folder.display()
    )))
}

/// The last applied slot of an open replica.
#[derive(Debug)]
pub struct ReplicaRecord {
    env: Env,
    folder: PathBuf,
    state: Mutex<ReplicaState>,
    /// State in the file; `None` if that is unknown. Held while the file is written.
    written: Mutex<Option<ReplicaState>>,
    /// Directory into which the open moved records that no recorded slot has.
    pub moved_aside: Option<PathBuf>,
}

impl ReplicaRecord {
    /// The record of a replica whose file has this state.
    pub fn new(env: &Env, folder: &Path, state: ReplicaState) -> ReplicaRecord {
        let written = Mutex::new(Some(state.clone()));
        let (env, folder) = (env.clone(), folder.to_path_buf());
        ReplicaRecord { env, folder, state: Mutex::new(state), written, moved_aside: None }
    }

    /// Returns the state.
    pub fn state(&self) -> ReplicaState {
        self.state.lock().ignore_poison().clone()
    }

    /// Changes or reads the state, not the file.
    ///
    /// REQUIRES: the records of the slots up to the new state are durable.
    pub fn change<T>(&self, change: impl FnOnce(&mut ReplicaState) -> T) -> T {
        change(&mut self.state.lock().ignore_poison())
    }

    /// Writes the state into the file if the file lacks many of its slots.
    ///
    /// # Errors
    /// Those of [`ReplicaRecord::write`].
    pub fn write_if_late(&self) -> Result<()> {
        let number = self.change(|state| state.chain.end.number);
        let number_of = |state: &ReplicaState| state.chain.end.number;
        let written = self.written.lock().ignore_poison().as_ref().map_or(0, number_of);
        match number - written.min(number) < UNRECORDED_SLOTS_MAX {
            true => Ok(()),
            false => self.write(),
        }
    }

    /// Writes the state into the file, unless the file has it.
    ///
    /// # Errors
    /// A failed call. The next write repeats it.
    pub fn write(&self) -> Result<()> {
        let mut written = self.written.lock().ignore_poison();
        let state = self.state();
        if written.as_ref() == Some(&state) {
            return Ok(());
        }
        *written = None;
        state.write(&self.env, &self.folder)?;
        *written = Some(state);
        Ok(())
    }
}

/// Decodes a state with the correct checksum, and encodes it again. For fuzzing only.
pub fn fuzz(body: &[u8]) {
    let path = Path::new(FILE_NAME);
    let _ = ReplicaState::decode(body, path);
    if let Some(state) = ReplicaState::decode_body(body) {
        let bytes = state.encode();
        let rest = bytes.strip_prefix(&MAGIC).and_then(<[u8]>::split_first);
        let encoded = rest.and_then(|(_, rest)| rest.split_last_chunk::<8>());
        assert_eq!(encoded.map(|(body, _)| body), Some(body), "a state has other bytes");
        assert_eq!(ReplicaState::decode(&bytes, path).ok(), Some(state));
    }
}

#[cfg(test)]
mod tests;
