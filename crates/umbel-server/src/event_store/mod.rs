//! [`EventStore`]: the event store as async calls use it. Handlers reach the store only through
//! [`EventStore`], directly or by a closure for a blocking thread.
//!
//! The store's functions block. Reads and deletes run on blocking threads; small reads run inline
//! while inline reads are fast. Appends are submitted by an [`AppendSubmitter`].

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tonic::Status;
use umbel_env::{Clock, DiskSpace, Env, JoinHandle, ProcessUsage, Resources};
use umbel_events::{
    ClockState, Error, EventFilter, ExpectedVersion, Position, Source, Stats, Store, Subscription,
    SubscriptionStart,
};

use crate::access_control::acl_cache::AclCache;
use crate::event_store::append_submitter::AppendSubmitter;
use crate::event_store::event_pager::{EventPage, EventPager};
use crate::event_store::filter_cache::FilterCache;
use crate::event_store::page_limits::PageLimits;
use crate::event_store::subscription_pager::{SubscriptionPage, SubscriptionPager};
use crate::limits::{INLINE_EVENTS_MAX, PAGE_EVENTS_MAX};
use crate::protocol::filter_request::FilterRequest;
use crate::protocol::grpc_status;
use crate::resources::inline_execution::InlinePolicy;
use crate::resources::outbound_quota::PageReservation;
use crate::resources::read_pool::{ReadPool, ReadPoolCounts};
use crate::resources::worker_times::TaskSpawner;

pub mod append_command;
pub mod append_completion;
pub mod append_submitter;
pub mod auto_scavenge;
pub mod backups;
pub mod event_pager;
pub mod event_resolution;
pub mod filter_cache;
pub mod long_append_places;
pub mod page_limits;
pub mod scavenge_schedule;
pub mod scavenging;
pub mod store_work;
pub mod subscription_pager;
pub mod system_projections;
pub mod work_history;

/// The event store as async calls use it.
#[derive(Debug)]
pub struct EventStore {
    store: Store,
    appends: AppendSubmitter,
    inline_reads: InlinePolicy,
    read_pool: ReadPool,
    clock: Arc<dyn Clock>,
    acl_cache: Arc<AclCache>,
    filter_cache: Arc<FilterCache>,
    /// Number of events that were read for clients.
    events_read: AtomicU64,
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
    /// Starts the appender thread and the read pool for this store. Their threads end once the
    /// [`EventStore`] is dropped.
    pub fn new(
        store: Store,
        env: &Env,
        tasks: &TaskSpawner,
    ) -> umbel::Result<(EventStore, Vec<Box<dyn JoinHandle>>)> {
        let acl_cache = Arc::new(AclCache::default());
        let (read_pool, mut threads) = ReadPool::start(env)?;
        let (appends, appender) = AppendSubmitter::start(&store, &acl_cache, env, tasks)?;
        threads.push(appender);
        let store = EventStore {
            store,
            appends,
            inline_reads: InlinePolicy::new(env),
            read_pool,
            clock: Arc::clone(&env.clock),
            acl_cache,
            filter_cache: Arc::default(),
            events_read: AtomicU64::new(0),
        };
        Ok((store, threads))
    }

    /// The submitter of appends.
    pub fn appends(&self) -> &AppendSubmitter {
        &self.appends
    }

    /// The fatal error after which the store accepts no appends until a restart, if there is one.
    pub fn failure(&self) -> Option<String> {
        self.store.fatal_error()
    }

    /// Number of damaged lines of the existence filter that were rebuilt since the start.
    pub fn rebuilt_filter_lines(&self) -> u64 {
        self.store.rebuilt_filter_lines()
    }

    /// Number of journals of the existence filter that the start found damaged or missing.
    pub fn damaged_filter_journals(&self) -> u64 {
        self.store.damaged_filter_journals()
    }

    /// Cached users and ACLs of the store.
    pub fn acl_cache(&self) -> &Arc<AclCache> {
        &self.acl_cache
    }

    /// Number of events that were read for clients since the start.
    pub fn events_read(&self) -> u64 {
        self.events_read.load(Ordering::Relaxed)
    }

    /// Counts events that were read for clients.
    pub fn count_read(&self, events: usize) {
        self.events_read.fetch_add(events as u64, Ordering::Relaxed);
    }

    /// The position of the newest visible event; 0 without events.
    pub fn visible_position(&self) -> u64 {
        self.store.visible_position().0
    }

    /// Whether a read can begin at a position: no later than the newest event, or where the store
    /// from which this one was restored can have had an event.
    pub fn is_position(&self, position: u64) -> bool {
        position <= self.visible_position() || self.store.is_in_restore_gap(Position(position))
    }

    /// Path of the store's directory when it was opened.
    pub fn path(&self) -> &Path {
        self.store.path()
    }

    /// Statistics of the store.
    pub async fn stats(&self) -> Result<Stats, Error> {
        self.blocking(Store::stats).await
    }

    /// Statistics of the store, and the usage of the machine. Reading that usage may block.
    pub async fn stats_and_usage(
        &self,
        resources: &Arc<dyn Resources>,
    ) -> Result<(Stats, Option<ProcessUsage>, Option<DiskSpace>), Error> {
        let resources = Arc::clone(resources);
        self.blocking(move |store| {
            Ok((store.stats()?, resources.process_usage(), resources.disk_space(store.path())))
        })
        .await
    }

    /// Deletes a stream. Returns the position of the delete; `None` if nothing was written.
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

    /// Reads a page of at most this many events, which fits into this reservation.
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
            let limits = PageLimits::inline(max_events, INLINE_EVENTS_MAX);
            let page = self.inline_reads.run(|| reader.next_page(&self.store, &limits))?;
            self.count_read(page.events.len());
            return Ok((page, reservation));
        }
        let is_pooled = reader.is_pooled();
        let limits = self.page_limits(is_pooled, max_events);
        let read = move |store: &Store| reader.next_page(store, &limits);
        let (page, reservation) = self.read_reserved(is_pooled, reservation, read).await?;
        self.count_read(page.events.len());
        Ok((page, reservation))
    }

    /// Reads the next page of a subscription, which fits into this reservation. A view shows no
    /// event after `through`.
    pub async fn read_subscription(
        &self,
        pager: SubscriptionPager,
        through: Position,
        reservation: PageReservation,
    ) -> Result<(SubscriptionPage, PageReservation), Error> {
        let is_pooled = pager.is_pooled();
        let limits = self.page_limits(is_pooled, PAGE_EVENTS_MAX);
        let read = move |store: &Store| pager.next_page(store, through, &limits);
        self.read_reserved(is_pooled, reservation, read).await
    }

    /// Reads the next page of a group's subscription. `work` gets the page on the thread that read
    /// it.
    pub async fn read_for_group<T: Send + 'static>(
        &self,
        pager: SubscriptionPager,
        through: Position,
        work: impl FnOnce(SubscriptionPage) -> T + Send + 'static,
    ) -> Result<T, Error> {
        let is_pooled = pager.is_pooled();
        let limits = self.page_limits(is_pooled, PAGE_EVENTS_MAX);
        self.read(is_pooled, move |store| pager.next_page(store, through, &limits).map(work)).await
    }

    /// Reads a page, which fits into this reservation. The thread that reads keeps the reservation
    /// until the page is read, even if the caller is dropped.
    async fn read_reserved<T: Send + 'static>(
        &self,
        is_pooled: bool,
        reservation: PageReservation,
        read: impl FnOnce(&Store) -> Result<T, Error> + Send + 'static,
    ) -> Result<(T, PageReservation), Error> {
        // The read may have to wait for a thread.
        reservation.pause_clock();
        let filling = self.read(is_pooled, move |store| {
            let (page, reservation) = reservation.fill(|| read(store));
            Ok((page?, reservation))
        });
        filling.await
    }

    /// Reads in the read pool, or on a blocking thread.
    async fn read<T: Send + 'static>(
        &self,
        is_pooled: bool,
        read: impl FnOnce(&Store) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        if !is_pooled {
            return self.blocking(read).await;
        }
        let store = self.store.clone();
        self.read_pool.run(move || read(&store)).await?
    }

    fn page_limits(&self, is_pooled: bool, events_max: usize) -> PageLimits {
        match is_pooled {
            true => PageLimits::pooled(events_max, &self.clock),
            false => PageLimits::first(events_max),
        }
    }

    /// Number of pages in the read pool.
    pub fn read_pool_counts(&self) -> ReadPoolCounts {
        self.read_pool.counts()
    }

    /// The read pool.
    #[cfg(test)]
    pub fn read_pool(&self) -> &ReadPool {
        &self.read_pool
    }

    /// Number of reads that ran inline.
    #[cfg(test)]
    pub fn inline_reads(&self) -> u64 {
        self.inline_reads.runs.load(Ordering::Relaxed)
    }

    /// State of the wall clock for the store.
    pub fn clock_state(&self) -> ClockState {
        self.store.clock_state()
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
