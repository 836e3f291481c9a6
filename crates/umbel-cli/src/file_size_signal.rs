//! Turns the signal SIGXFSZ into an error that can be told.
//!
//! Where a file grows over `ulimit -f` the system first sends this signal, which ends a process on
//! the spot; only one that ignores it gets the error "File too large". Ignoring a signal is not to
//! be had without unsafe code, but it is inherited by a program that takes the place of another.
//! So where there is such a limit, which is rare, `umbel` is started once more by a shell that
//! ignores the signal. Without a shell, and on systems without /proc, everything stays as it is.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Set in the environment of the second start, so that there is no third.
const MARK: &str = "UMBEL_IGNORES_SIGXFSZ";
/// The names of the program and its arguments are the shell's `$0` and `$@`.
const SCRIPT: &str = "trap '' XFSZ; exec \"$0\" \"$@\"";

/// Starts the program once more where files have a size limit. Returns where they have none, and
/// where it could not be done.
pub fn ignore() {
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    if !has_file_size_limit(&limits) || std::env::var_os(MARK).is_some() {
        return;
    }
    let Ok(program) = std::env::current_exe() else { return };
    if !program.exists() {
        return;
    }
    let mut shell = Command::new("/bin/sh");
    shell.arg("-c").arg(SCRIPT).arg(program).args(std::env::args_os().skip(1));
    // It comes back only where there is no shell.
    let _ = shell.env(MARK, "1").exec();
}

/// Whether the text of /proc/self/limits names a limit that is in force.
fn has_file_size_limit(limits: &str) -> bool {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max file size"));
    line.and_then(|line| line.split_whitespace().next()).is_some_and(|soft| soft != "unlimited")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_limit_in_force_counts() {
        let limits = |soft: &str| {
            format!("Limit      Soft Limit\nMax file size     {soft}     unlimited     bytes\n")
        };
        assert!(has_file_size_limit(&limits("1048576")));
        assert!(!has_file_size_limit(&limits("unlimited")));
        assert!(!has_file_size_limit(""));
    }
}
