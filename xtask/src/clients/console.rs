//! Tests of the console in headless Chromium: contents of its pages, and screenshots.

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
    let own = built_programs::target().join("console-pictures");
    let pictures = pictures.unwrap_or(&own);
    let mut outcome = on_server("console", |server| {
        let parked = python_script("python_parked.py")
            .map(|mut command| command.arg(&server.connection).output())
            .and_then(|output| tool_install::succeeded("appending and parking", output));
        match parked {
            Ok(()) => run_cases("console_browser.py", &browser, server, pictures),
            Err(complaint) => {
                println!("FAILED the console in a browser: {complaint}");
                StepOutcome::of(false)
            }
        }
    });
    outcome.add(on_server("console-states", |server| {
        run_cases("console_states.py", &browser, server, pictures)
    }));
    outcome
}

/// Runs the cases of a program on a server, and counts them.
fn run_cases(program: &str, browser: &Path, server: &Server, pictures: &Path) -> StepOutcome {
    let mut command = Command::new(browser);
    command.arg("-I").arg(script(program)).arg(&server.connection).arg(pictures);
    run_counting(&mut command, |_| true)
}

/// Runs tests on a server with an empty store of this name.
fn on_server(name: &str, test: impl FnOnce(&Server) -> StepOutcome) -> StepOutcome {
    let folder = std::env::temp_dir().join(format!("umbel-{name}-{}", std::process::id()));
    let objects = folder.join("objects");
    let created = std::fs::create_dir_all(&objects).map_err(|error| error.to_string());
    let started = created.and_then(|()| {
        Server::start(&folder.join("events"), |command| {
            command.args(["--insecure", "--backup-dir"]).arg(folder.join("backup"));
            command.arg("--backup-to").arg(format!("file://{}", objects.display()))
        })
    });
    let mut outcome = StepOutcome::default();
    match started {
        Ok(server) => {
            outcome.add(test(&server));
            outcome.add(server.stop());
        }
        Err(complaint) => {
            println!("FAILED a server for the console: {complaint}");
            outcome.add(StepOutcome::of(false));
        }
    }
    // Nothing depends on whether the folder goes: its name is this process's own.
    std::fs::remove_dir_all(&folder).ok();
    outcome
}
