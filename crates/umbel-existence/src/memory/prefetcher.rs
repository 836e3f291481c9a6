//! [`Prefetcher`]: prefetches the lines of a hash before a probe needs them.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::layout::cache_line::{LINE_BYTES, locate};
use crate::memory::blocked_filter::BlockedFilter;

/// Locations of a view's filters, for callers that prefetch lines without reading the
/// view, which takes locked instructions.
///
/// A prefetcher can have the locations of the previous view, or of two different filters. Then it
/// prefetches a useless line, which is harmless.
#[derive(Debug, Default)]
pub(crate) struct Prefetcher {
    first: FilterLocation,
    second: FilterLocation,
}

/// Location of one filter; it has no lines if the filter is missing.
#[derive(Debug, Default)]
struct FilterLocation {
    address: AtomicUsize,
    lines: AtomicU64,
}

impl FilterLocation {
    fn point_at(&self, lines: Option<&BlockedFilter>) {
        let (address, count) = lines.map_or((0, 0), |lines| (lines.address(), lines.shape().lines));
        self.address.store(address, Ordering::Relaxed);
        self.lines.store(count, Ordering::Relaxed);
    }

    fn is_there(&self) -> bool {
        self.lines.load(Ordering::Relaxed) > 0
    }

    #[inline]
    fn prefetch(&self, hash: u64) {
        let lines = self.lines.load(Ordering::Relaxed);
        if lines > 0 {
            let offset = locate(hash, lines).line as usize * LINE_BYTES;
            let address = self.address.load(Ordering::Relaxed);
            umbel_arena::prefetch_address(address.wrapping_add(offset));
        }
    }
}

impl Prefetcher {
    /// Makes later calls prefetch lines of these filters.
    pub(crate) fn point_at(&self, first: Option<&BlockedFilter>, second: Option<&BlockedFilter>) {
        self.first.point_at(first);
        self.second.point_at(second);
    }

    /// Prefetches the line that an insert of a hash changes.
    #[inline]
    pub(crate) fn prefetch_target(&self, hash: u64) {
        match self.second.is_there() {
            true => self.second.prefetch(hash),
            false => self.first.prefetch(hash),
        }
    }

    /// Prefetches all lines that a probe of a hash reads.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        self.first.prefetch(hash);
        self.second.prefetch(hash);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::filter_sizing::FilterDimensions;

    #[test]
    fn prefetch_touches_only_lines_of_active_filters() {
        let lines = |keys| BlockedFilter::new(FilterDimensions::growing(keys));
        let prefetcher = Prefetcher::default();
        prefetcher.prefetch(7);
        let locations = || {
            let of = |one: &FilterLocation| {
                (one.address.load(Ordering::Relaxed), one.lines.load(Ordering::Relaxed))
            };
            [of(&prefetcher.first), of(&prefetcher.second)]
        };
        let place = |lines: &BlockedFilter| (lines.address(), lines.shape().lines);
        let (small, large) = (lines(1_000), lines(50_000));
        prefetcher.point_at(Some(&small), Some(&large));
        assert_eq!(locations(), [place(&small), place(&large)]);
        [0, 1 << 63, u64::MAX].iter().for_each(|hash| prefetcher.prefetch(*hash));
        prefetcher.prefetch_target(7);
        prefetcher.point_at(Some(&large), None);
        assert_eq!(locations()[1], (0, 0));
        drop(small);
        prefetcher.point_at(None, None);
        assert_eq!(locations(), [(0, 0); 2]);
        prefetcher.prefetch(7);
    }
}
