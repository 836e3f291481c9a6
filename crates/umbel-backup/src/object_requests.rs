//! [`ObjectRequests`]: requests to an object store, repeated with back-off and counted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use umbel_base::ignore_poison::IgnorePoison;
use umbel_env::{
    Answer, Creation, Env, ListedObject, ObjectBytes, ObjectError, ObjectErrorKind, ObjectName,
    ObjectSource, Objects,
};

use crate::backup_error::{BackupError, BackupResult};
use crate::manifest::MANIFEST_BYTES_MAX;
use crate::writer_load::{AdaptiveLimit, WriterLoad};

/// First pause before a repetition.
const BACKOFF_MIN: Duration = Duration::from_millis(100);
/// Longest pause before a repetition.
const BACKOFF_MAX: Duration = Duration::from_secs(10);
/// Most objects of one page of a list. A bucket has pages of 1,000, whatever the caller wants. A
/// directory reads all its entries for each page, so there the first page must have all objects.
const PAGE_OBJECTS: usize = 1 << 24;
/// Longest pause for the rate limit without a check for a cancellation.
const RATE_PAUSE_MAX: Duration = Duration::from_millis(250);
/// Longest time before a transfer that counts for its rate: work between two transfers must not
/// lower the rate, and an idle time must not allow a burst.
const RATE_CREDIT_MAX: Duration = Duration::from_secs(1);
/// Bytes of one read.
const READ_BYTES: u64 = 1 << 20;

/// Options of requests to an object store.
#[derive(Debug, Clone)]
pub struct ObjectRequestOptions {
    /// Time for which a request is repeated after its first temporary failure.
    pub retry_for: Duration,
    /// Flag that ends the call with [`BackupError::Cancelled`] before its next request.
    pub cancel: Option<Arc<AtomicBool>>,
    /// Number of requests that transfer objects at the same time. Each needs up to 20 MiB.
    pub parallel_requests: usize,
    /// Maximum bytes per second that are transferred. With `None`, only uploads beside busy writers
    /// have a limit. Writers are busy if 200 or more events per second are appended to the event
    /// store, or 2 MiB per second for each processor. The limit is 4 MiB per second for each
    /// processor, or twice the appended bytes if they are more. It ends after a second without busy
    /// writers.
    pub bytes_per_second: Option<u64>,
}

impl Default for ObjectRequestOptions {
    fn default() -> ObjectRequestOptions {
        ObjectRequestOptions {
            retry_for: Duration::from_secs(60),
            cancel: None,
            parallel_requests: 4,
            bytes_per_second: None,
        }
    }
}

/// Outcome of a creation after all doubts are settled.
#[derive(Debug)]
pub enum SettledCreation {
    /// The object has the caller's bytes.
    Mine,
    /// The object has these other bytes.
    Other(Vec<u8>),
}

/// Failed attempts of one request.
#[derive(Debug, Default)]
struct Failures {
    /// End of the first one by the monotonic clock. A transfer can take longer than the time for
    /// repetitions.
    first: Option<Duration>,
    count: u32,
}

/// Writers to which uploads without a limit of their own give way.
#[derive(Debug)]
struct Writers {
    load: Arc<dyn WriterLoad>,
    limit: Mutex<AdaptiveLimit>,
}

/// The bytes of an object, read no faster than the rate limit allows. A store reads a large object
/// in parts, so that no burst of a whole object follows a wait.
struct LimitedSource<'a> {
    requests: &'a ObjectRequests,
    inner: &'a dyn ObjectSource,
}

impl ObjectSource for LimitedSource<'_> {
    fn byte_count(&self) -> u64 {
        self.inner.byte_count()
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> Result<(), ObjectError> {
        self.requests.record_bytes(buffer.len() as u64, |now| self.requests.upload_limit(now));
        if self.requests.check_cancelled().is_err() {
            let location = self.requests.objects.location();
            let cause = BackupError::Cancelled.to_string();
            return Err(ObjectError::new(ObjectErrorKind::Unavailable, "write", location, cause));
        }
        self.inner.read(buffer, offset)
    }
}

/// Requests to one object store.
#[derive(Debug)]
pub struct ObjectRequests {
    /// The object store.
    pub objects: Arc<dyn Objects>,
    /// Clock, threads and entropy.
    pub env: Env,
    /// Options of the requests.
    pub options: ObjectRequestOptions,
    counts: Mutex<BTreeMap<&'static str, u64>>,
    /// Monotonic time at which the next transfer can begin within the rate limit.
    free_at: Mutex<Option<Duration>>,
    writers: OnceLock<Writers>,
    /// Newest time that the store stated, in microseconds.
    store_micros: Mutex<Option<u64>>,
}

impl ObjectRequests {
    /// Creates the handle for an object store.
    pub fn new(
        env: &Env,
        objects: Arc<dyn Objects>,
        options: ObjectRequestOptions,
    ) -> ObjectRequests {
        ObjectRequests {
            objects,
            env: env.clone(),
            options,
            counts: Mutex::default(),
            free_at: Mutex::default(),
            writers: OnceLock::new(),
            store_micros: Mutex::default(),
        }
    }

    /// Number of requests by verb.
    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.counts.lock().ignore_poison().clone()
    }

    /// The newest time that the store stated, in microseconds since 1970.
    pub fn store_micros(&self) -> Option<u64> {
        *self.store_micros.lock().ignore_poison()
    }

    /// Location of an object for messages.
    pub fn shown(&self, name: &ObjectName) -> String {
        format!("{}/{name}", self.objects.location())
    }

    /// Returns the error for an object with wrong bytes.
    pub fn damaged(&self, name: &ObjectName, cause: impl Into<String>) -> BackupError {
        let kind = ObjectErrorKind::Damaged;
        ObjectError::new(kind, "use", self.shown(name), cause.into()).into()
    }

    /// Returns an error if the caller cancelled the call.
    pub fn check_cancelled(&self) -> BackupResult<()> {
        let is_set = |flag: &Arc<AtomicBool>| flag.load(Ordering::Relaxed);
        match self.options.cancel.as_ref().is_some_and(is_set) {
            true => Err(BackupError::Cancelled),
            false => Ok(()),
        }
    }

    /// Makes uploads without a limit of their own give way to these writers while they are busy. A
    /// later call changes nothing.
    pub fn give_way_to(&self, load: Arc<dyn WriterLoad>) {
        let limit = AdaptiveLimit::new(self.env.threads.parallelism());
        self.writers.get_or_init(|| Writers { load, limit: Mutex::new(limit) });
    }

    /// Rate limit of uploads now.
    fn upload_limit(&self, now: Duration) -> Option<u64> {
        self.options.bytes_per_second.or_else(|| {
            let writers = self.writers.get()?;
            writers.limit.lock().ignore_poison().at(now, writers.load.totals())
        })
    }

    /// Records that bytes are transferred, and waits if the rate exceeds the limit. A cancellation
    /// ends the wait, and so does the end of the limit.
    fn record_bytes(&self, bytes: u64, limit: impl Fn(Duration) -> Option<u64>) {
        let now = self.env.clock.now();
        let Some(rate) = limit(now) else { return };
        let mut wait = {
            let mut free_at = self.free_at.lock().ignore_poison();
            let begin = free_at.unwrap_or(now).max(now.saturating_sub(RATE_CREDIT_MAX));
            let end = begin + Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64);
            free_at.insert(end).saturating_sub(now)
        };
        while !wait.is_zero() && self.check_cancelled().is_ok() {
            let pause = wait.min(RATE_PAUSE_MAX);
            self.env.threads.pause(pause);
            wait -= pause;
            if limit(self.env.clock.now()).is_none() {
                *self.free_at.lock().ignore_poison() = None;
                return;
            }
        }
    }

    fn count(&self, verb: &'static str) {
        *self.counts.lock().ignore_poison().entry(verb).or_default() += 1;
    }

    fn value<T>(&self, answer: Answer<T>) -> T {
        if let Some(time) = answer.store_micros {
            let mut newest = self.store_micros.lock().ignore_poison();
            *newest = (*newest).max(Some(time));
        }
        answer.value
    }

    /// Waits before a repetition. Returns `error` if the time for repetitions is over.
    fn back_off(&self, failures: &mut Failures, error: ObjectError) -> BackupResult<()> {
        let pause = BACKOFF_MIN.saturating_mul(1 << failures.count.min(10)).min(BACKOFF_MAX);
        let now = self.env.clock.now();
        let elapsed = now.saturating_sub(*failures.first.get_or_insert(now));
        if !error.is_temporary() || elapsed + pause > self.options.retry_for {
            return Err(error.into());
        }
        failures.count += 1;
        self.env.threads.pause(pause);
        Ok(())
    }

    fn repeat<T>(
        &self,
        verb: &'static str,
        mut call: impl FnMut() -> Result<Answer<T>, ObjectError>,
    ) -> BackupResult<T> {
        let mut failures = Failures::default();
        loop {
            self.check_cancelled()?;
            self.count(verb);
            match call() {
                Ok(answer) => return Ok(self.value(answer)),
                Err(error) => {
                    self.check_cancelled()?;
                    self.back_off(&mut failures, error)?;
                }
            }
        }
    }

    /// Reads a range of an object; `None` if the object is missing.
    pub fn read(
        &self,
        name: &ObjectName,
        range: std::ops::Range<u64>,
    ) -> BackupResult<Option<ObjectBytes>> {
        let read = self.repeat("read", || self.objects.read(name, range.clone()))?;
        let bytes = read.as_ref().map_or(0, |read| read.bytes.len() as u64);
        self.record_bytes(bytes, |_| self.options.bytes_per_second);
        Ok(read)
    }

    /// Reads a whole object of at most `bytes_max` bytes; `None` if the object is missing.
    pub fn read_whole(&self, name: &ObjectName, bytes_max: u64) -> BackupResult<Option<Vec<u8>>> {
        let mut bytes = Vec::new();
        loop {
            let from = bytes.len() as u64;
            let Some(part) = self.read(name, from..from + READ_BYTES)? else { return Ok(None) };
            if part.object_bytes > bytes_max {
                return Err(self.damaged(name, format!("it has more than {bytes_max} bytes")));
            }
            bytes.extend_from_slice(&part.bytes);
            if part.bytes.is_empty() || bytes.len() as u64 >= part.object_bytes {
                return Ok(Some(bytes));
            }
        }
    }

    /// Returns all objects whose names begin with `prefix`, by name.
    pub fn list(&self, prefix: &str) -> BackupResult<Vec<ListedObject>> {
        let (mut listed, mut after) = (Vec::new(), None::<String>);
        loop {
            let list = || self.objects.list(prefix, after.as_deref(), PAGE_OBJECTS);
            let page = self.repeat("list", list)?;
            listed.extend(page.objects);
            match page.next_after {
                None => return Ok(listed),
                Some(next) if after.as_ref().is_none_or(|last| *last < next) => after = Some(next),
                // A store that repeats a page would never end.
                Some(next) => {
                    let object = format!("{}/{prefix}", self.objects.location());
                    let cause = format!("a page of the list begins again at {next}");
                    let kind = ObjectErrorKind::Damaged;
                    return Err(ObjectError::new(kind, "list", object, cause).into());
                }
            }
        }
    }

    /// Writes an object under a name that no other attempt uses.
    pub fn put(&self, name: &ObjectName, source: &dyn ObjectSource) -> BackupResult<()> {
        let source = LimitedSource { requests: self, inner: source };
        self.repeat("write", || self.objects.put(name, &source))
    }

    /// Deletes an object.
    pub fn delete(&self, name: &ObjectName) -> BackupResult<()> {
        self.repeat("delete", || self.objects.delete(name))
    }

    /// Creates an object, and repeats the creation with the same bytes until its outcome is
    /// certain.
    ///
    /// # Errors
    /// After a temporary error, the object can exist with these bytes, now or at any later time.
    pub fn create(&self, name: &ObjectName, bytes: &[u8]) -> BackupResult<SettledCreation> {
        let mut failures = Failures::default();
        loop {
            self.check_cancelled()?;
            self.count("create");
            let error = match self.objects.create(name, bytes) {
                Err(error) => error,
                Ok(answer) => match self.value(answer) {
                    Creation::Created => return Ok(SettledCreation::Mine),
                    Creation::Exists => {
                        let cause = "the store reports that the object exists, but has no object";
                        let kind = ObjectErrorKind::Unavailable;
                        match self.read_whole(name, MANIFEST_BYTES_MAX)? {
                            Some(found) => return Ok(settled(found, bytes)),
                            None => ObjectError::new(kind, "create", self.shown(name), cause),
                        }
                    }
                    Creation::Unknown(error) => match self.read_whole(name, MANIFEST_BYTES_MAX)? {
                        Some(found) => return Ok(settled(found, bytes)),
                        None => ObjectError { kind: ObjectErrorKind::Unavailable, ..error },
                    },
                },
            };
            self.back_off(&mut failures, error)?;
        }
    }
}

/// Compares all bytes: an earlier delivery of the same request can have created the object.
fn settled(found: Vec<u8>, bytes: &[u8]) -> SettledCreation {
    match found == bytes {
        true => SettledCreation::Mine,
        false => SettledCreation::Other(found),
    }
}
