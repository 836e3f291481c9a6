//! Early write-back of the WAL to the device, before a writer waits for a sync.

use std::ops::Range;
use std::sync::Arc;

use umbel_env::File;
use umbel_log::LogWriter;

use crate::wal::segment_types::WalTask;

/// Granularity of write-back of the current segment. Linux keeps files in pieces of up to a huge
/// page and writes these whole. With shorter steps a tenth of the WAL was written twice.
const STEP_BYTES: u64 = 2 << 20;

/// Progress of write-back.
#[derive(Debug, Default)]
pub(super) struct WriteBack {
    /// Offset in the current segment up to which write-back was started.
    next_offset: u64,
    /// Remaining ranges of old segments.
    old_tails: Vec<(Arc<dyn File>, Range<u64>)>,
}

impl WriteBack {
    /// Offset up to which write-back of the current segment was started.
    pub(super) fn begun(&self) -> u64 {
        self.next_offset
    }

    /// Records that the current segment ends at `len` for good.
    pub(super) fn end(&mut self, file: Arc<dyn File>, len: u64) {
        self.old_tails.push((file, std::mem::take(&mut self.next_offset)..len));
    }

    /// The next range to write back, which will not change any more.
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
