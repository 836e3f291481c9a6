//! `umbel-rivals`: see the usage in `arguments`.
#![forbid(unsafe_code)]

use std::path::Path;
use std::process::ExitCode;

use umbel_lab::engine::Result;
use umbel_lab::keys::{Keys, Shape};
use umbel_lab::machine::{Machine, loads};
use umbel_rivals::arguments::{Arguments, USAGE};
use umbel_rivals::memory::Part;
use umbel_rivals::population::Population;
use umbel_rivals::record::{Participant, Results};
use umbel_rivals::report::{self, Heading};
use umbel_rivals::run::Run;
use umbel_rivals::{engines, lab, memory};

/// The exit code for a wrong command line.
const WRONG_USE: u8 = 2;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [first, rest @ ..] = words.as_slice()
        && first == "lab"
    {
        return lab::run(rest);
    }
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
    if let Some(part) = &arguments.memory_of {
        return memory_of(part, arguments);
    }
    let folder = arguments.stores.join(format!("umbel-rivals-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let compared = compare(arguments, &folder);
    std::fs::remove_dir_all(&folder)?;
    compared
}

/// Prints what an engine takes of memory in this process, for the one that asked.
fn memory_of(part: &str, arguments: &Arguments) -> Result<bool> {
    let (engine, part) = Part::parse(part).ok_or("--memory-of is for this program's own use")?;
    for engine in engines::chosen(&[engine.to_string()])? {
        let shape = arguments.shapes[0];
        let keys = Keys::new(shape, arguments.num, arguments.key, arguments.value)?;
        let population = Population { keys, lived_in: false };
        let settings = arguments.settings();
        let peaks = memory::here(engine, part, population, &settings, &arguments.stores)?;
        println!("{}", memory::line(peaks));
    }
    Ok(true)
}

fn compare(arguments: &Arguments, folder: &Path) -> Result<bool> {
    let machine = Machine::look(folder);
    let loads_before = loads();
    let heading = || Heading { arguments, machine: &machine, loads_before, loads_after: loads() };
    let mut done: Vec<(Shape, Results)> = Vec::new();
    let mut failed = None;
    for &shape in &arguments.shapes {
        println!("{shape} keys");
        let folder = folder.join(shape.to_string());
        std::fs::create_dir_all(&folder)?;
        let mut run = Run::new(arguments, shape, folder.clone())?;
        if arguments.memory {
            run.memory(&std::env::current_exe()?);
        }
        run.run(|results| {
            let mut all = done.clone();
            all.push((shape, results.clone()));
            failed = save(&heading(), &all).err();
        });
        done.push((shape, run.results));
        std::fs::remove_dir_all(&folder)?;
    }
    println!("\n{}", report::markdown(&heading(), &done));
    if let Some(error) = failed {
        return Err(error);
    }
    Ok(done.iter().all(|(_, results)| all_stayed(results) && results.disagreements().is_empty()))
}

fn all_stayed(results: &Results) -> bool {
    let measured = |name| results.records.iter().any(|record| record.engine == name);
    let stayed = |p: &Participant| p.absent_because.is_none() || !measured(p.name);
    results.participants.iter().all(stayed)
}

/// Writes the results there are so far, so that a run that is cut short leaves something.
fn save(heading: &Heading<'_>, done: &[(Shape, Results)]) -> Result<()> {
    let Some(out) = &heading.arguments.out else { return Ok(()) };
    std::fs::create_dir_all(out)?;
    let label = heading.arguments.label.clone();
    let label = label.unwrap_or_else(|| heading.arguments.num.to_string());
    let name = format!("rivals-{}-{label}", heading.machine.date);
    std::fs::write(out.join(format!("{name}.md")), report::markdown(heading, done))?;
    let text = serde_json::to_string_pretty(&report::json(heading, done))?;
    Ok(std::fs::write(out.join(format!("{name}.json")), text + "\n")?)
}
