//! [`ViewVerifier`]: checks that the views match the log, event by event.

use std::collections::{HashMap, VecDeque};

use crate::event_log::event_format::Frame;
use crate::shared_store_state::StoreInner;
use crate::types::error::Result;
use crate::types::view_kind::{ViewKind, begins_stream, category};

/// Maximum number of cached views.
const CACHED_VIEWS_MAX: usize = 4096;
/// Number of entries that are fetched at a time.
const PAGE_ENTRIES: usize = 256;

/// Checks that the views match the log, event by event.
#[derive(Debug, Default)]
pub struct ViewVerifier {
    /// Next entries of each view, from the index.
    next: HashMap<(ViewKind, String), VecDeque<(u64, u64)>>,
    /// Number of events of each kind of view in the log.
    event_counts: HashMap<ViewKind, u64>,
}

impl ViewVerifier {
    /// Checks that each view of an event has it right after the view's previous event. REQUIRES:
    /// the caller passes events in the order of the log.
    pub fn check(&mut self, shared: &StoreInner, frame: &Frame<'_>) -> Result<()> {
        let mut checked = Ok(());
        if let Some(category) = category(frame.stream) {
            checked = checked.and(self.check_view(shared, ViewKind::Category, category, frame));
        }
        checked = checked.and(self.check_view(shared, ViewKind::Type, frame.event.kind, frame));
        if begins_stream(frame.stream, frame.meta.revision) {
            checked = checked.and(self.check_view(shared, ViewKind::Streams, "", frame));
        }
        checked
    }

    fn check_view(
        &mut self,
        shared: &StoreInner,
        kind: ViewKind,
        name: &str,
        frame: &Frame<'_>,
    ) -> Result<()> {
        *self.event_counts.entry(kind).or_default() += 1;
        let (views, position) = (&shared.index.views, frame.meta.position);
        if self.next.len() >= CACHED_VIEWS_MAX {
            self.next.clear();
        }
        let page = self.next.entry((kind, name.to_string())).or_default();
        if page.is_empty() {
            let next = views.count_through(kind, name, position - 1)?;
            *page = views.positions(kind, name, next, PAGE_ENTRIES, false)?.into();
        }
        let mut cursor = shared.log.cursor();
        while let Some((_, indexed)) = page.front().copied().filter(|(_, at)| *at < position) {
            if cursor.find_event(indexed)?.is_some() {
                break;
            }
            // The event was scavenged, and the view was not rebuilt since.
            page.pop_front();
            if page.is_empty() {
                let next = views.count_through(kind, name, indexed)?;
                *page = views.positions(kind, name, next, PAGE_ENTRIES, false)?.into();
            }
        }
        match page.pop_front() {
            Some((_, indexed)) if indexed == position => Ok(()),
            other => {
                page.clear();
                let indexed = other.map(|(_, indexed)| indexed);
                let what = format!(
                    "the next event is at position {position}, but the index has {indexed:?}"
                );
                report_damage(shared, kind, name, what)
            }
        }
    }

    /// Checks that the views hold no other entries. REQUIRES: every event up to the position
    /// `through` was checked.
    pub fn check_counts(&self, shared: &StoreInner, through: u64) -> Result<()> {
        let views = &shared.index.views;
        for kind in [ViewKind::Category, ViewKind::Type, ViewKind::Streams] {
            let mut indexed = 0;
            let mut after: Option<String> = None;
            loop {
                let page = views.list(kind, "", after.as_deref(), CACHED_VIEWS_MAX)?;
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
                return report_damage(shared, kind, "", what);
            }
        }
        Ok(())
    }
}

fn report_damage(shared: &StoreInner, kind: ViewKind, name: &str, what: String) -> Result<()> {
    let reason = format!("view '{}': {what}", kind.view_name(name).escape_debug());
    Err(umbel::Error::corruption(&shared.folder.join("index"), 0, reason).into())
}
