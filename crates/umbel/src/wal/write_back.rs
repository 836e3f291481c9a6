//! What of the log is to be written back to the device before anybody waits for it.

use std::ops::Range;
use std::sync::Arc;

use umbel_env::File;
use umbel_log::LogWriter;

use super::segment::Chore;

/// The current segment is written back in multiples of so much. Linux keeps files in pieces of up
/// to a huge page and writes these whole: with shorter steps a tenth of the log went out twice.
const STEP_BYTES: u64 = 2 << 20;

/// How far writing back was begun.
#[derive(Debug, Default)]
pub(super) struct WriteBack {
    /// Up to where of the current segment.
    begun: u64,
    /// Ends of old segments that are left.
    ended: Vec<(Arc<dyn File>, Range<u64>)>,
}

impl WriteBack {
    /// Up to where writing back the current segment was begun.
    pub(super) fn begun(&self) -> u64 {
        self.begun
    }

    /// Notes that the current segment ends at `len` for good.
    pub(super) fn end(&mut self, file: Arc<dyn File>, len: u64) {
        self.ended.push((file, std::mem::take(&mut self.begun)..len));
    }

    /// What to write back next, because it will not change any more.
    pub(super) fn next(&mut self, current: Option<&LogWriter>) -> Option<Chore> {
        if let Some((file, range)) = self.ended.pop() {
            return Some(Chore::WriteBack(file, None, range));
        }
        let writer = current?;
        // The page behind the last whole step will be written to once more.
        let end = writer.end() / STEP_BYTES * STEP_BYTES;
        let range = std::mem::replace(&mut self.begun, end)..end;
        (!range.is_empty()).then(|| Chore::WriteBack(writer.file(), writer.populator(), range))
    }
}
