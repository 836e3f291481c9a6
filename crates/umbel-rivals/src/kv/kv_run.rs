//! The run: every engine does the same, in turns.
//!
//! Filling is done by one engine after the other. Then each store is lived in, closed and opened
//! again, and the phases that read go round: engines A B C, A B C, A B C for each phase, so that a
//! minute in which the machine is slow hits all of them. What writes comes last.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use umbel_lab::disk;
use umbel_lab::engine::{Engine, Result, Settings, Store};
use umbel_lab::keys::{Keys, Shape};
use umbel_lab::machine::loads;
use umbel_lab::measure::{Sample, measure, now};

use crate::arguments::Arguments;
use crate::plan::Phase;
use crate::population::{PARTS, Population};
use crate::record::{Participant, Record, Results};
use crate::{beside, engines, memory, work};

/// What the reads before those that count add to their seed.
const REHEARSAL: u64 = 50;

/// An engine with its store.
struct Contender {
    engine: Engine,
    folder: PathBuf,
    store: Option<Box<dyn Store>>,
}

/// A run in progress.
pub struct Run<'a> {
    arguments: &'a Arguments,
    population: Population,
    shape: Shape,
    settings: Settings,
    folder: PathBuf,
    started: Instant,
    contenders: Vec<Contender>,
    /// What was found so far.
    pub results: Results,
}

impl<'a> Run<'a> {
    /// Prepares a run on keys of a shape, whose stores lie in `folder`, which exists and is empty.
    ///
    /// # Errors
    /// A sentence where there is no such engine or the keys cannot be made.
    pub fn new(arguments: &'a Arguments, shape: Shape, folder: PathBuf) -> Result<Run<'a>> {
        let keys = Keys::new(shape, arguments.num, arguments.key, arguments.value)?;
        let population = Population { keys, lived_in: arguments.lived_in };
        let (mut key, mut value) = (Vec::new(), Vec::new());
        keys.key(keys.present(0), &mut key);
        keys.value(0, &mut value);
        let entry_bytes = (key.len() + value.len()) as u64;
        let mut run = Run {
            arguments,
            population,
            shape,
            settings: arguments.settings(),
            folder,
            started: now(),
            contenders: Vec::new(),
            results: Results {
                user_bytes: keys.num() * entry_bytes,
                live_bytes: population.live() * entry_bytes,
                ..Results::default()
            },
        };
        for engine in engines::chosen(&arguments.engines)? {
            run.results.participants.push(Participant {
                name: engine.name,
                version: String::new(),
                disk_bytes: None,
                lived_in_disk_bytes: None,
                memory: None,
                absent_because: engine.missing.map(str::to_string),
            });
            if let Some(reason) = engine.missing {
                println!("skipped: {}: {reason}", engine.name);
                continue;
            }
            let folder = run.folder.join(engine.name);
            run.contenders.push(Contender { engine, folder, store: None });
        }
        Ok(run)
    }

    /// Measures what each engine takes of memory, each in a process of `program`, which is this
    /// program. Engines whose memory cannot be measured stay in the run without that figure.
    pub fn memory(&mut self, program: &Path) {
        let shape = self.shape.to_string();
        for at in 0..self.contenders.len() {
            let name = self.contenders[at].engine.name;
            let folder = self.folder.join(format!("{name}-memory"));
            match memory::elsewhere(program, name, &shape, self.arguments, &folder) {
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

    /// Does everything else. `save` is called when there is something worth keeping.
    pub fn run(&mut self, mut save: impl FnMut(&Results)) {
        let shuffled = self.population.keys.shuffled();
        let sorted = self.population.keys.sorted();
        for round in 0..self.arguments.fill_rounds {
            if round == 0 || self.has_time() {
                self.turns(|run, at| run.fill(at, round, &shuffled, &sorted));
                save(&self.results);
            }
        }
        drop((shuffled, sorted));
        self.turns(Run::live_in);
        self.turns(Run::warm_up);
        for phase in Phase::READS {
            self.rounds(self.arguments.rounds, |run, at, round| run.read(at, phase, round));
            save(&self.results);
        }
        self.rounds(self.arguments.rounds, Run::reopen);
        self.rounds(self.arguments.rounds, Run::synced);
        save(&self.results);
        self.rounds(self.arguments.beside_rounds, Run::beside);
        save(&self.results);
        self.turns(|run, at| {
            let contender = &mut run.contenders[at];
            contender.store.take().map_or(Ok(()), |store| store.close())
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

    /// Lets every contender have a turn; one that fails leaves the run, and the reason is kept.
    fn turns(&mut self, mut turn: impl FnMut(&mut Self, usize) -> Result<()>) {
        let mut at = 0;
        while at < self.contenders.len() {
            match turn(self, at) {
                Ok(()) => at += 1,
                Err(error) => {
                    let gone = self.contenders.remove(at);
                    println!("{} leaves the run: {error}", gone.engine.name);
                    // A reason may name the store; what follows it is enough.
                    let place = self.folder.display().to_string();
                    let reason = error.to_string().replace(&place, "(stores)");
                    if let Some(participant) = self.participant(gone.engine.name) {
                        participant.absent_because = Some(reason);
                    }
                }
            }
        }
    }

    fn participant(&mut self, name: &str) -> Option<&mut Participant> {
        self.results.participants.iter_mut().find(|participant| participant.name == name)
    }

    fn keep(&mut self, at: usize, way: usize, phase: Phase, round: u64, sample: Sample) {
        let engine = self.contenders[at].engine;
        let load = loads().map(|loads| loads[0]);
        println!(
            "{:>6.0} s  {:9} {:16} round {round}: {:>12.1} wall, {:>10.1} thread ns each{}",
            self.started.elapsed().as_secs_f64(),
            engine.name,
            phase.name(),
            sample.wall(),
            sample.thread(),
            if way == 0 { String::new() } else { format!(", {}", engine.ways[way]) },
        );
        self.results.records.push(Record { engine: engine.name, way, phase, round, sample, load });
    }

    /// Fills at random and settles, then fills another store in order and settles that. Only the
    /// first round's first store stays.
    fn fill(&mut self, at: usize, round: u64, shuffled: &[u64], sorted: &[u64]) -> Result<()> {
        let name = self.contenders[at].engine.name;
        let first = self.contenders[at].folder.clone();
        let again = self.folder.join(format!("{name}-again"));
        let folder = if round == 0 { first } else { again.clone() };
        let random = (Phase::PutRandom, Phase::FillRandom);
        let store = self.fill_one(at, round, random, &folder, shuffled)?;
        if round == 0 {
            let (version, disk_bytes) = (store.version(), disk::bytes(&folder)?);
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
        let store = (self.contenders[at].engine.open)(folder, &self.settings)?;
        let before = disk::device_written_bytes(folder);
        let puts = work::fill(&*store, self.population.keys, names)?;
        self.keep(at, 0, put, round, puts);
        let mut all = puts.and_then(work::settle(&*store, folder)?);
        let after = disk::device_written_bytes(folder);
        all.device_bytes = after.zip(before).map(|(after, before)| after - before);
        self.keep(at, 0, fill, round, all);
        Ok(store)
    }

    /// Overwrites and deletes in three parts: one goes down the levels, one is there when the store
    /// is opened again, and one comes after a snapshot was taken, which is held while it is read.
    fn live_in(&mut self, at: usize) -> Result<()> {
        let open = |run: &Run<'_>| {
            (run.contenders[at].engine.open)(&run.contenders[at].folder, &run.settings)
        };
        let lived_in = self.population.lived_in;
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
        let (name, bytes) =
            (self.contenders[at].engine.name, disk::bytes(&self.contenders[at].folder)?);
        self.contenders[at].store = Some(store);
        if let Some(participant) = self.participant(name) {
            participant.lived_in_disk_bytes = Some(bytes);
        }
        Ok(())
    }

    fn store(&self, at: usize) -> Result<&dyn Store> {
        let contender = &self.contenders[at];
        contender.store.as_deref().ok_or_else(|| "its store is not open".into())
    }

    fn warm_up(&mut self, at: usize) -> Result<()> {
        let tally = work::warm_up(self.store(at)?, self.population)?;
        // Each key once by a get, deleted ones as their neighbours, and then what is there.
        let expected = self.population.keys.num() + self.population.live();
        if tally.found == expected || self.contenders[at].engine.name == "none" {
            return Ok(());
        }
        Err(format!("it found {} of {expected} entries while warming up", tally.found).into())
    }

    fn read(&mut self, at: usize, phase: Phase, round: u64) -> Result<()> {
        // A seed of its own for each phase and round, the same for all engines.
        let seed = 100 * (round + 1) + phase as u64;
        let engine = self.contenders[at].engine;
        let ways = match phase {
            Phase::SeekKept if !engine.kept_cursor => 0,
            // A cursor is kept in one transaction, and lends.
            Phase::SeekKept => 1,
            _ => engine.ways.len(),
        };
        let reads = self.arguments.reads;
        for way in 0..ways {
            let store = self.store(at)?;
            // What was done before left nothing of this in the processor's caches, or, with another
            // way, all of it. A scan fills them anew in any case.
            if phase != Phase::Scan {
                work::read(store, way, self.population, phase, reads, seed + REHEARSAL)?;
            }
            let sample = work::read(store, way, self.population, phase, reads, seed)?;
            self.keep(at, way, phase, round, sample);
        }
        Ok(())
    }

    fn reopen(&mut self, at: usize, round: u64) -> Result<()> {
        let (engine, settings) = (self.contenders[at].engine, self.settings);
        if let Some(store) = self.contenders[at].store.take() {
            store.close()?;
        }
        let folder = self.contenders[at].folder.clone();
        let mut opened = None;
        let population = self.population;
        let sample = measure(1, || {
            let store = opened.insert((engine.open)(&folder, &settings)?);
            work::first_answer(&**store, population)
        })?;
        self.contenders[at].store = opened;
        self.keep(at, 0, Phase::Open, round, sample);
        Ok(())
    }

    fn synced(&mut self, at: usize, round: u64) -> Result<()> {
        let (puts, keys) = (self.arguments.synced, self.population.keys);
        let first = round * work::synced_keys(puts);
        let one = work::synced_one(self.store(at)?, keys, first, puts)?;
        self.keep(at, 0, Phase::SyncedOne, round, one);
        let eight = work::synced_eight(self.store(at)?, keys, first + puts, puts)?;
        self.keep(at, 0, Phase::SyncedEight, round, eight);
        Ok(())
    }

    fn beside(&mut self, at: usize, round: u64) -> Result<()> {
        let (reads, population) = (self.arguments.beside_reads, self.population);
        let way = self.contenders[at].engine.fresh_way;
        let seed = 100 * (round + 1);
        // Its caches are cold since it was opened again, and the writer wrote since.
        work::warm_up(self.store(at)?, population)?;
        let alone = beside::alone(self.store(at)?, way, population, reads, seed, None)?;
        self.keep(at, way, Phase::ReadAlone, round, alone);
        for (phase, rate) in
            [(Phase::ReadBeside, None), (Phase::ReadPaced, Some(alone.rate() / 2.0))]
        {
            let store = self.store(at)?;
            let sample = beside::beside(store, way, population, reads, seed, rate)?;
            store.wait()?;
            self.keep(at, way, phase, round, sample);
        }
        Ok(())
    }
}
