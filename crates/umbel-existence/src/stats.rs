//! [`ExistenceStats`]: statistics of a filter.

use crate::layout::cache_line::LINE_BITS;
use crate::layout::file_meta::FilterFileMeta;
use crate::layout::filter_sizing::{FilterDimensions, false_positive_rate};
use crate::memory::blocked_filter::BlockedFilter;

/// Statistics of a filter. Counts begin at the open, unless stated otherwise.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ExistenceStats {
    /// Whether there is a filter at all; `false` with
    /// [`ExistenceSize::Off`](crate::ExistenceSize::Off).
    pub is_on: bool,
    /// Whether the filter can answer "no"; while it is built from nothing, every answer is "maybe".
    pub is_answering: bool,
    /// Whether a second filter is being filled, to grow, to be rebuilt or to begin with.
    pub is_filling: bool,
    /// Reason why the filter had to be built from nothing at the open, if so.
    pub lost: Option<String>,
    /// Number of different hashes in the filter to which new hashes go, except a few whose bits
    /// were all set by others.
    pub items: u64,
    /// Number of keys for which the filter that is probed was made.
    pub designed_items: u64,
    /// Number of keys for which the second filter is made, which is being filled to replace the
    /// first.
    pub designed_items_next: Option<u64>,
    /// Bytes of memory of the filters.
    pub memory_bytes: u64,
    /// The share of bits that are set in the filter that is probed.
    pub fill: f64,
    /// False-positive rate with as many keys as the filter was made for.
    pub designed_rate: f64,
    /// False-positive rate by the current share of set bits, of both filters together while there
    /// are two.
    pub estimated_rate: f64,
    /// Measured false-positive rate: false positives reported by
    /// [`note_false_positive`](crate::ExistenceFilter::note_false_positive), divided by these and
    /// all "no" answers. `None` if there were neither.
    pub measured_rate: Option<f64>,
    /// Number of times the answer was "no".
    pub denied: u64,
    /// Number of times the answer was "maybe".
    pub maybe: u64,
    /// Number of "maybe" answers that were reported as false positives.
    pub false_positives: u64,
    /// Position in the user's log up to which all keys are durable in the filter's files.
    pub covered: u64,
    /// Number of hashes inserted since the last flush.
    pub lag_items: u64,
    /// Flushes that succeeded.
    pub flushes: u64,
    /// Generations of the filter files that were written.
    pub generations: u64,
    /// Bytes written to journals, filter files and `CHECKPOINT`.
    pub bytes_written: u64,
    /// Number of pages of 4,096 bytes that are not read yet.
    pub unread_pages: u64,
    /// Number of damaged lines, which are all ones until they are repaired.
    pub damaged_lines: u64,
    /// Number of damaged lines that were rebuilt, by a repair or a new filter. Of damaged or
    /// missing files, every line counts.
    pub healed_lines: u64,
    /// Number of journals that the open found damaged or missing. The keys after the damage are
    /// read from the user's log again.
    pub damaged_journals: u64,
    /// Number of times the filter grew.
    pub growths: u64,
    /// Number of rebuilds: from nothing, because of damage, to another size, or on request.
    pub rebuilds: u64,
}

impl ExistenceStats {
    /// State of the filter: `"off"`, `"being made"` (every answer is "maybe"), `"growing"`,
    /// `"rebuilding"`, `"healing"` or `"ready"`.
    pub fn state(&self) -> &'static str {
        match self.designed_items_next {
            _ if !self.is_on => "off",
            _ if !self.is_answering => "being made",
            Some(next) if next > self.designed_items => "growing",
            Some(_) => "rebuilding",
            None if self.damaged_lines > 0 => "healing",
            None => "ready",
        }
    }

    /// Statistics of a filter that has to be rebuilt, with the reason.
    pub(crate) fn of_lost(reason: String) -> ExistenceStats {
        let lost = Some(reason);
        ExistenceStats { is_on: true, estimated_rate: 1.0, lost, ..ExistenceStats::default() }
    }

    /// Adds the counts of the filters in `CHECKPOINT`, and the number of further hashes in
    /// journals.
    pub(crate) fn of_files(
        self,
        first: Option<&FilterFileMeta>,
        second: Option<&FilterFileMeta>,
        in_journals: u64,
    ) -> ExistenceStats {
        let items = |stored: &FilterFileMeta, is_target: bool| {
            let more = if is_target { in_journals } else { 0 };
            stored.items.saturating_add(more).min(stored.dimensions.items_max())
        };
        let all = || first.into_iter().chain(second);
        let mut stats = ExistenceStats {
            is_on: true,
            is_answering: first.is_some(),
            is_filling: second.is_some(),
            items: all().next_back().map_or(0, |stored| items(stored, true)),
            memory_bytes: all().map(|stored| stored.dimensions.bytes()).sum(),
            unread_pages: all().map(|stored| stored.dimensions.pages()).sum(),
            damaged_lines: all().map(|stored| stored.damaged).sum(),
            designed_items_next: first.and(second).map(|stored| stored.dimensions.keys),
            estimated_rate: 1.0,
            ..self
        };
        let Some(filter) = first.or(second) else { return stats };
        stats.describe_first(filter.dimensions);
        let filter_items = items(filter, second.is_none() || first.is_none());
        let of =
            |shape: FilterDimensions, items| false_positive_rate(items, shape.lines, shape.probes);
        let bits_set = filter_items as f64 * f64::from(filter.dimensions.probes);
        stats.fill = -(-bits_set / (filter.dimensions.lines * LINE_BITS) as f64).exp_m1();
        if first.is_some() {
            let passed = of(filter.dimensions, filter_items);
            let also = second.map_or(0.0, |stored| of(stored.dimensions, items(stored, true)));
            stats.estimated_rate = 1.0 - (1.0 - passed) * (1.0 - also);
        }
        stats
    }

    fn describe_first(&mut self, shape: FilterDimensions) {
        self.designed_items = shape.keys;
        self.designed_rate = shape.designed_rate();
    }

    /// Adds the statistics of the filters.
    pub(crate) fn describe(
        &mut self,
        first: Option<&BlockedFilter>,
        second: Option<&BlockedFilter>,
    ) {
        self.is_on = true;
        self.is_answering = first.is_some();
        self.is_filling = second.is_some();
        for lines in first.iter().chain(&second) {
            self.items = lines.items();
            self.memory_bytes += lines.shape().bytes();
            self.unread_pages += lines.unread_pages();
            self.damaged_lines += lines.damaged_count();
        }
        self.designed_items_next = first.and(second).map(|second| second.shape().keys);
        let Some(filter) = first.or(second) else { return };
        self.describe_first(filter.shape());
        let (fill, rate) = filter.fill();
        self.fill = fill;
        self.estimated_rate = match (first, second) {
            (None, _) => 1.0,
            (Some(_), None) => rate,
            (Some(_), Some(second)) => 1.0 - (1.0 - rate) * (1.0 - second.fill().1),
        };
    }

    /// Adds the counts of the filter's probes.
    pub(crate) fn count(&mut self, denied: u64, maybe: u64, false_positives: u64) {
        (self.denied, self.maybe, self.false_positives) = (denied, maybe, false_positives);
        let absent = denied + false_positives;
        self.measured_rate = (absent > 0).then(|| false_positives as f64 / absent as f64);
    }
}
