//! Properties of a filter before it is built.

use crate::bloom_variants::theoretical_rate::theoretical_rate;
use crate::build::build_error::BuildError;
use crate::build::filter_options::FilterOptions;
use crate::build::static_filter_plan;
use crate::format::bloom_header::HEADER_BYTES;
use crate::rate::blocked_rate::with_hash_floor;

/// The size and the rate of a filter with some options for some number of keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FilterPlan {
    /// Number of bytes of the filter, including its header of 64 bytes.
    pub bytes: u64,
    /// Number of bits that each key sets; 0 for kinds without such a number.
    pub probes: u32,
    /// Theoretical false-positive rate.
    pub designed_rate: f64,
}

impl FilterPlan {
    /// Plans a filter of `keys` keys. Takes some microseconds, or some hundred with
    /// [`crate::FilterSize::Rate`].
    ///
    /// # Errors
    /// The errors of [`FilterOptions::bytes_for`].
    pub fn of(options: &FilterOptions, keys: u64) -> Result<FilterPlan, BuildError> {
        if options.kind.is_static() {
            options.check()?;
            let made = static_filter_plan::plan(options.kind, options.size, keys)?;
            let bytes = made.expected_bytes(keys);
            let designed_rate = with_hash_floor(made.rate(), keys, options.hash_kind);
            return Ok(FilterPlan { bytes, probes: 0, designed_rate });
        }
        let header = options.header(keys)?;
        let payload = header.payload_bytes().unwrap_or(u64::MAX);
        Ok(FilterPlan {
            bytes: payload.saturating_add(HEADER_BYTES as u64),
            probes: u32::from(header.probes),
            designed_rate: theoretical_rate(&header),
        })
    }
}
