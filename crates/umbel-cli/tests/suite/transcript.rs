//! The transcript in `docs/backup.md`, typed again: every command of it, in an empty folder, and
//! its output compared.

use std::path::Path;
use std::process::{Command, Stdio};

use xtask::transcript::{Part, is_as_shown, parts};

use super::harness::Ground;

const PAGE: &str = include_str!("../../../../docs/backup.md");

#[test]
fn the_transcript_of_a_backup_is_what_is_answered() {
    let ground = Ground::new();
    let desk = ground.path("tmp");
    let binaries = Path::new(env!("CARGO_BIN_EXE_umbel")).parent().unwrap();
    let mut folders = vec![binaries.to_path_buf()];
    folders.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    let path = std::env::join_paths(folders).unwrap();
    let mut typed = 0;
    for part in parts(PAGE) {
        let Part::Command(command, shown) = part else { panic!("{part:?} is no command") };
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(&command).current_dir(&desk).env("PATH", &path);
        let output = shell.env_remove("UMBEL_DB").stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let lines: Vec<&str> = said.lines().collect();
        let is_same = lines.len() == shown.len()
            && lines.iter().zip(&shown).all(|(line, shown)| is_as_shown(line, shown));
        let complained = String::from_utf8_lossy(&output.stderr);
        assert!(is_same, "`{command}` answers\n{said}{complained}and not\n{}", shown.join("\n"));
        typed += 1;
    }
    assert!(typed > 12, "{typed} commands");
}
