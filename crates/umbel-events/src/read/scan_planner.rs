//! [`ScanPlanner`]: whether a filtered read scans every event or takes candidates from views.
//!
//! INVARIANT: a visible event is in its views. A reader that first loads the visible position and
//! then lists the views misses no event up to that position, even if new types appear at the same
//! time.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::event_filter::{ContainingViews, EventFilter};
use crate::limits::{FILTER_STEP_MILLIS, FILTER_VIEWS_MAX};
use crate::read::view_merge::{ViewMerge, ViewRange};
use crate::shared_store_state::StoreInner;
use crate::types::error::Result;
use crate::types::event::Direction;
use crate::types::view_kind::ViewKind;

/// Cost of a candidate of a view, in bytes of the log that a scan reads in about the same time; see
/// decision 31.
const VIEW_ENTRY_COST_BYTES: u64 = 1024;
/// A range of the log with fewer bytes is scanned without a lookup of views.
const SCAN_BYTES_MIN: u64 = 512 << 10;
/// Maximum bytes that are scanned before the views are looked up again.
const SCAN_BYTES_MAX: u64 = 64 << 20;

/// Strategy that finds events that may match a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilterStrategy {
    /// Examines every event.
    Scan,
    /// Takes candidates from the views that contain them, if such views exist.
    Views,
}

/// Plan for the next events.
#[derive(Debug)]
pub enum ScanPlan {
    /// Examines every event, for this many bytes of the log; unbounded if no view can help.
    Scan(Option<u64>),
    /// Takes candidates from these views.
    Views(Box<ViewMerge>),
}

/// Plans how a filtered read finds its next events.
#[derive(Debug)]
pub struct ScanPlanner {
    /// Strategy used instead of the one that cost estimates would select. For tests.
    pub forced: Option<FilterStrategy>,
    /// Results of the expression for types.
    type_matches: HashMap<String, bool>,
    /// Bytes of the log that the next scan reads.
    scan_bytes: u64,
}

impl Default for ScanPlanner {
    fn default() -> ScanPlanner {
        ScanPlanner { forced: None, type_matches: HashMap::new(), scan_bytes: SCAN_BYTES_MIN }
    }
}

impl ScanPlanner {
    /// Plans a read of the events between two positions, both inclusive; the range is empty if the
    /// first position is higher. REQUIRES: the events up to the second position are visible.
    pub fn plan(
        &mut self,
        shared: &Arc<StoreInner>,
        filter: &EventFilter,
        (low, high): (u64, u64),
        direction: Direction,
    ) -> Result<ScanPlan> {
        shared.check_open()?;
        let within =
            filter.containing_views().filter(|_| self.forced != Some(FilterStrategy::Scan));
        let Some(within) = within else { return Ok(ScanPlan::Scan(None)) };
        let is_forced = self.forced == Some(FilterStrategy::Views);
        let has_bytes =
            |wanted| is_forced || shared.log.chunks.bytes_between(low, high, wanted) >= wanted;
        if low > high || !has_bytes(SCAN_BYTES_MIN) {
            return Ok(ScanPlan::Scan(Some(if is_forced { 0 } else { SCAN_BYTES_MIN })));
        }
        let Some(views) = self.candidate_views(shared, filter, &within)? else {
            return Ok(self.extend_scan());
        };
        let mut parts = Vec::with_capacity(views.len());
        for view in views {
            parts.extend(ViewRange::new(shared, view, (low, high))?);
        }
        let candidates: u64 = parts.iter().map(ViewRange::remaining_count).sum();
        if !has_bytes(candidates.saturating_mul(VIEW_ENTRY_COST_BYTES)) {
            return Ok(self.extend_scan());
        }
        self.scan_bytes = SCAN_BYTES_MIN;
        Ok(ScanPlan::Views(Box::new(ViewMerge::new(shared, parts, direction)?)))
    }

    /// Plans a scan of every event that is longer than the scan before. So repeated lookups of
    /// views that do not help cost little.
    fn extend_scan(&mut self) -> ScanPlan {
        let bytes = self.scan_bytes;
        self.scan_bytes = (bytes * 2).min(SCAN_BYTES_MAX);
        ScanPlan::Scan(Some(bytes))
    }

    /// Returns the views that contain all matching events; `None` if too many views would be
    /// needed, or if the search takes too long. A repeated call can be quicker.
    fn candidate_views(
        &mut self,
        shared: &StoreInner,
        filter: &EventFilter,
        within: &ContainingViews<'_>,
    ) -> Result<Option<Vec<(ViewKind, String)>>> {
        let prefixes = match within {
            ContainingViews::View(kind, name) => {
                return Ok(Some(vec![(*kind, name.to_string())]));
            }
            ContainingViews::Types(prefixes) => prefixes,
            ContainingViews::Categories(names) if names.len() > FILTER_VIEWS_MAX => {
                return Ok(None);
            }
            ContainingViews::Categories(names) => {
                let named = names.iter().map(|name| (ViewKind::Category, name.to_string()));
                return Ok(Some(named.collect()));
            }
        };
        let clock = &shared.env.clock;
        let until = clock.now() + Duration::from_millis(FILTER_STEP_MILLIS);
        let (mut views, mut left) = (Vec::new(), FILTER_VIEWS_MAX);
        for prefix in prefixes {
            if clock.now() >= until {
                return Ok(None);
            }
            let listed = shared.index.views.list(ViewKind::Type, prefix, None, left + 1)?;
            let Some(fewer) = left.checked_sub(listed.len()) else { return Ok(None) };
            left = fewer;
            for (name, _) in listed {
                let passes = match self.type_matches.get(&name) {
                    Some(passes) => *passes,
                    None if filter.is_cheap() => true,
                    None => {
                        // If the expression is too expensive, the reader that examines such an
                        // event gets the error.
                        let passes = filter.matches(&name).unwrap_or(true);
                        self.type_matches.insert(name.clone(), passes);
                        if clock.now() >= until {
                            return Ok(None);
                        }
                        passes
                    }
                };
                if passes {
                    views.push((ViewKind::Type, name));
                }
            }
        }
        Ok(Some(views))
    }
}
