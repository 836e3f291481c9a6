//! `hash-function`: seven hash functions and ours, in the get of a table and alone.

use std::sync::Arc;

use umbel_base::ValueKind;
use umbel_filter::{HashKind, KeyHasher};
use umbel_keygen::keys::{push_decimal, push_random_bytes};
use umbel_table::{
    FilterResidency, Table, TableBuilder, TableHasher, TableOptions, UnboundedCache,
};

use super::hash_article;
use crate::engine::{Counters, ReadDigest, Result};
use crate::experiment::lab_context::{LabContext, MeasureContext};
use crate::experiment::{
    Experiment, ExperimentOptions, Figure, PublishedSeries, ResourceNeeds, Subject, Subjects,
    owned_settings,
};
use crate::experiments::result_text;
use crate::measure::sanity_checks::Expectations;
use crate::number_format::ratio;
use crate::results::outcome::{Better, Outcome, Scale, Spread};
use crate::results::sample_recorder::Recorder;

const GET: Figure = Figure { name: "get", unit: "ns", better: Better::Lower, plot: true };
const HASH: Figure = Figure { name: "hash alone", unit: "ns", better: Better::Lower, plot: true };

/// Bytes of a key, as in the article.
const SIZES: [usize; 6] = [1, 8, 36, 73, 147, 1000];
/// Bytes of a value.
const VALUE_BYTES: usize = 100;
/// Keys of a table.
const KEYS: u64 = 200;

const KINDS: [HashKind; 8] = [
    HashKind::Keyed,
    HashKind::Xxh3,
    HashKind::SeaHash,
    HashKind::CityHash64,
    HashKind::MetroHash64,
    HashKind::RustcHash,
    HashKind::Spooky,
    HashKind::FxHash,
];

macro_rules! seed {
    (
        $series:literal, $beside:literal,
        $a:literal $b:literal $c:literal $d:literal $e:literal $f:literal
    ) => {
        PublishedSeries {
            series: concat!("the article, ", $series),
            beside: $beside,
            figure: "get",
            unit: "ns",
            points: &[
                ("1 B", $a),
                ("8 B", $b),
                ("36 B", $c),
                ("73 B", $d),
                ("147 B", $e),
                ("1000 B", $f),
            ],
        }
    };
}

/// The definition.
pub const EXPERIMENT: Experiment = Experiment {
    name: "hash-function",
    title: "Which hash function for filters?",
    question: "Seven hash functions and keys of 1 to 1000 bytes: what of a hot read is the hash?",
    hypothesis: "A read of a hot key takes so little that some nanoseconds of hashing are seen. \
                 The newer functions should be ahead, most of all for long keys.",
    source: hash_article::source("its table"),
    axis: "bytes of a key",
    figures: &[GET, HASH],
    seeds: &[
        seed!("xxh3", "xxh3", 182.0 193.0 196.0 202.0 210.0 253.0),
        seed!("seahash", "seahash", 225.0 208.0 215.0 227.0 240.0 388.0),
        seed!("cityhash", "cityhash64", 200.0 197.0 200.0 218.0 232.0 324.0),
        seed!("metrohash", "metrohash64", 186.0 186.0 190.0 194.0 202.0 257.0),
        seed!("rustc_hash", "rustc-hash", 191.0 190.0 196.0 197.0 207.0 288.0),
        seed!("spooky", "spooky", 218.0 216.0 226.0 242.0 256.0 318.0),
        seed!("fxhash", "fxhash", 192.0 198.0 206.0 206.0 227.0 457.0),
    ],
    options: ExperimentOptions {
        settings: |scale| {
            let rows = [
                (
                    "table",
                    format!("one, of {KEYS} keys with values of {VALUE_BYTES} bytes, in memory"),
                ),
                ("reads", format!("{} of one key that is there", reads(scale))),
                (
                    "get",
                    "hash, filter of 10 bits, block, value; each table is built with that hash"
                        .into(),
                ),
            ];
            owned_settings(rows)
        },
        needs: |_| ResourceNeeds { disk_bytes: 64 << 20, memory_bytes: 256 << 20 },
        rounds: |scale| scale.choose(5, 5),
        several_engines: false,
        warms_up: true,
        takes_data: false,
        unsupported: hash_article::wants_umbel,
    },
    subjects,
    meaning,
};

fn reads(scale: Scale) -> u64 {
    scale.choose(200_000, 25_000_000)
}

fn subjects(lab: &LabContext<'_>) -> Result<Subjects> {
    let subject = |size: usize, kind: HashKind| {
        let hasher = KeyHasher::new(kind, [7; 16])?;
        let case = HashFunctionCase {
            place: lab.measure_context(),
            hasher,
            size,
            reads: reads(lab.scale),
        };
        Ok(Box::new(case) as Box<dyn Subject>)
    };
    let all = SIZES.into_iter().flat_map(|size| KINDS.map(|kind| (size, kind)));
    all.map(|(size, kind)| subject(size, kind)).collect()
}

struct HashFunctionCase {
    place: MeasureContext,
    hasher: KeyHasher,
    size: usize,
    reads: u64,
}

impl HashFunctionCase {
    /// Returns the keys of a length, in order: random-looking letters and a number.
    fn keys(&self) -> Vec<Vec<u8>> {
        let count = if self.size == 1 { KEYS.min(200) } else { KEYS };
        let key = |number: u64| {
            if self.size == 1 {
                return vec![number as u8];
            }
            let digits = self.size.min(8);
            let mut key = Vec::new();
            push_random_bytes(9, self.size - digits, &mut key);
            push_decimal(number, digits, &mut key);
            key
        };
        (0..count).map(key).collect()
    }

    fn table(
        &self,
        keys: &[Vec<u8>],
    ) -> Result<(crate::experiment::lab_context::TemporaryDirectory, Table)> {
        let folder = self.place.folder("table")?;
        let file = self.place.env.files.create(&folder.path().join("1"))?;
        let hasher = TableHasher { keys: self.hasher, seed_id: 1, prefixes: None };
        let options = TableOptions::default();
        let mut builder = TableBuilder::new(Arc::clone(&file), 1, hasher, options);
        for key in keys {
            builder.add(key, 1, ValueKind::Put, &[7; VALUE_BYTES])?;
        }
        let meta = builder.finish()?;
        Ok((folder, Table::open(file, &meta, Some(&hasher), Arc::new(UnboundedCache))?))
    }
}

impl Subject for HashFunctionCase {
    fn name(&self) -> String {
        format!("{}, {} B", self.hasher.kind().name(), self.size)
    }

    fn measure(&mut self, recorder: &mut Recorder<'_>) -> Result<()> {
        let keys = self.keys();
        let (_folder, table) = self.table(&keys)?;
        let filter = table.read_filter(FilterResidency::Plain { factor: 1 })?;
        let key = &keys[keys.len() / 2];
        let (series, x) = (self.hasher.kind().name(), format!("{} B", self.size));
        let get = |count: u64| -> Result<ReadDigest> {
            let mut tally = ReadDigest::default();
            for _ in 0..count {
                let key = std::hint::black_box(key.as_slice());
                let hash = self.hasher.hash(key);
                if filter.as_ref().is_none_or(|filter| filter.may_contain(hash)) {
                    table.get_with(key, hash, u64::MAX, |_, _, value| tally.add_value(value))?;
                }
            }
            Ok(tally)
        };
        get(self.reads / 10)?;
        let nothing = Counters::default;
        let read =
            self.place.timed_with_counters(Expectations::READS, &nothing, self.reads, |_| {
                get(self.reads)
            })?;
        let found = read.sample.tally.found;
        if found != self.reads {
            return Err(format!("{found} of {} reads found the key", self.reads).into());
        }
        recorder.record(series, &x, GET.name, read.sample.thread(), &read);
        let hashed =
            self.place.timed_with_counters(Expectations::READS, &nothing, self.reads, |_| {
                let mut sum = 0u64;
                for _ in 0..self.reads {
                    sum = sum.wrapping_add(self.hasher.hash(std::hint::black_box(key.as_slice())));
                }
                std::hint::black_box(sum);
                Ok(ReadDigest::default())
            })?;
        recorder.record(series, &x, HASH.name, hashed.sample.thread(), &hashed);
        Ok(())
    }
}

fn meaning(outcome: &Outcome) -> Vec<String> {
    let keyed = HashKind::Keyed.name();
    let mut paragraphs = Vec::new();
    for x in ["8 B", "36 B", "1000 B"] {
        let of = |series: &str| outcome.spread(series, x, "hash alone");
        let all = outcome.series().into_iter().filter_map(|series| Some((series, of(series)?)));
        let all: Vec<(&str, Spread)> = all.collect();
        let order = |a: &&(&str, Spread), b: &&(&str, Spread)| a.1.median.total_cmp(&b.1.median);
        let share = of(keyed).zip(outcome.spread(keyed, x, "get"));
        let ends = all.iter().min_by(order).zip(all.iter().max_by(order));
        let (Some((fastest, slowest)), Some((hash, get))) = (ends, share) else { continue };
        let alike = all.iter().filter(|one| one.0 != fastest.0 && one.1.equals(&fastest.1));
        let alike: Vec<&str> = alike.map(|one| one.0).collect();
        let beside = match alike.as_slice() {
            [] => String::new(),
            alike => format!(" ({} equal within the spread)", alike.join(", ")),
        };
        paragraphs.push(format!(
            "Keys of {x}: the keyed hash takes {} of a get of {}, a share of {}; alone {} is the \
             fastest with {:.1} ns{beside} and {} the slowest with {:.1} ns.",
            result_text::figure_text(outcome, keyed, x, "hash alone"),
            result_text::figure_text(outcome, keyed, x, "get"),
            ratio(hash.median, get.median),
            fastest.0,
            fastest.1.median,
            slowest.0,
            slowest.1.median,
        ));
    }
    paragraphs.push(
        "The article measured some 180 ns for a read, and 10 to 20 of them between the hashes of \
         short keys. Where a read takes less the same nanoseconds weigh more. xxh3 and metrohash \
         led there, and fxhash fell behind at 1000 bytes. None of the seven has a secret: a \
         client can choose keys that a filter always lets through, which is why the engine's \
         own is keyed. Here every hash but the keyed one is called through a pointer, \
         which costs about a nanosecond."
            .to_string(),
    );
    paragraphs
}
