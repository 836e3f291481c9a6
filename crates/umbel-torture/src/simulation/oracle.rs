//! Allowed states of a store: the effect of every prefix of the commits, as hashes, and the
//! prefixes that a crash may leave.
//!
//! INVARIANT: commits to keyspaces with a WAL have one order. A crash leaves the effect of a prefix
//! of these commits that has at least the commits acknowledged for that kind of crash. Each
//! keyspace without a WAL is at one of its own states, at the last acknowledged flush or later.
//! Creations and drops of keyspaces are durable when their call returns.

use std::collections::{BTreeMap, BTreeSet};

use umbel_base::checksum::checksum;

use crate::simulation::script::Write;

/// A keyspace's keys and values.
pub type KeyspaceMap = BTreeMap<Vec<u8>, Vec<u8>>;

/// Kind of crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// The process died.
    Kill,
    /// The power failed.
    Power,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EventStage {
    Issued,
    Done,
}

#[derive(Debug, Clone)]
struct KeyspaceEvent {
    hash: u128,
    marker: Option<Vec<u8>>,
}

/// One life of a keyspace, from its creation to its drop.
#[derive(Debug, Clone)]
struct KeyspaceLife {
    name: &'static str,
    logged: bool,
    created: EventStage,
    dropped: Option<EventStage>,
    map: KeyspaceMap,
    hash: u128,
    /// With a WAL: the keyspace's hash from each prefix of the commits on. Without a WAL: the
    /// keyspace's states in order.
    history: Vec<(usize, u128)>,
    events: Vec<KeyspaceEvent>,
    event_floor: usize,
    /// Content before the first kept commit, for messages.
    base: KeyspaceMap,
}

/// Content of a keyspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyspaceContents {
    /// Keys and values of the keyspace.
    pub map: KeyspaceMap,
    /// Durable marker of the keyspace.
    pub marker: Option<Vec<u8>>,
}

/// Content of a store.
pub type StoreContents = BTreeMap<String, KeyspaceContents>;

/// The allowed state that matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateMatch {
    prefix: usize,
    /// Life and state of each keyspace without a WAL.
    events: Vec<(usize, usize)>,
    /// The existing lives.
    lives: Vec<usize>,
}

/// A copy of the store made by a checkpoint.
#[derive(Debug, Clone)]
pub struct CheckpointCopy {
    /// Folder of the checkpoint.
    pub folder: &'static str,
    /// Content of the checkpoint.
    pub found: StoreContents,
}

/// Everything known of a store.
#[derive(Debug, Clone, Default)]
pub struct Oracle {
    lives: Vec<KeyspaceLife>,
    commits: Vec<Vec<(usize, Write)>>,
    issued: usize,
    acked: usize,
    durable: usize,
    together: Vec<Vec<(usize, usize)>>,
    /// Every key ever written, per keyspace.
    pub keys: BTreeMap<&'static str, BTreeSet<Vec<u8>>>,
    /// Acknowledged checkpoints.
    pub copies: Vec<CheckpointCopy>,
}

fn entry_hash(key: &[u8], value: &[u8]) -> u128 {
    let mut bytes = Vec::with_capacity(8 + key.len() + value.len());
    bytes.extend((key.len() as u64).to_le_bytes());
    bytes.extend(key);
    bytes.extend(value);
    u128::from(checksum(11, 0, &bytes)) << 64 | u128::from(checksum(12, 0, &bytes))
}

/// Returns a hash that identifies a map.
pub fn map_hash(map: &KeyspaceMap) -> u128 {
    map.iter().fold(0, |sum: u128, (key, value)| sum.wrapping_add(entry_hash(key, value)))
}

/// Applies a write to a map.
pub fn apply(map: &mut KeyspaceMap, write: &Write) {
    match write {
        Write::Put(_, key, value) => {
            map.insert(key.clone(), value.clone());
        }
        Write::Delete(_, key) => {
            map.remove(key);
        }
        Write::DeleteRange(_, start, end) => {
            if start < end {
                let gone: Vec<_> =
                    map.range(start.clone()..end.clone()).map(|(key, _)| key.clone()).collect();
                gone.iter().for_each(|key| {
                    map.remove(key);
                });
            }
        }
    }
}

impl KeyspaceLife {
    fn apply(&mut self, write: &Write) {
        match write {
            Write::Put(_, key, value) => {
                let added = entry_hash(key, value);
                let old = self.map.insert(key.clone(), value.clone());
                let taken = old.map_or(0, |old| entry_hash(key, &old));
                self.hash = self.hash.wrapping_add(added).wrapping_sub(taken);
            }
            _ => {
                apply(&mut self.map, write);
                self.hash = map_hash(&self.map);
            }
        }
    }

    fn hash_at(&self, prefix: usize) -> u128 {
        let at = self.history.partition_point(|(from, _)| *from <= prefix);
        at.checked_sub(1).map_or(0, |at| self.history[at].1)
    }

    fn marker(&self) -> Option<Vec<u8>> {
        self.events.last().and_then(|event| event.marker.clone())
    }

    fn push_event(&mut self, marker: Option<Vec<u8>>) -> usize {
        let marker = marker.or_else(|| self.marker());
        self.events.push(KeyspaceEvent { hash: self.hash, marker });
        self.events.len() - 1
    }
}

impl Oracle {
    /// Returns the current life of a name.
    fn life(&self, name: &str) -> Option<usize> {
        let at = self.lives.iter().rposition(|life| life.name == name)?;
        (self.lives[at].dropped != Some(EventStage::Done)).then_some(at)
    }

    /// Returns the current names.
    pub fn names(&self) -> Vec<&'static str> {
        let alive = |life: &&KeyspaceLife| life.dropped.is_none();
        self.lives.iter().filter(alive).map(|life| life.name).collect()
    }

    /// Whether a keyspace has a WAL.
    pub fn is_logged(&self, name: &str) -> bool {
        self.life(name).is_some_and(|at| self.lives[at].logged)
    }

    /// Returns the content of a keyspace after everything issued.
    pub fn map(&self, name: &str) -> Option<&KeyspaceMap> {
        self.life(name).map(|at| &self.lives[at].map)
    }

    /// Returns the whole content after everything issued, without markers.
    pub fn state(&self) -> BTreeMap<&'static str, KeyspaceMap> {
        let alive = self.lives.iter().filter(|life| life.dropped.is_none());
        alive.map(|life| (life.name, life.map.clone())).collect()
    }

    /// Records that a keyspace is about to be created, or to start or stop using the WAL.
    pub fn issue_keyspace(&mut self, name: &'static str, logged: bool) {
        let issued = self.issued;
        if let Some(at) = self.life(name) {
            let life = &mut self.lives[at];
            if life.logged != logged {
                // The engine requires a flush first, so that both kinds agree.
                life.logged = logged;
                life.history = vec![(0, life.hash)];
                life.events = vec![KeyspaceEvent { hash: life.hash, marker: life.marker() }];
                life.event_floor = 0;
            }
            return;
        }
        self.lives.push(KeyspaceLife {
            name,
            logged,
            created: EventStage::Issued,
            dropped: None,
            map: KeyspaceMap::new(),
            hash: 0,
            history: vec![(issued, 0)],
            events: vec![KeyspaceEvent { hash: 0, marker: None }],
            event_floor: 0,
            base: KeyspaceMap::new(),
        });
    }

    /// Records that a keyspace is about to be dropped.
    pub fn issue_drop(&mut self, name: &str) {
        if let Some(at) = self.life(name) {
            self.lives[at].dropped = Some(EventStage::Issued);
        }
    }

    /// Records that all creations and drops were acknowledged.
    pub fn ack_keyspaces(&mut self) {
        for life in &mut self.lives {
            life.created = EventStage::Done;
            if life.dropped.is_some() {
                life.dropped = Some(EventStage::Done);
            }
        }
    }

    /// Records that a batch is about to be committed.
    pub fn issue(&mut self, writes: &[Write], markers: &[(&'static str, Vec<u8>)]) {
        let mut touched = BTreeSet::new();
        let mut commit = Vec::new();
        for write in writes {
            let Some(at) = self.life(write.keyspace()) else { continue };
            self.lives[at].apply(write);
            touched.insert(at);
            commit.push((at, write.clone()));
            let keys = self.keys.entry(self.lives[at].name).or_default();
            match write {
                Write::Put(_, key, _) | Write::Delete(_, key) => {
                    keys.insert(key.clone());
                }
                Write::DeleteRange(..) => {}
            }
        }
        let logged = touched.iter().any(|at| self.lives[*at].logged);
        self.issued += usize::from(logged);
        for &at in &touched {
            let (issued, life) = (self.issued, &mut self.lives[at]);
            if life.logged {
                life.history.push((issued, life.hash));
            } else {
                let marker = markers.iter().find(|(name, _)| *name == life.name);
                life.push_event(marker.map(|(_, marker)| marker.clone()));
            }
        }
        if logged {
            self.commits.push(commit);
        }
        for (name, marker) in markers {
            let Some(at) = self.life(name) else { continue };
            if !touched.contains(&at) {
                self.lives[at].push_event(Some(marker.clone()));
            }
        }
    }

    /// Records that everything issued was acknowledged; `synced` says whether it is durable against
    /// power loss.
    pub fn ack(&mut self, synced: bool) {
        self.acked = self.issued;
        if synced {
            self.durable = self.issued;
        }
    }

    /// Records that a flush of these keyspaces with one marker is about to begin.
    pub fn issue_flush_all(&mut self, names: &[&'static str], marker: &[u8]) {
        let mut together = Vec::new();
        for name in names {
            if let Some(at) = self.life(name) {
                together.push((at, self.lives[at].push_event(Some(marker.to_vec()))));
            }
        }
        self.together.push(together);
    }

    /// Records that a flush of these keyspaces was acknowledged.
    pub fn ack_flush(&mut self, names: &[&'static str]) {
        for name in names {
            let Some(at) = self.life(name) else { continue };
            let life = &mut self.lives[at];
            if life.logged {
                let last = life.history.last().map_or(0, |(prefix, _)| *prefix);
                self.durable = self.durable.max(last);
            } else {
                life.event_floor = life.events.len() - 1;
            }
        }
    }

    /// Records that a clean close was acknowledged.
    pub fn ack_close(&mut self) {
        self.ack(true);
        let names = self.names();
        self.ack_flush(&names);
    }

    /// Returns the allowed state that matches `found`, or the violation.
    pub fn check(&self, found: &StoreContents, loss: Loss) -> Result<StateMatch, String> {
        let lives = self.check_names(found)?;
        let floor = match loss {
            Loss::Kill => self.acked.max(self.durable),
            Loss::Power => self.durable,
        };
        let logged: Vec<(usize, u128)> = lives
            .iter()
            .filter(|&&at| self.lives[at].logged)
            .map(|&at| (at, found.get(self.lives[at].name).map_or(0, |f| map_hash(&f.map))))
            .collect();
        let fits =
            |prefix: usize| logged.iter().all(|&(at, hash)| self.lives[at].hash_at(prefix) == hash);
        let Some(prefix) = (floor..=self.issued).rev().find(|&prefix| fits(prefix)) else {
            return Err(self.explain(found, &logged, floor));
        };
        let mut events = Vec::new();
        for &at in lives.iter().filter(|&&at| !self.lives[at].logged) {
            let life = &self.lives[at];
            let Some(keyspace) = found.get(life.name) else { continue };
            let hash = map_hash(&keyspace.map);
            let fits =
                |event: &KeyspaceEvent| event.hash == hash && event.marker == keyspace.marker;
            let Some(event) = life.events.iter().rposition(fits) else {
                return Err(format!(
                    "keyspace '{}' has no log and is at no state it ever had: {} entries, marker \
                     {:?}",
                    life.name,
                    keyspace.map.len(),
                    keyspace.marker.as_ref().map(|m| m.escape_ascii().to_string())
                ));
            };
            if event < life.event_floor {
                return Err(format!(
                    "keyspace '{}' has no log and is at state {event}, but state {} was flushed",
                    life.name, life.event_floor
                ));
            }
            events.push((at, event));
        }
        self.check_together(&events)?;
        Ok(StateMatch { prefix, events, lives })
    }

    fn check_names(&self, found: &StoreContents) -> Result<Vec<usize>, String> {
        let mut lives = Vec::new();
        for (at, life) in self.lives.iter().enumerate() {
            let is_last = self.lives.iter().rposition(|other| other.name == life.name) == Some(at);
            let there = found.contains_key(life.name);
            let must = life.created == EventStage::Done && life.dropped.is_none();
            if !is_last || life.dropped == Some(EventStage::Done) {
                if is_last && there {
                    return Err(format!("keyspace '{}' was dropped but exists", life.name));
                }
                continue;
            }
            if must && !there {
                return Err(format!("keyspace '{}' is not there", life.name));
            }
            if there {
                lives.push(at);
            }
        }
        match found.keys().find(|name| !self.lives.iter().any(|life| life.name == name.as_str())) {
            Some(name) => Err(format!("the script never created keyspace '{name}', but it exists")),
            None => Ok(lives),
        }
    }

    fn check_together(&self, events: &[(usize, usize)]) -> Result<(), String> {
        for together in &self.together {
            let reached = |&&(life, event): &&(usize, usize)| {
                events.iter().any(|&(at, found)| at == life && found >= event)
            };
            let known: Vec<_> = together
                .iter()
                .filter(|(life, _)| events.iter().any(|(at, _)| at == life))
                .collect();
            let count = known.iter().filter(|pair| reached(pair)).count();
            if count != 0 && count != known.len() {
                return Err("keyspaces flushed together are not at the same flush".to_string());
            }
        }
        Ok(())
    }

    fn explain(&self, found: &StoreContents, logged: &[(usize, u128)], floor: usize) -> String {
        let fits = |prefix: usize| {
            logged.iter().filter(|&&(at, hash)| self.lives[at].hash_at(prefix) == hash).count()
        };
        let best = (0..=self.issued).rev().max_by_key(|&prefix| fits(prefix)).unwrap_or(0);
        if fits(best) == logged.len() {
            return format!(
                "acknowledged writes are lost: the state is that after {best} commits, but {floor} \
                 of {} were to survive",
                self.issued
            );
        }
        let mut text = format!(
            "the state is the effect of no prefix of the {} commits (floor {floor}); nearest to \
             {best}:",
            self.issued
        );
        for &(at, hash) in logged {
            let life = &self.lives[at];
            if life.hash_at(best) != hash
                && let Some(found) = found.get(life.name)
            {
                text.push_str(&crate::simulation::state_diff::difference(
                    life.name,
                    &self.rebuild_map(at, best),
                    &found.map,
                ));
            }
        }
        text
    }

    fn rebuild_map(&self, at: usize, prefix: usize) -> KeyspaceMap {
        let mut map = self.lives[at].base.clone();
        let dropped = self.issued - self.commits.len();
        for commit in self.commits.iter().take(prefix.saturating_sub(dropped)) {
            commit.iter().filter(|(life, _)| *life == at).for_each(|(_, w)| apply(&mut map, w));
        }
        map
    }

    /// Records a power failure: buffered writes may be lost.
    pub fn lose_power(&mut self) {
        self.acked = self.acked.min(self.durable);
    }

    /// Drops all acknowledgements, so that any earlier state is allowed.
    pub fn forget_acknowledgements(&mut self) {
        (self.acked, self.durable) = (0, 0);
        for life in &mut self.lives {
            life.created = EventStage::Issued;
            life.event_floor = 0;
            if life.dropped.is_some() {
                life.dropped = Some(EventStage::Issued);
            }
        }
    }

    /// Continues from the content after a crash.
    pub fn rebase(&mut self, matched: &StateMatch, found: &StoreContents, loss: Loss) {
        let lives = std::mem::take(&mut self.lives);
        for (at, mut life) in lives.into_iter().enumerate() {
            let there = matched.lives.contains(&at).then(|| found.get(life.name)).flatten();
            let Some(keyspace) = there else { continue };
            life.map = keyspace.map.clone();
            life.hash = map_hash(&life.map);
            life.base = life.map.clone();
            life.created = EventStage::Done;
            life.dropped = None;
            life.history.retain(|(prefix, _)| *prefix <= matched.prefix);
            if let Some(&(_, event)) = matched.events.iter().find(|(life, _)| *life == at) {
                life.events.truncate(event + 1);
            }
            self.lives.push(life);
        }
        self.commits.clear();
        self.together.clear();
        self.issued = matched.prefix;
        self.acked = matched.prefix;
        self.durable = self.durable.min(matched.prefix);
        if loss == Loss::Power {
            self.durable = matched.prefix;
            for life in self.lives.iter_mut().filter(|life| !life.logged) {
                life.event_floor = life.events.len() - 1;
            }
        }
    }
}
