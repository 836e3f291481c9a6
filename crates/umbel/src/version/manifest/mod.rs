//! The manifest: the log of edits that says which files the store consists of.
//!
//! INVARIANTS:
//! 1. `CURRENT` names one manifest, and only that manifest says which files are live.
//! 2. A file is durable, name included, before an edit names it. A file is removed only after an
//!    edit that no longer names it is durable.
//! 3. A reopened manifest is never appended to: each open for writing starts a new one with the
//!    whole state as its first record.
//! 4. After a failed write or sync of the manifest no file is written or removed any more. The
//!    exception is a full disk, if the partial write could be undone durably.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use umbel_base::ignore_poison::IgnorePoison;

use umbel_base::{Error, Result};
use umbel_env::{Env, File};
use umbel_log::{
    ExpectedEnd, HEADER_BYTES, LogKind, LogOptions, LogReader, LogWriter, ReadOutcome,
};

use crate::fs::fatal_error::FatalError;
use crate::fs::filenames;
use crate::fs::obsolete_files::{ObsoleteFiles, version_of};
use crate::version::current_file::CurrentFile;
use crate::version::feature_bits;
use crate::version::reserved_space::ReservedSpace;
use crate::version::store_ownership::{ManifestEnd, StoreOwnership};
use crate::version::version_edit::{self, Edit, ManifestState};

/// Bytes at which a manifest is rewritten, unless twice its state is larger.
const REWRITE_BYTES: u64 = 1 << 20;
/// Bytes of replaced edits that a rewrite on a full disk frees at least.
const SHORTENED_BYTES_MIN: u64 = 64 << 10;

/// The manifest of an open store.
#[derive(Debug)]
pub struct Manifest {
    env: Env,
    folder: PathBuf,
    writer: LogWriter,
    state: ManifestState,
    ids: Arc<AtomicU64>,
    poison: Arc<FatalError>,
    ownership: Arc<StoreOwnership>,
    /// List that takes the files of replaced manifests; without it the files are removed at once.
    obsolete: Option<Arc<ObsoleteFiles>>,
    records: u64,
    /// Content of `CURRENT`.
    current: CurrentFile,
    rewrite_at: u64,
    reserved: ReservedSpace,
}

impl Manifest {
    /// Starts a new manifest with `state` as its first record and makes `CURRENT` point to it.
    pub fn create(
        env: &Env,
        folder: &Path,
        state: ManifestState,
        ids: Arc<AtomicU64>,
        poison: Arc<FatalError>,
        ownership: Arc<StoreOwnership>,
    ) -> Result<Manifest> {
        Manifest::create_and(env, folder, state, ids, (poison, ownership), || {})
    }

    /// Like [`Manifest::create`], but calls `named` directly before `CURRENT` can name the new
    /// manifest. If the creation fails before that call, `CURRENT` never names the new manifest.
    pub fn create_and(
        env: &Env,
        folder: &Path,
        state: ManifestState,
        ids: Arc<AtomicU64>,
        shared: (Arc<FatalError>, Arc<StoreOwnership>),
        named: impl FnOnce(),
    ) -> Result<Manifest> {
        let id = ids.fetch_add(1, Ordering::Relaxed);
        let prepared = Manifest::prepare(env, folder, state, ids, shared, id);
        let (manifest, current) = prepared.inspect_err(|_| {
            // The next open removes files that cannot be removed now.
            let _ = env.files.remove_file(&filenames::manifest(folder, id));
        })?;
        named();
        let end = manifest.end_at(manifest.writer.end())?;
        manifest.ownership.replace_current(&*env.files, current, end)?;
        Ok(manifest)
    }

    /// The end of the manifest as this handle has written it, if it ends at offset `end`.
    fn end_at(&self, end: u64) -> Result<ManifestEnd> {
        ManifestEnd::of(filenames::manifest(&self.folder, self.id()), self.writer.file(), end)
    }

    /// Writes and syncs a manifest and the next `CURRENT`.
    fn prepare(
        env: &Env,
        folder: &Path,
        mut state: ManifestState,
        ids: Arc<AtomicU64>,
        (poison, ownership): (Arc<FatalError>, Arc<StoreOwnership>),
        id: u64,
    ) -> Result<(Manifest, Arc<dyn File>)> {
        state.next_file_id = ids.load(Ordering::Relaxed);
        let path = filenames::manifest(folder, id);
        let options = LogOptions { kind: LogKind::Manifest, log_id: id, salt: 0, segment_bytes: 0 };
        let mut writer = LogWriter::create(env, &path, options)?;
        let mut record = Vec::new();
        version_edit::encode_record(&state.to_edits(), &mut record);
        let appended = writer.append(1, &[&record]).and_then(|_| writer.file().sync());
        appended.inspect_err(|_| {
            // No file names it yet, and the disk may be full.
            let _ = env.files.remove_file(&path);
        })?;
        writer.set_durable(writer.end());
        env.files.sync_dir(folder)?;
        let durable = writer.end();
        let current = CurrentFile { manifest_id: id, sealed: None, durable };
        let prepared = current.prepare(env, folder)?;
        let (env, folder) = (env.clone(), folder.to_path_buf());
        let rewrite_at = REWRITE_BYTES.max(durable * 2);
        let records = 1;
        let manifest = Manifest {
            env,
            folder,
            writer,
            state,
            ids,
            poison,
            ownership,
            obsolete: None,
            records,
            current,
            rewrite_at,
            reserved: ReservedSpace::none(durable),
        };
        Ok((manifest, prepared))
    }

    /// Reads the manifest that `CURRENT` names; `None` if there is no `CURRENT`.
    pub fn read(env: &Env, folder: &Path) -> Result<Option<ManifestState>> {
        Ok(Manifest::read_version(env, folder)?.map(|(state, _)| state))
    }

    /// Like [`Manifest::read`], but also returns the version to pin: see [`version_of`].
    pub fn read_version(env: &Env, folder: &Path) -> Result<Option<(ManifestState, u64)>> {
        let Some(current) = CurrentFile::read(&*env.files, folder)? else { return Ok(None) };
        let path = filenames::manifest(folder, current.manifest_id);
        if !env.files.exists(&path)? {
            let reason = "CURRENT names this manifest, but the file is missing";
            return Err(Error::corruption(&path, 0, reason));
        }
        read_state(env, &path, &current).map(Some)
    }

    /// Sets the list that takes replaced manifests, which readers of other processes possibly still
    /// read.
    pub fn set_obsolete_files(&mut self, obsolete: &Arc<ObsoleteFiles>) {
        self.obsolete = Some(Arc::clone(obsolete));
        self.note_records();
    }

    fn note_records(&self) {
        if let Some(obsolete) = &self.obsolete {
            obsolete.note_records(self.id(), self.records);
        }
    }

    /// Returns the current state of the store.
    pub fn state(&self) -> &ManifestState {
        &self.state
    }

    /// Returns the id of the manifest file.
    pub fn id(&self) -> u64 {
        self.writer.log_id()
    }

    /// Sets the fatal error if the store's directory was removed or holds another state of a store.
    /// A check that fails for another reason changes nothing.
    pub fn check_owned(&self) -> Result<()> {
        match self.ownership.check() {
            Err(replaced @ Error::Replaced { .. }) => Err(self.poison.set(replaced)),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Makes all of `edits` durable, or none. After an [`Error::DiskFull`] without a fatal error
    /// nothing has changed, as with [`Manifest::commit_unless_full`]. Any other failure is fatal
    /// for the store.
    pub fn commit(&mut self, edits: &[Edit]) -> Result<()> {
        self.commit_unless_full(edits)?.map_or(Ok(()), Err)
    }

    /// Makes all of `edits` durable, or none. If the disk has no space, changes nothing and returns
    /// the disk-full error, so that the caller can retry the edits later. Even after a crash the
    /// refused edits are not durable, so the caller may remove files that only they name. Any other
    /// failure is fatal for the store.
    pub fn commit_unless_full(&mut self, edits: &[Edit]) -> Result<Option<Error>> {
        let refused = self.append(edits)?;
        if refused.is_none() {
            self.rewrite_if_long()?;
            self.reserve_for_next();
        }
        Ok(refused)
    }

    /// Reserves disk space for the manifest of the next open, if the disk has space. Without it a
    /// store on a full disk could not be opened, and so never free space.
    pub fn reserve_for_next(&mut self) {
        let (end, state) = (self.writer.end(), &self.state);
        let measure = || version_edit::encoded_bytes(&state.to_edits());
        // The store works the same without it; the next edit tries again.
        let _ = self.reserved.keep(&self.env, &self.folder, end, measure);
    }

    /// Frees the space reserved for a WAL segment, if space for `kept` others remains. Returns
    /// whether any space was freed.
    pub fn release_reserved_segment(&mut self, kept: u64) -> bool {
        let given = self.reserved.release_segment(&self.env, &self.folder, self.writer.end(), kept);
        given.unwrap_or(false)
    }

    /// Rewrites the manifest on a full disk if it has many replaced edits, and no reader of another
    /// process needs the old file. The new manifest takes the space that is reserved for the next
    /// open, and the old one's space is reserved again. Returns whether that was done.
    pub fn shorten(&mut self) -> Result<bool> {
        self.poison.check()?;
        let end = self.writer.end();
        let is_pinned = self.obsolete.as_ref().is_some_and(|obsolete| obsolete.is_pinned());
        if is_pinned || end < SHORTENED_BYTES_MIN {
            return Ok(false);
        }
        let state_bytes = version_edit::encoded_bytes(&self.state.to_edits());
        if end.saturating_sub(state_bytes) < SHORTENED_BYTES_MIN.max(state_bytes / 8) {
            return Ok(false);
        }
        let before = self.id();
        self.reserved.release(&self.env, &self.folder);
        self.rewrite_or_defer()?;
        self.reserve_for_next();
        Ok(self.id() != before)
    }

    fn rewrite_if_long(&mut self) -> Result<()> {
        if self.writer.end() <= self.rewrite_at {
            return Ok(());
        }
        self.rewrite_or_defer()
    }

    fn rewrite_or_defer(&mut self) -> Result<()> {
        let rewritten = self.rewrite();
        rewritten.or_else(|error| self.defer_rewrite(error)).map_err(|error| self.poison.set(error))
    }

    /// Appends a record of `edits` to the manifest. Returns the disk-full error if the disk has no
    /// space.
    fn append(&mut self, edits: &[Edit]) -> Result<Option<Error>> {
        self.poison.check()?;
        let mut next = self.state.clone();
        let ids = [Edit::NextFileId(self.ids.load(Ordering::Relaxed))];
        for edit in edits.iter().chain(&ids) {
            next.apply(edit).map_err(|reason| Error::invalid(format!("internal: {reason}")))?;
        }
        let mut record = Vec::new();
        version_edit::encode_record(edits, &mut record);
        version_edit::encode_record(&ids, &mut record);
        let refused = self.write_owned(&record).map_err(|error| self.poison.set(error))?;
        if refused.is_none() {
            self.state = next;
        }
        Ok(refused)
    }

    /// Writes a record to the manifest if the manifest still belongs to this handle.
    fn write_owned(&mut self, record: &[u8]) -> Result<Option<Error>> {
        self.ownership.begin_append()?;
        let refused = self.write(record)?;
        self.ownership.end_append(self.end_at(self.writer.end())?);
        Ok(refused)
    }

    fn write(&mut self, record: &[u8]) -> Result<Option<Error>> {
        match self.writer.append(self.records + 1, &[record]) {
            Err(refused @ Error::DiskFull { .. }) if self.writer.is_open() => {
                // The partial write was cut off; the sync makes that durable.
                self.writer.file().sync()?;
                return Ok(Some(refused));
            }
            appended => appended?,
        };
        self.records += 1;
        let end = self.writer.end();
        self.writer.file().sync()?;
        self.writer.set_durable(end);
        self.note_records();
        Ok(None)
    }

    fn rewrite(&mut self) -> Result<()> {
        let old = filenames::manifest(&self.folder, self.id());
        let (ids, poison) = (Arc::clone(&self.ids), Arc::clone(&self.poison));
        let (state, ownership) = (self.state.clone(), Arc::clone(&self.ownership));
        let obsolete = self.obsolete.take();
        let created = Manifest::create(&self.env, &self.folder, state, ids, poison, ownership);
        match created {
            Ok(created) => {
                let reserved = self.reserved.rewritten(created.writer.end());
                *self = Manifest { obsolete, reserved, ..created };
            }
            Err(error) => {
                self.obsolete = obsolete;
                return Err(error);
            }
        }
        self.note_records();
        match &self.obsolete {
            Some(obsolete) => obsolete.remove(&old),
            // The next open removes files that cannot be removed now.
            None => drop(self.env.files.remove_file(&old)),
        }
        Ok(())
    }

    /// Handles a rewrite of the manifest that failed. After lack of a file descriptor or disk
    /// space, continues with the old manifest if `CURRENT` still names it.
    fn defer_rewrite(&mut self, error: Error) -> Result<()> {
        if !error.is_out_of_descriptors() && !matches!(error, Error::DiskFull { .. }) {
            return Err(error);
        }
        match CurrentFile::read(&*self.env.files, &self.folder) {
            Ok(Some(current)) if current.manifest_id == self.id() => {
                self.rewrite_at = self.writer.end() + REWRITE_BYTES / 16;
                Ok(())
            }
            _ => Err(error),
        }
    }

    /// Ends the manifest and records its length and checksum in `CURRENT`, so that the next open
    /// detects any changed byte. Afterwards no commit is possible.
    pub fn seal(&mut self) -> Result<()> {
        self.poison.check()?;
        self.ownership.begin_append().map_err(|error| self.poison.set(error))?;
        let sealed = self.writer.seal()?;
        self.writer.file().sync().map_err(|error| self.poison.set(error))?;
        self.current = CurrentFile { sealed: Some(sealed), durable: sealed.len, ..self.current };
        let current = self.current.prepare(&self.env, &self.folder)?;
        let end = self.end_at(sealed.len)?;
        self.ownership.replace_current(&*self.env.files, current, end)
    }
}

fn read_state(env: &Env, path: &Path, current: &CurrentFile) -> Result<(ManifestState, u64)> {
    let expectation = current.sealed.map_or(ExpectedEnd::Open, ExpectedEnd::Sealed);
    let id = current.manifest_id;
    let mut reader = LogReader::open(env, path, LogKind::Manifest, id, expectation)?;
    let mut state = ManifestState::default();
    while let Some(record) = reader.next()? {
        let offset = record.offset;
        if state.identity.is_none() {
            check_features(record.payload)?;
        }
        let edits = version_edit::decode_record(record.payload).map_err(|at| {
            let reason = format!(
                "byte {at} of this record is not the start of an edit that this \
                                  Umbel knows"
            );
            Error::corruption(path, offset, reason)
        })?;
        for edit in &edits {
            state.apply(edit).map_err(|reason| Error::corruption(path, offset, reason))?;
        }
    }
    let ReadOutcome { end, records, .. } = reader.outcome();
    if end < current.durable {
        let reason = format!(
            "the manifest ends here, but CURRENT says that {} bytes were durable",
            current.durable
        );
        return Err(Error::corruption(path, end, reason));
    }
    match state.check() {
        Ok(()) => Ok((state, version_of(current.manifest_id, records))),
        Err(reason) => Err(Error::corruption(path, HEADER_BYTES, reason)),
    }
}

/// Returns an error if a manifest whose first record is `payload` uses unknown features.
fn check_features(payload: &[u8]) -> Result<()> {
    match Edit::decode(&mut umbel_base::Decoder::new(payload)) {
        Some(Edit::Identity(identity))
            if identity.features & !feature_bits::KNOWN_FEATURES != 0 =>
        {
            Err(Error::invalid(format!(
                "the store uses features ({:#x}) that this Umbel does not know; open it with a \
                 newer one",
                identity.features & !feature_bits::KNOWN_FEATURES
            )))
        }
        _ => Ok(()),
    }
}

/// Calls `attempt`. If the disk is full and space is reserved for a WAL segment, frees this space
/// and calls `attempt` again. REQUIRES: the caller does not hold the manifest lock.
pub fn with_reserved_segment<T>(
    manifest: &Mutex<Manifest>,
    fatal_error: &FatalError,
    mut attempt: impl FnMut() -> Result<T>,
) -> Result<T> {
    match attempt() {
        Err(Error::DiskFull { .. })
            if !fatal_error.is_set()
                && manifest.lock().ignore_poison().release_reserved_segment(0) =>
        {
            or_reserve_again(manifest, attempt())
        }
        done => done,
    }
}

/// Returns `done`. If `done` is a disk-full error, first reserves the remaining space again, before
/// other programs take it. REQUIRES: the caller does not hold the manifest lock.
pub fn or_reserve_again<T>(manifest: &Mutex<Manifest>, done: Result<T>) -> Result<T> {
    if let Err(Error::DiskFull { .. }) = done {
        manifest.lock().ignore_poison().reserve_for_next();
    }
    done
}

#[cfg(test)]
mod tests;
