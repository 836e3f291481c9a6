//! [`BackupManifest`]: the file that lists the contents of a backup; also the names of the other
//! files in the backup's folder.
//!
//! FORMAT: `docs/formats/event-backup.md`. A backup replaces the manifest as a whole, by rename,
//! after every file that the manifest names is durable. So an interrupted backup leaves the
//! previous backup intact.

use std::path::{Path, PathBuf};

use umbel_backup::{BackupIdentity, DIRECTORY_BACKUP_MAGIC};
use umbel_base::checksum::checksum;
use umbel_base::shell_word::{directory_url, quote_path};
use umbel_base::{Decoder, varint};
use umbel_env::{Access, Env};

use crate::event_log::chunk_manifest::{ChunkEnd, ChunkEntry, ChunkManifest};
use crate::types::error::{Error, Result};

const MANIFEST_NAME: &str = "BACKUP";
const NEW_MANIFEST_NAME: &str = "BACKUP.new";
/// Name of the file that marks an unfinished restore.
const RESTORE_MARKER_NAME: &str = "RESTORING";
const MAGIC: [u8; 8] = DIRECTORY_BACKUP_MAGIC;
const VERSION: u8 = 1;
/// Maximum length of a manifest; it bounds the memory that a damaged length can request.
const BYTES_MAX: u64 = 1 << 30;
/// Bytes of a file that share a checksum.
pub const BLOCK_BYTES: u64 = 1 << 20;

/// One file of a backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupFile {
    /// Name of the file in the folder `log`, the same as in the store.
    pub name: String,
    /// Length of the prefix of the file that belongs to the backup, in bytes.
    pub len: u64,
    /// Checksum of each block, which covers the chunk's id and the block's offset, too.
    pub block_checksums: Vec<u64>,
}

/// Contents of a backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupManifest {
    /// Number of backups that finished in this folder. 0 means that the folder is ready for the
    /// first backup.
    pub number: u64,
    /// The store's chunk manifest at the time of the backup, with an end recorded for every chunk.
    pub chunk_manifest: ChunkManifest,
    /// File of each chunk, in the order of the chunks.
    pub files: Vec<BackupFile>,
}

/// Name of the file of a chunk. A chunk's file gets another name whenever its bytes change,
/// whatever the reason.
pub fn file_name(entry: &ChunkEntry) -> String {
    let path = entry.path(Path::new(""));
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Whether a file name in the folder of the chunks may be the name of a chunk's file.
pub fn is_file_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_digit() || byte == b'-' || byte == b'.';
    name.strip_suffix(".chunk").is_some_and(|stem| {
        !stem.is_empty() && !stem.starts_with('.') && stem.bytes().all(is_plain)
    })
}

/// Path of the file that marks an unfinished restore.
pub fn restore_marker_path(folder: &Path) -> PathBuf {
    folder.join(RESTORE_MARKER_NAME)
}

/// Returns an error if the folder, which has no chunk manifest, holds a backup or an unfinished
/// restore. No store can be created in such a folder.
pub fn check_no_backup(env: &Env, folder: &Path) -> Result<()> {
    let shown = folder.display();
    if BackupManifest::exists(env, folder)? {
        return Err(Error::invalid(format!(
            "{shown} holds a backup, not an event store: restore the backup into another \
             directory (`umbel restore --from {} --db DIR`), then open that directory",
            quote_path(folder)
        )));
    }
    if env.files.exists(&restore_marker_path(folder))? {
        return Err(Error::invalid(format!(
            "the restore of a backup into {shown} is still running or was interrupted: run the \
             restore again, or remove the directory"
        )));
    }
    Ok(())
}

impl BackupManifest {
    /// Creates the manifest of a folder that is ready for the first backup of a store.
    pub fn new(seed: [u8; 16], instance: [u8; 16]) -> BackupManifest {
        BackupManifest {
            number: 0,
            chunk_manifest: ChunkManifest::new(seed, instance),
            files: Vec::new(),
        }
    }

    /// Whether the folder has a manifest.
    pub fn exists(env: &Env, folder: &Path) -> Result<bool> {
        Ok(env.files.exists(&folder.join(MANIFEST_NAME))?)
    }

    /// Whether a failed first backup may have left a file of this name; such a file can be removed
    /// without loss.
    pub fn is_partial_backup_name(name: &str) -> bool {
        matches!(name, "LOCK" | NEW_MANIFEST_NAME)
    }

    /// Position of the last event; 0 without events.
    pub fn last_position(&self) -> u64 {
        let last = self.chunk_manifest.last();
        last.and_then(|entry| Some(entry.start + entry.ended?.last_event)).unwrap_or(0)
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.len).sum()
    }

    /// The chunks and their files.
    pub fn chunks(&self) -> impl Iterator<Item = (&ChunkEntry, &BackupFile)> {
        self.chunk_manifest.chunks.iter().zip(&self.files)
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.push(VERSION);
        varint::put_u64(&mut out, self.number);
        varint::put_bytes(&mut out, &self.chunk_manifest.encode());
        for file in &self.files {
            varint::put_bytes(&mut out, file.name.as_bytes());
            varint::put_u64(&mut out, file.len);
            file.block_checksums.iter().for_each(|sum| out.extend_from_slice(&sum.to_le_bytes()));
        }
        let sum = checksum(0, 0, &out);
        out.extend_from_slice(&sum.to_le_bytes());
        out
    }

    /// Decodes the output of [`BackupManifest::encode`]; `None` where it is malformed. The caller
    /// checks the checksum.
    fn decode_body(bytes: &[u8]) -> Option<BackupManifest> {
        let mut decoder = Decoder::new(bytes);
        let number = decoder.varint()?;
        let chunk_manifest =
            ChunkManifest::decode(decoder.bytes()?, Path::new(MANIFEST_NAME)).ok()?;
        let mut files = Vec::new();
        for entry in &chunk_manifest.chunks {
            let name = String::from_utf8(decoder.bytes()?.to_vec()).ok()?;
            let len = decoder.varint()?;
            let has_file = |ended: &ChunkEnd| ended.last_event > 0 || entry.scavenged.is_some();
            let ended = entry.ended.filter(has_file)?;
            let wanted =
                entry.scavenged.map_or(ended.file_bytes(), |scavenged| scavenged.file_bytes);
            if !is_file_name(&name) || len != wanted {
                return None;
            }
            let count = usize::try_from(len.div_ceil(BLOCK_BYTES)).ok()?;
            let sums = decoder.take(count.checked_mul(8)?)?;
            let sums = sums.chunks_exact(8).filter_map(|sum| sum.first_chunk());
            let blocks = sums.map(|sum| u64::from_le_bytes(*sum)).collect();
            files.push(BackupFile { name, len, block_checksums: blocks });
        }
        let names: std::collections::HashSet<_> = files.iter().map(|file| &file.name).collect();
        let is_sound = decoder.is_done() && names.len() == files.len();
        // A folder that is ready for the first backup has no files.
        let is_sound = is_sound && (number > 0 || files.is_empty());
        is_sound.then_some(BackupManifest { number, chunk_manifest, files })
    }

    /// Decodes the manifest of a file.
    ///
    /// # Errors
    /// Damaged bytes, with their place in the file.
    fn decode(bytes: &[u8], path: &Path) -> Result<BackupManifest> {
        let corrupt = |offset: u64, reason: &str| -> Error {
            let reason = format!(
                "{reason} (back up the store to another directory; if the store is lost, remove \
                 this file and run `umbel repair --db {}`, which makes a store of the readable \
                 events)",
                quote_path(path.parent().unwrap_or(path))
            );
            umbel::Error::corruption(path, offset, reason).into()
        };
        let Some((head, sum)) = bytes.split_last_chunk::<8>() else {
            return Err(corrupt(0, "the manifest of the backup is truncated"));
        };
        if !head.starts_with(&MAGIC) || head.len() <= MAGIC.len() {
            return Err(corrupt(0, "the file is not the manifest of a backup"));
        }
        if checksum(0, 0, head) != u64::from_le_bytes(*sum) {
            return Err(corrupt(0, "the manifest of the backup does not match its checksum"));
        }
        let version = head[MAGIC.len()];
        if version > VERSION {
            return Err(Error::invalid(format!(
                "{} was written by a newer Umbel (backup format {version}, this Umbel reads up to \
                 {VERSION}); use the newer Umbel or a later one",
                path.display()
            )));
        }
        let body = &head[MAGIC.len() + 1..];
        BackupManifest::decode_body(body).ok_or_else(|| match newer_manifest_error(body, path) {
            Some(newer) => newer,
            None => corrupt(MAGIC.len() as u64, "the manifest of the backup is malformed"),
        })
    }

    /// Reads the manifest in a folder.
    ///
    /// # Errors
    /// `Invalid` where the folder has none, or has the backup of an object store, and `Corruption`.
    pub fn read(env: &Env, folder: &Path) -> Result<BackupManifest> {
        let path = folder.join(MANIFEST_NAME);
        if !env.files.exists(&path)? {
            let what = match ChunkManifest::exists(env, folder)? {
                true => format!(
                    "the directory holds an event store, which `umbel backup --db {} --to TARGET` \
                     can back up",
                    quote_path(folder)
                ),
                false => "the directory has no file BACKUP".to_string(),
            };
            let shown = folder.display();
            return Err(Error::invalid(format!("there is no backup in {shown}: {what}")));
        }
        let file = env.files.open(&path, Access::Read)?;
        let len = file.len()?;
        if len > BYTES_MAX {
            let reason = "the file is too long for the manifest of a backup";
            return Err(umbel::Error::corruption(&path, BYTES_MAX, reason).into());
        }
        let mut bytes = vec![0; len as usize];
        file.read_exact_at(&mut bytes, 0)?;
        if BackupIdentity::is_start_of(&bytes) {
            return Err(Error::invalid(format!(
                "{} holds a backup of an object store: name it by its URL, {}",
                folder.display(),
                directory_url(&env.files.absolute(folder)?)
            )));
        }
        BackupManifest::decode(&bytes, &path)
    }

    /// Like [`BackupManifest::read`], but also returns an error where no backup has finished.
    pub fn read_complete(env: &Env, folder: &Path) -> Result<BackupManifest> {
        let manifest = BackupManifest::read(env, folder)?;
        if manifest.number == 0 {
            return Err(Error::invalid(format!(
                "the first backup to {} is not complete; run `umbel backup --db STORE --to {}` \
                 again",
                folder.display(),
                quote_path(folder)
            )));
        }
        Ok(manifest)
    }

    /// Replaces the manifest in `folder`, and makes the new one durable with every name of the
    /// folder.
    ///
    /// REQUIRES: all files that the manifest lists are durable, and so are their names.
    pub fn write(&self, env: &Env, folder: &Path) -> Result<()> {
        let new = folder.join(NEW_MANIFEST_NAME);
        if env.files.exists(&new)? {
            // Left by a failed write.
            env.files.remove_file(&new)?;
        }
        let write = || {
            let file = env.files.create(&new)?;
            file.write_all_at(&self.encode(), 0)?;
            file.sync()
        };
        if let Err(error) = write() {
            // The first failure is reported.
            let _ = env.files.remove_file(&new);
            return Err(error.into());
        }
        env.files.rename(&new, &folder.join(MANIFEST_NAME))?;
        Ok(env.files.sync_dir(folder)?)
    }
}

/// Returns the error for a chunk manifest that a newer Umbel wrote.
fn newer_manifest_error(body: &[u8], path: &Path) -> Option<Error> {
    let mut decoder = Decoder::new(body);
    decoder.varint()?;
    match ChunkManifest::decode(decoder.bytes()?, path) {
        Err(umbel::Error::Invalid(reason)) => Some(Error::Invalid(reason)),
        _ => None,
    }
}

/// Decodes a manifest without its checksum, and encodes it again. For fuzzing only.
pub fn fuzz(body: &[u8]) {
    if let Some(manifest) = BackupManifest::decode_body(body) {
        let again = BackupManifest::decode(&manifest.encode(), Path::new(MANIFEST_NAME)).ok();
        assert_eq!(again, Some(manifest), "encoding and decoding again returns the same");
    }
    let _ = BackupManifest::decode(body, Path::new(MANIFEST_NAME));
}

#[cfg(test)]
mod tests;
