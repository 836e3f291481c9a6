//! Seeded histories of backups into a simulated object store, compared with a model: writes,
//! deletes, compactions, restarts, kills of the client at any request, faults of the store, two
//! writers, retention, shifts of the store's clock, and restores to the state of any run.
//!
//! `UMBEL_KV_BACKUP_SEEDS=100000 cargo test --release -p umbel --test suite object_backup_campaign`
//! is the campaign; a normal test run has fewer seeds.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use umbel::{
    BackupError, BackupErrorKind, Db, Env, ObjectBackup, ObjectBackupOptions, ObjectRequestOptions,
    RestoreTo, RetentionOptions, restore_from_objects, retain, verify_objects,
};
use umbel_env::{
    Answer, Creation, ListPage, ObjectBytes, ObjectError, ObjectErrorKind, ObjectName,
    ObjectResult, ObjectSource, Objects,
};
use umbel_sim::{FaultRates, ObjectSim, Random};

use super::fixture::{PATH, existing, key, tiny};
use super::object_backups::{Contents, contents, options_in};

/// Seeds of a normal test run.
const SEEDS: u64 = 80;
/// Seeds within which a planted fault must be found.
const SEEDS_PLANTED: u64 = 2000;
/// Steps of a history.
const STEPS: u64 = 30;

/// Fault of the code between a backup and the object store, which a history must notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Plant {
    None,
    /// Some files are reported as written, but are not: as if a manifest came before its files.
    SkipPut,
    /// A creation of an existing name counts as success, whatever the object has.
    AcceptExists,
    /// Floors are neither written nor seen.
    ForgetFloors,
    /// Retention sees no file of a manifest as younger than the floor.
    OldFiles,
    /// Some files are uploaded with the bytes of the file before.
    OtherFile,
}

/// A client of the object store that dies after a number of requests, with a planted fault.
#[derive(Debug)]
struct FaultyObjects {
    inner: Arc<dyn Objects>,
    sim: ObjectSim,
    client: u64,
    /// Requests until the client dies.
    left: AtomicU64,
    plant: Plant,
    calls: AtomicU64,
    last_put: std::sync::Mutex<Option<Vec<u8>>>,
}

impl FaultyObjects {
    /// Counts a request. After the last one, the client is dead: the request may take effect.
    fn then_die<T>(&self, call: impl FnOnce() -> ObjectResult<T>) -> ObjectResult<T> {
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        let before = self.left.load(Ordering::Relaxed);
        self.left.store(before.saturating_sub(1), Ordering::Relaxed);
        if before > 1 {
            return call();
        }
        if number.is_multiple_of(2) {
            // The request is on its way when the client dies.
            let _ = call();
        }
        self.sim.kill(self.client);
        let kind = ObjectErrorKind::Refused;
        Err(ObjectError::new(kind, "call", "the store", "the client was killed"))
    }

    /// Returns the bytes of the object before, if the plant mixes them up now.
    fn other_bytes(&self, source: &dyn ObjectSource) -> Option<Vec<u8>> {
        if self.plant != Plant::OtherFile {
            return None;
        }
        let mut bytes = vec![0; source.byte_count() as usize];
        source.read(&mut bytes, 0).expect("read");
        let before = self.last_put.lock().expect("no panic").replace(bytes);
        before.filter(|_| self.calls.load(Ordering::Relaxed).is_multiple_of(3))
    }
}

impl Objects for FaultyObjects {
    umbel_env::delegate_object_calls!(inner: location create_concurrently);

    fn create(&self, name: &ObjectName, bytes: &[u8]) -> ObjectResult<Creation> {
        if self.plant == Plant::ForgetFloors && name.as_str().starts_with("floors/") {
            return Ok(Answer { value: Creation::Created, store_micros: None });
        }
        let answer = self.then_die(|| self.inner.create(name, bytes))?;
        let value = match answer.value {
            Creation::Exists if self.plant == Plant::AcceptExists => Creation::Created,
            value => value,
        };
        Ok(Answer { value, ..answer })
    }

    fn put(&self, name: &ObjectName, source: &dyn ObjectSource) -> ObjectResult<()> {
        if self.plant == Plant::SkipPut && self.calls.load(Ordering::Relaxed).is_multiple_of(3) {
            self.calls.fetch_add(1, Ordering::Relaxed);
            return Ok(Answer { value: (), store_micros: None });
        }
        let other = self.other_bytes(source);
        self.then_die(|| match other {
            Some(bytes) => self.inner.put(name, &bytes),
            None => self.inner.put(name, source),
        })
    }

    fn read(&self, name: &ObjectName, range: Range<u64>) -> ObjectResult<Option<ObjectBytes>> {
        self.then_die(|| self.inner.read(name, range))
    }

    fn list(&self, prefix: &str, after: Option<&str>, count: usize) -> ObjectResult<ListPage> {
        if self.plant == Plant::ForgetFloors && prefix == "floors/" {
            return Ok(Answer { value: ListPage::default(), store_micros: None });
        }
        let mut answer = self.then_die(|| self.inner.list(prefix, after, count))?;
        if self.plant == Plant::OldFiles && (prefix == "tables/" || prefix == "blobs/") {
            answer.value.objects.iter_mut().for_each(|object| object.created_micros = Some(0));
        }
        Ok(answer)
    }

    fn delete(&self, name: &ObjectName) -> ObjectResult<()> {
        self.then_die(|| self.inner.delete(name))
    }
}

/// A run of a backup. A run that failed can have created a manifest all the same.
#[derive(Debug, Clone)]
struct ModelRun {
    /// Number of the newest manifest and time of its state; `None` if the run failed.
    done: Option<(u64, u64)>,
    contents: Contents,
}

/// One history.
struct History {
    random: Random,
    objects: ObjectSim,
    env: Env,
    db: Db,
    /// The processes that back up.
    backups: Vec<ObjectBackup>,
    clients: u64,
    plant: Plant,
    runs: Vec<ModelRun>,
    /// The first manifest that retention kept.
    first: u64,
    step: u64,
}

type Checked = Result<(), String>;

impl History {
    fn new(seed: u64, plant: Plant) -> History {
        let objects = ObjectSim::new(seed);
        objects.keep_history(false);
        let env = objects.env();
        let db = Db::open(PATH, options_in(&env)).expect("a new store");
        for name in ["a", "b"] {
            db.keyspace(name, tiny()).expect("a keyspace");
        }
        let random = Random::new(seed);
        let (backups, runs) = (Vec::new(), Vec::new());
        let (clients, first, step) = (0, 1, 0);
        History { random, objects, env, db, backups, clients, plant, runs, first, step }
    }

    fn client(&mut self, can_die: bool) -> Arc<dyn Objects> {
        self.clients += 1;
        let left = match can_die && self.random.percent(40) {
            true => 1 + self.random.below(25),
            false => u64::MAX,
        };
        Arc::new(FaultyObjects {
            inner: self.objects.client(self.clients),
            sim: self.objects.clone(),
            client: self.clients,
            left: AtomicU64::new(left),
            plant: self.plant,
            calls: AtomicU64::new(self.random.below(6)),
            last_put: std::sync::Mutex::default(),
        })
    }

    fn requests(&self) -> ObjectRequestOptions {
        let retry_for = Duration::from_secs(40);
        ObjectRequestOptions { parallel_requests: 1, retry_for, ..Default::default() }
    }

    fn run(mut self, steps: u64) -> Checked {
        for step in 1..=steps {
            self.step = step;
            let rate = self.random.pick(&[0, 0, 5, 20]);
            self.objects.set_rates(FaultRates::transient(rate));
            match self.random.below(20) {
                0..6 => self.write(),
                6 => self.compact(),
                7..13 => self.back_up()?,
                13 => self.change_keyspaces(),
                14 => self.reopen(),
                15 => self.retain()?,
                16 => self.pass_time(),
                17 => self.backups.clear(),
                _ => self.restore()?,
            }
        }
        self.end()
    }

    fn write(&mut self) {
        let name = self.random.pick(&["a", "b"]);
        let Some(keyspace) = self.db.existing_keyspace(name).expect("open") else { return };
        for _ in 0..1 + self.random.below(30) {
            let at = self.random.below_usize(60);
            match self.random.below(8) {
                0 => keyspace.delete(key(at)).expect("deleted"),
                1 => keyspace.delete_range(key(at), key(at + 9)).expect("deleted"),
                2 => keyspace.put(key(at), vec![self.step as u8; 700]).expect("put"),
                _ => keyspace.put(key(at), vec![self.step as u8; 90]).expect("put"),
            }
        }
        self.objects.advance(Duration::from_millis(self.random.below(3)));
    }

    fn compact(&mut self) {
        for name in self.db.keyspaces() {
            existing(&self.db, &name).compact(None, None).expect("compacted");
        }
    }

    fn change_keyspaces(&mut self) {
        match self.db.existing_keyspace("b").expect("open") {
            Some(_) => self.db.drop_keyspace("b").expect("dropped"),
            None => drop(self.db.keyspace("b", tiny()).expect("a keyspace")),
        }
    }

    fn reopen(&mut self) {
        self.backups.clear();
        self.db.clone().close().expect("closed");
        self.db = Db::open(PATH, options_in(&self.env)).expect("opened");
    }

    fn back_up(&mut self) -> Checked {
        if self.backups.is_empty() || self.random.percent(8) {
            let objects = self.client(true);
            let options = ObjectBackupOptions {
                requests: self.requests(),
                full_manifest_interval: 1 + self.random.below(6),
                manifest_bytes: self.random.pick(&[1, 20_000, 16 << 20]),
            };
            match self.db.object_backup(objects, options) {
                Ok(backup) => self.backups.push(backup),
                Err(error) => return self.accept(&error),
            }
        }
        let index = self.random.below_usize(self.backups.len());
        let contents = contents(&self.db);
        match self.backups[index].run_once() {
            // The state is that of this process's last manifest, so it sent no request, though
            // another process has a later manifest: a keyspace was created, backed up and dropped.
            Ok(report) if report.manifest < self.newest_manifest() => Ok(()),
            Ok(report) => {
                let done = Some((report.manifest, report.captured_micros));
                self.runs.push(ModelRun { done, contents });
                Ok(())
            }
            Err(error) => {
                self.runs.push(ModelRun { done: None, contents });
                if error.kind() != BackupErrorKind::Retry {
                    self.backups.remove(index);
                }
                self.accept(&error)
            }
        }
    }

    /// Accepts an error that faults of the network, a kill or a second process explain.
    fn accept(&self, error: &BackupError) -> Checked {
        let text = error.to_string();
        let is_explained = error.kind() == BackupErrorKind::Retry
            || text.contains("the client was killed")
            || text.contains("the simulated client is dead")
            || text.contains("another server backs up to")
            || text.contains("the first backup to")
            || text.contains("there is no backup in");
        if is_explained { Ok(()) } else { Err(text) }
    }

    /// Number of the newest manifest that a run reported; 1 before the first one.
    fn newest_manifest(&self) -> u64 {
        let manifests = self.runs.iter().filter_map(|run| run.done);
        manifests.map(|(manifest, _)| manifest).max().unwrap_or(1)
    }

    fn retain(&mut self) -> Checked {
        let keep = Duration::from_secs(self.random.pick(&[0, 60, 3600, 100_000]));
        for dry_run in [true, false] {
            let objects = self.client(!dry_run);
            let options = RetentionOptions { keep, dry_run, requests: self.requests() };
            match retain(&self.env, objects, options) {
                Ok(report) if !dry_run => self.first = self.first.max(report.first_manifest),
                Ok(_) => {}
                Err(error) => {
                    // It can have raised the floor before it failed, to the manifest of a run that
                    // failed, too.
                    let is_done = |run: &ModelRun| run.done.is_some();
                    let failed = self.runs.iter().rev().take_while(|run| !is_done(run)).count();
                    self.first = self.first.max(self.newest_manifest() + failed as u64);
                    self.accept(&error)?;
                }
            }
        }
        Ok(())
    }

    fn pass_time(&mut self) {
        let seconds = self.random.pick(&[1, 100, 4000, 20_000, 90_000]);
        self.objects.advance(Duration::from_secs(seconds));
        let shift = self.random.below(5_000_000_000) as i64 - 2_500_000_000;
        self.objects.shift_store_clock(shift);
    }

    /// Restores the newest state, or that of an earlier run.
    fn restore(&mut self) -> Checked {
        let done: Vec<usize> = (0..self.runs.len())
            .filter(|run| self.runs[*run].done.is_some_and(|(it, _)| it >= self.first))
            .collect();
        if done.is_empty() || self.random.percent(30) {
            return self.check_restore(RestoreTo::Latest, None, false);
        }
        let run = done[self.random.below_usize(done.len())];
        let (manifest, captured) = self.runs[run].done.unwrap_or_default();
        match self.random.percent(50) {
            true => self.check_restore(RestoreTo::Manifest(manifest), Some(run), false),
            false => self.check_restore(RestoreTo::Time(captured), Some(run), false),
        }
    }

    /// Restores, and compares every entry with the model.
    fn check_restore(&mut self, restore_to: RestoreTo, run: Option<usize>, must: bool) -> Checked {
        let env = ObjectSim::new(self.step).env();
        let (objects, requests) = (self.client(false), self.requests());
        let restored = restore_from_objects(&env, objects, "/copy".as_ref(), restore_to, requests);
        let report = match restored {
            Ok(report) => report,
            Err(error) if must => return Err(format!("{restore_to:?}: {error}")),
            Err(error) => return self.accept(&error),
        };
        let db = Db::open("/copy", options_in(&env)).map_err(|error| error.to_string())?;
        let found = contents(&db);
        let begin = match (restore_to, run) {
            (RestoreTo::Manifest(_), Some(run)) => {
                return match found == self.runs[run].contents {
                    true => Ok(()),
                    false => Err(format!("{restore_to:?}: other entries than in that run")),
                };
            }
            (RestoreTo::Time(time), Some(_)) => {
                if report.captured_micros > time {
                    return Err(format!("{restore_to:?}: {report:?} is later"));
                }
                let is_at = |run: &ModelRun| run.done.is_some_and(|(_, at)| at <= time);
                self.runs.iter().rposition(is_at).unwrap_or(0)
            }
            _ => self.runs.iter().rposition(|run| run.done.is_some()).unwrap_or(0),
        };
        // A later run that failed can have created a manifest, also before that time.
        let later = self.runs[begin..].iter().enumerate();
        let mut candidates = later.take_while(|(at, run)| *at == 0 || run.done.is_none());
        match candidates.any(|(_, run)| run.contents == found) {
            true => Ok(()),
            false => Err(format!("{restore_to:?}: {report:?} has other entries")),
        }
    }

    fn end(mut self) -> Checked {
        self.objects.set_rates(FaultRates::none());
        self.objects.settle();
        let objects = self.client(false);
        let has_runs = self.runs.iter().any(|run| run.done.is_some());
        match verify_objects(&self.env, objects, self.requests()) {
            Ok(report) => {
                if let Some(damage) = report.damage.first() {
                    return Err(format!("damage: {damage}"));
                }
                let is_all = report.restorable.len() <= 1
                    && report.restorable.iter().all(|it| it.last == report.newest_manifest);
                if !is_all || (has_runs && report.restorable.is_empty()) {
                    return Err(format!("not all can be restored: {report:?}"));
                }
            }
            Err(error) if !has_runs => return self.accept(&error),
            Err(error) => return Err(error.to_string()),
        }
        self.check_restore(RestoreTo::Latest, None, has_runs)?;
        for _ in 0..3 {
            self.restore()?;
        }
        // A process that starts after everything continues.
        self.backups.clear();
        let options = ObjectBackupOptions { requests: self.requests(), ..Default::default() };
        let objects = self.client(false);
        let backup = self.db.object_backup(objects, options).map_err(|error| error.to_string())?;
        let report = backup.run_once().map_err(|error| error.to_string())?;
        let done = Some((report.manifest, report.captured_micros));
        self.runs.push(ModelRun { done, contents: contents(&self.db) });
        let last = self.runs.len() - 1;
        self.check_restore(RestoreTo::Manifest(report.manifest), Some(last), true)
    }
}

fn number_of(variable: &str, normal: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(normal)
}

#[test]
fn object_backup_campaign_loses_nothing() {
    let first = number_of("UMBEL_KV_BACKUP_SEED", 0);
    let mut failures = Vec::new();
    for seed in first..first + number_of("UMBEL_KV_BACKUP_SEEDS", SEEDS) {
        if let Err(text) = History::new(seed, Plant::None).run(STEPS) {
            failures.push(format!("UMBEL_KV_BACKUP_SEED={seed}: {text:.600}"));
        }
    }
    let shown = &failures[..failures.len().min(8)];
    assert!(failures.is_empty(), "{} seeds: {shown:#?}", failures.len());
}

#[test]
fn object_backup_campaign_finds_planted_faults() {
    let plants = [
        Plant::SkipPut,
        Plant::AcceptExists,
        Plant::ForgetFloors,
        Plant::OldFiles,
        Plant::OtherFile,
    ];
    let mut missed = Vec::new();
    for plant in plants {
        let found = (0..SEEDS_PLANTED).find(|seed| History::new(*seed, plant).run(STEPS).is_err());
        match found {
            Some(seed) => println!("{plant:?}: seed {seed}"),
            None => missed.push(plant),
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}
