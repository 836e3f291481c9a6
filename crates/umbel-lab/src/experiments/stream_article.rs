//! What the experiments of the article about EventStoreDB's stream existence filter share: streams
//! that are new, one after the other, each looked for before its first event is put.

use std::cell::RefCell;

use crate::engine::{Engine, FilterSpread, Reader, Result, Settings, Source, Store, Tally, Write};
use crate::existence::{Existence, Names};
use crate::experiment::{Figure, How, Needs, Source as Article, Subject, Subjects, named};
use crate::keys::{decimal, mix, stream};
use crate::lab::{Lab, Place};
use crate::outcome::{Better, Scale};
use crate::recorder::{Recorder, Stopped};
use crate::sanity::Expects;

/// Streams that were created in a second.
pub const RATE: Figure =
    Figure { name: "new streams", unit: "thousand per second", better: Better::Higher, plot: true };
/// How many of them the store was asked for in vain.
pub const ASKED: Figure =
    Figure { name: "asked in vain", unit: "% of streams", better: Better::Lower, plot: true };
/// What the filter takes.
pub const BYTES: Figure =
    Figure { name: "existence filter", unit: "MiB", better: Better::Neither, plot: false };

/// The figures.
pub const FIGURES: &[Figure] = &[RATE, ASKED, BYTES];
/// In how many parts the run is measured.
const PARTS: u64 = 10;
/// Bytes of the first event of a stream, as the store keeps it.
const EVENT_BYTES: usize = 100;
/// What the article gave its filter for each stream, in bytes.
const BYTES_PER_STREAM: f64 = 1.5;

/// The article.
pub const fn source(part: &'static str) -> Article {
    Article { name: "Bloom filters in EventStoreDB", part }
}

/// How many streams are created.
pub fn streams(scale: Scale) -> u64 {
    scale.choose(500_000, 10_000_000)
}

/// What is asked before the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filter {
    /// The store is asked for every stream, and has no filters either.
    None,
    /// The store is asked, and its tables have filters.
    OfTables,
    /// A fixed filter of one and a half bytes for each stream, as the article's 15 MB.
    Fixed,
    /// A fixed filter of a fifteenth of that, as the article's 1 MB.
    Small,
    /// A filter that grows.
    Growing,
}

impl Filter {
    fn name(self) -> &'static str {
        match self {
            Filter::None => "no filter",
            Filter::OfTables => "filters of tables",
            Filter::Fixed => "fixed filter",
            Filter::Small => "small fixed filter",
            Filter::Growing => "growing filter",
        }
    }

    fn existence(self, streams: u64) -> Existence {
        let fixed = streams as f64 * BYTES_PER_STREAM;
        match self {
            Filter::None | Filter::OfTables => Existence::None,
            Filter::Fixed => Existence::fixed(fixed as u64),
            Filter::Small => Existence::fixed((fixed / 15.0) as u64),
            Filter::Growing => Existence::growing(),
        }
    }
}

/// The sizes in words.
fn settings(scale: Scale) -> Vec<(String, String)> {
    let count = streams(scale);
    let said = [
        ("streams", format!("{count}, each new, `customer-` and a number, in no order")),
        ("for each", "look whether it is there, then put an event of 100 bytes".to_string()),
        ("x", "streams so far, in tenths of the run".to_string()),
        (
            "fixed filter",
            format!("{:.1} MB, as the article's 15 MB for ten million", count as f64 * 1.5e-6),
        ),
        ("memtable", "an article's million of streams: a tenth of the run".to_string()),
    ];
    named(said)
}

/// How its experiments are run.
pub const HOW: How = How {
    settings,
    needs,
    rounds: |_| 4,
    several_engines: true,
    warms_up: true,
    takes_data: false,
    wants: super::leveldb_article::wants_bits,
};

/// A store of the streams, and the filters.
fn needs(scale: Scale) -> Needs {
    Needs { disk_bytes: streams(scale) * 600, memory_bytes: scale.choose(512 << 20, 4 << 30) }
}

/// A run for each engine and filter.
pub fn runs(lab: &Lab<'_>, filters: &[Filter]) -> Result<Subjects> {
    let several = lab.engines.len() > 1;
    let run = |engine: &Engine, filter: &Filter| {
        let series = match several {
            false => filter.name().to_string(),
            true => format!("{}, {}", engine.name, filter.name()),
        };
        let streams = streams(lab.scale);
        let subject =
            NewStreams { place: lab.place(), engine: *engine, filter: *filter, series, streams };
        Box::new(subject) as Box<dyn Subject>
    };
    let all = lab.engines.iter();
    Ok(all.flat_map(|engine| filters.iter().map(move |filter| run(engine, filter))).collect())
}

struct NewStreams {
    place: Place,
    engine: Engine,
    filter: Filter,
    series: String,
    streams: u64,
}

impl Subject for NewStreams {
    fn name(&self) -> String {
        self.series.clone()
    }

    fn measure(&mut self, recorder: &mut Recorder<'_>) -> Result<()> {
        let has_filters = self.filter == Filter::OfTables;
        let part = self.streams / PARTS;
        let settings = Settings {
            bloom_bits: if has_filters { 10 } else { -1 },
            spread: FilterSpread::Uniform,
            // A stream takes its name, its event and some fifty bytes besides.
            memtable_bytes: part * 170,
            ..Settings::default()
        };
        let folder = self.place.folder("store")?;
        let store = folder.open(&self.engine, &settings)?;
        let mut creation = Creation::new(self.filter.existence(self.streams));
        for number in 1..=PARTS {
            recorder.next(&format!("{} streams", number * part))?;
            let before = creation.asked;
            let filled = self.place.timed(Expects::WRITES, &*store, part, || {
                creation.create(&self.engine, &*store, number * part, recorder)
            })?;
            let x = format!("{:.2} M", (number * part) as f64 / 1e6);
            let mut record = |figure: Figure, value: f64, flags: &[String]| {
                recorder.record(&self.series, &x, figure.name, value, flags.to_vec());
            };
            record(RATE, filled.sample.rate() / 1e3, &filled.flags);
            record(ASKED, (creation.asked - before) as f64 * 100.0 / part as f64, &[]);
            record(BYTES, creation.existence.bytes() as f64 / f64::from(1 << 20), &[]);
        }
        store.close()
    }
}

/// Streams under creation.
struct Creation {
    existence: Existence,
    names: Names,
    /// How many were created.
    done: u64,
    /// How often the store was asked in vain.
    asked: u64,
}

impl Creation {
    fn new(existence: Existence) -> Creation {
        Creation { existence, names: Names::new(), done: 0, asked: 0 }
    }

    fn create(
        &mut self,
        engine: &Engine,
        store: &dyn Store,
        until: u64,
        recorder: &Recorder<'_>,
    ) -> Result<Tally> {
        let reader = RefCell::new(store.reader(engine.fresh_way)?);
        let mut looked = Looked {
            creation: self,
            reader: &reader,
            until,
            recorder,
            failed: Ok(()),
            name: Vec::new(),
            event: Vec::new(),
        };
        store.write_all(&mut looked)?;
        looked.failed?;
        Ok(Tally::default())
    }
}

/// The first events of new streams, each after a look whether the stream is there.
struct Looked<'a, 'b> {
    creation: &'a mut Creation,
    reader: &'a RefCell<Box<dyn Reader + 'b>>,
    until: u64,
    recorder: &'a Recorder<'a>,
    failed: Result<()>,
    name: Vec<u8>,
    event: Vec<u8>,
}

impl Source for Looked<'_, '_> {
    fn next(&mut self) -> Option<Write<'_>> {
        let creation = &mut *self.creation;
        let number = creation.done;
        if number == self.until || self.failed.is_err() {
            return None;
        }
        if number.is_multiple_of(1 << 16)
            && let Err(stopped) = self.recorder.next("creating streams")
        {
            self.failed = Err(Stopped::into(stopped));
            return None;
        }
        name_of(number, &mut self.name);
        let hash = creation.names.hash(&self.name);
        if creation.existence.may_contain(hash) {
            creation.asked += 1;
            let mut tally = Tally::default();
            let looked = self.reader.borrow_mut().get(&self.name, &mut tally);
            self.failed = looked.and_then(|()| match tally.found {
                0 => Ok(()),
                _ => Err("a stream that is new was found".into()),
            });
            if self.failed.is_err() {
                return None;
            }
        }
        creation.existence.insert(hash);
        creation.done += 1;
        self.event.clear();
        stream(number, EVENT_BYTES, &mut self.event);
        Some((&self.name, Some(&self.event)))
    }
}

/// The name of a stream; numbers are strewn, so that streams are new everywhere among the old.
fn name_of(number: u64, name: &mut Vec<u8>) {
    name.clear();
    name.extend_from_slice(b"customer-");
    decimal(mix(number), 20, name);
}
