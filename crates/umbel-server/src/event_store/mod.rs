//! [`EventStore`]: the event store as async calls use it. Handlers reach the store through it,
//! directly or by a closure for a blocking thread.
//!
//! The store's functions block. Reads and deletes run on blocking threads; small reads run inline
//! while those are fast. One thread submits appends to the store in the order of their arrival. A
//! small append runs inline where no other waits before it and it need not wait itself. The store
//! reports each completion, so a waiting append occupies no thread.

use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{mpsc, oneshot};
use tonic::Status;
use umbel_env::{Env, JoinHandle};
use umbel_events::{
    AppendRequest, Error, EventFilter, ExpectedVersion, NewEvent, PendingAppend, Source, Stats,
    Store, StreamAppend, Subscription, SubscriptionStart,
};

use crate::access_control::acl_cache::AclCache;
use crate::event_store::append_results::{AppendResult, ResultSender};
use crate::event_store::event_pager::{EventPage, EventPager};
use crate::event_store::filter_cache::FilterCache;
use crate::limits::{EXAMINED_EVENTS_MAX, INLINE_BYTES_MAX, INLINE_EVENTS_MAX, PAGE_EVENTS_MAX};
use crate::protocol::filter_request::FilterRequest;
use crate::protocol::grpc_status;
use crate::protocol::proto_convert::ProposedEvent;
use crate::resources::inbound_quota::QuotaShare;
use crate::resources::inline_execution::InlineExecution;
use crate::resources::outbound_quota::PageReservation;

pub mod append_results;
pub mod backups;
pub mod event_pager;
pub mod event_resolution;
pub mod filter_cache;
pub mod projection_states;
pub mod scavenging;
pub mod subscription_pager;

/// The event store as async calls use it.
#[derive(Debug)]
pub struct EventStore {
    store: Store,
    appends: mpsc::UnboundedSender<AppendJob>,
    inline_reads: InlineExecution,
    inline_appends: InlineExecution,
    /// Number of jobs that the appender thread has or will have.
    queued_jobs: Arc<AtomicUsize>,
    acl_cache: Arc<AclCache>,
    filter_cache: Arc<FilterCache>,
}

/// Number of queued appends after which no further job joins the group.
const APPENDS_PER_GROUP: usize = 64;

/// Appends with the receivers of their results.
#[derive(Debug)]
enum AppendJob {
    Single(AppendCommand, oneshot::Sender<AppendResult>),
    /// Appends of one call.
    Many(Vec<(AppendCommand, ResultSender)>),
}

/// The receiver of an append's result.
#[derive(Debug)]
enum AppendReply {
    Single(oneshot::Sender<AppendResult>),
    Many(ResultSender),
}

impl AppendReply {
    fn send(self, result: AppendResult) {
        match self {
            // The receiver may have been dropped; the append is done nevertheless.
            AppendReply::Single(sender) => drop(sender.send(result)),
            AppendReply::Many(reply) => reply.send(result),
        }
    }
}

/// An append of events to a stream.
#[derive(Debug)]
pub struct AppendCommand {
    /// The stream.
    pub stream: String,
    /// The expected revision of the stream.
    pub expected: ExpectedVersion,
    /// The events.
    pub events: Vec<ProposedEvent>,
    /// The share of the append quota that the events hold.
    #[expect(dead_code, reason = "the field is kept for its Drop, as long as the events")]
    pub share: QuotaShare,
}

impl AppendCommand {
    /// The stream; releases the quota share.
    fn into_stream(self) -> String {
        self.stream
    }
}

/// The kind of a delete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deletion {
    /// A stream delete: an append creates the stream again.
    Soft,
    /// A stream tombstone: the stream is hidden for good.
    Tombstone,
}

impl EventStore {
    /// Starts the appender thread for this store. The thread ends once the [`EventStore`] is
    /// dropped.
    pub fn new(store: Store, env: &Env) -> umbel::Result<(EventStore, Box<dyn JoinHandle>)> {
        // Calls bound the queue: each waits for its result before it takes on more.
        let (appends, jobs) = mpsc::unbounded_channel();
        let (appending, rules) = (store.clone(), Arc::new(AclCache::default()));
        let changing = Arc::clone(&rules);
        let handed = Arc::new(AtomicUsize::new(0));
        let undone = Arc::clone(&handed);
        let append = move || run_appender(&appending, &changing, jobs, &undone);
        let thread = env.threads.spawn("umbel-append", Box::new(append))?;
        let (quick, quick_append) = (InlineExecution::new(env), InlineExecution::new(env));
        let filters = Arc::default();
        Ok((
            EventStore {
                store,
                appends,
                inline_reads: quick,
                inline_appends: quick_append,
                queued_jobs: handed,
                acl_cache: rules,
                filter_cache: filters,
            },
            thread,
        ))
    }

    /// The fatal error after which the store accepts no appends until a restart, if there is one.
    pub fn failure(&self) -> Option<String> {
        self.store.fatal_error()
    }

    /// Cached users and ACLs of the store.
    pub fn acl_cache(&self) -> &Arc<AclCache> {
        &self.acl_cache
    }

    /// The position of the newest visible event; 0 without events.
    pub fn visible_position(&self) -> u64 {
        self.store.visible_position().0
    }

    /// Statistics of the store.
    pub async fn stats(&self) -> Result<Stats, Error> {
        self.blocking(Store::stats).await
    }

    /// Submits an append to the store. The result arrives once the append has the durability that
    /// the store gives appends. It is a channel error where the store was closed before.
    pub fn submit(&self, append: AppendCommand) -> oneshot::Receiver<AppendResult> {
        let (sender, answer) = oneshot::channel();
        match self.try_append_inline(&append) {
            Some(ticket) => {
                complete(&self.acl_cache, &append.stream, Ok(ticket), AppendReply::Single(sender))
            }
            None => {
                // Where the thread has ended, the sender is dropped, which the receiver sees as an
                // error.
                self.enqueue(AppendJob::Single(append, sender));
            }
        }
        answer
    }

    /// Appends few events without the appender thread, which takes longer to wake, where the append
    /// need not wait.
    fn try_append_inline(&self, append: &AppendCommand) -> Option<PendingAppend> {
        // Earlier appends are not overtaken.
        let comes_first = self.queued_jobs.load(Ordering::Acquire) == 0;
        if !comes_first
            || append.events.len() > INLINE_EVENTS_MAX
            || !self.inline_appends.is_allowed()
        {
            return None;
        }
        let events: Vec<NewEvent<'_>> =
            append.events.iter().map(ProposedEvent::as_new_event).collect();
        let bytes = events.iter().map(|event| event.data.len() + event.metadata.len());
        if bytes.sum::<usize>() > INLINE_BYTES_MAX {
            return None;
        }
        let (stream, expected) = (append.stream.as_str(), append.expected);
        let appends = [StreamAppend { stream, expected, events: &events }];
        let request = AppendRequest { appends: &appends, checks: &[] };
        self.inline_appends.run(|| self.store.try_submit(&request))
    }

    /// Submits the appends of one call as [`EventStore::submit`] does. The senders deliver the
    /// results to that call.
    pub fn submit_all(&self, appends: Vec<(AppendCommand, ResultSender)>) {
        // Where the thread has ended, the senders are dropped, which reports a closed store.
        self.enqueue(AppendJob::Many(appends));
    }

    fn enqueue(&self, job: AppendJob) {
        self.queued_jobs.fetch_add(1, Ordering::AcqRel);
        let _ = self.appends.send(job);
    }

    /// Deletes a stream. Returns the position of the delete; `None` where nothing was written.
    pub async fn delete(
        &self,
        deletion: Deletion,
        stream: String,
        expected: ExpectedVersion,
    ) -> Result<Option<u64>, Error> {
        let rules = Arc::clone(&self.acl_cache);
        self.blocking(move |store| {
            let done = match deletion {
                Deletion::Soft => store.delete(&stream, expected),
                Deletion::Tombstone => store.tombstone(&stream, expected),
            };
            rules.invalidate(&stream);
            Ok(done?.position)
        })
        .await
    }

    /// The compiled filter that a read requests.
    pub async fn compile_filter(&self, request: FilterRequest) -> Result<Arc<EventFilter>, Status> {
        let filters = Arc::clone(&self.filter_cache);
        let found = self.blocking(move |_| Ok(filters.get(&request))).await;
        found.unwrap_or_else(|error| Err(grpc_status::status(&error)))
    }

    /// Opens a subscription.
    pub async fn subscribe(
        &self,
        source: Source,
        since: SubscriptionStart,
    ) -> Result<Subscription, Error> {
        self.blocking(move |store| store.subscribe(source, since)).await
    }

    /// A page of at most this many events, which fits into this reservation.
    pub async fn read_page(
        &self,
        reader: EventPager,
        max_events: u64,
        reservation: PageReservation,
    ) -> Result<(EventPage, PageReservation), Error> {
        let max_events = usize::try_from(max_events).unwrap_or(usize::MAX).min(PAGE_EVENTS_MAX);
        if max_events <= INLINE_EVENTS_MAX
            && reader.can_run_inline()
            && self.inline_reads.is_allowed()
        {
            let page = self
                .inline_reads
                .run(|| reader.next_page(&self.store, max_events, INLINE_EVENTS_MAX))?;
            return Ok((page, reservation));
        }
        let store = self.store.clone();
        let read = move || reader.next_page(&store, max_events, EXAMINED_EVENTS_MAX);
        let filled = reservation.fill_blocking(read).await;
        let (page, reservation) = filled?;
        Ok((page?, reservation))
    }

    /// A handle of the store, for work that another thread runs.
    pub fn handle(&self) -> Store {
        self.store.clone()
    }

    /// Runs blocking work on the store.
    pub async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Store) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let store = self.store.clone();
        let done = tokio::task::spawn_blocking(move || work(&store)).await;
        done.unwrap_or_else(|_| Err(Error::Store(umbel::Error::Closed)))
    }
}

fn run_appender(
    store: &Store,
    rules: &Arc<AclCache>,
    mut jobs: mpsc::UnboundedReceiver<AppendJob>,
    handed: &AtomicUsize,
) {
    while let Some(job) = jobs.blocking_recv() {
        let mut count = 0;
        let (mut appends, mut replies, mut outcomes) = (Vec::new(), Vec::new(), Vec::new());
        let mut next = Some(job);
        while let Some(job) = next {
            count += 1;
            match job {
                AppendJob::Single(append, sender) => {
                    appends.push(append);
                    replies.push(AppendReply::Single(sender));
                }
                AppendJob::Many(many) => {
                    outcomes.extend(many.first().and_then(|(_, reply)| reply.results()).cloned());
                    for (append, reply) in many {
                        appends.push(append);
                        replies.push(AppendReply::Many(reply));
                    }
                }
            }
            next = (appends.len() < APPENDS_PER_GROUP).then(|| jobs.try_recv().ok()).flatten();
        }
        let _held: Vec<_> = outcomes.iter().map(|outcomes| outcomes.defer_wakeup()).collect();
        append_group(store, rules, replies, appends);
        handed.fetch_sub(count, Ordering::AcqRel);
    }
}

/// Submits appends in order, and completes each with its result. Their quota shares are released
/// before the results are sent.
fn append_group(
    store: &Store,
    rules: &Arc<AclCache>,
    replies: Vec<AppendReply>,
    appends: Vec<AppendCommand>,
) {
    let tickets = submit_each(store, &appends);
    for ((append, ticket), reply) in appends.into_iter().zip(tickets).zip(replies) {
        complete(rules, &append.into_stream(), ticket, reply);
    }
}

/// Submits appends to the store in order.
fn submit_each(store: &Store, appends: &[AppendCommand]) -> Vec<Result<PendingAppend, Error>> {
    let events = appends.iter().flat_map(|append| &append.events).map(ProposedEvent::as_new_event);
    let events: Vec<NewEvent<'_>> = events.collect();
    let mut rest = &events[..];
    let mut next = |append: &'_ AppendCommand| {
        let (own, others) = rest.split_at(append.events.len());
        rest = others;
        own
    };
    let parts: Vec<StreamAppend<'_>> = appends
        .iter()
        .map(|append| {
            let (stream, expected) = (append.stream.as_str(), append.expected);
            StreamAppend { stream, expected, events: next(append) }
        })
        .collect();
    let requests =
        parts.iter().map(|part| AppendRequest { appends: slice::from_ref(part), checks: &[] });
    let requests: Vec<AppendRequest<'_>> = requests.collect();
    store.submit_each(&requests)
}

/// Sends the result of an append to this stream once it is acknowledged.
fn complete(
    rules: &Arc<AclCache>,
    stream: &str,
    ticket: Result<PendingAppend, Error>,
    reply: AppendReply,
) {
    match ticket {
        #[cfg(feature = "canary")]
        Ok(ticket) if umbel_base::failpoint::Failpoint::ServerAnswersEarly.is_enabled() => {
            reply.send(Ok(ticket.early_results()[0]));
        }
        Ok(ticket) if stream.starts_with('$') => {
            let (rules, stream) = (Arc::clone(rules), stream.to_string());
            ticket.on_acknowledged(move |answers| {
                rules.invalidate(&stream);
                reply.send(answers.map(|answers| answers[0]));
            });
        }
        Ok(ticket) => {
            ticket.on_acknowledged(move |answers| reply.send(answers.map(|answers| answers[0])));
        }
        Err(error) => reply.send(Err(error)),
    }
}
