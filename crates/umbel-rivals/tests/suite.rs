//! A whole run with few keys: every engine takes part, does every phase and gives the same answers.

use std::path::PathBuf;
use std::process::Command;

use umbel_lab::keys::Shape;
use umbel_rivals::arguments::Arguments;
use umbel_rivals::engines;
use umbel_rivals::plan::Phase;
use umbel_rivals::run::Run;

fn folder(name: &str) -> PathBuf {
    let name = format!("umbel-rivals-test-{name}-{}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// Runs with 700 keys, of which `live` are there when they are read.
fn run_small(shape: Shape, live: u64, rest: &str) {
    let line = format!("--num 700 --rounds 2 --fill-rounds 1 --beside-rounds 1 --synced 8 {rest}");
    let arguments =
        Arguments::parse(line.split_whitespace().map(str::to_string)).expect("the flags are right");
    let folder = folder(&shape.to_string());
    let mut run = Run::new(&arguments, shape, folder.clone()).expect("a run");
    let mut saves = 0;
    run.run(|_| saves += 1);
    std::fs::remove_dir_all(&folder).expect("the folder is there");
    assert!(saves > 0);
    let results = &run.results;
    assert_eq!(results.disagreements(), Vec::<String>::new());
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
    assert!(engines >= 6, "umbel, lmdb, fjall, redb, surrealkv and none need no library");
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
