//! A counting Bloom filter, to which keys can be added and from which they can be removed.

use crate::bloom_variants::counter_array::{SATURATED, counter, set_counter};
use crate::bloom_variants::counting::{add_key, contains_key};
use crate::build::build_error::BuildError;
use crate::build::filter_options::FilterOptions;
use crate::filter::filter_view::FilterView;
use crate::format::bloom_header::{FilterError, HEADER_BYTES};
use crate::format::filter_header::{FilterHeader, malformed, parse};
use crate::format::filter_kind::FilterKind;
use crate::probe::probe_positions::Probing;

/// A Bloom filter of counters of 4 bits, in memory.
///
/// A counter that reached 15 stays at 15, because its number of keys is unknown. So the answer for
/// a key whose counters are all 15 is "maybe" forever. If only added keys are removed, no removal
/// makes a filter deny a key.
///
/// ```
/// use umbel_filter::{CountingBloom, FilterKind, FilterOptions};
///
/// let kind = FilterKind::Counting;
/// let mut filter = CountingBloom::new(1_000, FilterOptions { kind, ..Default::default() })?;
/// filter.add(7);
/// assert!(filter.contains(7) && filter.remove(7));
/// assert!(!filter.contains(7) && !filter.remove(7));
/// # Ok::<(), umbel_filter::BuildError>(())
/// ```
#[derive(Clone, Debug)]
pub struct CountingBloom {
    header: FilterHeader,
    /// The encoded filter, header first.
    bytes: Vec<u8>,
}

impl CountingBloom {
    /// Creates an empty filter for `expected_keys` keys.
    ///
    /// # Errors
    /// The errors of [`FilterOptions::check`]; [`BuildError::Kind`] if the options name another
    /// kind; [`BuildError::RateOutOfReach`], [`BuildError::TooLarge`] and [`BuildError::NoMemory`].
    pub fn new(expected_keys: u64, options: FilterOptions) -> Result<CountingBloom, BuildError> {
        if options.kind != FilterKind::Counting {
            return Err(BuildError::Kind { kind: options.kind });
        }
        let header = FilterHeader { keys: 0, ..options.header(expected_keys)? };
        let bytes = header.payload_bytes().unwrap_or(u64::MAX);
        let bytes = header.empty_filter().ok_or(BuildError::NoMemory { bytes })?;
        Ok(CountingBloom { header, bytes })
    }

    /// Copies an encoded counting filter.
    ///
    /// # Errors
    /// [`FilterError::Empty`] and [`FilterError::Unknown`] if the caller must answer "maybe" to
    /// every key; [`FilterError::Malformed`] if the bytes are damaged or another kind of filter.
    pub fn decode(bytes: &[u8]) -> Result<CountingBloom, FilterError> {
        let (header, _) = parse(bytes)?;
        if header.kind != FilterKind::Counting {
            return Err(malformed("the filter is not a counting one"));
        }
        Ok(CountingBloom { header, bytes: bytes.to_vec() })
    }

    /// Adds a key by its hash. A key that is added twice must be removed twice.
    pub fn add(&mut self, hash: u64) {
        add_key(&self.header, &mut self.bytes[HEADER_BYTES..], hash);
        self.header.keys = self.header.keys.saturating_add(1);
    }

    /// Removes a key by its hash. If any of the key's counters is zero, the key is not in the
    /// filter: the call then changes nothing and returns false.
    ///
    /// REQUIRES: the key was added. Removing a key that only passes as a false positive decrements
    /// counters of other keys, which the filter can then deny.
    pub fn remove(&mut self, hash: u64) -> bool {
        if !self.contains(hash) {
            return false;
        }
        let payload = &mut self.bytes[HEADER_BYTES..];
        Probing::Multiplied.for_each_position(
            hash,
            self.header.units,
            0..self.header.probes,
            |position| {
                let value = counter(payload, position);
                if value != SATURATED {
                    set_counter(payload, position, value.saturating_sub(1));
                }
            },
        );
        self.header.keys = self.header.keys.saturating_sub(1);
        true
    }

    /// Whether the key of `hash` may be in the filter; never false for a key in the filter.
    pub fn contains(&self, hash: u64) -> bool {
        contains_key(&self.header, &self.bytes[HEADER_BYTES..], hash)
    }

    /// Number of keys in the filter: added and not removed.
    pub fn keys(&self) -> u64 {
        self.header.keys
    }

    /// A view of the current filter, with all methods of views.
    pub fn view(&self) -> FilterView<'_> {
        let payload = &self.bytes[HEADER_BYTES..];
        FilterView::from_parts(self.header, payload).unwrap_or(FilterView::MAYBE)
    }

    /// The current filter in encoded form.
    pub fn to_bytes(&self) -> Vec<u8> {
        [&self.header.to_bytes(), &self.bytes[HEADER_BYTES..]].concat()
    }
}
