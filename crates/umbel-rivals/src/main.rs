//! Binary `umbel-rivals`; `kv_arguments` describes its usage.
#![forbid(unsafe_code)]

use std::path::Path;
use std::process::ExitCode;

use umbel_keygen::keys::{KeySet, KeyShape};
use umbel_lab::engine::Result;
use umbel_lab::measure::machine::{Machine, loads};
use umbel_rivals::kv::key_population::Population;
use umbel_rivals::kv::kv_arguments::KvArguments;
use umbel_rivals::kv::kv_report::{self, KvHeading};
use umbel_rivals::kv::kv_results::{KvResults, Participant};
use umbel_rivals::kv::kv_run::KvRun;
use umbel_rivals::kv::memory_peak;
use umbel_rivals::kv::memory_peak::MemoryPart;
use umbel_rivals::{engines, lab};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [first, rest @ ..] = words.as_slice()
        && first == "lab"
    {
        return lab::run(rest);
    }
    let arguments = match KvArguments::parse_words(words) {
        Ok(arguments) => arguments,
        Err(error) => error.exit(),
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

/// Runs the comparison. Returns whether every engine that takes part did its work, and all answers
/// agree.
fn run(arguments: &KvArguments) -> Result<bool> {
    if let Some(part) = &arguments.memory_of {
        return memory_of(part, arguments);
    }
    let folder = arguments.stores.join(format!("umbel-rivals-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let compared = compare(arguments, &folder);
    std::fs::remove_dir_all(&folder)?;
    compared
}

/// Prints the memory that an engine takes in this process, for the process that started it.
fn memory_of(part: &str, arguments: &KvArguments) -> Result<bool> {
    let (engine, part) =
        MemoryPart::parse(part).ok_or("--memory-of is for this program's own use")?;
    for engine in engines::find_engines(&[engine.to_string()])? {
        let shape = arguments.shapes[0];
        let keys = KeySet::new(shape, arguments.num, arguments.key, arguments.value)?;
        let population = Population { keys, aged: false };
        let settings = arguments.settings();
        let peaks =
            memory_peak::measure_here(engine, part, population, &settings, &arguments.stores)?;
        println!("{}", memory_peak::line(peaks));
    }
    Ok(true)
}

fn compare(arguments: &KvArguments, folder: &Path) -> Result<bool> {
    let machine = Machine::detect(folder);
    let loads_before = loads();
    let heading = || KvHeading { arguments, machine: &machine, loads_before, loads_after: loads() };
    let mut done: Vec<(KeyShape, KvResults)> = Vec::new();
    let mut failed = None;
    for &shape in &arguments.shapes {
        println!("{shape} keys");
        let folder = folder.join(shape.to_string());
        std::fs::create_dir_all(&folder)?;
        let mut run = KvRun::new(arguments, shape, folder.clone())?;
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
    println!("\n{}", kv_report::markdown(&heading(), &done));
    if let Some(error) = failed {
        return Err(error);
    }
    Ok(done.iter().all(|(_, results)| all_stayed(results) && results.disagreements().is_empty()))
}

fn all_stayed(results: &KvResults) -> bool {
    let measured = |name| results.records.iter().any(|record| record.engine == name);
    let stayed = |p: &Participant| p.absence_reason.is_none() || !measured(p.name);
    results.participants.iter().all(stayed)
}

/// Writes the results so far, so that an interrupted run leaves a report.
fn save(heading: &KvHeading<'_>, done: &[(KeyShape, KvResults)]) -> Result<()> {
    let Some(out) = &heading.arguments.out else { return Ok(()) };
    std::fs::create_dir_all(out)?;
    let label = heading.arguments.label.clone();
    let label = label.unwrap_or_else(|| heading.arguments.num.to_string());
    let name = format!("rivals-{}-{label}", heading.machine.date);
    std::fs::write(out.join(format!("{name}.md")), kv_report::markdown(heading, done))?;
    let text = serde_json::to_string_pretty(&kv_report::json(heading, done))?;
    Ok(std::fs::write(out.join(format!("{name}.json")), text + "\n")?)
}
