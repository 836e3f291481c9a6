//! A counting Bloom filter that keys are added to and removed from.

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
/// A counter that reached 15 stays there, because its number of keys is unknown. So a key
/// whose counters are all saturated is answered with "maybe" for ever. No removal makes a filter
/// deny a key in it, as long as only added keys are removed.
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
    /// With space for the header in front.
    bytes: Vec<u8>,
}

impl CountingBloom {
    /// An empty filter with space for `expected_keys` keys.
    ///
    /// # Errors
    /// As [`FilterOptions::check`]; [`BuildError::Kind`] where the options name another kind;
    /// [`BuildError::RateOutOfReach`], [`BuildError::TooLarge`] and [`BuildError::NoMemory`].
    pub fn new(expected_keys: u64, options: FilterOptions) -> Result<CountingBloom, BuildError> {
        if options.kind != FilterKind::Counting {
            return Err(BuildError::Kind { kind: options.kind });
        }
        let header = FilterHeader { keys: 0, ..options.header(expected_keys)? };
        let bytes = header.payload_bytes().unwrap_or(u64::MAX);
        let bytes = header.empty_filter().ok_or(BuildError::NoMemory { bytes })?;
        Ok(CountingBloom { header, bytes })
    }

    /// Copies an encoded filter of that kind.
    ///
    /// # Errors
    /// [`FilterError::Empty`] and [`FilterError::Unknown`] where every key must be answered with
    /// "maybe"; [`FilterError::Malformed`] where the bytes are damaged or another kind of filter.
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

    /// Removes a key by its hash. False, and nothing is changed, where any of its counters is zero:
    /// then it was not in the filter.
    ///
    /// REQUIRES: the key was added. Of a key that was not, but passes as a false positive, the
    /// counters belong to other keys, which then may be answered with "no".
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

    /// Whether the key of `hash` may be in the filter: never false for one that is.
    pub fn contains(&self, hash: u64) -> bool {
        contains_key(&self.header, &self.bytes[HEADER_BYTES..], hash)
    }

    /// Number of keys that are in the filter: added and not removed.
    pub fn keys(&self) -> u64 {
        self.header.keys
    }

    /// The filter as it is now, for everything else that can be probed.
    pub fn view(&self) -> FilterView<'_> {
        let payload = &self.bytes[HEADER_BYTES..];
        FilterView::from_parts(self.header, payload).unwrap_or(FilterView::MAYBE)
    }

    /// The encoded filter as it is now.
    pub fn to_bytes(&self) -> Vec<u8> {
        [&self.header.to_bytes(), &self.bytes[HEADER_BYTES..]].concat()
    }
}
