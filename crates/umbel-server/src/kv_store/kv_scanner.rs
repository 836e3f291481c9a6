//! [`Scanner`]: a range of keys in one state, a page at a time.

use std::ops::Bound;

use prost::bytes::Bytes;
use tonic::Status;
use umbel::{Keyspace, Snapshot};
use umbel_proto::kv::Entry;

use super::ReadFailed;
use crate::limits::{EVENT_BYTES_BESIDE, KV_VALUE_BYTES_MAX, PAGE_BYTES, SCAN_ENTRIES_MAX};

/// The keys of a scan.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Range {
    /// The first one; from the first there is where it is empty.
    pub start: Vec<u8>,
    /// The one behind the last; to the last there is where there is none.
    pub end: Option<Vec<u8>>,
}

/// A scan on its way.
#[derive(Debug)]
pub struct Scanner {
    keyspace: Keyspace,
    /// What is left of it.
    range: Range,
    is_reverse: bool,
    keys_only: bool,
    /// How many keys may still come.
    left: u64,
}

/// Some keys of a scan.
#[derive(Debug, Default)]
pub struct ScanPage {
    /// In the order of the scan.
    pub entries: Vec<Entry>,
    /// Bytes of their keys and values.
    pub bytes: usize,
    /// Whether no more follow.
    pub is_last: bool,
}

impl Range {
    /// Keys that begin with this and lie from `start` up to, and without, `end`; an empty `end` is
    /// none.
    pub fn new(prefix: &[u8], start: Vec<u8>, end: Vec<u8>) -> Range {
        let end = Some(end).filter(|end| !end.is_empty());
        let end = match (end, behind(prefix)) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        Range { start: start.max(prefix.to_vec()), end }
    }

    /// Whether no key can lie in it.
    pub fn is_empty(&self) -> bool {
        self.end.as_ref().is_some_and(|end| *end <= self.start)
    }
}

/// The first key behind all that begin with this; nothing where there is none.
fn behind(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut key = prefix[..=last].to_vec();
    key[last] += 1;
    Some(key)
}

impl Scanner {
    /// A scan of these keys, of so many at most; 0 is no limit.
    pub fn new(keyspace: Keyspace, range: Range, limit: u64) -> Scanner {
        let left = if limit == 0 { u64::MAX } else { limit };
        Scanner { keyspace, range, is_reverse: false, keys_only: false, left }
    }

    /// The last key first, where that is wanted.
    pub fn reversed(self, is_reverse: bool) -> Scanner {
        Scanner { is_reverse, ..self }
    }

    /// Without values, where that is wanted.
    pub fn without_values(self, keys_only: bool) -> Scanner {
        Scanner { keys_only, ..self }
    }

    /// The next keys as they were in `snapshot`, and the scan behind them.
    pub fn page(mut self, snapshot: &Snapshot) -> Result<(ScanPage, Scanner), ReadFailed> {
        let mut page = ScanPage { is_last: true, ..ScanPage::default() };
        if self.range.is_empty() {
            return Ok((page, self));
        }
        let end = self.range.end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let bounds = (Bound::Included(&self.range.start[..]), end);
        let mut cursor = self.keyspace.cursor_at::<&[u8]>(snapshot, bounds)?;
        if self.is_reverse { cursor.seek_to_last() } else { cursor.seek_to_first() }?;
        while cursor.valid() {
            if page.entries.len() >= SCAN_ENTRIES_MAX || page.bytes >= PAGE_BYTES || self.left == 0
            {
                page.is_last = self.left == 0;
                break;
            }
            let key = Bytes::copy_from_slice(cursor.key());
            let value = match self.keys_only {
                true => Bytes::new(),
                false => Bytes::copy_from_slice(fitting(&key, cursor.value()?)?),
            };
            page.bytes += EVENT_BYTES_BESIDE + key.len() + value.len();
            page.entries.push(Entry { key, value });
            self.left -= 1;
            if self.is_reverse { cursor.prev() } else { cursor.next() }?;
        }
        drop(cursor);
        if let Some(last) = page.entries.last() {
            self.go_on_behind(&last.key);
        }
        Ok((page, self))
    }

    fn go_on_behind(&mut self, key: &[u8]) {
        if self.is_reverse {
            self.range.end = Some(key.to_vec());
        } else {
            self.range.start = [key, &[0]].concat();
        }
    }
}

/// The value, where it is no longer than what goes over the network. Who has the store open by
/// himself may have put longer ones.
pub fn fitting<'a>(key: &[u8], value: &'a [u8]) -> Result<&'a [u8], ReadFailed> {
    if value.len() <= KV_VALUE_BYTES_MAX {
        return Ok(value);
    }
    Err(ReadFailed(Status::failed_precondition(format!(
        "the value of key {} has {} bytes, but over the network values have {KV_VALUE_BYTES_MAX} \
         at most: it was put by somebody who had the store open by himself, and is read so",
        key.escape_ascii(),
        value.len()
    ))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(prefix: &[u8], start: &[u8], end: &[u8]) -> (Vec<u8>, Option<Vec<u8>>) {
        let Range { start, end } = Range::new(prefix, start.to_vec(), end.to_vec());
        (start, end)
    }

    #[test]
    fn a_prefix_and_bounds_are_what_both_leave() {
        let of = |start: &[u8], end: Option<&[u8]>| (start.to_vec(), end.map(<[u8]>::to_vec));
        assert_eq!(range(b"", b"", b""), of(b"", None));
        assert_eq!(range(b"", b"b", b"d"), of(b"b", Some(b"d")));
        assert_eq!(range(b"b", b"", b""), of(b"b", Some(b"c")));
        assert_eq!(range(b"b", b"a", b"z"), of(b"b", Some(b"c")));
        assert_eq!(range(b"b", b"bc", b"be"), of(b"bc", Some(b"be")));
        assert_eq!(range(b"a\xff", b"", b""), of(b"a\xff", Some(b"b")));
        assert_eq!(range(b"\xff\xff", b"", b""), of(b"\xff\xff", None));
        assert!(Range::new(b"b", b"c".to_vec(), Vec::new()).is_empty());
        assert!(Range::new(b"", b"c".to_vec(), b"c".to_vec()).is_empty());
        assert!(!Range::new(b"", Vec::new(), Vec::new()).is_empty());
    }
}
