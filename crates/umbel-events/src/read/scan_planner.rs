//! [`Chooser`]: whether a filtered read looks at every event or takes candidates out of views.
//!
//! INVARIANT: an event that can be seen is in its views. So whoever asks first how far can be seen
//! and then which views there are misses nothing up to there, whatever types come meanwhile.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::candidates::{Candidates, Part};
use crate::error::Result;
use crate::event::Direction;
use crate::event_filter::{EventFilter, Within};
use crate::limits::{FILTER_STEP_MILLIS, FILTER_VIEWS_MAX};
use crate::shared::Shared;
use crate::view_name::ViewKind;

/// To take a candidate takes as long as looking at so many bytes of the log in a row, about:
/// decision 31.
const CANDIDATE_BYTES: u64 = 1024;
/// Less than so many bytes of the log are looked at without asking any view.
const LEAST_BYTES: u64 = 512 << 10;
/// At most so many are looked at before the views are asked again.
const MOST_BYTES: u64 = 64 << 20;

/// How events are found that may pass a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilterWay {
    /// By looking at every one.
    Scan,
    /// By the views that hold them, where there are such.
    Views,
}

/// What was chosen for the events that come next.
#[derive(Debug)]
pub enum Choice {
    /// To look at every one, for so many bytes of the log; without a bound where no view may help.
    Scan(Option<u64>),
    /// These.
    Views(Box<Candidates>),
}

/// Chooses how events are found, again and again.
#[derive(Debug)]
pub struct Chooser {
    /// What is taken whatever it costs. For tests.
    pub forced: Option<FilterWay>,
    /// What an expression said of types.
    types: HashMap<String, bool>,
    /// For how many bytes of the log every event is looked at next time.
    stretch: u64,
}

impl Default for Chooser {
    fn default() -> Chooser {
        Chooser { forced: None, types: HashMap::new(), stretch: LEAST_BYTES }
    }
}

impl Chooser {
    /// Chooses for the events between two positions, both included; there are none where the first
    /// is higher. REQUIRES: the events up to the second position can be seen.
    pub fn choose(
        &mut self,
        shared: &Arc<Shared>,
        filter: &EventFilter,
        (low, high): (u64, u64),
        direction: Direction,
    ) -> Result<Choice> {
        shared.check_open()?;
        let within = filter.within().filter(|_| self.forced != Some(FilterWay::Scan));
        let Some(within) = within else { return Ok(Choice::Scan(None)) };
        let is_forced = self.forced == Some(FilterWay::Views);
        let has_bytes =
            |wanted| is_forced || shared.log.chunks.bytes_between(low, high, wanted) >= wanted;
        if low > high || !has_bytes(LEAST_BYTES) {
            return Ok(Choice::Scan(Some(if is_forced { 0 } else { LEAST_BYTES })));
        }
        let Some(views) = self.views(shared, filter, &within)? else { return Ok(self.scan_on()) };
        let mut parts = Vec::with_capacity(views.len());
        for view in views {
            parts.extend(Part::new(shared, view, (low, high))?);
        }
        let candidates: u64 = parts.iter().map(Part::numbers).sum();
        if !has_bytes(candidates.saturating_mul(CANDIDATE_BYTES)) {
            return Ok(self.scan_on());
        }
        self.stretch = LEAST_BYTES;
        Ok(Choice::Views(Box::new(Candidates::new(shared, parts, direction)?)))
    }

    /// Looks at every event, for longer each time, so that asking costs little where it is in vain.
    fn scan_on(&mut self) -> Choice {
        let bytes = self.stretch;
        self.stretch = (bytes * 2).min(MOST_BYTES);
        Choice::Scan(Some(bytes))
    }

    /// The views in which all events are that pass; `None` where there are too many, or it takes
    /// too long to find out which. Another time it may be quicker.
    fn views(
        &mut self,
        shared: &Shared,
        filter: &EventFilter,
        within: &Within<'_>,
    ) -> Result<Option<Vec<(ViewKind, String)>>> {
        let prefixes = match within {
            Within::Types(prefixes) => prefixes,
            Within::Categories(names) if names.len() > FILTER_VIEWS_MAX => return Ok(None),
            Within::Categories(names) => {
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
                let passes = match self.types.get(&name) {
                    Some(passes) => *passes,
                    None if filter.is_quick() => true,
                    None => {
                        // Where the expression runs away, whoever comes to such an event is told.
                        let passes = filter.takes(&name).unwrap_or(true);
                        self.types.insert(name.clone(), passes);
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
