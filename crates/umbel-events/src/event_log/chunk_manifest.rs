//! [`ChunkManifest`]: the file that lists the chunks of the event log.
//!
//! FORMAT: `docs/formats/event-log.md`. Each change replaces the file as a whole.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use umbel_base::checksum::checksum;
use umbel_base::fail_point;
use umbel_base::{Decoder, Error, Result, varint};
use umbel_env::{Access, AtomicFile, Env, File};
use umbel_log::{HEADER_BYTES, Seal};

use crate::event_log::clock_epochs::ClockEpochs;
use crate::primitives::store_clock::ClockMark;

const MANIFEST_NAME: &str = "CHUNKS";
const NEW_MANIFEST_NAME: &str = "CHUNKS.new";
const MAGIC: [u8; 8] = *b"UmbelChk";
const VERSION: u8 = 5;
/// Maximum length of a chunk manifest; it bounds the memory that a damaged length can request.
const BYTES_MAX: u64 = 1 << 30;

/// End of a chunk to which nothing is appended any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkEnd {
    /// Offset after its last append.
    pub end: u64,
    /// Offset of the chunk's last event; 0 without events.
    pub last_event: u64,
    /// Proof of the chunk's end record, if the chunk has one. A chunk that was in use when the
    /// process died has no end record.
    pub seal: Option<Seal>,
}

impl ChunkEnd {
    /// End of a chunk without events.
    pub const EMPTY: ChunkEnd = ChunkEnd { end: HEADER_BYTES, last_event: 0, seal: None };

    /// Minimum length of the chunk's file.
    pub fn file_bytes(&self) -> u64 {
        self.seal.map_or(self.end, |sealed| sealed.len)
    }
}

/// File of a chunk that a scavenge rewrote without the removed events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScavengedFile {
    /// Version of the chunk's file; version 0 is the file to which events were appended.
    pub version: u64,
    /// Version of the file that the scavenge rewrote into this file.
    pub source_version: u64,
    /// Length of the file.
    pub file_bytes: u64,
    /// Checksum of the file.
    pub checksum: u64,
    /// Position of the first event, as a distance from the chunk's start; 0 without events.
    pub first_event: u64,
    /// Position of the last event, as a distance from the chunk's start; 0 without events.
    pub last_event: u64,
}

/// One chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkEntry {
    /// Id of the chunk, which no other chunk ever gets.
    pub id: u64,
    /// Position of the first byte of the chunk's file.
    pub start: u64,
    /// Positions from `start + capacity` on belong to later chunks.
    pub capacity: u64,
    /// Random number that the chunk got at its creation. Copies of a store that diverged have
    /// chunks with the same ids and positions, but with different keys.
    pub key: u64,
    /// End of the chunk; `None` as long as events may be appended to it.
    pub ended: Option<ChunkEnd>,
    /// The chunk's current file, if a scavenge rewrote the chunk.
    pub scavenged: Option<ScavengedFile>,
}

impl ChunkEntry {
    /// Returns the path of the chunk's file in the store in `folder`.
    pub fn path(&self, folder: &Path) -> PathBuf {
        chunk_version_path(folder, self.id, self.scavenged.map_or(0, |scavenged| scavenged.version))
    }

    fn encode(&self, out: &mut Vec<u8>) {
        for number in [self.id, self.start, self.capacity] {
            varint::put_u64(out, number);
        }
        out.extend_from_slice(&self.key.to_le_bytes());
        let Some(ended) = self.ended else {
            out.push(0);
            return;
        };
        let sealed = u8::from(ended.seal.is_some());
        out.push(1 + sealed + 2 * u8::from(self.scavenged.is_some()));
        varint::put_u64(out, ended.end);
        varint::put_u64(out, ended.last_event);
        if let Some(sealed) = ended.seal {
            varint::put_u64(out, sealed.len);
            out.extend_from_slice(&sealed.checksum.to_le_bytes());
        }
        if let Some(scavenged) = self.scavenged {
            let ScavengedFile {
                version,
                source_version: made_of,
                file_bytes,
                first_event,
                last_event,
                ..
            } = scavenged;
            for number in [version, made_of, file_bytes, first_event, last_event] {
                varint::put_u64(out, number);
            }
            out.extend_from_slice(&scavenged.checksum.to_le_bytes());
        }
    }

    fn decode(decoder: &mut Decoder<'_>, (version, seed): (u8, &[u8; 16])) -> Option<ChunkEntry> {
        let (id, start, capacity) = (decoder.varint()?, decoder.varint()?, decoder.varint()?);
        let key = if version < 4 { legacy_chunk_key(seed, id) } else { decoder.u64()? };
        let state = decoder.u8().filter(|state| *state <= 4)?;
        if state == 0 {
            return Some(ChunkEntry { id, start, capacity, key, ended: None, scavenged: None });
        }
        let (end, last_event) = (decoder.varint()?, decoder.varint()?);
        let mut sealed = None;
        if state % 2 == 0 {
            let len = decoder.varint()?;
            let sum = *decoder.take(8)?.first_chunk()?;
            sealed = Some(Seal { len, checksum: u64::from_le_bytes(sum) });
        }
        let ended = Some(ChunkEnd { end, last_event, seal: sealed });
        let scavenged =
            if state > 2 { Some(ScavengedFile::decode(decoder, capacity)?) } else { None };
        Some(ChunkEntry { id, start, capacity, key, ended, scavenged })
    }
}

impl ScavengedFile {
    fn decode(decoder: &mut Decoder<'_>, capacity: u64) -> Option<ScavengedFile> {
        let (version, made_of) = (decoder.varint()?, decoder.varint()?);
        let (file_bytes, first_event) = (decoder.varint()?, decoder.varint()?);
        let last_event = decoder.varint()?;
        let checksum = u64::from_le_bytes(*decoder.take(8)?.first_chunk()?);
        let fits = made_of < version && first_event <= last_event && last_event < capacity.max(1);
        fits.then_some(ScavengedFile {
            version,
            source_version: made_of,
            file_bytes,
            checksum,
            first_event,
            last_event,
        })
    }
}

/// The chunks of a store, by position.
#[derive(Debug, Clone)]
pub struct ChunkManifest {
    /// Seed of the hashes of names. Other files contain the seed or values derived from it, which
    /// show that the files belong to this store.
    pub seed: [u8; 16],
    /// Random id of this copy of the store, made with the store and with each restore. All zeros in
    /// a store of an earlier version.
    pub instance: [u8; 16],
    /// Number of chunk manifests written.
    pub generation: u64,
    /// The file on disk that an open store wrote or read; `None` for a manifest that no open store
    /// uses.
    pub root: Option<Arc<AtomicFile>>,
    /// Id of the next chunk.
    pub next_id: u64,
    /// Position of the next chunk's first byte; no event ever had this position or a higher one.
    pub next_start: u64,
    /// Start of the chunk at which an unfinished scavenge resumes; 0 without one.
    pub scavenge_from: u64,
    /// The believed time when this manifest was written; `None` in a store of an earlier version,
    /// or where no time was believed yet.
    pub clock: Option<ClockMark>,
    /// Clock epochs.
    pub epochs: ClockEpochs,
    /// The chunks.
    pub chunks: Vec<ChunkEntry>,
}

/// Manifests whose files have the same bytes are equal.
impl PartialEq for ChunkManifest {
    fn eq(&self, other: &ChunkManifest) -> bool {
        self.encode() == other.encode()
    }
}

impl Eq for ChunkManifest {}

impl ChunkManifest {
    /// Creates the manifest of a new store, with its own seed and instance id.
    pub fn create(env: &Env) -> Result<ChunkManifest> {
        Ok(ChunkManifest::new(env.entropy.id()?, env.entropy.id()?))
    }

    /// Creates a manifest without chunks.
    pub fn new(seed: [u8; 16], instance: [u8; 16]) -> ChunkManifest {
        ChunkManifest {
            seed,
            instance,
            generation: 0,
            root: None,
            next_id: 1,
            next_start: 0,
            scavenge_from: 0,
            clock: None,
            epochs: ClockEpochs::default(),
            chunks: Vec::new(),
        }
    }

    /// Whether the folder has a manifest.
    pub fn exists(env: &Env, folder: &Path) -> Result<bool> {
        env.files.exists(&folder.join(MANIFEST_NAME))
    }

    /// Returns the bytes of the manifest's file.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.push(VERSION);
        out.extend_from_slice(&self.seed);
        out.extend_from_slice(&self.instance);
        let count = self.chunks.len() as u64;
        for number in [self.generation, self.next_id, self.next_start, self.scavenge_from] {
            varint::put_u64(&mut out, number);
        }
        encode_clock(self.clock.as_ref(), &mut out);
        self.epochs.encode(&mut out);
        varint::put_u64(&mut out, count);
        self.chunks.iter().for_each(|chunk| chunk.encode(&mut out));
        let sum = checksum(0, 0, &out);
        out.extend_from_slice(&sum.to_le_bytes());
        out
    }

    /// Decodes the output of [`ChunkManifest::encode`]; `None` where it is malformed. The caller
    /// checks the checksum.
    fn decode_body(version: u8, bytes: &[u8]) -> Option<ChunkManifest> {
        let mut decoder = Decoder::new(bytes);
        let seed = *decoder.take(16)?.first_chunk()?;
        let instance = if version < 3 { [0; 16] } else { *decoder.take(16)?.first_chunk()? };
        let (generation, next_id) = (decoder.varint()?, decoder.varint()?);
        let next_start = decoder.varint()?;
        let scavenge_from = if version < 2 { 0 } else { decoder.varint()? };
        let (clock, epochs) = match version {
            ..5 => (None, ClockEpochs::default()),
            _ => (decode_clock(&mut decoder)?, ClockEpochs::decode(&mut decoder, next_start)?),
        };
        let count = decoder.varint_usize()?;
        let mut chunks: Vec<ChunkEntry> = Vec::new();
        for _ in 0..count {
            let entry = ChunkEntry::decode(&mut decoder, (version, &seed))?;
            let ChunkEntry { id, start, capacity, scavenged, .. } = entry;
            if version < 2 && scavenged.is_some() {
                return None;
            }
            let from = chunks.last().map_or(0, |last| last.start + last.capacity);
            let end = start.checked_add(capacity)?;
            let in_order = start >= from && chunks.last().is_none_or(|last| last.id < id);
            if !in_order || end > next_start || id >= next_id {
                return None;
            }
            chunks.push(entry);
        }
        decoder.is_done().then_some(ChunkManifest {
            seed,
            instance,
            generation,
            root: None,
            next_id,
            next_start,
            scavenge_from,
            clock,
            epochs,
            chunks,
        })
    }

    /// Decodes the manifest of a file.
    ///
    /// # Errors
    /// Damaged bytes, with their place in the file.
    pub fn decode(bytes: &[u8], path: &Path) -> Result<ChunkManifest> {
        let corrupt = |offset: u64, reason: &str| Error::corruption(path, offset, reason);
        let Some((head, sum)) = bytes.split_last_chunk::<8>() else {
            return Err(corrupt(0, "the chunk manifest is truncated"));
        };
        if !head.starts_with(&MAGIC) || head.len() <= MAGIC.len() {
            return Err(corrupt(0, "the file is not the chunk manifest of an event store"));
        }
        if checksum(0, 0, head) != u64::from_le_bytes(*sum) {
            return Err(corrupt(0, "the chunk manifest does not match its checksum"));
        }
        let version = head[MAGIC.len()];
        if version > VERSION {
            return Err(Error::invalid(format!(
                "{} was written by a newer Umbel (chunk manifest format {version}, this Umbel \
                 reads up to {VERSION}); open the store with the newer Umbel or a later one",
                path.display()
            )));
        }
        ChunkManifest::decode_body(version, &head[MAGIC.len() + 1..])
            .ok_or_else(|| corrupt(MAGIC.len() as u64, "the chunk manifest is malformed"))
    }

    /// Reads the manifest of the store in `folder`.
    pub fn read(env: &Env, folder: &Path) -> Result<ChunkManifest> {
        let path = folder.join(MANIFEST_NAME);
        ChunkManifest::read_file(&*env.files.open(&path, Access::Read)?, &path)
    }

    /// Like [`ChunkManifest::read`], for the store's writer: [`ChunkManifest::write`] will replace
    /// only the file that this call read.
    pub fn read_for_writer(
        env: &Env,
        folder: &Path,
        root: Arc<AtomicFile>,
    ) -> Result<ChunkManifest> {
        let path = folder.join(MANIFEST_NAME);
        let file = env.files.open(&path, Access::Read)?;
        let manifest = ChunkManifest::read_file(&*file, &path)?;
        root.set_found(file)?;
        Ok(ChunkManifest { root: Some(root), ..manifest })
    }

    fn read_file(file: &dyn File, path: &Path) -> Result<ChunkManifest> {
        let len = file.len()?;
        if len > BYTES_MAX {
            return Err(Error::corruption(
                path,
                BYTES_MAX,
                "the file is too long for a chunk manifest",
            ));
        }
        let mut bytes = vec![0; len as usize];
        file.read_exact_at(&mut bytes, 0)?;
        ChunkManifest::decode(&bytes, path)
    }

    /// Returns a handle of the manifest's file in `folder`, without reading the file.
    pub fn atomic_file(env: &Env, folder: &Path) -> Arc<AtomicFile> {
        Arc::new(AtomicFile::new(Arc::clone(&env.files), folder.join(MANIFEST_NAME)))
    }

    /// Replaces the manifest in `folder` by this one, with the next generation, and makes it
    /// durable with every name of the folder.
    ///
    /// REQUIRES: the names of all chunks in it are durable.
    ///
    /// # Errors
    /// - `Replaced`, without a change, if the manifest in `folder` is not the one that this writer
    ///   read or wrote last.
    /// - A failed call.
    pub fn write(&mut self, env: &Env, folder: &Path) -> Result<()> {
        self.generation += 1;
        let new = folder.join(NEW_MANIFEST_NAME);
        if env.files.exists(&new)? {
            // Left by an earlier write.
            env.files.remove_file(&new)?;
        }
        let file = self.write_file(env, &new).inspect_err(|_| {
            // The first failure is reported.
            let _ = env.files.remove_file(&new);
        })?;
        fail_point!("chunk-manifest-skip-replacement-check", |_| rename_new(env, folder));
        match &self.root {
            Some(root) => root.replace(&*env.files, &new, file),
            None => rename_new(env, folder),
        }
    }

    fn write_file(&self, env: &Env, path: &Path) -> Result<Arc<dyn File>> {
        let file = env.files.create(path)?;
        file.write_all_at(&self.encode(), 0)?;
        file.sync()?;
        Ok(file)
    }

    /// Last generation of the manifest whose readers may know a file that this manifest does not
    /// name.
    pub fn previous_generation(&self) -> u64 {
        self.generation.saturating_sub(1)
    }

    /// Makes new chunks use ids and positions after those of `other`, a manifest that may or may
    /// not be on disk.
    pub fn skip_past(&mut self, other: &ChunkManifest) {
        self.generation = other.generation;
        (self.next_id, self.next_start) = (other.next_id, other.next_start);
    }

    /// Returns the last chunk.
    pub fn last(&self) -> Option<&ChunkEntry> {
        self.chunks.last()
    }

    /// Returns the chunks without a recorded end, which are the last ones. `folder` is the store's
    /// folder.
    pub fn open_chunks(&self, folder: &Path) -> Result<&[ChunkEntry]> {
        let from = self.chunks.iter().position(|entry| entry.ended.is_none());
        let open = from.map_or(&[][..], |from| &self.chunks[from..]);
        if open.iter().any(|entry| entry.ended.is_some()) {
            let reason = "a complete chunk follows an incomplete chunk";
            return Err(Error::corruption(&folder.join(MANIFEST_NAME), 0, reason));
        }
        Ok(open)
    }

    /// Returns the chunk with this id. The ids ascend.
    pub fn entry(&self, id: u64) -> Option<&ChunkEntry> {
        self.chunks.get(self.index_of(id)?)
    }

    /// Returns the chunk with this id, to be changed.
    pub fn entry_mut(&mut self, id: u64) -> Option<&mut ChunkEntry> {
        let index = self.index_of(id)?;
        self.chunks.get_mut(index)
    }

    fn index_of(&self, id: u64) -> Option<usize> {
        #[cfg(test)]
        let id_of = |entry: &ChunkEntry| {
            tests::COMPARED.with(|compared| compared.set(compared.get() + 1));
            entry.id
        };
        #[cfg(not(test))]
        let id_of = |entry: &ChunkEntry| entry.id;
        self.chunks.binary_search_by_key(&id, id_of).ok()
    }

    /// Removes the chunks that have ended and hold no events, and returns their ids. The caller
    /// removes the files of these chunks once a manifest without the chunks is written.
    pub fn remove_empty(&mut self) -> Vec<u64> {
        let is_empty = |entry: &ChunkEntry| {
            entry.scavenged.is_none() && entry.ended.is_some_and(|ended| ended.last_event == 0)
        };
        let empty = self.chunks.extract_if(.., |entry| is_empty(entry));
        empty.map(|entry| entry.id).collect()
    }

    /// Adds a chunk with a capacity of `capacity` bytes and a unique key, and returns it.
    pub fn add(&mut self, capacity: u64, key: u64) -> ChunkEntry {
        fail_point!("events-reuse-positions", |_| {
            let last = self.chunks.last_mut().filter(|last| last.ended.is_some());
            let used = last.map(|last| {
                last.capacity = last.ended.map_or(last.capacity, |ended| ended.end);
                last.start + last.capacity
            });
            self.add_at(used.unwrap_or(self.next_start), capacity, key)
        });
        self.add_at(self.next_start, capacity, key)
    }

    /// Adds a chunk whose positions begin at `start`.
    fn add_at(&mut self, start: u64, capacity: u64, key: u64) -> ChunkEntry {
        let id = self.next_id;
        let entry = ChunkEntry { id, start, capacity, key, ended: None, scavenged: None };
        self.next_id += 1;
        self.next_start = start + capacity;
        self.chunks.push(entry);
        entry
    }
}

fn encode_clock(clock: Option<&ClockMark>, out: &mut Vec<u8>) {
    let Some(mark) = clock else {
        out.push(0);
        return;
    };
    out.push(1);
    varint::put_u64(out, mark.time);
    varint::put_u64(out, mark.uptime);
    out.extend_from_slice(&mark.boot);
}

/// Decodes the output of [`encode_clock`]; `None` where it is malformed.
fn decode_clock(decoder: &mut Decoder<'_>) -> Option<Option<ClockMark>> {
    if decoder.u8().filter(|state| *state <= 1)? == 0 {
        return Some(None);
    }
    let (time, uptime) = (decoder.varint()?, decoder.varint()?);
    Some(Some(ClockMark { time, uptime, boot: *decoder.take(16)?.first_chunk()? }))
}

/// Renames the new manifest over the old one.
fn rename_new(env: &Env, folder: &Path) -> Result<()> {
    env.files.rename(&folder.join(NEW_MANIFEST_NAME), &folder.join(MANIFEST_NAME))?;
    env.files.sync_dir(folder)
}

/// Decodes a manifest without its checksum, and encodes it again. For fuzzing only.
pub fn fuzz(body: &[u8]) {
    for manifest in (1..=VERSION).filter_map(|version| ChunkManifest::decode_body(version, body)) {
        let bytes = manifest.encode();
        let again = ChunkManifest::decode(&bytes, Path::new(MANIFEST_NAME)).ok();
        assert_eq!(again, Some(manifest), "encoding and decoding again returns the same");
    }
    let _ = ChunkManifest::decode(body, Path::new(MANIFEST_NAME));
}

/// Returns the key of a chunk of an earlier version of Umbel, which stored no keys. The key is the
/// same in every copy of the store with this seed.
pub fn legacy_chunk_key(seed: &[u8; 16], id: u64) -> u64 {
    checksum(id, 0, seed)
}

/// Returns the folder of the chunks.
pub fn chunk_directory(folder: &Path) -> PathBuf {
    folder.join("log")
}

/// Returns the path of a chunk's first file, to which events were appended.
pub fn chunk_path(folder: &Path, id: u64) -> PathBuf {
    chunk_version_path(folder, id, 0)
}

/// Returns the path of a chunk's file; version 0 is the file to which events were appended.
pub fn chunk_version_path(folder: &Path, id: u64, version: u64) -> PathBuf {
    let name = match version {
        0 => format!("{id:08}.chunk"),
        _ => format!("{id:08}-{version:06}.chunk"),
    };
    chunk_directory(folder).join(name)
}

/// Returns id and version of the chunk file with this name; `None` for other names.
pub fn parse_chunk_name(name: &str) -> Option<(u64, u64)> {
    let stem = name.strip_suffix(".chunk")?;
    let (id, version) = match stem.split_once('-') {
        Some((id, version)) => (id.parse().ok()?, version.parse().ok()?),
        None => (stem.parse().ok()?, 0),
    };
    let path = chunk_version_path(Path::new(""), id, version);
    path.file_name().is_some_and(|expected| expected == name).then_some((id, version))
}

/// Returns the error for a missing chunk file that the manifest on disk does not name: the writer
/// removed it after the reader read the manifest. `None` if the manifest names the file.
pub fn removed_file_error(env: &Env, path: &Path) -> Option<Error> {
    let folder = path.parent()?.parent()?;
    let manifest = ChunkManifest::read(env, folder).ok()?;
    if manifest.chunks.iter().any(|entry| entry.path(folder) == path) {
        return None;
    }
    let reason = "the writer has removed this file since it was opened for reading".into();
    Some(Error::Stale { path: path.to_path_buf(), reason })
}

/// Returns the error for a chunk file that could not be opened; a missing file is damage.
pub fn open_error(path: &Path, error: Error) -> Error {
    match error.is_missing_file() {
        true => Error::corruption(path, 0, "this chunk of the event log is missing"),
        false => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event_log::clock_epochs::ClockEpoch;

    thread_local! {
        /// Number of ids that searches compared.
        pub static COMPARED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
    }

    /// Regression: each chunk that ended was searched among all chunks of the manifest, whenever a
    /// chunk was prepared. A store with 30,000 chunks compared 450 million ids.
    #[test]
    fn chunks_are_found_by_a_binary_search() {
        let mut manifest = ChunkManifest::new([7; 16], [8; 16]);
        for _ in 0..3000 {
            manifest.add(4096, 5);
            // Chunks without events were removed, and their ids are missing.
            manifest.next_id += 1;
        }
        let ids: Vec<u64> = manifest.chunks.iter().map(|entry| entry.id).collect();
        let before = COMPARED.with(std::cell::Cell::get);
        for id in &ids {
            assert_eq!(manifest.entry(*id).map(|entry| entry.id), Some(*id));
            assert!(manifest.entry_mut(*id + 1).is_none());
        }
        let compared = COMPARED.with(std::cell::Cell::get) - before;
        assert!(compared <= 2 * 13 * ids.len() as u64, "{compared}");
    }

    fn example() -> ChunkManifest {
        let mut manifest = ChunkManifest::new([9; 16], [8; 16]);
        manifest.generation = 4;
        manifest.add(1 << 20, 5);
        manifest.add(1 << 21, 6);
        manifest.add(1 << 21, 7);
        let sealed = Some(Seal { len: 5000, checksum: 77 });
        manifest.chunks[0].ended = Some(ChunkEnd { end: 4952, last_event: 4800, seal: sealed });
        manifest.chunks[1].ended = Some(ChunkEnd { end: 64, last_event: 0, seal: None });
        let (version, made_of, file_bytes, checksum) = (3, 1, 700, 8);
        let (first_event, last_event) = (96, 4800);
        let scavenged = ScavengedFile {
            version,
            source_version: made_of,
            file_bytes,
            checksum,
            first_event,
            last_event,
        };
        manifest.chunks[0].scavenged = Some(scavenged);
        manifest.scavenge_from = 1 << 20;
        manifest.clock = Some(ClockMark { time: 9000, uptime: 400, boot: [6; 16] });
        manifest.epochs.begin(ClockEpoch { position: 1 << 20, start: 500 }, 4800);
        manifest
    }

    /// A manifest as earlier versions wrote it, with neither clock nor epochs.
    fn example_of_version_4() -> ChunkManifest {
        ChunkManifest { clock: None, epochs: ClockEpochs::default(), ..example() }
    }

    /// Removes the clock and the epochs, which are both empty, from the bytes of a manifest.
    fn remove_clock(bytes: &mut Vec<u8>, manifest: &ChunkManifest) {
        let mut head = MAGIC.len() + 1 + 32;
        let numbers = [manifest.generation, manifest.next_id, manifest.next_start];
        for number in numbers.into_iter().chain([manifest.scavenge_from]) {
            let mut encoded = Vec::new();
            varint::put_u64(&mut encoded, number);
            head += encoded.len();
        }
        assert_eq!(bytes.drain(head..head + 2).as_slice(), [0, 0]);
    }

    #[test]
    fn version_4_manifest_has_neither_clock_nor_epochs() {
        let manifest = example_of_version_4();
        let mut old = manifest.encode();
        old.truncate(old.len() - 8);
        remove_clock(&mut old, &manifest);
        old[MAGIC.len()] = 4;
        old.extend(checksum(0, 0, &old).to_le_bytes());
        assert_eq!(ChunkManifest::decode(&old, Path::new("CHUNKS")).expect("it is read"), manifest);
    }

    #[test]
    fn impossible_epochs_are_rejected() {
        let mut manifest = example();
        let position = manifest.next_start + 1;
        manifest.epochs.begin(ClockEpoch { position, start: 5 }, position - 1);
        let decoded = ChunkManifest::decode(&manifest.encode(), Path::new("CHUNKS"));
        assert!(decoded.is_err(), "an epoch that begins after every event to come");
    }

    #[test]
    fn chunk_manifest_round_trips_and_changed_bytes_are_rejected() {
        let (manifest, path) = (example(), Path::new("CHUNKS"));
        let bytes = manifest.encode();
        assert_eq!(ChunkManifest::decode(&bytes, path).expect("just written"), manifest);
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(ChunkManifest::decode(&changed, path).is_err(), "bit {bit}");
        }
        for len in 0..bytes.len() {
            assert!(ChunkManifest::decode(&bytes[..len], path).is_err(), "{len} bytes");
        }
    }

    /// Gives the chunks the keys that earlier versions of Umbel derived. Returns the bytes of the
    /// manifest without its checksum and without the keys.
    fn without_keys(manifest: &mut ChunkManifest) -> Vec<u8> {
        let seed = manifest.seed;
        manifest.chunks.iter_mut().for_each(|entry| entry.key = legacy_chunk_key(&seed, entry.id));
        let mut bytes = manifest.encode();
        bytes.truncate(bytes.len() - 8);
        remove_clock(&mut bytes, manifest);
        for entry in &manifest.chunks {
            let key = entry.key.to_le_bytes();
            let at = bytes.windows(8).position(|bytes| bytes == key).expect("it is there");
            bytes.drain(at..at + 8);
        }
        bytes
    }

    #[test]
    fn version_3_chunks_get_the_same_keys_in_every_copy() {
        let mut manifest = example_of_version_4();
        let mut old = without_keys(&mut manifest);
        old[MAGIC.len()] = 3;
        old.extend(checksum(0, 0, &old).to_le_bytes());
        assert_eq!(ChunkManifest::decode(&old, Path::new("CHUNKS")).expect("it is read"), manifest);
        assert_ne!(manifest.chunks[0].key, legacy_chunk_key(&[8; 16], manifest.chunks[0].id));
    }

    #[test]
    fn version_2_manifest_has_no_instance_id() {
        let mut manifest = ChunkManifest { instance: [0; 16], ..example_of_version_4() };
        let new = without_keys(&mut manifest);
        let at = MAGIC.len() + 1;
        let mut old = [&MAGIC[..], &[2], &new[at..at + 16], &new[at + 32..]].concat();
        old.extend(checksum(0, 0, &old).to_le_bytes());
        assert_eq!(ChunkManifest::decode(&old, Path::new("CHUNKS")).expect("it is read"), manifest);
    }

    #[test]
    fn chunk_file_names_round_trip_and_others_are_rejected() {
        for (id, version) in [(1, 0), (7, 3), (123_456_789, 1_234_567)] {
            let path = chunk_version_path(Path::new("/store"), id, version);
            let name = path.file_name().expect("a name").to_string_lossy();
            assert_eq!(parse_chunk_name(&name), Some((id, version)), "{name}");
        }
        for name in
            ["1.chunk", "00000001.chunk.left-out", "00000001-000000.chunk", "CHUNKS", "-1.chunk"]
        {
            assert_eq!(parse_chunk_name(name), None, "{name}");
        }
    }

    #[test]
    fn impossible_chunk_manifests_are_rejected() {
        let good = example();
        let path = Path::new("CHUNKS");
        let mut overlapping = good.clone();
        overlapping.chunks[1].start = 5;
        let mut reused = good.clone();
        reused.chunks[2].id = 1;
        let mut beyond = good.clone();
        beyond.next_start = 7;
        for (name, manifest) in
            [("overlapping", overlapping), ("reused", reused), ("beyond", beyond)]
        {
            assert!(ChunkManifest::decode(&manifest.encode(), path).is_err(), "{name}");
        }
    }
}
