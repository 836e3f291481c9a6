//! What the experiments of the article about LevelDB's filters share.
//!
//! The article (seeds 001 and 003) changes `bloom_bits` of db_bench and measures `fillrandom`,
//! `readrandom` and `readmissing`.

use crate::answers::Answers;
use crate::engine::{Engine, Result, Settings, Tunes};
use crate::experiment::{How, Needs, Source, Subject, Subjects, named};
use crate::lab::Lab;
use crate::outcome::{Outcome, Scale};
use crate::store_case::StoreCase;
use crate::workload::Workload;

/// db_bench's own memtable, which makes some thirty tables of a million keys; as many at any scale.
fn memtable(scale: Scale) -> u64 {
    scale.choose(512 << 10, 4 << 20)
}
/// Bytes of a value in db_bench.
pub const VALUE_BYTES: usize = 100;

/// How often a user's own queries are asked at most.
const PASSES_MAX: u64 = 1000;

/// The article.
pub const fn source(part: &'static str) -> Source {
    Source { name: "LevelDB's Bloom filter, in experiments with db_bench", part }
}

/// One setting: the place, bits per key, hashes where they are chosen, bytes of a value.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// The series it belongs to, where there are several.
    pub series: &'static str,
    /// Its place on the series.
    pub x: &'static str,
    /// Bits per key.
    pub bits: i32,
    /// How many of them a key sets.
    pub hashes: Option<u8>,
    /// Bytes of a value.
    pub value_bytes: usize,
}

impl Setting {
    /// The usual one.
    pub const fn bits(x: &'static str, bits: i32) -> Setting {
        Setting { series: "", x, bits, hashes: None, value_bytes: VALUE_BYTES }
    }

    /// With a chosen number of hashes.
    pub const fn hashes(x: &'static str, bits: i32, hashes: u8) -> Setting {
        Setting { hashes: Some(hashes), ..Setting::bits(x, bits) }
    }
}

/// How its experiments are run.
pub const HOW: How = How {
    settings,
    needs,
    rounds,
    several_engines: true,
    warms_up: true,
    takes_data: true,
    wants: wants_bits,
};

/// How many keys are put.
pub fn keys(scale: Scale) -> u64 {
    scale.choose(100_000, 1_000_000)
}

/// How many are asked for.
pub fn reads(scale: Scale) -> u64 {
    scale.choose(100_000, 1_000_000)
}

/// How often.
fn rounds(scale: Scale) -> u32 {
    scale.choose(4, 5)
}

/// The sizes in words.
fn settings(scale: Scale) -> Vec<(String, String)> {
    let said = [
        ("keys", format!("{}, numbers of 16 digits drawn with replacement", keys(scale))),
        ("values", format!("{VALUE_BYTES} bytes where nothing else is said")),
        ("reads", format!("{} for each measurement, after everything was read once", reads(scale))),
        (
            "memtable",
            format!(
                "{} KiB, so that there are some tens of tables; they are left in the levels that \
                 they reached",
                memtable(scale) >> 10
            ),
        ),
        ("cache", format!("{} GiB: everything that is read is in memory", cache(scale) >> 30)),
        ("filters", "the same at every level, the last one included; no advisor".into()),
    ];
    named(said)
}

/// A cache that holds the store with the long values.
fn cache(scale: Scale) -> u64 {
    scale.choose(1 << 30, 2 << 30)
}

/// A store with long values and its log.
fn needs(scale: Scale) -> Needs {
    let bytes = keys(scale) * (16 + 1280) * 4;
    Needs { disk_bytes: bytes, memory_bytes: scale.choose(512 << 20, 3 << 30) }
}

/// Whether bits can be told.
pub fn wants_bits(tunes: &Tunes) -> Option<&'static str> {
    (!tunes.bloom_bits)
        .then_some("has no filters whose bits can be told, or asks none in its last level")
}

/// Whether bits and hashes can be told.
pub fn wants_hashes(tunes: &Tunes) -> Option<&'static str> {
    let told = tunes.bloom_bits && tunes.probes;
    (!told).then_some("chooses the number of hashes itself")
}

/// Who takes fewer bits than some of `asked`, and says nothing.
pub fn cut_bits(outcome: &Outcome, asked: &[i32]) -> Vec<String> {
    let said = outcome.engines.iter().filter_map(|engine| {
        let most = engine.bloom_bits_max?;
        let more = asked.iter().filter(|bits| **bits > most).map(i32::to_string);
        let more: Vec<String> = more.collect();
        (!more.is_empty()).then(|| {
            format!(
                "The filters of {} have {most} bits per key at most: told {} it makes those of \
                 {most} and says nothing, so that these points measure one and the same filter.",
                engine.name,
                more.join(" or ")
            )
        })
    });
    said.collect()
}

/// A store for each engine and setting.
pub fn stores(lab: &Lab<'_>, list: &[Setting]) -> Result<Subjects> {
    let (several, answers) = (lab.engines.len() > 1, Answers::default());
    let case = |engine: &Engine, setting: &Setting| {
        let settings = Settings {
            bloom_bits: setting.bits,
            probes: setting.hashes.filter(|_| setting.bits > 0),
            memtable_bytes: memtable(lab.scale),
            cache_bytes: cache(lab.scale),
            spread: crate::engine::FilterSpread::Uniform,
            ..Settings::default()
        };
        let workload = match lab.data {
            Some(data) => {
                let most = data.gets.len() as u64 * PASSES_MAX;
                Workload::Own { data: data.clone(), reads: reads(lab.scale).min(most) }
            }
            None => Workload::DbBench {
                num: keys(lab.scale),
                reads: reads(lab.scale),
                value_bytes: setting.value_bytes,
            },
        };
        let series = match (several, setting.series) {
            (false, series) => series.to_string(),
            (true, "") => engine.name.to_string(),
            (true, series) => format!("{}, {series}", engine.name),
        };
        let point = (series.as_str(), setting.x);
        let answers = answers.clone();
        let case = StoreCase::new(lab, *engine, settings, workload, point, answers);
        Box::new(case) as Box<dyn Subject>
    };
    let all = lab.engines.iter();
    Ok(all.flat_map(|engine| list.iter().map(move |setting| case(engine, setting))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::EngineNote;

    /// The story: RocksDB was shown at 1000 bits per key as if it had them.
    #[test]
    fn who_takes_fewer_bits_than_it_is_told_is_named() {
        let note = |name: &str, bloom_bits_max| EngineNote {
            name: name.to_string(),
            version: String::new(),
            settings: String::new(),
            recommended: Vec::new(),
            bloom_bits_max,
        };
        let bytes = include_bytes!("../../../../fuzz/seeds/lab_result/result-1.json");
        let mut outcome = crate::results::parse("f", bytes).expect("a result");
        outcome.engines = vec![note("umbel", None), note("rocksdb", Some(100))];
        let said = cut_bits(&outcome, &[-1, 10, 100, 1000]);
        assert!(said.len() == 1 && said[0].contains("rocksdb have 100 bits"), "{said:?}");
        assert!(said[0].contains("told 1000 it"), "{said:?}");
        assert!(cut_bits(&outcome, &[-1, 10, 100]).is_empty());
    }
}
