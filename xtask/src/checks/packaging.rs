//! Check of the packaged systemd unit and its user, by `systemd-analyze` and `systemd-sysusers`.

use std::process::Command;

use crate::checkout::file_tree;
use crate::tools::check_steps::StepOutcome;

/// Path of the systemd unit, of the file that creates its user, and of the program that it starts.
const UNIT: &str = "packaging/umbel.service";
const USER: &str = "packaging/umbel.sysusers";
const PROGRAM: &str = "/usr/local/bin/umbel";

/// Runs the check, if systemd is installed.
pub fn packaging() -> StepOutcome {
    let text = match std::fs::read_to_string(file_tree::root().join(UNIT)) {
        Ok(text) => text,
        Err(error) => {
            println!("FAILED {UNIT}: {error}");
            return StepOutcome::of(false);
        }
    };
    // `systemd-analyze` complains of programs that are not installed.
    let folder = std::env::temp_dir().join(format!("umbel-unit-{}", std::process::id()));
    let unit = folder.join("umbel.service");
    let written = std::fs::create_dir_all(&folder)
        .and_then(|()| std::fs::write(&unit, text.replace(PROGRAM, "/bin/true")));
    let read = written.and_then(|()| {
        Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&unit).output()
    });
    std::fs::remove_dir_all(&folder).ok();
    match read {
        Ok(output) => {
            let messages = String::from_utf8_lossy(&output.stderr);
            let is_good = output.status.success() && !messages.contains("umbel.service");
            println!("{} {UNIT} {messages}", if is_good { "ok" } else { "FAILED" });
            StepOutcome::of(is_good && has_valid_user())
        }
        Err(error) => StepOutcome::skip(format!("{UNIT}: systemd-analyze: {error}")),
    }
}

/// Whether systemd would create the unit's user; an absent `systemd-sysusers` is no fault.
fn has_valid_user() -> bool {
    let path = file_tree::root().join(USER);
    let Ok(output) = Command::new("systemd-sysusers").arg("--dry-run").arg(path).output() else {
        return true;
    };
    let messages = String::from_utf8_lossy(&output.stderr);
    println!("{} {USER} {messages}", if output.status.success() { "ok" } else { "FAILED" });
    output.status.success()
}
