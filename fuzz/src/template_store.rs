//! A small store in memory, made by the engine itself, whose files a fuzz target then replaces.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use umbel::{Db, KeyspaceOptions, Options};
use umbel_base::checksum::checksum;
use umbel_env::Env;
use umbel_log::{ExpectedEnd, HEADER_BYTES, LogKind, LogReader};

use crate::log_file::{self, Record};
use crate::memory_env::{Image, MemoryFiles};
use crate::structured_input::Parts;

/// The folder of the store.
const FOLDER: &str = "store";
/// Maximum number of entries that are read from an opened store.
const ENTRIES_MAX: usize = 4096;

/// The store's files as a crash would leave them: some writes in a table, some in the log only.
pub struct Template {
    image: Image,
    manifest: PathBuf,
    manifest_id: u64,
    log: PathBuf,
    log_id: u64,
}

fn options(env: Env) -> Options {
    Options {
        env,
        background_threads: 0,
        cache_bytes: Some(1 << 20),
        log_segment_bytes: 4 << 10,
        ..Options::default()
    }
}

/// Returns the template, which is made once.
pub fn template() -> &'static Template {
    static TEMPLATE: OnceLock<Template> = OnceLock::new();
    TEMPLATE.get_or_init(|| {
        let files = MemoryFiles::new(&Image::new());
        let image = build(&files).expect("a store in memory can be made");
        // Behind the log that is written to lies a spare one without a record.
        let newest = |extension: &str, kind| {
            let is_kind = |path: &&PathBuf| path.extension().is_some_and(|e| e == extension);
            let mut numbered = image.keys().rev().filter(is_kind).map(|path| {
                let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                (path.clone(), name.parse().expect("files are named by numbers"))
            });
            let found = numbered.find(|(path, id)| !payloads(&image, path, kind, *id).is_empty());
            found.expect("the store has one with a record")
        };
        let ((manifest, manifest_id), (log, log_id)) =
            (newest("manifest", LogKind::Manifest), newest("log", LogKind::WriteAhead));
        Template { image, manifest, manifest_id, log, log_id }
    })
}

fn build(files: &std::sync::Arc<MemoryFiles>) -> umbel::Result<Image> {
    let db = Db::open(FOLDER, options(files.env()))?;
    let small = KeyspaceOptions { memtable_bytes: 16 << 10, ..KeyspaceOptions::default() };
    let keyspace = db.keyspace("plants", small)?;
    for key in ["anise", "basil", "chervil", "dill"] {
        keyspace.put(key, key.repeat(3))?;
    }
    keyspace.delete_range("c", "d")?;
    db.flush()?;
    keyspace.put("fennel", "after the flush")?;
    db.sync()?;
    // Not closed: this is the state after a crash.
    Ok(files.image())
}

impl Template {
    /// Returns the store with more records in its manifest, as `log_file::assemble` reads an input.
    /// The byte before the records says whether they follow the valid records or replace them.
    pub fn with_manifest(&self, mut parts: Parts<'_>) -> Image {
        const IN_PLACE: u64 = 1;
        let id = self.manifest_id;
        let mut image = self.image.clone();
        let manifest = match parts.number::<1>() & IN_PLACE {
            IN_PLACE => log_file::assemble(LogKind::Manifest, id, parts),
            _ => self.longer_manifest(parts),
        };
        image.insert(self.manifest.clone(), manifest);
        image
    }

    fn longer_manifest(&self, mut parts: Parts<'_>) -> Vec<u8> {
        let env = MemoryFiles::new(&self.image).env();
        let (kind, id) = (LogKind::Manifest, self.manifest_id);
        let mut sequence = 0;
        let mut end = HEADER_BYTES;
        if let Ok(mut reader) = LogReader::open(&env, &self.manifest, kind, id, ExpectedEnd::Open) {
            while let Ok(Some(record)) = reader.next() {
                sequence = record.sequence;
            }
            end = reader.outcome().end;
        }
        let mut manifest = self.image[&self.manifest].clone();
        manifest.truncate(end as usize);
        while !parts.is_empty() {
            sequence += 1;
            let payload = parts.part();
            let record = Record { kind: 1, sequence, durable_eighths: 0, payload };
            log_file::push_record(&mut manifest, id, &record);
        }
        manifest
    }

    /// Returns the store with a WAL of these records, as `log_file::assemble` reads an input.
    pub fn with_log(&self, parts: Parts<'_>) -> Image {
        let mut image = self.image.clone();
        let log = log_file::assemble(LogKind::WriteAhead, self.log_id, parts);
        image.insert(self.log.clone(), log);
        image
    }

    /// Returns the store with this `CURRENT`; with `fix_checksum`, a correct checksum follows the
    /// first 56 bytes.
    pub fn with_current(&self, bytes: &[u8], fix_checksum: bool) -> Image {
        let mut current = bytes.to_vec();
        if fix_checksum {
            current.resize(56, 0);
            let sum = checksum(u64::MAX, 0, &current);
            current.extend_from_slice(&sum.to_le_bytes());
        }
        let mut image = self.image.clone();
        image.insert(Path::new(FOLDER).join("CURRENT"), current);
        image
    }

    /// Returns the files of the template unchanged.
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// Returns the payloads of the records of the manifest and of the WAL, for seeds.
    pub fn payloads(&self) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
        let read = |path: &Path, kind, id| payloads(&self.image, path, kind, id);
        let manifest = read(&self.manifest, LogKind::Manifest, self.manifest_id);
        (manifest, read(&self.log, LogKind::WriteAhead, self.log_id))
    }
}

/// Returns the payloads of the records of a file.
fn payloads(image: &Image, path: &Path, kind: LogKind, id: u64) -> Vec<Vec<u8>> {
    let env = MemoryFiles::new(image).env();
    let mut payloads = Vec::new();
    // The salt of a log is the store's secret; the header's salt is used.
    let opened = LogReader::open_bound(&env, path, kind, id, None, ExpectedEnd::Open);
    if let Ok(mut reader) = opened {
        while let Ok(Some(record)) = reader.next() {
            payloads.push(record.payload.to_vec());
        }
    }
    payloads
}

/// Opens the store of these files for reading, then for writing, and reads its content. Errors are
/// allowed; a fuzz target searches for panics.
pub fn open(image: &Image) {
    let read_only = Db::open_read_only(FOLDER, options(MemoryFiles::new(image).env()));
    let first = read_only.is_ok();
    if let Ok(db) = read_only {
        read_all(&db);
    }
    if let Ok(db) = Db::open(FOLDER, options(MemoryFiles::new(image).env())) {
        assert!(first, "it opens for writing, but not for reading");
        read_all(&db);
        std::hint::black_box(db.close().is_ok());
    }
}

fn read_all(db: &Db) {
    for name in db.keyspaces() {
        let Ok(Some(keyspace)) = db.existing_keyspace(&name) else { continue };
        let forward = keyspace.iter().take(ENTRIES_MAX);
        std::hint::black_box(forward.take_while(|entry| entry.is_ok()).count());
        let backward = keyspace.iter().rev().take(ENTRIES_MAX);
        std::hint::black_box(backward.take_while(|entry| entry.is_ok()).count());
        std::hint::black_box(keyspace.get("basil").is_ok());
    }
    std::hint::black_box(db.verify().is_ok());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(image: &Image) -> umbel::Result<Vec<String>> {
        let db = Db::open_read_only(FOLDER, options(MemoryFiles::new(image).env()))?;
        let keyspace = db.existing_keyspace("plants")?.expect("the keyspace is there");
        let key = |entry: umbel::Result<(Vec<u8>, Vec<u8>)>| {
            entry.map(|(key, _)| String::from_utf8_lossy(&key).into_owned())
        };
        keyspace.iter().map(key).collect()
    }

    fn seed(target: &str, name: &str) -> Vec<u8> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(target);
        std::fs::read(folder.join(name)).expect("the seed is there")
    }

    #[test]
    fn the_template_holds_a_table_and_a_log() {
        let all = ["anise", "basil", "dill", "fennel"];
        assert_eq!(entries(template().image()).expect("it opens"), all);
        assert!(template().image().keys().any(|path| path.ends_with("000003.table")));
    }

    /// Story: logs got a salt, without which the template's logs were unreadable, so that the seeds
    /// had no record. The newest log was a spare one, which is never read. So the target's inputs
    /// never reached a decoder.
    #[test]
    fn seeds_of_logs_reach_the_memtable() {
        let read = |name| entries(&template().with_log(Parts::new(&seed("batch", name))));
        for name in ["open", "torn"] {
            let keys = read(name).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(keys.iter().any(|key| key == "fennel"), "{name}: {keys:?}");
        }
        let is_damage = |name| matches!(read(name), Err(umbel::Error::Corruption { .. }));
        assert!(is_damage("damaged"), "{:?}", read("damaged"));
        assert!(is_damage("last-sequence"), "{:?}", read("last-sequence"));
    }

    #[test]
    fn seeds_of_manifests_are_read() {
        let read = |name| {
            let seed = seed("manifest_edit", name);
            entries(&template().with_manifest(Parts::new(&seed)))
        };
        for name in ["open", "torn", "behind"] {
            assert!(read(name).is_ok(), "{name}: {:?}", read(name));
        }
    }

    #[test]
    fn seeds_of_current_open() {
        for name in ["whole", "fixed"] {
            let seed = seed("current", name);
            let image = template().with_current(&seed[1..], name == "fixed");
            assert_eq!(entries(&image).expect("it opens").len(), 4, "{name}");
        }
    }
}
