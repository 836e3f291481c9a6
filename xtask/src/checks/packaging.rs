//! What is packed along: the unit of systemd is looked at by systemd itself.

use std::process::Command;

use crate::steps::Outcome;
use crate::tree;

/// The unit, and the program that it starts.
const UNIT: &str = "packaging/umbel.service";
const PROGRAM: &str = "/usr/local/bin/umbel";

/// Has systemd read the unit, where it is there.
pub fn packaging() -> Outcome {
    let text = match std::fs::read_to_string(tree::root().join(UNIT)) {
        Ok(text) => text,
        Err(error) => {
            println!("FAILED {UNIT}: {error}");
            return Outcome::of(false);
        }
    };
    // It complains of programs that are not there.
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
            let said = String::from_utf8_lossy(&output.stderr);
            let is_good = output.status.success() && !said.contains("umbel.service");
            println!("{} {UNIT} {said}", if is_good { "ok" } else { "FAILED" });
            Outcome::of(is_good)
        }
        Err(error) => Outcome::skip(format!("{UNIT}: systemd-analyze: {error}")),
    }
}
