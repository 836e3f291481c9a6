//! Engine SurrealKV.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;
use umbel_base::ignore_poison::IgnorePoison;

use surrealkv::{
    CompactRangeOptions, Durability, LSMIterator, Mode, ReadOptions, Transaction, Tree, TreeBuilder,
};
use tokio::runtime::{Builder, Runtime};
use umbel_lab::engine::{
    BATCH_ENTRIES, Counters, Engine, EngineSettings, ReadDigest, Reader, Result, Store,
    TunableSettings, WriteSource,
};

pub const ENGINE: Engine = Engine {
    name: "surrealkv",
    missing_reason: None,
    settings: in_words,
    recommended: &[
        "https://docs.rs/crate/surrealkv/latest",
        "https://docs.rs/crate/surrealdb-core/3.1.2/source/src/kvs/surrealkv/cnf.rs",
    ],
    tunes: TunableSettings { memtable_bytes: true, ..super::NOT_TUNABLE },
    multi_get: false,
    reuses_cursor: false,
    lsm: true,
    read_paths: &["kept transaction", "transaction per call"],
    fresh_read_path: 1,
    open,
};

const BLOCK_BYTES: usize = 4096;
const THREADS: usize = 2;
/// Durability of the transactions that fill the store.
const FILLING: Durability = Durability::Eventual;

/// Describes in words what [`open`] and [`Store::write_all`] do, except for settings of the run.
fn in_words() -> String {
    format!(
        "memtables of {} MiB (unless the run sets it) and {} KiB blocks (its own are 64 KiB) as \
         most others have them, its own filters of 10 bits per key, no compression, no value log, \
         the cache of the run, a runtime with {THREADS} threads; written in batches of \
         {BATCH_ENTRIES} to a transaction of durability {FILLING:?}; read in one transaction kept \
         open, and in a transaction per call; each get is a copy; a synced put is a transaction of \
         immediate durability; it does not report background work, so its files and threads are \
         watched",
        EngineSettings::default().memtable_bytes >> 20,
        BLOCK_BYTES >> 10,
    )
}

struct SurrealStore {
    runtime: Runtime,
    tree: Tree,
    folder: PathBuf,
    snapshot: Mutex<Option<Transaction>>,
}

fn open(folder: &Path, settings: &EngineSettings) -> Result<Box<dyn Store>> {
    let memtable_bytes = usize::try_from(settings.memtable_bytes)?;
    let runtime = Builder::new_multi_thread().worker_threads(THREADS).enable_time().build()?;
    let tree = {
        let _entered = runtime.enter();
        TreeBuilder::new()
            .with_path(folder.to_path_buf())
            .with_max_memtable_size(memtable_bytes)
            .with_block_size(BLOCK_BYTES)
            .with_block_cache_capacity(settings.cache_bytes)
            .without_compression()
            .build()?
    };
    let (folder, snapshot) = (folder.to_path_buf(), Mutex::new(None));
    Ok(Box::new(SurrealStore { runtime, tree, folder, snapshot }))
}

impl SurrealStore {
    fn flush_to(&self, target_level: Option<u8>) -> Result<()> {
        let options = CompactRangeOptions { target_level, ..CompactRangeOptions::default() };
        Ok(self.tree.compact_range(None, None, &options)?)
    }
}

impl Store for SurrealStore {
    fn version(&self) -> String {
        super::crate_version("surrealkv")
    }

    fn write_all(&self, source: &mut dyn WriteSource) -> Result<()> {
        let mut full = true;
        while full {
            let mut transaction = self.tree.begin_with_mode(Mode::WriteOnly)?;
            transaction.set_durability(FILLING);
            let mut writes = 0;
            while writes < BATCH_ENTRIES {
                match source.next() {
                    Some((key, Some(value))) => transaction.set(key, value)?,
                    Some((key, None)) => transaction.delete(key)?,
                    None => {
                        full = false;
                        break;
                    }
                }
                writes += 1;
            }
            if writes > 0 {
                self.runtime.block_on(transaction.commit())?;
            }
        }
        Ok(())
    }

    fn put_synced(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let mut transaction = self.tree.begin_with_mode(Mode::WriteOnly)?;
        transaction.set_durability(Durability::Immediate);
        transaction.set(key, value)?;
        Ok(self.runtime.block_on(transaction.commit())?)
    }

    fn flush(&self) -> Result<()> {
        self.flush_to(Some(0))
    }

    fn wait(&self) -> Result<Duration> {
        super::wait_until_quiet(&self.folder)
    }

    fn compact(&self) -> Result<()> {
        self.flush_to(None)
    }

    fn hold_snapshot(&self, hold: bool) -> Result<()> {
        let snapshot = if hold { Some(self.tree.begin_with_mode(Mode::ReadOnly)?) } else { None };
        *self.snapshot.lock().ignore_poison() = snapshot;
        Ok(())
    }

    fn reader(&self, read_path: usize) -> Result<Box<dyn Reader + '_>> {
        let begin = || self.tree.begin_with_mode(Mode::ReadOnly);
        if read_path == 0 {
            return Ok(Box::new(SurrealReader(begin()?)));
        }
        Ok(Box::new(SurrealPerCallReader(&self.tree)))
    }

    fn counters(&self) -> Counters {
        super::file_counters(&self.folder)
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.hold_snapshot(false)?;
        Ok(self.runtime.block_on(self.tree.close())?)
    }
}

struct SurrealReader(Transaction);

impl SurrealReader {
    fn walk(&self, from: Option<&[u8]>, entries: usize, tally: &mut ReadDigest) -> Result<()> {
        let mut options = ReadOptions::new();
        options.set_iterate_lower_bound(from.map(<[u8]>::to_vec));
        let mut iterator = self.0.range_with_options(&options)?;
        iterator.seek_first()?;
        for _ in 0..entries {
            if !iterator.valid() {
                break;
            }
            tally.add_entry(iterator.key().user_key(), &iterator.value_ref()?);
            iterator.next()?;
        }
        Ok(())
    }
}

impl Reader for SurrealReader {
    fn get(&mut self, key: &[u8], tally: &mut ReadDigest) -> Result<()> {
        if let Some(value) = self.0.get(key)? {
            tally.add_value(&value);
        }
        Ok(())
    }

    fn seek(&mut self, key: &[u8], entries: usize, tally: &mut ReadDigest) -> Result<()> {
        self.walk(Some(key), entries, tally)
    }

    fn scan(&mut self, tally: &mut ReadDigest) -> Result<()> {
        self.walk(None, usize::MAX, tally)
    }
}

struct SurrealPerCallReader<'a>(&'a Tree);

impl SurrealPerCallReader<'_> {
    fn begin(&self) -> Result<SurrealReader> {
        Ok(SurrealReader(self.0.begin_with_mode(Mode::ReadOnly)?))
    }
}

impl Reader for SurrealPerCallReader<'_> {
    fn get(&mut self, key: &[u8], tally: &mut ReadDigest) -> Result<()> {
        self.begin()?.get(key, tally)
    }

    fn multi_get(&mut self, keys: &[Vec<u8>], tally: &mut ReadDigest) -> Result<()> {
        self.begin()?.multi_get(keys, tally)
    }

    fn seek(&mut self, key: &[u8], entries: usize, tally: &mut ReadDigest) -> Result<()> {
        self.begin()?.seek(key, entries, tally)
    }

    fn scan(&mut self, tally: &mut ReadDigest) -> Result<()> {
        self.begin()?.scan(tally)
    }
}
