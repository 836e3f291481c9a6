//! The kill campaign: a process that writes is killed at a moment nobody chose, again and again on
//! the same folder, and what it leaves must open and hold all it acknowledged.
//!
//! The kernel goes on, so every acknowledged write must be there, synced or not. Which operations
//! were acknowledged is a function of the seed and the moment; the moment is not repeatable, so a
//! violation keeps the folder as the kill left it.

mod check;
mod child;
mod load;

use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use crate::random::{Random, join};
use crate::report::Tally;
use crate::scratch::{self, Scratch};

pub use child::run;
use child::{READY, THREAD_SHIFT};
use load::{Progress, THREADS};

/// The hidden argument that makes the program the process to be killed.
pub const CHILD: &str = "--child-kill";

const UNFINISHED: &str = "tables that no manifest named yet or any more";

/// Rounds on one folder before the next begins with an empty one.
const ROUNDS_PER_FOLDER: u64 = 50;
const SIGKILL: i32 = 9;
/// Longer than any open takes; a process that needs more hangs.
const HANGS_AFTER: Duration = Duration::from_secs(30);

/// The rounds of the small campaign.
pub const ROUNDS_SMALL: u64 = 30;
/// The rounds of the full campaign.
pub const ROUNDS: u64 = 500;

/// So many kills, in folders of `place`.
pub fn campaign(place: &Path, seed: u64, rounds: u64) -> Tally {
    let tally = Tally::new("kill");
    let mut open_micros = Vec::new();
    match Scratch::new(place, "kill") {
        Err(text) => tally.violation(text, format!("kill {seed} {rounds}")),
        Ok(scratch) => {
            all(&scratch, seed, rounds, &tally, &mut open_micros);
            if tally.violations() > 0 {
                tally.note(format!("folders are kept in {}", scratch.keep().display()));
            }
        }
    }
    // Few rounds may miss one by chance.
    if rounds >= 100 && tally.count(UNFINISHED) == 0 {
        let what = "no kill fell into a flush or a compaction".to_string();
        tally.violation(what, format!("kill {seed} {rounds}"));
    }
    open_micros.sort_unstable();
    if let (Some(median), Some(most)) = (open_micros.get(open_micros.len() / 2), open_micros.last())
    {
        let (median, most) = (*median as f64 / 1000.0, *most as f64 / 1000.0);
        tally.note(format!("open after a kill: median {median:.2} ms, longest {most:.2} ms"));
        // A bound for what hangs; how long opening takes is measured, not tested.
        if most > HANGS_AFTER.as_millis() as f64 {
            let what = format!("an opening took {most:.0} ms");
            tally.violation(what, format!("kill {seed} {rounds}"));
        }
    }
    tally
}

fn all(scratch: &Scratch, seed: u64, rounds: u64, tally: &Tally, open_micros: &mut Vec<u64>) {
    let mut store = Store::new(scratch, seed, 0);
    for round in 0..rounds {
        if round > 0 && round % ROUNDS_PER_FOLDER == 0 {
            let _ = std::fs::remove_dir_all(&store.folder);
            store = Store::new(scratch, seed, round);
        }
        let random = &mut Random::new(join(join(seed, 0x6B11), round));
        let held = store.round(random, tally, open_micros);
        tally.add("kills", 1);
        tally.scenario(held.is_ok());
        if let Err(text) = held {
            let what = format!("round {round}, {}: {text}", store.folder.display());
            tally.violation(what, format!("kill {seed} {rounds}"));
            // What the store holds is unknown now; the evidence stays.
            store = Store::new(scratch, seed, round + 1);
        }
    }
}

/// A folder and what is known of it.
#[derive(Debug)]
struct Store {
    folder: PathBuf,
    copy: PathBuf,
    seed: u64,
    progress: Vec<Progress>,
    /// What the last open took, from which the early kills are timed.
    opened_in: Duration,
}

/// What a killed process said.
#[derive(Debug)]
struct Said {
    acknowledged: Vec<u64>,
    ready: bool,
}

impl Store {
    fn new(scratch: &Scratch, seed: u64, round: u64) -> Store {
        Store {
            folder: scratch.path().join(format!("store-{round}")),
            copy: scratch.path().join(format!("copy-{round}")),
            seed: join(seed, round),
            progress: vec![Progress::default(); THREADS],
            opened_in: Duration::from_millis(3),
        }
    }

    fn round(
        &mut self,
        random: &mut Random,
        tally: &Tally,
        open_micros: &mut Vec<u64>,
    ) -> Result<(), String> {
        let before: u64 = self.progress.iter().map(|progress| progress.done).sum();
        let said = self.kill_one(random)?;
        tally.add("kills during open", u64::from(!said.ready));
        let acknowledged = &said.acknowledged;
        tally.add("operations acknowledged", acknowledged.iter().sum::<u64>() - before);
        // The folder as the kill left it: evidence, or what the next process finds.
        scratch::copy(&self.folder, &self.copy)?;
        if random.once_in(3) {
            let left =
                check::look_only(&self.copy, self.seed, &mut self.progress.clone(), acknowledged)?;
            tally.add("folders opened for reading only first", 1);
            tally.add("folders with a flush or compaction unfinished", u64::from(left > 0));
            tally.add(UNFINISHED, left);
        }
        let stays_unclean = random.once_in(2);
        let folder = if stays_unclean { &self.copy } else { &self.folder };
        let evidence = if stays_unclean { self.folder.clone() } else { self.copy.clone() };
        let mut progress = self.progress.clone();
        let seen = check::examine(folder, self.seed, &mut progress, acknowledged)
            .map_err(|text| format!("{text} (as it was: {})", evidence.display()))?;
        open_micros.push(seen.open_micros);
        self.opened_in = Duration::from_micros(seen.open_micros);
        tally.add("operations in flight that were there", seen.in_flight_there);
        tally.add("tables verified", seen.tables);
        self.progress = progress;
        if stays_unclean {
            tally.add("folders left as the kill left them", 1);
        }
        self.let_go(seen, random, &folder.clone(), tally)
            .map_err(|text| format!("{text} (as it was: {})", evidence.display()))?;
        let _ = std::fs::remove_dir_all(&self.copy);
        Ok(())
    }

    /// Closes the store or drops it, and sometimes looks again.
    fn let_go(
        &self,
        seen: check::Seen,
        random: &mut Random,
        folder: &Path,
        tally: &Tally,
    ) -> Result<(), String> {
        match random.below(3) {
            0 => {
                drop(seen.db);
                return Ok(());
            }
            1 => seen.db.close().map_err(|error| format!("does not close: {error}"))?,
            _ => check::close_and_count(seen.db, folder)?,
        }
        if random.once_in(2) {
            let done: Vec<u64> = self.progress.iter().map(|progress| progress.done).collect();
            let again = check::examine(folder, self.seed, &mut self.progress.clone(), &done)
                .map_err(|text| format!("after a clean close: {text}"))?;
            if again.in_flight_there > 0 {
                return Err("after a clean close the store holds more than before".to_string());
            }
            tally.add("clean reopens", 1);
        }
        Ok(())
    }

    fn spawn(&self) -> Result<Child, String> {
        let said = |error| format!("the child could not be started: {error}");
        let program = std::env::current_exe().map_err(said)?;
        let mut command = Command::new(program);
        command.arg(CHILD).arg(&self.folder).arg(self.seed.to_string());
        command.args(self.progress.iter().map(|progress| progress.done.to_string()));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().map_err(said)
    }

    /// Starts a process, kills it, and returns what it acknowledged.
    fn kill_one(&self, random: &mut Random) -> Result<Said, String> {
        let mut process = self.spawn()?;
        let pipe = process.stdout.take().ok_or("the child has no pipe")?;
        let mut acknowledged: Vec<u64> = self.progress.iter().map(|p| p.done).collect();
        let (sender, receiver) = channel();
        let ready = std::thread::scope(|scope| {
            let listener = scope.spawn(|| listen(pipe, &mut acknowledged, sender));
            let waited = if random.once_in(5) {
                // A process needs about a millisecond before it is ours.
                let micros = 1000 + self.opened_in.as_micros() as u64 * 3 / 2;
                receiver.recv_timeout(Duration::from_micros(random.below(micros)))
            } else {
                let opened = receiver.recv_timeout(HANGS_AFTER);
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
        Ok(Said { acknowledged, ready: ready? })
    }
}

/// Notes what the child acknowledges until its end; whether it came to be open.
fn listen(mut pipe: ChildStdout, acknowledged: &mut [u64], opened: Sender<()>) -> bool {
    let mut ready = false;
    let mut record = [0; 8];
    while pipe.read_exact(&mut record).is_ok() {
        let record = u64::from_le_bytes(record);
        if record == READY {
            ready = true;
            // Nobody waits for it when the kill came before.
            let _ = opened.send(());
        } else if let Some(count) = acknowledged.get_mut((record >> THREAD_SHIFT) as usize) {
            *count = record & ((1 << THREAD_SHIFT) - 1);
        }
    }
    ready
}
