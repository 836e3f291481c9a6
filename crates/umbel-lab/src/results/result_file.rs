//! Result files, which are written atomically, and rejected if their checksum does not match.

use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use umbel_env::{Access, Env, File};
use xxhash_rust::xxh3::xxh3_64;

use crate::lab_error::LabError;
use crate::results::outcome::{Outcome, VERSION, VERSION_OLDEST};

/// Largest result file that is read.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Content of a file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ResultFile {
    /// FORMAT: 16 hexadecimal digits of XXH3-64 over `result` as compact JSON.
    checksum: String,
    result: Outcome,
}

/// The version alone, to distinguish a newer format from a damaged file.
#[derive(Deserialize)]
struct OnlyVersion {
    result: VersionOf,
}

#[derive(Deserialize)]
struct VersionOf {
    umbel_lab: u32,
}

/// Returns the path of an experiment's result in a folder.
pub fn path_of(out: &Path, experiment: &str) -> PathBuf {
    out.join(format!("{experiment}.json"))
}

/// Writes a result to its file, which contains either the old or the new result at any moment.
///
/// # Errors
/// [`LabError::System`].
pub fn save(env: &Env, path: &Path, outcome: &Outcome) -> Result<(), LabError> {
    write_whole(env, path, text_of(outcome)?.as_bytes())
}

/// Returns the text of a result's file.
///
/// # Errors
/// [`LabError::Failed`] for a result with a number that JSON cannot represent.
pub fn text_of(outcome: &Outcome) -> Result<String, LabError> {
    let compact = serde_json::to_string(outcome).map_err(LabError::bug)?;
    let checksum = format!("{:016x}", xxh3_64(compact.as_bytes()));
    let file = ResultFile { checksum, result: outcome.clone() };
    Ok(serde_json::to_string_pretty(&file).map_err(LabError::bug)? + "\n")
}

/// Creates and opens a file that other users may read as far as the umask allows, because results
/// are shared.
///
/// # Errors
/// An error of the operating system; an existing file is no error.
pub fn create(env: &Env, path: &Path) -> umbel_base::Result<Arc<dyn File>> {
    let refused = |error| umbel_base::Error::io("create", path, error);
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true).mode(0o644).open(path).map_err(refused)?;
    env.files.open(path, Access::ReadWrite)
}

/// Writes a file atomically, by writing a temporary file and renaming it.
///
/// # Errors
/// [`LabError::Usage`] for an empty path, otherwise [`LabError::System`].
pub fn write_whole(env: &Env, path: &Path, bytes: &[u8]) -> Result<(), LabError> {
    LabError::check_path("the file", path)?;
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let beside = folder.join(format!(".{name}.new"));
    let write = || {
        if env.files.exists(&beside)? {
            // Left by a run that was killed during the write.
            env.files.remove_file(&beside)?;
        }
        let file = create(env, &beside)?;
        file.write_all_at(bytes, 0)?;
        file.sync()?;
        env.files.rename(&beside, path)?;
        env.files.sync_dir(folder)
    };
    write().map_err(|error| {
        // An incomplete file is useless; if this fails too, the next run replaces it.
        let _ = env.files.remove_file(&beside);
        LabError::System(format!("could not write {}: {error}", path.display()))
    })
}

/// Reads a result file.
///
/// # Errors
/// [`LabError::Usage`] for another kind of file, [`LabError::Damaged`] for a changed one,
/// [`LabError::System`] for an unreadable one.
pub fn load(env: &Env, path: &Path) -> Result<Outcome, LabError> {
    LabError::check_path("the result file", path)?;
    let name = path.display();
    let refused = |error| LabError::System(format!("could not read {name}: {error}"));
    if path.is_dir() {
        return Err(LabError::Usage(format!("{name} is a directory; name a result file in it")));
    }
    let file = env.files.open(path, Access::Read).map_err(refused)?;
    let bytes = file.len().map_err(refused)?;
    if bytes > FILE_BYTES_MAX {
        return Err(LabError::Usage(format!("{name} has {bytes} bytes; it is no result file")));
    }
    let mut text = vec![0; bytes as usize];
    file.read_exact_at(&mut text, 0).map_err(refused)?;
    parse(&name.to_string(), &text)
}

/// Parses the text of a result file called `name`.
///
/// # Errors
/// As [`load`].
pub fn parse(name: &str, text: &[u8]) -> Result<Outcome, LabError> {
    if let Ok(OnlyVersion { result: VersionOf { umbel_lab } }) = serde_json::from_slice(text)
        && !(VERSION_OLDEST..=VERSION).contains(&umbel_lab)
    {
        return Err(LabError::Usage(format!(
            "{name} has format {umbel_lab}, but this umbel reads formats {VERSION_OLDEST} to \
             {VERSION}; use the umbel that wrote it, or measure again"
        )));
    }
    let file: ResultFile =
        serde_json::from_slice(text).map_err(|error| match error.classify() {
            serde_json::error::Category::Data if !text.starts_with(b"{\n  \"checksum\"") => {
                LabError::Usage(format!("{name} is no result of `umbel lab`: {error}"))
            }
            _ if text.starts_with(b"{\n  \"checksum\"") => {
                LabError::Damaged(format!("{name} is damaged: {error}; measure again"))
            }
            _ => LabError::Usage(format!("{name} is no result of `umbel lab`: {error}")),
        })?;
    let compact = serde_json::to_string(&file.result).map_err(LabError::bug)?;
    if format!("{:016x}", xxh3_64(compact.as_bytes())) != file.checksum {
        return Err(LabError::Damaged(format!(
            "{name} was changed: its checksum does not match; measure again"
        )));
    }
    Ok(file.result)
}
