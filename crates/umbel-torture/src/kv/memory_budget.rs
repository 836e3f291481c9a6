//! The memory campaign: what a process holds in memory that fills a store under a budget and reads
//! it, with a snapshot and a cursor held meanwhile.
//!
//! Each run is a process of its own, so that what one leaves behind is not counted with the next. A
//! thread of it looks every few milliseconds at how many pages are in memory, those of its own and
//! those of mapped files apart; the kernel says at the end what the most was.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use umbel::{Db, Env, Keyspace, Options};

use crate::entries::{KEY_BYTES, VALUE_BYTES, key, said, value};
use crate::random::{Random, join, of_name};
use crate::report::Tally;
use crate::scratch::{self, Scratch};

/// The hidden argument that makes the program the process that is measured.
pub const CHILD: &str = "--child-memory";

/// Keys of the campaign unless said otherwise.
pub const KEYS: u64 = 10_000_000;
/// The budgets, in MiB, unless one is named.
pub const MEBIBYTES: [u64; 3] = [64, 512, 4096];
/// Look-ups of keys that are there, and of as many that are not.
const GETS_MAX: u64 = 500_000;
/// One key in so many is overwritten beside a snapshot and a cursor.
const OVERWRITTEN: u64 = 20;
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// How often the store is asked what it counts.
const ASK_EVERY: u64 = 20_000;
const MEBIBYTE: f64 = 1_048_576.0;

/// One process after the other, one for each budget.
pub fn campaign(place: &Path, seed: u64, keys: u64, budgets: &[u64]) -> Tally {
    let tally = Tally::new("memory");
    if !cfg!(target_os = "linux") {
        tally.skip("memory: only Linux says what a process has in memory".to_string());
        return tally;
    }
    for &mebibytes in budgets {
        let ran = run_one(place, seed, keys, mebibytes, &tally);
        tally.scenario(ran.is_ok());
        if let Err(text) = ran {
            tally.violation(text, format!("memory {seed}"));
        }
    }
    tally
}

fn run_one(
    place: &Path,
    seed: u64,
    keys: u64,
    mebibytes: u64,
    tally: &Tally,
) -> Result<(), String> {
    let scratch = Scratch::new(place, "memory")?;
    let failed = |error: std::io::Error| format!("the child: {error}");
    let program = std::env::current_exe().map_err(failed)?;
    let mut command = Command::new(program);
    command.arg(CHILD).arg(scratch.path().join("store"));
    command.args([seed, keys, mebibytes].map(|number| number.to_string()));
    let output = command.stderr(std::process::Stdio::inherit()).output().map_err(failed)?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().for_each(|line| tally.note(line.to_string()));
    tally.say(&format!("{mebibytes} MiB, {keys} keys: done"));
    if output.status.success() {
        return Ok(());
    }
    let last = text.lines().last().unwrap_or_default();
    Err(format!("{mebibytes} MiB, {keys} keys: {last} ({})", output.status))
}

/// What of this process is in memory, in bytes.
#[derive(Debug, Default)]
struct Seen {
    own: AtomicU64,
    of_files: AtomicU64,
    all: AtomicU64,
}

fn status_bytes(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let words = line.and_then(|line| line.trim_start_matches(':').split_whitespace().next());
    words.and_then(|word| word.parse::<u64>().ok()).unwrap_or(0) * 1024
}

impl Seen {
    fn look(&self) {
        let (own, of_files) = (status_bytes("RssAnon"), status_bytes("RssFile"));
        self.own.fetch_max(own, Ordering::Relaxed);
        self.of_files.fetch_max(of_files, Ordering::Relaxed);
        self.all.fetch_max(own + of_files, Ordering::Relaxed);
    }

    /// The most since this was last asked, as text.
    fn take(&self) -> String {
        self.look();
        let take = |bytes: &AtomicU64| bytes.swap(0, Ordering::Relaxed) as f64 / MEBIBYTE;
        let (own, of_files, all) = (take(&self.own), take(&self.of_files), take(&self.all));
        format!("{all:.1} MiB in memory, own pages {own:.1}, of files {of_files:.1}")
    }
}

/// The child's `main`: folder, seed, keys, budget in MiB.
pub fn run(arguments: &[String]) -> i32 {
    let seen = Arc::new(Seen::default());
    let ends = Arc::new(AtomicBool::new(false));
    let (looker, stop) = (Arc::clone(&seen), Arc::clone(&ends));
    let pause = Mutex::new(());
    let watch = move || {
        let never = Condvar::new();
        while !stop.load(Ordering::Relaxed) {
            looker.look();
            let held = pause.lock().unwrap_or_else(PoisonError::into_inner);
            let _ = never.wait_timeout(held, LOOK_EVERY);
        }
    };
    let thread = Env::system().threads.spawn("watch", Box::new(watch));
    let done = measure(arguments, &seen);
    ends.store(true, Ordering::Relaxed);
    if let Ok(thread) = thread {
        thread.join();
    }
    match done {
        Ok(()) => 0,
        Err(text) => {
            println!("{text}");
            3
        }
    }
}

/// A store that is filled and read, and what its process held.
struct Run<'a> {
    seed: u64,
    keys: u64,
    db: Db,
    keyspace: Keyspace,
    seen: &'a Seen,
    /// The most that the store counted since a line was written.
    counted: u64,
    begun: Duration,
}

impl Run<'_> {
    fn now() -> Duration {
        crate::report::now()
    }

    fn ask(&mut self, step: u64) {
        if step.is_multiple_of(ASK_EVERY) {
            self.counted = self.counted.max(self.db.stats().memory.held_bytes);
        }
    }

    fn line(&mut self, what: &str) {
        self.ask(0);
        let seconds = (Run::now() - self.begun).as_secs_f64();
        println!(
            "  {what}: {}; counted {:.1} MiB; {seconds:.1} s",
            self.seen.take(),
            self.counted as f64 / MEBIBYTE
        );
        (self.counted, self.begun) = (0, Run::now());
    }

    fn check(&self, number: u64, turn: u64) -> Result<(), String> {
        let wanted = value(number, turn);
        match self.keyspace.get_with(key(self.seed, number), |found| found == wanted) {
            Ok(Some(true)) => Ok(()),
            Ok(Some(false)) => Err(format!("key {number} has another value")),
            Ok(None) => Err(format!("key {number} is lost")),
            Err(error) => Err(error.to_string()),
        }
    }

    fn fill(&mut self) -> Result<(), String> {
        for number in 0..self.keys {
            self.keyspace.put(key(self.seed, number), value(number, 0)).map_err(said)?;
            self.ask(number);
        }
        let stats = self.db.stats();
        self.line("filled");
        let stalled = stats.stall_micros as f64 / 1e6;
        println!("  writers were slowed {} times, {stalled:.1} s in all", stats.stalls);
        self.db.wait_for_compaction().map_err(said)?;
        self.line("compacted");
        Ok(())
    }

    fn read(&mut self) -> Result<(), String> {
        let mut random = Random::new(join(self.seed, of_name("reads")));
        let gets = self.keys.min(GETS_MAX);
        for step in 0..gets {
            self.check(random.below(self.keys), 0)?;
            self.ask(step);
        }
        self.line(&format!("{gets} hits"));
        for step in 0..gets {
            let absent = self.keys + random.below(self.keys);
            if self.keyspace.get(key(self.seed, absent)).map_err(said)?.is_some() {
                return Err(format!("key {absent} is there, which was never put"));
            }
            self.ask(step);
        }
        self.line(&format!("{gets} misses"));
        Ok(())
    }

    fn scan(&mut self) -> Result<(), String> {
        let mut cursor = self.keyspace.cursor::<&[u8]>(..).map_err(said)?;
        let seen = self.walk(&mut cursor)?;
        if seen != self.keys {
            return Err(format!("a scan sees {seen} keys of {}", self.keys));
        }
        self.line("scanned");
        Ok(())
    }

    fn walk(&mut self, cursor: &mut umbel::DbCursor) -> Result<u64, String> {
        let mut seen = 0;
        cursor.seek_to_first().map_err(said)?;
        while cursor.valid() {
            self.ask(seen * 10);
            seen += 1;
            cursor.next().map_err(said)?;
        }
        Ok(seen)
    }

    /// Overwrites while a snapshot and a cursor are held, and reads through all of them.
    fn hold(&mut self) -> Result<(), String> {
        let snapshot = self.db.snapshot();
        let mut cursor = self.keyspace.cursor::<&[u8]>(..).map_err(said)?;
        cursor.seek_to_first().map_err(said)?;
        let mut random = Random::new(join(self.seed, of_name("held")));
        for number in (0..self.keys).step_by(OVERWRITTEN as usize) {
            self.keyspace.put(key(self.seed, number), value(number, 1)).map_err(said)?;
            let other = random.below(self.keys);
            let turn = u64::from(other <= number && other.is_multiple_of(OVERWRITTEN));
            self.check(other, turn)?;
            self.ask(number / OVERWRITTEN);
        }
        println!("  {}", self.db.stats().readers.to_string().trim_end());
        for _ in 0..self.keys.min(GETS_MAX) / 10 {
            let number = random.below(self.keys);
            let found = self.keyspace.get_at(&snapshot, key(self.seed, number)).map_err(said)?;
            if found.as_deref() != Some(&value(number, 0)[..]) {
                return Err(format!("the snapshot does not see what key {number} was"));
            }
        }
        let mut seen = 0;
        while cursor.valid() && seen < self.keys / 10 {
            seen += 1;
            self.ask(seen * 10);
            cursor.next().map_err(said)?;
        }
        self.line("overwritten and read beside a snapshot and a cursor");
        drop((cursor, snapshot));
        self.db.wait_for_compaction().map_err(said)?;
        self.line("let go and compacted");
        Ok(())
    }
}

fn measure(arguments: &[String], seen: &Seen) -> Result<(), String> {
    let number = |text: &String| text.parse::<u64>().map_err(|error| error.to_string());
    let [folder, seed, keys, mebibytes] = arguments else {
        return Err("the child needs a folder and three numbers".to_string());
    };
    let (folder, budget) = (PathBuf::from(folder), number(mebibytes)? << 20);
    seen.look();
    let before = seen.take();
    let options = Options { memory_bytes: Some(budget), ..Options::default() };
    let db = Db::open(&folder, options).map_err(said)?;
    let keyspace = db.keyspace("k", None).map_err(said)?;
    let begun = Run::now();
    let (seed, keys) = (number(seed)?, number(keys)?);
    println!("budget {mebibytes} MiB, {keys} keys of {KEY_BYTES} and {VALUE_BYTES} bytes");
    println!("  before the store was opened: {before}");
    let mut run = Run { seed, keys, db, keyspace, seen, counted: 0, begun };
    run.fill()?;
    run.read()?;
    run.scan()?;
    run.hold()?;
    let mut text = String::new();
    let stats = run.db.stats();
    let _ = write!(text, "{}{}", stats.memory, stats.descriptors);
    text.lines().for_each(|line| println!("  {line}"));
    let disk = scratch::disk_bytes(&folder) as f64 / MEBIBYTE;
    let most = status_bytes("VmHWM");
    println!("  {disk:.0} MiB on disk; the most in memory: {:.1} MiB", most as f64 / MEBIBYTE);
    run.db.close().map_err(said)?;
    if most > budget / 10 * 11 {
        return Err(format!("{most} bytes were in memory, more than the budget and a tenth"));
    }
    Ok(())
}
