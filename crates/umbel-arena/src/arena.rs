//! The arena: chunks, cut into pieces.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::chunk::{Chunk, HUGE_PAGE_BYTES, LINE_BYTES};
use crate::epoch::Epochs;
use crate::extents::{Extent, Extents};
use crate::piece::Piece;

/// The first chunk, so that a store of a few entries does not take a huge page.
const CHUNK_BYTES_MIN: usize = 64 * 1024;
/// A piece larger than this gets a chunk of its own, which goes with it.
const SHARED_BYTES_MAX: usize = HUGE_PAGE_BYTES / 2;

/// Memory in pieces. Clones share it; it goes when the last clone and the last piece have gone.
#[derive(Debug, Clone)]
pub struct Arena {
    memory: Arc<Memory>,
    epochs: Arc<Epochs>,
}

/// What an arena holds, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArenaBytes {
    /// In pieces, their headers and padding to whole lines included; also those that left their
    /// slot and wait for a reader.
    pub used: usize,
    /// Taken from the system: whole chunks.
    pub held: usize,
}

impl Default for Arena {
    fn default() -> Arena {
        Arena::new()
    }
}

impl Arena {
    /// An arena that holds nothing yet.
    pub fn new() -> Arena {
        Arena { memory: Arc::default(), epochs: Arc::default() }
    }

    /// Copies `parts` one behind the other into a new piece. Aborts, as every allocation does,
    /// where the system has no memory.
    ///
    /// REQUIRES: together they are shorter than [`Piece::BYTES_MAX`].
    pub fn store(&self, parts: &[&[u8]]) -> Piece {
        Piece::new(&self.memory, parts)
    }

    /// What the arena holds.
    pub fn bytes(&self) -> ArenaBytes {
        ArenaBytes {
            used: self.memory.used.load(Ordering::Relaxed),
            held: self.memory.held.load(Ordering::Relaxed),
        }
    }

    /// The epochs that protect what readers of this arena's slots look at.
    pub fn epochs(&self) -> &Arc<Epochs> {
        &self.epochs
    }
}

/// The chunks of an arena; pieces keep it alive.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    state: Mutex<State>,
    used: AtomicUsize,
    held: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    free: Extents,
    /// Chunks by number; `None` where one went away.
    chunks: Vec<Option<Chunk>>,
    vacant: Vec<u32>,
    /// A chunk of which everything is free: kept, so that a piece coming and going at the brim
    /// does not bring a chunk with it each time.
    spare: Option<u32>,
}

impl State {
    fn add(&mut self, chunk: Chunk) -> u32 {
        let number = self.vacant.pop().unwrap_or(self.chunks.len() as u32);
        if number as usize == self.chunks.len() {
            self.chunks.push(None);
        }
        self.chunks[number as usize] = Some(chunk);
        number
    }

    fn whole(&self, number: u32) -> Option<Extent> {
        let chunk = self.chunks.get(number as usize)?.as_ref()?;
        Some(Extent { chunk: number, start: 0, lines: (chunk.bytes() / LINE_BYTES) as u32 })
    }

    fn release(&mut self, number: u32) -> Option<Chunk> {
        self.vacant.push(number);
        self.chunks.get_mut(number as usize)?.take()
    }
}

impl Memory {
    /// Takes `bytes` bytes: where they start, and the number of their chunk.
    ///
    /// REQUIRES: `bytes` is a multiple of [`LINE_BYTES`], neither zero nor over 4 GiB.
    pub(crate) fn take(&self, bytes: usize) -> (NonNull<u8>, u32) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if bytes > SHARED_BYTES_MAX {
            let chunk = Chunk::new(bytes);
            let start = chunk.start();
            self.held.fetch_add(bytes, Ordering::Relaxed);
            return (start, state.add(chunk));
        }
        let lines = (bytes / LINE_BYTES) as u32;
        let extent = match state.free.take(lines) {
            Some(extent) => extent,
            None => self.grow(&mut state, lines),
        };
        if state.spare == Some(extent.chunk) {
            state.spare = None;
        }
        let chunk = state.chunks[extent.chunk as usize].as_ref();
        let chunk = chunk.expect("an extent that is free is part of a chunk");
        // SAFETY: extents lie inside their chunk: each was cut from one that covered it exactly.
        let start = unsafe { chunk.start().add(extent.start as usize * LINE_BYTES) };
        (start, extent.chunk)
    }

    /// Adds a chunk and takes `lines` lines of it.
    #[cold]
    fn grow(&self, state: &mut State, lines: u32) -> Extent {
        let held = self.held.load(Ordering::Relaxed);
        let wanted = held.next_power_of_two().clamp(CHUNK_BYTES_MIN, HUGE_PAGE_BYTES);
        let bytes = wanted.max((lines as usize * LINE_BYTES).next_power_of_two());
        let number = state.add(Chunk::new(bytes));
        self.held.fetch_add(bytes, Ordering::Relaxed);
        let all = (bytes / LINE_BYTES) as u32;
        state.free.give(Extent { chunk: number, start: 0, lines: all });
        state.free.take(lines).expect("a new chunk has room for what it was made for")
    }

    /// Gives back what [`Memory::take`] gave.
    ///
    /// REQUIRES: the three belong together, and nobody uses the memory any more.
    pub(crate) fn give(&self, start: NonNull<u8>, number: u32, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(whole) = state.whole(number) else { return };
        let leaves = if bytes > SHARED_BYTES_MAX {
            Some(number)
        } else {
            let first = state.chunks[number as usize].as_ref().map(Chunk::start);
            let offset = start.addr().get() - first.map_or(0, |first| first.addr().get());
            let start = (offset / LINE_BYTES) as u32;
            let lines = (bytes / LINE_BYTES) as u32;
            let joined = state.free.give(Extent { chunk: number, start, lines });
            if joined != whole {
                None
            } else if state.spare.is_none() {
                state.spare = Some(number);
                None
            } else {
                state.free.forget(joined);
                Some(number)
            }
        };
        let gone = leaves.and_then(|number| state.release(number));
        drop(state);
        if let Some(chunk) = gone {
            self.held.fetch_sub(chunk.bytes(), Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_large_piece_takes_its_chunk_along() {
        let arena = Arena::new();
        let content = vec![7u8; 5 << 20];
        let piece = arena.store(&[b"x", &content]);
        assert_eq!(piece.len(), content.len() + 1);
        assert_eq!((piece[0], piece[1], piece[5 << 20]), (b'x', 7, 7));
        let bytes = arena.bytes();
        assert_eq!(bytes.used, bytes.held);
        assert!(bytes.used >= piece.len() && bytes.used < piece.len() + 128);
        drop(piece);
        assert_eq!(arena.bytes(), ArenaBytes { used: 0, held: 0 });
    }

    #[test]
    fn a_piece_outlives_its_arena() {
        let arena = Arena::new();
        let piece = arena.store(&[b"still here"]);
        drop(arena);
        assert_eq!(&*piece, b"still here");
    }

    #[test]
    fn chunks_go_when_they_are_empty() {
        let arena = Arena::new();
        let pieces: Vec<Piece> = (0..4000).map(|_| arena.store(&[&[1; 4000]])).collect();
        let full = arena.bytes();
        assert_eq!(full.used, 4000 * 4032);
        assert!(full.held > full.used && full.held < full.used + full.used / 4);
        drop(pieces);
        let empty = arena.bytes();
        assert_eq!(empty.used, 0);
        assert!(empty.held <= HUGE_PAGE_BYTES, "one chunk is kept: {}", empty.held);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn pieces_keep_their_bytes(
            steps in proptest::collection::vec((any::<bool>(), 0usize..30_000, any::<usize>()), 1..300),
        ) {
            let arena = Arena::new();
            let mut pieces: Vec<(Piece, u8)> = Vec::new();
            for (number, (add, len, pick)) in steps.into_iter().enumerate() {
                if add || pieces.is_empty() {
                    let byte = number as u8;
                    pieces.push((arena.store(&[&vec![byte; len / 2], &vec![byte; len - len / 2]]), byte));
                } else {
                    let (piece, byte) = pieces.swap_remove(pick % pieces.len());
                    prop_assert!(piece.iter().all(|other| *other == byte));
                }
                let used: usize = pieces.iter().map(|(piece, _)| piece.memory_bytes()).sum();
                prop_assert_eq!(arena.bytes().used, used);
            }
            for (piece, byte) in pieces {
                prop_assert!(piece.iter().all(|other| *other == byte));
            }
            prop_assert_eq!(arena.bytes().used, 0);
        }
    }
}
