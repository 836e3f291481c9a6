//! An array of numbers in an arena, for data that stays in memory.

use std::ops::Deref;
use std::ptr::NonNull;

use crate::allocation::Allocation;
use crate::arena::Arena;

/// Types of numbers that an [`ArenaArray`] can hold.
pub trait PlainNumber: sealed::Plain {}

mod sealed {
    /// REQUIRES: every pattern of bytes is a valid value, the type has no padding, and its
    /// alignment is at most 8.
    pub trait Plain: Copy + 'static {}
    impl Plain for u8 {}
    impl Plain for u16 {}
    impl Plain for u32 {}
    impl Plain for u64 {}
}

impl<T: sealed::Plain> PlainNumber for T {}

/// An array in an arena. Unlike an [`Allocation`], the array value holds its length itself, so that
/// reading an item reads no other cache line.
///
/// INVARIANT: `start` is the start of the bytes of `piece`, and `len` items fill these bytes.
pub struct ArenaArray<T> {
    start: NonNull<T>,
    len: usize,
    piece: Allocation,
}

// SAFETY: it is a reference to plain numbers that never change, kept alive by the piece.
unsafe impl<T: PlainNumber> Send for ArenaArray<T> {}
// SAFETY: as above.
unsafe impl<T: PlainNumber> Sync for ArenaArray<T> {}

impl<T: PlainNumber> ArenaArray<T> {
    /// Copies `items` into the arena. REQUIRES: `items` take fewer bytes than
    /// [`Allocation::BYTES_MAX`].
    pub fn new(arena: &Arena, items: &[T]) -> ArenaArray<T> {
        let bytes = NonNull::from(items).cast::<u8>();
        // SAFETY: plain numbers without padding are readable as bytes.
        let bytes = unsafe { std::slice::from_raw_parts(bytes.as_ptr(), size_of_val(items)) };
        let piece = arena.store(&[bytes]);
        let start = NonNull::from(&*piece).cast::<T>();
        assert!(start.is_aligned(), "a piece's bytes are aligned to 16");
        ArenaArray { start, len: items.len(), piece }
    }

    /// Bytes of the arena that the array takes.
    pub fn memory_bytes(&self) -> usize {
        self.piece.memory_bytes()
    }
}

impl<T: PlainNumber> Deref for ArenaArray<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: by the invariant; the piece stays as long as `self`, and every pattern of bytes
        // is a number.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T> std::fmt::Debug for ArenaArray<T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Fixed").field("len", &self.len).finish_non_exhaustive()
    }
}
