//! Chooses the filters that stay in memory, for as few false reads as the memory allows.
//!
//! Each level offers up to three selections: nothing, its tables' plain filters, or its tables'
//! second filters. A filter that saves less than one read in a thousand gets is not kept, even if
//! memory is free.
//!
//! Every level whose filters are kept starts with the smaller of its two filters; these always fit,
//! since all plain filters do. Then levels step to the larger filter, the step that saves most
//! reads per byte first. The result is the optimum except for the first step that does not fit
//! (Dantzig, 1957). The current selection, or that of all plain filters, stays unless the result
//! saves at least 5 % of the false reads.

use crate::store_budget::filter_selection::FilterSelection;
use crate::version::read_stats::LevelReads;

/// Smallest number of gets for a decision.
pub const GETS_MIN: f64 = 8192.0;
/// Filters of a level are omitted if the level's lookups of absent keys fall below this share of
/// all gets.
const OMITTED_BELOW: f64 = 0.001;
/// Omitted filters of a level are kept again if its lookups of absent keys exceed this share of all
/// gets. Between `OMITTED_BELOW` and `KEPT_ABOVE` the selection does not change, which avoids
/// oscillation.
const KEPT_ABOVE: f64 = 0.003;
/// Other filters are read from disk only if they reduce the false reads to less than this share.
const HYSTERESIS: f64 = 0.95;

/// Number of false reads in `gets` gets up to which it counts as right that a filter is omitted.
pub fn omitted_below(gets: f64) -> f64 {
    64.0 + 2.0 * KEPT_ABOVE * gets
}

/// Number of lookups of absent keys in `gets` gets that is negligible.
pub fn negligible_bytes(gets: f64) -> f64 {
    OMITTED_BELOW * gets
}

/// Filter options of the tables of a level.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct FilterOption {
    /// Bytes and false-positive rate of the tables' plain filters.
    pub plain: (u64, f64),
    /// Bytes and false-positive rate with the tables' second filters; `None` if few tables have
    /// second filters.
    pub second: Option<(u64, f64)>,
    /// Extra cost of a probe of a second filter over a probe of a plain filter, in false reads.
    pub second_cost: f64,
    /// Recent lookups in the tables of the level.
    pub reads: LevelReads,
    /// Recent gets of all levels.
    pub gets: f64,
    /// Current selection of filters.
    pub current: FilterSelection,
    /// Whether the level has too few observed lookups for a decision.
    pub is_new: bool,
}

impl FilterOption {
    fn get(&self, choice: FilterSelection) -> (u64, f64) {
        match choice {
            FilterSelection::Nothing => (0, 1.0),
            FilterSelection::Plain => self.plain,
            FilterSelection::Second => self.second.unwrap_or(self.plain),
        }
    }

    /// Number of recent false reads with the filters of this selection.
    pub fn false_reads(&self, choice: FilterSelection) -> f64 {
        self.reads.absent * self.get(choice).1
    }

    /// Bytes of the filters of this selection.
    pub fn bytes(&self, choice: FilterSelection) -> u64 {
        self.get(choice).0
    }

    /// Whether any filter pays off for the level.
    fn pays(&self) -> bool {
        let share = self.reads.absent / self.gets;
        let least =
            if self.current == FilterSelection::Nothing { KEPT_ABOVE } else { OMITTED_BELOW };
        share >= least
    }

    /// Cost of this selection: number of false reads, plus extra probe time in false reads.
    fn loss(&self, choice: FilterSelection) -> f64 {
        let cost = if choice == FilterSelection::Second { self.second_cost } else { 0.0 };
        self.reads.absent * (self.get(choice).1 + cost)
    }

    /// The smaller filter of the level, and the step to the larger one if that is better. The
    /// number is what the step saves per byte.
    fn step(&self) -> (FilterSelection, Option<(f64, FilterSelection)>) {
        if self.second.is_none() {
            return (FilterSelection::Plain, None);
        }
        let (mut small, mut large) = (FilterSelection::Plain, FilterSelection::Second);
        if self.bytes(large) < self.bytes(small) {
            (small, large) = (large, small);
        }
        if self.loss(large) >= self.loss(small) * HYSTERESIS {
            return (small, None);
        }
        let saves = self.loss(small) - self.loss(large);
        let bytes = (self.bytes(large) - self.bytes(small)).max(1);
        (small, Some((saves / bytes as f64, large)))
    }
}

/// Whether `gets` gets are too few for a decision of the advisor.
pub fn has_too_few_gets(gets: f64) -> bool {
    gets < GETS_MIN
}

/// Selection of filters for each level, within `bytes_max` bytes for all levels together. REQUIRES:
/// `bytes_max` is at least the size of all plain filters. Levels with too few observed lookups keep
/// their current selection.
pub fn allocate_memory(offers: &[FilterOption], bytes_max: u64) -> Vec<FilterSelection> {
    let plain: Vec<FilterSelection> = offers
        .iter()
        .map(|offer| match offer {
            offer if offer.is_new => offer.current,
            offer if offer.pays() => FilterSelection::Plain,
            _ => FilterSelection::Nothing,
        })
        .collect();
    let mut chosen = plain.clone();
    let mut steps: Vec<(f64, usize, FilterSelection)> = Vec::new();
    for (level, offer) in offers.iter().enumerate() {
        if !offer.is_new && chosen[level] != FilterSelection::Nothing {
            let (small, step) = offer.step();
            chosen[level] = small;
            steps.extend(step.map(|(worth, choice)| (worth, level, choice)));
        }
    }
    let bytes = |chosen: &[FilterSelection]| -> u64 {
        offers.iter().zip(chosen).map(|(offer, choice)| offer.bytes(*choice)).sum()
    };
    let mut left = bytes_max.saturating_sub(bytes(&chosen));
    steps.sort_by(|a, b| b.0.total_cmp(&a.0));
    for (_, level, choice) in steps {
        let more = offers[level].bytes(choice) - offers[level].bytes(chosen[level]);
        if more <= left {
            left -= more;
            chosen[level] = choice;
        }
    }
    let loss = |chosen: &[FilterSelection]| -> f64 {
        offers.iter().zip(chosen).map(|(offer, choice)| offer.loss(*choice)).sum()
    };
    // A small gain does not justify reading filters again.
    let mut now: Vec<FilterSelection> = offers.iter().map(|offer| offer.current).collect();
    for (now, plain) in now.iter_mut().zip(&plain) {
        if *plain == FilterSelection::Nothing || *now == FilterSelection::Nothing {
            *now = *plain;
        }
    }
    let mut best = &plain;
    for other in [&now, &chosen] {
        if bytes(other) <= bytes_max && loss(other) < loss(best) * HYSTERESIS {
            best = other;
        }
    }
    best.clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(entries: u64, absent: f64, present: f64) -> FilterOption {
        let reads = LevelReads { absent, present, false_reads: 0.0 };
        let plain = (entries * 10 / 8, 0.0096);
        FilterOption { plain, reads, gets: 90_000.0, ..FilterOption::default() }
    }

    #[test]
    fn few_probes_change_no_selection() {
        let now = FilterOption {
            current: FilterSelection::Nothing,
            is_new: true,
            ..offer(1000, 5.0, 0.0)
        };
        let other =
            FilterOption { current: FilterSelection::Plain, is_new: true, ..offer(9, 0.0, 1.0) };
        assert_eq!(
            allocate_memory(&[now, other], 0),
            [FilterSelection::Nothing, FilterSelection::Plain]
        );
        assert!(has_too_few_gets(8000.0) && !has_too_few_gets(9000.0));
    }

    #[test]
    fn level_with_hits_only_needs_no_filter() {
        let offers = [offer(1000, 90_000.0, 500.0), offer(100_000, 20.0, 89_000.0)];
        assert_eq!(
            allocate_memory(&offers, u64::MAX),
            [FilterSelection::Plain, FilterSelection::Nothing]
        );
        let mut turned = offers;
        turned[1].current = FilterSelection::Nothing;
        turned[1].reads.absent = 200.0;
        assert_eq!(
            allocate_memory(&turned, u64::MAX)[1],
            FilterSelection::Nothing,
            "not to and fro"
        );
        turned[1].reads.absent = 300.0;
        assert_eq!(allocate_memory(&turned, u64::MAX)[1], FilterSelection::Plain);
    }

    #[test]
    fn memory_goes_to_filters_that_save_most() {
        let mut offers = [offer(1000, 50_000.0, 0.0), offer(100_000, 50_000.0, 0.0)];
        offers[0].second = Some((2500, 0.0001));
        offers[1].second = Some((113_000, 0.004));
        // Both second filters fit into the memory of the plain ones.
        assert_eq!(allocate_memory(&offers, 126_250), [FilterSelection::Second; 2]);
        offers[1].second = Some((150_000, 0.0001));
        assert_eq!(allocate_memory(&offers, 126_250)[1], FilterSelection::Plain, "it does not fit");
        offers[1].second = Some((125_000, 0.0095));
        assert_eq!(allocate_memory(&offers, 128_000)[1], FilterSelection::Plain, "it is no better");
        offers[0].second = None;
        offers[1].second = Some((113_000, 0.004));
        offers[1].second_cost = 0.007;
        assert_eq!(
            allocate_memory(&offers, 128_000)[1],
            FilterSelection::Plain,
            "it takes longer to ask"
        );
    }

    /// The last level's plain filter stays even where the small levels' second filters leave no
    /// memory for it.
    #[test]
    fn last_level_keeps_a_filter_that_pays() {
        let mut offers: Vec<FilterOption> =
            [1000, 10_000, 100_000, 1_000_000].map(|keys| offer(keys, 90_000.0, 0.0)).to_vec();
        let plain: u64 = offers.iter().map(|offer| offer.bytes(FilterSelection::Plain)).sum();
        for (level, bits) in [(0, 24), (1, 20), (2, 15)] {
            let bytes = offers[level].plain.0 * bits / 10;
            offers[level].second = Some((bytes, 0.0001));
        }
        let chosen = allocate_memory(&offers, plain);
        assert_eq!(chosen, [FilterSelection::Plain; 4], "nothing else fits");
        // With a smaller one in the last level, all fit.
        offers[3].second = Some((offers[3].plain.0 * 9 / 10, 0.013));
        assert_eq!(allocate_memory(&offers, plain), [FilterSelection::Second; 4]);
        let taken = |chosen: &[FilterSelection]| -> u64 {
            offers.iter().zip(chosen).map(|(offer, choice)| offer.bytes(*choice)).sum()
        };
        assert!(taken(&allocate_memory(&offers, plain)) <= plain);
    }

    #[test]
    fn near_ties_do_not_alternate() {
        let mut offers = [offer(1000, 50_000.0, 0.0), offer(10_000, 50_000.0, 0.0)];
        offers[1].second = Some((12_000, 0.0093));
        assert_eq!(allocate_memory(&offers, 20_000)[1], FilterSelection::Plain);
        offers[1].current = FilterSelection::Second;
        offers[1].second = Some((12_000, 0.0098));
        assert_eq!(
            allocate_memory(&offers, 20_000)[1],
            FilterSelection::Plain,
            "all plain ones are as good"
        );
        offers[1].second = Some((12_000, 0.0060));
        assert_eq!(allocate_memory(&offers, 20_000)[1], FilterSelection::Second);
    }
}
