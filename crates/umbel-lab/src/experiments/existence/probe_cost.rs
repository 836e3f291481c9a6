//! Cost of a probe of our filter and of the published filter, with equal size and keys.

use umbel_existence::{ExistenceFilter, ExistenceOptions, ExistenceSize, HashSource, StepProgress};
use umbel_keygen::keys::mix;

use crate::engine::{Counters, ReadDigest, Result};
use crate::experiment::lab_context::{MeasureContext, TemporaryDirectory};
use crate::experiment::{Figure, Subject};
use crate::experiments::eventstoredb_filter::{NameHashes, PublishedFilter, file_bytes};
use crate::measure::sanity_checks::Expectations;
use crate::results::outcome::{Better, Scale};
use crate::results::sample_recorder::Recorder;

/// Time of a probe for an absent name.
pub const MISS: Figure = Figure { name: "misses", unit: "ns", better: Better::Lower, plot: true };
/// Time of a probe for a present name.
pub const HIT: Figure = Figure { name: "hits", unit: "ns", better: Better::Lower, plot: true };
/// Share of absent names that pass.
pub const FALSE_POSITIVES: Figure =
    Figure { name: "let through", unit: "%", better: Better::Lower, plot: false };

/// The filter of the published design.
pub const PUBLISHED: &str = "published";
/// Our filter, with as many bytes as the published one.
pub const EQUAL: &str = "umbel, equal size";
/// Our filter with default options.
pub const GROWING: &str = "umbel, growing";
/// Our filter, through the call that threads share.
pub const SHARED: &str = "umbel, one by one";
/// Our filter, through a reader of one thread.
pub const READER: &str = "umbel, by a reader";
/// Our filter, in batches.
pub const BATCHED: &str = "umbel, in batches";
/// First number of absent names.
const ABSENT: u64 = 1 << 50;

/// Returns the number of names in each filter.
fn keys(scale: Scale) -> u64 {
    scale.choose(4_000_000, 100_000_000)
}

fn probe_count(scale: Scale) -> u64 {
    scale.choose(1 << 19, 1 << 22)
}

/// Returns the method in words.
pub fn in_words(scale: Scale) -> String {
    let keys = keys(scale);
    format!(
        "{} million names in {:.0} MB, eight bits for each, and {} questions in no order for each \
         figure, hashes made before the clock is started{}",
        keys / 1_000_000,
        file_bytes(keys) as f64 / 1e6,
        probe_count(scale),
        scale.choose("; at this scale a large cache holds the filters", "")
    )
}

/// Returns the hash of a name.
pub fn hash_of(number: u64) -> u64 {
    mix(number)
}

/// Names with numbers below the given one.
pub struct NumberedNames(pub u64);

impl HashSource for NumberedNames {
    fn hashes(
        &self,
        after: Option<&[u8]>,
        count: usize,
        output: &mut Vec<u64>,
    ) -> umbel_base::Result<Option<Vec<u8>>> {
        let start = after.and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes);
        let end = self.0.min(start + count as u64);
        output.extend((start..end).map(hash_of));
        Ok((end < self.0).then(|| end.to_le_bytes().to_vec()))
    }

    fn estimated(&self) -> u64 {
        self.0
    }
}

/// Waits for all background work of the filter.
///
/// # Errors
/// The error of the disk, or a stop by the operator.
pub fn settle(filter: &ExistenceFilter, names: u64, recorder: &Recorder<'_>) -> Result<()> {
    while filter.step(&NumberedNames(names))? != StepProgress::Idle {
        recorder.check_stop()?;
    }
    Ok(())
}

/// Creates our filter in a folder, with the given number of names.
///
/// # Errors
/// The errors of [`settle`].
pub fn build_existence_filter(
    place: &MeasureContext,
    folder: &TemporaryDirectory,
    size: ExistenceSize,
    names: u64,
    recorder: &Recorder<'_>,
) -> Result<ExistenceFilter> {
    let options = ExistenceOptions { size, ..ExistenceOptions::default() };
    let filter = ExistenceFilter::open(&place.env, folder.path(), options)?;
    settle(&filter, names, recorder)?;
    Ok(filter)
}

/// Creates the published filter with the given number of names, in parts, so that the operator can
/// stop the run.
///
/// # Errors
/// A stop by the operator.
pub fn build_published_filter(
    bytes: u64,
    names: u64,
    recorder: &Recorder<'_>,
) -> Result<PublishedFilter> {
    let filter = PublishedFilter::new(bytes);
    let part = 1 << 20;
    for start in (0..names).step_by(part as usize) {
        recorder.check_stop()?;
        filter.fill((start..names.min(start + part)).map(|name| NameHashes::of(hash_of(name))));
    }
    filter.update_all_checksums();
    Ok(filter)
}

/// Subject that measures both filters, which are filled once.
pub struct ProbeCost {
    place: MeasureContext,
    scale: Scale,
    made: Option<(TemporaryDirectory, ExistenceFilter, PublishedFilter)>,
}

impl ProbeCost {
    /// Creates the subject, without filters.
    pub fn new(place: MeasureContext, scale: Scale) -> ProbeCost {
        ProbeCost { place, scale, made: None }
    }

    fn make(
        &self,
        recorder: &Recorder<'_>,
    ) -> Result<(TemporaryDirectory, ExistenceFilter, PublishedFilter)> {
        let keys = keys(self.scale);
        let folder = self.place.folder("asking")?;
        recorder.next("filling ours")?;
        let size = ExistenceSize::Fixed { bytes: file_bytes(keys).next_multiple_of(4096) };
        let ours = build_existence_filter(&self.place, &folder, size, keys, recorder)?;
        recorder.next("filling the published one")?;
        let published = build_published_filter(keys, keys, recorder)?;
        Ok((folder, ours, published))
    }

    /// Runs all probes by one call and records the time of one probe.
    fn time(
        &self,
        recorder: &mut Recorder<'_>,
        (series, figure): (&str, Figure),
        ask: &mut dyn FnMut() -> u64,
    ) -> Result<f64> {
        recorder.next(&format!("{series}, {}", figure.name))?;
        // Once uncounted, to warm the processor's caches.
        ask();
        let count = probe_count(self.scale);
        let mut passed = 0;
        let timed = self.place.timed_with_counters(
            Expectations::READS,
            &Counters::default,
            count,
            |_| {
                passed = ask();
                Ok(ReadDigest { found: passed, ..ReadDigest::default() })
            },
        )?;
        let share = passed as f64 / count as f64;
        recorder.record(series, &self.x(), figure.name, timed.sample.wall(), &timed);
        Ok(share)
    }

    fn x(&self) -> String {
        format!("{} M names", keys(self.scale) / 1_000_000)
    }
}

impl Subject for ProbeCost {
    fn name(&self) -> String {
        "asking".to_string()
    }

    fn measure(&mut self, recorder: &mut Recorder<'_>) -> Result<()> {
        let (folder, ours, theirs) = match self.made.take() {
            Some(made) => made,
            None => self.make(recorder)?,
        };
        let (keys, count) = (keys(self.scale), probe_count(self.scale));
        let salt = u64::from(recorder.round()) << 40;
        for figure in [MISS, HIT] {
            let number = |at: u64| hash_of(salt | at) % keys;
            let offset = if figure.name == MISS.name { ABSENT } else { 0 };
            let name = |at: u64| number(at) + offset;
            let hashes: Vec<u64> = (0..count).map(|at| hash_of(name(at))).collect();
            let pairs: Vec<NameHashes> = hashes.iter().map(|hash| NameHashes::of(*hash)).collect();
            let mut reader = ours.reader();
            let mut answers = vec![false; hashes.len()];
            let shared = self.time(recorder, (SHARED, figure), &mut || {
                hashes.iter().filter(|hash| ours.may_contain(**hash)).count() as u64
            })?;
            self.time(recorder, (READER, figure), &mut || {
                hashes.iter().filter(|hash| reader.may_contain(**hash)).count() as u64
            })?;
            self.time(recorder, (BATCHED, figure), &mut || {
                ours.may_contain_batch(&hashes, &mut answers);
                answers.iter().filter(|answer| **answer).count() as u64
            })?;
            let published = self.time(recorder, (PUBLISHED, figure), &mut || {
                pairs.iter().filter(|hashes| theirs.may_contain(**hashes)).count() as u64
            })?;
            if figure.name == HIT.name {
                if shared < 1.0 || published < 1.0 {
                    return Err("a filter denied an added name".into());
                }
            } else {
                recorder.record(
                    SHARED,
                    &self.x(),
                    FALSE_POSITIVES.name,
                    shared * 100.0,
                    Vec::new(),
                );
                let rate = published * 100.0;
                recorder.record(PUBLISHED, &self.x(), FALSE_POSITIVES.name, rate, Vec::new());
            }
        }
        self.made = Some((folder, ours, theirs));
        Ok(())
    }
}
