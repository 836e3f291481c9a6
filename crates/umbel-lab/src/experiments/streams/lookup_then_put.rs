//! The key-value form of the question: a store that is asked for a name and then given it.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use umbel_env::JoinHandle;
use xxhash_rust::xxh3::xxh3_64;

use super::stream_article::{
    ASKED, BYTES, PARTS, PROCESSOR, RATE, Sum, UNTIL_CLOSED, fixed_bytes, millions, streams,
};
use crate::engine::{Engine, FilterSpread, Reader, Result, Settings, Source, Store, Tally, Write};
use crate::experiment::{Figure, Subject};
use crate::lab::{Folder, Place};
use crate::measure::{now, pause};
use crate::outcome::Scale;
use crate::published::{Hashes, Published, file_bytes};
use crate::recorder::Recorder;
use crate::sanity::Expects;
use crate::streams::NewStreams;

/// The series with the published filter.
pub const PUBLISHED: &str = "umbel, look, then put, published filter";
/// Between two flushes of the published filter.
const FLUSH_INTERVAL: Duration = Duration::from_secs(30);
/// How often its thread looks whether to end.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// Streams whose names are made at a time.
const BATCH: u64 = 10_000;

/// Looks, then puts.
pub struct LookThenPut {
    /// Where.
    pub place: Place,
    /// How much.
    pub scale: Scale,
    /// Into which engine.
    pub engine: Engine,
    /// Whether the published filter is asked before it, which has none of its own then.
    pub published: bool,
}

impl LookThenPut {
    fn series(&self) -> String {
        match self.published {
            true => PUBLISHED.to_string(),
            false => format!("{}, look, then put", self.engine.name),
        }
    }
}

impl Subject for LookThenPut {
    fn name(&self) -> String {
        self.series()
    }

    fn measure(&mut self, recorder: &mut Recorder<'_>) -> Result<()> {
        let (series, streams) = (self.series(), streams(self.scale));
        let settings = Settings {
            bloom_bits: if self.published { -1 } else { 10 },
            spread: FilterSpread::Uniform,
            // A stream takes its name, its event and some fifty bytes besides.
            memtable_bytes: streams / PARTS * 170,
            ..Settings::default()
        };
        let folder = self.place.folder("store")?;
        let filter_folder = self.place.folder("filter")?;
        let began = now();
        let store = folder.open(&self.engine, &settings)?;
        let filter = self.published.then(|| Flushed::new(&self.place, &filter_folder, self.scale));
        let mut creation = Creation { filter: filter.transpose()?, asked: 0 };
        for part in 1..=PARTS {
            let until = streams / PARTS * part;
            recorder.next(&format!("{until} streams"))?;
            let asked = creation.asked;
            let sum = self.part(&*store, &mut creation, until, recorder)?;
            let x = millions(until);
            recorder.record(&series, &x, RATE.name, sum.thousands(), &sum);
            let mut record = |figure: Figure, value: f64| {
                recorder.record(&series, &x, figure.name, value, sum.flags.clone());
            };
            record(PROCESSOR, sum.processor_us());
            if self.published {
                let asked = (creation.asked - asked) as f64;
                record(ASKED, asked * 100.0 / (streams / PARTS) as f64);
                let bytes = file_bytes(fixed_bytes(self.scale));
                record(BYTES, bytes as f64 / f64::from(1 << 20));
            }
        }
        recorder.next("closing")?;
        creation.filter.map_or(Ok(()), Flushed::close)?;
        store.close()?;
        let rate = streams as f64 / began.elapsed().as_secs_f64() / 1e3;
        recorder.record(&series, &millions(streams), UNTIL_CLOSED.name, rate, Vec::new());
        Ok(())
    }
}

impl LookThenPut {
    fn part(
        &self,
        store: &dyn Store,
        creation: &mut Creation,
        until: u64,
        recorder: &Recorder<'_>,
    ) -> Result<Sum> {
        let mut sum = Sum::default();
        let mut made = NewStreams::default();
        let start = until - streams(self.scale) / PARTS;
        for first in (start..until).step_by(BATCH as usize) {
            recorder.go_on()?;
            let end = until.min(first + BATCH);
            made.make(first..end);
            sum.add(&self.place.timed(Expects::WRITES, store, end - first, || {
                creation.create(&self.engine, store, &made)
            })?);
        }
        Ok(sum)
    }
}

/// Streams under creation.
struct Creation {
    filter: Option<Flushed>,
    /// How often the store was asked in vain.
    asked: u64,
}

impl Creation {
    fn create(&mut self, engine: &Engine, store: &dyn Store, made: &NewStreams) -> Result<Tally> {
        let reader = RefCell::new(store.reader(engine.fresh_way)?);
        let mut looked = Looked { creation: self, reader: &reader, made, at: 0, failed: Ok(()) };
        store.write_all(&mut looked)?;
        looked.failed?;
        Ok(Tally::default())
    }

    fn look(&mut self, reader: &mut dyn Reader, name: &[u8]) -> Result<()> {
        if let Some(flushed) = &self.filter {
            let hashes = Hashes::of(xxh3_64(name));
            let may_contain = flushed.filter.may_contain(hashes);
            flushed.filter.insert(hashes);
            if !may_contain {
                return Ok(());
            }
        }
        self.asked += 1;
        let mut tally = Tally::default();
        reader.get(name, &mut tally)?;
        match tally.found {
            0 => Ok(()),
            _ => Err("a stream that is new was found".into()),
        }
    }
}

/// The first events of new streams, each after a look whether the stream is there.
struct Looked<'a, 'b> {
    creation: &'a mut Creation,
    reader: &'a RefCell<Box<dyn Reader + 'b>>,
    made: &'a NewStreams,
    at: usize,
    failed: Result<()>,
}

impl Source for Looked<'_, '_> {
    fn next(&mut self) -> Option<Write<'_>> {
        if self.at == self.made.count() || self.failed.is_err() {
            return None;
        }
        let (at, name) = (self.at, self.made.name(self.at).as_bytes());
        self.failed = self.creation.look(&mut **self.reader.borrow_mut(), name);
        if self.failed.is_err() {
            return None;
        }
        self.at += 1;
        Some((name, Some(self.made.data(at))))
    }
}

/// The published filter with a thread that flushes it now and then.
struct Flushed {
    filter: Arc<Published>,
    stop: Arc<AtomicBool>,
    failed: Arc<Mutex<Option<String>>>,
    folder: std::path::PathBuf,
    thread: Box<dyn JoinHandle>,
}

impl Flushed {
    fn new(place: &Place, folder: &Folder, scale: Scale) -> Result<Flushed> {
        let filter = Arc::new(Published::new(fixed_bytes(scale)));
        let (stop, failed) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(None)));
        let path = folder.path().to_path_buf();
        let work = {
            let (filter, stop) = (Arc::clone(&filter), Arc::clone(&stop));
            let (failed, path) = (Arc::clone(&failed), path.clone());
            move || {
                let goes_on = || !stop.load(Ordering::Relaxed);
                let mut last = now();
                while goes_on() {
                    pause(LOOK_INTERVAL);
                    if last.elapsed() < FLUSH_INTERVAL {
                        continue;
                    }
                    if let Err(error) = filter.flush(&path, 0, &goes_on) {
                        *failed.lock().unwrap_or_else(PoisonError::into_inner) =
                            Some(error.to_string());
                    }
                    last = now();
                }
            }
        };
        let thread = place.env.threads.spawn("published-filter", Box::new(work))?;
        Ok(Flushed { filter, stop, failed, folder: path, thread })
    }

    fn close(self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join();
        if let Some(failed) = self.failed.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Err(failed.into());
        }
        self.filter.flush(&self.folder, 0, &|| false)?;
        Ok(())
    }
}
