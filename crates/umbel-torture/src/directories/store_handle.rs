//! An open store of either kind, as far as scripts use it.

use std::path::Path;

use umbel::{Db, Durability, Env, Keyspace, KeyspaceOptions, Options};
use umbel_events::{
    CopyOptions, Direction, EventId, Expected, NewEvent, Position, ScavengeOptions, Store,
    StoreOptions,
};

use super::ledger::Map;

/// Streams of this name are deleted, and not in what a store is said to hold.
pub const GONE: &str = "gone";

/// Which kind of store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A key-value store.
    Keys,
    /// An event store.
    Events,
}

/// An error of either kind of store.
#[derive(Debug, Clone)]
pub struct Failed {
    /// What was said.
    pub text: String,
    /// Whether damage was reported.
    pub is_corruption: bool,
    /// Whether the store was said to be locked.
    pub is_locked: bool,
}

impl From<umbel::Error> for Failed {
    fn from(error: umbel::Error) -> Failed {
        Failed {
            text: error.to_string(),
            is_corruption: matches!(error, umbel::Error::Corruption { .. }),
            is_locked: matches!(error, umbel::Error::Locked(_)),
        }
    }
}

impl From<umbel_events::Error> for Failed {
    fn from(error: umbel_events::Error) -> Failed {
        match error {
            umbel_events::Error::Store(error) => error.into(),
            other => Failed { text: other.to_string(), is_corruption: false, is_locked: false },
        }
    }
}

/// What came of a call.
pub type Done<T> = Result<T, Failed>;

/// An open store.
#[derive(Debug)]
pub enum Handle {
    /// A key-value store.
    Keys(Db),
    /// An event store.
    Events(Store),
}

fn keyspace_options() -> KeyspaceOptions {
    crate::script::small()
}

/// Options of a key-value store.
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

/// Options of an event store.
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

/// The id of the event with this number.
pub fn id(number: u64) -> EventId {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    EventId(bytes)
}

impl Handle {
    /// Opens a store. `is_synced` is whether an event store acknowledges durable appends only.
    pub fn open(kind: Kind, path: &Path, env: Env, is_synced: bool) -> Done<Handle> {
        Ok(match kind {
            Kind::Keys => Handle::Keys(Db::open(path, options(env))?),
            Kind::Events => Handle::Events(Store::open(path, store_options(env, is_synced))?),
        })
    }

    /// Opens a store for reading.
    pub fn open_read_only(kind: Kind, path: &Path, env: Env) -> Done<Handle> {
        Ok(match kind {
            Kind::Keys => Handle::Keys(Db::open_read_only(path, options(env))?),
            Kind::Events => Handle::Events(Store::open_read_only(path, store_options(env, false))?),
        })
    }

    /// Everything in it.
    pub fn read(&self) -> Done<Map> {
        let mut map = Map::new();
        match self {
            Handle::Keys(db) => {
                for name in db.keyspaces() {
                    let Some(keyspace) = db.existing_keyspace(&name)? else { continue };
                    for entry in keyspace.iter() {
                        let (key, value) = entry?;
                        map.insert([name.as_bytes(), b"/", &key].concat(), value);
                    }
                }
            }
            Handle::Events(store) => {
                for event in store.read_all(Position::START, Direction::Forwards) {
                    let event = event?;
                    if event.stream.contains(GONE) || event.stream.starts_with('$') {
                        continue;
                    }
                    append_to(&mut map, &event.stream, event.id);
                }
            }
        }
        Ok(map)
    }

    /// A keyspace, created where it is missing.
    pub fn keyspace(&self, name: &str) -> Done<Keyspace> {
        match self {
            Handle::Keys(db) => Ok(db.keyspace(name, keyspace_options())?),
            Handle::Events(_) => Err(wrong_kind()),
        }
    }

    /// Puts (or, without a value, deletes) in one batch.
    pub fn commit(&self, writes: &[Write], is_synced: bool) -> Done<()> {
        let Handle::Keys(db) = self else { return Err(wrong_kind()) };
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
    pub fn append(&self, stream: &str, numbers: std::ops::Range<u64>, bytes: usize) -> Done<()> {
        let Handle::Events(store) = self else { return Err(wrong_kind()) };
        let data = vec![b' '; bytes];
        let events: Vec<_> = numbers.map(|n| NewEvent::json(id(n), "Happened", &data)).collect();
        store.append(stream, Expected::Any, &events)?;
        Ok(())
    }

    /// Makes everything durable.
    pub fn sync(&self) -> Done<()> {
        match self {
            Handle::Keys(db) => db.sync()?,
            Handle::Events(store) => store.sync()?,
        }
        Ok(())
    }

    /// Writes what is in memtables to tables.
    pub fn flush(&self) -> Done<()> {
        match self {
            Handle::Keys(db) => db.flush()?,
            Handle::Events(store) => store.flush()?,
        }
        Ok(())
    }

    /// Compacts a keyspace, or deletes a stream and scavenges.
    pub fn tidy_up(&self) -> Done<()> {
        match self {
            Handle::Keys(_) => self.keyspace("a")?.compact(None, None)?,
            Handle::Events(store) => {
                if let Err(umbel_events::Error::Store(error)) = store.delete(GONE, Expected::Any) {
                    return Err(error.into());
                }
                store.scavenge(&ScavengeOptions { busy_percent: 100, ..Default::default() })?;
            }
        }
        Ok(())
    }

    /// Writes a copy to a directory: a checkpoint or a backup.
    pub fn copy_to(&self, target: &Path) -> Done<()> {
        match self {
            Handle::Keys(db) => {
                db.checkpoint(target)?;
            }
            Handle::Events(store) => {
                store.backup(target, CopyOptions::default())?;
            }
        }
        Ok(())
    }

    /// Reads and checks every file.
    pub fn verify(&self) -> Done<Option<String>> {
        Ok(match self {
            Handle::Keys(db) => db.verify()?.damage.first().map(ToString::to_string),
            Handle::Events(store) => {
                let report = store.verify()?;
                let damage = report.damage.first().map(ToString::to_string);
                damage.or_else(|| report.index.damage.first().map(ToString::to_string))
            }
        })
    }

    /// Closes the store.
    pub fn close(self) -> Done<()> {
        match self {
            Handle::Keys(db) => db.close()?,
            Handle::Events(store) => store.close()?,
        }
        Ok(())
    }
}

/// A keyspace, a key, and the value that is put; `None` for a deletion.
pub type Write = (&'static str, Vec<u8>, Option<Vec<u8>>);

/// What a batch of writes changes.
pub fn put_into(map: &mut Map, writes: &[Write]) {
    for (name, key, value) in writes {
        let key = [name.as_bytes(), b"/", key].concat();
        match value {
            Some(value) => drop(map.insert(key, value.clone())),
            None => drop(map.remove(&key)),
        }
    }
}

/// What an append changes.
pub fn append_to(map: &mut Map, stream: &str, id: EventId) {
    let place = (map.len() as u64).to_be_bytes().to_vec();
    let number = u64::from_be_bytes(*id.0.first_chunk().unwrap_or(&[0; 8]));
    map.insert(place, format!("{stream}:{number}").into_bytes());
}

fn wrong_kind() -> Failed {
    let text = "the other kind of store".to_string();
    Failed { text, is_corruption: false, is_locked: false }
}
