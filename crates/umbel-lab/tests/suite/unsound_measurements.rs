//! Must show: a measurement that fails its own sanity check is marked and never averaged in.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use umbel_env::{Clock, Env};
use umbel_lab::engine::Engine;
use umbel_lab::engines::umbel::ENGINE;
use umbel_lab::outcome::Outcome;

use crate::doubles::{DATA, FORGETFUL, HALF_RESTLESS, Jumping, RESTLESS, Stage};

/// Runs one small experiment on an engine, and gives what was printed, found and reported.
fn run(env: Env, engine: Engine) -> (String, Outcome, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    fs::write(&data, DATA).expect("written");
    let engines = [engine];
    let stage = Stage { env, engines: &engines, ..Stage::default() };
    let (data, out) = (data.to_str().expect("text"), folder.path().to_str().expect("text"));
    let words = ["run", "hash-count", "--rounds", "2", "--data", data, "--out", out];
    let text = stage.run(&words).expect("a run");
    let path = folder.path().join("hash-count.json");
    let outcome = umbel_lab::results::load(&stage.env, &path).expect("a result");
    let report = fs::read_to_string(folder.path().join("report.html")).expect("a report");
    (text, outcome, report)
}

fn assert_marked(found: &(String, Outcome, String), figure: &str, reason: &str) {
    let (text, outcome, report) = found;
    let point = outcome.point("", "6", figure).expect("it was measured");
    // Two rounds, and two more since none of them counted.
    assert_eq!(point.repetitions.len(), 4);
    let marked = |flags: &Vec<String>| flags.iter().any(|flag| flag.contains(reason));
    assert!(point.repetitions.iter().all(|one| marked(&one.flags)), "{point:?}");
    assert_eq!(point.spread(), None, "none of it is averaged in");
    assert!(text.contains("not sound") && text.contains("count for nothing"), "{text}");
    assert!(report.contains(reason), "the report gives the reason");
}

#[test]
fn reads_beside_a_compaction_are_marked() {
    let found = run(Env::system(), RESTLESS);
    assert_marked(&found, "readrandom", "flushes or compactions went on");
    // What does not depend on it counts.
    assert!(found.1.spread("", "6", "fillrandom").is_some());
}

/// The story: only the one that lacked sound repetitions was measured again, alone and after all
/// others, and everybody had the same turn in every round.
#[test]
fn added_rounds_are_of_everybody_and_each_round_begins_with_another_one() {
    let (_, outcome, report) = run(Env::system(), HALF_RESTLESS);
    for x in ["6", "7"] {
        let point = outcome.point("", x, "readrandom").expect("it was measured");
        let rounds: Vec<u32> = point.repetitions.iter().map(|one| one.round).collect();
        assert_eq!(rounds, [0, 1, 2, 3], "{x}");
    }
    let order = outcome.order.as_ref().expect("it is kept");
    assert_eq!(order.subjects, ["6", "7"]);
    assert_eq!(order.rounds, [[0, 1], [1, 0], [0, 1], [1, 0]]);
    assert_eq!(outcome.places(), ["6", "7"], "in the order of the list all the same");
    assert!(report.contains("4 rounds, begun with 6; 7; 6; 7"));
}

#[test]
fn what_work_takes_of_the_processor_is_kept_beside_its_time() {
    let (_, outcome, report) = run(Env::system(), ENGINE);
    for figure in ["fillrandom", "fill, settled", "readrandom", "readmissing"] {
        let point = outcome.point("", "6", figure).expect("it was measured");
        let cost = point.repetitions[0].cost.expect("it is known");
        assert!(cost.operations >= 3 && cost.wall_ns > 0, "{figure}: {cost:?}");
        assert!(cost.thread_ns > 0 && cost.process_ns > 0, "{figure}: {cost:?}");
    }
    assert!(report.contains("Time on the wall and of the processor"));
}

#[test]
fn reads_of_a_cold_cache_are_marked() {
    let found = run(Env::system(), FORGETFUL);
    assert_marked(&found, "readmissing", "the cache was not warm");
}

#[test]
fn everything_is_marked_when_the_clock_jumps() {
    let system = Env::system();
    let clock: Arc<dyn Clock> = Arc::new(Jumping(Arc::clone(&system.clock), AtomicU64::new(0)));
    let found = run(Env { clock, ..system }, ENGINE);
    assert_marked(&found, "fillrandom", "the clock jumped by 3600");
    assert_marked(&found, "readrandom", "the clock jumped by 3600");
}
