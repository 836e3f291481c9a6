//! What ten thousand new streams have a filter write, by the kernel's count.

use std::path::Path;

use umbel_existence::{ExistenceFilter, Size};

use super::existence_asking::{EQUAL, GROWING, PUBLISHED, hash_of, ours, published, settle};
use crate::disk::{device_written_bytes, sync_all};
use crate::engine::{Counters, Result, Tally};
use crate::experiment::{Figure, Subject};
use crate::lab::{Folder, Place, Timed};
use crate::outcome::{Better, Scale};
use crate::published::{Hashes, Published, file_bytes};
use crate::recorder::Recorder;
use crate::sanity::Expects;

/// By this process.
pub const WRITTEN: Figure =
    Figure { name: "written", unit: "MB per 10,000 streams", better: Better::Lower, plot: true };
/// By whomever, where the kernel says.
pub const DEVICE: Figure = Figure {
    name: "written to the device by all",
    unit: "MB per 10,000 streams",
    better: Better::Neither,
    plot: false,
};

/// Streams between two flushes.
const BATCH: u64 = 10_000;
/// Flushes of the published one that are measured: each writes all that it ever will.
const FLUSHES_PUBLISHED: u64 = 5;
/// Flushes of ours that are measured at least.
const FLUSHES_LEAST: u64 = 20;
/// Of a fixed size how many bytes make for one new name between two generations of ours.
const BYTES_PER_JOURNALED: u64 = 32 * 8;

/// A filter of a size with some names.
#[derive(Debug, Clone, Copy)]
struct Case {
    bytes: u64,
    names: u64,
}

impl Case {
    fn x(self) -> String {
        let megabytes = file_bytes(self.bytes) as f64 / 1e6;
        match self.names {
            0 => format!("{megabytes:.0} MB, empty"),
            names => format!("{megabytes:.0} MB, {} M streams", names / 1_000_000),
        }
    }

    fn flushes(self) -> u64 {
        (2 * self.bytes).div_ceil(BYTES_PER_JOURNALED * BATCH).max(FLUSHES_LEAST)
    }
}

/// The default size of the published one, of which it writes 228 MB for the first streams, then
/// that size and a fitting one with streams in them.
fn cases(scale: Scale) -> Vec<Case> {
    let case = |bytes, names| Case { bytes, names };
    match scale {
        Scale::Small => vec![case(25_600_000, 0), case(25_600_000, 1_000_000)],
        Scale::Full => {
            vec![case(256_000_000, 0), case(256_000_000, 10_000_000), case(10_000_000, 10_000_000)]
        }
    }
}

/// The same in words.
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

/// Measures both.
pub struct Writing {
    place: Place,
    scale: Scale,
}

impl Writing {
    /// Nothing yet.
    pub fn new(place: Place, scale: Scale) -> Writing {
        Writing { place, scale }
    }

    /// Measures so many flushes and what is left to be written after them.
    fn flushes(
        &self,
        folder: &Folder,
        count: u64,
        flush: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<Timed> {
        let path: &Path = folder.path();
        sync_all(path)?;
        let before = device_written_bytes(path);
        let mut timed = self.place.watched(Expects::WRITES, &Counters::default, count, |_| {
            (0..count).try_for_each(&mut *flush)?;
            sync_all(path)?;
            Ok(Tally::default())
        })?;
        let device = device_written_bytes(path).zip(before).map(|(after, before)| after - before);
        timed.sample.device_bytes = device;
        Ok(timed)
    }

    fn ours(&self, case: Case, size: Size, recorder: &mut Recorder<'_>) -> Result<()> {
        let series = if matches!(size, Size::Growing { .. }) { GROWING } else { EQUAL };
        recorder.next(&format!("{series}, {}", case.x()))?;
        let folder = self.place.folder("writing")?;
        let filter: ExistenceFilter = ours(&self.place, &folder, size, case.names, recorder)?;
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

    fn published(&self, case: Case, recorder: &mut Recorder<'_>) -> Result<()> {
        recorder.next(&format!("{PUBLISHED}, {}", case.x()))?;
        let folder = self.place.folder("writing")?;
        let filter: Published = match case.names {
            0 => Published::new(case.bytes),
            names => published(case.bytes, names, recorder)?,
        };
        filter.flush(folder.path(), 0, &|| false)?;
        let count = if case.names == 0 { 1 } else { FLUSHES_PUBLISHED };
        let timed = self.flushes(&folder, count, &mut |number| {
            recorder.go_on()?;
            let names = case.names + (number + 1) * BATCH;
            (names - BATCH..names).for_each(|name| filter.insert(Hashes::of(hash_of(name))));
            filter.flush(folder.path(), names, &|| false)?;
            Ok(())
        })?;
        record(recorder, PUBLISHED, case, &timed);
        Ok(())
    }
}

fn record(recorder: &mut Recorder<'_>, series: &str, case: Case, timed: &Timed) {
    let each = |bytes: u64| bytes as f64 / 1e6 / timed.sample.operations as f64;
    if let Some(bytes) = timed.sample.written_bytes {
        recorder.record(series, &case.x(), WRITTEN.name, each(bytes), timed);
    }
    if let Some(bytes) = timed.sample.device_bytes {
        recorder.record(series, &case.x(), DEVICE.name, each(bytes), timed.flags.clone());
    }
}

impl Subject for Writing {
    fn name(&self) -> String {
        "writing".to_string()
    }

    fn measure(&mut self, recorder: &mut Recorder<'_>) -> Result<()> {
        for case in cases(self.scale) {
            self.published(case, recorder)?;
            if case.names > 0 {
                let bytes = file_bytes(case.bytes).next_multiple_of(4096);
                self.ours(case, Size::Fixed { bytes }, recorder)?;
                let growing = umbel_existence::ExistenceOptions::default().size;
                self.ours(case, growing, recorder)?;
            }
        }
        Ok(())
    }
}
