//! `umbel-rivals`: see the usage in `arguments`.
#![forbid(unsafe_code)]

use std::path::Path;
use std::process::ExitCode;

use umbel_rivals::arguments::{Arguments, USAGE};
use umbel_rivals::engine::Result;
use umbel_rivals::machine::{Machine, loads};
use umbel_rivals::record::Results;
use umbel_rivals::report::{self, Heading};
use umbel_rivals::run::Run;

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
    match run(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether every engine that was there did its work, and all answers agree.
fn run(arguments: &Arguments) -> Result<bool> {
    let folder = arguments.stores.join(format!("umbel-rivals-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let compared = compare(arguments, &folder);
    std::fs::remove_dir_all(&folder)?;
    compared
}

fn compare(arguments: &Arguments, folder: &Path) -> Result<bool> {
    let machine = Machine::look(folder);
    let loads_before = loads();
    let mut run = Run::new(arguments, folder.to_path_buf())?;
    let user_bytes = run.user_bytes();
    let heading =
        || Heading { arguments, machine: &machine, user_bytes, loads_before, loads_after: loads() };
    let mut failed = None;
    run.run(|results| failed = save(&heading(), results).err());
    println!("\n{}", report::markdown(&heading(), &run.results));
    if let Some(error) = failed {
        return Err(error);
    }
    let measured = |name| run.results.records.iter().any(|record| record.engine == name);
    let all_stayed = run
        .results
        .participants
        .iter()
        .all(|participant| participant.absent_because.is_none() || !measured(participant.name));
    Ok(all_stayed && run.results.disagreements().is_empty())
}

/// Writes the results there are so far, so that a run that is cut short leaves something.
fn save(heading: &Heading<'_>, results: &Results) -> Result<()> {
    let Some(out) = &heading.arguments.out else { return Ok(()) };
    std::fs::create_dir_all(out)?;
    let label = heading.arguments.label.clone();
    let label = label.unwrap_or_else(|| heading.arguments.num.to_string());
    let name = format!("rivals-{}-{label}", heading.machine.date);
    std::fs::write(out.join(format!("{name}.md")), report::markdown(heading, results))?;
    let text = serde_json::to_string_pretty(&report::json(heading, results))?;
    Ok(std::fs::write(out.join(format!("{name}.json")), text + "\n")?)
}
