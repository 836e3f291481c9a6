//! The pages of an opened filter that are not read yet.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use umbel_env::File;

use crate::layout::filter_page::{self, PAGE_BYTES, PageBytes, PageLines};

/// Most pages that one system call reads.
const RUN_PAGES: u64 = 64;

/// A filter file whose pages are read when they are first requested, or by steps.
#[derive(Debug)]
pub(crate) struct LazyPages {
    /// The filter file. `None` if it could not be opened; then every page is damaged.
    file: Option<Arc<dyn File>>,
    key: u64,
    digests: Vec<u64>,
    /// Whether lines were marked as damaged when the file was written.
    has_marks: bool,
    /// A bit for each page that is in memory.
    read: Vec<AtomicU64>,
    /// Number of pages that are not in memory.
    pages_left: AtomicU64,
    /// Every page before this number is in memory.
    next: AtomicU64,
}

impl LazyPages {
    pub(crate) fn new(
        file: Option<Arc<dyn File>>,
        key: u64,
        digests: Vec<u64>,
        has_marks: bool,
    ) -> LazyPages {
        let words = digests.len().div_ceil(64);
        LazyPages {
            file,
            key,
            has_marks,
            read: (0..words).map(|_| AtomicU64::new(0)).collect(),
            pages_left: AtomicU64::new(digests.len() as u64),
            next: AtomicU64::new(0),
            digests,
        }
    }

    /// Number of pages that are not in memory.
    pub(crate) fn left(&self) -> u64 {
        self.pages_left.load(Ordering::Acquire)
    }

    /// Whether a page is in memory. A thread that gets `true` sees the page's bits.
    pub(crate) fn is_read(&self, number: u64) -> bool {
        let word = self.read.get((number / 64) as usize);
        word.is_none_or(|word| word.load(Ordering::Acquire) >> (number % 64) & 1 != 0)
    }

    /// Marks a page as being in memory with its bits. Several threads may mark the same page.
    /// Returns whether the page was the last unread one.
    pub(crate) fn note_read(&self, number: u64) -> bool {
        let bit = 1 << (number % 64);
        let Some(word) = self.read.get((number / 64) as usize) else { return false };
        let is_new = word.fetch_or(bit, Ordering::AcqRel) & bit == 0;
        // Each thread that counts down also publishes the writes of those before it.
        is_new && self.pages_left.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Reads one page. Returns `None` if the file cannot be read now.
    pub(crate) fn read(&self, number: u64) -> Option<PageLines> {
        let mut bytes = [0; PAGE_BYTES];
        self.file.as_ref()?.read_exact_at(&mut bytes, filter_page::offset(number)).ok()?;
        Some(self.decode(number, &bytes))
    }

    fn decode(&self, number: u64, bytes: &PageBytes) -> PageLines {
        let expected = self.digests.get(number as usize).copied().unwrap_or_default();
        filter_page::decode(self.key, number, expected, self.has_marks, bytes)
    }

    /// Reads at least one and at most about `pages_max` unread pages, and passes each page to
    /// `take`. All lines of a page that cannot be read are damaged.
    pub(crate) fn read_some(&self, pages_max: u64, mut take: impl FnMut(u64, Option<PageLines>)) {
        let pages = self.digests.len() as u64;
        let mut number = self.next.load(Ordering::Relaxed);
        let mut buffer = Vec::new();
        let mut done = 0;
        while number < pages && done < pages_max.max(1) {
            if self.is_read(number) {
                number += 1;
                continue;
            }
            let run = (number..pages.min(number + RUN_PAGES))
                .take_while(|page| !self.is_read(*page))
                .count();
            buffer.resize(run * PAGE_BYTES, 0);
            // A read that failed half way is made again page by page.
            let is_read = self.file.as_ref().is_some_and(|file| {
                file.read_exact_at(&mut buffer, filter_page::offset(number)).is_ok()
            });
            for bytes in buffer.as_chunks::<PAGE_BYTES>().0 {
                let lines =
                    if is_read { Some(self.decode(number, bytes)) } else { self.read(number) };
                take(number, lines);
                number += 1;
            }
            done += run as u64;
        }
        self.next.store(number, Ordering::Relaxed);
    }
}
