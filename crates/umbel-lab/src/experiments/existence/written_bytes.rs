//! Bytes that a filter writes for ten thousand new streams, by the kernel's count.

use std::path::Path;

use umbel_existence::{ExistenceFilter, ExistenceSize};

use crate::engine::{Counters, ReadDigest, Result};
use crate::experiment::lab_context::{MeasureContext, Measurement, TemporaryDirectory};
use crate::experiment::{Figure, Subject};
use crate::experiments::eventstoredb_filter::{NameHashes, PublishedFilter, file_bytes};
use crate::experiments::existence::probe_cost::{
    EQUAL, GROWING, PUBLISHED, build_existence_filter, build_published_filter, hash_of, settle,
};
use crate::measure::disk_usage::{device_written_bytes, sync_all};
use crate::measure::sanity_checks::Expectations;
use crate::results::outcome::{Better, Scale};
use crate::results::sample_recorder::Recorder;

/// Bytes written by this process.
pub const WRITTEN: Figure =
    Figure { name: "written", unit: "MB per 10,000 streams", better: Better::Lower, plot: true };
/// Bytes written to the device by all processes, if the kernel counts them.
pub const DEVICE: Figure = Figure {
    name: "written to the device by all",
    unit: "MB per 10,000 streams",
    better: Better::Neither,
    plot: false,
};

/// Streams between two flushes.
const BATCH: u64 = 10_000;
/// Measured flushes of the published filter; each writes the whole filter.
const FLUSHES_PUBLISHED: u64 = 5;
/// Minimum number of measured flushes of our filter.
const FLUSHES_MIN: u64 = 20;
/// Bytes of a fixed-size filter for each name between two of our generations.
const BYTES_PER_JOURNALED: u64 = 32 * 8;

/// A filter of a size with some names.
#[derive(Debug, Clone, Copy)]
struct FilterCase {
    bytes: u64,
    names: u64,
}

impl FilterCase {
    fn x(self) -> String {
        let megabytes = file_bytes(self.bytes) as f64 / 1e6;
        match self.names {
            0 => format!("{megabytes:.0} MB, empty"),
            names => format!("{megabytes:.0} MB, {} M streams", names / 1_000_000),
        }
    }

    fn flushes(self) -> u64 {
        (2 * self.bytes).div_ceil(BYTES_PER_JOURNALED * BATCH).max(FLUSHES_MIN)
    }
}

/// Returns the default size of the published filter, for whose first streams it writes 228 MB, then
/// that size and a fitting one with streams in them.
fn cases(scale: Scale) -> Vec<FilterCase> {
    let case = |bytes, names| FilterCase { bytes, names };
    match scale {
        Scale::Small => vec![case(25_600_000, 0), case(25_600_000, 1_000_000)],
        Scale::Full => {
            vec![case(256_000_000, 0), case(256_000_000, 10_000_000), case(10_000_000, 10_000_000)]
        }
    }
}

/// Returns the method in words.
pub fn in_words(scale: Scale) -> String {
    let flushes: Vec<String> = cases(scale)
        .into_iter()
        .filter(|case| case.names > 0)
        .map(|case| format!("{} at {}", case.flushes(), case.x()))
        .collect();
    format!(
        "a flush after each {BATCH} new streams, {FLUSHES_PUBLISHED} of them by the published \
         design (one where it is empty), by ours {}, so that it writes whole generations too; \
         everything synced at the end; what the kernel counts as written by this process, and \
         what it counts for the device",
        flushes.join(" and ")
    )
}

/// Subject that measures both filters.
pub struct WrittenBytes {
    place: MeasureContext,
    scale: Scale,
}

impl WrittenBytes {
    /// Creates the subject.
    pub fn new(place: MeasureContext, scale: Scale) -> WrittenBytes {
        WrittenBytes { place, scale }
    }

    /// Measures the given number of flushes and the remaining writes after them.
    fn flushes(
        &self,
        folder: &TemporaryDirectory,
        count: u64,
        flush: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<Measurement> {
        let path: &Path = folder.path();
        sync_all(path)?;
        let before = device_written_bytes(path);
        let mut timed = self.place.timed_with_counters(
            Expectations::WRITES,
            &Counters::default,
            count,
            |_| {
                (0..count).try_for_each(&mut *flush)?;
                sync_all(path)?;
                Ok(ReadDigest::default())
            },
        )?;
        let device = device_written_bytes(path).zip(before).map(|(after, before)| after - before);
        timed.sample.device_bytes = device;
        Ok(timed)
    }

    fn ours(
        &self,
        case: FilterCase,
        size: ExistenceSize,
        recorder: &mut Recorder<'_>,
    ) -> Result<()> {
        let series = if matches!(size, ExistenceSize::Growing { .. }) { GROWING } else { EQUAL };
        recorder.next(&format!("{series}, {}", case.x()))?;
        let folder = self.place.folder("writing")?;
        let filter: ExistenceFilter =
            build_existence_filter(&self.place, &folder, size, case.names, recorder)?;
        filter.checkpoint(case.names)?;
        let timed = self.flushes(&folder, case.flushes(), &mut |number| {
            let names = case.names + (number + 1) * BATCH;
            (names - BATCH..names).for_each(|name| filter.insert(hash_of(name)));
            filter.flush(names)?;
            settle(&filter, names, recorder)
        })?;
        record(recorder, series, case, &timed);
        Ok(())
    }

    fn published(&self, case: FilterCase, recorder: &mut Recorder<'_>) -> Result<()> {
        recorder.next(&format!("{PUBLISHED}, {}", case.x()))?;
        let folder = self.place.folder("writing")?;
        let filter: PublishedFilter = match case.names {
            0 => PublishedFilter::new(case.bytes),
            names => build_published_filter(case.bytes, names, recorder)?,
        };
        filter.flush(folder.path(), 0, &|| false)?;
        let count = if case.names == 0 { 1 } else { FLUSHES_PUBLISHED };
        let timed = self.flushes(&folder, count, &mut |number| {
            recorder.check_stop()?;
            let names = case.names + (number + 1) * BATCH;
            (names - BATCH..names).for_each(|name| filter.insert(NameHashes::of(hash_of(name))));
            filter.flush(folder.path(), names, &|| false)?;
            Ok(())
        })?;
        record(recorder, PUBLISHED, case, &timed);
        Ok(())
    }
}

fn record(recorder: &mut Recorder<'_>, series: &str, case: FilterCase, timed: &Measurement) {
    let each = |bytes: u64| bytes as f64 / 1e6 / timed.sample.operations as f64;
    if let Some(bytes) = timed.sample.written_bytes {
        recorder.record(series, &case.x(), WRITTEN.name, each(bytes), timed);
    }
    if let Some(bytes) = timed.sample.device_bytes {
        recorder.record(series, &case.x(), DEVICE.name, each(bytes), timed.flags.clone());
    }
}

impl Subject for WrittenBytes {
    fn name(&self) -> String {
        "writing".to_string()
    }

    fn measure(&mut self, recorder: &mut Recorder<'_>) -> Result<()> {
        for case in cases(self.scale) {
            self.published(case, recorder)?;
            if case.names > 0 {
                let bytes = file_bytes(case.bytes).next_multiple_of(4096);
                self.ours(case, ExistenceSize::Fixed { bytes }, recorder)?;
                let growing = umbel_existence::ExistenceOptions::default().size;
                self.ours(case, growing, recorder)?;
            }
        }
        Ok(())
    }
}
