//! New streams in a key-value store: a lookup of the name, then a put.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use umbel_base::ignore_poison::IgnorePoison;

use umbel_env::JoinHandle;
use xxhash_rust::xxh3::xxh3_64;

use super::new_stream_runs::{
    BYTES, INDEX_LOOKUPS, MeasurementSum, PARTS, PROCESSOR, RATE, UNTIL_CLOSED, fixed_bytes,
    millions, streams,
};
use crate::engine::{
    Engine, EngineSettings, FilterSpread, ReadDigest, Reader, Result, Store, Write, WriteSource,
};
use crate::experiment::lab_context::{MeasureContext, TemporaryDirectory};
use crate::experiment::{Figure, Subject};
use crate::experiments::eventstoredb_filter::{NameHashes, PublishedFilter, file_bytes};
use crate::measure::sanity_checks::Expectations;
use crate::measure::{now, pause};
use crate::results::outcome::Scale;
use crate::results::sample_recorder::Recorder;
use crate::workload::stream_batch::StreamBatch;

/// The series with the published filter.
pub const PUBLISHED: &str = "umbel, look, then put, published filter";
/// Interval between two flushes of the published filter.
const FLUSH_INTERVAL: Duration = Duration::from_secs(30);
/// Interval at which the flush thread checks whether to end.
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// Number of streams whose names are made at a time.
const BATCH: u64 = 10_000;

/// Subject that looks up, then puts.
pub struct LookupThenPut {
    /// Folder for the store.
    pub place: MeasureContext,
    /// Scale.
    pub scale: Scale,
    /// Engine.
    pub engine: Engine,
    /// Whether the published filter is probed first; the engine has no filters then.
    pub published: bool,
}

impl LookupThenPut {
    fn series(&self) -> String {
        match self.published {
            true => PUBLISHED.to_string(),
            false => format!("{}, look, then put", self.engine.name),
        }
    }
}

impl Subject for LookupThenPut {
    fn name(&self) -> String {
        self.series()
    }

    fn measure(&mut self, recorder: &mut Recorder<'_>) -> Result<()> {
        let (series, streams) = (self.series(), streams(self.scale));
        let settings = EngineSettings {
            bloom_bits: if self.published { -1 } else { 10 },
            spread: FilterSpread::Uniform,
            // A stream takes its name, its event and about fifty bytes.
            memtable_bytes: streams / PARTS * 170,
            ..EngineSettings::default()
        };
        let folder = self.place.folder("store")?;
        let filter_folder = self.place.folder("filter")?;
        let began = now();
        let store = folder.open(&self.engine, &settings)?;
        let filter =
            self.published.then(|| FlushedFilter::new(&self.place, &filter_folder, self.scale));
        let mut creation = StreamCreation { filter: filter.transpose()?, lookups: 0 };
        for part in 1..=PARTS {
            let until = streams / PARTS * part;
            recorder.next(&format!("{until} streams"))?;
            let lookups_before = creation.lookups;
            let sum = self.measure_part(&*store, &mut creation, until, recorder)?;
            let x = millions(until);
            recorder.record(&series, &x, RATE.name, sum.thousands(), &sum);
            let mut record = |figure: Figure, value: f64| {
                recorder.record(&series, &x, figure.name, value, sum.flags.clone());
            };
            record(PROCESSOR, sum.processor_us());
            if self.published {
                let lookups = (creation.lookups - lookups_before) as f64;
                record(INDEX_LOOKUPS, lookups * 100.0 / (streams / PARTS) as f64);
                let bytes = file_bytes(fixed_bytes(self.scale));
                record(BYTES, bytes as f64 / f64::from(1 << 20));
            }
        }
        recorder.next("closing")?;
        creation.filter.map_or(Ok(()), FlushedFilter::close)?;
        store.close()?;
        let rate = streams as f64 / began.elapsed().as_secs_f64() / 1e3;
        recorder.record(&series, &millions(streams), UNTIL_CLOSED.name, rate, Vec::new());
        Ok(())
    }
}

impl LookupThenPut {
    fn measure_part(
        &self,
        store: &dyn Store,
        creation: &mut StreamCreation,
        until: u64,
        recorder: &Recorder<'_>,
    ) -> Result<MeasurementSum> {
        let mut sum = MeasurementSum::default();
        let mut made = StreamBatch::default();
        let start = until - streams(self.scale) / PARTS;
        for first in (start..until).step_by(BATCH as usize) {
            recorder.check_stop()?;
            let end = until.min(first + BATCH);
            made.make(first..end);
            sum.add(&self.place.timed(Expectations::WRITES, store, end - first, || {
                creation.create(&self.engine, store, &made)
            })?);
        }
        Ok(sum)
    }
}

/// Streams under creation.
struct StreamCreation {
    filter: Option<FlushedFilter>,
    /// Number of lookups in the store without a hit.
    lookups: u64,
}

impl StreamCreation {
    fn create(
        &mut self,
        engine: &Engine,
        store: &dyn Store,
        made: &StreamBatch,
    ) -> Result<ReadDigest> {
        let reader = RefCell::new(store.reader(engine.fresh_read_path)?);
        let mut looked =
            LookupThenPutWrites { creation: self, reader: &reader, made, at: 0, failed: Ok(()) };
        store.write_all(&mut looked)?;
        looked.failed?;
        Ok(ReadDigest::default())
    }

    fn is_absent(&mut self, reader: &mut dyn Reader, name: &[u8]) -> Result<()> {
        if let Some(flushed) = &self.filter {
            let hashes = NameHashes::of(xxh3_64(name));
            let may_contain = flushed.filter.may_contain(hashes);
            flushed.filter.insert(hashes);
            if !may_contain {
                return Ok(());
            }
        }
        self.lookups += 1;
        let mut tally = ReadDigest::default();
        reader.get(name, &mut tally)?;
        match tally.found {
            0 => Ok(()),
            _ => Err("a stream that is new was found".into()),
        }
    }
}

/// Writes of the first events of new streams, each after a lookup of the stream.
struct LookupThenPutWrites<'a, 'b> {
    creation: &'a mut StreamCreation,
    reader: &'a RefCell<Box<dyn Reader + 'b>>,
    made: &'a StreamBatch,
    at: usize,
    failed: Result<()>,
}

impl WriteSource for LookupThenPutWrites<'_, '_> {
    fn next(&mut self) -> Option<Write<'_>> {
        if self.at == self.made.count() || self.failed.is_err() {
            return None;
        }
        let (at, name) = (self.at, self.made.name(self.at).as_bytes());
        self.failed = self.creation.is_absent(&mut **self.reader.borrow_mut(), name);
        if self.failed.is_err() {
            return None;
        }
        self.at += 1;
        Some((name, Some(self.made.data(at))))
    }
}

/// The published filter with a thread that flushes it periodically.
struct FlushedFilter {
    filter: Arc<PublishedFilter>,
    stop: Arc<AtomicBool>,
    failed: Arc<Mutex<Option<String>>>,
    folder: std::path::PathBuf,
    thread: Box<dyn JoinHandle>,
}

impl FlushedFilter {
    fn new(
        place: &MeasureContext,
        folder: &TemporaryDirectory,
        scale: Scale,
    ) -> Result<FlushedFilter> {
        let filter = Arc::new(PublishedFilter::new(fixed_bytes(scale)));
        let (stop, failed) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(None)));
        let path = folder.path().to_path_buf();
        let work = {
            let (filter, stop) = (Arc::clone(&filter), Arc::clone(&stop));
            let (failed, path) = (Arc::clone(&failed), path.clone());
            move || {
                let is_running = || !stop.load(Ordering::Relaxed);
                let mut last = now();
                while is_running() {
                    pause(STOP_CHECK_INTERVAL);
                    if last.elapsed() < FLUSH_INTERVAL {
                        continue;
                    }
                    if let Err(error) = filter.flush(&path, 0, &is_running) {
                        *failed.lock().ignore_poison() = Some(error.to_string());
                    }
                    last = now();
                }
            }
        };
        let thread = place.env.threads.spawn("published-filter", Box::new(work))?;
        Ok(FlushedFilter { filter, stop, failed, folder: path, thread })
    }

    fn close(self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join();
        if let Some(failed) = self.failed.lock().ignore_poison().take() {
            return Err(failed.into());
        }
        self.filter.flush(&self.folder, 0, &|| false)?;
        Ok(())
    }
}
