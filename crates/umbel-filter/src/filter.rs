//! A filter of any kind that owns its bytes, aligned to cache lines.

use crate::encoding::FilterError;
use crate::filter_view::FilterView;
use std::fmt;

/// The size of a cache line.
const ALIGNMENT: usize = 64;

/// A filter of any kind in memory of its own, where blocks never lie across two cache lines.
///
/// Everything that can be asked is on its [`Filter::view`]; take that once before a loop.
pub struct Filter {
    /// Up to 63 bytes, then the filter.
    buffer: Box<[u8]>,
    from: usize,
}

impl Filter {
    /// Copies an encoded filter into aligned memory.
    ///
    /// # Errors
    /// [`FilterError::Empty`] and [`FilterError::Unknown`] where every key is to be answered with
    /// "maybe"; [`FilterError::Malformed`] where the bytes are damaged.
    pub fn decode(bytes: &[u8]) -> Result<Filter, FilterError> {
        FilterView::parse_known(bytes)?;
        Ok(Filter::aligned(bytes))
    }

    fn aligned(bytes: &[u8]) -> Filter {
        let mut buffer = vec![0; bytes.len() + ALIGNMENT - 1].into_boxed_slice();
        let from = buffer.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT - 1);
        buffer[from..from + bytes.len()].copy_from_slice(bytes);
        Filter { buffer, from }
    }

    /// The filter to ask.
    pub fn view(&self) -> FilterView<'_> {
        FilterView::parse(self.bytes()).unwrap_or(FilterView::MAYBE)
    }

    /// The encoded filter, as [`Filter::decode`] reads it.
    pub fn bytes(&self) -> &[u8] {
        let length = self.buffer.len() - (ALIGNMENT - 1);
        &self.buffer[self.from..self.from + length]
    }
}

impl Clone for Filter {
    fn clone(&self) -> Filter {
        Filter::aligned(self.bytes())
    }
}

impl fmt::Debug for Filter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Filter").field(&self.view()).finish()
    }
}
