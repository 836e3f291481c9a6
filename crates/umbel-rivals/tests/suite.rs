//! A whole run with few keys: every engine takes part, does every phase and gives the same answers.

use std::path::PathBuf;
use std::process::Command;

use umbel_lab::engine::{Counters, Engine, Settings, Source, Tally, Write};
use umbel_lab::keys::Shape;
use umbel_rivals::arguments::Arguments;
use umbel_rivals::engines;
use umbel_rivals::plan::Phase;
use umbel_rivals::record::Results;
use umbel_rivals::run::Run;

fn folder(name: &str) -> PathBuf {
    let name = format!("umbel-rivals-test-{name}-{}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// What a run with 700 keys finds out; all engines agree.
fn results_of(name: &str, shape: Shape, rest: &str) -> Results {
    let line = format!("--num 700 --rounds 2 --fill-rounds 1 --beside-rounds 1 --synced 8 {rest}");
    let arguments =
        Arguments::parse(line.split_whitespace().map(str::to_string)).expect("the flags are right");
    let folder = folder(name);
    let mut run = Run::new(&arguments, shape, folder.clone()).expect("a run");
    let mut saves = 0;
    run.run(|_| saves += 1);
    std::fs::remove_dir_all(&folder).expect("the folder is there");
    assert!(saves > 0);
    assert_eq!(run.results.disagreements(), Vec::<String>::new());
    run.results
}

/// Runs with all engines, of whose keys `live` are there when they are read.
fn run_small(shape: Shape, live: u64, rest: &str) {
    let results = &results_of(&shape.to_string(), shape, rest);
    let mut engines = 0;
    for participant in &results.participants {
        let name = participant.name;
        if let Some(reason) = &participant.absent_because {
            assert!(reason.contains("built without"), "{name}: {reason}");
            continue;
        }
        engines += 1;
        let engine =
            engines::ALL.into_iter().find(|engine| engine.name == name).expect("an engine");
        for phase in Phase::READS.into_iter().chain(Phase::WRITES).chain(Phase::BESIDE) {
            let rounds = results.counting(name, phase).count();
            let possible = phase != Phase::SeekKept || engine.kept_cursor;
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
            assert_eq!(found(Phase::ReadPaced), Some(1400));
            let half = found(Phase::GetHalf).expect("it was read");
            assert!((250..450).contains(&half), "{half}");
        }
        let beside = results.counting(name, Phase::ReadBeside).next().expect("it was read").sample;
        assert!(beside.latency.expect("each was timed").max_ns > 0);
        assert!(beside.writes_per_second.expect("it wrote") > 0.0, "{name}");
    }
    assert!(engines >= 7, "umbel, lmdb, fjall, redb, sled, surrealkv and none need no library");
}

#[test]
fn all_engines_agree_on_random_keys() {
    run_small(Shape::Random, 665, "");
}

#[test]
fn all_engines_agree_on_paths_after_compaction() {
    run_small(Shape::Path, 700, "--compact --lived-in no");
}

#[test]
fn all_engines_agree_on_streams() {
    run_small(Shape::CategoryId, 665, "--compact");
}

/// What every engine found in every phase that reads, in an order that does not depend on times.
fn answers(results: &Results) -> Vec<(&'static str, &'static str, usize, u64, Tally)> {
    let mut answers: Vec<_> = results
        .records
        .iter()
        .filter(|record| Phase::READS.contains(&record.phase))
        .map(|r| (r.engine, r.phase.name(), r.way, r.round, r.sample.tally))
        .collect();
    answers.sort_unstable_by_key(|&(engine, phase, way, round, _)| (engine, phase, way, round));
    answers
}

#[test]
fn answers_depend_neither_on_filters_nor_on_memtables() {
    let lsm = engines::ALL.iter().filter(|engine| engine.lsm && engine.missing.is_none());
    let names: Vec<&str> = lsm.map(|engine| engine.name).collect();
    let told = |name: &str, bits: i32, mib: u64| {
        let engines = names.join(",");
        let rest = format!("--engines {engines} --bloom-bits {bits} --memtable-mib {mib}");
        answers(&results_of(name, Shape::Random, &rest))
    };
    let usual = told("usual", 10, 128);
    assert!(usual.len() > names.len() * Phase::READS.len());
    assert_eq!(told("none", -1, 128), usual);
    assert_eq!(told("small", 0, 1), usual);
}

/// Puts `num` keys into an empty store of an engine and looks for as many that are not there.
fn counted(engine: &Engine, bloom_bits: i32, num: u32) -> [Counters; 2] {
    let folder = folder(&format!("{}-{bloom_bits}", engine.name));
    let settings = Settings { bloom_bits, cache_bytes: 64 << 20, ..Settings::default() };
    let store = (engine.open)(&folder, &settings).expect("a store");
    let opened = store.counters();
    for key in 0..num {
        let mut one = One { key: (2 * key).to_be_bytes(), put: false };
        store.write_all(&mut one).expect("a put");
    }
    store.flush().expect("a flush");
    store.wait().expect("a wait");
    let mut reader = store.reader(0).expect("a reader");
    let mut tally = Tally::default();
    for key in 0..num {
        reader.get(&(2 * key + 1).to_be_bytes(), &mut tally).expect("a get");
    }
    assert_eq!(tally.found, 0);
    drop(reader);
    let read = store.counters();
    store.close().expect("a close");
    std::fs::remove_dir_all(&folder).expect("the folder is there");
    [opened, read]
}

/// A key that is put once, as its own value.
struct One {
    key: [u8; 4],
    put: bool,
}

impl Source for One {
    fn next(&mut self) -> Option<Write<'_>> {
        let first = !std::mem::replace(&mut self.put, true);
        first.then_some((&self.key[..], Some(&self.key[..])))
    }
}

#[test]
fn what_engines_count_grows_with_what_they_do() {
    // The one that does nothing finds everything.
    let real = |engine: &&Engine| engine.missing.is_none() && engine.name != "none";
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
fn an_engine_that_does_not_exist_is_refused() {
    let words = ["--engines", "umbel,nosuch"].map(str::to_string);
    let arguments = Arguments::parse(words).unwrap();
    let refused = Run::new(&arguments, Shape::Random, std::env::temp_dir()).err().unwrap();
    assert!(refused.to_string().contains("nosuch"));
}

#[test]
fn the_program_reports_targets_memory_and_no_places() {
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
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
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
