//! Soaks the server: every kind of client call, at a rate that a small disk holds, for minutes or
//! hours. During the soak, the server's memory, descriptors and answers are checked.

mod admin_workers;
mod append_workers;
mod consumer_groups;
mod group_consumer;
mod long_subscriptions;
mod read_workers;
mod soak_context;
mod soak_event;
mod soak_oracle;
mod spawn_workers;
mod writer_order_check;

pub mod call_times;
pub mod process_stats;
pub mod resource_check;
pub mod restart_check;
pub mod soak_plan;
pub mod soak_report;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use umbel_lab::engine::Result;

use crate::serving::server_process::ServerProcess;
use crate::serving::serving_arguments::ServingArguments;
use crate::serving::soak::call_times::CallWindow;
use crate::serving::soak::consumer_groups::LastingGroups;
use crate::serving::soak::long_subscriptions::LongSubscriptions;
use crate::serving::soak::process_stats::{ProcessStats, folder_bytes, index_bytes};
use crate::serving::soak::resource_check::{PARTS, ProcessSample, ResourceCheck, check_resources};
use crate::serving::soak::restart_check::{RestartResult, verify};
use crate::serving::soak::soak_context::{SoakContext, SoakPhase};
use crate::serving::soak::soak_plan::{SoakWork, estimate};
use umbel_testing::server_connection::Connection;

/// Memory budget of the server: small, so that the index has filled it before the second sixth.
/// With 256 MiB, the index's cache was still filling at the end of an hour.
const MEMORY_BUDGET: &str = "64MiB";
/// Interval between two samples of the server.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(10);
/// Time in which subscribers and consumers must receive all events.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(60);
/// Time in which the server must stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);
/// Time for which appends continue before the server is stopped.
const STOPPED_UNDER_LOAD: Duration = Duration::from_millis(500);

/// Result of the soak.
#[derive(Debug, Default)]
pub struct SoakOutcome {
    /// Duration in minutes.
    pub minutes: u64,
    /// Events a second.
    pub rate: u64,
    /// Memory budget of the server.
    pub memory: &'static str,
    /// Samples of the server's resources, every ten seconds.
    pub samples: Vec<ProcessSample>,
    /// Times of calls, in each sixth.
    pub windows: Vec<BTreeMap<SoakWork, CallWindow>>,
    /// Checks of the samples.
    pub checks: Vec<ResourceCheck>,
    /// Number of acknowledged events.
    pub acknowledged: u64,
    /// Events that the server has after the restart.
    pub found: RestartResult,
    /// Number of events that groups sent, and number of distinct events.
    pub groups_sent: (u64, u64),
    /// Seconds that the server took to stop.
    pub stopped_in: f64,
    /// Exit status of the server.
    pub ended_with: String,
    /// Seconds until the restarted server listened.
    pub started_in: f64,
    /// Numbers of errors and warnings in the server's log.
    pub log: (u64, u64),
    /// Number of errors that the soak found, and the first of these errors.
    pub wrong: (u64, Vec<String>),
}

impl SoakOutcome {
    /// Whether the server passed all checks.
    pub fn passed(&self) -> bool {
        let holds = self.checks.iter().all(|check| check.holds);
        holds && self.wrong.0 == 0 && self.log.0 == 0 && self.found.events > 0
    }
}

/// Soaks the server for the given minutes; `say` gets the progress.
///
/// # Errors
/// The server does not start, or the system does not report on processes. Errors in answers are
/// part of the outcome.
pub fn run(
    arguments: &ServingArguments,
    minutes: u64,
    say: &mut dyn FnMut(&str),
) -> Result<SoakOutcome> {
    let (events, bytes) = estimate(arguments.rate, minutes);
    let gigabytes = bytes as f64 / 1e9;
    say(&format!("{minutes} min: about {events} events and {gigabytes:.1} GB of disk"));
    let folder =
        TemporaryDirectory(arguments.dir.join(format!("umbel-soak-{}", std::process::id())));
    let flags = ["--durability", "buffered", "--memory", MEMORY_BUDGET];
    let serve = || ServerProcess::serve(&arguments.umbel, &folder.0, &flags);
    let mut running = serve()?;
    let runtime = tokio::runtime::Runtime::new()?;
    let context = Arc::new(SoakContext::new(running.address, arguments.rate));
    let mut outcome = SoakOutcome {
        minutes,
        rate: arguments.rate,
        memory: MEMORY_BUDGET,
        ..SoakOutcome::default()
    };
    let time = Duration::from_secs(minutes * 60);
    let stays = runtime.block_on(work(&context, &running, &folder.0, time, &mut outcome, say))?;
    say("stopping the server while appends are in flight");
    context.set_phase(SoakPhase::Ended);
    let (status, stopped_in) = running.terminate(STOP_TIMEOUT)?;
    context.set_phase(SoakPhase::Stopped);
    if !status.success() {
        context.oracle.wrong(format!("the server ended with {status}"));
    }
    (outcome.ended_with, outcome.stopped_in) = (status.to_string(), stopped_in.as_secs_f64());
    let since = Instant::now();
    let again = serve()?;
    outcome.started_in = since.elapsed().as_secs_f64();
    say("the server runs again; reading everything");
    let found = runtime.block_on(async {
        let connection = Connection::to(again.address).await?;
        verify(&context, &connection, &stays).await
    });
    match found {
        Ok(found) => outcome.found = found,
        Err(text) => context.oracle.wrong(format!("after the restart: {text}")),
    }
    let log = std::fs::read_to_string(folder.0.join("log"))?;
    outcome.log = (lines_of(&log, "ERROR"), lines_of(&log, "WARN"));
    outcome.acknowledged = context.oracle.events();
    outcome.wrong = context.oracle.all_wrong();
    outcome.checks = check_resources(&outcome.samples);
    Ok(outcome)
}

/// Folder that is removed on drop.
struct TemporaryDirectory(PathBuf);

impl Drop for TemporaryDirectory {
    fn drop(&mut self) {
        // An error here would hide the error that led here.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Counts the lines of a log with this level, and prints the first ones.
fn lines_of(log: &str, level: &str) -> u64 {
    let lines = || log.lines().filter(|line| line.split_whitespace().any(|word| word == level));
    lines().take(5).for_each(|line| eprintln!("{line}"));
    lines().count() as u64
}

/// Runs all workers for a time, then waits for subscribers and groups. Returns the names of the
/// long-lived groups.
async fn work(
    context: &Arc<SoakContext>,
    running: &ServerProcess,
    folder: &Path,
    time: Duration,
    outcome: &mut SoakOutcome,
    say: &mut dyn FnMut(&str),
) -> Result<Vec<String>> {
    let followers = LongSubscriptions::begin(context).await?;
    let groups = LastingGroups::begin(context).await?;
    let mut workers = spawn_workers::begin(context).await?;
    let began = Instant::now();
    let ticks = (time.as_secs() / SAMPLE_INTERVAL.as_secs()).max(1);
    for tick in 1..=ticks {
        tokio::time::sleep_until((began + SAMPLE_INTERVAL.mul_f64(tick as f64)).into()).await;
        let stats =
            ProcessStats::of(running.id()).ok_or("the system does not report on processes")?;
        let (seconds, events) = (began.elapsed().as_secs_f64(), context.oracle.events());
        let index = index_bytes(running.address).unwrap_or_default();
        let sample = ProcessSample { seconds, events, disk: folder_bytes(folder), index, stats };
        outcome.samples.push(sample);
        if tick % 6 == 0 {
            say(&line(&sample, context.oracle.all_wrong().0));
        }
        // The windows are those of the samples.
        if tick * PARTS as u64 / ticks > outcome.windows.len() as u64 {
            outcome.windows.push(context.times.take());
        }
        if context.has_too_many_errors() {
            say("too many errors; ending the soak early");
            break;
        }
    }
    context.set_phase(SoakPhase::Stopping);
    // Writers to new streams continue.
    for _ in soak_plan::APPENDERS..workers.len() {
        let _ = tokio::time::timeout(CATCH_UP_TIMEOUT, workers.join_next()).await;
    }
    say("waiting until subscribers and groups have all events");
    for waited in [
        followers.catch_up(context, CATCH_UP_TIMEOUT).await,
        groups.finish(context, CATCH_UP_TIMEOUT).await,
    ] {
        waited.unwrap_or_else(|text| context.oracle.wrong(text));
    }
    outcome.groups_sent = groups.sent();
    workers.detach_all();
    tokio::time::sleep(STOPPED_UNDER_LOAD).await;
    Ok(groups.names())
}

fn line(sample: &ProcessSample, wrong: u64) -> String {
    let ProcessSample { seconds, events, disk, index, stats } = sample;
    format!(
        "{:.0} min: {events} events, {} MiB of disk, memory {} MiB, the index's {}, and {} of \
         files, {} sockets, {} files, {} threads, {wrong} wrong",
        seconds / 60.0,
        disk >> 20,
        stats.anonymous >> 20,
        index >> 20,
        stats.of_files >> 20,
        stats.sockets,
        stats.files,
        stats.threads,
    )
}
