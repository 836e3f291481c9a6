//! Running, listing, and requests that are rejected before the run.

use std::fs;

use crate::test_engines::{DATA, LIAR, TestLab};
use umbel_lab::engine::umbel_engine::ENGINE;
use umbel_lab::lab_error::LabError;

#[test]
fn every_experiment_is_listed_with_its_question() {
    let text = TestLab::default().run(&["list"]).expect("a list");
    for name in [
        "bits-per-key",
        "value-size",
        "hash-count",
        "bits-and-hashes",
        "more-bits-same-hashes",
        "read-missing",
        "hash-function",
        "hash-sharing",
        "java-article",
        "new-streams",
        "saturation",
        "existence",
        "levels",
        "cold",
        "amplification",
        "rivals",
    ] {
        let line = text.lines().find(|line| line.starts_with(name));
        assert!(line.is_some_and(|line| line.ends_with('?')), "{name}: {line:?}");
    }
    let json = TestLab::default().run_as(&["list"], true).expect("a list");
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["experiments"].as_array().map(Vec::len), Some(16));
}

#[test]
fn user_keys_make_only_a_result_and_a_report() {
    let folder = tempfile::tempdir().expect("a directory");
    let (data, out) = (folder.path().join("data"), folder.path().join("out"));
    fs::write(&data, DATA).expect("written");
    let words = [
        "run",
        "hash-count",
        "--rounds",
        "2",
        "--data",
        data.to_str().expect("text"),
        "--out",
        out.to_str().expect("text"),
    ];
    let text = TestLab::default().run(&words).expect("a run");
    assert!(text.contains("Seven hashes beside six") && text.contains("report.html"), "{text}");
    let mut names: Vec<String> = fs::read_dir(&out)
        .expect("a directory")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("text"))
        .collect();
    names.sort();
    assert_eq!(names, ["hash-count.json", "report.html", "umbel-lab.lock"]);
    let report = fs::read_to_string(out.join("report.html")).expect("a report");
    assert!(
        report.contains("Six hashes or seven?") && report.contains(data.to_str().expect("text"))
    );
    // Once more from the file alone, and compared with itself.
    let again = ["report", "--out", out.to_str().expect("text")];
    TestLab::default().run(&again).expect("a report");
    let file = out.join("hash-count.json");
    let file = file.to_str().expect("text");
    let text = TestLab::default().run(&["compare", file, file]).expect("a comparison");
    let none_differs = " 0 better, 0 worse, 0 different, 0 that were measured once and differ, \
                        0 not sound";
    assert!(text.contains(none_differs), "{text}");
}

#[test]
fn wrong_arguments_are_rejected_before_the_run() {
    let folder = tempfile::tempdir().expect("a directory");
    let out = folder.path().join("out");
    let out = out.to_str().expect("text");
    let lab = TestLab::default();
    let refused = |words: &[&str]| match lab.run(words) {
        Err(LabError::Usage(text) | LabError::System(text)) => text,
        other => panic!("{words:?}: {other:?}"),
    };
    let text = refused(&["run", "hash-cuont", "--out", out]);
    assert!(text.contains("did you mean `hash-count`?"), "{text}");
    let text = refused(&["run", "levels", "--engine", "rocksdb", "--out", out]);
    assert!(text.contains("cargo xtask rivals lab"), "{text}");
    let bad = folder.path().join("bad");
    fs::write(&bad, "put\ta\nget\ta\nnonsense\n").expect("written");
    let bad = bad.to_str().expect("text");
    let text = refused(&["run", "hash-count", "--data", bad, "--out", out]);
    assert!(text.contains("bad, line 3: `nonsense` is neither"), "{text}");
    fs::write(bad, DATA).expect("written");
    let text = refused(&["run", "levels", "--data", bad, "--out", out]);
    assert!(text.contains("makes its own keys"), "{text}");
    let text = refused(&["run", "hash-count", "--out", bad]);
    assert!(text.contains("could not use the directory"), "{text}");
    let text = refused(&["report", "--out", folder.path().to_str().expect("text")]);
    assert!(text.contains("there is no result"), "{text}");
}

#[test]
fn a_folder_belongs_to_one_run_at_a_time() {
    let folder = tempfile::tempdir().expect("a directory");
    let lab = TestLab::default();
    let _held = lab.env.files.lock(&folder.path().join("umbel-lab.lock")).expect("a lock");
    let out = folder.path().to_str().expect("text");
    let error = lab.run(&["run", "hash-sharing", "--out", out]).expect_err("held");
    assert!(error.to_string().contains("another umbel lab works in"), "{error}");
    // Nor is a report written into a folder that another run uses.
    let error = lab.run(&["report", "--out", out]).expect_err("held");
    assert!(error.to_string().contains("another umbel lab works in"), "{error}");
}

#[test]
fn engines_that_disagree_stop_the_run() {
    let folder = tempfile::tempdir().expect("a directory");
    let out = folder.path().to_str().expect("text");
    let engines = [ENGINE, LIAR];
    let lab = TestLab { engines: &engines, ..TestLab::default() };
    let words = ["run", "rivals", "--rounds", "1", "--engine", "all", "--out", out];
    let error = lab.run(&words).expect_err("they disagree");
    let LabError::Failed(text) = error else { panic!("{error:?}") };
    assert!(
        text.contains("liar and umbel answer ")
            && text.contains(" differently")
            && text.contains("no figure of this run counts"),
        "{text}"
    );
    assert!(!folder.path().join("rivals.json").exists());
    // In any experiment with the same lookups.
    let data = folder.path().join("data");
    fs::write(&data, DATA).expect("written");
    let data = data.to_str().expect("text");
    let words = ["run", "hash-count", "--engine", "all", "--data", data, "--out", out];
    let LabError::Failed(text) = lab.run(&words).expect_err("they disagree") else { panic!() };
    // In the first round the last subject of the list has its turn after the first two.
    assert!(text.contains("liar, 7 and umbel, 6 answer readrandom differently"), "{text}");
}

/// Story: the lab emptied an existing folder that it had not created, and two runs with one folder
/// for stores deleted each other's stores.
#[test]
fn scratch_folder_is_emptied_only_if_the_lab_owns_it() {
    let folder = tempfile::tempdir().expect("a directory");
    let (out, stores) = (folder.path().join("out"), folder.path().join("stores"));
    let precious = stores.join("umbel-lab-stores/precious");
    fs::create_dir_all(precious.parent().expect("a parent")).expect("made");
    fs::write(&precious, "mine").expect("written");
    let (out, stores_name) = (out.to_str().expect("text"), stores.to_str().expect("text"));
    let lab = TestLab::default();
    let words = ["run", "hash-sharing", "--out", out, "--stores", stores_name];
    let error = lab.run(&words).expect_err("it is not ours").to_string();
    assert!(error.contains("was not made by umbel lab"), "{error}");
    assert!(precious.exists());
    let _held = lab.env.files.lock(&stores.join("umbel-lab-stores.lock")).expect("a lock");
    let error = lab.run(&words).expect_err("another run").to_string();
    assert!(error.contains("where another umbel lab may work"), "{error}");
}
