//! Shared parts of the experiments of the article about LevelDB's filters.
//!
//! The article (seeds 001 and 003) changes `bloom_bits` of db_bench and measures `fillrandom`,
//! `readrandom` and `readmissing`.

use crate::engine::{Engine, EngineSettings, Result, TunableSettings};
use crate::experiment::lab_context::LabContext;
use crate::experiment::{
    ArticleSource, ExperimentOptions, ResourceNeeds, Subject, Subjects, owned_settings,
};
use crate::experiments::filters::db_bench_store::DbBenchStore;
use crate::results::outcome::{Outcome, Scale};
use crate::workload::Workload;
use crate::workload::answer_check::AnswerCheck;

/// Returns db_bench's memtable size, which makes some thirty tables of a million keys; as many
/// tables at any scale.
fn memtable(scale: Scale) -> u64 {
    scale.choose(512 << 10, 4 << 20)
}
/// Bytes of a value in db_bench.
pub const VALUE_BYTES: usize = 100;

/// Number of passes over a user's own queries, at most.
const PASSES_MAX: u64 = 1000;

/// The article.
pub const fn source(part: &'static str) -> ArticleSource {
    ArticleSource { name: "LevelDB's Bloom filter, in experiments with db_bench", part }
}

/// One setting: the place, bits per key, hashes if they are fixed, bytes of a value.
#[derive(Debug, Clone, Copy)]
pub struct FilterSetting {
    /// The series of the setting, if there are several.
    pub series: &'static str,
    /// The setting's place on the series.
    pub x: &'static str,
    /// Bits per key.
    pub bits: i32,
    /// Number of bits that a key sets.
    pub hashes: Option<u8>,
    /// Bytes of a value.
    pub value_bytes: usize,
}

impl FilterSetting {
    /// Returns a setting with the default number of hashes.
    pub const fn bits(x: &'static str, bits: i32) -> FilterSetting {
        FilterSetting { series: "", x, bits, hashes: None, value_bytes: VALUE_BYTES }
    }

    /// Returns a setting with a fixed number of hashes.
    pub const fn hashes(x: &'static str, bits: i32, hashes: u8) -> FilterSetting {
        FilterSetting { hashes: Some(hashes), ..FilterSetting::bits(x, bits) }
    }
}

/// Setup of the article's experiments.
pub const HOW: ExperimentOptions = ExperimentOptions {
    settings,
    needs,
    rounds,
    several_engines: true,
    warms_up: true,
    takes_data: true,
    unsupported: wants_bits,
};

/// Returns the number of keys that are put.
pub fn keys(scale: Scale) -> u64 {
    scale.choose(100_000, 1_000_000)
}

/// Returns the number of lookups.
pub fn reads(scale: Scale) -> u64 {
    scale.choose(100_000, 1_000_000)
}

/// Returns the number of rounds.
fn rounds(scale: Scale) -> u32 {
    scale.choose(4, 5)
}

/// Returns the sizes in words.
fn settings(scale: Scale) -> Vec<(String, String)> {
    let rows = [
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
    owned_settings(rows)
}

/// Returns a cache size that holds the store with the long values.
fn cache(scale: Scale) -> u64 {
    scale.choose(1 << 30, 2 << 30)
}

/// Returns the needs of a store with long values and its log.
fn needs(scale: Scale) -> ResourceNeeds {
    let bytes = keys(scale) * (16 + 1280) * 4;
    ResourceNeeds { disk_bytes: bytes, memory_bytes: scale.choose(512 << 20, 3 << 30) }
}

/// Whether bits can be configured.
pub fn wants_bits(tunes: &TunableSettings) -> Option<&'static str> {
    (!tunes.bloom_bits)
        .then_some("has no filters with a bits setting, or probes none in its last level")
}

/// Whether bits and hashes can be configured.
pub fn wants_hashes(tunes: &TunableSettings) -> Option<&'static str> {
    let is_tunable = tunes.bloom_bits && tunes.probes;
    (!is_tunable).then_some("chooses the number of hashes itself")
}

/// Names the engines that silently take fewer bits than some of `requested`.
pub fn engines_that_cut_bits(outcome: &Outcome, requested: &[i32]) -> Vec<String> {
    let sentences = outcome.engines.iter().filter_map(|engine| {
        let bits_max = engine.bloom_bits_max?;
        let more = requested.iter().filter(|bits| **bits > bits_max).map(i32::to_string);
        let more: Vec<String> = more.collect();
        (!more.is_empty()).then(|| {
            format!(
                "The filters of {} have {bits_max} bits per key at most: set to {} it silently \
                 uses {bits_max}, so that these points measure one and the same filter.",
                engine.name,
                more.join(" or ")
            )
        })
    });
    sentences.collect()
}

/// Creates a store for each engine and setting.
pub fn stores(lab: &LabContext<'_>, list: &[FilterSetting]) -> Result<Subjects> {
    let (several, answers) = (lab.engines.len() > 1, AnswerCheck::default());
    let case = |engine: &Engine, setting: &FilterSetting| {
        let settings = EngineSettings {
            bloom_bits: setting.bits,
            probes: setting.hashes.filter(|_| setting.bits > 0),
            memtable_bytes: memtable(lab.scale),
            cache_bytes: cache(lab.scale),
            spread: crate::engine::FilterSpread::Uniform,
            ..EngineSettings::default()
        };
        let workload = match lab.data {
            Some(data) => {
                let reads_max = data.gets.len() as u64 * PASSES_MAX;
                Workload::UserData { data: data.clone(), reads: reads(lab.scale).min(reads_max) }
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
        let case = DbBenchStore::new(lab, *engine, settings, workload, point, answers);
        Box::new(case) as Box<dyn Subject>
    };
    let all = lab.engines.iter();
    Ok(all.flat_map(|engine| list.iter().map(move |setting| case(engine, setting))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::outcome::EngineNote;

    /// The story: RocksDB was shown at 1000 bits per key as if it had them.
    #[test]
    fn engine_that_cuts_bits_is_named() {
        let note = |name: &str, bloom_bits_max| EngineNote {
            name: name.to_string(),
            version: String::new(),
            settings: String::new(),
            recommended: Vec::new(),
            bloom_bits_max,
        };
        let bytes = include_bytes!("../../../../../fuzz/seeds/lab_result/result-1.json");
        let mut outcome = crate::results::result_file::parse("f", bytes).expect("a result");
        outcome.engines = vec![note("umbel", None), note("rocksdb", Some(100))];
        let sentences = engines_that_cut_bits(&outcome, &[-1, 10, 100, 1000]);
        assert!(
            sentences.len() == 1 && sentences[0].contains("rocksdb have 100 bits"),
            "{sentences:?}"
        );
        assert!(sentences[0].contains("set to 1000 it"), "{sentences:?}");
        assert!(engines_that_cut_bits(&outcome, &[-1, 10, 100]).is_empty());
    }
}
