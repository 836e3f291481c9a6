//! An open store of either kind, as scripts use it.

use std::path::Path;

use umbel::{Db, Durability, Env, Keyspace, KeyspaceOptions, Options};
use umbel_events::{
    CopyOptions, Direction, EventId, ExpectedVersion, NewEvent, Position, ScavengeOptions, Store,
    StoreOptions,
};

use crate::directories::allowed_states::StoreContent;

/// Name of the stream that is deleted, which does not count as content of a store.
pub const DELETED_STREAM: &str = "gone";

/// Kind of store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreKind {
    /// A key-value store.
    Keys,
    /// An event store.
    Events,
}

/// An error of either kind of store.
#[derive(Debug, Clone)]
pub struct StoreError {
    /// Text of the error.
    pub text: String,
    /// Whether the error reports damage.
    pub is_corruption: bool,
    /// Whether the error reports a locked store.
    pub is_locked: bool,
}

impl From<umbel::Error> for StoreError {
    fn from(error: umbel::Error) -> StoreError {
        StoreError {
            text: error.to_string(),
            is_corruption: matches!(error, umbel::Error::Corruption { .. }),
            is_locked: matches!(error, umbel::Error::Locked(_)),
        }
    }
}

impl From<umbel_events::Error> for StoreError {
    fn from(error: umbel_events::Error) -> StoreError {
        match error {
            umbel_events::Error::Store(error) => error.into(),
            other => StoreError { text: other.to_string(), is_corruption: false, is_locked: false },
        }
    }
}

/// Result of a call.
pub type StoreResult<T> = Result<T, StoreError>;

/// An open store.
#[derive(Debug)]
pub enum StoreHandle {
    /// A key-value store.
    Keys(Db),
    /// An event store.
    Events(Store),
}

fn keyspace_options() -> KeyspaceOptions {
    crate::simulation::script::small()
}

/// Returns the options of a key-value store.
fn options(env: Env) -> Options {
    Options {
        durability: Durability::Buffered,
        memory_bytes: Some(6 << 20),
        open_tables_max: Some(4),
        background_threads: 0,
        log_segment_bytes: 8 << 10,
        inline_value_bytes_max: 64,
        env,
        ..Options::default()
    }
}

/// Returns the options of an event store.
fn store_options(env: Env, is_synced: bool) -> StoreOptions {
    StoreOptions {
        durability: if is_synced { Durability::Synced } else { Durability::Buffered },
        background_threads: 0,
        chunk_bytes: 64 << 10,
        memory_bytes: Some(8 << 20),
        env,
        ..StoreOptions::default()
    }
}

/// Returns the id of the event with this number.
pub fn id(number: u64) -> EventId {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    EventId(bytes)
}

impl StoreHandle {
    /// Opens a store. `is_synced` says whether an event store acknowledges only durable appends.
    pub fn open(
        kind: StoreKind,
        path: &Path,
        env: Env,
        is_synced: bool,
    ) -> StoreResult<StoreHandle> {
        Ok(match kind {
            StoreKind::Keys => StoreHandle::Keys(Db::open(path, options(env))?),
            StoreKind::Events => {
                StoreHandle::Events(Store::open(path, store_options(env, is_synced))?)
            }
        })
    }

    /// Opens a store for reading.
    pub fn open_read_only(kind: StoreKind, path: &Path, env: Env) -> StoreResult<StoreHandle> {
        Ok(match kind {
            StoreKind::Keys => StoreHandle::Keys(Db::open_read_only(path, options(env))?),
            StoreKind::Events => {
                StoreHandle::Events(Store::open_read_only(path, store_options(env, false))?)
            }
        })
    }

    /// Reads the whole content of the store.
    pub fn read(&self) -> StoreResult<StoreContent> {
        let mut map = StoreContent::new();
        match self {
            StoreHandle::Keys(db) => {
                for name in db.keyspaces() {
                    let Some(keyspace) = db.existing_keyspace(&name)? else { continue };
                    for entry in keyspace.iter() {
                        let (key, value) = entry?;
                        map.insert([name.as_bytes(), b"/", &key].concat(), value);
                    }
                }
            }
            StoreHandle::Events(store) => {
                for event in store.read_all(Position::START, Direction::Forwards) {
                    let event = event?;
                    if event.stream.contains(DELETED_STREAM) || event.stream.starts_with('$') {
                        continue;
                    }
                    append_to(&mut map, &event.stream, event.id);
                }
            }
        }
        Ok(map)
    }

    /// Returns a keyspace; creates the keyspace if it is missing.
    pub fn keyspace(&self, name: &str) -> StoreResult<Keyspace> {
        match self {
            StoreHandle::Keys(db) => Ok(db.keyspace(name, keyspace_options())?),
            StoreHandle::Events(_) => Err(wrong_kind()),
        }
    }

    /// Puts, or deletes without a value, in one batch.
    pub fn commit(&self, writes: &[KeyWrite], is_synced: bool) -> StoreResult<()> {
        let StoreHandle::Keys(db) = self else { return Err(wrong_kind()) };
        let mut batch = db.batch();
        for (name, key, value) in writes {
            let keyspace = self.keyspace(name)?;
            match value {
                Some(value) => batch.put(&keyspace, key, value),
                None => batch.delete(&keyspace, key),
            }
        }
        Ok(batch.commit(if is_synced { Durability::Synced } else { Durability::Buffered })?)
    }

    /// Appends events with these numbers.
    pub fn append(
        &self,
        stream: &str,
        numbers: std::ops::Range<u64>,
        bytes: usize,
    ) -> StoreResult<()> {
        let StoreHandle::Events(store) = self else { return Err(wrong_kind()) };
        let data = vec![b' '; bytes];
        let events: Vec<_> = numbers.map(|n| NewEvent::json(id(n), "Happened", &data)).collect();
        store.append(stream, ExpectedVersion::Any, &events)?;
        Ok(())
    }

    /// Makes all writes so far durable.
    pub fn sync(&self) -> StoreResult<()> {
        match self {
            StoreHandle::Keys(db) => db.sync()?,
            StoreHandle::Events(store) => store.sync()?,
        }
        Ok(())
    }

    /// Flushes the memtables.
    pub fn flush(&self) -> StoreResult<()> {
        match self {
            StoreHandle::Keys(db) => db.flush()?,
            StoreHandle::Events(store) => store.flush()?,
        }
        Ok(())
    }

    /// Compacts a keyspace, or deletes a stream and scavenges.
    pub fn compact_or_scavenge(&self) -> StoreResult<()> {
        match self {
            StoreHandle::Keys(_) => self.keyspace("a")?.compact(None, None)?,
            StoreHandle::Events(store) => {
                if let Err(umbel_events::Error::Store(error)) =
                    store.delete(DELETED_STREAM, ExpectedVersion::Any)
                {
                    return Err(error.into());
                }
                store.scavenge(&ScavengeOptions { busy_percent: 100, ..Default::default() })?;
            }
        }
        Ok(())
    }

    /// Writes a copy to a directory: a checkpoint or a backup.
    pub fn copy_to(&self, target: &Path) -> StoreResult<()> {
        match self {
            StoreHandle::Keys(db) => {
                db.checkpoint(target)?;
            }
            StoreHandle::Events(store) => {
                store.backup(target, CopyOptions::default())?;
            }
        }
        Ok(())
    }

    /// Reads and checks every file.
    pub fn verify(&self) -> StoreResult<Option<String>> {
        Ok(match self {
            StoreHandle::Keys(db) => db.verify()?.damage.first().map(ToString::to_string),
            StoreHandle::Events(store) => {
                let report = store.verify()?;
                let damage = report.damage.first().map(ToString::to_string);
                damage.or_else(|| report.index.damage.first().map(ToString::to_string))
            }
        })
    }

    /// Closes the store.
    pub fn close(self) -> StoreResult<()> {
        match self {
            StoreHandle::Keys(db) => db.close()?,
            StoreHandle::Events(store) => store.close()?,
        }
        Ok(())
    }
}

/// A keyspace, a key, and the value to put; `None` for a delete.
pub type KeyWrite = (&'static str, Vec<u8>, Option<Vec<u8>>);

/// Applies a batch of writes to a map.
pub fn put_into(map: &mut StoreContent, writes: &[KeyWrite]) {
    for (name, key, value) in writes {
        let key = [name.as_bytes(), b"/", key].concat();
        match value {
            Some(value) => drop(map.insert(key, value.clone())),
            None => drop(map.remove(&key)),
        }
    }
}

/// Applies an append to a map.
pub fn append_to(map: &mut StoreContent, stream: &str, id: EventId) {
    let place = (map.len() as u64).to_be_bytes().to_vec();
    let number = u64::from_be_bytes(*id.0.first_chunk().unwrap_or(&[0; 8]));
    map.insert(place, format!("{stream}:{number}").into_bytes());
}

fn wrong_kind() -> StoreError {
    let text = "the other kind of store".to_string();
    StoreError { text, is_corruption: false, is_locked: false }
}
