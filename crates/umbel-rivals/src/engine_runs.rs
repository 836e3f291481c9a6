//! Runs of workloads on engines, one after the other, and their report as a page of Markdown.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use umbel_lab::engine::{Engine, Result};
use umbel_lab::measure::machine::Machine;

use crate::engines;

/// Options of a command that compares engines.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct EngineRunArguments {
    /// Engines, as of `umbel-rivals`
    #[arg(
        long,
        value_name = "A,B",
        value_delimiter = ',',
        default_value = "umbel,lmdb,rocksdb,leveldb,fjall"
    )]
    pub engines: Vec<String>,
    /// Directory in which the stores are made
    #[arg(long, value_name = "DIR")]
    pub stores: Option<PathBuf>,
    /// Directory of the report NAME-DATE.md
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// Runs `compare` in a new directory, which is removed at the end, and prints the page. With an
/// output directory, writes the page to NAME-DATE.md there. Prints an error.
pub fn print_report(
    name: &str,
    arguments: &EngineRunArguments,
    compare: impl FnOnce(&Path, &Machine) -> Result<String>,
) -> ExitCode {
    let stores = arguments.stores.clone().unwrap_or_else(std::env::temp_dir);
    let stores = stores.join(format!("umbel-{name}-{}", std::process::id()));
    match write_report(name, &stores, arguments.out.as_deref(), compare) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn write_report(
    name: &str,
    stores: &Path,
    out: Option<&Path>,
    compare: impl FnOnce(&Path, &Machine) -> Result<String>,
) -> Result<()> {
    std::fs::create_dir_all(stores)?;
    let machine = Machine::detect(stores);
    let page = compare(stores, &machine);
    std::fs::remove_dir_all(stores)?;
    let page = page?;
    println!("{page}");
    let Some(out) = out else { return Ok(()) };
    std::fs::create_dir_all(out)?;
    Ok(std::fs::write(out.join(format!("{name}-{}.md", machine.date)), page)?)
}

/// Names of engines and of parts of workloads' names, as the command line has them.
#[derive(Debug, Clone, Copy)]
pub struct RunSelection<'a> {
    /// Engines.
    pub engines: &'a [String],
    /// Parts of which a workload's name contains one; all workloads run if there are none.
    pub name_parts: &'a [String],
}

/// Calls `run_one` for each selected workload with each engine, in a directory of its own below
/// `stores`. Says on standard error what runs.
///
/// # Errors
/// Unknown engines, and the errors of `run_one`.
pub fn run_each<W, R>(
    selection: RunSelection<'_>,
    workloads: impl IntoIterator<Item = (&'static str, W)>,
    stores: &Path,
    run_one: impl Fn(&W, &Engine, &Path) -> Result<R>,
) -> Result<Vec<R>> {
    let engines = engines::find_engines(selection.engines)?;
    let parts = selection.name_parts;
    let mut rows = Vec::new();
    for (name, workload) in workloads {
        if !parts.is_empty() && !parts.iter().any(|part| name.contains(part.as_str())) {
            continue;
        }
        for engine in &engines {
            eprintln!("{name}, {}", engine.name);
            let folder: PathBuf = stores.join(format!("{name}-{}", engine.name));
            rows.push(run_one(&workload, engine, &folder)?);
            std::fs::remove_dir_all(&folder).ok();
        }
    }
    Ok(rows)
}

/// Returns the first lines of a page: a title, and the machine.
pub fn heading(title: &str, machine: &Machine) -> String {
    format!(
        "# {title}, {}\n\n{}, {} threads, {}, {}, commit {}. Buffered writes.\n\n",
        machine.date,
        machine.processor,
        machine.threads,
        machine.kernel,
        machine.file_system,
        machine.commit,
    )
}
