//! [`Store`]: an open event store.

use std::path::Path;
use std::sync::Arc;

use core::time::Duration;

use crate::appender::Task;
use crate::background;
use crate::backup::{self, BackupReport};
use crate::backup_copy::CopyOptions;
use crate::error::{Error, Result};
use crate::event::{Direction, EventId, Expected, NewEvent, Position, RecordedEvent, Revision};
use crate::event_filter::EventFilter;
use crate::filtered::FilteredReader;
use crate::import::Import;
use crate::links::{self, ResolvedEvent};
use crate::lock::locked;
use crate::open;
use crate::open_read_only;
use crate::options::StoreOptions;
use crate::read::{self, AllReader, StreamReader};
use crate::request::{Appended, Check, Request, StreamAppend};
use crate::scavenge::{self, Scavenge, ScavengeOptions, ScavengeReport};
use crate::shared::Shared;
use crate::state::StreamState;
use crate::stats::{self, Stats};
use crate::subscription::{Since, Subscribed, Subscription};
use crate::ticket::Ticket;
use crate::verify::{self, VerifyReport};
use crate::view_name::ViewKind;
use crate::view_reader::{self, ViewReader, ViewState};
use crate::visible::Watch;
use crate::watchers::Watched;

/// An open event store. Cloning shares it; the last handle closes it.
#[derive(Debug, Clone)]
pub struct Store {
    handle: Arc<Handle>,
}

/// Keeps a store open. Its thread does not hold one.
#[derive(Debug)]
struct Handle {
    shared: Arc<Shared>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.shared.open.is_forked() {
            // A copy in a forked child: to drop the store would be to wait for a thread that is not
            // there, and for locks.
            std::mem::forget(Arc::clone(&self.shared));
            return;
        }
        // Whoever wants to know whether closing worked calls `Store::close`.
        let _ = close(&self.shared);
    }
}

impl Store {
    /// Opens the store in `path`, or creates it where the options allow it.
    ///
    /// After a fork the handle is the parent's alone: in the child every call is refused with
    /// [`umbel::Error::Forked`], and dropping the handle there does nothing. Open it after that.
    ///
    /// # Errors
    /// `Locked` where another process or handle has it open, `Invalid` where the folder is no event
    /// store, was written by a newer Umbel or an option is out of range, `Corruption` where files
    /// do not agree with what was written.
    pub fn open(path: impl AsRef<Path>, options: StoreOptions) -> Result<Store> {
        let shared = open::open(path.as_ref(), options)?;
        Ok(Store { handle: Arc::new(Handle { shared }) })
    }

    /// Opens the store in `path` for reading only and changes no byte of it. Appends through the
    /// handle are refused.
    ///
    /// Any number of handles, of this process and of others, read a store while one writes to it.
    /// Each sees every event acknowledged before this call, and stays at the state it opened. The
    /// writer keeps the files of that state until the handle is closed; on a medium where it cannot
    /// know of the reader (no `LOCK` file, or one that may not be read), it may remove them.
    ///
    /// Events that the index lacks are read from the log and indexed in memory. After a writer was
    /// killed these are the events of two chunks, about.
    ///
    /// # Errors
    /// As [`Store::open`], without `Locked`; `Invalid` where the index is missing, or lacks more
    /// events than half of `memory_bytes` can hold: open the store for writing once.
    /// [`umbel::Error::Stale`] where the writer changed the store during each attempt to read it,
    /// or later removed a file: open it again.
    pub fn open_read_only(path: impl AsRef<Path>, options: StoreOptions) -> Result<Store> {
        let shared = open_read_only::open(path.as_ref(), options)?;
        Ok(Store { handle: Arc::new(Handle { shared }) })
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.handle.shared
    }

    /// A random id for an event.
    pub fn new_id(&self) -> Result<EventId> {
        self.shared().new_id()
    }

    /// Appends events to a stream, all or none, and returns once that is acknowledged.
    ///
    /// # Errors
    /// `WrongExpected` where the stream is not as expected and the events are not there already,
    /// `Deleted` where it was tombstoned, `TooLarge` and `Invalid` for what is over a limit.
    pub fn append(
        &self,
        stream: &str,
        expected: Expected,
        events: &[NewEvent<'_>],
    ) -> Result<Appended> {
        let appends = [StreamAppend { stream, expected, events }];
        let answers = self.submit(&Request { appends: &appends, checks: &[] })?.wait()?;
        Ok(answers[0])
    }

    /// Appends to several streams, all or nothing, if these and others are as expected. One answer
    /// for each stream that was to be appended to.
    ///
    /// # Errors
    /// As [`Store::append`], for the first stream that is not as expected.
    pub fn append_together(
        &self,
        appends: &[StreamAppend<'_>],
        checks: &[Check<'_>],
    ) -> Result<Vec<Appended>> {
        self.submit(&Request { appends, checks })?.wait()
    }

    /// Begins an append: decides about it and gives it its place in the log, but does not wait
    /// until it is acknowledged. Appends take effect in the order in which they were submitted.
    /// Before it is acknowledged it promises nothing: a store whose appends are synced keeps it in
    /// memory.
    ///
    /// # Errors
    /// As [`Store::append`]; then nothing was written.
    pub fn submit(&self, request: &Request<'_>) -> Result<Ticket> {
        self.submit_checked(request).map_err(Error::of_first)
    }

    /// Begins an append as [`Store::submit`] does, and tells of every stream that is not as
    /// expected instead of the first one only.
    ///
    /// # Errors
    /// As [`Store::append`], but `NotAsExpected` in place of `WrongExpected`, and of `Deleted` but
    /// where the stream whose metadata it would be was tombstoned.
    pub fn submit_checked(&self, request: &Request<'_>) -> Result<Ticket> {
        self.shared().prefetch(request);
        request.check()?;
        self.begin(&Task::Append(*request))
    }

    /// Begins appends one after the other as [`Store::submit`] does each, for less than it costs to
    /// begin each of them: those that need no sync are put into the index together. One answer for
    /// each; that one is refused says nothing of the others.
    pub fn submit_each(&self, requests: &[Request<'_>]) -> Vec<Result<Ticket>> {
        let done = self.shared().submit_each(requests);
        done.into_iter().map(|done| self.ticket(done).map_err(Error::of_first)).collect()
    }

    /// Begins an append as [`Store::submit`] does, for a thread that must not wait; `None` where
    /// that would have to, be it for another who appends, for a new chunk or for flushes that are
    /// behind, and where the append is refused: then [`Store::submit`] has the answer. It may read
    /// what is in no cache, as every read may.
    pub fn try_submit(&self, request: &Request<'_>) -> Option<Ticket> {
        let done = self.shared().try_submit(request)?;
        self.ticket(Ok(done)).ok()
    }

    fn begin(&self, task: &Task<'_>) -> Result<Ticket> {
        self.ticket(self.shared().submit(task))
    }

    fn ticket(&self, done: Result<(Vec<Appended>, u64)>) -> Result<Ticket> {
        let (answers, position) = done?;
        Ok(Ticket { shared: Arc::clone(self.shared()), answers, position })
    }

    /// Deletes a stream: its events can no longer be read from it, and the next append goes on
    /// with the revision that would have been next. Deleting it again changes nothing.
    ///
    /// # Errors
    /// As [`Store::append`]; `WrongExpected` also where it never had an event.
    pub fn delete(&self, stream: &str, expected: Expected) -> Result<Appended> {
        self.end_stream(stream, &Task::Delete(stream, expected))
    }

    /// Deletes a stream for good: it can never be read or written again.
    ///
    /// # Errors
    /// As [`Store::append`].
    pub fn tombstone(&self, stream: &str, expected: Expected) -> Result<Appended> {
        self.end_stream(stream, &Task::Tombstone(stream, expected))
    }

    fn end_stream(&self, stream: &str, task: &Task<'_>) -> Result<Appended> {
        crate::names::check_stream(stream)?;
        if crate::names::subject(stream).is_some() {
            return Err(Error::invalid(format!(
                "'{}' holds metadata and lives as long as its stream; append other metadata \
                 instead",
                stream.escape_debug()
            )));
        }
        Ok(self.begin(task)?.wait()?[0])
    }

    /// The events of a stream from a revision on, that one included. A stream that is missing or
    /// was deleted has none; where it was tombstoned the first item is an error.
    pub fn read(&self, stream: &str, from: Revision, direction: Direction) -> StreamReader {
        StreamReader::new(self.shared(), stream, from, direction)
    }

    /// All events of the store from a position on, that one included when reading forwards, not
    /// included when reading backwards. What is appended meanwhile is met by who reads forwards.
    pub fn read_all(&self, from: Position, direction: Direction) -> AllReader {
        AllReader::new(self.shared(), from, direction)
    }

    /// The events of a view from a number on, that one included: `$ce-` and a category has the
    /// events of all streams whose names begin with it and a hyphen, `$et-` and a type those of
    /// that type, `$streams` the first one of each stream. Of events behind `through` nothing is
    /// there. A view without events has none to be read; for another name the first item is an
    /// error.
    pub fn read_view(
        &self,
        view: &str,
        from: Revision,
        direction: Direction,
        through: Position,
    ) -> ViewReader {
        ViewReader::new(self.shared(), view, from, direction, through)
    }

    /// What can be read of a view up to the position `through`; `None` where no event was in it.
    ///
    /// # Errors
    /// `Invalid` where this is the name of no view.
    pub fn view(&self, view: &str, through: Position) -> Result<Option<ViewState>> {
        self.shared().check_open()?;
        view_reader::state(self.shared(), view, through)
    }

    /// Categories or types that begin with `prefix`, in order of their bytes, behind the name
    /// `after`, with how many events each has; at most `most` of them. Of [`ViewKind::Streams`]
    /// there is one, whose name is empty.
    pub fn views(
        &self,
        kind: ViewKind,
        prefix: &str,
        after: Option<&str>,
        most: usize,
    ) -> Result<Vec<(String, u64)>> {
        self.shared().check_open()?;
        Ok(self.shared().index.views.list(kind, prefix, after, most)?)
    }

    /// The events of the store that pass a filter, from a position on as for [`Store::read_all`].
    pub fn read_filtered(
        &self,
        from: Position,
        direction: Direction,
        filter: Arc<EventFilter>,
    ) -> FilteredReader {
        FilteredReader::new(self.shared(), from, direction, filter)
    }

    /// A subscription: the events there are behind a place, then those that come.
    ///
    /// # Errors
    /// `Deleted` where the stream was tombstoned and its end was asked for.
    pub fn subscribe(&self, what: Subscribed, since: Since) -> Result<Subscription> {
        Subscription::new(self.shared(), what, since)
    }

    /// The event, or, where it is a link, what it points to. A link to a link is not followed.
    pub fn resolve(&self, event: RecordedEvent) -> Result<ResolvedEvent> {
        links::resolve(self.shared(), event)
    }

    /// What there is of a stream.
    pub fn stream(&self, stream: &str) -> Result<StreamState> {
        self.shared().check_open()?;
        Ok(StreamState::of(&read::known(self.shared(), stream)?))
    }

    /// Names of streams that begin with `prefix`, in order of their bytes, behind the name
    /// `after`; at most `most` of them. Streams that were deleted, tombstoned or hold metadata are
    /// among them.
    pub fn streams(
        &self,
        prefix: &str,
        after: Option<&str>,
        most: usize,
    ) -> Result<Vec<(String, StreamState)>> {
        self.shared().check_open()?;
        read::streams(self.shared(), prefix, after, most)
    }

    /// The position of the last event that can be seen.
    pub fn visible(&self) -> Position {
        Position(self.shared().visible.position())
    }

    /// Waits until an event behind `position` can be seen, at most as long as said, and returns up
    /// to where can be seen then. Closing the store ends the wait, and in a forked child there is
    /// none.
    pub fn wait_beyond(&self, position: Position, most: Duration) -> Position {
        Position(self.shared().visible.wait_beyond(position.0, most))
    }

    /// Calls `callback` once, with the position of the last event, when an event can be seen that
    /// could not when this returned and that is watched for, or when the store is closed; never
    /// where the watch is dropped before. It runs on the thread that appended and must not keep it
    /// or append, but may let go of the last handle; where the store is closed already, it runs
    /// here. A watch that it makes itself while it is told of the close tells it nothing new and is
    /// not called. Where it panics, the panic is reported and goes no further: others are called
    /// all the same.
    ///
    /// Nothing is missed by who makes the watch first, then reads, and waits only after that.
    pub fn watch(
        &self,
        watched: Watched<'_>,
        callback: impl FnOnce(Position) + Send + 'static,
    ) -> Watch {
        let stream = match watched {
            // Which views an event is in is not looked at where somebody waits.
            Watched::All | Watched::View(_) => None,
            Watched::Stream(name) => Some(self.shared().existence.hash(name)),
        };
        let callback = Box::new(move |position| callback(Position(position)));
        self.shared().visible.watch(stream, callback)
    }

    /// Makes every append so far durable: it survives power loss from then on.
    pub fn sync(&self) -> Result<()> {
        self.shared().check_writable()?;
        self.shared().sync_log()
    }

    /// Makes the index durable as it stands, so that nothing is read again from the log when the
    /// store is opened after a crash.
    pub fn flush(&self) -> Result<()> {
        self.shared().flush_index()
    }

    /// What the store consists of.
    pub fn stats(&self) -> Result<Stats> {
        stats::of(self.shared())
    }

    /// Where the store's directory is: looks at the path by which it was opened.
    pub fn directory(&self) -> umbel::DirectoryStats {
        self.shared().directory()
    }

    /// Why nothing can be written any more until the store is opened again; `None` where it can.
    pub fn failure(&self) -> Option<String> {
        self.shared().failed.get().cloned()
    }

    /// Which filters of the index are kept and why, for each of its keyspaces.
    ///
    /// # Errors
    /// The store was closed.
    pub fn advice(&self) -> Result<Vec<umbel::FilterAdvice>> {
        self.shared().check_open()?;
        Ok(self.shared().index.db().advice())
    }

    /// Reads every event and the index and checks that they agree. Damage is in the report, not in
    /// the error.
    ///
    /// # Errors
    /// What the system refuses to read, of which nobody knows whether it is damaged.
    pub fn verify(&self) -> Result<VerifyReport> {
        self.shared().check_open()?;
        verify::verify(self.shared())
    }

    /// Gives back the space of events that nobody can read from their streams any more, while all
    /// else goes on, and returns when that is done. `docs/event-store.md` says what goes.
    ///
    /// # Errors
    /// `Invalid` where somebody scavenges already or the store is open for reading only; `Full`
    /// where the disk has no room: nothing is lost, and another scavenge goes on where this ended.
    pub fn scavenge(&self, options: &ScavengeOptions) -> Result<ScavengeReport> {
        scavenge::run(self.shared(), options)
    }

    /// As [`Store::scavenge`], on a thread of its own.
    ///
    /// # Errors
    /// `Invalid` where somebody scavenges already or the store is open for reading only.
    pub fn start_scavenge(&self, options: &ScavengeOptions) -> Result<Scavenge> {
        scavenge::start(self.shared(), options)
    }

    /// Backs up everything that was appended before the call, and perhaps some of what came after,
    /// while the store is used: up to the position that the report names, nothing is missing. The
    /// target is an empty or missing folder, or one with an earlier backup of this store, of which
    /// only what is new is copied. [`restore`](crate::restore) makes a store of it.
    ///
    /// # Errors
    /// `Invalid` where the folder holds anything else, `Corruption` where the event log is damaged,
    /// and what the disk refuses. The backup that was there before is there then.
    pub fn backup(
        &self,
        target: impl AsRef<Path>,
        options: CopyOptions<'_>,
    ) -> Result<BackupReport> {
        backup::backup(self.shared(), target.as_ref(), options)
    }

    /// Begins an import of events of another store, which keep their ids, times and revisions.
    ///
    /// # Errors
    /// Where nothing can be written.
    pub fn import(&self) -> Result<Import> {
        Import::new(self.shared())
    }

    /// Closes the store for every handle: makes everything durable and writes down where each file
    /// ends, so that the next open notices any change to them. Whoever waits is woken.
    pub fn close(self) -> Result<()> {
        close(self.shared())
    }

    /// The store's folder.
    pub fn path(&self) -> &Path {
        &self.shared().folder
    }
}

fn close(shared: &Arc<Shared>) -> Result<()> {
    shared.check_process()?;
    if !shared.open.close() {
        return Ok(());
    }
    close_once(shared)
}

fn close_once(shared: &Arc<Shared>) -> Result<()> {
    background::stop(shared);
    shared.scavenger.wait_until_free();
    let closed = if shared.read_only { Ok(()) } else { close_files(shared) };
    shared.callbacks.run(&shared.parts);
    shared.visible.end();
    let index = shared.index.db().clone().close();
    shared.log.kept.end();
    *locked(&shared.pin) = None;
    closed?;
    Ok(index?)
}

/// Ends the log and makes it and the index durable.
fn close_files(shared: &Shared) -> Result<()> {
    // Whoever flushes has to be done, and who comes later sees that the store is closed: nobody
    // meets an index that was closed under him.
    let _flusher = locked(&shared.flusher);
    if let Some(reason) = shared.failed.get() {
        return Err(umbel::Error::ReadOnly(reason.clone()).into());
    }
    // Whoever puts appends into the index has to be done: he would put an older head over a newer.
    let driver = locked(&shared.driver);
    let mut appender = locked(&shared.appender);
    let Some(mut ending) = appender.take() else { return Ok(()) };
    shared.sync_log()?;
    ending.apply_queue(&shared.parts)?;
    ending.end.end(&shared.log)?;
    drop((appender, driver));
    shared.log.write_ends()?;
    let position = shared.visible.position();
    if shared.index.durable_through()? < position {
        shared.index.flush(&shared.log, position)?;
    }
    Ok(shared.existence.flush(&shared.log, position)?)
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;

#[cfg(test)]
#[cfg(target_os = "linux")]
#[path = "fork_tests.rs"]
mod fork_tests;
