//! [`ViewVerifier`]: checks that the views match the log, event by event.
//!
//! Damage of an entry, of a block of entries or of the log ends no check: the check continues with
//! the next entry that can be read. A run of wrong entries is reported once.

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use crate::event_log::event_format::Frame;
use crate::shared_store_state::StoreInner;
use crate::types::error::{Error, Result};
use crate::types::view_kind::{ViewKind, begins_stream, category};

/// Maximum number of cached pages of entries, which take 16 MiB. Tests have few views.
const CACHED_PAGES_MAX: usize = if cfg!(test) { 4 } else { 4096 };
/// Number of views whose states are kept, in about 50 MiB and the bytes of their names. Of more,
/// undamaged views are forgotten, and of twice as many all views.
pub const REMEMBERED_VIEWS: usize = if cfg!(test) { 64 } else { 1 << 18 };
/// Number of views that are listed at a time.
const LISTED_VIEWS: usize = 4096;
/// Number of entries that are fetched at a time.
const PAGE_ENTRIES: usize = 256;

/// Checks that the views match the log, event by event.
#[derive(Debug, Default)]
pub struct ViewVerifier {
    views: HashMap<(ViewKind, String), ViewCheck>,
    /// Number of pages with entries that were fetched since the cached ones were dropped.
    fetched_pages: Cell<usize>,
    /// Number of events of each kind of view in the log.
    event_counts: HashMap<ViewKind, u64>,
    /// Positions of the log whose events could not be read.
    unread: Vec<Range<u64>>,
}

/// State of the check of one view.
#[derive(Debug, Default)]
struct ViewCheck {
    /// Next entries from the index: numbers and positions.
    page: VecDeque<(u64, u64)>,
    /// Lowest number after the page; `None` before the first page, and if the view was forgotten.
    next: Option<u64>,
    /// Position before which events are not compared, since their entries are unreadable.
    unreadable_before: u64,
    /// Whether no further entries can be read.
    is_unreadable: bool,
    /// Whether the last event had a wrong entry.
    is_wrong: bool,
}

impl ViewCheck {
    /// Drops the cached entries. The next page begins with the first of them.
    fn drop_page(&mut self) {
        let first = std::mem::take(&mut self.page).front().map(|(number, _)| *number);
        self.next = first.or(self.next);
    }

    /// Whether damage of the view was reported that must not be reported again.
    fn is_damaged(&self) -> bool {
        self.is_unreadable || self.is_wrong || self.unreadable_before > 0
    }
}

/// Entries of a view in the index.
struct ViewEntries<'a> {
    shared: &'a StoreInner,
    kind: ViewKind,
    name: &'a str,
    unread: &'a [Range<u64>],
    fetched_pages: &'a Cell<usize>,
}

impl ViewVerifier {
    /// Checks that each view of an event has it right after the view's previous event. Adds errors
    /// to `found`. REQUIRES: the caller passes events in the order of the log.
    pub fn check(&mut self, shared: &StoreInner, frame: &Frame<'_>, found: &mut Vec<Error>) {
        let position = frame.meta.position;
        if let Some(category) = category(frame.stream) {
            self.check_view(shared, (ViewKind::Category, category), position, found);
        }
        self.check_view(shared, (ViewKind::Type, frame.event.kind), position, found);
        if begins_stream(frame.stream, frame.meta.revision) {
            self.check_view(shared, (ViewKind::Streams, ""), position, found);
        }
    }

    /// Records that events at these positions of the log could not be read. Entries for them are
    /// not compared.
    pub fn skip(&mut self, positions: Range<u64>) {
        self.unread.push(positions);
    }

    fn check_view(
        &mut self,
        shared: &StoreInner,
        (kind, name): (ViewKind, &str),
        position: u64,
        found: &mut Vec<Error>,
    ) {
        *self.event_counts.entry(kind).or_default() += 1;
        let has_many_views = self.views.len() >= 2 * REMEMBERED_VIEWS;
        if has_many_views || self.fetched_pages.get() >= CACHED_PAGES_MAX {
            self.free_memory();
        }
        let check = self.views.entry((kind, name.to_string())).or_default();
        let (unread, fetched_pages) = (&self.unread, &self.fetched_pages);
        let entries = ViewEntries { shared, kind, name, unread, fetched_pages };
        match entries.take(check, position, found) {
            Ok(what) => {
                let was_wrong = std::mem::replace(&mut check.is_wrong, what.is_some());
                let is_first = !was_wrong;
                found
                    .extend(what.filter(|_| is_first).map(|what| damage(shared, kind, name, what)));
            }
            Err(error) => found.push(error),
        }
    }

    /// Drops the cached pages. If there are very many views, drops the states of undamaged ones,
    /// or of all. The check of a forgotten view goes on at its next event, and can report damage of
    /// the view again.
    fn free_memory(&mut self) {
        if self.views.len() >= 2 * REMEMBERED_VIEWS {
            self.views.clear();
        } else if self.views.len() >= REMEMBERED_VIEWS {
            self.views.retain(|_, check| check.is_damaged());
        }
        self.views.values_mut().for_each(ViewCheck::drop_page);
        self.fetched_pages.set(0);
    }

    /// Number of views whose states are kept, and of pages that are counted as cached.
    #[cfg(test)]
    pub fn kept(&self) -> (usize, usize) {
        (self.views.len(), self.fetched_pages.get())
    }

    /// Checks that the views hold no other entries. REQUIRES: every event up to the position
    /// `through` was checked.
    pub fn check_counts(&self, shared: &StoreInner, through: u64) -> Result<()> {
        let views = &shared.index.views;
        for kind in [ViewKind::Category, ViewKind::Type, ViewKind::Streams] {
            let mut indexed = 0;
            let mut after: Option<String> = None;
            loop {
                let page = views.list(kind, "", after.as_deref(), LISTED_VIEWS)?;
                for (name, _) in &page {
                    indexed += views.entries_through(kind, name, through)?;
                }
                match page.into_iter().last() {
                    Some((name, _)) => after = Some(name),
                    None => break,
                }
            }
            let found = self.event_counts.get(&kind).copied().unwrap_or(0);
            if indexed != found {
                let what = format!(
                    "{found} events are in views of this kind, but the index has {indexed}"
                );
                return Err(damage(shared, kind, "", what));
            }
        }
        Ok(())
    }
}

impl ViewEntries<'_> {
    /// Removes the entries up to that of the event at `position` from the page. Returns what is
    /// wrong with them. Adds damage of blocks to `found`.
    fn take(
        &self,
        check: &mut ViewCheck,
        position: u64,
        found: &mut Vec<Error>,
    ) -> Result<Option<String>> {
        let mut wrong = None;
        loop {
            if check.page.is_empty() {
                self.fetch(check, position, found)?;
            }
            let before = check.page.front().copied().filter(|(_, at)| *at < position);
            let Some((_, at)) = before else { break };
            check.page.pop_front();
            // An entry of a scavenged event stays until the view is rebuilt.
            if !self.is_unread(at) && !self.is_in_log(at, |event| event.is_none())? {
                wrong.get_or_insert(at);
            }
        }
        let next = check.page.front().map(|(_, at)| *at);
        let is_here = next == Some(position);
        if is_here {
            check.page.pop_front();
        }
        if is_here || check.is_unreadable || position < check.unreadable_before {
            return Ok(wrong.map(|at| {
                format!("the index has position {at}, where the log has no event of the view")
            }));
        }
        if let Some(at) = next
            && wrong.is_none()
            && !self.is_in_log(at, |event| event.is_none_or(|event| self.contains(event)))?
        {
            // The entry of this event has another position; it belongs to no later event.
            check.page.pop_front();
        }
        let indexed = wrong.or(next);
        Ok(Some(format!("the next event is at position {position}, but the index has {indexed:?}")))
    }

    /// Fetches the next page. Skips blocks of entries that cannot be read, and adds their damage to
    /// `found`.
    fn fetch(&self, check: &mut ViewCheck, position: u64, found: &mut Vec<Error>) -> Result<()> {
        let (views, kind, name) = (&self.shared.index.views, self.kind, self.name);
        if check.is_unreadable {
            return Ok(());
        }
        let mut next = match check.next {
            Some(next) => next,
            None => match views.count_through(kind, name, position - 1).map_err(Error::from) {
                Ok(next) => next,
                Err(error) if error.is_damage() => {
                    found.push(error);
                    check.is_unreadable = true;
                    return Ok(());
                }
                Err(error) => return Err(error),
            },
        };
        let mut has_skipped = false;
        loop {
            let error = match views.positions(kind, name, next, PAGE_ENTRIES, false) {
                Ok(page) => {
                    let has_entries = usize::from(!page.is_empty());
                    self.fetched_pages.set(self.fetched_pages.get() + has_entries);
                    check.next = Some(page.last().map_or(next, |(number, _)| number + 1));
                    check.page = page.into();
                    break;
                }
                Err(error) => Error::from(error),
            };
            if !error.is_damage() {
                return Err(error);
            }
            found.push(error);
            has_skipped = true;
            match views.first_number_of_later_block(kind, name, next).map_err(Error::from) {
                Ok(Some(later)) => next = later,
                Err(error) if !error.is_damage() => return Err(error),
                Ok(None) | Err(_) => {
                    check.is_unreadable = true;
                    return Ok(());
                }
            }
        }
        if has_skipped {
            let first = check.page.front().map(|(_, at)| *at);
            check.is_unreadable = first.is_none();
            check.unreadable_before = first.unwrap_or(0);
        }
        Ok(())
    }

    /// Whether the event at a position of the log could not be read.
    fn is_unread(&self, position: u64) -> bool {
        self.unread.iter().any(|positions| positions.contains(&position))
    }

    /// Whether `is_wanted` accepts the event at a position of the log, which is `None` if a
    /// scavenge removed it. Returns false where no event is or was.
    fn is_in_log(
        &self,
        position: u64,
        is_wanted: impl FnOnce(Option<&Frame<'_>>) -> bool,
    ) -> Result<bool> {
        let mut cursor = self.shared.log.cursor();
        match cursor.find_event(position).map_err(Error::from) {
            Ok(event) => Ok(is_wanted(event.as_ref())),
            Err(error) if error.is_damage() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether the view contains an event.
    fn contains(&self, event: &Frame<'_>) -> bool {
        self.kind.contains(self.name, event.stream, event.event.kind, event.meta.revision)
    }
}

fn damage(shared: &StoreInner, kind: ViewKind, name: &str, what: String) -> Error {
    let reason = format!("view '{}': {what}", kind.view_name(name).escape_debug());
    umbel::Error::corruption(&shared.folder.join("index"), 0, reason).into()
}
