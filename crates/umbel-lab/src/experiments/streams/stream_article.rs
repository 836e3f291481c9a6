//! What the experiments of the article about EventStoreDB's stream existence filter share: an event
//! store into which streams are put that are new, one after the other.

use umbel_events::{ExistenceStats, Size, Store, StoreOptions};

use crate::engine::{Counters, Result, Tally, Tunes};
use crate::experiment::{Figure, Source as Article};
use crate::lab::{Folder, Place, Timed};
use crate::outcome::{Better, Cost, Scale};
use crate::recorder::{Evidence, Recorder};
use crate::sanity::Expects;
use crate::streams::NewStreams;

/// Streams that were created in a second.
pub const RATE: Figure =
    Figure { name: "new streams", unit: "thousand per second", better: Better::Higher, plot: true };
/// With everything that is still to be done when the last one is there.
pub const UNTIL_CLOSED: Figure = Figure {
    name: "new streams, until closed",
    unit: "thousand per second",
    better: Better::Higher,
    plot: true,
};
/// How many streams the index was asked for in vain.
pub const ASKED: Figure =
    Figure { name: "asked in vain", unit: "% of questions", better: Better::Lower, plot: false };
/// Of all threads.
pub const PROCESSOR: Figure =
    Figure { name: "processor time", unit: "µs per stream", better: Better::Lower, plot: false };
/// What the filter takes.
pub const BYTES: Figure =
    Figure { name: "existence filter", unit: "MiB", better: Better::Neither, plot: false };

/// In how many parts the run is measured.
pub const PARTS: u64 = 10;
/// What the article gave its filter for each stream, in bytes.
const BYTES_PER_STREAM: f64 = 1.5;

/// The article.
pub const fn source(part: &'static str) -> Article {
    Article { name: "Bloom filters in EventStoreDB", part }
}

/// How many streams are created.
pub fn streams(scale: Scale) -> u64 {
    scale.choose(300_000, 10_000_000)
}

/// The bytes of a fixed filter.
pub fn fixed_bytes(scale: Scale) -> u64 {
    (streams(scale) as f64 * BYTES_PER_STREAM) as u64
}

/// Only what the event store is built on can be asked for alone.
pub fn wants_events(tunes: &Tunes) -> Option<&'static str> {
    (!tunes.spread).then_some("is not what the event store is built on")
}

/// Memory of an event store's index: little where there are few streams, so that the index does not
/// lie in memory whole.
pub fn memory_bytes(scale: Scale) -> Option<u64> {
    scale.choose(Some(64 << 20), None)
}

/// The same in words.
pub fn memory_in_words(scale: Scale) -> String {
    memory_bytes(scale).map_or_else(
        || "umbel-events' own default".to_string(),
        |bytes| format!("{} MiB for the index", bytes >> 20),
    )
}

/// A place on the axis.
pub fn millions(streams: u64) -> String {
    format!("{:.2} M", streams as f64 / 1e6)
}

/// An event store that is being filled.
pub struct Filling {
    /// The store.
    pub store: Store,
    made: NewStreams,
    done: u64,
}

impl Filling {
    /// Of an empty store in a folder.
    ///
    /// # Errors
    /// What the store says.
    pub fn new(folder: &Folder, existence: Size, memory_bytes: Option<u64>) -> Result<Filling> {
        let options = StoreOptions { existence, memory_bytes, ..StoreOptions::default() };
        let store = Store::open(folder.path(), options)?;
        Ok(Filling { store, made: NewStreams::default(), done: 0 })
    }

    /// Makes the names of so many more streams, then measures their creation.
    ///
    /// # Errors
    /// What the store says, or that somebody asked to stop.
    pub fn go_on(&mut self, place: &Place, count: u64, recorder: &Recorder<'_>) -> Result<Timed> {
        recorder.go_on()?;
        self.made.make(self.done..self.done + count);
        self.done += count;
        let (made, store) = (&self.made, &self.store);
        place.watched(Expects::WRITES, &Counters::default, count, |_| {
            made.append(store).map(|()| Tally::default())
        })
    }

    /// What the filter says about itself.
    ///
    /// # Errors
    /// What the store says.
    pub fn existence(&self) -> Result<ExistenceStats> {
        Ok(self.store.stats()?.existence)
    }
}

/// Several measurements as one.
#[derive(Debug, Clone, Default)]
pub struct Sum {
    cost: Cost,
    /// What speaks against them.
    pub flags: Vec<String>,
}

impl Sum {
    /// Takes one in.
    pub fn add(&mut self, timed: &Timed) {
        let Cost { operations, wall_ns, thread_ns, process_ns } = timed.cost();
        self.cost.operations += operations;
        self.cost.wall_ns += wall_ns;
        self.cost.thread_ns += thread_ns;
        self.cost.process_ns += process_ns;
        self.flags.extend(timed.flags.iter().cloned());
    }

    /// Thousands a second, by the clock on the wall.
    pub fn thousands(&self) -> f64 {
        self.cost.operations as f64 * 1e6 / self.cost.wall_ns.max(1) as f64
    }

    /// Processor time of all threads for each, in microseconds.
    pub fn processor_us(&self) -> f64 {
        self.cost.process_ns as f64 / 1e3 / self.cost.operations.max(1) as f64
    }
}

impl From<&Sum> for Evidence {
    fn from(sum: &Sum) -> Evidence {
        Evidence { flags: sum.flags.clone(), cost: Some(sum.cost) }
    }
}
