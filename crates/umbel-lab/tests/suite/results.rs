//! Result files: complete, or an error.

use std::fs;

use umbel_lab::lab_error::LabError;
use umbel_lab::results::result_file::parse;

use crate::test_engines::{DATA, TestLab};

fn result() -> (Vec<u8>, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a directory");
    let data = folder.path().join("data");
    fs::write(&data, DATA).expect("written");
    let (data, out) = (data.to_str().expect("text"), folder.path().to_str().expect("text"));
    let words = ["run", "hash-count", "--rounds", "1", "--data", data, "--out", out];
    TestLab::default().run(&words).expect("a run");
    (fs::read(folder.path().join("hash-count.json")).expect("a result"), folder)
}

#[test]
fn any_changed_byte_of_a_result_is_detected() {
    let (bytes, _folder) = result();
    let right = parse("f", &bytes).expect("a result");
    // Every seventh byte: each field has some in its name and in its values.
    for (number, at) in (0..bytes.len()).step_by(7).enumerate() {
        let mut changed = bytes.clone();
        changed[at] ^= if number.is_multiple_of(2) { 0x01 } else { 0x10 };
        match parse("f", &changed) {
            Err(LabError::Damaged(_) | LabError::Usage(_)) => {}
            // White space between values has no meaning.
            Ok(read) => assert_eq!(read, right, "byte {at}"),
            Err(other) => panic!("byte {at}: {other:?}"),
        }
    }
    for end in (0..bytes.len() - 1).step_by(41) {
        let error = parse("f", &bytes[..end]).expect_err("cut short");
        assert!(matches!(error, LabError::Damaged(_) | LabError::Usage(_)), "{error:?}");
    }
}

#[test]
fn foreign_and_newer_files_are_not_reported_as_damaged() {
    let (bytes, folder) = result();
    let text = String::from_utf8(bytes).expect("text");
    let later = text.replace("\"umbel_lab\": 2,", "\"umbel_lab\": 3, \"more\": true,");
    let error = parse("f", later.as_bytes()).expect_err("later");
    assert!(matches!(&error, LabError::Usage(text) if text.contains("format 3")), "{error:?}");
    for foreign in ["", "{}", "[1, 2]", "not JSON", "{\"name\": \"package\"}"] {
        let error = parse("f", foreign.as_bytes()).expect_err("foreign");
        let is_foreign = matches!(&error, LabError::Usage(text) if text.contains("is no result"));
        assert!(is_foreign, "{foreign}: {error:?}");
    }
    let path = folder.path().join("hash-count.json");
    fs::write(&path, text.replace("hash-count", "hash-c0unt")).expect("written");
    let path = path.to_str().expect("text");
    let error = TestLab::default().run(&["compare", path, path]).expect_err("changed");
    assert!(error.to_string().contains("its checksum does not match"), "{error}");
    let out = folder.path().to_str().expect("text");
    let error = TestLab::default().run(&["report", "--out", out]).expect_err("changed");
    assert!(matches!(error, LabError::Damaged(_)), "{error:?}");
    let error = TestLab::default().run(&["compare", out, out]).expect_err("a directory");
    assert!(error.to_string().contains("is a directory"), "{error}");
}

/// Story: one damaged file beside others ended a run after its first experiment, and a result under
/// the name of another experiment was shown as that experiment's result.
#[test]
fn report_leaves_out_damaged_results_and_names_them() {
    let (bytes, folder) = result();
    fs::write(folder.path().join("levels.json"), &bytes).expect("written");
    fs::write(folder.path().join("cold.json"), &bytes[..100]).expect("written");
    let out = folder.path().to_str().expect("text");
    let error = TestLab::default().run(&["report", "--out", out]).expect_err("two are left out");
    let LabError::Usage(text) = error else { panic!("{error:?}") };
    assert!(text.contains("levels.json is a result of `hash-count`"), "{text}");
    let report = fs::read_to_string(folder.path().join("report.html")).expect("a report");
    assert!(report.contains("Six hashes") && !report.contains("The same memory"));
    let data = folder.path().join("data");
    let words = ["run", "bits-and-hashes", "--rounds", "1", "--data", data.to_str().expect("text")];
    TestLab::default().run(&[&words[..], &["--out", out]].concat()).expect("a run");
}

#[test]
fn results_of_the_first_version_are_still_read() {
    let bytes = include_bytes!("../../../../fuzz/seeds/lab_result/result-1.json");
    let old = parse("f", bytes).expect("a result of version 1");
    assert_eq!((old.umbel_lab, &old.order), (1, &None));
    assert!(old.points.iter().flat_map(|point| &point.repetitions).all(|one| one.cost.is_none()));
    let rows = umbel_lab::report::compare_results::figure_diffs(&old, &old).expect("rows");
    assert_eq!(rows.len(), old.points.len());
    // Its report states that the order is unknown.
    let experiment = umbel_lab::experiments::ALL.into_iter().find(|one| one.name == old.experiment);
    let page = umbel_lab::report::html::page(&[(experiment.expect("known"), &old)]);
    assert!(
        page.contains("each in the same order") && !page.contains("of the processor</summary>")
    );
}

/// Story: results had mode 600, so that no other user could read shared results.
#[cfg(unix)]
#[test]
fn results_are_readable_as_the_umask_allows() {
    use std::os::unix::fs::PermissionsExt;
    let (_, folder) = result();
    let mode = |name: &str| {
        let metadata = fs::metadata(folder.path().join(name)).expect("there");
        metadata.permissions().mode() & 0o777
    };
    fs::write(folder.path().join("plain"), "").expect("written");
    for name in ["hash-count.json", "report.html"] {
        assert_eq!(mode(name), mode("plain") & 0o644, "{name}");
    }
}
