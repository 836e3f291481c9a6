//! Builds the encoded filter of keys whose number is known only at the end.

use crate::blocked_256::Blocked256;
use crate::blocked_512::Blocked512;
use crate::build_error::BuildError;
use crate::counting;
use crate::encoding::HEADER_BYTES;
use crate::kind::FilterKind;
use crate::layout::fill;
use crate::options::FilterOptions;
use crate::probing::Probing;
use crate::split_block::SplitBlock;
use crate::standard;
use crate::statics;

/// Collects the hashes of keys, 8 bytes of memory for each, and builds a filter of any kind that
/// keys can be added to; it is sized and filled at the end.
///
/// Where a binary fuse filter cannot be built, which takes hashes that were chosen against it, a
/// ribbon filter of the same rate is built instead; the filter says which it is.
///
/// ```
/// use umbel_filter::{FilterBuilder, FilterKind, FilterOptions, FilterSize, FilterView};
/// use umbel_filter::{HashSecret, hash_key};
///
/// let secret = HashSecret::from_seed(*b"sixteen  octets!");
/// let options = FilterOptions {
///     kind: FilterKind::Standard,
///     size: FilterSize::Rate(0.001),
///     ..FilterOptions::default()
/// };
/// let mut builder = FilterBuilder::new(options)?;
/// builder.add(hash_key(&secret, b"basil"));
/// let bytes = builder.finish()?;
/// let filter = FilterView::parse(&bytes)?;
/// assert!(filter.contains(hash_key(&secret, b"basil")));
/// assert!(!filter.contains(hash_key(&secret, b"thyme")));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct FilterBuilder {
    options: FilterOptions,
    hashes: Vec<u64>,
}

impl FilterBuilder {
    /// A builder without keys.
    ///
    /// # Errors
    /// What is wrong with the options, see [`FilterOptions::check`].
    pub fn new(options: FilterOptions) -> Result<FilterBuilder, BuildError> {
        options.check()?;
        Ok(FilterBuilder { options, hashes: Vec::new() })
    }

    /// A builder of the filter of the keys with these hashes.
    ///
    /// # Errors
    /// As [`FilterBuilder::new`].
    pub fn from_hashes(
        options: FilterOptions,
        hashes: Vec<u64>,
    ) -> Result<FilterBuilder, BuildError> {
        options.check()?;
        Ok(FilterBuilder { options, hashes })
    }

    /// Adds a key by its hash. Equal hashes in a row count once, except in a counting filter, which
    /// counts them all, and with LevelDB's probing: LevelDB gives them their share of bits as well.
    #[inline]
    pub fn add(&mut self, hash: u64) {
        let counts_all =
            self.options.kind == FilterKind::Counting || self.options.probing == Probing::LevelDb;
        if counts_all || self.hashes.last() != Some(&hash) {
            self.hashes.push(hash);
        }
    }

    /// How many keys were added.
    pub fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Whether no key was added.
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// The encoded filter; no bytes at all, which is "maybe" for every key, where nothing was
    /// added.
    ///
    /// # Errors
    /// [`BuildError::RateOutOfReach`], [`BuildError::TooLarge`] and [`BuildError::NoMemory`].
    pub fn finish(self) -> Result<Vec<u8>, BuildError> {
        if self.hashes.is_empty() {
            return Ok(Vec::new());
        }
        if self.options.kind.is_static() {
            let FilterOptions { kind, size, hash_kind, seed_id, .. } = self.options;
            let made = statics::of(kind, size, self.hashes.len() as u64)?;
            return Ok(made.build(self.hashes, hash_kind, seed_id));
        }
        let header = self.options.header(self.hashes.len() as u64)?;
        let Some(mut bytes) = header.empty_filter() else {
            let bytes = header.payload_bytes().unwrap_or(u64::MAX);
            return Err(BuildError::NoMemory { bytes });
        };
        let payload = &mut bytes[HEADER_BYTES..];
        let probes = u32::from(header.probes);
        match header.kind {
            FilterKind::Blocked512 => fill::<Blocked512>(payload, &self.hashes, probes),
            FilterKind::Blocked256 => fill::<Blocked256>(payload, &self.hashes, probes),
            FilterKind::SplitBlock => fill::<SplitBlock>(payload, &self.hashes, probes),
            FilterKind::Standard => {
                standard::fill(&header, self.options.probing, payload, &self.hashes);
            }
            FilterKind::Counting => {
                self.hashes.iter().for_each(|hash| counting::count(&header, payload, *hash));
            }
            FilterKind::BinaryFuse | FilterKind::Ribbon => {}
        }
        Ok(bytes)
    }
}
