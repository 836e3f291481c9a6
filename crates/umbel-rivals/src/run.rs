//! The run: every engine does the same, in turns.
//!
//! Filling is done by one engine after the other; the stores stay open, settled, while the phases
//! that read go round: engines A B C, A B C, A B C for each phase, so that a minute in which the
//! machine is slow hits all of them.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::arguments::Arguments;
use crate::engine::{Engine, Result, Settings, Store};
use crate::engines;
use umbel_lab::keys::Keys;
use crate::machine::loads;
use crate::measure::{Sample, measure, now};
use crate::plan::Phase;
use crate::record::{Participant, Record, Results};
use crate::work;

/// An engine with its store.
struct Contender {
    engine: Engine,
    folder: PathBuf,
    store: Option<Box<dyn Store>>,
}

/// A run in progress.
pub struct Run<'a> {
    arguments: &'a Arguments,
    keys: Keys,
    settings: Settings,
    folder: PathBuf,
    started: Instant,
    contenders: Vec<Contender>,
    /// What was found so far.
    pub results: Results,
}

impl<'a> Run<'a> {
    /// Prepares a run whose stores lie in `folder`, which exists and is empty.
    ///
    /// # Errors
    /// A sentence where there is no such engine or the keys cannot be made.
    pub fn new(arguments: &'a Arguments, folder: PathBuf) -> Result<Run<'a>> {
        let keys = Keys::new(arguments.shape, arguments.num, arguments.key, arguments.value)?;
        let mut run = Run {
            arguments,
            keys,
            settings: Settings { cache_bytes: arguments.cache_mib << 20 },
            folder,
            started: now(),
            contenders: Vec::new(),
            results: Results::default(),
        };
        for engine in chosen(&arguments.engines)? {
            run.results.participants.push(Participant {
                name: engine.name,
                version: String::new(),
                settings: engine.settings,
                disk_bytes: None,
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

    /// Bytes of keys and values together.
    pub fn user_bytes(&self) -> u64 {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        self.keys.key(self.keys.present(0), &mut key);
        self.keys.value(0, &mut value);
        self.keys.num() * (key.len() + value.len()) as u64
    }

    /// Does everything. `save` is called when there is something worth keeping.
    pub fn run(&mut self, mut save: impl FnMut(&Results)) {
        let shuffled = self.keys.shuffled();
        let sorted = self.keys.sorted();
        for round in 0..self.arguments.fill_rounds {
            if round == 0 || self.has_time() {
                self.turns(|run, at| run.fill(at, round, &shuffled, &sorted));
                save(&self.results);
            }
        }
        drop(shuffled);
        self.turns(|run, at| run.warm_up(at, &sorted));
        drop(sorted);
        for phase in Phase::READS {
            for round in 0..self.arguments.rounds {
                if round == 0 || self.has_time() {
                    self.turns(|run, at| run.read(at, phase, round));
                }
            }
            save(&self.results);
        }
        for round in 0..self.arguments.rounds {
            if round == 0 || self.has_time() {
                self.turns(|run, at| run.reopen(at, round));
            }
        }
        for round in 0..self.arguments.rounds {
            if round == 0 || self.has_time() {
                self.turns(|run, at| run.synced(at, round));
            }
        }
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

    /// Lets every contender have a turn; one that fails leaves the run, and the reason is kept.
    fn turns(&mut self, mut turn: impl FnMut(&mut Self, usize) -> Result<()>) {
        let mut at = 0;
        while at < self.contenders.len() {
            match turn(self, at) {
                Ok(()) => at += 1,
                Err(error) => {
                    let gone = self.contenders.remove(at);
                    println!("{} leaves the run: {error}", gone.engine.name);
                    if let Some(participant) = self.participant(gone.engine.name) {
                        participant.absent_because = Some(error.to_string());
                    }
                }
            }
        }
    }

    fn participant(&mut self, name: &str) -> Option<&mut Participant> {
        self.results.participants.iter_mut().find(|participant| participant.name == name)
    }

    fn keep(&mut self, at: usize, phase: Phase, round: u64, sample: Sample) {
        let engine = self.contenders[at].engine.name;
        let load = loads().map(|loads| loads[0]);
        println!(
            "{:>6.0} s  {:8} {:16} round {round}: {:>12.1} wall, {:>10.1} thread ns per operation",
            self.started.elapsed().as_secs_f64(),
            engine,
            phase.name(),
            sample.wall(),
            sample.thread(),
        );
        self.results.records.push(Record { engine, phase, round, sample, load });
    }

    /// Fills at random and settles, then fills another store in order. Only the first round's first
    /// store stays.
    fn fill(&mut self, at: usize, round: u64, shuffled: &[u64], sorted: &[u64]) -> Result<()> {
        let engine = self.contenders[at].engine;
        let folder = match round {
            0 => self.contenders[at].folder.clone(),
            _ => self.folder.join(format!("{}-again", engine.name)),
        };
        std::fs::create_dir_all(&folder)?;
        let store = (engine.open)(&folder, &self.settings)?;
        let sample = work::fill(&*store, self.keys, shuffled)?;
        self.keep(at, Phase::FillRandom, round, sample);
        let sample = work::settle(&*store)?;
        self.keep(at, Phase::Settle, round, sample);
        if round == 0 {
            let (version, disk_bytes) = (store.version(), disk_bytes(&folder)?);
            if let Some(participant) = self.participant(engine.name) {
                participant.version = version;
                participant.disk_bytes = Some(disk_bytes);
            }
            if self.arguments.compact {
                store.compact()?;
                store.settle()?;
            }
            self.contenders[at].store = Some(store);
        } else {
            store.close()?;
            std::fs::remove_dir_all(&folder)?;
        }
        let folder = self.folder.join(format!("{}-sequential", engine.name));
        std::fs::create_dir_all(&folder)?;
        let store = (engine.open)(&folder, &self.settings)?;
        let sample = work::fill(&*store, self.keys, sorted)?;
        self.keep(at, Phase::FillSequential, round, sample);
        store.close()?;
        Ok(std::fs::remove_dir_all(&folder)?)
    }

    fn store(&self, at: usize) -> Result<&dyn Store> {
        let contender = &self.contenders[at];
        contender.store.as_deref().ok_or_else(|| "its store is not open".into())
    }

    fn warm_up(&mut self, at: usize, sorted: &[u64]) -> Result<()> {
        let tally = work::warm_up(self.store(at)?, self.keys, sorted)?;
        let expected = 2 * self.keys.num();
        if tally.found == expected {
            return Ok(());
        }
        Err(format!("it found {} of {expected} entries while warming up", tally.found).into())
    }

    fn read(&mut self, at: usize, phase: Phase, round: u64) -> Result<()> {
        // A seed of its own for each phase and round, the same for all engines.
        let seed = 100 * (round + 1) + phase as u64;
        let sample = work::read(self.store(at)?, self.keys, phase, self.arguments.reads, seed)?;
        self.keep(at, phase, round, sample);
        Ok(())
    }

    fn reopen(&mut self, at: usize, round: u64) -> Result<()> {
        let (engine, keys, settings) = (self.contenders[at].engine, self.keys, self.settings);
        if let Some(store) = self.contenders[at].store.take() {
            store.close()?;
        }
        let folder = self.contenders[at].folder.clone();
        let mut opened = None;
        let sample = measure(1, || {
            let store = opened.insert((engine.open)(&folder, &settings)?);
            work::first_answer(&**store, keys)
        })?;
        self.contenders[at].store = opened;
        self.keep(at, Phase::Open, round, sample);
        Ok(())
    }

    fn synced(&mut self, at: usize, round: u64) -> Result<()> {
        let puts = self.arguments.synced;
        let first = round * work::synced_keys(puts);
        let one = work::synced_one(self.store(at)?, self.keys, first, puts)?;
        self.keep(at, Phase::SyncedOne, round, one);
        let eight = work::synced_eight(self.store(at)?, self.keys, first + puts, puts)?;
        self.keep(at, Phase::SyncedEight, round, eight);
        Ok(())
    }
}

fn chosen(names: &[String]) -> Result<Vec<Engine>> {
    if names.is_empty() {
        return Ok(engines::ALL.to_vec());
    }
    let find = |name: &String| {
        let found = engines::ALL.into_iter().find(|engine| engine.name == name);
        let known: Vec<&str> = engines::ALL.iter().map(|engine| engine.name).collect();
        found.ok_or_else(|| format!("there is no engine `{name}`: {}", known.join(", ")).into())
    };
    names.iter().map(find).collect()
}

/// What the files of a folder take on disk.
fn disk_bytes(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        // A file may be deleted between the listing and the look at it.
        let Ok(metadata) = entry.metadata() else { continue };
        bytes += match metadata.is_dir() {
            true => disk_bytes(&entry.path())?,
            false => metadata.blocks() * 512,
        };
    }
    Ok(bytes)
}
