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
/// FORMAT: the checksum is a keyed hash of the filter for this use.
const CHECKSUM: HashDomain = HashDomain::Other(1);

/// Filter with its hash, read from bytes that [`FilterFile::encode`] made.
///
/// A filter inside a store leaves the seed of its hash and its checksum to the store. A filter for
/// other programs includes both. A caller that has the file knows the seed, and can
/// construct keys that the filter passes.
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
    /// They are something else.
    NotAFilterFile,
    /// A version that this version of the code does not know.
    Version {
        /// The version.
        version: u8,
    },
    /// The bytes differ from the written ones.
    Damaged {
        /// A plain sentence without its full stop.
        reason: &'static str,
    },
    /// The filter in it cannot be read.
    Filter(FilterError),
    /// The filter says that it was made with another hash than the file.
    HashMismatch {
        /// The number of the filter's hash.
        of_filter: u8,
        /// The number of the file's hash.
        of_file: u8,
    },
    /// Its keys' hash is not one that can be computed here.
    Hash(HashError),
    /// The number of a hash that this version of the code does not know.
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
                "the file has version {version}, which this version does not know"
            ),
            FilterFileError::Damaged { reason } => formatter.write_str(reason),
            FilterFileError::Filter(error) => error.fmt(formatter),
            FilterFileError::Hash(error) => error.fmt(formatter),
            FilterFileError::HashMismatch { of_filter, of_file } => write!(
                formatter,
                "the filter was made with hash {of_filter}, but the file says hash {of_file}"
            ),
            FilterFileError::UnknownHash { number } => write!(
                formatter,
                "its keys are hashed by hash {number}, which this version does not know"
            ),
        }
    }
}

impl std::error::Error for FilterFileError {}

impl<'a> FilterFile<'a> {
    /// FORMAT: magic number of every file.
    pub const MAGIC: [u8; 4] = *b"uFFL";

    /// The file of the encoded `filter`, whose keys were hashed by `kind` with `seed`. A filter
    /// without bytes, that of no keys, is one that lets everything through.
    ///
    /// # Errors
    /// [`FilterFileError::Filter`] where the bytes are not a filter, and
    /// [`FilterFileError::HashMismatch`] where the filter was made with another hash: such a file
    /// would deny keys.
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
    /// [`FilterFileError`]; nothing that is not a whole file is ever probed.
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

    /// Whether `key` may have been added: never false for one that was.
    #[inline]
    pub fn may_contain(&self, key: &[u8]) -> bool {
        self.view.contains(self.hasher.hash(key))
    }

    /// The filter, to be probed with hashes that [`FilterFile::hasher`] makes.
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

    /// The encoded filter; no bytes where it is that of no keys.
    pub fn filter_bytes(&self) -> &'a [u8] {
        self.filter
    }
}

/// The filter, which must be made with the hash of that number.
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

/// The checksum of the file whose header begins with `head`, 32 bytes.
fn checksum(head: &[u8], seed: [u8; 16], filter: &[u8]) -> u64 {
    let secret = HashSecret::from_seed(CHECKSUM.seed(seed));
    hash_key(&secret, head) ^ hash_key(&secret, filter).rotate_left(1)
}
