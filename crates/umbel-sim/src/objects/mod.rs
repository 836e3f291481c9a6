//! [`ObjectSim`]: a seeded object store behind [`umbel_env::Objects`], with faults.
//!
//! # The fault model
//!
//! A request has three moments, which the seed chooses apart: the store **takes** it, it **takes
//! effect** or never does, and its **answer** arrives or never does. Effects of one store have one
//! order. So a request can take effect after its client gave up or died, and twice.
//!
//! Time is simulated: a call advances the clock to its answer, or by 30 s to its timeout. Late
//! requests take effect during later calls, or in [`ObjectSim::advance`] and
//! [`ObjectSim::settle`]. The store's clock can differ from the clients' clock.
//!
//! [`ObjectFault`] lists the faults of single requests: [`ObjectSim::plan`] gives a fault to the
//! next request that it fits, [`ObjectSim::set_rates`] lets the seed choose.
//! [`ObjectStoreMode`] describes stores that break a guarantee all the time.
//! [`ObjectSim::damage`] damages stored objects.
//!
//! Calls of several threads are served one after the other, in an order that the threads decide:
//! deterministic tests use one thread. [`Objects::create_concurrently`] overlaps its requests in
//! simulated time.

mod object_fault;
mod object_sim_env;
mod object_store_mode;
mod object_versions;
mod request;
mod sim_objects;
mod sim_store;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use umbel_base::ignore_poison::IgnorePoison;
use umbel_env::{Env, Objects};

pub use object_fault::{FaultRates, ObjectFault, RequestKind, RequestTimes};
pub use object_store_mode::{ConditionMode, ObjectStoreMode};
pub use object_versions::ObjectDamage;

use sim_objects::SimObjects;
use sim_store::SimStore;

/// A simulated object store. Clones of the handle share the store.
#[derive(Debug, Clone)]
pub struct ObjectSim {
    store: Arc<Mutex<SimStore>>,
    clients: Arc<Mutex<BTreeMap<u64, Arc<AtomicBool>>>>,
    seed: u64,
}

impl ObjectSim {
    /// Creates an empty store. The seed decides the moments of requests, and their faults.
    pub fn new(seed: u64) -> ObjectSim {
        let store = Arc::new(Mutex::new(SimStore::new(seed)));
        ObjectSim { store, clients: Arc::default(), seed }
    }

    fn store(&self) -> MutexGuard<'_, SimStore> {
        self.store.lock().ignore_poison()
    }

    /// Returns a client, such as a process, with a number for [`ObjectSim::kill`]. Equal numbers
    /// are the same client.
    pub fn client(&self, number: u64) -> Arc<dyn Objects> {
        let is_dead = Arc::clone(self.clients.lock().ignore_poison().entry(number).or_default());
        Arc::new(SimObjects { store: Arc::clone(&self.store), client: number, is_dead })
    }

    /// Kills a client: its later calls fail, and its requests on their way still take effect. A
    /// call of [`ObjectSim::client`] with this number then returns a new process.
    pub fn kill(&self, number: u64) {
        if let Some(is_dead) = self.clients.lock().ignore_poison().remove(&number) {
            is_dead.store(true, Ordering::Relaxed);
        }
    }

    /// Returns an environment whose clock is that of the clients. Its pauses advance the clock; its
    /// files are those of an empty [`Sim`](crate::Sim).
    pub fn env(&self) -> Env {
        object_sim_env::env(&self.store, self.seed)
    }

    // -- faults --

    /// Sets the behaviour of the store.
    pub fn set_mode(&self, mode: ObjectStoreMode) {
        self.store().mode = mode;
    }

    /// Sets the rates of faults.
    pub fn set_rates(&self, rates: FaultRates) {
        self.store().rates = rates;
    }

    /// Gives a fault to the next request that it fits. Several planned faults go to several
    /// requests.
    pub fn plan(&self, fault: ObjectFault) {
        self.store().planned.push_back(fault);
    }

    /// Sets the moments of the next request of any kind.
    pub fn plan_times(&self, times: RequestTimes) {
        self.store().planned_times.push_back(times);
    }

    /// Sets whether the credentials of all clients are expired.
    pub fn expire_credentials(&self, are_expired: bool) {
        self.store().are_credentials_expired = are_expired;
    }

    /// Sets the longest time between the timeout of a request and its late landing; 120 s at first.
    pub fn set_landing_delay(&self, time: Duration) {
        self.store().landing_delay_max = time;
    }

    /// Sets the largest age of a stale answer; 5 s at first.
    pub fn set_staleness(&self, age: Duration) {
        self.store().staleness_max = age;
    }

    /// Damages the newest state of a stored object. `position` chooses the bit or the new length.
    /// Returns `false` if the object cannot be damaged in this manner: it is missing or empty, or
    /// never had other bytes.
    pub fn damage(&self, name: &str, damage: ObjectDamage, position: u64) -> bool {
        self.store().versions.damage(name, damage, position)
    }

    /// Moves the store's clock, which is that of the clients at first.
    pub fn shift_store_clock(&self, micros: i64) {
        let mut store = self.store();
        store.clock_offset_micros = store.clock_offset_micros.saturating_add(micros);
    }

    // -- time --

    /// Advances the clock; requests on their way take effect meanwhile.
    pub fn advance(&self, time: Duration) {
        let mut store = self.store();
        let until_ns = store.now_ns.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(0));
        store.run_until(until_ns);
    }

    /// Advances the clock until no request is on its way.
    pub fn settle(&self) {
        self.store().run_all();
    }

    // -- reports --

    /// Returns the stored objects.
    pub fn objects(&self) -> BTreeMap<String, Vec<u8>> {
        let store = self.store();
        let objects = store.versions.all_at(store.now_ns);
        let bytes = |(name, version): (&str, &object_versions::ObjectVersion)| {
            (name.to_owned(), version.bytes.as_deref().unwrap_or_default().to_vec())
        };
        objects.map(bytes).collect()
    }

    /// Number of requests by verb: `create`, `write`, `read`, `list`, `delete`. A duplicate counts
    /// once.
    pub fn request_counts(&self) -> BTreeMap<&'static str, u64> {
        self.store().request_counts.clone()
    }

    /// Number of requests with each fault. A fault that no request had proves nothing.
    pub fn injected(&self) -> BTreeMap<ObjectFault, u64> {
        self.store().injected.clone()
    }

    /// Returns a line for each step of each request.
    pub fn history(&self) -> Vec<String> {
        self.store().history.clone()
    }

    /// Sets whether the history is kept, for long campaigns. Its hash always is.
    pub fn keep_history(&self, keep: bool) {
        self.store().keeps_history = keep;
    }

    /// Returns a hash of the history. Two runs of one seed with the same calls have the same hash.
    pub fn trace_hash(&self) -> u64 {
        self.store().trace
    }
}
