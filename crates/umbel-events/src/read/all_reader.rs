//! [`AllReader`]: all events (`$all`) by position.

use std::sync::Arc;

use crate::event_log::LogCursor;
use crate::event_log::event_format::Frame;
use crate::read::read_item::ReadItem;
use crate::read::stream_reader::StreamItem;
use crate::shared_store_state::StoreInner;
use crate::types::error::Result;
use crate::types::event::{Direction, Position, RecordedEvent};

/// All events of a store by position. Returned by [`Store::read_all`](crate::Store::read_all).
///
/// A forward reader returns `None` while no more events are visible, and continues once new events
/// are visible. After an error, the reader ends.
#[derive(Debug)]
pub struct AllReader {
    shared: Arc<StoreInner>,
    cursor: LogCursor,
    direction: Direction,
    position: ReadPosition,
    /// Number of events and stubs that were read.
    examined: u64,
}

/// Result of one step of a read of all events.
#[derive(Debug)]
pub(crate) enum AllStep<T> {
    /// Result for the next event.
    Event(T),
    /// The step skipped the maximum of scavenged events, up to this position.
    Skipped(u64),
    /// No more events are visible.
    End,
}

#[derive(Debug, Clone, Copy)]
enum ReadPosition {
    /// Nothing was read yet.
    Start(u64),
    /// The event at this position was read last, and the next event begins at this distance after
    /// it.
    After(u64, u64),
    /// The next event is at this position.
    Event(u64),
    /// No more events follow.
    End,
}

impl AllReader {
    pub(crate) fn new(shared: &Arc<StoreInner>, from: Position, direction: Direction) -> AllReader {
        let (shared, cursor) = (Arc::clone(shared), shared.log.cursor());
        AllReader { shared, cursor, direction, position: ReadPosition::Start(from.0), examined: 0 }
    }

    /// Returns the result of `visit` for the next event, which is not copied. Skips at most `limit`
    /// scavenged events.
    pub(crate) fn next_with<T>(
        &mut self,
        limit: usize,
        visit: impl FnOnce(Frame<'_>) -> T,
    ) -> Result<AllStep<T>> {
        let read = self.shared.check_open().and_then(|()| match self.direction {
            Direction::Forwards => self.forwards(limit, visit),
            Direction::Backwards => self.backwards(limit, visit),
        });
        if read.is_err() {
            self.position = ReadPosition::End;
        }
        read
    }

    fn forwards<T>(
        &mut self,
        limit: usize,
        visit: impl FnOnce(Frame<'_>) -> T,
    ) -> Result<AllStep<T>> {
        let mut last = 0;
        for _ in 0..limit.max(1) {
            let visible = self.shared.visible.position();
            let next = match self.position {
                ReadPosition::Start(position) => self.first_at_or_after(position)?,
                ReadPosition::After(position, step) => self.cursor.next_position(position, step)?,
                ReadPosition::Event(position) => Some(position),
                ReadPosition::End => None,
            };
            let seen = next.filter(|position| *position <= visible);
            let Some(position) = seen else { return Ok(AllStep::End) };
            last = position;
            self.examined += 1;
            let Some(frame) = self.cursor.find_event(position)? else {
                // The event was scavenged just now.
                self.position = ReadPosition::Start(position + 1);
                continue;
            };
            self.position = ReadPosition::After(position, frame.next_distance());
            if !frame.is_stub {
                return Ok(AllStep::Event(visit(frame)));
            }
        }
        Ok(AllStep::Skipped(last))
    }

    /// Returns the position of the first event at or after `position`. A reader that continues
    /// after an event passes the position after its first byte, where no event begins. The frame of
    /// the event read last holds the distance to the next event, so no scan from the start of the
    /// chunk is needed.
    fn first_at_or_after(&mut self, position: u64) -> Result<Option<u64>> {
        if self.cursor.find_event(position).is_err()
            && let Some(before) = position.checked_sub(1)
            && let Ok(Some(frame)) = self.cursor.find_event(before)
        {
            let step = frame.next_distance();
            return Ok(self.cursor.next_position(before, step)?);
        }
        Ok(self.cursor.seek(position)?)
    }

    fn backwards<T>(
        &mut self,
        limit: usize,
        visit: impl FnOnce(Frame<'_>) -> T,
    ) -> Result<AllStep<T>> {
        let mut last = 0;
        for _ in 0..limit.max(1) {
            let visible = self.shared.visible.position();
            let next = match self.position {
                ReadPosition::Start(position) => {
                    self.cursor.seek_before(position.min(visible + 1))?
                }
                ReadPosition::Event(position) => Some(position),
                ReadPosition::After(..) | ReadPosition::End => None,
            };
            self.position = ReadPosition::End;
            let Some(position) = next else { return Ok(AllStep::End) };
            last = position;
            self.examined += 1;
            if position > visible {
                // The search for the end of the log also finds events that were appended meanwhile.
                self.position = ReadPosition::Start(position);
                continue;
            }
            let Some(frame) = self.cursor.find_event(position)? else {
                // The event was scavenged just now.
                self.position = ReadPosition::Start(position);
                continue;
            };
            let (back, is_stub) = (frame.meta.back, frame.is_stub);
            if is_stub {
                let before = self.cursor.previous_position(position, back)?;
                self.position = before.map_or(ReadPosition::End, ReadPosition::Event);
                continue;
            }
            let seen = visit(frame);
            let before = self.cursor.previous_position(position, back)?;
            self.position = before.map_or(ReadPosition::End, ReadPosition::Event);
            return Ok(AllStep::Event(seen));
        }
        Ok(AllStep::Skipped(last))
    }

    /// Number of events that were examined so far, scavenged ones included.
    pub fn examined(&self) -> u64 {
        self.examined
    }

    /// Returns the next event, but skips at most `limit` scavenged events.
    pub fn next_within(&mut self, limit: usize) -> Result<StreamItem> {
        let step = self.next_with(limit, |frame| frame.to_recorded());
        Ok(match self.shared.damage.record(step)? {
            AllStep::Event(event) => StreamItem::Event(event),
            AllStep::Skipped(_) => StreamItem::Skipped,
            AllStep::End => StreamItem::End,
        })
    }
}

impl Iterator for AllReader {
    type Item = Result<RecordedEvent>;

    fn next(&mut self) -> Option<Result<RecordedEvent>> {
        ReadItem::next_event(|limit| self.next_within(limit))
    }
}
