//! [`BackgroundRebuild`]: growth, repair and rebuild of the filters, concurrent with readers and
//! inserters, a bounded step at a time.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use umbel_base::fail_point;
use umbel_base::ignore_poison::IgnorePoison;

use umbel_base::{Error, Result};

use crate::layout::cache_line::{LINE_WORDS, Line};
use crate::layout::filter_sizing::FilterDimensions;
use crate::maintenance_counters::MaintenanceCounters;
use crate::memory::active_filters::{ActiveFilters, add_to};
use crate::memory::blocked_filter::BlockedFilter;
use crate::options::{ExistenceOptions, ExistenceSize};
use crate::persistence::checkpoint::CURSOR_BYTES_MAX;
use crate::persistence::filter_writer::FilterWriter;
use crate::persistence::recovery::LostReason;
use crate::rebuild_source::{HashSource, StepProgress};

/// A filter is rebuilt if more than one line in this many is damaged.
const REBUILD_DAMAGED_SHARE: u64 = 20;

/// Number of inserts after which a walk that yields checks whether it still has to.
const YIELD_RECHECK_INSERTS: u64 = 4096;

/// Most times in a row that a walk yields. Without inserts of new keys, inserts do not measure the
/// walk's time.
const YIELDS_MAX: u32 = 600;

/// Background work, concurrent with readers and inserters. One thread at a time uses a
/// `BackgroundRebuild`, and no other code changes the set of filters.
///
/// INVARIANT: a walk over the source begins after the change that it serves: after new hashes go to
/// the second filter, or after inserts are watched.
#[derive(Debug)]
pub(crate) struct BackgroundRebuild {
    options: ExistenceOptions,
    tally: Arc<MaintenanceCounters>,
    repair: Option<LineRepair>,
    pace: Option<GrowthPace>,
    /// Hashes from the source since the last generation.
    walked: u64,
    /// Whether the current walk began at this open and has taken no hash yet.
    is_untouched: bool,
    /// Whether the open found damaged files, and the new filter is not yet complete.
    is_damaged: bool,
    hashes: Vec<u64>,
}

/// Pace of growth. The walk that fills the second filter takes as much processor time as appends. A
/// walk at full speed would halve the rate of appends. The walk can be slower, since new hashes go
/// to the second filter and the first never exceeds its capacity.
///
/// INVARIANT: the pace only decides how soon the next step should run, never what a step does.
#[derive(Debug)]
struct GrowthPace {
    /// Approximate number of hashes that the walk has to take: all that existed when it began, and
    /// some later ones.
    keys: u64,
    /// Number of inserts before which the walk should end. Until then the second filter has few
    /// false positives.
    insert_limit: u64,
    /// Hashes that the walk took.
    walked: u64,
    /// Hashes that the walk took and that no writer had inserted meanwhile.
    added: u64,
    /// Number of times in a row that the walk yielded.
    yields: u32,
}

impl GrowthPace {
    fn of(first: &BlockedFilter) -> GrowthPace {
        let (items, insert_limit) = (first.items(), (first.shape().keys / 4).max(1));
        GrowthPace { keys: items + insert_limit / 2, insert_limit, walked: 0, added: 0, yields: 0 }
    }

    /// Number of hashes in `second` at which the walk has no longer a lead over the inserts; `None`
    /// if it has no lead now. A walk that yields may use up its whole margin.
    fn ahead_limit(&self, second: &BlockedFilter, makes_way: bool) -> Option<u64> {
        let due =
            u128::from(self.walked) * u128::from(self.insert_limit) / u128::from(self.keys.max(1));
        let due = u64::try_from(due).unwrap_or(u64::MAX);
        let due = due.saturating_add(if makes_way { self.insert_limit } else { 0 });
        let items = self.added.saturating_add(due);
        (second.items() < items).then_some(items)
    }
}

/// Damaged lines during their repair.
#[derive(Debug)]
struct LineRepair {
    rebuilt_lines: BTreeMap<u64, Line>,
    cursor: Option<Vec<u8>>,
}

/// State that a step works on.
pub(crate) struct StepContext<'a> {
    pub(crate) memory: &'a ActiveFilters,
    pub(crate) writer: &'a Mutex<FilterWriter>,
    pub(crate) source: &'a dyn HashSource,
    /// Whether the user requested a rebuild.
    pub(crate) rebuild_wanted: &'a AtomicBool,
}

impl StepContext<'_> {
    fn writer(&self) -> MutexGuard<'_, FilterWriter> {
        self.writer.lock().ignore_poison()
    }
}

impl BackgroundRebuild {
    pub(crate) fn new(
        options: ExistenceOptions,
        tally: Arc<MaintenanceCounters>,
        lost: Option<&LostReason>,
    ) -> BackgroundRebuild {
        BackgroundRebuild {
            options,
            tally,
            repair: None,
            pace: None,
            walked: 0,
            is_untouched: lost.is_some(),
            is_damaged: lost.is_some_and(|reason| reason.is_damage),
            hashes: Vec::new(),
        }
    }

    /// Does one step: reads pages, writes pages, continues the walk, or begins the next task.
    pub(crate) fn step(&mut self, work: &StepContext<'_>) -> Result<StepProgress> {
        let view = work.memory.view();
        let mut unread = view.first.iter().chain(&view.second).filter(|f| !f.is_complete());
        if let Some(lines) = unread.next() {
            lines.read_some(self.options.step_pages());
            return Ok(StepProgress::More);
        }
        if work.writer().step(work.memory)? {
            return Ok(StepProgress::More);
        }
        if let Some(second) = &view.second {
            return self.fill(work, view.first.as_deref(), second);
        }
        let Some(first) = &view.first else { return Ok(StepProgress::Idle) };
        if self.repair.is_some() {
            return self.walk_repair(work, first);
        }
        if let Some((shape, pace)) = self.next_dimensions(work, first) {
            BackgroundRebuild::begin_next_filter(work, shape);
            self.walked = 0;
            self.pace = pace;
            return Ok(StepProgress::More);
        }
        if first.damaged_count() > 0 {
            let lines = first.damaged().into_iter();
            let remade = lines.map(|line| (line, [0; LINE_WORDS])).collect();
            work.memory.watch_inserts();
            self.repair = Some(LineRepair { rebuilt_lines: remade, cursor: None });
            return Ok(StepProgress::More);
        }
        Ok(StepProgress::Idle)
    }

    /// Begins a second filter, which takes new hashes from now on, and begins a walk at the
    /// source's start.
    fn begin_next_filter(work: &StepContext<'_>, shape: FilterDimensions) {
        // Before a thread waits: its memory is cleared as it is first touched, which is
        // milliseconds that appends would spend otherwise.
        let second = BlockedFilter::new(shape);
        second.prefault();
        // Under the writer's lock: a generation sees the filters with the cursor that is theirs.
        let mut writer = work.writer();
        work.memory.begin_next_filter(second);
        writer.set_cursor(None);
    }

    /// Returns the size of the filter that is to replace the first one, if any, and how soon.
    fn next_dimensions(
        &self,
        work: &StepContext<'_>,
        first: &BlockedFilter,
    ) -> Option<(FilterDimensions, Option<GrowthPace>)> {
        let (shape, items) = (first.shape(), first.items());
        let configured = self.options.dimensions()?;
        let is_resized = match self.options.size {
            ExistenceSize::Growing { .. } => {
                shape.probes != configured.probes || shape.keys < configured.keys
            }
            _ => shape != configured,
        };
        let is_damaged = first.damaged_count().saturating_mul(REBUILD_DAMAGED_SHARE) > shape.lines;
        let is_asked = work.rebuild_wanted.swap(false, Ordering::AcqRel);
        if is_resized || is_damaged || is_asked {
            self.tally.rebuilds.add(1);
            let estimated = work.source.estimated();
            return Some((self.shape_for(if estimated > 0 { estimated } else { items }), None));
        }
        if self.options.grows() && items >= shape.keys {
            self.tally.growths.add(1);
            // A filter far over its load counts too few.
            let keys = items.saturating_add(items / 2).max(work.source.estimated());
            return Some((self.shape_for(keys), Some(GrowthPace::of(first))));
        }
        None
    }

    /// Returns the configured size; for a growing filter, doubled until there is space for `keys`.
    fn shape_for(&self, keys: u64) -> FilterDimensions {
        match self.options.size {
            ExistenceSize::Growing { first_keys } => {
                let mut capacity = first_keys.max(1);
                while capacity < keys && capacity < u64::MAX / 64 {
                    capacity *= 2;
                }
                FilterDimensions::growing(capacity)
            }
            ExistenceSize::Fixed { bytes } => FilterDimensions::fixed(bytes),
            ExistenceSize::Off => FilterDimensions::fixed(0),
        }
    }

    /// Takes hashes from the source after the cursor `after`. Returns the cursor after these
    /// hashes.
    fn walk(&mut self, work: &StepContext<'_>, after: Option<&[u8]>) -> Result<Option<Vec<u8>>> {
        self.hashes.clear();
        let next = work.source.hashes(after, self.options.step_hashes(), &mut self.hashes)?;
        match next {
            Some(cursor) if cursor.len() > CURSOR_BYTES_MAX => Err(Error::invalid(format!(
                "the source returned a cursor of {} bytes, but the maximum is {CURSOR_BYTES_MAX}",
                cursor.len()
            ))),
            next => Ok(next),
        }
    }

    /// Inserts the next hashes of the source into a filter. Returns the cursor after these hashes
    /// and the number of new hashes.
    fn walk_into(
        &mut self,
        filter: &BlockedFilter,
        work: &StepContext<'_>,
        after: Option<&[u8]>,
    ) -> Result<(Option<Vec<u8>>, u64)> {
        let next = self.walk(work, after)?;
        let added = filter.insert_all(&self.hashes);
        fail_point!("existence-end-walk-early", |_| Ok((None, added)));
        Ok((next, added))
    }

    /// Continues the walk that fills the second filter, which replaces the first one.
    fn fill(
        &mut self,
        work: &StepContext<'_>,
        first: Option<&BlockedFilter>,
        second: &Arc<BlockedFilter>,
    ) -> Result<StepProgress> {
        if std::mem::take(&mut self.is_untouched) {
            // The expected number of keys was given before any caller could query the source.
            let shape = self.shape_for(work.source.estimated());
            if shape.lines > second.shape().lines {
                BackgroundRebuild::begin_next_filter(work, shape);
                return Ok(StepProgress::More);
            }
        }
        if self.yields(work, second) {
            let limit = self.pace.as_ref().map_or(u64::MAX, |pace| pace.insert_limit);
            second.set_report_at(second.items() + YIELD_RECHECK_INSERTS.min(limit / 4).max(1));
            return Ok(StepProgress::Yielded);
        }
        let cursor = work.writer().cursor().map(<[u8]>::to_vec);
        let (next, added) = self.walk_into(second, work, cursor.as_deref())?;
        let walked = self.hashes.len() as u64;
        self.walked += walked;
        // After the inserts: a generation that begins now has every key up to the cursor.
        let mut writer = work.writer();
        let is_over = next.is_none();
        writer.set_cursor(next);
        if is_over {
            second.set_report_at(second.shape().keys);
            work.memory.promote();
            // Damaged files lose every line.
            let rebuilt_lines = match std::mem::take(&mut self.is_damaged) {
                true => second.shape().lines,
                false => first.map_or(0, BlockedFilter::damaged_count),
            };
            self.tally.healed_lines.add(rebuilt_lines);
        }
        let pause = (second.shape().keys / 2).max(2 * self.options.step_hashes() as u64);
        if is_over || self.walked > pause {
            writer.request_generation();
            self.walked = 0;
        }
        // A caller that requests a rebuild does not want to wait for inserts.
        if is_over || work.rebuild_wanted.load(Ordering::Acquire) {
            self.pace = None;
        }
        let ahead_until = self.pace.as_mut().and_then(|pace| {
            pace.walked += walked;
            pace.added += added;
            pace.ahead_limit(second, false)
        });
        Ok(match ahead_until {
            Some(items) => {
                second.set_report_at(items);
                StepProgress::Ahead
            }
            None => StepProgress::More,
        })
    }

    /// Whether the walk yields: other urgent work needs the processor, and the walk is in time.
    fn yields(&mut self, work: &StepContext<'_>, second: &BlockedFilter) -> bool {
        let Some(pace) = &mut self.pace else { return false };
        let makes_way = !work.rebuild_wanted.load(Ordering::Acquire)
            && pace.yields < YIELDS_MAX
            && pace.ahead_limit(second, true).is_some()
            && work.source.is_busy();
        pace.yields = if makes_way { pace.yields + 1 } else { 0 };
        makes_way
    }

    /// Continues the walk that rebuilds damaged lines.
    fn walk_repair(
        &mut self,
        work: &StepContext<'_>,
        first: &BlockedFilter,
    ) -> Result<StepProgress> {
        let Some(mut heal) = self.repair.take() else { return Ok(StepProgress::More) };
        let next = match self.walk(work, heal.cursor.as_deref()) {
            Ok(next) => next,
            Err(error) => {
                self.repair = Some(heal);
                return Err(error);
            }
        };
        self.hashes.iter().for_each(|hash| add_to(&mut heal.rebuilt_lines, first, *hash));
        work.memory.add_watched(&mut heal.rebuilt_lines, first);
        if next.is_some() {
            self.repair = Some(LineRepair { cursor: next, ..heal });
            return Ok(StepProgress::More);
        }
        self.tally.healed_lines.add(heal.rebuilt_lines.len() as u64);
        work.memory.repair(heal.rebuilt_lines);
        work.writer().request_generation();
        Ok(StepProgress::More)
    }
}
