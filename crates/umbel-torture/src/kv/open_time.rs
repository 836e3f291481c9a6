//! The big-open campaign: open time of a store with ten million keys, after a clean close and after
//! kills. The kills come during the first load, while a million keys are overwritten, and right
//! after that.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use umbel::{Db, Env, Keyspace, KeyspaceOptions, Options};
use umbel_sim::Random;

use crate::support::bulk_entries::{KEY_BYTES, VALUE_BYTES, error_text, key, value};
use crate::support::campaign_tally::CampaignTally;
use crate::support::derived_seed::{derive_seed, seed_from_name};
use crate::support::scratch_directory::{self, ScratchDirectory};

/// Hidden argument that makes the program the process to be killed.
pub const CHILD: &str = "--child-big-open";

/// Keys of the campaign. A run with fewer keys only tests the campaign itself.
pub const KEYS: u64 = 10_000_000;
const CLEAN_OPENS: usize = 5;
/// One of this many keys is overwritten before a kill.
const OVERWRITTEN: u64 = 10;
const CLEAN_OPEN_MAX: Duration = Duration::from_millis(500);
const KILLED_OPEN_MAX: Duration = Duration::from_secs(2);
/// Number of keys after which the child reports its progress.
const REPORT_EVERY: u64 = 1000;
/// One of this many keys is checked in a sample.
const SAMPLE: usize = 997;
const SIGKILL: i32 = 9;
const MEBIBYTE: f64 = 1_048_576.0;
const NAME: &str = "big";

/// Work of a process that is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChildWork {
    /// Fills an empty store.
    Load,
    /// Overwrites keys of a full store; the number counts the repetitions from 1.
    Overwrite(u64),
}

impl ChildWork {
    /// Returns the number of the work on the command line.
    fn word(self) -> u64 {
        match self {
            ChildWork::Load => 0,
            ChildWork::Overwrite(turn) => turn,
        }
    }

    /// Returns the work of a number.
    fn from_word(word: u64) -> ChildWork {
        if word == 0 { ChildWork::Load } else { ChildWork::Overwrite(word) }
    }

    /// Returns the number of writes.
    fn writes(self, keys: u64) -> u64 {
        if self == ChildWork::Load { keys } else { keys / OVERWRITTEN }
    }

    /// Returns the key of the write with this index; overwritten keys are spread over all keys.
    fn number(self, index: u64) -> u64 {
        match self {
            ChildWork::Load => index,
            ChildWork::Overwrite(turn) => index * OVERWRITTEN + turn,
        }
    }
}

/// Fills, closes, opens, kills and opens. The campaign has no small form, which would measure
/// nothing.
pub fn campaign(place: &Path, seed: u64, keys: u64) -> CampaignTally {
    let tally = CampaignTally::new("big-open");
    let done = ScratchDirectory::new(place, "big-open").and_then(|scratch| {
        let random = &mut Random::new(derive_seed(seed, seed_from_name("big-open")));
        let mut big = BigStore { folder: scratch.path().join("store"), seed, keys };
        big.fill(&tally)?;
        big.clean_opens(&tally)?;
        let all = keys / OVERWRITTEN;
        // In the middle of writing twice, and after the last write.
        for (turn, writes) in
            [all / 5 + random.below(all / 2), all * 9 / 10, all].into_iter().enumerate()
        {
            big.kill(ChildWork::Overwrite(turn as u64 + 1), writes, &tally)?;
        }
        big.verify(&tally)?;
        let _ = std::fs::remove_dir_all(&big.folder);
        big.folder = scratch.path().join("store-2");
        big.kill(ChildWork::Load, keys / 3 + random.below(keys * 2 / 3), &tally)
    });
    if let Err(text) = done {
        tally.scenario(false);
        tally.violation(text, format!("big-open {seed}"));
    }
    tally
}

#[derive(Debug)]
struct BigStore {
    folder: PathBuf,
    seed: u64,
    keys: u64,
}

impl BigStore {
    fn open(&self) -> Result<(Db, Keyspace, Duration), String> {
        let clock = Env::system().clock;
        let begun = clock.now();
        let db = Db::open(&self.folder, Options::default()).map_err(error_text)?;
        let keyspace = db.keyspace(NAME, KeyspaceOptions::default()).map_err(error_text)?;
        Ok((db, keyspace, clock.now() - begun))
    }

    fn fill(&self, tally: &CampaignTally) -> Result<(), String> {
        let clock = Env::system().clock;
        let (db, keyspace, _) = self.open()?;
        let begun = clock.now();
        for number in 0..self.keys {
            keyspace.put(key(self.seed, number), value(number, 0)).map_err(error_text)?;
            if number % 1_000_000 == 999_999 {
                tally.print_progress(&format!("{} keys loaded", number + 1));
            }
        }
        let filled = clock.now();
        db.wait_for_compaction().map_err(error_text)?;
        let settled = clock.now();
        let stats = db.stats();
        let levels = stats.keyspaces.iter().flat_map(|keyspace| &keyspace.levels);
        let tables: u64 = levels.map(|level| level.tables).sum();
        let shape: Vec<_> = keyspace.stats().levels.iter().map(|level| level.tables).collect();
        db.close().map_err(error_text)?;
        let seconds = (filled - begun).as_secs_f64();
        let live = (self.keys * (KEY_BYTES + VALUE_BYTES) as u64) as f64 / MEBIBYTE;
        let disk = scratch_directory::disk_bytes(&self.folder) as f64 / MEBIBYTE;
        tally.add("keys", self.keys);
        tally.note(format!(
            "fill: {:.0} keys/s, one thread ({seconds:.1} s, then {:.1} s until idle)",
            self.keys as f64 / seconds,
            (settled - filled).as_secs_f64()
        ));
        tally.note(format!(
            "write amplification {:.2}, log included; stalls {} of {:.2} s together",
            stats.write_amplification,
            stats.stalls,
            stats.stall_micros as f64 / 1e6
        ));
        tally.note(format!(
            "{disk:.0} MiB on disk for {live:.0} MiB of keys and values ({:.3}), {tables} tables, \
             by level {shape:?}",
            disk / live
        ));
        Ok(())
    }

    fn clean_opens(&self, tally: &CampaignTally) -> Result<(), String> {
        let mut times = Vec::new();
        for _ in 0..CLEAN_OPENS {
            let (db, keyspace, open) = self.open()?;
            times.push(open);
            self.check(&keyspace, (0..self.keys).step_by(SAMPLE), |_| 0)?;
            db.close().map_err(error_text)?;
        }
        times.sort_unstable();
        let median = times[CLEAN_OPENS / 2];
        let held = median <= CLEAN_OPEN_MAX;
        tally.note(format!("open after a clean close: {}", listed(&times)));
        tally.scenario(held);
        if !held {
            let what = format!("a clean open takes {median:.1?}, more than {CLEAN_OPEN_MAX:?}");
            tally.violation(what, format!("big-open {}", self.seed));
        }
        Ok(())
    }

    /// Checks that keys have their last acknowledged values.
    fn check(
        &self,
        keyspace: &Keyspace,
        numbers: impl Iterator<Item = u64>,
        turn: impl Fn(u64) -> u64,
    ) -> Result<(), String> {
        for number in numbers {
            let wanted = value(number, turn(number));
            let found = keyspace.get_with(key(self.seed, number), |bytes| bytes == wanted);
            match found.map_err(error_text)? {
                Some(true) => {}
                Some(false) => return Err(format!("key {number} has another value")),
                None => return Err(format!("key {number} is lost")),
            }
        }
        Ok(())
    }

    /// Kills a process after the given number of acknowledged writes, opens and checks.
    fn kill(&self, work: ChildWork, writes: u64, tally: &CampaignTally) -> Result<(), String> {
        let acknowledged = self.work_and_kill(work, writes)?;
        let log_bytes = log_bytes(&self.folder) as f64 / MEBIBYTE;
        let (db, keyspace, open) = self.open()?;
        let written = (0..acknowledged).map(|index| work.number(index));
        match work {
            ChildWork::Overwrite(turn) => {
                self.check(&keyspace, written, |_| turn)?;
                // Keys outside every turn have their first values.
                let untouched = (0..self.keys).step_by(OVERWRITTEN as usize * 97);
                self.check(&keyspace, untouched, |_| 0)?;
            }
            ChildWork::Load => {
                // A kill would lose the newest keys.
                let newest = acknowledged.saturating_sub(200_000)..acknowledged;
                self.check(&keyspace, written.step_by(SAMPLE).chain(newest), |_| 0)?;
            }
        }
        db.close().map_err(error_text)?;
        let held = open <= KILLED_OPEN_MAX;
        tally.add("kills", 1);
        let all = if acknowledged == work.writes(self.keys) { ", which was all" } else { "" };
        let what = format!(
            "open after a kill in {:.3} s ({work:?}, {acknowledged} writes acknowledged{all}), log \
             files of {log_bytes:.0} MiB",
            open.as_secs_f64()
        );
        tally.print_progress(&what);
        tally.note(what);
        tally.scenario(held);
        if !held {
            let what = format!("an open after a kill takes {open:.2?}");
            tally.violation(what, format!("big-open {}", self.seed));
        }
        Ok(())
    }

    fn verify(&self, tally: &CampaignTally) -> Result<(), String> {
        let (db, _, _) = self.open()?;
        crate::simulation::full_read::verify(&db)?;
        tally.note("verify finds no damage after the kills".to_string());
        db.close().map_err(error_text)
    }

    /// Starts a writing process and kills it after enough acknowledged writes; returns their
    /// number.
    fn work_and_kill(&self, work: ChildWork, writes: u64) -> Result<u64, String> {
        let failed = |error: io::Error| format!("the child: {error}");
        let program = std::env::current_exe().map_err(failed)?;
        let mut command = Command::new(program);
        command.arg(CHILD).arg(&self.folder);
        command.args([self.seed, self.keys, work.word()].map(|number| number.to_string()));
        // The child waits at its standard input after the last write.
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        let mut pipe = child.stdout.take().ok_or("the child has no pipe")?;
        let mut acknowledged = 0;
        let mut record = [0; 8];
        while pipe.read_exact(&mut record).is_ok() {
            acknowledged = u64::from_le_bytes(record);
            if acknowledged >= writes.next_multiple_of(REPORT_EVERY).min(work.writes(self.keys)) {
                child.kill().map_err(failed)?;
            }
        }
        let status = child.wait().map_err(failed)?;
        if status.signal() != Some(SIGKILL) {
            return Err(format!("the child ended by itself at {acknowledged} writes: {status}"));
        }
        Ok(acknowledged)
    }
}

fn listed(times: &[Duration]) -> String {
    let each: Vec<_> =
        times.iter().map(|time| format!("{:.1}", time.as_secs_f64() * 1e3)).collect();
    format!("median {} ms of {} ms", each[each.len() / 2], each.join(", "))
}

fn log_bytes(folder: &Path) -> u64 {
    let names = scratch_directory::names(folder).into_iter().filter(|name| name.ends_with(".log"));
    names.filter_map(|name| folder.join(name).metadata().ok()).map(|file| file.len()).sum()
}

/// The child's `main`: folder, seed, keys, and its work.
pub fn run(arguments: &[String]) -> i32 {
    match write(arguments) {
        Ok(()) => 0,
        Err(text) => {
            eprintln!("{text}");
            3
        }
    }
}

fn write(arguments: &[String]) -> Result<(), String> {
    let number = |text: &String| text.parse::<u64>().map_err(|error| error.to_string());
    let [folder, seed, keys, work] = arguments else {
        return Err("the child needs a folder and three numbers".to_string());
    };
    let (keys, work) = (number(keys)?, ChildWork::from_word(number(work)?));
    let big = BigStore { folder: PathBuf::from(folder), seed: number(seed)?, keys };
    let (_db, keyspace, _) = big.open()?;
    let pipe = io::stdout().as_fd().try_clone_to_owned().map_err(|error| error.to_string())?;
    let mut pipe = File::from(pipe);
    let writes = work.writes(keys);
    for index in 0..writes {
        let at = work.number(index);
        keyspace.put(key(big.seed, at), value(at, work.word())).map_err(error_text)?;
        let done = index + 1;
        if done % REPORT_EVERY == 0 || done == writes {
            pipe.write_all(&done.to_le_bytes()).map_err(|error| error.to_string())?;
        }
    }
    // It is killed before or at this read.
    let _ = io::stdin().read(&mut [0]);
    Ok(())
}
