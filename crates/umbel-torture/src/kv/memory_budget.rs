//! The memory campaign: resident memory of a process that fills and reads a store under a budget,
//! with a snapshot and a cursor.
//!
//! Each run is a separate process, so that memory left over does not count for the next run. A
//! thread samples the resident pages every few milliseconds, and counts anonymous pages and pages
//! of mapped files separately. At the end the kernel reports the peak.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use umbel_base::ignore_poison::IgnorePoison;

use umbel::{Db, Env, Keyspace, Options};
use umbel_sim::Random;

use crate::support::bulk_entries::{KEY_BYTES, VALUE_BYTES, error_text, key, value};
use crate::support::campaign_tally::CampaignTally;
use crate::support::derived_seed::{derive_seed, seed_from_name};
use crate::support::scratch_directory::{self, ScratchDirectory};

/// Hidden argument that makes the program the measured process.
pub const CHILD: &str = "--child-memory";

/// Default number of keys.
pub const KEYS: u64 = 10_000_000;
/// Default budgets in MiB.
pub const MEBIBYTES: [u64; 3] = [64, 512, 4096];
/// Number of lookups of present keys, and of absent ones.
const GETS_MAX: u64 = 500_000;
/// One of this many keys is overwritten beside a snapshot and a cursor.
const OVERWRITTEN: u64 = 20;
const SAMPLE_INTERVAL: Duration = Duration::from_millis(5);
/// Operations between two readings of the store's statistics.
const STATS_INTERVAL: u64 = 20_000;
const MEBIBYTE: f64 = 1_048_576.0;

/// Runs one process for each budget.
pub fn campaign(place: &Path, seed: u64, keys: u64, budgets: &[u64]) -> CampaignTally {
    let tally = CampaignTally::new("memory");
    if !cfg!(target_os = "linux") {
        tally.skip("memory: only Linux reports resident memory".to_string());
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
    tally: &CampaignTally,
) -> Result<(), String> {
    let scratch = ScratchDirectory::new(place, "memory")?;
    let failed = |error: std::io::Error| format!("the child: {error}");
    let program = std::env::current_exe().map_err(failed)?;
    let mut command = Command::new(program);
    command.arg(CHILD).arg(scratch.path().join("store"));
    command.args([seed, keys, mebibytes].map(|number| number.to_string()));
    let output = command.stderr(std::process::Stdio::inherit()).output().map_err(failed)?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().for_each(|line| tally.note(line.to_string()));
    tally.print_progress(&format!("{mebibytes} MiB, {keys} keys: done"));
    if output.status.success() {
        return Ok(());
    }
    let last = text.lines().last().unwrap_or_default();
    Err(format!("{mebibytes} MiB, {keys} keys: {last} ({})", output.status))
}

/// Resident memory of this process, in bytes.
#[derive(Debug, Default)]
struct ResidentMemory {
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

impl ResidentMemory {
    fn sample(&self) {
        let (own, of_files) = (status_bytes("RssAnon"), status_bytes("RssFile"));
        self.own.fetch_max(own, Ordering::Relaxed);
        self.of_files.fetch_max(of_files, Ordering::Relaxed);
        self.all.fetch_max(own + of_files, Ordering::Relaxed);
    }

    /// Returns the peak since the last call, as text.
    fn take_peak(&self) -> String {
        self.sample();
        let take = |bytes: &AtomicU64| bytes.swap(0, Ordering::Relaxed) as f64 / MEBIBYTE;
        let (own, of_files, all) = (take(&self.own), take(&self.of_files), take(&self.all));
        format!("{all:.1} MiB in memory, own pages {own:.1}, of files {of_files:.1}")
    }
}

/// The child's `main`: folder, seed, keys, budget in MiB.
pub fn run(arguments: &[String]) -> i32 {
    let seen = Arc::new(ResidentMemory::default());
    let ends = Arc::new(AtomicBool::new(false));
    let (looker, stop) = (Arc::clone(&seen), Arc::clone(&ends));
    let pause = Mutex::new(());
    let watch = move || {
        let never = Condvar::new();
        while !stop.load(Ordering::Relaxed) {
            looker.sample();
            let held = pause.lock().ignore_poison();
            let _ = never.wait_timeout(held, SAMPLE_INTERVAL);
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

/// A store that is filled and read, and the memory of its process.
struct MemoryRun<'a> {
    seed: u64,
    keys: u64,
    db: Db,
    keyspace: Keyspace,
    seen: &'a ResidentMemory,
    /// Largest memory use that the store itself reported since the last line.
    counted: u64,
    begun: Duration,
}

impl MemoryRun<'_> {
    fn now() -> Duration {
        crate::support::campaign_tally::now()
    }

    fn sample_stats(&mut self, step: u64) {
        if step.is_multiple_of(STATS_INTERVAL) {
            self.counted = self.counted.max(self.db.stats().memory.held_bytes);
        }
    }

    fn line(&mut self, what: &str) {
        self.sample_stats(0);
        let seconds = (MemoryRun::now() - self.begun).as_secs_f64();
        println!(
            "  {what}: {}; counted {:.1} MiB; {seconds:.1} s",
            self.seen.take_peak(),
            self.counted as f64 / MEBIBYTE
        );
        (self.counted, self.begun) = (0, MemoryRun::now());
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
            self.keyspace.put(key(self.seed, number), value(number, 0)).map_err(error_text)?;
            self.sample_stats(number);
        }
        let stats = self.db.stats();
        self.line("filled");
        let stalled = stats.stall_micros as f64 / 1e6;
        println!("  writers were slowed {} times, {stalled:.1} s in all", stats.stalls);
        self.db.wait_for_compaction().map_err(error_text)?;
        self.line("compacted");
        Ok(())
    }

    fn read(&mut self) -> Result<(), String> {
        let mut random = Random::new(derive_seed(self.seed, seed_from_name("reads")));
        let gets = self.keys.min(GETS_MAX);
        for step in 0..gets {
            self.check(random.below(self.keys), 0)?;
            self.sample_stats(step);
        }
        self.line(&format!("{gets} hits"));
        for step in 0..gets {
            let absent = self.keys + random.below(self.keys);
            if self.keyspace.get(key(self.seed, absent)).map_err(error_text)?.is_some() {
                return Err(format!("key {absent} exists but was never put"));
            }
            self.sample_stats(step);
        }
        self.line(&format!("{gets} misses"));
        Ok(())
    }

    fn scan(&mut self) -> Result<(), String> {
        let mut cursor = self.keyspace.cursor::<&[u8]>(..).map_err(error_text)?;
        let seen = self.scan_cursor(&mut cursor)?;
        if seen != self.keys {
            return Err(format!("a scan sees {seen} keys of {}", self.keys));
        }
        self.line("scanned");
        Ok(())
    }

    fn scan_cursor(&mut self, cursor: &mut umbel::DbCursor) -> Result<u64, String> {
        let mut seen = 0;
        cursor.seek_to_first().map_err(error_text)?;
        while cursor.valid() {
            self.sample_stats(seen * 10);
            seen += 1;
            cursor.next().map_err(error_text)?;
        }
        Ok(seen)
    }

    /// Overwrites while a snapshot and a cursor are held, and reads through both of them.
    fn overwrite_under_snapshot(&mut self) -> Result<(), String> {
        let snapshot = self.db.snapshot();
        let mut cursor = self.keyspace.cursor::<&[u8]>(..).map_err(error_text)?;
        cursor.seek_to_first().map_err(error_text)?;
        let mut random = Random::new(derive_seed(self.seed, seed_from_name("held")));
        for number in (0..self.keys).step_by(OVERWRITTEN as usize) {
            self.keyspace.put(key(self.seed, number), value(number, 1)).map_err(error_text)?;
            let other = random.below(self.keys);
            let turn = u64::from(other <= number && other.is_multiple_of(OVERWRITTEN));
            self.check(other, turn)?;
            self.sample_stats(number / OVERWRITTEN);
        }
        println!("  {}", self.db.stats().readers.to_string().trim_end());
        for _ in 0..self.keys.min(GETS_MAX) / 10 {
            let number = random.below(self.keys);
            let found =
                self.keyspace.get_at(&snapshot, key(self.seed, number)).map_err(error_text)?;
            if found.as_deref() != Some(&value(number, 0)[..]) {
                return Err(format!("the snapshot does not see what key {number} was"));
            }
        }
        let mut seen = 0;
        while cursor.valid() && seen < self.keys / 10 {
            seen += 1;
            self.sample_stats(seen * 10);
            cursor.next().map_err(error_text)?;
        }
        self.line("overwritten and read beside a snapshot and a cursor");
        drop((cursor, snapshot));
        self.db.wait_for_compaction().map_err(error_text)?;
        self.line("released and compacted");
        Ok(())
    }
}

fn measure(arguments: &[String], seen: &ResidentMemory) -> Result<(), String> {
    let number = |text: &String| text.parse::<u64>().map_err(|error| error.to_string());
    let [folder, seed, keys, mebibytes] = arguments else {
        return Err("the child needs a folder and three numbers".to_string());
    };
    let (folder, budget) = (PathBuf::from(folder), number(mebibytes)? << 20);
    seen.sample();
    let before = seen.take_peak();
    let options = Options { memory_bytes: Some(budget), ..Options::default() };
    let db = Db::open(&folder, options).map_err(error_text)?;
    let keyspace = db.keyspace("k", None).map_err(error_text)?;
    let begun = MemoryRun::now();
    let (seed, keys) = (number(seed)?, number(keys)?);
    println!("budget {mebibytes} MiB, {keys} keys of {KEY_BYTES} and {VALUE_BYTES} bytes");
    println!("  before the store was opened: {before}");
    let mut run = MemoryRun { seed, keys, db, keyspace, seen, counted: 0, begun };
    run.fill()?;
    run.read()?;
    run.scan()?;
    run.overwrite_under_snapshot()?;
    let mut text = String::new();
    let stats = run.db.stats();
    let _ = write!(text, "{}{}", stats.memory, stats.descriptors);
    text.lines().for_each(|line| println!("  {line}"));
    let disk = scratch_directory::disk_bytes(&folder) as f64 / MEBIBYTE;
    let peak_bytes = status_bytes("VmHWM");
    println!(
        "  {disk:.0} MiB on disk; the most in memory: {:.1} MiB",
        peak_bytes as f64 / MEBIBYTE
    );
    run.db.close().map_err(error_text)?;
    if peak_bytes > budget / 10 * 11 {
        return Err(format!("{peak_bytes} bytes were in memory, more than the budget and a tenth"));
    }
    Ok(())
}
