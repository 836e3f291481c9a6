//! [`FilterDirectory`]: the folder of a filter, the names of its files, and numbers for new files.
//!
//! The folder is listed only to find used ids and orphans to remove. Only `CHECKPOINT` says which
//! files are live.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use umbel_base::{Error, Result};
use umbel_env::{Access, Env, File};

/// The name of the file that says which other files are live.
pub(crate) const CHECKPOINT: &str = "CHECKPOINT";
/// The name of the next `CHECKPOINT` until it is renamed.
pub(crate) const CHECKPOINT_NEW: &str = "CHECKPOINT.new";
/// Upper bound of file numbers in a folder; larger ones would leave too few numbers.
pub(crate) const ID_MAX: u64 = 1 << 62;

/// Bytes of a file that an open requests from the system ahead of their use.
pub(crate) const READ_AHEAD_BYTES: u64 = 2 << 20;
/// Suffix of journal names.
const JOURNAL: &str = "journal";

/// The kinds of numbered files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FilterFileKind {
    /// The lines of a filter.
    Filter,
    /// A journal of hashes inserted since the last generation.
    Journal,
}

impl FilterFileKind {
    fn extension(self) -> &'static str {
        match self {
            FilterFileKind::Filter => "filter",
            FilterFileKind::Journal => JOURNAL,
        }
    }
}

/// Returns the name of a numbered file.
pub(crate) fn name_of(kind: FilterFileKind, id: u64) -> String {
    format!("{id:06}.{}", kind.extension())
}

/// Returns the number in the name of a filter's file. Each number has exactly one valid spelling.
fn id_of(name: &str) -> Option<u64> {
    let (digits, extension) = name.split_once('.')?;
    let kind = [FilterFileKind::Filter, FilterFileKind::Journal]
        .into_iter()
        .find(|k| k.extension() == extension)?;
    let id: u64 = digits.parse().ok()?;
    (name_of(kind, id) == name).then_some(id)
}

/// The folder of a filter.
#[derive(Debug)]
pub(crate) struct FilterDirectory {
    env: Env,
    path: PathBuf,
    /// The number of the next file; numbers are never reused.
    pub(crate) next_id: u64,
    /// Numbered files of the filter that exist or may exist.
    numbered_files: BTreeSet<String>,
}

impl FilterDirectory {
    /// Opens the folder at `path`, and creates it if it is missing.
    pub(crate) fn open(env: &Env, path: &Path) -> Result<FilterDirectory> {
        let path = &*env.files.absolute(path)?;
        if !env.files.exists(path)? {
            env.files.create_dir_all(path)?;
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            env.files.sync_dir(parent.unwrap_or(Path::new(".")))?;
        }
        FilterDirectory::open_existing(env, path)
    }

    /// Opens the existing folder at `path`.
    pub(crate) fn open_existing(env: &Env, path: &Path) -> Result<FilterDirectory> {
        let path = &*env.files.absolute(path)?;
        let env = env.open_directory(path)?;
        let names = env.files.read_dir(path)?;
        let ids = names.iter().filter_map(|entry| Some((entry.name.clone(), id_of(&entry.name)?)));
        let known: BTreeSet<(String, u64)> = ids.collect();
        let last = known.iter().map(|(_, id)| *id).max().unwrap_or(0);
        if last >= ID_MAX {
            let message = format!(
                "{} has a file with the number {last}, which leaves no numbers for new files: \
                 remove that file",
                path.display()
            );
            return Err(Error::invalid(message));
        }
        let known = known.into_iter().map(|(name, _)| name).collect();
        Ok(FilterDirectory {
            env,
            path: path.to_path_buf(),
            next_id: last + 1,
            numbered_files: known,
        })
    }

    /// The path of a file in the folder.
    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Opens a file of the folder for reading, and for writing if requested.
    pub(crate) fn open_file(&self, name: &str, access: Access) -> Result<Arc<dyn File>> {
        self.env.files.open(&self.join(name), access)
    }

    /// Starts to read the first part of all files that an open needs, so that the device reads
    /// while another file is parsed.
    pub(crate) fn read_ahead(&self) {
        let journals = self.numbered_files.iter().filter(|name| name.ends_with(JOURNAL));
        for name in [CHECKPOINT].into_iter().chain(journals.map(String::as_str)) {
            // A file that cannot be opened here is reported at its read.
            if let Ok(file) = self.open_file(name, Access::Read) {
                file.read_ahead(0..READ_AHEAD_BYTES);
            }
        }
    }

    /// Whether the folder has a file of this name.
    pub(crate) fn has(&self, name: &str) -> Result<bool> {
        self.env.files.exists(&self.join(name))
    }

    /// Creates an empty numbered file. Returns its number, its random key, and the file.
    pub(crate) fn create(&mut self, kind: FilterFileKind) -> Result<(u64, u64, Arc<dyn File>)> {
        let mut key = [0; 8];
        self.env.entropy.fill(&mut key)?;
        let id = self.next_id;
        self.next_id += 1;
        let name = name_of(kind, id);
        self.numbered_files.insert(name.clone());
        let file = self.env.files.create(&self.join(&name))?;
        Ok((id, u64::from_le_bytes(key), file))
    }

    /// Makes the names in the folder durable.
    pub(crate) fn sync(&self) -> Result<()> {
        self.env.files.sync_dir(&self.path)
    }

    /// Replaces `CHECKPOINT` as a whole. The bytes are durable before the file is renamed, and the
    /// new name is durable when the call returns.
    pub(crate) fn replace_checkpoint(&self, bytes: &[u8]) -> Result<()> {
        let new = self.join(CHECKPOINT_NEW);
        if self.has(CHECKPOINT_NEW)? {
            self.env.files.remove_file(&new)?;
        }
        let file = self.env.files.create(&new)?;
        file.write_all_at(bytes, 0)?;
        file.sync()?;
        self.env.files.rename(&new, &self.join(CHECKPOINT))?;
        self.sync()
    }

    /// Removes every numbered file that is not in `live`. The next call retries files that could
    /// not be removed.
    ///
    /// REQUIRES: a `CHECKPOINT` that needs no other files than `live` is durable.
    pub(crate) fn remove_obsolete(&mut self, live: &BTreeSet<String>) {
        let (env, path) = (&self.env, &self.path);
        self.numbered_files.retain(|name| {
            if live.contains(name) {
                return true;
            }
            let removed = env.files.remove_file(&path.join(name));
            removed.is_err_and(|error| !error.is_missing_file())
        });
    }

    /// Whether there is a numbered file that is not in `live`.
    pub(crate) fn has_obsolete(&self, live: &BTreeSet<String>) -> bool {
        self.numbered_files.iter().any(|name| !live.contains(name))
    }

    /// Removes all files of a filter from the folder; files without a filter's magic stay.
    pub(crate) fn remove_all(&mut self, is_ours: impl Fn(&[u8; 8]) -> bool) -> Result<()> {
        let numbered = self.numbered_files.iter().cloned();
        // The important file goes first: without it the others are useless.
        let names = [CHECKPOINT, CHECKPOINT_NEW].map(str::to_owned).into_iter().chain(numbered);
        for name in names.collect::<Vec<_>>() {
            let mut magic = [0; 8];
            let read = match self.open_file(&name, Access::Read) {
                Ok(file) => file.read_at(&mut magic, 0)?,
                Err(error) if error.is_missing_file() => continue,
                Err(error) => return Err(error),
            };
            if read == magic.len() && is_ours(&magic) {
                self.env.files.remove_file(&self.join(&name))?;
                self.sync()?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_are_canonical_and_others_are_ignored() {
        assert_eq!(name_of(FilterFileKind::Filter, 7), "000007.filter");
        assert_eq!(id_of("000007.journal"), Some(7));
        assert_eq!(id_of("1234567.filter"), Some(1_234_567));
        for other in ["7.filter", "0000007.filter", "000007.log", "CHECKPOINT", "x.filter", ""] {
            assert_eq!(id_of(other), None, "{other}");
        }
    }
}
