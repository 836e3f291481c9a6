//! Oracle: a store and its expected content.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;

use umbel::{Db, Env, Iter, Keyspace, KeyspaceOptions, Options, Snapshot};
use umbel_sim::{Random, Sim};

use crate::suite::key_shapes::{Keys, SHAPES};
use crate::suite::option_sets;

/// Expected content of a keyspace.
pub type Map = BTreeMap<Vec<u8>, Arc<[u8]>>;

/// One write.
#[derive(Debug, Clone)]
pub enum Change {
    /// A key is set to a value.
    Put(Vec<u8>, Arc<[u8]>),
    /// A key is deleted.
    Delete(Vec<u8>),
    /// The keys from the first up to the second are deleted.
    DeleteRange(Vec<u8>, Vec<u8>),
}

impl Change {
    /// Applies the expected change to `map`.
    pub fn apply(&self, map: &mut Map) {
        match self {
            Change::Put(key, value) => {
                map.insert(key.clone(), Arc::clone(value));
            }
            Change::Delete(key) => {
                map.remove(key);
            }
            Change::DeleteRange(start, end) if start < end => {
                let covered: Vec<_> =
                    map.range(start.clone()..end.clone()).map(|e| e.0.clone()).collect();
                covered.iter().for_each(|key| drop(map.remove(key)));
            }
            Change::DeleteRange(..) => {}
        }
    }
}

/// Permitted states of a keyspace without WAL after a crash: any state since `flushed`.
#[derive(Debug, Clone, Default)]
pub struct CrashStates {
    /// The state of the last known flush, and its marker.
    pub flushed: (Map, Option<Vec<u8>>),
    /// The changes committed since that flush, batch by batch, and the marker set with each batch.
    pub steps: Vec<(Vec<Change>, Option<Vec<u8>>)>,
}

/// A keyspace and its expected content.
#[derive(Debug)]
pub struct Space {
    /// The keyspace.
    pub handle: Keyspace,
    /// Number that distinguishes keyspaces of the same name.
    pub number: u64,
    /// Name of the keyspace.
    pub name: String,
    /// Options of the keyspace.
    pub options: KeyspaceOptions,
    /// Expected content of the keyspace.
    pub map: Map,
    /// The marker set last.
    pub marker: Option<Vec<u8>>,
    /// Permitted states after a crash, while the keyspace has no WAL.
    pub crash_states: CrashStates,
    /// Number of gets since the store was opened.
    pub gets: u64,
    /// Number of entries in the keyspace's tables when the store was opened.
    pub entries_at_open: u64,
}

impl Space {
    /// Records that all changes so far are in tables.
    pub fn note_flushed(&mut self) {
        self.crash_states =
            CrashStates { flushed: (self.map.clone(), self.marker.clone()), steps: Vec::new() };
    }
}

/// A snapshot and the expected content of every keyspace in it.
#[derive(Debug)]
pub struct HeldSnapshot {
    /// The snapshot.
    pub snapshot: Snapshot,
    /// Expected content of each keyspace, by the keyspace's number.
    pub maps: BTreeMap<u64, Map>,
}

/// An iterator that stays open across other operations, and the entries it should still yield.
#[derive(Debug)]
pub struct OpenIter {
    /// The iterator.
    pub iter: Iter,
    /// Entries left between the iterator's ends.
    pub left: VecDeque<(Vec<u8>, Arc<[u8]>)>,
}

/// A store and its expected content.
#[derive(Debug)]
pub struct ModelStore {
    /// Source of every decision.
    pub random: Random,
    /// The keys in use.
    pub keys: Keys,
    /// The simulated machine; `None` if the test runs on the real machine.
    pub sim: Option<Sim>,
    /// The environment of the store.
    pub env: Env,
    /// Number of the option set.
    pub set: u64,
    /// Permitted numbers of background threads.
    pub threads: Vec<usize>,
    /// The store's directory.
    pub path: PathBuf,
    /// Number of the next checkpoint.
    pub copies: u64,
    /// The store.
    pub db: Option<Db>,
    /// The store's keyspaces.
    pub spaces: Vec<Space>,
    /// The snapshots held.
    pub snapshots: Vec<HeldSnapshot>,
    /// The iterators held.
    pub iters: Vec<OpenIter>,
    /// The next number of a keyspace.
    pub next_number: u64,
    /// Number of the current write; markers are derived from it.
    pub writes: u64,
    /// The last operations, to diagnose a failure.
    pub trace: VecDeque<String>,
    /// Instructions to replay the run.
    pub replay: String,
}

impl Drop for ModelStore {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the last operations:");
            self.trace.iter().for_each(|line| eprintln!("  {line}"));
            eprintln!("replay: {}", self.replay);
        }
    }
}

impl ModelStore {
    /// A new store with one keyspace. `seed` decides everything.
    pub fn new(
        seed: u64,
        sim: Option<Sim>,
        env: Env,
        path: PathBuf,
        threads: &[usize],
    ) -> ModelStore {
        let mut random = Random::new(seed);
        let shape = SHAPES[(seed % SHAPES.len() as u64) as usize];
        let keys = Keys::new(shape, random.pick(&[12, 60, 250, 800]));
        let set = seed % option_sets::SETS;
        let mut model = ModelStore {
            random,
            keys,
            sim,
            env,
            set,
            threads: threads.to_vec(),
            path,
            copies: 0,
            db: None,
            spaces: Vec::new(),
            snapshots: Vec::new(),
            iters: Vec::new(),
            next_number: 0,
            writes: 0,
            trace: VecDeque::new(),
            replay: String::new(),
        };
        model.db = Some(Db::open(&model.path, model.options()).unwrap());
        model.add_space("one", option_sets::set_keyspace_options(set));
        model
    }

    /// The options to open the store with.
    pub fn options(&self) -> Options {
        option_sets::store_options(self.set, &self.env, &self.threads)
    }

    /// Whether background work runs.
    pub fn has_threads(&self) -> bool {
        self.options().background_threads > 0
    }

    /// The open store.
    pub fn db(&self) -> &Db {
        self.db.as_ref().expect("open between operations")
    }

    /// Records the current operation.
    pub fn note(&mut self, what: impl Into<String>) {
        if self.trace.len() == 40 {
            self.trace.pop_front();
        }
        self.trace.push_back(what.into());
    }

    /// Creates a keyspace.
    pub fn add_space(&mut self, name: &str, options: KeyspaceOptions) {
        let handle = self.db().keyspace(name, options.clone()).unwrap();
        self.next_number += 1;
        self.spaces.push(Space {
            handle,
            number: self.next_number,
            name: name.to_string(),
            options,
            map: Map::new(),
            marker: None,
            crash_states: CrashStates::default(),
            gets: 0,
            entries_at_open: 0,
        });
    }

    /// The index of a random keyspace.
    pub fn any_space(&mut self) -> usize {
        self.random.below_usize(self.spaces.len())
    }

    /// A key.
    pub fn any_key(&mut self) -> Vec<u8> {
        self.keys.any(&mut self.random)
    }

    /// A key that keyspace `space` should have, or any key if it is empty.
    pub fn present_key(&mut self, space: usize) -> Vec<u8> {
        let map = &self.spaces[space].map;
        if map.is_empty() {
            return self.any_key();
        }
        let nth = self.random.below_usize(map.len());
        self.spaces[space].map.keys().nth(nth).expect("below its length").clone()
    }

    /// A key that is present in about half of the cases.
    pub fn likely_key(&mut self, space: usize) -> Vec<u8> {
        if self.random.percent(50) { self.present_key(space) } else { self.any_key() }
    }

    /// Applies a commit's changes and `markers` to the model.
    pub fn apply(&mut self, changes: &[(usize, Change)], markers: &[(usize, Vec<u8>)]) {
        for (index, space) in self.spaces.iter_mut().enumerate() {
            let own: Vec<Change> =
                changes.iter().filter(|(at, _)| *at == index).map(|(_, c)| c.clone()).collect();
            let marker = markers.iter().rfind(|(at, _)| *at == index).map(|(_, m)| m.clone());
            own.iter().for_each(|change| change.apply(&mut space.map));
            if let Some(marker) = &marker {
                space.marker = Some(marker.clone());
            }
            if !space.options.log && (!own.is_empty() || marker.is_some()) {
                space.crash_states.steps.push((own, marker));
            }
        }
    }
}
