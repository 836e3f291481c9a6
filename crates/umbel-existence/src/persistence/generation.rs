//! One generation of the filter files, while it is written.
//!
//! INVARIANT: a filter file is written once, whole, and never changed. Inserts go on meanwhile:
//! what was inserted before the generation began is in it, and of what comes later any part may be.
//! A bit too many is no harm.

use std::sync::Arc;

use umbel_base::Result;
use umbel_env::File;

use crate::covered::Covered;
use crate::folder::{Folder, Kind, name_of};
use crate::lines::{Kept, Lines};
use crate::page;
use crate::stored::Stored;

/// Pages written with one call.
const RUN_PAGES: u64 = 256;

/// One filter of a generation.
#[derive(Debug)]
struct Part {
    lines: Arc<Lines>,
    /// The file being written; `None` where the one there is stays right.
    file: Option<Arc<dyn File>>,
    /// Has a digest for each page that was written.
    kept: Kept,
}

/// One generation of the filter files, while it is written.
#[derive(Debug)]
pub(crate) struct Generation {
    /// What it will cover.
    pub(crate) covered: Covered,
    /// Up to where the source is in the second filter.
    pub(crate) cursor: Option<Vec<u8>>,
    first: Option<Part>,
    second: Option<Part>,
}

impl Part {
    /// Begins the file of a filter. With `is_final` the filter gets no more hashes, and a file that
    /// was written since that is so stays.
    fn begin(folder: &mut Folder, lines: &Arc<Lines>, is_final: bool) -> Result<Part> {
        let lines = Arc::clone(lines);
        let stays = |kept: &Kept| kept.is_final && is_final;
        #[cfg(feature = "canary")]
        let stays =
            |kept: &Kept| stays(kept) || umbel_base::canary::Switch::ExistenceStaleFilter.is_on();
        if let Some(kept) = lines.kept().filter(stays) {
            return Ok(Part { lines, file: None, kept });
        }
        let shape = lines.shape();
        let (id, key, file) = folder.create(Kind::Filter)?;
        file.preallocate(page::offset(shape.pages()))?;
        file.write_all_at(&page::header(id, key, shape.probes, shape.lines, shape.keys), 0)?;
        let items = lines.items();
        let stored = Stored { id, key, shape, items, damaged: 0, digests: Vec::new() };
        Ok(Part { lines, file: Some(file), kept: Kept { stored, is_final } })
    }

    /// Writes up to `most` pages, and makes the file durable behind the last one. Gives how many.
    fn write_some(&mut self, most: u64) -> Result<u64> {
        let Some(file) = &self.file else { return Ok(0) };
        let stored = &mut self.kept.stored;
        let pages = stored.shape.pages();
        let start = stored.digests.len() as u64;
        let end = pages.min(start + most);
        let mut buffer = Vec::new();
        while (stored.digests.len() as u64) < end {
            let first = stored.digests.len() as u64;
            let damaged = self.lines.damaged();
            buffer.clear();
            for number in first..end.min(first + RUN_PAGES) {
                let lines = self.lines.page(number);
                let is_damaged = |line| damaged.contains(&line);
                let digest = page::encode(stored.key, number, &lines, is_damaged, &mut buffer);
                stored.digests.push(digest);
            }
            stored.damaged = stored.damaged.max(damaged.len() as u64);
            file.write_all_at(&buffer, page::offset(first))?;
            let next = page::offset(stored.digests.len() as u64);
            file.write_back(page::offset(first)..next);
        }
        if start < pages && end == pages {
            file.sync()?;
        }
        Ok(end - start)
    }

    fn is_written(&self) -> bool {
        self.file.is_none()
            || self.kept.stored.digests.len() as u64 == self.kept.stored.shape.pages()
    }
}

impl Generation {
    /// Begins the files of these filters.
    ///
    /// REQUIRES: every page of them is in memory; from now on flushes go to a journal that was not
    /// written before.
    pub(crate) fn begin(
        folder: &mut Folder,
        first: Option<&Arc<Lines>>,
        second: Option<&Arc<Lines>>,
        covered: Covered,
        cursor: Option<Vec<u8>>,
    ) -> Result<Generation> {
        let first = match first {
            Some(lines) => Some(Part::begin(folder, lines, second.is_some())?),
            None => None,
        };
        let second = match second {
            Some(lines) => Some(Part::begin(folder, lines, false)?),
            None => None,
        };
        Ok(Generation { covered, cursor, first, second })
    }

    /// Writes up to about `most` pages. Gives how many bytes that were.
    pub(crate) fn write_some(&mut self, most: u64) -> Result<u64> {
        let mut pages = 0;
        for part in self.first.iter_mut().chain(&mut self.second) {
            if pages < most.max(1) && !part.is_written() {
                pages += part.write_some(most.max(1) - pages)?;
            }
        }
        Ok(pages * page::PAGE_BYTES as u64)
    }

    /// Whether every file is written and durable.
    pub(crate) fn is_written(&self) -> bool {
        self.first.iter().chain(&self.second).all(Part::is_written)
    }

    /// What is to be said of the first and of the second filter.
    pub(crate) fn stored(&self) -> (Option<Stored>, Option<Stored>) {
        let stored = |part: &Part| part.kept.stored.clone();
        (self.first.as_ref().map(stored), self.second.as_ref().map(stored))
    }

    /// Notes with the filters that these are their files, and gives the files' names.
    pub(crate) fn keep(&self) -> Vec<String> {
        let parts = self.first.iter().chain(&self.second);
        parts
            .map(|part| {
                part.lines.keep(part.kept.clone());
                name_of(Kind::Filter, part.kept.stored.id)
            })
            .collect()
    }
}
