//! Properties of a filter that is not built.

use crate::bloom_variants::theoretical_rate::theoretical_rate;
use crate::build::build_error::BuildError;
use crate::build::filter_options::FilterOptions;
use crate::build::static_filter_plan;
use crate::format::bloom_header::HEADER_BYTES;
use crate::rate::blocked_rate::with_hash_floor;

/// The size and the rate of a filter with some options for some number of keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FilterPlan {
    /// Number of bytes it takes, its header of 64 among them.
    pub bytes: u64,
    /// Number of bits each key sets; 0 where the kind has no such number.
    pub probes: u32,
    /// The share of absent keys that theory lets through.
    pub designed_rate: f64,
}

impl FilterPlan {
    /// Plan of a filter of `keys` keys. Takes some microseconds, with
    /// [`crate::FilterSize::Rate`] some hundred.
    ///
    /// # Errors
    /// As [`FilterOptions::bytes_for`].
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
