//! A generation of filter files that is being written.
//!
//! INVARIANT: a filter file is written once, from beginning to end, and never changed. Inserts
//! continue meanwhile. Hashes inserted before the generation began are in its files, and later
//! hashes may be. A bit of a later hash is harmless.

use std::sync::Arc;

use umbel_base::Result;
use umbel_env::File;

use crate::layout::file_meta::FilterFileMeta;
use crate::layout::filter_page;
use crate::log_coverage::Coverage;
use crate::memory::blocked_filter::{BlockedFilter, FilterFileState};
use crate::persistence::directory::{FilterDirectory, FilterFileKind, name_of};

/// Most pages that one system call writes.
const RUN_PAGES: u64 = 256;

/// One filter of a generation that is being written.
#[derive(Debug)]
struct FilterWrite {
    lines: Arc<BlockedFilter>,
    /// The file being written; `None` if the filter's existing file is kept.
    file: Option<Arc<dyn File>>,
    /// State of the file, with a digest for each written page.
    file_state: FilterFileState,
}

/// A generation of filter files that is being written.
#[derive(Debug)]
pub(crate) struct GenerationWriter {
    /// Coverage of the new generation.
    pub(crate) covered: Coverage,
    /// Source position up to which the second filter has every key.
    pub(crate) cursor: Option<Vec<u8>>,
    first: Option<FilterWrite>,
    second: Option<FilterWrite>,
}

impl FilterWrite {
    /// Begins the file of a filter. With `is_final` the filter gets no more hashes, and an existing
    /// file with all its hashes is kept.
    fn begin(
        folder: &mut FilterDirectory,
        lines: &Arc<BlockedFilter>,
        is_final: bool,
    ) -> Result<FilterWrite> {
        let lines = Arc::clone(lines);
        if let Some(kept) = lines.file_state().filter(|kept| kept.is_unchanged(is_final)) {
            return Ok(FilterWrite { lines, file: None, file_state: kept });
        }
        let shape = lines.shape();
        let (id, key, file) = folder.create(FilterFileKind::Filter)?;
        file.preallocate(filter_page::offset(shape.pages()))?;
        file.write_all_at(&filter_page::header(id, key, shape.probes, shape.lines, shape.keys), 0)?;
        let items = lines.items();
        let stored =
            FilterFileMeta { id, key, dimensions: shape, items, damaged: 0, digests: Vec::new() };
        Ok(FilterWrite {
            lines,
            file: Some(file),
            file_state: FilterFileState { meta: stored, is_final },
        })
    }

    /// Writes up to `pages_max` pages, and makes the file durable after the last page. Returns the
    /// number of written pages.
    fn write_some(&mut self, pages_max: u64) -> Result<u64> {
        let Some(file) = &self.file else { return Ok(0) };
        let stored = &mut self.file_state.meta;
        let pages = stored.dimensions.pages();
        let start = stored.digests.len() as u64;
        let end = pages.min(start + pages_max);
        let mut buffer = Vec::new();
        while (stored.digests.len() as u64) < end {
            let first = stored.digests.len() as u64;
            let damaged = self.lines.damaged();
            buffer.clear();
            for number in first..end.min(first + RUN_PAGES) {
                let lines = self.lines.page(number);
                let is_damaged = |line| damaged.contains(&line);
                let digest =
                    filter_page::encode(stored.key, number, &lines, is_damaged, &mut buffer);
                stored.digests.push(digest);
            }
            stored.damaged = stored.damaged.max(damaged.len() as u64);
            file.write_all_at(&buffer, filter_page::offset(first))?;
            let next = filter_page::offset(stored.digests.len() as u64);
            file.write_back(filter_page::offset(first)..next);
        }
        if start < pages && end == pages {
            file.sync()?;
        }
        Ok(end - start)
    }

    fn is_written(&self) -> bool {
        self.file.is_none()
            || self.file_state.meta.digests.len() as u64 == self.file_state.meta.dimensions.pages()
    }
}

impl GenerationWriter {
    /// Begins the files of the first and second filter.
    ///
    /// REQUIRES: every page of the filters is in memory, and flushes after this call go to a new
    /// journal.
    pub(crate) fn begin(
        folder: &mut FilterDirectory,
        first: Option<&Arc<BlockedFilter>>,
        second: Option<&Arc<BlockedFilter>>,
        covered: Coverage,
        cursor: Option<Vec<u8>>,
    ) -> Result<GenerationWriter> {
        let first = match first {
            Some(lines) => Some(FilterWrite::begin(folder, lines, second.is_some())?),
            None => None,
        };
        let second = match second {
            Some(lines) => Some(FilterWrite::begin(folder, lines, false)?),
            None => None,
        };
        Ok(GenerationWriter { covered, cursor, first, second })
    }

    /// Writes up to about `pages_max` pages. Returns the number of bytes written.
    pub(crate) fn write_some(&mut self, pages_max: u64) -> Result<u64> {
        let mut pages = 0;
        for part in self.first.iter_mut().chain(&mut self.second) {
            if pages < pages_max.max(1) && !part.is_written() {
                pages += part.write_some(pages_max.max(1) - pages)?;
            }
        }
        Ok(pages * filter_page::PAGE_BYTES as u64)
    }

    /// Whether every file is written and durable.
    pub(crate) fn is_written(&self) -> bool {
        self.first.iter().chain(&self.second).all(FilterWrite::is_written)
    }

    /// Metadata of the first and of the second filter.
    pub(crate) fn file_metas(&self) -> (Option<FilterFileMeta>, Option<FilterFileMeta>) {
        let stored = |part: &FilterWrite| part.file_state.meta.clone();
        (self.first.as_ref().map(stored), self.second.as_ref().map(stored))
    }

    /// Sets the written files as the files of the filters, and returns the names of these files.
    pub(crate) fn attach_files(&self) -> Vec<String> {
        let parts = self.first.iter().chain(&self.second);
        parts
            .map(|part| {
                part.lines.set_file_state(part.file_state.clone());
                name_of(FilterFileKind::Filter, part.file_state.meta.id)
            })
            .collect()
    }
}
