//! A filter file: the filter, the hash of its keys, and a checksum.
//!
//! FORMAT: 64 bytes, little-endian, then the filter; see `docs/formats/filter-file.md`.

use crate::filter::filter_view::FilterView;
use crate::format::bloom_header::{FilterError, HEADER_BYTES, u64_at};
use crate::hash::hash_domain::HashDomain;
use crate::hash::hash_kind::{HashError, HashKind};
use crate::hash::key_hasher::KeyHasher;
use crate::hash::keyed_hash::{HashSecret, hash_key};
use std::fmt;

const VERSION: u8 = 1;
/// FORMAT: use of the keyed hash for the file's checksum.
const CHECKSUM: HashDomain = HashDomain::Other(1);

/// A filter and its hash, read from bytes that [`FilterFile::encode`] made.
///
/// For a filter in a store, the store keeps seed and checksum. A filter file contains both, for
/// other programs. So a reader of the file knows the seed, and can construct keys that pass the
/// filter.
///
/// ```
/// use umbel_filter::{FilterBuilder, FilterFile, FilterOptions, HashKind, KeyHasher};
///
/// let seed = *b"sixteen  octets!";
/// let hasher = KeyHasher::new(HashKind::Keyed, seed)?;
/// let mut builder = FilterBuilder::new(FilterOptions::default())?;
/// builder.add(hasher.hash(b"basil"));
/// let bytes = FilterFile::encode(HashKind::Keyed, seed, &builder.finish()?)?;
///
/// let file = FilterFile::parse(&bytes)?;
/// assert!(file.may_contain(b"basil"));
/// assert!(!file.may_contain(b"thyme"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct FilterFile<'a> {
    hasher: KeyHasher,
    view: FilterView<'a>,
    seed: [u8; 16],
    filter: &'a [u8],
}

/// Errors of reading a filter file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FilterFileError {
    /// The bytes are not a filter file.
    NotAFilterFile,
    /// The file has a format version that this build does not know.
    Version {
        /// The version.
        version: u8,
    },
    /// The bytes of the file are damaged.
    Damaged {
        /// A plain sentence without its full stop.
        reason: &'static str,
    },
    /// The filter in the file cannot be read.
    Filter(FilterError),
    /// The header of the filter names another hash than the file.
    HashMismatch {
        /// The number of the filter's hash.
        of_filter: u8,
        /// The number of the file's hash.
        of_file: u8,
    },
    /// This build cannot compute the file's hash.
    Hash(HashError),
    /// The file names a hash number that this build does not know.
    UnknownHash {
        /// The number.
        number: u8,
    },
}

impl fmt::Display for FilterFileError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FilterFileError::NotAFilterFile => formatter.write_str("this is not a filter file"),
            FilterFileError::Version { version } => write!(
                formatter,
                "the filter file has format version {version}, which this build does not know"
            ),
            FilterFileError::Damaged { reason } => formatter.write_str(reason),
            FilterFileError::Filter(error) => error.fmt(formatter),
            FilterFileError::Hash(error) => error.fmt(formatter),
            FilterFileError::HashMismatch { of_filter, of_file } => write!(
                formatter,
                "the filter was made with hash {of_filter}, but its file names hash {of_file}"
            ),
            FilterFileError::UnknownHash { number } => write!(
                formatter,
                "the filter file names hash {number}, which this build does not know"
            ),
        }
    }
}

impl std::error::Error for FilterFileError {}

impl<'a> FilterFile<'a> {
    /// FORMAT: magic number of every file.
    pub const MAGIC: [u8; 4] = *b"uFFL";

    /// Encodes a file of the encoded `filter`, whose keys were hashed by `kind` with `seed`. The
    /// file of a filter without bytes passes every key.
    ///
    /// # Errors
    /// [`FilterFileError::Filter`] where the bytes are not a filter, and
    /// [`FilterFileError::HashMismatch`] if the filter was made with another hash, since such a
    /// file would deny keys.
    pub fn encode(
        kind: HashKind,
        seed: [u8; 16],
        filter: &[u8],
    ) -> Result<Vec<u8>, FilterFileError> {
        view(filter, kind.number())?;
        let mut bytes = Vec::with_capacity(HEADER_BYTES + filter.len());
        bytes.extend_from_slice(&FilterFile::MAGIC);
        bytes.extend([VERSION, kind.number(), 0, 0]);
        bytes.extend_from_slice(&seed);
        bytes.extend_from_slice(&(filter.len() as u64).to_le_bytes());
        let checksum = checksum(&bytes, seed, filter);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        bytes.resize(HEADER_BYTES, 0);
        bytes.extend_from_slice(filter);
        Ok(bytes)
    }

    /// Reads the file and checks every byte of it.
    ///
    /// # Errors
    /// [`FilterFileError`], if the bytes are not a whole, undamaged file.
    pub fn parse(bytes: &'a [u8]) -> Result<FilterFile<'a>, FilterFileError> {
        let damaged = |reason| Err(FilterFileError::Damaged { reason });
        if !bytes.starts_with(&FilterFile::MAGIC) {
            return Err(FilterFileError::NotAFilterFile);
        }
        let Some((head, filter)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
            return damaged("the file is shorter than its header");
        };
        let [_, _, _, _, version, number, ..] = *head;
        if version != VERSION {
            return Err(FilterFileError::Version { version });
        }
        if u64_at(head, 24) != filter.len() as u64 {
            return damaged("the file's length differs from the length in its header");
        }
        let mut seed = [0; 16];
        seed.copy_from_slice(&head[8..24]);
        if u64_at(head, 32) != checksum(&head[..32], seed, filter) {
            return damaged("the file's checksum does not match its bytes");
        }
        if head[40..].iter().any(|&byte| byte != 0) {
            return damaged("the reserved bytes of the file's header are not zero");
        }
        let kind = HashKind::from_number(number).ok_or(FilterFileError::UnknownHash { number })?;
        let hasher = KeyHasher::new(kind, seed).map_err(FilterFileError::Hash)?;
        let view = view(filter, number)?;
        Ok(FilterFile { hasher, view, seed, filter })
    }

    /// Whether `key` may have been added; never false for an added key.
    #[inline]
    pub fn may_contain(&self, key: &[u8]) -> bool {
        self.view.contains(self.hasher.hash(key))
    }

    /// The filter, which callers probe with hashes by [`FilterFile::hasher`].
    pub fn view(&self) -> FilterView<'a> {
        self.view
    }

    /// Hash of the keys.
    pub fn hasher(&self) -> &KeyHasher {
        &self.hasher
    }

    /// The seed of the hash.
    pub fn seed(&self) -> [u8; 16] {
        self.seed
    }

    /// The encoded filter; no bytes for the filter of no keys.
    pub fn filter_bytes(&self) -> &'a [u8] {
        self.filter
    }
}

/// Parses the filter, which must be made with the hash of the given number.
fn view(filter: &[u8], number: u8) -> Result<FilterView<'_>, FilterFileError> {
    if filter.is_empty() {
        return Ok(FilterView::MAYBE);
    }
    let view = FilterView::parse_known(filter).map_err(FilterFileError::Filter)?;
    match view.hash_kind() {
        same if same == number => Ok(view),
        of_filter => Err(FilterFileError::HashMismatch { of_filter, of_file: number }),
    }
}

/// Returns the checksum of the file whose header begins with the 32 bytes `head`.
fn checksum(head: &[u8], seed: [u8; 16], filter: &[u8]) -> u64 {
    let secret = HashSecret::from_seed(CHECKSUM.seed(seed));
    hash_key(&secret, head) ^ hash_key(&secret, filter).rotate_left(1)
}
