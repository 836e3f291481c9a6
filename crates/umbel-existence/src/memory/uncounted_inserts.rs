//! [`UncountedInserts`]: hashes inserted into pages that are not read yet.
//!
//! Such a hash may already be in its page. Only the page's bits say whether it is new, so it is
//! counted when its page is read.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use umbel_base::ignore_poison::IgnorePoison;

use crate::layout::cache_line::{LINE_WORDS, Line, LinePosition, mask};
use crate::layout::filter_page::{PAGE_LINES, PageLines};

/// The positions of hashes by the number of their page.
type PositionsByPage = BTreeMap<u64, Vec<LinePosition>>;

/// Hashes that changed a bit of an unread page and are not counted yet.
#[derive(Debug, Default)]
pub(crate) struct UncountedInserts {
    by_page: Mutex<PositionsByPage>,
    count: AtomicU64,
}

impl UncountedInserts {
    /// Locks the hashes. An insert into an unread page sets its bits under this lock, and so does
    /// the thread that adds the page's own bits. Each of them therefore sees the other's work.
    pub(crate) fn lock(&self) -> UncountedGuard<'_> {
        UncountedGuard { by_page: self.by_page.lock().ignore_poison(), count: &self.count }
    }

    /// Bytes of memory of the hashes.
    pub(crate) fn bytes(&self) -> u64 {
        self.count.load(Ordering::Relaxed) * size_of::<LinePosition>() as u64
    }
}

/// Locked [`UncountedInserts`].
#[derive(Debug)]
pub(crate) struct UncountedGuard<'a> {
    by_page: MutexGuard<'a, PositionsByPage>,
    count: &'a AtomicU64,
}

impl UncountedGuard<'_> {
    /// Adds a hash.
    pub(crate) fn push(&mut self, place: LinePosition) {
        self.by_page.entry(place.line / PAGE_LINES).or_default().push(place);
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Removes the hashes of a page. Returns how many of them have a bit that is not set in the
    /// page, nor by the hashes before them. A damaged line has all bits.
    pub(crate) fn take_new(&mut self, page: u64, lines: &PageLines, probes: u32) -> u64 {
        let places = self.by_page.remove(&page).unwrap_or_default();
        self.count.fetch_sub(places.len() as u64, Ordering::Relaxed);
        let mut lines = *lines;
        places.into_iter().filter(|place| sets_a_bit(&mut lines, *place, probes)).count() as u64
    }
}

/// Sets the bits of a hash in its line. Returns whether one of them was not set before.
fn sets_a_bit(lines: &mut PageLines, place: LinePosition, probes: u32) -> bool {
    let Some(line) = &mut lines[(place.line % PAGE_LINES) as usize] else { return false };
    let before: Line = *line;
    let mask = mask(place, probes);
    (0..LINE_WORDS).for_each(|word| line[word] |= mask[word]);
    *line != before
}
