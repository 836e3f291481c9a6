//! Check of the packaged systemd unit and its user, by `systemd-analyze` and `systemd-sysusers`,
//! and of the alerts, by `promtool`.

use std::process::Command;

use crate::checkout::file_tree;
use crate::tools::check_steps::StepOutcome;

/// Path of the systemd unit, of the file that creates its user, and of the program that it starts.
const UNIT: &str = "packaging/umbel.service";
const USER: &str = "packaging/umbel.sysusers";
const PROGRAM: &str = "/usr/local/bin/umbel";

/// Directory of the alerts, and the arguments that check them and cause each of them.
const ALERTS: &str = "packaging/prometheus";
const ALERT_CHECKS: [[&str; 3]; 2] =
    [["check", "rules", "umbel-alerts.yml"], ["test", "rules", "umbel-alerts-test.yml"]];

/// Runs the checks whose programs are installed.
pub fn packaging() -> StepOutcome {
    let mut outcome = unit();
    for arguments in ALERT_CHECKS {
        outcome.add(alerts(arguments));
    }
    outcome
}

/// Runs `promtool` on the alerts.
fn alerts(arguments: [&str; 3]) -> StepOutcome {
    let folder = file_tree::root().join(ALERTS);
    let file = arguments[2];
    match Command::new("promtool").args(arguments).current_dir(folder).output() {
        Ok(output) => {
            let is_good = output.status.success();
            let messages = String::from_utf8_lossy(&output.stderr);
            println!("{} {ALERTS}/{file} {messages}", if is_good { "ok" } else { "FAILED" });
            StepOutcome::of(is_good)
        }
        Err(error) => StepOutcome::skip(format!("{ALERTS}/{file}: promtool: {error}")),
    }
}

/// Checks the systemd unit.
fn unit() -> StepOutcome {
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
            let mut outcome = StepOutcome::of(is_good);
            outcome.add(user());
            outcome
        }
        Err(error) => StepOutcome::skip(format!("{UNIT}: systemd-analyze: {error}")),
    }
}

/// Checks that systemd would create the unit's user.
fn user() -> StepOutcome {
    let path = file_tree::root().join(USER);
    match Command::new("systemd-sysusers").arg("--dry-run").arg(path).output() {
        Ok(output) => {
            let (is_good, messages) =
                (output.status.success(), String::from_utf8_lossy(&output.stderr));
            println!("{} {USER} {messages}", if is_good { "ok" } else { "FAILED" });
            StepOutcome::of(is_good)
        }
        Err(error) => StepOutcome::skip(format!("{USER}: systemd-sysusers: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Story: the build of the container image copied the directory `target` of the checkout.
    #[test]
    fn container_is_built_without_ignored_directories() {
        let read = |name: &str| std::fs::read_to_string(file_tree::root().join(name)).unwrap();
        let (ignored, excluded) = (read(".gitignore"), read(".dockerignore"));
        for directory in ignored.lines().map(|line| line.trim_start_matches('/')) {
            assert!(excluded.lines().any(|line| line == directory), "{directory}");
        }
    }
}
