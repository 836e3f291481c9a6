//! A filter of any kind that owns its bytes, aligned to cache lines.

use crate::filter::filter_view::FilterView;
use crate::format::bloom_header::{FilterError, HEADER_BYTES};
use std::fmt;

/// The size of a cache line.
const ALIGNMENT: usize = 64;

/// A filter of any kind in memory of its own, where blocks never lie across two cache lines.
///
/// Everything that can be probed is on its [`Filter::view`], which costs some instructions: take it
/// once before a loop.
pub struct Filter {
    /// View without bytes, which has the shape of the filter.
    shape: FilterView<'static>,
    /// Up to 63 bytes, then the filter.
    buffer: Box<[u8]>,
    start: usize,
}

impl Filter {
    /// Copies an encoded filter into aligned memory.
    ///
    /// # Errors
    /// [`FilterError::Empty`] and [`FilterError::Unknown`] where every key must be answered with
    /// "maybe"; [`FilterError::Malformed`] where the bytes are damaged.
    pub fn decode(bytes: &[u8]) -> Result<Filter, FilterError> {
        let shape = FilterView::parse_known(bytes)?.over(&[]);
        Ok(Filter::aligned(shape, bytes))
    }

    fn aligned(shape: FilterView<'static>, bytes: &[u8]) -> Filter {
        let mut buffer = vec![0; bytes.len() + ALIGNMENT - 1].into_boxed_slice();
        let from = buffer.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT - 1);
        buffer[from..from + bytes.len()].copy_from_slice(bytes);
        Filter { shape, buffer, start: from }
    }

    /// The filter to probe.
    #[inline]
    pub fn view(&self) -> FilterView<'_> {
        self.shape.over(self.bytes().get(HEADER_BYTES..).unwrap_or_default())
    }

    /// Whether the key of `hash` may have been added: never false for one that was. As
    /// [`FilterView::contains`] of its view, for callers that probe once.
    #[inline]
    pub fn contains(&self, hash: u64) -> bool {
        self.shape.contains_over(self.bytes().get(HEADER_BYTES..).unwrap_or_default(), hash)
    }

    /// The encoded filter, as [`Filter::decode`] reads it.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        let length = self.buffer.len() - (ALIGNMENT - 1);
        &self.buffer[self.start..self.start + length]
    }
}

impl Clone for Filter {
    fn clone(&self) -> Filter {
        Filter::aligned(self.shape, self.bytes())
    }
}

impl fmt::Debug for Filter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Filter").field(&self.view()).finish()
    }
}
