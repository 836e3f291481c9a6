//! The manifest: the log of edits that says what the store consists of.
//!
//! INVARIANTS:
//! 1. `CURRENT` names one manifest, and that manifest alone says which files count.
//! 2. A file is durable, name included, before an edit names it; a file is removed only after an
//!    edit that no longer names it is durable.
//! 3. A manifest is never appended to after it was reopened: each open that may write starts a new
//!    one with the whole state as its first record.
//! 4. After a failed write or sync of the manifest nothing is written and no file removed any more,
//!    unless there was no room to write and what was written could be taken back for good.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use umbel_base::{Error, Result};
use umbel_env::{Env, File};
use umbel_log::{Expectation, HEADER_BYTES, LogKind, LogOptions, LogReader, LogWriter, Outcome};

use super::current::Current;
use super::edit::{self, Edit, State};
use super::features;
use super::ownership::{ManifestEnd, Ownership};
use crate::names;
use crate::obsolete::{ObsoleteFiles, version_of};
use crate::poison::Poison;
use crate::reserved_space::ReservedSpace;

/// Bytes a manifest may grow to before it is written anew, unless its state alone is larger.
const REWRITE_BYTES: u64 = 1 << 20;

/// The manifest of an open store.
#[derive(Debug)]
pub struct Manifest {
    env: Env,
    folder: PathBuf,
    writer: LogWriter,
    state: State,
    ids: Arc<AtomicU64>,
    poison: Arc<Poison>,
    ownership: Arc<Ownership>,
    /// Where a manifest that was rewritten goes; it is removed at once where this is not set.
    obsolete: Option<Arc<ObsoleteFiles>>,
    records: u64,
    /// What `CURRENT` says.
    current: Current,
    rewrite_at: u64,
    reserved: ReservedSpace,
}

impl Manifest {
    /// Starts a new manifest with `state` as its first record and makes `CURRENT` point to it.
    pub fn create(
        env: &Env,
        folder: &Path,
        state: State,
        ids: Arc<AtomicU64>,
        poison: Arc<Poison>,
        ownership: Arc<Ownership>,
    ) -> Result<Manifest> {
        Manifest::create_and(env, folder, state, ids, (poison, ownership), || {})
    }

    /// As [`Manifest::create`]; calls `named` directly before `CURRENT` may point to it. After a
    /// failure before that there is no such manifest.
    pub fn create_and(
        env: &Env,
        folder: &Path,
        state: State,
        ids: Arc<AtomicU64>,
        shared: (Arc<Poison>, Arc<Ownership>),
        named: impl FnOnce(),
    ) -> Result<Manifest> {
        let id = ids.fetch_add(1, Ordering::Relaxed);
        let prepared = Manifest::prepare(env, folder, state, ids, shared, id);
        let (manifest, current) = prepared.inspect_err(|_| {
            // What cannot be removed now is removed at the next open.
            let _ = env.files.remove_file(&names::manifest(folder, id));
        })?;
        named();
        let end = manifest.end_at(manifest.writer.end())?;
        manifest.ownership.replace_current(&*env.files, current, end)?;
        Ok(manifest)
    }

    /// What this handle has written, where the manifest ends at `end`.
    fn end_at(&self, end: u64) -> Result<ManifestEnd> {
        ManifestEnd::of(names::manifest(&self.folder, self.id()), self.writer.file(), end)
    }

    /// Writes a manifest, and what `CURRENT` is to be, and makes both durable.
    fn prepare(
        env: &Env,
        folder: &Path,
        mut state: State,
        ids: Arc<AtomicU64>,
        (poison, ownership): (Arc<Poison>, Arc<Ownership>),
        id: u64,
    ) -> Result<(Manifest, Arc<dyn File>)> {
        state.next_file_id = ids.load(Ordering::Relaxed);
        let path = names::manifest(folder, id);
        let options = LogOptions { kind: LogKind::Manifest, log_id: id, salt: 0, segment_bytes: 0 };
        let mut writer = LogWriter::create(env, &path, options)?;
        let mut record = Vec::new();
        edit::encode_record(&state.to_edits(), &mut record);
        let appended = writer.append(1, &[&record]).and_then(|_| writer.file().sync());
        appended.inspect_err(|_| {
            // Nothing names it yet, and it may be room that is wanting.
            let _ = env.files.remove_file(&path);
        })?;
        writer.set_durable(writer.end());
        env.files.sync_dir(folder)?;
        let durable = writer.end();
        let current = Current { manifest_id: id, sealed: None, durable };
        let prepared = current.prepare(env, folder)?;
        let (env, folder) = (env.clone(), folder.to_path_buf());
        let rewrite_at = REWRITE_BYTES.max(durable * 4);
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

    /// Reads the manifest that `CURRENT` names; `None` where there is no `CURRENT`.
    pub fn read(env: &Env, folder: &Path) -> Result<Option<State>> {
        Ok(Manifest::read_version(env, folder)?.map(|(state, _)| state))
    }

    /// As [`Manifest::read`], with the version to pin: see [`version_of`].
    pub fn read_version(env: &Env, folder: &Path) -> Result<Option<(State, u64)>> {
        let Some(current) = Current::read(&*env.files, folder)? else { return Ok(None) };
        let path = names::manifest(folder, current.manifest_id);
        if !env.files.exists(&path)? {
            let reason = "CURRENT names this manifest, but the file is missing";
            return Err(Error::corruption(&path, 0, reason));
        }
        read_state(env, &path, &current).map(Some)
    }

    /// Says where a manifest goes that was rewritten: readers may be reading it.
    pub fn keep_in(&mut self, obsolete: &Arc<ObsoleteFiles>) {
        self.obsolete = Some(Arc::clone(obsolete));
        self.note_records();
    }

    fn note_records(&self) {
        if let Some(obsolete) = &self.obsolete {
            obsolete.note_records(self.id(), self.records);
        }
    }

    /// What the store consists of.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The id of the manifest file.
    pub fn id(&self) -> u64 {
        self.writer.log_id()
    }

    /// Poisons the store where the directory was removed or holds another state of a store. A
    /// failure to look proves nothing.
    pub fn check_owned(&self) -> Result<()> {
        match self.ownership.check() {
            Err(replaced @ Error::Replaced { .. }) => Err(self.poison.set(replaced)),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Makes `edits` durable, all or none. An [`Error::Full`] that did not poison the store leaves
    /// everything as it was, as [`Manifest::commit_if_room`] says; any other failure poisons it.
    pub fn commit(&mut self, edits: &[Edit]) -> Result<()> {
        self.commit_if_room(edits)?.map_or(Ok(()), Err)
    }

    /// Makes `edits` durable, all or none. Answers with the refusal, with nothing done, where the
    /// disk has no room for them: for edits that can wait. Not even a crash makes them durable
    /// then, so the caller may remove the files that only they name. A failure poisons the store.
    pub fn commit_if_room(&mut self, edits: &[Edit]) -> Result<Option<Error>> {
        let refused = self.append(edits)?;
        if refused.is_none() {
            self.rewrite_if_long()?;
            self.reserve_for_next();
        }
        Ok(refused)
    }

    /// Reserves space for the manifest of the next open, as far as there is any: a store that
    /// cannot be opened for want of room could never make any.
    pub fn reserve_for_next(&mut self) {
        let (end, state) = (self.writer.end(), &self.state);
        let measure = || edit::encoded_bytes(&state.to_edits());
        // Without it the store does all it does with it; the next edit tries again.
        let _ = self.reserved.keep(&self.env, &self.folder, end, measure);
    }

    /// Gives the space that is reserved for a segment of the log back to the disk. Whether there
    /// was any.
    pub fn give_segment(&mut self) -> bool {
        let given = self.reserved.give_segment(&self.env, &self.folder, self.writer.end());
        given.unwrap_or(false)
    }

    fn rewrite_if_long(&mut self) -> Result<()> {
        if self.writer.end() <= self.rewrite_at {
            return Ok(());
        }
        let rewritten = self.rewrite();
        rewritten.or_else(|error| self.put_off(error)).map_err(|error| self.poison.set(error))
    }

    /// Answers with the refusal where the disk has no room.
    fn append(&mut self, edits: &[Edit]) -> Result<Option<Error>> {
        self.poison.check()?;
        let mut next = self.state.clone();
        let ids = [Edit::NextFileId(self.ids.load(Ordering::Relaxed))];
        for edit in edits.iter().chain(&ids) {
            next.apply(edit).map_err(|reason| Error::invalid(format!("internal: {reason}")))?;
        }
        let mut record = Vec::new();
        edit::encode_record(edits, &mut record);
        edit::encode_record(&ids, &mut record);
        let refused = self.write_owned(&record).map_err(|error| self.poison.set(error))?;
        if refused.is_none() {
            self.state = next;
        }
        Ok(refused)
    }

    /// Writes a record where the manifest is still this handle's.
    fn write_owned(&mut self, record: &[u8]) -> Result<Option<Error>> {
        self.ownership.begin_append()?;
        let refused = self.write(record)?;
        self.ownership.end_append(self.end_at(self.writer.end())?);
        Ok(refused)
    }

    fn write(&mut self, record: &[u8]) -> Result<Option<Error>> {
        match self.writer.append(self.records + 1, &[record]) {
            Err(refused @ Error::Full { .. }) if self.writer.is_open() => {
                // What was written of it was cut off; so it stays after a crash.
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
        let old = names::manifest(&self.folder, self.id());
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
            // What cannot be removed now is removed at the next open.
            None => drop(self.env.files.remove_file(&old)),
        }
        Ok(())
    }

    /// After a rewriting that failed for want of a descriptor or of room goes on with the old
    /// manifest, as long as `CURRENT` names it.
    fn put_off(&mut self, error: Error) -> Result<()> {
        if !error.is_short_of_descriptors() && !matches!(error, Error::Full { .. }) {
            return Err(error);
        }
        match Current::read(&*self.env.files, &self.folder) {
            Ok(Some(current)) if current.manifest_id == self.id() => {
                self.rewrite_at = self.writer.end() + REWRITE_BYTES / 16;
                Ok(())
            }
            _ => Err(error),
        }
    }

    /// Ends the manifest and writes down in `CURRENT` where, so that the next open notices if any
    /// byte of it changed. Nothing can be committed afterwards.
    pub fn seal(&mut self) -> Result<()> {
        self.poison.check()?;
        self.ownership.begin_append().map_err(|error| self.poison.set(error))?;
        let sealed = self.writer.seal()?;
        self.writer.file().sync().map_err(|error| self.poison.set(error))?;
        self.current = Current { sealed: Some(sealed), durable: sealed.len, ..self.current };
        let current = self.current.prepare(&self.env, &self.folder)?;
        let end = self.end_at(sealed.len)?;
        self.ownership.replace_current(&*self.env.files, current, end)
    }
}

fn read_state(env: &Env, path: &Path, current: &Current) -> Result<(State, u64)> {
    let expectation = current.sealed.map_or(Expectation::Open, Expectation::Sealed);
    let id = current.manifest_id;
    let mut reader = LogReader::open(env, path, LogKind::Manifest, id, expectation)?;
    let mut state = State::default();
    while let Some(record) = reader.next()? {
        let offset = record.offset;
        if state.identity.is_none() {
            features::check(record.payload)?;
        }
        let edits = edit::decode_record(record.payload).map_err(|at| {
            let reason = format!("byte {at} of this record begins no edit this Umbel knows");
            Error::corruption(path, offset, reason)
        })?;
        for edit in &edits {
            state.apply(edit).map_err(|reason| Error::corruption(path, offset, reason))?;
        }
    }
    let Outcome { end, records, .. } = reader.outcome();
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

#[cfg(test)]
#[path = "manifest_tests.rs"]
mod tests;
