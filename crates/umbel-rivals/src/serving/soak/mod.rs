//! The soak: everything that clients do, at a rate that a small disk holds, for minutes or hours,
//! while the server's memory, descriptors and answers are looked at.

mod appends;
mod changes;
mod consumer;
mod events;
mod followers;
mod ground;
mod groups;
mod ledger;
mod order;
pub mod plan;
mod reads;
pub mod report;
pub mod times;
pub mod verdict;
pub mod verify;
pub mod watch;
mod workers;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use umbel_lab::engine::Result;

use self::followers::Followers;
use self::ground::{Ground, Phase};
use self::groups::Groups;
use self::plan::{Kind, estimate};
use self::times::Window;
use self::verdict::{Check, PARTS, Sample, judge};
use self::verify::{Found, verify};
use self::watch::{Vitals, folder_bytes, index_bytes};
use super::arguments::Arguments;
use super::connection::Connection;
use super::process::Running;

/// The server's budget: small, so that the index has filled it before the second sixth. With
/// 256 MiB it went on filling its cache until the end of an hour.
const MEMORY: &str = "64MiB";
/// How often the server is looked at.
const LOOKS: Duration = Duration::from_secs(10);
/// How long subscribers and consumers may take to get what was appended,
const CATCHING_UP: Duration = Duration::from_secs(60);
/// the server to stop,
const STOPPING: Duration = Duration::from_secs(60);
/// and appends to go on before it is told to.
const STOPPED_UNDER_LOAD: Duration = Duration::from_millis(500);

/// What the soak came to.
#[derive(Debug, Default)]
pub struct Outcome {
    /// How long it took.
    pub minutes: u64,
    /// Events a second.
    pub rate: u64,
    /// The server's budget.
    pub memory: &'static str,
    /// What the server held, every ten seconds.
    pub samples: Vec<Sample>,
    /// How long calls took, in each sixth.
    pub windows: Vec<BTreeMap<Kind, Window>>,
    /// What must hold of the samples.
    pub checks: Vec<Check>,
    /// Events that were acknowledged.
    pub acknowledged: u64,
    /// What was there after the restart.
    pub found: Found,
    /// Events that groups sent, and how many different ones those were.
    pub groups_sent: (u64, u64),
    /// Seconds that the server took to stop.
    pub stopped_in: f64,
    /// How it ended.
    pub ended_with: String,
    /// Seconds until the one after it listened.
    pub started_in: f64,
    /// Errors and warnings in its log.
    pub log: (u64, u64),
    /// How often something was wrong, and the first sentences about it.
    pub wrong: (u64, Vec<String>),
}

impl Outcome {
    /// Whether everything holds.
    pub fn passed(&self) -> bool {
        let holds = self.checks.iter().all(|check| check.holds);
        holds && self.wrong.0 == 0 && self.log.0 == 0 && self.found.events > 0
    }
}

/// Soaks the server for so many minutes; `say` hears how far it is.
///
/// # Errors
/// The server does not start, or the system tells nothing of processes. What is wrong with answers
/// is in the outcome.
pub fn run(arguments: &Arguments, minutes: u64, say: &mut dyn FnMut(&str)) -> Result<Outcome> {
    let (events, bytes) = estimate(arguments.rate, minutes);
    let gigabytes = bytes as f64 / 1e9;
    say(&format!("{minutes} min: about {events} events and {gigabytes:.1} GB of disk"));
    let folder = Folder(arguments.dir.join(format!("umbel-soak-{}", std::process::id())));
    let serve = || Running::serve(&arguments.umbel, &folder.0, &["--memory", MEMORY]);
    let mut running = serve()?;
    let runtime = tokio::runtime::Runtime::new()?;
    let ground = Arc::new(Ground::new(running.address, arguments.rate));
    let mut outcome =
        Outcome { minutes, rate: arguments.rate, memory: MEMORY, ..Outcome::default() };
    let time = Duration::from_secs(minutes * 60);
    let stays = runtime.block_on(work(&ground, &running, &folder.0, time, &mut outcome, say))?;
    say("stopping the server while appends are under way");
    ground.enter(Phase::Ended);
    let (status, stopped_in) = running.terminate(STOPPING)?;
    ground.enter(Phase::Gone);
    if !status.success() {
        ground.ledger.wrong(format!("the server ended with {status}"));
    }
    (outcome.ended_with, outcome.stopped_in) = (status.to_string(), stopped_in.as_secs_f64());
    let since = Instant::now();
    let again = serve()?;
    outcome.started_in = since.elapsed().as_secs_f64();
    say("the server runs again; reading everything");
    let found = runtime.block_on(async {
        let connection = Connection::to(again.address).await?;
        verify(&ground, &connection, &stays).await
    });
    match found {
        Ok(found) => outcome.found = found,
        Err(text) => ground.ledger.wrong(format!("after the restart: {text}")),
    }
    let log = std::fs::read_to_string(folder.0.join("log"))?;
    outcome.log = (lines_of(&log, "ERROR"), lines_of(&log, "WARN"));
    outcome.acknowledged = ground.ledger.events();
    outcome.wrong = ground.ledger.all_wrong();
    outcome.checks = judge(&outcome.samples);
    Ok(outcome)
}

/// A folder that is removed in the end.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        // An error here would hide the one that led here.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// How many lines of a log have this level; the first are printed.
fn lines_of(log: &str, level: &str) -> u64 {
    let lines = || log.lines().filter(|line| line.split_whitespace().any(|word| word == level));
    lines().take(5).for_each(|line| eprintln!("{line}"));
    lines().count() as u64
}

/// Has everybody work for so long, and wait for what they are to get; the groups that stay.
async fn work(
    ground: &Arc<Ground>,
    running: &Running,
    folder: &Path,
    time: Duration,
    outcome: &mut Outcome,
    say: &mut dyn FnMut(&str),
) -> Result<Vec<String>> {
    let followers = Followers::begin(ground).await?;
    let groups = Groups::begin(ground).await?;
    let mut workers = workers::begin(ground).await?;
    let began = Instant::now();
    let looks = (time.as_secs() / LOOKS.as_secs()).max(1);
    for look in 1..=looks {
        tokio::time::sleep_until((began + LOOKS.mul_f64(look as f64)).into()).await;
        let vitals = Vitals::of(running.id()).ok_or("the system tells nothing of processes")?;
        let (seconds, events) = (began.elapsed().as_secs_f64(), ground.ledger.events());
        let index = index_bytes(running.address).unwrap_or_default();
        let sample = Sample { seconds, events, disk: folder_bytes(folder), index, vitals };
        outcome.samples.push(sample);
        if look % 6 == 0 {
            say(&line(&sample, ground.ledger.all_wrong().0));
        }
        // The same parts as the samples'.
        if look * PARTS as u64 / looks > outcome.windows.len() as u64 {
            outcome.windows.push(ground.times.take());
        }
        if ground.is_hopeless() {
            say("too much is wrong; not going on");
            break;
        }
    }
    ground.enter(Phase::Stopping);
    // Those who append to new streams go on.
    for _ in plan::APPENDERS..workers.len() {
        let _ = tokio::time::timeout(CATCHING_UP, workers.join_next()).await;
    }
    say("waiting until subscribers and groups have everything");
    for waited in
        [followers.catch_up(ground, CATCHING_UP).await, groups.finish(ground, CATCHING_UP).await]
    {
        waited.unwrap_or_else(|text| ground.ledger.wrong(text));
    }
    outcome.groups_sent = groups.sent();
    workers.detach_all();
    tokio::time::sleep(STOPPED_UNDER_LOAD).await;
    Ok(groups.names())
}

fn line(sample: &Sample, wrong: u64) -> String {
    let Sample { seconds, events, disk, index, vitals } = sample;
    format!(
        "{:.0} min: {events} events, {} MiB of disk, memory {} MiB, the index's {}, and {} of \
         files, {} sockets, {} files, {} threads, {wrong} wrong",
        seconds / 60.0,
        disk >> 20,
        vitals.anonymous >> 20,
        index >> 20,
        vitals.of_files >> 20,
        vitals.sockets,
        vitals.files,
        vitals.threads,
    )
}
