//! Continuous backups into an object store that works, fails, hangs, or belongs to others.

use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use umbel::{Db, Options};
use umbel_backup::server_kv_objects;
use umbel_env::{
    Access, Answer, Creation, CreationRequest, Env, ListPage, ObjectBytes, ObjectError,
    ObjectErrorKind, ObjectName, ObjectResult, ObjectSource, Objects,
};
use umbel_events::{
    Direction, EventId, ExpectedVersion, NewEvent, ObjectBackupError, ObjectBackupOptions,
    ObjectRequestOptions, Position, RestoreTo, Store, StoreOptions, restore_from_objects,
};
use umbel_server::{Config, KvConfig, ObjectBackupConfig, Running, Server, StartError};
use umbel_sim::{ObjectDamage, ObjectSim};

use super::access_log::{lines_with, listen};
use super::monitoring::{http_request, http_request_to, metric};

/// Time limit of a wait; a longer wait counts as hanging.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);
/// Interval of the backups.
const INTERVAL: Duration = Duration::from_millis(20);

/// Verb of a list of chunks.
const LIST_OF_PIECES: &str = "list chunks";

/// Message at the end of a server whose backup lacks events.
const LACKS_EVENTS: &str =
    "the backup lacks the last events; the next start of the server continues it";

/// Behavior of an object store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Behavior {
    Serves,
    Fails(ObjectErrorKind),
    Hangs,
    /// Lists of pieces hang, which only a retention needs.
    HangsRetention,
}

/// An object store with a behavior.
#[derive(Debug)]
struct TestObjects {
    location: &'static str,
    inner: Arc<dyn Objects>,
    behavior: Mutex<Behavior>,
    changed: Condvar,
    requests: AtomicU64,
    /// Lists of manifests, of which each retention needs some.
    lists_of_manifests: AtomicU64,
}

impl TestObjects {
    fn set(&self, behavior: Behavior) {
        *self.behavior.lock().unwrap() = behavior;
        self.changed.notify_all();
    }

    fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    fn lists_of_manifests(&self) -> u64 {
        self.lists_of_manifests.load(Ordering::Relaxed)
    }

    fn request(&self, verb: &'static str) -> Result<(), ObjectError> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let behavior = self.behavior.lock().unwrap();
        let hangs = |behavior: &mut Behavior| match behavior {
            Behavior::HangsRetention => verb == LIST_OF_PIECES,
            behavior => *behavior == Behavior::Hangs,
        };
        let waited = self.changed.wait_while(behavior, hangs);
        match *waited.unwrap() {
            Behavior::Fails(kind) => Err(ObjectError::new(kind, verb, "test://", "it fails")),
            _ => Ok(()),
        }
    }
}

impl Objects for TestObjects {
    fn location(&self) -> &str {
        self.location
    }

    fn create(&self, name: &ObjectName, bytes: &[u8]) -> ObjectResult<Creation> {
        match self.request("create") {
            Ok(()) => self.inner.create(name, bytes),
            // A request without an answer may have taken effect.
            Err(error) if error.is_temporary() => {
                Ok(Answer { value: Creation::Unknown(error), store_micros: None })
            }
            Err(error) => Err(error),
        }
    }

    fn create_concurrently(&self, requests: &[CreationRequest]) -> Vec<ObjectResult<Creation>> {
        requests.iter().map(|request| self.create(&request.name, &request.bytes)).collect()
    }

    fn put(&self, name: &ObjectName, source: &dyn ObjectSource) -> ObjectResult<()> {
        self.request("write")?;
        self.inner.put(name, source)
    }

    fn read(&self, name: &ObjectName, range: Range<u64>) -> ObjectResult<Option<ObjectBytes>> {
        self.request("read")?;
        self.inner.read(name, range)
    }

    fn list(&self, prefix: &str, after: Option<&str>, count: usize) -> ObjectResult<ListPage> {
        self.request(if prefix == "chunks/" { LIST_OF_PIECES } else { "list" })?;
        if prefix == "manifests/" {
            self.lists_of_manifests.fetch_add(1, Ordering::Relaxed);
        }
        self.inner.list(prefix, after, count)
    }

    fn delete(&self, name: &ObjectName) -> ObjectResult<()> {
        self.request("delete")?;
        self.inner.delete(name)
    }
}

/// Stores, an object store, and a server that backs up the ones into the other.
struct Fixture {
    _directory: TempDir,
    env: Env,
    store: Store,
    /// The key-value store, if the server has one.
    kv: Option<Db>,
    sim: ObjectSim,
    objects: Arc<TestObjects>,
    running: Option<Running>,
}

impl Drop for Fixture {
    fn drop(&mut self) {
        // A thread that hangs would never end.
        self.objects.set(Behavior::Serves);
    }
}

impl Fixture {
    fn new() -> Fixture {
        Fixture::at("test://bucket")
    }

    /// A fixture whose object store has this location, by which its log lines are found.
    fn at(location: &'static str) -> Fixture {
        listen();
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path().join("events"), StoreOptions::default()).unwrap();
        let sim = ObjectSim::new(7);
        let objects = Arc::new(TestObjects {
            location,
            inner: sim.client(1),
            behavior: Mutex::new(Behavior::Serves),
            changed: Condvar::new(),
            requests: AtomicU64::new(0),
            lists_of_manifests: AtomicU64::new(0),
        });
        let env = Env::system();
        Fixture { _directory: directory, env, store, kv: None, sim, objects, running: None }
    }

    /// A fixture with a key-value store of this number of keys.
    fn with_kv(keys: u64) -> Fixture {
        let mut fixture = Fixture::new();
        let directory = fixture._directory.path().join("events/kv");
        let db = Db::open(directory, Options::default()).unwrap();
        let keyspace = db.keyspace("default", None).unwrap();
        for key in 0..keys {
            keyspace.put(key.to_be_bytes(), b"value").unwrap();
        }
        fixture.kv = Some(db);
        fixture
    }

    fn config(&self) -> ObjectBackupConfig {
        let config = ObjectBackupConfig::new(Arc::clone(&self.objects) as Arc<dyn Objects>);
        let requests = ObjectRequestOptions { retry_for: Duration::ZERO, ..config.requests };
        ObjectBackupConfig { interval: INTERVAL, requests, ..config }
    }

    fn try_start(&self, backup: ObjectBackupConfig) -> Result<Running, StartError> {
        let listen = "127.0.0.1:0".parse().unwrap();
        let kv = self.kv.clone().map(KvConfig::new);
        let config = Config { listen, object_backup: Some(backup), kv, ..Config::default() };
        Server::start(self.store.clone(), config)
    }

    fn start(&mut self) {
        self.running = Some(self.try_start(self.config()).unwrap());
    }

    fn stop(&mut self) -> Duration {
        let started = self.env.clock.now();
        self.running.take().unwrap().shutdown();
        self.env.clock.now() - started
    }

    /// Returns the newest log line with this message about the backup.
    fn logged(&self, message: &str) -> Value {
        let mut lines = lines_with(self.objects.location);
        lines.retain(|line| line["to"] == self.objects.location && line["message"] == message);
        lines.pop().unwrap_or_else(|| panic!("no line: {message}"))
    }

    /// Appends an event. Returns the time that it took.
    fn append(&self, number: u64) -> Duration {
        let started = self.env.clock.now();
        append(&self.store, number);
        self.env.clock.now() - started
    }

    /// The backups on the page `/stats`: that of the events, and that of keys and values.
    fn statuses(&self) -> (Value, Value) {
        let address = self.running.as_ref().unwrap().address();
        let (_, body) = http_request(address, "GET", "/stats");
        let mut stats = serde_json::from_str::<Value>(&body).unwrap();
        (stats["objectBackup"].take(), stats["kvObjectBackup"].take())
    }

    /// The backup of the events on the page `/stats`.
    fn status(&self) -> Value {
        self.statuses().0
    }

    fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        let address = self.running.as_ref().unwrap().address();
        let (_, text) = http_request(address, "GET", "/metrics");
        metric(&text, &format!("umbel_object_backup_{name}"), labels)
    }

    /// Waits until the backup of the events has a status.
    fn wait(&self, is_reached: impl Fn(&Value) -> bool) -> Value {
        self.wait_for(|fixture| fixture.status(), is_reached)
    }

    /// Waits until the backup of keys and values has a status.
    fn wait_kv(&self, is_reached: impl Fn(&Value) -> bool) -> Value {
        self.wait_for(|fixture| fixture.statuses().1, is_reached)
    }

    fn wait_for(
        &self,
        read: impl Fn(&Fixture) -> Value,
        is_reached: impl Fn(&Value) -> bool,
    ) -> Value {
        let (clock, pause) = (&self.env.clock, Duration::from_millis(5));
        let end = clock.now() + TEST_TIMEOUT;
        loop {
            let status = read(self);
            if is_reached(&status) {
                return status;
            }
            assert!(clock.now() < end, "not reached: {status}");
            self.env.threads.pause(pause);
        }
    }

    fn wait_for_all(&self) -> Value {
        self.wait(|status| status["lagBytes"] == 0 && status["state"] == "Running")
    }

    /// Waits for this number of further runs of either outcome.
    fn wait_for_runs(&self, runs: u64) {
        let count = |status: &Value| {
            status["successes"].as_u64().unwrap() + status["failures"].as_u64().unwrap()
        };
        let before = count(&self.status());
        self.wait(|status| count(status) >= before + runs);
    }

    /// Number of events in the backup, as a restore returns them.
    fn restored_events(&self) -> usize {
        let target = tempfile::tempdir().unwrap();
        let restored = target.path().join("restored");
        let options = ObjectRequestOptions::default();
        let (env, objects) = (Env::system(), self.sim.client(9));
        restore_from_objects(&env, objects, &restored, RestoreTo::Latest, options).unwrap();
        count_events(&restored)
    }
}

/// Number of keys in the backup, as a restore returns them.
fn restored_keys(objects: Arc<dyn Objects>) -> usize {
    let target = tempfile::tempdir().unwrap();
    let restored = target.path().join("restored");
    let (env, requests) = (Env::system(), ObjectRequestOptions::default());
    let to = umbel::RestoreTo::Latest;
    umbel::restore_from_objects(&env, objects, &restored, to, requests).unwrap();
    let db = Db::open(&restored, Options::default()).unwrap();
    let count = db.existing_keyspace("default").unwrap().unwrap().iter().count();
    db.close().unwrap();
    count
}

fn append(store: &Store, number: u64) {
    append_to(store, "cart", number);
}

fn append_to(store: &Store, stream: &str, number: u64) {
    let id = EventId::from_random(u128::from(number).to_le_bytes());
    let data = number.to_string();
    let event = NewEvent::json(id, "Counted", data.as_bytes());
    store.append(stream, ExpectedVersion::Any, &[event]).unwrap();
}

fn count_events(path: &Path) -> usize {
    let store = Store::open(path, StoreOptions::default()).unwrap();
    let events = store.read_all(Position::START, Direction::Forwards);
    let count = events.filter(|event| event.as_ref().unwrap().stream == "cart").count();
    store.close().unwrap();
    count
}

#[test]
fn appends_are_backed_up_and_an_idle_server_sends_no_request() {
    let mut fixture = Fixture::new();
    fixture.append(1);
    fixture.start();
    let status = fixture.wait_for_all();
    assert_eq!(status["position"], fixture.store.visible_position().0.to_string());
    assert_eq!(status["location"], "test://bucket");
    for number in 2..20 {
        fixture.append(number);
    }
    fixture.wait_for_all();
    append_to(&fixture.store, "other", 100);
    append_to(&fixture.store, "third", 101);
    // The last records of the log are those of no events.
    fixture.store.delete("other", ExpectedVersion::Any).unwrap();
    fixture.store.tombstone("third", ExpectedVersion::Any).unwrap();
    fixture.wait_for_all();
    fixture.wait_for_runs(2);
    fixture.wait(|status| status["lastSearch"].is_string());
    let requests = fixture.objects.requests();
    fixture.wait_for_runs(5);
    assert_eq!(fixture.objects.requests(), requests, "an idle server sends no request");
    assert_eq!(fixture.metric("lag_bytes", &[]), 0.0);
    assert_eq!(fixture.metric("lag_seconds", &[]), 0.0);
    assert_eq!(fixture.metric("stopped", &[]), 0.0);
    assert!(fixture.metric("runs_total", &["Success"]) >= 7.0);
    assert_eq!(fixture.metric("runs_total", &["Errored"]), 0.0);
    assert!(fixture.metric("uploaded_bytes_total", &[]) > 500.0);
    assert!(fixture.metric("requests_total", &["verb=\"create\""]) >= 3.0);
    let last = fixture.metric("last_success_timestamp_seconds", &[]);
    let now = fixture.env.clock.wall_micros() as f64 / 1e6;
    assert!((now - 60.0..=now).contains(&last), "{last} is not shortly before {now}");
    assert_eq!(fixture.restored_events(), 19);
    let address = fixture.running.as_ref().unwrap().address();
    let console = http_request_to("127.0.0.1", address, "GET", "/console/api/overview").1;
    assert!(console.contains("\"objectBackup\":{"), "{console}");
}

/// The interval is longer than the test: only the last run has the last events.
#[test]
fn shutdown_backs_up_the_last_events() {
    let mut fixture = Fixture::new();
    fixture.append(1);
    let config = ObjectBackupConfig { interval: Duration::from_secs(3600), ..fixture.config() };
    fixture.running = Some(fixture.try_start(config).unwrap());
    fixture.wait_for_all();
    for number in 2..9 {
        fixture.append(number);
    }
    assert!(fixture.status()["lagBytes"].as_u64() > Some(0));
    let took = fixture.stop();
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert_eq!(fixture.restored_events(), 8);
    // Without new events, the next server finds that nothing is behind.
    let manifests = |fixture: &Fixture| {
        let listed = fixture.sim.client(5).list("manifests/", None, 100).unwrap();
        listed.value.objects.len()
    };
    let before = manifests(&fixture);
    fixture.start();
    fixture.wait_for_all();
    assert_eq!(manifests(&fixture), before, "a restart without new events writes no manifest");
}

/// The last line about a backup says whether a restore has everything.
#[test]
fn end_of_a_server_logs_what_its_backup_lacks() {
    let mut fixture = Fixture::at("test://ending");
    fixture.append(1);
    fixture.start();
    fixture.wait_for_all();
    fixture.stop();
    assert_eq!(fixture.logged("the backup has all events")["level"], "INFO");
    fixture.start();
    fixture.wait_for_all();
    fixture.objects.set(Behavior::Fails(ObjectErrorKind::Denied));
    fixture.append(2);
    fixture.wait(|status| status["state"] == "Failing");
    fixture.stop();
    let line = fixture.logged(LACKS_EVENTS);
    assert_eq!((&line["level"], &line["is_hanging"]), (&"WARN".into(), &false.into()), "{line}");
    assert!(line["lag"].as_u64() > Some(0), "{line}");
    assert!(line["reason"].as_str().is_some_and(|text| text.contains("it fails")), "{line}");
}

#[test]
fn unreachable_object_store_delays_neither_start_nor_appends() {
    let mut fixture = Fixture::new();
    fixture.objects.set(Behavior::Fails(ObjectErrorKind::Unavailable));
    fixture.append(1);
    fixture.start();
    let status = fixture.wait(|status| status["failures"].as_u64() > Some(2));
    assert_eq!((&status["state"], &status["lagBytes"]), (&"Failing".into(), &Value::Null));
    assert!(status["error"].as_str().unwrap().contains("it fails"), "{status}");
    assert_eq!(status["failuresInRow"], status["failures"]);
    assert!(fixture.metric("lag_seconds", &[]) > 0.0);
    fixture.objects.set(Behavior::Serves);
    let status = fixture.wait_for_all();
    assert_eq!((&status["failuresInRow"], &status["error"]), (&0.into(), &Value::Null));
    // An outage later on.
    fixture.objects.set(Behavior::Fails(ObjectErrorKind::Denied));
    fixture.append(2);
    let first = fixture.wait(|status| status["state"] == "Failing");
    let second =
        fixture.wait(|status| status["lagSeconds"].as_f64() > first["lagSeconds"].as_f64());
    assert!(second["lagBytes"].as_u64() > Some(0), "{second}");
    assert!(fixture.metric("runs_total", &["Errored"]) > 3.0);
    fixture.objects.set(Behavior::Serves);
    fixture.wait_for_all();
    assert_eq!(fixture.restored_events(), 2);
}

#[test]
fn hanging_object_store_delays_start_and_shutdown_by_seconds_only() {
    let mut fixture = Fixture::at("test://hanging");
    fixture.objects.set(Behavior::Hangs);
    let started = fixture.env.clock.now();
    fixture.start();
    let took = fixture.env.clock.now() - started;
    assert!(took < Duration::from_secs(10), "the start took {took:?}");
    for number in 1..50 {
        let took = fixture.append(number);
        assert!(took < Duration::from_secs(5), "an append took {took:?}");
    }
    assert_eq!(fixture.status()["state"], "Starting");
    let took = fixture.stop();
    assert!(took < Duration::from_secs(15), "the shutdown took {took:?}");
    let line = fixture.logged(LACKS_EVENTS);
    assert_eq!((&line["level"], &line["is_hanging"]), (&"WARN".into(), &true.into()), "{line}");
    assert_eq!(line["lag"], Value::Null, "unknown: {line}");
    // The next start continues, though the thread of the first server ends only now.
    fixture.objects.set(Behavior::Serves);
    fixture.start();
    fixture.wait_for_all();
    assert_eq!(fixture.restored_events(), 49);
}

#[test]
fn another_server_at_the_prefix_stops_the_backup_until_a_restart() {
    let mut fixture = Fixture::at("test://shared");
    fixture.append(1);
    fixture.start();
    fixture.wait_for_all();
    fixture.objects.set(Behavior::Hangs);
    fixture.append(2);
    let other = fixture.store.object_backup(fixture.sim.client(2), ObjectBackupOptions::default());
    other.unwrap().run_once().unwrap();
    fixture.objects.set(Behavior::Serves);
    let status = fixture.wait(|status| status["state"] == "Stopped");
    let reason = status["error"].as_str().unwrap();
    assert!(reason.contains("another server backs up to test://shared"), "{reason}");
    assert_eq!(fixture.metric("stopped", &[]), 1.0);
    let requests = fixture.objects.requests();
    fixture.append(3);
    fixture.env.threads.pause(INTERVAL * 5);
    assert_eq!(fixture.objects.requests(), requests, "a stopped backup sends no request");
    assert_eq!(fixture.status()["state"], "Stopped");
    fixture.stop();
    let line = fixture.logged("the backup has stopped, and lacks the last events");
    assert_eq!((&line["level"], &line["reason"]), (&"ERROR".into(), &reason.into()), "{line}");
    fixture.start();
    fixture.wait_for_all();
    assert_eq!(fixture.restored_events(), 3);
}

#[test]
fn prefixes_of_others_fail_the_start() {
    let fixture = Fixture::new();
    let name = ObjectName::new("holiday.jpg").unwrap();
    fixture.sim.client(3).create(&name, b"a picture").unwrap();
    let error = fixture.try_start(fixture.config()).expect_err("a foreign prefix").to_string();
    assert!(error.starts_with("the backup cannot begin: test://bucket"), "{error}");
    assert!(error.contains("holds holiday.jpg, but no backup; name an empty prefix"), "{error}");
    fixture.sim.client(3).delete(&name).unwrap();
    // The prefix gets the backup of another store.
    let other = Fixture::new();
    let options = ObjectBackupOptions::default();
    other.store.object_backup(fixture.sim.client(4), options).unwrap().run_once().unwrap();
    let error = fixture.try_start(fixture.config()).expect_err("another store").to_string();
    assert!(error.contains("holds the backup of another store"), "{error}");
    fixture.objects.set(Behavior::Fails(ObjectErrorKind::Refused));
    let error = fixture.try_start(fixture.config()).expect_err("no such bucket").to_string();
    assert!(error.contains("it fails"), "{error}");
    let check = |_: &Env, _: &dyn Objects| Err(ObjectBackupError::Refused("not suitable".into()));
    let config = ObjectBackupConfig { check, ..fixture.config() };
    let error = fixture.try_start(config).expect_err("unsuitable").to_string();
    assert!(error.contains("not suitable"), "{error}");
    // Credentials expire without a change by the operator, which must not prevent a restart.
    let denied = Fixture::new();
    denied.objects.set(Behavior::Fails(ObjectErrorKind::Denied));
    denied.try_start(denied.config()).unwrap().shutdown();
}

#[test]
fn retention_runs_once_an_hour_and_its_failure_is_shown() {
    let mut fixture = Fixture::new();
    fixture.append(1);
    let keep = Some(Duration::from_secs(3600));
    let config = ObjectBackupConfig { keep, ..fixture.config() };
    fixture.running = Some(fixture.try_start(config).unwrap());
    fixture.wait_for_all();
    let status = fixture.wait(|status| status["lastRetention"].is_string());
    let first = fixture.objects.lists_of_manifests();
    for number in 2..6 {
        fixture.append(number);
        fixture.wait_for_all();
        // A retention that a run starts has a thread of its own, and begins during the next runs.
        fixture.wait_for_runs(3);
    }
    let later = fixture.status();
    assert_eq!(later["lastRetention"], status["lastRetention"], "only after the first run");
    assert_eq!(later["retentionError"], Value::Null);
    assert_eq!(fixture.objects.lists_of_manifests(), first, "no later retention begins");
    let plain = Fixture::new();
    plain.append(1);
    let client = Arc::clone(&plain.objects) as Arc<dyn Objects>;
    let backup = plain.store.object_backup(client, ObjectBackupOptions::default()).unwrap();
    backup.run_once().unwrap();
    backup.find_lost().unwrap();
    assert!(first > plain.objects.lists_of_manifests(), "a retention lists the manifests");
}

/// A rule of the bucket, or an operator, deleted objects of the newest state. The server went on,
/// and no later state could be restored.
#[test]
fn deleted_objects_are_noticed_and_uploaded_again() {
    let mut fixture = Fixture::with_kv(3);
    fixture.append(1);
    fixture.start();
    fixture.wait_for_all();
    fixture.wait_kv(|status| status["lagWrites"] == 0);
    fixture.stop();
    let lost = |prefix: &str| {
        let objects = fixture.sim.objects();
        let name = objects.keys().find(|name| name.starts_with(prefix)).unwrap().clone();
        assert!(fixture.sim.damage(&name, ObjectDamage::Missing, 0));
    };
    lost("tails/");
    lost("kv/tables/");
    fixture.start();
    let status = fixture.wait(|status| status["lostObjects"] == 1);
    assert_eq!(status["searchError"], Value::Null);
    fixture.wait_kv(|status| status["lostObjects"] == 1);
    assert_eq!(fixture.metric("lost_objects_total", &["store=\"events\""]), 1.0);
    assert_eq!(fixture.metric("lost_objects_total", &["store=\"kv\""]), 1.0);
    fixture.wait_for_runs(2);
    fixture.stop();
    assert_eq!(fixture.restored_events(), 1);
    assert_eq!(restored_keys(server_kv_objects(fixture.sim.client(9))), 3);
}

/// The first retention of a backup of months listed and deleted for hours, and no run began until
/// it had ended.
#[test]
fn retention_delays_neither_runs_nor_the_shutdown() {
    let mut fixture = Fixture::new();
    fixture.objects.set(Behavior::HangsRetention);
    fixture.append(1);
    let keep = Some(Duration::from_secs(3600));
    let config = ObjectBackupConfig { keep, ..fixture.config() };
    fixture.running = Some(fixture.try_start(config).unwrap());
    fixture.wait_for_all();
    for number in 2..5 {
        fixture.append(number);
        fixture.wait_for_all();
        fixture.wait_for_runs(2);
    }
    let took = fixture.stop();
    assert!(took < Duration::from_secs(4), "{took:?}");
    assert_eq!(fixture.restored_events(), 4);
}

/// A server backs up its keys and values below the prefix of its events, whichever comes first.
/// Neither backup depends on the other one.
#[test]
fn keys_and_values_are_backed_up_below_the_events() {
    let mut fixture = Fixture::with_kv(20);
    fixture.append(1);
    fixture.start();
    let has_all = |status: &Value| status["lagWrites"] == 0 && status["state"] == "Running";
    let status = fixture.wait_kv(has_all);
    assert_eq!(status["location"], "test://bucket/kv");
    assert!(status["sequence"].as_str().unwrap().parse::<u64>().unwrap() >= 20, "{status}");
    assert!(status.get("lagBytes").is_none(), "{status}");
    fixture.wait_for_all();
    let kv_objects = || server_kv_objects(fixture.sim.client(9));
    assert_eq!((restored_keys(kv_objects()), fixture.restored_events()), (20, 1));
    let stores = ["store=\"events\"", "store=\"kv\""];
    for store in stores {
        assert_eq!(fixture.metric("lag_seconds", &[store]), 0.0);
        assert!(fixture.metric("uploaded_bytes_total", &[store]) > 100.0);
        assert!(fixture.metric("requests_total", &[store, "verb=\"create\""]) >= 2.0);
    }
    // Without writes, no run sends a request.
    fixture.wait_for_runs(3);
    let requests = fixture.objects.requests();
    fixture.wait_for_runs(5);
    assert_eq!(fixture.objects.requests(), requests, "an idle server sends no request");
    // An outage, and another server at the prefix of the keys and values only.
    let keyspace = fixture.kv.as_ref().unwrap().existing_keyspace("default").unwrap().unwrap();
    fixture.objects.set(Behavior::Fails(ObjectErrorKind::Unavailable));
    keyspace.put(b"later", b"value").unwrap();
    let status = fixture.wait_kv(|status| status["state"] == "Failing");
    assert_eq!(status["lagWrites"], 1, "{status}");
    let options = umbel::ObjectBackupOptions::default();
    let other = fixture.kv.as_ref().unwrap().object_backup(kv_objects(), options).unwrap();
    other.run_once().unwrap();
    fixture.objects.set(Behavior::Serves);
    let status = fixture.wait_kv(|status| status["state"] == "Stopped");
    assert!(status["error"].as_str().unwrap().contains("test://bucket/kv"), "{status}");
    assert_eq!(stores.map(|store| fixture.metric("stopped", &[store])), [0.0, 1.0]);
    fixture.append(2);
    fixture.wait_for_all();
    assert_eq!((restored_keys(kv_objects()), fixture.restored_events()), (21, 2));
    fixture.stop();
    fixture.start();
    fixture.wait_kv(has_all);
}

/// A run of the backup of keys and values that meets a damaged file counts as damage of that store.
#[test]
fn damage_met_by_the_backup_of_keys_and_values_is_counted() {
    let mut fixture = Fixture::with_kv(3);
    let db = fixture.kv.clone().unwrap();
    db.flush().unwrap();
    let files = &fixture.env.files;
    let names = files.read_dir(db.path()).unwrap().into_iter().map(|entry| entry.name);
    let table = names.filter(|name| name.ends_with(".table")).max().unwrap();
    let file = files.open(&db.path().join(table), Access::ReadWrite).unwrap();
    let (mut byte, at) = ([0], 30);
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 1], at).unwrap();
    fixture.start();
    fixture.wait_kv(|status| status["failures"].as_u64() >= Some(1));
    let address = fixture.running.as_ref().unwrap().address();
    let (_, text) = http_request(address, "GET", "/metrics");
    let damage = |label: &str| metric(&text, "umbel_damage_errors_total", &[label]);
    assert!(damage("store=\"kv\"") >= 1.0, "{text}");
    assert_eq!(damage("store=\"events\""), 0.0, "{text}");
}

/// Story: a store was set back to a snapshot of its disk. Its backup stopped, and the server said
/// at its end that the backup had all events: it had those of the other history.
#[test]
fn backup_of_another_history_counts_no_lag() {
    let mut fixture = Fixture::new();
    let events = fixture._directory.path().join("events");
    let snapshot = fixture._directory.path().join("snapshot");
    fixture.append(1);
    fixture.start();
    fixture.wait_for_all();
    fixture.stop();
    fixture.store.clone().close().unwrap();
    copy_directory(&events, &snapshot);
    fixture.store = Store::open(&events, StoreOptions::default()).unwrap();
    for number in 2..9 {
        fixture.append(number);
    }
    fixture.start();
    fixture.wait_for_all();
    fixture.stop();
    fixture.store.clone().close().unwrap();
    std::fs::remove_dir_all(&events).unwrap();
    std::fs::rename(&snapshot, &events).unwrap();
    fixture.store = Store::open(&events, StoreOptions::default()).unwrap();
    fixture.append(20);
    fixture.start();
    let status = fixture.wait(|status| status["state"] == "Stopped");
    assert_eq!((&status["lagBytes"], &status["position"]), (&Value::Null, &Value::Null));
    assert!(status["lagSeconds"].as_f64().unwrap() > 0.0, "{status}");
    assert!(fixture.metric("lag_seconds", &["store=\"events\""]) > 0.0);
    assert_eq!(fixture.restored_events(), 8, "the other history");
}

fn copy_directory(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy_directory(&entry.path(), &target),
            false => drop(std::fs::copy(entry.path(), target).unwrap()),
        }
    }
}

/// Story: a server whose events were refused had begun its backup of keys and values below the
/// prefix. The owner of the prefix could restore nothing with one command any more.
#[test]
fn refused_server_writes_nothing_below_the_prefix() {
    let mut owner = Fixture::new();
    owner.append(1);
    owner.start();
    owner.wait_for_all();
    owner.stop();
    let other = Fixture::with_kv(5);
    let before = owner.sim.objects();
    for _ in 0..5 {
        let config = ObjectBackupConfig { objects: owner.sim.client(5), ..other.config() };
        let error = other.try_start(config).expect_err("another store").to_string();
        assert!(error.contains("holds the backup of another store"), "{error}");
    }
    assert!(owner.sim.objects() == before, "{:?}", owner.sim.objects().keys());
}

/// The backup of keys and values can begin first: its objects are not foreign to the events.
#[test]
fn foreign_objects_below_kv_stop_the_start() {
    let mut fixture = Fixture::with_kv(1);
    let options = umbel::ObjectBackupOptions::default();
    let objects = server_kv_objects(fixture.sim.client(3));
    fixture.kv.as_ref().unwrap().object_backup(objects, options).unwrap().run_once().unwrap();
    fixture.start();
    fixture.wait_for_all();
    fixture.stop();
    let foreign = Fixture::with_kv(1);
    let name = ObjectName::new("kv/holiday.jpg").unwrap();
    foreign.sim.client(3).create(&name, b"a picture").unwrap();
    let error = foreign.try_start(foreign.config()).expect_err("a foreign prefix").to_string();
    assert!(error.contains("test://bucket/kv holds holiday.jpg"), "{error}");
}
