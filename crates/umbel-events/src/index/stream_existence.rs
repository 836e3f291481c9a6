//! [`Existence`]: whether a stream can ever have had an event, from one line of memory.
//!
//! INVARIANT: a stream is put into the index first, then into the filter, and is visible after
//! that. So a stream that the filter denies has no visible event, and the one who appends finds
//! those that are not visible yet among what he put ahead of the index.

use std::path::Path;

use umbel_base::Result;
use umbel_env::Env;
use umbel_existence::{
    Covered, ExistenceFilter, ExistenceOptions, ExistenceReader, Progress, Source,
};
pub use umbel_existence::{ExistenceStats, Size};
use umbel_filter::{HashSecret, hash_key};

use crate::changes::Change;
use crate::event_log::EventLog;
use crate::index::Index;
use crate::limits::POSITION_MAX;

/// So many names are put into the filter at once.
const INSERTED_TOGETHER: usize = 32;

/// Whether a stream can ever have had an event.
#[derive(Debug)]
pub struct Existence {
    filter: ExistenceFilter,
    secret: HashSecret,
}

/// Hands out the hashes of all streams.
struct Heads<'a> {
    index: &'a Index,
    secret: &'a HashSecret,
}

impl Source for Heads<'_> {
    fn hashes(
        &self,
        after: Option<&[u8]>,
        most: usize,
        output: &mut Vec<u64>,
    ) -> Result<Option<Vec<u8>>> {
        self.index.visit_names(after, most, |name| output.push(hash_key(self.secret, name)))
    }

    fn is_busy(&self) -> bool {
        self.index.db().is_working()
    }
}

/// By what a filter knows that it is of the store with this seed, and of its hash.
fn whose(seed: [u8; 16]) -> (u64, u64) {
    let (store, hash) = seed.split_at(8);
    let number = |bytes: &[u8]| bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    (number(store), number(hash))
}

/// Up to where the log was durable when the filter in this folder was flushed last, with the key of
/// the chunk there; 0 where no file tells. Of the store with this seed, where it is known.
pub fn covered_on_disk(env: &Env, folder: &Path, seed: Option<[u8; 16]>) -> Covered {
    let covered = ExistenceFilter::covered_on_disk(env, folder, seed.map(whose));
    let covered = covered.ok().flatten().filter(|covered| covered.position <= POSITION_MAX);
    covered.unwrap_or_default()
}

/// What a filter covers that has everything of the log up to a position.
fn covered(log: &EventLog, position: u64) -> Covered {
    Covered { position, history: log.positions_and_key(position).1 }
}

impl Existence {
    /// Opens the filter of the store whose names are hashed with what `seed` makes. One of another
    /// log, such as that of a copy of the store that went on by itself, is made anew.
    pub fn open(
        env: &Env,
        folder: &Path,
        (size, seed): (Size, [u8; 16]),
        log: &EventLog,
    ) -> Result<Existence> {
        let (store, hash) = whose(seed);
        let options = ExistenceOptions { size, hash, store, ..ExistenceOptions::default() };
        let is_ours = |covered: Covered| {
            let key = Some(covered.history).filter(|key| *key != 0);
            // What cannot be read says nothing for it.
            log.has_history(covered.position, key).unwrap_or(false)
        };
        let filter = ExistenceFilter::open_checked(env, folder, options, &is_ours)?;
        Ok(Existence { filter, secret: HashSecret::from_seed(seed) })
    }

    /// No filter, for who may not change a file.
    pub fn none(seed: [u8; 16]) -> Existence {
        Existence { filter: ExistenceFilter::none(), secret: HashSecret::from_seed(seed) }
    }

    /// Whether it has to be made anew from the index, which needs nothing of the log for that.
    pub fn is_lost(&self) -> bool {
        self.filter.stats().lost.is_some()
    }

    /// The hash of a name.
    pub fn hash(&self, stream: &str) -> u64 {
        hash_key(&self.secret, stream.as_bytes())
    }

    /// Everything up to this position is in it, whatever happened.
    pub fn covered(&self) -> u64 {
        self.filter.covered()
    }

    /// Forgets that it covers more than `position`.
    pub fn truncate(&self, log: &EventLog, position: u64) -> Result<()> {
        self.filter.truncate(covered(log, position))
    }

    /// Has what will be asked of the stream fetched from memory, where something will.
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

    /// Somebody who asks again and again: he need not look up each time which filter to ask.
    pub fn reader(&self) -> ExistenceReader {
        self.filter.reader()
    }

    /// Notes that a stream which it said may be there is not.
    #[inline]
    pub fn note_in_vain(&self) {
        self.filter.note_in_vain();
    }

    /// Takes in the streams that are new. Says whether a step should come soon. REQUIRES: they are
    /// in the index.
    #[inline]
    pub fn insert<'a>(&self, changes: impl Iterator<Item = Change<'a>>) -> bool {
        let mut hashes = changes.filter(|change| change.is_new).map(|change| change.hash);
        let mut some = [0; INSERTED_TOGETHER];
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

    /// Makes durable what it holds, which is everything of the log up to `position`.
    /// REQUIRES: the log is durable up to there.
    pub fn flush(&self, log: &EventLog, position: u64) -> Result<()> {
        self.filter.flush(covered(log, position))
    }

    /// One step of what is to be done in the background, and whether there is more.
    pub fn step(&self, index: &Index) -> Result<Progress> {
        self.filter.step(&Heads { index, secret: &self.secret })
    }

    /// What it says about itself.
    pub fn stats(&self) -> ExistenceStats {
        self.filter.stats()
    }
}
