//! Engines and clocks with one fault each, which wrap real ones.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use clap::Parser;
use umbel_env::{Clock, Env};
use umbel_lab::command_line::{LabCommand, LabEnvironment, execute};
use umbel_lab::engine::umbel_engine::ENGINE;
use umbel_lab::engine::{
    Counters, Engine, EngineSettings, ReadDigest, Reader, Result, Store, WriteSource,
};
use umbel_lab::lab_error::LabError;
use umbel_lab::measure::pause;

/// Three keys, and two queries of which one misses.
pub const DATA: &str = "put\ta\t10\nput\tb\t20\nput\tc\nget\ta\nget\tz\n";

#[derive(Parser)]
struct Line {
    #[command(subcommand)]
    command: LabCommand,
}

/// Environment in which the lab runs. By default, no sanity check depends on other tests of the
/// process or on its speed.
pub struct TestLab<'a> {
    pub env: Env,
    pub engines: &'a [Engine],
    pub stop: &'a AtomicBool,
    pub shares_processors: bool,
}

pub static NEVER: AtomicBool = AtomicBool::new(false);

impl Default for TestLab<'_> {
    fn default() -> TestLab<'static> {
        let env = standing_clock_env();
        TestLab { env, engines: &[ENGINE], stop: &NEVER, shares_processors: true }
    }
}

impl TestLab<'_> {
    /// Runs a command line and returns its standard output.
    pub fn run(&self, words: &[&str]) -> std::result::Result<String, LabError> {
        self.run_as(words, false)
    }

    pub fn run_as(&self, words: &[&str], json: bool) -> std::result::Result<String, LabError> {
        let line = Line::parse_from(std::iter::once("lab").chain(words.iter().copied()));
        let TestLab { env, engines, stop, shares_processors } = self;
        let shares_processors = *shares_processors;
        let around = LabEnvironment { env, engines, stop, json, shares_processors };
        let mut output = Vec::new();
        execute(&line.command, &around, &mut output)?;
        Ok(String::from_utf8(output).expect("text"))
    }
}

/// A store that wraps another, with a fault.
struct Double {
    inside: Box<dyn Store>,
    lies: bool,
    sleeps: bool,
    /// Counts a compaction at each call.
    compactions: Option<AtomicU64>,
    /// Counts loaded blocks at each call.
    loads: Option<AtomicU64>,
}

fn double(folder: &Path, settings: &EngineSettings) -> Result<Double> {
    let inside = (ENGINE.open)(folder, settings)?;
    Ok(Double { inside, lies: false, sleeps: false, compactions: None, loads: None })
}

/// An engine that sometimes returns one value too many.
pub const LIAR: Engine = Engine {
    name: "liar",
    open: |folder, settings| Ok(Box::new(Double { lies: true, ..double(folder, settings)? })),
    ..ENGINE
};

/// An engine whose reader waits for most of its time.
pub const SLEEPY: Engine = Engine {
    name: "sleepy",
    open: |folder, settings| Ok(Box::new(Double { sleeps: true, ..double(folder, settings)? })),
    ..ENGINE
};

/// An engine that never stops compacting.
pub const RESTLESS: Engine = Engine {
    name: "restless",
    open: |folder, settings| {
        let compactions = Some(AtomicU64::new(0));
        Ok(Box::new(Double { compactions, ..double(folder, settings)? }))
    },
    ..ENGINE
};

/// An engine that never stops compacting with six hashes, and is idle otherwise.
pub const HALF_RESTLESS: Engine = Engine {
    open: |folder, settings| match settings.probes {
        Some(6) => (RESTLESS.open)(folder, settings),
        _ => (ENGINE.open)(folder, settings),
    },
    ..ENGINE
};

/// An engine whose cache keeps nothing.
pub const FORGETFUL: Engine = Engine {
    name: "forgetful",
    open: |folder, settings| {
        let loads = Some(AtomicU64::new(0));
        Ok(Box::new(Double { loads, ..double(folder, settings)? }))
    },
    ..ENGINE
};

impl Store for Double {
    fn version(&self) -> String {
        self.inside.version()
    }

    fn write_all(&self, source: &mut dyn WriteSource) -> Result<()> {
        self.inside.write_all(source)
    }

    fn put_synced(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.inside.put_synced(key, value)
    }

    fn flush(&self) -> Result<()> {
        self.inside.flush()
    }

    fn wait(&self) -> Result<Duration> {
        self.inside.wait()
    }

    fn compact(&self) -> Result<()> {
        self.inside.compact()
    }

    fn hold_snapshot(&self, hold: bool) -> Result<()> {
        self.inside.hold_snapshot(hold)
    }

    fn reader(&self, way: usize) -> Result<Box<dyn Reader + '_>> {
        let reader = self.inside.reader(way)?;
        if self.sleeps {
            return Ok(Box::new(Sleeps(reader, 0)));
        }
        Ok(if self.lies { Box::new(Lies(reader, 0)) } else { reader })
    }

    fn counters(&self) -> Counters {
        let counters = self.inside.counters();
        let grown = |count: &Option<AtomicU64>, by: u64, usual: Option<u64>| match count {
            Some(count) => Some(count.fetch_add(by, Ordering::Relaxed)),
            None => usual,
        };
        Counters {
            background_jobs: grown(&self.compactions, 1, counters.background_jobs),
            blocks_loaded: grown(&self.loads, 1 << 40, counters.blocks_loaded),
            ..counters
        }
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.inside.close()
    }
}

struct Lies<'a>(Box<dyn Reader + 'a>, u64);

impl Reader for Lies<'_> {
    fn get(&mut self, key: &[u8], tally: &mut ReadDigest) -> Result<()> {
        self.1 += 1;
        if self.1.is_multiple_of(1000) {
            tally.add_value(b"there was none");
        }
        self.0.get(key, tally)
    }

    fn seek(&mut self, key: &[u8], entries: usize, tally: &mut ReadDigest) -> Result<()> {
        self.0.seek(key, entries, tally)
    }

    fn scan(&mut self, tally: &mut ReadDigest) -> Result<()> {
        self.0.scan(tally)
    }
}

struct Sleeps<'a>(Box<dyn Reader + 'a>, u64);

impl Reader for Sleeps<'_> {
    fn get(&mut self, key: &[u8], tally: &mut ReadDigest) -> Result<()> {
        self.1 += 1;
        if self.1.is_multiple_of(500) {
            pause(Duration::from_millis(10));
        }
        self.0.get(key, tally)
    }

    fn seek(&mut self, key: &[u8], entries: usize, tally: &mut ReadDigest) -> Result<()> {
        self.0.seek(key, entries, tally)
    }

    fn scan(&mut self, tally: &mut ReadDigest) -> Result<()> {
        self.0.scan(tally)
    }
}

/// Returns the environment of the system with a clock that stands still, so that no pause between
/// its readings looks like a jump.
pub fn standing_clock_env() -> Env {
    Env { clock: Arc::new(StandingClock), ..Env::system() }
}

#[derive(Debug)]
struct StandingClock;

impl Clock for StandingClock {
    fn now(&self) -> Duration {
        Duration::from_secs(100)
    }

    fn wall_micros(&self) -> u64 {
        1_800_000_000_000_000
    }
}

/// A wall clock that jumps an hour ahead at each reading.
#[derive(Debug)]
pub struct Jumping(pub Arc<dyn Clock>, pub AtomicU64);

impl Clock for Jumping {
    fn now(&self) -> Duration {
        self.0.now()
    }

    fn wall_micros(&self) -> u64 {
        self.0.wall_micros() + self.1.fetch_add(3_600_000_000, Ordering::Relaxed)
    }
}
