//! The command line of `umbel lab`, and the execution of its commands.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};
use umbel_env::Env;

use crate::engine::Engine;
use crate::experiment::lab_context::LabContext;
use crate::experiment::{Experiment, engine_named, find};
use crate::experiments::ALL;
use crate::experiments::killed_process;
use crate::lab_error::LabError;
use crate::measure::machine::Machine;
use crate::report::{compare_results, html, terminal_table};
use crate::results::outcome::{Outcome, Scale};
use crate::results::result_file;
use crate::runner::progress::Progress;
use crate::runner::run_experiment::{self, RunOptions};
use crate::runner::{free_space, partial_results};
use crate::workload::data_file::UserData;

/// Name of the report in the directory of results.
pub const REPORT_FILE: &str = "report.html";

/// Subcommand of the lab.
#[derive(Debug, Clone, Subcommand)]
pub enum LabCommand {
    /// List every experiment and its question
    List,
    /// Run some experiments
    Run {
        /// Names of the experiments
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
        /// Options of the run
        #[command(flatten)]
        flags: RunFlags,
    },
    /// Run every experiment
    All(RunFlags),
    /// Compare two results of one experiment
    Compare {
        /// The first result file
        #[arg(value_name = "A.json")]
        first: PathBuf,
        /// The second result file
        #[arg(value_name = "B.json")]
        second: PathBuf,
    },
    /// Fill an event store and kill this process; the experiment `existence` runs this command as a
    /// child process
    #[command(hide = true)]
    FillAndDie {
        /// Directory of the store
        #[arg(value_name = "DIR")]
        folder: PathBuf,
        /// Minimum number of streams to create
        #[arg(value_name = "N")]
        streams: u64,
    },
    /// Write the report from existing results in a directory
    Report {
        /// Directory of the results, in which the command also writes the report
        #[arg(long, value_name = "DIR", default_value = "umbel-lab")]
        out: PathBuf,
        /// Also make results of stopped runs, from the rounds in which every subject was measured
        #[arg(long)]
        stopped: bool,
    },
}

/// Options of a run.
#[derive(Debug, Clone, Args)]
pub struct RunFlags {
    /// Amount of work: `small` runs all experiments within minutes, `full` does as much work as the
    /// articles
    #[arg(long, value_enum, default_value = "small")]
    scale: ScaleFlag,
    /// Engines to measure, separated by commas; `cargo xtask rivals lab` has more engines
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    engine: Vec<String>,
    /// Your own keys and queries: lines of `put<tab>KEY`, `put<tab>KEY<tab>BYTES`, `get<tab>KEY`
    #[arg(long, value_name = "FILE")]
    data: Option<PathBuf>,
    /// Directory for results and report
    #[arg(long, value_name = "DIR", default_value = "umbel-lab")]
    out: PathBuf,
    /// Directory for temporary stores; inside --out by default
    #[arg(long, value_name = "DIR")]
    stores: Option<PathBuf>,
    /// Number of rounds, in place of the experiment's own number
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,
    /// Resume a stopped run from its finished repetitions
    #[arg(long)]
    resume: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ScaleFlag {
    Small,
    Full,
}

impl From<ScaleFlag> for Scale {
    fn from(flag: ScaleFlag) -> Scale {
        match flag {
            ScaleFlag::Small => Scale::Small,
            ScaleFlag::Full => Scale::Full,
        }
    }
}

/// Environment that a program gives the lab.
pub struct LabEnvironment<'a> {
    /// The environment: file system, clocks and threads.
    pub env: &'a Env,
    /// The built-in engines, the default first.
    pub engines: &'a [Engine],
    /// Becomes true when the operator stops the run.
    pub stop: &'a AtomicBool,
    /// Whether the output is JSON.
    pub json: bool,
    /// Whether other work of the program may run beside measurements, as in its tests. Then no
    /// share of a processor flags a measurement.
    pub shares_processors: bool,
}

/// Executes a command and writes its result to `output`.
///
/// # Errors
/// Any [`LabError`].
pub fn execute(
    command: &LabCommand,
    environment: &LabEnvironment<'_>,
    output: &mut dyn Write,
) -> Result<(), LabError> {
    match command {
        LabCommand::List => say(output, &list(environment.json)),
        LabCommand::Run { names, flags } => {
            let named = names.iter().map(|name| find(name, &ALL).map_err(LabError::Usage));
            let mut chosen: Vec<&'static Experiment> = Vec::new();
            for experiment in named.collect::<Result<Vec<_>, _>>()? {
                if chosen.iter().all(|other| other.name != experiment.name) {
                    chosen.push(experiment);
                }
            }
            run_all(&chosen, flags, environment, output)
        }
        LabCommand::All(flags) => run_all(&ALL, flags, environment, output),
        LabCommand::Compare { first, second } => {
            let (a, b) = (
                result_file::load(environment.env, first)?,
                result_file::load(environment.env, second)?,
            );
            let rows = compare_results::figure_diffs(&a, &b)?;
            let text = compare_results::text(&a, &b, &rows);
            let json = || compare_results::json(&a, &rows).to_string() + "\n";
            say(output, &if environment.json { json() } else { text })
        }
        LabCommand::FillAndDie { folder, streams } => {
            killed_process::fill_and_die(folder, *streams, environment.stop, output)
        }
        LabCommand::Report { out, stopped } => {
            // A missing directory holds no result, and the report does not create it.
            let _lock = out.is_dir().then(|| lock_results(environment.env, out)).transpose()?;
            if *stopped {
                partial_results::save_whole_rounds(environment.env, out)?
                    .iter()
                    .for_each(|line| note(line));
            }
            let left_out = write_report(environment.env, out)?;
            write_and_print_report(out, environment.json, output)?;
            left_out.map_or(Ok(()), Err)
        }
    }
}

fn say(output: &mut dyn Write, text: &str) -> Result<(), LabError> {
    let written = output.write_all(text.as_bytes()).and_then(|()| output.flush());
    match written {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(LabError::System(format!("could not write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}

fn write_and_print_report(out: &Path, json: bool, output: &mut dyn Write) -> Result<(), LabError> {
    let path = out.join(REPORT_FILE);
    let text = if json {
        json!({ "report": path }).to_string() + "\n"
    } else {
        format!("The report is {}\n", path.display())
    };
    say(output, &text)
}

fn list(json: bool) -> String {
    if json {
        let one = |experiment: &&Experiment| {
            json!({
                "name": experiment.name,
                "asks": experiment.question,
                "source": experiment.source.name,
            })
        };
        return json!({ "experiments": ALL.iter().map(one).collect::<Vec<Value>>() }).to_string()
            + "\n";
    }
    let row = |experiment: &&Experiment| {
        vec![experiment.name.to_string(), experiment.question.to_string()]
    };
    terminal_table::align_columns(&ALL.iter().map(row).collect::<Vec<_>>())
}

fn run_all(
    chosen: &[&'static Experiment],
    flags: &RunFlags,
    environment: &LabEnvironment<'_>,
    output: &mut dyn Write,
) -> Result<(), LabError> {
    let env = environment.env;
    let engines = chosen_engines(flags, environment.engines)?;
    let data = flags.data.as_ref().map(|path| UserData::read(env, path).map_err(LabError::Usage));
    let data = data.transpose()?.map(Arc::new);
    // Readable by others as the umask allows, like its files.
    std::fs::create_dir_all(&flags.out).map_err(|error| lock_error(&flags.out, &error))?;
    let lock = lock_results(env, &flags.out)?;
    let _stores_lock = flags.stores.as_ref().map(|stores| lock_stores(env, stores)).transpose()?;
    let stores = run_experiment::stores_in(flags.stores.as_ref().unwrap_or(&flags.out))?;
    let lab = LabContext {
        env,
        scale: flags.scale.into(),
        engines: &engines,
        stores: &stores,
        data: data.as_ref(),
        shares_processors: environment.shares_processors,
    };
    let done = run_each(chosen, flags, environment, &lab, output);
    // A leftover empty directory is harmless.
    let _ = std::fs::remove_dir_all(&stores);
    drop(lock);
    done
}

fn lock_error(out: &Path, error: &dyn std::fmt::Display) -> LabError {
    LabError::System(format!("could not use the directory {}: {error}", out.display()))
}

/// Locks the directory of results, since two runs in one directory would replace each other's
/// results and reports.
fn lock_results(env: &Env, out: &Path) -> Result<Box<dyn umbel_env::Lock>, LabError> {
    env.files.lock(&out.join("umbel-lab.lock")).map_err(|error| match error {
        umbel_base::Error::Locked(_) => LabError::System(format!(
            "another umbel lab works in {}; wait for it or name another directory with --out DIR",
            out.display()
        )),
        error => lock_error(out, &error),
    })
}

/// Locks the directory of stores, since two runs in one directory would delete each other's stores.
fn lock_stores(env: &Env, stores: &Path) -> Result<Box<dyn umbel_env::Lock>, LabError> {
    let made = env.files.create_dir_all(stores);
    made.and_then(|()| env.files.lock(&stores.join("umbel-lab-stores.lock"))).map_err(|error| {
        LabError::System(format!(
            "could not make stores in {}, where another umbel lab may work: {error}",
            stores.display()
        ))
    })
}

fn run_each(
    chosen: &[&'static Experiment],
    flags: &RunFlags,
    environment: &LabEnvironment<'_>,
    lab: &LabContext<'_>,
    output: &mut dyn Write,
) -> Result<(), LabError> {
    if lab.data.is_none() {
        free_space::check("this run", run_experiment::resource_peak(chosen, lab), lab)?;
    }
    let (engines, machine) = (run_experiment::engine_notes(lab)?, Machine::detect(lab.stores));
    let options = RunOptions {
        rounds: flags.rounds,
        resume: flags.resume,
        out: &flags.out,
        engines: &engines,
        machine: &machine,
        stop: environment.stop,
    };
    let mut progress = Progress::new(&lab.env.clock);
    let several = chosen.len() > 1;
    let mut measured = false;
    for experiment in chosen {
        let path = result_file::path_of(&flags.out, experiment.name);
        if let Some(why) = skip_reason(experiment, lab) {
            if several {
                note(&format!("{} is left out: {why}", experiment.name));
                continue;
            }
            return Err(LabError::Usage(format!("{}: {why}", experiment.name)));
        }
        if flags.resume
            && let Ok(outcome) = load_result(lab.env, &path, experiment)
            && run_experiment::is_done(experiment, lab, &options, &outcome)
        {
            note(&format!("measured already: {}", path.display()));
            write_report(lab.env, &flags.out)?;
            measured = true;
            continue;
        }
        let ran = run_experiment::run(experiment, lab, &options, &mut progress);
        progress.finish();
        let done = ran?;
        result_file::save(lab.env, &path, &done.outcome)?;
        let outcome = done.remove_journal()?;
        write_report(lab.env, &flags.out)?;
        measured = true;
        if !environment.json {
            say(output, &(terminal_table::text(experiment, &outcome) + "\n"))?;
        }
    }
    if !measured {
        return Err(LabError::Usage("nothing is left to measure".to_string()));
    }
    write_and_print_report(&flags.out, environment.json, output)
}

/// Writes a line to standard error for the operator. A closed standard error does not stop the run.
fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Returns the reason why an experiment does not take part in this run.
fn skip_reason(experiment: &Experiment, lab: &LabContext<'_>) -> Option<String> {
    if lab.data.is_some() && !experiment.options.takes_data {
        return Some("it makes its own keys, so that --data says nothing to it".to_string());
    }
    if lab.engines.len() > 1 && !experiment.options.several_engines {
        return Some("it measures one engine at a time; name one with --engine".to_string());
    }
    lab.engines.iter().find_map(|engine| {
        let why = (experiment.options.unsupported)(&engine.tunes)?;
        Some(format!("{} {why}; leave --engine out to measure umbel", engine.name))
    })
}

fn chosen_engines(flags: &RunFlags, built_in: &[Engine]) -> Result<Vec<Engine>, LabError> {
    if flags.engine.is_empty() {
        return Ok(built_in.iter().take(1).copied().collect());
    }
    if flags.engine == ["all"] {
        return Ok(built_in
            .iter()
            .filter(|engine| engine.missing_reason.is_none())
            .copied()
            .collect());
    }
    let mut engines: Vec<Engine> = Vec::new();
    for name in &flags.engine {
        let engine = engine_named(name, built_in).map_err(LabError::Usage)?;
        if engines.iter().all(|other| other.name != engine.name) {
            engines.push(engine);
        }
    }
    Ok(engines)
}

/// Writes the report of every result in a folder, in the order of the experiments. A damaged or
/// wrong result is left out and named on standard error; the function returns the first such error.
fn write_report(env: &Env, out: &Path) -> Result<Option<LabError>, LabError> {
    let mut all: Vec<(&Experiment, Outcome)> = Vec::new();
    let mut left_out = None;
    for experiment in ALL {
        let path = result_file::path_of(out, experiment.name);
        if env.files.exists(&path).map_err(|error| LabError::System(error.to_string()))? {
            match load_result(env, &path, experiment) {
                Ok(outcome) => all.push((experiment, outcome)),
                Err(error) => {
                    note(&format!("left out of the report: {error}"));
                    left_out = left_out.or(Some(error));
                }
            }
        }
    }
    if all.is_empty() {
        return Err(left_out.unwrap_or_else(|| {
            LabError::Usage(format!(
                "there is no result in {}; `umbel lab run` makes some",
                out.display()
            ))
        }));
    }
    let all: Vec<(&Experiment, &Outcome)> =
        all.iter().map(|(experiment, outcome)| (*experiment, outcome)).collect();
    result_file::write_whole(env, &out.join(REPORT_FILE), html::page(&all).as_bytes())?;
    Ok(left_out)
}

/// Loads the result of an experiment from the file with its name.
fn load_result(env: &Env, path: &Path, experiment: &Experiment) -> Result<Outcome, LabError> {
    let outcome = result_file::load(env, path)?;
    if outcome.experiment != experiment.name {
        return Err(LabError::Usage(format!(
            "{} is a result of `{}`; a result has the name of its experiment",
            path.display(),
            outcome.experiment
        )));
    }
    Ok(outcome)
}
