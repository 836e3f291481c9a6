//! [`Background`]: what is done beside readers and inserters, a bounded step at a time.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use umbel_base::{Error, Result};

use crate::checkpoint::CURSOR_BYTES_MAX;
use crate::line::{LINE_WORDS, Line};
use crate::lines::Lines;
use crate::memory::{Memory, add_to};
use crate::options::{ExistenceOptions, Size};
use crate::shape::Shape;
use crate::source::{Progress, Source};
use crate::tally::Tally;
use crate::writer::Writer;

/// A filter with more than one damaged line in so many is made anew.
const DAMAGED_SHARE: u64 = 20;

/// After so many inserts a walk that made way looks whether it still has to.
const LOOKS_AGAIN_AFTER: u64 = 4096;

/// So often in a row a walk makes way at most: where nobody inserts what is new, inserts are no
/// measure of its time.
const MAKES_WAY_MOST: u32 = 600;

/// What is done beside readers and inserters. One thread at a time uses it; it alone changes which
/// filters there are.
///
/// INVARIANT: a walk over the source begins after the change that it is for: after new hashes go to
/// the second filter, or after inserts are watched.
#[derive(Debug)]
pub(crate) struct Background {
    options: ExistenceOptions,
    tally: Arc<Tally>,
    heal: Option<Heal>,
    pace: Option<Pace>,
    /// Hashes from the source since the last generation.
    walked: u64,
    /// Whether the walk under way began with this open and took nothing yet.
    is_untouched: bool,
    hashes: Vec<u64>,
}

/// How far a filter has to be with growing. Its walk takes as much of the processor as appending
/// does; if it went on as fast as it can, appending would halve until it is done. There is time:
/// new hashes go to the second filter, so that the first one is never fuller than it was made for.
///
/// INVARIANT: it only says how soon a step should come, never what the step does.
#[derive(Debug)]
struct Pace {
    /// About how many hashes the walk has to take: those there were when it began, and some of the
    /// later ones.
    keys: u64,
    /// After how many inserts it should be done: the second filter lets little through until then.
    room: u64,
    /// Hashes that the walk took.
    walked: u64,
    /// Those of them that nobody had inserted meanwhile.
    added: u64,
    /// How often in a row the walk made way.
    made_way: u32,
}

impl Pace {
    fn of(first: &Lines) -> Pace {
        let (items, room) = (first.items(), (first.shape().keys / 4).max(1));
        Pace { keys: items + room / 2, room, walked: 0, added: 0, made_way: 0 }
    }

    /// With how many hashes in `second` the walk no longer has a larger share behind it than the
    /// inserts; `None` where that is so. A walk that makes way may be behind by all of its time.
    fn ahead_until(&self, second: &Lines, makes_way: bool) -> Option<u64> {
        let due = u128::from(self.walked) * u128::from(self.room) / u128::from(self.keys.max(1));
        let due = u64::try_from(due).unwrap_or(u64::MAX);
        let due = due.saturating_add(if makes_way { self.room } else { 0 });
        let items = self.added.saturating_add(due);
        (second.items() < items).then_some(items)
    }
}

/// Damaged lines being remade.
#[derive(Debug)]
struct Heal {
    remade: BTreeMap<u64, Line>,
    cursor: Option<Vec<u8>>,
}

/// What a step works on.
pub(crate) struct Work<'a> {
    pub(crate) memory: &'a Memory,
    pub(crate) writer: &'a Mutex<Writer>,
    pub(crate) source: &'a dyn Source,
    /// Whether the user asked for a rebuild.
    pub(crate) rebuild_wanted: &'a AtomicBool,
}

impl Work<'_> {
    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Background {
    pub(crate) fn new(options: ExistenceOptions, tally: Arc<Tally>, is_lost: bool) -> Background {
        Background {
            options,
            tally,
            heal: None,
            pace: None,
            walked: 0,
            is_untouched: is_lost,
            hashes: Vec::new(),
        }
    }

    /// One step: reads pages, or else writes some, or else walks on, or else begins what is due.
    pub(crate) fn step(&mut self, work: &Work<'_>) -> Result<Progress> {
        let view = work.memory.view();
        let mut unread = view.first.iter().chain(&view.second).filter(|f| !f.is_complete());
        if let Some(lines) = unread.next() {
            lines.read_some(self.options.step_pages());
            return Ok(Progress::More);
        }
        if work.writer().step(work.memory)? {
            return Ok(Progress::More);
        }
        if let Some(second) = &view.second {
            return self.fill(work, second);
        }
        let Some(first) = &view.first else { return Ok(Progress::Idle) };
        if self.heal.is_some() {
            return self.walk_healing(work, first);
        }
        if let Some((shape, pace)) = self.wanted(work, first) {
            Background::begin_second(work, shape);
            self.walked = 0;
            self.pace = pace;
            return Ok(Progress::More);
        }
        if first.damaged_count() > 0 {
            let lines = first.damaged().into_iter();
            let remade = lines.map(|line| (line, [0; LINE_WORDS])).collect();
            work.memory.watch();
            self.heal = Some(Heal { remade, cursor: None });
            return Ok(Progress::More);
        }
        Ok(Progress::Idle)
    }

    /// Has a second filter take new hashes, and the walk begin at the source's start.
    fn begin_second(work: &Work<'_>, shape: Shape) {
        // Before anybody waits: its memory is cleared as it is first touched, which is milliseconds
        // that appends would spend otherwise.
        let second = Lines::new(shape);
        second.touch();
        // Under the writer's lock: a generation sees the filters with the cursor that is theirs.
        let mut writer = work.writer();
        work.memory.begin_second(second);
        writer.set_cursor(None);
    }

    /// The shape of a filter that is to take the first one's place, if one is, and how soon.
    fn wanted(&self, work: &Work<'_>, first: &Lines) -> Option<(Shape, Option<Pace>)> {
        let (shape, items) = (first.shape(), first.items());
        let configured = self.options.shape()?;
        let is_resized = match self.options.size {
            Size::Growing { .. } => {
                shape.probes != configured.probes || shape.keys < configured.keys
            }
            _ => shape != configured,
        };
        let is_damaged = first.damaged_count().saturating_mul(DAMAGED_SHARE) > shape.lines;
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
            return Some((self.shape_for(keys), Some(Pace::of(first))));
        }
        None
    }

    /// The configured size, doubled until it has room for `keys` if it grows.
    fn shape_for(&self, keys: u64) -> Shape {
        match self.options.size {
            Size::Growing { first_keys } => {
                let mut room = first_keys.max(1);
                while room < keys && room < u64::MAX / 64 {
                    room *= 2;
                }
                Shape::growing(room)
            }
            Size::Fixed { bytes } => Shape::fixed(bytes),
            Size::Off => Shape::fixed(0),
        }
    }

    /// Takes hashes from the source behind `after`. Gives the cursor behind them.
    fn walk(&mut self, work: &Work<'_>, after: Option<&[u8]>) -> Result<Option<Vec<u8>>> {
        self.hashes.clear();
        let next = work.source.hashes(after, self.options.step_hashes(), &mut self.hashes)?;
        match next {
            Some(cursor) if cursor.len() > CURSOR_BYTES_MAX => Err(Error::invalid(format!(
                "the source gave a cursor of {} bytes, but it may have {CURSOR_BYTES_MAX}",
                cursor.len()
            ))),
            next => Ok(next),
        }
    }

    /// Walks on to fill the second filter.
    fn fill(&mut self, work: &Work<'_>, second: &Arc<Lines>) -> Result<Progress> {
        if std::mem::take(&mut self.is_untouched) {
            // What the filter is made for was said before anybody could ask the source.
            let shape = self.shape_for(work.source.estimated());
            if shape.lines > second.shape().lines {
                Background::begin_second(work, shape);
                return Ok(Progress::More);
            }
        }
        if self.makes_way(work, second) {
            let room = self.pace.as_ref().map_or(u64::MAX, |pace| pace.room);
            second.say_at(second.items() + LOOKS_AGAIN_AFTER.min(room / 4).max(1));
            return Ok(Progress::MadeWay);
        }
        let cursor = work.writer().cursor().map(<[u8]>::to_vec);
        let next = self.walk(work, cursor.as_deref())?;
        let added = second.insert_all(&self.hashes);
        let walked = self.hashes.len() as u64;
        self.walked += walked;
        #[cfg(feature = "canary")]
        let next = next.filter(|_| !umbel_base::canary::Switch::ExistenceWalkEndsEarly.is_on());
        // Behind the inserts: a generation that begins now has what the cursor says.
        let mut writer = work.writer();
        let is_over = next.is_none();
        writer.set_cursor(next);
        if is_over {
            second.say_at(second.shape().keys);
            work.memory.promote();
        }
        let pause = (second.shape().keys / 2).max(2 * self.options.step_hashes() as u64);
        if is_over || self.walked > pause {
            writer.want_generation();
            self.walked = 0;
        }
        // Whoever asks for a rebuild does not want to wait for inserts.
        if is_over || work.rebuild_wanted.load(Ordering::Acquire) {
            self.pace = None;
        }
        let ahead_until = self.pace.as_mut().and_then(|pace| {
            pace.walked += walked;
            pace.added += added;
            pace.ahead_until(second, false)
        });
        Ok(match ahead_until {
            Some(items) => {
                second.say_at(items);
                Progress::Ahead
            }
            None => Progress::More,
        })
    }

    /// Whether the walk lets other work pass: there is some, and time.
    fn makes_way(&mut self, work: &Work<'_>, second: &Lines) -> bool {
        let Some(pace) = &mut self.pace else { return false };
        let makes_way = !work.rebuild_wanted.load(Ordering::Acquire)
            && pace.made_way < MAKES_WAY_MOST
            && pace.ahead_until(second, true).is_some()
            && work.source.is_busy();
        pace.made_way = if makes_way { pace.made_way + 1 } else { 0 };
        makes_way
    }

    /// Walks on to remake damaged lines.
    fn walk_healing(&mut self, work: &Work<'_>, first: &Lines) -> Result<Progress> {
        let Some(mut heal) = self.heal.take() else { return Ok(Progress::More) };
        let next = match self.walk(work, heal.cursor.as_deref()) {
            Ok(next) => next,
            Err(error) => {
                self.heal = Some(heal);
                return Err(error);
            }
        };
        self.hashes.iter().for_each(|hash| add_to(&mut heal.remade, first, *hash));
        work.memory.add_watched(&mut heal.remade, first);
        if next.is_some() {
            self.heal = Some(Heal { cursor: next, ..heal });
            return Ok(Progress::More);
        }
        self.tally.healed_lines.add(heal.remade.len() as u64);
        work.memory.heal(heal.remade);
        work.writer().want_generation();
        Ok(Progress::More)
    }
}
