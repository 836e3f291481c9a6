//! `serving`: see the usage in `serving::arguments`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use umbel_lab::engine::Result;
use umbel_lab::machine::{Machine, loads};
use umbel_rivals::serving::arguments::{Arguments, USAGE};
use umbel_rivals::serving::bare;
use umbel_rivals::serving::report::{self, Heading};
use umbel_rivals::serving::run::{run, soak};

/// The exit code for a wrong command line.
const WRONG_USE: u8 = 2;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.iter().any(|word| word == "--help" || word == "-h") {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let arguments = match Arguments::parse(words) {
        Ok(arguments) => arguments,
        Err(sentence) => {
            eprintln!("{sentence}");
            return ExitCode::from(WRONG_USE);
        }
    };
    let done = match arguments.bare {
        true => bare::serve(arguments.sync.as_deref()),
        false => compare(&arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn compare(arguments: &Arguments) -> Result<()> {
    let machine = Machine::look(&arguments.dir);
    let loads_before = loads();
    let say = &mut |what: &str| eprintln!("{what}");
    let (rows, moments) = match arguments.soak {
        Some(seconds) => (Vec::new(), soak(arguments, seconds, say)?),
        None => (run(arguments, say)?, Vec::new()),
    };
    let heading = Heading { arguments, machine: &machine, loads_before, loads_after: loads() };
    let page = report::markdown(&heading, &rows, &moments);
    println!("{page}");
    let Some(out) = &arguments.out else { return Ok(()) };
    std::fs::create_dir_all(out)?;
    let label = arguments.label.as_ref().map_or(String::new(), |label| format!("-{label}"));
    let name = format!("serving-{}{label}", machine.date);
    std::fs::write(out.join(format!("{name}.md")), page)?;
    let text = serde_json::to_string_pretty(&report::json(&heading, &rows, &moments))?;
    Ok(std::fs::write(out.join(format!("{name}.json")), text + "\n")?)
}
