//! Builds the payload of a data block: gathers entries into search groups.
//!
//! FORMAT: `payload := group+`, `group := count u8, prefix_len varint, prefix, entry * count`,
//! `entry := suffix_len varint, value_len varint, trailer varint, suffix, value`.

use umbel_base::{ValueKind, varint};

use crate::format::{GROUP_BYTES_MAX, GROUP_ENTRIES_MAX, KIND_BITS, common_prefix};

/// What an entry takes besides its key and value, estimated: three varints.
const ENTRY_LENGTHS_BYTES: usize = 8;

/// One entry of the group being gathered; its key and value stand in `gathered`.
#[derive(Debug, Clone, Copy)]
struct Row {
    key_len: usize,
    value_len: usize,
    trailer: u64,
}

/// Builds one block after the other.
#[derive(Debug, Default)]
pub(crate) struct BlockBuilder {
    /// The finished groups.
    payload: Vec<u8>,
    /// Keys and values of the open group, joined.
    gathered: Vec<u8>,
    rows: Vec<Row>,
    /// What all keys of the open group share at their start.
    prefix_len: usize,
}

impl BlockBuilder {
    /// Whether the block holds no entry.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.payload.is_empty()
    }

    /// About how many bytes the payload takes.
    pub(crate) fn bytes(&self) -> usize {
        self.payload.len() + self.group_bytes(self.prefix_len)
    }

    /// About how many bytes the payload would take with one more entry.
    pub(crate) fn bytes_with(&self, key: &[u8], value: &[u8]) -> usize {
        let grown = self.group_bytes(self.shared_with(key)) + Self::entry_bytes(key, value);
        self.payload.len() + grown
    }

    fn entry_bytes(key: &[u8], value: &[u8]) -> usize {
        key.len() + value.len() + ENTRY_LENGTHS_BYTES
    }

    /// About how many bytes the open group takes if its keys share `prefix_len` bytes.
    fn group_bytes(&self, prefix_len: usize) -> usize {
        let saved = prefix_len * self.rows.len().saturating_sub(1);
        self.gathered.len() + self.rows.len() * ENTRY_LENGTHS_BYTES - saved
    }

    /// What the keys of the open group and `key` share at their start.
    fn shared_with(&self, key: &[u8]) -> usize {
        if self.rows.is_empty() {
            return key.len();
        }
        let shared = self.prefix_len.min(key.len());
        common_prefix(&self.gathered[..shared], &key[..shared])
    }

    /// Adds the entry that follows in internal order.
    pub(crate) fn add(&mut self, key: &[u8], sequence: u64, kind: ValueKind, value: &[u8]) {
        let trailer = sequence << KIND_BITS | kind as u64;
        let entry_bytes = Self::entry_bytes(key, value);
        if entry_bytes > GROUP_BYTES_MAX {
            self.close_group();
            self.add_alone(key, trailer, value);
            return;
        }
        let mut shared = self.shared_with(key);
        let full = self.rows.len() == GROUP_ENTRIES_MAX
            || self.group_bytes(shared) + entry_bytes > GROUP_BYTES_MAX;
        if full {
            self.close_group();
            shared = key.len();
        }
        self.prefix_len = shared;
        self.gathered.extend_from_slice(key);
        self.gathered.extend_from_slice(value);
        self.rows.push(Row { key_len: key.len(), value_len: value.len(), trailer });
    }

    /// Adds a group of one large entry without copying it twice. Its prefix is the whole key.
    fn add_alone(&mut self, key: &[u8], trailer: u64, value: &[u8]) {
        let out = &mut self.payload;
        out.reserve(key.len() + value.len() + 64);
        out.push(1);
        varint::put_bytes(out, key);
        varint::put_u64(out, 0);
        varint::put_u64(out, value.len() as u64);
        varint::put_u64(out, trailer);
        out.extend_from_slice(value);
    }

    fn close_group(&mut self) {
        if self.rows.is_empty() {
            return;
        }
        let prefix_len = self.prefix_len;
        let out = &mut self.payload;
        out.reserve(self.gathered.len() + self.rows.len() * 24 + 8);
        out.push(self.rows.len() as u8);
        varint::put_u64(out, prefix_len as u64);
        out.extend_from_slice(&self.gathered[..prefix_len]);
        let mut at = 0;
        for row in &self.rows {
            let value_at = at + row.key_len;
            let end = value_at + row.value_len;
            varint::put_u64(out, (row.key_len - prefix_len) as u64);
            varint::put_u64(out, row.value_len as u64);
            varint::put_u64(out, row.trailer);
            out.extend_from_slice(&self.gathered[at + prefix_len..end]);
            at = end;
        }
        self.rows.clear();
        self.gathered.clear();
        self.prefix_len = 0;
    }

    /// Closes the block and lends its payload, for the caller to seal. [`BlockBuilder::clear`] is
    /// to be called before the next entry.
    pub(crate) fn finish(&mut self) -> &mut Vec<u8> {
        self.close_group();
        &mut self.payload
    }

    /// Starts the next block.
    pub(crate) fn clear(&mut self) {
        self.payload.clear();
        // One huge value must not keep its memory for the rest of the table.
        self.payload.shrink_to(1 << 20);
        self.gathered.shrink_to(1 << 20);
    }
}
