//! Test of the console in headless Chromium: contents of its pages, and screenshots.

use std::path::Path;
use std::process::Command;

use crate::clients::client_programs::{PYTHON_CLIENT, Server, python_script, script};
use crate::tools::check_steps::{StepOutcome, run_counting};
use crate::tools::{built_programs, tool_install};

/// Version of Selenium, which drives the browser.
const SELENIUM: &str = "4.51.0";
/// Programs of the Debian packages `chromium` and `chromium-driver`.
const PROGRAMS: [&str; 2] = ["chromium", "chromedriver"];

/// Tests the console. Screenshots are written to this folder, or to a temporary folder. REQUIRES:
/// the release binary is built.
pub fn console(pictures: Option<&Path>) -> StepOutcome {
    for program in PROGRAMS {
        if let Err(error) = Command::new(program).arg("--version").output() {
            return StepOutcome::skip(format!("the console in a browser: {program}: {error}"));
        }
    }
    let browser = match tool_install::python("console-browser", "selenium", SELENIUM) {
        Ok(python) => python,
        Err(reason) => return StepOutcome::skip(format!("the console in a browser: {reason}")),
    };
    if let Err(reason) = tool_install::python("client-python", "kurrentdbclient", PYTHON_CLIENT) {
        return StepOutcome::skip(format!("the console in a browser: {reason}"));
    }
    let folder = std::env::temp_dir().join(format!("umbel-console-{}", std::process::id()));
    let started = Server::start(&folder.join("events"), |command| {
        command.args(["--insecure", "--backup-dir"]).arg(folder.join("backup"))
    });
    let server = match started {
        Ok(server) => server,
        Err(complaint) => {
            println!("FAILED a server for the console: {complaint}");
            return StepOutcome::of(false);
        }
    };
    let parked = python_script("python_parked.py")
        .map(|mut command| command.arg(&server.connection).output())
        .and_then(|output| tool_install::succeeded("appending and parking", output));
    let mut outcome = match parked {
        Ok(()) => {
            let own = built_programs::target().join("console-pictures");
            let mut command = Command::new(browser);
            command.arg("-I").arg(script("console_browser.py")).arg(&server.connection);
            run_counting(command.arg(pictures.unwrap_or(&own)), |_| true)
        }
        Err(complaint) => {
            println!("FAILED the console in a browser: {complaint}");
            StepOutcome::of(false)
        }
    };
    outcome.add(server.stop());
    // Nothing depends on whether the folder goes: its name is this process's own.
    std::fs::remove_dir_all(&folder).ok();
    outcome
}
