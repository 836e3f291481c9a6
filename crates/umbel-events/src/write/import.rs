//! [`Import`]: events of another store, appended with the ids, times and revisions that they had in
//! that store.

use std::cell::Cell;
use std::sync::Arc;

use crate::append::append_request;
use crate::append::appender::WriteTask;
use crate::shared_store_state::StoreInner;
use crate::types::error::{Error, Result};
use crate::types::event::Position;
use crate::types::imported_event::{ImportResult, ImportTask, ImportedEvent};
use crate::types::stream_metadata::RetentionRules;
use crate::types::stream_names;
use crate::write::pending_append::PendingAppend;

/// Number of events that one sync makes durable and visible, if the store syncs.
const EVENTS_PER_SYNC: usize = 1000;
/// Units of 100 ns in a day.
const DAY: u64 = 24 * 60 * 60 * 10_000_000;

/// Result of an import.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ImportReport {
    /// Events that were appended.
    pub events: u64,
    /// Events that existed before.
    pub duplicates: u64,
    /// Events that were created before their predecessor in this store, and got the predecessor's
    /// time.
    pub adjusted_times: u64,
    /// Largest change of a time, in units of 100 ns.
    pub largest_adjustment: u64,
    /// Revisions between imported events that the source does not have.
    pub missing_revisions: u64,
    /// Events with invalid stream metadata: they are kept, but have no effect.
    pub unreadable_metadata: u64,
    /// Position of the last event that was appended or existed before; 0 without events.
    pub position: Position,
}

/// An import in progress, returned by [`Store::import`](crate::Store::import).
///
/// The caller adds events in the order of the source store. An event whose id already exists at the
/// same revision of its stream is skipped. So an interrupted import can be repeated.
///
/// Existing stream metadata is ignored: it makes the import hide, undelete or refuse no event. The
/// source's metadata events are imported as well.
#[derive(Debug)]
pub struct Import {
    shared: Arc<StoreInner>,
    report: ImportReport,
    /// Events that are not acknowledged yet, and their number.
    pending: Option<PendingAppend>,
    pending_events: usize,
}

impl Import {
    pub(crate) fn new(shared: &Arc<StoreInner>) -> Result<Import> {
        shared.check_writable()?;
        let (shared, report) = (Arc::clone(shared), ImportReport::default());
        Ok(Import { shared, report, pending: None, pending_events: 0 })
    }

    /// Adds an event.
    ///
    /// # Errors
    /// `Invalid` in these cases:
    /// - The stream has another event at its revision, or cannot be written to.
    /// - The event's creation time is more than a day in the future. Every later event would have
    ///   to get a time at least as late.
    ///
    /// Also the errors of [`Store::append`](crate::Store::append). After an error, the event was
    /// not added; other events can be added.
    pub fn add(&mut self, event: &ImportedEvent<'_>) -> Result<ImportResult> {
        self.validate(event)?;
        let (moved, missing) = (Cell::new(0), Cell::new(0));
        // Outside the appender's lock.
        let rules = stream_names::metadata_subject(event.stream)
            .map(|subject| RetentionRules::parse(subject, event.event.data));
        let is_readable = !matches!(rules, Some(Err(_)));
        let task = ImportTask {
            event: *event,
            retention: rules.map(Result::unwrap_or_default),
            time_adjustment: moved,
            missing_revisions: missing,
        };
        let submitted = self.shared.submit(&WriteTask::Import(&task))?;
        let (result, position) = (submitted.results.first().copied(), submitted.position);
        match &mut self.pending {
            Some(pending) => pending.extend_to(submitted),
            None => self.pending = Some(submitted),
        }
        let report = &mut self.report;
        report.position = report.position.max(Position(position));
        let Some(result) = result else {
            return Err(Error::invalid("internal: an import without a result"));
        };
        if result.is_retry {
            report.duplicates += 1;
        } else {
            report.events += 1;
            report.adjusted_times += u64::from(task.time_adjustment.get() > 0);
            report.largest_adjustment = report.largest_adjustment.max(task.time_adjustment.get());
            report.missing_revisions += task.missing_revisions.get();
            report.unreadable_metadata += u64::from(!is_readable);
        }
        self.pending_events += 1;
        if self.pending_events >= EVENTS_PER_SYNC {
            self.wait_for_ack()?;
        }
        let revision = result.first.unwrap_or(0);
        Ok(ImportResult { revision, position, is_duplicate: result.is_retry })
    }

    fn validate(&self, event: &ImportedEvent<'_>) -> Result<()> {
        stream_names::check_stream(event.stream)?;
        stream_names::check_event_type(event.event.kind)?;
        append_request::check_event_bytes(&event.event)?;
        // The imported events may show that a clock is right that the store does not believe.
        let clock = self.shared.clock();
        let now = clock.stamp().unwrap_or_else(|_| clock.wall());
        if event.created.is_some_and(|created| created > now.saturating_add(DAY)) {
            return Err(Error::invalid(
                "the event's time is more than a day in the future, and no later event could have \
                 an earlier time; correct the event's time, or this machine's clock",
            ));
        }
        Ok(())
    }

    /// Waits until the added events are acknowledged.
    fn wait_for_ack(&mut self) -> Result<()> {
        self.pending_events = 0;
        self.pending.as_ref().map_or(Ok(()), PendingAppend::wait_acknowledged)?;
        self.pending = None;
        Ok(())
    }

    /// Makes everything durable and returns the report.
    ///
    /// # Errors
    /// A failure to make the events durable or to index them; the same import can then be repeated.
    pub fn finish(mut self) -> Result<ImportReport> {
        self.wait_for_ack()?;
        self.shared.damage.record(self.shared.sync_log())?;
        Ok(self.report)
    }
}
