//! `umbel lab`: exit codes, Ctrl-C, remaining files.

use std::process::Stdio;

use super::test_binary::{Fixture, wait_until};

#[test]
fn exit_codes_separate_usage_and_system_errors() {
    let fixture = Fixture::new();
    fixture.bare(&["lab", "run", "levls"]).fails(2, &["did you mean `levels`?"]);
    fixture.bare(&["lab", "run", "levels", "--scale", "medium"]).fails(2, &["medium"]);
    let nowhere = ["lab", "compare", "/nowhere/a.json", "/nowhere/b.json"];
    fixture.bare(&nowhere).fails(4, &["/nowhere/a.json"]);
    let list = fixture.bare(&["lab", "list"]).succeeds().text();
    assert!(list.lines().count() == 16, "{list}");
}

#[cfg(unix)]
#[test]
fn lab_run_resumes_after_ctrl_c() {
    let fixture = Fixture::new();
    let data = fixture.path("data");
    std::fs::write(&data, "put\ta\nput\tb\nget\ta\nget\tz\n").unwrap();
    let out = fixture.path("out");
    let (data, out_name) = (data.to_str().unwrap(), out.to_str().unwrap());
    let words =
        ["lab", "run", "bits-per-key", "--rounds", "200", "--data", data, "--out", out_name];
    let child = fixture.command().args(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.unwrap();
    let part = out.join("bits-per-key.part.jsonl");
    let lines = || std::fs::read_to_string(&part).unwrap_or_default().lines().count();
    wait_until("some repetitions", || lines() > 5);
    let pid = i32::try_from(child.id()).unwrap();
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(pid).unwrap(),
        rustix::process::Signal::INT,
    )
    .unwrap();
    let ended = child.wait_with_output().unwrap();
    let message = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(130), "{message}");
    assert!(message.contains("--resume continues"), "{message}");
    assert!(!out.join("bits-per-key.json").exists());
    assert!(!out.join("umbel-lab-stores").exists(), "no store is left");
    let kept = lines();
    // Fewer rounds than in the first run, so that the test ends.
    let rounds = ((kept - 1) / 9 + 1).to_string();
    let again = [
        "lab",
        "run",
        "bits-per-key",
        "--rounds",
        &rounds,
        "--data",
        data,
        "--out",
        out_name,
        "--resume",
    ];
    fixture.bare(&again).succeeds();
    assert!(out.join("bits-per-key.json").exists() && !part.exists());
}

#[cfg(unix)]
#[test]
fn killed_append_keeps_every_stream_in_existence_filter() {
    use std::os::unix::process::ExitStatusExt;

    let fixture = Fixture::new();
    let store = fixture.store();
    let store = store.to_str().unwrap();
    let words = ["lab", "fill-and-die", store, "50000"];
    let ended = fixture.command().args(words).output().unwrap();
    let message = String::from_utf8_lossy(&ended.stdout).into_owned();
    assert_eq!(ended.status.signal(), Some(9), "{message}");
    let numbers: Vec<u64> = message.split_whitespace().map(|word| word.parse().unwrap()).collect();
    let [streams, behind, behind_max] = numbers[..] else { panic!("{message}") };
    assert!(streams >= 50_000 && behind > 0 && behind <= behind_max, "{message}");
    let nothing = fixture.feed(&["append"], b"");
    nothing.succeeds();
    let verified = fixture.run(&["verify", "--json"]).succeeds().json();
    assert_eq!(verified["events"].as_u64(), Some(streams));
}
