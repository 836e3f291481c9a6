//! The advisor campaign: two stores with the same data and the same reads, one with the plain
//! filters alone, one advised. On no workload may the advised one search more tables than the plain
//! one, but for what finding out costs; where filters pay it must save, where they do not it must
//! give their memory back.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use umbel::{Db, Env, Keyspace, KeyspaceOptions, Options};
use umbel_env::Entropy;
use umbel_lab::zipfian;

use crate::random::{Random, join};
use crate::report::Tally;
use crate::scratch::Scratch;

/// Keys of the full campaign.
pub const KEYS: u64 = 4_000_000;
/// Keys of the small one.
pub const KEYS_SMALL: u64 = 100_000;
/// Missing keys are numbered from here.
const MISSING_FROM: u64 = 1 << 40;
/// Both stores are asked so many keys in turn.
const TURN: u64 = 10_000;
/// The advisor decides after so many gets, as it does once a second where there are background
/// threads; without them every run is the same.
const DECIDE: u64 = 20_000;
/// How many more tables the advised store may search.
const WORSE: f64 = 1.02;
/// How many times fewer tables it must search in vain where all keys are missing, once its tables
/// were written while that was known.
const FEWER: f64 = 2.5;
/// The same where there are so few keys that level 0 has some hundred a table.
const FEWER_SMALL: f64 = 2.0;
/// How much of the filters' memory it must give back where all keys are there.
const GIVEN_BACK: f64 = 0.8;

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Workload {
    Uniform,
    Zipfian,
    Hits,
    Misses,
    Turning,
    Turned,
}

/// In an order in which each comes after another that it is unlike.
const WORKLOADS: [Workload; 6] = [
    Workload::Uniform,
    Workload::Hits,
    Workload::Turning,
    Workload::Zipfian,
    Workload::Turned,
    Workload::Misses,
];

impl Workload {
    fn name(self) -> &'static str {
        match self {
            Workload::Uniform => "uniform, half of it missing",
            Workload::Zipfian => "zipfian, a tenth missing",
            Workload::Hits => "all hits",
            Workload::Misses => "all misses",
            Workload::Turning => "hits, then misses",
            Workload::Turned => "misses, then hits",
        }
    }

    /// The number of a key, and whether it is there: get `at` of `gets`.
    fn draw(self, random: &mut Random, keys: u64, at: u64, gets: u64) -> (u64, bool) {
        let there = match self {
            Workload::Uniform => random.once_in(2),
            Workload::Zipfian => !random.once_in(10),
            Workload::Hits => true,
            Workload::Misses => false,
            Workload::Turning => at * 2 < gets,
            Workload::Turned => at * 2 >= gets,
        };
        let number = match self {
            Workload::Zipfian => zipfian(random, keys),
            _ => random.below(keys),
        };
        (number, there)
    }
}

/// The number of a key, by its rank strewn over the keys.
fn zipfian(random: &mut Random, keys: u64) -> u64 {
    join(zipfian::rank(random.below(1 << 53), keys), 7) % keys
}

/// Random bytes that a seed decides.
#[derive(Debug)]
struct Seeded(u64);

impl Entropy for Seeded {
    fn fill(&self, bytes: &mut [u8]) -> umbel::Result<()> {
        bytes.copy_from_slice(&Random::new(self.0).bytes(bytes.len()));
        Ok(())
    }
}

/// One of the two stores.
struct Side {
    db: Db,
    keyspace: Keyspace,
    seed: u64,
}

/// What a side did for a workload.
#[derive(Debug, Default, Clone, Copy)]
struct Done {
    table_reads: u64,
    false_reads: u64,
    time: Duration,
    wrong: u64,
}

impl Side {
    fn new(place: &Path, seed: u64, keys: u64, is_advised: bool) -> umbel::Result<Side> {
        // The same secret for both: what one filter lets through by chance the other does too.
        let env = Env { entropy: Arc::new(Seeded(seed)), ..Env::system() };
        let options = Options { background_threads: 0, env, ..Options::default() };
        let db = Db::open(place.join(if is_advised { "advised" } else { "plain" }), options)?;
        let part = (keys * 3).clamp(64 << 10, 8 << 20);
        let options = KeyspaceOptions {
            advisor: is_advised,
            log: false,
            memtable_bytes: part,
            table_bytes: part * 8,
            level_bytes_base: part * 3,
            ..KeyspaceOptions::default()
        };
        let keyspace = db.keyspace("advisor", options)?;
        Ok(Side { db, keyspace, seed })
    }

    fn key(&self, number: u64) -> [u8; 16] {
        let mut key = [0; 16];
        key[..8].copy_from_slice(&join(self.seed, number * 2).to_be_bytes());
        key[8..].copy_from_slice(&join(self.seed, number * 2 + 1).to_be_bytes());
        key
    }

    /// Puts `count` keys from `from` on, in an order without one, with values of a hundred bytes.
    fn fill(&self, from: u64, count: u64) -> umbel::Result<()> {
        (from..from + count).try_for_each(|number| self.keyspace.put(self.key(number), [7; 100]))
    }

    /// The bytes of filters in memory.
    fn filter_bytes(&self) -> u64 {
        self.keyspace.stats().levels.iter().map(|level| level.filter_bytes_in_memory).sum()
    }

    fn counts(&self) -> (u64, u64) {
        let levels = self.keyspace.stats().levels;
        let sum = |part: fn(&umbel::LevelStats) -> u64| levels.iter().map(part).sum();
        (sum(|level| level.table_reads), sum(|level| level.false_reads))
    }

    fn ask(&self, asked: &[(u64, bool)]) -> umbel::Result<Done> {
        let before = self.counts();
        let clock = Env::system().clock;
        let begun = clock.now();
        let mut wrong = 0;
        for &(number, there) in asked {
            let number = if there { number } else { MISSING_FROM + number };
            wrong += u64::from(self.keyspace.contains(self.key(number))? != there);
        }
        let time = clock.now() - begun;
        let after = self.counts();
        let (table_reads, false_reads) = (after.0 - before.0, after.1 - before.1);
        Ok(Done { table_reads, false_reads, time, wrong })
    }
}

impl Done {
    fn add(&mut self, other: Done) {
        self.table_reads += other.table_reads;
        self.false_reads += other.false_reads;
        self.time += other.time;
        self.wrong += other.wrong;
    }
}

/// Both stores through every workload.
pub fn campaign(place: &Path, seed: u64, keys: u64) -> Tally {
    let tally = Tally::new("advisor");
    if let Err(text) = run(place, seed, keys, &tally) {
        tally.violation(text, format!("advisor {seed} {keys}"));
        tally.scenario(false);
    }
    tally
}

fn run(place: &Path, seed: u64, keys: u64, tally: &Tally) -> Result<(), String> {
    let scratch = Scratch::new(place, "advisor")?;
    let said = |error: umbel::Error| error.to_string();
    let sides = [false, true].map(|advised| Side::new(scratch.path(), seed, keys, advised));
    let [plain, advised] = sides.map(|side| side.map_err(said));
    let sides = [plain?, advised?];
    for side in &sides {
        side.fill(0, keys).and_then(|()| side.db.wait_for_compaction()).map_err(said)?;
    }
    tally.note(
        "| reads | gets | tables searched, plain | advised | in vain, plain | advised | \
         ns a get, plain | advised | filter MiB, plain | advised |"
            .to_string(),
    );
    tally.note("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|".to_string());
    let mut random = Random::new(seed);
    let gets = keys.max(400_000);
    let mut pair = Pair { sides: &sides, random: &mut random, keys, tally, seed };
    // Misses, while nothing is known, and then tables written while it is.
    let before = pair.through(Workload::Misses, gets, "all misses, before anything is known")?;
    pair.judge(before, "misses at first", WORSE);
    for side in &sides {
        side.keyspace.compact(None, None).map_err(said)?;
        let part = keys / 50;
        (0..3u64)
            .try_for_each(|round| {
                side.fill(round * part, part)?;
                side.keyspace.flush()
            })
            .map_err(said)?;
        side.db.wait_for_compaction().map_err(said)?;
    }
    let known = pair.through(Workload::Misses, gets, "all misses, tables written since")?;
    pair.judge(known, "misses once known", WORSE);
    note_advice(&sides[1], tally);
    let fewer = known[0].false_reads as f64 / known[1].false_reads.max(1) as f64;
    tally.note(format!("{fewer:.2} times fewer tables searched in vain once known"));
    if fewer < if keys < KEYS_SMALL * 2 { FEWER_SMALL } else { FEWER } {
        pair.complain(format!("only {fewer:.2} times fewer tables searched in vain"));
    }
    for workload in WORKLOADS {
        let done = pair.through(workload, gets, workload.name())?;
        pair.judge(done, workload.name(), WORSE);
        if workload == Workload::Hits {
            let [plain, advised] = [0, 1].map(|side: usize| sides[side].filter_bytes() as f64);
            let given_back = 1.0 - advised / plain;
            tally.note(format!("{:.1} % of the filters' memory given back", given_back * 100.0));
            if given_back < GIVEN_BACK {
                pair.complain(format!("only {:.1} % given back on hits", given_back * 100.0));
            }
        }
    }
    for side in &sides {
        let report = side.db.verify().map_err(said)?;
        if !report.damage.is_empty() {
            pair.complain(format!("{} damaged tables", report.damage.len()));
        }
    }
    Ok(())
}

/// What the advisor does and why.
fn note_advice(side: &Side, tally: &Tally) {
    for level in side.db.advice().iter().flat_map(|advice| &advice.levels) {
        tally.note(format!(
            "level {}: {} entries in {} tables, {} kept, plain {:?}, second {:?}: {}",
            level.level,
            level.entries,
            level.tables,
            level.kept,
            level.plain,
            level.second,
            level.why
        ));
    }
}

/// Both stores, the plain one first.
struct Pair<'a> {
    sides: &'a [Side; 2],
    random: &'a mut Random,
    keys: u64,
    tally: &'a Tally,
    seed: u64,
}

impl Pair<'_> {
    fn complain(&self, what: String) {
        self.tally.violation(what, format!("advisor {} {}", self.seed, self.keys));
    }

    /// Asks both for the same, in turn.
    fn through(&mut self, workload: Workload, gets: u64, name: &str) -> Result<[Done; 2], String> {
        let mut done = [Done::default(); 2];
        let mut asked = Vec::new();
        for at in (0..gets).step_by(TURN as usize) {
            let draw = |at| workload.draw(self.random, self.keys, at, gets);
            asked.clear();
            asked.extend((at..gets.min(at + TURN)).map(draw));
            // Whoever comes second finds the processor's caches as the other left them.
            let first = (at / TURN % 2) as usize;
            for side in [first, 1 - first] {
                let one = self.sides[side].ask(&asked).map_err(|error| error.to_string())?;
                done[side].add(one);
                if at % DECIDE == 0 {
                    self.sides[side].db.advice();
                }
            }
        }
        let wrong: u64 = done.iter().map(|done| done.wrong).sum();
        self.tally.add("gets", 2 * gets);
        self.tally.add("wrong answers", wrong);
        if wrong > 0 {
            self.complain(format!("{name}: {wrong} wrong answers"));
        }
        let [plain, advised] = done;
        let nanos = |done: Done| done.time.as_nanos() as f64 / gets as f64;
        let memory = [0, 1].map(|side: usize| self.sides[side].filter_bytes() as f64 / 1_048_576.0);
        self.tally.note(format!(
            "| {name} | {gets} | {} | {} | {} | {} | {:.0} | {:.0} | {:.2} | {:.2} |",
            plain.table_reads,
            advised.table_reads,
            plain.false_reads,
            advised.false_reads,
            nanos(plain),
            nanos(advised),
            memory[0],
            memory[1]
        ));
        self.tally.say(name);
        Ok(done)
    }

    /// Whether the advised one searched no more tables than it may.
    fn judge(&self, done: [Done; 2], name: &str, worse: f64) {
        let [plain, advised] = done;
        let most = plain.table_reads as f64 * worse;
        let bad = advised.table_reads as f64 > most;
        if bad {
            let (ours, theirs) = (advised.table_reads, plain.table_reads);
            self.complain(format!("{name}: {ours} tables searched, {theirs} with plain filters"));
        }
        let more = self.sides[1].filter_bytes() > self.sides[0].filter_bytes();
        if more {
            self.complain(format!("{name}: more memory than the plain filters take"));
        }
        self.tally.scenario(!bad && !more);
    }
}
