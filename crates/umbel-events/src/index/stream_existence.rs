//! [`StreamExistence`]: filter of the streams that have ever had an event; a probe reads one cache
//! line.
//!
//! INVARIANT: a stream is put into the index first, then into the filter, and becomes visible after
//! that. So a stream that the filter excludes has no visible event. The appender finds events that
//! are not visible yet among its pending heads.

use std::path::Path;

use umbel_base::Result;
use umbel_env::Env;
use umbel_existence::{
    Coverage, ExistenceFilter, ExistenceOptions, ExistenceReader, HashSource, StepProgress,
};
pub use umbel_existence::{ExistenceSize, ExistenceStats};
use umbel_filter::{HashSecret, hash_key};

use crate::event_log::EventLog;
use crate::index::Index;
use crate::index::index_changes::StreamChange;
use crate::limits::POSITION_MAX;

/// Number of names that are inserted into the filter at a time.
const INSERT_BATCH: usize = 32;

/// Filter of the streams that have ever had an event.
#[derive(Debug)]
pub struct StreamExistence {
    filter: ExistenceFilter,
    secret: HashSecret,
}

/// Iterates over the hashes of all streams.
struct HeadHashes<'a> {
    index: &'a Index,
    secret: &'a HashSecret,
}

impl HashSource for HeadHashes<'_> {
    fn hashes(
        &self,
        after: Option<&[u8]>,
        limit: usize,
        output: &mut Vec<u64>,
    ) -> Result<Option<Vec<u8>>> {
        self.index.visit_stream_names(after, limit, |name| output.push(hash_key(self.secret, name)))
    }

    fn is_busy(&self) -> bool {
        self.index.db().is_working()
    }
}

/// Returns the identity of the filter of the store with this seed, and the identity of the filter's
/// hash.
fn filter_identity(seed: [u8; 16]) -> (u64, u64) {
    let (store, hash) = seed.split_at(8);
    let number = |bytes: &[u8]| bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    (number(store), number(hash))
}

/// Coverage of the filter in this folder: the log's durable end at the filter's last flush, and the
/// key of the chunk there. 0 if no file has the coverage. If `seed` is known, only a filter of the
/// store with this seed counts.
pub fn coverage_on_disk(env: &Env, folder: &Path, seed: Option<[u8; 16]>) -> Coverage {
    let covered = ExistenceFilter::covered_on_disk(env, folder, seed.map(filter_identity));
    let covered = covered.ok().flatten().filter(|covered| covered.position <= POSITION_MAX);
    covered.unwrap_or_default()
}

/// Coverage of a filter that holds everything of the log up to a position.
fn coverage_through(log: &EventLog, position: u64) -> Coverage {
    Coverage { position, history: log.chunk_range_and_key(position).1 }
}

impl StreamExistence {
    /// Opens the filter of the store whose names are hashed with a secret derived from `seed`.
    /// Rebuilds a filter of another log, such as that of a diverged copy of the store.
    pub fn open(
        env: &Env,
        folder: &Path,
        (size, seed): (ExistenceSize, [u8; 16]),
        log: &EventLog,
    ) -> Result<StreamExistence> {
        let (store, hash) = filter_identity(seed);
        let options = ExistenceOptions { size, hash, store, ..ExistenceOptions::default() };
        let is_ours = |covered: Coverage| {
            let key = Some(covered.history).filter(|key| *key != 0);
            // An unreadable chunk does not confirm the filter's lineage.
            log.is_lineage_of(covered.position, key).unwrap_or(false)
        };
        let filter = ExistenceFilter::open_checked(env, folder, options, &is_ours)?;
        Ok(StreamExistence { filter, secret: HashSecret::from_seed(seed) })
    }

    /// Returns a disabled filter, for a store whose files must not change.
    pub fn disabled(seed: [u8; 16]) -> StreamExistence {
        StreamExistence { filter: ExistenceFilter::disabled(), secret: HashSecret::from_seed(seed) }
    }

    /// Whether the filter must be rebuilt from the index, without reading the log.
    pub fn needs_rebuild(&self) -> bool {
        self.filter.stats().lost.is_some()
    }

    /// Returns the hash of a name.
    pub fn hash(&self, stream: &str) -> u64 {
        hash_key(&self.secret, stream.as_bytes())
    }

    /// Position up to which the filter certainly holds all streams.
    pub fn covered_position(&self) -> u64 {
        self.filter.covered()
    }

    /// Reduces the filter's coverage to `position`.
    pub fn truncate(&self, log: &EventLog, position: u64) -> Result<()> {
        self.filter.truncate(coverage_through(log, position))
    }

    /// Prefetches the memory of a probe for the stream, unless the filter is disabled.
    #[inline]
    pub fn prefetch(&self, stream: &str) {
        if umbel_arena::PREFETCHES && self.filter.is_on() {
            self.filter.prefetch(self.hash(stream));
        }
    }

    /// Whether the stream may have had an event.
    #[inline]
    pub fn may_contain(&self, hash: u64) -> bool {
        self.filter.may_contain(hash)
    }

    /// Returns a reader for repeated probes, which does not look up the current filter at each
    /// probe.
    pub fn reader(&self) -> ExistenceReader {
        self.filter.reader()
    }

    /// Records a false positive.
    #[inline]
    pub fn note_false_positive(&self) {
        self.filter.note_false_positive();
    }

    /// Inserts the new streams. Returns whether a step of the filter's background work is due soon.
    /// REQUIRES: the streams are in the index.
    #[inline]
    pub fn insert<'a>(&self, changes: impl Iterator<Item = StreamChange<'a>>) -> bool {
        let mut hashes = changes.filter(|change| change.is_new).map(|change| change.hash);
        let mut some = [0; INSERT_BATCH];
        loop {
            let mut count = 0;
            for (place, hash) in some.iter_mut().zip(&mut hashes) {
                *place = hash;
                count += 1;
            }
            self.filter.insert_batch(&some[..count]);
            if count < some.len() {
                break;
            }
        }
        self.filter.wants_step()
    }

    /// Makes the filter durable, which holds everything of the log up to `position`. REQUIRES: the
    /// log is durable up to `position`.
    pub fn flush(&self, log: &EventLog, position: u64) -> Result<()> {
        self.filter.flush(coverage_through(log, position))
    }

    /// Does one step of the filter's background work, and returns whether more work remains.
    pub fn step(&self, index: &Index) -> Result<StepProgress> {
        self.filter.step(&HeadHashes { index, secret: &self.secret })
    }

    /// Number of damaged lines that were rebuilt since the open.
    pub fn rebuilt_lines(&self) -> u64 {
        self.filter.rebuilt_lines()
    }

    /// Number of journals that the open found damaged or missing.
    pub fn damaged_journals(&self) -> u64 {
        self.filter.damaged_journals()
    }

    /// Returns the statistics of the filter.
    pub fn stats(&self) -> ExistenceStats {
        self.filter.stats()
    }
}
