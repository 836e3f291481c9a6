//! `umbel lab` as a person runs it: exit codes, Ctrl-C, what is left behind.

use std::process::Stdio;

use super::harness::{Ground, wait_until};

#[test]
fn exit_codes_say_whose_fault_it_was() {
    let ground = Ground::new();
    ground.bare(&["lab", "run", "levls"]).fails(2, &["did you mean `levels`?"]);
    ground.bare(&["lab", "run", "levels", "--scale", "medium"]).fails(2, &["medium"]);
    let nowhere = ["lab", "compare", "/nowhere/a.json", "/nowhere/b.json"];
    ground.bare(&nowhere).fails(4, &["/nowhere/a.json"]);
    let list = ground.bare(&["lab", "list"]).succeeds().text();
    assert!(list.lines().count() == 16, "{list}");
}

#[cfg(unix)]
#[test]
fn ctrl_c_keeps_what_was_done_and_resume_goes_on() {
    let ground = Ground::new();
    let data = ground.path("data");
    std::fs::write(&data, "put\ta\nput\tb\nget\ta\nget\tz\n").unwrap();
    let out = ground.path("out");
    let (data, out_name) = (data.to_str().unwrap(), out.to_str().unwrap());
    let words =
        ["lab", "run", "bits-per-key", "--rounds", "200", "--data", data, "--out", out_name];
    let child = ground.command().args(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
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
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(130), "{said}");
    assert!(said.contains("--resume goes on"), "{said}");
    assert!(!out.join("bits-per-key.json").exists());
    assert!(!out.join("umbel-lab-stores").exists(), "no store is left");
    let kept = lines();
    // Fewer rounds than were asked for first, so that the test ends.
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
    ground.bare(&again).succeeds();
    assert!(out.join("bits-per-key.json").exists() && !part.exists());
}

#[cfg(unix)]
#[test]
fn the_process_that_existence_has_killed_leaves_every_stream_it_counted() {
    use std::os::unix::process::ExitStatusExt;

    let ground = Ground::new();
    let store = ground.store();
    let store = store.to_str().unwrap();
    let words = ["lab", "fill-and-die", store, "50000"];
    let ended = ground.command().args(words).output().unwrap();
    let said = String::from_utf8_lossy(&ended.stdout).into_owned();
    assert_eq!(ended.status.signal(), Some(9), "{said}");
    let numbers: Vec<u64> = said.split_whitespace().map(|word| word.parse().unwrap()).collect();
    let [streams, behind, behind_max] = numbers[..] else { panic!("{said}") };
    assert!(streams >= 50_000 && behind > 0 && behind <= behind_max, "{said}");
    let nothing = ground.feed(&["append"], b"");
    nothing.succeeds();
    let verified = ground.run(&["verify", "--json"]).succeeds().json();
    assert_eq!(verified["events"].as_u64(), Some(streams));
}
