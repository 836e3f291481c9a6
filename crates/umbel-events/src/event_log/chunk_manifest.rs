//! [`ChunkTable`]: the file that says which chunks make up the event log.
//!
//! FORMAT: `docs/formats/event-log.md`. It is replaced as a whole.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use umbel_base::checksum::checksum;
use umbel_base::{Decoder, Error, Result, varint};
use umbel_env::{Access, Env, File, RootFile};
use umbel_log::{HEADER_BYTES, Sealed};

const NAME: &str = "CHUNKS";
const NEW_NAME: &str = "CHUNKS.new";
const MAGIC: [u8; 8] = *b"UmbelChk";
const VERSION: u8 = 4;
/// No table is longer; a damaged length cannot make anybody take more memory.
const BYTES_MAX: u64 = 1 << 30;

/// How a chunk that is not written any more ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// The offset behind its last append.
    pub end: u64,
    /// The offset of its last event; 0 where it has none.
    pub last_event: u64,
    /// The proof of its end record, where it has one: a chunk in use when the process died has
    /// none.
    pub sealed: Option<Sealed>,
}

impl Ended {
    /// How one ended that holds nothing.
    pub const EMPTY: Ended = Ended { end: HEADER_BYTES, last_event: 0, sealed: None };

    /// How long its file is at least.
    pub fn file_bytes(&self) -> u64 {
        self.sealed.map_or(self.end, |sealed| sealed.len)
    }
}

/// A chunk that was written anew, with events left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packed {
    /// Which file of the chunk it is; 0 is the one that was appended to.
    pub version: u64,
    /// The version it was made of.
    pub made_of: u64,
    /// How long its file is.
    pub file_bytes: u64,
    /// The checksum of its file.
    pub checksum: u64,
    /// The position of its first event, as a distance from the chunk's start; 0 where it has none.
    pub first_event: u64,
    /// That of its last event.
    pub last_event: u64,
}

/// One chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkEntry {
    /// Its id, which is never used for another.
    pub id: u64,
    /// The position that its file's first byte has.
    pub start: u64,
    /// Positions from `start + capacity` on belong to later chunks.
    pub capacity: u64,
    /// A random number that it got when it was made. Copies of a store that went on apart have
    /// chunks with the same ids and positions, and with other keys.
    pub key: u64,
    /// How it ended; `None` as long as it may be written.
    pub ended: Option<Ended>,
    /// The file that counts, where the chunk was written anew.
    pub packed: Option<Packed>,
}

impl ChunkEntry {
    /// The chunk's file in the store of this folder.
    pub fn path(&self, folder: &Path) -> PathBuf {
        version_path(folder, self.id, self.packed.map_or(0, |packed| packed.version))
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
        let sealed = u8::from(ended.sealed.is_some());
        out.push(1 + sealed + 2 * u8::from(self.packed.is_some()));
        varint::put_u64(out, ended.end);
        varint::put_u64(out, ended.last_event);
        if let Some(sealed) = ended.sealed {
            varint::put_u64(out, sealed.len);
            out.extend_from_slice(&sealed.checksum.to_le_bytes());
        }
        if let Some(packed) = self.packed {
            let Packed { version, made_of, file_bytes, first_event, last_event, .. } = packed;
            for number in [version, made_of, file_bytes, first_event, last_event] {
                varint::put_u64(out, number);
            }
            out.extend_from_slice(&packed.checksum.to_le_bytes());
        }
    }

    fn decode(decoder: &mut Decoder<'_>, (version, seed): (u8, &[u8; 16])) -> Option<ChunkEntry> {
        let (id, start, capacity) = (decoder.varint()?, decoder.varint()?, decoder.varint()?);
        let key = if version < 4 { key_of_old(seed, id) } else { decoder.u64()? };
        let state = decoder.u8().filter(|state| *state <= 4)?;
        if state == 0 {
            return Some(ChunkEntry { id, start, capacity, key, ended: None, packed: None });
        }
        let (end, last_event) = (decoder.varint()?, decoder.varint()?);
        let mut sealed = None;
        if state % 2 == 0 {
            let len = decoder.varint()?;
            let sum = *decoder.take(8)?.first_chunk()?;
            sealed = Some(Sealed { len, checksum: u64::from_le_bytes(sum) });
        }
        let ended = Some(Ended { end, last_event, sealed });
        let packed = if state > 2 { Some(Packed::decode(decoder, capacity)?) } else { None };
        Some(ChunkEntry { id, start, capacity, key, ended, packed })
    }
}

impl Packed {
    fn decode(decoder: &mut Decoder<'_>, capacity: u64) -> Option<Packed> {
        let (version, made_of) = (decoder.varint()?, decoder.varint()?);
        let (file_bytes, first_event) = (decoder.varint()?, decoder.varint()?);
        let last_event = decoder.varint()?;
        let checksum = u64::from_le_bytes(*decoder.take(8)?.first_chunk()?);
        let fits = made_of < version && first_event <= last_event && last_event < capacity.max(1);
        fits.then_some(Packed { version, made_of, file_bytes, checksum, first_event, last_event })
    }
}

/// The chunks of a store, by position.
#[derive(Debug, Clone)]
pub struct ChunkTable {
    /// What names are hashed with, and by which other files know that they belong to this store.
    pub seed: [u8; 16],
    /// Which copy of the store this is: random, made with the store and with each restore. All
    /// zeros in a store of an earlier version.
    pub instance: [u8; 16],
    /// Counts the tables written.
    pub generation: u64,
    /// The file on the disk, which an open store has written or found; `None` of any other table.
    pub root: Option<Arc<RootFile>>,
    /// The id of the next chunk.
    pub next_id: u64,
    /// The position its first byte will have: no event was ever given one as high.
    pub next_start: u64,
    /// A scavenge that did not end goes on with the chunk that begins here; 0 where none did.
    pub scavenge_from: u64,
    /// The chunks.
    pub chunks: Vec<ChunkEntry>,
}

/// Tables whose files have the same bytes are equal.
impl PartialEq for ChunkTable {
    fn eq(&self, other: &ChunkTable) -> bool {
        self.encode() == other.encode()
    }
}

impl Eq for ChunkTable {}

impl ChunkTable {
    /// That of a new store, with a seed and an instance id of its own.
    pub fn create(env: &Env) -> Result<ChunkTable> {
        Ok(ChunkTable::new(env.entropy.id()?, env.entropy.id()?))
    }

    /// One without chunks.
    pub fn new(seed: [u8; 16], instance: [u8; 16]) -> ChunkTable {
        ChunkTable {
            seed,
            instance,
            generation: 0,
            root: None,
            next_id: 1,
            next_start: 0,
            scavenge_from: 0,
            chunks: Vec::new(),
        }
    }

    /// Whether there is one in the folder.
    pub fn exists(env: &Env, folder: &Path) -> Result<bool> {
        env.files.exists(&folder.join(NAME))
    }

    /// The bytes of its file.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.push(VERSION);
        out.extend_from_slice(&self.seed);
        out.extend_from_slice(&self.instance);
        let count = self.chunks.len() as u64;
        let numbers = [self.generation, self.next_id, self.next_start, self.scavenge_from, count];
        for number in numbers {
            varint::put_u64(&mut out, number);
        }
        self.chunks.iter().for_each(|chunk| chunk.encode(&mut out));
        let sum = checksum(0, 0, &out);
        out.extend_from_slice(&sum.to_le_bytes());
        out
    }

    /// Reads what [`ChunkTable::encode`] wrote; `None` where it is malformed. The checksum was
    /// checked.
    fn decode_body(version: u8, bytes: &[u8]) -> Option<ChunkTable> {
        let mut decoder = Decoder::new(bytes);
        let seed = *decoder.take(16)?.first_chunk()?;
        let instance = if version < 3 { [0; 16] } else { *decoder.take(16)?.first_chunk()? };
        let (generation, next_id) = (decoder.varint()?, decoder.varint()?);
        let next_start = decoder.varint()?;
        let scavenge_from = if version < 2 { 0 } else { decoder.varint()? };
        let count = decoder.varint_usize()?;
        let mut chunks: Vec<ChunkEntry> = Vec::new();
        for _ in 0..count {
            let entry = ChunkEntry::decode(&mut decoder, (version, &seed))?;
            let ChunkEntry { id, start, capacity, packed, .. } = entry;
            if version < 2 && packed.is_some() {
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
        decoder.is_done().then_some(ChunkTable {
            seed,
            instance,
            generation,
            root: None,
            next_id,
            next_start,
            scavenge_from,
            chunks,
        })
    }

    /// Reads the table of a file.
    ///
    /// # Errors
    /// What is wrong with its bytes, and where.
    pub fn decode(bytes: &[u8], path: &Path) -> Result<ChunkTable> {
        let corrupt = |offset: u64, reason: &str| Error::corruption(path, offset, reason);
        let Some((head, sum)) = bytes.split_last_chunk::<8>() else {
            return Err(corrupt(0, "the table of chunks is cut short"));
        };
        if !head.starts_with(&MAGIC) || head.len() <= MAGIC.len() {
            return Err(corrupt(0, "the file is no table of an event store's chunks"));
        }
        if checksum(0, 0, head) != u64::from_le_bytes(*sum) {
            return Err(corrupt(0, "the table of chunks does not match its checksum"));
        }
        let version = head[MAGIC.len()];
        if version > VERSION {
            return Err(Error::invalid(format!(
                "{} was written by a newer Umbel (table of chunks {version}, this one reads up to \
                 {VERSION}); open the store with that version or a later one",
                path.display()
            )));
        }
        ChunkTable::decode_body(version, &head[MAGIC.len() + 1..])
            .ok_or_else(|| corrupt(MAGIC.len() as u64, "the table of chunks is malformed"))
    }

    /// Reads the table of the store in `folder`.
    pub fn read(env: &Env, folder: &Path) -> Result<ChunkTable> {
        let path = folder.join(NAME);
        ChunkTable::read_file(&*env.files.open(&path, Access::Read)?, &path)
    }

    /// As [`ChunkTable::read`], for the store's writer: [`ChunkTable::write`] replaces this file
    /// and no other.
    pub fn read_own(env: &Env, folder: &Path, root: Arc<RootFile>) -> Result<ChunkTable> {
        let path = folder.join(NAME);
        let file = env.files.open(&path, Access::Read)?;
        let table = ChunkTable::read_file(&*file, &path)?;
        root.note_found(file)?;
        Ok(ChunkTable { root: Some(root), ..table })
    }

    fn read_file(file: &dyn File, path: &Path) -> Result<ChunkTable> {
        let len = file.len()?;
        if len > BYTES_MAX {
            return Err(Error::corruption(path, BYTES_MAX, "no table of chunks is as long"));
        }
        let mut bytes = vec![0; len as usize];
        file.read_exact_at(&mut bytes, 0)?;
        ChunkTable::decode(&bytes, path)
    }

    /// The file of the table in `folder`, of which nothing is known yet.
    pub fn root(env: &Env, folder: &Path) -> Arc<RootFile> {
        Arc::new(RootFile::new(Arc::clone(&env.files), folder.join(NAME)))
    }

    /// Puts this table, of the next generation, in the place of the one in `folder`, and makes it
    /// durable with every name of the folder.
    ///
    /// REQUIRES: the names of all chunks in it are durable.
    ///
    /// # Errors
    /// `Replaced`, with the table there left alone, where it is not the one that this writer read
    /// or wrote last; a failed call.
    pub fn write(&mut self, env: &Env, folder: &Path) -> Result<()> {
        self.generation += 1;
        let new = folder.join(NEW_NAME);
        if env.files.exists(&new)? {
            // Left over from an earlier write.
            env.files.remove_file(&new)?;
        }
        let file = self.write_file(env, &new).inspect_err(|_| {
            // The first failure is the one to report.
            let _ = env.files.remove_file(&new);
        })?;
        #[cfg(feature = "canary")]
        if umbel_base::canary::Switch::EventsChunksNotOwned.is_on() {
            env.files.rename(&new, &folder.join(NAME))?;
            return env.files.sync_dir(folder);
        }
        match &self.root {
            Some(root) => root.replace(&*env.files, &new, file),
            None => {
                env.files.rename(&new, &folder.join(NAME))?;
                env.files.sync_dir(folder)
            }
        }
    }

    fn write_file(&self, env: &Env, path: &Path) -> Result<Arc<dyn File>> {
        let file = env.files.create(path)?;
        file.write_all_at(&self.encode(), 0)?;
        file.sync()?;
        Ok(file)
    }

    /// The last generation whose readers may know a file that this table does not name.
    pub fn generation_before(&self) -> u64 {
        self.generation.saturating_sub(1)
    }

    /// Goes on behind the ids and positions of another table, which may or may not be the one on
    /// the disk.
    pub fn skip(&mut self, other: &ChunkTable) {
        self.generation = other.generation;
        (self.next_id, self.next_start) = (other.next_id, other.next_start);
    }

    /// The last chunk.
    pub fn last(&self) -> Option<&ChunkEntry> {
        self.chunks.last()
    }

    /// The chunks whose end it does not say, all of which come last. `folder` is the store's.
    pub fn open_chunks(&self, folder: &Path) -> Result<&[ChunkEntry]> {
        let from = self.chunks.iter().position(|entry| entry.ended.is_none());
        let open = from.map_or(&[][..], |from| &self.chunks[from..]);
        if open.iter().any(|entry| entry.ended.is_some()) {
            let reason = "a chunk has ended that comes after one that has not";
            return Err(Error::corruption(&folder.join(NAME), 0, reason));
        }
        Ok(open)
    }

    /// Takes out the chunks that have ended and hold nothing, and returns their ids. Their files go
    /// once a table without them was written.
    pub fn take_empty(&mut self) -> Vec<u64> {
        let is_empty = |entry: &ChunkEntry| {
            entry.packed.is_none() && entry.ended.is_some_and(|ended| ended.last_event == 0)
        };
        let empty = self.chunks.extract_if(.., |entry| is_empty(entry));
        empty.map(|entry| entry.id).collect()
    }

    /// Adds a chunk with room for `capacity` bytes and a key that no other has, and returns it.
    pub fn add(&mut self, capacity: u64, key: u64) -> ChunkEntry {
        #[cfg(feature = "canary")]
        if let Some(last) = self.chunks.last_mut()
            && let Some(ended) = last.ended
            && umbel_base::canary::Switch::EventsPositionsReused.is_on()
        {
            last.capacity = ended.end;
            self.next_start = last.start + last.capacity;
        }
        let (id, start) = (self.next_id, self.next_start);
        let entry = ChunkEntry { id, start, capacity, key, ended: None, packed: None };
        self.next_id += 1;
        self.next_start += capacity;
        self.chunks.push(entry);
        entry
    }
}

/// Decodes a table without its checksum, and encodes it again. For fuzzing only.
pub fn fuzz(body: &[u8]) {
    for table in (1..=VERSION).filter_map(|version| ChunkTable::decode_body(version, body)) {
        let bytes = table.encode();
        let again = ChunkTable::decode(&bytes, Path::new(NAME)).ok();
        assert_eq!(again, Some(table), "what was read can be written and read again");
    }
    let _ = ChunkTable::decode(body, Path::new(NAME));
}

/// The key of a chunk that an earlier version made, which gave it none: the same in every copy of
/// the store with this seed.
pub fn key_of_old(seed: &[u8; 16], id: u64) -> u64 {
    checksum(id, 0, seed)
}

/// The folder of the chunks.
pub fn chunk_folder(folder: &Path) -> PathBuf {
    folder.join("log")
}

/// The file of a chunk that was not written anew.
pub fn chunk_path(folder: &Path, id: u64) -> PathBuf {
    version_path(folder, id, 0)
}

/// A file of a chunk; version 0 is the one that was appended to.
pub fn version_path(folder: &Path, id: u64, version: u64) -> PathBuf {
    let name = match version {
        0 => format!("{id:08}.chunk"),
        _ => format!("{id:08}-{version:06}.chunk"),
    };
    chunk_folder(folder).join(name)
}

/// The id and the version of the chunk whose file has this name; `None` where none has.
pub fn parse_name(name: &str) -> Option<(u64, u64)> {
    let stem = name.strip_suffix(".chunk")?;
    let (id, version) = match stem.split_once('-') {
        Some((id, version)) => (id.parse().ok()?, version.parse().ok()?),
        None => (stem.parse().ok()?, 0),
    };
    let path = version_path(Path::new(""), id, version);
    path.file_name().is_some_and(|expected| expected == name).then_some((id, version))
}

/// The error for a file of a chunk that is missing, where the table on the disk does not name it:
/// the writer removed it after the reader read the table. `None` where the table names it.
pub fn removed_since(env: &Env, path: &Path) -> Option<Error> {
    let folder = path.parent()?.parent()?;
    let table = ChunkTable::read(env, folder).ok()?;
    if table.chunks.iter().any(|entry| entry.path(folder) == path) {
        return None;
    }
    let reason = "the writer has removed this file since it was opened for reading".into();
    Some(Error::Stale { path: path.to_path_buf(), reason })
}

/// An error where the file of a chunk could not be opened: one that is missing is damage.
pub fn unopened(path: &Path, error: Error) -> Error {
    match error.is_missing_file() {
        true => Error::corruption(path, 0, "this part of the event log is missing"),
        false => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> ChunkTable {
        let mut table = ChunkTable::new([9; 16], [8; 16]);
        table.generation = 4;
        table.add(1 << 20, 5);
        table.add(1 << 21, 6);
        table.add(1 << 21, 7);
        let sealed = Some(Sealed { len: 5000, checksum: 77 });
        table.chunks[0].ended = Some(Ended { end: 4952, last_event: 4800, sealed });
        table.chunks[1].ended = Some(Ended { end: 64, last_event: 0, sealed: None });
        let (version, made_of, file_bytes, checksum) = (3, 1, 700, 8);
        let (first_event, last_event) = (96, 4800);
        let packed = Packed { version, made_of, file_bytes, checksum, first_event, last_event };
        table.chunks[0].packed = Some(packed);
        table.scavenge_from = 1 << 20;
        table
    }

    #[test]
    fn a_table_comes_back_and_no_changed_byte_is_taken_for_it() {
        let (table, path) = (example(), Path::new("CHUNKS"));
        let bytes = table.encode();
        assert_eq!(ChunkTable::decode(&bytes, path).expect("just written"), table);
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(ChunkTable::decode(&changed, path).is_err(), "bit {bit}");
        }
        for len in 0..bytes.len() {
            assert!(ChunkTable::decode(&bytes[..len], path).is_err(), "{len} bytes");
        }
    }

    /// Gives the chunks the keys that those of earlier versions have, and returns the bytes of the
    /// table without its checksum and without the keys.
    fn without_keys(table: &mut ChunkTable) -> Vec<u8> {
        let seed = table.seed;
        table.chunks.iter_mut().for_each(|entry| entry.key = key_of_old(&seed, entry.id));
        let mut bytes = table.encode();
        bytes.truncate(bytes.len() - 8);
        for entry in &table.chunks {
            let key = entry.key.to_le_bytes();
            let at = bytes.windows(8).position(|bytes| bytes == key).expect("it is there");
            bytes.drain(at..at + 8);
        }
        bytes
    }

    #[test]
    fn chunks_of_version_3_have_the_keys_that_every_copy_gives_them() {
        let mut table = example();
        let mut old = without_keys(&mut table);
        old[MAGIC.len()] = 3;
        old.extend(checksum(0, 0, &old).to_le_bytes());
        assert_eq!(ChunkTable::decode(&old, Path::new("CHUNKS")).expect("it is read"), table);
        assert_ne!(table.chunks[0].key, key_of_old(&[8; 16], table.chunks[0].id));
    }

    #[test]
    fn a_table_of_version_2_has_no_instance_id() {
        let mut table = ChunkTable { instance: [0; 16], ..example() };
        let new = without_keys(&mut table);
        let at = MAGIC.len() + 1;
        let mut old = [&MAGIC[..], &[2], &new[at..at + 16], &new[at + 32..]].concat();
        old.extend(checksum(0, 0, &old).to_le_bytes());
        assert_eq!(ChunkTable::decode(&old, Path::new("CHUNKS")).expect("it is read"), table);
    }

    #[test]
    fn a_name_of_a_file_comes_back_and_no_other_is_taken_for_one() {
        for (id, version) in [(1, 0), (7, 3), (123_456_789, 1_234_567)] {
            let path = version_path(Path::new("/store"), id, version);
            let name = path.file_name().expect("a name").to_string_lossy();
            assert_eq!(parse_name(&name), Some((id, version)), "{name}");
        }
        for name in
            ["1.chunk", "00000001.chunk.left-out", "00000001-000000.chunk", "CHUNKS", "-1.chunk"]
        {
            assert_eq!(parse_name(name), None, "{name}");
        }
    }

    #[test]
    fn tables_that_cannot_be_are_refused() {
        let good = example();
        let path = Path::new("CHUNKS");
        let mut overlapping = good.clone();
        overlapping.chunks[1].start = 5;
        let mut reused = good.clone();
        reused.chunks[2].id = 1;
        let mut beyond = good.clone();
        beyond.next_start = 7;
        for (name, table) in [("overlapping", overlapping), ("reused", reused), ("beyond", beyond)]
        {
            assert!(ChunkTable::decode(&table.encode(), path).is_err(), "{name}");
        }
    }
}
