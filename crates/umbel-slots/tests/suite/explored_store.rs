//! [`ExploredStore`]: an object store whose every outcome the exploration chooses.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Mutex;
use std::time::Duration;

use umbel_env::{
    Answer, Clock, Creation, CreationRequest, ListPage, ListedObject, ObjectBytes, ObjectError,
    ObjectErrorKind, ObjectName, ObjectResult, ObjectSource, Objects,
};
use umbel_slots::snapshot_name;

/// Microseconds of a unit of the explored time.
pub const UNIT_MICROS: u64 = 1_000_000;
/// Number and uid of a snapshot.
pub type SnapshotId = (u64, [u8; 16]);
/// Most requests that can still take effect.
const LATE_MAX: usize = 2;

/// A request that can still take effect.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LateRequest {
    Create(String, Vec<u8>),
    Delete(String),
}

/// Guarantee that the store breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum StoreFault {
    #[default]
    None,
    /// A creation of an existing name replaces it.
    IgnoresConditions,
    /// A creation that takes effect later is answered as if it had already.
    EarlyAnswers,
}

/// State of the store.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct StoreState {
    /// Time in units.
    pub time: u64,
    /// Objects with the time of their creation.
    pub objects: BTreeMap<String, (Vec<u8>, u64)>,
    /// Names and times one unit ago, for a list that lags.
    pub earlier: BTreeMap<String, u64>,
    /// Requests that can still take effect, in their order.
    pub late: Vec<LateRequest>,
    /// The first object that each name ever had: history, which no node sees.
    pub first: BTreeMap<String, Vec<u8>>,
    pub fault: StoreFault,
    /// Maximum number of objects in a page of a list; 0 for all.
    pub page_objects: usize,
    /// Beginning of the names that lists lack.
    pub hidden: Option<String>,
    /// Units by which the server of odd slots is behind the others.
    pub odd_slots_late: u64,
    /// Whether answers have no time.
    pub hides_time: bool,
    /// Whether a list can lack any name.
    pub lists_lack: bool,
    /// Units by which the store's clock went back.
    pub turned_back: u64,
}

impl StoreState {
    /// Lets time pass.
    pub fn advance(&mut self, units: u64) {
        self.earlier = self.objects.iter().map(|(name, it)| (name.clone(), it.1)).collect();
        self.time += units;
    }

    /// The store's clock.
    pub fn clock(&self) -> u64 {
        self.time.saturating_sub(self.turned_back)
    }

    /// Creates an object if the name is free.
    pub fn land(&mut self, name: &str, bytes: &[u8]) -> bool {
        if self.objects.contains_key(name) && self.fault != StoreFault::IgnoresConditions {
            return false;
        }
        self.objects.insert(name.to_owned(), (bytes.to_vec(), self.clock()));
        self.first.entry(name.to_owned()).or_insert_with(|| bytes.to_vec());
        true
    }

    /// Lets a late request take effect.
    pub fn land_late(&mut self, index: usize) {
        match self.late.remove(index) {
            LateRequest::Create(name, bytes) => {
                self.land(&name, &bytes);
            }
            LateRequest::Delete(name) => {
                self.objects.remove(&name);
            }
        }
    }

    fn delay(&mut self, request: LateRequest) {
        self.late.push(request);
        self.late.sort();
    }
}

/// The store during one step of a node, whose single request has the chosen outcome.
#[derive(Debug)]
pub struct ExploredStore {
    state: Mutex<StoreState>,
    outcome: usize,
    outcomes: Mutex<usize>,
    /// Beginning of names that reads do not find.
    hidden: Option<&'static str>,
}

impl ExploredStore {
    /// The store in this state; the request of the step has outcome number `outcome`.
    pub fn new(state: StoreState, outcome: usize) -> ExploredStore {
        let (state, outcomes) = (Mutex::new(state), Mutex::new(1));
        ExploredStore { state, outcome, outcomes, hidden: None }
    }

    /// The store for a node that reads no names with this beginning.
    pub fn with_hidden(self, hidden: Option<&'static str>) -> ExploredStore {
        ExploredStore { hidden, ..self }
    }

    /// The state after the step, and the number of outcomes that its request could have had.
    pub fn finish(self) -> (StoreState, usize) {
        (self.state.into_inner().expect("one thread"), self.outcomes.into_inner().expect("one"))
    }

    /// The store's clock, in microseconds.
    pub fn micros(&self) -> u64 {
        self.state.lock().expect("one thread").clock() * UNIT_MICROS
    }

    /// Names of all objects.
    pub fn names(&self) -> Vec<String> {
        self.state.lock().expect("one thread").objects.keys().cloned().collect()
    }

    /// Lets a node act while it finds the first snapshot a second time, as the other one.
    pub fn with_twin<T>(
        &self,
        twin: Option<(SnapshotId, SnapshotId)>,
        action: impl FnOnce() -> T,
    ) -> T {
        let name = |(number, uid): SnapshotId| snapshot_name(number, &uid).as_str().to_owned();
        let mut added = None;
        if let Some((first, second)) = twin {
            let mut state = self.state.lock().expect("one thread");
            if let Some(found) = state.objects.get(&name(first)).cloned() {
                state.objects.insert(name(second), found);
                added = Some(name(second));
            }
        }
        let done = action();
        if let Some(added) = added {
            self.state.lock().expect("one thread").objects.remove(&added);
        }
        done
    }

    fn choose(&self, outcomes: usize) -> usize {
        *self.outcomes.lock().expect("one thread") = outcomes;
        self.outcome.min(outcomes - 1)
    }

    fn answer<T>(state: &StoreState, name: &str, value: T) -> ObjectResult<T> {
        let is_late = name.starts_with("slots/") && name.ends_with(['1', '3', '5', '7', '9']);
        let late = if is_late { state.odd_slots_late } else { 0 };
        let micros = state.clock().saturating_sub(late) * UNIT_MICROS;
        Ok(Answer { value, store_micros: (!state.hides_time).then_some(micros) })
    }

    fn lost(operation: &'static str) -> ObjectError {
        ObjectError::new(ObjectErrorKind::Unavailable, operation, "explored", "no answer")
    }
}

impl Objects for ExploredStore {
    fn location(&self) -> &str {
        "explored:"
    }

    fn create(&self, name: &ObjectName, bytes: &[u8]) -> ObjectResult<Creation> {
        let mut state = self.state.lock().expect("one thread");
        let late = LateRequest::Create(name.as_str().to_owned(), bytes.to_vec());
        let can_delay = state.late.len() < LATE_MAX && !state.late.contains(&late);
        let unknown = || Creation::Unknown(ExploredStore::lost("create"));
        let creation = match self.choose(if can_delay { 3 } else { 2 }) {
            0 if state.land(name.as_str(), bytes) => Creation::Created,
            0 => Creation::Exists,
            1 => {
                state.land(name.as_str(), bytes);
                unknown()
            }
            _ => {
                state.delay(late);
                match state.fault {
                    StoreFault::EarlyAnswers => Creation::Created,
                    _ => unknown(),
                }
            }
        };
        ExploredStore::answer(&state, name.as_str(), creation)
    }

    fn create_concurrently(&self, _: &[CreationRequest]) -> Vec<ObjectResult<Creation>> {
        unreachable!("only the probe creates at the same time")
    }

    fn put(&self, name: &ObjectName, source: &dyn ObjectSource) -> ObjectResult<()> {
        let mut state = self.state.lock().expect("one thread");
        let mut bytes = vec![0; source.byte_count() as usize];
        source.read(&mut bytes, 0)?;
        let late = LateRequest::Create(name.as_str().to_owned(), bytes.clone());
        let can_delay = state.late.len() < LATE_MAX;
        match self.choose(if can_delay { 2 } else { 1 }) {
            0 => {
                state.land(name.as_str(), &bytes);
                ExploredStore::answer(&state, name.as_str(), ())
            }
            _ => {
                state.delay(late);
                Err(ExploredStore::lost("write"))
            }
        }
    }

    fn read(&self, name: &ObjectName, range: Range<u64>) -> ObjectResult<Option<ObjectBytes>> {
        let state = self.state.lock().expect("one thread");
        let is_hidden = self.hidden.is_some_and(|hidden| name.as_str().starts_with(hidden));
        let found = state.objects.get(name.as_str()).filter(|_| !is_hidden).map(|(bytes, _)| {
            let end = bytes.len().min(range.end as usize);
            let part = bytes[range.start as usize..end].to_vec();
            ObjectBytes { bytes: part, object_bytes: bytes.len() as u64 }
        });
        ExploredStore::answer(&state, name.as_str(), found)
    }

    fn list(&self, prefix: &str, after: Option<&str>, _: usize) -> ObjectResult<ListPage> {
        let state = self.state.lock().expect("one thread");
        let now = || state.objects.iter().map(|(name, it)| (name, it.1));
        let earlier = || state.earlier.iter().map(|(name, created)| (name, *created));
        let is_listed = |name: &str| {
            name.starts_with(prefix)
                && after.is_none_or(|after| name > after)
                && !state.hidden.as_deref().is_some_and(|hidden| name.starts_with(hidden))
        };
        let lags = if earlier().eq(now()) { 1 } else { 2 };
        let count = now().filter(|(name, _)| is_listed(name)).count();
        let chosen = self.choose(lags + if state.lists_lack { count } else { 0 });
        let names: Box<dyn Iterator<Item = (&String, u64)>> = match chosen == 1 && lags == 2 {
            true => Box::new(earlier()),
            false => Box::new(now()),
        };
        let listed = names.filter(|(name, _)| is_listed(name));
        // Each further outcome lacks another name.
        let lacking = chosen.checked_sub(lags);
        let listed = listed.enumerate().filter(|(index, _)| lacking != Some(*index));
        let names = listed.map(|(_, listed)| listed);
        let listed = names.map(|(name, created)| ListedObject {
            name: ObjectName::new(name.clone()).expect("a name"),
            bytes: 0,
            created_micros: Some(created * UNIT_MICROS),
        });
        let mut objects: Vec<ListedObject> = listed.collect();
        let mut next_after = None;
        if state.page_objects > 0 && objects.len() > state.page_objects {
            objects.truncate(state.page_objects);
            next_after = objects.last().map(|last| last.name.as_str().to_owned());
        }
        let page = ListPage { objects, next_after };
        ExploredStore::answer(&state, prefix, page)
    }

    fn delete(&self, name: &ObjectName) -> ObjectResult<()> {
        let mut state = self.state.lock().expect("one thread");
        let late = LateRequest::Delete(name.as_str().to_owned());
        let can_delay = state.late.len() < LATE_MAX && !state.late.contains(&late);
        match self.choose(if can_delay { 2 } else { 1 }) {
            0 => {
                state.objects.remove(name.as_str());
                ExploredStore::answer(&state, name.as_str(), ())
            }
            _ => {
                state.delay(late);
                Err(ExploredStore::lost("delete"))
            }
        }
    }
}

/// The clocks of a node: the explored time, less the pauses that they did not show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ExploredClock {
    /// Units of the monotonic clock.
    pub node: u64,
    /// Units of the wall clock.
    pub wall: u64,
}

impl Clock for ExploredClock {
    fn now(&self) -> Duration {
        Duration::from_micros(self.node * UNIT_MICROS)
    }

    fn wall_micros(&self) -> u64 {
        self.wall * UNIT_MICROS
    }
}
