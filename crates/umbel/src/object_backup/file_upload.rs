//! Upload of one file of a store, verified before and during the upload.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use umbel_backup::{
    BLOCK_BYTES, BackupKind, BackupResult, ManifestContents, ObjectRequests, Piece, PieceSource,
    SourceFile,
};
use umbel_base::checksum::checksum;
use umbel_base::{BlobPointer, Error, Result};
use umbel_env::{Access, File};

use crate::fs::filenames;
use crate::object_backup::store_contents::{BackedFile, FileContent, StoreContents, is_blob};
use crate::state::store::Store;
use crate::version::LiveTable;

/// A file to upload. The table keeps the file, and those of its long values.
#[derive(Debug, Clone)]
pub struct FileJob {
    /// The file.
    pub file: SourceFile,
    /// Identification of its content.
    pub content: FileContent,
    /// The table, or the one whose entry points at the long value.
    pub table: Arc<LiveTable>,
    /// Pointer to the long value; `None` if the file is a table.
    pub pointer: Option<BlobPointer>,
}

/// Returns the path of a file in the directory of a store.
pub fn path_of(folder: &Path, file: SourceFile) -> PathBuf {
    match is_blob(file) {
        true => filenames::blob(folder, file.id),
        false => filenames::table(folder, file.id),
    }
}

/// Uploads a file.
///
/// # Errors
/// Damage of the local file, before anything is uploaded, and errors of the requests.
pub fn upload(
    store: &Store,
    requests: &ObjectRequests,
    backup: &[u8; 16],
    job: &FileJob,
) -> BackupResult<BackedFile> {
    requests.check_cancelled()?;
    store.check_open()?;
    let path = path_of(&store.folder, job.file);
    let file = store.options.env.files.open(&path, Access::Read).map_err(|error| {
        if error.is_missing_file() {
            let reason = "the manifest names this file, but it is missing";
            return Error::corruption(&path, 0, reason);
        }
        error
    })?;
    let length = file.len()?;
    if length != job.content.bytes {
        let reason = format!("the file has {length} bytes instead of {}", job.content.bytes);
        return Err(Error::corruption(&path, length.min(job.content.bytes), reason).into());
    }
    // Before the verification: so the uploaded bytes are compared with bytes from before it, and
    // damage between the two is found by one of them.
    let block_checksums = block_checksums(&*file, job.file.id, length)?;
    verify(store, job)?;
    let uid = requests.env.entropy.id()?;
    let mut piece = Piece { uid, is_whole: true, from: 0, to: length, digest: 0 };
    let kind = (BackupKind::KeyValues, backup, job.file);
    let source = PieceSource::new(file, &mut piece, kind, block_checksums);
    let name = StoreContents::name(job.file, &piece);
    requests.put(&name, &source)?;
    Ok(BackedFile { piece, checksum: job.content.checksum })
}

/// Reads every byte of the file and checks the file's own checksums, and that it is the one of the
/// manifest.
fn verify(store: &Store, job: &FileJob) -> Result<()> {
    match &job.pointer {
        Some(pointer) => store.context.blobs.verify(pointer),
        None => job.table.for_sequential_read().reader()?.verify().map(|_| ()),
    }
}

/// Returns the checksum of each block of a file.
pub fn block_checksums(file: &dyn File, id: u64, length: u64) -> Result<Vec<u64>> {
    let mut sums = Vec::new();
    let mut block = vec![0; BLOCK_BYTES.min(length) as usize];
    let mut at = 0;
    while at < length {
        block.truncate((length - at).min(BLOCK_BYTES) as usize);
        file.read_exact_at(&mut block, at)?;
        sums.push(checksum(id, at, &block));
        at += block.len() as u64;
    }
    Ok(sums)
}
