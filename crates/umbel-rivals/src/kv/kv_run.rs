//! Runs the phases: every engine does the same work, in turns.
//!
//! Engines fill one after the other. After the fills, each store is aged, closed and opened again.
//! Phases that read alternate between the engines (A B C, A B C, A B C), so that a slow minute of
//! the machine affects all engines. Phases that write come last.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use umbel_keygen::keys::{KeySet, KeyShape};
use umbel_lab::engine::{Engine, EngineSettings, Result, Store};
use umbel_lab::measure::disk_usage;
use umbel_lab::measure::machine::loads;
use umbel_lab::measure::{Sample, measure, now};

use crate::engines;
use crate::kv::key_population::{PARTS, Population};
use crate::kv::kv_arguments::KvArguments;
use crate::kv::kv_results::{KvResults, Participant, PhaseRecord};
use crate::kv::phase::Phase;
use crate::kv::{memory_peak, phase_runner, read_while_writing};

/// Number added to the seed for the warm-up reads before the reads that count.
const REHEARSAL: u64 = 50;

/// Engine with its store.
struct EngineStore {
    engine: Engine,
    folder: PathBuf,
    store: Option<Box<dyn Store>>,
}

/// Run in progress.
pub struct KvRun<'a> {
    arguments: &'a KvArguments,
    population: Population,
    shape: KeyShape,
    settings: EngineSettings,
    folder: PathBuf,
    started: Instant,
    engine_stores: Vec<EngineStore>,
    /// Results so far.
    pub results: KvResults,
}

impl<'a> KvRun<'a> {
    /// Prepares a run on keys of a shape. `folder`, for the stores, exists and is empty.
    ///
    /// # Errors
    /// A sentence, if an engine is unknown or the keys cannot be made.
    pub fn new(arguments: &'a KvArguments, shape: KeyShape, folder: PathBuf) -> Result<KvRun<'a>> {
        let keys = KeySet::new(shape, arguments.num, arguments.key, arguments.value)?;
        let population = Population { keys, aged: arguments.aged };
        let (mut key, mut value) = (Vec::new(), Vec::new());
        keys.key(keys.present(0), &mut key);
        keys.value(0, &mut value);
        let entry_bytes = (key.len() + value.len()) as u64;
        let mut run = KvRun {
            arguments,
            population,
            shape,
            settings: arguments.settings(),
            folder,
            started: now(),
            engine_stores: Vec::new(),
            results: KvResults {
                user_bytes: keys.num() * entry_bytes,
                live_bytes: population.live() * entry_bytes,
                ..KvResults::default()
            },
        };
        for engine in engines::find_engines(&arguments.engines)? {
            run.results.participants.push(Participant {
                name: engine.name,
                version: String::new(),
                disk_bytes: None,
                aged_disk_bytes: None,
                memory: None,
                absence_reason: engine.missing_reason.map(str::to_string),
            });
            if let Some(reason) = engine.missing_reason {
                println!("skipped: {}: {reason}", engine.name);
                continue;
            }
            let folder = run.folder.join(engine.name);
            run.engine_stores.push(EngineStore { engine, folder, store: None });
        }
        Ok(run)
    }

    /// Measures the memory of each engine, each in a process of `program`, which is this program.
    /// Engines whose memory cannot be measured stay in the run without that figure.
    pub fn memory(&mut self, program: &Path) {
        let shape = self.shape.to_string();
        for at in 0..self.engine_stores.len() {
            let name = self.engine_stores[at].engine.name;
            let folder = self.folder.join(format!("{name}-memory"));
            match memory_peak::measure_in_child(program, name, &shape, self.arguments, &folder) {
                Ok(memory) => {
                    println!("{:>6.0} s  {name:9} memory", self.started.elapsed().as_secs_f64());
                    if let Some(participant) = self.participant(name) {
                        participant.memory = Some(memory);
                    }
                }
                Err(error) => println!("{name}: {error}"),
            }
        }
    }

    /// Runs all other phases. `save` is called when there are further results.
    pub fn run(&mut self, mut save: impl FnMut(&KvResults)) {
        let shuffled = self.population.keys.shuffled();
        let sorted = self.population.keys.sorted();
        for round in 0..self.arguments.fill_rounds {
            if round == 0 || self.has_time() {
                self.turns(|run, at| run.fill(at, round, &shuffled, &sorted));
                save(&self.results);
            }
        }
        drop((shuffled, sorted));
        self.turns(KvRun::age_store);
        self.turns(KvRun::warm_up);
        for phase in Phase::READS {
            self.rounds(self.arguments.rounds, |run, at, round| run.read(at, phase, round));
            save(&self.results);
        }
        self.rounds(self.arguments.rounds, KvRun::reopen);
        self.rounds(self.arguments.rounds, KvRun::synced);
        save(&self.results);
        self.rounds(self.arguments.concurrent_rounds, KvRun::read_while_writing);
        save(&self.results);
        self.turns(|run, at| {
            let engine_store = &mut run.engine_stores[at];
            engine_store.store.take().map_or(Ok(()), |store| store.close())
        });
    }

    fn has_time(&self) -> bool {
        let limit = self.arguments.seconds_limit.map(Duration::from_secs);
        limit.is_none_or(|limit| self.started.elapsed() < limit)
    }

    fn rounds(&mut self, rounds: u64, mut turn: impl FnMut(&mut Self, usize, u64) -> Result<()>) {
        for round in 0..rounds {
            if round == 0 || self.has_time() {
                self.turns(|run, at| turn(run, at, round));
            }
        }
    }

    /// Gives every engine a turn; an engine that fails leaves the run, and the reason is kept.
    fn turns(&mut self, mut turn: impl FnMut(&mut Self, usize) -> Result<()>) {
        let mut at = 0;
        while at < self.engine_stores.len() {
            match turn(self, at) {
                Ok(()) => at += 1,
                Err(error) => {
                    let removed = self.engine_stores.remove(at);
                    println!("{} leaves the run: {error}", removed.engine.name);
                    // A reason may name the store; its path is removed.
                    let place = self.folder.display().to_string();
                    let reason = error.to_string().replace(&place, "(stores)");
                    if let Some(participant) = self.participant(removed.engine.name) {
                        participant.absence_reason = Some(reason);
                    }
                }
            }
        }
    }

    fn participant(&mut self, name: &str) -> Option<&mut Participant> {
        self.results.participants.iter_mut().find(|participant| participant.name == name)
    }

    fn keep(&mut self, at: usize, read_path: usize, phase: Phase, round: u64, sample: Sample) {
        let engine = self.engine_stores[at].engine;
        let load = loads().map(|loads| loads[0]);
        println!(
            "{:>6.0} s  {:9} {:16} round {round}: {:>12.1} wall, {:>10.1} thread ns each{}",
            self.started.elapsed().as_secs_f64(),
            engine.name,
            phase.name(),
            sample.wall(),
            sample.thread(),
            if read_path == 0 {
                String::new()
            } else {
                format!(", {}", engine.read_paths[read_path])
            },
        );
        self.results.records.push(PhaseRecord {
            engine: engine.name,
            read_path,
            phase,
            round,
            sample,
            load,
        });
    }

    /// Fills in random order and settles, then fills another store in key order and settles it.
    /// Only the randomly filled store of the first round is kept.
    fn fill(&mut self, at: usize, round: u64, shuffled: &[u64], sorted: &[u64]) -> Result<()> {
        let name = self.engine_stores[at].engine.name;
        let first = self.engine_stores[at].folder.clone();
        let again = self.folder.join(format!("{name}-again"));
        let folder = if round == 0 { first } else { again.clone() };
        let random = (Phase::PutRandom, Phase::FillRandom);
        let store = self.fill_one(at, round, random, &folder, shuffled)?;
        if round == 0 {
            let (version, disk_bytes) = (store.version(), disk_usage::bytes(&folder)?);
            if let Some(participant) = self.participant(name) {
                participant.version = version;
                participant.disk_bytes = Some(disk_bytes);
            }
        }
        store.close()?;
        if round > 0 {
            std::fs::remove_dir_all(&folder)?;
        }
        let sequential = (Phase::PutSequential, Phase::FillSequential);
        self.fill_one(at, round, sequential, &again, sorted)?.close()?;
        Ok(std::fs::remove_dir_all(&again)?)
    }

    fn fill_one(
        &mut self,
        at: usize,
        round: u64,
        (put, fill): (Phase, Phase),
        folder: &Path,
        names: &[u64],
    ) -> Result<Box<dyn Store>> {
        std::fs::create_dir_all(folder)?;
        let store = (self.engine_stores[at].engine.open)(folder, &self.settings)?;
        let before = disk_usage::device_written_bytes(folder);
        let puts = phase_runner::fill(&*store, self.population.keys, names)?;
        self.keep(at, 0, put, round, puts);
        let mut all = puts.and_then(phase_runner::settle(&*store, folder)?);
        let after = disk_usage::device_written_bytes(folder);
        all.device_bytes = after.zip(before).map(|(after, before)| after - before);
        self.keep(at, 0, fill, round, all);
        Ok(store)
    }

    /// Overwrites and deletes in three parts. The first part is compacted down the levels, and the
    /// second is in the store when it is opened again. The third part follows a snapshot that is
    /// held during the reads.
    fn age_store(&mut self, at: usize) -> Result<()> {
        let open = |run: &KvRun<'_>| {
            (run.engine_stores[at].engine.open)(&run.engine_stores[at].folder, &run.settings)
        };
        let lived_in = self.population.aged;
        let change = |store: &dyn Store, part| match lived_in {
            true => store.write_all(&mut self.population.changes(part)),
            false => Ok(()),
        };
        let store = open(self)?;
        change(&*store, 0)?;
        store.flush()?;
        store.wait()?;
        change(&*store, 1)?;
        if self.arguments.compact {
            store.compact()?;
            store.wait()?;
        }
        store.close()?;
        let store = open(self)?;
        if lived_in {
            store.hold_snapshot(true)?;
        }
        for part in 2..PARTS {
            change(&*store, part)?;
        }
        store.wait()?;
        let (name, bytes) = (
            self.engine_stores[at].engine.name,
            disk_usage::bytes(&self.engine_stores[at].folder)?,
        );
        self.engine_stores[at].store = Some(store);
        if let Some(participant) = self.participant(name) {
            participant.aged_disk_bytes = Some(bytes);
        }
        Ok(())
    }

    fn store(&self, at: usize) -> Result<&dyn Store> {
        let engine_store = &self.engine_stores[at];
        engine_store.store.as_deref().ok_or_else(|| "its store is not open".into())
    }

    fn warm_up(&mut self, at: usize) -> Result<()> {
        let tally = phase_runner::warm_up(self.store(at)?, self.population)?;
        // Each key once by a get, with deleted ones as their neighbors, and then all present ones.
        let expected = self.population.keys.num() + self.population.live();
        if tally.found == expected || self.engine_stores[at].engine.name == "none" {
            return Ok(());
        }
        Err(format!("it found {} of {expected} entries while warming up", tally.found).into())
    }

    fn read(&mut self, at: usize, phase: Phase, round: u64) -> Result<()> {
        // A seed for each phase and round, the same for all engines.
        let seed = 100 * (round + 1) + phase as u64;
        let engine = self.engine_stores[at].engine;
        let read_paths = match phase {
            Phase::SeekKept if !engine.reuses_cursor => 0,
            // A kept cursor belongs to one transaction, and lends values.
            Phase::SeekKept => 1,
            _ => engine.read_paths.len(),
        };
        let reads = self.arguments.reads;
        for read_path in 0..read_paths {
            let store = self.store(at)?;
            // Earlier work left none of these entries in the processor's caches, or, over another
            // read path, all of them. A scan refills the caches in any case.
            if phase != Phase::Scan {
                phase_runner::read(
                    store,
                    read_path,
                    self.population,
                    phase,
                    reads,
                    seed + REHEARSAL,
                )?;
            }
            let sample = phase_runner::read(store, read_path, self.population, phase, reads, seed)?;
            self.keep(at, read_path, phase, round, sample);
        }
        Ok(())
    }

    fn reopen(&mut self, at: usize, round: u64) -> Result<()> {
        let (engine, settings) = (self.engine_stores[at].engine, self.settings);
        if let Some(store) = self.engine_stores[at].store.take() {
            store.close()?;
        }
        let folder = self.engine_stores[at].folder.clone();
        let mut opened = None;
        let population = self.population;
        let sample = measure(1, || {
            let store = opened.insert((engine.open)(&folder, &settings)?);
            phase_runner::first_answer(&**store, population)
        })?;
        self.engine_stores[at].store = opened;
        self.keep(at, 0, Phase::Open, round, sample);
        Ok(())
    }

    fn synced(&mut self, at: usize, round: u64) -> Result<()> {
        let (puts, keys) = (self.arguments.synced, self.population.keys);
        let first = round * phase_runner::synced_keys(puts);
        let one = phase_runner::synced_one(self.store(at)?, keys, first, puts)?;
        self.keep(at, 0, Phase::SyncedOne, round, one);
        let eight = phase_runner::synced_eight(self.store(at)?, keys, first + puts, puts)?;
        self.keep(at, 0, Phase::SyncedEight, round, eight);
        Ok(())
    }

    fn read_while_writing(&mut self, at: usize, round: u64) -> Result<()> {
        let (reads, population) = (self.arguments.concurrent_reads, self.population);
        let read_path = self.engine_stores[at].engine.fresh_read_path;
        let seed = 100 * (round + 1);
        // The caches are cold after the open, and the writer wrote since.
        phase_runner::warm_up(self.store(at)?, population)?;
        let alone = read_while_writing::read_alone(
            self.store(at)?,
            read_path,
            population,
            reads,
            seed,
            None,
        )?;
        self.keep(at, read_path, Phase::ReadAlone, round, alone);
        for (phase, rate) in [
            (Phase::ReadWhileWriting, None),
            (Phase::ReadWhileWritingPaced, Some(alone.rate() / 2.0)),
        ] {
            let store = self.store(at)?;
            let sample = read_while_writing::read_while_writing(
                store, read_path, population, reads, seed, rate,
            )?;
            store.wait()?;
            self.keep(at, read_path, phase, round, sample);
        }
        Ok(())
    }
}
