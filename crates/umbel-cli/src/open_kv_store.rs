//! How a command opens the store it was pointed at.

use std::path::{Path, PathBuf};

use umbel::{Db, Durability, Keyspace, KeyspaceOptions, Options};
use umbel_env::Env;
use umbel_events::check_mistaken;

use crate::errors::{Failure, Outcome};
use crate::folders::{KV_FOLDER, is_event_store};
use crate::limits::Limits;

/// The store named by `--db` or `UMBEL_DB`.
#[derive(Debug, Clone)]
pub struct Store {
    folder: PathBuf,
    limits: Limits,
}

impl Store {
    /// The store in `folder`; a sentence where none was named.
    pub fn named(folder: Option<&Path>, limits: Limits) -> Outcome<Store> {
        Ok(Store { folder: required(folder)?.to_path_buf(), limits })
    }

    /// Opens a store that exists, for reading only.
    pub fn open_to_read(&self) -> Outcome<Db> {
        self.require()?;
        let options = Options { create_if_missing: false, ..self.options() };
        Ok(Db::open_read_only(&self.folder, options)?)
    }

    /// Opens a store that exists, for writing.
    pub fn open_to_change(&self, durability: Durability) -> Outcome<Db> {
        self.require()?;
        refuse_inside(&self.folder)?;
        let options = Options { create_if_missing: false, durability, ..self.options() };
        Ok(Db::open(&self.folder, options)?)
    }

    /// Opens the store for writing and creates it where the folder is missing or empty.
    pub fn open_or_create(&self, durability: Durability) -> Outcome<Db> {
        refuse_file(&self.folder)?;
        refuse_events(&self.folder)?;
        refuse_inside(&self.folder)?;
        Ok(Db::open(&self.folder, Options { durability, ..self.options() })?)
    }

    fn options(&self) -> Options {
        self.limits.put_into(Options::default())
    }

    /// A sentence of our own where there is no folder: the engine would name a file inside it.
    fn require(&self) -> Outcome<()> {
        refuse_file(&self.folder)?;
        refuse_events(&self.folder)?;
        match std::fs::metadata(&self.folder) {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Err(Failure::usage(format!(
                    "there is no folder {}; check --db, or create a store there with \
                     `umbel import` or `umbel put`",
                    self.folder.display()
                )))
            }
            Err(error) => Err(Failure::system("open", &self.folder, &error)),
        }
    }
}

/// The folder that was named; a sentence where none was.
pub fn required(folder: Option<&Path>) -> Outcome<&Path> {
    folder.ok_or_else(|| {
        Failure::usage("which store? Name its folder with --db DIR, or set UMBEL_DB to it")
    })
}

/// A sentence where a file was named.
pub fn refuse_file(folder: &Path) -> Outcome<()> {
    if std::fs::metadata(folder).is_ok_and(|metadata| !metadata.is_dir()) {
        return Err(Failure::usage(format!(
            "{} is a file, but a store is a folder; name the folder with --db DIR",
            folder.display()
        )));
    }
    Ok(())
}

/// A sentence where the folder holds events and not keys and values, or did so once.
fn refuse_events(folder: &Path) -> Outcome<()> {
    if is_event_store(folder) {
        return Err(Failure::usage(format!(
            "{} holds an event store; `umbel read`, `append`, `streams` and `delete --stream` are \
             for those",
            folder.display()
        )));
    }
    match folder.is_dir() && !folder.join("CURRENT").exists() {
        true => Ok(check_mistaken(&Env::system(), folder)?),
        // Whoever opens it says what is wrong with it.
        false => Ok(()),
    }
}

/// A sentence where the folder lies in that of an event store, as its index does: what is written
/// there is not what the store wrote. The keys and values that its server keeps may be written.
fn refuse_inside(folder: &Path) -> Outcome<()> {
    let resolved = Env::system().files.resolved(folder);
    match resolved.ancestors().skip(1).find(|above| is_event_store(above)) {
        Some(store) if resolved != store.join(KV_FOLDER) => Err(Failure::usage(format!(
            "{} lies in the folder of the event store {}, whose folders are its own; name one \
             outside of it",
            folder.display(),
            store.display()
        ))),
        _ => Ok(()),
    }
}

/// A keyspace that exists; a sentence with the names that do where it does not.
pub fn existing_keyspace(db: &Db, name: &str) -> Outcome<Keyspace> {
    if let Some(keyspace) = db.existing_keyspace(name)? {
        return Ok(keyspace);
    }
    let names = db.keyspaces();
    let path = db.path().display();
    Err(Failure::usage(if names.is_empty() {
        format!("the store in {path} has no keyspaces yet; `umbel put` or `umbel import` makes one")
    } else {
        format!(
            "the store in {path} has no keyspace `{name}`; it has {}",
            names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
        )
    }))
}

/// A keyspace to write to. One that exists keeps the options it has.
pub fn keyspace_to_write(db: &Db, name: &str) -> Outcome<Keyspace> {
    match db.existing_keyspace(name)? {
        Some(keyspace) => Ok(keyspace),
        None => Ok(db.keyspace(name, KeyspaceOptions::default())?),
    }
}
