//! Checks of an append before its submission, without the appender's lock.

use umbel_base::ignore_poison::IgnorePoison;

use crate::append::append_request::{AppendRequest, CheckedMetadata, StreamAppend};
use crate::append::position_window::PositionWindow;
use crate::append::written_prefix::WrittenPrefix;
use crate::shared_store_state::StoreInner;
use crate::types::error::Result;

/// Number of events up to which the appender itself compares an append with written events.
const COMPARED_EVENTS_MAX: usize = 1024;

impl StoreInner {
    /// Checks what needs no stream's state, and compares long appends with written events.
    pub fn check_append(&self, request: &AppendRequest<'_>) -> Result<CheckedMetadata> {
        let checked = request.check()?;
        let written = request.appends.iter().map(|append| match append.events.len() {
            0..=COMPARED_EVENTS_MAX => None,
            _ => self.written_prefix(append),
        });
        Ok(checked.with_written(written.collect()))
    }

    /// Compares the events of an append with those that the stream has where a retry would have
    /// them, up to the first difference. An error ends the comparison, and is left to the appender.
    pub fn written_prefix(&self, append: &StreamAppend<'_>) -> Option<WrittenPrefix> {
        self.check_writable().ok()?;
        // Before any event is read.
        let replacements = self.log.chunks.replacements();
        let (first, head) = {
            let mut appender = self.appender.lock().ignore_poison();
            appender.as_mut()?.retry_candidate(&self.components, append)?
        };
        let (mut cursor, mut window) = (self.log.cursor(), PositionWindow::default());
        let mut events = 0;
        for (revision, event) in (first..=head.last_revision).zip(append.events) {
            // The index can lack queued appends, and the stream's last event.
            let range = (revision, head.last_revision);
            let Ok(Some(position)) = window.position(&self.index, head.id, range) else { break };
            match cursor.find_event(position) {
                Ok(Some(frame)) if frame.event.id == event.id => events += 1,
                _ => break,
            }
        }
        Some(WrittenPrefix { first, events, replacements })
    }
}
