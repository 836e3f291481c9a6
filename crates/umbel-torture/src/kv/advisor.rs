//! The advisor campaign: two stores with the same data and reads, one with only plain filters, one
//! advised. In no workload may the advised store search more tables than the plain store, except
//! for the cost of its statistics. If filters pay, the advised store must save searches; if they do
//! not, it must release their memory.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use umbel::{Db, Env, Keyspace, KeyspaceOptions, Options};
use umbel_env::Entropy;
use umbel_keygen::zipfian;
use umbel_sim::Random;

use crate::support::campaign_tally::CampaignTally;
use crate::support::derived_seed::derive_seed;
use crate::support::scratch_directory::ScratchDirectory;

/// Keys of the full campaign.
pub const KEYS: u64 = 4_000_000;
/// Keys of the small campaign.
pub const KEYS_SMALL: u64 = 100_000;
/// First number of the missing keys.
const MISSING_FROM: u64 = 1 << 40;
/// Number of lookups in one store before lookups continue in the other store.
const GETS_PER_TURN: u64 = 10_000;
/// Number of gets between two decisions of the advisor. With background threads, the advisor
/// decides once a second; here, without threads, every run is the same.
const GETS_PER_DECISION: u64 = 20_000;
/// Largest allowed ratio of the tables that the advised store searches to the tables that the plain
/// store searches.
const EXTRA_TABLES_SHARE_MAX: f64 = 1.02;
/// Factor by which the advised store must search fewer tables than the plain one if all keys are
/// missing. Counts once its tables were written with statistics of such lookups.
const MISSES_FEWER_TABLES: f64 = 2.5;
/// Like [`MISSES_FEWER_TABLES`], for the small campaign, in which a level-0 table has only some
/// hundred keys.
const MISSES_FEWER_TABLES_SMALL: f64 = 2.0;
/// Share of the filters' memory that the advised store must release if all keys are present.
const RELEASED_SHARE_MIN: f64 = 0.8;

/// Lookups of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Workload {
    Uniform,
    Zipfian,
    Hits,
    Misses,
    Turning,
    Turned,
}

/// Workloads in an order in which each one follows an unlike one.
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

    /// Draws the lookup with the index `at` of `gets` lookups: the number of a key, and whether the
    /// key is present.
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

/// Draws the number of a key; the frequent keys are scattered over all keys.
fn zipfian(random: &mut Random, keys: u64) -> u64 {
    derive_seed(zipfian::rank(random.below(1 << 53), keys), 7) % keys
}

/// Source of random bytes that a seed decides.
#[derive(Debug)]
struct SeededEntropy(u64);

impl Entropy for SeededEntropy {
    fn fill(&self, bytes: &mut [u8]) -> umbel::Result<()> {
        bytes.copy_from_slice(&Random::new(self.0).bytes(bytes.len()));
        Ok(())
    }
}

/// One of the two stores.
struct StoreUnderTest {
    db: Db,
    keyspace: Keyspace,
    seed: u64,
}

/// Counts of a store for a workload.
#[derive(Debug, Default, Clone, Copy)]
struct WorkloadCounts {
    table_reads: u64,
    false_reads: u64,
    time: Duration,
    wrong: u64,
}

impl StoreUnderTest {
    fn new(place: &Path, seed: u64, keys: u64, is_advised: bool) -> umbel::Result<StoreUnderTest> {
        // The same secret for both, so that the false positives of a filter are the same in both.
        let env = Env { entropy: Arc::new(SeededEntropy(seed)), ..Env::system() };
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
        Ok(StoreUnderTest { db, keyspace, seed })
    }

    fn key(&self, number: u64) -> [u8; 16] {
        let mut key = [0; 16];
        key[..8].copy_from_slice(&derive_seed(self.seed, number * 2).to_be_bytes());
        key[8..].copy_from_slice(&derive_seed(self.seed, number * 2 + 1).to_be_bytes());
        key
    }

    /// Puts `count` keys from `from` on, in pseudo-random order, with values of a hundred bytes.
    fn fill(&self, from: u64, count: u64) -> umbel::Result<()> {
        (from..from + count).try_for_each(|number| self.keyspace.put(self.key(number), [7; 100]))
    }

    /// Returns the bytes of filters in memory.
    fn filter_bytes(&self) -> u64 {
        self.keyspace.stats().levels.iter().map(|level| level.filter_bytes_in_memory).sum()
    }

    fn counts(&self) -> (u64, u64) {
        let levels = self.keyspace.stats().levels;
        let sum = |part: fn(&umbel::LevelStats) -> u64| levels.iter().map(part).sum();
        (sum(|level| level.table_reads), sum(|level| level.false_reads))
    }

    fn get_all(&self, draws: &[(u64, bool)]) -> umbel::Result<WorkloadCounts> {
        let before = self.counts();
        let clock = Env::system().clock;
        let begun = clock.now();
        let mut wrong = 0;
        for &(number, there) in draws {
            let number = if there { number } else { MISSING_FROM + number };
            wrong += u64::from(self.keyspace.contains(self.key(number))? != there);
        }
        let time = clock.now() - begun;
        let after = self.counts();
        let (table_reads, false_reads) = (after.0 - before.0, after.1 - before.1);
        Ok(WorkloadCounts { table_reads, false_reads, time, wrong })
    }
}

impl WorkloadCounts {
    fn add(&mut self, other: WorkloadCounts) {
        self.table_reads += other.table_reads;
        self.false_reads += other.false_reads;
        self.time += other.time;
        self.wrong += other.wrong;
    }
}

/// Runs every workload on both stores.
pub fn campaign(place: &Path, seed: u64, keys: u64) -> CampaignTally {
    let tally = CampaignTally::new("advisor");
    if let Err(text) = run(place, seed, keys, &tally) {
        tally.violation(text, format!("advisor {seed} {keys}"));
        tally.scenario(false);
    }
    tally
}

fn run(place: &Path, seed: u64, keys: u64, tally: &CampaignTally) -> Result<(), String> {
    let scratch = ScratchDirectory::new(place, "advisor")?;
    let describe = |error: umbel::Error| error.to_string();
    let sides =
        [false, true].map(|advised| StoreUnderTest::new(scratch.path(), seed, keys, advised));
    let [plain, advised] = sides.map(|side| side.map_err(describe));
    let sides = [plain?, advised?];
    for side in &sides {
        side.fill(0, keys).and_then(|()| side.db.wait_for_compaction()).map_err(describe)?;
    }
    tally.note(
        "| reads | gets | tables searched, plain | advised | without a hit, plain | advised | \
         ns a get, plain | advised | filter MiB, plain | advised |"
            .to_string(),
    );
    tally.note("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|".to_string());
    let mut random = Random::new(seed);
    let gets = keys.max(400_000);
    let mut pair = StorePair { sides: &sides, random: &mut random, keys, tally, seed };
    // Misses without statistics, and then tables written with them.
    let before = pair.run_workload(Workload::Misses, gets, "all misses, before any statistics")?;
    pair.check_reads(before, "misses at first", EXTRA_TABLES_SHARE_MAX);
    for side in &sides {
        side.keyspace.compact(None, None).map_err(describe)?;
        let part = keys / 50;
        (0..3u64)
            .try_for_each(|round| {
                side.fill(round * part, part)?;
                side.keyspace.flush()
            })
            .map_err(describe)?;
        side.db.wait_for_compaction().map_err(describe)?;
    }
    let known = pair.run_workload(Workload::Misses, gets, "all misses, tables written since")?;
    pair.check_reads(known, "misses once known", EXTRA_TABLES_SHARE_MAX);
    note_advice(&sides[1], tally);
    let fewer = known[0].false_reads as f64 / known[1].false_reads.max(1) as f64;
    tally.note(format!("{fewer:.2} times fewer tables searched without a hit once known"));
    if fewer < if keys < KEYS_SMALL * 2 { MISSES_FEWER_TABLES_SMALL } else { MISSES_FEWER_TABLES } {
        pair.report_violation(format!("only {fewer:.2} times fewer tables searched without a hit"));
    }
    for workload in WORKLOADS {
        let done = pair.run_workload(workload, gets, workload.name())?;
        pair.check_reads(done, workload.name(), EXTRA_TABLES_SHARE_MAX);
        if workload == Workload::Hits {
            let [plain, advised] = [0, 1].map(|side: usize| sides[side].filter_bytes() as f64);
            let given_back = 1.0 - advised / plain;
            tally.note(format!("{:.1} % of the filters' memory given back", given_back * 100.0));
            if given_back < RELEASED_SHARE_MIN {
                pair.report_violation(format!(
                    "only {:.1} % given back on hits",
                    given_back * 100.0
                ));
            }
        }
    }
    for side in &sides {
        let report = side.db.verify().map_err(describe)?;
        if !report.damage.is_empty() {
            pair.report_violation(format!("{} damaged tables", report.damage.len()));
        }
    }
    Ok(())
}

/// Records the advisor's decisions and their reasons.
fn note_advice(side: &StoreUnderTest, tally: &CampaignTally) {
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
struct StorePair<'a> {
    sides: &'a [StoreUnderTest; 2],
    random: &'a mut Random,
    keys: u64,
    tally: &'a CampaignTally,
    seed: u64,
}

impl StorePair<'_> {
    fn report_violation(&self, what: String) {
        self.tally.violation(what, format!("advisor {} {}", self.seed, self.keys));
    }

    /// Runs the same lookups on both stores, in turn.
    fn run_workload(
        &mut self,
        workload: Workload,
        gets: u64,
        name: &str,
    ) -> Result<[WorkloadCounts; 2], String> {
        let mut done = [WorkloadCounts::default(); 2];
        let mut draws = Vec::new();
        for at in (0..gets).step_by(GETS_PER_TURN as usize) {
            let draw = |at| workload.draw(self.random, self.keys, at, gets);
            draws.clear();
            draws.extend((at..gets.min(at + GETS_PER_TURN)).map(draw));
            // The second store finds the processor's caches as the other left them.
            let first = (at / GETS_PER_TURN % 2) as usize;
            for side in [first, 1 - first] {
                let one = self.sides[side].get_all(&draws).map_err(|error| error.to_string())?;
                done[side].add(one);
                if at % GETS_PER_DECISION == 0 {
                    self.sides[side].db.advice();
                }
            }
        }
        let wrong: u64 = done.iter().map(|done| done.wrong).sum();
        self.tally.add("gets", 2 * gets);
        self.tally.add("wrong answers", wrong);
        if wrong > 0 {
            self.report_violation(format!("{name}: {wrong} wrong answers"));
        }
        let [plain, advised] = done;
        let nanos = |done: WorkloadCounts| done.time.as_nanos() as f64 / gets as f64;
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
        self.tally.print_progress(name);
        Ok(done)
    }

    /// Checks that the advised store searched no more tables than allowed.
    fn check_reads(&self, done: [WorkloadCounts; 2], name: &str, worse: f64) {
        let [plain, advised] = done;
        let reads_max = plain.table_reads as f64 * worse;
        let bad = advised.table_reads as f64 > reads_max;
        if bad {
            let (ours, theirs) = (advised.table_reads, plain.table_reads);
            self.report_violation(format!(
                "{name}: {ours} tables searched, {theirs} with plain filters"
            ));
        }
        let more = self.sides[1].filter_bytes() > self.sides[0].filter_bytes();
        if more {
            self.report_violation(format!("{name}: more memory than the plain filters take"));
        }
        self.tally.scenario(!bad && !more);
    }
}
