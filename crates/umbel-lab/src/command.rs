//! `umbel lab`: the command line, and what it does.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};
use umbel_env::Env;

use crate::engine::Engine;
use crate::experiment::{Experiment, engine_named, find};
use crate::experiments::ALL;
use crate::lab::Lab;
use crate::lab_error::LabError;
use crate::machine::Machine;
use crate::outcome::{Outcome, Scale};
use crate::progress::Progress;
use crate::run::{self, Manner};
use crate::user_data::UserData;
use crate::{compare, kill, report, results, space, stopped, terminal};

/// The name of the report in the folder of results.
pub const REPORT: &str = "report.html";

/// What the lab is to do.
#[derive(Debug, Clone, Subcommand)]
pub enum LabCommand {
    /// Name every experiment and what it asks
    List,
    /// Run some experiments
    Run {
        /// Their names
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
        /// How
        #[command(flatten)]
        flags: RunFlags,
    },
    /// Run every experiment
    All(RunFlags),
    /// Put two results of one experiment beside each other
    Compare {
        /// The first result file
        #[arg(value_name = "A.json")]
        first: PathBuf,
        /// The second
        #[arg(value_name = "B.json")]
        second: PathBuf,
    },
    /// Fill an event store and be killed by itself: what `existence` runs in a process of its own
    #[command(hide = true)]
    FillAndDie {
        /// The store's folder
        #[arg(value_name = "DIR")]
        folder: PathBuf,
        /// How many streams are created at least
        #[arg(value_name = "N")]
        streams: u64,
    },
    /// Write the report anew from the results in a folder
    Report {
        /// The folder
        #[arg(long, value_name = "DIR", default_value = "umbel-lab")]
        out: PathBuf,
        /// Make results of runs that were stopped, too: of the rounds in which everybody had a turn
        #[arg(long)]
        stopped: bool,
    },
}

/// How experiments are run.
#[derive(Debug, Clone, Args)]
pub struct RunFlags {
    /// How much is measured: all within minutes, or as much as the articles did
    #[arg(long, value_enum, default_value = "small")]
    scale: ScaleFlag,
    /// Who is measured, several with commas between them; `cargo xtask rivals lab` knows more
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    engine: Vec<String>,
    /// Your own keys and queries: lines of `put<tab>KEY`, `put<tab>KEY<tab>BYTES`, `get<tab>KEY`
    #[arg(long, value_name = "FILE")]
    data: Option<PathBuf>,
    /// Where results and report are written
    #[arg(long, value_name = "DIR", default_value = "umbel-lab")]
    out: PathBuf,
    /// Where stores are made, and removed again; inside of --out where nothing is said
    #[arg(long, value_name = "DIR")]
    stores: Option<PathBuf>,
    /// How often everybody is measured, in place of the experiment's own number
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,
    /// Go on with a run that was stopped
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

/// What a program gives the lab besides its flags.
pub struct Surroundings<'a> {
    /// The world.
    pub env: &'a Env,
    /// The engines that are built in, the usual one first.
    pub engines: &'a [Engine],
    /// Becomes true when somebody asks to stop.
    pub stop: &'a AtomicBool,
    /// Whether output is for a program.
    pub json: bool,
}

/// Does what was asked, and writes what is to be read to `output`.
///
/// # Errors
/// Any [`LabError`].
pub fn execute(
    command: &LabCommand,
    around: &Surroundings<'_>,
    output: &mut dyn Write,
) -> Result<(), LabError> {
    match command {
        LabCommand::List => say(output, &list(around.json)),
        LabCommand::Run { names, flags } => {
            let named = names.iter().map(|name| find(name, &ALL).map_err(LabError::Usage));
            let mut chosen: Vec<&'static Experiment> = Vec::new();
            for experiment in named.collect::<Result<Vec<_>, _>>()? {
                if chosen.iter().all(|other| other.name != experiment.name) {
                    chosen.push(experiment);
                }
            }
            run_all(&chosen, flags, around, output)
        }
        LabCommand::All(flags) => run_all(&ALL, flags, around, output),
        LabCommand::Compare { first, second } => {
            let (a, b) = (results::load(around.env, first)?, results::load(around.env, second)?);
            let rows = compare::rows(&a, &b)?;
            let text = compare::text(&a, &b, &rows);
            let json = || compare::json(&a, &rows).to_string() + "\n";
            say(output, &if around.json { json() } else { text })
        }
        LabCommand::FillAndDie { folder, streams } => {
            kill::fill_and_die(folder, *streams, around.stop, output)
        }
        LabCommand::Report { out, stopped } => {
            // A folder that is not there holds no result, and is not made for saying so.
            let _lock = out.is_dir().then(|| lock_results(around.env, out)).transpose()?;
            if *stopped {
                stopped::save_whole_rounds(around.env, out)?.iter().for_each(|line| note(line));
            }
            let left_out = write_report(around.env, out)?;
            said_report(out, around.json, output)?;
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

fn said_report(out: &Path, json: bool, output: &mut dyn Write) -> Result<(), LabError> {
    let path = out.join(REPORT);
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
                "asks": experiment.asks,
                "source": experiment.source.name,
            })
        };
        return json!({ "experiments": ALL.iter().map(one).collect::<Vec<Value>>() }).to_string()
            + "\n";
    }
    let row =
        |experiment: &&Experiment| vec![experiment.name.to_string(), experiment.asks.to_string()];
    terminal::aligned(&ALL.iter().map(row).collect::<Vec<_>>())
}

fn run_all(
    chosen: &[&'static Experiment],
    flags: &RunFlags,
    around: &Surroundings<'_>,
    output: &mut dyn Write,
) -> Result<(), LabError> {
    let env = around.env;
    let engines = engines_of(flags, around.engines)?;
    let data = flags.data.as_ref().map(|path| UserData::read(env, path).map_err(LabError::Usage));
    let data = data.transpose()?.map(Arc::new);
    // For others to read, as its files are: what the user's mask leaves of that.
    std::fs::create_dir_all(&flags.out).map_err(|error| refused(&flags.out, &error))?;
    let lock = lock_results(env, &flags.out)?;
    let _stores_lock = flags.stores.as_ref().map(|stores| lock_stores(env, stores)).transpose()?;
    let stores = run::stores_in(flags.stores.as_ref().unwrap_or(&flags.out))?;
    let lab = Lab {
        env,
        scale: flags.scale.into(),
        engines: &engines,
        stores: &stores,
        data: data.as_ref(),
    };
    let done = run_each(chosen, flags, around, &lab, output);
    // An empty folder is no harm, and nothing to stop for.
    let _ = std::fs::remove_dir_all(&stores);
    drop(lock);
    done
}

fn refused(out: &Path, error: &dyn std::fmt::Display) -> LabError {
    LabError::System(format!("could not use the folder {}: {error}", out.display()))
}

/// Results and the report of two in one folder would replace each other.
fn lock_results(env: &Env, out: &Path) -> Result<Box<dyn umbel_env::Lock>, LabError> {
    env.files.lock(&out.join("umbel-lab.lock")).map_err(|error| match error {
        umbel_base::Error::Locked(_) => LabError::System(format!(
            "another umbel lab works in {}; wait for it or name another folder with --out DIR",
            out.display()
        )),
        error => refused(out, &error),
    })
}

/// Stores of two runs in one place would delete each other.
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
    around: &Surroundings<'_>,
    lab: &Lab<'_>,
    output: &mut dyn Write,
) -> Result<(), LabError> {
    if lab.data.is_none() {
        space::check("this run", run::most(chosen, lab), lab)?;
    }
    let (engines, machine) = (run::engine_notes(lab)?, Machine::look(lab.stores));
    let manner = Manner {
        rounds: flags.rounds,
        resume: flags.resume,
        out: &flags.out,
        engines: &engines,
        machine: &machine,
        stop: around.stop,
    };
    let mut progress = Progress::new(&lab.env.clock);
    let several = chosen.len() > 1;
    let mut measured = false;
    for experiment in chosen {
        let path = results::path_of(&flags.out, experiment.name);
        if let Some(why) = left_out(experiment, lab) {
            if several {
                note(&format!("{} is left out: {why}", experiment.name));
                continue;
            }
            return Err(LabError::Usage(format!("{}: {why}", experiment.name)));
        }
        if flags.resume
            && let Ok(outcome) = load_of(lab.env, &path, experiment)
            && run::is_done(experiment, lab, &manner, &outcome)
        {
            note(&format!("measured already: {}", path.display()));
            write_report(lab.env, &flags.out)?;
            measured = true;
            continue;
        }
        let ran = run::run(experiment, lab, &manner, &mut progress);
        progress.finish();
        let done = ran?;
        results::save(lab.env, &path, &done.outcome)?;
        let outcome = done.forget()?;
        write_report(lab.env, &flags.out)?;
        measured = true;
        if !around.json {
            say(output, &(terminal::text(experiment, &outcome) + "\n"))?;
        }
    }
    if !measured {
        return Err(LabError::Usage("nothing is left to measure".to_string()));
    }
    said_report(&flags.out, around.json, output)
}

/// A line for people. Nobody listening there is no reason to stop.
fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Why an experiment does not take part in this run.
fn left_out(experiment: &Experiment, lab: &Lab<'_>) -> Option<String> {
    if lab.data.is_some() && !experiment.how.takes_data {
        return Some("it makes its own keys, so that --data says nothing to it".to_string());
    }
    if lab.engines.len() > 1 && !experiment.how.several_engines {
        return Some("it measures one engine at a time; name one with --engine".to_string());
    }
    lab.engines.iter().find_map(|engine| {
        let why = (experiment.how.wants)(&engine.tunes)?;
        Some(format!("{} {why}; leave --engine out to measure umbel", engine.name))
    })
}

fn engines_of(flags: &RunFlags, built_in: &[Engine]) -> Result<Vec<Engine>, LabError> {
    if flags.engine.is_empty() {
        return Ok(built_in.iter().take(1).copied().collect());
    }
    if flags.engine == ["all"] {
        return Ok(built_in.iter().filter(|engine| engine.missing.is_none()).copied().collect());
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

/// Writes the report of every result in a folder, in the order of the list, but of those that
/// cannot be believed: it says so on standard error, and returns the first reason.
fn write_report(env: &Env, out: &Path) -> Result<Option<LabError>, LabError> {
    let mut all: Vec<(&Experiment, Outcome)> = Vec::new();
    let mut left_out = None;
    for experiment in ALL {
        let path = results::path_of(out, experiment.name);
        if env.files.exists(&path).map_err(|error| LabError::System(error.to_string()))? {
            match load_of(env, &path, experiment) {
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
    results::write_whole(env, &out.join(REPORT), report::page(&all).as_bytes())?;
    Ok(left_out)
}

/// The result of an experiment in the file that has its name.
fn load_of(env: &Env, path: &Path, experiment: &Experiment) -> Result<Outcome, LabError> {
    let outcome = results::load(env, path)?;
    if outcome.experiment != experiment.name {
        return Err(LabError::Usage(format!(
            "{} is a result of `{}`; a result has the name of its experiment",
            path.display(),
            outcome.experiment
        )));
    }
    Ok(outcome)
}
