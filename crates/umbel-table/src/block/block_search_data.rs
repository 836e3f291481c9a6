//! Search data that is derived from a payload when a block is loaded; see [`crate::block`] for its
//! layout.

use umbel_base::limits::{KEY_BYTES_MAX, SEQUENCE_MAX, VALUE_BYTES_MAX};
use umbel_filter::KeyHasher;

use crate::block::entry::read_entry;
use crate::format::{GROUP_ENTRIES_MAX, head32, read_varint};

/// A section repeats its group's prefix only up to this length. A longer prefix is in the payload,
/// directly before `base`.
pub(crate) const SECTION_PREFIX_MAX: usize = 64;
/// Bytes of a section's header: the numbers `base` and `packed`.
pub(crate) const SECTION_HEADER_BYTES: usize = 8;
/// Bytes of the two counts after the directory.
pub(crate) const TAIL_BYTES: usize = 8;

/// The bits of a section's number `packed`, of which the lowest 17 are the prefix length.
pub(crate) mod packed {
    pub(crate) const PREFIX_LEN: u32 = (1 << 17) - 1;
    pub(crate) const COUNT_AT: u32 = 17;
    pub(crate) const COUNT: u32 = 0x7f;
    pub(crate) const TAGGED: u32 = 1 << 24;
    pub(crate) const HEADED: u32 = 1 << 25;
    /// Further groups follow.
    pub(crate) const MORE: u32 = 1 << 26;
    /// No two entries of the group have the same key.
    pub(crate) const DISTINCT: u32 = 1 << 27;
}

/// Returns the byte of a key's hash that serves as the key's tag.
#[inline]
pub(crate) fn tag(hash: u64) -> u8 {
    (hash >> 24) as u8
}

/// Kind of search data that is derived when a block is loaded.
#[derive(Debug, Clone, Copy)]
pub(crate) enum SearchDataKind<'a> {
    /// Only offsets, for a block that is scanned once.
    Offsets,
    /// Offsets and heads, and also tags if there is a hash function.
    Full(Option<&'a KeyHasher>),
}

/// Error for a block longer than any that a writer makes.
pub(crate) const TOO_LONG: &str = "a data block is longer than any block may be";

/// The derived bytes around the payload of a block.
pub(crate) struct BlockSearchData {
    /// Bytes before the payload.
    pub(crate) sections: Vec<u8>,
    /// Bytes after the payload, so that 64 bytes can be read from where the last tags start.
    pub(crate) padding: &'static [u8],
    /// Bytes after the padding.
    pub(crate) directory: Vec<u8>,
}

/// Checks a payload and derives its search data. The error is a reason in words.
pub(crate) fn build_search_data(
    body: &[u8],
    derive: SearchDataKind<'_>,
) -> Result<BlockSearchData, &'static str> {
    let mut parser = SearchDataBuilder { body, derive, sections: Vec::new(), scratch: Vec::new() };
    let mut directory: Vec<u8> = Vec::with_capacity(4 + TAIL_BYTES);
    let (mut at, mut entries, mut groups) = (0, 0u32, 0u32);
    while at < body.len() || groups == 0 {
        let start = u32::try_from(parser.sections.len()).map_err(|_| TOO_LONG)?;
        directory.extend_from_slice(&start.to_le_bytes());
        let (count, end) = parser.group(at)?;
        at = end;
        entries += count;
        groups += 1;
    }
    let mut sections = parser.sections;
    let before = sections.len();
    if u32::try_from(before + body.len()).is_err() {
        return Err(TOO_LONG);
    }
    for section in directory.as_chunks::<4>().0 {
        let at = u32::from_le_bytes(*section) as usize;
        if let Some(base) = sections.get_mut(at..).and_then(|bytes| bytes.first_chunk_mut()) {
            *base = (u32::from_le_bytes(*base) + before as u32).to_le_bytes();
        }
    }
    directory.extend_from_slice(&groups.to_le_bytes());
    directory.extend_from_slice(&entries.to_le_bytes());
    let after = (body.len() + directory.len()).min(GROUP_ENTRIES_MAX);
    Ok(BlockSearchData { sections, padding: &[0; GROUP_ENTRIES_MAX][after..], directory })
}

/// Reads a payload once, checks it and derives the search data.
struct SearchDataBuilder<'a> {
    body: &'a [u8],
    derive: SearchDataKind<'a>,
    /// The sections so far, whose bases are still relative to the start of the payload.
    sections: Vec<u8>,
    scratch: Vec<u8>,
}

impl SearchDataBuilder<'_> {
    /// Parses the group at offset `at`. Returns how many entries the group has and where it ends.
    fn group(&mut self, at: usize) -> Result<(u32, usize), &'static str> {
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
        let mut tags = [0; GROUP_ENTRIES_MAX];
        let mut offsets = [0u16; GROUP_ENTRIES_MAX];
        let mut heads = [0u32; GROUP_ENTRIES_MAX];
        let mut at = base;
        let mut bits = packed::DISTINCT;
        let mut before: Option<&[u8]> = None;
        for index in 0..usize::from(count) {
            offsets[index] = u16::try_from(at - base)
                .map_err(|_| "an entry starts too far after the start of its group")?;
            let entry = read_entry(self.body, at)
                .ok_or("an entry overruns its block or is of a kind this version cannot read")?;
            if prefix_len + entry.suffix.len() > KEY_BYTES_MAX
                || entry.value.len() > VALUE_BYTES_MAX
                || entry.sequence > SEQUENCE_MAX
            {
                return Err("an entry has a key, a value or a sequence number over the limit");
            }
            if before.replace(entry.suffix) == Some(entry.suffix) {
                bits = 0;
            }
            if let SearchDataKind::Full(hasher) = self.derive {
                heads[index] = head32(entry.suffix);
                if let Some(hasher) = hasher {
                    self.scratch.truncate(prefix_len);
                    self.scratch.extend_from_slice(entry.suffix);
                    tags[index] = tag(hasher.hash(&self.scratch));
                }
            }
            at = entry.value_at + entry.value.len();
        }
        if at < self.body.len() {
            bits |= packed::MORE;
        }
        self.emit(base, prefix, &tags[..usize::from(count)], &offsets, &heads, bits);
        Ok((u32::from(count), at))
    }

    /// Appends the section of a group. `bits` are the bits of `packed` that the caller determines.
    fn emit(
        &mut self,
        base: usize,
        prefix: &[u8],
        tags: &[u8],
        offsets: &[u16],
        heads: &[u32],
        bits: u32,
    ) {
        let count = tags.len();
        let mut bits = bits | prefix.len() as u32 | (count as u32) << packed::COUNT_AT;
        let prefix = if prefix.len() <= SECTION_PREFIX_MAX { prefix } else { &[] };
        let (tagged, headed) = match self.derive {
            SearchDataKind::Full(hasher) => (hasher.is_some(), true),
            SearchDataKind::Offsets => (false, false),
        };
        let out = &mut self.sections;
        out.extend_from_slice(&(base as u32).to_le_bytes());
        let packed_at = out.len();
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(prefix);
        if tagged {
            bits |= packed::TAGGED;
            out.extend_from_slice(tags);
        }
        out.extend(offsets.iter().take(count).flat_map(|offset| offset.to_le_bytes()));
        if headed {
            bits |= packed::HEADED;
            out.extend(heads.iter().take(count).flat_map(|head| head.to_le_bytes()));
        }
        out[packed_at..packed_at + 4].copy_from_slice(&bits.to_le_bytes());
    }
}
