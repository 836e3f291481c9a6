//! A whole run with few keys: every engine takes part, does every phase and gives the same answers.

use umbel_rivals::arguments::Arguments;
use umbel_rivals::plan::Phase;
use umbel_rivals::run::Run;

fn run_small(shape: &str, rest: &str) {
    let line = format!("--num 700 --rounds 2 --fill-rounds 1 --synced 8 --shape {shape} {rest}");
    let arguments =
        Arguments::parse(line.split_whitespace().map(str::to_string)).expect("the flags are right");
    let name = format!("umbel-rivals-test-{shape}-{}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&folder).expect("a folder");
    let mut run = Run::new(&arguments, folder.clone()).expect("a run");
    let mut saves = 0;
    run.run(|_| saves += 1);
    std::fs::remove_dir_all(&folder).expect("the folder is there");
    assert!(saves > 0);
    let results = &run.results;
    assert_eq!(results.disagreements(), Vec::<String>::new());
    let mut engines = 0;
    for participant in &results.participants {
        if let Some(reason) = &participant.absent_because {
            assert!(reason.contains("built without"), "{}: {reason}", participant.name);
            continue;
        }
        engines += 1;
        for phase in Phase::READS.into_iter().chain(Phase::WRITES) {
            let rounds = results.of(participant.name, phase).count();
            assert!(rounds >= 1, "{} did no {}", participant.name, phase.name());
        }
        let found = |phase| {
            results.of(participant.name, phase).next().map(|record| record.sample.tally.found)
        };
        if participant.name != "none" {
            assert_eq!(found(Phase::GetHit), Some(700));
            assert_eq!(found(Phase::GetMissing), Some(0));
            assert_eq!(found(Phase::Scan), Some(700));
            assert_eq!(found(Phase::Open), Some(1));
        }
    }
    assert!(engines >= 5, "umbel, lmdb, fjall, redb and none need no library");
}

#[test]
fn all_engines_agree_on_random_keys() {
    run_small("random", "");
}

#[test]
fn all_engines_agree_on_paths_after_compaction() {
    run_small("path", "--compact");
}

#[test]
fn an_engine_that_does_not_exist_is_refused() {
    let words = ["--engines", "umbel,nosuch"].map(str::to_string);
    let arguments = Arguments::parse(words).unwrap();
    let refused = Run::new(&arguments, std::env::temp_dir()).err().unwrap();
    assert!(refused.to_string().contains("nosuch"));
}
