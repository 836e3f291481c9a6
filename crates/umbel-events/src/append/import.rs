//! [`Import`]: events of another store, appended with the ids, times and revisions they had there.

use std::cell::Cell;
use std::sync::Arc;

use crate::appender::Task;
use crate::error::{Error, Result};
use crate::event::Position;
use crate::imported::{ImportTask, Imported, ImportedEvent};
use crate::limits::EVENT_BYTES_MAX;
use crate::names;
use crate::settings::Settings;
use crate::shared::Shared;

/// So many events are made durable and visible at a time, where the store syncs.
const EVENTS_AT_ONCE: usize = 1000;
/// Units of 100 ns in a day.
const DAY: u64 = 24 * 60 * 60 * 10_000_000;

/// What an import did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ImportReport {
    /// Events that were appended.
    pub events: u64,
    /// Events that had been there before.
    pub were_there: u64,
    /// Events whose time was earlier than that of the event before them in this store, and which
    /// were given that one's.
    pub moved_times: u64,
    /// The most that a time was moved, in units of 100 ns.
    pub moved_most: u64,
    /// Revisions between imported events that the source does not have.
    pub missing: u64,
    /// Events with metadata of streams that is not what it must be: they are kept, and say nothing.
    pub unreadable_metadata: u64,
    /// The position of the last event that was appended or had been there; 0 where there is none.
    pub position: Position,
}

/// An import on its way. Made by [`Store::import`](crate::Store::import).
///
/// It takes events in the order of the other store. One that is there already, with its id at its
/// revision, is passed over, so that an import which did not come to its end is simply done again.
/// What is there of the settings of streams is not looked at: nothing is hidden, undeleted or
/// refused for them on the way, since the events that say so come along.
#[derive(Debug)]
pub struct Import {
    shared: Arc<Shared>,
    report: ImportReport,
    unseen: usize,
}

impl Import {
    pub(crate) fn new(shared: &Arc<Shared>) -> Result<Import> {
        shared.check_writable()?;
        let report = ImportReport::default();
        Ok(Import { shared: Arc::clone(shared), report, unseen: 0 })
    }

    /// Takes an event.
    ///
    /// # Errors
    /// `Invalid` where its stream has another event in its place or cannot be written to, where it
    /// was created more than a day after now, since no later event may have an earlier time; and
    /// as [`Store::append`](crate::Store::append). Then it was not taken, and others can be.
    pub fn add(&mut self, event: &ImportedEvent<'_>) -> Result<Imported> {
        self.check(event)?;
        let (moved, missing) = (Cell::new(0), Cell::new(0));
        let task = ImportTask { event: *event, moved, missing };
        let (answers, position) = self.shared.submit(&Task::Import(&task))?;
        let report = &mut self.report;
        report.position = report.position.max(Position(position));
        let Some(answer) = answers.first() else {
            return Err(Error::invalid("internal: an import without an answer"));
        };
        if answer.was_there {
            report.were_there += 1;
        } else {
            report.events += 1;
            report.moved_times += u64::from(task.moved.get() > 0);
            report.moved_most = report.moved_most.max(task.moved.get());
            report.missing += task.missing.get();
            let subject = names::subject(event.stream);
            let is_read = subject.is_none_or(|s| Settings::parse(s, event.event.data).is_ok());
            report.unreadable_metadata += u64::from(!is_read);
        }
        self.unseen += 1;
        if self.unseen >= EVENTS_AT_ONCE {
            self.settle()?;
        }
        let revision = answer.first.unwrap_or(0);
        Ok(Imported { revision, position, was_there: answer.was_there })
    }

    fn check(&self, event: &ImportedEvent<'_>) -> Result<()> {
        names::check_stream(event.stream)?;
        names::check_kind(event.event.kind)?;
        let bytes = (event.event.data.len() + event.event.metadata.len()) as u64;
        if bytes > EVENT_BYTES_MAX as u64 {
            let most = EVENT_BYTES_MAX as u64;
            return Err(Error::TooLarge { event: Some(event.event.id), bytes, most });
        }
        let now = self.shared.env.clock.wall_micros().saturating_mul(10);
        if event.created.is_some_and(|created| created > now.saturating_add(DAY)) {
            return Err(Error::invalid(
                "it was created more than a day after now, and no later event could have an \
                 earlier time; mend its time, or the clock",
            ));
        }
        Ok(())
    }

    /// Waits until what was taken is acknowledged.
    fn settle(&mut self) -> Result<()> {
        self.unseen = 0;
        self.shared.drive(self.report.position.0)
    }

    /// Makes everything durable, and says what was done.
    ///
    /// # Errors
    /// Where it could not be made durable or indexed; then the same import can be done again.
    pub fn finish(mut self) -> Result<ImportReport> {
        self.settle()?;
        self.shared.sync_log()?;
        Ok(self.report)
    }
}
