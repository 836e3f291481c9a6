//! Measures the recovery point of `umbel serve --backup-to`: how much is lost with the disk.
//!
//! ```text
//! disk_losses --umbel PROGRAM --directory DIR [--to URL] [--tries N] [--report FILE]
//! ```
//!
//! In each try, writers append to a server that backs up continuously. The server is killed at a
//! random moment and its disk is lost. The store is restored, whole and to a random time, and
//! compared with every acknowledged event.
#![forbid(unsafe_code)]
#![expect(clippy::disallowed_methods, reason = "measures other processes by the system's clock")]

mod backed_up_server;
mod lost_events;
mod numbered_writers;
mod recovery_report;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use clap::Parser;
use umbel_lab::measure::machine::Machine;

use crate::backed_up_server::BackedUpServer;
use crate::lost_events::LostEvents;
use crate::numbered_writers::NumberedWriters;
use crate::recovery_report::{RecoveryReport, Try};

/// The recovery point of continuous backups.
#[derive(Debug, Parser)]
#[command(name = "disk_losses", version)]
struct Arguments {
    /// The program `umbel`
    #[arg(long)]
    umbel: PathBuf,
    /// Folder of the stores
    #[arg(long)]
    directory: PathBuf,
    /// Object store; each try has a prefix of its own. By default a directory beside the stores
    #[arg(long)]
    to: Option<String>,
    /// Seconds between two runs of the backup
    #[arg(long, default_value_t = 10)]
    interval: u64,
    /// Seconds that one run of the backup can take, which may be lost as well
    #[arg(long, default_value_t = 2)]
    upload: u64,
    /// Number of lost disks
    #[arg(long, default_value_t = 50)]
    tries: u64,
    /// Number of writers, which append one event after the other
    #[arg(long, default_value_t = 4)]
    writers: usize,
    /// Seed of the moments
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// File to which the Markdown report is written
    #[arg(long)]
    report: Option<PathBuf>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(report) => {
            let text = report.markdown();
            println!("{text}");
            let written = arguments.report.as_ref().map(|path| std::fs::write(path, text));
            if let Some(Err(error)) = written {
                return fail(&error.to_string());
            }
            match report.is_good() {
                true => ExitCode::SUCCESS,
                false => fail("more was lost than the interval and one upload"),
            }
        }
        Err(error) => fail(&error),
    }
}

fn fail(error: &str) -> ExitCode {
    eprintln!("disk_losses: {error}");
    ExitCode::FAILURE
}

fn run(arguments: &Arguments) -> Result<RecoveryReport, String> {
    let mut report = RecoveryReport {
        interval: Duration::from_secs(arguments.interval),
        upload: Duration::from_secs(arguments.upload),
        machine: Machine::detect(&arguments.directory),
        writers: arguments.writers,
        tries: Vec::new(),
    };
    let mut random = umbel_sim::Random::new(arguments.seed);
    for number in 0..arguments.tries {
        let interval = arguments.interval * 1000;
        // From the middle of the first interval on, and anywhere within one.
        let time = Duration::from_millis(interval / 2 + random.below(interval * 2));
        let done = lose_disk(arguments, number, time, random.below(1000))?;
        eprintln!("try {number}: {}", done.line());
        report.tries.push(done);
    }
    Ok(report)
}

/// Writes for this time, loses the disk, and restores. `share` is the place of the time to which
/// the second restore goes, in thousandths of the restored events.
fn lose_disk(
    arguments: &Arguments,
    number: u64,
    time: Duration,
    share: u64,
) -> Result<Try, String> {
    let folder = arguments.directory.join("try");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    let to = match &arguments.to {
        Some(url) => format!("{url}/{number}"),
        None => format!("file://{}/objects", folder.display()),
    };
    if arguments.to.is_none() {
        std::fs::create_dir(folder.join("objects")).map_err(|error| error.to_string())?;
    }
    let server = BackedUpServer::start(&arguments.umbel, &folder, &to, arguments.interval)?;
    let writers = NumberedWriters::start(server.address, arguments.writers)?;
    std::thread::sleep(time);
    let killed = server.kill()?;
    let acknowledged = writers.join()?;
    std::fs::remove_dir_all(folder.join("db")).map_err(|error| error.to_string())?;
    let begun = Instant::now();
    let whole = folder.join("whole");
    restore(&arguments.umbel, &to, &whole, None)?;
    let restore_time = begun.elapsed();
    let events = lost_events::read_store(&whole)?;
    let lost = LostEvents::compare(&acknowledged, &events, killed)?;
    let cut = events.get(events.len() * share as usize / 1000).map(|event| event.created);
    if let Some(cut) = cut {
        let part = folder.join("part");
        restore(&arguments.umbel, &to, &part, Some(cut))?;
        let found = lost_events::read_store(&part)?;
        let expected = events.iter().take_while(|event| event.created <= cut).count();
        if found != events[..expected] {
            return Err(format!(
                "a restore to the time {cut} has {} events instead of {expected}",
                found.len()
            ));
        }
    }
    Ok(Try { time, acknowledged: acknowledged.len(), lost, restore_time })
}

/// Restores into a folder, everything or up to a time in units of 100 ns since 1970.
fn restore(umbel: &Path, from: &str, folder: &Path, to_time: Option<u64>) -> Result<(), String> {
    let mut command = Command::new(umbel);
    command.args(["restore", "--from", from, "--db"]).arg(folder);
    if let Some(ticks) = to_time {
        command.args(["--to-time", &lost_events::rfc3339(ticks)]);
    }
    let output = command.output().map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("restore: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}
