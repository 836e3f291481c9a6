//! [`AllReader`]: all events (`$all`) by position.

use std::sync::Arc;

use crate::event_log::LogCursor;
use crate::event_log::event_format::Frame;
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
        AllReader { shared, cursor, direction, position: ReadPosition::Start(from.0) }
    }

    /// Returns the result of `visit` for the next event, which is not copied.
    pub(crate) fn next_with<T>(&mut self, visit: impl FnOnce(Frame<'_>) -> T) -> Option<Result<T>> {
        let read = self.shared.check_open().and_then(|()| match self.direction {
            Direction::Forwards => self.forwards(visit),
            Direction::Backwards => self.backwards(visit),
        });
        if read.is_err() {
            self.position = ReadPosition::End;
        }
        read.transpose()
    }

    fn forwards<T>(&mut self, visit: impl FnOnce(Frame<'_>) -> T) -> Result<Option<T>> {
        loop {
            let visible = self.shared.visible.position();
            let next = match self.position {
                ReadPosition::Start(position) => self.first_at_or_after(position)?,
                ReadPosition::After(position, step) => self.cursor.next_position(position, step)?,
                ReadPosition::Event(position) => Some(position),
                ReadPosition::End => None,
            };
            let seen = next.filter(|position| *position <= visible);
            let Some(position) = seen else { return Ok(None) };
            let Some(frame) = self.cursor.find_event(position)? else {
                // The event was scavenged just now.
                self.position = ReadPosition::Start(position + 1);
                continue;
            };
            self.position = ReadPosition::After(position, frame.next_distance());
            if !frame.is_stub {
                return Ok(Some(visit(frame)));
            }
        }
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

    fn backwards<T>(&mut self, visit: impl FnOnce(Frame<'_>) -> T) -> Result<Option<T>> {
        loop {
            let visible = self.shared.visible.position();
            let next = match self.position {
                ReadPosition::Start(position) => {
                    self.cursor.seek_before(position.min(visible + 1))?
                }
                ReadPosition::Event(position) => Some(position),
                ReadPosition::After(..) | ReadPosition::End => None,
            };
            self.position = ReadPosition::End;
            let Some(position) = next else { return Ok(None) };
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
            return Ok(Some(seen));
        }
    }
}

impl Iterator for AllReader {
    type Item = Result<RecordedEvent>;

    fn next(&mut self) -> Option<Result<RecordedEvent>> {
        self.next_with(|frame| frame.to_recorded())
    }
}
