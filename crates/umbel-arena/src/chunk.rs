//! Chunks: memory from the system, on huge pages if possible.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// Bytes of a huge page, and of a chunk of an arena that holds at least as much.
pub(crate) const HUGE_PAGE_BYTES: usize = 2 * 1024 * 1024;
/// Alignment of allocations and chunks: a cache line.
pub(crate) const LINE_BYTES: usize = 64;

/// Memory that this value owns. Its bytes are not initialized.
#[derive(Debug)]
pub struct Chunk {
    start: NonNull<u8>,
    layout: Layout,
    /// Whether the memory is pages mapped from the system, and not from the allocator.
    mapped: bool,
}

// SAFETY: a chunk owns its memory as a `Box` does; the pointer is not tied to a thread.
unsafe impl Send for Chunk {}

impl Chunk {
    /// Allocates a chunk of `bytes` bytes. A chunk of at least a huge page is aligned to a huge
    /// page.
    ///
    /// REQUIRES: `bytes` is a multiple of [`LINE_BYTES`] and neither zero nor near half the address
    /// space. Like every memory allocation, aborts if the system has no memory.
    pub(crate) fn new(bytes: usize) -> Chunk {
        let align = if bytes >= HUGE_PAGE_BYTES { HUGE_PAGE_BYTES } else { LINE_BYTES };
        let layout =
            Layout::from_size_align(bytes, align).expect("no piece is near half the address space");
        if bytes >= HUGE_PAGE_BYTES
            && let Some(start) = system::map(bytes)
        {
            return Chunk { start, layout, mapped: true };
        }
        assert!(bytes > 0, "a chunk holds something");
        // SAFETY: the size of the layout was just checked not to be zero.
        let Some(start) = NonNull::new(unsafe { alloc(layout) }) else {
            handle_alloc_error(layout);
        };
        Chunk { start, layout, mapped: false }
    }

    /// Allocates a chunk of `bytes` bytes in pages of its own. Dropping such a chunk returns its
    /// pages to the system, whereas an allocator could keep them. Returns `None` if the system has
    /// no memory.
    pub fn from_pages(bytes: usize) -> Option<Chunk> {
        let layout = Layout::from_size_align(bytes, LINE_BYTES).ok().filter(|_| bytes > 0)?;
        let start = system::map_pages(bytes)?;
        Some(Chunk { start, layout, mapped: true })
    }

    /// Start of the chunk, aligned to at least a cache line.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Length of the chunk in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.layout.size()
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        if self.mapped {
            // SAFETY: `map` or `map_pages` returned this memory with this length. The owner that
            // drops a chunk guarantees that no piece of it is in use.
            unsafe { system::unmap(self.start, self.layout.size()) };
        } else {
            // SAFETY: `alloc` gave this memory with this layout; see above.
            unsafe { dealloc(self.start.as_ptr(), self.layout) };
        }
    }
}

#[cfg(all(target_os = "linux", not(miri)))]
mod system {
    use std::ptr::NonNull;

    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

    use super::HUGE_PAGE_BYTES;

    /// Maps memory that is aligned to a huge page, and advises the system to use huge pages for it.
    /// Returns `None` if the system gives no memory.
    pub(super) fn map(bytes: usize) -> Option<NonNull<u8>> {
        let kept = whole_pages(bytes)?;
        let reserved = kept.checked_add(HUGE_PAGE_BYTES)?;
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new private mapping at an address that the kernel chooses touches no memory
        // that any thread has.
        let base = unsafe { mmap_anonymous(std::ptr::null_mut(), reserved, protection, flags) };
        let base: *mut u8 = base.ok()?.cast();
        let before = base.addr().wrapping_neg() % HUGE_PAGE_BYTES;
        // SAFETY: `before` is less than a huge page, by which the mapping is longer than `kept`.
        let start = unsafe { base.add(before) };
        let after = reserved - before - kept;
        // SAFETY: both ends lie in the mapping made above, outside the returned part, and no
        // thread knows them; advice changes no contents.
        unsafe {
            if before > 0 {
                let _ = munmap(base.cast(), before);
            }
            if after > 0 {
                let _ = munmap(start.add(kept).cast(), after);
            }
            // Where there are no huge pages, small ones do.
            let _ = madvise(start.cast(), bytes, Advice::LinuxHugepage);
        }
        NonNull::new(start)
    }

    /// Maps memory in pages of its own. Returns `None` if the system gives no memory.
    pub(super) fn map_pages(bytes: usize) -> Option<NonNull<u8>> {
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: as in `map`.
        let base =
            unsafe { mmap_anonymous(std::ptr::null_mut(), whole_pages(bytes)?, protection, flags) };
        NonNull::new(base.ok()?.cast())
    }

    /// Returns memory to the system.
    ///
    /// # Safety
    /// `map` or `map_pages` returned `start` for as many bytes, and no thread uses the memory any
    /// more.
    pub(super) unsafe fn unmap(start: NonNull<u8>, bytes: usize) {
        let kept = whole_pages(bytes).unwrap_or(bytes);
        // SAFETY: the caller owns these pages, as many as `map` kept, and uses them no more.
        let _ = unsafe { munmap(start.as_ptr().cast(), kept) };
    }

    /// Returns the length rounded up to whole pages: 64 KiB is a multiple of every page size that
    /// Linux has.
    fn whole_pages(bytes: usize) -> Option<usize> {
        bytes.checked_next_multiple_of(64 * 1024)
    }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
mod system {
    use std::ptr::NonNull;

    /// Returns `None`, since this platform has no huge pages to request; the caller uses the
    /// allocator.
    pub(super) fn map(_bytes: usize) -> Option<NonNull<u8>> {
        None
    }

    /// Returns `None`, like [`map`].
    pub(super) fn map_pages(_bytes: usize) -> Option<NonNull<u8>> {
        None
    }

    /// # Safety
    /// Never called, because `map` and `map_pages` return no memory.
    pub(super) unsafe fn unmap(_start: NonNull<u8>, _bytes: usize) {}
}
