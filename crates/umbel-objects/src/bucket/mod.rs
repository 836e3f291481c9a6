//! [`BucketObjects`]: objects in a bucket of S3, Google Cloud Storage or Azure, through the crate
//! `object_store`.
//!
//! The crate signs requests, finds credentials and parses answers. The HTTP client is ours, since
//! callers need the status of a refused creation and the store's `Date`. The crate's retries are
//! off: a creation is sent once, and callers repeat other requests.

mod authorities;
mod azure;
mod bucket_errors;
mod bucket_url;
mod call_record;
mod credentials;
mod error_text;
mod gcs;
mod http_client;
mod profile_files;
mod proxy;
mod s3;

use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::path::Path as FilePath;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use futures_util::future::join_all;
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{
    GetOptions, GetRange, MultipartId, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload,
};
use tokio::runtime::{Builder, Handle, Runtime};
use umbel_base::{Error, Result};
use umbel_env::{
    Answer, Clock, Creation, CreationRequest, Env, ListPage, ListedObject, ObjectBytes,
    ObjectError, ObjectErrorKind, ObjectName, ObjectResult, ObjectSource, Objects, Threads,
};

use crate::variables::Variables;
use bucket_errors::{Failure, code, is_bucket_absent, is_existing};
pub(crate) use bucket_url::BucketUrl;
use bucket_url::Service;
use call_record::{ANSWER_BYTES_MAX, CALL, CallRecord};
use error_text::causes;

/// Bytes of a part of a large object. Larger objects than two parts are sent in parts.
const PART_BYTES: u64 = 8 << 20;
/// Attempts of each part. Without repetitions, one failure in hundreds of parts would have all
/// parts sent again.
const PART_ATTEMPTS: u32 = 4;
/// Pause before the first repetition of a part; each pause is four times as long as the one before.
const PART_PAUSE: Duration = Duration::from_millis(200);
/// Maximum number of objects of a page, which is that of the protocols.
const PAGE_OBJECTS_MAX: usize = 1000;

/// Object store in a bucket of S3, Google Cloud Storage or Azure.
///
/// Its calls wait for threads of its own, so they must not be made from an asynchronous task.
pub(crate) struct BucketObjects {
    service: Service,
    library: Library,
    clock: Arc<dyn Clock>,
    threads: Arc<dyn Threads>,
    tasks: Handle,
    /// The threads of the tasks; `None` only during the drop.
    runtime: Option<Runtime>,
    location: String,
    /// Prefix of all keys, with a slash at the end, or empty.
    prefix: String,
}

impl fmt::Debug for BucketObjects {
    /// Shows the location only, since the library's types show the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BucketObjects").field("location", &self.location).finish_non_exhaustive()
    }
}

/// A store of the library by its traits.
struct Library {
    store: Arc<dyn ObjectStore>,
    lists: Arc<dyn PaginatedListStore>,
    parts: Arc<dyn MultipartStore>,
}

impl Library {
    fn new<S: ObjectStore + PaginatedListStore + MultipartStore>(store: S) -> Library {
        let store = Arc::new(store);
        let (lists, parts) = (Arc::clone(&store), Arc::clone(&store));
        Library { store, lists, parts }
    }
}

impl BucketObjects {
    /// Opens a bucket with the options of its URL, and with these variables for all other settings.
    /// No request is sent.
    ///
    /// # Errors
    /// A setting is invalid, or no source of credentials is known.
    pub(crate) fn open(env: &Env, url: &BucketUrl, variables: &Variables) -> Result<BucketObjects> {
        let location = url.location();
        let variables = url.settings(variables);
        let opened = match url.service {
            Service::S3 => s3::open(env, &url.bucket, &variables).map(Library::new),
            Service::Gcs => gcs::open(env, &url.bucket, &variables).map(Library::new),
            Service::Azure => azure::open(env, &url.bucket, &variables).map(Library::new),
        };
        let library = opened.map_err(|reason| {
            Error::invalid(format!("the object store {location} cannot be used: {reason}"))
        })?;
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("umbel-bucket")
            .enable_all()
            .build()
            .map_err(|error| Error::io("start threads for", FilePath::new("buckets"), error))?;
        let prefix = match url.prefix.as_str() {
            "" => String::new(),
            prefix => format!("{prefix}/"),
        };
        let (tasks, runtime) = (runtime.handle().clone(), Some(runtime));
        let (service, clock) = (url.service, Arc::clone(&env.clock));
        let threads = Arc::clone(&env.threads);
        Ok(BucketObjects { service, library, clock, threads, tasks, runtime, location, prefix })
    }

    fn key(&self, name: &ObjectName) -> Path {
        Path::from(format!("{}{name}", self.prefix))
    }

    fn object(&self, name: &str) -> String {
        format!("{}/{name}", self.location)
    }

    /// Runs a request on the threads of this store; `None` if it panicked.
    fn run<T: Send + 'static>(
        &self,
        record: &Arc<CallRecord>,
        request: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let (sender, receiver) = mpsc::channel();
        let request = CALL.scope(Arc::clone(record), request);
        self.tasks.spawn(async move {
            // Without a receiver the caller is gone.
            let _ = sender.send(request.await);
        });
        receiver.recv().ok()
    }

    /// Runs a request, and returns its answer with the store's time.
    fn request<T: Send + 'static>(
        &self,
        operation: &'static str,
        name: &str,
        record: &Arc<CallRecord>,
        request: impl Future<Output = object_store::Result<T>> + Send + 'static,
    ) -> ObjectResult<T> {
        match self.run(record, request) {
            Some(Ok(value)) => Ok(Answer { value, store_micros: record.store_micros() }),
            Some(Err(error)) => Err(self.failure(operation, name, record).error(&error)),
            None => Err(self.panicked(operation, name)),
        }
    }

    fn failure<'f>(
        &self,
        operation: &'static str,
        name: &str,
        record: &'f CallRecord,
    ) -> Failure<'f> {
        let (service, object) = (self.service, self.object(name));
        let wall_micros = self.clock.wall_micros();
        Failure { service, operation, object, record, wall_micros }
    }

    fn panicked(&self, operation: &'static str, name: &str) -> ObjectError {
        let cause = "internal: the task of the request panicked";
        ObjectError::new(ObjectErrorKind::Unavailable, operation, self.object(name), cause)
    }

    /// Sends one creation.
    fn creation(
        &self,
        name: &ObjectName,
        bytes: &[u8],
        record: &Arc<CallRecord>,
    ) -> impl Future<Output = object_store::Result<()>> + Send + 'static {
        let (store, key) = (Arc::clone(&self.library.store), self.key(name));
        let payload = PutPayload::from(bytes.to_vec());
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        let put = async move { store.put_opts(&key, payload, options).await.map(drop) };
        CALL.scope(Arc::clone(record), put)
    }

    /// Returns the outcome of a creation.
    fn outcome(
        &self,
        name: &ObjectName,
        record: &CallRecord,
        done: object_store::Result<()>,
    ) -> ObjectResult<Creation> {
        let store_micros = record.store_micros();
        let Err(error) = done else {
            return Ok(Answer { value: Creation::Created, store_micros });
        };
        let is_existing = is_existing(record.status(), code(&causes(&error)));
        let error = self.failure("create", name.as_str(), record).error(&error);
        let value = match record.status() {
            Some(_) if is_existing => Creation::Exists,
            Some(_) if error.kind == ObjectErrorKind::Unavailable => Creation::Unknown(error),
            // An answer of success whose body cannot be read.
            Some(200..=299) => Creation::Unknown(error),
            Some(_) => return Err(error),
            None if record.was_sent() => Creation::Unknown(error),
            None => return Err(error),
        };
        Ok(Answer { value, store_micros })
    }
}

impl Objects for BucketObjects {
    fn location(&self) -> &str {
        &self.location
    }

    fn create(&self, name: &ObjectName, bytes: &[u8]) -> ObjectResult<Creation> {
        let record = CallRecord::new(Duration::ZERO, ANSWER_BYTES_MAX);
        match self.run(&record, self.creation(name, bytes, &record)) {
            Some(done) => self.outcome(name, &record, done),
            None => Ok(Answer {
                value: Creation::Unknown(self.panicked("create", name.as_str())),
                store_micros: None,
            }),
        }
    }

    fn create_concurrently(&self, requests: &[CreationRequest]) -> Vec<ObjectResult<Creation>> {
        let record =
            |request: &CreationRequest| CallRecord::new(request.body_delay, ANSWER_BYTES_MAX);
        let records: Vec<_> = requests.iter().map(record).collect();
        let creations = requests.iter().zip(&records);
        let creations: Vec<_> = creations
            .map(|(request, record)| {
                // Each on a task of its own, so that bodies and answers of all are in flight.
                self.tasks.spawn(self.creation(&request.name, &request.bytes, record))
            })
            .collect();
        let all = CallRecord::new(Duration::ZERO, ANSWER_BYTES_MAX);
        let done = self.run(&all, join_all(creations)).unwrap_or_default();
        let mut done = done.into_iter();
        let outcomes = requests.iter().zip(&records);
        outcomes
            .map(|(request, record)| match done.next() {
                Some(Ok(done)) => self.outcome(&request.name, record, done),
                Some(Err(_)) | None => Ok(Answer {
                    value: Creation::Unknown(self.panicked("create", request.name.as_str())),
                    store_micros: None,
                }),
            })
            .collect()
    }

    fn put(&self, name: &ObjectName, source: &dyn ObjectSource) -> ObjectResult<()> {
        let bytes = source.byte_count();
        if bytes <= 2 * PART_BYTES {
            let mut buffer = vec![0; usize::try_from(bytes).unwrap_or(usize::MAX)];
            source.read(&mut buffer, 0)?;
            let record = CallRecord::new(Duration::ZERO, ANSWER_BYTES_MAX);
            let (store, key) = (Arc::clone(&self.library.store), self.key(name));
            let put = async move { store.put(&key, PutPayload::from(buffer)).await.map(drop) };
            return self.request("write", name.as_str(), &record, put);
        }
        self.put_parts(name, source)
    }

    fn read(&self, name: &ObjectName, range: Range<u64>) -> ObjectResult<Option<ObjectBytes>> {
        let range_bytes = range.end.saturating_sub(range.start);
        let record = CallRecord::new(Duration::ZERO, range_bytes);
        let (store, key) = (Arc::clone(&self.library.store), self.key(name));
        // An empty range is no range of the protocol.
        let wanted = range.start..range.end.max(range.start.saturating_add(1));
        let options = GetOptions::default().with_range(Some(GetRange::Bounded(wanted)));
        let get = async move {
            let found = store.get_opts(&key, options).await?;
            let object_bytes = found.meta.size;
            Ok((found.bytes().await?, object_bytes))
        };
        let done = self.request("read", name.as_str(), &record, get);
        let store_micros = record.store_micros();
        let value = match (done, record.status()) {
            (Ok(answer), _) => {
                let (bytes, object_bytes) = answer.value;
                let len = usize::try_from(range_bytes).unwrap_or(usize::MAX).min(bytes.len());
                Some(ObjectBytes { bytes: bytes[..len].to_vec(), object_bytes })
            }
            (Err(error), Some(404)) if !is_bucket_absent(&error.cause) => None,
            // The range begins at or after the end of the object. Azurite answers 206 at the end.
            (Err(error), Some(status @ (206 | 416)))
                if status == 416 || record.object_bytes().is_some_and(|end| end <= range.start) =>
            {
                let object_bytes = match record.object_bytes() {
                    Some(object_bytes) => object_bytes,
                    None => self.object_bytes(name).map_err(|_| error)?,
                };
                Some(ObjectBytes { bytes: Vec::new(), object_bytes })
            }
            (Err(error), Some(200)) => {
                let cause = format!("the store ignores ranges ({})", error.cause);
                let kind = ObjectErrorKind::Damaged;
                return Err(ObjectError { kind, cause, ..error });
            }
            (Err(error), _) => return Err(error),
        };
        Ok(Answer { value, store_micros })
    }

    fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        objects_max: usize,
    ) -> ObjectResult<ListPage> {
        let objects_max = objects_max.clamp(1, PAGE_OBJECTS_MAX);
        let record = CallRecord::new(Duration::ZERO, ANSWER_BYTES_MAX);
        let offset = after.map(|after| format!("{}{after}", self.prefix));
        let (lists, key) = (Arc::clone(&self.library.lists), format!("{}{prefix}", self.prefix));
        let list = async move {
            let mut page_token = None;
            loop {
                let options = PaginatedListOptions {
                    offset: offset.clone(),
                    max_keys: Some(objects_max),
                    page_token,
                    ..PaginatedListOptions::default()
                };
                let mut page = lists.list_paginated(Some(&key), options).await?;
                // Some stores do not know where a list begins. Their pages before it are skipped.
                if let Some(offset) = &offset {
                    page.result.objects.retain(|found| found.location.as_ref() > offset.as_str());
                }
                if !page.result.objects.is_empty() || page.page_token.is_none() {
                    return Ok(page);
                }
                page_token = page.page_token;
            }
        };
        let answer = self.request("list", prefix, &record, list)?;
        let mut page = ListPage::default();
        let mut last = None;
        for found in answer.value.result.objects {
            let key = found.location.to_string();
            let Some(name) = key.strip_prefix(&self.prefix) else { continue };
            last = Some(name.to_owned());
            // Other programs can have keys that are no names of objects.
            let Ok(name) = ObjectName::new(name) else { continue };
            let created_micros = u64::try_from(found.last_modified.timestamp_micros()).ok();
            page.objects.push(ListedObject { name, bytes: found.size, created_micros });
        }
        if answer.value.page_token.is_some() {
            page.next_after = last;
        }
        Ok(Answer { value: page, store_micros: answer.store_micros })
    }

    fn delete(&self, name: &ObjectName) -> ObjectResult<()> {
        let record = CallRecord::new(Duration::ZERO, ANSWER_BYTES_MAX);
        let (store, key) = (Arc::clone(&self.library.store), self.key(name));
        let delete = async move {
            match store.delete(&key).await {
                Err(error @ object_store::Error::NotFound { .. }) => {
                    match is_bucket_absent(&causes(&error)) {
                        true => Err(error),
                        false => Ok(()),
                    }
                }
                done => done,
            }
        };
        self.request("delete", name.as_str(), &record, delete)
    }
}

impl Drop for BucketObjects {
    /// Ends the threads without a wait for requests, which an asynchronous caller could not do.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl BucketObjects {
    /// Writes an object in parts, so that one part is in memory.
    fn put_parts(&self, name: &ObjectName, source: &dyn ObjectSource) -> ObjectResult<()> {
        let record = CallRecord::new(Duration::ZERO, ANSWER_BYTES_MAX);
        let (parts, key) = (Arc::clone(&self.library.parts), self.key(name));
        let begin = async move { parts.create_multipart(&key).await };
        let id = self.request("write", name.as_str(), &record, begin)?.value;
        let (bytes, mut done, mut written) = (source.byte_count(), 0, Vec::new());
        let failure = loop {
            if done == bytes {
                break None;
            }
            let len = PART_BYTES.min(bytes - done);
            let mut buffer = vec![0; usize::try_from(len).unwrap_or(usize::MAX)];
            if let Err(error) = source.read(&mut buffer, done) {
                break Some(error);
            }
            match self.put_part(name, &id, written.len(), &PutPayload::from(buffer)) {
                Ok(part) => written.push(part),
                Err(error) => break Some(error),
            }
            done += len;
        };
        let record = CallRecord::new(Duration::ZERO, ANSWER_BYTES_MAX);
        let (parts, key) = (Arc::clone(&self.library.parts), self.key(name));
        let Some(failure) = failure else {
            let complete =
                async move { parts.complete_multipart(&key, &id, written).await.map(drop) };
            return self.request("write", name.as_str(), &record, complete);
        };
        // Parts that stay cost money until a rule of the bucket removes them.
        let abort = async move { parts.abort_multipart(&key, &id).await };
        let _ = self.request("write", name.as_str(), &record, abort);
        Err(failure)
    }

    /// Writes a part of an object, and repeats it after failures that can pass.
    fn put_part(
        &self,
        name: &ObjectName,
        id: &MultipartId,
        number: usize,
        payload: &PutPayload,
    ) -> std::result::Result<PartId, ObjectError> {
        let (mut attempt, mut pause) = (1, PART_PAUSE);
        loop {
            let record = CallRecord::new(Duration::ZERO, ANSWER_BYTES_MAX);
            let (parts, key) = (Arc::clone(&self.library.parts), self.key(name));
            let (id, payload) = (id.clone(), payload.clone());
            let put = async move { parts.put_part(&key, &id, number, payload).await };
            match self.request("write", name.as_str(), &record, put) {
                Ok(answer) => return Ok(answer.value),
                Err(error) if error.is_temporary() && attempt < PART_ATTEMPTS => {
                    self.threads.pause(pause);
                    (attempt, pause) = (attempt + 1, pause * 4);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the length of an object.
    fn object_bytes(&self, name: &ObjectName) -> std::result::Result<u64, ObjectError> {
        let record = CallRecord::new(Duration::ZERO, ANSWER_BYTES_MAX);
        let (store, key) = (Arc::clone(&self.library.store), self.key(name));
        let head = async move { store.head(&key).await.map(|found| found.size) };
        Ok(self.request("read", name.as_str(), &record, head)?.value)
    }
}
