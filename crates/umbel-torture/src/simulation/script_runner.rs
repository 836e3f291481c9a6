//! Runs a script on a simulated machine and keeps the model in step: issued, acknowledged and
//! durable writes.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use umbel_base::ignore_poison::IgnorePoison;

use umbel::{Batch, Db, Durability, Env, Error, Iter, Keyspace, Snapshot};
use umbel_sim::{Sim, Survival};

use crate::simulation::full_read::{self, ReadError};
use crate::simulation::oracle::{
    CheckpointCopy, KeyspaceContents, KeyspaceMap, Loss, Oracle, StoreContents,
};
use crate::simulation::script::{Condition, Op, Script, Write};

/// Creates the engine's environment of a machine.
pub type EnvMaker = Arc<dyn Fn(&Sim) -> Env + Send + Sync>;

/// Failure of a step.
#[derive(Debug)]
pub enum StepError {
    /// An error of the engine.
    Engine(Error),
    /// A violation.
    Wrong(String),
}

impl From<Error> for StepError {
    fn from(error: Error) -> StepError {
        StepError::Engine(error)
    }
}

impl From<ReadError> for StepError {
    fn from(trouble: ReadError) -> StepError {
        match trouble {
            ReadError::Engine(error) => StepError::Engine(error),
            ReadError::Wrong(text) => StepError::Wrong(text),
        }
    }
}

impl StepError {
    /// Returns the failure as a sentence.
    pub fn text(&self) -> String {
        match self {
            StepError::Engine(error) => format!("the engine failed: {error}"),
            StepError::Wrong(text) => text.clone(),
        }
    }
}

type StepResult = Result<(), StepError>;

struct SnapshotState {
    snapshot: Snapshot,
    state: BTreeMap<&'static str, KeyspaceMap>,
    sequence_at: usize,
    /// Keys written since the snapshot was taken, per keyspace.
    written: Vec<(&'static str, Vec<u8>)>,
}

/// A running script.
pub struct ScriptRunner {
    /// The script.
    pub script: Arc<Script>,
    /// The machine as it is now.
    pub sim: Sim,
    world: EnvMaker,
    model: Arc<Mutex<Oracle>>,
    db: Option<Db>,
    /// Whether the store was opened before.
    was_open: bool,
    snapshot: Option<SnapshotState>,
    iterator: Option<(Iter, KeyspaceMap)>,
    steps: usize,
}

impl fmt::Debug for ScriptRunner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runner").field("script", &self.script.name).finish_non_exhaustive()
    }
}

impl ScriptRunner {
    /// Creates the run of a script on a machine.
    pub fn new(
        script: Arc<Script>,
        sim: Sim,
        world: EnvMaker,
        model: Arc<Mutex<Oracle>>,
    ) -> ScriptRunner {
        ScriptRunner {
            script,
            sim,
            world,
            model,
            db: None,
            was_open: false,
            snapshot: None,
            iterator: None,
            steps: 0,
        }
    }

    /// Locks the model.
    pub fn model(&self) -> MutexGuard<'_, Oracle> {
        self.model.lock().ignore_poison()
    }

    /// Returns the open store.
    pub fn db(&self) -> Result<&Db, StepError> {
        self.db.as_ref().ok_or_else(|| StepError::Wrong("the store is not open".to_string()))
    }

    /// Whether the store is open.
    pub fn is_open(&self) -> bool {
        self.db.is_some()
    }

    /// Opens the store.
    pub fn open(&mut self) -> StepResult {
        self.sim.allow_mapping(self.script.mapping);
        let env = (self.world)(&self.sim);
        let options = match self.was_open {
            true => full_read::reopen_options(&self.script, env),
            false => full_read::first_options(&self.script, env),
        };
        self.db = Some(Db::open(self.script.folder, options)?);
        self.was_open = true;
        Ok(())
    }

    /// Drops every handle; the store closes if it was open.
    pub fn drop_handles(&mut self) {
        self.snapshot = None;
        self.iterator = None;
        self.db = None;
    }

    /// Opens the store, runs every operation and closes it.
    pub fn run(&mut self) -> Result<(), String> {
        self.open().map_err(|failure| format!("the first open: {}", failure.text()))?;
        let script = Arc::clone(&self.script);
        for (number, op) in script.ops.iter().enumerate() {
            let step = self.run_op(op);
            step.map_err(|failure| format!("operation {number} ({op:.60?}): {}", failure.text()))?;
        }
        let ended = self.close().and_then(|()| self.open()).and_then(|()| self.read());
        ended.map_err(|failure| format!("at the end: {}", failure.text()))?;
        self.close().map_err(|failure| format!("the last close: {}", failure.text()))
    }

    fn keyspace(&self, name: &str) -> Result<Keyspace, StepError> {
        let found = self.db()?.existing_keyspace(name)?;
        found.ok_or_else(|| StepError::Wrong(format!("keyspace '{name}' is not there")))
    }

    /// Runs one operation.
    pub fn run_op(&mut self, op: &Op) -> StepResult {
        self.steps += 1;
        match op {
            Op::Keyspace(name, options) => {
                self.model().issue_keyspace(name, options.log);
                self.db()?.keyspace(name, options.clone())?;
                self.model().ack_keyspaces();
            }
            Op::Drop(name) => {
                self.model().issue_drop(name);
                self.db()?.drop_keyspace(name)?;
                self.model().ack_keyspaces();
            }
            Op::Single(write) => self.single(write)?,
            Op::Batch { writes, conditions, markers, durability } => {
                self.batch(writes, conditions, markers, *durability)?;
            }
            Op::Sync => {
                self.db()?.sync()?;
                self.model().ack(true);
            }
            Op::Flush => {
                self.db()?.flush()?;
                let names = self.model().names();
                self.model().ack_flush(&names);
            }
            Op::FlushOne(name) => {
                self.keyspace(name)?.flush()?;
                self.model().ack_flush(&[name]);
            }
            Op::FlushAll(names, marker) => self.flush_all(names, marker)?,
            Op::Compact(name, start, end) => {
                self.keyspace(name)?.compact(start.as_deref(), end.as_deref())?;
                self.model().ack_flush(&[name]);
            }
            Op::Settle => self.db()?.wait_for_compaction()?,
            Op::Checkpoint(folder) => self.checkpoint(folder)?,
            Op::Read => self.read()?,
            Op::Snapshot | Op::Release | Op::HoldIterator(_) | Op::ReadIterator => {
                self.hold(op)?;
            }
            _ => self.read_held(op)?,
        }
        Ok(())
    }

    fn single(&mut self, write: &Write) -> StepResult {
        self.record_writes(std::slice::from_ref(write));
        let keyspace = self.keyspace(write.keyspace())?;
        self.model().issue(std::slice::from_ref(write), &[]);
        match write {
            Write::Put(_, key, value) => keyspace.put(key, value)?,
            Write::Delete(_, key) => keyspace.delete(key)?,
            Write::DeleteRange(_, start, end) => keyspace.delete_range(start, end)?,
        }
        let synced = self.script.durability == Durability::Synced;
        let logged = self.model().is_logged(write.keyspace());
        self.model().ack(synced && logged);
        Ok(())
    }

    fn record_writes(&mut self, writes: &[Write]) {
        let Some(view) = &mut self.snapshot else { return };
        for write in writes {
            if let Write::Put(name, key, _) | Write::Delete(name, key) = write {
                view.written.push((name, key.clone()));
            }
        }
    }

    fn condition_holds(&self, condition: &Condition) -> bool {
        let model = self.model();
        match condition {
            Condition::Absent(name, key) => model.map(name).is_none_or(|m| !m.contains_key(key)),
            Condition::Value(name, key, value) => {
                model.map(name).and_then(|m| m.get(key)) == Some(value)
            }
            Condition::Unchanged(name, key) => self.snapshot.as_ref().is_some_and(|view| {
                !view.written.iter().any(|(written, k)| written == name && k == key)
            }),
        }
    }

    fn add_to(&self, batch: &mut Batch, writes: &[Write], conditions: &[Condition]) -> StepResult {
        for condition in conditions {
            match condition {
                Condition::Absent(name, key) => batch.expect_absent(&self.keyspace(name)?, key),
                Condition::Value(name, key, value) => {
                    batch.expect_value(&self.keyspace(name)?, key, value);
                }
                Condition::Unchanged(name, key) => {
                    let view = self.snapshot.as_ref();
                    let view = view.ok_or_else(|| StepError::Wrong("no snapshot".to_string()))?;
                    batch.expect_unchanged(&self.keyspace(name)?, key, &view.snapshot);
                }
            }
        }
        for write in writes {
            let keyspace = self.keyspace(write.keyspace())?;
            match write {
                Write::Put(_, key, value) => batch.put(&keyspace, key, value),
                Write::Delete(_, key) => batch.delete(&keyspace, key),
                Write::DeleteRange(_, start, end) => batch.delete_range(&keyspace, start, end),
            }
        }
        Ok(())
    }

    fn batch(
        &mut self,
        writes: &[Write],
        conditions: &[Condition],
        markers: &[(&'static str, Vec<u8>)],
        durability: Durability,
    ) -> StepResult {
        let mut batch = self.db()?.batch();
        self.add_to(&mut batch, writes, conditions)?;
        for (name, marker) in markers {
            batch.set_marker(&self.keyspace(name)?, marker);
        }
        let holds = conditions.iter().all(|condition| self.condition_holds(condition));
        if holds {
            self.model().issue(writes, markers);
        }
        match batch.commit(durability) {
            Err(Error::Conflict(_)) if !holds => return Ok(()),
            Ok(()) if !holds => {
                return Err(StepError::Wrong("a condition that does not hold was met".to_string()));
            }
            other => other?,
        }
        self.record_writes(writes);
        self.model().ack(durability == Durability::Synced);
        Ok(())
    }

    fn flush_all(&mut self, names: &[&'static str], marker: &[u8]) -> StepResult {
        let keyspaces: Vec<Keyspace> =
            names.iter().map(|name| self.keyspace(name)).collect::<Result<_, _>>()?;
        self.model().issue_flush_all(names, marker);
        self.db()?.flush_all(&keyspaces.iter().collect::<Vec<_>>(), marker)?;
        self.model().ack_flush(names);
        Ok(())
    }

    fn checkpoint(&mut self, folder: &'static str) -> StepResult {
        self.db()?.checkpoint(folder)?;
        let names = self.model().names();
        self.model().ack_flush(&names);
        let mut found = StoreContents::new();
        for name in names {
            let marker = self.keyspace(name)?.marker();
            let map = self.model().map(name).cloned().unwrap_or_default();
            found.insert(name.to_string(), KeyspaceContents { map, marker });
        }
        self.model().copies.push(CheckpointCopy { folder, found });
        Ok(())
    }

    /// Reads everything and compares it with the effect of everything issued.
    pub fn read(&mut self) -> StepResult {
        let keys = self.model().keys.clone();
        let found = full_read::read_all(self.db()?, &keys)?;
        let expected = self.model().state();
        for (name, map) in &expected {
            let have = found.get(*name).map(|keyspace| &keyspace.map);
            if have != Some(map) {
                let empty = KeyspaceMap::new();
                let text =
                    crate::simulation::state_diff::difference(name, map, have.unwrap_or(&empty));
                return Err(StepError::Wrong(format!("a read is wrong:{text}")));
            }
        }
        if found.len() != expected.len() {
            return Err(StepError::Wrong("a read shows a keyspace too many".to_string()));
        }
        full_read::verify(self.db()?).map_err(|text| match text.contains("(os error") {
            true => StepError::Engine(Error::invalid(text)),
            false => StepError::Wrong(text),
        })
    }

    fn hold(&mut self, op: &Op) -> StepResult {
        match op {
            Op::Snapshot => {
                let snapshot = self.db()?.snapshot();
                let state = self.model().state();
                let sequence_at = self.steps;
                self.snapshot =
                    Some(SnapshotState { snapshot, state, sequence_at, written: Vec::new() });
            }
            Op::Release => {
                let Some(view) = self.snapshot.take() else { return Ok(()) };
                for (name, map) in &view.state {
                    let Ok(Some(keyspace)) = self.db()?.existing_keyspace(name) else { continue };
                    let seen: Result<KeyspaceMap, Error> =
                        keyspace.iter_at(&view.snapshot)?.collect();
                    if seen? != *map {
                        let at = view.sequence_at;
                        let text = format!("the snapshot of step {at} has changed in '{name}'");
                        return Err(StepError::Wrong(text));
                    }
                    for (key, value) in map {
                        if keyspace.get_at(&view.snapshot, key)?.as_ref() != Some(value) {
                            let text = format!("a get at the snapshot is wrong in '{name}'");
                            return Err(StepError::Wrong(text));
                        }
                    }
                }
            }
            Op::HoldIterator(name) => {
                let iterator = self.keyspace(name)?.iter();
                let map = self.model().map(name).cloned().unwrap_or_default();
                self.iterator = Some((iterator, map));
            }
            _ => {
                let Some((iterator, map)) = self.iterator.take() else { return Ok(()) };
                let seen: Result<KeyspaceMap, Error> = iterator.collect();
                if seen? != map {
                    return Err(StepError::Wrong(
                        "the kept iterator returned another state".to_string(),
                    ));
                }
            }
        }
        Ok(())
    }

    /// Closes the store and returns the result.
    pub fn close(&mut self) -> StepResult {
        self.snapshot = None;
        self.iterator = None;
        if let Some(db) = self.db.take() {
            db.close()?;
            self.model().ack_close();
        }
        Ok(())
    }

    fn read_held(&mut self, op: &Op) -> StepResult {
        match op {
            Op::Reopen => {
                self.close()?;
                self.open()?;
            }
            Op::DropReopen => {
                self.drop_handles();
                self.model().ack_close();
                self.open()?;
            }
            Op::ReadOnly => {
                self.close()?;
                self.open_read_only()?;
                self.open()?;
            }
            Op::Kill => self.crash(None)?,
            Op::KillReadOnly => {
                self.end_process(None);
                self.open_read_only()?;
                self.open()?;
                self.check_recovered(Loss::Kill)?;
            }
            Op::Leftovers => {
                self.end_process(None);
                for name in ["CURRENT.new", "000099.table", "000098.blob"] {
                    let path = std::path::Path::new(self.script.folder).join(name);
                    let file = self.sim.env().files.create(&path)?;
                    file.write_all_at(b"half of it", 0)?;
                }
                self.open()?;
                self.check_recovered(Loss::Kill)?;
            }
            Op::PowerCut(seed) => {
                self.crash(Some(Survival::any(*seed, self.sim.pending_units())))?;
            }
            Op::SecondOpen => {
                let env = (self.world)(&self.sim);
                let second =
                    Db::open(self.script.folder, full_read::first_options(&self.script, env));
                if !matches!(second, Err(Error::Locked(_))) {
                    let text = "a second open of the same store did not report a locked store";
                    return Err(StepError::Wrong(text.to_string()));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn open_read_only(&mut self) -> StepResult {
        let env = (self.world)(&self.sim);
        let options = full_read::first_options(&self.script, env);
        let db = Db::open_read_only(self.script.folder, options)?;
        let keys = self.model().keys.clone();
        let found = full_read::read_all(&db, &keys)?;
        self.model().check(&found, Loss::Kill).map_err(StepError::Wrong)?;
        let refused = db.keyspace("never", crate::simulation::script::small());
        if refused.is_ok() {
            return Err(StepError::Wrong("a store open for reading made a keyspace".to_string()));
        }
        db.close()?;
        Ok(())
    }

    fn end_process(&mut self, survival: Option<Survival>) {
        let next = match survival {
            None => self.sim.kill_image(),
            Some(policy) => self.sim.crash_image(&policy, self.steps as u64),
        };
        self.sim.crash_now();
        self.drop_handles();
        if survival.is_some() {
            self.model().lose_power();
        }
        self.sim = next;
    }

    fn crash(&mut self, survival: Option<Survival>) -> StepResult {
        self.end_process(survival);
        self.open()?;
        self.check_recovered(if survival.is_none() { Loss::Kill } else { Loss::Power })
    }

    /// Compares the recovered content with the allowed states, and continues the model from that
    /// content.
    pub fn check_recovered(&mut self, loss: Loss) -> StepResult {
        let keys = self.model().keys.clone();
        let found = full_read::read_all(self.db()?, &keys)?;
        let matched = self.model().check(&found, loss).map_err(StepError::Wrong)?;
        self.model().rebase(&matched, &found, loss);
        Ok(())
    }
}
