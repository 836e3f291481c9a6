//! The big-open campaign: how soon a store of ten million keys is open, after a clean close and
//! after kills: while a million keys are overwritten, right after that, and while it is loaded from
//! nothing.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use umbel::{Db, Env, Keyspace, KeyspaceOptions, Options};

use crate::entries::{KEY_BYTES, VALUE_BYTES, key, said, value};
use crate::random::{Random, join, of_name};
use crate::report::Tally;
use crate::scratch::{self, Scratch};

/// The hidden argument that makes the program the process to be killed.
pub const CHILD: &str = "--child-big-open";

/// Keys of the campaign. With fewer it measures nothing, but can be tried out.
pub const KEYS: u64 = 10_000_000;
const CLEAN_OPENS: usize = 5;
/// One key in so many is overwritten before a kill.
const OVERWRITTEN: u64 = 10;
const CLEAN_OPEN_MAX: Duration = Duration::from_millis(500);
const KILLED_OPEN_MAX: Duration = Duration::from_secs(2);
/// The child says how far it is each time it wrote so many keys.
const REPORT_EVERY: u64 = 1000;
/// One key in so many is looked at where not all are.
const SAMPLE: usize = 997;
const SIGKILL: i32 = 9;
const MEBIBYTE: f64 = 1_048_576.0;
const NAME: &str = "big";

/// What a process does that is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    /// Fills an empty store.
    Load,
    /// Overwrites keys of a full one, for the time with this number, which begins at 1.
    Overwrite(u64),
}

impl Work {
    /// As a word on the command line.
    fn word(self) -> u64 {
        match self {
            Work::Load => 0,
            Work::Overwrite(turn) => turn,
        }
    }

    /// Which word stands for what.
    fn of_word(word: u64) -> Work {
        if word == 0 { Work::Load } else { Work::Overwrite(word) }
    }

    /// The writes there are to do.
    fn writes(self, keys: u64) -> u64 {
        if self == Work::Load { keys } else { keys / OVERWRITTEN }
    }

    /// The key that the write with this index goes to; overwritten ones are spread over all.
    fn number(self, index: u64) -> u64 {
        match self {
            Work::Load => index,
            Work::Overwrite(turn) => index * OVERWRITTEN + turn,
        }
    }
}

/// Fills, closes, opens, kills and opens. There is no small form: without the size it says nothing.
pub fn campaign(place: &Path, seed: u64, keys: u64) -> Tally {
    let tally = Tally::new("big-open");
    let done = Scratch::new(place, "big-open").and_then(|scratch| {
        let random = &mut Random::new(join(seed, of_name("big-open")));
        let mut big = Big { folder: scratch.path().join("store"), seed, keys };
        big.fill(&tally)?;
        big.clean_opens(&tally)?;
        let most = keys / OVERWRITTEN;
        // In the middle of writing twice, and when all is written and nothing more happens.
        for (turn, writes) in
            [most / 5 + random.below(most / 2), most * 9 / 10, most].into_iter().enumerate()
        {
            big.kill(Work::Overwrite(turn as u64 + 1), writes, &tally)?;
        }
        big.verify(&tally)?;
        let _ = std::fs::remove_dir_all(&big.folder);
        big.folder = scratch.path().join("store-2");
        big.kill(Work::Load, keys / 3 + random.below(keys * 2 / 3), &tally)
    });
    if let Err(text) = done {
        tally.scenario(false);
        tally.violation(text, format!("big-open {seed}"));
    }
    tally
}

#[derive(Debug)]
struct Big {
    folder: PathBuf,
    seed: u64,
    keys: u64,
}

impl Big {
    fn open(&self) -> Result<(Db, Keyspace, Duration), String> {
        let clock = Env::system().clock;
        let begun = clock.now();
        let db = Db::open(&self.folder, Options::default()).map_err(said)?;
        let keyspace = db.keyspace(NAME, KeyspaceOptions::default()).map_err(said)?;
        Ok((db, keyspace, clock.now() - begun))
    }

    fn fill(&self, tally: &Tally) -> Result<(), String> {
        let clock = Env::system().clock;
        let (db, keyspace, _) = self.open()?;
        let begun = clock.now();
        for number in 0..self.keys {
            keyspace.put(key(self.seed, number), value(number, 0)).map_err(said)?;
            if number % 1_000_000 == 999_999 {
                tally.say(&format!("{} keys loaded", number + 1));
            }
        }
        let filled = clock.now();
        db.wait_for_compaction().map_err(said)?;
        let settled = clock.now();
        let stats = db.stats();
        let levels = stats.keyspaces.iter().flat_map(|keyspace| &keyspace.levels);
        let tables: u64 = levels.map(|level| level.tables).sum();
        let shape: Vec<_> = keyspace.stats().levels.iter().map(|level| level.tables).collect();
        db.close().map_err(said)?;
        let seconds = (filled - begun).as_secs_f64();
        let live = (self.keys * (KEY_BYTES + VALUE_BYTES) as u64) as f64 / MEBIBYTE;
        let disk = scratch::disk_bytes(&self.folder) as f64 / MEBIBYTE;
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

    fn clean_opens(&self, tally: &Tally) -> Result<(), String> {
        let mut times = Vec::new();
        for _ in 0..CLEAN_OPENS {
            let (db, keyspace, open) = self.open()?;
            times.push(open);
            self.check(&keyspace, (0..self.keys).step_by(SAMPLE), |_| 0)?;
            db.close().map_err(said)?;
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

    /// Keys hold what they were given for the last time.
    fn check(
        &self,
        keyspace: &Keyspace,
        numbers: impl Iterator<Item = u64>,
        turn: impl Fn(u64) -> u64,
    ) -> Result<(), String> {
        for number in numbers {
            let wanted = value(number, turn(number));
            let found = keyspace.get_with(key(self.seed, number), |bytes| bytes == wanted);
            match found.map_err(said)? {
                Some(true) => {}
                Some(false) => return Err(format!("key {number} has another value")),
                None => return Err(format!("key {number} is lost")),
            }
        }
        Ok(())
    }

    /// Kills a process after so many acknowledged writes, opens and checks.
    fn kill(&self, work: Work, writes: u64, tally: &Tally) -> Result<(), String> {
        let acknowledged = self.work_and_kill(work, writes)?;
        let log_bytes = log_bytes(&self.folder) as f64 / MEBIBYTE;
        let (db, keyspace, open) = self.open()?;
        let written = (0..acknowledged).map(|index| work.number(index));
        match work {
            Work::Overwrite(turn) => {
                self.check(&keyspace, written, |_| turn)?;
                // Keys of nobody's turn are as they were filled.
                let untouched = (0..self.keys).step_by(OVERWRITTEN as usize * 97);
                self.check(&keyspace, untouched, |_| 0)?;
            }
            Work::Load => {
                // The newest are the ones a kill would take.
                let newest = acknowledged.saturating_sub(200_000)..acknowledged;
                self.check(&keyspace, written.step_by(SAMPLE).chain(newest), |_| 0)?;
            }
        }
        db.close().map_err(said)?;
        let held = open <= KILLED_OPEN_MAX;
        tally.add("kills", 1);
        let all = if acknowledged == work.writes(self.keys) { ", which was all" } else { "" };
        let what = format!(
            "open after a kill in {:.3} s ({work:?}, {acknowledged} writes acknowledged{all}), log \
             files of {log_bytes:.0} MiB",
            open.as_secs_f64()
        );
        tally.say(&what);
        tally.note(what);
        tally.scenario(held);
        if !held {
            let what = format!("an open after a kill takes {open:.2?}");
            tally.violation(what, format!("big-open {}", self.seed));
        }
        Ok(())
    }

    fn verify(&self, tally: &Tally) -> Result<(), String> {
        let (db, _, _) = self.open()?;
        crate::look::verify(&db)?;
        tally.note("verify finds no damage after the kills".to_string());
        db.close().map_err(said)
    }

    /// Starts a process that writes, and kills it once it acknowledged enough; how many.
    fn work_and_kill(&self, work: Work, writes: u64) -> Result<u64, String> {
        let failed = |error: io::Error| format!("the child: {error}");
        let program = std::env::current_exe().map_err(failed)?;
        let mut command = Command::new(program);
        command.arg(CHILD).arg(&self.folder);
        command.args([self.seed, self.keys, work.word()].map(|number| number.to_string()));
        // Its standard input stays open, at which it waits when it has written everything.
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
    let names = scratch::names(folder).into_iter().filter(|name| name.ends_with(".log"));
    names.filter_map(|name| folder.join(name).metadata().ok()).map(|file| file.len()).sum()
}

/// The child's `main`: folder, seed, keys, and what to do.
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
    let (keys, work) = (number(keys)?, Work::of_word(number(work)?));
    let big = Big { folder: PathBuf::from(folder), seed: number(seed)?, keys };
    let (_db, keyspace, _) = big.open()?;
    let pipe = io::stdout().as_fd().try_clone_to_owned().map_err(|error| error.to_string())?;
    let mut pipe = File::from(pipe);
    let writes = work.writes(keys);
    for index in 0..writes {
        let at = work.number(index);
        keyspace.put(key(big.seed, at), value(at, work.word())).map_err(said)?;
        let done = index + 1;
        if done % REPORT_EVERY == 0 || done == writes {
            pipe.write_all(&done.to_le_bytes()).map_err(|error| error.to_string())?;
        }
    }
    // It is killed before, or here at the latest.
    let _ = io::stdin().read(&mut [0]);
    Ok(())
}
