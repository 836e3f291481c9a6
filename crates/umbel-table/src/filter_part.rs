//! The filter of a table, as it is kept in memory.

use umbel_filter::{Bloom, FilterError};

/// `None` for a filter of a kind that this build does not know, which means "maybe".
pub(crate) fn decode_filter(payload: &[u8]) -> Result<Option<Bloom>, &'static str> {
    match Bloom::decode(payload) {
        Ok(filter) => Ok(Some(filter)),
        Err(FilterError::Malformed { reason }) => Err(reason),
        Err(_) => Ok(None),
    }
}

/// The filter folded by `factor`, or the next larger one up to twice that which divides it; as it
/// is where none does.
pub(crate) fn folded(filter: Bloom, factor: u64) -> Bloom {
    let mut factors = factor..=factor.saturating_mul(2);
    let smaller = if factor > 1 { factors.find_map(|factor| filter.fold(factor)) } else { None };
    smaller.unwrap_or(filter)
}
