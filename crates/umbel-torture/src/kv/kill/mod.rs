//! The kill campaign: a writing process is killed at a random moment, repeatedly on the same
//! folder, and the store must open and hold everything acknowledged.
//!
//! The kernel survives, so every acknowledged write must exist, synced or not. The seed and the
//! moment of the kill decide the acknowledged operations. The moment is not repeatable, so the
//! campaign keeps the folder of a violation as the kill left it.

mod killed_process;
mod killed_store_check;
mod write_load;

use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use umbel_sim::Random;

use crate::support::campaign_tally::CampaignTally;
use crate::support::derived_seed::derive_seed;
use crate::support::scratch_directory::{self, ScratchDirectory};

pub use killed_process::run;
use killed_process::{READY, THREAD_SHIFT};
use write_load::{THREADS, ThreadProgress};

/// Hidden argument that makes the program the process to be killed.
pub const CHILD: &str = "--child-kill";

const UNFINISHED_TABLES: &str = "tables that no manifest named yet or any more";

/// Number of rounds in one folder before the campaign uses a new, empty folder.
const ROUNDS_PER_FOLDER: u64 = 50;
const SIGKILL: i32 = 9;
/// Time limit of an open; a process that takes longer counts as hanging.
const HANG_TIMEOUT: Duration = Duration::from_secs(30);

/// Number of rounds of the small campaign.
pub const ROUNDS_SMALL: u64 = 30;
/// Number of rounds of the full campaign.
pub const ROUNDS: u64 = 500;

/// Kills processes, in folders of `place`.
pub fn campaign(place: &Path, seed: u64, rounds: u64) -> CampaignTally {
    let tally = CampaignTally::new("kill");
    let mut open_micros = Vec::new();
    match ScratchDirectory::new(place, "kill") {
        Err(text) => tally.violation(text, format!("kill {seed} {rounds}")),
        Ok(scratch) => {
            run_rounds(&scratch, seed, rounds, &tally, &mut open_micros);
            if tally.violations() > 0 {
                tally.note(format!("folders are kept in {}", scratch.keep().display()));
            }
        }
    }
    // Few rounds may miss one by chance.
    if rounds >= 100 && tally.count(UNFINISHED_TABLES) == 0 {
        let what = "no kill fell into a flush or a compaction".to_string();
        tally.violation(what, format!("kill {seed} {rounds}"));
    }
    open_micros.sort_unstable();
    if let (Some(median), Some(longest)) =
        (open_micros.get(open_micros.len() / 2), open_micros.last())
    {
        let (median, longest) = (*median as f64 / 1000.0, *longest as f64 / 1000.0);
        tally.note(format!("open after a kill: median {median:.2} ms, longest {longest:.2} ms"));
        // A limit for hangs; the duration of an open is measured, not tested.
        if longest > HANG_TIMEOUT.as_millis() as f64 {
            let what = format!("an opening took {longest:.0} ms");
            tally.violation(what, format!("kill {seed} {rounds}"));
        }
    }
    tally
}

fn run_rounds(
    scratch: &ScratchDirectory,
    seed: u64,
    rounds: u64,
    tally: &CampaignTally,
    open_micros: &mut Vec<u64>,
) {
    let mut store = KilledStore::new(scratch, seed, 0);
    for round in 0..rounds {
        if round > 0 && round % ROUNDS_PER_FOLDER == 0 {
            let _ = std::fs::remove_dir_all(&store.folder);
            store = KilledStore::new(scratch, seed, round);
        }
        let random = &mut Random::new(derive_seed(derive_seed(seed, 0x6B11), round));
        let held = store.round(random, tally, open_micros);
        tally.add("kills", 1);
        tally.scenario(held.is_ok());
        if let Err(text) = held {
            let what = format!("round {round}, {}: {text}", store.folder.display());
            tally.violation(what, format!("kill {seed} {rounds}"));
            // The content is unknown now; the folder stays as evidence.
            store = KilledStore::new(scratch, seed, round + 1);
        }
    }
}

/// A folder and its known state.
#[derive(Debug)]
struct KilledStore {
    folder: PathBuf,
    copy: PathBuf,
    seed: u64,
    progress: Vec<ThreadProgress>,
    /// Duration of the last open, by which early kills are timed.
    opened_in: Duration,
}

/// Report of a killed process.
#[derive(Debug)]
struct ChildReport {
    acknowledged: Vec<u64>,
    ready: bool,
}

impl KilledStore {
    fn new(scratch: &ScratchDirectory, seed: u64, round: u64) -> KilledStore {
        KilledStore {
            folder: scratch.path().join(format!("store-{round}")),
            copy: scratch.path().join(format!("copy-{round}")),
            seed: derive_seed(seed, round),
            progress: vec![ThreadProgress::default(); THREADS],
            opened_in: Duration::from_millis(3),
        }
    }

    fn round(
        &mut self,
        random: &mut Random,
        tally: &CampaignTally,
        open_micros: &mut Vec<u64>,
    ) -> Result<(), String> {
        let before: u64 = self.progress.iter().map(|progress| progress.done).sum();
        let report = self.kill_one(random)?;
        tally.add("kills during open", u64::from(!report.ready));
        let acknowledged = &report.acknowledged;
        tally.add("operations acknowledged", acknowledged.iter().sum::<u64>() - before);
        // The folder as the kill left it: evidence, and input of the next process.
        scratch_directory::copy(&self.folder, &self.copy)?;
        if random.once_in(3) {
            let left = killed_store_check::open_read_only(
                &self.copy,
                self.seed,
                &mut self.progress.clone(),
                acknowledged,
            )?;
            tally.add("folders opened for reading only first", 1);
            tally.add("folders with a flush or compaction unfinished", u64::from(left > 0));
            tally.add(UNFINISHED_TABLES, left);
        }
        let stays_unclean = random.once_in(2);
        let folder = if stays_unclean { &self.copy } else { &self.folder };
        let evidence = if stays_unclean { self.folder.clone() } else { self.copy.clone() };
        let mut progress = self.progress.clone();
        let seen = killed_store_check::examine(folder, self.seed, &mut progress, acknowledged)
            .map_err(|text| format!("{text} (as it was: {})", evidence.display()))?;
        open_micros.push(seen.open_micros);
        self.opened_in = Duration::from_micros(seen.open_micros);
        tally.add("operations in flight that were there", seen.in_flight_there);
        tally.add("tables verified", seen.tables);
        self.progress = progress;
        if stays_unclean {
            tally.add("folders left as the kill left them", 1);
        }
        self.close_or_drop(seen, random, &folder.clone(), tally)
            .map_err(|text| format!("{text} (as it was: {})", evidence.display()))?;
        let _ = std::fs::remove_dir_all(&self.copy);
        Ok(())
    }

    /// Closes the store or drops it, and sometimes checks it again.
    fn close_or_drop(
        &self,
        seen: killed_store_check::OpenedStore,
        random: &mut Random,
        folder: &Path,
        tally: &CampaignTally,
    ) -> Result<(), String> {
        match random.below(3) {
            0 => {
                drop(seen.db);
                return Ok(());
            }
            1 => seen.db.close().map_err(|error| format!("does not close: {error}"))?,
            _ => killed_store_check::close_and_count(seen.db, folder)?,
        }
        if random.once_in(2) {
            let done: Vec<u64> = self.progress.iter().map(|progress| progress.done).collect();
            let again =
                killed_store_check::examine(folder, self.seed, &mut self.progress.clone(), &done)
                    .map_err(|text| format!("after a clean close: {text}"))?;
            if again.in_flight_there > 0 {
                return Err("after a clean close the store holds more than before".to_string());
            }
            tally.add("clean reopens", 1);
        }
        Ok(())
    }

    fn spawn(&self) -> Result<Child, String> {
        let describe = |error| format!("the child could not be started: {error}");
        let program = std::env::current_exe().map_err(describe)?;
        let mut command = Command::new(program);
        command.arg(CHILD).arg(&self.folder).arg(self.seed.to_string());
        command.args(self.progress.iter().map(|progress| progress.done.to_string()));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().map_err(describe)
    }

    /// Starts a process, kills it, and returns its acknowledged operations.
    fn kill_one(&self, random: &mut Random) -> Result<ChildReport, String> {
        let mut process = self.spawn()?;
        let pipe = process.stdout.take().ok_or("the child has no pipe")?;
        let mut acknowledged: Vec<u64> = self.progress.iter().map(|p| p.done).collect();
        let (sender, receiver) = channel();
        let ready = std::thread::scope(|scope| {
            let listener = scope.spawn(|| listen(pipe, &mut acknowledged, sender));
            let waited = if random.once_in(5) {
                // The start of a process takes about a millisecond.
                let micros = 1000 + self.opened_in.as_micros() as u64 * 3 / 2;
                receiver.recv_timeout(Duration::from_micros(random.below(micros)))
            } else {
                let opened = receiver.recv_timeout(HANG_TIMEOUT);
                let micros = 5_000 + random.below(145_000);
                opened.and_then(|()| receiver.recv_timeout(Duration::from_micros(micros)))
            };
            let _ = process.kill();
            let ready = listener.join().map_err(|_| "the listener panicked".to_string());
            match waited {
                Err(RecvTimeoutError::Disconnected) => Err("the child ended by itself".to_string()),
                _ => ready,
            }
        });
        let ended = process.wait_with_output().map_err(|error| error.to_string())?;
        let complaint = String::from_utf8_lossy(&ended.stderr);
        if ended.status.signal() != Some(SIGKILL) {
            return Err(format!("the child ended by itself, {}: {complaint}", ended.status));
        }
        if !complaint.is_empty() {
            return Err(format!("the child complained: {complaint}"));
        }
        Ok(ChildReport { acknowledged, ready: ready? })
    }
}

/// Counts the child's acknowledged operations until its end; returns whether the store was open.
fn listen(mut pipe: ChildStdout, acknowledged: &mut [u64], opened: Sender<()>) -> bool {
    let mut ready = false;
    let mut record = [0; 8];
    while pipe.read_exact(&mut record).is_ok() {
        let record = u64::from_le_bytes(record);
        if record == READY {
            ready = true;
            // The receiver is gone if the kill came first.
            let _ = opened.send(());
        } else if let Some(count) = acknowledged.get_mut((record >> THREAD_SHIFT) as usize) {
            *count = record & ((1 << THREAD_SHIFT) - 1);
        }
    }
    ready
}
