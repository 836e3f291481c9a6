//! What a question costs: ours and the published filter at equal size and keys.

use umbel_existence::{ExistenceFilter, ExistenceOptions, Progress, Size, Source};

use crate::engine::{Counters, Result, Tally};
use crate::experiment::{Figure, Subject};
use crate::keys::mix;
use crate::lab::{Folder, Place};
use crate::outcome::{Better, Scale};
use crate::published::{Hashes, Published, file_bytes};
use crate::recorder::Recorder;
use crate::sanity::Expects;

/// A name that is not there.
pub const MISS: Figure = Figure { name: "misses", unit: "ns", better: Better::Lower, plot: true };
/// One that is.
pub const HIT: Figure = Figure { name: "hits", unit: "ns", better: Better::Lower, plot: true };
/// Of names that are not there.
pub const LET_THROUGH: Figure =
    Figure { name: "let through", unit: "%", better: Better::Lower, plot: false };

/// The filter of the published design.
pub const PUBLISHED: &str = "published";
/// Ours, of as many bytes.
pub const EQUAL: &str = "umbel, equal size";
/// Ours as it is by default.
pub const GROWING: &str = "umbel, growing";
/// Ours, through the call that threads share.
pub const SHARED: &str = "umbel, one by one";
/// Ours, through a reader of one thread.
pub const READER: &str = "umbel, by a reader";
/// Ours, many at once.
pub const BATCHED: &str = "umbel, in batches";
/// Where the numbers of names begin that are not there.
const ABSENT: u64 = 1 << 50;

/// How many names are in the filters.
fn keys(scale: Scale) -> u64 {
    scale.choose(4_000_000, 100_000_000)
}

fn questions(scale: Scale) -> u64 {
    scale.choose(1 << 19, 1 << 22)
}

/// The same in words.
pub fn in_words(scale: Scale) -> String {
    let keys = keys(scale);
    format!(
        "{} million names in {:.0} MB, eight bits for each, and {} questions in no order for each \
         figure, hashes made before the clock is started{}",
        keys / 1_000_000,
        file_bytes(keys) as f64 / 1e6,
        questions(scale),
        scale.choose("; at this scale a large cache holds the filters", "")
    )
}

/// The hash of a name.
pub fn hash_of(number: u64) -> u64 {
    mix(number)
}

/// The names with the numbers below one.
pub struct Numbers(pub u64);

impl Source for Numbers {
    fn hashes(
        &self,
        after: Option<&[u8]>,
        most: usize,
        output: &mut Vec<u64>,
    ) -> umbel_base::Result<Option<Vec<u8>>> {
        let start = after.and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes);
        let end = self.0.min(start + most as u64);
        output.extend((start..end).map(hash_of));
        Ok((end < self.0).then(|| end.to_le_bytes().to_vec()))
    }

    fn estimated(&self) -> u64 {
        self.0
    }
}

/// Does all that there is to do in the background.
///
/// # Errors
/// What the disk says, or that somebody asked to stop.
pub fn settle(filter: &ExistenceFilter, names: u64, recorder: &Recorder<'_>) -> Result<()> {
    while filter.step(&Numbers(names))? != Progress::Idle {
        recorder.go_on()?;
    }
    Ok(())
}

/// A filter of ours in a folder, with so many names.
///
/// # Errors
/// As [`settle`].
pub fn ours(
    place: &Place,
    folder: &Folder,
    size: Size,
    names: u64,
    recorder: &Recorder<'_>,
) -> Result<ExistenceFilter> {
    let options = ExistenceOptions { size, ..ExistenceOptions::default() };
    let filter = ExistenceFilter::open(&place.env, folder.path(), options)?;
    settle(&filter, names, recorder)?;
    Ok(filter)
}

/// The published one with so many names, in parts, so that it can be stopped.
///
/// # Errors
/// That somebody asked to stop.
pub fn published(bytes: u64, names: u64, recorder: &Recorder<'_>) -> Result<Published> {
    let filter = Published::new(bytes);
    let part = 1 << 20;
    for start in (0..names).step_by(part as usize) {
        recorder.go_on()?;
        filter.fill((start..names.min(start + part)).map(|name| Hashes::of(hash_of(name))));
    }
    filter.seal_all();
    Ok(filter)
}

/// Measures both, which are made once.
pub struct Asking {
    place: Place,
    scale: Scale,
    made: Option<(Folder, ExistenceFilter, Published)>,
}

impl Asking {
    /// Nothing yet.
    pub fn new(place: Place, scale: Scale) -> Asking {
        Asking { place, scale, made: None }
    }

    fn make(&self, recorder: &Recorder<'_>) -> Result<(Folder, ExistenceFilter, Published)> {
        let keys = keys(self.scale);
        let folder = self.place.folder("asking")?;
        recorder.next("filling ours")?;
        let size = Size::Fixed { bytes: file_bytes(keys).next_multiple_of(4096) };
        let ours = ours(&self.place, &folder, size, keys, recorder)?;
        recorder.next("filling the published one")?;
        let published = published(keys, keys, recorder)?;
        Ok((folder, ours, published))
    }

    /// Asks all questions in one way and records what one took.
    fn time(
        &self,
        recorder: &mut Recorder<'_>,
        (series, figure): (&str, Figure),
        ask: &mut dyn FnMut() -> u64,
    ) -> Result<f64> {
        recorder.next(&format!("{series}, {}", figure.name))?;
        // Once for nothing: the processor's caches hold what such questions leave in them.
        ask();
        let count = questions(self.scale);
        let mut passed = 0;
        let timed = self.place.watched(Expects::READS, &Counters::default, count, |_| {
            passed = ask();
            Ok(Tally { found: passed, ..Tally::default() })
        })?;
        let share = passed as f64 / count as f64;
        recorder.record(series, &self.x(), figure.name, timed.sample.wall(), &timed);
        Ok(share)
    }

    fn x(&self) -> String {
        format!("{} M names", keys(self.scale) / 1_000_000)
    }
}

impl Subject for Asking {
    fn name(&self) -> String {
        "asking".to_string()
    }

    fn measure(&mut self, recorder: &mut Recorder<'_>) -> Result<()> {
        let (folder, ours, theirs) = match self.made.take() {
            Some(made) => made,
            None => self.make(recorder)?,
        };
        let (keys, count) = (keys(self.scale), questions(self.scale));
        let salt = u64::from(recorder.round()) << 40;
        for figure in [MISS, HIT] {
            let number = |at: u64| hash_of(salt | at) % keys;
            let offset = if figure.name == MISS.name { ABSENT } else { 0 };
            let name = |at: u64| number(at) + offset;
            let hashes: Vec<u64> = (0..count).map(|at| hash_of(name(at))).collect();
            let pairs: Vec<Hashes> = hashes.iter().map(|hash| Hashes::of(*hash)).collect();
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
                    return Err("a filter denied a name that was added".into());
                }
            } else {
                recorder.record(SHARED, &self.x(), LET_THROUGH.name, shared * 100.0, Vec::new());
                let rate = published * 100.0;
                recorder.record(PUBLISHED, &self.x(), LET_THROUGH.name, rate, Vec::new());
            }
        }
        self.made = Some((folder, ours, theirs));
        Ok(())
    }
}
