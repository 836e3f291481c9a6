//! The console, used in headless Chromium: what is on its pages, and pictures of them.

use std::path::Path;
use std::process::Command;

use crate::client_programs::{PYTHON_CLIENT, Server, python_script, script};
use crate::steps::{Outcome, run_counting};
use crate::{installed, programs};

/// What drives the browser.
const SELENIUM: &str = "4.51.0";
/// Both are Debian's: `chromium` and `chromium-driver`.
const PROGRAMS: [&str; 2] = ["chromium", "chromedriver"];

/// Uses the console. The pictures go to this folder, or to one of their own. REQUIRES: the release
/// binary is built.
pub fn console(pictures: Option<&Path>) -> Outcome {
    for program in PROGRAMS {
        if let Err(error) = Command::new(program).arg("--version").output() {
            return Outcome::skip(format!("the console in a browser: {program}: {error}"));
        }
    }
    let browser = match installed::python("console-browser", "selenium", SELENIUM) {
        Ok(python) => python,
        Err(reason) => return Outcome::skip(format!("the console in a browser: {reason}")),
    };
    if let Err(reason) = installed::python("client-python", "kurrentdbclient", PYTHON_CLIENT) {
        return Outcome::skip(format!("the console in a browser: {reason}"));
    }
    let folder = std::env::temp_dir().join(format!("umbel-console-{}", std::process::id()));
    let started = Server::start(&folder.join("events"), |command| {
        command.args(["--insecure", "--backup-dir"]).arg(folder.join("backup"))
    });
    let server = match started {
        Ok(server) => server,
        Err(complaint) => {
            println!("FAILED a server for the console: {complaint}");
            return Outcome::of(false);
        }
    };
    let parked = python_script("python_parked.py")
        .map(|mut command| command.arg(&server.connection).output())
        .and_then(|output| installed::succeeded("appending and parking", output));
    let mut outcome = match parked {
        Ok(()) => {
            let own = programs::target().join("console-pictures");
            let mut command = Command::new(browser);
            command.arg("-I").arg(script("console_browser.py")).arg(&server.connection);
            run_counting(command.arg(pictures.unwrap_or(&own)), |_| true)
        }
        Err(complaint) => {
            println!("FAILED the console in a browser: {complaint}");
            Outcome::of(false)
        }
    };
    outcome.add(server.stop());
    // Nothing depends on whether the folder goes: its name is this process's own.
    std::fs::remove_dir_all(&folder).ok();
    outcome
}
