//! [`DeadlineObjects`]: an object store whose requests end after a time (C1).
//!
//! A request that takes longer goes on in its own thread, and its outcome is unknown to the caller.
//! So a leader notices in time that it must stop, whatever a connection does.

use std::ops::Range;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use umbel_base::ignore_poison::IgnorePoison;
use umbel_env::{
    Answer, Creation, JobThread, ListPage, ObjectBytes, ObjectError, ObjectErrorKind, ObjectName,
    ObjectResult, Objects, Threads,
};

/// An object store whose requests end after a time. One caller uses it. Writes of long objects and
/// creations at the same time, which no leader sends, have no limit.
///
/// The limit doubles after each request that exceeded it, up to a maximum, so that a slow store
/// completes requests at last. It is the first one again after an answer in that time. Each kind of
/// request has its own limit: short reads between two creations say nothing about a long slot.
#[derive(Debug)]
pub struct DeadlineObjects {
    inner: Arc<dyn Objects>,
    threads: Arc<dyn Threads>,
    first_limit: Duration,
    limit_max: Duration,
    state: Mutex<DeadlineState>,
}

/// Kind of a request, as the index of its limit.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Creation,
    Read,
    /// A list or a deletion.
    Other,
}

#[derive(Debug)]
struct DeadlineState {
    /// Limits by kind.
    limits: [Duration; 3],
    /// The thread of the requests. One that exceeded its limit keeps its thread.
    thread: JobThread,
}

fn new_thread() -> JobThread {
    JobThread::new("umbel-slot-request")
}

impl DeadlineObjects {
    /// Returns the store with these limits.
    pub fn new(
        inner: Arc<dyn Objects>,
        threads: Arc<dyn Threads>,
        (first_limit, limit_max): (Duration, Duration),
    ) -> DeadlineObjects {
        let state = DeadlineState { limits: [first_limit; 3], thread: new_thread() };
        let state = Mutex::new(state);
        DeadlineObjects { inner, threads, first_limit, limit_max, state }
    }

    /// The limit of the next creation.
    pub fn creation_limit(&self) -> Duration {
        self.state.lock().ignore_poison().limits[Kind::Creation as usize]
    }

    /// Sends a request in the thread of the requests.
    ///
    /// # Errors
    /// The reason why there is no answer.
    fn call<T: Send + 'static>(
        &self,
        kind: Kind,
        request: impl FnOnce(&dyn Objects) -> T + Send + 'static,
    ) -> Result<T, String> {
        let (sender, receiver) = mpsc::channel();
        let inner = Arc::clone(&self.inner);
        let job = Box::new(move || {
            // The receiver may have given up.
            let _ = sender.send(request(&*inner));
        });
        let limit = {
            let state = self.state.lock().ignore_poison();
            state.thread.run(&*self.threads, job).map_err(|error| error.to_string())?;
            state.limits[kind as usize]
        };
        let answer = receiver.recv_timeout(limit);
        let mut state = self.state.lock().ignore_poison();
        match answer {
            Ok(answer) => {
                state.limits[kind as usize] = self.first_limit;
                Ok(answer)
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {
                state.limits[kind as usize] =
                    limit.saturating_mul(2).min(self.limit_max).max(limit);
                state.thread = new_thread();
                Err(format!("no answer within {} ms", limit.as_millis()))
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => Err("its thread panicked".into()),
        }
    }

    fn error(&self, verb: &'static str, name: &str, cause: String) -> ObjectError {
        let object = format!("{}/{name}", self.inner.location());
        ObjectError::new(ObjectErrorKind::Unavailable, verb, object, cause)
    }
}

impl Objects for DeadlineObjects {
    umbel_env::delegate_object_calls!(inner: location create_concurrently put);

    fn create(&self, name: &ObjectName, bytes: &[u8]) -> ObjectResult<Creation> {
        let (sent_name, sent) = (name.clone(), bytes.to_vec());
        self.call(Kind::Creation, move |objects| objects.create(&sent_name, &sent)).unwrap_or_else(
            |cause| {
                // It can have been sent, and can take effect at any later time.
                let error = self.error("create", name.as_str(), cause);
                Ok(Answer { value: Creation::Unknown(error), store_micros: None })
            },
        )
    }

    fn read(&self, name: &ObjectName, range: Range<u64>) -> ObjectResult<Option<ObjectBytes>> {
        let sent = name.clone();
        self.call(Kind::Read, move |objects| objects.read(&sent, range))
            .unwrap_or_else(|cause| Err(self.error("read", name.as_str(), cause)))
    }

    fn time_micros(&self, age_max: Duration) -> Result<Option<u64>, ObjectError> {
        self.call(Kind::Other, move |objects| objects.time_micros(age_max))
            .unwrap_or_else(|cause| Err(self.error("read the time of", "", cause)))
    }

    fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        objects_max: usize,
    ) -> ObjectResult<ListPage> {
        let (sent, sent_after) = (prefix.to_owned(), after.map(str::to_owned));
        self.call(Kind::Other, move |objects| {
            objects.list(&sent, sent_after.as_deref(), objects_max)
        })
        .unwrap_or_else(|cause| Err(self.error("list", prefix, cause)))
    }

    fn delete(&self, name: &ObjectName) -> ObjectResult<()> {
        let sent = name.clone();
        self.call(Kind::Other, move |objects| objects.delete(&sent))
            .unwrap_or_else(|cause| Err(self.error("delete", name.as_str(), cause)))
    }
}
