//! A bump allocator: memory is allocated piece by piece and freed all at once.
//!
//! Chunks grow with the content, from a kilobyte to the size of a huge page. So a memtable of ten
//! keys takes little memory. In a large memtable, random accesses have few TLB misses if the system
//! gives huge pages to processes that request them.
//!
//! INVARIANT: allocated memory is never moved, allocated again or freed before the arena is
//! dropped.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;

use umbel_arena::Chunk;

/// Bytes of the smallest chunk, and unit of the size of larger chunks.
const CHUNK_BYTES_MIN: usize = 1024;
/// Bytes of the largest chunk: size and alignment of a huge page. An arena that has as many bytes
/// gets only chunks of this size.
const HUGE_PAGE_BYTES: usize = 2 * 1024 * 1024;
/// From this size on, chunks are pages mapped from the system. An allocator would keep fragmented
/// parts of a memtable's freed memory, which matters in a small budget.
const PAGES_BYTES: usize = 64 * 1024;
/// Alignment of chunks, which is the maximum alignment of an allocation: a cache line.
const CHUNK_ALIGN: usize = 64;

/// Memory for one memtable's entries or nodes.
pub(crate) struct BumpArena {
    /// Every chunk from the allocator, with the layout with which it was allocated.
    chunks: Vec<(NonNull<u8>, Layout)>,
    /// Chunks that are pages mapped from the system.
    pages: Vec<Chunk>,
    /// The free part of the newest bump chunk.
    next: NonNull<u8>,
    left: usize,
    used: usize,
    reserved: usize,
}

impl Default for BumpArena {
    fn default() -> BumpArena {
        BumpArena::new()
    }
}

// SAFETY: an arena owns its chunks as a `Vec` owns its buffer; `next` points into one of them and
// is used through `&mut self` only.
unsafe impl Send for BumpArena {}

impl BumpArena {
    /// Creates an empty arena.
    pub(crate) fn new() -> BumpArena {
        BumpArena {
            chunks: Vec::new(),
            pages: Vec::new(),
            next: NonNull::dangling(),
            left: 0,
            used: 0,
            reserved: 0,
        }
    }

    /// Bytes of all allocations, padding included.
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// Bytes taken from the system or the allocator, the list of chunks included.
    pub(crate) fn reserved(&self) -> usize {
        let lists = self.chunks.capacity() * size_of::<(NonNull<u8>, Layout)>();
        self.reserved + lists + self.pages.capacity() * size_of::<Chunk>()
    }

    /// Allocates uninitialized memory of this layout, which is valid until the arena is dropped.
    ///
    /// REQUIRES: the size is not zero, and the alignment is at most that of a cache line.
    #[inline]
    pub(crate) fn allocate(&mut self, layout: Layout) -> NonNull<u8> {
        assert!(layout.size() > 0 && layout.align() <= CHUNK_ALIGN);
        let padding = self.next.align_offset(layout.align());
        let Some(total) = padding.checked_add(layout.size()).filter(|&total| total <= self.left)
        else {
            return self.allocate_in_new_chunk(layout);
        };
        // SAFETY: `next` is the start of `left` free bytes of a chunk and `padding <= total <=
        // left`, so both sums stay inside that chunk or one after its end.
        let (piece, next) = unsafe { (self.next.add(padding), self.next.add(total)) };
        self.next = next;
        self.left -= total;
        self.used += total;
        piece
    }

    /// Allocates memory for which the current chunk has no space, from a new chunk. A large
    /// allocation gets a chunk of its own, so that little of the current chunk is wasted.
    #[cold]
    fn allocate_in_new_chunk(&mut self, layout: Layout) -> NonNull<u8> {
        let chunk_bytes = match self.reserved {
            HUGE_PAGE_BYTES.. => HUGE_PAGE_BYTES,
            held => (held / 4).next_multiple_of(CHUNK_BYTES_MIN).max(CHUNK_BYTES_MIN),
        };
        if layout.size() > chunk_bytes / 4 {
            self.used += layout.size();
            return self.add_chunk(layout.size());
        }
        self.next = self.add_chunk(chunk_bytes);
        self.left = chunk_bytes;
        self.allocate(layout)
    }

    /// Allocates a chunk that starts on a cache line. REQUIRES: `bytes` is not zero.
    fn add_chunk(&mut self, bytes: usize) -> NonNull<u8> {
        if (PAGES_BYTES..HUGE_PAGE_BYTES).contains(&bytes)
            && let Some(chunk) = Chunk::from_pages(bytes)
        {
            let start = chunk.start();
            self.pages.push(chunk);
            self.reserved += bytes;
            return start;
        }
        let align = if bytes == HUGE_PAGE_BYTES { HUGE_PAGE_BYTES } else { CHUNK_ALIGN };
        let layout =
            Layout::from_size_align(bytes, align).expect("no piece is near half the address space");
        // SAFETY: the layout's size is not zero: `allocate` has checked its piece, and a bump
        // chunk has CHUNK_BYTES_MIN bytes or more.
        let Some(chunk) = NonNull::new(unsafe { alloc(layout) }) else {
            handle_alloc_error(layout);
        };
        if bytes == HUGE_PAGE_BYTES {
            advise_huge_page(chunk);
        }
        self.chunks.push((chunk, layout));
        self.reserved += bytes;
        chunk
    }
}

/// Advises Linux to back a chunk by one huge page, which only affects speed.
///
/// REQUIRES: the chunk has the size and alignment of a huge page.
fn advise_huge_page(chunk: NonNull<u8>) {
    #[cfg(all(target_os = "linux", not(miri)))]
    {
        use std::ffi::{c_int, c_void};
        /// Value of `MADV_HUGEPAGE`, which is the same on every architecture.
        const HUGE_PAGE: c_int = 14;
        unsafe extern "C" {
            /// Function of the C library, which the standard library links anyway.
            fn madvise(address: *mut c_void, length: usize, advice: c_int) -> c_int;
        }
        // SAFETY: the advice changes neither contents nor validity of memory, and the range is a
        // chunk of ours, whole pages and nothing else.
        unsafe { madvise(chunk.as_ptr().cast(), HUGE_PAGE_BYTES, HUGE_PAGE) };
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    let _ = chunk;
}

impl Drop for BumpArena {
    fn drop(&mut self) {
        for &(chunk, layout) in &self.chunks {
            // SAFETY: each chunk came from `alloc` with this layout and is freed once, here. No
            // thread uses a piece any more: the arena's owner keeps it as long as pieces are in
            // use.
            unsafe { dealloc(chunk.as_ptr(), layout) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_aligned_disjoint_and_counted() {
        let mut arena = BumpArena::new();
        let mut pieces: Vec<(usize, usize)> = Vec::new();
        for step in 0..2000usize {
            let (size, align) = (1 + step * 37 % 700, 1 << (step % 7));
            let layout = Layout::from_size_align(size, align).expect("a small layout");
            let piece = arena.allocate(layout);
            // SAFETY: the piece is `size` bytes of ours.
            unsafe { piece.write_bytes(step as u8, size) };
            assert_eq!(piece.addr().get() % align, 0);
            pieces.push((piece.addr().get(), size));
        }
        let total: usize = pieces.iter().map(|piece| piece.1).sum();
        assert!(total <= arena.used() && arena.used() <= arena.reserved);
        assert!(arena.reserved <= arena.reserved());
        pieces.sort_unstable();
        assert!(pieces.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
    }

    #[test]
    fn a_large_piece_leaves_the_current_chunk_in_use() {
        let mut arena = BumpArena::new();
        let small = Layout::from_size_align(64, 64).expect("a small layout");
        let first = arena.allocate(small).addr().get();
        arena.allocate(Layout::from_size_align(100 << 20, 8).expect("a large layout"));
        assert_eq!(arena.allocate(small).addr().get(), first + 64);
        assert_eq!(arena.used(), 128 + (100 << 20));
    }
}
