//! The chunks of an arena, and who has which part of them.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::chunk::{Chunk, HUGE_PAGE_BYTES, LINE_BYTES};
use crate::extents::{Extent, Extents};

/// The first chunk, so that a store of a few entries does not take a huge page.
const CHUNK_BYTES_MIN: usize = 64 * 1024;
/// A piece larger than this gets a chunk of its own, which goes with it.
const SHARED_BYTES_MAX: usize = HUGE_PAGE_BYTES / 2;

/// How much of a chunk is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkUse {
    /// Its number, as [`crate::Piece::chunk`] says it.
    pub number: u32,
    /// Bytes of the pieces in it.
    pub used: usize,
    /// Its bytes.
    pub bytes: usize,
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
    /// Bytes in pieces, and bytes taken from the system.
    pub(crate) fn bytes(&self) -> (usize, usize) {
        (self.used.load(Ordering::Relaxed), self.held.load(Ordering::Relaxed))
    }

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

    /// The chunks of several pieces that are used in part, those first of which the least is used.
    pub(crate) fn emptiest(&self) -> Vec<ChunkUse> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut chunks: Vec<ChunkUse> = Vec::new();
        for (number, free) in state.free.free_lines() {
            let Some(Some(chunk)) = state.chunks.get(number as usize) else { continue };
            let bytes = chunk.bytes();
            let used = bytes - free as usize * LINE_BYTES;
            if used > 0 {
                chunks.push(ChunkUse { number, used, bytes });
            }
        }
        drop(state);
        chunks.sort_unstable_by_key(|chunk| (chunk.used, chunk.number));
        chunks
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
