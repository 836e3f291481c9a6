//! Builds the payload of a data block: gathers entries into search groups.
//!
//! FORMAT: `payload := group+`, `group := count u8, prefix_len varint, prefix, entry * count`,
//! `entry := suffix_len varint, value_len varint, trailer varint, suffix, value`.

use umbel_base::{ValueKind, varint};

use crate::format::{GROUP_BYTES_MAX, GROUP_ENTRIES_MAX, KIND_BITS, TRAILER_BYTES, common_prefix};

/// Estimated bytes of the three varints of an entry, besides its key and value.
const ENTRY_LENGTHS_BYTES: usize = 8;

/// Maximum bytes of memory that a builder keeps from one block to the next.
const RETAINED_BYTES_MAX: usize = 1 << 20;
/// Maximum bytes of the three varints of an entry.
const LENGTHS_BYTES_MAX: usize = 30;

/// An entry of the open group, whose key and value are in `pending_bytes`.
#[derive(Debug, Clone, Copy)]
struct PendingEntry {
    key_len: usize,
    value_len: usize,
    trailer: u64,
}

/// Writes the three varints with which an entry starts to the start of `out`, and returns how many
/// bytes they take. REQUIRES: `out` has space for [`LENGTHS_BYTES_MAX`].
#[inline]
fn put_lengths(out: &mut [u8], suffix_len: usize, value_len: usize, trailer: u64) -> usize {
    let usual = suffix_len < 0x80 && value_len < 1 << 14 && trailer < 1 << 56;
    match out.first_chunk_mut::<LENGTHS_BYTES_MAX>() {
        Some(out) if usual => {
            out[0] = suffix_len as u8;
            out[1] = value_len as u8;
            let mut used = 2;
            if value_len >= 0x80 {
                out[1] = value_len as u8 | 0x80;
                out[2] = (value_len >> 7) as u8;
                used = 3;
            }
            // Seven bits to a byte, by halves.
            let halves = (trailer & 0x0fff_ffff) | (trailer & 0x00ff_ffff_f000_0000) << 4;
            let pairs = (halves & 0x0000_3fff_0000_3fff) | (halves & 0x0fff_c000_0fff_c000) << 2;
            let each = (pairs & 0x007f_007f_007f_007f) | (pairs & 0x3f80_3f80_3f80_3f80) << 1;
            let len = varint::len_u64(trailer);
            let goes_on = 0x8080_8080_8080_8080 & ((1 << (8 * (len - 1))) - 1);
            out[used..used + 8].copy_from_slice(&(each | goes_on).to_le_bytes());
            used + len
        }
        _ => put_long_lengths(out, [suffix_len as u64, value_len as u64, trailer]),
    }
}

#[inline(never)]
fn put_long_lengths(out: &mut [u8], lengths: [u64; 3]) -> usize {
    lengths.into_iter().fold(0, |used, length| used + put_varint(&mut out[used..], length))
}

/// Writes a varint to the start of `out`, and returns how many bytes it takes.
fn put_varint(out: &mut [u8], value: u64) -> usize {
    let len = varint::len_u64(value);
    for (at, byte) in out[..len].iter_mut().enumerate() {
        let goes_on = if at + 1 < len { 0x80 } else { 0 };
        *byte = (value >> (7 * at)) as u8 & 0x7f | goes_on;
    }
    len
}

/// Builds one block after the other.
#[derive(Debug, Default)]
pub(crate) struct BlockBuilder {
    /// The finished groups, up to `end`. The bytes after `end` have no meaning; they are kept so
    /// that they need not be cleared for each block.
    payload: Vec<u8>,
    end: usize,
    /// Keys and values of the open group, joined.
    pending_bytes: Vec<u8>,
    pending_entries: Vec<PendingEntry>,
    /// Length of the common prefix of all keys of the open group.
    prefix_len: usize,
}

impl BlockBuilder {
    /// Whether the block has no entry.
    pub(crate) fn is_empty(&self) -> bool {
        self.pending_entries.is_empty() && self.end == 0
    }

    /// Approximate bytes of the payload.
    pub(crate) fn bytes(&self) -> usize {
        self.end + self.group_bytes(self.prefix_len)
    }

    /// Approximate bytes of the payload with one more entry.
    pub(crate) fn bytes_with(&self, key: &[u8], value: &[u8]) -> usize {
        let grown = self.group_bytes(self.shared_with(key)) + Self::entry_bytes(key, value);
        self.end + grown
    }

    fn entry_bytes(key: &[u8], value: &[u8]) -> usize {
        key.len() + value.len() + ENTRY_LENGTHS_BYTES
    }

    /// Approximate bytes of the open group if its keys share `prefix_len` bytes.
    fn group_bytes(&self, prefix_len: usize) -> usize {
        let saved = prefix_len * self.pending_entries.len().saturating_sub(1);
        self.pending_bytes.len() + self.pending_entries.len() * ENTRY_LENGTHS_BYTES - saved
    }

    /// Length of the common prefix of `key` and all keys of the open group.
    fn shared_with(&self, key: &[u8]) -> usize {
        if self.pending_entries.is_empty() {
            return key.len();
        }
        let shared = self.prefix_len.min(key.len());
        common_prefix(&self.pending_bytes[..shared], &key[..shared])
    }

    /// Adds the entry that follows in internal order.
    pub(crate) fn add(&mut self, key: &[u8], sequence: u64, kind: ValueKind, value: &[u8]) {
        let trailer = sequence << KIND_BITS | kind as u64;
        let entry_bytes = Self::entry_bytes(key, value);
        if entry_bytes > GROUP_BYTES_MAX {
            self.close_group();
            self.add_single_entry_group(key, trailer, value);
            return;
        }
        let mut shared = self.shared_with(key);
        let full = self.pending_entries.len() == GROUP_ENTRIES_MAX
            || self.group_bytes(shared) + entry_bytes > GROUP_BYTES_MAX;
        if full {
            self.close_group();
            shared = key.len();
        }
        self.prefix_len = shared;
        self.pending_bytes.extend_from_slice(key);
        self.pending_bytes.extend_from_slice(value);
        self.pending_entries.push(PendingEntry {
            key_len: key.len(),
            value_len: value.len(),
            trailer,
        });
    }

    /// Reserves space for `bytes` after the finished groups.
    #[inline]
    fn reserve(&mut self, bytes: usize) -> &mut [u8] {
        let end = self.end + bytes;
        if self.payload.len() < end {
            self.payload.resize(end, 0);
        }
        &mut self.payload[self.end..end]
    }

    /// Adds a group of one large entry without copying the entry twice. The prefix of the group is
    /// the whole key.
    fn add_single_entry_group(&mut self, key: &[u8], trailer: u64, value: &[u8]) {
        let mut start = vec![1];
        varint::put_bytes(&mut start, key);
        varint::put_u64(&mut start, 0);
        varint::put_u64(&mut start, value.len() as u64);
        varint::put_u64(&mut start, trailer);
        let target = self.reserve(start.len() + value.len());
        target[..start.len()].copy_from_slice(&start);
        target[start.len()..].copy_from_slice(value);
        self.end += start.len() + value.len();
    }

    fn close_group(&mut self) {
        if self.pending_entries.is_empty() {
            return;
        }
        let (prefix_len, gathered) = (self.prefix_len, std::mem::take(&mut self.pending_bytes));
        let rows = std::mem::take(&mut self.pending_entries);
        // Space for the most that the lengths can take, so that they are written by a few moves.
        let lengths = (rows.len() + 1) * LENGTHS_BYTES_MAX;
        let out = self.reserve(prefix_len + gathered.len() + lengths);
        out[0] = rows.len() as u8;
        let mut end = 1 + put_varint(&mut out[1..], prefix_len as u64);
        out[end..end + prefix_len].copy_from_slice(&gathered[..prefix_len]);
        end += prefix_len;
        let mut rest = gathered.as_slice();
        for row in &rows {
            let (entry, after) = rest.split_at(row.key_len + row.value_len);
            rest = after;
            let suffix_len = row.key_len - prefix_len;
            end += put_lengths(&mut out[end..], suffix_len, row.value_len, row.trailer);
            let entry = &entry[prefix_len..];
            out[end..end + entry.len()].copy_from_slice(entry);
            end += entry.len();
        }
        self.end += end;
        (self.pending_entries, self.pending_bytes) = (rows, gathered);
        self.pending_entries.clear();
        self.pending_bytes.clear();
        self.prefix_len = 0;
    }

    /// Ends the block and lends its payload, followed by space for the trailer that the caller
    /// writes. REQUIRES: [`BlockBuilder::clear`] is called before the next entry.
    pub(crate) fn finish(&mut self) -> &mut [u8] {
        self.close_group();
        self.reserve(TRAILER_BYTES);
        &mut self.payload[..self.end + TRAILER_BYTES]
    }

    /// Returns the payload of the block.
    #[cfg(test)]
    pub(crate) fn payload(&mut self) -> Vec<u8> {
        self.finish();
        self.payload[..self.end].to_vec()
    }

    /// Starts the next block.
    pub(crate) fn clear(&mut self) {
        self.end = 0;
        // One huge value must not keep its memory for the rest of the table.
        if self.payload.len() > RETAINED_BYTES_MAX {
            self.payload.truncate(RETAINED_BYTES_MAX);
            self.payload.shrink_to_fit();
        }
        self.pending_bytes.shrink_to(RETAINED_BYTES_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn lengths_are_written_as_varints(
            mut lengths: [u64; 3],
            shifts in [33u32..64, 33u32..64, 0u32..64],
        ) {
            lengths.iter_mut().zip(shifts).for_each(|(length, shift)| *length >>= shift);
            let mut plain = Vec::new();
            lengths.iter().for_each(|length| varint::put_u64(&mut plain, *length));
            let mut out = [0xaa; LENGTHS_BYTES_MAX];
            let [suffix, value, trailer] = lengths;
            let used = put_lengths(&mut out, suffix as usize, value as usize, trailer);
            prop_assert_eq!(&out[..used], &plain[..]);
        }
    }
}
