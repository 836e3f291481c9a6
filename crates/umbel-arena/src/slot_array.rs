//! [`SlotArray`]: an array of slots, each empty or with an allocation that readers use without a
//! lock.

use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::allocation::Allocation;
use crate::arena::Arena;
use crate::epoch::{EpochGuard, Epochs};
use crate::prefetch::{prefetch_at, prefetch_lines_at};

/// Content of a slot: null, or the pointer of [`Allocation::into_raw`].
type SlotCell = AtomicPtr<u8>;

/// Slots for allocations of one arena.
///
/// INVARIANT: `cells` is the start of the bytes of `owner`, which has `len` cells. A pointer in a
/// cell owns a reference, which only the epochs or the drop of the slots release.
pub struct SlotArray {
    cells: NonNull<SlotCell>,
    len: usize,
    epochs: Arc<Epochs>,
    /// Owner of the memory of the cells. Cells are not read through it, because they change.
    owner: Allocation,
}

// SAFETY: cells are atomics, and their targets counted pieces that any thread may drop; the memory
// stays with `owner`.
unsafe impl Send for SlotArray {}
// SAFETY: as above.
unsafe impl Sync for SlotArray {}

impl SlotArray {
    /// Creates `len` empty slots for allocations of the arena `pieces`. The slots themselves are in
    /// `arena`.
    pub fn new(arena: &Arena, pieces: &Arena, len: usize) -> SlotArray {
        let zeros = [0; 4096];
        let (mut left, mut parts) = (len * size_of::<SlotCell>(), Vec::new());
        while left > 0 {
            parts.push(&zeros[..left.min(zeros.len())]);
            left -= left.min(zeros.len());
        }
        // Null pointers are zeros on every platform that Rust has.
        let owner = arena.store(&parts);
        let cells = owner.start().cast::<SlotCell>();
        assert!(cells.is_aligned(), "a piece's bytes are aligned to 16");
        SlotArray { cells, len, epochs: Arc::clone(pieces.epochs()), owner }
    }

    #[inline]
    fn cells(&self) -> &[SlotCell] {
        // SAFETY: by the invariant; null pointers were written to all of them.
        unsafe { std::slice::from_raw_parts(self.cells.as_ptr(), self.len) }
    }

    /// Number of slots.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no slots.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of the arena that the slots themselves take.
    pub fn memory_bytes(&self) -> usize {
        self.owner.memory_bytes()
    }

    /// Returns a guard for reading slots.
    #[inline]
    pub fn read(&self) -> SlotsGuard<'_> {
        SlotsGuard { slots: self, _pin: self.epochs.pin() }
    }

    /// Returns the allocation in a slot, as a counted reference.
    pub fn get_owned(&self, number: usize) -> Option<Allocation> {
        let reading = self.read();
        Some(reading.borrow(number)?.to_owned_allocation())
    }

    /// Puts an allocation into an empty slot. Returns `piece` as the error if the slot is not
    /// empty.
    ///
    /// # Panics
    /// If the slot does not exist.
    pub fn put(&self, number: usize, piece: Allocation) -> Result<(), Allocation> {
        let cell = &self.cells()[number];
        // Entered before the cell is read, so that a found piece stays long enough to be counted.
        let reading = self.read();
        let mut own = piece;
        loop {
            let raw = own.into_raw();
            let put =
                cell.compare_exchange(null_mut(), raw.as_ptr(), Ordering::SeqCst, Ordering::SeqCst);
            if put.is_ok() {
                return Ok(());
            }
            // SAFETY: the pointer was not put into the cell, so only this line takes it back.
            own = unsafe { Allocation::from_raw(raw) };
            if let Some(there) = reading.borrow(number) {
                return Err(there.to_owned_allocation());
            }
        }
    }

    /// Clears a slot. Returns the bytes of its allocation, which stays in memory until the readers
    /// that use it leave; 0 if the slot was empty.
    pub fn evict(&self, number: usize) -> usize {
        let Some(cell) = self.cells().get(number) else { return 0 };
        let Some(raw) = NonNull::new(cell.swap(null_mut(), Ordering::SeqCst)) else { return 0 };
        // SAFETY: the thread that swaps a pointer out of a cell takes over the reference that the
        // cell owned.
        let piece = unsafe { Allocation::from_raw(raw) };
        let bytes = piece.memory_bytes();
        self.epochs.retire(piece, bytes as u64);
        bytes
    }

    /// Returns the number of the chunk of the allocation in a slot.
    pub fn chunk(&self, number: usize) -> Option<u32> {
        self.get_owned(number).map(|piece| piece.chunk())
    }

    /// Returns whether a reader used the allocation in a slot since the last call, and clears the
    /// mark.
    pub fn take_touched(&self, number: usize) -> bool {
        let reading = self.read();
        reading.borrow(number).is_some_and(|lent| lent.take_touched())
    }

    /// Prefetches the cache line of a slot.
    #[inline]
    pub fn prefetch(&self, number: usize) {
        if let Some(cell) = self.cells().get(number) {
            prefetch_at(std::ptr::from_ref(cell).cast());
        }
    }

    /// Prefetches the first `lines` cache lines of the allocation in a slot, without reading the
    /// allocation. Returns whether the slot has one.
    #[inline]
    pub fn prefetch_allocation(&self, number: usize, lines: usize) -> bool {
        let start =
            self.cells().get(number).map_or(null_mut(), |cell| cell.load(Ordering::Relaxed));
        if start.is_null() {
            return false;
        }
        prefetch_lines_at(start, lines);
        true
    }
}

impl Drop for SlotArray {
    fn drop(&mut self) {
        for cell in self.cells() {
            if let Some(raw) = NonNull::new(cell.load(Ordering::Relaxed)) {
                // SAFETY: no thread reads the slots any more, because this is the last borrow of
                // them; each reference of a cell is taken back once.
                drop(unsafe { Allocation::from_raw(raw) });
            }
        }
    }
}

impl std::fmt::Debug for SlotArray {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("SlotArray").field("len", &self.len).finish_non_exhaustive()
    }
}

/// Guard of a reader of slots. Allocations that the reader uses stay in memory until the guard is
/// dropped, even if other threads evict them.
#[derive(Debug)]
pub struct SlotsGuard<'a> {
    slots: &'a SlotArray,
    _pin: EpochGuard<'a>,
}

impl SlotsGuard<'_> {
    #[inline]
    fn borrow(&self, number: usize) -> Option<crate::allocation::BorrowedAllocation<'_>> {
        let raw = self.slots.cells().get(number)?.load(Ordering::SeqCst);
        // SAFETY: the pointer was found under this pin, and pieces leave cells through the
        // epochs only, so its reference stays as long as `self` is borrowed.
        NonNull::new(raw).map(|raw| unsafe { Allocation::borrow(raw) })
    }

    /// Returns the bytes in a slot, and marks the slot as read; `None` if the slot is empty.
    #[inline]
    pub fn get(&self, number: usize) -> Option<&[u8]> {
        let lent = self.borrow(number)?;
        lent.touch();
        Some(lent.bytes())
    }

    /// Returns the allocation in a slot as a counted reference, and marks the slot as read.
    #[inline]
    pub fn get_owned(&self, number: usize) -> Option<Allocation> {
        let lent = self.borrow(number)?;
        lent.touch();
        Some(lent.to_owned_allocation())
    }

    /// Returns the bytes in a slot, without marking the slot as read.
    #[inline]
    pub fn peek(&self, number: usize) -> Option<&[u8]> {
        Some(self.borrow(number)?.bytes())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn slots_load_mark_and_clear() {
        let arena = Arena::new();
        let slots = SlotArray::new(&arena, &arena, 1000);
        let empty = arena.bytes().used;
        assert_eq!(empty, slots.memory_bytes());
        assert!(slots.read().get(3).is_none() && slots.read().get(1000).is_none());
        let piece = arena.store(&[b"three"]);
        let taken = piece.memory_bytes();
        slots.put(3, piece).unwrap();
        let second = slots.put(3, arena.store(&[b"other"])).unwrap_err();
        assert_eq!(&*second, b"three");
        drop(second);
        assert!(!slots.take_touched(3));
        assert_eq!(slots.read().get(3), Some(&b"three"[..]));
        assert!(slots.take_touched(3) && !slots.take_touched(3));
        slots.prefetch(3);
        assert!(slots.prefetch_allocation(3, 2));
        assert!(!slots.prefetch_allocation(4, 2) && !slots.prefetch_allocation(4000, 2));
        let held = slots.get_owned(3).unwrap();
        assert!(!slots.take_touched(3));
        assert!(slots.read().get_owned(3).is_some_and(|held| &*held == b"three"));
        assert!(slots.take_touched(3));
        let reading = slots.read();
        let lent = reading.get(3).unwrap();
        assert_eq!((slots.evict(3), slots.evict(3), slots.evict(1000)), (taken, 0, 0));
        assert_eq!(lent, b"three");
        drop(reading);
        slots.epochs.collect();
        assert_eq!(&*held, b"three");
        drop(held);
        assert_eq!(arena.bytes().used, empty);
        slots.put(999, arena.store(&[b"last"])).unwrap();
        drop(slots);
        assert_eq!(arena.bytes().used, 0);
    }

    /// Readers check every byte of the allocations while other threads put and evict them.
    #[test]
    fn lent_bytes_survive_concurrent_eviction() {
        let arena = Arena::new();
        let slots = SlotArray::new(&arena, &arena, 8);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for worker in 0..2usize {
                let (slots, arena, done) = (&slots, &arena, &done);
                scope.spawn(move || {
                    let mut state = worker + 1;
                    while !done.load(Ordering::Relaxed) {
                        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
                        let (number, byte) = (state >> 40 & 7, (state >> 33) as u8);
                        let _ = slots.put(number, arena.store(&[&vec![byte; 500 + state % 3000]]));
                        slots.evict(state >> 50 & 7);
                    }
                });
            }
            let readers: Vec<_> = (0..2)
                .map(|_| {
                    let slots = &slots;
                    scope.spawn(move || {
                        let (mut found, mut step) = (0, 0);
                        // Under load the other threads may not have run until then.
                        while step < 60_000 || found == 0 {
                            step += 1;
                            let reading = slots.read();
                            if let Some(bytes) = reading.get(step & 7) {
                                found += 1;
                                let _inner = slots.read();
                                assert!(bytes.len() >= 500);
                                assert!(bytes.iter().all(|byte| *byte == bytes[0]));
                            }
                            if let Some(held) = slots.get_owned(step >> 3 & 7) {
                                drop(reading);
                                assert!(held.iter().all(|byte| *byte == held[0]));
                            }
                        }
                    })
                })
                .collect();
            let ended: Vec<_> =
                readers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
            done.store(true, Ordering::Relaxed);
            assert!(ended.iter().all(Result::is_ok));
        });
        drop(slots);
        let epochs = Arc::clone(arena.epochs());
        epochs.collect();
        assert_eq!(arena.bytes().used, 0);
    }
}
