//! [`BackupManifest`]: the file that says what a backup holds, and the other names of its folder.
//!
//! FORMAT: `docs/formats/event-backup.md`. It is replaced as a whole, by rename, after every file
//! that it names is durable; so a backup that did not come to its end is the one before.

use std::path::{Path, PathBuf};

use umbel_base::checksum::checksum;
use umbel_base::{Decoder, varint};
use umbel_env::{Access, Env};

use crate::chunk_table::{ChunkEntry, ChunkTable, Ended};
use crate::error::{Error, Result};

const NAME: &str = "BACKUP";
const NEW_NAME: &str = "BACKUP.new";
/// What marks the folder of a restore that has not come to its end.
const RESTORING: &str = "RESTORING";
const MAGIC: [u8; 8] = *b"UmbelBak";
const VERSION: u8 = 1;
/// No manifest is longer; a damaged length cannot make anybody take more memory.
const BYTES_MAX: u64 = 1 << 30;
/// So many bytes of a file have one checksum.
pub const BLOCK_BYTES: u64 = 1 << 20;

/// One file of a backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupFile {
    /// Its name in the folder `log`, as the store has it.
    pub name: String,
    /// Its first so many bytes belong to the backup.
    pub len: u64,
    /// The checksum of each block, under the chunk's id and the block's offset.
    pub blocks: Vec<u64>,
}

/// What a backup holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupManifest {
    /// How many backups came to their end in this folder. 0: it is ready for the first.
    pub number: u64,
    /// The table of chunks of the store as it was, in which every chunk has ended.
    pub table: ChunkTable,
    /// The file of each chunk, in their order.
    pub files: Vec<BackupFile>,
}

/// The name of the file of a chunk. Whatever else is done to a chunk, its file has another name
/// when it has other bytes.
pub fn file_name(entry: &ChunkEntry) -> String {
    let path = entry.path(Path::new(""));
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Whether a file in the folder of the chunks has a name that a chunk can have.
pub fn is_file_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_digit() || byte == b'-' || byte == b'.';
    name.strip_suffix(".chunk").is_some_and(|stem| {
        !stem.is_empty() && !stem.starts_with('.') && stem.bytes().all(is_plain)
    })
}

/// The file that marks a restore which has not come to its end.
pub fn marker_path(folder: &Path) -> PathBuf {
    folder.join(RESTORING)
}

/// An error where a folder without a table of chunks is that of a backup, or of a restore that has
/// not come to its end: no store can be made there.
pub fn check_no_backup(env: &Env, folder: &Path) -> Result<()> {
    let shown = folder.display();
    if BackupManifest::exists(env, folder)? {
        return Err(Error::invalid(format!(
            "{shown} holds a backup, which is no store: restore it into another folder (`umbel \
             restore`), then open that"
        )));
    }
    if env.files.exists(&marker_path(folder))? {
        return Err(Error::invalid(format!(
            "{shown} is being restored from a backup, or that was interrupted: run the restore \
             again, or remove the folder"
        )));
    }
    Ok(())
}

impl BackupManifest {
    /// That of a folder which is ready for the first backup of a store.
    pub fn new(seed: [u8; 16], instance: [u8; 16]) -> BackupManifest {
        BackupManifest { number: 0, table: ChunkTable::new(seed, instance), files: Vec::new() }
    }

    /// Whether there is one in the folder.
    pub fn exists(env: &Env, folder: &Path) -> Result<bool> {
        Ok(env.files.exists(&folder.join(NAME))?)
    }

    /// Whether a first attempt to make a backup may have left this name, so that nothing is lost
    /// with it.
    pub fn is_left_over(name: &str) -> bool {
        matches!(name, "LOCK" | NEW_NAME)
    }

    /// The position of the last event; 0 where there is none.
    pub fn through(&self) -> u64 {
        let last = self.table.last();
        last.and_then(|entry| Some(entry.start + entry.ended?.last_event)).unwrap_or(0)
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.len).sum()
    }

    /// The chunks with their files.
    pub fn chunks(&self) -> impl Iterator<Item = (&ChunkEntry, &BackupFile)> {
        self.table.chunks.iter().zip(&self.files)
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.push(VERSION);
        varint::put_u64(&mut out, self.number);
        varint::put_bytes(&mut out, &self.table.encode());
        for file in &self.files {
            varint::put_bytes(&mut out, file.name.as_bytes());
            varint::put_u64(&mut out, file.len);
            file.blocks.iter().for_each(|sum| out.extend_from_slice(&sum.to_le_bytes()));
        }
        let sum = checksum(0, 0, &out);
        out.extend_from_slice(&sum.to_le_bytes());
        out
    }

    /// Reads what [`BackupManifest::encode`] wrote; `None` where it is malformed. The checksum was
    /// checked.
    fn decode_body(bytes: &[u8]) -> Option<BackupManifest> {
        let mut decoder = Decoder::new(bytes);
        let number = decoder.varint()?;
        let table = ChunkTable::decode(decoder.bytes()?, Path::new(NAME)).ok()?;
        let mut files = Vec::new();
        for entry in &table.chunks {
            let name = String::from_utf8(decoder.bytes()?.to_vec()).ok()?;
            let len = decoder.varint()?;
            let has_file = |ended: &Ended| ended.last_event > 0 || entry.packed.is_some();
            let ended = entry.ended.filter(has_file)?;
            let wanted = entry.packed.map_or(ended.file_bytes(), |packed| packed.file_bytes);
            if !is_file_name(&name) || len != wanted {
                return None;
            }
            let count = usize::try_from(len.div_ceil(BLOCK_BYTES)).ok()?;
            let sums = decoder.take(count.checked_mul(8)?)?;
            let sums = sums.chunks_exact(8).filter_map(|sum| sum.first_chunk());
            let blocks = sums.map(|sum| u64::from_le_bytes(*sum)).collect();
            files.push(BackupFile { name, len, blocks });
        }
        let names: std::collections::HashSet<_> = files.iter().map(|file| &file.name).collect();
        let is_sound = decoder.is_done() && names.len() == files.len();
        // A folder that is ready for the first backup holds none.
        let is_sound = is_sound && (number > 0 || files.is_empty());
        is_sound.then_some(BackupManifest { number, table, files })
    }

    /// Reads the manifest of a file.
    ///
    /// # Errors
    /// What is wrong with its bytes, and where.
    fn decode(bytes: &[u8], path: &Path) -> Result<BackupManifest> {
        let corrupt = |offset: u64, reason: &str| -> Error {
            let reason = format!(
                "{reason} (back up the store to another folder; if it is gone, remove this file \
                 and run `umbel repair` on the folder, which makes a store of the rest)"
            );
            umbel::Error::corruption(path, offset, reason).into()
        };
        let Some((head, sum)) = bytes.split_last_chunk::<8>() else {
            return Err(corrupt(0, "the manifest of the backup is cut short"));
        };
        if !head.starts_with(&MAGIC) || head.len() <= MAGIC.len() {
            return Err(corrupt(0, "the file is no manifest of a backup"));
        }
        if checksum(0, 0, head) != u64::from_le_bytes(*sum) {
            return Err(corrupt(0, "the manifest of the backup does not match its checksum"));
        }
        let version = head[MAGIC.len()];
        if version > VERSION {
            return Err(Error::invalid(format!(
                "{} was written by a newer Umbel (backup {version}, this one reads up to \
                 {VERSION}); use that version or a later one",
                path.display()
            )));
        }
        let body = &head[MAGIC.len() + 1..];
        BackupManifest::decode_body(body).ok_or_else(|| match newer_table(body, path) {
            Some(newer) => newer,
            None => corrupt(MAGIC.len() as u64, "the manifest of the backup is malformed"),
        })
    }

    /// Reads the manifest in a folder.
    ///
    /// # Errors
    /// `Invalid` where there is none, and `Corruption`.
    pub fn read(env: &Env, folder: &Path) -> Result<BackupManifest> {
        let path = folder.join(NAME);
        if !env.files.exists(&path)? {
            let what = match ChunkTable::exists(env, folder)? {
                true => "it holds an event store, of which `umbel backup` makes one",
                false => "it has no file BACKUP",
            };
            let shown = folder.display();
            return Err(Error::invalid(format!("there is no backup in {shown}: {what}")));
        }
        let file = env.files.open(&path, Access::Read)?;
        let len = file.len()?;
        if len > BYTES_MAX {
            let reason = "no manifest of a backup is as long";
            return Err(umbel::Error::corruption(&path, BYTES_MAX, reason).into());
        }
        let mut bytes = vec![0; len as usize];
        file.read_exact_at(&mut bytes, 0)?;
        BackupManifest::decode(&bytes, &path)
    }

    /// As [`BackupManifest::read`], of a backup that came to its end.
    pub fn read_complete(env: &Env, folder: &Path) -> Result<BackupManifest> {
        let manifest = BackupManifest::read(env, folder)?;
        if manifest.number == 0 {
            return Err(Error::invalid(format!(
                "no backup came to its end in {} yet; run `umbel backup` again",
                folder.display()
            )));
        }
        Ok(manifest)
    }

    /// Puts this manifest in the place of the one in `folder`, and makes it durable with every name
    /// of the folder.
    ///
    /// REQUIRES: all files in it are durable, and their names.
    pub fn write(&self, env: &Env, folder: &Path) -> Result<()> {
        let new = folder.join(NEW_NAME);
        if env.files.exists(&new)? {
            // Left over from a write that failed.
            env.files.remove_file(&new)?;
        }
        let write = || {
            let file = env.files.create(&new)?;
            file.write_all_at(&self.encode(), 0)?;
            file.sync()
        };
        if let Err(error) = write() {
            // The first failure is the one to report.
            let _ = env.files.remove_file(&new);
            return Err(error.into());
        }
        env.files.rename(&new, &folder.join(NAME))?;
        Ok(env.files.sync_dir(folder)?)
    }
}

/// What is said of a table of chunks that a newer Umbel wrote.
fn newer_table(body: &[u8], path: &Path) -> Option<Error> {
    let mut decoder = Decoder::new(body);
    decoder.varint()?;
    match ChunkTable::decode(decoder.bytes()?, path) {
        Err(umbel::Error::Invalid(reason)) => Some(Error::Invalid(reason)),
        _ => None,
    }
}

/// Decodes a manifest without its checksum, and encodes it again. For fuzzing only.
pub fn fuzz(body: &[u8]) {
    if let Some(manifest) = BackupManifest::decode_body(body) {
        let again = BackupManifest::decode(&manifest.encode(), Path::new(NAME)).ok();
        assert_eq!(again, Some(manifest), "what was read can be written and read again");
    }
    let _ = BackupManifest::decode(body, Path::new(NAME));
}

#[cfg(test)]
#[path = "backup_manifest_tests.rs"]
mod tests;
