//! Opening of the key-value store that a command names.

use std::path::{Path, PathBuf};

use umbel::{Db, Durability, Keyspace, KeyspaceOptions, Options};
use umbel_base::shell_word::{quote, quote_path};
use umbel_env::Env;
use umbel_events::check_folder_kind;

use crate::errors::{CommandError, CommandResult};
use crate::global_options::StoreLimits;
use crate::store_kind::{KV_DIRECTORY, is_event_store};

/// The store named by `--db` or `UMBEL_DB`.
#[derive(Debug, Clone)]
pub struct StoreLocation {
    directory: PathBuf,
    limits: StoreLimits,
}

impl StoreLocation {
    /// Returns the store in `directory`.
    ///
    /// # Errors
    /// Neither `--db` nor `UMBEL_DB` names a directory.
    pub fn at_directory(
        directory: Option<&Path>,
        limits: StoreLimits,
    ) -> CommandResult<StoreLocation> {
        Ok(StoreLocation { directory: require_directory(directory)?.to_path_buf(), limits })
    }

    /// Opens an existing store for reading only.
    pub fn open_read_only(&self) -> CommandResult<Db> {
        self.require_exists()?;
        let options = Options { create_if_missing: false, ..self.options() };
        Ok(Db::open_read_only(&self.directory, options)?)
    }

    /// Opens an existing store for writing.
    pub fn open_existing(&self, durability: Durability) -> CommandResult<Db> {
        self.require_exists()?;
        refuse_index_directory(&self.directory)?;
        let options = Options { create_if_missing: false, durability, ..self.options() };
        Ok(Db::open(&self.directory, options)?)
    }

    /// Opens the store for writing and creates the store if the directory is missing or empty.
    pub fn open_or_create(&self, durability: Durability) -> CommandResult<Db> {
        refuse_file(&self.directory)?;
        refuse_events(&self.directory)?;
        refuse_index_directory(&self.directory)?;
        Ok(Db::open(&self.directory, Options { durability, ..self.options() })?)
    }

    fn options(&self) -> Options {
        self.limits.apply_to(Options::default())
    }

    /// Rejects a missing directory; the store's own error would name a file inside the directory.
    fn require_exists(&self) -> CommandResult<()> {
        refuse_file(&self.directory)?;
        refuse_events(&self.directory)?;
        match std::fs::metadata(&self.directory) {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Err(CommandError::usage(format!(
                    "the directory {} does not exist; check --db, or create a store there with \
                     `umbel put KEY VALUE --db {}` or `umbel import`",
                    self.directory.display(),
                    quote_path(&self.directory)
                )))
            }
            Err(error) => Err(CommandError::system("open", &self.directory, &error)),
        }
    }
}

/// Returns the named directory, or an error if none is named.
pub fn require_directory(directory: Option<&Path>) -> CommandResult<&Path> {
    directory.ok_or_else(|| {
        CommandError::usage("no store is named; name its directory with --db DIR or with UMBEL_DB")
    })
}

/// Rejects a path that is a file instead of a directory, or lies below a file.
pub fn refuse_file(directory: &Path) -> CommandResult<()> {
    refuse_file_as(directory, "a store", "name the directory with --db DIR")
}

/// Like [`refuse_file`], for the directory of a backup.
pub fn refuse_file_as_backup(directory: &Path) -> CommandResult<()> {
    refuse_file_as(directory, "a backup", "name another directory")
}

fn refuse_file_as(directory: &Path, what: &str, advice: &str) -> CommandResult<()> {
    let is_file = |path: &&Path| std::fs::metadata(path).is_ok_and(|metadata| !metadata.is_dir());
    let Some(file) = directory.ancestors().find(is_file) else { return Ok(()) };
    let shown = file.display();
    Err(CommandError::usage(match file == directory {
        true => format!("{shown} is a file, but {what} is a directory; {advice}"),
        false => {
            format!("{shown} is a file, so {} cannot be a directory; {advice}", directory.display())
        }
    }))
}

/// Rejects the directory of an event store, complete or not.
fn refuse_events(directory: &Path) -> CommandResult<()> {
    if is_event_store(directory) {
        return Err(CommandError::usage(format!(
            "{} holds an event store, not a key-value store; use the commands for events, such as \
             `umbel read --all --db {}`",
            directory.display(),
            quote_path(directory)
        )));
    }
    let has_current = || directory.join("CURRENT").exists();
    if !directory.is_dir() || has_current() {
        // The open that follows reports what is wrong.
        return Ok(());
    }
    match check_folder_kind(&Env::system(), directory) {
        // Another program has created the key-value store meanwhile.
        Err(_) if has_current() => Ok(()),
        checked => Ok(checked?),
    }
}

/// Rejects a directory inside an event store, such as its index, since a write would corrupt it.
/// The key-value store of the server is allowed.
fn refuse_index_directory(directory: &Path) -> CommandResult<()> {
    let resolved = Env::system().files.resolved(directory);
    match resolved.ancestors().skip(1).find(|above| is_event_store(above)) {
        Some(store) if resolved != store.join(KV_DIRECTORY) => Err(CommandError::usage(format!(
            "{} is inside the event store {}, which can hold no other store; name a directory \
             outside that store",
            directory.display(),
            store.display()
        ))),
        _ => Ok(()),
    }
}

/// Returns an existing keyspace; the error lists the existing names.
pub fn existing_keyspace(db: &Db, name: &str) -> CommandResult<Keyspace> {
    if let Some(keyspace) = db.existing_keyspace(name)? {
        return Ok(keyspace);
    }
    let names = db.keyspaces();
    let path = db.path().display();
    Err(CommandError::usage(if names.is_empty() {
        format!(
            "the store in {path} has no keyspaces yet; `umbel put KEY VALUE --keyspace {} --db {}` \
             or `umbel import` creates a keyspace",
            quote(name),
            quote_path(db.path())
        )
    } else {
        format!(
            "the store in {path} has no keyspace `{name}`; its keyspaces are {}",
            names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
        )
    }))
}

/// Opens a keyspace, or creates it with default options.
pub fn open_or_create_keyspace(db: &Db, name: &str) -> CommandResult<Keyspace> {
    match db.existing_keyspace(name)? {
        Some(keyspace) => Ok(keyspace),
        None => Ok(db.keyspace(name, KeyspaceOptions::default())?),
    }
}
