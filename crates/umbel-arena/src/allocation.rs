//! [`Allocation`]: a reference-counted, thin pointer to bytes in an arena.

use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering, fence};

use crate::chunk::LINE_BYTES;
use crate::chunk_allocator::ChunkAllocator;

/// Header before the bytes of an allocation.
#[repr(C)]
struct AllocationHeader {
    /// Number of [`Allocation`] values that refer to these bytes, including one in a slot.
    references: AtomicU32,
    len: u32,
    chunk: u32,
    /// Whether a slot lent the allocation since the mark was last cleared. The mark is in the
    /// header, which a reader reads anyway, so that it costs no cache line of its own.
    touched: AtomicU8,
}

const HEADER_BYTES: usize = size_of::<AllocationHeader>();

/// Bytes in an arena that never change. A clone is another reference to the same bytes.
///
/// INVARIANT: `head` is the start of memory taken from an arena: an `AllocationHeader`, then `len`
/// initialized bytes, then, aligned, an `Arc<ChunkAllocator>` as a raw pointer. The memory stays
/// until the count is zero.
pub struct Allocation {
    head: NonNull<AllocationHeader>,
}

// SAFETY: a piece is a counted reference, like an `Arc`, to bytes that never change and atomics.
unsafe impl Send for Allocation {}
// SAFETY: as above.
unsafe impl Sync for Allocation {}

impl Allocation {
    /// Limit on the length of an allocation, which is always shorter than this.
    pub const BYTES_MAX: usize = u32::MAX as usize - 2 * LINE_BYTES;

    /// Returns the offset, from the start, of the pointer to the chunk allocator.
    fn tail(len: usize) -> usize {
        (HEADER_BYTES + len).next_multiple_of(align_of::<*const ChunkAllocator>())
    }

    fn total(len: usize) -> usize {
        (Allocation::tail(len) + size_of::<*const ChunkAllocator>()).next_multiple_of(LINE_BYTES)
    }

    pub(crate) fn new(memory: &Arc<ChunkAllocator>, parts: &[&[u8]]) -> Allocation {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        assert!(len < Allocation::BYTES_MAX, "no piece is this long");
        let (start, chunk) = memory.take(Allocation::total(len));
        let head = AllocationHeader {
            references: AtomicU32::new(1),
            len: len as u32,
            chunk,
            touched: AtomicU8::new(0),
        };
        let mut at = HEADER_BYTES;
        // SAFETY: `start` is `total(len)` bytes that start on a line and that no other thread has.
        // Header, parts and tail fit by the arithmetic of `total`, and are aligned.
        unsafe {
            start.cast::<AllocationHeader>().write(head);
            for part in parts {
                start.add(at).copy_from_nonoverlapping(NonNull::from(*part).cast(), part.len());
                at += part.len();
            }
            let memory = Arc::into_raw(Arc::clone(memory));
            start.add(Allocation::tail(len)).cast::<*const ChunkAllocator>().write(memory);
        }
        Allocation { head: start.cast() }
    }

    #[inline]
    fn head(&self) -> &AllocationHeader {
        // SAFETY: by the invariant; only atomics of a head ever change.
        unsafe { self.head.as_ref() }
    }

    /// Bytes of the arena that the allocation takes.
    pub fn memory_bytes(&self) -> usize {
        Allocation::total(self.head().len as usize)
    }

    /// Returns the number of the chunk that has the allocation.
    pub fn chunk(&self) -> u32 {
        self.head().chunk
    }

    /// Returns the start of the bytes, to which their owner may write.
    pub(crate) fn start(&self) -> NonNull<u8> {
        // SAFETY: the bytes stand after the head, in the same memory.
        unsafe { self.head.cast::<u8>().add(HEADER_BYTES) }
    }

    /// Turns the reference into a raw pointer, for a slot.
    pub(crate) fn into_raw(self) -> NonNull<u8> {
        ManuallyDrop::new(self).head.cast()
    }

    /// Turns the result of [`Allocation::into_raw`] back into a reference.
    ///
    /// # Safety
    /// `raw` came from `into_raw`, and is turned back only once.
    pub(crate) unsafe fn from_raw(raw: NonNull<u8>) -> Allocation {
        Allocation { head: raw.cast() }
    }

    /// Borrows an allocation without taking the reference.
    ///
    /// # Safety
    /// `raw` came from `into_raw`, and its reference is not dropped during `'a`.
    #[inline]
    pub(crate) unsafe fn borrow<'a>(raw: NonNull<u8>) -> BorrowedAllocation<'a> {
        // SAFETY: by the invariant of the piece that the pointer came from, which the caller says
        // stays.
        BorrowedAllocation { head: unsafe { raw.cast::<AllocationHeader>().as_ref() }, raw }
    }
}

/// An allocation that its slot lends.
#[derive(Clone, Copy)]
pub(crate) struct BorrowedAllocation<'a> {
    head: &'a AllocationHeader,
    raw: NonNull<u8>,
}

impl<'a> BorrowedAllocation<'a> {
    #[inline]
    pub(crate) fn bytes(self) -> &'a [u8] {
        // SAFETY: `len` initialised bytes stand after the head, in the memory that `raw` has the
        // provenance of, and never change.
        unsafe {
            std::slice::from_raw_parts(self.raw.add(HEADER_BYTES).as_ptr(), self.head.len as usize)
        }
    }

    /// Marks the allocation as read; stores nothing if it is marked already.
    #[inline]
    pub(crate) fn touch(self) {
        if self.head.touched.load(Ordering::Relaxed) == 0 {
            self.head.touched.store(1, Ordering::Relaxed);
        }
    }

    /// Returns whether the allocation was marked as read, and clears the mark.
    pub(crate) fn take_touched(self) -> bool {
        let touched = self.head.touched.load(Ordering::Relaxed) != 0;
        if touched {
            self.head.touched.store(0, Ordering::Relaxed);
        }
        touched
    }

    /// Returns a counted reference to the allocation.
    pub(crate) fn to_owned_allocation(self) -> Allocation {
        let piece = ManuallyDrop::new(Allocation { head: self.raw.cast() });
        Allocation::clone(&piece)
    }
}

impl Deref for Allocation {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: this reference keeps the piece for as long as `self` is borrowed.
        unsafe { Allocation::borrow(self.head.cast()) }.bytes()
    }
}

impl Clone for Allocation {
    fn clone(&self) -> Allocation {
        let before = self.head().references.fetch_add(1, Ordering::Relaxed);
        if before > u32::MAX / 2 {
            // Two thousand million references were leaked; an overflow would free used memory.
            std::process::abort();
        }
        Allocation { head: self.head }
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if self.head().references.fetch_sub(1, Ordering::Release) != 1 {
            return;
        }
        fence(Ordering::Acquire);
        let (len, chunk) = (self.head().len as usize, self.head().chunk);
        let start = self.head.cast::<u8>();
        // SAFETY: this was the last reference, and the fence orders every other's use before this.
        // `new` wrote the pointer there; it is turned back once.
        let memory = unsafe {
            Arc::from_raw(start.add(Allocation::tail(len)).cast::<*const ChunkAllocator>().read())
        };
        memory.give(start, chunk, Allocation::total(len));
    }
}

impl std::fmt::Debug for Allocation {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Piece").field("bytes", &self.len()).finish_non_exhaustive()
    }
}
