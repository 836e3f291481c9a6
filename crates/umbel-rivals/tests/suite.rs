//! Tests a whole run with few keys: all engines run every phase and return the same answers.

use std::path::PathBuf;
use std::process::Command;

use umbel_keygen::keys::KeyShape;
use umbel_lab::engine::{Counters, Engine, EngineSettings, ReadDigest, Write, WriteSource};
use umbel_rivals::engines;
use umbel_rivals::kv::kv_arguments::KvArguments;
use umbel_rivals::kv::kv_results::KvResults;
use umbel_rivals::kv::kv_run::KvRun;
use umbel_rivals::kv::phase::Phase;

fn folder(name: &str) -> PathBuf {
    let name = format!("umbel-rivals-test-{name}-{}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// Results of a run with 700 keys, checked to agree between all engines.
fn results_of(name: &str, shape: KeyShape, rest: &str) -> KvResults {
    let line = format!("--num 700 --rounds 2 --fill-rounds 1 --beside-rounds 1 --synced 8 {rest}");
    let arguments = KvArguments::parse_words(line.split_whitespace().map(str::to_string))
        .expect("the flags are right");
    let folder = folder(name);
    let mut run = KvRun::new(&arguments, shape, folder.clone()).expect("a run");
    let mut saves = 0;
    run.run(|_| saves += 1);
    std::fs::remove_dir_all(&folder).expect("the folder exists");
    assert!(saves > 0);
    assert_eq!(run.results.disagreements(), Vec::<String>::new());
    run.results
}

/// Runs all engines; `live` is the number of keys that are present when the stores are read.
fn run_small(shape: KeyShape, live: u64, rest: &str) {
    let results = &results_of(&shape.to_string(), shape, rest);
    let mut engines = 0;
    for participant in &results.participants {
        let name = participant.name;
        if let Some(reason) = &participant.absence_reason {
            assert!(reason.contains("built without"), "{name}: {reason}");
            continue;
        }
        engines += 1;
        let engine =
            engines::ALL.into_iter().find(|engine| engine.name == name).expect("an engine");
        for phase in Phase::READS.into_iter().chain(Phase::WRITES).chain(Phase::CONCURRENT) {
            let rounds = results.counting(name, phase).count();
            let possible = phase != Phase::SeekKept || engine.reuses_cursor;
            assert_eq!(rounds >= 1, possible, "{name} and {}", phase.name());
        }
        let found = |phase| results.counting(name, phase).next().map(|r| r.sample.tally.found);
        if name != "none" {
            assert_eq!(found(Phase::GetHit), Some(700));
            assert_eq!(found(Phase::GetMissing), Some(0));
            assert_eq!(found(Phase::MultiHit), Some(704));
            assert_eq!(found(Phase::MultiMissing), Some(0));
            assert_eq!(found(Phase::Scan), Some(live));
            assert_eq!(found(Phase::Open), Some(1));
            assert_eq!(found(Phase::ReadWhileWritingPaced), Some(1400));
            let half = found(Phase::GetHalf).expect("it was read");
            assert!((250..450).contains(&half), "{half}");
        }
        let concurrent =
            results.counting(name, Phase::ReadWhileWriting).next().expect("it was read").sample;
        assert!(concurrent.latency.expect("each was timed").max_ns > 0);
        assert!(concurrent.writes_per_second.expect("it wrote") > 0.0, "{name}");
    }
    assert!(engines >= 7, "umbel, lmdb, fjall, redb, sled, surrealkv and none need no library");
}

#[test]
fn all_engines_agree_on_random_keys() {
    run_small(KeyShape::Random, 665, "");
}

#[test]
fn all_engines_agree_on_paths_after_compaction() {
    run_small(KeyShape::Path, 700, "--compact --lived-in no");
}

#[test]
fn all_engines_agree_on_streams() {
    run_small(KeyShape::CategoryId, 665, "--compact");
}

/// Answers of every engine in every phase that reads, in an order that does not depend on times.
fn answers(results: &KvResults) -> Vec<(&'static str, &'static str, usize, u64, ReadDigest)> {
    let mut answers: Vec<_> = results
        .records
        .iter()
        .filter(|record| Phase::READS.contains(&record.phase))
        .map(|r| (r.engine, r.phase.name(), r.read_path, r.round, r.sample.tally))
        .collect();
    answers.sort_unstable_by_key(|&(engine, phase, way, round, _)| (engine, phase, way, round));
    answers
}

#[test]
fn answers_are_independent_of_filters_and_memtables() {
    let lsm = engines::ALL.iter().filter(|engine| engine.lsm && engine.missing_reason.is_none());
    let names: Vec<&str> = lsm.map(|engine| engine.name).collect();
    let answers_with = |name: &str, bits: i32, mib: u64| {
        let engines = names.join(",");
        let rest = format!("--engines {engines} --bloom-bits {bits} --memtable-mib {mib}");
        answers(&results_of(name, KeyShape::Random, &rest))
    };
    let usual = answers_with("usual", 10, 128);
    assert!(usual.len() > names.len() * Phase::READS.len());
    assert_eq!(answers_with("none", -1, 128), usual);
    assert_eq!(answers_with("small", 0, 1), usual);
}

/// Counters after `num` keys were put into an empty store, and after as many lookups of absent
/// keys.
fn counted(engine: &Engine, bloom_bits: i32, num: u32) -> [Counters; 2] {
    let folder = folder(&format!("{}-{bloom_bits}", engine.name));
    let settings =
        EngineSettings { bloom_bits, cache_bytes: 64 << 20, ..EngineSettings::default() };
    let store = (engine.open)(&folder, &settings).expect("a store");
    let opened = store.counters();
    for key in 0..num {
        let mut one = One { key: (2 * key).to_be_bytes(), put: false };
        store.write_all(&mut one).expect("a put");
    }
    store.flush().expect("a flush");
    store.wait().expect("a wait");
    let mut reader = store.reader(0).expect("a reader");
    let mut tally = ReadDigest::default();
    for key in 0..num {
        reader.get(&(2 * key + 1).to_be_bytes(), &mut tally).expect("a get");
    }
    assert_eq!(tally.found, 0);
    drop(reader);
    let read = store.counters();
    store.close().expect("a close");
    std::fs::remove_dir_all(&folder).expect("the folder exists");
    [opened, read]
}

/// Source of one write: a key that is its own value.
struct One {
    key: [u8; 4],
    put: bool,
}

impl WriteSource for One {
    fn next(&mut self) -> Option<Write<'_>> {
        let first = !std::mem::replace(&mut self.put, true);
        first.then_some((&self.key[..], Some(&self.key[..])))
    }
}

#[test]
fn counters_grow_with_work() {
    // The null engine finds every key.
    let real = |engine: &&Engine| engine.missing_reason.is_none() && engine.name != "none";
    for engine in engines::ALL.iter().filter(real) {
        let name = engine.name;
        let [opened, read] = counted(engine, 10, 2000);
        let grown = |count: fn(&Counters) -> Option<u64>| {
            count(&read).map(|after| after - count(&opened).expect("it counted before"))
        };
        assert!(grown(|c| c.background_jobs).is_none_or(|jobs| jobs > 0), "{name}: {read:?}");
        assert!(grown(|c| c.tables).is_none_or(|tables| tables > 0), "{name}: {read:?}");
        if ["umbel", "rocksdb"].contains(&name) {
            assert!(grown(|c| c.filter_probes) >= Some(1990), "{name}: {read:?}");
            assert!(grown(|c| c.filter_negatives) >= Some(1900), "{name}: {read:?}");
        }
        if engine.lsm && name != "surrealkv" {
            assert!(read.background_jobs.is_some() && read.tables.is_some(), "{name}");
        }
        let [_, without] = counted(engine, -1, 2000);
        if let Some(bytes) = read.filter_bytes {
            assert!(bytes >= 2000, "{name}: {bytes}");
            assert_eq!(without.filter_bytes, Some(0), "{name}");
        }
    }
}

#[test]
fn unknown_engine_is_rejected() {
    let words = ["--engines", "umbel,nosuch"].map(str::to_string);
    let arguments = KvArguments::parse_words(words).unwrap();
    let refused = KvRun::new(&arguments, KeyShape::Random, std::env::temp_dir()).err().unwrap();
    assert!(refused.to_string().contains("nosuch"));
}

#[test]
fn program_reports_targets_and_memory_without_paths() {
    let folder = folder("program");
    let flags = "--quick --num 2000 --engines umbel,lmdb,none --shape random,url --memory yes \
                 --synced 4 --rounds 1 --label test --stores";
    let output = Command::new(env!("CARGO_BIN_EXE_umbel-rivals"))
        .args(flags.split_whitespace())
        .arg(&folder)
        .arg("--out")
        .arg(folder.join("out"))
        .output()
        .expect("the program runs");
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{stdout}\n{}", String::from_utf8_lossy(&output.stderr));
    let mut pages = 0;
    for entry in std::fs::read_dir(folder.join("out")).unwrap() {
        let page = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        assert!(!page.contains(&folder.display().to_string()));
        assert!(!page.contains("-memory"));
        assert!(page.contains("read_own_bytes") || page.contains("### Memory"));
        assert!(page.contains("\"url\"") || page.contains("| get, hit "));
        pages += 1;
    }
    assert_eq!(pages, 2);
    std::fs::remove_dir_all(&folder).unwrap();
}
