//! [`StoreContents`]: what the manifest of a backup states about a key-value store.
//!
//! FORMAT: `docs/formats/kv-backup.md`. The state of the store is stated by edits of the store's
//! own manifest: those of the whole state, or those since the manifest before.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use umbel_backup::{BackupKind, Manifest, ManifestContents, Piece, SourceFile};
use umbel_base::{Decoder, varint};
use umbel_blob::file_bytes;
use umbel_env::ObjectName;
use umbel_table::TableMeta;

use crate::options::KeyspaceOptions;
use crate::version::Edit;
use crate::version::version_edit::{self, KeyspaceRecord, ManifestState};

/// A manifest of the backup of a key-value store.
pub type BackupManifest = Manifest<StoreContents>;

const IS_FULL: u8 = 1;
const IS_COMPLETE: u8 = 2;
/// Version of a [`SourceFile`] that is a long value; tables have version 0.
const BLOB: u64 = 1;

/// Returns the table with this id as a file.
pub fn table_file(id: u64) -> SourceFile {
    SourceFile { id, version: 0 }
}

/// Returns the long value with this id as a file.
pub fn blob_file(id: u64) -> SourceFile {
    SourceFile { id, version: BLOB }
}

/// Whether a file is a long value.
pub fn is_blob(file: SourceFile) -> bool {
    file.version == BLOB
}

/// Identification of the content of a file of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileContent {
    /// Length of the file.
    pub bytes: u64,
    /// Checksum of a table's footer, or of a long value's header. Either covers the checksums of
    /// the whole file.
    pub checksum: u64,
}

/// A file in a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackedFile {
    /// The object, which holds the whole file.
    pub piece: Piece,
    /// Checksum of [`FileContent`].
    pub checksum: u64,
}

impl BackedFile {
    /// Identification of the content of the file.
    pub fn content(&self) -> FileContent {
        FileContent { bytes: self.piece.to, checksum: self.checksum }
    }
}

/// All that a backup has after one manifest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BackupState {
    /// State of the store at the last complete run; `None` before the first one.
    pub store: Option<Arc<ManifestState>>,
    /// Time of that state by the writer's wall clock, in microseconds since 1970. It never falls
    /// from one manifest to the next.
    pub captured_micros: u64,
    /// Whether the last run was complete, so that the files are those of the store's state.
    /// Otherwise there are more files, for a state that no manifest has yet.
    pub is_complete: bool,
    /// The files, by id.
    pub files: BTreeMap<SourceFile, BackedFile>,
}

impl BackupState {
    /// Last sequence number of the store's state; 0 before the first complete run.
    pub fn last_sequence(&self) -> u64 {
        self.store.as_ref().map_or(0, |store| store.last_sequence)
    }

    /// Whether every file of the store's state is there, and no other file after a complete run.
    fn is_sound(&self) -> bool {
        let Some(store) = &self.store else { return !self.is_complete };
        let named = files_of(store);
        let has = |(file, content): (&SourceFile, &FileContent)| {
            self.files.get(file).is_some_and(|backed| backed.content() == *content)
        };
        store.logs.is_empty()
            && store.check().is_ok()
            && named.iter().all(has)
            && (!self.is_complete || named.len() == self.files.len())
    }
}

/// Returns the files of a state with what identifies their contents.
pub fn files_of(state: &ManifestState) -> BTreeMap<SourceFile, FileContent> {
    let mut files = BTreeMap::new();
    for meta in state.keyspaces.values().flat_map(|record| record.levels.iter().flatten()) {
        let content = FileContent { bytes: meta.file_bytes, checksum: meta.footer_checksum };
        files.insert(table_file(meta.id), content);
        for blob in &meta.blobs {
            let bytes = file_bytes(blob.value_bytes);
            files.insert(blob_file(blob.id), FileContent { bytes, checksum: blob.checksum });
        }
    }
    files
}

/// Brings tables of a level into one order, so that equal states are equal. Tables of level 0 have
/// an order already.
pub fn sort_levels(state: &mut ManifestState) {
    for record in state.keyspaces.values_mut() {
        record.levels.iter_mut().skip(1).for_each(|tables| tables.sort_by_key(|meta| meta.id));
    }
}

/// Statement of a manifest about a key-value store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreContents {
    /// Last sequence number of the store's state; 0 before the first complete run.
    pub last_sequence: u64,
    /// Time of the store's state: see [`BackupState::captured_micros`].
    pub captured_micros: u64,
    /// Whether the manifest states everything, instead of the changes since the one before.
    pub is_full: bool,
    /// Whether the run is complete: see [`BackupState::is_complete`].
    pub is_complete: bool,
    /// Edits of the store's state; none before the first complete run.
    pub edits: Vec<Edit>,
    /// All files, or those that are new.
    pub files: Vec<(SourceFile, BackedFile)>,
}

impl StoreContents {
    fn full(state: &BackupState) -> StoreContents {
        let edits = state.store.as_ref().map_or_else(Vec::new, |store| store.to_edits());
        let files = state.files.iter().map(|(file, backed)| (*file, *backed)).collect();
        StoreContents::new(state, true, edits, files)
    }

    fn new(
        state: &BackupState,
        is_full: bool,
        edits: Vec<Edit>,
        files: Vec<(SourceFile, BackedFile)>,
    ) -> StoreContents {
        StoreContents {
            last_sequence: state.last_sequence(),
            captured_micros: state.captured_micros,
            is_full,
            is_complete: state.is_complete,
            edits,
            files,
        }
    }

    /// Returns the changes from one state to another one; `None` if only a full manifest leads to
    /// it.
    fn delta(before: &BackupState, state: &BackupState) -> Option<StoreContents> {
        let edits = match (&before.store, &state.store) {
            (Some(old), Some(new)) if old == new => Vec::new(),
            (Some(old), Some(new)) => edits_between(old, new),
            (None, Some(new)) => new.to_edits(),
            (None, None) => Vec::new(),
            (Some(_), None) => return None,
        };
        let is_new =
            |(file, backed): &(&SourceFile, &BackedFile)| before.files.get(file) != Some(*backed);
        let files = state.files.iter().filter(is_new).map(|(file, backed)| (*file, *backed));
        let contents = StoreContents::new(state, false, edits, files.collect());
        let applied = contents.apply(Some(before.clone()));
        applied.is_some_and(|applied| applied == *state).then_some(contents)
    }

    fn apply_edits(&self, store: Option<Arc<ManifestState>>) -> Option<Option<Arc<ManifestState>>> {
        if self.edits.is_empty() {
            return Some(store);
        }
        let mut next = store.map_or_else(ManifestState::default, Arc::unwrap_or_clone);
        self.edits.iter().try_for_each(|edit| next.apply(edit)).ok()?;
        sort_levels(&mut next);
        Some(Some(Arc::new(next)))
    }
}

impl ManifestContents for StoreContents {
    const KIND: BackupKind = BackupKind::KeyValues;
    type State = BackupState;

    fn is_full(&self) -> bool {
        self.is_full
    }

    fn through(&self) -> u64 {
        self.last_sequence
    }

    fn time_micros(&self, _written_micros: u64) -> u64 {
        self.captured_micros
    }

    fn encode(&self, out: &mut Vec<u8>) {
        varint::put_u64(out, self.captured_micros);
        varint::put_u64(out, self.last_sequence);
        let full = if self.is_full { IS_FULL } else { 0 };
        let complete = if self.is_complete { IS_COMPLETE } else { 0 };
        out.push(full | complete);
        let mut record = Vec::new();
        version_edit::encode_record(&self.edits, &mut record);
        varint::put_bytes(out, &record);
        varint::put_u64(out, self.files.len() as u64);
        for (file, backed) in &self.files {
            out.push(u8::from(is_blob(*file)));
            varint::put_u64(out, file.id);
            out.extend_from_slice(&backed.checksum.to_le_bytes());
            backed.piece.encode(out);
        }
    }

    fn decode(decoder: &mut Decoder<'_>) -> Option<StoreContents> {
        let (captured_micros, last_sequence) = (decoder.varint()?, decoder.varint()?);
        let flags = decoder.u8().filter(|flags| *flags <= IS_FULL | IS_COMPLETE)?;
        let edits = version_edit::decode_record(decoder.bytes()?).ok()?;
        let count = decoder.varint_usize()?;
        let file = |_| {
            let version = decoder.u8().filter(|kind| u64::from(*kind) <= BLOB)?;
            let file = SourceFile { id: decoder.varint()?, version: version.into() };
            let checksum = decoder.u64()?;
            let piece = Piece::decode(decoder).filter(|piece| piece.is_whole && piece.from == 0)?;
            Some((file, BackedFile { piece, checksum }))
        };
        let files = (0..count).map(file).collect::<Option<Vec<_>>>()?;
        let (is_full, is_complete) = (flags & IS_FULL != 0, flags & IS_COMPLETE != 0);
        Some(StoreContents { last_sequence, captured_micros, is_full, is_complete, edits, files })
    }

    fn apply(&self, state: Option<BackupState>) -> Option<BackupState> {
        let before = match (self.is_full, state) {
            (true, _) => BackupState::default(),
            (false, state) => state?,
        };
        let mut files = before.files;
        files.extend(self.files.iter().copied());
        let store = self.apply_edits(before.store)?;
        if let Some(store) = store.as_ref().filter(|_| self.is_complete) {
            let named = files_of(store);
            files.retain(|file, _| named.contains_key(file));
        }
        let (captured_micros, is_complete) = (self.captured_micros, self.is_complete);
        let next = BackupState { store, captured_micros, is_complete, files };
        let fits = next.last_sequence() == self.last_sequence
            && captured_micros >= before.captured_micros
            && next.is_sound();
        fits.then_some(next)
    }

    fn between(before: Option<&BackupState>, state: &BackupState) -> StoreContents {
        let delta = before.and_then(|before| StoreContents::delta(before, state));
        delta.unwrap_or_else(|| StoreContents::full(state))
    }

    fn is_same(before: &BackupState, state: &BackupState) -> bool {
        let store = |state: &BackupState| state.store.clone();
        before.is_complete == state.is_complete
            && before.files == state.files
            && match (store(before), store(state)) {
                (Some(old), Some(new)) => has_same_contents(&old, &new),
                (old, new) => old == new,
            }
    }

    fn is_restorable(state: &BackupState) -> bool {
        state.store.is_some()
    }

    fn pieces(state: &BackupState) -> Vec<(SourceFile, Piece)> {
        state.files.iter().map(|(file, backed)| (*file, backed.piece)).collect()
    }

    fn added(&self) -> Vec<(SourceFile, Piece)> {
        self.files.iter().map(|(file, backed)| (*file, backed.piece)).collect()
    }

    fn dropped(&self, before: &BackupState, state: &BackupState) -> Vec<(SourceFile, Piece)> {
        let is_gone = |(file, backed): &(&SourceFile, &BackedFile)| {
            state.files.get(file).is_none_or(|now| now.piece != backed.piece)
        };
        let gone = before.files.iter().filter(is_gone);
        gone.map(|(file, backed)| (*file, backed.piece)).collect()
    }

    fn name(file: SourceFile, piece: &Piece) -> ObjectName {
        let (id, uid) = (file.id, piece.uid_text());
        let folder = if is_blob(file) { "blobs" } else { "tables" };
        let name = ObjectName::new(format!("{folder}/{id:06}-{uid}"));
        name.expect("digits, letters and dashes are a name")
    }
}

/// Whether two states of a store have the same keyspaces, options and files. Free ids and counts of
/// reads do not matter.
pub fn has_same_contents(old: &ManifestState, new: &ManifestState) -> bool {
    let is_same = |(old, new): (&KeyspaceRecord, &KeyspaceRecord)| {
        (&old.name, &old.options, old.flushed_through)
            == (&new.name, &new.options, new.flushed_through)
            && old.marker == new.marker
            && old.levels == new.levels
    };
    old.last_sequence == new.last_sequence
        && old.keyspaces.keys().eq(new.keyspaces.keys())
        && old.keyspaces.values().zip(new.keyspaces.values()).all(is_same)
}

/// Returns edits from one state of a store to a later one. Where edits cannot express a change, the
/// caller notices that the result differs.
fn edits_between(old: &ManifestState, new: &ManifestState) -> Vec<Edit> {
    let mut edits = Vec::new();
    let known = old.sequence_lineage.iter().count();
    edits.extend(new.sequence_lineage.iter().skip(known).map(Edit::OpenRecord));
    edits.push(Edit::NextFileId(new.next_file_id));
    edits.push(Edit::LastSequence(new.last_sequence));
    let dropped = old.keyspaces.keys().filter(|id| !new.keyspaces.contains_key(id));
    edits.extend(dropped.map(|id| Edit::DropKeyspace(*id)));
    let last_old = old.next_keyspace_id;
    for (id, record) in &new.keyspaces {
        keyspace_edits(*id, old.keyspaces.get(id), record, &mut edits);
    }
    // The id of a dropped keyspace must not be reused.
    let last_new = new.keyspaces.last_key_value().map_or(0, |(id, _)| id + 1);
    if new.next_keyspace_id > last_old.max(last_new) {
        let id = new.next_keyspace_id - 1;
        let (name, options) = (String::new(), KeyspaceOptions::default());
        edits.push(Edit::Keyspace { id, name, options });
        edits.push(Edit::DropKeyspace(id));
    }
    edits
}

/// Appends the edits of one keyspace.
fn keyspace_edits(
    id: u32,
    old: Option<&KeyspaceRecord>,
    new: &KeyspaceRecord,
    edits: &mut Vec<Edit>,
) {
    if old.is_none_or(|old| (&old.name, &old.options) != (&new.name, &new.options)) {
        let (name, options) = (new.name.clone(), new.options.clone());
        edits.push(Edit::Keyspace { id, name, options });
    }
    if old.is_none_or(|old| old.flushed_through != new.flushed_through) {
        edits.push(Edit::FlushedThrough { keyspace: id, sequence: new.flushed_through });
    }
    if let Some(marker) = &new.marker
        && old.is_none_or(|old| old.marker != new.marker)
    {
        edits.push(Edit::Marker { keyspace: id, marker: marker.clone() });
    }
    if let Some(counts) = &new.read_stats
        && old.is_none_or(|old| old.read_stats != new.read_stats)
    {
        edits.push(Edit::ReadStats(id, Arc::clone(counts)));
    }
    let place = |record: &KeyspaceRecord| -> HashMap<(usize, u64), Arc<TableMeta>> {
        let levels = record.levels.iter().enumerate();
        let tables = levels.flat_map(|(level, tables)| {
            tables.iter().map(move |meta| ((level, meta.id), Arc::clone(meta)))
        });
        tables.collect()
    };
    let (before, after) = (old.map(place).unwrap_or_default(), place(new));
    for (level, tables) in old.iter().flat_map(|old| old.levels.iter().enumerate()) {
        let is_gone = |meta: &&Arc<TableMeta>| after.get(&(level, meta.id)) != Some(*meta);
        let gone = tables.iter().filter(is_gone);
        edits.extend(gone.map(|meta| Edit::RemoveTable { keyspace: id, level, id: meta.id }));
    }
    for (level, tables) in new.levels.iter().enumerate() {
        let is_new = |meta: &&Arc<TableMeta>| before.get(&(level, meta.id)) != Some(*meta);
        let added = tables.iter().filter(is_new).map(Arc::clone);
        edits.extend(added.map(|meta| Edit::AddTable { keyspace: id, level, meta }));
    }
}

/// Decodes the contents of a manifest, and encodes them again. For fuzzing only.
pub fn fuzz(body: &[u8]) {
    if let Some(contents) = StoreContents::decode(&mut Decoder::new(body)) {
        let mut again = Vec::new();
        contents.encode(&mut again);
        let _ = contents.apply(None);
        let decoded = StoreContents::decode(&mut Decoder::new(&again));
        assert_eq!(decoded, Some(contents), "encoding and decoding again returns the same");
    }
    let _ = BackupManifest::decode(body, 1);
}

#[cfg(test)]
mod tests;
