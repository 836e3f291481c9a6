//! `CHECKPOINT`, which names the live files of a filter and the covered position.
//! `docs/formats/existence.md` describes the bytes.

use std::path::Path;

use umbel_base::checksum::checksum;
use umbel_base::{Decoder, Error, Result};

use crate::layout::file_meta::FilterFileMeta;
use crate::layout::filter_sizing::FilterDimensions;
use crate::log_coverage::Coverage;
use crate::persistence::directory::ID_MAX;

/// FORMAT: the first eight bytes of `CHECKPOINT`.
const MAGIC: [u8; 8] = *b"UmbelExC";
/// FORMAT: the version that this build writes, and the newest that it reads.
const VERSION: u32 = 2;
/// FORMAT: the version that is written if the history of the coverage is unknown.
const VERSION_WITHOUT_HISTORY: u32 = 1;
/// FORMAT: the id to which the checksum is bound, which no file has.
const CHECKSUM_ID: u64 = u64::MAX;
/// FORMAT: the longest cursor, in bytes.
pub(crate) const CURSOR_BYTES_MAX: usize = 64 * 1024;
/// FORMAT: the number before an existing cursor.
const HAS_CURSOR: u32 = 1;

/// Content of `CHECKPOINT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Checkpoint {
    /// Number that increases by one with each `CHECKPOINT`.
    pub(crate) generation: u64,
    /// Number for the next file: every file has a smaller number.
    pub(crate) next_id: u64,
    /// Id of the store.
    pub(crate) store: u64,
    /// Identifier of the hash function, as in the options.
    pub(crate) hash: u64,
    /// Position in the user's log up to which every hash is in the filters.
    pub(crate) covered: Coverage,
    /// Id and key of the journal that has later hashes.
    pub(crate) journal: (u64, u64),
    /// The filter that is probed. If `None`, every answer is "maybe" until the second filter is
    /// filled.
    pub(crate) first: Option<FilterFileMeta>,
    /// The filter that is being filled.
    pub(crate) second: Option<FilterFileMeta>,
    /// Cursor up to which every hash of the source is in the second filter; `None` at the start of
    /// the walk.
    pub(crate) cursor: Option<Vec<u8>>,
}

/// Whether bytes begin with the magic of a `CHECKPOINT`.
pub(crate) fn has_magic(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC)
}

impl Checkpoint {
    /// Encodes the content as the bytes of the file.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        let Coverage { position, history } = self.covered;
        let version = if history == 0 { VERSION_WITHOUT_HISTORY } else { VERSION };
        bytes.extend_from_slice(&version.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        let numbers = [
            self.generation,
            self.next_id,
            self.store,
            self.hash,
            position,
            self.journal.0,
            self.journal.1,
        ];
        let history = (history != 0).then_some(history);
        numbers
            .iter()
            .chain(&history)
            .for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
        let filters = u32::from(self.first.is_some()) | u32::from(self.second.is_some()) << 1;
        bytes.extend_from_slice(&filters.to_le_bytes());
        match &self.cursor {
            Some(cursor) => {
                bytes.extend_from_slice(&HAS_CURSOR.to_le_bytes());
                bytes.extend_from_slice(&(cursor.len() as u32).to_le_bytes());
                bytes.extend_from_slice(cursor);
            }
            None => bytes.extend_from_slice(&0u32.to_le_bytes()),
        }
        self.first
            .iter()
            .chain(&self.second)
            .for_each(|stored| encode_file_meta(stored, &mut bytes));
        let sum = checksum(CHECKSUM_ID, 0, &bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Decodes the bytes of the file.
    ///
    /// # Errors
    /// [`Error::Corruption`] if the bytes are damaged; [`Error::Invalid`] if a newer version wrote
    /// them.
    pub(crate) fn decode(path: &Path, bytes: &[u8]) -> Result<Checkpoint> {
        let refuse = |reason: &str| Error::corruption(path, 0, reason);
        let split = bytes.len().checked_sub(8).map(|at| bytes.split_at(at));
        let Some((covered, sum)) = split else {
            return Err(refuse("it is shorter than any CHECKPOINT"));
        };
        if checksum(CHECKSUM_ID, 0, covered).to_le_bytes() != sum {
            return Err(refuse("its checksum does not match its bytes"));
        }
        let mut decoder = Decoder::new(covered);
        if decoder.array() != Some(MAGIC) {
            return Err(refuse("it does not begin as a CHECKPOINT does"));
        }
        let has_history = match decoder.u32() {
            Some(version) if version > VERSION => {
                return Err(Error::invalid(format!(
                    "{} has format version {version}, but this Umbel reads up to {VERSION}; open \
                     it with a newer Umbel, or remove it to rebuild the filter",
                    path.display()
                )));
            }
            Some(VERSION) => true,
            Some(VERSION_WITHOUT_HISTORY) => false,
            _ => return Err(refuse("it has no version")),
        };
        let found = decode_fields(&mut decoder, has_history).filter(|_| decoder.is_done());
        found.ok_or_else(|| refuse("it has values that no Umbel writes"))
    }
}

fn encode_file_meta(stored: &FilterFileMeta, bytes: &mut Vec<u8>) {
    let shape = stored.dimensions;
    bytes.extend_from_slice(&u64::from(shape.probes).to_le_bytes());
    let numbers = [stored.id, stored.key, shape.lines, shape.keys, stored.items, stored.damaged];
    let all = numbers.iter().chain(&stored.digests);
    all.for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
}

fn decode_fields(decoder: &mut Decoder<'_>, has_history: bool) -> Option<Checkpoint> {
    let reserved = decoder.u32()?;
    let (generation, next_id) = (decoder.u64()?, decoder.u64()?);
    let (store, hash) = (decoder.u64()?, decoder.u64()?);
    let (position, journal) = (decoder.u64()?, (decoder.u64()?, decoder.u64()?));
    let history = if has_history { decoder.u64().filter(|history| *history != 0)? } else { 0 };
    let covered = Coverage { position, history };
    let filters = decoder.u32()?;
    let cursor = match decoder.u32()? {
        0 => None,
        HAS_CURSOR => {
            let len = decoder.u32()? as usize;
            Some(decoder.take(len).filter(|_| len <= CURSOR_BYTES_MAX)?.to_vec())
        }
        _ => return None,
    };
    let first = if filters & 1 != 0 { Some(decode_file_meta(decoder)?) } else { None };
    let second = if filters & 2 != 0 { Some(decode_file_meta(decoder)?) } else { None };
    // One of them is there, and a cursor belongs to the second.
    let ids = first.iter().chain(&second).map(|stored| stored.id).chain([journal.0]);
    let is_sound = (1..=3).contains(&filters)
        && (second.is_some() || cursor.is_none())
        && next_id < ID_MAX
        && ids.into_iter().all(|id| id < next_id);
    let found =
        Checkpoint { generation, next_id, store, hash, covered, journal, first, second, cursor };
    (is_sound && reserved == 0).then_some(found)
}

fn decode_file_meta(decoder: &mut Decoder<'_>) -> Option<FilterFileMeta> {
    let probes = u32::try_from(decoder.u64()?).ok()?;
    let (id, key) = (decoder.u64()?, decoder.u64()?);
    let shape = FilterDimensions { lines: decoder.u64()?, probes, keys: decoder.u64()? };
    let (items, damaged) = (decoder.u64()?, decoder.u64()?);
    // No memory is reserved before the bytes were seen to be there.
    let digests = decoder.take(usize::try_from(shape.pages()).ok()?.checked_mul(8)?)?;
    let (digests, _) = digests.as_chunks::<8>();
    let digests = digests.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
    let found = FilterFileMeta { id, key, dimensions: shape, items, damaged, digests };
    // Later allocations follow from these, so they must not exceed the limits.
    let is_sound = shape.is_sound() && damaged <= shape.lines && items <= shape.items_max();
    is_sound.then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> Checkpoint {
        let shape = FilterDimensions::growing(6_000);
        let digests = (0..shape.pages()).map(|page| page * 3).collect();
        let first =
            FilterFileMeta { id: 3, key: 99, dimensions: shape, items: 17, damaged: 1, digests };
        let second = FilterFileMeta { id: 4, key: 98, items: 9, ..first.clone() };
        Checkpoint {
            generation: 2,
            next_id: 6,
            store: 5,
            hash: 4,
            covered: Coverage { position: 1000, history: 96 },
            journal: (5, 97),
            first: Some(first),
            second: Some(second),
            cursor: Some(b"here".to_vec()),
        }
    }

    fn decode(bytes: &[u8]) -> Result<Checkpoint> {
        Checkpoint::decode(Path::new("/f/CHECKPOINT"), bytes)
    }

    #[test]
    fn checkpoint_round_trips() {
        let all = some();
        let without = Checkpoint { second: None, cursor: None, covered: 1000.into(), ..some() };
        let only_second = Checkpoint { first: None, cursor: None, ..some() };
        for checkpoint in [all, without, only_second] {
            assert_eq!(decode(&checkpoint.encode()).unwrap(), checkpoint);
        }
    }

    #[test]
    fn every_flipped_bit_and_truncation_is_detected() {
        let bytes = some().encode();
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(decode(&damaged), Err(Error::Corruption { .. })), "bit {bit}");
        }
        for len in 0..bytes.len() {
            assert!(matches!(decode(&bytes[..len]), Err(Error::Corruption { .. })), "{len}");
        }
    }

    /// Bytes with a fitting checksum.
    fn forged(change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut bytes = some().encode();
        bytes.truncate(bytes.len() - 8);
        change(&mut bytes);
        let sum = checksum(CHECKSUM_ID, 0, &bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes
    }

    #[test]
    fn newer_version_is_named_and_invalid_bytes_are_damage() {
        let newer = decode(&forged(|bytes| bytes[8] = 3));
        assert!(matches!(newer, Err(Error::Invalid(message)) if message.contains("version 3")));
        let changes: [fn(&mut Vec<u8>); 10] = [
            |bytes| bytes[24] = 4,
            |bytes| bytes[31] = 0x40,
            |bytes| bytes[8] = 0,
            |bytes| bytes[12] = 2,
            |bytes| bytes[72..80].fill(0),
            |bytes| bytes[80] = 4,
            |bytes| bytes[80] = 1,
            |bytes| bytes[84] = 2,
            |bytes| bytes.push(0),
            |bytes| bytes[96] = 9,
        ];
        assert!(decode(&forged(|_| ())).is_ok());
        for (number, change) in changes.into_iter().enumerate() {
            let found = decode(&forged(change));
            assert!(matches!(found, Err(Error::Corruption { .. })), "change {number}");
        }
    }
}
