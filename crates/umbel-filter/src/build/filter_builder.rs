//! Builds the encoded filter of keys whose number is known only after the last key.

use crate::bloom_variants::block_layout::fill;
use crate::bloom_variants::blocked_256::Blocked256;
use crate::bloom_variants::blocked_512::Blocked512;
use crate::bloom_variants::counting;
use crate::bloom_variants::split_block::SplitBlock;
use crate::bloom_variants::standard;
use crate::build::build_error::BuildError;
use crate::build::filter_options::FilterOptions;
use crate::build::static_filter_plan;
use crate::format::bloom_header::HEADER_BYTES;
use crate::format::filter_kind::FilterKind;
use crate::probe::probe_positions::Probing;

/// Collects the hashes of keys, 8 bytes of memory for each, and builds a filter of them. The filter
/// is sized and filled at the end.
///
/// A binary fuse filter cannot be built from hashes that a client chose to prevent it. For such
/// hashes the builder builds a ribbon filter of the same rate; the filter's header names its kind.
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
    /// Number of bytes of the first allocation that failed, if one did.
    no_memory: Option<u64>,
}

/// Bytes for each hash that building a static filter takes, besides the hash and the filter: see
/// [`crate::FuseBuilder`].
const WORKING_BYTES: usize = 18;

impl FilterBuilder {
    /// Creates a builder without keys.
    ///
    /// # Errors
    /// The errors of [`FilterOptions::check`].
    pub fn new(options: FilterOptions) -> Result<FilterBuilder, BuildError> {
        FilterBuilder::from_hashes(options, Vec::new())
    }

    /// Creates a builder with the keys of these hashes.
    ///
    /// # Errors
    /// The errors of [`FilterBuilder::new`].
    pub fn from_hashes(
        options: FilterOptions,
        hashes: Vec<u64>,
    ) -> Result<FilterBuilder, BuildError> {
        options.check()?;
        Ok(FilterBuilder { options, hashes, no_memory: None })
    }

    /// Adds a key by its hash. Equal consecutive hashes count once. But a counting filter counts
    /// all of them, and so does a filter with LevelDB's probing, whose size depends on their
    /// number.
    #[inline]
    pub fn add(&mut self, hash: u64) {
        let counts_all =
            self.options.kind == FilterKind::Counting || self.options.probing == Probing::LevelDb;
        if counts_all || self.hashes.last() != Some(&hash) {
            if self.hashes.len() == self.hashes.capacity() && !self.grow() {
                return;
            }
            self.hashes.push(hash);
        }
    }

    /// Reserves memory for twice as many hashes. Returns false if the allocation fails: then the
    /// hash is left out, and building the filter fails.
    #[cold]
    fn grow(&mut self) -> bool {
        let more = self.hashes.len().max(64);
        let has_room = self.no_memory.is_none() && self.hashes.try_reserve(more).is_ok();
        if !has_room {
            self.no_memory =
                Some((self.hashes.len() as u64 + more as u64) * size_of::<u64>() as u64);
        }
        has_room
    }

    /// Number of keys added.
    pub fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Whether no key was added.
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// Builds and encodes the filter. Without keys the result has no bytes, which answers "maybe"
    /// to every key.
    ///
    /// # Errors
    /// [`BuildError::RateOutOfReach`], [`BuildError::TooLarge`] and [`BuildError::NoMemory`].
    /// [`BuildError::NoMemory`] also if memory for added hashes could not be allocated.
    pub fn finish(self) -> Result<Vec<u8>, BuildError> {
        if let Some(bytes) = self.no_memory {
            return Err(BuildError::NoMemory { bytes });
        }
        if self.hashes.is_empty() {
            return Ok(Vec::new());
        }
        if self.options.kind.is_static() {
            let FilterOptions { kind, size, hash_kind, seed_id, .. } = self.options;
            let made = static_filter_plan::plan(kind, size, self.hashes.len() as u64)?;
            let working = self.hashes.len().saturating_mul(WORKING_BYTES);
            if Vec::<u8>::new().try_reserve_exact(working).is_err() {
                return Err(BuildError::NoMemory { bytes: working as u64 });
            }
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
                self.hashes.iter().for_each(|hash| counting::add_key(&header, payload, *hash));
            }
            FilterKind::BinaryFuse | FilterKind::Ribbon => {}
        }
        Ok(bytes)
    }
}
