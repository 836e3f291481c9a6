//! A counting Bloom filter that keys are added to and removed from.

use crate::build_error::BuildError;
use crate::counters::{STUCK, counter, set_counter};
use crate::counting::{ask, count};
use crate::encoding::{FilterError, HEADER_BYTES};
use crate::filter_view::FilterView;
use crate::header::{FilterHeader, malformed, parse};
use crate::kind::FilterKind;
use crate::options::FilterOptions;
use crate::probing::Probing;

/// A Bloom filter of counters of 4 bits, in memory.
///
/// A counter that reached 15 stays there, for nobody knows how many keys it stands for. So a key
/// whose counters are all stuck is answered with "maybe" for ever, and no removal makes a filter
/// say no to a key that is in it, as long as only keys are removed that were added.
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
    /// With room for the header in front.
    bytes: Vec<u8>,
}

impl CountingBloom {
    /// An empty filter with room for `expected_keys` keys.
    ///
    /// # Errors
    /// As [`FilterOptions::check`]; [`BuildError::Kind`] where the options ask for another kind;
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
    /// [`FilterError::Empty`] and [`FilterError::Unknown`] where every key is to be answered with
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
        count(&self.header, &mut self.bytes[HEADER_BYTES..], hash);
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
        Probing::Multiplied.each(hash, self.header.units, 0..self.header.probes, |position| {
            let value = counter(payload, position);
            if value != STUCK {
                set_counter(payload, position, value.saturating_sub(1));
            }
        });
        self.header.keys = self.header.keys.saturating_sub(1);
        true
    }

    /// Whether the key of `hash` may be in the filter: never false for one that is.
    pub fn contains(&self, hash: u64) -> bool {
        ask(&self.header, &self.bytes[HEADER_BYTES..], hash)
    }

    /// How many keys are in the filter: added and not removed.
    pub fn keys(&self) -> u64 {
        self.header.keys
    }

    /// The filter as it is now, for everything else that can be asked.
    pub fn view(&self) -> FilterView<'_> {
        let payload = &self.bytes[HEADER_BYTES..];
        FilterView::from_parts(self.header, payload).unwrap_or(FilterView::MAYBE)
    }

    /// The encoded filter as it is now.
    pub fn to_bytes(&self) -> Vec<u8> {
        [&self.header.to_bytes(), &self.bytes[HEADER_BYTES..]].concat()
    }
}
