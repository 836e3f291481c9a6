//! A filter of any kind that owns its bytes, aligned to cache lines.

use crate::filter::filter_view::FilterView;
use crate::format::bloom_header::{FilterError, HEADER_BYTES};
use std::fmt;

/// The size of a cache line.
const ALIGNMENT: usize = 64;

/// A filter of any kind in memory of its own, whose blocks never span two cache lines.
///
/// All methods that probe are on its [`Filter::view`]. Making a view costs some instructions, so
/// callers make it once before a loop.
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
    /// [`FilterError::Empty`] and [`FilterError::Unknown`] if the caller must answer "maybe" to
    /// every key; [`FilterError::Malformed`] if the bytes are damaged.
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

    /// Returns a view of the filter, by which callers probe.
    #[inline]
    pub fn view(&self) -> FilterView<'_> {
        self.shape.over(self.bytes().get(HEADER_BYTES..).unwrap_or_default())
    }

    /// Whether the key of `hash` may have been added; never false for an added key. For callers
    /// that probe once; others use [`FilterView::contains`].
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
