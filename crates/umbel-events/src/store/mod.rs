//! [`Store`]: an open event store.

use std::path::Path;
use std::sync::Arc;

use core::time::Duration;

use umbel::Durability;
use umbel_env::Objects;
use umbel_slots::LogPoint;

use crate::append::append_request::{
    AppendRequest, CheckedMetadata, StreamAppend, StreamCheck, WriteResult,
};
use crate::append::appender::WriteTask;
use crate::backup::copy_rate_limit::CopyOptions;
use crate::backup::{self, BackupReport};
use crate::event_filter::EventFilter;
use crate::event_log::log_bytes::LogBytes;
use crate::event_log::replica_file::ReplicatedLog;
use crate::object_backup::object_backup_error::ObjectBackupResult;
use crate::object_backup::{ObjectBackup, ObjectBackupOptions};
use crate::open::{self, LogAuthority, open_read_only};
use crate::primitives::store_clock::ClockState;
use crate::primitives::wakeup::Wakeup;
use crate::read::all_reader::AllReader;
use crate::read::event_source::{Source, SourceReader};
use crate::read::filtered_reader::FilteredReader;
use crate::read::link_resolution::{self, ResolvedEvent};
use crate::read::stream_reader::{self, StreamReader};
use crate::read::view_reader::{self, ViewReader, ViewState};
use crate::scavenge::redaction::{self, Redaction, RedactionReport};
use crate::scavenge::{self, Scavenge, ScavengeOptions, ScavengeReport};
use crate::shared_store_state::StoreInner;
use crate::store::log_replication::LogReplication;
use crate::store::slot_applier::SlotApplier;
use crate::store::store_close::close;
use crate::store::store_stats::Stats;
use crate::subscription::{Subscription, SubscriptionStart};
use crate::types::crash_recovery::CrashRecovery;
use crate::types::error::{Error, Result};
use crate::types::event::{Direction, EventId, NewEvent, Position, RecordedEvent, Revision};
use crate::types::expected_version::ExpectedVersion;
use crate::types::store_options::StoreOptions;
use crate::types::stream_metadata::{MetadataUpdate, RetentionRules};
use crate::types::stream_names::{METADATA_TYPE, metadata_stream};
use crate::types::stream_state::StreamState;
use crate::types::view_kind::ViewKind;
use crate::verify::{self, VerifyReport};
use crate::visibility::visible_position::Watch;
use crate::write::import::Import;
use crate::write::pending_append::PendingAppend;

/// Attempts at a change of metadata that other writers change, too.
const METADATA_ATTEMPTS_MAX: usize = 100;
/// Wait before each further attempt.
const METADATA_WAIT: Duration = Duration::from_millis(10);

/// Open event store. Clones share the open store; dropping the last handle closes it.
#[derive(Debug, Clone)]
pub struct Store {
    handle: Arc<StoreHandle>,
}

/// Keeps a store open. The background thread holds no `StoreHandle`.
#[derive(Debug)]
struct StoreHandle {
    shared: Arc<StoreInner>,
}

impl Drop for StoreHandle {
    fn drop(&mut self) {
        if self.shared.open_mark.is_forked() {
            // Copy in a forked child: dropping the store would wait for locks, and for a thread
            // that does not exist here.
            std::mem::forget(Arc::clone(&self.shared));
            return;
        }
        // A caller that needs the result of closing calls `Store::close`.
        let _ = close(&self.shared);
    }
}

impl Store {
    /// Opens the store in `path`, or creates it if the options allow it.
    ///
    /// After a fork the handle belongs to the parent alone: in the child every call fails with
    /// [`umbel::Error::Forked`], and dropping the handle there does nothing. A child opens the
    /// store after the fork.
    ///
    /// # Errors
    /// `Locked` if another process or handle has the store open. `Invalid` if the folder is no
    /// event store, a newer Umbel wrote the store, or an option is out of range. `Corruption` if
    /// files do not match what was written.
    pub fn open(path: impl AsRef<Path>, options: StoreOptions) -> Result<Store> {
        let shared = open::open(path.as_ref(), options, LogAuthority::Appends)?;
        Ok(Store { handle: Arc::new(StoreHandle { shared }) })
    }

    /// Opens the store in `path`, whose event log is replicated in slots, as a follower. The slots
    /// have the log up to `in_slots`; nothing after it is indexed or shown. Experimental, and
    /// reached by no server: the directory does not say yet that it is a replica.
    ///
    /// # Errors
    /// Those of [`Store::open`]. `Invalid` unless each append is synced, if `accept_clock` is set,
    /// if the log has no record that ends at `in_slots`, or if the index has events after it.
    #[doc(hidden)]
    pub fn open_replicated(
        path: impl AsRef<Path>,
        options: StoreOptions,
        in_slots: LogPoint,
    ) -> Result<(Store, LogReplication)> {
        check_replicated_options(&options)?;
        let shared = open::open(path.as_ref(), options, LogAuthority::Slots(in_slots))?;
        let log = LogReplication::new(&shared);
        Ok((Store { handle: Arc::new(StoreHandle { shared }) }, log))
    }

    /// Opens the directory of a node of a replicated log, or creates it, as a follower. The
    /// directory records the last applied slot. What follows in its log is removed, or moved into a
    /// directory `cut-N` if the node had led. The applier feeds the store from the slots after
    /// [`SlotApplier::chain`]. Experimental.
    ///
    /// # Errors
    /// Those of [`Store::open`]. `Invalid` unless each append is synced, if `accept_clock` is set,
    /// or if the directory is not that of a replica of this log.
    #[doc(hidden)]
    pub fn open_replica(
        path: impl AsRef<Path>,
        options: StoreOptions,
        log: ReplicatedLog,
    ) -> Result<(Store, LogReplication, SlotApplier)> {
        check_replicated_options(&options)?;
        let shared = open::open(path.as_ref(), options, LogAuthority::RecordedSlots(log))?;
        let (log, applier) = (LogReplication::new(&shared), SlotApplier::new(&shared));
        Ok((Store { handle: Arc::new(StoreHandle { shared }) }, log, applier))
    }

    /// Opens the store in `path` read-only and changes no byte of it. Appends through the handle
    /// are refused.
    ///
    /// Any number of read-only handles, in any processes, can read a store while one process writes
    /// to it. Each read-only handle sees every event acknowledged before this call, and stays at
    /// the state that it opened. The writer keeps the files of that state until the handle is
    /// closed. A writer that cannot detect the reader (no `LOCK` file, or an unreadable one) may
    /// remove these files.
    ///
    /// Events that the index lacks are read from the log and indexed in memory. After a kill of the
    /// writer, the index lacks the events of about two chunks.
    ///
    /// # Errors
    /// The errors of [`Store::open`] except `Locked`. `Invalid` if the index is missing, or lacks
    /// more events than half of `memory_bytes` can hold: open the store for writing once.
    /// [`umbel::Error::Stale`] if the writer changed the store during each attempt to read it, or
    /// later removed a file: open the store again.
    pub fn open_read_only(path: impl AsRef<Path>, options: StoreOptions) -> Result<Store> {
        let shared = open_read_only::open(path.as_ref(), options)?;
        Ok(Store { handle: Arc::new(StoreHandle { shared }) })
    }

    fn shared(&self) -> &Arc<StoreInner> {
        &self.handle.shared
    }

    /// Counts an operation with this result if damage made it fail. Readers, subscriptions, writes,
    /// scavenges and redactions count for themselves.
    fn counted<T>(&self, result: Result<T>) -> Result<T> {
        self.shared().damage.record(result)
    }

    /// Creates a random id for an event.
    pub fn new_id(&self) -> Result<EventId> {
        self.shared().new_id()
    }

    /// Appends events to a stream, all or none, and returns after the append is acknowledged.
    ///
    /// # Errors
    /// `WrongExpectedVersion` if the stream does not match and the append is no idempotent retry.
    /// `StreamDeleted` if the stream was tombstoned, or if it was deleted and the append expects
    /// that it exists. `TooLarge` and `Invalid` if a limit is exceeded.
    pub fn append(
        &self,
        stream: &str,
        expected: ExpectedVersion,
        events: &[NewEvent<'_>],
    ) -> Result<WriteResult> {
        let appends = [StreamAppend { stream, expected, events }];
        let results = self.submit(&AppendRequest { appends: &appends, checks: &[] })?.wait()?;
        Ok(results[0])
    }

    /// Appends to several streams, all or nothing, if these streams, and those in `checks`, match
    /// their expected versions. Returns one result for each stream of the request.
    ///
    /// # Errors
    /// The errors of [`Store::append`], for the first stream that does not match.
    pub fn append_streams(
        &self,
        appends: &[StreamAppend<'_>],
        checks: &[StreamCheck<'_>],
    ) -> Result<Vec<WriteResult>> {
        self.submit(&AppendRequest { appends, checks })?.wait()
    }

    /// Submits an append: checks it and assigns its place in the log, but does not wait until it is
    /// acknowledged. Appends take effect in the order in which they were submitted. An append has
    /// no guarantee before it is acknowledged: a store with synced appends keeps the append in
    /// memory until its sync.
    ///
    /// # Errors
    /// The errors of [`Store::append`]; after an error, nothing was written.
    pub fn submit(&self, request: &AppendRequest<'_>) -> Result<PendingAppend> {
        self.submit_with_conflicts(request).map_err(Error::into_first_conflict)
    }

    /// Submits an append like [`Store::submit`], and reports every stream that does not match
    /// instead of the first one only.
    ///
    /// # Errors
    /// The errors of [`Store::append`], but `VersionConflicts` instead of `WrongExpectedVersion`.
    /// `VersionConflicts` also replaces `StreamDeleted`, except for an append to the metadata of a
    /// tombstoned stream.
    pub fn submit_with_conflicts(&self, request: &AppendRequest<'_>) -> Result<PendingAppend> {
        self.shared().submit_append(request)
    }

    /// Submits several appends in order, each like [`Store::submit`], at a lower cost than single
    /// calls: appends that need no sync are indexed together. Returns one result for each append; a
    /// refused append does not affect the others.
    pub fn submit_each(&self, requests: &[AppendRequest<'_>]) -> Vec<Result<PendingAppend>> {
        let submitted = self.submit_each_with_conflicts(requests).into_iter();
        submitted.map(|submitted| submitted.map_err(Error::into_first_conflict)).collect()
    }

    /// Submits several appends like [`Store::submit_each`], each with the errors of
    /// [`Store::submit_with_conflicts`].
    pub fn submit_each_with_conflicts(
        &self,
        requests: &[AppendRequest<'_>],
    ) -> Vec<Result<PendingAppend>> {
        let requests = requests.iter().map(|request| (*request, request.check_metadata()));
        self.submit_each_checked(requests.collect())
    }

    /// Checks an append like [`AppendRequest::check`]. Where a stream may have the events of a long
    /// append already, also compares them, so that the submission need not. The comparison takes up
    /// to some microseconds for each event.
    ///
    /// # Errors
    /// The errors of [`AppendRequest::check`].
    pub fn check_append(&self, request: &AppendRequest<'_>) -> Result<CheckedMetadata> {
        self.shared().check_append(request)
    }

    /// Submits several appends like [`Store::submit_each_with_conflicts`], which another thread has
    /// checked with [`Store::check_append`], [`AppendRequest::check`] or
    /// [`AppendRequest::check_metadata`].
    ///
    /// REQUIRES: each result is that of its request. A request with the result of one of the first
    /// two for another request is refused as `Invalid`.
    pub fn submit_each_checked(
        &self,
        requests: Vec<(AppendRequest<'_>, Result<CheckedMetadata>)>,
    ) -> Vec<Result<PendingAppend>> {
        self.shared().submit_each(requests)
    }

    /// Submits an append like [`Store::submit`], for a thread that must not wait. Returns `None` if
    /// the append would wait for another writer, a new chunk or a write stall. Also returns `None`
    /// if the append is refused: [`Store::submit`] then returns the reason. Like every read, this
    /// call can read uncached data from disk.
    pub fn try_submit(&self, request: &AppendRequest<'_>) -> Option<PendingAppend> {
        self.shared().try_submit(request)
    }

    /// Reads the newest metadata of a stream, also of a tombstoned stream, whose metadata stream
    /// cannot be read.
    ///
    /// # Errors
    /// Errors of reads.
    pub fn metadata(&self, stream: &str) -> Result<Option<RecordedEvent>> {
        StreamReader::newest_metadata(self.shared(), stream).next().transpose()
    }

    /// Updates the metadata of a stream and keeps all other keys. Writes nothing where the metadata
    /// is as wanted.
    ///
    /// # Errors
    /// The errors of [`Store::append`]; `WrongExpectedVersion` if other writers change the metadata
    /// all the time.
    pub fn update_metadata(&self, stream: &str, update: MetadataUpdate) -> Result<()> {
        let name = metadata_stream(stream);
        let mut attempts = 0;
        loop {
            let visible = self.visible_position();
            let newest =
                self.read(&name, Revision::END, Direction::Backwards).next().transpose()?;
            let old = newest.as_ref().map(|newest| &*newest.data);
            let Some(data) = update.apply(old) else { return Ok(()) };
            let expected =
                newest.map_or(ExpectedVersion::NoStream, |it| ExpectedVersion::Exact(it.revision));
            let event = NewEvent::json(self.new_id()?, METADATA_TYPE, &data);
            // The other keys may be longer than those of a client may be.
            let rules = RetentionRules::parse(stream, &data);
            let appends = [StreamAppend { stream: &name, expected, events: &[event] }];
            let request = AppendRequest { appends: &appends, checks: &[] };
            let checked = rules.map(CheckedMetadata::of_single_append);
            let submitted = self.shared().submit_checked(&request, checked);
            let done = submitted.map_err(Error::into_first_conflict).and_then(|it| it.wait());
            match done {
                Err(Error::WrongExpectedVersion { .. }) if attempts < METADATA_ATTEMPTS_MAX => {
                    // The other writer's metadata may not be visible yet.
                    attempts += 1;
                    self.wait_past(visible, METADATA_WAIT);
                }
                done => return done.map(drop),
            }
        }
    }

    /// Deletes a stream: its events can no longer be read from the stream, and the next append
    /// continues with the next revision. Deleting a deleted stream changes nothing.
    ///
    /// # Errors
    /// The errors of [`Store::append`]; `WrongExpectedVersion` also if the stream never had an
    /// event or metadata.
    pub fn delete(&self, stream: &str, expected: ExpectedVersion) -> Result<WriteResult> {
        self.delete_stream(stream, &WriteTask::Delete(stream, expected))
    }

    /// Tombstones a stream, which can never be read or written again.
    ///
    /// # Errors
    /// The errors of [`Store::append`].
    pub fn tombstone(&self, stream: &str, expected: ExpectedVersion) -> Result<WriteResult> {
        self.delete_stream(stream, &WriteTask::Tombstone(stream, expected))
    }

    fn delete_stream(&self, stream: &str, task: &WriteTask<'_>) -> Result<WriteResult> {
        crate::types::stream_names::check_deletable(stream)?;
        Ok(self.shared().submit(task)?.wait()?[0])
    }

    /// Reads the events of a stream from a revision on, inclusive. A missing or deleted stream
    /// yields no events; for a tombstoned stream the first item is an error.
    pub fn read(&self, stream: &str, from: Revision, direction: Direction) -> StreamReader {
        StreamReader::new(self.shared(), stream, from, direction)
    }

    /// Reads all events of the store from a position on: inclusive forwards, exclusive backwards. A
    /// forward reader also reads events that are appended during the read.
    pub fn read_all(&self, from: Position, direction: Direction) -> AllReader {
        AllReader::new(self.shared(), from, direction)
    }

    /// Reads the events of a view from a number on, inclusive, without events after `through`. A
    /// view without events yields none; if no view has this name, the first item is an error.
    ///
    /// | view | events |
    /// |---|---|
    /// | `$ce-` and a category | those of all streams whose names begin with it and a hyphen |
    /// | `$et-` and a type | those of that type |
    /// | `$streams` | the first one of each stream |
    pub fn read_view(
        &self,
        view: &str,
        from: Revision,
        direction: Direction,
        through: Position,
    ) -> ViewReader {
        ViewReader::new(self.shared(), view, from, direction, through)
    }

    /// Returns the readable range of a view up to the position `through`; `None` if the view never
    /// had an event.
    ///
    /// # Errors
    /// `Invalid` if no view has this name.
    pub fn view(&self, view: &str, through: Position) -> Result<Option<ViewState>> {
        self.shared().check_open()?;
        self.counted(view_reader::view_state(self.shared(), view, through))
    }

    /// Lists categories or types that begin with `prefix`, in byte order, after the name `after`.
    /// Returns at most `limit` of them, each with its number of events. [`ViewKind::Streams`] has
    /// one view, whose name is empty.
    pub fn views(
        &self,
        kind: ViewKind,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(String, u64)>> {
        self.shared().check_open()?;
        let listed = self.shared().index.views.list(kind, prefix, after, limit);
        self.counted(listed.map_err(Error::from))
    }

    /// Reads the events of the store that match a filter, from a position on that counts as in
    /// [`Store::read_all`].
    pub fn read_filtered(
        &self,
        from: Position,
        direction: Direction,
        filter: Arc<EventFilter>,
    ) -> FilteredReader {
        FilteredReader::new(self.shared(), from, direction, filter)
    }

    /// Reads the events of a source from a revision, number or position on, like the read function
    /// for its kind. A view ends at `through`, which has no effect on other sources.
    pub fn read_source(
        &self,
        source: &Source,
        from: u64,
        direction: Direction,
        through: Position,
    ) -> SourceReader {
        SourceReader::open(self.shared(), source, from, direction, through)
    }

    /// Creates a subscription, which delivers the existing events after `start`, then new ones.
    ///
    /// # Errors
    /// `StreamDeleted` if the stream was tombstoned and the subscription starts at its end.
    pub fn subscribe(&self, source: Source, since: SubscriptionStart) -> Result<Subscription> {
        Subscription::new(self.shared(), source, since)
    }

    /// Returns the event, or the target of a link. A link to a link is not followed.
    pub fn resolve(&self, event: RecordedEvent) -> Result<ResolvedEvent> {
        link_resolution::resolve(self.shared(), event)
    }

    /// Returns the state of a stream.
    pub fn stream_state(&self, stream: &str) -> Result<StreamState> {
        self.shared().check_open()?;
        let snapshot = self.counted(stream_reader::stream_snapshot(self.shared(), stream))?;
        Ok(StreamState::from_snapshot(&snapshot))
    }

    /// Lists at most `limit` names of streams that begin with `prefix`, in byte order, after the
    /// name `after`. The list includes deleted, tombstoned and metadata streams.
    pub fn streams(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(String, StreamState)>> {
        self.shared().check_open()?;
        self.counted(stream_reader::list_streams(self.shared(), prefix, after, limit))
    }

    /// Returns the position of the last visible event.
    pub fn visible_position(&self) -> Position {
        Position(self.shared().visible.position())
    }

    /// Number of events appended since the store was opened, those of the store's own streams
    /// included.
    pub fn events_appended(&self) -> u64 {
        self.shared().visible.appended()
    }

    /// Returns the bytes of the log after one position, up to another one. The distance of the
    /// positions is larger: each start of the store leaves a gap between them.
    pub fn log_bytes_between(&self, after: Position, through: Position) -> u64 {
        self.shared().log.bytes_between(after.0, through.0)
    }

    /// Returns the sizes of the chunks of the log at this moment, for many calls of
    /// [`LogBytes::between`].
    pub fn log_bytes(&self) -> LogBytes {
        LogBytes::new(&self.shared().log)
    }

    /// Whether an event of the original store can have had a position after the last visible event,
    /// since a restore or a repair left a gap there. The next append ends the gap. A reader at such
    /// a position continues with the events that are appended from now on.
    pub fn is_in_restore_gap(&self, position: Position) -> bool {
        let visible = self.shared().visible.position();
        position.0 > visible
            && self.shared().log.gap_end(visible).is_some_and(|end| position.0 < end)
    }

    /// Waits until an event after `position` is visible, at most for `timeout`, and returns the
    /// visible position. Closing the store ends the wait; in a forked child the call returns at
    /// once.
    pub fn wait_past(&self, position: Position, timeout: Duration) -> Position {
        Position(self.shared().visible.wait_past(position.0, timeout))
    }

    /// Calls `callback` once, with the position of the last event, when a new event of the source
    /// becomes visible or the store is closed. Dropping the watch before that cancels the call.
    ///
    /// The callback runs on the thread that appended. The callback must not block or append, but
    /// may drop the last handle of the store. If the store is closed already, the callback runs on
    /// the thread that calls `watch`. The close does not call a watch that a callback registers
    /// during the close. A panic of the callback is reported and does not propagate; other
    /// callbacks are still called.
    ///
    /// Unless the source is a stream, events outside the source can cause a call, too. A reader
    /// misses nothing if it creates the watch first, then reads, and only then waits.
    pub fn watch(
        &self,
        source: &Source,
        callback: impl FnOnce(Position) + Send + 'static,
    ) -> Watch {
        let stream = source.watched_stream(self.shared());
        let wakeup = Wakeup::with_callback(move |position| callback(Position(position)));
        self.shared().visible.watch(stream, wakeup)
    }

    /// Syncs every append so far, which then survives power loss.
    pub fn sync(&self) -> Result<()> {
        self.shared().check_writable()?;
        self.counted(self.shared().sync_log())
    }

    /// Makes the current index durable, so that an open after a crash need not read the indexed
    /// events from the log again.
    pub fn flush(&self) -> Result<()> {
        self.counted(self.shared().flush_index())
    }

    /// Returns the statistics of the store.
    pub fn stats(&self) -> Result<Stats> {
        self.counted(store_stats::collect_stats(self.shared()))
    }

    /// Returns the work of this open after a crash; `None` if the store had been closed, or is open
    /// for reading only.
    pub fn crash_recovery(&self) -> Option<&CrashRecovery> {
        self.shared().crash_recovery.as_ref()
    }

    /// Returns whether the store believes the wall clock, and whether the last event is ahead of
    /// it. Takes no lock.
    pub fn clock_state(&self) -> ClockState {
        self.shared().clock().state()
    }

    /// Returns the number of damaged lines of the existence filter that were rebuilt since the
    /// open. No event is concerned, but the disk may be failing. Takes no lock.
    pub fn rebuilt_filter_lines(&self) -> u64 {
        self.shared().existence.rebuilt_lines()
    }

    /// Returns the number of journals of the existence filter that the open found damaged or
    /// missing. No event is concerned, but the disk may be failing. Takes no lock.
    pub fn damaged_filter_journals(&self) -> u64 {
        self.shared().existence.damaged_journals()
    }

    /// Returns the state of the store's directory: whether the path by which the store was opened
    /// still leads to it.
    pub fn directory(&self) -> umbel::DirectoryStats {
        self.shared().directory()
    }

    /// Returns the reason why the store accepts no writes until it is opened again; `None` while it
    /// accepts writes.
    pub fn fatal_error(&self) -> Option<String> {
        self.shared().fatal_error.get().cloned()
    }

    /// Returns the filters of each keyspace of the index, and the reasons for them.
    ///
    /// # Errors
    /// An error if the store was closed.
    pub fn filter_advice(&self) -> Result<Vec<umbel::FilterAdvice>> {
        self.shared().check_open()?;
        Ok(self.shared().index.db().advice())
    }

    /// Verifies that every event and the index can be read and agree. Damage is listed in the
    /// report and is not returned as an error.
    ///
    /// # Errors
    /// Reads that the operating system refuses, since the files may be undamaged.
    pub fn verify(&self) -> Result<VerifyReport> {
        self.shared().check_open()?;
        verify::verify(self.shared())
    }

    /// Frees the space of events that no reader of their streams can see, while other calls
    /// continue, and returns when the scavenge has ended. `docs/reference/event-store.md` lists
    /// what a scavenge removes.
    ///
    /// # Errors
    /// `Invalid` if another scavenge runs or the store is read-only; `Full` if the disk is full. A
    /// full disk loses no event, and another scavenge continues at the same chunk.
    pub fn scavenge(&self, options: &ScavengeOptions) -> Result<ScavengeReport> {
        scavenge::run(self.shared(), options)
    }

    /// Scavenges like [`Store::scavenge`], on a thread of the store.
    ///
    /// # Errors
    /// `Invalid` if another scavenge runs or the store is read-only.
    pub fn start_scavenge(&self, options: &ScavengeOptions) -> Result<Scavenge> {
        scavenge::start(self.shared(), options)
    }

    /// Redacts events: removes their data and metadata for good. Streams, ids, types, revisions and
    /// positions stay, and readers see the events without data. Other calls continue meanwhile.
    ///
    /// For each event that had data, an audit event is in the stream `$redactions` before the data
    /// is removed. Backups from before the redaction keep the data.
    ///
    /// # Errors
    /// `Invalid` if there is no such event, if an event belongs to a system stream, if a limit is
    /// exceeded, or if a scavenge runs; then nothing was changed. `Full` if the disk is full. After
    /// an error the same redaction can be repeated.
    pub fn redact(&self, request: &Redaction<'_>) -> Result<RedactionReport> {
        redaction::run(self.shared(), request)
    }

    /// Backs up everything that was appended before the call, and possibly later events, while the
    /// store is in use. The backup is complete up to the position in the report. The target is an
    /// empty or missing folder, or an earlier backup of this store, which receives only new data.
    /// [`restore`](crate::restore) makes a store of a backup.
    ///
    /// # Errors
    /// `Invalid` if the target holds anything else, `Corruption` if the event log is damaged,
    /// `Backup` if files in the target are, and `BackupInUse` if another process uses the target.
    /// `BackupDisk` for a full, read-only or failing disk of the target, and other errors of disks.
    /// `Cancelled` if the caller cancelled the backup. After an error, an earlier backup in the
    /// target is as it was.
    pub fn backup(
        &self,
        target: impl AsRef<Path>,
        options: CopyOptions<'_>,
    ) -> Result<BackupReport> {
        self.counted(backup::backup(self.shared(), target.as_ref(), options))
    }

    /// Returns an error if the target holds a backup that [`Store::backup`] cannot continue, since
    /// another store made it, or another copy of this store. Changes nothing.
    ///
    /// # Errors
    /// `Invalid` for the backup of another store or copy, `Backup` if the target is damaged, and
    /// other errors of disks.
    pub fn check_backup_owner(&self, target: impl AsRef<Path>) -> Result<()> {
        backup::check_owner(self.shared(), target.as_ref())
    }

    /// Begins or continues a backup of this store into a prefix of an object store. The handle does
    /// not keep the store open.
    ///
    /// # Errors
    /// Those of a prefix that belongs to another store, and of failed requests; see
    /// [`ObjectBackupError`](crate::ObjectBackupError).
    pub fn object_backup(
        &self,
        objects: Arc<dyn Objects>,
        options: ObjectBackupOptions,
    ) -> ObjectBackupResult<ObjectBackup> {
        ObjectBackup::open(self.shared(), objects, options)
    }

    /// Begins an import of events of another store, which keep their ids, times and revisions.
    ///
    /// # Errors
    /// An error if the store accepts no writes.
    pub fn import(&self) -> Result<Import> {
        Import::new(self.shared())
    }

    /// Closes the store for every handle: syncs everything and records where each file ends, so
    /// that the next open notices a change of any file. Closing wakes all waiting threads.
    pub fn close(self) -> Result<()> {
        close(self.shared())
    }

    /// Directory of the store.
    pub fn path(&self) -> &Path {
        &self.shared().folder
    }
}

/// Returns an error for options that a replicated store cannot have.
fn check_replicated_options(options: &StoreOptions) -> Result<()> {
    if options.durability != Durability::Synced {
        return Err(Error::invalid("a replicated event store needs the durability 'synced'"));
    }
    if options.accept_clock {
        return Err(Error::invalid("a replicated event store cannot begin a clock epoch"));
    }
    Ok(())
}

pub mod log_replication;
pub mod slot_applier;
pub mod store_close;
pub mod store_stats;

#[cfg(test)]
#[cfg(target_os = "linux")]
mod fork_tests;

#[cfg(test)]
mod retry_tests;

#[cfg(test)]
mod tests;
