//! Rate limits of transfers: the limit of the caller, and the limit beside busy writers.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use umbel_backup::{ObjectRequests, WriteTotals, WriterLoad};
use umbel_env::{Env, ObjectName, ObjectResult, ObjectSource, Objects};
use umbel_events::{
    ObjectBackupErrorKind, ObjectBackupOptions, ObjectRequestOptions, ScavengeOptions, Store,
    StoreOptions,
};
use umbel_sim::ObjectSim;

use super::object_backups::{Fixture, backup_options, options_in, plain};
use super::support::{append, append_large};

#[test]
fn transfers_keep_their_rate_limit() {
    let fixture = Fixture::new(16);
    (0..60).for_each(|number| append_large(&fixture.store, "a", number, 6000));
    let requests = ObjectRequestOptions { bytes_per_second: Some(10_000), ..plain() };
    let options = ObjectBackupOptions { requests, ..backup_options() };
    let backup = fixture.store.object_backup(fixture.client(), options).expect("opened");
    let started = fixture.env.clock.now();
    let report = backup.run_once().expect("backed up");
    let elapsed = fixture.env.clock.now() - started;
    let least = report.uploaded_bytes as f64 / 10_000.0 * 0.9;
    assert!(elapsed.as_secs_f64() >= least, "{elapsed:?} for {} bytes", report.uploaded_bytes);
}

/// Sends an object in parts of 4 KiB, and notes when it has each of them.
struct SlicingObjects {
    inner: Arc<dyn Objects>,
    env: Env,
    /// Called after each part, with the number of the parts before.
    on_part: Box<dyn Fn(usize) + Send + Sync>,
    parts: Mutex<Vec<Duration>>,
}

impl SlicingObjects {
    fn new(fixture: &Fixture, on_part: impl Fn(usize) + Send + Sync + 'static) -> Arc<Self> {
        let (inner, env) = (fixture.client(), fixture.env.clone());
        let on_part = Box::new(on_part);
        Arc::new(SlicingObjects { inner, env, on_part, parts: Mutex::default() })
    }

    /// Times of the parts so far.
    fn take_parts(&self) -> Vec<Duration> {
        std::mem::take(&mut *self.parts.lock().expect("no panic"))
    }
}

impl fmt::Debug for SlicingObjects {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("SlicingObjects").finish_non_exhaustive()
    }
}

impl Objects for SlicingObjects {
    umbel_env::delegate_object_calls!(inner: location create create_concurrently read list delete);

    fn put(&self, name: &ObjectName, source: &dyn ObjectSource) -> ObjectResult<()> {
        let mut bytes = vec![0; usize::try_from(source.byte_count()).expect("few bytes")];
        for (number, part) in bytes.chunks_mut(4096).enumerate() {
            source.read(part, number as u64 * 4096)?;
            let before = self.parts.lock().expect("no panic").len();
            (self.on_part)(before);
            self.parts.lock().expect("no panic").push(self.env.clock.now());
        }
        self.inner.put(name, &bytes)
    }
}

/// A whole object was sent in one burst, after a wait for all its bytes that no cancellation ended.
#[test]
fn rate_limit_spreads_the_parts_of_an_object_and_can_be_cancelled() {
    let fixture = Fixture::new(20);
    (0..5).for_each(|number| append_large(&fixture.store, "a", number, 8000));
    let objects = SlicingObjects::new(&fixture, |_| {});
    let cancel = Arc::new(AtomicBool::new(false));
    let (bytes_per_second, cancel_flag) = (Some(4096), Some(Arc::clone(&cancel)));
    let requests = ObjectRequestOptions { bytes_per_second, cancel: cancel_flag, ..plain() };
    let options = ObjectBackupOptions { requests, ..backup_options() };
    let client = Arc::clone(&objects) as Arc<dyn Objects>;
    let backup = fixture.store.object_backup(client, options).expect("opened");
    backup.run_once().expect("backed up");
    let parts = objects.take_parts();
    assert!(parts.len() >= 10, "{parts:?}");
    for pair in parts.windows(2) {
        let distance = (pair[1] - pair[0]).as_secs_f64();
        assert!((0.1..=1.1).contains(&distance), "{distance} s in {parts:?}");
    }
    append_large(&fixture.store, "a", 9, 60_000);
    let (env, other) = (fixture.env.clone(), Arc::clone(&cancel));
    let began = env.clock.now();
    other.store(true, Ordering::Relaxed);
    let error = backup.run_once().expect_err("cancelled");
    assert_eq!(error.kind(), ObjectBackupErrorKind::Cancelled, "{error}");
    assert!((env.clock.now() - began).as_secs_f64() < 1.0);
}

/// Appends 250 events beside the first part of a backup, and one beside each later part.
fn append_beside(store: &Store, parts_before: usize) {
    let events = if parts_before == 0 { 250 } else { 1 };
    let first = 100_000 + parts_before as u64 * 1000;
    append(store, "beside", first..first + events);
}

/// Story: appends beside the first backup into a bucket were 0.7 times as fast as alone.
#[test]
fn backup_gives_way_to_many_appends_only() {
    for is_busy in [true, false] {
        let fixture = Fixture::new(21);
        // One object has all parts, so that requests take no time between them.
        let options = StoreOptions { chunk_bytes: 1 << 20, ..options_in(&fixture.env) };
        let store = Store::open("/one-chunk", options).expect("a new store");
        (0..60).for_each(|number| append_large(&store, "a", number, 6000));
        let (env, beside) = (fixture.env.clone(), store.clone());
        let objects = SlicingObjects::new(&fixture, move |before| {
            if is_busy {
                append_beside(&beside, before);
            }
            if before == 0 {
                env.threads.pause(Duration::from_millis(300));
            }
        });
        let client = Arc::clone(&objects) as Arc<dyn Objects>;
        let backup = store.object_backup(client, backup_options()).expect("opened");
        backup.run_once().expect("backed up");
        let parts = objects.take_parts();
        assert!(parts.len() >= 80, "{}", parts.len());
        // 4 MiB a second are 4 KiB in 0.98 ms. The second part ends the sample of the writers.
        let between = |from: usize, to: usize| (parts[to] - parts[from]).as_secs_f64();
        let millis = between(2, 80) * 1000.0 / 78.0;
        match is_busy {
            true => assert!((0.9..=1.1).contains(&millis), "{millis} ms for each part"),
            false => assert!(millis < 0.1, "{millis} ms for each part"),
        }
    }
}

/// Writers of 1,000 events per second, until a moment of the monotonic clock.
#[derive(Debug)]
struct BusyWriters {
    env: Env,
    until: Duration,
}

impl WriterLoad for BusyWriters {
    fn totals(&self) -> WriteTotals {
        let busy = self.env.clock.now().min(self.until);
        WriteTotals { writes: u64::try_from(busy.as_millis()).expect("a short time"), bytes: 0 }
    }
}

/// Requests that gave way to busy writers once, and that are made again 10 s later.
fn requests_beside_writers(objects: &ObjectSim, busy_for: Duration) -> ObjectRequests {
    let env = objects.env();
    let requests = ObjectRequests::new(&env, objects.client(1), plain());
    let until = env.clock.now() + busy_for;
    requests.give_way_to(Arc::new(BusyWriters { env: env.clone(), until }));
    assert!(upload_seconds(&requests, "first", 1) < 0.1);
    env.threads.pause(Duration::from_secs(10));
    requests
}

/// Uploads an object, and returns the seconds that it took. A request takes at most 0.05 s.
fn upload_seconds(requests: &ObjectRequests, name: &str, bytes: usize) -> f64 {
    let name = ObjectName::new(name).expect("a name");
    let began = requests.env.clock.now();
    requests.put(&name, &vec![7_u8; bytes]).expect("uploaded");
    (requests.env.clock.now() - began).as_secs_f64()
}

/// Story: runs of a continuous backup are 10 s apart, and each began without a limit. A run uploads
/// few bytes, so most had no limit at all.
#[test]
fn upload_after_a_pause_is_limited_beside_steady_writers() {
    let objects = ObjectSim::new(30);
    let requests = requests_beside_writers(&objects, Duration::from_secs(3600));
    // 4 MiB per second for the only processor.
    let seconds = upload_seconds(&requests, "second", 8 << 20);
    assert!((2.0..2.1).contains(&seconds), "{seconds} s");
}

#[test]
fn wait_for_the_limit_ends_a_second_after_the_last_writes() {
    let objects = ObjectSim::new(31);
    let requests = requests_beside_writers(&objects, Duration::from_secs(10));
    let seconds = upload_seconds(&requests, "second", 8 << 20);
    assert!((1.0..1.1).contains(&seconds), "{seconds} s");
    // No wait is left for the next upload.
    let seconds = upload_seconds(&requests, "third", 8 << 20);
    assert!(seconds < 0.1, "{seconds} s");
}

/// Story: the gap between positions that a redaction or a scavenge leaves counted as written bytes,
/// and a backup on an idle machine had a limit.
#[test]
fn gap_between_positions_is_no_work_of_writers() {
    let fixture = Fixture::new(33);
    let options = StoreOptions { chunk_bytes: 32 << 20, ..options_in(&fixture.env) };
    let store = Store::open("/large-chunks", options).expect("a new store");
    append_large(&store, "a", 0, 100);
    let backup = store.object_backup(fixture.client(), backup_options()).expect("opened");
    backup.run_once().expect("backed up");
    let before = store.visible_position();
    // Chunks of 4, 8 and 16 MiB end with one event.
    for number in 1..4 {
        let options = ScavengeOptions { removes_all: true, ..ScavengeOptions::default() };
        store.scavenge(&options).expect("scavenged");
        append_large(&store, "a", number, 100);
    }
    (4..12).for_each(|number| append_large(&store, "a", number, 1 << 20));
    let distance = store.visible_position().0 - before.0;
    assert!(distance > 30 << 20, "{distance}");
    // Twice the distance is above 4 MiB a second, and twice the written bytes are below.
    fixture.env.threads.pause(Duration::from_secs(13));
    let began = fixture.env.clock.now();
    let report = backup.run_once().expect("backed up");
    assert!(report.uploaded_bytes > 8 << 20, "{report:?}");
    let seconds = (fixture.env.clock.now() - began).as_secs_f64();
    assert!(seconds < 0.7, "{seconds} s");
}

/// Every read passes the same function, those of a restore and of a search for lost objects too.
#[test]
fn reads_beside_busy_writers_have_no_limit() {
    let objects = ObjectSim::new(32);
    let requests = requests_beside_writers(&objects, Duration::from_secs(3600));
    assert!(upload_seconds(&requests, "second", 8 << 20) >= 2.0);
    let began = requests.env.clock.now();
    let name = ObjectName::new("second").expect("a name");
    let read = requests.read_whole(&name, 8 << 20).expect("readable").expect("uploaded");
    let seconds = (requests.env.clock.now() - began).as_secs_f64();
    assert_eq!(read.len(), 8 << 20);
    assert!(seconds < 1.0, "{seconds} s");
}
