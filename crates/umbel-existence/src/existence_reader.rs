//! [`ExistenceReader`]: a handle by which one thread probes.

use std::sync::Arc;

use arc_swap::{ArcSwap, Cache};

use crate::memory::active_filters::{ActiveFilters, FilterPair};
use crate::probe_counters::{ProbeCounters, ReaderCounters};

/// Probes a filter repeatedly. A reader keeps a reference to the filter of its last probe. So after
/// the filter has grown, the reader keeps the old filter's memory until its next probe.
///
/// [`ExistenceFilter::may_contain`] must register as a reader with locked instructions, which keep
/// the processor from fetching the lines of several probes at the same time. An `ExistenceReader`
/// only checks whether the filter was replaced.
///
/// [`ExistenceFilter::may_contain`]: crate::ExistenceFilter::may_contain
pub struct ExistenceReader {
    /// `None` with `ExistenceSize::Off`.
    state: Option<ReaderState>,
}

struct ReaderState {
    counters: ReaderCounters,
    view: Cache<Arc<ArcSwap<FilterPair>>, Arc<FilterPair>>,
}

impl ExistenceReader {
    /// Creates a reader of an open filter; `None` stands for a filter that is off.
    pub(crate) fn new(open: Option<(&ActiveFilters, &ProbeCounters)>) -> ExistenceReader {
        let state = open.map(|(filters, counters)| ReaderState {
            view: filters.cached_view(),
            counters: counters.reader_counters(),
        });
        ExistenceReader { state }
    }

    /// Whether a hash may have been inserted, as
    /// [`ExistenceFilter::may_contain`](crate::ExistenceFilter::may_contain).
    #[inline]
    pub fn may_contain(&mut self, hash: u64) -> bool {
        let Some(watched) = &mut self.state else { return true };
        let may_contain = watched.view.load().may_contain(hash);
        watched.counters.note(may_contain);
        may_contain
    }
}

impl std::fmt::Debug for ExistenceReader {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("ExistenceReader").finish_non_exhaustive()
    }
}
