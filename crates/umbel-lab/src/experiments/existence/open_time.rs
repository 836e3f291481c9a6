//! Time from the open of a filter to its first answers.

use std::path::Path;
use std::time::Duration;

use umbel_existence::{ExistenceFilter, ExistenceOptions, ExistenceSize};

use crate::engine::Result;
use crate::experiment::lab_context::{MeasureContext, TemporaryDirectory};
use crate::experiment::{Figure, Subject};
use crate::experiments::eventstoredb_filter::{NameHashes, PublishedFilter, file_bytes};
use crate::experiments::existence::probe_cost::{
    EQUAL, GROWING, NumberedNames, PUBLISHED, build_existence_filter, build_published_filter,
    hash_of,
};
use crate::measure::disk_usage::{listing, sync_all};
use crate::measure::now;
use crate::measure::page_cache::{evict, run_cold};
use crate::results::outcome::{Better, Scale};
use crate::results::sample_recorder::Recorder;

/// Time until an absent name is denied.
pub const OPEN: Figure =
    Figure { name: "open and answered", unit: "ms", better: Better::Lower, plot: true };
/// Time until the whole filter is read.
pub const VERIFIED: Figure =
    Figure { name: "all of it verified", unit: "ms", better: Better::Lower, plot: false };

/// Series with both filters in a size that does not fit the names: at full scale the published
/// default.
pub const PUBLISHED_LARGE: &str = "published, large";
pub const LARGE: &str = "umbel, large";
/// Number of opens, of which the median counts.
const OPENS: usize = 3;
const WARM: &str = "open, files in the page cache";
const COLD: &str = "open, files on the device";

fn names(scale: Scale) -> u64 {
    scale.choose(1_000_000, 10_000_000)
}

fn large_bytes(scale: Scale) -> u64 {
    scale.choose(25_600_000, 256_000_000)
}

/// Returns the method in words.
pub fn in_words(scale: Scale) -> String {
    format!(
        "{} million names at eight bits for each, and also at {} MB{}; \
         the journals of ours as long as they get; the middle one of {OPENS} opens; ours is open \
         once it denies a name, the published one with everything read and verified; the walk \
         over the log that both make after it is left out",
        names(scale) / 1_000_000,
        large_bytes(scale) as f64 / 1e6,
        scale.choose("", ", the published one's default"),
    )
}

/// Subject that measures both filters.
pub struct OpenTime {
    place: MeasureContext,
    scale: Scale,
    made: Option<FilterDirectories>,
}

/// Folders with filled filters.
struct FilterDirectories {
    ours: [(&'static str, ExistenceSize, TemporaryDirectory, u64); 3],
    published: [(&'static str, u64, TemporaryDirectory); 2],
}

impl OpenTime {
    /// Creates the subject, without filters.
    pub fn new(place: MeasureContext, scale: Scale) -> OpenTime {
        OpenTime { place, scale, made: None }
    }

    fn make(&self, recorder: &Recorder<'_>) -> Result<FilterDirectories> {
        let names = names(self.scale);
        let ours = |series, size, folder: &str| {
            recorder.next(&format!("filling {series}"))?;
            let folder = self.place.folder(folder)?;
            let filter = build_existence_filter(&self.place, &folder, size, names, recorder)?;
            filter.checkpoint(names)?;
            // With the longest possible journal.
            let known = names + filter.stats().memory_bytes / 32 / 8 - 1;
            (names..known).for_each(|name| filter.insert(hash_of(name)));
            filter.flush(known)?;
            Ok::<_, crate::engine::BoxError>((series, size, folder, known))
        };
        let growing = ExistenceOptions::default().size;
        let fixed =
            |bytes| ExistenceSize::Fixed { bytes: file_bytes(bytes).next_multiple_of(4096) };
        let (equal, large) = (fixed(names), fixed(large_bytes(self.scale)));
        let published = |series, bytes, folder: &str| {
            recorder.next(&format!("filling {series}"))?;
            let folder = self.place.folder(folder)?;
            build_published_filter(bytes, names, recorder)?
                .flush(folder.path(), names, &|| false)?;
            Ok::<_, crate::engine::BoxError>((series, bytes, folder))
        };
        Ok(FilterDirectories {
            ours: [
                ours(EQUAL, equal, "equal")?,
                ours(GROWING, growing, "growing")?,
                ours(LARGE, large, "large")?,
            ],
            published: [
                published(PUBLISHED, names, "published")?,
                published(PUBLISHED_LARGE, large_bytes(self.scale), "default")?,
            ],
        })
    }

    /// Opens a filter several times and records the medians. `once` opens the filter once, and
    /// returns the time until the first answer and the time until the whole filter was verified.
    fn open(
        &self,
        recorder: &mut Recorder<'_>,
        (series, x): (&str, &str),
        once: &mut dyn FnMut() -> Result<(Duration, Duration)>,
    ) -> Result<()> {
        recorder.next(&format!("{series}, {x}"))?;
        let (mut opened, mut verified, mut flags) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..OPENS {
            let ((open, all), warm) = run_cold(&mut *once)?;
            opened.push(open);
            verified.push(all);
            if x == COLD {
                flags.extend(warm);
            }
        }
        for (figure, mut times) in [(OPEN, opened), (VERIFIED, verified)] {
            times.sort_unstable();
            let ms = times[OPENS / 2].as_secs_f64() * 1e3;
            recorder.record(series, x, figure.name, ms, flags.clone());
        }
        Ok(())
    }
}

impl Subject for OpenTime {
    fn name(&self) -> String {
        "opening".to_string()
    }

    fn measure(&mut self, recorder: &mut Recorder<'_>) -> Result<()> {
        let made = match self.made.take() {
            Some(made) => made,
            None => self.make(recorder)?,
        };
        let names = names(self.scale);
        for x in [WARM, COLD] {
            for (series, size, folder, known) in &made.ours {
                self.open(recorder, (series, x), &mut || {
                    let copy = self.place.folder("open")?;
                    copy_files(folder.path(), copy.path())?;
                    prepare_page_cache(copy.path(), x)?;
                    let began = now();
                    let options = ExistenceOptions { size: *size, ..ExistenceOptions::default() };
                    let filter = ExistenceFilter::open(&self.place.env, copy.path(), options)?;
                    // While it passes every absent name it is not open.
                    while absent_names(names).all(|hash| filter.may_contain(hash)) {
                        filter.step(&NumberedNames(*known))?;
                    }
                    let opened = began.elapsed();
                    let is_there = filter.may_contain(hash_of(names / 2));
                    while filter.stats().unread_pages > 0 {
                        filter.step(&NumberedNames(*known))?;
                    }
                    let verified = began.elapsed();
                    if !is_there || filter.covered() != *known || filter.stats().lost.is_some() {
                        return Err("a filter did not come back as it was".into());
                    }
                    Ok((opened, verified))
                })?;
            }
            for (series, bytes, folder) in &made.published {
                self.open(recorder, (series, x), &mut || {
                    prepare_page_cache(folder.path(), x)?;
                    let began = now();
                    let opened = PublishedFilter::open(folder.path(), *bytes)?;
                    let denies = |hash| !opened.filter.may_contain(NameHashes::of(hash));
                    let is_open = absent_names(names).any(denies);
                    let time = began.elapsed();
                    let is_there = is_open && !denies(hash_of(names / 2));
                    if !is_there || opened.damaged_lines > 0 {
                        return Err("the published filter did not come back as it was".into());
                    }
                    Ok((time, time))
                })?;
            }
        }
        self.made = Some(made);
        Ok(())
    }
}

/// Returns hashes of absent names; it is improbable that all of them pass.
fn absent_names(names: u64) -> impl Iterator<Item = u64> {
    (1..=16).map(move |number| hash_of((names + number) << 20))
}

fn copy_files(from: &Path, to: &Path) -> Result<()> {
    for (path, _, _) in listing(from)? {
        if let Some(name) = path.file_name() {
            std::fs::copy(&path, to.join(name))?;
        }
    }
    Ok(())
}

/// Brings the files into or out of the page cache, as the point requires.
fn prepare_page_cache(folder: &Path, x: &str) -> Result<()> {
    if x == COLD {
        return evict(folder);
    }
    sync_all(folder)?;
    for (path, _, _) in listing(folder)? {
        std::fs::read(path)?;
    }
    Ok(())
}
