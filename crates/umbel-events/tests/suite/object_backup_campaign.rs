//! Seeded histories of backups into a simulated object store, compared with a model event by event:
//! appends, scavenges, restarts, kills of the client at any request, faults of the store, two
//! servers, retention, shifts of the store's clock, and restores to any position and time.
//!
//! `UMBEL_OBJECT_BACKUP_SEEDS=100000 cargo test --release -p umbel-events --test suite
//! object_backup_campaign` is the campaign; a normal test run has fewer seeds.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use umbel_env::{
    Answer, Creation, Env, ListPage, ObjectBytes, ObjectError, ObjectErrorKind, ObjectName,
    ObjectResult, ObjectSource, Objects,
};
use umbel_events::{
    ExpectedVersion, NewEvent, ObjectBackup, ObjectBackupError, ObjectBackupErrorKind,
    ObjectBackupOptions, ObjectRequestOptions, Position, RecordedEvent, RestoreTo,
    RetentionOptions, ScavengeOptions, Store, restore_from_objects, retain, verify_objects,
};
use umbel_sim::{FaultRates, ObjectSim, Random};

use super::object_backups::options_in;
use super::support::{all, id};

/// Seeds of a normal test run.
const SEEDS: u64 = 100;
/// Seeds within which a planted fault must be found.
const SEEDS_PLANTED: u64 = 2000;
/// Steps of a history.
const STEPS: u64 = 30;

/// Fault of the code between a backup and the object store, which a history must notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Plant {
    None,
    /// Some pieces are reported as written, but are not: as if a manifest came before its pieces.
    SkipPut,
    /// A creation of an existing name counts as success, whatever the object has.
    AcceptExists,
    /// The objects look older than they are, as if retention had no slack for the store's clock.
    NoSlack,
    /// Floors are neither written nor seen.
    ForgetFloors,
    /// Retention sees no piece of a manifest as younger than the floor.
    OldPieces,
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
}

impl FaultyObjects {
    /// Counts a request. After the last one, the client is dead: the request may take effect.
    fn step(&self) -> bool {
        let before = self.left.fetch_sub(1, Ordering::Relaxed);
        if before == 0 {
            self.left.store(0, Ordering::Relaxed);
        }
        if before <= 1 {
            self.left.store(0, Ordering::Relaxed);
            return true;
        }
        false
    }

    fn then_die<T>(&self, call: impl FnOnce() -> ObjectResult<T>) -> ObjectResult<T> {
        let dies = self.step();
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        if !dies {
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
        self.then_die(|| self.inner.put(name, source))
    }

    fn read(&self, name: &ObjectName, range: Range<u64>) -> ObjectResult<Option<ObjectBytes>> {
        self.then_die(|| self.inner.read(name, range))
    }

    fn list(&self, prefix: &str, after: Option<&str>, count: usize) -> ObjectResult<ListPage> {
        if self.plant == Plant::ForgetFloors && prefix == "floors/" {
            return Ok(Answer { value: ListPage::default(), store_micros: None });
        }
        let mut answer = self.then_die(|| self.inner.list(prefix, after, count))?;
        let older = match self.plant {
            Plant::NoSlack => 2 * 3600 * 1_000_000,
            Plant::OldPieces => u64::MAX,
            _ => 0,
        };
        if prefix == "chunks/" || prefix == "tails/" {
            for object in &mut answer.value.objects {
                let created = object.created_micros;
                object.created_micros = created.map(|micros| micros.saturating_sub(older));
            }
        }
        Ok(answer)
    }

    fn delete(&self, name: &ObjectName) -> ObjectResult<()> {
        self.then_die(|| self.inner.delete(name))
    }
}

/// An event that was appended, and the step at which a scavenge removed it.
#[derive(Debug, Clone)]
struct ModelEvent {
    event: RecordedEvent,
    removed: Option<u64>,
}

/// A run of a backup that succeeded.
#[derive(Debug, Clone, Copy)]
struct ModelRun {
    step: u64,
    manifest: u64,
    through: u64,
}

/// One history.
struct History {
    random: Random,
    objects: ObjectSim,
    env: Env,
    store: Store,
    /// The servers that back up, each with its client's number.
    backups: Vec<ObjectBackup>,
    clients: u64,
    plant: Plant,
    events: Vec<ModelEvent>,
    runs: Vec<ModelRun>,
    /// The first manifest that retention kept.
    first: u64,
    step: u64,
    appended: u64,
    restores: u64,
}

type Checked = Result<(), String>;

impl History {
    fn new(seed: u64, plant: Plant) -> History {
        let objects = ObjectSim::new(seed);
        objects.keep_history(false);
        let env = objects.env();
        let store = Store::open("/events", options_in(&env)).expect("a new store");
        History {
            random: Random::new(seed),
            objects,
            env,
            store,
            backups: Vec::new(),
            clients: 0,
            plant,
            events: Vec::new(),
            runs: Vec::new(),
            first: 1,
            step: 0,
            appended: 0,
            restores: 0,
        }
    }

    /// A client that dies after some requests, or never.
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
                0..7 => self.append(),
                7..13 => self.back_up()?,
                13 => self.scavenge(),
                14 => self.reopen(),
                15 => self.retain()?,
                16 => self.pass_time(),
                17 => self.backups.clear(),
                _ => self.restore()?,
            }
        }
        self.end()
    }

    fn append(&mut self) {
        for _ in 0..1 + self.random.below(4) {
            let stream = format!("s{}", self.random.below(4));
            let size = self.random.pick(&[10, 1000, 9000, 20_000]);
            let data = vec![self.appended as u8; size];
            let count = 1 + self.random.below(3);
            let events: Vec<_> = (0..count)
                .map(|number| NewEvent::binary(id(self.appended + number), "E", &data))
                .collect();
            self.store.append(&stream, ExpectedVersion::Any, &events).expect("appended");
            self.appended += count;
            self.objects.advance(Duration::from_millis(self.random.below(3)));
        }
        self.learn();
    }

    /// Adds new events to the model, and marks events that a scavenge removed.
    fn learn(&mut self) {
        let now = all(&self.store);
        let last = self.events.last().map_or(0, |event| event.event.position);
        let mut kept = now.iter().map(|event| event.position).peekable();
        for event in &mut self.events {
            while kept.next_if(|position| *position < event.event.position).is_some() {}
            if kept.peek() != Some(&event.event.position) {
                event.removed = event.removed.or(Some(self.step));
            }
        }
        let new = now.into_iter().filter(|event| event.position > last);
        self.events.extend(new.map(|event| ModelEvent { event, removed: None }));
    }

    fn scavenge(&mut self) {
        let stream = format!("s{}", self.random.below(4));
        if self.store.delete(&stream, ExpectedVersion::Any).is_ok() {
            self.learn();
        }
        let removes_all = self.random.percent(50);
        let options = ScavengeOptions { removes_all, retry_bytes: 0, ..Default::default() };
        self.store.scavenge(&options).expect("scavenged");
        self.learn();
    }

    fn reopen(&mut self) {
        self.backups.clear();
        self.store.clone().close().expect("closed");
        self.store = Store::open("/events", options_in(&self.env)).expect("opened");
        self.learn();
    }

    fn back_up(&mut self) -> Checked {
        if self.backups.is_empty() || self.random.percent(8) {
            let objects = self.client(true);
            let options = ObjectBackupOptions {
                requests: self.requests(),
                full_manifest_interval: 1 + self.random.below(6),
                small_tails_max: 2 + self.random.below_usize(4),
                manifest_bytes: self.random.pick(&[1, 100_000, 16 << 20]),
            };
            match self.store.object_backup(objects, options) {
                Ok(backup) => self.backups.push(backup),
                Err(error) => return self.accept(&error),
            }
        }
        let index = self.random.below_usize(self.backups.len());
        let last = self.events.last().map_or(0, |event| event.event.position);
        match self.backups[index].run_once() {
            Ok(report) if report.through.0 < last => {
                Err(format!("through {} of {last}", report.through.0))
            }
            Ok(report) => {
                let (manifest, through) = (report.manifest, report.through.0);
                self.runs.push(ModelRun { step: self.step, manifest, through });
                Ok(())
            }
            Err(error) => {
                if error.kind() != ObjectBackupErrorKind::Retry {
                    self.backups.remove(index);
                }
                self.accept(&error)
            }
        }
    }

    /// Accepts an error that faults of the network, a kill or a second server explain.
    fn accept(&self, error: &ObjectBackupError) -> Checked {
        let text = error.to_string();
        let is_explained = error.kind() == ObjectBackupErrorKind::Retry
            || text.contains("the client was killed")
            || text.contains("the simulated client is dead")
            || text.contains("another server backs up to")
            || text.contains("the first backup to")
            || text.contains("there is no backup in");
        if is_explained { Ok(()) } else { Err(text) }
    }

    fn retain(&mut self) -> Checked {
        let keep = Duration::from_secs(self.random.pick(&[0, 60, 3600, 100_000]));
        for dry_run in [true, false] {
            let objects = self.client(!dry_run);
            let options = RetentionOptions { keep, dry_run, requests: self.requests() };
            match retain(&self.env, objects, options) {
                Ok(report) => self.first = self.first.max(report.first_manifest),
                Err(error) => {
                    // It can have deleted some objects before it failed.
                    self.runs.clear();
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

    fn restore(&mut self) -> Checked {
        let restore_to = match self.events.is_empty() {
            true => RestoreTo::Latest,
            false => {
                let event = &self.events[self.random.below_usize(self.events.len())].event;
                match self.random.below(4) {
                    0 => RestoreTo::Latest,
                    1 => RestoreTo::Time(event.created),
                    _ => RestoreTo::Position(Position(event.position)),
                }
            }
        };
        self.check_restore(restore_to, false)
    }

    /// Restores, and compares every event with the model.
    fn check_restore(&mut self, restore_to: RestoreTo, must: bool) -> Checked {
        let env = ObjectSim::new(self.step).env();
        let objects = self.client(false);
        let requests = self.requests();
        let report = restore_from_objects(&env, objects, "/copy".as_ref(), restore_to, requests);
        let report = match report {
            Ok(report) => report,
            Err(error) if must => return Err(format!("{restore_to:?}: {error}")),
            Err(error) => return self.accept(&error),
        };
        let store = Store::open("/copy", options_in(&env)).map_err(|error| error.to_string())?;
        let found = all(&store);
        self.restores += 1;
        let newest = self.runs.iter().map(|run| run.through).max().unwrap_or(0);
        let end = match restore_to {
            RestoreTo::Latest if report.through.0 < newest => {
                return Err(format!("restored through {} of {newest}", report.through.0));
            }
            RestoreTo::Latest => report.through.0,
            RestoreTo::Position(Position(last)) => last,
            RestoreTo::Time(last) => {
                let events = self.events.iter().take_while(|event| event.event.created <= last);
                events.last().map_or(0, |event| event.event.position)
            }
        };
        // A run that failed can have created a manifest with that end, at any step.
        let covering = |run: &&ModelRun| run.through >= end && run.manifest >= self.first;
        let covered = self.runs.iter().find(covering).map_or(self.step, |run| run.step);
        // What was not in the backup at that moment cannot be restored.
        let end = if newest < end { end.min(report.through.0.max(newest)) } else { end };
        // The newest manifest has all scavenges; an end is restored from the earliest one.
        let step = match restore_to {
            RestoreTo::Latest => self.step,
            _ => covered,
        };
        self.compare(&found, end, step).map_err(|text| format!("{restore_to:?}: {text}"))
    }

    /// Compares restored events with those of the model up to `end`. Only events that a scavenge
    /// had removed at `step` may be missing, and appends that `end` divides.
    fn compare(&self, found: &[RecordedEvent], end: u64, step: u64) -> Checked {
        let mut found = found.iter().peekable();
        let expected: Vec<_> =
            self.events.iter().take_while(|event| event.event.position <= end).collect();
        let last_whole = self.last_whole(end);
        for ModelEvent { event, removed } in expected {
            match found.next_if(|found| found.position == event.position) {
                Some(found) if found == event => {}
                Some(found) => return Err(format!("{found:?} instead of {event:?}")),
                None if removed.is_some_and(|removed| removed <= step) => {}
                None if event.position > last_whole => {}
                None => return Err(format!("{} {removed:?} is missing", event.position)),
            }
        }
        match found.next() {
            Some(extra) => Err(format!("{} after {end}", extra.position)),
            None => Ok(()),
        }
    }

    /// Position of the last event of the last append that ends at `end` or before. Events of one
    /// append are adjacent: between two appends is the header of a record.
    fn last_whole(&self, end: u64) -> u64 {
        let mut whole = 0;
        for pair in self.events.windows(2) {
            let [first, second] = [&pair[0].event, &pair[1].event];
            if first.position > end {
                break;
            }
            let frame = 72
                + first.stream.len()
                + first.kind.len()
                + first.metadata.len()
                + first.data.len();
            let is_adjacent = first.position + frame.next_multiple_of(8) as u64 == second.position;
            if !is_adjacent {
                whole = first.position;
            }
        }
        match self.events.last() {
            Some(last) if last.event.position <= end => last.event.position,
            _ => whole,
        }
    }

    fn end(mut self) -> Checked {
        self.objects.set_rates(FaultRates::none());
        self.objects.settle();
        let objects = self.client(false);
        let verified = verify_objects(&self.env, objects, self.requests());
        match verified {
            Ok(report) => {
                if let Some(damage) = report.damage.first() {
                    return Err(format!("damage: {damage}"));
                }
                let is_all = report.restorable.len() == 1
                    && report.restorable[0].first == report.first_manifest
                    && report.restorable[0].last == report.newest_manifest;
                if !is_all {
                    return Err(format!("not all can be restored: {report:?}"));
                }
            }
            Err(error) if self.runs.is_empty() => return self.accept(&error),
            Err(error) => return Err(error.to_string()),
        }
        self.check_restore(RestoreTo::Latest, true)?;
        for _ in 0..3 {
            self.restore()?;
        }
        // A server that starts after everything continues.
        self.backups.clear();
        let runs = self.runs.len();
        self.back_up()?;
        if self.runs.len() > runs {
            self.check_current()?;
        }
        self.restore()
    }

    /// Checks that the newest manifest has what the store has, and nothing that a scavenge removed.
    fn check_current(&mut self) -> Checked {
        let env = ObjectSim::new(self.step).env();
        let (objects, requests) = (self.client(false), self.requests());
        let path = "/copy".as_ref();
        let restored = restore_from_objects(&env, objects, path, RestoreTo::Latest, requests);
        restored.map_err(|error| error.to_string())?;
        let store = Store::open("/copy", options_in(&env)).map_err(|error| error.to_string())?;
        match all(&store) == all(&self.store) {
            true => Ok(()),
            false => Err("the newest manifest differs from the store".into()),
        }
    }
}

fn seeds(normal: u64) -> u64 {
    let given = std::env::var("UMBEL_OBJECT_BACKUP_SEEDS");
    given.ok().and_then(|count| count.parse().ok()).unwrap_or(normal)
}

#[test]
fn object_backup_campaign_loses_nothing() {
    let first: u64 =
        std::env::var("UMBEL_OBJECT_BACKUP_SEED").ok().and_then(|n| n.parse().ok()).unwrap_or(0);
    let mut failures = Vec::new();
    for seed in first..first + seeds(SEEDS) {
        if let Err(text) = History::new(seed, Plant::None).run(STEPS) {
            failures.push(format!("UMBEL_OBJECT_BACKUP_SEED={seed}: {text:.600}"));
        }
    }
    assert!(
        failures.is_empty(),
        "{} seeds: {:#?}",
        failures.len(),
        &failures[..failures.len().min(8)]
    );
}

#[test]
fn object_backup_campaign_finds_planted_faults() {
    let plants = [
        Plant::SkipPut,
        Plant::AcceptExists,
        Plant::NoSlack,
        Plant::ForgetFloors,
        Plant::OldPieces,
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
