//! Early write-back of the WAL to the device, before a writer waits for a sync.

use std::ops::Range;
use std::sync::Arc;

use umbel_env::File;
use umbel_log::LogWriter;

use crate::wal::segment_types::WalTask;

/// Bytes of one step of write-back of the current segment. Linux caches files in pieces of up to a
/// huge page and writes pieces whole. With shorter steps a tenth of the WAL was written twice.
const STEP_BYTES: u64 = 2 << 20;

/// Progress of the WAL's write-back.
#[derive(Debug, Default)]
pub(super) struct WriteBack {
    /// Offset in the current segment up to which write-back was started.
    next_offset: u64,
    /// Ranges of old segments that are still to be written back.
    old_tails: Vec<(Arc<dyn File>, Range<u64>)>,
}

impl WriteBack {
    /// Offset in the current segment up to which write-back was started.
    pub(super) fn begun(&self) -> u64 {
        self.next_offset
    }

    /// Records that the current segment has ended at offset `len`.
    pub(super) fn end(&mut self, file: Arc<dyn File>, len: u64) {
        self.old_tails.push((file, std::mem::take(&mut self.next_offset)..len));
    }

    /// Returns the next range to write back; the bytes of such a range do not change any more.
    pub(super) fn next(&mut self, current: Option<&LogWriter>) -> Option<WalTask> {
        if let Some((file, range)) = self.old_tails.pop() {
            return Some(WalTask::WriteBack(file, None, range));
        }
        let writer = current?;
        // The page after the last whole step will be written once more.
        let end = writer.end() / STEP_BYTES * STEP_BYTES;
        let range = std::mem::replace(&mut self.next_offset, end)..end;
        (!range.is_empty()).then(|| WalTask::WriteBack(writer.file(), writer.prefaulter(), range))
    }
}
