//! The bytes of a file as shared pages, so that copies of a disk cost next to nothing.
//!
//! INVARIANT: a page that is missing reads as zeros, and bytes after `len` are zeros, so that
//! growing a file touches no page.

use std::sync::Arc;

/// Bytes of a page, the unit of sharing and of the space that files take.
pub(crate) const PAGE_BYTES: usize = 4096;
const PAGES_PER_CHUNK: usize = 64;
static ZEROS: Page = [0; PAGE_BYTES];

/// Maximum length of a file of the simulated disk.
pub(crate) const FILE_BYTES_MAX: u64 = 64 << 30;

type Page = [u8; PAGE_BYTES];
type Chunk = [Option<Arc<Page>>; PAGES_PER_CHUNK];

/// The bytes of a file. A clone shares every page until either copy writes to it.
#[derive(Debug, Clone, Default)]
pub(crate) struct FileContent {
    len: u64,
    chunks: Arc<Vec<Option<Arc<Chunk>>>>,
}

/// The piece of a byte range that lies within one page.
struct PageRange {
    page: usize,
    /// Start in the page.
    start: usize,
    /// Number of bytes of the range before the piece.
    done: usize,
    len: usize,
}

/// Cuts `len` bytes at `offset` at page borders.
fn pieces(offset: u64, len: usize) -> impl Iterator<Item = PageRange> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let at = offset as usize + done;
        let start = at % PAGE_BYTES;
        let piece_len = (PAGE_BYTES - start).min(len - done);
        let piece = PageRange { page: at / PAGE_BYTES, start, done, len: piece_len };
        done += piece_len;
        Some(piece)
    })
}

impl FileContent {
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    fn page(&self, page: usize) -> Option<&Page> {
        let chunk = self.chunks.get(page / PAGES_PER_CHUNK)?.as_ref()?;
        chunk[page % PAGES_PER_CHUNK].as_deref()
    }

    fn page_mut(&mut self, page: usize) -> &mut Page {
        let chunks = Arc::make_mut(&mut self.chunks);
        let index = page / PAGES_PER_CHUNK;
        if chunks.len() <= index {
            chunks.resize(index + 1, None);
        }
        let empty = || Arc::new([const { None }; PAGES_PER_CHUNK]);
        let chunk = Arc::make_mut(chunks[index].get_or_insert_with(empty));
        let zeros = || Arc::new([0; PAGE_BYTES]);
        Arc::make_mut(chunk[page % PAGES_PER_CHUNK].get_or_insert_with(zeros))
    }

    /// Fills `buffer` from `offset` up to the end of the file.
    pub(crate) fn read(&self, buffer: &mut [u8], offset: u64) -> usize {
        let len = self.len.saturating_sub(offset).min(buffer.len() as u64) as usize;
        for piece in pieces(offset, len) {
            let target = &mut buffer[piece.done..piece.done + piece.len];
            match self.page(piece.page) {
                Some(page) => target.copy_from_slice(&page[piece.start..piece.start + piece.len]),
                None => target.fill(0),
            }
        }
        len
    }

    /// Stores `bytes` at `offset`; the file grows where needed.
    pub(crate) fn write(&mut self, bytes: &[u8], offset: u64) {
        for piece in pieces(offset, bytes.len()) {
            let source = &bytes[piece.done..piece.done + piece.len];
            let is_nothing = self.page(piece.page).is_none() && *source == ZEROS[..piece.len];
            if !is_nothing {
                let page = self.page_mut(piece.page);
                page[piece.start..piece.start + piece.len].copy_from_slice(source);
            }
        }
        if !bytes.is_empty() {
            self.grow(offset + bytes.len() as u64);
        }
    }

    /// Makes the file at least `len` bytes long.
    pub(crate) fn grow(&mut self, len: u64) {
        self.len = self.len.max(len);
    }

    /// Truncates the file, or extends it with zeros.
    pub(crate) fn set_len(&mut self, len: u64) {
        if len < self.len {
            self.clear_after(len as usize);
        }
        self.len = len;
    }

    fn clear_after(&mut self, len: usize) {
        let kept_pages = len.div_ceil(PAGE_BYTES);
        let kept_chunks = kept_pages.div_ceil(PAGES_PER_CHUNK);
        let chunks = Arc::make_mut(&mut self.chunks);
        chunks.truncate(kept_chunks);
        let is_whole = kept_pages.is_multiple_of(PAGES_PER_CHUNK);
        if !is_whole
            && chunks.len() == kept_chunks
            && let Some(Some(chunk)) = chunks.last_mut()
        {
            Arc::make_mut(chunk)[kept_pages % PAGES_PER_CHUNK..].fill(None);
        }
        let start = len % PAGE_BYTES;
        if start > 0 && self.page(kept_pages - 1).is_some() {
            self.page_mut(kept_pages - 1)[start..].fill(0);
        }
    }

    /// Every byte.
    pub(crate) fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len as usize];
        self.read(&mut bytes, 0);
        bytes
    }

    /// Number of pages that are held in memory.
    #[cfg(test)]
    fn pages_held(&self) -> usize {
        self.chunks.iter().flatten().map(|chunk| chunk.iter().flatten().count()).sum()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::FileContent;

    #[test]
    fn long_zero_ranges_hold_no_page() {
        let mut content = FileContent::default();
        content.grow(64 << 20);
        content.write(&[0; 100_000], 1 << 20);
        assert_eq!((content.len(), content.pages_held()), (64 << 20, 0));
        content.write(b"x", 40 << 20);
        assert_eq!(content.pages_held(), 1);
        content.set_len(3);
        assert_eq!((content.len(), content.pages_held()), (3, 0));
    }

    #[derive(Debug, Clone)]
    enum Step {
        Write(u64, Vec<u8>),
        SetLen(u64),
        Copy,
    }

    fn step() -> impl Strategy<Value = Step> {
        let far = 0..600_000u64;
        let bytes = (any::<u8>(), 0..9000usize).prop_map(|(byte, len)| vec![byte; len]);
        prop_oneof![
            4 => (far.clone(), bytes).prop_map(|(offset, bytes)| Step::Write(offset, bytes)),
            2 => far.prop_map(Step::SetLen),
            1 => Just(Step::Copy),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// The pages behave like one vector, and a copy made earlier stays as it was.
        #[test]
        fn behaves_like_a_vector(steps in prop::collection::vec(step(), 1..20)) {
            let mut content = FileContent::default();
            let mut model: Vec<u8> = Vec::new();
            let mut copies = Vec::new();
            for step in steps {
                match step {
                    Step::Write(offset, bytes) => {
                        content.write(&bytes, offset);
                        let end = offset as usize + bytes.len();
                        if !bytes.is_empty() && model.len() < end {
                            model.resize(end, 0);
                        }
                        if !bytes.is_empty() {
                            model[offset as usize..end].copy_from_slice(&bytes);
                        }
                    }
                    Step::SetLen(len) => {
                        content.set_len(len);
                        model.resize(len as usize, 0);
                    }
                    Step::Copy => copies.push((content.clone(), model.clone())),
                }
                prop_assert_eq!(content.len(), model.len() as u64);
            }
            prop_assert!(content.to_vec() == model);
            for (copy, model) in copies {
                prop_assert!(copy.to_vec() == model);
            }
        }
    }
}
