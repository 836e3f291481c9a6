//! [`Prefetcher`]: asks the memory for the lines of a hash before anybody asks these.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::line::{LINE_BYTES, place};
use crate::lines::Lines;

/// Where the filters of a view lie, for who has lines fetched without looking at the view, which
/// takes locked instructions.
///
/// What it says may be of the view before, or of one filter by halves. Then a line is fetched that
/// nobody needs; a prefetch never reads anything.
#[derive(Debug, Default)]
pub(crate) struct Prefetcher {
    first: Whereabouts,
    second: Whereabouts,
}

/// Where one filter lies; without lines where there is none.
#[derive(Debug, Default)]
struct Whereabouts {
    address: AtomicUsize,
    lines: AtomicU64,
}

impl Whereabouts {
    fn point_at(&self, lines: Option<&Lines>) {
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
            let offset = place(hash, lines).line as usize * LINE_BYTES;
            let address = self.address.load(Ordering::Relaxed);
            umbel_arena::prefetch_address(address.wrapping_add(offset));
        }
    }
}

impl Prefetcher {
    /// Fetches lines of these filters from now on.
    pub(crate) fn point_at(&self, first: Option<&Lines>, second: Option<&Lines>) {
        self.first.point_at(first);
        self.second.point_at(second);
    }

    /// Has the line of a hash fetched that an insert would change.
    #[inline]
    pub(crate) fn prefetch_target(&self, hash: u64) {
        match self.second.is_there() {
            true => self.second.prefetch(hash),
            false => self.first.prefetch(hash),
        }
    }

    /// Has the lines of a hash fetched.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        self.first.prefetch(hash);
        self.second.prefetch(hash);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::Shape;

    #[test]
    fn it_fetches_lines_of_the_filters_that_are_there_and_of_no_others() {
        let lines = |keys| Lines::new(Shape::growing(keys));
        let prefetcher = Prefetcher::default();
        prefetcher.prefetch(7);
        let said = || {
            let of = |one: &Whereabouts| {
                (one.address.load(Ordering::Relaxed), one.lines.load(Ordering::Relaxed))
            };
            [of(&prefetcher.first), of(&prefetcher.second)]
        };
        let place = |lines: &Lines| (lines.address(), lines.shape().lines);
        let (small, large) = (lines(1_000), lines(50_000));
        prefetcher.point_at(Some(&small), Some(&large));
        assert_eq!(said(), [place(&small), place(&large)]);
        [0, 1 << 63, u64::MAX].iter().for_each(|hash| prefetcher.prefetch(*hash));
        prefetcher.prefetch_target(7);
        prefetcher.point_at(Some(&large), None);
        assert_eq!(said()[1], (0, 0));
        drop(small);
        prefetcher.point_at(None, None);
        assert_eq!(said(), [(0, 0); 2]);
        prefetcher.prefetch(7);
    }
}
