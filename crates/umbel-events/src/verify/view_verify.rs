//! [`ViewChecks`]: whether the views say what the log does, event by event.

use std::collections::{HashMap, VecDeque};

use crate::error::Result;
use crate::format::Frame;
use crate::shared::Shared;
use crate::view_name::{ViewKind, begins_stream, category};

/// How many views are remembered.
const VIEWS: usize = 4096;
/// How many entries are fetched at a time.
const PAGE: usize = 256;

/// Whether the views say what the log does, event by event.
#[derive(Debug, Default)]
pub struct ViewChecks {
    /// What comes next in each view, as the index says.
    next: HashMap<(ViewKind, String), VecDeque<(u64, u64)>>,
    /// How many events of each kind of view were found in the log.
    found: HashMap<ViewKind, u64>,
}

impl ViewChecks {
    /// Checks that an event is in each of its views, behind the one before it.
    /// REQUIRES: events come in the order of the log.
    pub fn check(&mut self, shared: &Shared, frame: &Frame<'_>) -> Result<()> {
        let mut checked = Ok(());
        if let Some(category) = category(frame.stream) {
            checked = checked.and(self.check_one(shared, ViewKind::Category, category, frame));
        }
        checked = checked.and(self.check_one(shared, ViewKind::Type, frame.event.kind, frame));
        if begins_stream(frame.stream, frame.stamp.revision) {
            checked = checked.and(self.check_one(shared, ViewKind::Streams, "", frame));
        }
        checked
    }

    fn check_one(
        &mut self,
        shared: &Shared,
        kind: ViewKind,
        name: &str,
        frame: &Frame<'_>,
    ) -> Result<()> {
        *self.found.entry(kind).or_default() += 1;
        let (views, position) = (&shared.index.views, frame.stamp.position);
        if self.next.len() >= VIEWS {
            self.next.clear();
        }
        let page = self.next.entry((kind, name.to_string())).or_default();
        if page.is_empty() {
            let next = views.numbers_through(kind, name, position - 1)?;
            *page = views.positions(kind, name, next, PAGE, false)?.into();
        }
        let mut cursor = shared.log.cursor();
        while let Some((_, indexed)) = page.front().copied().filter(|(_, at)| *at < position) {
            if cursor.find(indexed)?.is_some() {
                break;
            }
            // It was scavenged, and the view was not made anew since.
            page.pop_front();
            if page.is_empty() {
                let next = views.numbers_through(kind, name, indexed)?;
                *page = views.positions(kind, name, next, PAGE, false)?.into();
            }
        }
        match page.pop_front() {
            Some((_, indexed)) if indexed == position => Ok(()),
            other => {
                page.clear();
                let indexed = other.map(|(_, indexed)| indexed);
                let what = format!(
                    "the next event stands at position {position}, but the index says {indexed:?}"
                );
                wrong(shared, kind, name, what)
            }
        }
    }

    /// Checks that the views hold nothing else. `through` is the position of the last event that
    /// was checked, and nothing was left out.
    pub fn check_counts(&self, shared: &Shared, through: u64) -> Result<()> {
        let views = &shared.index.views;
        for kind in [ViewKind::Category, ViewKind::Type, ViewKind::Streams] {
            let mut indexed = 0;
            let mut after: Option<String> = None;
            loop {
                let page = views.list(kind, "", after.as_deref(), VIEWS)?;
                for (name, _) in &page {
                    indexed += views.entries_through(kind, name, through)?;
                }
                match page.into_iter().last() {
                    Some((name, _)) => after = Some(name),
                    None => break,
                }
            }
            let found = self.found.get(&kind).copied().unwrap_or(0);
            if indexed != found {
                let what = format!(
                    "{found} events are in views of this kind, but the index says {indexed}"
                );
                return wrong(shared, kind, "", what);
            }
        }
        Ok(())
    }
}

fn wrong(shared: &Shared, kind: ViewKind, name: &str, what: String) -> Result<()> {
    let reason = format!("view '{}': {what}", kind.view(name).escape_debug());
    Err(umbel::Error::corruption(&shared.folder.join("index"), 0, reason).into())
}
