//! [`Scanner`]: reads a range of keys in one snapshot, a page at a time.

use std::ops::Bound;

use prost::bytes::Bytes;
use tonic::{Code, Status};
use umbel::{Error, Keyspace, Snapshot};
use umbel_base::damage_count::StoreError;
use umbel_proto::kv::Entry;

use crate::limits::{EVENT_OVERHEAD_BYTES, KV_VALUE_BYTES_MAX, PAGE_BYTES, SCAN_ENTRIES_MAX};
use crate::protocol::grpc_status;

/// gRPC status of a failed read.
#[derive(Debug)]
pub struct ReadError(pub Status);

impl From<Error> for ReadError {
    fn from(error: Error) -> ReadError {
        ReadError(grpc_status::engine_status(&error))
    }
}

impl StoreError for ReadError {
    fn is_store_damage(&self) -> bool {
        self.0.code() == Code::DataLoss
    }
}

/// Range of keys of a scan.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScanRange {
    /// First key; empty means from the first key of the keyspace.
    pub start: Vec<u8>,
    /// First key after the range; `None` means to the last key of the keyspace.
    pub end: Option<Vec<u8>>,
}

/// A scan in progress.
#[derive(Debug)]
pub struct Scanner {
    keyspace: Keyspace,
    /// The part of the range that is not read yet.
    range: ScanRange,
    is_reverse: bool,
    keys_only: bool,
    /// Maximum number of keys that can still follow.
    remaining: u64,
}

/// One page of keys of a scan.
#[derive(Debug, Default)]
pub struct ScanPage {
    /// Entries in the order of the scan.
    pub entries: Vec<Entry>,
    /// Bytes of the entries' keys and values.
    pub bytes: usize,
    /// Whether this is the last page.
    pub is_last: bool,
}

impl ScanRange {
    /// Creates the range of keys with this prefix from `start` up to `end`, exclusive; an empty
    /// `end` is no bound.
    pub fn new(prefix: &[u8], start: Vec<u8>, end: Vec<u8>) -> ScanRange {
        let end = Some(end).filter(|end| !end.is_empty());
        let end = match (end, prefix_end(prefix)) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        ScanRange { start: start.max(prefix.to_vec()), end }
    }

    /// Whether the range can contain no key.
    pub fn is_empty(&self) -> bool {
        self.end.as_ref().is_some_and(|end| *end <= self.start)
    }
}

/// First key after all keys with this prefix; `None` if no key can follow.
fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut key = prefix[..=last].to_vec();
    key[last] += 1;
    Some(key)
}

impl Scanner {
    /// Creates a scan of at most `limit` keys of a range; 0 means no limit.
    pub fn new(keyspace: Keyspace, range: ScanRange, limit: u64) -> Scanner {
        let left = if limit == 0 { u64::MAX } else { limit };
        Scanner { keyspace, range, is_reverse: false, keys_only: false, remaining: left }
    }

    /// Sets whether the last key comes first.
    pub fn reversed(self, is_reverse: bool) -> Scanner {
        Scanner { is_reverse, ..self }
    }

    /// Sets whether values are left out.
    pub fn without_values(self, keys_only: bool) -> Scanner {
        Scanner { keys_only, ..self }
    }

    /// Reads the next page from `snapshot`; returns the page and the scan of the remaining range.
    pub fn page(mut self, snapshot: &Snapshot) -> Result<(ScanPage, Scanner), ReadError> {
        let mut page = ScanPage { is_last: true, ..ScanPage::default() };
        if self.range.is_empty() {
            return Ok((page, self));
        }
        let end = self.range.end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let bounds = (Bound::Included(&self.range.start[..]), end);
        let mut cursor = self.keyspace.cursor_at::<&[u8]>(snapshot, bounds)?;
        if self.is_reverse { cursor.seek_to_last() } else { cursor.seek_to_first() }?;
        while cursor.valid() {
            if page.entries.len() >= SCAN_ENTRIES_MAX
                || page.bytes >= PAGE_BYTES
                || self.remaining == 0
            {
                page.is_last = self.remaining == 0;
                break;
            }
            let key = Bytes::copy_from_slice(cursor.key());
            let value = match self.keys_only {
                true => Bytes::new(),
                false => Bytes::copy_from_slice(check_value_size(&key, cursor.value()?)?),
            };
            page.bytes += EVENT_OVERHEAD_BYTES + key.len() + value.len();
            page.entries.push(Entry { key, value });
            self.remaining -= 1;
            if self.is_reverse { cursor.prev() } else { cursor.next() }?;
        }
        drop(cursor);
        if let Some(last) = page.entries.last() {
            self.advance_past(&last.key);
        }
        Ok((page, self))
    }

    fn advance_past(&mut self, key: &[u8]) {
        if self.is_reverse {
            self.range.end = Some(key.to_vec());
        } else {
            self.range.start = [key, &[0]].concat();
        }
    }
}

/// Returns the value unless it exceeds the network limit. A process that had the store open
/// directly may have written longer values.
pub fn check_value_size<'a>(key: &[u8], value: &'a [u8]) -> Result<&'a [u8], ReadError> {
    if value.len() <= KV_VALUE_BYTES_MAX {
        return Ok(value);
    }
    Err(ReadError(Status::failed_precondition(format!(
        "the value of key {} has {} bytes; over the network the limit is {KV_VALUE_BYTES_MAX}: a \
         local process wrote this value into the store; read the value locally, too",
        key.escape_ascii(),
        value.len()
    ))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(prefix: &[u8], start: &[u8], end: &[u8]) -> (Vec<u8>, Option<Vec<u8>>) {
        let ScanRange { start, end } = ScanRange::new(prefix, start.to_vec(), end.to_vec());
        (start, end)
    }

    #[test]
    fn only_damage_is_store_damage() {
        let corruption = Error::corruption("/kv/7.table".as_ref(), 3, "bad");
        assert!(ReadError::from(corruption).is_store_damage());
        assert!(!ReadError::from(Error::Closed).is_store_damage());
        assert!(!ReadError(Status::internal("a disk")).is_store_damage());
    }

    #[test]
    fn prefix_and_bounds_are_intersected() {
        let of = |start: &[u8], end: Option<&[u8]>| (start.to_vec(), end.map(<[u8]>::to_vec));
        assert_eq!(range(b"", b"", b""), of(b"", None));
        assert_eq!(range(b"", b"b", b"d"), of(b"b", Some(b"d")));
        assert_eq!(range(b"b", b"", b""), of(b"b", Some(b"c")));
        assert_eq!(range(b"b", b"a", b"z"), of(b"b", Some(b"c")));
        assert_eq!(range(b"b", b"bc", b"be"), of(b"bc", Some(b"be")));
        assert_eq!(range(b"a\xff", b"", b""), of(b"a\xff", Some(b"b")));
        assert_eq!(range(b"\xff\xff", b"", b""), of(b"\xff\xff", None));
        assert!(ScanRange::new(b"b", b"c".to_vec(), Vec::new()).is_empty());
        assert!(ScanRange::new(b"", b"c".to_vec(), b"c".to_vec()).is_empty());
        assert!(!ScanRange::new(b"", Vec::new(), Vec::new()).is_empty());
    }
}
