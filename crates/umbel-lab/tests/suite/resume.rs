//! Resuming a stopped run.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use umbel_lab::engine::Engine;
use umbel_lab::engine::umbel_engine::ENGINE;
use umbel_lab::lab_error::LabError;
use umbel_lab::results::result_file::load;

use crate::test_engines::{DATA, TestLab};

static STOP: AtomicBool = AtomicBool::new(false);
static OPENED: AtomicUsize = AtomicUsize::new(0);

/// The default engine, which requests a stop at its fifth open: after the version, the warm-up and
/// three repetitions.
const STOPS_AT_FIFTH_OPEN: Engine = Engine {
    open: |folder, settings| {
        if OPENED.fetch_add(1, Ordering::Relaxed) == 4 {
            STOP.store(true, Ordering::Relaxed);
        }
        (ENGINE.open)(folder, settings)
    },
    ..ENGINE
};

fn lines(path: &Path) -> usize {
    fs::read_to_string(path).expect("a journal").lines().count()
}

/// Story: complete rounds of a long stopped run existed, but no result could be made from them
/// without finishing the run.
fn check_result_of_complete_round(lab: &TestLab<'_>, out: &str) {
    let result = Path::new(out).join("hash-count.json");
    let error = lab.run(&["report", "--out", out]).expect_err("no result").to_string();
    assert!(error.contains("there is no result"), "{error}");
    lab.run(&["report", "--out", out, "--stopped"]).expect("a report");
    let outcome = load(&lab.env, &result).expect("a result");
    assert_eq!(outcome.rounds, 1);
    assert!(outcome.points.iter().all(|point| point.repetitions.len() == 1));
    assert_eq!(outcome.points.iter().map(|point| &point.x).collect::<HashSet<_>>().len(), 2);
    fs::remove_file(result).expect("removed");
}

#[test]
fn resumed_run_measures_nothing_twice() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    fs::write(&data, DATA).expect("written");
    let (data, out) = (data.to_str().expect("text"), folder.path().to_str().expect("text"));
    let words = ["run", "hash-count", "--rounds", "3", "--data", data, "--out", out];
    let engines = [STOPS_AT_FIFTH_OPEN];
    let lab = TestLab { engines: &engines, stop: &STOP, ..TestLab::default() };
    let error = lab.run(&words).expect_err("it was stopped");
    let LabError::Stopped(text) = error else { panic!("{error:?}") };
    assert!(text.contains("2 of its repetitions are kept") && text.contains("--resume"), "{text}");
    let part = folder.path().join("hash-count.part.jsonl");
    assert_eq!(lines(&part), 3);
    assert!(!folder.path().join("hash-count.json").exists());
    // An incomplete line, as after a power loss.
    let whole = fs::read_to_string(&part).expect("a journal");
    fs::write(&part, format!("{whole}{{\"subject\":0,\"rou")).expect("written");
    STOP.store(false, Ordering::Relaxed);
    check_result_of_complete_round(&lab, out);
    // Another scale is another run.
    let other = [&words[..], &["--resume", "--scale", "full"]].concat();
    let error = lab.run(&other).expect_err("another scale").to_string();
    assert!(
        error.contains("with another --scale") && error.contains("leave --resume out"),
        "{error}"
    );
    let opened = OPENED.load(Ordering::Relaxed);
    lab.run(&[&words[..], &["--resume"]].concat()).expect("it goes on");
    // The version, the warm-up, and the remaining four repetitions of six.
    assert_eq!(OPENED.load(Ordering::Relaxed) - opened, 6);
    let outcome = load(&lab.env, &folder.path().join("hash-count.json")).expect("a result");
    let point = outcome.point("", "6", "fillrandom").expect("it was measured");
    let rounds: Vec<u32> = point.repetitions.iter().map(|one| one.round).collect();
    assert_eq!(rounds, [0, 1, 2]);
    assert!(!part.exists());
}

#[test]
fn a_damaged_journal_is_refused_and_a_new_run_replaces_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    fs::write(&data, DATA).expect("written");
    let (data, out) = (data.to_str().expect("text"), folder.path().to_str().expect("text"));
    let words = ["run", "hash-count", "--rounds", "1", "--data", data, "--out", out];
    let part = folder.path().join("hash-count.part.jsonl");
    fs::write(&part, "{\"not\": \"ours\"}\n").expect("written");
    let lab = TestLab::default();
    let error = lab.run(&[&words[..], &["--resume"]].concat()).expect_err("damaged");
    let LabError::Damaged(text) = error else { panic!("{error:?}") };
    assert!(text.contains("hash-count.part.jsonl, line 1"), "{text}");
    lab.run(&words).expect("a new run");
    assert!(!part.exists());
}

/// Story: a folder had finished results, and a later run in it with other data or more rounds used
/// --resume: the old results were taken for those of the new run.
#[test]
fn resume_measures_results_of_another_run_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    fs::write(&data, DATA).expect("written");
    let (name, out) = (data.to_str().expect("text"), folder.path().to_str().expect("text"));
    let lab = TestLab::default();
    let run = |rounds: &str| {
        let words = ["run", "hash-count", "--rounds", rounds, "--data", name, "--out", out];
        lab.run(&[&words[..], &["--resume"]].concat()).expect("a run");
        load(&lab.env, &folder.path().join("hash-count.json")).expect("a result")
    };
    let first = run("1");
    assert_eq!(run("1"), first, "the same again is not measured again");
    let more = run("2");
    assert_eq!((more.rounds, more.points[0].repetitions.len()), (2, 2));
    // As many lines of another content.
    fs::write(&data, DATA.replace("put\tc", "put\td")).expect("written");
    let other = run("2");
    assert_ne!(other.settings, more.settings);
}

/// Story: --resume accepted a journal in which a value had been edited.
#[test]
fn a_changed_line_of_a_journal_is_measured_again() {
    static STOP: AtomicBool = AtomicBool::new(false);
    static OPENED: AtomicUsize = AtomicUsize::new(0);
    /// Stops after the version, the warm-up and three repetitions.
    const STOPS_AT_FIFTH_OPEN: Engine = Engine {
        open: |folder, settings| {
            if OPENED.fetch_add(1, Ordering::Relaxed) == 5 {
                STOP.store(true, Ordering::Relaxed);
            }
            (ENGINE.open)(folder, settings)
        },
        ..ENGINE
    };
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    fs::write(&data, DATA).expect("written");
    let (data, out) = (data.to_str().expect("text"), folder.path().to_str().expect("text"));
    let words = ["run", "hash-count", "--rounds", "2", "--data", data, "--out", out];
    let engines = [STOPS_AT_FIFTH_OPEN];
    let lab = TestLab { engines: &engines, stop: &STOP, ..TestLab::default() };
    lab.run(&words).expect_err("it was stopped");
    STOP.store(false, Ordering::Relaxed);
    let part = folder.path().join("hash-count.part.jsonl");
    let text = fs::read_to_string(&part).expect("a journal");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 4);
    // Another figure, and a line of another journal, with another heading.
    let figure = lines[1].replacen("\"fillrandom\",", "\"fillrandom\",1", 1);
    let other = lines[2].replacen("\"checksum\":\"", "\"checksum\":\"0", 1);
    let changed = [lines[0], &figure, &other, lines[3]].join("\n") + "\n";
    let parsed = umbel_lab::results::journal::parse(&part, changed.as_bytes())
        .expect("a heading")
        .expect("");
    assert_eq!((parsed.entries.len(), parsed.rejected.len()), (1, 2), "{:?}", parsed.rejected);
    assert!(parsed.rejected[0].contains("line 2"), "{:?}", parsed.rejected);
    fs::write(&part, changed).expect("written");
    let opened = OPENED.load(Ordering::Relaxed);
    lab.run(&[&words[..], &["--resume"]].concat()).expect("it goes on");
    // The version, the warm-up, and three repetitions: two that were changed, and the last.
    assert_eq!(OPENED.load(Ordering::Relaxed) - opened, 5);
    let outcome = load(&lab.env, &folder.path().join("hash-count.json")).expect("a result");
    assert_eq!(outcome.places(), ["6", "7"], "though the second was measured before the first");
    let point = outcome.point("", "6", "fillrandom").expect("it was measured");
    assert!(point.repetitions.len() == 2 && point.repetitions.iter().all(|one| one.value > 1.0));
}
