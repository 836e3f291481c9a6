//! Runs every command of the transcripts in the pages about backups in an empty directory and
//! compares the output.

use std::path::Path;
use std::process::{Command, Stdio};

use xtask::clients::doc_transcript::{PagePart, matches_shown, parts};

use super::test_binary::Fixture;

const BACKUP_PAGE: &str = include_str!("../../../../docs/how-to/backup.md");
const OBJECT_STORE_PAGE: &str = include_str!("../../../../docs/how-to/backup-to-object-store.md");

#[test]
fn backup_transcript_matches_output() {
    assert!(run_commands(BACKUP_PAGE) > 12);
}

#[test]
fn object_store_transcript_matches_output() {
    assert!(run_commands(OBJECT_STORE_PAGE) > 11);
}

/// Runs the commands of a page, and returns their number.
fn run_commands(page: &str) -> usize {
    let fixture = Fixture::new();
    let directory = fixture.path("tmp");
    let binaries = Path::new(env!("CARGO_BIN_EXE_umbel")).parent().unwrap();
    let mut directories = vec![binaries.to_path_buf()];
    directories.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    let path = std::env::join_paths(directories).unwrap();
    let mut count = 0;
    for part in parts(page) {
        let PagePart::Command(command, shown) = part else { panic!("{part:?} is no command") };
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(&command).current_dir(&directory).env("PATH", &path);
        let output = shell.env_remove("UMBEL_DB").stdin(Stdio::null()).output().unwrap();
        let message = String::from_utf8(output.stdout).unwrap();
        let lines: Vec<&str> = message.lines().collect();
        let is_same = lines.len() == shown.len()
            && lines.iter().zip(&shown).all(|(line, shown)| matches_shown(line, shown));
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(is_same, "`{command}` answers\n{message}{stderr}and not\n{}", shown.join("\n"));
        count += 1;
    }
    count
}
