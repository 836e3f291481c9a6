//! [`RecordQueue`]: records that wait for their export, in bounded memory.

use std::collections::VecDeque;
use std::sync::Mutex;

use tokio::sync::Notify;
use umbel_base::ignore_poison::IgnorePoison;

use crate::limits::{OTLP_BATCH_RECORDS, OTLP_QUEUE_BYTES_MAX, OTLP_QUEUE_RECORDS_MAX};
use crate::telemetry::otlp::telemetry_record::QueuedRecord;

/// Records that wait for their export. A full queue rejects new records; no thread waits for it.
#[derive(Debug)]
pub struct RecordQueue<T> {
    records: Mutex<Records<T>>,
    /// Notified once a batch is complete.
    batch_ready: Notify,
}

#[derive(Debug)]
struct Records<T> {
    waiting: VecDeque<T>,
    bytes: usize,
}

impl<T> Default for RecordQueue<T> {
    fn default() -> RecordQueue<T> {
        let records = Mutex::new(Records { waiting: VecDeque::new(), bytes: 0 });
        RecordQueue { records, batch_ready: Notify::new() }
    }
}

impl<T: QueuedRecord> RecordQueue<T> {
    /// Adds a record. Returns `false` if the queue is full.
    pub fn push(&self, record: T) -> bool {
        let bytes = record.memory_bytes();
        let mut records = self.records.lock().ignore_poison();
        let is_full = records.waiting.len() >= OTLP_QUEUE_RECORDS_MAX
            || records.bytes + bytes > OTLP_QUEUE_BYTES_MAX;
        if is_full {
            return false;
        }
        records.bytes += bytes;
        records.waiting.push_back(record);
        let is_batch = records.waiting.len().is_multiple_of(OTLP_BATCH_RECORDS);
        drop(records);
        if is_batch {
            self.batch_ready.notify_one();
        }
        true
    }

    /// Removes and returns the oldest records, at most a batch.
    pub fn take_batch(&self) -> Vec<T> {
        let mut records = self.records.lock().ignore_poison();
        let count = records.waiting.len().min(OTLP_BATCH_RECORDS);
        let batch: Vec<T> = records.waiting.drain(..count).collect();
        records.bytes -= batch.iter().map(QueuedRecord::memory_bytes).sum::<usize>();
        batch
    }

    /// Waits until a batch is complete.
    pub async fn wait_batch(&self) {
        self.batch_ready.notified().await;
    }
}

impl<T> RecordQueue<T> {
    /// Number of records and their bytes.
    pub fn size(&self) -> (usize, usize) {
        let records = self.records.lock().ignore_poison();
        (records.waiting.len(), records.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Record(usize);

    impl QueuedRecord for Record {
        fn memory_bytes(&self) -> usize {
            self.0
        }
    }

    #[test]
    fn queue_is_bounded_by_records_and_by_bytes() {
        let queue = RecordQueue::default();
        let taken = (0..2 * OTLP_QUEUE_RECORDS_MAX).filter(|_| queue.push(Record(1))).count();
        assert_eq!(taken, OTLP_QUEUE_RECORDS_MAX);
        assert_eq!(queue.size(), (OTLP_QUEUE_RECORDS_MAX, OTLP_QUEUE_RECORDS_MAX));
        assert_eq!(queue.take_batch().len(), OTLP_BATCH_RECORDS);
        assert!(queue.push(Record(1)), "an export frees the queue");
        let queue = RecordQueue::default();
        assert!(queue.push(Record(OTLP_QUEUE_BYTES_MAX)));
        assert!(!queue.push(Record(1)));
        queue.take_batch();
        assert_eq!(queue.size(), (0, 0));
    }
}
