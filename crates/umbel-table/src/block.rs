//! A data block held as it is searched.
//!
//! The payload stays as it is on disk; beside it, derived when the block is loaded, stand for each
//! group a line of tags (a byte of each key's hash), the offsets of its entries and the heads of
//! its keys behind the group's prefix.
//!
//! INVARIANT: every length and offset in `body` was checked by [`Block::parse`]. Reads go through
//! checked slices all the same; where one could only fail against this, they give nothing.

use std::cmp::Ordering;

use umbel_base::SequenceNumber;
use umbel_base::limits::{KEY_BYTES_MAX, SEQUENCE_MAX, VALUE_BYTES_MAX};
use umbel_filter::{HashSecret, hash_key};

use crate::entry::{Entry, read_entry};
use crate::format::{GROUP_ENTRIES_MAX, INLINE_PREFIX, head32, read_varint, same, strip_inline};
use crate::tags::{matches, tag};

/// Up to this many groups a point read looks at the tags of each rather than search for its own.
const GROUPS_BY_TAG_MAX: usize = 4;
/// From so many equal tags on, which only versions of one key bring about, a point read searches
/// by halves.
const VERSIONS_BY_TAG_MAX: u32 = 8;

/// What is derived from one group.
#[derive(Debug, Clone)]
#[repr(C)]
struct Group {
    tags: [u8; GROUP_ENTRIES_MAX],
    /// Where each entry starts, from `base`.
    offsets: [u16; GROUP_ENTRIES_MAX],
    /// The start of the prefix, all of it where it is not longer.
    prefix: [u8; INLINE_PREFIX],
    /// Where the first entry starts in the body; the prefix stands right before.
    base: u32,
    prefix_len: u32,
    /// How many entries of the block stand before this group.
    first: u32,
    count: u8,
    /// Whether `tags` were made; the same in every group of a block.
    tagged: bool,
    /// Whether heads were made; the same in every group of a block.
    headed: bool,
}

/// A data block, checked and ready to be searched.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Block {
    /// First, so that its tags are one cache line.
    group: Group,
    /// The groups behind the first.
    more: Box<[Group]>,
    /// The payload, and behind it the heads of all entries, four bytes each, unless the block is
    /// only to be walked.
    body: Box<[u8]>,
}

/// Which helpers are derived when a block is loaded.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Derive<'a> {
    /// Offsets only: the block is walked once.
    Offsets,
    /// Offsets and heads, and tags where there is a hash.
    All(Option<&'a HashSecret>),
}

/// Where an entry stands: its group, and its number in the group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Place {
    pub(crate) group: usize,
    pub(crate) entry: usize,
}

impl Block {
    /// Checks a payload and derives what searching needs. The error is a reason in words.
    pub(crate) fn parse(mut body: Vec<u8>, derive: Derive<'_>) -> Result<Block, &'static str> {
        if u32::try_from(body.len()).is_err() {
            return Err("a data block is longer than any block may be");
        }
        let mut parser = Parser { body: &body, derive, heads: Vec::new(), scratch: Vec::new() };
        let mut at = 0;
        let mut first = 0;
        let mut group = None;
        let mut more = Vec::new();
        while at < body.len() || group.is_none() {
            let (parsed, end) = parser.group(at, first)?;
            at = end;
            first += u32::from(parsed.count);
            match group {
                None => group = Some(parsed),
                Some(_) => more.push(parsed),
            }
        }
        let Some(group) = group else { return Err("a data block holds no group") };
        let heads = parser.heads;
        body.reserve_exact(heads.len());
        body.extend_from_slice(&heads);
        Ok(Block { group, more: more.into(), body: body.into() })
    }

    /// How many bytes of memory the block takes.
    pub fn memory_bytes(&self) -> usize {
        let counts = 64;
        size_of::<Block>() + counts + size_of_val(&*self.more) + self.body.len()
    }

    /// How many entries the block holds.
    pub fn entries(&self) -> usize {
        let last = self.more.last().unwrap_or(&self.group);
        last.first as usize + usize::from(last.count)
    }

    pub(crate) fn groups(&self) -> usize {
        1 + self.more.len()
    }

    fn group(&self, group: usize) -> &Group {
        match group.checked_sub(1) {
            None => &self.group,
            Some(behind) => self.more.get(behind).unwrap_or(&self.group),
        }
    }

    pub(crate) fn group_entries(&self, group: usize) -> usize {
        usize::from(self.group(group).count)
    }

    /// The prefix of a group's keys.
    pub(crate) fn prefix(&self, group: usize) -> &[u8] {
        self.prefix_of(self.group(group))
    }

    #[inline]
    fn prefix_of(&self, group: &Group) -> &[u8] {
        let base = group.base as usize;
        self.body.get(base - group.prefix_len as usize..base).unwrap_or_default()
    }

    /// The entry at a place that [`Block::entries`] and the groups allow.
    pub(crate) fn entry(&self, place: Place) -> Option<Entry<'_>> {
        self.entry_of(self.group(place.group), place.entry)
    }

    /// The body from `at` on.
    #[inline]
    pub(crate) fn behind(&self, at: usize) -> &[u8] {
        self.body.get(at..).unwrap_or_default()
    }

    /// Bytes of the body.
    #[inline]
    pub(crate) fn bytes(&self, start: usize, len: usize) -> &[u8] {
        self.body.get(start..start + len).unwrap_or_default()
    }

    /// What of `key` follows the group's prefix; `None` where it does not start with it.
    #[inline]
    fn strip<'k>(&self, group: &Group, key: &'k [u8]) -> Option<&'k [u8]> {
        let len = group.prefix_len as usize;
        if len <= INLINE_PREFIX {
            return strip_inline(key, &group.prefix, len);
        }
        key.strip_prefix(self.prefix_of(group))
    }

    #[inline]
    fn entry_of(&self, group: &Group, entry: usize) -> Option<Entry<'_>> {
        let offset = *group.offsets.get(..usize::from(group.count))?.get(entry)?;
        read_entry(&self.body, group.base as usize + usize::from(offset))
    }

    /// The newest version of `key` in this block that is not newer than `sequence`. `hash` is the
    /// key's, by the hash the block was loaded with.
    #[inline]
    pub(crate) fn find(
        &self,
        key: &[u8],
        hash: u64,
        sequence: SequenceNumber,
    ) -> Option<Entry<'_>> {
        if !self.group.tagged || self.more.len() >= GROUPS_BY_TAG_MAX {
            return self.find_by_order(key, hash, sequence);
        }
        match self.find_in(&self.group, key, hash, sequence) {
            None if !self.more.is_empty() => {
                self.more.iter().find_map(|group| self.find_in(group, key, hash, sequence))
            }
            found => found,
        }
    }

    #[inline]
    fn find_in(
        &self,
        group: &Group,
        key: &[u8],
        hash: u64,
        sequence: SequenceNumber,
    ) -> Option<Entry<'_>> {
        let mut candidates = matches(&group.tags, tag(hash));
        candidates &= u64::MAX >> (GROUP_ENTRIES_MAX - usize::from(group.count));
        if candidates == 0 {
            return None;
        }
        let suffix = self.strip(group, key)?;
        if candidates.count_ones() > VERSIONS_BY_TAG_MAX {
            let entry = self.lower_bound_in(group, suffix, sequence);
            return self.entry_of(group, entry).filter(|entry| entry.suffix == suffix);
        }
        while candidates != 0 {
            let entry = self.entry_of(group, candidates.trailing_zeros() as usize)?;
            if same(entry.suffix, suffix) && entry.sequence <= sequence {
                return Some(entry);
            }
            candidates &= candidates - 1;
        }
        None
    }

    #[inline(never)]
    fn find_by_order(&self, key: &[u8], hash: u64, sequence: SequenceNumber) -> Option<Entry<'_>> {
        let number = self.group_of(key, sequence);
        if number == self.groups() {
            return None;
        }
        let group = self.group(number);
        if group.tagged {
            return self.find_in(group, key, hash, sequence);
        }
        let suffix = self.strip(group, key)?;
        let entry = self.lower_bound_in(group, suffix, sequence);
        self.entry_of(group, entry).filter(|entry| entry.suffix == suffix)
    }

    /// The first group whose last entry stands at or behind (`key`, `sequence`), or the number of
    /// groups where there is none.
    fn group_of(&self, key: &[u8], sequence: SequenceNumber) -> usize {
        let (mut low, mut high) = (0, self.groups());
        while low < high {
            let middle = (low + high) / 2;
            let group = self.group(middle);
            let last = self.entry_of(group, usize::from(group.count) - 1);
            let before = last.is_some_and(|last| {
                let prefix = self.prefix_of(group);
                let shared = prefix.len().min(key.len());
                let order = prefix
                    .cmp(&key[..shared])
                    .then_with(|| last.suffix.cmp(key.get(prefix.len()..).unwrap_or_default()))
                    .then_with(|| sequence.cmp(&last.sequence));
                order == Ordering::Less
            });
            if before {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// The first entry at or behind (`key`, `sequence`). `None` where all stand before.
    pub(crate) fn lower_bound(&self, key: &[u8], sequence: SequenceNumber) -> Option<Place> {
        // Of a single group the last entry, which is far from the others, need not be read.
        let number = if self.more.is_empty() { 0 } else { self.group_of(key, sequence) };
        if number == self.groups() {
            return None;
        }
        let group = self.group(number);
        let entry = match self.strip(group, key) {
            Some(suffix) => self.lower_bound_in(group, suffix, sequence),
            None if self.prefix_of(group) < key => usize::from(group.count),
            None => 0,
        };
        (entry < usize::from(group.count)).then_some(Place { group: number, entry })
    }

    /// The last place of the block.
    pub(crate) fn last(&self) -> Place {
        let group = self.groups() - 1;
        Place { group, entry: self.group_entries(group) - 1 }
    }

    /// The heads of a group that has them.
    fn heads_of(&self, group: &Group) -> &[u8] {
        let start = self.body.len() - 4 * self.entries() + 4 * group.first as usize;
        self.body.get(start..start + 4 * usize::from(group.count)).unwrap_or_default()
    }

    /// The number of entries of the group that stand before (`suffix`, `sequence`).
    fn lower_bound_in(&self, group: &Group, suffix: &[u8], sequence: SequenceNumber) -> usize {
        let count = usize::from(group.count);
        let (mut low, mut high) = (0, count);
        if group.headed {
            let wanted = head32(suffix);
            let heads = self.heads_of(group).as_chunks::<4>().0.iter();
            let (less, equal) = heads.fold((0u32, 0u32), |(less, equal), head| {
                let head = u32::from_le_bytes(*head);
                (less + u32::from(head < wanted), equal + u32::from(head == wanted))
            });
            low = less as usize;
            high = low + equal as usize;
        }
        while low < high {
            let middle = (low + high) / 2;
            let before = self.entry_of(group, middle).is_some_and(|entry| {
                let order = entry.suffix.cmp(suffix);
                order.then_with(|| sequence.cmp(&entry.sequence)) == Ordering::Less
            });
            if before {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }
}

/// Walks a payload once, checking and deriving.
struct Parser<'a> {
    body: &'a [u8],
    derive: Derive<'a>,
    /// Little-endian, as they will stand behind the payload.
    heads: Vec<u8>,
    scratch: Vec<u8>,
}

impl Parser<'_> {
    /// Parses the group at `at`; says where it ends.
    fn group(&mut self, at: usize, first: u32) -> Result<(Group, usize), &'static str> {
        const CUT: &str = "a data block ends inside a group";
        let count = *self.body.get(at).ok_or(CUT)?;
        if !(1..=GROUP_ENTRIES_MAX).contains(&usize::from(count)) {
            return Err("a search group of a data block claims no entry or more than 64");
        }
        let (prefix_len, prefix_at) = read_varint(self.body, at + 1).ok_or(CUT)?;
        let prefix_len = usize::try_from(prefix_len).ok().filter(|&len| len <= KEY_BYTES_MAX);
        let prefix_len = prefix_len.ok_or("a key prefix is longer than any key")?;
        let base = prefix_at + prefix_len;
        let prefix = self.body.get(prefix_at..base).ok_or(CUT)?;
        self.scratch.clear();
        self.scratch.extend_from_slice(prefix);
        let mut group = Group {
            tags: [0; GROUP_ENTRIES_MAX],
            offsets: [0; GROUP_ENTRIES_MAX],
            prefix: [0; INLINE_PREFIX],
            base: base as u32,
            prefix_len: prefix_len as u32,
            first,
            count,
            tagged: matches!(self.derive, Derive::All(Some(_))),
            headed: matches!(self.derive, Derive::All(_)),
        };
        group.prefix.iter_mut().zip(prefix).for_each(|(to, from)| *to = *from);
        let mut at = base;
        for index in 0..usize::from(count) {
            group.offsets[index] = u16::try_from(at - base)
                .map_err(|_| "an entry starts too far behind the start of its group")?;
            let entry = read_entry(self.body, at)
                .ok_or("an entry overruns its block or is of a kind this version cannot read")?;
            let key_len = prefix_len + entry.suffix.len();
            if key_len > KEY_BYTES_MAX
                || entry.value.len() > VALUE_BYTES_MAX
                || entry.sequence > SEQUENCE_MAX
            {
                return Err("an entry has a key, a value or a sequence number over the limit");
            }
            if let Derive::All(secret) = self.derive {
                self.heads.extend_from_slice(&head32(entry.suffix).to_le_bytes());
                if let Some(secret) = secret {
                    self.scratch.truncate(prefix_len);
                    self.scratch.extend_from_slice(entry.suffix);
                    group.tags[index] = tag(hash_key(secret, &self.scratch));
                }
            }
            at = entry.value_at + entry.value.len();
        }
        Ok((group, at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use umbel_base::ValueKind;

    use crate::block_builder::BlockBuilder;

    fn build(entries: &[(&[u8], u64, &[u8])]) -> Vec<u8> {
        let mut builder = BlockBuilder::default();
        for (key, sequence, value) in entries {
            builder.add(key, *sequence, ValueKind::Put, value);
        }
        builder.finish().clone()
    }

    #[test]
    fn the_parts_a_point_read_needs_stand_in_four_lines() {
        assert_eq!(size_of::<Block>(), 256);
        assert_eq!(align_of::<Block>(), 64);
    }

    #[test]
    fn every_way_of_searching_agrees() {
        let secret = HashSecret::from_seed([3; 16]);
        let keys: Vec<Vec<u8>> = (0..700u32).map(|i| format!("path/{:05}", i * 3).into()).collect();
        let entries: Vec<_> = keys.iter().map(|key| (key.as_slice(), 5, &key[5..])).collect();
        for count in [1, 2, 63, 64, 65, 200, 700] {
            let body = build(&entries[..count]);
            let derived = [Derive::Offsets, Derive::All(None), Derive::All(Some(&secret))];
            for derive in derived {
                let block = Block::parse(body.clone(), derive).unwrap();
                assert_eq!(block.entries(), count);
                for (key, _, value) in &entries {
                    let there = *key <= entries[count - 1].0;
                    let found = block.find(key, hash_key(&secret, key), 9);
                    assert_eq!(found.map(|entry| entry.value), there.then_some(*value));
                    assert_eq!(block.find(key, hash_key(&secret, key), 4), None);
                    let bound = block.lower_bound(key, 4).and_then(|place| block.entry(place));
                    assert!(bound.is_none_or(|entry| entry.value > *value));
                }
                assert_eq!(block.find(b"path/", hash_key(&secret, b"path/"), 9), None);
                assert_eq!(block.lower_bound(b"", 9), Some(Place::default()));
                assert_eq!(block.lower_bound(b"q", 9), None);
            }
        }
    }

    #[test]
    fn cut_and_flipped_payloads_never_panic() {
        let secret = HashSecret::from_seed([3; 16]);
        let body = build(&[(b"apple", 1 << 40, b"1"), (b"apple", 3, b"2"), (b"apricot", 4, b"3")]);
        for cut in 0..body.len() {
            assert!(Block::parse(body[..cut].to_vec(), Derive::All(Some(&secret))).is_err());
        }
        for index in 0..body.len() {
            for flip in 1..=255u8 {
                let mut flipped = body.clone();
                flipped[index] ^= flip;
                if let Ok(block) = Block::parse(flipped, Derive::All(Some(&secret))) {
                    block.find(b"apple", hash_key(&secret, b"apple"), 9);
                    block.lower_bound(b"apple", 9);
                }
            }
        }
    }
}
