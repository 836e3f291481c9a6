//! Slots: an array of places, each empty or with a piece that readers look at without a lock.

use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::arena::Arena;
use crate::epoch::{Epochs, Pin};
use crate::piece::Piece;
use crate::prefetch::{prefetch_at, prefetch_lines_at};

/// What a slot holds: null, or what [`Piece::into_raw`] gave.
type Cell = AtomicPtr<u8>;

/// Places for pieces of one arena.
///
/// INVARIANT: `cells` is where the bytes of `owner` start, `len` cells in them. A pointer in a cell
/// owns a reference, which goes only through the epochs, or with the slots themselves.
pub struct Slots {
    cells: NonNull<Cell>,
    len: usize,
    epochs: Arc<Epochs>,
    /// Cells are never looked at through it: they change.
    owner: Piece,
}

// SAFETY: cells are atomics, their targets counted pieces that any thread may drop; the memory
// stays with `owner`.
unsafe impl Send for Slots {}
// SAFETY: as above.
unsafe impl Sync for Slots {}

impl Slots {
    /// `len` empty slots, themselves in `arena`, for pieces of `pieces`.
    pub fn new(arena: &Arena, pieces: &Arena, len: usize) -> Slots {
        let zeros = [0; 4096];
        let (mut left, mut parts) = (len * size_of::<Cell>(), Vec::new());
        while left > 0 {
            parts.push(&zeros[..left.min(zeros.len())]);
            left -= left.min(zeros.len());
        }
        // Null pointers are zeros on every platform that Rust has.
        let owner = arena.store(&parts);
        let cells = owner.start().cast::<Cell>();
        assert!(cells.is_aligned(), "a piece's bytes are aligned to 16");
        Slots { cells, len, epochs: Arc::clone(pieces.epochs()), owner }
    }

    #[inline]
    fn cells(&self) -> &[Cell] {
        // SAFETY: by the invariant; null pointers were written to all of them.
        unsafe { std::slice::from_raw_parts(self.cells.as_ptr(), self.len) }
    }

    /// How many slots there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many bytes of the arena the slots themselves take.
    pub fn memory_bytes(&self) -> usize {
        self.owner.memory_bytes()
    }

    /// Enters, to look at slots.
    #[inline]
    pub fn read(&self) -> Reading<'_> {
        Reading { slots: self, _pin: self.epochs.pin() }
    }

    /// The piece in a slot, counted, for as long as the caller wants.
    pub fn hold(&self, number: usize) -> Option<Piece> {
        let reading = self.read();
        Some(reading.lent(number)?.hold())
    }

    /// Puts a piece into an empty slot. Gives the piece that is there where it was not empty.
    ///
    /// # Panics
    /// Where there is no such slot.
    pub fn put(&self, number: usize, piece: Piece) -> Result<(), Piece> {
        let cell = &self.cells()[number];
        // Begun before the cell is read: what is found there stays long enough to be counted.
        let reading = self.read();
        let mut own = piece;
        loop {
            let raw = own.into_raw();
            let put =
                cell.compare_exchange(null_mut(), raw.as_ptr(), Ordering::SeqCst, Ordering::SeqCst);
            if put.is_ok() {
                return Ok(());
            }
            // SAFETY: it was not put into the cell, so this is the only place that turns it back.
            own = unsafe { Piece::from_raw(raw) };
            if let Some(there) = reading.lent(number) {
                return Err(there.hold());
            }
        }
    }

    /// Empties a slot. Gives the bytes of memory that its piece takes until the readers that look
    /// at it have left; 0 where the slot was empty.
    pub fn evict(&self, number: usize) -> usize {
        let Some(cell) = self.cells().get(number) else { return 0 };
        let Some(raw) = NonNull::new(cell.swap(null_mut(), Ordering::SeqCst)) else { return 0 };
        // SAFETY: whoever swaps a pointer out of a cell takes over the reference that it owned.
        let piece = unsafe { Piece::from_raw(raw) };
        let bytes = piece.memory_bytes();
        self.epochs.retire(piece, bytes as u64);
        bytes
    }

    /// The number of the chunk that the piece in a slot lies in.
    pub fn chunk(&self, number: usize) -> Option<u32> {
        self.hold(number).map(|piece| piece.chunk())
    }

    /// Whether the piece in a slot was lent since this was last asked; clears the mark.
    pub fn take_touched(&self, number: usize) -> bool {
        let reading = self.read();
        reading.lent(number).is_some_and(|lent| lent.take_touched())
    }

    /// Asks for the line that a slot stands in.
    #[inline]
    pub fn prefetch(&self, number: usize) {
        if let Some(cell) = self.cells().get(number) {
            prefetch_at(std::ptr::from_ref(cell).cast());
        }
    }

    /// Asks for the first `lines` lines of the piece in a slot, and says whether there is one. The
    /// slot itself is read; the piece is not.
    #[inline]
    pub fn prefetch_piece(&self, number: usize, lines: usize) -> bool {
        let start =
            self.cells().get(number).map_or(null_mut(), |cell| cell.load(Ordering::Relaxed));
        if start.is_null() {
            return false;
        }
        prefetch_lines_at(start, lines);
        true
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        for cell in self.cells() {
            if let Some(raw) = NonNull::new(cell.load(Ordering::Relaxed)) {
                // SAFETY: nobody reads the slots any more, because this is the last borrow of them;
                // the reference that the cell owned is turned back once.
                drop(unsafe { Piece::from_raw(raw) });
            }
        }
    }
}

impl std::fmt::Debug for Slots {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Slots").field("len", &self.len).finish_non_exhaustive()
    }
}

/// Somebody who looks at slots. What was lent stays until this is dropped, whoever evicts it.
#[derive(Debug)]
pub struct Reading<'a> {
    slots: &'a Slots,
    _pin: Pin<'a>,
}

impl Reading<'_> {
    #[inline]
    fn lent(&self, number: usize) -> Option<crate::piece::Lent<'_>> {
        let raw = self.slots.cells().get(number)?.load(Ordering::SeqCst);
        // SAFETY: the pointer was found while this pin sits, and pieces leave cells through the
        // epochs only, so its reference stays as long as `self` is borrowed.
        NonNull::new(raw).map(|raw| unsafe { Piece::lend(raw) })
    }

    /// The bytes in a slot, which is marked as read. `None` where it is empty.
    #[inline]
    pub fn get(&self, number: usize) -> Option<&[u8]> {
        let lent = self.lent(number)?;
        lent.touch();
        Some(lent.bytes())
    }

    /// The piece in a slot, which is marked as read, counted, for as long as the caller wants.
    #[inline]
    pub fn hold(&self, number: usize) -> Option<Piece> {
        let lent = self.lent(number)?;
        lent.touch();
        Some(lent.hold())
    }

    /// The bytes in a slot, without a mark.
    #[inline]
    pub fn peek(&self, number: usize) -> Option<&[u8]> {
        Some(self.lent(number)?.bytes())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn slots_lend_mark_and_give_back() {
        let arena = Arena::new();
        let slots = Slots::new(&arena, &arena, 1000);
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
        assert!(slots.prefetch_piece(3, 2));
        assert!(!slots.prefetch_piece(4, 2) && !slots.prefetch_piece(4000, 2));
        let held = slots.hold(3).unwrap();
        assert!(!slots.take_touched(3));
        assert!(slots.read().hold(3).is_some_and(|held| &*held == b"three"));
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

    /// Readers check every byte of what they find while others put and evict it.
    #[test]
    fn what_is_lent_stays_whole_beside_eviction() {
        let arena = Arena::new();
        let slots = Slots::new(&arena, &arena, 8);
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
                        // Beside other work the others may come to nothing until then.
                        while step < 60_000 || found == 0 {
                            step += 1;
                            let reading = slots.read();
                            if let Some(bytes) = reading.get(step & 7) {
                                found += 1;
                                let _inner = slots.read();
                                assert!(bytes.len() >= 500);
                                assert!(bytes.iter().all(|byte| *byte == bytes[0]));
                            }
                            if let Some(held) = slots.hold(step >> 3 & 7) {
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
