//! Shared parts of the experiments of the article about EventStoreDB's stream existence filter: an
//! event store in which new streams are created one after the other.

use umbel_events::{ExistenceSize, ExistenceStats, Store, StoreOptions};

use crate::engine::{Counters, ReadDigest, Result, TunableSettings};
use crate::experiment::lab_context::{MeasureContext, Measurement, TemporaryDirectory};
use crate::experiment::{ArticleSource as Article, Figure};
use crate::measure::sanity_checks::Expectations;
use crate::results::outcome::{Better, Cost, Scale};
use crate::results::sample_recorder::{MeasurementEvidence, Recorder};
use crate::workload::stream_batch::StreamBatch;

/// New streams per second.
pub const RATE: Figure =
    Figure { name: "new streams", unit: "thousand per second", better: Better::Higher, plot: true };
/// New streams per second, including the work after the last stream until the close.
pub const UNTIL_CLOSED: Figure = Figure {
    name: "new streams, until closed",
    unit: "thousand per second",
    better: Better::Higher,
    plot: true,
};
/// Share of new streams for which the index was searched without a hit.
pub const INDEX_LOOKUPS: Figure =
    Figure { name: "asked in vain", unit: "% of questions", better: Better::Lower, plot: false };
/// Processor time of all threads.
pub const PROCESSOR: Figure =
    Figure { name: "processor time", unit: "µs per stream", better: Better::Lower, plot: false };
/// Memory of the filter.
pub const BYTES: Figure =
    Figure { name: "existence filter", unit: "MiB", better: Better::Neither, plot: false };

/// Number of parts in which the run is measured.
pub const PARTS: u64 = 10;
/// Bytes of the article's filter for each stream.
const BYTES_PER_STREAM: f64 = 1.5;

/// The article.
pub const fn source(part: &'static str) -> Article {
    Article { name: "Bloom filters in EventStoreDB", part }
}

/// Returns the number of streams that are created.
pub fn streams(scale: Scale) -> u64 {
    scale.choose(300_000, 10_000_000)
}

/// Returns the bytes of a fixed filter.
pub fn fixed_bytes(scale: Scale) -> u64 {
    (streams(scale) as f64 * BYTES_PER_STREAM) as u64
}

/// Rejects engines other than that of the event store.
pub fn wants_events(tunes: &TunableSettings) -> Option<&'static str> {
    (!tunes.spread).then_some("is not what the event store is built on")
}

/// Returns the memory of an event store's index: little for few streams, so that the index does not
/// fit into memory.
pub fn memory_bytes(scale: Scale) -> Option<u64> {
    scale.choose(Some(64 << 20), None)
}

/// Returns the memory of the index in words.
pub fn memory_in_words(scale: Scale) -> String {
    memory_bytes(scale).map_or_else(
        || "umbel-events' own default".to_string(),
        |bytes| format!("{} MiB for the index", bytes >> 20),
    )
}

/// Formats a place on the axis.
pub fn millions(streams: u64) -> String {
    format!("{:.2} M", streams as f64 / 1e6)
}

/// An event store during its fill.
pub struct StreamFill {
    /// The store.
    pub store: Store,
    made: StreamBatch,
    done: u64,
}

impl StreamFill {
    /// Creates an empty store in a folder.
    ///
    /// # Errors
    /// The error of the store.
    pub fn new(
        folder: &TemporaryDirectory,
        existence: ExistenceSize,
        memory_bytes: Option<u64>,
    ) -> Result<StreamFill> {
        let options = StoreOptions { existence, memory_bytes, ..StoreOptions::default() };
        let store = Store::open(folder.path(), options)?;
        Ok(StreamFill { store, made: StreamBatch::default(), done: 0 })
    }

    /// Makes the names of the given number of further streams, then measures their creation.
    ///
    /// # Errors
    /// The error of the store, or a stop by the operator.
    pub fn create_streams(
        &mut self,
        place: &MeasureContext,
        count: u64,
        recorder: &Recorder<'_>,
    ) -> Result<Measurement> {
        recorder.check_stop()?;
        self.made.make(self.done..self.done + count);
        self.done += count;
        let (made, store) = (&self.made, &self.store);
        place.timed_with_counters(Expectations::WRITES, &Counters::default, count, |_| {
            made.append(store).map(|()| ReadDigest::default())
        })
    }

    /// Returns the filter's statistics.
    ///
    /// # Errors
    /// The error of the store.
    pub fn existence(&self) -> Result<ExistenceStats> {
        Ok(self.store.stats()?.existence)
    }
}

/// Sum of several measurements.
#[derive(Debug, Clone, Default)]
pub struct MeasurementSum {
    cost: Cost,
    /// Reasons not to trust them.
    pub flags: Vec<String>,
}

impl MeasurementSum {
    /// Adds a measurement.
    pub fn add(&mut self, timed: &Measurement) {
        let Cost { operations, wall_ns, thread_ns, process_ns } = timed.cost();
        self.cost.operations += operations;
        self.cost.wall_ns += wall_ns;
        self.cost.thread_ns += thread_ns;
        self.cost.process_ns += process_ns;
        self.flags.extend(timed.flags.iter().cloned());
    }

    /// Returns thousands of operations a second of wall time.
    pub fn thousands(&self) -> f64 {
        self.cost.operations as f64 * 1e6 / self.cost.wall_ns.max(1) as f64
    }

    /// Returns the processor time of all threads for each operation, in microseconds.
    pub fn processor_us(&self) -> f64 {
        self.cost.process_ns as f64 / 1e3 / self.cost.operations.max(1) as f64
    }
}

impl From<&MeasurementSum> for MeasurementEvidence {
    fn from(sum: &MeasurementSum) -> MeasurementEvidence {
        MeasurementEvidence { flags: sum.flags.clone(), cost: Some(sum.cost) }
    }
}
