//! [`AppendSubmitter`]: the entry of appends to the store.
//!
//! One thread submits appends to the store in the order of their arrival. A small append runs
//! inline if no other append waits before it and it need not wait itself. The store resolves each
//! completion, so a waiting append occupies no thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use umbel_env::{Env, JoinHandle};
use umbel_events::{
    AppendRequest, Error, NewEvent, PendingAppend, Store, StreamAppend, StreamCheck,
};

use crate::access_control::acl_cache::AclCache;
use crate::event_store::append_command::{AppendCommand, stream_appends};
use crate::event_store::append_completion::{AppendCompletion, AppendResult};
use crate::event_store::long_append_places::{LongAppendPlace, LongAppendPlaces};
#[cfg(test)]
use crate::limits::LONG_APPENDS_BYTES_MAX;
use crate::limits::{INLINE_BYTES_MAX, INLINE_EVENTS_MAX, LONG_APPEND_BYTES_MIN};
use crate::protocol::proto_convert::ProposedEvent;
use crate::resources::inline_execution::InlinePolicy;
use crate::resources::worker_times::TaskSpawner;

/// Number of appends in a group after which no further job joins the group.
const APPENDS_PER_GROUP: usize = 64;

/// The place of the check of a long append.
static LONG_CHECKS: Semaphore = Semaphore::const_new(1);

/// The entry of appends to the store.
#[derive(Debug)]
pub struct AppendSubmitter {
    store: Store,
    acl_cache: Arc<AclCache>,
    inline_appends: InlinePolicy,
    queue: AppendQueue,
}

/// The queue of the appender thread.
#[derive(Debug, Clone)]
struct AppendQueue {
    store: Store,
    jobs: mpsc::UnboundedSender<AppendJob>,
    /// Places of long appends.
    long_appends: Arc<LongAppendPlaces>,
    /// Number of jobs that are queued for, or being executed by, the appender thread.
    queued_jobs: Arc<AtomicUsize>,
}

/// Appends with their completions.
#[expect(clippy::large_enum_variant, reason = "nearly all are single; a box adds an allocation")]
#[derive(Debug)]
enum AppendJob {
    Single(AppendCommand, AppendCompletion),
    /// Appends of one call.
    Many(Vec<(AppendCommand, AppendCompletion)>),
}

/// Appends of one call that are not submitted yet, in their order. Dropping this value drops them;
/// each completion then reports a closed store.
#[derive(Debug)]
pub struct WaitingAppends {
    /// Jobs for the task, which submits them one after the other.
    jobs: mpsc::UnboundedSender<AppendJob>,
    /// Number of jobs that the task has not submitted yet.
    waiting_jobs: watch::Sender<usize>,
    _task: JoinSet<()>,
}

impl WaitingAppends {
    /// Starts the task. A call whose client takes nothing may never be polled again. The task
    /// proceeds without it: a place that the task gets is free once its append is completed.
    fn start(queue: AppendQueue, job: AppendJob) -> WaitingAppends {
        let (jobs, mut received) = mpsc::unbounded_channel();
        let waiting_jobs = watch::Sender::new(0);
        let submitted = waiting_jobs.clone();
        let mut task = JoinSet::new();
        task.spawn(async move {
            while let Some(job) = received.recv().await {
                queue.enqueue_in_turn(job).await;
                submitted.send_modify(|count| *count -= 1);
            }
        });
        let waiting = WaitingAppends { jobs, waiting_jobs, _task: task };
        waiting.enqueue(job);
        waiting
    }

    /// Adds appends of the same call, which are submitted after the earlier ones.
    pub fn add(&self, appends: Vec<(AppendCommand, AppendCompletion)>) {
        self.enqueue(AppendJob::Many(appends));
    }

    fn enqueue(&self, job: AppendJob) {
        self.waiting_jobs.send_modify(|count| *count += 1);
        // Where the runtime ended, the completions are dropped, which reports a closed store.
        let _ = self.jobs.send(job);
    }

    /// Waits until all appends are submitted.
    pub async fn wait(&mut self) {
        // This value has a sender, so the wait does not fail.
        let _ = self.waiting_jobs.subscribe().wait_for(|count| *count == 0).await;
    }
}

impl AppendSubmitter {
    /// Starts the appender thread, which ends once the submitter is dropped.
    pub fn start(
        store: &Store,
        acl_cache: &Arc<AclCache>,
        env: &Env,
        tasks: &TaskSpawner,
    ) -> umbel::Result<(AppendSubmitter, Box<dyn JoinHandle>)> {
        // Calls bound the queue: each waits for its result before it takes on more.
        let (jobs, received) = mpsc::unbounded_channel();
        let queue = AppendQueue {
            store: store.clone(),
            jobs,
            long_appends: Arc::new(LongAppendPlaces::new(&env.clock)),
            queued_jobs: Arc::default(),
        };
        let queued_jobs = Arc::clone(&queue.queued_jobs);
        let submitter = AppendSubmitter {
            store: store.clone(),
            acl_cache: Arc::clone(acl_cache),
            inline_appends: InlinePolicy::new(env),
            queue,
        };
        let (store, acl_cache) = (store.clone(), Arc::clone(acl_cache));
        let tasks = tasks.clone();
        let runtime = Handle::try_current().ok();
        let run = move || {
            // The appender serves all appends, so blocking threads free the events of long ones.
            let _inside = runtime.as_ref().map(Handle::enter);
            run_appender(&store, &acl_cache, received, (&queued_jobs, &tasks));
        };
        let thread = env.threads.spawn("umbel-append", Box::new(run))?;
        Ok((submitter, thread))
    }

    /// Submits an append. The future resolves once the append has the store's durability. If the
    /// future is dropped, a submitted append continues, but a long append that waits for its turn
    /// is dropped.
    pub async fn submit(&self, append: AppendCommand) -> AppendResult {
        let (completion, result) = AppendCompletion::single();
        let mut job = AppendJob::Single(append, completion);
        let _waiting = if self.queue.try_prepare(&mut job) {
            self.run_or_enqueue(job);
            None
        } else {
            Some(WaitingAppends::start(self.queue.clone(), job))
        };
        result.await.unwrap_or(Err(Error::Store(umbel::Error::Closed)))
    }

    /// Submits the appends of one call, which receives the results in batches. Returns the appends
    /// if they wait for their turn.
    pub fn submit_all(
        &self,
        appends: Vec<(AppendCommand, AppendCompletion)>,
    ) -> Option<WaitingAppends> {
        let mut job = AppendJob::Many(appends);
        if !self.queue.try_prepare(&mut job) {
            return Some(WaitingAppends::start(self.queue.clone(), job));
        }
        self.queue.enqueue(job);
        None
    }

    /// Takes the places of all long appends.
    #[cfg(test)]
    pub fn take_places(&self) -> LongAppendPlace {
        let taken = self.queue.long_appends.try_take(LONG_APPENDS_BYTES_MAX);
        taken.expect("all are free")
    }

    fn run_or_enqueue(&self, job: AppendJob) {
        match job {
            AppendJob::Single(append, completion)
                if let Some(pending) = self.try_append_inline(&append) =>
            {
                complete(&self.acl_cache, append, Ok(pending), completion);
            }
            job => self.queue.enqueue(job),
        }
    }

    /// Appends a few events on the calling thread if the append need not wait, since waking the
    /// appender thread takes longer.
    fn try_append_inline(&self, append: &AppendCommand) -> Option<PendingAppend> {
        // Earlier appends are not overtaken.
        let comes_first = self.queue.queued_jobs.load(Ordering::Acquire) == 0;
        let [target] = append.streams() else { return None };
        if !comes_first
            || append.is_checked()
            || target.events.len() > INLINE_EVENTS_MAX
            || !append.checks.is_empty()
            || !self.inline_appends.is_allowed()
        {
            return None;
        }
        let events: Vec<NewEvent<'_>> =
            target.events.iter().map(ProposedEvent::as_new_event).collect();
        let bytes = events.iter().map(|event| event.data.len() + event.metadata.len());
        if bytes.sum::<usize>() > INLINE_BYTES_MAX {
            return None;
        }
        let (stream, expected) = (target.stream.as_str(), target.expected);
        let appends = [StreamAppend { stream, expected, events: &events }];
        let request = AppendRequest { appends: &appends, checks: &[] };
        self.inline_appends.run(|| self.store.try_submit(&request))
    }
}

impl AppendQueue {
    /// Gives a job its place; returns false if the job must wait for it, or takes long to check.
    fn try_prepare(&self, job: &mut AppendJob) -> bool {
        if job.needs_check() {
            return false;
        }
        let Some(bytes) = job.long_bytes() else {
            self.long_appends.note_short();
            return true;
        };
        // Queued jobs are not overtaken: free places are theirs first.
        let place = self.long_appends.try_take(bytes);
        place.is_some_and(|place| {
            job.keep_place(Arc::new(place));
            true
        })
    }

    /// Enqueues a job once it is checked and has its place. Without places, a short append would
    /// wait for all long appends that came before.
    async fn enqueue_in_turn(&self, job: AppendJob) {
        let Some(mut job) = check_long(job, &self.store).await else { return };
        if let Some(bytes) = job.long_bytes() {
            let place = self.long_appends.take(bytes).await;
            place.into_iter().for_each(|place| job.keep_place(Arc::new(place)));
        }
        self.enqueue(job);
    }

    fn enqueue(&self, job: AppendJob) {
        self.queued_jobs.fetch_add(1, Ordering::AcqRel);
        // Where the thread has ended, the completions are dropped, which reports a closed store.
        let _ = self.jobs.send(job);
    }
}

/// Checks a job that takes long on a thread that may be busy. That thread completes and frees the
/// appends that are invalid, and returns the others. `None` if there are none, or the runtime
/// ended: the completions are then dropped, which reports a closed store.
async fn check_long(mut job: AppendJob, store: &Store) -> Option<AppendJob> {
    if !job.needs_check() {
        return Some(job);
    }
    // One check keeps a processor busy; many at once would slow the asynchronous workers.
    let place = LONG_CHECKS.acquire().await;
    let store = store.clone();
    let check = move || {
        job.for_each(|append, _| append.check(&store));
        drop(place);
        job.refuse_invalid()
    };
    tokio::task::spawn_blocking(check).await.ok().flatten()
}

impl AppendJob {
    fn for_each(&mut self, mut work: impl FnMut(&mut AppendCommand, &mut AppendCompletion)) {
        match self {
            AppendJob::Single(append, completion) => work(append, completion),
            AppendJob::Many(many) => {
                many.iter_mut().for_each(|(append, completion)| work(append, completion));
            }
        }
    }

    fn appends(&self) -> impl Iterator<Item = &AppendCommand> {
        let (single, many) = match self {
            AppendJob::Single(append, _) => (Some(append), &[][..]),
            AppendJob::Many(many) => (None, &many[..]),
        };
        single.into_iter().chain(many.iter().map(|(append, _)| append))
    }

    fn needs_check(&self) -> bool {
        self.appends().any(AppendCommand::needs_check)
    }

    /// Completes the appends that their check refused, and returns the others.
    fn refuse_invalid(self) -> Option<AppendJob> {
        // The quota share is released before the result is sent.
        let keep_valid = |(mut append, completion): (AppendCommand, AppendCompletion)| {
            let Some(refusal) = append.take_refusal() else { return Some((append, completion)) };
            drop(append);
            completion.resolve(Err(refusal));
            None
        };
        match self {
            AppendJob::Single(append, completion) => {
                let valid = keep_valid((append, completion));
                valid.map(|(append, completion)| AppendJob::Single(append, completion))
            }
            AppendJob::Many(many) => {
                let valid: Vec<_> = many.into_iter().filter_map(keep_valid).collect();
                (!valid.is_empty()).then_some(AppendJob::Many(valid))
            }
        }
    }

    /// Bytes of the long appends, which need a place; `None` if all are short. Each append is
    /// judged alone: many short batches of one call need no place, as those of many calls.
    fn long_bytes(&self) -> Option<usize> {
        let bytes = self.appends().map(AppendCommand::counted_bytes);
        let long_bytes: usize = bytes.filter(|bytes| *bytes >= LONG_APPEND_BYTES_MIN).sum();
        (long_bytes > 0).then_some(long_bytes)
    }

    /// Keeps the place until all appends are completed.
    fn keep_place(&mut self, place: Arc<LongAppendPlace>) {
        self.for_each(|_, completion| completion.keep_place(Some(Arc::clone(&place))));
    }
}

fn run_appender(
    store: &Store,
    acl_cache: &Arc<AclCache>,
    mut jobs: mpsc::UnboundedReceiver<AppendJob>,
    (queued_jobs, tasks): (&AtomicUsize, &TaskSpawner),
) {
    while let Some(job) = jobs.blocking_recv() {
        let mut count = 0;
        let (mut appends, mut completions, mut results) = (Vec::new(), Vec::new(), Vec::new());
        let mut next = Some(job);
        while let Some(job) = next {
            count += 1;
            match job {
                AppendJob::Single(append, completion) => {
                    appends.push(append);
                    completions.push(completion);
                }
                AppendJob::Many(many) => {
                    let first = many.first();
                    results.extend(first.and_then(|(_, first)| first.batch_results()).cloned());
                    for (append, completion) in many {
                        appends.push(append);
                        completions.push(completion);
                    }
                }
            }
            next = (appends.len() < APPENDS_PER_GROUP).then(|| jobs.try_recv().ok()).flatten();
        }
        let _deferred: Vec<_> = results.iter().map(|results| results.defer_wakeup()).collect();
        let submitted = tasks.run_append(|| submit_each(store, &mut appends));
        for ((append, pending), completion) in appends.into_iter().zip(submitted).zip(completions) {
            complete(acl_cache, append, pending, completion);
        }
        queued_jobs.fetch_sub(count, Ordering::AcqRel);
    }
}

/// Submits appends to the store in order.
fn submit_each(store: &Store, commands: &mut [AppendCommand]) -> Vec<Result<PendingAppend, Error>> {
    let checked: Vec<_> = commands.iter_mut().map(AppendCommand::take_checked).collect();
    let events = commands.iter().flat_map(AppendCommand::events).map(ProposedEvent::as_new_event);
    let events: Vec<NewEvent<'_>> = events.collect();
    let targets = commands.iter().flat_map(AppendCommand::streams);
    // Most commands have one target.
    let mut appends: Vec<StreamAppend<'_>> = Vec::with_capacity(commands.len());
    appends.extend(stream_appends(targets, &events));
    let checks: Vec<StreamCheck<'_>> =
        commands.iter().flat_map(AppendCommand::stream_checks).collect();
    let (mut rest, mut rest_checks) = (&appends[..], &checks[..]);
    let requests = commands
        .iter()
        .zip(checked)
        .map(|(command, checked)| {
            let (appends, others) = rest.split_at(command.streams().len());
            let (checks, other_checks) = rest_checks.split_at(command.checks.len());
            (rest, rest_checks) = (others, other_checks);
            let request = AppendRequest { appends, checks };
            (request, checked.unwrap_or_else(|| request.check_metadata()))
        })
        .collect();
    store.submit_each_checked(requests)
}

/// Resolves the completion once the append is acknowledged. Drops the append before, which releases
/// its quota share unless too many events wait to be freed.
fn complete(
    acl_cache: &Arc<AclCache>,
    append: AppendCommand,
    pending: Result<PendingAppend, Error>,
    completion: AppendCompletion,
) {
    let system_streams = append.into_system_streams();
    match pending {
        Ok(pending) if system_streams.is_empty() => {
            pending.on_acknowledged(move |results| completion.resolve(results));
        }
        Ok(pending) => {
            let acl_cache = Arc::clone(acl_cache);
            pending.on_acknowledged(move |results| {
                system_streams.iter().for_each(|stream| acl_cache.invalidate(stream));
                completion.resolve(results);
            });
        }
        Err(error) => completion.resolve(Err(error)),
    }
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use futures_util::FutureExt;
    use hyper::body::Bytes;
    use tonic::Code;
    use umbel_events::{EventId, ExpectedVersion};

    use super::*;
    use crate::event_store::append_command::{EVENTS_COUNTED, StreamEvents};
    use crate::limits::{UNCHECKED_METADATA_BYTES_MAX, UNCHECKED_PARTS_MAX};
    use crate::protocol::grpc_status;
    use crate::resources::deferred_drop::parts_deferred;
    use crate::test_support::test_service::TestService;

    /// An append to a new stream of an event with this number.
    fn append(fixture: &TestService, stream: &str, id: u8, bytes: usize) -> AppendCommand {
        let content = (vec![b' '; bytes].into(), Box::default());
        let event = ProposedEvent::new(EventId([id; 16]), "Stated".into(), false, content);
        let stream = stream.to_string();
        let (expected, events) = (ExpectedVersion::NoStream, vec![event].into());
        let share = fixture.service.append_quota.new_share();
        AppendCommand::to_stream(StreamEvents { stream, expected, events }, share)
    }

    /// Story: an append of a few bytes waited for the long appends of 50 clients, 50 MB and their
    /// sync, each time.
    #[test]
    fn short_append_does_not_wait_for_long_ones() {
        let fixture = TestService::new();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let submitter = fixture.service.store.appends();
            let all = LONG_APPENDS_BYTES_MAX >> 10;
            let places = submitter.take_places();
            let free = || submitter.queue.long_appends.free();
            assert_eq!(free(), 0);
            let long = submitter.submit(append(&fixture, "s-1", 1, LONG_APPEND_BYTES_MIN));
            let mut long = std::pin::pin!(long);
            let is_pending = std::future::poll_fn(|context| {
                Poll::Ready(long.as_mut().poll(context).is_pending())
            });
            assert!(is_pending.await);
            submitter.submit(append(&fixture, "s-2", 2, LONG_APPEND_BYTES_MIN / 2)).await.unwrap();
            assert!(
                fixture.store.stream_state("s-1").unwrap() == umbel_events::StreamState::Missing
            );
            drop(places);
            long.await.unwrap();
            assert_eq!(free(), all);
            // An append that fails frees its place, too.
            let again = submitter.submit(append(&fixture, "s-1", 3, LONG_APPEND_BYTES_MIN)).await;
            let status = grpc_status::status(&again.unwrap_err());
            assert_ne!(status.code(), Code::Ok);
            assert_eq!(free(), all);
        });
    }

    /// Story: 16,383 empty events counted as a short append, which needs no place. The store needs
    /// as long for them as for two megabytes.
    #[test]
    fn many_empty_events_are_a_long_append() {
        let fixture = TestService::new();
        let job = |count: usize| {
            let event = |number: usize| {
                let content = (Bytes::new(), Box::default());
                let id = EventId((number as u128).to_be_bytes());
                ProposedEvent::new(id, "".into(), false, content)
            };
            let (stream, expected) = ("s".to_string(), ExpectedVersion::Any);
            let events = (0..count).map(event).collect::<Vec<_>>().into();
            let share = fixture.service.append_quota.new_share();
            let append = AppendCommand::to_stream(StreamEvents { stream, expected, events }, share);
            AppendJob::Single(append, AppendCompletion::single().0)
        };
        assert_eq!(job(16).long_bytes(), None);
        assert_eq!(job(1000).long_bytes(), Some(128_000));
        assert!(job(16_383).long_bytes() > Some(LONG_APPENDS_BYTES_MAX));
    }

    /// Story: the appender freed the 100,000 events of a refused append, and served no other append
    /// meanwhile.
    #[test]
    fn appender_leaves_many_events_to_a_blocking_thread() {
        const EVENTS: usize = 3000;
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_time().max_blocking_threads(1).build().unwrap();
        runtime.block_on(async {
            let fixture = TestService::new();
            let (release, released) = std::sync::mpsc::channel::<()>();
            let busy = tokio::task::spawn_blocking(move || released.recv());
            let event = |number: usize| {
                let content = (Bytes::new(), Box::default());
                let id = EventId((number as u128).to_be_bytes());
                ProposedEvent::new(id, "Stated".into(), false, content)
            };
            let events = (0..EVENTS).map(event).collect::<Vec<_>>().into();
            let (stream, expected) = ("s".to_string(), ExpectedVersion::Exact(7));
            let share = fixture.service.append_quota.new_share();
            let append = AppendCommand::to_stream(StreamEvents { stream, expected, events }, share);
            let refused = fixture.service.store.appends().submit(append).await;
            assert!(matches!(refused, Err(Error::VersionConflicts(_))), "{refused:?}");
            assert!(parts_deferred() >= EVENTS, "the only blocking thread is busy");
            release.send(()).unwrap();
            busy.await.unwrap().unwrap();
        });
    }

    /// Story: the appender checked the types and sizes of 100,000 events, and served no other
    /// append for milliseconds.
    #[test]
    fn invalid_long_append_is_refused_before_the_appender() {
        let fixture = TestService::new();
        let long = |last_kind: &str| {
            let event = |number: usize| {
                let kind = if number == UNCHECKED_PARTS_MAX { last_kind } else { "Stated" };
                let id = EventId((number as u128 + 1).to_be_bytes());
                ProposedEvent::new(id, kind.into(), false, (Bytes::new(), Box::default()))
            };
            let events = (0..=UNCHECKED_PARTS_MAX).map(event).collect::<Vec<_>>().into();
            let (stream, expected) = ("s".to_string(), ExpectedVersion::NoStream);
            let share = fixture.service.append_quota.new_share();
            AppendCommand::to_stream(StreamEvents { stream, expected, events }, share)
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let submitter = fixture.service.store.appends();
            let places = submitter.take_places();
            let time = std::time::Duration::from_secs(20);
            let refused = tokio::time::timeout(time, submitter.submit(long(""))).await;
            let refused = refused.expect("it needs no place").unwrap_err();
            assert!(refused.to_string().contains("an event's type has 0 bytes"), "{refused}");
            drop(places);
            // The other appends of the call are written.
            let results = Arc::default();
            let all = [append(&fixture, "a", 1, 10), long(""), append(&fixture, "b", 2, 10)];
            let numbered = all.into_iter().zip(0..);
            let batch = |(command, number)| (command, AppendCompletion::batched(number, &results));
            let waiting = submitter.submit_all(numbered.map(batch).collect());
            assert!(waiting.is_some(), "they are checked first");
            let mut done = Vec::new();
            while done.len() < 3 {
                std::future::poll_fn(|context| results.poll_take(&mut done, context)).await;
            }
            done.sort_by_key(|(number, _)| *number);
            assert_eq!([0, 1, 2].map(|number| done[number].1.is_ok()), [true, false, true]);
            let written = submitter.submit(long("Stated")).await.unwrap();
            assert_eq!(written[0].last, Some(UNCHECKED_PARTS_MAX as u64));
            assert_eq!(fixture.bytes(), 0);
        });
    }

    /// Story: an asynchronous worker counted the bytes of 100,000 events before it queued their
    /// append, for a millisecond.
    #[test]
    fn bytes_of_many_events_are_counted_on_a_blocking_thread() {
        let fixture = TestService::new();
        let event = |number: usize| {
            let id = EventId((number as u128 + 1).to_be_bytes());
            ProposedEvent::new(id, "Stated".into(), false, (Bytes::new(), Box::default()))
        };
        let events = (0..=UNCHECKED_PARTS_MAX).map(event).collect::<Vec<_>>().into();
        let (stream, expected) = ("s".to_string(), ExpectedVersion::NoStream);
        let share = fixture.service.append_quota.new_share();
        let append = AppendCommand::to_stream(StreamEvents { stream, expected, events }, share);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let before = EVENTS_COUNTED.get();
            let written = fixture.service.store.appends().submit(append).await.unwrap();
            assert_eq!(written[0].last, Some(UNCHECKED_PARTS_MAX as u64));
            assert_eq!(EVENTS_COUNTED.get(), before);
        });
    }

    /// Story: the sizes of a call's batches were added up. 38 batches of half a kibibyte counted as
    /// a long append, and waited for the long appends of other clients.
    #[test]
    fn many_short_appends_of_a_call_are_no_long_append() {
        let fixture = TestService::new();
        let job = |sizes: &[usize]| {
            let results = Arc::default();
            let numbered = sizes.iter().zip(0..);
            let batch = |(bytes, number): (&usize, u64)| {
                let append = append(&fixture, &format!("s-{number}"), number as u8, *bytes);
                (append, AppendCompletion::batched(number, &results))
            };
            AppendJob::Many(numbered.map(batch).collect())
        };
        assert_eq!(job(&[LONG_APPEND_BYTES_MIN / 2; 38]).long_bytes(), None);
        let (short, long) = (512, 64 << 10);
        assert_eq!(job(&[short, long, short]).long_bytes(), job(&[long]).long_bytes());
        assert!(job(&[long]).long_bytes().is_some());
    }

    /// The appends of a call are written in their order: those that wait, those added to them, and
    /// those submitted afterwards.
    #[test]
    fn appends_of_a_call_keep_their_order_around_a_wait() {
        let fixture = TestService::new();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let submitter = fixture.service.store.appends();
            let results = Arc::default();
            let one = |number: u8| {
                // Every third append is long.
                let bytes = if number.is_multiple_of(3) { LONG_APPEND_BYTES_MIN } else { 10 };
                let content = (vec![b' '; bytes].into(), Box::default());
                let event = ProposedEvent::new(EventId([number; 16]), "t".into(), false, content);
                let (stream, events) = ("cart".to_string(), vec![event].into());
                let target = StreamEvents { stream, expected: ExpectedVersion::Any, events };
                let append =
                    AppendCommand::to_stream(target, fixture.service.append_quota.new_share());
                (append, AppendCompletion::batched(number.into(), &results))
            };
            let places = submitter.take_places();
            let mut waiting = submitter.submit_all(vec![one(0)]).expect("it waits for its place");
            for number in 1..10 {
                waiting.add(vec![one(number)]);
                assert!(waiting.wait().now_or_never().is_none());
            }
            drop(places);
            waiting.wait().await;
            // The places of the long ones among them are free again.
            while submitter.queue.long_appends.free() < LONG_APPENDS_BYTES_MAX >> 10 {
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            }
            assert!(submitter.submit_all((10..20).map(one).collect()).is_none());
            let mut done = Vec::new();
            while done.len() < 20 {
                std::future::poll_fn(|context| results.poll_take(&mut done, context)).await;
            }
            for (number, result) in done {
                assert_eq!(result.unwrap().last, Some(number));
            }
            assert_eq!(fixture.bytes(), 0);
        });
    }

    /// Story: places went to a call whose client read no responses. Such a call is not polled, so
    /// no other client's long appends were written any more.
    #[test]
    fn append_that_is_not_polled_does_not_keep_places() {
        let fixture = TestService::new();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let submitter = fixture.service.store.appends();
            let places = submitter.take_places();
            let long = |number: u8| {
                let append =
                    append(&fixture, &format!("s-{number}"), number, LONG_APPENDS_BYTES_MAX);
                Box::pin(submitter.submit(append))
            };
            let (mut unpolled, mut dropped, mut other) = (long(1), long(2), long(3));
            for append in [&mut unpolled, &mut dropped, &mut other] {
                assert!(append.now_or_never().is_none());
                // It waits for its place.
                tokio::task::yield_now().await;
            }
            drop(dropped);
            drop(places);
            let time = std::time::Duration::from_secs(20);
            tokio::time::timeout(time, other).await.expect("it is written").unwrap();
            let is_missing = |stream| {
                fixture.store.stream_state(stream).unwrap() == umbel_events::StreamState::Missing
            };
            assert!(!is_missing("s-1") && is_missing("s-2"));
            unpolled.await.unwrap();
        });
    }

    /// Story: the one place of the checks of long metadata went to a call that was not polled.
    #[test]
    fn check_that_is_not_polled_does_not_keep_its_place() {
        let fixture = TestService::new();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let submitter = fixture.service.store.appends();
            let place = LONG_CHECKS.acquire().await.unwrap();
            let metadata = |number: u8| {
                let stream = format!("$$s-{number}");
                let append = append(&fixture, &stream, number, UNCHECKED_METADATA_BYTES_MAX + 1);
                Box::pin(submitter.submit(append))
            };
            let (mut unpolled, mut other) = (metadata(1), metadata(2));
            for append in [&mut unpolled, &mut other] {
                assert!(append.now_or_never().is_none());
                tokio::task::yield_now().await;
            }
            drop(place);
            let time = std::time::Duration::from_secs(20);
            // Spaces are no valid metadata.
            tokio::time::timeout(time, other).await.expect("it is checked").unwrap_err();
        });
    }
}
